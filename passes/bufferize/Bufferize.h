//===- Bufferize.h - Tensors become buffers ---------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_BUFFERIZE_BUFFERIZE_H
#define CONCORD_PASSES_BUFFERIZE_BUFFERIZE_H

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"

namespace concord {

/// What comm-bufferize does. `straight` says that the module needed no alias
/// analysis and that nothing is left to be folded.
llvm::LogicalResult bufferizeModule(mlir::ModuleOp module, bool &straight);

/// Whether every operation of `module` may be bufferised in place: tensors are
/// used in straight lines only (no branches, loops, calls or inserted slices),
/// and whatever is written over is not used afterwards. One-shot analysis comes
/// to the same conclusion, but compares each write with each read of what
/// aliases; this is near-linear in the uses. False: that analysis is needed.
bool bufferizesInPlace(mlir::ModuleOp module,
                       const mlir::bufferization::BufferizationOptions &);

/// Lets what is materialised in a destination be computed there: the
/// tensor.empty that it is written to becomes the destination. That is an
/// argument that nothing else uses, or one of `views`, of which nobody else
/// reads or writes what they show until all of them are written. For modules
/// that are straight lines.
void writeToDestinations(mlir::ModuleOp module,
                         const llvm::DenseSet<mlir::Value> &views);

} // namespace concord

#endif // CONCORD_PASSES_BUFFERIZE_BUFFERIZE_H

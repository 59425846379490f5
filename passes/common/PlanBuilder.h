//===- PlanBuilder.h - From a module to its plan table ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_PLANBUILDER_H
#define CONCORD_PASSES_COMMON_PLANBUILDER_H

#include "comm/Comm.h"
#include "concord/plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace concord {

/// The functions that ranks run: one per comm.program, or the public function
/// of an SPMD module.
mlir::SmallVector<mlir::func::FuncOp> entryFunctions(mlir::ModuleOp module);

/// The issues of `function` in program order (collectives and starts).
mlir::SmallVector<comm::CollectiveOpInterface>
issuesOf(mlir::func::FuncOp function);

/// The plan of the module, read from its issues. With `buffers`, operands must
/// be memrefs of the planned phase, and are resolved to where they lie; an
/// operand that cannot be resolved is Foreign. Emits a diagnostic on failure.
mlir::FailureOr<plan::Plan> buildPlan(mlir::ModuleOp module, bool buffers);

/// concord_buffer's outer, inner and stride for one side of a collective.
struct BufferShape {
  uint64_t outer = 1, innerBytes = 0, strideBytes = 0;
};
/// All of a value as one run of bytes.
BufferShape denseShape(mlir::Value value);
BufferShape bufferShape(comm::CollectiveOpInterface op, bool isInput);

/// Bytes of one element in memory.
uint64_t elementBytes(mlir::Type type);

/// "file:line" or the model's node name.
std::string describeLocation(mlir::Location loc);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_PLANBUILDER_H

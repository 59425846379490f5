//===- MicroBatches.h - --micro-batches=auto -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_OPT_MICROBATCHES_H
#define CONCORD_TOOLS_COMM_OPT_MICROBATCHES_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace concord {

/// --micro-batches=auto: compiles copies by `manager` with 1, 2, 4 and 8 parts,
/// and takes the one whose predicted step is shortest. More parts have to gain
/// enough to be worth their code. Parts hold less than the whole batch, so
/// those under way together may hold what that does: 1.1 times its arena, where
/// nothing is overlapped in it, else as much (it has grown by that already).
mlir::LogicalResult chooseMicroBatches(mlir::ModuleOp module,
                                       mlir::PassManager &manager,
                                       llvm::StringRef topology);

} // namespace concord

#endif // CONCORD_TOOLS_COMM_OPT_MICROBATCHES_H

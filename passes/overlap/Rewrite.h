//===- Rewrite.h - Split, start and wait ------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_OVERLAP_REWRITE_H
#define CONCORD_PASSES_OVERLAP_REWRITE_H

#include "comm/Comm.h"
#include "common/CostBridge.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

namespace concord {

/// A comm.start for `op`, right before it. `op` stays until it is waited for.
/// Its outs become the start's own, when they are an empty tensor that others
/// use as well.
comm::StartOp startCollective(comm::CollectiveOpInterface op);

/// The comm.wait of `start` before `before`; its result replaces that of `op`,
/// which is erased.
void waitForCollective(comm::CollectiveOpInterface op, comm::StartOp start,
                       mlir::Operation *before);

/// Cuts `op` into `pieces` collectives along a dimension that it neither cuts
/// nor assembles, and puts their results together; erases it. At least one of
/// the pieces may be smaller. Returns how many were made; 0, and nothing is
/// changed, when there is no such dimension (`why` says so).
unsigned splitCollective(comm::CollectiveOpInterface op, int64_t pieces,
                         llvm::StringRef &why);

/// Splits collectives of `bytes` (of the whole array) and more to pieces of
/// that size; with 0, those of a lower priority that would keep the link from a
/// higher one for long. Returns the number of pieces made; `pass` is whose
/// decisions they are.
unsigned splitLargeCollectives(mlir::ModuleOp module, const CostModel &cost,
                               int64_t bytes, llvm::StringRef pass);

/// Pulls collectives at the begin or the end of a loop's iteration into the
/// next one, where the rest of the body hides them. Returns how many.
unsigned pipelineLoop(mlir::scf::ForOp loop, const CostModel &cost);

} // namespace concord

#endif // CONCORD_PASSES_OVERLAP_REWRITE_H

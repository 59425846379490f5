//===- Update.h - A sharded update between two collectives ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of comm-fuse for optimisers whose states are divided among ranks.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_FUSE_UPDATE_H
#define CONCORD_PASSES_FUSE_UPDATE_H

#include "comm/Comm.h"
#include "fuse/Fusion.h"

namespace concord::fuse {

/// Makes one operation of a reduce_scatter, elementwise operations on the own
/// share, and the all_gather of one of their results. Explains what it does.
/// The collectives that went away are added to `erased`.
Outcome fuseUpdate(comm::CollectiveOpInterface scatter,
                   const FusionOptions &options,
                   llvm::DenseSet<mlir::Operation *> &erased);

} // namespace concord::fuse

#endif // CONCORD_PASSES_FUSE_UPDATE_H

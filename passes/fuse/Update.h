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
#include "concord/cost/Machine.h"

namespace concord::fuse {

struct UpdateOptions {
  const cost::Machine &machine;
  bool force = false;        ///< whatever is predicted
  bool exact = false;        ///< refuse what rounds otherwise
  double minGainPercent = 0; ///< of the unfused time
};

/// Makes one operation of a reduce_scatter, elementwise operations on the own
/// share, and the all_gather of one of their results. Null where there is no
/// such pattern, and nothing is explained; else whether it was fused. The
/// all_gather is erased, too: it is added to `erased`.
std::optional<bool> fuseUpdate(comm::CollectiveOpInterface scatter,
                               const UpdateOptions &options,
                               llvm::DenseSet<mlir::Operation *> &erased);

} // namespace concord::fuse

#endif // CONCORD_PASSES_FUSE_UPDATE_H

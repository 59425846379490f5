//===- Exchange.h - All-to-alls with the products around them ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of comm-fuse for mixtures of experts.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_FUSE_EXCHANGE_H
#define CONCORD_PASSES_FUSE_EXCHANGE_H

#include "comm/Comm.h"
#include "fuse/Fusion.h"

namespace concord::fuse {

/// Makes one operation of an all_to_all and the products of groups that take
/// its result, or the product whose weighed rows it returns. Explains what it
/// does.
Outcome fuseExchange(comm::CollectiveOpInterface op,
                     const FusionOptions &options);

} // namespace concord::fuse

#endif // CONCORD_PASSES_FUSE_EXCHANGE_H

//===- Sharding.h - Global tensors to local ones and back -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A rank's part of a tensor is a product of one index list per dimension
// (sharding only ever picks indices of single dimensions), so slicing and
// gathering are one walk over that product, with the contiguous tail copied in
// one piece.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_SHARDING_H
#define CONCORD_TOOLS_COMMON_SHARDING_H

#include "common/ProgramMeta.h"

namespace concord::tools {

/// For each dimension, the global indices that `rank` holds, in local order.
std::vector<std::vector<int64_t>>
localIndices(const ProgramMeta &meta, const Entry &entry, int64_t rank);

/// Which ranks hold the same part: equal exactly where the parts are the same.
/// The least rank with the part is its representative.
int64_t representative(const ProgramMeta &meta, const Entry &entry,
                       int64_t rank);

/// The part of `global` (dense, entry.shape, entry.dtype) that `rank` holds.
std::vector<std::byte> sliceFor(const ProgramMeta &meta, const Entry &entry,
                                int64_t rank,
                                std::span<const std::byte> global);

/// The inverse: put `local` where it belongs in `global`.
void placeFrom(const ProgramMeta &meta, const Entry &entry, int64_t rank,
               std::span<const std::byte> local, std::span<std::byte> global);

/// Gather the ranks' parts to the global tensor. `locals[r]` has the bytes of
/// local_shape. Ranks that hold the same part must agree bit for bit: the
/// RankError that is thrown otherwise names both ranks, the element and both
/// values. Not for per-rank entries.
HostTensor gather(const ProgramMeta &meta, const Entry &entry,
                  std::span<const std::span<const std::byte>> locals);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_SHARDING_H

//===- Together.h - Equal offsets in several arenas -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each program has an arena of its own. What programs have in one collective
// lies at one offset in all of them, where the arenas stay as small.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_MEMORY_TOGETHER_H
#define CONCORD_MEMORY_TOGETHER_H

#include "concord/memory/Place.h"

namespace concord::memory {

/// A buffer of one of several arenas.
struct Member {
  uint32_t arena = 0, buffer = 0;
  bool operator==(const Member &) const = default;
};

/// Why the members of a set lie at offsets of their own.
enum class Apart : uint8_t {
  No,           ///< they do not: one offset for all
  LiveTogether, ///< two buffers of one arena would have to be one
  LargerArena,  ///< no placement was found that keeps the arenas small
  TooMany,      ///< more pairs of buffers than are looked at
};

struct JointPlacement {
  std::vector<Placement> arenas;
  std::vector<Apart> sets;
};

/// Places every arena by itself, then the members of as many sets as possible
/// at equal offsets. A set is taken whole or not at all; sets with a common
/// buffer share their offset, or the later one stays apart. An arena is not
/// larger than it is alone, than `growth` times its largest live set, or, where
/// it is less than that, than `most` bytes. Deterministic.
JointPlacement placeTogether(const std::vector<std::vector<Buffer>> &arenas,
                             const std::vector<std::vector<Member>> &sets,
                             double growth,
                             std::optional<int64_t> most = std::nullopt,
                             int64_t work = kPlaceWork);

/// Checks one independently. Returns what is wrong, or "".
std::string verify(const std::vector<std::vector<Buffer>> &arenas,
                   const std::vector<std::vector<Member>> &sets,
                   const JointPlacement &placement);

} // namespace concord::memory

#endif // CONCORD_MEMORY_TOGETHER_H

//===- Place.h - Where buffers lie in one arena -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Offline dynamic storage allocation, without MLIR: buffers with sizes and
// intervals of time get offsets, so that no two that are live at the same time
// overlap and the arena is small.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_MEMORY_PLACE_H
#define CONCORD_MEMORY_PLACE_H

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace concord::memory {

/// A buffer of `bytes` >= 0 that is live from `first` to `last`, both included
/// and >= 0.
struct Buffer {
  int64_t first = 0, last = 0, bytes = 0;
  bool meets(const Buffer &other) const {
    return first <= other.last && other.first <= last;
  }
};

struct Placement {
  std::vector<int64_t> offsets; ///< in bytes, one per buffer
  int64_t bytes = 0;            ///< size of the arena
  int64_t bound = 0;            ///< largestLiveSet(): no arena is smaller
  const char *rule = "";        ///< what found it
  bool optimal = false;         ///< no other placement is smaller
};

/// The largest sum of bytes that are live at one time.
int64_t largestLiveSet(const std::vector<Buffer> &buffers);

/// Steps of work (looks at one neighbour) that place() takes at most beyond
/// its first placement, which is near-linear.
constexpr int64_t kPlaceWork = 60'000'000;

/// The smallest placement found: as memory is given out in time, forwards and
/// backwards; in several orders, each at the lowest place that is free; then by
/// local search over orders, and for few buffers by trying all. Deterministic:
/// the same input and `work` give the same result on every machine; without
/// work only the first rules, which are near-linear, are tried. Offsets are
/// sums of sizes, so sizes that are multiples of an alignment give aligned
/// offsets. No work is spent on less than `enough` bytes, nor on reaching it
/// where more than that live at once.
Placement place(const std::vector<Buffer> &buffers, int64_t work = kPlaceWork,
                int64_t enough = 0);

/// Two buffers, the first with the lower number, that are live together and
/// overlap at `offsets` >= 0; buffers that never live (first > last) or have no
/// bytes meet none. Near-linear.
std::optional<std::pair<size_t, size_t>>
findOverlap(const std::vector<Buffer> &buffers,
            const std::vector<int64_t> &offsets);

/// Checks a placement independently. Returns what is wrong, or "".
std::string verify(const std::vector<Buffer> &buffers,
                   const Placement &placement);

} // namespace concord::memory

#endif // CONCORD_MEMORY_PLACE_H

//===- Packing.h - How what peers read is stored ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A line of a slot, or of staging memory, was read by other cores since it was
// stored last. Where they share a cache with this one, storing it again is
// cheap, and they find it there. Where they do not, each line takes as long as
// a flag and they do not overlap, so stores past the caches are faster. Which
// it is, no topology of a virtual machine tells, and a host may move cores
// within seconds. So now and then a payload is stored in one way or the other,
// waited for, and timed.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_PACKING_H
#define CONCORD_RUNTIME_ALGORITHMS_PACKING_H

#include <algorithm>
#include <cstdint>

namespace concord::rt {

class Packing {
public:
  /// Whether the next payload goes past the caches. `timed`: note() what it
  /// takes until it is stored.
  bool next(bool &timed) {
    const uint32_t every = costs[0] && costs[1] ? kEvery : kFirst;
    timed = ++turn % every == 0;
    return timed ? turn / every % 2 : faster;
  }
  bool past() const { return faster; }
  void note(bool past, int64_t nanoseconds, uint64_t bytes) {
    // In 1/1024 ns per byte. What was interrupted takes far longer.
    int64_t took = std::max<int64_t>(nanoseconds * 1024 / int64_t(bytes), 8);
    int64_t &known = costs[past];
    known = known ? (7 * known + std::min(took, 4 * known)) / 8 : took;
    // Who reads has to fetch it from here, which is not in this time.
    if (costs[0] && costs[1])
      faster = costs[1] < 2 * costs[0];
  }

private:
  static constexpr uint32_t kFirst = 4, kEvery = 256;
  uint32_t turn = 0;
  int64_t costs[2] = {}; ///< through the caches, past them; 0: not known
  bool faster = true;    ///< past the caches
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_PACKING_H

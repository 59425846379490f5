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
    const uint32_t every =
        counts[0] < kMean || counts[1] < kMean ? kFirst : kEvery;
    timed = ++turn % every == 0;
    return timed ? turn / every % 2 : faster;
  }
  bool past() const { return faster; }
  void note(bool past, int64_t nanoseconds, uint64_t bytes) {
    double took = double(std::max<int64_t>(nanoseconds, 1)) / double(bytes);
    double &known = costs[past];
    if (counts[past] < kMean)
      ++counts[past];
    // What was interrupted takes far longer.
    if (known > 0)
      took = std::min(took, 4 * known);
    known += (took - known) / counts[past];
    // Who reads has to fetch it from here, which is not in this time: where
    // there is a common cache, storing there takes two thirds of the time past
    // the caches, else at least four fifths.
    if (counts[0] && counts[1])
      faster = 3 * costs[1] < 4 * costs[0];
  }

private:
  static constexpr uint32_t kFirst = 4, kEvery = 256;
  static constexpr int kMean = 8; ///< of about so many
  uint32_t turn = 0;
  double costs[2] = {}; ///< ns per byte, through the caches and past them
  int counts[2] = {};   ///< of which they are the mean, kMean at most
  bool faster = true;   ///< past the caches
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_PACKING_H

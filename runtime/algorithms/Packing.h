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
// within seconds. So now and then payloads are stored in one way or the other,
// waited for, and timed.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_PACKING_H
#define CONCORD_RUNTIME_ALGORITHMS_PACKING_H

#include <algorithm>
#include <bit>
#include <cstdint>

namespace concord::rt {

class Packing {
public:
  /// With `whole`, what is noted is the time of storing and of reading what the
  /// others have stored, all of whom call next() in the same operations, so
  /// that they try the same way at the same time. Else it is that of storing.
  explicit Packing(bool whole) : whole(whole) {}
  bool countsReading() const { return whole; }

  /// Whether the next payload, of so many bytes, goes past the caches.
  /// `timed`: note() what it takes.
  bool next(uint64_t bytes, bool &timed) {
    Known &known = of(bytes);
    const uint32_t every =
        known.counts[0] < kMean || known.counts[1] < kMean ? kRun : kEvery;
    const uint32_t at = known.turn % every, window = known.turn / every;
    ++known.turn;
    timed = at < kRun && at >= kRun - kTimed;
    return at < kRun ? window % 2 : known.faster;
  }
  bool past(uint64_t bytes) const { return sizes[sizeOf(bytes)].faster; }
  void note(bool past, int64_t nanoseconds, uint64_t bytes) {
    Known &known = of(bytes);
    double took = double(std::max<int64_t>(nanoseconds, 1)) / double(bytes);
    double &mean = known.costs[past];
    int &count = known.counts[past];
    if (count < kMean)
      ++count;
    // What was interrupted takes far longer.
    if (mean > 0)
      took = std::min(took, 4 * mean);
    mean += (took - mean) / count;
    if (!known.counts[0] || !known.counts[1])
      return;
    // Of storing alone: who reads has to fetch it from here, which is not in
    // this time. Where there is a common cache, storing there mostly takes two
    // thirds of the time past the caches, else at least four fifths.
    known.faster = whole ? known.costs[1] < known.costs[0]
                         : 3 * known.costs[1] < 4 * known.costs[0];
  }

private:
  /// A way is tried in so many operations, the last of which are timed: the
  /// first ones find the lines (of all slots) where the other way has left
  /// them, which makes either way look slow while the other one is in use.
  static constexpr uint32_t kRun = 10, kTimed = 2;
  static constexpr uint32_t kEvery = 2048; ///< operations from run to run
  static constexpr int kMean = 8;          ///< of about so many

  struct Known {
    uint32_t turn = 0;
    double costs[2] = {}; ///< ns per byte, through the caches and past them
    int counts[2] = {};   ///< of which they are the mean, kMean at most
    bool faster = true;   ///< past the caches
  };

  /// Sizes are alike up to a factor of four; below 8 KiB and from 8 MiB all
  /// are.
  static constexpr int kSizes = 7;
  static int sizeOf(uint64_t bytes) {
    return std::clamp((int(std::bit_width(bytes)) - 12) / 2, 0, kSizes - 1);
  }
  Known &of(uint64_t bytes) { return sizes[sizeOf(bytes)]; }

  bool whole;
  Known sizes[kSizes];
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_PACKING_H

//===- Recency.h - Is a buffer still in the cache? --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How to move bytes depends on whether they are in the caches. One operation's
// size does not tell: a program that takes its buffers in turn has a working
// set far larger. So the engine remembers, per region of memory, how many bytes
// collectives had moved when an output there was last written; when more than
// the last-level cache has gone through since, the output cannot be there any
// more. Computation only adds to that. What is seen for the first time was not
// written since the beginning; it is not judged while that is not long ago.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_RECENCY_H
#define CONCORD_RUNTIME_ALGORITHMS_RECENCY_H

#include <array>
#include <cstdint>

namespace concord::rt {

class Recency {
public:
  enum Verdict { New, Warm, Cold };
  /// Note that `target` is written by an operation that moves `bytes`. Cold
  /// when more than `cache` bytes have moved since it was last written.
  Verdict note(const void *target, uint64_t bytes, uint64_t cache) {
    auto address = reinterpret_cast<uintptr_t>(target);
    uintptr_t region = address >> kLogRegion;
    Entry &entry = table[region * 0x9e3779b97f4a7c15 >> (64 - kLogEntries)];
    if (entry.region != region) {
      entry = {region, 0, moved, address, moved, moved > cache};
    } else if (address <= entry.last) {
      // The region is gone through once more.
      entry.known = true;
      entry.left = entry.touched;
      entry.entered = moved;
    }
    // Addresses that grow within one pass were last written in the former one.
    Verdict result = !entry.known                         ? New
                     : entry.entered - entry.left > cache ? Cold
                                                          : Warm;
    moved += bytes;
    entry.last = address;
    entry.touched = moved;
    return result;
  }

private:
  static constexpr int kLogEntries = 11;
  static constexpr int kLogRegion = 17;
  struct Entry {
    uintptr_t region = 0;
    uint64_t left = 0;    ///< bytes moved when the former pass ended
    uint64_t entered = 0; ///< and when this one began
    uintptr_t last = 0;   ///< address that was written last
    uint64_t touched = 0; ///< bytes moved at that time
    bool known = false;   ///< there was a former pass, or there could have been
  };
  std::array<Entry, 1 << kLogEntries> table = {};
  uint64_t moved = 0;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_RECENCY_H

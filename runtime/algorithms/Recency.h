//===- Recency.h - Is a buffer still in the cache? --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Storing past the caches pays when the target is not in them. One operation's
// size does not tell: a program that takes its buffers in turn has a working
// set far larger. So the engine keeps, per output, how many bytes collectives
// had moved when it was last written; when more than the last-level cache has
// gone through since, the buffer cannot be there any more. Computation only
// adds to that. An output seen for the first time is not judged.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_RECENCY_H
#define CONCORD_RUNTIME_ALGORITHMS_RECENCY_H

#include <array>
#include <cstdint>

namespace concord::rt {

class Recency {
public:
  /// Note that `target` is written by an operation that moves `bytes`. True
  /// when it was written before and more than `cache` bytes have moved since.
  bool cold(const void *target, uint64_t bytes, uint64_t cache) {
    auto address = reinterpret_cast<uintptr_t>(target);
    Entry &entry =
        table[(address >> 6) * 0x9e3779b97f4a7c15 >> (64 - kLogEntries)];
    bool known = entry.address == address;
    bool result = known && moved - entry.moved > cache;
    moved += bytes;
    entry = {address, moved};
    return result;
  }

private:
  static constexpr int kLogEntries = 12;
  struct Entry {
    uintptr_t address = 0;
    uint64_t moved = 0;
  };
  std::array<Entry, 1 << kLogEntries> table = {};
  uint64_t moved = 0;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_RECENCY_H

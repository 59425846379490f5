//===- Heap.h - Allocation in a rank's own heap -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// First fit with coalescing over one rank's heap. The bookkeeping is private
// memory: offsets are published with every operation, so ranks need not agree.
// Not for the fast path.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_HEAP_HEAP_H
#define CONCORD_RUNTIME_HEAP_HEAP_H

#include <cstdint>
#include <map>
#include <unordered_map>

namespace concord::rt {

class Heap {
public:
  void reset(char *base, uint64_t bytes);
  /// `align` is a power of two up to 2 MiB. Null when there is no room.
  char *allocate(uint64_t bytes, uint64_t align);
  /// False when `pointer` is not an allocation.
  bool release(void *pointer);
  uint64_t bytesInUse() const { return used; }

private:
  char *base = nullptr;
  std::map<uint64_t, uint64_t> free;           ///< offset -> bytes
  std::unordered_map<uint64_t, uint64_t> live; ///< offset -> bytes
  uint64_t used = 0;
};

/// Make the whole huge pages of [begin, begin + bytes) huge, as far as the
/// system gives them, whatever its default is; the contents stay. What was
/// never touched is made present first if `populate`. Bytes that are huge now.
uint64_t makeHuge(char *begin, uint64_t bytes, bool populate);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_HEAP_HEAP_H

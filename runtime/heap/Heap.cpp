//===- Heap.cpp - Allocation in a rank's own heap -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// First fit with coalescing.
//
//===----------------------------------------------------------------------===//

#include "heap/Heap.h"

#include <algorithm>
#include <sys/mman.h>

using namespace concord::rt;

static constexpr uint64_t kLine = 64;
static constexpr uint64_t kLarge = uint64_t(1) << 20;
static constexpr uint64_t kHuge = uint64_t(2) << 20;

void Heap::reset(char *newBase, uint64_t bytes) {
  base = newBase;
  free.clear();
  live.clear();
  free.emplace(0, bytes);
  used = 0;
}

char *Heap::allocate(uint64_t bytes, uint64_t align) {
  if (bytes > uint64_t(1) << 48)
    return nullptr;
  align = std::max(align, kLine);
  // Large blocks begin on a huge page, so that they can consist of such.
  if (bytes >= kLarge)
    align = std::max(align, kHuge);
  bytes = std::max((bytes + kLine - 1) / kLine * kLine, kLine);
  for (auto it = free.begin(); it != free.end(); ++it) {
    auto [offset, size] = *it;
    uint64_t start = (offset + align - 1) / align * align;
    if (start - offset > size || size - (start - offset) < bytes)
      continue;
    uint64_t after = size - (start - offset) - bytes;
    free.erase(it);
    if (start != offset)
      free.emplace(offset, start - offset);
    if (after)
      free.emplace(start + bytes, after);
    live.emplace(start, bytes);
    used += bytes;
    return base + start;
  }
  return nullptr;
}

bool Heap::release(void *pointer) {
  auto found = live.find(uint64_t(static_cast<char *>(pointer) - base));
  if (found == live.end())
    return false;
  auto [offset, bytes] = *found;
  live.erase(found);
  used -= bytes;
  // Give the pages of large blocks back to the system: the file would otherwise
  // keep them for as long as the job lives.
  if (bytes >= kLarge) {
    uint64_t first = (offset + 4095) / 4096 * 4096,
             last = (offset + bytes) / 4096 * 4096;
    if (last > first)
      ::madvise(base + first, last - first, MADV_REMOVE);
  }
  auto next = free.lower_bound(offset);
  if (next != free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return true;
    }
  }
  free.emplace(offset, bytes);
  return true;
}

uint64_t concord::rt::makeHuge(char *begin, uint64_t bytes, bool populate) {
  // Numbers of the kernel's, which older headers lack.
  constexpr int kPopulateWrite = 23, kCollapse = 25;
  auto at = reinterpret_cast<uintptr_t>(begin);
  uint64_t skip = -at & (kHuge - 1);
  if (bytes < skip + kHuge)
    return 0;
  uint64_t whole = (bytes - skip) / kHuge * kHuge, made = 0;
  // Piece by piece: when memory for huge pages runs out, the former stay.
  for (; made < whole; made += kHuge) {
    char *page = begin + skip + made;
    if ((populate && ::madvise(page, kHuge, kPopulateWrite) != 0) ||
        ::madvise(page, kHuge, kCollapse) != 0)
      break;
  }
  return made;
}

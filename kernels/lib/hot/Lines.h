//===- Lines.h - Cache lines that go between cores --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernels that are one with a collective do with lines that others have
// written, or will read (docs/kernels.md, "Lines that two cores hold").
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_HOT_LINES_H
#define CONCORD_KERNELS_HOT_LINES_H

#include "Vec.h"

namespace concord::kernels {
namespace {

/// Store `bytes` of what lies at `from` to where it lies, 64 at the most; the
/// compiler must not see that nothing changes. A word of a line is enough.
INLINE void giveBack(void *from, int64_t bytes) {
  if (bytes >= 4) {
    uint32_t word;
    __builtin_memcpy(&word, from, sizeof word);
    asm volatile("" : "+r"(word));
    __builtin_memcpy(from, &word, sizeof word);
  }
}

/// Copy a finished row to where it belongs.
INLINE void deliver(void *to, const void *from, int64_t bytes, bool stream) {
#if defined(__x86_64__)
  if (stream && bytes >= 256) {
    char *target = static_cast<char *>(to);
    const char *source = static_cast<const char *>(from);
    int64_t at = -reinterpret_cast<uintptr_t>(target) & 63;
    __builtin_memcpy(target, source, size_t(at));
    for (; at + 64 <= bytes; at += 64)
      for (int i = 0; i < 64; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i *>(target + at + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i *>(
                             source + at + i)));
    __builtin_memcpy(target + at, source + at, size_t(bytes - at));
    return;
  }
#endif
  __builtin_memcpy(to, from, size_t(bytes));
}

} // namespace
} // namespace concord::kernels

#endif // CONCORD_KERNELS_HOT_LINES_H

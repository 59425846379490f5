//===- Copy.h - Copying past the caches -------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A store to a line that is not in the cache first reads it. Where the working
// set does not fit the last-level cache that read is a third of all traffic;
// non-temporal stores avoid it. Below that size they are slower, as the reader
// then misses.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_COPY_H
#define CONCORD_RUNTIME_ALGORITHMS_COPY_H

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace concord::rt {

/// memcpy with non-temporal stores. The caller orders them before its next flag
/// with streamFence.
inline void streamCopy(void *to, const void *from, size_t bytes) {
#if defined(__x86_64__)
  auto *target = static_cast<char *>(to);
  const auto *source = static_cast<const char *>(from);
  size_t head = -reinterpret_cast<uintptr_t>(target) & 63;
  if (bytes < 256 || head > bytes) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(target, source, head);
  size_t at = head;
  for (; at + 64 <= bytes; at += 64)
    for (size_t i = 0; i < 64; i += 16)
      _mm_stream_si128(
          reinterpret_cast<__m128i *>(target + at + i),
          _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + at + i)));
  std::memcpy(target + at, source + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

/// Order streamed stores before what follows; release stores alone do not.
inline void streamFence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_COPY_H

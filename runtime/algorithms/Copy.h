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

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace concord::rt {

/// Order streamed stores before what follows; release stores alone do not.
inline void streamFence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_COPY_H

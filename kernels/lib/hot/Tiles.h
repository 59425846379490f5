//===- Tiles.h - The f32 GEMM tile, for other hot files ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention and convolution are built on the register tiles of hot/Gemm.cpp.
// The functions lie in a namespace of their CPU class.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_HOT_TILES_H
#define CONCORD_KERNELS_HOT_TILES_H

#include "Vec.h"

#include <stdint.h>

namespace concord::kernels::CONCORD_HOT_NAMESPACE {

/// Memory that later tiles read, fetched into L2 one line per step of k.
struct Ahead {
  const char *line;
  int64_t step; ///< 64, or 0 when there is nothing to fetch
  /// Of floats and doubles, laid out as the result: added to it, and the sum
  /// stored there, too (GemmOperands::parts, of two members).
  void *part = nullptr;
};

/// out[rows][panel] = in (or 0) + A[rows][k] x B[k][panel]; `lda`, `ldIn` and
/// `ld` in elements, `bStep` elements from one k of the panel to the next.
/// `bPanel` is only for tiles of several panels.
using TileF32 = void (*)(int64_t k, const float *a, int64_t lda, const float *b,
                         int64_t bStep, int64_t bPanel, const float *in,
                         int64_t ldIn, float *out, int64_t ld,
                         const Ahead &ahead);

/// For 1 <= rows <= tileRows and a panel of tileColumns, or half of them.
TileF32 tileF32(int64_t rows, bool half);

/// Columns of B (k x n, or n x k when transposed) as panels: panel
/// j0/tileColumns begins at packed + j0 * k.
void packF32(const float *b, int64_t ldb, bool transposed, int64_t k, int64_t n,
             float *packed);

} // namespace concord::kernels::CONCORD_HOT_NAMESPACE

namespace concord::kernels {
namespace {

using CONCORD_HOT_NAMESPACE::Ahead;
using CONCORD_HOT_NAMESPACE::packF32;
using CONCORD_HOT_NAMESPACE::tileF32;
using CONCORD_HOT_NAMESPACE::TileF32;

#if defined(__AVX512F__)
constexpr int MR = 14;
#elif defined(__AVX2__)
constexpr int MR = 6;
#elif defined(__aarch64__)
constexpr int MR = 8;
#else
constexpr int MR = 4;
#endif
/// Columns of a panel of floats.
constexpr int64_t NRF = 2 * VL;

/// Columns that n take as panels: the last one is halved if that is enough.
INLINE int64_t panelsF32(int64_t n) {
  int64_t rest = n % NRF;
  return n - rest + (rest == 0 ? 0 : rest <= NRF / 2 ? NRF / 2 : NRF);
}

} // namespace
} // namespace concord::kernels

#endif // CONCORD_KERNELS_HOT_TILES_H

//===- GemmPack.h - Operands of products, laid out for tiles ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// B as panels of columns, A as tiles of rows: by elements, or by pairs of
// bfloat16 where the CPU multiplies those. GemmHot.h has the layout.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_HOT_GEMMPACK_H
#define CONCORD_KERNELS_HOT_GEMMPACK_H

#include "Tiles.h"
#include "Vec.h"

namespace concord::kernels {
namespace {

/// Two bfloat16 that follow each other in k. A word of them is an operand as a
/// float is, whose product with another adds both products (AVX512_BF16).
struct Pair {
  BFloat even, odd;
};

/// What a tile takes of B: T itself, or Pairs of it.
template <class T> struct Operand {
  using P = T;
  static constexpr int64_t perP = 1; ///< elements of k
};

template <class P, class V> INLINE V multiplyAdd(const P *, V a, V b, V c) {
  return fma(a, b, c);
}

#if defined(__AVX512BF16__)
template <> struct Operand<BFloat> {
  using P = Pair;
  static constexpr int64_t perP = 2;
};
template <> struct Lane<Pair> {
  using S = float;
  using V = vf;
  static constexpr int width = VL;
  INLINE vf load(const Pair *p) {
    vf v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
};
INLINE vf multiplyAdd(const Pair *, vf a, vf b, vf c) {
  return bitsOf<vf>(_mm512_dpbf16_ps(bitsOf<__m512>(c), bitsOf<__m512bh>(a),
                                     bitsOf<__m512bh>(b)));
}
#endif

template <class T> using OperandOf = typename Operand<T>::P;
template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;

template <class T> constexpr int64_t NR = 2 * Lane<T>::width;

/// Columns of panels for n columns.
template <class T> INLINE int64_t panelColumns(int64_t n) {
  int64_t full = n / NR<T> * NR<T>;
  int64_t rest = n - full;
  return full + (rest == 0 ? 0 : rest <= NR<T> / 2 ? NR<T> / 2 : NR<T>);
}

/// One panel of `width` columns, of which `columns` exist, kc rows of it.
template <class T>
void packPanel(const T *b, int64_t ldb, bool transposed, int64_t kc,
               int64_t columns, int64_t width, T *panel) {
  if (!transposed) {
    for (int64_t p = 0; p < kc; ++p) {
      const T *from = b + p * ldb;
      T *to = panel + p * width;
      if (columns == NR<T>) {
        __builtin_memcpy(to, from, sizeof(T) * NR<T>);
        continue;
      }
      for (int64_t j = 0; j < width; ++j)
        to[j] = j < columns ? from[j] : T{};
    }
    return;
  }
  // Rows of B^T are contiguous in k: move squares of 8 x 8 through registers.
  int64_t j = 0;
  for (; j + 8 <= columns; j += 8) {
    int64_t p = 0;
    for (; p + 8 <= kc; p += 8)
      transpose8(b + j * ldb + p, ldb, panel + p * width + j, width);
    for (; p < kc; ++p)
      for (int jj = 0; jj < 8; ++jj)
        panel[p * width + j + jj] = b[(j + jj) * ldb + p];
  }
  for (; j < width; ++j)
    for (int64_t p = 0; p < kc; ++p)
      panel[p * width + j] = j < columns ? b[j * ldb + p] : T{};
}

#if defined(__AVX512BF16__)
/// The same of pairs; with an odd kc the last has a zero.
void packPanel(const BFloat *b, int64_t ldb, bool transposed, int64_t kc,
               int64_t columns, int64_t width, Pair *panel) {
  const int64_t pairs = kc / 2;
  const BFloat zero = {};
  int64_t p = 0;
  if (transposed) {
    // Pairs lie in B^T as they are wanted.
    int64_t j = 0;
    for (; j + 8 <= columns; j += 8) {
      const BFloat *from = b + j * ldb;
      // As words whose rows are ldb / 2 apart, if that is a number.
      int64_t whole = ldb % 2 ? 0 : pairs / 8 * 8;
      for (p = 0; p < whole; p += 8)
        transpose8(reinterpret_cast<const Pair *>(from) + p, ldb / 2,
                   panel + p * width + j, width);
      for (; p < pairs; ++p)
        for (int64_t jj = 0; jj < 8; ++jj)
          panel[p * width + j + jj] = {from[jj * ldb + 2 * p],
                                       from[jj * ldb + 2 * p + 1]};
    }
    for (; j < width; ++j)
      for (p = 0; p < pairs; ++p)
        panel[p * width + j] =
            j < columns ? Pair{b[j * ldb + 2 * p], b[j * ldb + 2 * p + 1]}
                        : Pair{};
    if (kc % 2)
      for (j = 0; j < width; ++j)
        panel[pairs * width + j] = {j < columns ? b[j * ldb + kc - 1] : zero,
                                    zero};
    return;
  }
  for (; p < pairs; ++p) {
    const BFloat *even = b + 2 * p * ldb, *odd = even + ldb;
    Pair *to = panel + p * width;
    if (columns == width && width % VL == 0) {
      for (int64_t j = 0; j < width; j += VL) {
        vh low, high;
        __builtin_memcpy(&low, even + j, sizeof low);
        __builtin_memcpy(&high, odd + j, sizeof high);
        vu words = __builtin_convertvector(low, vu) |
                   __builtin_convertvector(high, vu) << 16;
        __builtin_memcpy(to + j, &words, sizeof words);
      }
      continue;
    }
    for (int64_t j = 0; j < width; ++j)
      to[j] = j < columns ? Pair{even[j], odd[j]} : Pair{};
  }
  if (kc % 2)
    for (int64_t j = 0; j < width; ++j)
      panel[p * width + j] = {j < columns ? b[2 * p * ldb + j] : zero, zero};
}
#endif

template <class T>
void packColumns(const T *b, int64_t ldb, bool transposed, int64_t k, int64_t n,
                 OperandOf<T> *packed) {
  const int64_t steps = ceilDiv(k, Operand<T>::perP);
  for (int64_t j = 0; j < n; j += NR<T>) {
    int64_t columns = least(NR<T>, n - j);
    int64_t width = panelColumns<T>(columns);
    packPanel(transposed ? b + j * ldb : b + j, ldb, transposed, k, columns,
              width, packed + j * steps);
  }
}

template <class T>
void copyRows(const T *a, int64_t lda, bool transposed, int64_t rows,
              int64_t kc, typename Lane<T>::S *to, int64_t ld) {
  using L = Lane<T>;
  using LS = Lane<typename L::S>;
  if (transposed) {
    for (int64_t i0 = 0; i0 < rows; i0 += 16)
      for (int64_t p = 0; p < kc; ++p)
        for (int64_t i = i0; i < least(rows, i0 + 16); ++i)
          to[i * ld + p] = L::get(a[p * lda + i]);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    int64_t p = 0;
    // Rows are far apart: the hardware would meet each one anew.
    for (; p + L::width <= kc; p += L::width) {
      __builtin_prefetch(a + (i + 2) * lda + p);
      LS::store(to + i * ld + p, L::load(a + i * lda + p));
    }
    for (; p < kc; ++p)
      to[i * ld + p] = L::get(a[i * lda + p]);
  }
}

/// One tile of A, packed: element (i, p) at to[p * rows + i].
template <class T>
void packTile(const T *a, int64_t lda, bool transposed, int64_t rows,
              int64_t kc, typename Lane<T>::S *to) {
  using L = Lane<T>;
  using S = typename L::S;
  using LS = Lane<S>;
  constexpr int64_t chunk = 64;
  if (transposed) {
    for (int64_t p = 0; p < kc; ++p)
      for (int64_t i = 0; i < rows; ++i)
        to[p * rows + i] = L::get(a[p * lda + i]);
    return;
  }
  for (int64_t p0 = 0; p0 < kc; p0 += chunk) {
    int64_t n = least(chunk, kc - p0);
    const S *from = reinterpret_cast<const S *>(a + p0);
    int64_t ld = lda;
    S wide[MR * chunk];
    if constexpr (sizeof(T) != sizeof(S)) {
      for (int64_t i = 0; i < rows; ++i) {
        int64_t p = 0;
        for (; p + L::width <= n; p += L::width)
          LS::store(wide + i * chunk + p, L::load(a + i * lda + p0 + p));
        for (; p < n; ++p)
          wide[i * chunk + p] = L::get(a[i * lda + p0 + p]);
      }
      from = wide;
      ld = chunk;
    }
    int64_t p = 0;
    if (rows >= 8)
      for (; p + 8 <= n; p += 8) {
        transpose8(from + p, ld, to + (p0 + p) * rows, rows);
        // The last eight rows; some of them for the second time.
        if (rows > 8)
          transpose8(from + (rows - 8) * ld + p, ld,
                     to + (p0 + p) * rows + rows - 8, rows);
      }
    for (; p < n; ++p)
      for (int64_t i = 0; i < rows; ++i)
        to[(p0 + p) * rows + i] = from[i * ld + p];
  }
}

#if defined(__AVX512BF16__)
/// A row of A as words of two, with a zero behind an odd last one.
void pairsOf(const BFloat *row, int64_t step, int64_t kc, float *to,
             int64_t toStep) {
  for (int64_t p = 0; 2 * p < kc; ++p) {
    uint32_t word = row[2 * p * step].bits;
    if (2 * p + 1 < kc)
      word |= uint32_t(row[(2 * p + 1) * step].bits) << 16;
    __builtin_memcpy(to + p * toStep, &word, sizeof word);
  }
}

void copyRows(const BFloat *a, int64_t lda, bool transposed, int64_t rows,
              int64_t kc, float *to, int64_t ld) {
  for (int64_t i = 0; i < rows; ++i)
    pairsOf(transposed ? a + i : a + i * lda, transposed ? lda : 1, kc,
            to + i * ld, 1);
}

void packTile(const BFloat *a, int64_t lda, bool transposed, int64_t rows,
              int64_t kc, float *to) {
  int64_t p = 0;
  if (transposed) {
    for (; 2 * p < kc; ++p) {
      const BFloat *even = a + 2 * p * lda;
      const bool whole = 2 * p + 1 < kc;
      const BFloat *odd = whole ? even + lda : even;
      for (int64_t i = 0; i < rows; ++i) {
        uint32_t word =
            even[i].bits | (whole ? uint32_t(odd[i].bits) << 16 : 0);
        __builtin_memcpy(to + p * rows + i, &word, sizeof word);
      }
    }
    return;
  }
  if (lda % 2 == 0 && rows >= 8) {
    // Words whose rows are lda / 2 apart.
    const float *from = reinterpret_cast<const float *>(a);
    for (; 2 * (p + 8) <= kc; p += 8) {
      transpose8(from + p, lda / 2, to + p * rows, rows);
      // The last eight rows; some of them for the second time.
      if (rows > 8)
        transpose8(from + (rows - 8) * lda / 2 + p, lda / 2,
                   to + p * rows + rows - 8, rows);
    }
  }
  for (int64_t i = 0; i < rows; ++i)
    pairsOf(a + i * lda + 2 * p, 1, kc - 2 * p, to + p * rows + i, rows);
}
#endif

} // namespace
} // namespace concord::kernels

#endif // CONCORD_KERNELS_HOT_GEMMPACK_H

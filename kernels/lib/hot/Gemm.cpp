//===- Gemm.cpp - Blocked matrix product, one CPU class -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Register tiles of MR x NR elements; B in panels of NR columns (given so,
// packed by blocks, or read in place when its rows are whole panels); A in
// place, or copied by blocks when it is transposed, 16-bit, or its row stride
// would put a tile's rows into the same cache sets. The loops are those of Goto
// and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008)
// with a tile of A in L1 and a block of B in L2. GemmHot.h says what order sums
// are taken in.
//
//===----------------------------------------------------------------------===//

#include "../GemmHot.h"
#include "Vec.h"
#include "VecMath.h"

namespace concord::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int MR = 14;
#elif defined(__AVX2__)
constexpr int MR = 6;
#elif defined(__aarch64__)
constexpr int MR = 8;
#else
constexpr int MR = 4;
#endif

constexpr int64_t kBlock = 384;       ///< k per block: MR x kBlock fits L1
constexpr int64_t kRowBlock = 252;    ///< rows of C per outer block
constexpr int64_t kColumnBlock = 256; ///< columns of B per L2 block

/// acc[rows of A][NP panels of NV vectors] = in + A x B over k steps.
template <class BT, int M, int NV, int NP>
void tile(int64_t k, const typename Lane<BT>::S *a, int64_t lda, const BT *b,
          int64_t bStep, int64_t bPanel, const typename Lane<BT>::S *in,
          typename Lane<BT>::S *out, int64_t ld) {
  using L = Lane<BT>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  V acc[M][NP * NV];
#pragma clang loop unroll(full)
  for (int i = 0; i < M; ++i)
#pragma clang loop unroll(full)
    for (int j = 0; j < NP * NV; ++j)
      acc[i][j] = in ? LS::load(in + i * ld + j * W) : V(S(0));
  // Rows are reached from every third one, so that 14 need 5 registers.
  constexpr int G = (M + 2) / 3;
  const S *row[G];
#pragma clang loop unroll(full)
  for (int g = 0; g < G; ++g)
    row[g] = a + 3 * g * lda;
  int64_t p = 0;
#pragma clang loop unroll_count(2)
  for (; p < k; ++p) {
    V bv[NP * NV];
#pragma clang loop unroll(full)
    for (int q = 0; q < NP; ++q) {
      if (NP > 1)
        __builtin_prefetch(b + q * bPanel + 16 * bStep);
      if (NP > 1 && NV * W * sizeof(BT) > 64)
        __builtin_prefetch(b + q * bPanel + 16 * bStep + 64 / sizeof(BT));
#pragma clang loop unroll(full)
      for (int j = 0; j < NV; ++j)
        bv[q * NV + j] = L::load(b + q * bPanel + j * W);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < M; ++i) {
      V av = V(row[i / 3][(i % 3) * lda + p]);
#pragma clang loop unroll(full)
      for (int j = 0; j < NP * NV; ++j)
        acc[i][j] = fma(av, bv[j], acc[i][j]);
    }
    b += bStep;
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < M; ++i)
#pragma clang loop unroll(full)
    for (int j = 0; j < NP * NV; ++j)
      LS::store(out + i * ld + j * W, acc[i][j]);
}

template <class BT>
using TileFn = void (*)(int64_t, const typename Lane<BT>::S *, int64_t,
                        const BT *, int64_t, int64_t,
                        const typename Lane<BT>::S *, typename Lane<BT>::S *,
                        int64_t);

/// Panels a few rows take at once, so that enough sums are in flight.
INLINE int panelsFor(int64_t rows) {
#if defined(__AVX512F__)
  return rows <= 2 ? 4 : rows <= 4 ? 2 : 1;
#else
  return rows == 1 ? 4 : rows == 2 ? 2 : 1;
#endif
}

template <class BT> INLINE TileFn<BT> wideTile(int64_t rows) {
#if defined(__AVX512F__)
  switch (rows) {
  case 1:
    return &tile<BT, 1, 2, 4>;
  case 2:
    return &tile<BT, 2, 2, 4>;
  case 3:
    return &tile<BT, 3, 2, 2>;
  default:
    return &tile<BT, 4, 2, 2>;
  }
#else
  return rows == 1 ? &tile<BT, 1, 2, 4> : &tile<BT, 2, 2, 2>;
#endif
}

template <class BT> INLINE TileFn<BT> narrowTile(int64_t rows, bool half) {
  switch (rows) {
#define CASE(M)                                                                \
  case M:                                                                      \
    return half ? &tile < BT, M <= MR ? M : 1, 1, 1 > : &tile < BT,            \
           M <= MR ? M : 1, 2, 1 > ;
    CASE(1)
    CASE(2)
    CASE(3)
    CASE(4)
    CASE(5)
    CASE(6)
    CASE(7)
    CASE(8)
    CASE(9)
    CASE(10)
    CASE(11)
    CASE(12)
    CASE(13)
    CASE(14)
#undef CASE
  }
  return nullptr;
}

template <class T> constexpr int64_t NR = 2 * Lane<T>::width;

/// Elements of panels for n columns.
template <class T> INLINE int64_t panelColumns(int64_t n) {
  int64_t full = n / NR<T> * NR<T>;
  int64_t rest = n - full;
  return full + (rest == 0 ? 0 : rest <= NR<T> / 2 ? NR<T> / 2 : NR<T>);
}

/// One panel of `width` columns, of which `columns` exist, rows k0 .. k0+kc.
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
    for (; p + 8 <= kc; p += 8) {
      T square[8][8];
      for (int jj = 0; jj < 8; ++jj)
        __builtin_memcpy(square[jj], b + (j + jj) * ldb + p, sizeof square[jj]);
      T turned[8][8];
      for (int pp = 0; pp < 8; ++pp)
        for (int jj = 0; jj < 8; ++jj)
          turned[pp][jj] = square[jj][pp];
      for (int pp = 0; pp < 8; ++pp)
        __builtin_memcpy(panel + (p + pp) * width + j, turned[pp],
                         sizeof turned[pp]);
    }
    for (; p < kc; ++p)
      for (int jj = 0; jj < 8; ++jj)
        panel[p * width + j + jj] = b[(j + jj) * ldb + p];
  }
  for (; j < width; ++j)
    for (int64_t p = 0; p < kc; ++p)
      panel[p * width + j] = j < columns ? b[j * ldb + p] : T{};
}

template <class T>
void packColumns(const T *b, int64_t ldb, bool transposed, int64_t k, int64_t n,
                 T *packed) {
  for (int64_t j = 0; j < n; j += NR<T>) {
    int64_t columns = least(NR<T>, n - j);
    int64_t width = panelColumns<T>(columns);
    packPanel(transposed ? b + j * ldb : b + j, ldb, transposed, k, columns,
              width, packed + j * k);
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
    for (; p + L::width <= kc; p += L::width)
      LS::store(to + i * ld + p, L::load(a + i * lda + p));
    for (; p < kc; ++p)
      to[i * ld + p] = L::get(a[i * lda + p]);
  }
}

/// Sums to results: rows x columns of C at (i0, j0).
template <class T>
void epilogue(const GemmShape &s, const GemmOperands &o, int64_t i0, int64_t j0,
              int64_t rows, int64_t columns, const typename Lane<T>::S *acc,
              int64_t ld) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  V alpha = V(S(s.alpha)), beta = V(S(s.beta));
  for (int64_t i = 0; i < rows; ++i) {
    int64_t at = (i0 + i) * s.ldc + j0;
    T *c = static_cast<T *>(o.c) + at;
    const T *bias = static_cast<const T *>(o.bias);
    V rowBias = V(S(0));
    if (s.bias == Bias::Row)
      bias += j0;
    else if (s.bias == Bias::Full)
      bias += at;
    else if (s.bias == Bias::Col)
      rowBias = V(L::get(bias[i0 + i])) * beta;
    const T *residual = static_cast<const T *>(o.residual);
    if (s.residual)
      residual += at;
    for (int64_t j = 0; j < columns; j += W) {
      int64_t left = columns - j;
      V v = LS::load(acc + i * ld + j) * alpha;
      if (s.bias == Bias::Row || s.bias == Bias::Full)
        v = v +
            beta * (left >= W ? L::load(bias + j) : L::load(bias + j, left));
      else if (s.bias == Bias::Col)
        v = v + rowBias;
      if (s.residual)
        v = v +
            (left >= W ? L::load(residual + j) : L::load(residual + j, left));
      v = activate(s.act, v);
      if (left >= W)
        L::store(c + j, v);
      else
        L::store(c + j, v, left);
    }
  }
}

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;

/// How one product is blocked; a function of the shape only.
struct Plan {
  bool copyA, packB, small, scratch;
  int64_t kc, blocks, mc, nc, lda;
  uint64_t aBytes, bBytes, scratchBytes;
};

template <class T> Plan planFor(const GemmShape &s) {
  using S = typename Lane<T>::S;
  Plan p = {};
  p.small = s.m <= MR;
  int64_t chunk = kBlock * 4 / int64_t(sizeof(S));
  p.blocks =
      most(1, ceilDiv(s.k, s.k <= chunk + chunk / 2 ? chunk * 2 : chunk));
  p.kc = roundUp(ceilDiv(most(s.k, 1), p.blocks), 8);
  p.blocks = most(1, ceilDiv(s.k, p.kc));
  p.mc = s.m <= kRowBlock + 64
             ? s.m
             : roundUp(ceilDiv(s.m, ceilDiv(s.m, kRowBlock)), MR);
  p.nc = kColumnBlock;
  int64_t rowBytes = s.lda * int64_t(sizeof(T));
  p.copyA = s.transA || !same<T, S> ||
            (s.m > 4 && s.n > 4 * NR<T> && rowBytes % 2048 == 0);
  p.lda = p.copyA ? p.kc * p.blocks + 16 : s.lda;
  p.packB = !s.packed &&
            (s.transB || s.n % NR<T> != 0 || (s.m > 8 * MR && s.k > 64) ||
             (s.m > MR && s.ldb * int64_t(sizeof(T)) % 2048 == 0 && s.k > 64));
  p.scratch = !p.small && p.blocks > 1;
  if (p.copyA)
    p.aBytes =
        uint64_t(roundUp(least(p.mc, s.m) * p.lda * int64_t(sizeof(S)), 64));
  if (p.packB)
    p.bBytes =
        uint64_t(roundUp((p.small ? p.kc * p.blocks : p.kc) *
                             (p.small ? 4 * NR<T> : p.nc) * int64_t(sizeof(T)),
                         64));
  if (p.scratch)
    p.scratchBytes = uint64_t(least(p.mc, s.m) * p.nc * int64_t(sizeof(S)));
  return p;
}

template <class T>
void multiply(const GemmShape &s, const GemmOperands &o, char *workspace,
              Poller &poller) {
  using S = typename Lane<T>::S;
  constexpr int64_t N = NR<T>;
  const Plan plan = planFor<T>(s);
  S *aCopy = reinterpret_cast<S *>(workspace);
  T *bCopy = reinterpret_cast<T *>(workspace + plan.aBytes);
  S *scratch = reinterpret_cast<S *>(workspace + plan.aBytes + plan.bBytes);
  const T *a = static_cast<const T *>(o.a);
  const T *b = static_cast<const T *>(o.b);
  const bool plain = same<T, S> && s.bias == Bias::None && !s.residual &&
                     s.act == Act::None && s.alpha == 1;
  // Stands in for C where a tile sticks out or is not plain.
  alignas(64) S local[most(MR * N, 8 * N)];

  for (int64_t i0 = 0; i0 < s.m; i0 += plan.mc) {
    int64_t mc = least(plan.mc, s.m - i0);
    const S *aBlock = nullptr;
    if (plan.copyA) {
      copyRows(s.transA ? a + i0 : a + i0 * s.lda, s.lda, s.transA, mc, s.k,
               aCopy, plan.lda);
      poller.work(mc * s.k / 8);
      aBlock = aCopy;
    } else {
      aBlock = reinterpret_cast<const S *>(a + i0 * s.lda);
    }

    if (plan.small) {
      int panels = panelsFor(mc);
      int64_t j = 0;
      while (j < s.n) {
        bool wide = panels > 1 && j + panels * N <= s.n;
        int64_t columns = wide ? panels * N : least(N, s.n - j);
        bool half = columns <= N / 2;
        int64_t width = half ? N / 2 : N;
        TileFn<T> fn = wide ? wideTile<T>(mc) : narrowTile<T>(mc, half);
        const T *panel;
        int64_t step, stride;
        if (s.packed) {
          panel = b + j * s.k;
          step = width;
          stride = N * s.k;
        } else if (plan.packB) {
          packColumns(s.transB ? b + j * s.ldb : b + j, s.ldb, s.transB, s.k,
                      columns, bCopy);
          poller.work(s.k * columns / 2);
          panel = bCopy;
          step = width;
          stride = N * s.k;
        } else {
          panel = b + j;
          step = s.ldb;
          stride = N;
        }
        bool whole = wide || columns == width;
        S *out = plain && whole ? reinterpret_cast<S *>(o.c) + i0 * s.ldc + j
                                : local;
        int64_t ld = plain && whole ? s.ldc : wide ? columns : width;
        for (int64_t p = 0; p < s.k || p == 0; p += plan.kc) {
          int64_t kc = least(plan.kc, s.k - p);
          fn(kc, aBlock + p, plan.lda, panel + p * step, step, stride,
             p ? out : nullptr, out, ld);
          poller.work(kc * columns * most(mc, 4) / 64);
        }
        if (out == local)
          epilogue<T>(s, o, i0, j, mc, columns, local, ld);
        j += columns;
      }
      continue;
    }

    int64_t tiles = ceilDiv(mc, MR);
    int64_t base = mc / tiles, extra = mc % tiles;
    for (int64_t j0 = 0; j0 < s.n; j0 += plan.nc) {
      int64_t nc = least(plan.nc, s.n - j0);
      for (int64_t block = 0; block < plan.blocks; ++block) {
        int64_t p = block * plan.kc;
        int64_t kc = least(plan.kc, s.k - p);
        bool last = block + 1 == plan.blocks;
        if (plan.packB) {
          packColumns(s.transB ? b + j0 * s.ldb + p : b + p * s.ldb + j0, s.ldb,
                      s.transB, kc, nc, bCopy);
          poller.work(kc * nc / 4);
        }
        int64_t i = 0;
        for (int64_t t = 0; t < tiles; ++t) {
          int64_t rows = base + (t < extra);
          for (int64_t j = 0; j < nc; j += N) {
            int64_t columns = least(N, nc - j);
            bool half = columns <= N / 2;
            int64_t width = half ? N / 2 : N;
            const T *panel;
            int64_t step = width;
            if (s.packed) {
              panel = b + (j0 + j) * s.k + p * width;
            } else if (plan.packB) {
              panel = bCopy + j * kc;
            } else {
              panel = b + p * s.ldb + j0 + j;
              step = s.ldb;
            }
            TileFn<T> fn = narrowTile<T>(rows, half);
            S *partial = scratch + i * plan.nc + j;
            const S *aTile = aBlock + i * plan.lda + p;
            bool direct = plain && columns == width;
            if (!last) {
              fn(kc, aTile, plan.lda, panel, step, 0, block ? partial : nullptr,
                 partial, plan.nc);
            } else if (!plan.scratch) {
              S *c = reinterpret_cast<S *>(o.c) + (i0 + i) * s.ldc + j0 + j;
              fn(kc, aTile, plan.lda, panel, step, 0, nullptr,
                 direct ? c : local, direct ? s.ldc : width);
              if (!direct)
                epilogue<T>(s, o, i0 + i, j0 + j, rows, columns, local, width);
            } else {
              fn(kc, aTile, plan.lda, panel, step, 0, partial, partial,
                 plan.nc);
              epilogue<T>(s, o, i0 + i, j0 + j, rows, columns, partial,
                          plan.nc);
            }
            poller.work(rows * columns * kc / 50);
          }
          i += rows;
        }
      }
    }
  }
}

template <class T> uint64_t bytesFor(const GemmShape &s) {
  Plan p = planFor<T>(s);
  return p.aBytes + p.bBytes + p.scratchBytes;
}

template <class T>
void packAll(const GemmShape &s, const void *b, void *packed) {
  packColumns(static_cast<const T *>(b), s.ldb, s.transB, s.k, s.n,
              static_cast<T *>(packed));
}

#define BY_TYPE(type, call)                                                    \
  switch (type) {                                                              \
  case GemmType::F32:                                                          \
    return call<float>;                                                        \
  case GemmType::F64:                                                          \
    return call<double>;                                                       \
  case GemmType::F16:                                                          \
    return call<Half>;                                                         \
  case GemmType::BF16:                                                         \
    return call<BFloat>;                                                       \
  }                                                                            \
  return call<float>;

auto chooseBytes(GemmType type) -> uint64_t (*)(const GemmShape &) {
  BY_TYPE(type, bytesFor)
}
auto chooseColumns(GemmType type) -> int64_t (*)(int64_t) {
  BY_TYPE(type, panelColumns)
}
auto choosePack(GemmType type)
    -> void (*)(const GemmShape &, const void *, void *) {
  BY_TYPE(type, packAll)
}
auto chooseMultiply(GemmType type)
    -> void (*)(const GemmShape &, const GemmOperands &, char *,
                Poller &){BY_TYPE(type, multiply)}

uint64_t workspaceFor(GemmType type, const GemmShape &shape) {
  return chooseBytes(type)(shape);
}
int64_t packedElements(GemmType type, int64_t k, int64_t n) {
  return chooseColumns(type)(n) * k;
}
void packB(GemmType type, const GemmShape &shape, const void *b, void *packed) {
  choosePack(type)(shape, b, packed);
}
void run(GemmType type, const GemmShape &shape, const GemmOperands &operands,
         void *workspace, Poller &poller) {
  chooseMultiply(type)(shape, operands, static_cast<char *>(workspace), poller);
}

} // namespace

extern const GemmTable CONCORD_HOT_TABLE(gemmTable);
const GemmTable CONCORD_HOT_TABLE(gemmTable) = {workspaceFor, packedElements,
                                                packB, run};

} // namespace concord::kernels

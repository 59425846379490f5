//===- Gemm.cpp - Blocked matrix product, one CPU class -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Register tiles of MR x NR elements; B in panels of NR columns (given so,
// packed by blocks, or read in place when its rows are whole panels); A in
// place, or copied by blocks when it is transposed, 16-bit (unless pairs of it
// are multiplied as they are), or its row stride would put a tile's rows into
// the same cache sets. The loops are those of Goto
// and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008)
// with a tile of A in L1 and a block of B in L2. GemmHot.h says what order sums
// are taken in.
//
//===----------------------------------------------------------------------===//

#include "../GemmHot.h"
#include "GemmPack.h"
#include "VecMath.h"

namespace concord::kernels {
namespace {

constexpr int64_t kMostOneK = 1536; ///< up to this k is one block
constexpr int64_t kMostK = 768;     ///< else k per block: a panel of B fits L2
constexpr int64_t kMostKPack = 512; ///< the same where blocks of B are packed
constexpr int64_t kBlockBytes = 480 * 1024; ///< of A, to stay in L2
constexpr int64_t kCopyColumns = 1024;      ///< columns that repay a copy of A
constexpr int64_t kColumnBlock = 512; ///< columns per block of B packed here
constexpr int64_t kSumColumns = 4096; ///< columns per block of partial sums

/// acc[j] += a * b[j] for N vectors, a being element `At` of `from` (Packed),
/// or the first element of row `At`, of three, `lda` bytes apart. The order is
/// pinned by assembly: left to itself the compiler moves all broadcasts of a
/// tile to its start and spills.
template <class BT, int At, bool Packed, int N, class V, class S>
INLINE void addRow(V *acc, const V *b, const S *from, int64_t lda) {
#if defined(__AVX2__) && !defined(CONCORD_CHECKED_LOADS)
  if constexpr (N <= 2) {
    V t;
#define CONCORD_ROW(ADDRESS, BROADCAST, FMA)                                   \
  if constexpr (N == 2)                                                        \
    asm volatile(BROADCAST " " ADDRESS ", %[t]\n\t" FMA                        \
                           " %[t], %[b0], %[a0]\n\t" FMA " %[t], %[b1], %[a1]" \
                 : [a0] "+v"(acc[0]), [a1] "+v"(acc[N - 1]), [t] "=&v"(t)      \
                 : [b0] "v"(b[0]), [b1] "v"(b[N - 1]), [r] "r"(from),          \
                   [l] "r"(lda), [d] "i"(At * int(sizeof(S))));                \
  else                                                                         \
    asm volatile(BROADCAST " " ADDRESS ", %[t]\n\t" FMA " %[t], %[b0], %[a0]"  \
                 : [a0] "+v"(acc[0]), [t] "=&v"(t)                             \
                 : [b0] "v"(b[0]), [r] "r"(from), [l] "r"(lda),                \
                   [d] "i"(At * int(sizeof(S))));
#define CONCORD_ROWS(BROADCAST, FMA)                                           \
  if constexpr (Packed) {                                                      \
    CONCORD_ROW("%c[d](%[r])", BROADCAST, FMA)                                 \
  } else if constexpr (At == 0) {                                              \
    CONCORD_ROW("(%[r])", BROADCAST, FMA)                                      \
  } else if constexpr (At == 1) {                                              \
    CONCORD_ROW("(%[r],%[l])", BROADCAST, FMA)                                 \
  } else {                                                                     \
    CONCORD_ROW("(%[r],%[l],2)", BROADCAST, FMA)                               \
  }
    if constexpr (same<BT, Pair>) {
      CONCORD_ROWS("vbroadcastss", "vdpbf16ps")
    } else if constexpr (sizeof(S) == 4) {
      CONCORD_ROWS("vbroadcastss", "vfmadd231ps")
    } else {
      CONCORD_ROWS("vbroadcastsd", "vfmadd231pd")
    }
#undef CONCORD_ROWS
#undef CONCORD_ROW
    return;
  }
#endif
  S word;
  __builtin_memcpy(&word,
                   Packed ? reinterpret_cast<const char *>(from + At)
                          : reinterpret_cast<const char *>(from) + At * lda,
                   sizeof word);
  V av = V(word);
  UNROLL
  for (int j = 0; j < N; ++j)
    acc[j] = multiplyAdd(static_cast<const BT *>(nullptr), av, b[j], acc[j]);
}

template <class BT, int I, int M, int N, class V, class S>
INLINE void addPacked(V (*acc)[N], const V *b, const S *a) {
  if constexpr (I < M) {
    addRow<BT, I, true, N>(acc[I], b, a, 0);
    addPacked<BT, I + 1, M, N>(acc, b, a);
  }
}

/// acc[rows of A][NP panels of NV vectors] = in + A x B over k steps. A is
/// given by rows, or Packed: the M elements of one k after the other.
template <class BT, int M, int NV, int NP, bool Packed = false>
void tile(int64_t k, const typename Lane<BT>::S *a, int64_t lda, const BT *b,
          int64_t bStep, int64_t bPanel, const typename Lane<BT>::S *in,
          int64_t ldIn, typename Lane<BT>::S *out, int64_t ld,
          const Ahead &ahead) {
  using L = Lane<BT>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  constexpr int N = NP * NV;
  V acc[M][N];
  UNROLL
  for (int i = 0; i < M; ++i)
    UNROLL
  for (int j = 0; j < N; ++j)
    acc[i][j] = in ? LS::load(in + i * ldIn + j * W) : V(S(0));
  // Rows are reached from every third one, so that 14 need 5 registers.
  constexpr int G = (M + 2) / 3;
  const S *row[G];
  UNROLL
  for (int g = 0; g < G; ++g)
    row[g] = a + 3 * g * lda;
  lda *= int64_t(sizeof(S));
  UNROLL
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j)
      __builtin_prefetch(out + i * ld + j * W, 1);
  const char *line = ahead.line;
#pragma clang loop unroll(disable)
  for (int64_t p = 0; p < k; ++p) {
    V bv[N];
    if (NP == 1) {
      __builtin_prefetch(line, 0, 2);
      line += ahead.step;
    }
    UNROLL
    for (int q = 0; q < NP; ++q) {
      if (NP > 1)
        __builtin_prefetch(b + q * bPanel + 16 * bStep);
      if (NP > 1 && NV * W * sizeof(BT) > 64)
        __builtin_prefetch(b + q * bPanel + 16 * bStep + 64 / sizeof(BT));
      UNROLL
      for (int j = 0; j < NV; ++j)
        bv[q * NV + j] = L::load(b + q * bPanel + j * W);
    }
    if constexpr (Packed) {
      addPacked<BT, 0, M, N>(acc, bv, a);
      a += M;
    } else {
      UNROLL
      for (int g = 0; g < G; ++g) {
        addRow<BT, 0, false, N>(acc[3 * g], bv, row[g], lda);
        if (3 * g + 1 < M)
          addRow<BT, 1, false, N>(acc[least(3 * g + 1, M - 1)], bv, row[g],
                                  lda);
        if (3 * g + 2 < M)
          addRow<BT, 2, false, N>(acc[least(3 * g + 2, M - 1)], bv, row[g],
                                  lda);
        ++row[g];
      }
    }
    b += bStep;
  }
  if constexpr (same<BT, S>)
    if (S *part = static_cast<S *>(ahead.part)) {
      UNROLL
      for (int i = 0; i < M; ++i)
        UNROLL
      for (int j = 0; j < N; ++j) {
        V sum = acc[i][j] + LS::load(part + i * ld + j * W);
        LS::store(out + i * ld + j * W, sum);
        LS::store(part + i * ld + j * W, sum);
      }
      return;
    }
  UNROLL
  for (int i = 0; i < M; ++i)
    UNROLL
  for (int j = 0; j < N; ++j)
    LS::store(out + i * ld + j * W, acc[i][j]);
}

template <class BT>
using TileFn = void (*)(int64_t, const typename Lane<BT>::S *, int64_t,
                        const BT *, int64_t, int64_t,
                        const typename Lane<BT>::S *, int64_t,
                        typename Lane<BT>::S *, int64_t, const Ahead &);

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

/// 16-bit operands are always converted, so their narrow tiles are all packed;
/// pairs are used as they are.
template <class BT>
constexpr bool alwaysCopied = sizeof(BT) != sizeof(typename Lane<BT>::S);

template <class BT>
INLINE TileFn<BT> narrowTile(int64_t rows, bool half, bool packed) {
  switch (rows) {
#define CASE(M)                                                                \
  case M:                                                                      \
    if (packed || alwaysCopied<BT>)                                            \
      return half ? &tile<BT, (M <= MR ? M : 1), 1, 1, true>                   \
                  : &tile<BT, (M <= MR ? M : 1), 2, 1, true>;                  \
    return half ? &tile<BT, (M <= MR ? M : 1), 1, 1, alwaysCopied<BT>>         \
                : &tile<BT, (M <= MR ? M : 1), 2, 1, alwaysCopied<BT>>;
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

/// One panel for the few rows that otherwise take several.
template <class BT> INLINE TileFn<BT> rowTile(int64_t rows, bool half) {
  if constexpr (!alwaysCopied<BT>)
    return narrowTile<BT>(rows, half, false);
  switch (rows) {
  case 1:
    return half ? &tile<BT, 1, 1, 1> : &tile<BT, 1, 2, 1>;
  case 2:
    return half ? &tile<BT, 2, 1, 1> : &tile<BT, 2, 2, 1>;
  case 3:
    return half ? &tile<BT, 3, 1, 1> : &tile<BT, 3, 2, 1>;
  default:
    return half ? &tile<BT, 4, 1, 1> : &tile<BT, 4, 2, 1>;
  }
}

/// `own` and the others' products at element `at`, in the members' order.
template <class T>
INLINE typename Lane<T>::V sumOfParts(const GemmOperands &o, int64_t at,
                                      int64_t left, typename Lane<T>::V own) {
  using L = Lane<T>;
  typename L::V sum = own;
  for (int m = 0; m < o.members; ++m) {
    const T *from = static_cast<const T *>(o.parts[m]) + at;
    typename L::V part = m == o.me          ? own
                         : left >= L::width ? L::load(from)
                                            : L::load(from, left);
    sum = m ? sum + part : part;
  }
  return sum;
}

/// Fetches what the epilogue of a tile will add: lines of another core take a
/// while, which the tile before then hides.
template <class T>
INLINE void fetchParts(const GemmShape &s, const GemmOperands &o, int64_t i,
                       int64_t j, int64_t rows, int64_t columns) {
  constexpr int64_t line = 64 / int64_t(sizeof(T));
  for (int m = 0; m < o.members; ++m) {
    if (m == o.me)
      continue;
    const T *from = static_cast<const T *>(o.parts[m]) + i * s.ldc + j;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; c += line)
        __builtin_prefetch(from + r * s.ldc + c, 0, 2);
  }
}

/// Fetches what the epilogue of a tile reads and writes, which is computed
/// meanwhile: a tile's rows lie on lines of their own.
template <class T>
INLINE void fetchEnds(const GemmShape &s, const GemmOperands &o, int64_t i,
                      int64_t j, int64_t rows, int64_t columns) {
  constexpr int64_t line = 64 / int64_t(sizeof(T));
  const int64_t at = i * s.ldc + j;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; c += line) {
      const int64_t offset = at + r * s.ldc + c;
      if (s.residual)
        __builtin_prefetch(static_cast<const T *>(o.residual) + offset, 0, 2);
      __builtin_prefetch(static_cast<T *>(o.c) + offset, 1, 2);
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
  const bool bare = s.bias == Bias::None && !s.residual && columns % W == 0;
  if (!o.members && bare && s.act == Act::None) {
    for (int64_t i = 0; i < rows; ++i) {
      T *c = static_cast<T *>(o.c) + (i0 + i) * s.ldc + j0;
      for (int64_t j = 0; j < columns; j += W)
        L::store(c + j, LS::load(acc + i * ld + j) * alpha);
    }
    return;
  }
  if (o.members == 2 && bare) {
    for (int64_t i = 0; i < rows; ++i) {
      int64_t at = (i0 + i) * s.ldc + j0;
      T *c = static_cast<T *>(o.c) + at;
      T *part = static_cast<T *>(o.parts[1 - o.me]) + at;
      for (int64_t j = 0; j < columns; j += W) {
        V v = LS::load(acc + i * ld + j) * alpha + L::load(part + j);
        L::store(c + j, v);
        L::store(part + j, v);
      }
    }
    return;
  }
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
      if (o.members)
        v = sumOfParts<T>(o, at + j, left, v);
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
      for (int m = 0; m < o.members; ++m) {
        T *part = static_cast<T *>(o.parts[m]) + at + j;
        if (m == o.me)
          continue;
        if (left >= W)
          L::store(part, v);
        else
          L::store(part, v, left);
      }
    }
  }
}

/// How one product is blocked; a function of the shape only. What counts k, and
/// lda, counts pairs where those are multiplied.
struct Plan {
  bool copyA, packB, small, scratch;
  int64_t k;
  int64_t kc, blocks, mc, nc, sumColumns, sumLd, lda;
  uint64_t aBytes, bBytes, scratchBytes;
};

template <class T> Plan planFor(const GemmShape &s) {
  using S = typename Lane<T>::S;
  using P = OperandOf<T>;
  constexpr int64_t perP = Operand<T>::perP;
  Plan p = {};
  p.k = ceilDiv(s.k, perP);
  p.small = s.m <= MR;
  int64_t rowBytes = s.lda * int64_t(sizeof(T));
  // Copied where reading in place costs more: see the top of the file.
  p.copyA = s.transA || alwaysCopied<P> || s.k % perP || s.lda % perP ||
            (s.m > 4 && s.n > 4 * NR<T> && rowBytes % 2048 == 0) ||
            (s.m > 2 * MR && s.n >= kCopyColumns);
  p.packB =
      !s.packed &&
      (perP > 1 || s.transB || s.n % NR<T> != 0 || (s.m > 8 * MR && s.k > 64) ||
       (s.m > MR && s.ldb * int64_t(sizeof(T)) % 2048 == 0 && s.k > 64));
  int64_t unit = int64_t(sizeof(S)) / 4; // the constants are for 4 bytes
  int64_t mostK = (p.packB                   ? kMostKPack
                   : p.k * unit <= kMostOneK ? kMostOneK
                                             : kMostK) /
                  unit;
  p.blocks = most(1, ceilDiv(p.k, mostK));
  p.kc = roundUp(ceilDiv(most(p.k, 1), p.blocks), 8);
  p.blocks = most(1, ceilDiv(p.k, p.kc));
  // Rows per block: equal blocks of whole tiles.
  int64_t rows = most(4 * MR, kBlockBytes / (p.kc * int64_t(sizeof(S))));
  p.mc = s.m <= rows + rows / 4 ? s.m
                                : roundUp(ceilDiv(s.m, ceilDiv(s.m, rows)), MR);
  p.scratch = !p.small && p.blocks > 1;
  p.nc = p.packB ? kColumnBlock : s.n;
  // Partial sums of an f32 product lie in C; only a last, narrower panel of it
  // needs a place of its own.
  p.sumLd =
      same<T, S> ? NR<T> : least(kSumColumns, roundUp(most(s.n, 1), NR<T>));
  p.sumColumns = p.scratch && !same<T, S> ? p.sumLd : s.n;
  p.lda = !p.copyA ? s.lda / perP : p.small ? p.kc * p.blocks + 16 : p.kc;
  if (p.copyA)
    p.aBytes =
        uint64_t(roundUp(least(p.mc, s.m) * p.lda * int64_t(sizeof(S)), 64));
  if (p.packB)
    p.bBytes =
        uint64_t(roundUp((p.small ? p.kc * p.blocks : p.kc) *
                             (p.small ? 4 * NR<T> : p.nc) * int64_t(sizeof(P)),
                         64));
  if (p.scratch)
    p.scratchBytes = uint64_t(least(p.mc, s.m) * p.sumLd * int64_t(sizeof(S)));
  return p;
}

/// Whether whole tiles of C are what the product makes, and whether they are
/// that and the other member's: both are stored from the registers.
template <class T> INLINE bool isBare(const GemmShape &s) {
  return same<T, typename Lane<T>::S> && s.bias == Bias::None && !s.residual &&
         s.act == Act::None && s.alpha == 1;
}

/// At most one tile of rows: panels are read whole, several at once.
template <class T>
void multiplySmall(const GemmShape &s, const GemmOperands &o, const Plan &plan,
                   char *workspace, Poller &poller) {
  using S = typename Lane<T>::S;
  using P = OperandOf<T>;
  constexpr int64_t N = NR<T>;
  S *aCopy = reinterpret_cast<S *>(workspace);
  P *bCopy = reinterpret_cast<P *>(workspace + plan.aBytes);
  const T *a = static_cast<const T *>(o.a);
  const T *b = static_cast<const T *>(o.b);
  const P *bPacked = static_cast<const P *>(o.b);
  const bool plain = isBare<T>(s) && !o.members;
  S *pair = isBare<T>(s) && o.members == 2 ? static_cast<S *>(o.parts[1 - o.me])
                                           : nullptr;
  alignas(64) S local[most(MR * N, 8 * N)];
  const char *here = reinterpret_cast<const char *>(local);
  const S *aBlock = reinterpret_cast<const S *>(a);
  // Tiles of several panels read A by rows, all others as it is packed.
  const bool packedA = plan.copyA && panelsFor(s.m) == 1;
  const int64_t aStep = packedA ? s.m : 1;
  if (plan.copyA) {
    if (packedA)
      packTile(a, s.lda, s.transA, s.m, s.k, aCopy);
    else
      copyRows(a, s.lda, s.transA, s.m, s.k, aCopy, plan.lda);
    poller.work(s.m * plan.k / 8);
    aBlock = aCopy;
  }
  int panels = panelsFor(s.m);
  int64_t j = 0, fetched = 0;
  while (j < s.n) {
    bool wide = panels > 1 && j + panels * N <= s.n;
    int64_t columns = wide ? panels * N : least(N, s.n - j);
    bool half = columns <= N / 2;
    int64_t width = half ? N / 2 : N;
    TileFn<P> fn = wide      ? wideTile<P>(s.m)
                   : packedA ? narrowTile<P>(s.m, half, true)
                             : rowTile<P>(s.m, half);
    const P *panel;
    int64_t step, stride;
    if (s.packed) {
      panel = bPacked + j * plan.k;
      step = width;
      stride = N * plan.k;
    } else if (plan.packB) {
      packColumns(s.transB ? b + j * s.ldb : b + j, s.ldb, s.transB, s.k,
                  columns, bCopy);
      poller.work(plan.k * columns / 2);
      panel = bCopy;
      step = width;
      stride = N * plan.k;
    } else {
      panel = bPacked + j;
      step = s.ldb;
      stride = N;
    }
    if (o.members && fetched < s.n) {
      // Small tiles are done sooner than a line comes from another core: as
      // many tiles ahead as take a third of a microsecond.
      constexpr int64_t kAhead = 16384; // of elements of B, times rows
      int64_t until = least(s.n, j + columns + kAhead / most(1, s.m * plan.k));
      fetchParts<T>(s, o, 0, fetched, s.m, until - fetched);
      fetched = until;
    }
    const bool direct = (plain || pair) && (wide || columns == width);
    S *out = direct ? reinterpret_cast<S *>(o.c) + j : local;
    int64_t ld = direct ? s.ldc : wide ? columns : width;
    for (int64_t p = 0; p < plan.k || p == 0; p += plan.kc) {
      int64_t kc = least(plan.kc, plan.k - p);
      fn(kc, aBlock + p * aStep, plan.lda, panel + p * step, step, stride,
         p ? out : nullptr, ld, out, ld,
         {here, 0,
          direct && pair && p + plan.kc >= plan.k ? pair + j : nullptr});
      poller.work(kc * columns * most(s.m, 4) / 64);
    }
    if (out == local)
      epilogue<T>(s, o, 0, j, s.m, columns, local, ld);
    j += columns;
  }
}

template <class T>
void multiply(const GemmShape &s, const GemmOperands &o, char *workspace,
              Poller &poller) {
  using S = typename Lane<T>::S;
  using P = OperandOf<T>;
  constexpr int64_t perP = Operand<T>::perP;
  constexpr int64_t N = NR<T>;
  const Plan plan = planFor<T>(s);
  S *aCopy = reinterpret_cast<S *>(workspace);
  P *bCopy = reinterpret_cast<P *>(workspace + plan.aBytes);
  S *scratch = reinterpret_cast<S *>(workspace + plan.aBytes + plan.bBytes);
  const T *a = static_cast<const T *>(o.a);
  const T *b = static_cast<const T *>(o.b);
  const P *bPacked = static_cast<const P *>(o.b);
  const bool plain = isBare<T>(s) && !o.members;
  S *pair = isBare<T>(s) && o.members == 2 ? static_cast<S *>(o.parts[1 - o.me])
                                           : nullptr;
  // Stands in for C where a tile sticks out or is not plain.
  alignas(64) S local[most(MR * N, 8 * N)];
  const char *here = reinterpret_cast<const char *>(local);
  const int64_t sumLd = plan.sumLd;

  if (s.m == 0 || s.n == 0)
    return;
  if (plan.small) {
    multiplySmall<T>(s, o, plan, workspace, poller);
    return;
  }
  for (int64_t i0 = 0; i0 < s.m; i0 += plan.mc) {
    const int64_t mc = least(plan.mc, s.m - i0);
    const int64_t tiles = ceilDiv(mc, MR);
    const int64_t base = mc / tiles, extra = mc % tiles;
    for (int64_t j1 = 0; j1 < s.n; j1 += plan.sumColumns) {
      const int64_t n1 = least(s.n, j1 + plan.sumColumns);
      for (int64_t block = 0; block < plan.blocks; ++block) {
        const int64_t p = block * plan.kc;
        const int64_t kc = least(plan.kc, plan.k - p);
        // In elements.
        const int64_t pe = p * perP, kce = least(kc * perP, s.k - pe);
        const bool last = block + 1 == plan.blocks;
        const S *aBlock;
        if (plan.copyA) {
          int64_t i = 0;
          for (int64_t t = 0; t < tiles; ++t) {
            const int64_t rows = base + (t < extra);
            packTile(s.transA ? a + pe * s.lda + i0 + i
                              : a + (i0 + i) * s.lda + pe,
                     s.lda, s.transA, rows, kce, aCopy + i * kc);
            poller.work(rows * kc / 4);
            i += rows;
          }
          aBlock = aCopy;
        } else {
          aBlock = reinterpret_cast<const S *>(a + i0 * s.lda + pe);
        }
        for (int64_t j = j1; j < n1; j += N) {
          const int64_t columns = least(N, n1 - j);
          const bool half = columns <= N / 2;
          const int64_t width = half ? N / 2 : N;
          const P *panel;
          int64_t step = width;
          const char *ahead = nullptr; // the panel after this one
          if (s.packed) {
            panel = bPacked + j * plan.k + p * width;
            if (j + N < n1)
              ahead = reinterpret_cast<const char *>(panel + N * plan.k);
          } else if (plan.packB) {
            int64_t within = (j - j1) % plan.nc;
            if (within == 0) {
              int64_t nc = least(plan.nc, n1 - j);
              packColumns(s.transB ? b + j * s.ldb + pe : b + pe * s.ldb + j,
                          s.ldb, s.transB, kce, nc, bCopy);
              poller.work(kc * nc / 4);
            }
            panel = bCopy + within * kc;
          } else {
            panel = bPacked + p * s.ldb + j;
            step = s.ldb;
          }
          int64_t i = 0;
          for (int64_t t = 0; t < tiles; ++t) {
            const int64_t rows = base + (t < extra);
            TileFn<P> fn = narrowTile<P>(rows, half, plan.copyA);
            const S *aTile = aBlock + i * (plan.copyA ? kc : plan.lda);
            const bool fetch = ahead && t * 64 < N * int64_t(sizeof(P));
            const bool sums = last && pair && columns == width;
            const Ahead next = {fetch ? ahead + t * kc * 64 : here,
                                fetch ? 64 : 0,
                                sums ? pair + (i0 + i) * s.ldc + j : nullptr};
            // Partial sums lie in C, unless its type or shape does not allow
            // it.
            S *partial = scratch + i * sumLd + (j - j1) % sumLd;
            int64_t ld = sumLd;
            if (same<T, S> && columns == width) {
              partial = reinterpret_cast<S *>(o.c) + (i0 + i) * s.ldc + j;
              ld = s.ldc;
            }
            const bool aside = last && !sums && !(plain && columns == width);
            if (last && o.members) {
              // The tile after this one; what the first needs is late.
              if (t + 1 < tiles)
                fetchParts<T>(s, o, i0 + i + rows, j, base + (t + 1 < extra),
                              columns);
              else if (j + N < n1)
                fetchParts<T>(s, o, i0, j + N, base + (0 < extra),
                              least(N, n1 - j - N));
            }
            if (aside)
              fetchEnds<T>(s, o, i0 + i, j, rows, columns);
            fn(kc, aTile, plan.lda, panel, step, 0, block ? partial : nullptr,
               ld, aside ? local : partial, aside ? width : ld, next);
            if (aside)
              epilogue<T>(s, o, i0 + i, j, rows, columns, local, width);
            poller.work(rows * columns * kc / 50);
            i += rows;
          }
        }
      }
    }
  }
}

template <class T> int64_t elementsFor(int64_t k, int64_t n) {
  return panelColumns<T>(n) * roundUp(k, Operand<T>::perP);
}

template <class T> uint64_t bytesFor(const GemmShape &s) {
  Plan p = planFor<T>(s);
  return p.aBytes + p.bBytes + p.scratchBytes;
}

template <class T>
void packAll(const GemmShape &s, const void *b, void *packed) {
  packColumns(static_cast<const T *>(b), s.ldb, s.transB, s.k, s.n,
              static_cast<OperandOf<T> *>(packed));
}

#if defined(__AVX512BF16__)
// Asked for bfloat16 only (Gemm.cpp).
#define BY_TYPE(type, call) return call<BFloat>;
#else
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
#endif

auto chooseBytes(GemmType type) -> uint64_t (*)(const GemmShape &) {
  BY_TYPE(type, bytesFor)
}
auto chooseElements(GemmType type) -> int64_t (*)(int64_t, int64_t) {
  BY_TYPE(type, elementsFor)
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
  return chooseElements(type)(k, n);
}
void packB(GemmType type, const GemmShape &shape, const void *b, void *packed) {
  choosePack(type)(shape, b, packed);
}
void run(GemmType type, const GemmShape &shape, const GemmOperands &operands,
         void *workspace, Poller &poller) {
  chooseMultiply(type)(shape, operands, static_cast<char *>(workspace), poller);
}

} // namespace

#if !defined(__AVX512BF16__)
namespace CONCORD_HOT_NAMESPACE {
TileF32 tileF32(int64_t rows, bool half) {
  return narrowTile<float>(rows, half, false);
}
void packF32(const float *b, int64_t ldb, bool transposed, int64_t k, int64_t n,
             float *packed) {
  packColumns(b, ldb, transposed, k, n, packed);
}
} // namespace CONCORD_HOT_NAMESPACE
#endif

extern const GemmTable CONCORD_HOT_TABLE(gemmTable);
const GemmTable CONCORD_HOT_TABLE(gemmTable) = {workspaceFor, packedElements,
                                                packB, run};

} // namespace concord::kernels

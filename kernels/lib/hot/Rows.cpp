//===- Rows.cpp - Softmax and normalisations, one CPU class ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sums run in four accumulators per lane, reduced by a fixed tree, so that the
// bits depend on the row only (and on the CPU class).
//
//===----------------------------------------------------------------------===//

#include "../RowsHot.h"
#include "Lines.h"
#include "Vec.h"
#include "VecMath.h"

namespace concord::kernels {
namespace {

INLINE vd expNegative(vd x) {
  vd y;
  for (int i = 0; i < VD; ++i)
    y[i] = __builtin_exp(x[i]);
  return y;
}
INLINE vd vmax(vd a, vd b) { return select(b > a, b, a); }

INLINE float largest(vf v) {
  float m = v[0];
  for (int i = 1; i < VL; ++i)
    m = v[i] > m ? v[i] : m;
  return m;
}
INLINE double largest(vd v) {
  double m = v[0];
  for (int i = 1; i < VD; ++i)
    m = v[i] > m ? v[i] : m;
  return m;
}
INLINE float logOf(float v) { return logf(vf(v))[0]; }
INLINE double logOf(double v) { return __builtin_log(v); }

/// All lanes of a vector, known when it is compiled.
struct Whole {};

/// Calls f(j, lanes) for the vectors of `count` elements: `lanes` is Whole or,
/// of the last one, a number. Between whole vectors no call for the rest
/// stands, which would keep constants and addresses out of registers.
template <int W, class F> INLINE void eachVector(int64_t count, F f) {
  int64_t j = 0;
  for (; j + W <= count; j += W)
    f(j, Whole());
  if (j < count)
    f(j, count - j);
}
template <class T> INLINE typename Lane<T>::V loadLanes(const T *from, Whole) {
  return Lane<T>::load(from);
}
template <class T>
INLINE typename Lane<T>::V loadLanes(const T *from, int64_t lanes) {
  return Lane<T>::load(from, lanes);
}
template <class T> INLINE void storeLanes(T *to, typename Lane<T>::V v, Whole) {
  Lane<T>::store(to, v);
}
template <class T>
INLINE void storeLanes(T *to, typename Lane<T>::V v, int64_t lanes) {
  Lane<T>::store(to, v, lanes);
}

/// Sum of f(vector) over `count` elements that lie in `row`, padded with zeros
/// to a whole vector.
template <class S, class F> INLINE S sumOver(const S *row, int64_t count, F f) {
  using L = Lane<S>;
  using V = typename L::V;
  constexpr int W = L::width;
  V acc[4] = {V(S(0)), V(S(0)), V(S(0)), V(S(0))};
  int64_t j = 0;
  for (; j + 4 * W <= count; j += 4 * W)
    for (int u = 0; u < 4; ++u)
      acc[u] = acc[u] + f(L::load(row + j + u * W), j + u * W, int64_t(W));
  for (; j < count; j += W)
    acc[0] = acc[0] + f(L::load(row + j), j, least(W, count - j));
  return sum((acc[0] + acc[1]) + (acc[2] + acc[3]));
}

template <class T>
void softmaxRows(const SoftmaxShape &s, const T *x, const T *mask, T *y,
                 typename Lane<T>::S *row, Poller &poller) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  const S inf = S(__builtin_inf());
  const V scale = V(S(s.scale));
  int64_t index[kMaskDims] = {};
  for (int64_t r = 0; r < s.rows; ++r, x += s.xStride, y += s.yStride) {
    int64_t count = s.cols;
    if (s.causal)
      count = most(0, least(count, r % s.causalRows + s.causalOffset + 1));
    const T *maskRow = mask;
    if (s.mask) {
      for (int d = 0; d < s.maskDims; ++d)
        maskRow += index[d] * s.maskStrides[d];
      for (int d = s.maskDims - 1; d >= 0; --d) {
        if (++index[d] < s.maskShape[d])
          break;
        index[d] = 0;
      }
    }
    V top = V(-inf);
    V same = s.mask && s.maskColumnStride == 0 && count ? V(L::get(*maskRow))
                                                        : V(S(0));
    for (int64_t j = 0; j < count; j += W) {
      int64_t left = count - j;
      V v = (left >= W ? L::load(x + j) : L::load(x + j, left)) * scale;
      if (s.mask)
        v = v + (s.maskColumnStride == 0 ? same
                 : left >= W             ? L::load(maskRow + j)
                                         : L::load(maskRow + j, left));
      if (left < W)
        for (int i = int(left); i < W; ++i)
          v[i] = -inf;
      LS::store(row + j, v);
      top = vmax(top, v);
    }
    S m = largest(top);
    S total = sumOver(row, count, [&](V v, int64_t j, int64_t) {
      V e = expNegative(v - V(m));
      if (!s.log)
        LS::store(row + j, e);
      return e;
    });
    // With no column left over the row is zero, not 0 / 0.
    S inverse = S(1) / total;
    S shift = s.log ? m + logOf(total) : S(0);
    int64_t j = 0;
    for (; j < count; j += W) {
      V v = LS::load(row + j);
      v = s.log ? v - V(shift) : v * V(inverse);
      if (count - j >= W)
        L::store(y + j, v);
      else
        L::store(y + j, v, count - j);
    }
    for (j = count; j < s.cols; ++j)
      y[j] = L::put(s.log ? -inf : S(0));
    poller.work(s.cols / 2 + 10);
  }
}

INLINE float inverseRoot(float v) { return 1.0f / __builtin_sqrtf(v); }
INLINE double inverseRoot(double v) { return 1.0 / __builtin_sqrt(v); }

template <class T>
void normRows(const NormShape &s, const NormOperands &o,
              typename Lane<T>::S *row, Poller &poller) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  const T *x = static_cast<const T *>(o.x);
  const T *gamma = static_cast<const T *>(o.gamma);
  const T *beta = static_cast<const T *>(o.beta);
  const T *residual = static_cast<const T *>(o.residual);
  T *y = static_cast<T *>(o.y);
  T *total = static_cast<T *>(o.sum);
  const S count = S(s.cols);
  for (int64_t r = 0; r < s.rows; ++r) {
    eachVector<W>(s.cols, [&](int64_t j, auto lanes) {
      V v = loadLanes(x + j, lanes);
      if (residual) {
        v = v + loadLanes(residual + j, lanes);
        if (total)
          storeLanes(total + j, v, lanes);
      }
      LS::store(row + j, v); // lanes past the end are 0
    });
    S mean = 0;
    if (!s.rms)
      mean =
          sumOver(row, s.cols, [](V v, int64_t, int64_t) { return v; }) / count;
    S square = sumOver(row, s.cols, [&](V v, int64_t, int64_t lanes) {
      V d = v - V(mean);
      if (lanes < W)
        for (int i = int(lanes); i < W; ++i)
          d[i] = 0;
      return d * d;
    });
    const V factor = V(inverseRoot(square / count + S(s.eps)));
    eachVector<W>(s.cols, [&](int64_t j, auto lanes) {
      V v = (LS::load(row + j) - V(mean)) * factor;
      if (gamma)
        v = v * loadLanes(gamma + j, lanes);
      if (beta)
        v = v + loadLanes(beta + j, lanes);
      storeLanes(y + j, v, lanes);
    });
    x += s.xStride;
    y += s.yStride;
    if (residual)
      residual += s.residualStride;
    if (total)
      total += s.sumStride;
    poller.work(s.cols / 3 + 10);
  }
}

template <class T>
void combineRows(const CombineShape &s, const CombineOperands &o,
                 char *workspace, Poller &poller) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  S *row = reinterpret_cast<S *>(workspace);
  T *out = reinterpret_cast<T *>(
      workspace + roundUp(roundUp(s.cols, 16) * int64_t(sizeof(S)), 64));
  const T *bias = static_cast<const T *>(o.bias);
  const T *residual = static_cast<const T *>(o.residual);
  const T *gamma = static_cast<const T *>(o.gamma);
  const T *beta = static_cast<const T *>(o.beta);
  const int64_t bytes = s.cols * int64_t(sizeof(T));
  const S count = S(s.cols);
  // Rows that go past the caches are put together first, so that whole lines
  // are stored.
  auto storeAll = [&](void *const *targets, int count, int64_t at, int64_t j,
                      V v, auto lanes) {
    if (s.stream)
      return storeLanes(out + j, v, lanes);
    for (int t = 0; t < count; ++t)
      storeLanes(static_cast<T *>(targets[t]) + at + j, v, lanes);
  };
  auto deliverAll = [&](void *const *targets, int count, int64_t at) {
    for (int t = 0; s.stream && t < count; ++t)
      deliver(static_cast<T *>(targets[t]) + at, out, bytes, true);
  };
  void *const *plain = s.norm ? o.sum : o.y;
  const int plainTargets = !plain[0] ? 0 : s.norm ? s.sumTargets : s.yTargets;
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t at = r * s.ld;
    eachVector<W>(s.cols, [&](int64_t j, auto lanes) {
      V v = V(S(0));
      for (int m = 0; m < s.members; ++m) {
        T *from = static_cast<T *>(o.parts[m]) + at + j;
        V part = loadLanes(from, lanes);
        v = m ? v + part : part;
        if (s.take && m != s.me)
          giveBack(from, least(W, s.cols - j) * int64_t(sizeof(T)));
      }
      if (bias)
        v = v + loadLanes(bias + j, lanes);
      if (residual)
        v = v + loadLanes(residual + at + j, lanes);
      if (plainTargets)
        storeAll(plain, plainTargets, at, j, v, lanes);
      if (s.norm) {
        if (s.rounded) {
          storeLanes(out + j, v, lanes);
          v = loadLanes(out + j, lanes);
        }
        LS::store(row + j, v); // lanes past the end are 0
      }
    });
    if (plainTargets)
      deliverAll(plain, plainTargets, at);
    if (s.norm) {
      S mean = 0;
      if (!s.rms)
        mean = sumOver(row, s.cols, [](V v, int64_t, int64_t) { return v; }) /
               count;
      S square = sumOver(row, s.cols, [&](V v, int64_t, int64_t lanes) {
        V d = v - V(mean);
        if (lanes < W)
          for (int i = int(lanes); i < W; ++i)
            d[i] = 0;
        return d * d;
      });
      const V factor = V(inverseRoot(square / count + S(s.eps)));
      eachVector<W>(s.cols, [&](int64_t j, auto lanes) {
        V v = (LS::load(row + j) - V(mean)) * factor;
        if (gamma)
          v = v * loadLanes(gamma + j, lanes);
        if (beta)
          v = v + loadLanes(beta + j, lanes);
        storeAll(o.y, s.yTargets, at, j, v, lanes);
      });
      deliverAll(o.y, s.yTargets, at);
    }
    poller.work(s.cols * (1 + s.members) / 4 + 10);
  }
#if defined(__x86_64__)
  // Release stores alone do not order streamed ones.
  if (s.stream)
    _mm_sfence();
#endif
}

template <class T>
void mixRows(const MixShape &s, const T *x, const T *factors, T *y, T *row,
             Poller &poller) {
  using L = Lane<T>;
  using V = typename L::V;
  constexpr int W = L::width;
  for (int64_t r = 0; r < s.rows; ++r) {
    T *to = s.stream ? row : y + r * s.cols;
    for (int64_t j = 0; j < s.cols; j += W) {
      const int64_t left = s.cols - j;
      V sum = V(0);
      for (int64_t g = 0; g < s.groups; ++g) {
        const T *from = x + (g * s.rows + r) * s.cols + j;
        const V v = left >= W ? L::load(from) : L::load(from, left);
        const V part = v * V(L::get(factors[g * s.factorStride + r]));
        sum = g ? sum + part : part;
      }
      if (left >= W)
        L::store(to + j, sum);
      else
        L::store(to + j, sum, left);
    }
    if (s.stream)
      deliver(y + r * s.cols, row, s.cols * int64_t(sizeof(T)), true);
    poller.work(s.cols * (1 + s.groups) / 4 + 10);
  }
#if defined(__x86_64__)
  if (s.stream)
    _mm_sfence();
#endif
}

void mix(GemmType type, const MixShape &s, const void *x, const void *factors,
         void *y, void *workspace, Poller &poller) {
#define CASE(tag, T)                                                           \
  case GemmType::tag:                                                          \
    return mixRows<T>(s, static_cast<const T *>(x),                            \
                      static_cast<const T *>(factors), static_cast<T *>(y),    \
                      static_cast<T *>(workspace), poller);
  switch (type) {
    CASE(F32, float)
    CASE(F64, double)
    CASE(F16, Half)
    CASE(BF16, BFloat)
  }
#undef CASE
}

void takeOver(void *to, void *from, int64_t bytes, Poller &poller) {
  char *target = static_cast<char *>(to), *source = static_cast<char *>(from);
  constexpr int64_t kPiece = 16 << 10;
  for (int64_t at = 0; at < bytes; at += kPiece) {
    int64_t end = least(at + kPiece, bytes);
    for (int64_t i = at; i + 64 <= end; i += 64)
      giveBack(source + i, 64);
    __builtin_memcpy(target + at, source + at, size_t(end - at));
    poller.work(kPiece / 4);
  }
}

void combine(GemmType type, const CombineShape &s, const CombineOperands &o,
             void *workspace, Poller &poller) {
#define CASE(tag, T)                                                           \
  case GemmType::tag:                                                          \
    return combineRows<T>(s, o, static_cast<char *>(workspace), poller);
  switch (type) {
    CASE(F32, float)
    CASE(F64, double)
    CASE(F16, Half)
    CASE(BF16, BFloat)
  }
#undef CASE
}

void softmax(GemmType type, const SoftmaxShape &s, const void *x,
             const void *mask, void *y, void *workspace, Poller &poller) {
#define CASE(tag, T)                                                           \
  case GemmType::tag:                                                          \
    return softmaxRows<T>(s, static_cast<const T *>(x),                        \
                          static_cast<const T *>(mask), static_cast<T *>(y),   \
                          static_cast<Lane<T>::S *>(workspace), poller);
  switch (type) {
    CASE(F32, float)
    CASE(F64, double)
    CASE(F16, Half)
    CASE(BF16, BFloat)
  }
#undef CASE
}

void norm(GemmType type, const NormShape &s, const NormOperands &o,
          void *workspace, Poller &poller) {
#define CASE(tag, T)                                                           \
  case GemmType::tag:                                                          \
    return normRows<T>(s, o, static_cast<Lane<T>::S *>(workspace), poller);
  switch (type) {
    CASE(F32, float)
    CASE(F64, double)
    CASE(F16, Half)
    CASE(BF16, BFloat)
  }
#undef CASE
}

} // namespace

extern const RowsTable CONCORD_HOT_TABLE(rowsTable);
const RowsTable CONCORD_HOT_TABLE(rowsTable) = {softmax, norm, combine,
                                                takeOver, mix};

} // namespace concord::kernels

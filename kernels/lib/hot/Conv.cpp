//===- Conv.cpp - Patches, depthwise convolution, pooling, one class ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A convolution is a product of the weight with the matrix of patches, which is
// written directly as GEMM panels, block by block, and never exists as a whole.
// Depthwise convolution adds shifted rows of a padded plane.
//
//===----------------------------------------------------------------------===//

#include "../ConvHot.h"
#include "Vec.h"
#include "VecMath.h"

namespace concord::kernels {
namespace {

/// A part of a panel whose positions lie in one output row.
struct Run {
  int64_t at;   ///< first column
  int64_t from; ///< its first element in the padded plane, for kernel (0, 0, 0)
};

/// One image's channels with their padding written out.
template <class T>
void padOf(const Window &w, int64_t channels, const T *x, T *padded,
           Poller &poller) {
  int64_t pd = w.padded(0), ph = w.padded(1), pw = w.padded(2);
  for (int64_t c = 0; c < channels; ++c, padded += pd * ph * pw) {
    for (int64_t d = 0; d < pd; ++d)
      for (int64_t h = 0; h < ph; ++h) {
        T *to = padded + (d * ph + h) * pw;
        int64_t id = d - w.begin[0], ih = h - w.begin[1];
        if (id < 0 || id >= w.in[0] || ih < 0 || ih >= w.in[1]) {
          __builtin_memset(to, 0, size_t(pw) * sizeof(T));
          continue;
        }
        const T *from = x + ((c * w.in[0] + id) * w.in[1] + ih) * w.in[2];
        for (int64_t i = 0; i < w.begin[2]; ++i)
          to[i] = T{};
        __builtin_memcpy(to + w.begin[2], from, size_t(w.in[2]) * sizeof(T));
        for (int64_t i = w.begin[2] + w.in[2]; i < pw; ++i)
          to[i] = T{};
      }
    poller.work(pd * ph * (pw / 8 + 4));
  }
}

/// Every row of a panel is a few runs of contiguous (or strided) elements. A
/// run is copied at full panel width: what it writes beyond its end is
/// overwritten by the next run, row or panel, or is slack, and what it reads
/// beyond the plane is the next plane, or slack. No element needs a test.
template <class T, int64_t Stride>
void patchesOf(const Window &w, int64_t channels, const T *padded,
               int64_t first, int64_t count, T *panels, Poller &poller) {
  constexpr int64_t N = 2 * Lane<T>::width;
  const int64_t k = channels * w.kernelSize();
  const int64_t ph = w.padded(1), pw = w.padded(2);
  const int64_t plane = w.padded(0) * ph * pw;
  for (int64_t p0 = 0; p0 < count; p0 += N) {
    int64_t columns = least(N, count - p0);
    int64_t width = columns <= N / 2 ? N / 2 : N;
    T *row = panels + p0 * k;
    Run runs[N];
    int64_t numRuns = 0;
    for (int64_t at = 0; at < columns;) {
      int64_t position = first + p0 + at;
      int64_t ow = position % w.out[2];
      int64_t oh = position / w.out[2] % w.out[1];
      int64_t od = position / w.out[2] / w.out[1];
      runs[numRuns++] = {at, (od * w.stride[0] * ph + oh * w.stride[1]) * pw +
                                 ow * w.stride[2]};
      at += least(columns - at, w.out[2] - ow);
    }
    for (int64_t c = 0; c < channels; ++c) {
      const T *base = padded + c * plane;
      for (int64_t kd = 0; kd < w.kernel[0]; ++kd)
        for (int64_t kh = 0; kh < w.kernel[1]; ++kh) {
          const T *line =
              base + (kd * w.dilation[0] * ph + kh * w.dilation[1]) * pw;
          for (int64_t kw = 0; kw < w.kernel[2];
               ++kw, line += w.dilation[2], row += width)
            for (int64_t r = 0; r < numRuns; ++r) {
              const T *from = line + runs[r].from;
              T *to = row + runs[r].at;
              if constexpr (Stride == 1) {
                __builtin_memcpy(to, from, N * sizeof(T));
              } else {
                const int64_t step = Stride ? Stride : w.stride[2];
                for (int64_t i = 0; i < N; ++i)
                  to[i] = from[i * step];
              }
            }
        }
      poller.work(w.kernelSize() * (N / 8 + 2 * numRuns));
    }
    // Columns past the last position are part of the product's tile.
    if (columns < width)
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = columns; j < width; ++j)
          panels[p0 * k + i * width + j] = T{};
  }
}

template <class T>
void depthwiseOf(const Window &w, const T *x, const T *weight, double bias,
                 Act act, T *y, typename Lane<T>::S *work, Poller &poller) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  const int64_t ph = w.in[1] + w.begin[1] + w.end[1];
  const int64_t pw = w.in[2] + w.begin[2] + w.end[2];
  const int64_t pd = w.in[0] + w.begin[0] + w.end[0];
  for (int64_t i = 0; i < pd * ph * pw; ++i)
    work[i] = 0;
  for (int64_t d = 0; d < w.in[0]; ++d)
    for (int64_t h = 0; h < w.in[1]; ++h) {
      S *to = work + ((d + w.begin[0]) * ph + h + w.begin[1]) * pw + w.begin[2];
      const T *from = x + (d * w.in[1] + h) * w.in[2];
      for (int64_t i = 0; i < w.in[2]; ++i)
        to[i] = L::get(from[i]);
    }
  poller.work(pd * ph * pw / 4);
  S *sums = work + pd * ph * pw;
  for (int64_t od = 0; od < w.out[0]; ++od)
    for (int64_t oh = 0; oh < w.out[1]; ++oh) {
      const S *base = work + (od * w.stride[0] * ph + oh * w.stride[1]) * pw;
      T *to = y + (od * w.out[1] + oh) * w.out[2];
      if (w.stride[2] == 1) {
        for (int64_t j = 0; j < w.out[2]; j += W) {
          int64_t n = least(W, w.out[2] - j);
          V acc = V(S(bias));
          const T *k = weight;
          for (int64_t kd = 0; kd < w.kernel[0]; ++kd)
            for (int64_t kh = 0; kh < w.kernel[1]; ++kh)
              for (int64_t kw = 0; kw < w.kernel[2]; ++kw, ++k) {
                const S *from =
                    base + (kd * w.dilation[0] * ph + kh * w.dilation[1]) * pw +
                    kw * w.dilation[2] + j;
                acc = fma(V(L::get(*k)),
                          n == W ? LS::load(from) : LS::load(from, n), acc);
              }
          acc = activate(act, acc);
          if (n == W)
            L::store(to + j, acc);
          else
            L::store(to + j, acc, n);
        }
      } else {
        for (int64_t j = 0; j < w.out[2]; ++j)
          sums[j] = S(bias);
        const T *k = weight;
        for (int64_t kd = 0; kd < w.kernel[0]; ++kd)
          for (int64_t kh = 0; kh < w.kernel[1]; ++kh)
            for (int64_t kw = 0; kw < w.kernel[2]; ++kw, ++k) {
              const S *from =
                  base + (kd * w.dilation[0] * ph + kh * w.dilation[1]) * pw +
                  kw * w.dilation[2];
              S scale = L::get(*k);
              for (int64_t j = 0; j < w.out[2]; ++j)
                sums[j] += scale * from[j * w.stride[2]];
            }
        for (int64_t j = 0; j < w.out[2]; j += W) {
          int64_t n = least(W, w.out[2] - j);
          V v = activate(act,
                         n == W ? LS::load(sums + j) : LS::load(sums + j, n));
          if (n == W)
            L::store(to + j, v);
          else
            L::store(to + j, v, n);
        }
      }
      poller.work(w.out[2] * w.kernelSize() / 4 + 8);
    }
}

/// [low, high) of kernel positions that fall into the input.
struct Span {
  int64_t start, low, high;
};
INLINE Span spanOf(const Window &w, int d, int64_t o) {
  Span s;
  s.start = o * w.stride[d] - w.begin[d];
  s.low = s.start < 0 ? ceilDiv(-s.start, w.dilation[d]) : 0;
  s.high = w.in[d] > s.start
               ? least(w.kernel[d], ceilDiv(w.in[d] - s.start, w.dilation[d]))
               : 0;
  return s;
}
/// Kernel positions that fall into the input or its padding.
INLINE int64_t paddedCount(const Window &w, int d, int64_t o) {
  int64_t start = o * w.stride[d] - w.begin[d];
  return least(w.kernel[d], ceilDiv(w.in[d] + w.end[d] - start, w.dilation[d]));
}

/// First the rows of a window into one line of `work`, a vector at a time, then
/// the windows along that line.
template <class T>
void poolOf(const Window &w, PoolKind kind, int64_t planes, const T *x, T *y,
            typename Lane<T>::S *work, Poller &poller) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  using LS = Lane<S>;
  constexpr int W = L::width;
  const bool max = kind == PoolKind::Max;
  const S start = max ? S(-__builtin_inf()) : S(0);
  // Windows that lie wholly inside need no look at the edges.
  const int64_t innerLow = ceilDiv(w.begin[2], w.stride[2]);
  const int64_t reach = (w.kernel[2] - 1) * w.dilation[2];
  const int64_t innerHigh =
      w.in[2] > reach ? (w.in[2] - 1 - reach + w.begin[2]) / w.stride[2] + 1
                      : 0;
  for (int64_t p = 0; p < planes; ++p, x += w.inSize())
    for (int64_t od = 0; od < w.out[0]; ++od) {
      Span d = spanOf(w, 0, od);
      for (int64_t oh = 0; oh < w.out[1]; ++oh) {
        Span h = spanOf(w, 1, oh);
        int64_t rows = most(0, d.high - d.low) * most(0, h.high - h.low);
        for (int64_t i = 0; i < w.in[2]; i += W) {
          int64_t n = least(W, w.in[2] - i);
          V v = V(start);
          for (int64_t kd = d.low; kd < d.high; ++kd)
            for (int64_t kh = h.low; kh < h.high; ++kh) {
              const T *from = x +
                              ((d.start + kd * w.dilation[0]) * w.in[1] +
                               h.start + kh * w.dilation[1]) *
                                  w.in[2] +
                              i;
              V u = n == W ? L::load(from) : L::load(from, n);
              v = max ? select(u > v, u, select(u != u, u, v)) : v + u;
            }
          if (n == W)
            LS::store(work + i, v);
          else
            LS::store(work + i, v, n);
        }
        for (int64_t ow = 0; ow < w.out[2]; ++ow) {
          bool inner = ow >= innerLow && ow < innerHigh;
          Span v = inner ? Span{ow * w.stride[2] - w.begin[2], 0, w.kernel[2]}
                         : spanOf(w, 2, ow);
          S best = start;
          const S *line = work + v.start;
          for (int64_t kw = v.low; kw < v.high; ++kw) {
            S value = line[kw * w.dilation[2]];
            if (max)
              best = value > best || value != value ? value : best;
            else
              best += value;
          }
          int64_t count = rows * most(0, v.high - v.low);
          if (kind == PoolKind::AverageWithPad)
            count = paddedCount(w, 0, od) * paddedCount(w, 1, oh) *
                    paddedCount(w, 2, ow);
          *y++ = L::put(max ? best : best / S(count));
        }
        poller.work(w.in[2] * rows / 4 + w.out[2] * w.kernel[2] + 8);
      }
    }
}

/// Global averages and maxima: one vector at a time.
template <class T>
void poolAll(PoolKind kind, int64_t planes, int64_t size, const T *x, T *y,
             Poller &poller) {
  using L = Lane<T>;
  using S = typename L::S;
  using V = typename L::V;
  constexpr int W = L::width;
  for (int64_t p = 0; p < planes; ++p, x += size) {
    int64_t i = 0;
    if (kind == PoolKind::Max) {
      S best = S(-__builtin_inf());
      V v = V(best);
      for (; i + W <= size; i += W) {
        V u = L::load(x + i);
        v = select(u > v, u, select(u != u, u, v));
      }
      for (int j = 0; j < W; ++j)
        best = v[j] > best || v[j] != v[j] ? v[j] : best;
      for (; i < size; ++i) {
        S u = L::get(x[i]);
        best = u > best || u != u ? u : best;
      }
      y[p] = L::put(best);
    } else {
      V v = V(S(0));
      for (; i + W <= size; i += W)
        v = v + L::load(x + i);
      S total = sum(v);
      for (; i < size; ++i)
        total += L::get(x[i]);
      y[p] = L::put(total / S(size));
    }
    poller.work(size / 4 + 4);
  }
}

#define BY_TYPE(type, CALL)                                                    \
  switch (type) {                                                              \
  case GemmType::F32:                                                          \
    CALL(float);                                                               \
    break;                                                                     \
  case GemmType::F64:                                                          \
    CALL(double);                                                              \
    break;                                                                     \
  case GemmType::F16:                                                          \
    CALL(Half);                                                                \
    break;                                                                     \
  case GemmType::BF16:                                                         \
    CALL(BFloat);                                                              \
    break;                                                                     \
  }

int64_t panel(GemmType type) { return type == GemmType::F64 ? 2 * VD : 2 * VL; }

void pad(GemmType type, const Window &w, int64_t channels, const void *x,
         void *padded, Poller &poller) {
#define CALL(T)                                                                \
  padOf<T>(w, channels, static_cast<const T *>(x), static_cast<T *>(padded),   \
           poller)
  BY_TYPE(type, CALL)
#undef CALL
}

void patches(GemmType type, const Window &w, int64_t channels,
             const void *padded, int64_t first, int64_t count, void *panels,
             Poller &poller) {
#define ARGUMENTS(T)                                                           \
  (w, channels, static_cast<const T *>(padded), first, count,                  \
   static_cast<T *>(panels), poller)
#define CALL(T)                                                                \
  if (w.stride[2] == 1)                                                        \
    patchesOf<T, 1> ARGUMENTS(T);                                              \
  else if (w.stride[2] == 2)                                                   \
    patchesOf<T, 2> ARGUMENTS(T);                                              \
  else                                                                         \
    patchesOf<T, 0> ARGUMENTS(T)
  BY_TYPE(type, CALL)
#undef CALL
#undef ARGUMENTS
}

void depthwise(GemmType type, const Window &w, const void *x,
               const void *weight, double bias, Act act, void *y,
               void *workspace, Poller &poller) {
#define CALL(T)                                                                \
  depthwiseOf<T>(w, static_cast<const T *>(x), static_cast<const T *>(weight), \
                 bias, act, static_cast<T *>(y),                               \
                 static_cast<Lane<T>::S *>(workspace), poller)
  BY_TYPE(type, CALL)
#undef CALL
}

void pool(GemmType type, const Window &w, PoolKind kind, int64_t planes,
          const void *x, void *y, void *workspace, Poller &poller) {
  bool whole = true;
  for (int d = 0; d < 3; ++d)
    whole &= w.out[d] == 1 && w.kernel[d] == w.in[d] && w.begin[d] == 0 &&
             w.end[d] == 0 && w.dilation[d] == 1;
#define CALL(T)                                                                \
  if (whole)                                                                   \
    poolAll<T>(kind, planes, w.inSize(), static_cast<const T *>(x),            \
               static_cast<T *>(y), poller);                                   \
  else                                                                         \
    poolOf<T>(w, kind, planes, static_cast<const T *>(x), static_cast<T *>(y), \
              static_cast<Lane<T>::S *>(workspace), poller)
  BY_TYPE(type, CALL)
#undef CALL
}

double element(GemmType type, const void *p, int64_t index) {
#define CALL(T) return double(Lane<T>::get(static_cast<const T *>(p)[index]))
  BY_TYPE(type, CALL)
#undef CALL
  return 0;
}

} // namespace

extern const ConvTable CONCORD_HOT_TABLE(convTable);
const ConvTable CONCORD_HOT_TABLE(convTable) = {panel,     pad,  patches,
                                                depthwise, pool, element};

} // namespace concord::kernels

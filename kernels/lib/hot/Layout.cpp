//===- Layout.cpp - Transposition and rotary positions, one CPU class -----===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Squares of 8 x 8 elements are turned in registers, inside blocks of 64 x 64
// so that both sides stay in L1.
//
//===----------------------------------------------------------------------===//

#include "../LayoutHot.h"
#include "Vec.h"

namespace concord::kernels {
namespace {

template <class T>
void turn(const T *x, int64_t xStride, T *y, int64_t yStride, int64_t rows,
          int64_t cols, Poller &poller) {
  constexpr int64_t block = 64;
  for (int64_t c0 = 0; c0 < cols; c0 += block)
    for (int64_t r0 = 0; r0 < rows; r0 += block) {
      int64_t c1 = least(cols, c0 + block), r1 = least(rows, r0 + block);
      int64_t c = c0;
      for (; c + 8 <= c1; c += 8) {
        int64_t r = r0;
        for (; r + 8 <= r1; r += 8)
          transpose8(x + r * xStride + c, xStride, y + c * yStride + r,
                     yStride);
        for (; r < r1; ++r)
          for (int64_t k = c; k < c + 8; ++k)
            y[k * yStride + r] = x[r * xStride + k];
      }
      for (; c < c1; ++c)
        for (int64_t r = r0; r < r1; ++r)
          y[c * yStride + r] = x[r * xStride + c];
      poller.work((c1 - c0) * (r1 - r0) / 4);
    }
}

template <class T>
void inner(const CopyPlan &p, const char *xb, char *yb, Poller &poller) {
  const T *x = reinterpret_cast<const T *>(xb);
  T *y = reinterpret_cast<T *>(yb);
  if (p.kind == CopyPlan::Turned) {
    turn(x, p.rowStride, y, p.colStride, p.rows, p.cols, poller);
    return;
  }
  for (int64_t i = 0; i < p.rows; ++i)
    y[i * p.colStride] = x[i * p.rowStride];
  poller.work(p.rows);
}

/// A run of bytes; short ones without a call.
INLINE void copyRun(char *y, const char *x, int64_t bytes) {
  if (bytes > 512) {
    __builtin_memcpy(y, x, size_t(bytes));
    return;
  }
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    __builtin_memcpy(y + i, x + i, 32);
  if (bytes & 16) {
    __builtin_memcpy(y + i, x + i, 16);
    i += 16;
  }
  if (bytes & 8) {
    __builtin_memcpy(y + i, x + i, 8);
    i += 8;
  }
  if (bytes & 4) {
    __builtin_memcpy(y + i, x + i, 4);
    i += 4;
  }
  for (; i < bytes; ++i)
    y[i] = x[i];
}

void copy(const CopyPlan &p, const void *xv, void *yv, Poller &poller) {
  const char *x = static_cast<const char *>(xv);
  char *y = static_cast<char *>(yv);
  int64_t index[kCopyDims] = {};
  for (int d = 0; d < p.dims; ++d)
    if (p.size[d] == 0)
      return;
  while (true) {
    if (p.kind == CopyPlan::Runs) {
      // Long runs in pieces, for the sake of polling.
      int64_t bytes = p.rows * p.elementSize;
      for (int64_t i = 0; i < bytes; i += 1 << 18) {
        int64_t part = least(bytes - i, 1 << 18);
        copyRun(y + i, x + i, part);
        poller.work(part / 16 + 2);
      }
    } else {
      switch (p.elementSize) {
      case 1:
        inner<uint8_t>(p, x, y, poller);
        break;
      case 2:
        inner<uint16_t>(p, x, y, poller);
        break;
      case 4:
        inner<uint32_t>(p, x, y, poller);
        break;
      default:
        inner<uint64_t>(p, x, y, poller);
        break;
      }
    }
    int d = p.dims - 1;
    for (; d >= 0; --d) {
      x += p.xs[d] * p.elementSize;
      y += p.ys[d] * p.elementSize;
      if (++index[d] < p.size[d])
        break;
      x -= p.xs[d] * p.size[d] * p.elementSize;
      y -= p.ys[d] * p.size[d] * p.elementSize;
      index[d] = 0;
    }
    if (d < 0)
      return;
  }
}

template <class T>
void rotateHalves(const T *x, const T *cos, const T *sin, T *y, int64_t half) {
  using L = Lane<T>;
  constexpr int W = L::width;
  for (int64_t j = 0; j < half; j += W) {
    int64_t n = least(W, half - j);
    auto load = [&](const T *p) { return n == W ? L::load(p) : L::load(p, n); };
    auto store = [&](T *p, typename L::V v) {
      n == W ? L::store(p, v) : L::store(p, v, n);
    };
    auto a = load(x + j), b = load(x + half + j), c = load(cos + j),
         s = load(sin + j);
    store(y + j, a * c - b * s);
    store(y + half + j, b * c + a * s);
  }
}

template <class T>
bool ropeAll(const RopeShape &r, const T *x, const T *cos, const T *sin,
             const int64_t *positions, T *y, Poller &poller) {
  using L = Lane<T>;
  const int64_t half = r.rotary / 2;
  for (int64_t b = 0; b < r.b; ++b)
    for (int64_t s = 0; s < r.s; ++s) {
      int64_t at = b * r.tableStrides[0] + s * r.tableStrides[1];
      if (r.positions) {
        int64_t position = positions[b * r.s + s];
        if (position < 0 || position >= r.tableRows)
          return false;
        at = position * r.tableStrides[1];
      }
      for (int64_t h = 0; h < r.h; ++h) {
        const T *from = x + b * r.xs[0] + s * r.xs[1] + h * r.xs[2];
        T *to = y + b * r.ys[0] + s * r.ys[1] + h * r.ys[2];
        if (!r.interleaved) {
          rotateHalves(from, cos + at, sin + at, to, half);
        } else {
          for (int64_t j = 0; j < half; ++j) {
            auto a = L::get(from[2 * j]), c = L::get(cos[at + j]);
            auto e = L::get(from[2 * j + 1]), n = L::get(sin[at + j]);
            to[2 * j] = L::put(a * c - e * n);
            to[2 * j + 1] = L::put(e * c + a * n);
          }
        }
        for (int64_t j = r.rotary; j < r.d; ++j)
          to[j] = from[j];
      }
      poller.work(r.h * r.d / 8 + 4);
    }
  return true;
}

bool rope(GemmType type, const RopeShape &r, const void *x, const void *cos,
          const void *sin, const int64_t *positions, void *y, Poller &poller) {
#define CASE(tag, T)                                                           \
  case GemmType::tag:                                                          \
    return ropeAll<T>(                                                         \
        r, static_cast<const T *>(x), static_cast<const T *>(cos),             \
        static_cast<const T *>(sin), positions, static_cast<T *>(y), poller);
  switch (type) {
    CASE(F32, float)
    CASE(F64, double)
    CASE(F16, Half)
    CASE(BF16, BFloat)
  }
#undef CASE
  return true;
}

} // namespace

extern const LayoutTable CONCORD_HOT_TABLE(layoutTable);
const LayoutTable CONCORD_HOT_TABLE(layoutTable) = {copy, rope};

} // namespace concord::kernels

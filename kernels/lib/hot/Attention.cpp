//===- Attention.cpp - Fused attention, one CPU class ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// softmax(scale Q K^T + mask) V by blocks of query rows and of kKeys keys, with
// the running maximum and sum of online softmax (Milakov and Gimelshein, 2018)
// from one block of keys to the next; with at most kKeys keys that is the plain
// softmax of whole rows. Scores never leave L2. K and V are packed as panels of
// f32, once per head where they fit, else per block. A few rows (decoding) take
// dot products instead, so that K and V are read once and not packed. Blocks of
// keys do not depend on the number of rows.
//
//===----------------------------------------------------------------------===//

#include "../AttentionHot.h"
#include "Tiles.h"
#include "Vec.h"
#include "VecMath.h"

namespace concord::kernels {
namespace {

constexpr int64_t kKeys = 512;        ///< keys per block
constexpr int64_t kRows = 8 * MR;     ///< query rows per block
constexpr int64_t kFewRows = 4;       ///< up to this, dot products
constexpr int64_t kPackAll = 4 << 20; ///< bytes of K and V kept packed

struct Layout {
  int64_t groupRows; ///< heads that share K and V, taken as rows when sq is 1
  int64_t rows;      ///< query rows of one head, or group
  int64_t rowBlock;
  bool few, packAll;
  int64_t keys; ///< packed at once
  int64_t scoreLd, outLd;
  // Offsets in floats into the workspace.
  uint64_t kAt, vAt, qAt, scoreAt, outAt, statAt, end;
};

Layout layoutOf(const AttentionShape &s) {
  Layout l = {};
  l.groupRows = s.sq == 1 && s.hkv ? s.h / s.hkv : 1;
  l.rows = s.sq == 1 ? l.groupRows : s.sq;
  l.few = l.rows <= kFewRows;
  l.rowBlock = l.rows <= kRows + kRows / 4
                   ? l.rows
                   : roundUp(ceilDiv(l.rows, ceilDiv(l.rows, kRows)), MR);
  l.rowBlock = most(1, least(l.rowBlock, l.rows));
  int64_t dv = panelsF32(s.dv);
  l.packAll = s.sk * (s.d + dv) * 4 <= kPackAll;
  l.keys = l.packAll ? s.sk : least(s.sk, kKeys);
  l.scoreLd = roundUp(least(s.sk, kKeys), NRF) + 16;
  l.outLd = roundUp(most(dv, 1), NRF);
  uint64_t at = 0;
  auto take = [&](int64_t floats) {
    uint64_t here = at;
    at += uint64_t(roundUp(floats, 16));
    return here;
  };
  l.kAt = take(l.few ? 0 : panelsF32(roundUp(l.keys, NRF)) * s.d);
  l.vAt = take(l.few ? 0 : l.keys * dv);
  // A block of K or V as f32 before packing; also Q as f32.
  l.qAt = take(most(l.rowBlock * (s.d + 16), kKeys * most(s.d, s.dv)));
  l.scoreAt = take(l.rowBlock * l.scoreLd);
  l.outAt = take(l.rowBlock * l.outLd);
  l.statAt = take(2 * l.rowBlock);
  l.end = at;
  return l;
}

template <class T>
void widen(const T *from, int64_t stride, int64_t rows, int64_t cols, float *to,
           int64_t ld) {
  using L = Lane<T>;
  for (int64_t i = 0; i < rows; ++i) {
    int64_t j = 0;
    for (; j + VL <= cols; j += VL)
      Lane<float>::store(to + i * ld + j, L::load(from + i * stride + j));
    for (; j < cols; ++j)
      to[i * ld + j] = L::get(from[i * stride + j]);
  }
}

/// Packs `keys` rows of T; through f32 if T is not f32.
template <class T>
void packRows(const T *from, int64_t stride, bool transposed, int64_t keys,
              int64_t cols, float *scratch, float *packed) {
  int64_t k = transposed ? cols : keys, n = transposed ? keys : cols;
  if constexpr (sizeof(T) == 4) {
    packF32(from, stride, transposed, k, n, packed);
  } else {
    widen(from, stride, keys, cols, scratch, cols);
    packF32(scratch, cols, transposed, k, n, packed);
  }
}

/// Adds a mask row to scores; excluded keys become -inf.
INLINE void addMask(const AttentionShape &s, const void *mask, int64_t at,
                    int64_t keys, float *scores) {
  const float inf = __builtin_inff();
  const bool each = s.maskStrides[3] != 0;
  auto add = [&](auto *p) {
    using L = Lane<__remove_cvref(decltype(*p))>;
    p += at;
    vf one = vf(L::get(*p));
    int64_t j = 0;
    for (; j + VL <= keys; j += VL)
      Lane<float>::store(scores + j, Lane<float>::load(scores + j) +
                                         (each ? L::load(p + j) : one));
    for (; j < keys; ++j)
      scores[j] += L::get(p[each ? j : 0]);
  };
  switch (s.mask) {
  case MaskKind::None:
    break;
  case MaskKind::Bool: {
    const uint8_t *p = static_cast<const uint8_t *>(mask) + at;
    for (int64_t j = 0; j < keys; ++j)
      scores[j] = p[each ? j : 0] ? scores[j] : -inf;
    break;
  }
  case MaskKind::F32:
    add(static_cast<const float *>(mask));
    break;
  case MaskKind::F16:
    add(static_cast<const Half *>(mask));
    break;
  case MaskKind::BF16:
    add(static_cast<const BFloat *>(mask));
    break;
  }
}

/// One row of scores to weights, unnormalised: e^(s - max). Returns by how much
/// what came before must be scaled; updates the running maximum and sum.
INLINE float weigh(const AttentionShape &s, float *row, int64_t keys,
                   int64_t allowed, const void *mask, int64_t maskAt,
                   float &top, float &total) {
  using L = Lane<float>;
  const float inf = __builtin_inff();
  const vf scale = vf(float(s.scale));
  int64_t count = most(0, least(keys, allowed));
  int64_t padded = roundUp(count, VL);
  vf best = vf(-inf);
  if (s.softcap != 0 || s.mask != MaskKind::None) {
    const vf cap = vf(float(s.softcap)), inverse = vf(float(1 / s.softcap));
    for (int64_t j = 0; j < padded; j += VL) {
      vf v = L::load(row + j) * scale;
      L::store(row + j, s.softcap != 0 ? cap * tanhf(v * inverse) : v);
    }
    addMask(s, mask, maskAt, count, row);
    for (int64_t j = count; j < padded; ++j)
      row[j] = -inf;
    for (int64_t j = 0; j < padded; j += VL)
      best = vmax(best, L::load(row + j));
  } else {
    int64_t j = 0;
    for (; j + VL <= count; j += VL) {
      vf v = L::load(row + j) * scale;
      best = vmax(best, v);
      L::store(row + j, v);
    }
    if (j < count) {
      vf v = L::load(row + j) * scale;
      for (int i = int(count - j); i < VL; ++i)
        v[i] = -inf;
      best = vmax(best, v);
      L::store(row + j, v);
    }
  }
  float m = top;
  for (int i = 0; i < VL; ++i)
    m = best[i] > m ? best[i] : m;
  // Nothing allowed so far: weights 0, not e^(inf - inf).
  vf shift = vf(m == -inf ? 0.0f : m);
  float correction = m == top ? 1.0f : expNegative(vf(top) - shift)[0];
  vf sums[2] = {vf(0.0f), vf(0.0f)};
  int64_t j = 0;
  for (; j + 2 * VL <= padded; j += 2 * VL)
    for (int u = 0; u < 2; ++u) {
      vf e = expNegative(L::load(row + j + u * VL) - shift);
      sums[u] += e;
      L::store(row + j + u * VL, e);
    }
  for (; j < padded; j += VL) {
    vf e = expNegative(L::load(row + j) - shift);
    sums[0] += e;
    L::store(row + j, e);
  }
  for (j = padded; j < keys; ++j)
    row[j] = 0;
  total = total * correction + sum(sums[0] + sums[1]);
  top = m;
  return correction;
}

/// Product of all tiles of rows x columns; `packed` columns were packed.
INLINE void product(int64_t rows, int64_t columns, int64_t packed, int64_t k,
                    const float *a, int64_t lda, const float *panels,
                    int64_t panelK, const float *in, float *out, int64_t ld,
                    Poller &poller) {
  const Ahead idle = {reinterpret_cast<const char *>(panels), 0};
  int64_t tiles = ceilDiv(rows, MR), base = rows / tiles, extra = rows % tiles;
  for (int64_t j = 0; j < columns; j += NRF) {
    bool half = packed - j <= NRF / 2;
    int64_t step = half ? NRF / 2 : NRF;
    int64_t i = 0;
    for (int64_t t = 0; t < tiles; ++t) {
      int64_t n = base + (t < extra);
      tileF32(n, half)(k, a + i * lda, lda, panels + j * panelK, step, 0,
                       in ? in + i * ld + j : nullptr, ld, out + i * ld + j, ld,
                       idle);
      i += n;
      poller.work(n * NRF * k / 50);
    }
  }
}

/// scores[i][j] = q_i . k_j for a few rows; K is read once.
template <class T>
void dots(const float *q, int64_t qLd, int64_t rows, const T *k,
          int64_t kStride, int64_t keys, int64_t d, float *scores, int64_t ld,
          Poller &poller) {
  using L = Lane<T>;
  for (int64_t j = 0; j < keys; ++j) {
    const T *key = k + j * kStride;
    vf acc[kFewRows];
    for (int64_t r = 0; r < kFewRows; ++r)
      acc[r] = vf(0.0f);
    int64_t c = 0;
    for (; c + VL <= d; c += VL) {
      vf kv = L::load(key + c);
      for (int64_t r = 0; r < rows; ++r)
        acc[r] = fma(Lane<float>::load(q + r * qLd + c), kv, acc[r]);
    }
    if (c < d) {
      vf kv = L::load(key + c, d - c);
      for (int64_t r = 0; r < rows; ++r)
        acc[r] = fma(Lane<float>::load(q + r * qLd + c, d - c), kv, acc[r]);
    }
    for (int64_t r = 0; r < rows; ++r)
      scores[r * ld + j] = sum(acc[r]);
    poller.work(rows * d / 16 + 2);
  }
}

/// out[i] += weights[i] x V for a few rows.
template <class T>
void combine(const float *weights, int64_t ld, int64_t rows, const T *v,
             int64_t vStride, int64_t keys, int64_t dv, float *out,
             int64_t outLd, Poller &poller) {
  using L = Lane<T>;
  constexpr int U = 4;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c0 = 0; c0 < dv; c0 += U * VL) {
      vf acc[U];
      for (int u = 0; u < U; ++u)
        acc[u] = Lane<float>::load(out + r * outLd + c0 + u * VL);
      int64_t left = dv - c0;
      if (left >= U * VL) {
        for (int64_t j = 0; j < keys; ++j) {
          vf w = vf(weights[r * ld + j]);
          for (int u = 0; u < U; ++u)
            acc[u] = fma(w, L::load(v + j * vStride + c0 + u * VL), acc[u]);
        }
      } else {
        for (int64_t j = 0; j < keys; ++j) {
          vf w = vf(weights[r * ld + j]);
          for (int u = 0; u < U; ++u) {
            int64_t n = left - u * VL;
            if (n > 0)
              acc[u] = fma(w,
                           n >= VL ? L::load(v + j * vStride + c0 + u * VL)
                                   : L::load(v + j * vStride + c0 + u * VL, n),
                           acc[u]);
          }
        }
      }
      for (int u = 0; u < U; ++u)
        Lane<float>::store(out + r * outLd + c0 + u * VL, acc[u]);
      poller.work(keys * U / 2 + 2);
    }
}

template <class T>
void attend(const AttentionShape &s, const AttentionOperands &o, float *work,
            Poller &poller) {
  const Layout l = layoutOf(s);
  const int64_t dvPanels = panelsF32(s.dv);
  float *kPacked = work + l.kAt, *vPacked = work + l.vAt, *qWide = work + l.qAt;
  float *scores = work + l.scoreAt, *out = work + l.outAt;
  float *tops = work + l.statAt, *totals = tops + l.rowBlock;
  const int64_t group = s.h / s.hkv;
  const int64_t heads = s.sq == 1 ? s.hkv : s.h;
  for (int64_t b = 0; b < s.b; ++b) {
    int64_t sk = s.sk;
    if (s.lengths)
      sk = most(0, least(sk, o.lengths[b]));
    for (int64_t head = 0; head < heads; ++head) {
      int64_t h = s.sq == 1 ? head * group : head;
      int64_t kv = h / group;
      int64_t qStep = s.sq == 1 ? s.q[1] : s.q[2];
      int64_t oStep = s.sq == 1 ? s.o[1] : s.o[2];
      int64_t maskStep = s.sq == 1 ? s.maskStrides[1] : s.maskStrides[2];
      const T *q = static_cast<const T *>(o.q) + b * s.q[0] + h * s.q[1];
      const T *k = static_cast<const T *>(o.k) + b * s.k[0] + kv * s.k[1];
      const T *v = static_cast<const T *>(o.v) + b * s.v[0] + kv * s.v[1];
      T *to = static_cast<T *>(o.o) + b * s.o[0] + h * s.o[1];
      int64_t maskAt = b * s.maskStrides[0] + h * s.maskStrides[1];

      auto packBlock = [&](int64_t j, int64_t n, float *kTo, float *vTo) {
        packRows(k + j * s.k[2], s.k[2], true, n, s.d, qWide, kTo);
        packRows(v + j * s.v[2], s.v[2], false, n, s.dv, qWide, vTo);
        poller.work(n * (s.d + s.dv) / 4);
      };
      bool first = s.sq == 1 || h % group == 0;
      if (!l.few && l.packAll && first)
        for (int64_t j = 0; j < sk; j += kKeys)
          packBlock(j, least(kKeys, sk - j), kPacked + j * s.d,
                    vPacked + j * dvPanels);

      for (int64_t i0 = 0; i0 < l.rows; i0 += l.rowBlock) {
        const int64_t rows = least(l.rowBlock, l.rows - i0);
        auto allowedFor = [&](int64_t i) {
          int64_t query = s.sq == 1 ? 0 : i0 + i;
          return s.causal ? least(sk, query + s.offset + 1) : sk;
        };
        for (int64_t i = 0; i < rows; ++i) {
          tops[i] = -__builtin_inff();
          totals[i] = 0;
        }
        const int64_t keysUsed = most(0, allowedFor(rows - 1));
        if (keysUsed == 0 || l.few)
          for (int64_t i = 0; i < rows * l.outLd; ++i)
            out[i] = 0;
        for (int64_t j = 0; j < keysUsed; j += kKeys) {
          const int64_t n = least(kKeys, keysUsed - j);
          const int64_t packedKeys = least(kKeys, sk - j);
          const float *kp = kPacked, *vp = vPacked;
          if (!l.few && l.packAll) {
            kp += j * s.d;
            vp += j * dvPanels;
          } else if (!l.few) {
            packBlock(j, packedKeys, kPacked, vPacked);
          }
          const float *qRows;
          int64_t qLd;
          if constexpr (sizeof(T) == 4) {
            qRows = q + i0 * qStep;
            qLd = qStep;
          } else {
            qLd = s.d + 16;
            widen(q + i0 * qStep, qStep, rows, s.d, qWide, qLd);
            qRows = qWide;
          }
          if (l.few)
            dots(qRows, qLd, rows, k + j * s.k[2], s.k[2], n, s.d, scores,
                 l.scoreLd, poller);
          else
            product(rows, n, packedKeys, s.d, qRows, qLd, kp, s.d, nullptr,
                    scores, l.scoreLd, poller);
          for (int64_t i = 0; i < rows; ++i) {
            int64_t at = maskAt + (i0 + i) * maskStep + j * s.maskStrides[3];
            float correction =
                weigh(s, scores + i * l.scoreLd, n, allowedFor(i) - j, o.mask,
                      at, tops[i], totals[i]);
            if (j > 0 && correction != 1.0f)
              for (int64_t c = 0; c < l.outLd; c += VL)
                Lane<float>::store(out + i * l.outLd + c,
                                   Lane<float>::load(out + i * l.outLd + c) *
                                       correction);
            poller.work(n / 2);
          }
          if (l.few)
            combine(scores, l.scoreLd, rows, v + j * s.v[2], s.v[2], n, s.dv,
                    out, l.outLd, poller);
          else
            product(rows, s.dv, s.dv, n, scores, l.scoreLd, vp, packedKeys,
                    j ? out : nullptr, out, l.outLd, poller);
        }
        for (int64_t i = 0; i < rows; ++i) {
          // A query that may see nothing gives zeros.
          vf inverse = vf(totals[i] == 0 ? 0.0f : 1.0f / totals[i]);
          T *row = to + (i0 + i) * oStep;
          for (int64_t c = 0; c < s.dv; c += VL) {
            vf r = Lane<float>::load(out + i * l.outLd + c) * inverse;
            if (s.dv - c >= VL)
              Lane<T>::store(row + c, r);
            else
              Lane<T>::store(row + c, r, s.dv - c);
          }
        }
      }
    }
  }
}

uint64_t workspaceFor(const AttentionShape &s) { return layoutOf(s).end * 4; }

void run(GemmType type, const AttentionShape &s, const AttentionOperands &o,
         void *workspace, Poller &poller) {
  float *work = static_cast<float *>(workspace);
  if (s.hkv == 0 || s.sq == 0 || s.dv == 0)
    return;
  switch (type) {
  case GemmType::F32:
    return attend<float>(s, o, work, poller);
  case GemmType::F16:
    return attend<Half>(s, o, work, poller);
  case GemmType::BF16:
    return attend<BFloat>(s, o, work, poller);
  case GemmType::F64:
    break;
  }
}

} // namespace

extern const AttentionTable CONCORD_HOT_TABLE(attentionTable);
const AttentionTable CONCORD_HOT_TABLE(attentionTable) = {workspaceFor, run};

} // namespace concord::kernels

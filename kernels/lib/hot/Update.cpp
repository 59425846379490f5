//===- Update.cpp - Elementwise programs, one CPU class -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// No operation is contracted with another: the bits are those of the separate
// operations.
//
//===----------------------------------------------------------------------===//

#include "../UpdateHot.h"
#include "Lines.h"

namespace concord::kernels {
namespace {

constexpr int kVectors = int(kUpdateStrip) / VL;

template <class T>
INLINE void loadStrip(float *to, const T *from, int64_t count) {
  using L = Lane<T>;
  int64_t j = 0;
  for (; j + VL <= count; j += VL)
    Lane<float>::store(to + j, L::load(from + j));
  if (j < count)
    Lane<float>::store(to + j, L::load(from + j, count - j));
}

template <class T>
INLINE void storeStrip(T *to, const float *from, int64_t count) {
  using L = Lane<T>;
  int64_t j = 0;
  for (; j + VL <= count; j += VL)
    L::store(to + j, Lane<float>::load(from + j));
  if (j < count)
    L::store(to + j, Lane<float>::load(from + j), count - j);
}

template <class T>
INLINE void sumStrip(float *to, const UpdateShape &s, void *const *parts,
                     int64_t at, int64_t count) {
  using L = Lane<T>;
  for (int64_t j = 0; j < count; j += VL) {
    int64_t left = count - j;
    vf sum = vf(0.0f);
    for (int m = 0; m < s.members; ++m) {
      T *from = static_cast<T *>(parts[m]) + at + j;
      vf part = left >= VL ? L::load(from) : L::load(from, left);
      sum = m ? sum + part : part;
      if (s.take && m != s.me)
        giveBack(from, least(VL, left) * int64_t(sizeof(T)));
    }
    Lane<float>::store(to + j, sum);
  }
}

/// What the next strip reads of one operand, past the caches: with so many
/// streams, a strip of each at a time, the processor does not see them coming.
template <class T>
INLINE void fetchNext(const UpdateShape &s, const T *from, int64_t at) {
  const int64_t end = least(s.count, at + 2 * kUpdateStrip);
  if (s.stream)
    for (int64_t j = at + kUpdateStrip; j < end; j += 64 / int64_t(sizeof(T)))
      __builtin_prefetch(from + j);
}

/// f(T()) for the type in memory; f64 is refused where the kernel is made.
template <class F> INLINE void withType(GemmType type, F f) {
  if (type == GemmType::F16)
    return f(Half());
  if (type == GemmType::BF16)
    return f(BFloat());
  f(float());
}

template <class F> INLINE void each(float *to, const float *a, F f) {
  for (int i = 0; i < kVectors; ++i)
    Lane<float>::store(to + i * VL, f(Lane<float>::load(a + i * VL)));
}
template <class F>
INLINE void each(float *to, const float *a, const float *b, F f) {
  for (int i = 0; i < kVectors; ++i)
    Lane<float>::store(to + i * VL, f(Lane<float>::load(a + i * VL),
                                      Lane<float>::load(b + i * VL)));
}

INLINE vf signedBits(vf v, uint32_t keep, uint32_t flip) {
  return bitsOf<vf>((bitsOf<vu>(v) & vu(keep)) ^ vu(flip));
}

INLINE vf larger(vf a, vf b) {
  // Equal ones differ in the sign of a zero at the most.
  vf same = bitsOf<vf>(bitsOf<vu>(a) & bitsOf<vu>(b));
  vf most = select(a > b, a, select(b > a, b, same));
  return select(a != a, a, select(b != b, b, most));
}
INLINE vf smaller(vf a, vf b) {
  vf same = bitsOf<vf>(bitsOf<vu>(a) | bitsOf<vu>(b));
  vf least = select(a < b, a, select(b < a, b, same));
  return select(a != a, a, select(b != b, b, least));
}

template <UpdateFirst F> INLINE vf first(vf a, vf b) {
  if constexpr (F == UpdateFirst::Add)
    return a + b;
  else if constexpr (F == UpdateFirst::Sub)
    return a - b;
  else if constexpr (F == UpdateFirst::Mul)
    return a * b;
  else if constexpr (F == UpdateFirst::Div)
    return a / b;
  else
    return __builtin_elementwise_sqrt(a);
}
template <UpdateThen T> INLINE vf then(vf v, vf c) {
  if constexpr (T == UpdateThen::Add)
    return v + c;
  else if constexpr (T == UpdateThen::Sub)
    return v - c;
  else if constexpr (T == UpdateThen::SubFrom)
    return c - v;
  else if constexpr (T == UpdateThen::Mul)
    return v * c;
  else if constexpr (T == UpdateThen::Div)
    return v / c;
  else if constexpr (T == UpdateThen::DivInto)
    return c / v;
  else
    return v;
}

using Chain = void (*)(float *to, const float *a, const float *b,
                       const float *c);

template <int F, int T>
void chain(float *to, const float *a, const float *b, const float *c) {
  using L = Lane<float>;
#pragma clang loop unroll_count(4)
  for (int i = 0; i < kVectors; ++i) {
    vf v = first<UpdateFirst(F)>(L::load(a + i * VL), L::load(b + i * VL));
    L::store(to + i * VL, then<UpdateThen(T)>(v, L::load(c + i * VL)));
  }
}

#define ROW(F)                                                                 \
  {chain<F, 0>, chain<F, 1>, chain<F, 2>, chain<F, 3>,                         \
   chain<F, 4>, chain<F, 5>, chain<F, 6>}
constexpr Chain kChains[kUpdateFirsts][kUpdateThens] = {ROW(0), ROW(1), ROW(2),
                                                        ROW(3), ROW(4)};
#undef ROW

template <class T>
INLINE void storeTo(T *target, float *whole, const float *a, int64_t count,
                    bool stream) {
  if (stream) {
    // Past the caches whole lines are stored.
    storeStrip(reinterpret_cast<T *>(whole), a, count);
    deliver(target, whole, count * int64_t(sizeof(T)), true);
  } else if (reinterpret_cast<const void *>(target) != a) {
    storeStrip(target, a, count);
  }
}

void run(const UpdateShape &s, const UpdateOperands &o, void *workspace,
         Poller &poller) {
  // The first strip is where what goes past the caches is put together.
  float *whole = static_cast<float *>(workspace);
  // Where each strip's value lies: in the strip, or in memory.
  const float *place[kMostStrips];
  for (int64_t at = 0; at < s.count; at += kUpdateStrip) {
    const int64_t count = least(kUpdateStrip, s.count - at);
    const bool full = count == kUpdateStrip;
    for (int i = at ? s.once : 0; i < s.numSteps; ++i) {
      const UpdateStep &step = s.steps[i];
      float *to = whole + (step.to + 1) * kUpdateStrip;
      const float *a = place[step.a], *b = place[step.b];
      switch (step.code) {
      case UpdateCode::Load:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          fetchNext(s, static_cast<const T *>(o.operands[step.operand]), at);
        });
        if (step.type == GemmType::F32 && full && !s.inPlace) {
          place[step.to] =
              static_cast<const float *>(o.operands[step.operand]) + at;
          continue;
        }
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          loadStrip(to, static_cast<const T *>(o.operands[step.operand]) + at,
                    count);
        });
        break;
      case UpdateCode::Sum:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          for (int m = 0; m < s.members; ++m)
            fetchNext(s, static_cast<const T *>(o.parts[m]), at);
          sumStrip<T>(to, s, o.parts, at, count);
        });
        break;
      case UpdateCode::Single:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          vf first = Lane<T>::load(
              static_cast<const T *>(o.operands[step.operand]), 1);
          each(to, to, [&](vf) { return vf(first[0]); });
        });
        break;
      case UpdateCode::Constant:
        each(to, to, [&](vf) { return vf(step.value); });
        break;
      case UpdateCode::Chain:
        if (step.direct && full && !s.stream)
          to = static_cast<float *>(o.operands[step.direct]) + at;
        kChains[int(step.first)][int(step.then)](to, a, b, place[step.c]);
        break;
      case UpdateCode::Neg:
        each(to, a, [](vf x) { return signedBits(x, ~0u, 1u << 31); });
        break;
      case UpdateCode::Abs:
        each(to, a, [](vf x) { return signedBits(x, ~0u >> 1, 0); });
        break;
      case UpdateCode::Max:
        each(to, a, b, [](vf x, vf y) { return larger(x, y); });
        break;
      case UpdateCode::Min:
        each(to, a, b, [](vf x, vf y) { return smaller(x, y); });
        break;
      case UpdateCode::Round:
        withType(step.type, [&](auto zero) {
          using L = Lane<decltype(zero)>;
          decltype(zero) narrow[VL];
          each(to, a, [&](vf x) {
            L::store(narrow, x);
            return L::load(narrow);
          });
        });
        break;
      case UpdateCode::Store:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          storeTo(static_cast<T *>(o.operands[step.operand]) + at, whole, a,
                  count, s.stream);
        });
        continue;
      case UpdateCode::Spread:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          for (int t = 0; t < s.targets; ++t)
            storeTo(static_cast<T *>(o.targets[t]) + at, whole, a, count,
                    s.stream);
        });
        continue;
      }
      place[step.to] = to;
    }
    poller.work(count * (s.members + s.numSteps / 2) / 8 + 20);
  }
#if defined(__x86_64__)
  // Release stores alone do not order streamed ones.
  if (s.stream)
    _mm_sfence();
#endif
}

} // namespace

extern const UpdateTable CONCORD_HOT_TABLE(updateTable);
const UpdateTable CONCORD_HOT_TABLE(updateTable) = {run};

} // namespace concord::kernels

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

void run(const UpdateShape &s, const UpdateOperands &o, void *workspace,
         Poller &poller) {
  float *strips = static_cast<float *>(workspace);
  for (int64_t at = 0; at < s.count; at += kUpdateStrip) {
    const int64_t count = least(kUpdateStrip, s.count - at);
    for (int i = 0; i < s.numSteps; ++i) {
      const UpdateStep &step = s.steps[i];
      // The first strip is where what goes past the caches is put together.
      float *to = strips + (step.to + 1) * kUpdateStrip;
      const float *a = strips + (step.a + 1) * kUpdateStrip;
      const float *b = strips + (step.b + 1) * kUpdateStrip;
      switch (step.code) {
      case UpdateCode::Sum:
        withType(step.type, [&](auto zero) {
          sumStrip<decltype(zero)>(to, s, o.parts, at, count);
        });
        break;
      case UpdateCode::Load:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          loadStrip(to, static_cast<const T *>(o.operands[step.operand]) + at,
                    count);
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
      case UpdateCode::Add:
        each(to, a, b, [](vf x, vf y) { return x + y; });
        break;
      case UpdateCode::Sub:
        each(to, a, b, [](vf x, vf y) { return x - y; });
        break;
      case UpdateCode::Mul:
        each(to, a, b, [](vf x, vf y) { return x * y; });
        break;
      case UpdateCode::Div:
        each(to, a, b, [](vf x, vf y) { return x / y; });
        break;
      case UpdateCode::Neg:
        each(to, a, [](vf x) { return signedBits(x, ~0u, 1u << 31); });
        break;
      case UpdateCode::Abs:
        each(to, a, [](vf x) { return signedBits(x, ~0u >> 1, 0); });
        break;
      case UpdateCode::Sqrt:
        each(to, a, [](vf x) { return __builtin_elementwise_sqrt(x); });
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
      case UpdateCode::Spread:
        withType(step.type, [&](auto zero) {
          using T = decltype(zero);
          bool spread = step.code == UpdateCode::Spread;
          void *const *targets = spread ? o.targets : &o.operands[step.operand];
          T *whole = reinterpret_cast<T *>(strips);
          if (s.stream)
            storeStrip(whole, a, count);
          for (int t = 0; t < (spread ? s.targets : 1); ++t) {
            T *target = static_cast<T *>(targets[t]) + at;
            if (s.stream)
              deliver(target, whole, count * int64_t(sizeof(T)), true);
            else
              storeStrip(target, a, count);
          }
        });
        break;
      }
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

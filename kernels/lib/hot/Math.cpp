//===- Math.cpp - Elementwise functions, one CPU class --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What networks use most (exp, log, tanh, erf, activations) is in VecMath.h, in
// f32. The rest is computed in f64 vectors with errors around 1e-13, so that
// the rounding to f32 is the only one that counts. Angles up to 2^26 are
// reduced by pi/2 in three parts (Cody and Waite), larger ones by the bits of
// 2/pi (Payne and Hanek), lane by lane.
//
//===----------------------------------------------------------------------===//

#include "../MathHot.h"
#include "Vec.h"
#include "VecMath.h"

namespace concord::kernels {
namespace {

typedef float vfHalf __attribute__((ext_vector_type(VD)));

INLINE vd vabs(vd x) {
  return bitsOf<vd>(bitsOf<vl>(x) & 0x7fffffffffffffffLL);
}
INLINE vd copySign(vd magnitude, vd sign) {
  return bitsOf<vd>(bitsOf<vl>(vabs(magnitude)) |
                    (bitsOf<vl>(sign) & int64_t(0x8000000000000000ULL)));
}
INLINE vd root(vd x) { return __builtin_elementwise_sqrt(x); }
INLINE vf root(vf x) { return __builtin_elementwise_sqrt(x); }

template <int N> INLINE vd polynomial(vd x, const double (&c)[N]) {
  vd p = vd(c[N - 1]);
  UNROLL
  for (int i = N - 2; i >= 0; --i)
    p = fma(p, x, vd(c[i]));
  return p;
}

/// e^x; beyond |x| = 300 the result is that of 300, far outside f32.
INLINE vd exp64(vd x) {
  static const double c[] = {5.00000000000001443e-01, 1.66666666666667102e-01,
                             4.16666666665002280e-02, 8.33333333329938988e-03,
                             1.38888889512574980e-03, 1.98412699354691776e-04,
                             2.48014853433862948e-05, 2.75571994346821881e-06,
                             2.76329814473500735e-07, 2.51233540904322713e-08};
  x = select(x > 300.0, vd(300.0), select(x < -300.0, vd(-300.0), x));
  const vd magic = 6755399441055744.0; // 1.5 * 2^52
  vd t = fma(x, vd(1.4426950408889634), magic);
  vl n = bitsOf<vl>(t) - bitsOf<vl>(magic);
  vd f = t - magic;
  vd r = fma(f, vd(-6.93147180369123816e-01), x);
  r = fma(f, vd(-1.90821492927058770e-10), r);
  vd y = fma(r * r, polynomial(r, c), r) + 1.0;
  return y * bitsOf<vd>((n + 1023) << 52);
}

INLINE vd log64(vd x) {
  static const double c[] = {6.66666666666673513e-01, 3.99999999994069599e-01,
                             2.85714287442681791e-01, 2.22221983645230298e-01,
                             1.81835759378423945e-01, 1.53137348446462124e-01,
                             1.47992864369852178e-01};
  vl bits = bitsOf<vl>(x);
  vl e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  vd m = bitsOf<vd>(bits - (e << 52)); // in [sqrt(1/2), sqrt(2))
  vd s = (m - 1.0) / (m + 1.0);
  vd z = s * s;
  vd fe = __builtin_convertvector(e, vd);
  vd y = fma(s * z, polynomial(z, c), fe * 1.90821492927058770e-10) + 2.0 * s;
  y = fma(fe, vd(6.93147180369123816e-01), y);
  const double inf = __builtin_inf();
  y = select(x == inf, x, y);
  y = select(x == 0.0, vd(-inf), y);
  return select(x < 0.0, vd(__builtin_nan("")), select(x != x, x, y));
}

struct Angle {
  vd r; ///< |r| <= pi/4, or NaN
  vl q; ///< multiple of pi/2, modulo 4
};

/// One f32 angle of at least 2^26: 96 bits of 2/pi are enough.
void reduceLarge(float x, double *r, int64_t *q) {
  static const uint32_t words[] = {0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                   0xf534ddc0, 0xdb629599, 0x3c439041,
                                   0xfe5163ab, 0xdebbc561};
  uint32_t bits = bitsOf<uint32_t>(x);
  int e = int(bits >> 23 & 255) - 150;
  uint64_t m = (bits & 0x7fffff) | 0x800000;
  // Bits of 2/pi from position e - 2 on: higher ones give multiples of 4.
  int at = e - 2, word = at / 32, shift = at % 32;
  auto window = [&](int i) {
    uint64_t two = uint64_t(words[word + i]) << 32 | words[word + i + 1];
    return uint32_t(two >> (32 - shift));
  };
  unsigned __int128 g = (static_cast<unsigned __int128>(window(0)) << 64) |
                        (static_cast<unsigned __int128>(window(1)) << 32) |
                        window(2);
  uint64_t p = uint64_t((g * m) >> 32); // 2 integer bits, 62 of fraction
  int64_t quadrant = int64_t(p >> 62);
  int64_t fraction = int64_t(p << 2 >> 2);
  if (fraction >> 61) { // a half or more: the next multiple is nearer
    ++quadrant;
    fraction -= int64_t(1) << 62;
  }
  double value = double(fraction) * 0x1p-62 * 1.5707963267948966;
  *r = x < 0 ? -value : value;
  *q = (x < 0 ? -quadrant : quadrant) & 3;
}

INLINE Angle reduceAngle(vd x) {
  const vd magic = 6755399441055744.0;
  vd t = fma(x, vd(0.63661977236758138), magic);
  Angle a;
  a.q = bitsOf<vl>(t) & 3;
  vd n = t - magic;
  // pi/2 in parts of 26, 26 and 53 bits: n has 26, so the products are exact.
  vd r = fma(n, vd(-1.57079631090164185), x);
  r = fma(n, vd(-1.58932547122958567e-08), r);
  a.r = fma(n, vd(-6.1232339957367661e-17), r);
  vd size = vabs(x);
  for (int i = 0; i < VD; ++i)
    if (!(size[i] < 67108864.0)) {
      double lane = 0;
      int64_t quadrant = 0;
      if (size[i] < __builtin_inf())
        reduceLarge(float(x[i]), &lane, &quadrant);
      else
        lane = __builtin_nan("");
      a.r[i] = lane;
      a.q[i] = quadrant;
    }
  return a;
}

INLINE vd sinPart(vd r) {
  static const double c[] = {-1.66666666666312718e-01, 8.33333332521256180e-03,
                             -1.98412637897431678e-04, 2.75553505281108425e-06,
                             -2.47611175282512274e-08};
  vd z = r * r;
  return fma(r * z, polynomial(z, c), r);
}
INLINE vd cosPart(vd r) {
  static const double c[] = {4.16666666666016122e-02, -1.38888888781890998e-03,
                             2.48015809336222982e-05, -2.75555601247811497e-07,
                             2.06472813210234933e-09};
  vd z = r * r;
  return fma(z * z, polynomial(z, c), fma(z, vd(-0.5), vd(1.0)));
}

INLINE vd sin64(vd x) {
  Angle a = reduceAngle(x);
  vd y = select((a.q & 1) != 0, cosPart(a.r), sinPart(a.r));
  return select(x == 0.0, x, select((a.q & 2) != 0, -y, y));
}
INLINE vd cos64(vd x) {
  Angle a = reduceAngle(x);
  vd y = select((a.q & 1) != 0, sinPart(a.r), cosPart(a.r));
  return select(((a.q + 1) & 2) != 0, -y, y);
}
INLINE vd tan64(vd x) {
  Angle a = reduceAngle(x);
  vd s = sinPart(a.r), c = cosPart(a.r);
  vd y = select((a.q & 1) != 0, -c / s, s / c);
  return select(x == 0.0, x, y);
}

/// For |x| <= 1/2.
INLINE vd asinPart(vd x) {
  static const double c[] = {1.66666666697597388e-01, 7.49999951657636665e-02,
                             4.46431167884847185e-02, 3.03751337759996243e-02,
                             2.24725634495274891e-02, 1.64685242705036872e-02,
                             1.86694902846607468e-02, -2.94720845193856577e-03,
                             3.20432217734872155e-02};
  vd z = x * x;
  return fma(x * z, polynomial(z, c), x);
}
constexpr double kPi = 3.1415926535897932;

INLINE vd asin64(vd x) {
  vd a = vabs(x);
  // Outside [-1, 1] the root is NaN.
  vd large = kPi / 2 - 2.0 * asinPart(root((1.0 - a) * 0.5));
  return select(a <= 0.5, asinPart(x), copySign(large, x));
}
INLINE vd acos64(vd x) {
  vd a = vabs(x);
  vd edge = 2.0 * asinPart(root((1.0 - a) * 0.5));
  return select(a <= 0.5, kPi / 2 - asinPart(x),
                select(x < 0.0, kPi - edge, edge));
}
INLINE vd atan64(vd x) {
  static const double c[] = {-3.33333333332609949e-01, 1.99999999828444464e-01,
                             -1.42857128825363000e-01, 1.11110546868334922e-01,
                             -9.08961944649196024e-02, 7.67435873477264191e-02,
                             -6.51045834455731554e-02, 5.03800744259518193e-02,
                             -2.54809619606700538e-02};
  vd a = vabs(x);
  vl far = a > 2.4142135623730951, middle = a > 0.41421356237309503;
  vd t = select(far, -1.0 / a, select(middle, (a - 1.0) / (a + 1.0), a));
  vd base = select(far, vd(kPi / 2), select(middle, vd(kPi / 4), vd(0.0)));
  vd z = t * t;
  return copySign(base + fma(t * z, polynomial(z, c), t), x);
}

INLINE vd sinh64(vd x) {
  vd e = exp64(x);
  vd small = fma(x * x * x, vd(1.0 / 6), x);
  return select(vabs(x) < 1e-3, small, 0.5 * (e - 1.0 / e));
}
INLINE vd cosh64(vd x) {
  vd e = exp64(x);
  return 0.5 * (e + 1.0 / e);
}
INLINE vd asinh64(vd x) {
  vd a = vabs(x);
  vd large = log64(a + root(fma(a, a, vd(1.0))));
  vd small = fma(a * a * a, vd(-1.0 / 6), a);
  return copySign(select(a < 1e-3, small, large), x);
}
INLINE vd acosh64(vd x) {
  vd y = log64(x + root(x * x - 1.0));
  return select(x < 1.0, vd(__builtin_nan("")), y);
}
INLINE vd atanh64(vd x) {
  vd small = fma(x * x * x, vd(1.0 / 3), x);
  vd large = 0.5 * log64((1.0 + x) / (1.0 - x));
  return select(vabs(x) < 1e-3, small, large);
}
INLINE vd log1p64(vd x) {
  vd small = x * (1.0 - x * (0.5 - x * (1.0 / 3)));
  return select(vabs(x) < 1e-4, small, log64(1.0 + x));
}
INLINE vd expm164(vd x) {
  vd small = x * (1.0 + x * (0.5 + x * (1.0 / 6)));
  return select(vabs(x) < 1e-4, small, exp64(x) - 1.0);
}
INLINE vd softplus64(vd x) {
  vd y = select(x > 0.0, x, vd(0.0)) + log1p64(exp64(-vabs(x)));
  return select(x != x, x, y);
}

INLINE vd trunc64(vd x) { return __builtin_elementwise_trunc(x); }

INLINE vd pow64(vd x, vd y) {
  const double inf = __builtin_inf();
  vd a = vabs(x);
  vd r = exp64(y * log64(a));
  vd half = 0.5 * y;
  vl whole = trunc64(y) == y;
  vl odd = whole & (trunc64(half) != half);
  vl negative = bitsOf<vl>(x) < 0;
  // exp64 stops at e^300, so limits of y log a = +-inf come out as such in f32.
  r = select(negative & odd, -r, r);
  r = select((x < 0.0) & (a < inf) & ~whole, vd(__builtin_nan("")), r);
  vl one = (y == 0.0) | (x == 1.0) | ((a == 1.0) & (vabs(y) == inf));
  return select(one, vd(1.0), r);
}

template <class F> INLINE vf viaDouble(vf x, F f) {
  vfHalf h[2];
  __builtin_memcpy(h, &x, sizeof h);
  for (vfHalf &part : h)
    part =
        __builtin_convertvector(f(__builtin_convertvector(part, vd)), vfHalf);
  vf y;
  __builtin_memcpy(&y, h, sizeof y);
  return y;
}

INLINE vf apply(UnaryOp op, vf x) {
#define DOUBLE(f) return viaDouble(x, [](vd v) { return f; })
  switch (op) {
  case UnaryOp::Acos:
    DOUBLE(acos64(v));
  case UnaryOp::Acosh:
    DOUBLE(acosh64(v));
  case UnaryOp::Asin:
    DOUBLE(asin64(v));
  case UnaryOp::Asinh:
    DOUBLE(asinh64(v));
  case UnaryOp::Atan:
    DOUBLE(atan64(v));
  case UnaryOp::Atanh:
    DOUBLE(atanh64(v));
  case UnaryOp::Cos:
    DOUBLE(cos64(v));
  case UnaryOp::Cosh:
    DOUBLE(cosh64(v));
  case UnaryOp::Erf:
    return erff(x);
  case UnaryOp::Exp:
    return expf(x);
  case UnaryOp::Exp2:
    DOUBLE(exp64(v * 0.69314718055994531));
  case UnaryOp::Expm1:
    DOUBLE(expm164(v));
  case UnaryOp::GeluErf:
    return activate(Act::GeluErf, x);
  case UnaryOp::GeluTanh:
    return activate(Act::GeluTanh, x);
  case UnaryOp::Log:
    return logf(x);
  case UnaryOp::Log10:
    DOUBLE(log64(v) * 0.43429448190325183);
  case UnaryOp::Log1p:
    DOUBLE(log1p64(v));
  case UnaryOp::Log2:
    DOUBLE(log64(v) * 1.4426950408889634);
  case UnaryOp::Relu:
    return activate(Act::Relu, x);
  case UnaryOp::Rsqrt:
    DOUBLE(1.0 / root(v));
  case UnaryOp::Sigmoid:
    return sigmoidf(x);
  case UnaryOp::Silu:
    return activate(Act::Silu, x);
  case UnaryOp::Sin:
    DOUBLE(sin64(v));
  case UnaryOp::Sinh:
    DOUBLE(sinh64(v));
  case UnaryOp::Softplus:
    DOUBLE(softplus64(v));
  case UnaryOp::Sqrt:
    return root(x);
  case UnaryOp::Tan:
    DOUBLE(tan64(v));
  case UnaryOp::Tanh:
    return tanhf(x);
  }
#undef DOUBLE
  return x;
}

template <class T>
void unaryLoop(UnaryOp op, int64_t n, const T *x, T *y, Poller &poller) {
  using L = Lane<T>;
  for (int64_t i0 = 0; i0 < n; i0 += 1024) {
    int64_t end = least(n, i0 + 1024);
    for (int64_t i = i0; i < end; i += VL) {
      if (end - i >= VL)
        L::store(y + i, apply(op, L::load(x + i)));
      else
        L::store(y + i, apply(op, L::load(x + i, end - i)), end - i);
    }
    poller.work((end - i0) * 2);
  }
}

template <class T>
void powLoop(int64_t n, const T *x, const T *y, int64_t yStep, T *z,
             Poller &poller) {
  using L = Lane<T>;
  for (int64_t i = 0; i < n; i += VL) {
    int64_t left = least(VL, n - i);
    vf a = left == VL ? L::load(x + i) : L::load(x + i, left);
    vf b = yStep == 0   ? vf(L::get(*y))
           : left == VL ? L::load(y + i)
                        : L::load(y + i, left);
    vfHalf ah[2], bh[2];
    __builtin_memcpy(ah, &a, sizeof ah);
    __builtin_memcpy(bh, &b, sizeof bh);
    for (int j = 0; j < 2; ++j)
      ah[j] = __builtin_convertvector(pow64(__builtin_convertvector(ah[j], vd),
                                            __builtin_convertvector(bh[j], vd)),
                                      vfHalf);
    __builtin_memcpy(&a, ah, sizeof a);
    if (left == VL)
      L::store(z + i, a);
    else
      L::store(z + i, a, left);
    poller.work(VL * 4);
  }
}

void unary(GemmType type, UnaryOp op, int64_t n, const void *x, void *y,
           Poller &poller) {
  switch (type) {
  case GemmType::F32:
    return unaryLoop(op, n, static_cast<const float *>(x),
                     static_cast<float *>(y), poller);
  case GemmType::F16:
    return unaryLoop(op, n, static_cast<const Half *>(x),
                     static_cast<Half *>(y), poller);
  case GemmType::BF16:
    return unaryLoop(op, n, static_cast<const BFloat *>(x),
                     static_cast<BFloat *>(y), poller);
  case GemmType::F64:
    break;
  }
}

void pow(GemmType type, int64_t n, const void *x, const void *y, int64_t yStep,
         void *z, Poller &poller) {
  switch (type) {
  case GemmType::F32:
    return powLoop(n, static_cast<const float *>(x),
                   static_cast<const float *>(y), yStep,
                   static_cast<float *>(z), poller);
  case GemmType::F16:
    return powLoop(n, static_cast<const Half *>(x),
                   static_cast<const Half *>(y), yStep, static_cast<Half *>(z),
                   poller);
  case GemmType::BF16:
    return powLoop(n, static_cast<const BFloat *>(x),
                   static_cast<const BFloat *>(y), yStep,
                   static_cast<BFloat *>(z), poller);
  case GemmType::F64:
    break;
  }
}

} // namespace

extern const MathTable CONCORD_HOT_TABLE(mathTable);
const MathTable CONCORD_HOT_TABLE(mathTable) = {unary, pow};

} // namespace concord::kernels

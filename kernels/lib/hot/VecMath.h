//===- VecMath.h - f32 exp, log, tanh, erf and activations ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Over the full range, denormals, infinities and NaN included; errors are
// measured by MathTest and bench_kernels_math (docs/kernels.md has the
// numbers). The polynomials are minimax fits of our own (Lawson iteration on
// Chebyshev nodes), each with the relative error stated at it, before rounding.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_HOT_VECMATH_H
#define CONCORD_KERNELS_HOT_VECMATH_H

#include "../GemmHot.h"
#include "Vec.h"

namespace concord::kernels {
namespace {

INLINE vf vabs(vf x) { return bitsOf<vf>(bitsOf<vi>(x) & 0x7fffffff); }
INLINE vf copySign(vf magnitude, vf sign) {
  return bitsOf<vf>((bitsOf<vi>(magnitude) & 0x7fffffff) |
                    (bitsOf<vi>(sign) & int32_t(0x80000000)));
}
/// a where it is larger, and where it is a NaN.
INLINE vf vmax(vf a, vf b) { return select(b > a, b, a); }
INLINE vf vmin(vf a, vf b) { return select(b < a, b, a); }

/// 2^n for n in [-126, 127].
INLINE vf pow2(vi n) { return bitsOf<vf>((n + 127) << 23); }

/// y * 2^n for n in [-252, 254], right in the denormal range.
INLINE vf scale(vf y, vi n) {
  vi half = n >> 1;
  return y * pow2(half) * pow2(n - half);
}

struct Reduced {
  vf r; ///< x - n ln 2
  vi n;
};
INLINE Reduced reduceExp(vf x) {
  const vf magic = 12582912.0f; // 1.5 * 2^23: adding rounds to an integer
  vf t = fma(x, vf(1.44269504f), magic);
  vi n = bitsOf<vi>(t) - bitsOf<vi>(magic);
  vf f = t - magic;
  vf r = fma(f, vf(-0.693359375f), x);
  r = fma(f, vf(2.12194440e-4f), r);
  return {r, n};
}

/// (e^r - 1 - r) / r^2 on |r| <= 0.35; error 0.06 * 2^-24 of e^r.
INLINE vf expTail(vf r) {
  vf p = 1.395171741e-03f;
  p = fma(p, r, vf(8.369598538e-03f));
  p = fma(p, r, vf(4.166618735e-02f));
  p = fma(p, r, vf(1.666651219e-01f));
  return fma(p, r, vf(0.5f));
}

INLINE vf expf(vf x) {
  x = vmin(vmax(x, vf(-104.0f)), vf(89.0f));
  Reduced d = reduceExp(x);
  vf y = fma(d.r * d.r, expTail(d.r), d.r) + 1.0f;
  return scale(y, d.n);
}

/// e^x for x <= 0 that may flush results below 2^-125 to 0: for softmax, where
/// they are lost in the sum anyway. One multiplication cheaper than expf.
INLINE vf expNegative(vf x) {
  x = vmax(x, vf(-87.0f));
  Reduced d = reduceExp(x);
  vf y = fma(d.r * d.r, expTail(d.r), d.r) + 1.0f;
  return select(x > -87.0f, y * pow2(d.n), x != x ? x : vf(0.0f));
}

INLINE vf expm1f(vf x) {
  vf clamped = vmin(vmax(x, vf(-20.0f)), vf(89.0f));
  Reduced d = reduceExp(clamped);
  // (e^r - 1) 2^n + (2^n - 1), the last term exact up to n = 24. For n = 128
  // the power is split, as 2^128 is not a float.
  vf tail = fma(d.r * d.r, expTail(d.r), d.r);
  vi half = d.n >> 1;
  vf a = pow2(half), b = pow2(d.n - half);
  vf big = (tail + 1.0f) * a * b - 1.0f;
  vf p = a * b;
  vf y = select(d.n > 30, big, fma(tail, p, p - 1.0f));
  // Keeps the sign of zero, and denormals.
  return select(vabs(x) < 1e-6f, x, y);
}

INLINE vf logf(vf x) {
  vf scaled = select(x < 1.17549435e-38f, x * 8388608.0f, x);
  vi bits = bitsOf<vi>(scaled);
  // Exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)).
  vi e = (bits - 0x3f3504f3) >> 23;
  vf f = bitsOf<vf>(bits - (e << 23)) - 1.0f;
  e = x < 1.17549435e-38f ? e - 23 : e;
  // (log(1+f) - f + f^2/2) / f^3; error 0.013 * 2^-24 of the logarithm.
  vf p = 6.752058864e-02f;
  p = fma(p, f, vf(-1.168497056e-01f));
  p = fma(p, f, vf(1.189084798e-01f));
  p = fma(p, f, vf(-1.240434349e-01f));
  p = fma(p, f, vf(1.421905309e-01f));
  p = fma(p, f, vf(-1.666804254e-01f));
  p = fma(p, f, vf(2.000214309e-01f));
  p = fma(p, f, vf(-2.500000894e-01f));
  p = fma(p, f, vf(3.333331347e-01f));
  vf fe = __builtin_convertvector(e, vf);
  vf z = f * f;
  vf low = fma(z * f, p, fe * -2.12194440e-4f);
  vf y = fma(z, vf(-0.5f), low) + f;
  y = fma(fe, vf(0.693359375f), y);
  const float inf = __builtin_inff();
  y = select(x == inf, vf(inf), y);
  y = select(x == 0.0f, vf(-inf), y);
  y = select(x < 0.0f, vf(__builtin_nanf("")), y);
  return select(x != x, x, y);
}

INLINE vf tanhf(vf x) {
  vf a = vabs(x);
  vf z = x * x;
  // (tanh x / x - 1) / z for z < 0.4; error 0.003 * 2^-24.
  vf p = 2.122742590e-03f;
  p = fma(p, z, vf(-8.156276308e-03f));
  p = fma(p, z, vf(2.169260569e-02f));
  p = fma(p, z, vf(-5.394537747e-02f));
  p = fma(p, z, vf(1.333319545e-01f));
  p = fma(p, z, vf(-3.333333135e-01f));
  vf small = fma(x * z, p, x);
  vf e = expf(vmin(a, vf(10.0f)) * 2.0f);
  vf large = 1.0f - 2.0f / (e + 1.0f);
  // The sign also of zero, which the polynomial loses.
  return copySign(select(a < 0.625f, small, large), x);
}

INLINE vf erff(vf x) {
  vf t = vabs(x);
  vf z = x * x;
  // erf x / x - 1 for |x| < 0.93; error 0.01 * 2^-24.
  vf p = 8.223984332e-05f;
  p = fma(p, z, vf(-8.108082111e-04f));
  p = fma(p, z, vf(5.197991617e-03f));
  p = fma(p, z, vf(-2.685818635e-02f));
  p = fma(p, z, vf(1.128367409e-01f));
  p = fma(p, z, vf(-3.761263192e-01f));
  p = fma(p, z, vf(1.283791661e-01f));
  vf small = fma(x, p, x);
  // -log(erfc t) / t - 1 for t in [0.92, 3.95]; error 0.004 * 2^-24 of erf.
  vf c = vmin(t, vf(3.95f));
  vf q = 4.806473044e-06f;
  q = fma(q, c, vf(-4.399993486e-05f));
  q = fma(q, c, vf(-5.751319259e-05f));
  q = fma(q, c, vf(2.951672068e-03f));
  q = fma(q, c, vf(-2.270829864e-02f));
  q = fma(q, c, vf(1.052944437e-01f));
  q = fma(q, c, vf(6.356092691e-01f));
  q = fma(q, c, vf(1.285551190e-01f));
  vf large = 1.0f - expNegative(-fma(c, q, c));
  return select(t < 0.93f, small, copySign(large, x));
}

INLINE vf sigmoidf(vf x) {
  // e / (1 + e) with e = exp(-|x|) keeps both tails accurate.
  vf e = expf(-vabs(x));
  vf d = 1.0f / (1.0f + e);
  return select(x >= 0.0f, d, e * d);
}

INLINE vf activate(Act act, vf x) {
  switch (act) {
  case Act::None:
    break;
  case Act::Relu:
    return vmax(x, vf(0.0f));
  case Act::GeluErf:
    return 0.5f * x * (1.0f + erff(x * 0.707106781f));
  case Act::GeluTanh:
    return 0.5f * x *
           (1.0f + tanhf(0.797884561f * fma(x * x * x, vf(0.044715f), x)));
  case Act::Silu:
    return x * sigmoidf(x);
  case Act::Tanh:
    return tanhf(x);
  case Act::Sigmoid:
    return sigmoidf(x);
  }
  return x;
}

/// The f64 forms call libm, lane by lane.
INLINE vd activate(Act act, vd x) {
  vd y = x;
  if (act != Act::None)
    for (int i = 0; i < VD; ++i) {
      double v = x[i];
      switch (act) {
      case Act::None:
        break;
      case Act::Relu:
        v = v < 0 ? 0 : v;
        break;
      case Act::GeluErf:
        v = 0.5 * v * (1 + __builtin_erf(v * 0.70710678118654752));
        break;
      case Act::GeluTanh:
        v = 0.5 * v *
            (1 +
             __builtin_tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
        break;
      case Act::Silu:
        v = v / (1 + __builtin_exp(-v));
        break;
      case Act::Tanh:
        v = __builtin_tanh(v);
        break;
      case Act::Sigmoid:
        v = 1 / (1 + __builtin_exp(-v));
        break;
      }
      y[i] = v;
    }
  return y;
}

} // namespace
} // namespace concord::kernels

#endif // CONCORD_KERNELS_HOT_VECMATH_H

//===- Vec.h - Vectors of the CPU class being compiled ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files in lib/hot are compiled once per CPU class. Everything in them has
// internal linkage or lies in namespace concord::kernels::CLASS: an inline
// function shared with the rest of the program could be emitted here with
// AVX-512 instructions and then be picked by the linker for all. For the same
// reason they include no C++ standard header with inline functions.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_HOT_VEC_H
#define CONCORD_KERNELS_HOT_VEC_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CONCORD_CAT2(a, b) a##b
#define CONCORD_CAT(a, b) CONCORD_CAT2(a, b)
/// The exported table of a hot file: CONCORD_HOT_TABLE(gemmTable) is
/// gemmTable_v4.
#define CONCORD_HOT_TABLE(name)                                                \
  CONCORD_CAT(CONCORD_CAT(name, _), CONCORD_HOT_CLASS)

/// Names that hot files of one class share.
#define CONCORD_HOT_NAMESPACE CONCORD_CAT(hot_, CONCORD_HOT_CLASS)

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define CONCORD_CHECKED_LOADS 1
#endif
#endif

/// Before a loop over registers. Not under a sanitizer, where every access in
/// the unrolled text would be checked and compiling takes minutes.
#ifdef CONCORD_CHECKED_LOADS
#define UNROLL
#else
#define UNROLL _Pragma("clang loop unroll(full)")
#endif

#define INLINE static inline __attribute__((always_inline))

namespace concord::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int VL = 16;
#elif defined(__AVX2__)
constexpr int VL = 8;
#else
constexpr int VL = 4;
#endif
constexpr int VD = VL / 2;

typedef float vf __attribute__((ext_vector_type(VL)));
typedef int32_t vi __attribute__((ext_vector_type(VL)));
typedef uint32_t vu __attribute__((ext_vector_type(VL)));
typedef uint16_t vh __attribute__((ext_vector_type(VL)));
typedef _Float16 vf16 __attribute__((ext_vector_type(VL)));
typedef double vd __attribute__((ext_vector_type(VD)));
typedef int64_t vl __attribute__((ext_vector_type(VD)));

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

template <class To, class From> INLINE To bitsOf(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

INLINE vf fma(vf a, vf b, vf c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}
INLINE vd fma(vd a, vd b, vd c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_elementwise_fma(a, b, c);
#else
  return a * b + c;
#endif
}

/// Selects by a comparison's result (all ones or zeros per lane).
INLINE vf select(vi mask, vf yes, vf no) { return mask ? yes : no; }
INLINE vd select(vl mask, vd yes, vd no) { return mask ? yes : no; }

INLINE constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
INLINE constexpr int64_t ceilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
INLINE constexpr int64_t roundUp(int64_t a, int64_t b) {
  return ceilDiv(a, b) * b;
}

/// Element type T in memory, S in registers: load, store, and their forms for
/// the first n lanes (the others read as 0 and are not written).
template <class T> struct Lane;

template <> struct Lane<float> {
  using S = float;
  using V = vf;
  static constexpr int width = VL;
  INLINE vf load(const float *p) {
    vf v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  INLINE void store(float *p, vf v) { __builtin_memcpy(p, &v, sizeof v); }
#if defined(__AVX512F__)
  INLINE vf load(const float *p, int64_t n) {
    return bitsOf<vf>(_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p));
  }
  INLINE void store(float *p, vf v, int64_t n) {
    _mm512_mask_storeu_ps(p, __mmask16((1u << n) - 1), bitsOf<__m512>(v));
  }
#else
  INLINE vf load(const float *p, int64_t n) {
    float buffer[VL] = {};
    for (int64_t i = 0; i < n; ++i)
      buffer[i] = p[i];
    return load(buffer);
  }
  INLINE void store(float *p, vf v, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      p[i] = v[i];
  }
#endif
  INLINE float get(float v) { return v; }
  INLINE float put(float v) { return v; }
};

template <> struct Lane<double> {
  using S = double;
  using V = vd;
  static constexpr int width = VD;
  INLINE vd load(const double *p) {
    vd v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  INLINE void store(double *p, vd v) { __builtin_memcpy(p, &v, sizeof v); }
  INLINE vd load(const double *p, int64_t n) {
    double buffer[VD] = {};
    for (int64_t i = 0; i < n; ++i)
      buffer[i] = p[i];
    return load(buffer);
  }
  INLINE void store(double *p, vd v, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      p[i] = v[i];
  }
  INLINE double get(double v) { return v; }
  INLINE double put(double v) { return v; }
};

INLINE vf halfToFloat(vh h) {
  return __builtin_convertvector(bitsOf<vf16>(h), vf);
}
INLINE vh floatToHalf(vf v) {
  return bitsOf<vh>(__builtin_convertvector(v, vf16));
}
INLINE vf bfloatToFloat(vh h) {
  return bitsOf<vf>(__builtin_convertvector(h, vu) << 16);
}
/// Rounds to nearest even; a NaN stays one.
INLINE vh floatToBfloat(vf v) {
  vu u = bitsOf<vu>(v);
  vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  vu nan = (u >> 16) | 0x40u;
  vu result = v != v ? nan : rounded;
  return __builtin_convertvector(result, vh);
}

INLINE vf decodeAs(vh h, Half) { return halfToFloat(h); }
INLINE vf decodeAs(vh h, BFloat) { return bfloatToFloat(h); }
INLINE vh encodeAs(vf v, Half) { return floatToHalf(v); }
INLINE vh encodeAs(vf v, BFloat) { return floatToBfloat(v); }

template <class T> struct Lane16 {
  using S = float;
  using V = vf;
  static constexpr int width = VL;
  INLINE vf decode(vh h) { return decodeAs(h, T{}); }
  INLINE vh encode(vf v) { return encodeAs(v, T{}); }
  INLINE vf load(const T *p) {
    vh h;
    __builtin_memcpy(&h, p, sizeof h);
    return decode(h);
  }
  INLINE void store(T *p, vf v) {
    vh h = encode(v);
    __builtin_memcpy(p, &h, sizeof h);
  }
  INLINE vf load(const T *p, int64_t n) {
    uint16_t buffer[VL] = {};
    for (int64_t i = 0; i < n; ++i)
      buffer[i] = p[i].bits;
    vh h;
    __builtin_memcpy(&h, buffer, sizeof h);
    return decode(h);
  }
  INLINE void store(T *p, vf v, int64_t n) {
    vh h = encode(v);
    for (int64_t i = 0; i < n; ++i)
      p[i].bits = h[i];
  }
  INLINE float get(T v) {
    vh h = v.bits;
    return decode(h)[0];
  }
  INLINE T put(float v) {
    vf splat = v;
    return T{encode(splat)[0]};
  }
};
template <> struct Lane<Half> : Lane16<Half> {};
template <> struct Lane<BFloat> : Lane16<BFloat> {};

template <int Bytes> struct UIntOf;
template <> struct UIntOf<1> {
  using Type = uint8_t;
};
template <> struct UIntOf<2> {
  using Type = uint16_t;
};
template <> struct UIntOf<4> {
  using Type = uint32_t;
};
template <> struct UIntOf<8> {
  using Type = uint64_t;
};

/// Transposes 8 x 8 elements; strides in elements. Three rounds of interleaving
/// row i with row i + 4.
template <class T>
INLINE void transpose8(const T *from, int64_t fromStride, T *to,
                       int64_t toStride) {
  typedef typename UIntOf<sizeof(T)>::Type V8
      __attribute__((ext_vector_type(8)));
  V8 a[8], b[8];
  UNROLL
  for (int i = 0; i < 8; ++i)
    __builtin_memcpy(&a[i], from + i * fromStride, sizeof a[i]);
  UNROLL
  for (int round = 0; round < 3; ++round) {
    UNROLL
    for (int i = 0; i < 4; ++i) {
      b[2 * i] =
          __builtin_shufflevector(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
      b[2 * i + 1] =
          __builtin_shufflevector(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
    }
    UNROLL
    for (int i = 0; i < 8; ++i)
      a[i] = b[i];
  }
  UNROLL
  for (int i = 0; i < 8; ++i)
    __builtin_memcpy(to + i * toStride, &a[i], sizeof a[i]);
}

INLINE float sum(vf v) {
  // A fixed tree: the same bits whatever the compiler does.
  float parts[VL];
  __builtin_memcpy(parts, &v, sizeof v);
  for (int half = VL / 2; half; half /= 2)
    for (int i = 0; i < half; ++i)
      parts[i] += parts[i + half];
  return parts[0];
}
INLINE double sum(vd v) {
  double parts[VD];
  __builtin_memcpy(parts, &v, sizeof v);
  for (int half = VD / 2; half; half /= 2)
    for (int i = 0; i < half; ++i)
      parts[i] += parts[i + half];
  return parts[0];
}

} // namespace
} // namespace concord::kernels

#endif // CONCORD_KERNELS_HOT_VEC_H

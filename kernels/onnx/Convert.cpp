//===- Convert.cpp - Element conversions
//------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Narrow floats are converted by integer arithmetic, so that the result does
// not depend on what the CPU offers.
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// A small IEEE-like format with `E` exponent and `M` mantissa bits. `Fn`: no
/// infinities, the all-ones pattern alone is NaN (OCP E4M3).
template <int E, int M, bool Fn> struct Small {
  static constexpr int kBias = (1 << (E - 1)) - 1;
  static constexpr uint32_t kMantissaMask = (1u << M) - 1;
  static constexpr uint32_t kExponentMask = (1u << E) - 1;
  static constexpr uint32_t kMax =
      Fn ? (kExponentMask << M | (kMantissaMask - 1))
         : ((kExponentMask - 1) << M | kMantissaMask);
  static constexpr uint32_t kInf = kExponentMask << M;
  static constexpr uint32_t kNan = Fn ? (kExponentMask << M | kMantissaMask)
                                      : (kExponentMask << M | 1u << (M - 1));

  static float widen(uint32_t bits) {
    uint32_t sign = (bits >> (E + M)) & 1;
    uint32_t exponent = (bits >> M) & kExponentMask;
    uint32_t mantissa = bits & kMantissaMask;
    float magnitude;
    if (exponent == kExponentMask && (!Fn || mantissa == kMantissaMask)) {
      magnitude = mantissa ? std::numeric_limits<float>::quiet_NaN()
                           : std::numeric_limits<float>::infinity();
    } else if (exponent == 0) {
      magnitude = std::ldexp(static_cast<float>(mantissa), 1 - kBias - M);
    } else {
      magnitude = std::bit_cast<float>((exponent + 127 - kBias) << 23 |
                                       mantissa << (23 - M));
    }
    return sign ? -magnitude : magnitude;
  }

  static uint32_t narrow(float value, bool saturate) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    uint32_t sign = (bits >> 31) << (E + M);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
      return sign | kNan;
    const uint32_t overflow = saturate ? kMax : (Fn ? kNan : kInf);
    if (magnitude == 0x7f800000u)
      return sign | overflow;
    int exponent = static_cast<int>(magnitude >> 23) - 127 + kBias;
    uint32_t result;
    if (exponent <= 0) {
      // Subnormal in the target: shift the full significand into place.
      int shift = 23 - M + 1 - exponent;
      if (shift > 25)
        return sign;
      uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
      if (magnitude < 0x800000u)
        return sign;
      uint32_t kept = significand >> shift;
      uint32_t dropped = significand & ((1u << shift) - 1);
      uint32_t half = 1u << (shift - 1);
      result = kept + (dropped > half || (dropped == half && (kept & 1)));
    } else {
      uint32_t kept = static_cast<uint32_t>(exponent) << M |
                      (magnitude & 0x7fffffu) >> (23 - M);
      uint32_t dropped = magnitude & ((1u << (23 - M)) - 1);
      uint32_t half = 1u << (22 - M);
      result = kept + (dropped > half || (dropped == half && (kept & 1)));
    }
    if (result > kMax)
      return sign | overflow;
    return sign | result;
  }
};

using Half = Small<5, 10, false>;
using E4M3 = Small<4, 3, true>;
using E5M2 = Small<5, 2, false>;

float halfToFloat(uint16_t half) {
  // Branch-free for normal numbers, so that the loop vectorises.
  uint32_t sign = uint32_t(half & 0x8000u) << 16;
  uint32_t magnitude = half & 0x7fffu;
  float normal = std::bit_cast<float>((magnitude << 13) + (112u << 23));
  float special = std::bit_cast<float>((magnitude << 13) | (0xffu << 23));
  float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) *
                    5.9604644775390625e-08f; // 2^-24
  float result = magnitude >= 0x7c00u ? special
                 : magnitude < 0x400u ? subnormal
                                      : normal;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(result) | sign);
}

float bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

uint16_t floatToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

/// double to float such that a second rounding to a narrower format gives what
/// one rounding would: inexact results get an odd last bit.
float roundToOdd(double value) {
  float result = static_cast<float>(value);
  if (std::isnan(value) || std::isinf(value) ||
      static_cast<double>(result) == value)
    return result;
  if (std::isinf(result))
    return result;
  uint32_t bits = std::bit_cast<uint32_t>(result);
  if (std::abs(static_cast<double>(result)) > std::abs(value))
    --bits;
  return std::bit_cast<float>(bits | 1u);
}

template <class To, class From> To castNumber(From value) {
  if constexpr (std::same_as<To, uint8_t>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> &&
                       std::is_integral_v<To>) {
    if (value != value)
      return 0;
    if (value >= static_cast<From>(std::numeric_limits<To>::max()))
      return std::numeric_limits<To>::max();
    if (std::is_unsigned_v<To> && value < From(0)) {
      // A negative number wraps the way C compilers do through int64.
      if (value <= From(-9.2e18))
        return 0;
      return static_cast<To>(static_cast<int64_t>(value));
    }
    if (value <= static_cast<From>(std::numeric_limits<To>::min()))
      return std::numeric_limits<To>::min();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <class E, class T> void loadRaw(const void *src, int64_t n, T *dst) {
  if constexpr (std::same_as<E, T>) {
    if (n > 0)
      std::memcpy(dst, src, n * sizeof(T));
  } else {
    const E *s = static_cast<const E *>(src);
    for (int64_t i = 0; i < n; ++i)
      dst[i] = castNumber<T>(s[i]);
  }
}

template <class Raw, class T, class F>
void loadVia(const void *src, int64_t n, T *dst, F widen) {
  const Raw *s = static_cast<const Raw *>(src);
  for (int64_t i = 0; i < n; ++i)
    dst[i] = castNumber<T>(widen(s[i]));
}

template <class E, class T> void storeRaw(const T *src, int64_t n, void *dst) {
  E *d = static_cast<E *>(dst);
  if constexpr (std::same_as<E, T>) {
    if (n > 0)
      std::memcpy(d, src, n * sizeof(T));
  } else if constexpr (std::is_floating_point_v<T> && std::is_integral_v<E>) {
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (std::same_as<E, uint64_t>)
        d[i] = castNumber<uint64_t>(src[i]);
      else
        d[i] = static_cast<E>(castNumber<int64_t>(src[i]));
    }
  } else {
    for (int64_t i = 0; i < n; ++i)
      d[i] = static_cast<E>(src[i]);
  }
}

template <class Raw, class T, class F>
void storeVia(const T *src, int64_t n, void *dst, F narrow) {
  Raw *d = static_cast<Raw *>(dst);
  for (int64_t i = 0; i < n; ++i) {
    float value;
    if constexpr (std::same_as<T, float>)
      value = src[i];
    else
      value = roundToOdd(static_cast<double>(src[i]));
    d[i] = static_cast<Raw>(narrow(value));
  }
}

} // namespace

Compute onnx::computeOf(DType dtype) {
  switch (dtype) {
  case DType::F32:
  case DType::F16:
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return Compute::F32;
  case DType::F64:
    return Compute::F64;
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64:
    return Compute::Int;
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::U64:
    return Compute::Uint;
  case DType::BOOL:
    return Compute::Bool;
  case DType::Invalid:
    break;
  }
  throw InvalidError("an operand without dtype");
}

template <class T>
void onnx::loadAs(DType from, const void *src, int64_t n, T *dst) {
  switch (from) {
  case DType::F32:
    return loadRaw<float>(src, n, dst);
  case DType::F64:
    return loadRaw<double>(src, n, dst);
  case DType::I8:
    return loadRaw<int8_t>(src, n, dst);
  case DType::I16:
    return loadRaw<int16_t>(src, n, dst);
  case DType::I32:
    return loadRaw<int32_t>(src, n, dst);
  case DType::I64:
    return loadRaw<int64_t>(src, n, dst);
  case DType::U8:
    return loadVia<uint8_t>(src, n, dst, [](uint8_t b) { return b; });
  case DType::U16:
    return loadRaw<uint16_t>(src, n, dst);
  case DType::U32:
    return loadRaw<uint32_t>(src, n, dst);
  case DType::U64:
    return loadRaw<uint64_t>(src, n, dst);
  case DType::BOOL:
    return loadVia<uint8_t>(src, n, dst,
                            [](uint8_t b) -> uint8_t { return b != 0; });
  case DType::F16:
    return loadVia<uint16_t>(src, n, dst, halfToFloat);
  case DType::BF16:
    return loadVia<uint16_t>(src, n, dst, bf16ToFloat);
  case DType::F8E4M3:
    return loadVia<uint8_t>(src, n, dst, E4M3::widen);
  case DType::F8E5M2:
    return loadVia<uint8_t>(src, n, dst, E5M2::widen);
  case DType::Invalid:
    break;
  }
}

template <class T>
void onnx::storeAs(const T *src, int64_t n, DType to, void *dst,
                   bool saturate) {
  switch (to) {
  case DType::F32:
    return storeRaw<float>(src, n, dst);
  case DType::F64:
    return storeRaw<double>(src, n, dst);
  case DType::I8:
    return storeRaw<int8_t>(src, n, dst);
  case DType::I16:
    return storeRaw<int16_t>(src, n, dst);
  case DType::I32:
    return storeRaw<int32_t>(src, n, dst);
  case DType::I64:
    return storeRaw<int64_t>(src, n, dst);
  case DType::U8:
    return storeRaw<uint8_t>(src, n, dst);
  case DType::U16:
    return storeRaw<uint16_t>(src, n, dst);
  case DType::U32:
    return storeRaw<uint32_t>(src, n, dst);
  case DType::U64:
    return storeRaw<uint64_t>(src, n, dst);
  case DType::BOOL: {
    uint8_t *d = static_cast<uint8_t *>(dst);
    for (int64_t i = 0; i < n; ++i)
      d[i] = src[i] != T(0);
    return;
  }
  case DType::F16:
    return storeVia<uint16_t>(src, n, dst,
                              [](float v) { return Half::narrow(v, false); });
  case DType::BF16:
    return storeVia<uint16_t>(src, n, dst, floatToBf16);
  case DType::F8E4M3:
    return storeVia<uint8_t>(
        src, n, dst, [saturate](float v) { return E4M3::narrow(v, saturate); });
  case DType::F8E5M2:
    return storeVia<uint8_t>(
        src, n, dst, [saturate](float v) { return E5M2::narrow(v, saturate); });
  case DType::Invalid:
    break;
  }
}

#define CONCORD_DEFINE_CONVERT(T)                                              \
  template void onnx::loadAs<T>(DType, const void *, int64_t, T *);            \
  template void onnx::storeAs<T>(const T *, int64_t, DType, void *, bool);
CONCORD_DEFINE_CONVERT(float)
CONCORD_DEFINE_CONVERT(double)
CONCORD_DEFINE_CONVERT(int64_t)
CONCORD_DEFINE_CONVERT(uint64_t)
CONCORD_DEFINE_CONVERT(uint8_t)

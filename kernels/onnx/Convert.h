//===- Convert.h - Between element types and types of computation -*- C++ -*-=//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators are written for five types of computation only: float (for f32,
// f16, bf16, f8), double, int64_t, uint64_t and uint8_t (bool). Elements are
// widened when read and rounded or wrapped when written, which for every
// operator gives the same result as arithmetic in the element type, or a better
// one. This keeps the number of template instances linear in the dtypes.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_CONVERT_H
#define CONCORD_KERNELS_ONNX_CONVERT_H

#include "Node.h"

#include <concepts>
#include <limits>
#include <type_traits>

namespace concord::kernels::onnx {

enum class Compute : uint8_t { F32, F64, Int, Uint, Bool };

Compute computeOf(DType dtype);
inline bool isFloat(DType dtype) {
  Compute compute = computeOf(dtype);
  return compute == Compute::F32 || compute == Compute::F64;
}

/// The dtype whose memory holds `T` itself.
template <class T> constexpr DType nativeDType() {
  if constexpr (std::same_as<T, float>)
    return DType::F32;
  else if constexpr (std::same_as<T, double>)
    return DType::F64;
  else if constexpr (std::same_as<T, int64_t>)
    return DType::I64;
  else if constexpr (std::same_as<T, uint64_t>)
    return DType::U64;
  else
    return DType::BOOL;
}

/// Reads `n` contiguous elements of dtype `from`, widened to T. T is one of the
/// five types of computation. Floats are truncated towards zero when T is an
/// integer, saturating at its limits (NaN gives 0).
template <class T> void loadAs(DType from, const void *src, int64_t n, T *dst);

/// Writes `n` elements as dtype `to`: floats round to nearest even (f8
/// saturates unless `saturate` is false, then overflow gives infinity or NaN),
/// integers wrap, bool becomes 0 or 1.
template <class T>
void storeAs(const T *src, int64_t n, DType to, void *dst,
             bool saturate = true);

/// `value` as T; an integer T saturates and turns NaN into 0.
template <class T> T saturateTo(double value) {
  if constexpr (std::is_integral_v<T>) {
    if (value != value)
      return 0;
    // Both limits are powers of two (or one less), which the comparison with
    // their double rounds up: hence the strict side.
    if (value >= static_cast<double>(std::numeric_limits<T>::max()))
      return std::numeric_limits<T>::max();
    if (value <= static_cast<double>(std::numeric_limits<T>::min()))
      return std::numeric_limits<T>::min();
  }
  return static_cast<T>(value);
}

/// A position as an index: clamped to +-2^40, NaN is 0. For positions that are
/// clamped or checked again afterwards.
inline int64_t indexFrom(double position) {
  constexpr double kLimit = 1099511627776.0;
  if (position != position)
    return 0;
  return static_cast<int64_t>(position < -kLimit  ? -kLimit
                              : position > kLimit ? kLimit
                                                  : position);
}

/// One element at index `i`.
template <class T> T loadOne(DType from, const void *src, int64_t i) {
  T value;
  loadAs(from, static_cast<const char *>(src) + i * dtypeSize(from), 1, &value);
  return value;
}
template <class T> void storeOne(T value, DType to, void *dst, int64_t i) {
  storeAs(&value, 1, to, static_cast<char *>(dst) + i * dtypeSize(to));
}

/// Calls `f.template operator()<T>()` with float or double by dtype; throws
/// UnsupportedError for others.
template <class F> auto forFloats(DType dtype, F f) {
  switch (computeOf(dtype)) {
  case Compute::F32:
    return f.template operator()<float>();
  case Compute::F64:
    return f.template operator()<double>();
  default:
    throw UnsupportedError("a floating-point operand is needed");
  }
}

/// Same for float, double, int64_t, uint64_t (bool counts as uint64_t).
template <class F> auto forNumbers(DType dtype, F f) {
  switch (computeOf(dtype)) {
  case Compute::F32:
    return f.template operator()<float>();
  case Compute::F64:
    return f.template operator()<double>();
  case Compute::Int:
    return f.template operator()<int64_t>();
  default:
    return f.template operator()<uint64_t>();
  }
}

#define CONCORD_DECLARE_CONVERT(T)                                             \
  extern template void loadAs<T>(DType, const void *, int64_t, T *);           \
  extern template void storeAs<T>(const T *, int64_t, DType, void *, bool);
CONCORD_DECLARE_CONVERT(float)
CONCORD_DECLARE_CONVERT(double)
CONCORD_DECLARE_CONVERT(int64_t)
CONCORD_DECLARE_CONVERT(uint64_t)
CONCORD_DECLARE_CONVERT(uint8_t)
#undef CONCORD_DECLARE_CONVERT

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_CONVERT_H

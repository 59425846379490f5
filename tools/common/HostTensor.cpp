//===- HostTensor.cpp - A dense tensor in a tool's memory -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes that cannot overflow, element conversions, and reproducible drawing.
//
//===----------------------------------------------------------------------===//

#include "common/HostTensor.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace concord::tools {

std::optional<uint64_t> numBytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t size = dtypeSize(dtype);
  if (size == 0 || shape.size() > kMaxRank)
    return std::nullopt;
  // A zero anywhere makes the size zero, but the others must still be sane.
  bool empty = false;
  for (int64_t dim : shape) {
    if (dim < 0)
      return std::nullopt;
    if (dim == 0) {
      empty = true;
      continue;
    }
    if (static_cast<uint64_t>(dim) > kMaxTensorBytes / size)
      return std::nullopt;
    size *= static_cast<uint64_t>(dim);
  }
  return empty ? 0 : size;
}

std::string shapeToString(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i)
      text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

std::string indexToString(uint64_t linear, std::span<const int64_t> shape) {
  Shape index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    uint64_t dim = shape[i] > 0 ? static_cast<uint64_t>(shape[i]) : 1;
    index[i] = static_cast<int64_t>(linear % dim);
    linear /= dim;
  }
  return shapeToString(index);
}

bool isFloat(DType dtype) {
  switch (dtype) {
  case DType::F32:
  case DType::F64:
  case DType::F16:
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return true;
  default:
    return false;
  }
}

float halfToFloat(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f)
    return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (mantissa << 13));
}

uint16_t floatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000)
    return sign | 0x7e00;
  if (magnitude >= 0x477ff000) // rounds to 65536 or is larger
    return sign | 0x7c00;
  if (magnitude < 0x38800000) { // subnormal: the unit is 2^-24
    // nearbyint rounds to even in the default mode, and 1024 carries over into
    // the smallest normal number by itself.
    float scaled = std::nearbyint(std::ldexp(std::fabs(value), 24));
    return sign | static_cast<uint16_t>(scaled);
  }
  uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return sign | static_cast<uint16_t>((rounded - 0x38000000) >> 13);
}

float bfloatToFloat(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

uint16_t floatToBfloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float f8e4m3ToFloat(uint8_t bits) {
  uint32_t exponent = (bits >> 3) & 0xf, mantissa = bits & 7;
  float value;
  if (exponent == 0xf && mantissa == 7)
    value = std::numeric_limits<float>::quiet_NaN();
  else if (exponent == 0)
    value = std::ldexp(static_cast<float>(mantissa), -9);
  else
    value = std::ldexp(static_cast<float>(8 + mantissa), int(exponent) - 10);
  return bits & 0x80 ? -value : value;
}

float f8e5m2ToFloat(uint8_t bits) {
  return halfToFloat(static_cast<uint16_t>(bits << 8));
}

namespace {

template <typename T> T load(std::span<const std::byte> bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(std::span<std::byte> bytes, uint64_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
void storeInteger(std::span<std::byte> bytes, uint64_t i, double value) {
  // Compared in double: the limits of 64-bit types are not exact there, so the
  // upper one is excluded.
  double low = static_cast<double>(std::numeric_limits<T>::min());
  double high = static_cast<double>(std::numeric_limits<T>::max());
  T result;
  if (!(value > low))
    result = std::numeric_limits<T>::min();
  else if (value >= high)
    result = std::numeric_limits<T>::max();
  else
    result = static_cast<T>(value);
  if (std::isnan(value))
    result = 0;
  store<T>(bytes, i, result);
}

/// The nearest F8 number by search over all 256; slow and plainly right.
uint8_t toF8(double value, float (*decode)(uint8_t)) {
  if (std::isnan(value))
    return 0x7f;
  uint8_t best = 0;
  double bestError = std::numeric_limits<double>::infinity();
  for (int code = 0; code < 128; ++code) {
    float candidate = decode(static_cast<uint8_t>(code));
    if (std::isnan(candidate) || std::isinf(candidate))
      continue;
    double error = std::fabs(std::fabs(value) - candidate);
    if (error < bestError || (error == bestError && !(code & 1))) {
      bestError = error;
      best = static_cast<uint8_t>(code);
    }
  }
  return std::signbit(value) ? best | 0x80 : best;
}

uint64_t splitmix(uint64_t &state) {
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

} // namespace

long double elementAt(DType dtype, std::span<const std::byte> bytes,
                      uint64_t i) {
  switch (dtype) {
  case DType::F32:
    return load<float>(bytes, i);
  case DType::F64:
    return load<double>(bytes, i);
  case DType::F16:
    return halfToFloat(load<uint16_t>(bytes, i));
  case DType::BF16:
    return bfloatToFloat(load<uint16_t>(bytes, i));
  case DType::I8:
    return load<int8_t>(bytes, i);
  case DType::I16:
    return load<int16_t>(bytes, i);
  case DType::I32:
    return load<int32_t>(bytes, i);
  case DType::I64:
    return load<int64_t>(bytes, i);
  case DType::U8:
    return load<uint8_t>(bytes, i);
  case DType::U16:
    return load<uint16_t>(bytes, i);
  case DType::U32:
    return load<uint32_t>(bytes, i);
  case DType::U64:
    return load<uint64_t>(bytes, i);
  case DType::BOOL:
    return load<uint8_t>(bytes, i) != 0;
  case DType::F8E4M3:
    return f8e4m3ToFloat(load<uint8_t>(bytes, i));
  case DType::F8E5M2:
    return f8e5m2ToFloat(load<uint8_t>(bytes, i));
  case DType::Invalid:
    break;
  }
  return 0;
}

void setElement(DType dtype, std::span<std::byte> bytes, uint64_t i,
                double value) {
  switch (dtype) {
  case DType::F32:
    return store<float>(bytes, i, static_cast<float>(value));
  case DType::F64:
    return store<double>(bytes, i, value);
  case DType::F16:
    return store<uint16_t>(bytes, i, floatToHalf(static_cast<float>(value)));
  case DType::BF16:
    return store<uint16_t>(bytes, i, floatToBfloat(static_cast<float>(value)));
  case DType::I8:
    return storeInteger<int8_t>(bytes, i, value);
  case DType::I16:
    return storeInteger<int16_t>(bytes, i, value);
  case DType::I32:
    return storeInteger<int32_t>(bytes, i, value);
  case DType::I64:
    return storeInteger<int64_t>(bytes, i, value);
  case DType::U8:
    return storeInteger<uint8_t>(bytes, i, value);
  case DType::U16:
    return storeInteger<uint16_t>(bytes, i, value);
  case DType::U32:
    return storeInteger<uint32_t>(bytes, i, value);
  case DType::U64:
    return storeInteger<uint64_t>(bytes, i, value);
  case DType::BOOL:
    return store<uint8_t>(bytes, i, value != 0);
  case DType::F8E4M3:
    return store<uint8_t>(bytes, i, toF8(value, f8e4m3ToFloat));
  case DType::F8E5M2:
    return store<uint8_t>(bytes, i, toF8(value, f8e5m2ToFloat));
  case DType::Invalid:
    break;
  }
}

HostTensor drawTensor(DType dtype, const Shape &shape, uint64_t seed,
                      int64_t low, int64_t high) {
  std::optional<uint64_t> size = numBytes(dtype, shape);
  if (!size)
    throw Error("cannot draw a tensor of shape " + shapeToString(shape));
  HostTensor tensor{dtype, shape, std::vector<std::byte>(*size)};
  uint64_t count = tensor.numElements();
  uint64_t state = seed;
  if (isFloat(dtype)) {
    for (uint64_t i = 0; i < count; i += 2) {
      // In (0, 1], so that the logarithm is finite.
      double u = static_cast<double>((splitmix(state) >> 11) + 1) * 0x1p-53;
      double v = static_cast<double>(splitmix(state) >> 11) * 0x1p-53;
      double radius = std::sqrt(-2 * std::log(u));
      double angle = 2 * std::numbers::pi * v;
      setElement(dtype, tensor.bytes, i, radius * std::cos(angle));
      if (i + 1 < count)
        setElement(dtype, tensor.bytes, i + 1, radius * std::sin(angle));
    }
    return tensor;
  }
  uint64_t width = high > low ? static_cast<uint64_t>(high) - low : 1;
  for (uint64_t i = 0; i < count; ++i) {
    int64_t value = low + static_cast<int64_t>(splitmix(state) % width);
    setElement(dtype, tensor.bytes, i, static_cast<double>(value));
  }
  return tensor;
}

uint64_t nameSeed(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : name)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

} // namespace concord::tools

//===- HostTensor.h - A dense tensor in a tool's memory ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the tools hold between a file and a rank: dtype, shape, and the elements
// little-endian, dense, row-major. Also the element conversions that drawing
// and comparing need.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_HOSTTENSOR_H
#define CONCORD_TOOLS_COMMON_HOSTTENSOR_H

#include "concord/dtype.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace concord::tools {

/// Bad input of any kind: what() is complete and ready to print.
class Error : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

/// What the ranks made is not usable: they disagree, or something is missing.
class RankError : public Error {
public:
  using Error::Error;
};

using Shape = std::vector<int64_t>;

/// No tensor that a tool touches is larger than this (64 TiB); with it, offsets
/// and sums of sizes cannot overflow.
constexpr uint64_t kMaxTensorBytes = uint64_t(1) << 46;
/// No tensor has more dimensions than this.
constexpr size_t kMaxRank = 64;

struct HostTensor {
  DType dtype = DType::Invalid;
  Shape shape;
  std::vector<std::byte> bytes; ///< numBytes(dtype, shape) of them

  uint64_t numElements() const {
    size_t size = dtypeSize(dtype);
    return size ? bytes.size() / size : 0;
  }
};

/// Bytes of a dense tensor; nothing where a dimension is negative, the dtype is
/// invalid, or the size is above kMaxTensorBytes.
std::optional<uint64_t> numBytes(DType dtype, std::span<const int64_t> shape);

/// `[2, 3]`; a scalar is `[]`.
std::string shapeToString(std::span<const int64_t> shape);

/// The index of element `linear` of a row-major tensor, as `[1, 0, 7]`.
std::string indexToString(uint64_t linear, std::span<const int64_t> shape);

bool isFloat(DType dtype);

/// Element `i` as a long double, which holds every value of every dtype
/// exactly. `bytes` must have that element.
long double elementAt(DType dtype, std::span<const std::byte> bytes,
                      uint64_t i);

/// Store `value`, rounded to nearest even (floats) or truncated and clamped
/// (integers), as element `i`.
void setElement(DType dtype, std::span<std::byte> bytes, uint64_t i,
                double value);

/// Conversions of the small float formats; round to nearest even, overflow to
/// infinity, NaN stays NaN.
float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);
float bfloatToFloat(uint16_t bits);
uint16_t floatToBfloat(float value);
/// F8E4M3 (finite, NaN at 0x7f) and F8E5M2 (IEEE-like).
float f8e4m3ToFloat(uint8_t bits);
float f8e5m2ToFloat(uint8_t bits);

/// A tensor drawn from `seed`: normal with mean 0 and deviation 1 for floats,
/// uniform integers in [low, high) otherwise. The same on every machine
/// (splitmix64 counters, Box-Muller in double precision).
HostTensor drawTensor(DType dtype, const Shape &shape, uint64_t seed,
                      int64_t low = 0, int64_t high = 2);

/// A stable 64-bit hash of a name (FNV-1a), to give each input its own stream.
uint64_t nameSeed(std::string_view name);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_HOSTTENSOR_H

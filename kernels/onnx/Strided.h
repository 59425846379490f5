//===- Strided.h - Loop nests over strided tensors --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The two ways in which data is moved: a copy between two strided views, and a
// gather whose index map is separable by dimension. Both work on bytes.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_STRIDED_H
#define CONCORD_KERNELS_ONNX_STRIDED_H

#include "Node.h"

#include <array>
#include <cstdint>

namespace concord::kernels::onnx {

/// dst[sum i_d * dstStride_d] = src[sum i_d * srcStride_d]. Strides are in
/// elements and may be zero or negative. Dimensions are added outermost first;
/// neighbours that are one run in both views are merged.
class StridedCopy {
public:
  void add(int64_t dim, int64_t srcStride, int64_t dstStride);
  void run(size_t elementSize, const void *src, void *dst) const;

private:
  int rank = 0;
  bool empty = false;
  std::array<int64_t, kMaxRank> dims, srcStrides, dstStrides;
};

/// A broadcast nest: the output's dimensions, and per operand the strides that
/// walk it, 0 where it is broadcast. Merged; the innermost strides are 0 or 1.
class Broadcast {
public:
  /// Throws InvalidError when an operand does not broadcast to `outDims`.
  Broadcast(const std::vector<int64_t> &outDims,
            const std::vector<std::vector<int64_t>> &operands);

  int64_t innerSize() const { return dims.empty() ? 1 : dims.back(); }
  int64_t innerStride(size_t operand) const {
    return dims.empty() ? 0 : strides[operand].back();
  }
  int64_t outerCount() const { return outer; }

  /// Calls f(offsets, outOffset) once per innermost run.
  template <class F> void forEach(F f) const {
    std::array<int64_t, kMaxRank> index{};
    std::array<int64_t, kMaxOperands> offsets{};
    int64_t inner = innerSize();
    int outerRank = static_cast<int>(dims.size()) - 1;
    for (int64_t run = 0; run < outer; ++run) {
      f(offsets.data(), run * inner);
      for (int d = outerRank - 1; d >= 0; --d) {
        for (size_t k = 0; k < strides.size(); ++k)
          offsets[k] += strides[k][d];
        if (++index[d] < dims[d])
          break;
        index[d] = 0;
        for (size_t k = 0; k < strides.size(); ++k)
          offsets[k] -= strides[k][d] * dims[d];
      }
    }
  }

  static constexpr size_t kMaxOperands = 8;

private:
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;
  int64_t outer = 1;
};

/// Runs f(index) for every multi-index of `dims` in row-major order.
template <class F> void forEachIndex(const int64_t *dims, int rank, F f) {
  std::array<int64_t, kMaxRank> index{};
  int64_t count = 1;
  for (int d = 0; d < rank; ++d)
    count *= dims[d];
  for (int64_t n = 0; n < count; ++n) {
    f(index.data());
    for (int d = rank - 1; d >= 0; --d) {
      if (++index[d] < dims[d])
        break;
      index[d] = 0;
    }
  }
}

/// Odometer over `rank` dims that keeps up to two running offsets.
class Odometer {
public:
  Odometer(int rank, const int64_t *dims, const int64_t *strideA,
           const int64_t *strideB = nullptr)
      : rank(rank), dims(dims), strideA(strideA), strideB(strideB) {}
  int64_t a = 0, b = 0;
  std::array<int64_t, kMaxRank> index{};
  /// Steps to the next index; false after the last (then at the start again).
  bool next() {
    for (int d = rank - 1; d >= 0; --d) {
      a += strideA[d];
      if (strideB)
        b += strideB[d];
      if (++index[d] < dims[d])
        return true;
      index[d] = 0;
      a -= strideA[d] * dims[d];
      if (strideB)
        b -= strideB[d] * dims[d];
    }
    return false;
  }

private:
  int rank;
  const int64_t *dims, *strideA, *strideB;
};

/// out[i0..ir-1] = src[sum_d tables_d[i_d]], or `fill` when one of them is
/// negative. tables[d] has dims[d] entries: element offsets into src.
void gatherSeparable(int rank, const int64_t *dims,
                     const int64_t *const *tables, size_t elementSize,
                     const void *src, void *dst, const void *fill);

/// Fills `count` elements with the element at `value`.
void fillElements(size_t elementSize, const void *value, int64_t count,
                  void *dst);

/// Calls f.template operator()<U>() with the unsigned type of that size.
template <class F> auto forSize(size_t elementSize, F f) {
  switch (elementSize) {
  case 1:
    return f.template operator()<uint8_t>();
  case 2:
    return f.template operator()<uint16_t>();
  case 4:
    return f.template operator()<uint32_t>();
  default:
    return f.template operator()<uint64_t>();
  }
}

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_STRIDED_H

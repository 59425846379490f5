//===- Strided.cpp - Strided copies
//-----------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Copies go by memcpy where both sides are contiguous, by square tiles where
// the two sides disagree on the fastest dimension (transposes), and element by
// element otherwise.
//
//===----------------------------------------------------------------------===//

#include "Strided.h"

#include <algorithm>
#include <cstring>

using namespace concord::kernels;
using namespace concord::kernels::onnx;

void StridedCopy::add(int64_t dim, int64_t srcStride, int64_t dstStride) {
  if (dim == 0)
    empty = true;
  if (dim <= 1)
    return;
  if (rank > 0 && srcStrides[rank - 1] == srcStride * dim &&
      dstStrides[rank - 1] == dstStride * dim) {
    dims[rank - 1] *= dim;
    srcStrides[rank - 1] = srcStride;
    dstStrides[rank - 1] = dstStride;
    return;
  }
  if (rank == kMaxRank)
    throw UnsupportedError("loop nest too deep");
  dims[rank] = dim;
  srcStrides[rank] = srcStride;
  dstStrides[rank] = dstStride;
  ++rank;
}

namespace {

template <class U>
void copyRow(const U *src, int64_t srcStride, U *dst, int64_t dstStride,
             int64_t n) {
  if (srcStride == 1 && dstStride == 1) {
    std::memcpy(dst, src, n * sizeof(U));
  } else if (srcStride == 0 && dstStride == 1) {
    std::fill_n(dst, n, *src);
  } else {
    for (int64_t i = 0; i < n; ++i)
      dst[i * dstStride] = src[i * srcStride];
  }
}

template <class U>
void copyTiled(const U *src, int64_t srcRow, U *dst, int64_t dstRow,
               int64_t rows, int64_t srcCol, int64_t dstCol, int64_t cols) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      int64_t r1 = std::min(rows, r0 + kTile), c1 = std::min(cols, c0 + kTile);
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; ++c)
          dst[r * dstRow + c * dstCol] = src[r * srcRow + c * srcCol];
    }
}

} // namespace

void StridedCopy::run(size_t elementSize, const void *src, void *dst) const {
  if (empty)
    return;
  if (rank == 0) {
    std::memcpy(dst, src, elementSize);
    return;
  }
  forSize(elementSize, [&]<class U>() {
    const U *s = static_cast<const U *>(src);
    U *d = static_cast<U *>(dst);
    int inner = rank - 1;
    // The dimension in which src is contiguous, if it is not the innermost.
    int other = -1;
    if (srcStrides[inner] != 1 && srcStrides[inner] != 0)
      for (int k = 0; k < inner; ++k)
        if (srcStrides[k] == 1)
          other = k;
    std::array<int64_t, kMaxRank> outDims, outSrc, outDst;
    int outRank = 0;
    for (int k = 0; k < inner; ++k)
      if (k != other) {
        outDims[outRank] = dims[k];
        outSrc[outRank] = srcStrides[k];
        outDst[outRank] = dstStrides[k];
        ++outRank;
      }
    Odometer odometer(outRank, outDims.data(), outSrc.data(), outDst.data());
    do {
      if (other >= 0)
        copyTiled(s + odometer.a, srcStrides[other], d + odometer.b,
                  dstStrides[other], dims[other], srcStrides[inner],
                  dstStrides[inner], dims[inner]);
      else
        copyRow(s + odometer.a, srcStrides[inner], d + odometer.b,
                dstStrides[inner], dims[inner]);
    } while (odometer.next());
  });
}

Broadcast::Broadcast(const std::vector<int64_t> &outDims,
                     const std::vector<std::vector<int64_t>> &operands) {
  if (operands.size() > kMaxOperands)
    throw UnsupportedError("too many operands in one broadcast");
  size_t rank = outDims.size();
  std::vector<std::vector<int64_t>> full(operands.size(),
                                         std::vector<int64_t>(rank, 0));
  for (size_t k = 0; k < operands.size(); ++k) {
    const std::vector<int64_t> &shape = operands[k];
    if (shape.size() > rank)
      throw InvalidError("operand has a higher rank than the result");
    std::vector<int64_t> dense = denseStrides(shape);
    for (size_t i = 0; i < shape.size(); ++i) {
      size_t d = rank - shape.size() + i;
      if (shape[i] == outDims[d])
        full[k][d] = shape[i] == 1 ? 0 : dense[i];
      else if (shape[i] != 1)
        throw InvalidError("operand does not broadcast to the result: " +
                           std::to_string(shape[i]) + " to " +
                           std::to_string(outDims[d]));
    }
  }
  strides.resize(operands.size());
  for (size_t d = 0; d < rank; ++d) {
    if (outDims[d] == 0)
      outer = 0;
    if (outDims[d] == 1)
      continue;
    bool merge = !dims.empty();
    for (size_t k = 0; merge && k < operands.size(); ++k)
      merge = strides[k].back() == full[k][d] * outDims[d];
    if (merge) {
      dims.back() *= outDims[d];
      for (size_t k = 0; k < operands.size(); ++k)
        strides[k].back() = full[k][d];
    } else {
      dims.push_back(outDims[d]);
      for (size_t k = 0; k < operands.size(); ++k)
        strides[k].push_back(full[k][d]);
    }
  }
  for (size_t d = 0; d + 1 < dims.size() && outer; ++d)
    outer *= dims[d];
}

void onnx::gatherSeparable(int rank, const int64_t *dims,
                           const int64_t *const *tables, size_t elementSize,
                           const void *src, void *dst, const void *fill) {
  int64_t outer = 1;
  for (int d = 0; d + 1 < rank; ++d)
    outer *= dims[d];
  if (rank == 0) {
    std::memcpy(dst, src, elementSize);
    return;
  }
  if (outer == 0 || dims[rank - 1] == 0)
    return;
  forSize(elementSize, [&]<class U>() {
    const U *s = static_cast<const U *>(src);
    U *d = static_cast<U *>(dst);
    U pad = 0;
    if (fill)
      std::memcpy(&pad, fill, sizeof(U));
    int64_t n = dims[rank - 1];
    const int64_t *row = tables[rank - 1];
    forEachIndex(dims, rank - 1, [&](const int64_t *index) {
      int64_t base = 0;
      bool outside = false;
      for (int k = 0; k + 1 < rank; ++k) {
        int64_t offset = tables[k][index[k]];
        outside |= offset < 0;
        base += offset;
      }
      if (outside) {
        std::fill_n(d, n, pad);
      } else {
        for (int64_t i = 0; i < n; ++i)
          d[i] = row[i] < 0 ? pad : s[base + row[i]];
      }
      d += n;
    });
  });
}

void onnx::fillElements(size_t elementSize, const void *value, int64_t count,
                        void *dst) {
  forSize(elementSize, [&]<class U>() {
    U element;
    std::memcpy(&element, value, sizeof(U));
    std::fill_n(static_cast<U *>(dst), count, element);
  });
}

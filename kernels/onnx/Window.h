//===- Window.h - Geometry of sliding windows -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What convolutions and pools share: kernel, strides, dilations and pads of the
// spatial dimensions, resolved from the attributes and the shapes.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_WINDOW_H
#define CONCORD_KERNELS_ONNX_WINDOW_H

#include "Plan.h"
#include "Strided.h"

#include <algorithm>

namespace concord::kernels::onnx {

struct Window {
  int rank = 0; ///< number of spatial dimensions
  std::array<int64_t, kMaxTensorRank> in{}, out{}, kernel{}, stride{},
      dilation{}, padBegin{}, padEnd{};
  int64_t inSize = 1, outSize = 1, taps = 1; ///< products

  /// From an input [N, C, in...] and a result [N, M, out...]. `kernel` is
  /// empty to take the attribute kernel_shape.
  Window(const NodeInfo &node, const TensorInfo &x, const TensorInfo &y,
         std::vector<int64_t> kernelDims);

  /// The range of out positions [lo, hi) along `d` whose tap lies inside.
  void validRange(int d, int64_t tap, int64_t &lo, int64_t &hi) const {
    // in position = o * stride + base
    int64_t base = tap * dilation[d] - padBegin[d];
    lo = base >= 0 ? 0 : (-base + stride[d] - 1) / stride[d];
    hi = base >= in[d] ? 0 : (in[d] - base + stride[d] - 1) / stride[d];
    hi = std::min(hi, out[d]);
    lo = std::min(lo, hi);
  }
};

/// Adds w * x over the innermost spatial row for one tap: for every out
/// position whose tap lies inside, acc[out] += weight * x[in].
template <class T, class Acc>
void accumulateTap(const Window &w, const int64_t *tap, const T *x, T weight,
                   Acc *acc) {
  int inner = w.rank - 1;
  int64_t lo[kMaxTensorRank], hi[kMaxTensorRank], index[kMaxTensorRank];
  for (int d = 0; d < w.rank; ++d) {
    w.validRange(d, tap[d], lo[d], hi[d]);
    if (lo[d] >= hi[d])
      return;
    index[d] = lo[d];
  }
  const Acc factor = static_cast<Acc>(weight);
  int64_t n = hi[inner] - lo[inner], step = w.stride[inner];
  while (true) {
    int64_t from = 0, to = 0;
    for (int d = 0; d < w.rank; ++d) {
      from = from * w.in[d] + index[d] * w.stride[d] + tap[d] * w.dilation[d] -
             w.padBegin[d];
      to = to * w.out[d] + index[d];
    }
    const T *src = x + from;
    Acc *dst = acc + to;
    if (step == 1)
      for (int64_t i = 0; i < n; ++i)
        dst[i] += factor * static_cast<Acc>(src[i]);
    else
      for (int64_t i = 0; i < n; ++i)
        dst[i] += factor * static_cast<Acc>(src[i * step]);
    int d = inner - 1;
    for (; d >= 0; --d) {
      if (++index[d] < hi[d])
        break;
      index[d] = lo[d];
    }
    if (d < 0)
      return;
  }
}

/// Convolution with groups: calls emit(n, m, acc) with the sums of one output
/// plane; acc is scratch for outSize values.
template <class T, class Acc, class Emit>
void convolve(const Window &w, int64_t batch, int64_t channels, int64_t filters,
              int64_t groups, const T *x, const T *weights, Acc *acc,
              Emit emit) {
  int64_t perGroup = channels / groups, filtersPerGroup = filters / groups;
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t m = 0; m < filters; ++m) {
      std::fill_n(acc, w.outSize, Acc(0));
      int64_t first = m / filtersPerGroup * perGroup;
      for (int64_t c = 0; c < perGroup; ++c) {
        const T *plane = x + (n * channels + first + c) * w.inSize;
        const T *filter = weights + (m * perGroup + c) * w.taps;
        forEachIndex(w.kernel.data(), w.rank, [&](const int64_t *tap) {
          accumulateTap(w, tap, plane, *filter++, acc);
        });
      }
      emit(n, m, acc);
    }
}

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_WINDOW_H

//===- ConvHot.h - Convolution and pooling of one CPU class -----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One, two or three spatial dimensions, held as three. Plain data only:
// compiled for every CPU class.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_CONVHOT_H
#define CONCORD_KERNELS_CONVHOT_H

#include "GemmHot.h"

namespace concord::kernels {

struct Window {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1};
  int64_t stride[3] = {1, 1, 1}, dilation[3] = {1, 1, 1};
  int64_t begin[3] = {}, end[3] = {}; ///< padding
  int64_t inSize() const { return in[0] * in[1] * in[2]; }
  int64_t outSize() const { return out[0] * out[1] * out[2]; }
  int64_t padded(int d) const { return in[d] + begin[d] + end[d]; }
  int64_t kernelSize() const { return kernel[0] * kernel[1] * kernel[2]; }
};

enum class PoolKind : int8_t { Max, Average, AverageWithPad };

struct ConvTable {
  /// Columns of a GEMM panel.
  int64_t (*panel)(GemmType);
  /// One image's `channels` channels at x, with their padding, to `padded`
  /// (paddedElements() of room).
  void (*pad)(GemmType, const Window &, int64_t channels, const void *x,
              void *padded, Poller &);
  /// Panels of the matrix [channels * kernel, output positions], for `count`
  /// positions from `first` on (a multiple of the panel), of what `pad` wrote.
  /// Writes up to a panel's width past the last panel.
  void (*patches)(GemmType, const Window &, int64_t channels,
                  const void *padded, int64_t first, int64_t count,
                  void *panels, Poller &);
  /// One channel with its own kernel, `workspace` holding padded() sums.
  void (*depthwise)(GemmType, const Window &, const void *x, const void *weight,
                    double bias, Act act, void *y, void *workspace, Poller &);
  /// `workspace` holds one input row of sums.
  void (*pool)(GemmType, const Window &, PoolKind, int64_t planes,
               const void *x, void *y, void *workspace, Poller &);
  /// One element as a double.
  double (*element)(GemmType, const void *p, int64_t index);
};

extern const ConvTable convTable_v2, convTable_v3, convTable_v4,
    convTable_generic;

/// Elements that `pad` writes, and what `patches` may read beyond them.
inline int64_t paddedElements(const Window &w, int64_t channels,
                              int64_t panel) {
  return channels * w.padded(0) * w.padded(1) * w.padded(2) +
         panel * w.stride[2];
}

/// Sums of workspace that `depthwise` needs.
inline int64_t depthwiseSums(const Window &w) {
  return w.padded(0) * w.padded(1) * w.padded(2) + w.out[2] + 64;
}

} // namespace concord::kernels

#endif // CONCORD_KERNELS_CONVHOT_H

//===- LayoutHot.h - Transposition and rotary positions ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plain data only: compiled for every CPU class.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_LAYOUTHOT_H
#define CONCORD_KERNELS_LAYOUTHOT_H

#include "GemmHot.h"

namespace concord::kernels {

constexpr int kCopyDims = 12;

/// y[sum i_d ys_d] = x[sum i_d xs_d] over all i_d < size_d. Dimensions are in
/// order of decreasing importance for the output; runs of both sides have been
/// merged. The inner loop is one of three kinds.
struct CopyPlan {
  enum Kind { Runs, Turned, Scattered };
  Kind kind = Runs;
  int64_t elementSize = 1;
  int dims = 0;                                          ///< outer loops
  int64_t size[kCopyDims], xs[kCopyDims], ys[kCopyDims]; ///< elements
  /// Runs: `rows` contiguous elements. Turned: y has stride 1 along `rows` (x
  /// has rowStride), x has stride 1 along `cols` (y has colStride). Scattered:
  /// `rows` elements, x by rowStride, y by colStride.
  int64_t rows = 1, cols = 1, rowStride = 1, colStride = 1;
};

struct RopeShape {
  int64_t b = 0, s = 0, h = 0, d = 0;
  int64_t rotary = 0; ///< the first `rotary` of d are rotated, the rest copied
  bool interleaved = false;
  int64_t xs[3], ys[3]; ///< strides over b, s, h
  int64_t
      tableStrides[2]; ///< of cos and sin over b, s; or [_, row] with positions
  int64_t tableRows = 0; ///< rows of the tables, for positions
  bool positions = false;
};

struct LayoutTable {
  void (*copy)(const CopyPlan &, const void *x, void *y, Poller &);
  /// Returns false if a position lies outside the tables.
  bool (*rope)(GemmType, const RopeShape &, const void *x, const void *cos,
               const void *sin, const int64_t *positions, void *y, Poller &);
};

extern const LayoutTable layoutTable_v2, layoutTable_v3, layoutTable_v4,
    layoutTable_generic;

} // namespace concord::kernels

#endif // CONCORD_KERNELS_LAYOUTHOT_H

//===- RowsHot.h - Row kernels of one CPU class -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Softmax and normalisations over rows of `cols` contiguous elements. Each
// element is loaded and stored once; between, the row lies as f32 (f64 for f64)
// in the workspace, which is L1-sized for the widths of transformers. Plain
// data only: compiled for every CPU class.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ROWSHOT_H
#define CONCORD_KERNELS_ROWSHOT_H

#include "GemmHot.h"

namespace concord::kernels {

constexpr int kMaskDims = 8;

struct SoftmaxShape {
  int64_t rows = 0, cols = 0;
  int64_t xStride = 0, yStride = 0; ///< elements from row to row
  double scale = 1;
  bool log = false;
  bool causal = false;    ///< column j of row r counts if j <= r % causalRows +
  int64_t causalRows = 1; ///< causalOffset
  int64_t causalOffset = 0;
  bool mask = false; ///< added after scaling
  int maskDims = 0;  ///< leading dimensions, whose product is `rows`
  int64_t maskShape[kMaskDims] = {};
  int64_t maskStrides[kMaskDims] = {};
  int64_t maskColumnStride = 1; ///< 0 or 1
};

struct NormShape {
  int64_t rows = 0, cols = 0;
  int64_t xStride = 0, yStride = 0, residualStride = 0, sumStride = 0;
  double eps = 0;
  bool rms = false;
};

struct NormOperands {
  const void *x = nullptr, *gamma = nullptr, *beta = nullptr;
  const void *residual = nullptr; ///< added to x first
  void *y = nullptr;
  void *sum = nullptr; ///< x + residual
};

/// The end of a reduction: the members' parts are added in group order, then
/// bias and residual, then the row is normalised, and goes to all targets.
struct CombineShape {
  int64_t rows = 0, cols = 0; ///< of the block
  int64_t ld = 0;             ///< elements from row to row, of all operands
  int members = 1;
  int yTargets = 1, sumTargets = 1;
  bool norm = false, rms = false;
  double eps = 0;
  bool stream = false;  ///< store past the caches
  bool rounded = false; ///< the norm is taken of the sum as it is stored
  /// Store what was read of the others' parts back to where it was: on some
  /// processors (AMD's Zen) a store to a line that two cores hold takes ten
  /// times that of a line which another core has alone, and whoever writes the
  /// part next would pay it. Nobody else may look at the parts meanwhile.
  bool take = false;
  int me = 0; ///< whose parts stay as they are
};

constexpr int kMostMembers = 64;

/// Addresses of the block's first element.
struct CombineOperands {
  void *parts[kMostMembers] = {};
  const void *bias = nullptr, *residual = nullptr;
  const void *gamma = nullptr, *beta = nullptr;
  void *y[kMostMembers] = {};
  void *sum[kMostMembers] = {}; ///< parts + bias + residual; null: not wanted
};

/// Rows of several matrices, each row times a factor of its own, added up.
struct MixShape {
  int64_t rows = 0, cols = 0;
  int64_t groups = 1; ///< matrices of rows x cols, dense, one behind the other
  int64_t factorStride =
      0;               ///< elements from one matrix's factors to the next's
  bool stream = false; ///< store past the caches
};

struct RowsTable {
  void (*softmax)(GemmType, const SoftmaxShape &, const void *x,
                  const void *mask, void *y, void *workspace, Poller &);
  void (*norm)(GemmType, const NormShape &, const NormOperands &,
               void *workspace, Poller &);
  /// Workspace: a row of sums and a row of elements, each padded to 64 bytes.
  void (*combine)(GemmType, const CombineShape &, const CombineOperands &,
                  void *workspace, Poller &);
  /// Copies what another core has just written; its lines are this core's
  /// alone afterwards (CombineShape::take).
  void (*takeOver)(void *to, void *from, int64_t bytes, Poller &);
  /// y[r, j] = sum over g of factors[g, r] * x[g, r, j], in the order of g.
  /// Workspace: a row of elements.
  void (*mix)(GemmType, const MixShape &, const void *x, const void *factors,
              void *y, void *workspace, Poller &);
};

extern const RowsTable rowsTable_v2, rowsTable_v3, rowsTable_v4,
    rowsTable_generic;

} // namespace concord::kernels

#endif // CONCORD_KERNELS_ROWSHOT_H

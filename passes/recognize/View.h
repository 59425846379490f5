//===- View.h - Tensors as strided parts of others --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels that take strides need no transposed copies. A View describes the
// dimensions that a kernel wants in terms of the memory of a value further
// back.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_RECOGNIZE_VIEW_H
#define CONCORD_PASSES_RECOGNIZE_VIEW_H

#include "recognize/Match.h"

namespace concord::recognize {

struct Stride {
  int64_t extent, stride; ///< elements
};
/// One dimension of a view: outermost first, merged where possible. A broadcast
/// part has stride 0.
using ViewDim = llvm::SmallVector<Stride, 2>;

struct View {
  mlir::Value base; ///< dense, row-major
  llvm::SmallVector<ViewDim, 4> dims;
  double scale = 1; ///< the view is this times what lies in `base`
  Cover cover;      ///< multiplications that `scale` stands for

  /// All of `value`, dimension by dimension.
  static View of(mlir::Value value);
  /// Expresses the view in what `base` was made from: through reshapes,
  /// transposes, broadcasts and, when nothing else uses it, a multiplication by
  /// a constant. False, and unchanged, when that is not possible.
  bool stepBack();
};

llvm::SmallVector<int64_t> denseStrides(llvm::ArrayRef<int64_t> shape);

/// [batch, heads, positions, width] with contiguous width, as the attention and
/// rotary kernels take it. Heads that share memory count once in `heads`.
struct HeadView {
  mlir::Value base;
  int64_t heads = 0;
  int64_t strides[3] = {}; ///< batch, heads, positions
  double scale = 1;
  Cover cover;
};
/// The furthest way back from a view of these four dimensions that has this
/// form.
std::optional<HeadView> headView(View view);

} // namespace concord::recognize

#endif // CONCORD_PASSES_RECOGNIZE_VIEW_H

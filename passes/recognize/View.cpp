//===- View.cpp - Tensors as strided parts of others ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Going back over a reshape changes nothing, since both sides are the same
// dense memory. Going back over a transpose or a broadcast cuts every part of a
// dimension into parts that lie within one dimension of the result, and gives
// each the stride that this dimension has on the other side.
//
//===----------------------------------------------------------------------===//

#include "recognize/View.h"

using namespace mlir;

namespace concord::recognize {

SmallVector<int64_t> denseStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

View View::of(Value value) {
  View view;
  view.base = value;
  ArrayRef<int64_t> shape = typeOf(value).getShape();
  for (auto [extent, stride] : llvm::zip(shape, denseStrides(shape)))
    view.dims.push_back({{extent, extent == 1 ? 0 : stride}});
  return view;
}

/// Cuts `part`, over dense memory of `shape`, along its dimensions, which have
/// `strides` elsewhere. Appends to `out`, outermost first; false when a part
/// begins or ends within a dimension.
static bool cut(Stride part, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides,
                ViewDim &out) {
  if (part.extent == 1 || part.stride == 0) {
    out.push_back({part.extent, 0});
    return true;
  }
  SmallVector<int64_t> dense = denseStrides(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1 || dense[i] > part.stride)
      continue;
    // The outermost dimension whose step is no longer than the part's.
    if (part.stride % dense[i])
      return false;
    int64_t steps = part.stride / dense[i];
    if (steps * (part.extent - 1) < shape[i]) {
      out.push_back({part.extent, steps * strides[i]});
      return true;
    }
    if (shape[i] % steps || part.extent % (shape[i] / steps))
      return false;
    int64_t here = shape[i] / steps;
    if (!cut({part.extent / here, dense[i] * shape[i]}, shape, strides, out))
      return false;
    out.push_back({here, steps * strides[i]});
    return true;
  }
  return false;
}

static bool cutAll(ArrayRef<ViewDim> from, ArrayRef<int64_t> shape,
                   ArrayRef<int64_t> strides, SmallVector<ViewDim, 4> &to) {
  for (const ViewDim &dim : from) {
    ViewDim parts;
    for (Stride part : dim)
      if (!cut(part, shape, strides, parts))
        return false;
    ViewDim merged;
    for (Stride part : parts) {
      if (part.extent == 1)
        continue;
      if (!merged.empty() && merged.back().stride == part.stride * part.extent)
        merged.back() = {merged.back().extent * part.extent, part.stride};
      else
        merged.push_back(part);
    }
    if (merged.empty())
      merged.push_back({1, 0});
    to.push_back(merged);
  }
  return true;
}

bool View::stepBack() {
  auto op = base.getDefiningOp<NodeOp>();
  if (!op)
    return false;
  for (StringRef name :
       {"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"})
    if (isNode(op, name)) {
      if (typeOf(operandAt(op, 0)).getNumElements() !=
          typeOf(base).getNumElements())
        return false;
      base = operandAt(op, 0);
      return true;
    }
  ArrayRef<int64_t> shape = typeOf(base).getShape();
  if (isNode(op, "Transpose") || isNode(op, "Expand")) {
    Value source = operandAt(op, 0);
    ArrayRef<int64_t> from = typeOf(source).getShape();
    SmallVector<int64_t> dense = denseStrides(from), strides;
    if (isNode(op, "Transpose")) {
      auto perm = intsAttr(op, "perm");
      if (from.size() != shape.size() || (perm && perm->size() != shape.size()))
        return false;
      for (size_t i = 0; i < shape.size(); ++i) {
        size_t at = perm ? (*perm)[i] : shape.size() - 1 - i;
        if (at >= from.size() || from[at] != shape[i])
          return false;
        strides.push_back(dense[at]);
      }
    } else {
      if (from.size() > shape.size())
        return false;
      strides.assign(shape.size(), 0);
      size_t shift = shape.size() - from.size();
      for (size_t i = 0; i < from.size(); ++i)
        strides[shift + i] = from[i] == 1 ? 0 : dense[i];
    }
    SmallVector<ViewDim, 4> next;
    if (!cutAll(dims, shape, strides, next))
      return false;
    dims = std::move(next);
    base = source;
    return true;
  }
  auto scalar = withScalar(op);
  if (!scalar || !base.hasOneUse())
    return false;
  if (isNode(op, "Mul"))
    scale *= scalar->scalar;
  else if (isNode(op, "Div") && !scalar->scalarFirst && scalar->scalar != 0)
    scale /= scalar->scalar;
  else
    return false;
  cover.add(op);
  base = scalar->value;
  return true;
}

std::optional<HeadView> headView(View view) {
  std::optional<HeadView> best;
  do {
    const ViewDim &batch = view.dims[0], &heads = view.dims[1],
                  &positions = view.dims[2], &width = view.dims[3];
    bool plain = batch.size() == 1 && positions.size() == 1 &&
                 width.size() == 1 &&
                 (width[0].extent == 1 || width[0].stride == 1);
    bool shared = heads.size() == 2 && heads[1].stride == 0;
    if (!plain || (heads.size() != 1 && !shared))
      continue;
    HeadView found;
    found.base = view.base;
    found.heads = heads[0].stride == 0 ? 1 : heads[0].extent;
    found.strides[0] = batch[0].stride;
    found.strides[1] = heads[0].stride;
    found.strides[2] = positions[0].stride;
    found.scale = view.scale;
    found.cover = view.cover;
    best = found;
  } while (view.stepBack());
  return best;
}

} // namespace concord::recognize

//===- Conv.cpp - Convolution and pooling by kernels ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ONNX's attributes to the kernels' keys, with automatic padding resolved.
//
//===----------------------------------------------------------------------===//

#include "lowering/Describe.h"

using namespace mlir;

namespace concord::lowering {
namespace {

/// Window parameters for the spatial dimensions of one node.
struct Window {
  SmallVector<int64_t> kernel, strides, dilations, pads;
};

/// False for what the kernels do not take.
bool windowOf(Context &context, ArrayRef<int64_t> kernel, bool hasDilations,
              Window &w) {
  const onnx::Node &node = context.bound.node;
  const onnx::Shape &x = context.bound.view.inputs[0].shape;
  size_t rank = kernel.size();
  auto ints = [&](const char *name, size_t count, int64_t otherwise) {
    SmallVector<int64_t> list(count, otherwise);
    if (node.attribute(name)) {
      std::vector<int64_t> given = node.intsAttr(name);
      list.assign(given.begin(), given.end());
    }
    return list;
  };
  w.kernel.assign(kernel.begin(), kernel.end());
  w.strides = ints("strides", rank, 1);
  w.dilations =
      hasDilations ? ints("dilations", rank, 1) : SmallVector<int64_t>(rank, 1);
  w.pads = ints("pads", 2 * rank, 0);
  if (w.strides.size() != rank || w.dilations.size() != rank ||
      w.pads.size() != 2 * rank)
    return false;
  std::string automatic = node.stringAttr("auto_pad", "NOTSET");
  if (automatic == "VALID")
    w.pads.assign(2 * rank, 0);
  for (size_t i = 0; i < rank; ++i) {
    if (w.strides[i] < 1 || w.dilations[i] < 1 || w.kernel[i] < 1)
      return false;
    if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
      int64_t in = x[2 + i], out = (in + w.strides[i] - 1) / w.strides[i];
      int64_t total =
          std::max<int64_t>(0, (out - 1) * w.strides[i] +
                                   (w.kernel[i] - 1) * w.dilations[i] + 1 - in);
      w.pads[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.pads[rank + i] = total - w.pads[i];
    }
    if (w.pads[i] < 0 || w.pads[rank + i] < 0)
      return false;
  }
  return true;
}

/// Extent of one dimension of the result, rounded down.
int64_t extent(const Window &w, const onnx::Shape &x, size_t i) {
  int64_t room = x[2 + i] + w.pads[i] + w.pads[w.kernel.size() + i] -
                 ((w.kernel[i] - 1) * w.dilations[i] + 1);
  return room < 0 ? -1 : room / w.strides[i] + 1;
}

void describeWindow(Describe &describe, const Window &w, const onnx::Shape &x,
                    DType type) {
  describe.list("x", x)
      .list("kernel", w.kernel)
      .list("strides", w.strides)
      .list("dilations", w.dilations)
      .list("pads", w.pads)
      .set("dtype", lower(type));
}

} // namespace

Results lowerConv(Context &context) {
  const onnx::Node &node = context.bound.node;
  const onnx::Shape &x = context.bound.view.inputs[0].shape;
  const onnx::Shape &weight = context.bound.view.inputs[1].shape;
  RankedTensorType type = context.resultType();
  if (x.size() < 3 || x.size() > 5 || weight.size() != x.size() ||
      type.getNumElements() == 0)
    return SmallVector<Value>();
  Window w;
  if (!windowOf(context, ArrayRef<int64_t>(weight).drop_front(2), true, w))
    return SmallVector<Value>();
  for (size_t i = 0; i < w.kernel.size(); ++i)
    if (extent(w, x, i) != type.getDimSize(2 + i))
      return SmallVector<Value>();
  Describe describe("conv");
  describeWindow(describe, w, x, context.dtype());
  describe.set("m", weight[0]).set("group", node.intAttr("group", 1));
  SmallVector<Value> rest;
  if (Value bias = context.operand(2)) {
    describe.set("bias", 1);
    rest.push_back(bias);
  }
  if (Value residual = context.operand(3)) {
    describe.set("residual", 1);
    rest.push_back(residual);
  }
  if (std::string act = node.stringAttr("act", "none"); act != "none")
    describe.set("act", act);
  SmallVector<Value> inputs = {context.operand(0)};
  inputs.push_back(packed(context, describe, context.operand(1)));
  inputs.append(rest);
  return makeKernel(context, describe.str(), inputs, type);
}

Results lowerPool(Context &context) {
  const onnx::Node &node = context.bound.node;
  const std::string &name = context.name();
  const onnx::Shape &x = context.bound.view.inputs[0].shape;
  RankedTensorType type = context.resultType();
  bool global = StringRef(name).starts_with("Global");
  bool max = StringRef(name).ends_with("MaxPool");
  if (context.op.getNumResults() != 1 ||
      context.bound.view.outputs.size() != 1 || x.size() < 3 || x.size() > 5 ||
      type.getNumElements() == 0)
    return SmallVector<Value>();
  std::vector<int64_t> kernel(x.begin() + 2, x.end());
  if (!global)
    kernel = node.intsAttr("kernel_shape");
  Window w;
  if (kernel.size() + 2 != x.size() || !windowOf(context, kernel, true, w))
    return SmallVector<Value>();
  // Rounded up, the last window may begin in the padding; the generic kernel
  // knows the rules of each opset.
  for (size_t i = 0; i < w.kernel.size(); ++i)
    if (extent(w, x, i) != type.getDimSize(2 + i))
      return SmallVector<Value>();
  Describe describe("pool");
  describeWindow(describe, w, x, context.dtype());
  describe.set("op", max ? "max"
                     : !global && node.intAttr("count_include_pad", 0)
                         ? "average_with_pad"
                         : "average");
  return makeKernel(context, describe.str(), {context.operand(0)}, type);
}

/// Means and maxima over trailing dimensions: pooling of whole rows.
Results lowerReduction(Context &context) {
  const onnx::Node &node = context.bound.node;
  const onnx::Shape &x = context.bound.view.inputs[0].shape;
  RankedTensorType type = context.resultType();
  std::vector<int64_t> axes = node.intsAttr("axes");
  if (context.bound.view.hasInput(1)) {
    if (!context.bound.view.constants[1])
      return SmallVector<Value>();
    axes = context.bound.view.constants[1]->ints();
  }
  int64_t rank = x.size(), count = axes.size(), rows = 1, cols = 1;
  if (count == 0 || count > rank || type.getNumElements() == 0)
    return SmallVector<Value>();
  for (int64_t &axis : axes)
    axis += axis < 0 ? rank : 0;
  llvm::sort(axes);
  for (int64_t i = 0; i < rank; ++i) {
    if (i >= rank - count && axes[i - (rank - count)] != i)
      return SmallVector<Value>();
    (i < rank - count ? rows : cols) *= x[i];
  }
  // The longest window that the kernel takes.
  if (cols < 1 || cols > 1 << 20 || type.getNumElements() != rows)
    return SmallVector<Value>();
  Describe describe("pool");
  describe.list("x", {1, rows, cols})
      .list("kernel", {cols})
      .set("dtype", lower(context.dtype()))
      .set("op", context.name() == "ReduceMax" ? "max" : "average");
  return makeKernel(context, describe.str(), {context.operand(0)}, type);
}

} // namespace concord::lowering

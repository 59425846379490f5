//===- InferNetwork.cpp - Shapes of convolutions, pools and norms
//-----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators on [batch, channels, spatial...] tensors. Window arithmetic follows
// the operators' specification: out = (in + pads - ((k-1)*dilation + 1)) /
// stride
// + 1, rounded down, or up with ceil_mode unless the last window would begin in
// the padding at the end.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

#include <algorithm>

namespace concord::onnx::detail {

namespace {

const TensorType &image(const NodeView &v, size_t i = 0) {
  const TensorType &x = in(v, i, "X");
  if (x.shape.size() < 3)
    fail("takes [batch, channels, spatial...] and gets " + text(x));
  return x;
}

/// Result extents of a sliding window over `x`'s spatial dimensions.
Shape windowed(const NodeView &v, const TensorType &x,
               const std::vector<int64_t> &kernel, bool ceilMode) {
  const size_t spatial = x.shape.size() - 2;
  const auto strides = smallInts(v, "strides", spatial, 1, 1);
  const auto dilations = smallInts(v, "dilations", spatial, 1, 1);
  const std::string autoPad = v.node->stringAttr("auto_pad", "NOTSET");
  auto pads = autoPad == "NOTSET" ? smallInts(v, "pads", 2 * spatial, 0, 0)
                                  : std::vector<int64_t>(2 * spatial, 0);
  Shape shape;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t extent = x.shape[2 + i];
    if (kernel[i] < 1 || kernel[i] > INT32_MAX)
      fail("the kernel's extent is " + std::to_string(kernel[i]));
    if (autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER") {
      shape.push_back((extent + strides[i] - 1) / strides[i]);
      continue;
    }
    if (autoPad != "NOTSET" && autoPad != "VALID")
      fail("attribute 'auto_pad' is '" + autoPad + "'");
    const int64_t room = extent + pads[i] + pads[i + spatial] -
                         ((kernel[i] - 1) * dilations[i] + 1);
    if (room < 0)
      fail("the kernel is larger than dimension " + std::to_string(2 + i) +
           " of " + text(x) + " with its padding");
    int64_t count = room / strides[i] + 1;
    if (ceilMode && room % strides[i] != 0 &&
        count * strides[i] < extent + pads[i])
      ++count;
    shape.push_back(count);
  }
  return shape;
}

void convolve(NodeView &v, size_t weight, DType dtype) {
  const TensorType &x = image(v);
  const TensorType &w = in(v, weight, "W");
  const int64_t group = v.node->intAttr("group", 1);
  if (w.shape.size() != x.shape.size())
    fail("X " + text(x) + " and W " + text(w) + " have different ranks");
  if (group < 1 || group > x.shape[1] || x.shape[1] % group != 0 ||
      w.shape[1] != x.shape[1] / group || w.shape[0] % group != 0)
    fail("X " + text(x) + " and W " + text(w) + " do not fit in " +
         std::to_string(group) + " groups");
  const Shape kernel(w.shape.begin() + 2, w.shape.end());
  const auto declared = v.node->intsAttr("kernel_shape");
  if (!declared.empty() && declared != kernel)
    fail("attribute 'kernel_shape' is " + text(declared) + " and W is " +
         text(w));
  Shape shape = {x.shape[0], w.shape[0]};
  const Shape spatial = windowed(v, x, kernel, false);
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  out(v, 0, dtype, std::move(shape));
}

void conv(NodeView &v) {
  convolve(v, 1, in(v, 0, "X").dtype);
  sameDtype(v, 0, 1);
  if (v.hasInput(2) && v.inputs[2].shape != Shape{v.inputs[1].shape[0]})
    fail("the bias is " + text(v.inputs[2]) + " and should have " +
         std::to_string(v.inputs[1].shape[0]) + " elements");
}

void convInteger(NodeView &v) { convolve(v, 1, DType::I32); }
void deformConv(NodeView &v) { convolve(v, 1, in(v, 0, "X").dtype); }
void qlinearConv(NodeView &v) {
  convolve(v, 3, in(v, 7, "y_zero_point").dtype);
}

void convTranspose(NodeView &v) {
  const TensorType &x = image(v);
  const TensorType &w = in(v, 1, "W");
  sameDtype(v, 0, 1);
  const size_t spatial = x.shape.size() - 2;
  const int64_t group = v.node->intAttr("group", 1);
  if (w.shape.size() != x.shape.size() || w.shape[0] != x.shape[1] ||
      group < 1 || group > (1 << 30) || x.shape[1] % group != 0)
    fail("X " + text(x) + " and W " + text(w) + " do not fit in " +
         std::to_string(group) + " groups");
  const auto strides = smallInts(v, "strides", spatial, 1, 1);
  const auto dilations = smallInts(v, "dilations", spatial, 1, 1);
  const auto extra = smallInts(v, "output_padding", spatial, 0, 0);
  const std::string autoPad = v.node->stringAttr("auto_pad", "NOTSET");
  Shape shape = {x.shape[0], times(w.shape[1], group)};
  std::vector<int64_t> given = v.node->intsAttr("output_shape");
  if (given.size() == x.shape.size()) // some exporters write the whole shape
    given.erase(given.begin(), given.begin() + 2);
  if (!given.empty() && given.size() != spatial)
    fail("output_shape " + text(given) + " does not fit " + text(x));
  const auto pads = autoPad == "NOTSET" && given.empty()
                        ? smallInts(v, "pads", 2 * spatial, 0, 0)
                        : std::vector<int64_t>(2 * spatial, 0);
  for (size_t i = 0; i < spatial; ++i) {
    if (!given.empty()) {
      shape.push_back(given[i]);
      continue;
    }
    const int64_t extent = x.shape[2 + i];
    int64_t base = 0;
    if (__builtin_mul_overflow(extent, strides[i], &base) ||
        base > (int64_t{1} << 50))
      fail("the result is too large");
    if (autoPad == "SAME_UPPER" || autoPad == "SAME_LOWER")
      shape.push_back(base);
    else if (w.shape[2 + i] > INT32_MAX)
      fail("the kernel is too large");
    else
      shape.push_back(base - strides[i] + extra[i] +
                      ((w.shape[2 + i] - 1) * dilations[i] + 1) - pads[i] -
                      pads[i + spatial]);
  }
  out(v, 0, x.dtype, std::move(shape));
}

void pool(NodeView &v) {
  const TensorType &x = image(v);
  const auto kernel = v.node->intsAttr("kernel_shape");
  if (kernel.size() != x.shape.size() - 2)
    fail("kernel_shape " + text(kernel) + " does not fit " + text(x));
  Shape shape = {x.shape[0], x.shape[1]};
  const Shape spatial =
      windowed(v, x, kernel, v.node->intAttr("ceil_mode", 0) != 0);
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  out(v, 0, x.dtype, shape);
  if (v.node->opType == "MaxPool")
    out(v, 1, DType::I64, shape);
}

void globalPool(NodeView &v) {
  const TensorType &x = image(v);
  Shape shape = x.shape;
  std::fill(shape.begin() + 2, shape.end(), 1);
  out(v, 0, x.dtype, std::move(shape));
}

void maxUnpool(NodeView &v) {
  const TensorType &x = image(v);
  if (in(v, 1, "I").shape != x.shape)
    fail("X " + text(x) + " and I " + text(v.inputs[1]) + " differ");
  const size_t spatial = x.shape.size() - 2;
  Shape shape = {x.shape[0], x.shape[1]};
  if (v.hasInput(2)) {
    shape = constantInts(v, 2, "output_shape");
    if (shape.size() != x.shape.size())
      fail("output_shape " + text(shape) + " does not fit " + text(x));
  } else {
    const auto kernel = smallInts(v, "kernel_shape", spatial, 1, 1);
    const auto strides = smallInts(v, "strides", spatial, 1, 1);
    const auto pads = smallInts(v, "pads", 2 * spatial, 0, 0);
    for (size_t i = 0; i < spatial; ++i) {
      if (x.shape[2 + i] > INT32_MAX)
        fail("the result is too large");
      shape.push_back((x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] -
                      pads[i + spatial]);
    }
  }
  out(v, 0, x.dtype, std::move(shape));
}

void sameShape(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  out(v, 0, x.dtype, x.shape);
}

void batchNorm(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  if (x.shape.empty())
    fail("takes at least one dimension");
  const Shape channels = {x.shape.size() > 1 ? x.shape[1] : 1};
  for (size_t i = 1; i < 5; ++i)
    if (in(v, i, "scale, B, mean, var").shape != channels)
      fail("operand " + std::to_string(i) + " is " + text(v.inputs[i]) +
           " and should be " + text(channels));
  out(v, 0, x.dtype, x.shape);
  for (size_t i = 1; i < 5; ++i)
    out(v, i, v.inputs[3].dtype, channels);
}

/// scale and bias, one number per channel.
void channelNorm(NodeView &v) {
  const TensorType &x = v.inputs[0];
  for (size_t i : {1, 2})
    if (in(v, i, "scale, bias").shape.size() != 1 ||
        (v.inputs[i].shape[0] != x.shape[1] &&
         v.inputs[i].shape[0] != v.node->intAttr("num_groups", -1)))
      fail("operand " + std::to_string(i) + " is " + text(v.inputs[i]) +
           " and should have one number per channel of " + text(x));
  out(v, 0, x.dtype, x.shape);
}

void instanceNorm(NodeView &v) {
  image(v);
  channelNorm(v);
}

void groupNorm(NodeView &v) {
  // One value per channel will do: the channels make the groups.
  const TensorType &x = in(v, 0, "X");
  if (x.shape.size() < 2)
    fail("takes [batch, channels, ...] and gets " + text(x));
  const int64_t groups = v.node->intAttr("num_groups", 0);
  if (groups < 1 || x.shape[1] % groups != 0)
    fail(text(x) + " does not divide into " + std::to_string(groups) +
         " groups");
  channelNorm(v);
}

void gridSample(NodeView &v) {
  const TensorType &x = image(v);
  const TensorType &grid = in(v, 1, "grid");
  const auto spatial = static_cast<int64_t>(x.shape.size()) - 2;
  if (grid.shape.size() != x.shape.size() || grid.shape.back() != spatial ||
      grid.shape[0] != x.shape[0])
    fail("X " + text(x) + " and grid " + text(grid) + " do not fit");
  Shape shape = {x.shape[0], x.shape[1]};
  shape.insert(shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
  out(v, 0, x.dtype, std::move(shape));
}

void affineGrid(NodeView &v) {
  const TensorType &theta = in(v, 0, "theta");
  const std::vector<int64_t> size = constantInts(v, 1, "size");
  if (size.size() != 4 && size.size() != 5)
    fail("size " + text(size) + " should have four or five entries");
  Shape shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(static_cast<int64_t>(size.size()) - 2);
  out(v, 0, theta.dtype, std::move(shape));
}

void roiAlign(NodeView &v) {
  const TensorType &x = image(v);
  const TensorType &rois = in(v, 1, "rois");
  if (x.shape.size() != 4 || rois.shape.size() != 2 || rois.shape[1] != 4)
    fail("X " + text(x) + " and rois " + text(rois) + " do not fit");
  out(v, 0, x.dtype,
      {rois.shape[0], x.shape[1], v.node->intAttr("output_height", 1),
       v.node->intAttr("output_width", 1)});
}

void maxRoiPool(NodeView &v) {
  const TensorType &x = image(v);
  const TensorType &rois = in(v, 1, "rois");
  const auto pooled = v.node->intsAttr("pooled_shape");
  if (rois.shape.size() != 2 || rois.shape[1] != 5 || pooled.size() != 2)
    fail("X " + text(x) + ", rois " + text(rois) + " and pooled_shape " +
         text(pooled) + " do not fit");
  out(v, 0, x.dtype, {rois.shape[0], x.shape[1], pooled[0], pooled[1]});
}

void causalConv(NodeView &v) {
  const TensorType &x = image(v);
  const TensorType &w = in(v, 1, "weight");
  if (x.shape.size() != 3 || w.shape.size() != 3 || w.shape[1] != 1 ||
      w.shape[0] != x.shape[1] || w.shape[2] < 1)
    fail("input " + text(x) + " and weight " + text(w) + " do not fit");
  out(v, 0, x.dtype, x.shape);
  out(v, 1, x.dtype, {x.shape[0], x.shape[1], w.shape[2] - 1});
}

constexpr InferEntry kTable[] = {
    {"AffineGrid", 20, affineGrid},
    {"AveragePool", 7, pool},
    {"BatchNormalization", 7, batchNorm},
    {"CausalConvWithState", 27, causalConv},
    {"Conv", 1, conv},
    {"ConvInteger", 10, convInteger},
    {"ConvTranspose", 1, convTranspose},
    {"DeformConv", 19, deformConv},
    {"GlobalAveragePool", 1, globalPool},
    {"GlobalLpPool", 2, globalPool},
    {"GlobalMaxPool", 1, globalPool},
    {"GridSample", 16, gridSample},
    {"GroupNormalization", 18, groupNorm},
    {"InstanceNormalization", 6, instanceNorm},
    {"LRN", 1, sameShape},
    {"LpPool", 2, pool},
    {"MaxPool", 1, pool},
    {"MaxRoiPool", 1, maxRoiPool},
    {"MaxUnpool", 9, maxUnpool},
    {"QLinearConv", 10, qlinearConv},
    {"RoiAlign", 10, roiAlign},
};

} // namespace

std::span<const InferEntry> networkOps() { return kTable; }

} // namespace concord::onnx::detail

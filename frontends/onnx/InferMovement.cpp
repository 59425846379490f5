//===- InferMovement.cpp - Shapes of operators that move data
//---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reshape and its kin, joining and cutting, padding and resizing, and the
// operators that make tensors from shapes. Most take part of the shape as data,
// which must be constant.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace concord::onnx::detail {

namespace {

int64_t rankOf(const TensorType &type) {
  return static_cast<int64_t>(type.shape.size());
}

/// A size computed in floating point; hostile scales give anything.
int64_t sizeFrom(double value) {
  if (!(value >= 0) || value > 9.0e15)
    fail("a computed size is " + std::to_string(value));
  return static_cast<int64_t>(value);
}

void reshape(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  const std::vector<int64_t> target = constantInts(v, 1, "shape");
  const bool allowZero = v.node->intAttr("allowzero", 0) != 0;
  Shape shape;
  int64_t known = 1;
  int unknown = -1;
  for (size_t i = 0; i < target.size(); ++i) {
    int64_t dim = target[i];
    if (dim == -1) {
      if (unknown >= 0)
        fail("the target shape " + text(target) + " has more than one -1");
      unknown = static_cast<int>(i);
      shape.push_back(1);
      continue;
    }
    if (dim == 0 && !allowZero) {
      if (i >= x.shape.size())
        fail("the target shape " + text(target) + " copies dimension " +
             std::to_string(i) + " of " + text(x) + ", which it does not have");
      dim = x.shape[i];
    }
    if (dim < 0)
      fail("the target shape " + text(target) + " has a negative dimension");
    shape.push_back(dim);
    known = times(known, dim);
  }
  const int64_t count = x.numElements();
  if (unknown >= 0) {
    if (known == 0 || count % known != 0)
      fail("the shape " + text(x) + " does not divide into " + text(target));
    shape[unknown] = count / known;
  } else if (known != count) {
    fail("the target shape " + text(target) + " has " + std::to_string(known) +
         " elements and " + text(x) + " has " + std::to_string(count));
  }
  out(v, 0, x.dtype, std::move(shape));
}

void transpose(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  std::vector<int64_t> perm = v.node->intsAttr("perm");
  if (perm.empty() && !v.node->attribute("perm")) {
    perm.resize(x.shape.size());
    std::iota(perm.rbegin(), perm.rend(), 0);
  }
  if (perm.size() != x.shape.size())
    fail("perm " + text(perm) + " does not fit " + text(x));
  perm = axesOf(perm, x.shape.size(), /*sorted=*/false);
  Shape shape;
  for (int64_t axis : perm)
    shape.push_back(x.shape[axis]);
  out(v, 0, x.dtype, std::move(shape));
}

void squeeze(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  auto axes = axesAttrOrInput(v, 1);
  Shape shape;
  if (!axes) {
    for (int64_t dim : x.shape)
      if (dim != 1)
        shape.push_back(dim);
  } else {
    const std::vector<int64_t> sorted = axesOf(*axes, x.shape.size());
    for (int64_t i = 0; i < rankOf(x); ++i) {
      if (!std::binary_search(sorted.begin(), sorted.end(), i))
        shape.push_back(x.shape[i]);
      else if (x.shape[i] != 1)
        fail("dimension " + std::to_string(i) + " of " + text(x) +
             " is not 1 and cannot be removed");
    }
  }
  out(v, 0, x.dtype, std::move(shape));
}

void unsqueeze(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  auto axes = axesAttrOrInput(v, 1);
  if (!axes)
    fail("axes are missing");
  const size_t rank = x.shape.size() + axes->size();
  const std::vector<int64_t> sorted = axesOf(*axes, rank);
  Shape shape;
  size_t next = 0;
  for (size_t i = 0; i < rank; ++i)
    shape.push_back(std::binary_search(sorted.begin(), sorted.end(),
                                       static_cast<int64_t>(i))
                        ? 1
                        : x.shape[next++]);
  out(v, 0, x.dtype, std::move(shape));
}

void flatten(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  int64_t axis = v.node->intAttr("axis", 1);
  if (axis < 0)
    axis += rankOf(x);
  if (axis < 0 || axis > rankOf(x))
    fail("axis " + std::to_string(axis) + " is outside of " + text(x));
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < rankOf(x); ++i)
    (i < axis ? outer : inner) *= x.shape[i];
  out(v, 0, x.dtype, {outer, inner});
}

void concat(NodeView &v) {
  const TensorType &first = in(v, 0, "inputs");
  if (!v.node->attribute("axis"))
    fail("attribute 'axis' is missing");
  const int64_t axis = axisOf(v.node->intAttr("axis", 0), first.shape.size());
  Shape shape = first.shape;
  for (size_t i = 1; i < v.inputs.size(); ++i) {
    const TensorType &x = in(v, i, "inputs");
    sameDtype(v, 0, i);
    Shape expected = first.shape;
    if (x.shape.size() == expected.size())
      expected[axis] = x.shape[axis];
    if (x.shape != expected)
      fail("operands " + text(first) + " and " + text(x) +
           " differ besides dimension " + std::to_string(axis));
    shape[axis] = plus(shape[axis], x.shape[axis]);
  }
  out(v, 0, first.dtype, std::move(shape));
}

void split(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const int64_t axis = axisOf(v.node->intAttr("axis", 0), x.shape.size());
  const auto count = static_cast<int64_t>(v.node->outputs.size());
  if (count == 0)
    fail("the node has no results");
  std::vector<int64_t> sizes;
  if (auto given = axesAttrOrInput(v, 1, "split")) {
    sizes = *given;
  } else {
    const int64_t parts = v.node->intAttr("num_outputs", count);
    if (parts != count)
      fail("num_outputs is " + std::to_string(parts) + " and the node has " +
           std::to_string(count) + " results");
    if (opset(v) < 18 && x.shape[axis] % parts != 0)
      fail("dimension " + std::to_string(axis) + " of " + text(x) +
           " does not divide into " + std::to_string(parts));
    const int64_t chunk = (x.shape[axis] + parts - 1) / parts;
    for (int64_t i = 0; i < parts; ++i)
      sizes.push_back(std::clamp<int64_t>(x.shape[axis] - i * chunk, 0, chunk));
  }
  if (static_cast<int64_t>(sizes.size()) != count)
    fail("split sizes " + text(sizes) + " for " + std::to_string(count) +
         " results");
  int64_t sum = 0;
  for (int64_t size : sizes) {
    if (size < 0)
      fail("split sizes " + text(sizes) + " are not sizes");
    sum = plus(sum, size);
  }
  if (sum != x.shape[axis])
    fail("split sizes " + text(sizes) + " do not sum to dimension " +
         std::to_string(axis) + " of " + text(x));
  for (int64_t i = 0; i < count; ++i) {
    Shape shape = x.shape;
    shape[axis] = sizes[i];
    out(v, i, x.dtype, std::move(shape));
  }
}

void slice(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  std::vector<int64_t> starts, ends, axes, steps;
  if (opset(v) < 10) {
    starts = v.node->intsAttr("starts");
    ends = v.node->intsAttr("ends");
    axes = v.node->intsAttr("axes");
  } else {
    starts = constantInts(v, 1, "starts");
    ends = constantInts(v, 2, "ends");
    if (v.hasInput(3))
      axes = constantInts(v, 3, "axes");
    if (v.hasInput(4))
      steps = constantInts(v, 4, "steps");
  }
  if (axes.empty() && !v.hasInput(3)) {
    axes.resize(starts.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (steps.empty())
    steps.assign(starts.size(), 1);
  if (starts.size() != ends.size() || starts.size() != axes.size() ||
      starts.size() != steps.size())
    fail("starts, ends, axes and steps have different lengths");
  axes = axesOf(axes, x.shape.size(), /*sorted=*/false);
  Shape shape = x.shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t dim = x.shape[axes[i]];
    const int64_t step = steps[i];
    if (step == 0)
      fail("a step is 0");
    auto from = [&](int64_t value, int64_t low, int64_t high) {
      return std::clamp(value < 0 ? value + dim : value, low, high);
    };
    int64_t length = 0;
    if (step > 0) {
      const int64_t begin = from(starts[i], 0, dim);
      const int64_t end = from(ends[i], 0, dim);
      length = end > begin ? (end - begin - 1) / step + 1 : 0;
    } else if (dim > 0) {
      const int64_t begin = from(starts[i], 0, dim - 1);
      const int64_t end = from(ends[i], -1, dim - 1);
      length = begin > end ? (end - begin + 1) / step + 1 : 0;
    }
    shape[axes[i]] = length;
  }
  out(v, 0, x.dtype, std::move(shape));
}

void expand(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const std::vector<int64_t> target = constantInts(v, 1, "shape");
  for (int64_t dim : target)
    if (dim < 0)
      fail("the target shape " + text(target) + " has a negative dimension");
  out(v, 0, x.dtype, broadcast(x.shape, target));
}

void tile(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const std::vector<int64_t> repeats = constantInts(v, 1, "repeats");
  if (repeats.size() != x.shape.size())
    fail("repeats " + text(repeats) + " do not fit " + text(x));
  Shape shape = x.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (repeats[i] < 0)
      fail("repeats " + text(repeats) + " are negative");
    shape[i] = times(shape[i], repeats[i]);
  }
  out(v, 0, x.dtype, std::move(shape));
}

void pad(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  auto pads = axesAttrOrInput(v, 1, "pads");
  if (!pads)
    fail("pads are missing");
  std::vector<int64_t> axes(x.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (v.hasInput(3))
    axes = axesOf(constantInts(v, 3, "axes"), x.shape.size(), false);
  if (pads->size() != 2 * axes.size())
    fail("pads " + text(*pads) + " do not fit " + text(x));
  Shape shape = x.shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t &dim = shape[axes[i]];
    dim = plus(dim, plus((*pads)[i], (*pads)[i + axes.size()]));
    if (dim < 0)
      fail("pads " + text(*pads) + " remove more than there is of " + text(x));
  }
  out(v, 0, x.dtype, std::move(shape));
}

void shapeOf(NodeView &v) {
  const int64_t rank = rankOf(in(v, 0, "data"));
  auto bound = [&](const char *name, int64_t otherwise) {
    const int64_t value = v.node->intAttr(name, otherwise);
    return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  const int64_t start = bound("start", 0);
  out(v, 0, DType::I64, {std::max<int64_t>(0, bound("end", rank) - start)});
}

void sizeOf(NodeView &v) {
  in(v, 0, "data");
  out(v, 0, DType::I64, {});
}

void constantNode(NodeView &v) {
  if (v.node->attributes.size() != 1)
    fail("a Constant has exactly one value");
  const auto &[key, value] = *v.node->attributes.begin();
  if (const auto *tensor = std::get_if<Tensor>(&value))
    return out(v, 0, tensor->type.dtype, tensor->type.shape);
  if (std::holds_alternative<int64_t>(value))
    return out(v, 0, DType::I64, {});
  if (std::holds_alternative<double>(value))
    return out(v, 0, DType::F32, {});
  if (const auto *ints = std::get_if<std::vector<int64_t>>(&value))
    return out(v, 0, DType::I64, {static_cast<int64_t>(ints->size())});
  if (const auto *floats = std::get_if<std::vector<double>>(&value))
    return out(v, 0, DType::F32, {static_cast<int64_t>(floats->size())});
  fail("strings are not supported; use numbers");
}

void constantOfShape(NodeView &v) {
  const std::vector<int64_t> shape = constantInts(v, 0, "input");
  DType dtype = DType::F32;
  if (const Attribute *value = v.node->attribute("value")) {
    const auto *tensor = std::get_if<Tensor>(value);
    if (!tensor || tensor->type.numElements() != 1)
      fail("attribute 'value' should be a tensor of one element");
    dtype = tensor->type.dtype;
  }
  out(v, 0, dtype, shape);
}

void range(NodeView &v) {
  const Tensor &start = constant(v, 0, "start");
  const Tensor &limit = constant(v, 1, "limit");
  const Tensor &delta = constant(v, 2, "delta");
  sameDtype(v, 0, 1);
  sameDtype(v, 0, 2);
  for (const Tensor *t : {&start, &limit, &delta})
    if (t->type.numElements() != 1)
      fail("start, limit and delta should be single numbers");
  int64_t count = 0;
  if (isInteger(start.type.dtype)) {
    const int64_t step = delta.intAt(0);
    if (step == 0)
      fail("delta is 0");
    int64_t distance = 0;
    if (__builtin_sub_overflow(limit.intAt(0), start.intAt(0), &distance) ||
        step == INT64_MIN || distance == INT64_MIN)
      fail("the range is too long");
    count = distance / step +
            (distance % step != 0 && (distance < 0) == (step < 0));
    count = (distance < 0) == (step < 0) ? std::max<int64_t>(count, 0) : 0;
  } else {
    const double steps =
        std::ceil((limit.floatAt(0) - start.floatAt(0)) / delta.floatAt(0));
    if (std::isnan(steps))
      fail("the range has no length");
    count = sizeFrom(std::max(steps, 0.0));
  }
  out(v, 0, start.type.dtype, {count});
}

void eyeLike(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  if (x.shape.size() != 2)
    fail("takes a matrix and gets " + text(x));
  out(v, 0, dtypeAttr(v, "dtype", x.dtype), x.shape);
}

void trilu(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  if (x.shape.size() < 2)
    fail("takes matrices and gets " + text(x));
  out(v, 0, x.dtype, x.shape);
}

void depthToSpace(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const int64_t block = v.node->intAttr("blocksize", 0);
  if (x.shape.size() != 4 || block < 1 || block > (1 << 20) ||
      x.shape[1] % (block * block) != 0)
    fail("blocksize " + std::to_string(block) + " does not fit " + text(x));
  out(v, 0, x.dtype,
      {x.shape[0], x.shape[1] / (block * block), times(x.shape[2], block),
       times(x.shape[3], block)});
}

void spaceToDepth(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const int64_t block = v.node->intAttr("blocksize", 0);
  if (x.shape.size() != 4 || block < 1 || block > (1 << 20) ||
      x.shape[2] % block != 0 || x.shape[3] % block != 0)
    fail("blocksize " + std::to_string(block) + " does not fit " + text(x));
  out(v, 0, x.dtype,
      {x.shape[0], times(x.shape[1], block * block), x.shape[2] / block,
       x.shape[3] / block});
}

void centerCropPad(NodeView &v) {
  const TensorType &x = in(v, 0, "input_data");
  const std::vector<int64_t> target = constantInts(v, 1, "shape");
  std::vector<int64_t> axes = v.node->intsAttr("axes");
  if (!v.node->attribute("axes")) {
    axes.resize(x.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = axesOf(axes, x.shape.size(), false);
  if (axes.size() != target.size())
    fail("shape " + text(target) + " does not fit axes " + text(axes));
  Shape shape = x.shape;
  for (size_t i = 0; i < axes.size(); ++i)
    shape[axes[i]] = target[i];
  out(v, 0, x.dtype, std::move(shape));
}

void reverseSequence(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  in(v, 1, "sequence_lens");
  if (x.shape.size() < 2)
    fail("takes at least two dimensions and gets " + text(x));
  out(v, 0, x.dtype, x.shape);
}

void upsample(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  std::vector<double> scales;
  if (const Attribute *attribute = v.node->attribute("scales")) {
    if (const auto *list = std::get_if<std::vector<double>>(attribute))
      scales = *list;
  } else {
    const Tensor &data = constant(v, 1, "scales");
    for (int64_t i = 0; i < data.type.numElements(); ++i)
      scales.push_back(data.floatAt(i));
  }
  if (scales.size() != x.shape.size())
    fail("there are " + std::to_string(scales.size()) + " scales for " +
         text(x));
  Shape shape;
  for (size_t i = 0; i < scales.size(); ++i)
    shape.push_back(sizeFrom(std::floor(x.shape[i] * scales[i])));
  out(v, 0, x.dtype, std::move(shape));
}

/// Resize of opset 11 and later; opset 10 is Upsample with another name.
void resize(NodeView &v) {
  if (opset(v) < 11)
    return upsample(v);
  const TensorType &x = in(v, 0, "X");
  std::vector<int64_t> axes = v.node->intsAttr("axes");
  if (!v.node->attribute("axes")) {
    axes.resize(x.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = axesOf(axes, x.shape.size(), false);
  Shape shape = x.shape;
  const bool crop = v.node->stringAttr("coordinate_transformation_mode",
                                       "half_pixel") == "tf_crop_and_resize";
  // Exporters give the unused one of scales and sizes as an empty tensor.
  const bool bySizes = v.hasInput(3) && v.inputs[3].numElements() > 0;
  if (bySizes) {
    const std::vector<int64_t> sizes = constantInts(v, 3, "sizes");
    if (sizes.size() != axes.size())
      fail("sizes " + text(sizes) + " do not fit " + text(x));
    const std::string policy =
        v.node->stringAttr("keep_aspect_ratio_policy", "stretch");
    double scale = policy == "not_larger" ? INFINITY : 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      const double ratio = double(sizes[i]) / double(x.shape[axes[i]]);
      scale = policy == "not_larger" ? std::min(scale, ratio)
                                     : std::max(scale, ratio);
    }
    for (size_t i = 0; i < axes.size(); ++i)
      shape[axes[i]] =
          policy == "stretch"
              ? sizes[i]
              : sizeFrom(std::floor(scale * double(x.shape[axes[i]]) + 0.5));
  } else {
    const Tensor &scales = constant(v, 2, "scales");
    if (scales.type.numElements() != static_cast<int64_t>(axes.size()))
      fail("scales " + text(scales.type) + " do not fit " + text(x));
    const Tensor *roi = crop ? &constant(v, 1, "roi") : nullptr;
    if (roi && roi->type.numElements() != 2 * static_cast<int64_t>(axes.size()))
      fail("roi " + text(roi->type) + " does not fit " + text(x));
    for (size_t i = 0; i < axes.size(); ++i) {
      // The scale is a float; the product must not gain precision first.
      double extent = static_cast<double>(x.shape[axes[i]]);
      if (roi)
        extent *= roi->floatAt(i + axes.size()) - roi->floatAt(i);
      shape[axes[i]] = sizeFrom(std::floor(extent * scales.floatAt(i)));
    }
  }
  out(v, 0, x.dtype, std::move(shape));
}

void col2Im(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const std::vector<int64_t> image = constantInts(v, 1, "image_shape");
  const std::vector<int64_t> block = constantInts(v, 2, "block_shape");
  int64_t size = 1;
  for (int64_t dim : block)
    size = times(size, dim);
  if (x.shape.size() != 3 || size <= 0 || x.shape[1] % size != 0 ||
      image.size() != block.size())
    fail("block " + text(block) + " does not fit " + text(x));
  Shape shape = {x.shape[0], x.shape[1] / size};
  shape.insert(shape.end(), image.begin(), image.end());
  out(v, 0, x.dtype, std::move(shape));
}

/// A kept `If`: the reader has inferred its branches, which agree.
void branches(NodeView &v) {
  const Attribute *attribute = v.node->attribute("then_branch");
  const auto *graph =
      attribute ? std::get_if<std::shared_ptr<Graph>>(attribute) : nullptr;
  if (!graph || !*graph)
    fail("the branches are missing");
  for (size_t i = 0; i < (*graph)->outputs.size(); ++i) {
    const TensorType &type = (*graph)->values[(*graph)->outputs[i]].type;
    out(v, i, type.dtype, type.shape);
  }
}

constexpr InferEntry kTable[] = {
    {"CenterCropPad", 18, centerCropPad},
    {"Col2Im", 18, col2Im},
    {"Concat", 4, concat},
    {"Constant", 1, constantNode},
    {"ConstantOfShape", 9, constantOfShape},
    {"DepthToSpace", 1, depthToSpace},
    {"Expand", 8, expand},
    {"EyeLike", 9, eyeLike},
    {"Flatten", 1, flatten},
    {"If", 1, branches, "", false},
    {"Pad", 2, pad},
    {"Range", 11, range},
    {"Reshape", 5, reshape},
    {"Resize", 10, resize},
    {"ReverseSequence", 10, reverseSequence},
    {"Shape", 1, shapeOf},
    {"Size", 1, sizeOf},
    {"Slice", 1, slice},
    {"SpaceToDepth", 1, spaceToDepth},
    {"Split", 2, split},
    {"Squeeze", 1, squeeze},
    {"Tile", 6, tile},
    {"Transpose", 1, transpose},
    {"Trilu", 14, trilu},
    {"Unsqueeze", 1, unsqueeze},
    {"Upsample", 7, upsample},
};

} // namespace

std::span<const InferEntry> movementOps() { return kTable; }

} // namespace concord::onnx::detail

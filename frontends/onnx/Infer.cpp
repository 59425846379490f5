//===- Infer.cpp - Helpers of the shape inference functions
//-----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared by all Infer*.cpp. Errors say which operand, what it is and what would
// be right; the builder adds file and node.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Wire.h"

#include <algorithm>

namespace concord::onnx::detail {

void fail(const std::string &message) { throw Error(message); }

std::string text(const Shape &shape) {
  std::string result = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    result += (i ? "," : "") + std::to_string(shape[i]);
  return result + "]";
}

std::string text(const TensorType &type) {
  return std::string(dtypeName(type.dtype)) + text(type.shape);
}

const TensorType &in(const NodeView &view, size_t i, const char *name) {
  if (!view.hasInput(i))
    fail("operand " + std::to_string(i) + " ('" + name +
         "') is missing; the node needs it at this opset");
  return view.inputs[i];
}

const Tensor &constant(const NodeView &view, size_t i, const char *name) {
  in(view, i, name);
  if (i >= view.constants.size() || !view.constants[i])
    throw NeedsConstant(i, "the result's shape depends on operand " +
                               std::to_string(i) + " ('" + name +
                               "'), which is not known at compile time");
  return *view.constants[i];
}

std::vector<int64_t> constantInts(const NodeView &view, size_t i,
                                  const char *name) {
  const Tensor &tensor = constant(view, i, name);
  if (tensor.type.shape.size() > 1)
    fail("operand " + std::to_string(i) + " ('" + name +
         "') should be a list of integers and is " + text(tensor.type));
  return tensor.ints();
}

int64_t constantInt(const NodeView &view, size_t i, const char *name) {
  const Tensor &tensor = constant(view, i, name);
  if (tensor.type.numElements() != 1)
    fail("operand " + std::to_string(i) + " ('" + name +
         "') should be one integer and is " + text(tensor.type));
  return tensor.intAt(0);
}

void out(NodeView &view, size_t i, DType dtype, Shape shape) {
  if (view.outputs.size() < view.node->outputs.size())
    view.outputs.resize(view.node->outputs.size());
  if (i < view.node->outputs.size() && view.node->outputs[i] != kNoValue)
    view.outputs[i] = {dtype, std::move(shape)};
}

int64_t axisOf(int64_t axis, size_t rank, const char *name) {
  const auto r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r)
    fail(std::string(name) + " is " + std::to_string(axis) +
         " and the tensor has " + std::to_string(r) + " dimensions");
  return axis < 0 ? axis + r : axis;
}

std::vector<int64_t> axesOf(std::vector<int64_t> axes, size_t rank,
                            bool sorted) {
  for (int64_t &axis : axes)
    axis = axisOf(axis, rank, "an axis");
  std::vector<int64_t> ordered = axes;
  std::sort(ordered.begin(), ordered.end());
  if (std::adjacent_find(ordered.begin(), ordered.end()) != ordered.end())
    fail("axes " + text(axes) + " name a dimension twice");
  return sorted ? ordered : axes;
}

std::optional<std::vector<int64_t>>
axesAttrOrInput(const NodeView &view, size_t i, const char *name) {
  if (view.node->attribute(name))
    return view.node->intsAttr(name);
  if (view.hasInput(i))
    return constantInts(view, i, name);
  return std::nullopt;
}

Shape broadcast(const Shape &a, const Shape &b) {
  Shape result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      fail("shapes " + text(a) + " and " + text(b) + " cannot be broadcast: " +
           std::to_string(x) + " against " + std::to_string(y));
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

int64_t times(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result))
    fail("a computed size overflows");
  return result;
}
int64_t plus(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result))
    fail("a computed size overflows");
  return result;
}

std::vector<int64_t> smallInts(const NodeView &view, const char *name,
                               size_t count, int64_t otherwise, int64_t low) {
  std::vector<int64_t> values = view.node->intsAttr(name);
  if (values.empty())
    values.assign(count, otherwise);
  if (values.size() != count)
    fail(std::string("attribute '") + name + "' has " +
         std::to_string(values.size()) + " values and should have " +
         std::to_string(count));
  for (int64_t value : values)
    if (value < low || value > INT32_MAX)
      fail(std::string("attribute '") + name + "' has the value " +
           std::to_string(value) + "; at least " + std::to_string(low) +
           " is expected");
  return values;
}

void sameDtype(const NodeView &view, size_t i, size_t j) {
  if (view.inputs[i].dtype != view.inputs[j].dtype)
    fail("operands " + std::to_string(i) + " and " + std::to_string(j) +
         " have different element types, " + text(view.inputs[i]) + " and " +
         text(view.inputs[j]) + "; insert a Cast");
}

bool isFloat(DType dtype) {
  switch (dtype) {
  case DType::F32:
  case DType::F64:
  case DType::F16:
  case DType::BF16:
    return true;
  default:
    return false;
  }
}

bool isInteger(DType dtype) {
  switch (dtype) {
  case DType::I8:
  case DType::I16:
  case DType::I32:
  case DType::I64:
  case DType::U8:
  case DType::U16:
  case DType::U32:
  case DType::U64:
    return true;
  default:
    return false;
  }
}

DType dtypeAttr(const NodeView &view, const char *name, DType otherwise) {
  if (!view.node->attribute(name))
    return otherwise;
  const int64_t number = view.node->intAttr(name, 0);
  const DType dtype = dtypeFromWire(number);
  if (dtype == DType::Invalid)
    fail(std::string("attribute '") + name + "' asks for " +
         wireDtypeName(number) + ", which is not supported");
  return dtype;
}

} // namespace concord::onnx::detail

//===- Describe.cpp - Nodes as kernel descriptions
//--------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one rendering of a node for concord_kernel_create; the parser is in
// kernels/onnx. Mechanical on purpose: no operator has a rendering of its own,
// so that a kernel can rely on reading exactly what the model says.
//
//===----------------------------------------------------------------------===//

#include "concord/onnx/OpRegistry.h"

#include <cmath>
#include <cstdio>

namespace concord::onnx {

namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char &c : result)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string number(double value, const char *format) {
  // Not printf's words, whose spelling the C library chooses.
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

std::string quoted(const std::string &value) {
  std::string result = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\')
      result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string type(const TensorType &type) {
  if (type.dtype == DType::Invalid)
    return "[none]";
  std::string result = "[" + lower(dtypeName(type.dtype));
  for (int64_t dim : type.shape)
    result += "," + std::to_string(dim);
  return result + "]";
}

std::string types(const std::vector<TensorType> &list) {
  std::string result = "[";
  for (size_t i = 0; i < list.size(); ++i)
    result += (i ? "," : "") + type(list[i]);
  return result + "]";
}

template <typename T, typename Render>
std::string list(const std::vector<T> &values, Render render) {
  std::string result = "[";
  for (size_t i = 0; i < values.size(); ++i)
    result += (i ? "," : "") + render(values[i]);
  return result + "]";
}

/// False when the attribute has no rendering.
bool render(const Attribute &attribute, std::string &result) {
  auto real = [](double v) { return number(v, "%.9g"); };
  if (const auto *i = std::get_if<int64_t>(&attribute)) {
    result = std::to_string(*i);
  } else if (const auto *f = std::get_if<double>(&attribute)) {
    result = real(*f);
  } else if (const auto *s = std::get_if<std::string>(&attribute)) {
    result = quoted(*s);
  } else if (const auto *is = std::get_if<std::vector<int64_t>>(&attribute)) {
    result = list(*is, [](int64_t v) { return std::to_string(v); });
  } else if (const auto *fs = std::get_if<std::vector<double>>(&attribute)) {
    result = list(*fs, real);
  } else if (const auto *ss =
                 std::get_if<std::vector<std::string>>(&attribute)) {
    result = list(*ss, quoted);
  } else if (const auto *t = std::get_if<Tensor>(&attribute)) {
    if (t->type.numElements() != 1)
      return false;
    const DType dtype = t->type.dtype;
    std::string value;
    if (dtype == DType::F64)
      value = number(t->floatAt(0), "%.17g");
    else if (dtype == DType::U64)
      value = std::to_string(static_cast<uint64_t>(t->intAt(0)));
    else if (dtype == DType::F32 || dtype == DType::F16 ||
             dtype == DType::BF16 || dtype == DType::F8E4M3 ||
             dtype == DType::F8E5M2)
      value = real(t->floatAt(0));
    else
      value = std::to_string(t->intAt(0));
    result = "[" + lower(dtypeName(dtype)) + "," + value + "]";
  } else {
    return false;
  }
  return true;
}

} // namespace

std::string describe(const NodeView &view) {
  const Node &node = *view.node;
  std::string result = "onnx.";
  if (!node.domain.empty())
    result += lower(node.domain) + ".";
  result += lower(node.opType);
  // "attr.*" sorts before "in", "opset" and "out", and the map is sorted.
  for (const auto &[key, attribute] : node.attributes) {
    std::string value;
    if (!render(attribute, value))
      return {};
    result += " attr." + key + "=" + value;
  }
  result += " in=" + types(view.inputs);
  result += " opset=" + std::to_string(node.opset);
  result += " out=" + types(view.outputs);
  return result;
}

} // namespace concord::onnx

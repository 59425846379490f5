//===- Node.cpp - Parser of ONNX kernel descriptions
//------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A recursive-descent reader of the one-line text, with a fixed depth.
//
//===----------------------------------------------------------------------===//

#include "Node.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// More elements than any operand that fits an address space could have.
constexpr int64_t kMaxElements = int64_t(1) << 48;

class Parser {
public:
  explicit Parser(std::string_view text) : rest(text) {}

  bool done() {
    while (!rest.empty() && rest.front() == ' ')
      rest.remove_prefix(1);
    return rest.empty();
  }

  std::string_view word(std::string_view stop) {
    size_t end = 0;
    while (end < rest.size() && stop.find(rest[end]) == std::string_view::npos)
      ++end;
    std::string_view result = rest.substr(0, end);
    rest.remove_prefix(end);
    return result;
  }

  bool eat(char c) {
    if (rest.empty() || rest.front() != c)
      return false;
    rest.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!eat(c))
      throw InvalidError(std::string("onnx kernel description: expected '") +
                         c + "'");
  }

  AttrValue::Item item() {
    AttrValue::Item result;
    if (eat('"')) {
      result.isText = true;
      while (true) {
        if (rest.empty())
          throw InvalidError("onnx kernel description: unterminated string");
        char c = rest.front();
        rest.remove_prefix(1);
        if (c == '"')
          return result;
        if (c == '\\') {
          if (rest.empty())
            throw InvalidError("onnx kernel description: unterminated string");
          c = rest.front();
          rest.remove_prefix(1);
        }
        result.s += c;
      }
    }
    std::string_view token = word(" ,]");
    if (token.empty())
      throw InvalidError("onnx kernel description: empty value");
    result.s = token;
    const char *end = token.data() + token.size();
    auto [next, error] = std::from_chars(token.data(), end, result.i);
    if (error == std::errc() && next == end) {
      result.f = static_cast<double>(result.i);
      result.isInteger = true;
      return result;
    }
    uint64_t big = 0;
    auto [nextBig, errorBig] = std::from_chars(token.data(), end, big);
    if (errorBig == std::errc() && nextBig == end) {
      result.i = static_cast<int64_t>(big);
      result.f = static_cast<double>(big);
      result.isInteger = true;
      return result;
    }
    auto [nextF, errorF] = std::from_chars(token.data(), end, result.f);
    if (nextF == end &&
        (errorF == std::errc() || errorF == std::errc::result_out_of_range)) {
      result.i = std::abs(result.f) < 9e18 ? static_cast<int64_t>(result.f) : 0;
      return result;
    }
    result.isText = true;
    return result;
  }

  AttrValue value() {
    AttrValue result;
    if (!eat('[')) {
      result.items.push_back(item());
      return result;
    }
    result.isList = true;
    if (eat(']'))
      return result;
    do
      result.items.push_back(item());
    while (eat(','));
    expect(']');
    return result;
  }

private:
  std::string_view rest;
};

TensorInfo tensorFrom(const AttrValue &value) {
  if (!value.isList || value.items.empty() || !value.items[0].isText)
    throw InvalidError("onnx kernel description: an operand is [dtype,dims]");
  TensorInfo info;
  std::string name = value.items[0].s;
  if (name == "none")
    return info;
  for (char &c : name)
    c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  info.dtype = dtypeFromName(name);
  if (info.dtype == DType::Invalid)
    throw UnsupportedError("onnx kernel: dtype '" + value.items[0].s +
                           "' is not supported");
  if (value.items.size() - 1 > size_t(kMaxTensorRank))
    throw UnsupportedError("onnx kernel: rank above 12");
  info.count = 1;
  int64_t span = 1;
  for (size_t i = 1; i < value.items.size(); ++i) {
    const AttrValue::Item &item = value.items[i];
    if (!item.isInteger || item.i < 0 || item.i > kMaxElements)
      throw InvalidError("onnx kernel description: bad dimension '" + item.s +
                         "'");
    info.dims.push_back(item.i);
    // A zero hides the size of the others; bound them all the same, because
    // strides are computed from them.
    if (std::max<int64_t>(item.i, 1) > kMaxElements / span)
      throw InvalidError("onnx kernel description: tensor too large");
    span *= std::max<int64_t>(item.i, 1);
    info.count *= item.i;
  }
  return info;
}

std::vector<TensorInfo> tensorList(Parser &parser) {
  std::vector<TensorInfo> result;
  parser.expect('[');
  if (parser.eat(']'))
    return result;
  do
    result.push_back(tensorFrom(parser.value()));
  while (parser.eat(','));
  parser.expect(']');
  return result;
}

} // namespace

int64_t TensorInfo::dim(int axis) const {
  return dims[normalizeAxis(axis, rank())];
}

NodeInfo NodeInfo::parse(std::string_view text) {
  NodeInfo node;
  Parser parser(text);
  std::string_view head = parser.word(" ");
  if (!head.starts_with("onnx.") || head.size() == 5)
    throw InvalidError("onnx kernel description must begin with onnx.NAME");
  node.name = head.substr(5);
  while (!parser.done()) {
    std::string_view key = parser.word("= ");
    parser.expect('=');
    if (key == "in") {
      node.in = tensorList(parser);
    } else if (key == "out") {
      node.out = tensorList(parser);
    } else if (key == "opset") {
      AttrValue value = parser.value();
      if (value.isList || !value.items[0].isInteger)
        throw InvalidError("onnx kernel description: bad opset");
      node.opset = value.items[0].i;
    } else if (key.starts_with("attr.")) {
      node.attrs.insert_or_assign(std::string(key.substr(5)), parser.value());
    } else {
      throw InvalidError("onnx kernel description: unknown key '" +
                         std::string(key) + "'");
    }
  }
  return node;
}

const TensorInfo &NodeInfo::input(size_t i) const {
  if (!hasIn(i))
    throw InvalidError(name + ": input " + std::to_string(i) + " is missing");
  return in[i];
}

const TensorInfo &NodeInfo::output(size_t i) const {
  if (!hasOut(i))
    throw InvalidError(name + ": output " + std::to_string(i) + " is missing");
  return out[i];
}

const AttrValue *NodeInfo::rawAttr(std::string_view key) const {
  auto it = attrs.find(key);
  return it == attrs.end() ? nullptr : &it->second;
}

bool NodeInfo::has(std::string_view key) const {
  return rawAttr(key) != nullptr;
}

int64_t NodeInfo::intAttr(std::string_view key, int64_t otherwise) const {
  const AttrValue *value = rawAttr(key);
  if (!value)
    return otherwise;
  if (value->items.size() != 1 || !value->items[0].isInteger)
    throw InvalidError(name + ": attribute " + std::string(key) +
                       " must be an integer");
  return value->items[0].i;
}

double NodeInfo::floatAttr(std::string_view key, double otherwise) const {
  const AttrValue *value = rawAttr(key);
  if (!value)
    return otherwise;
  if (value->items.size() != 1 || value->items[0].isText)
    throw InvalidError(name + ": attribute " + std::string(key) +
                       " must be a number");
  return value->items[0].f;
}

std::string NodeInfo::strAttr(std::string_view key,
                              std::string_view otherwise) const {
  const AttrValue *value = rawAttr(key);
  if (!value)
    return std::string(otherwise);
  if (value->items.size() != 1)
    throw InvalidError(name + ": attribute " + std::string(key) +
                       " must be a string");
  return value->items[0].s;
}

std::vector<int64_t> NodeInfo::intsAttr(std::string_view key) const {
  std::vector<int64_t> result;
  if (const AttrValue *value = rawAttr(key))
    for (const AttrValue::Item &item : value->items) {
      if (!item.isInteger)
        throw InvalidError(name + ": attribute " + std::string(key) +
                           " must be integers");
      result.push_back(item.i);
    }
  return result;
}

std::vector<double> NodeInfo::floatsAttr(std::string_view key) const {
  std::vector<double> result;
  if (const AttrValue *value = rawAttr(key))
    for (const AttrValue::Item &item : value->items) {
      if (item.isText)
        throw InvalidError(name + ": attribute " + std::string(key) +
                           " must be numbers");
      result.push_back(item.f);
    }
  return result;
}

int NodeInfo::axisAttr(std::string_view key, int64_t otherwise,
                       int rank) const {
  return normalizeAxis(intAttr(key, otherwise), rank);
}

int onnx::normalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    throw InvalidError("axis " + std::to_string(axis) +
                       " is out of range for rank " + std::to_string(rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int64_t> onnx::denseStrides(const std::vector<int64_t> &dims) {
  std::vector<int64_t> strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

int64_t onnx::product(const std::vector<int64_t> &dims, int from, int to) {
  int64_t result = 1;
  for (int i = from; i < to; ++i)
    result *= dims[i];
  return result;
}

DType onnx::dtypeFromOnnx(int64_t number) {
  switch (number) {
  case 1:
    return DType::F32;
  case 2:
    return DType::U8;
  case 3:
    return DType::I8;
  case 4:
    return DType::U16;
  case 5:
    return DType::I16;
  case 6:
    return DType::I32;
  case 7:
    return DType::I64;
  case 9:
    return DType::BOOL;
  case 10:
    return DType::F16;
  case 11:
    return DType::F64;
  case 12:
    return DType::U32;
  case 13:
    return DType::U64;
  case 16:
    return DType::BF16;
  case 17:
    return DType::F8E4M3;
  case 19:
    return DType::F8E5M2;
  default:
    return DType::Invalid;
  }
}

//===- Graph.cpp - Tensors and attributes of an ONNX model
//------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Element access of constant tensors, whose bytes may lie unaligned in a mapped
// file, and attribute access of nodes.
//
//===----------------------------------------------------------------------===//

#include "concord/onnx/Graph.h"
#include "concord/onnx/Reader.h"

#include <cmath>
#include <cstring>
#include <new>

namespace concord::onnx {

namespace {

template <typename T> T load(const Tensor &tensor, size_t i) {
  if (i >= tensor.bytes.size() / sizeof(T))
    throw Error("element " + std::to_string(i) + " of a tensor with " +
                std::to_string(tensor.bytes.size() / sizeof(T)));
  T value;
  std::memcpy(&value, tensor.bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double decodeSmallFloat(uint32_t bits, int exponentBits, int mantissaBits,
                        bool hasInfinity) {
  const uint32_t mantissaMask = (1u << mantissaBits) - 1;
  const uint32_t exponentMask = (1u << exponentBits) - 1;
  const uint32_t mantissa = bits & mantissaMask;
  const uint32_t exponent = (bits >> mantissaBits) & exponentMask;
  const double sign = (bits >> (mantissaBits + exponentBits)) & 1 ? -1.0 : 1.0;
  const int bias = (1 << (exponentBits - 1)) - 1;
  if (exponent == exponentMask) {
    if (hasInfinity)
      return mantissa ? std::nan("") : sign * INFINITY;
    if (mantissa == mantissaMask) // E4M3FN: only all ones is not a number
      return std::nan("");
  }
  if (exponent == 0)
    return sign *
           std::ldexp(static_cast<double>(mantissa), 1 - bias - mantissaBits);
  return sign * std::ldexp(static_cast<double>(mantissa | (1u << mantissaBits)),
                           static_cast<int>(exponent) - bias - mantissaBits);
}

} // namespace

std::string Error::printable(const std::string &message) {
  static const char digits[] = "0123456789abcdef";
  std::string result;
  for (char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      result += c;
      continue;
    }
    result += "\\x";
    result += digits[byte >> 4];
    result += digits[byte & 15];
  }
  return result;
}

int64_t Tensor::intAt(size_t i) const {
  switch (type.dtype) {
  case DType::I8:
    return load<int8_t>(*this, i);
  case DType::I16:
    return load<int16_t>(*this, i);
  case DType::I32:
    return load<int32_t>(*this, i);
  case DType::I64:
    return load<int64_t>(*this, i);
  case DType::U8:
    return load<uint8_t>(*this, i);
  case DType::U16:
    return load<uint16_t>(*this, i);
  case DType::U32:
    return load<uint32_t>(*this, i);
  case DType::U64:
    return static_cast<int64_t>(load<uint64_t>(*this, i));
  case DType::BOOL:
    return load<uint8_t>(*this, i) != 0;
  default:
    throw Error("a tensor of " + std::string(dtypeName(type.dtype)) +
                " where integers are needed");
  }
}

std::vector<int64_t> Tensor::ints() const {
  std::vector<int64_t> result(static_cast<size_t>(type.numElements()));
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = intAt(i);
  return result;
}

double Tensor::floatAt(size_t i) const {
  switch (type.dtype) {
  case DType::F32:
    return load<float>(*this, i);
  case DType::F64:
    return load<double>(*this, i);
  case DType::F16:
    return decodeSmallFloat(load<uint16_t>(*this, i), 5, 10, true);
  case DType::BF16:
    return decodeSmallFloat(load<uint16_t>(*this, i), 8, 7, true);
  case DType::F8E4M3:
    return decodeSmallFloat(load<uint8_t>(*this, i), 4, 3, false);
  case DType::F8E5M2:
    return decodeSmallFloat(load<uint8_t>(*this, i), 5, 2, true);
  case DType::U64:
    return static_cast<double>(load<uint64_t>(*this, i));
  default:
    return static_cast<double>(intAt(i));
  }
}

Tensor Tensor::allocate(TensorType type) {
  Tensor result;
  const size_t size = type.numBytes();
  constexpr std::align_val_t kAlignment{64};
  auto *bytes =
      static_cast<std::byte *>(::operator new(size ? size : 1, kAlignment));
  std::memset(bytes, 0, size);
  result.owner = std::shared_ptr<const void>(bytes, [](const void *p) {
    ::operator delete(const_cast<void *>(p), std::align_val_t{64});
  });
  result.type = std::move(type);
  result.bytes = {bytes, size};
  return result;
}

std::span<std::byte> Tensor::mutableBytes() {
  return {const_cast<std::byte *>(bytes.data()), bytes.size()};
}

const Attribute *Node::attribute(std::string_view name) const {
  auto it = attributes.find(std::string(name));
  return it == attributes.end() ? nullptr : &it->second;
}

namespace {
/// The attribute as a `T`; absent: null. One of another kind is an error rather
/// than silently the default.
template <typename T>
const T *typed(const Node &node, std::string_view name, const char *kind) {
  const Attribute *attribute = node.attribute(name);
  if (!attribute)
    return nullptr;
  const T *value = std::get_if<T>(attribute);
  if (!value)
    throw Error("attribute '" + std::string(name) + "' should be " + kind +
                "; the exporter wrote another kind");
  return value;
}
} // namespace

int64_t Node::intAttr(std::string_view name, int64_t otherwise) const {
  const auto *value = typed<int64_t>(*this, name, "an integer");
  return value ? *value : otherwise;
}

double Node::floatAttr(std::string_view name, double otherwise) const {
  const auto *value = typed<double>(*this, name, "a float");
  return value ? *value : otherwise;
}

std::string Node::stringAttr(std::string_view name,
                             std::string_view otherwise) const {
  const auto *value = typed<std::string>(*this, name, "a string");
  return value ? *value : std::string(otherwise);
}

std::vector<int64_t> Node::intsAttr(std::string_view name,
                                    std::vector<int64_t> otherwise) const {
  const auto *value =
      typed<std::vector<int64_t>>(*this, name, "a list of integers");
  return value ? *value : otherwise;
}

} // namespace concord::onnx

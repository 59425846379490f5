//===- ShardingCase.h - A node with data to try a rule on -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Random tensors, and a node with its operands' data.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_ONNX_SHARDINGCASE_H
#define CONCORD_TEST_UNIT_ONNX_SHARDINGCASE_H

#include "concord/onnx/OpRegistry.h"

#include <cstring>
#include <random>
#include <set>

namespace concord::onnx::test {

using Rng = std::mt19937;

inline int64_t pick(Rng &rng, std::vector<int64_t> values) {
  return values[rng() % values.size()];
}
inline int64_t dim(Rng &rng) { return pick(rng, {1, 2, 3, 4, 6}); }
inline Shape dims(Rng &rng, size_t rank) {
  Shape shape(rank);
  for (int64_t &d : shape)
    d = dim(rng);
  return shape;
}

inline Tensor floats(Rng &rng, Shape shape, float low = -1, float high = 1) {
  Tensor t = Tensor::allocate({DType::F32, std::move(shape)});
  auto *p = reinterpret_cast<float *>(t.mutableBytes().data());
  std::uniform_real_distribution<float> draw(low, high);
  for (int64_t i = 0; i < t.type.numElements(); ++i)
    p[i] = draw(rng);
  return t;
}
inline Tensor ints(Shape shape, const std::vector<int64_t> &values) {
  Tensor t = Tensor::allocate({DType::I64, std::move(shape)});
  std::memcpy(t.mutableBytes().data(), values.data(), values.size() * 8);
  return t;
}
inline Tensor indices(Rng &rng, Shape shape, int64_t bound) {
  Tensor t = Tensor::allocate({DType::I64, std::move(shape)});
  auto *p = reinterpret_cast<int64_t *>(t.mutableBytes().data());
  for (int64_t i = 0; i < t.type.numElements(); ++i)
    p[i] = static_cast<int64_t>(rng() % static_cast<uint64_t>(bound));
  return t;
}
inline Tensor bools(Rng &rng, Shape shape) {
  Tensor t = Tensor::allocate({DType::BOOL, std::move(shape)});
  for (std::byte &b : t.mutableBytes())
    b = std::byte(rng() % 2);
  return t;
}
inline Tensor list(const std::vector<int64_t> &values) {
  return ints({static_cast<int64_t>(values.size())}, values);
}

struct Case {
  Node node;
  std::vector<Tensor> inputs; ///< dtype Invalid where absent
  std::set<size_t> constants; ///< operands that the view knows the data of
  Case(const char *op, int64_t opset, std::vector<Tensor> in,
       std::set<size_t> constants = {}, int results = 1)
      : inputs(std::move(in)), constants(std::move(constants)) {
    node.opType = op;
    node.opset = opset;
    node.name = op;
    for (size_t i = 0; i < inputs.size(); ++i)
      node.inputs.push_back(static_cast<ValueId>(i));
    for (int i = 0; i < results; ++i)
      node.outputs.push_back(i);
  }
  Case &attr(const char *key, Attribute value) {
    node.attributes[key] = std::move(value);
    return *this;
  }
  NodeView view() const {
    NodeView v;
    v.node = &node;
    for (size_t i = 0; i < inputs.size(); ++i) {
      v.inputs.push_back(inputs[i].type);
      v.constants.push_back(constants.count(i) ? &inputs[i] : nullptr);
    }
    v.outputs.resize(node.outputs.size());
    return v;
  }
};

} // namespace concord::onnx::test

#endif // CONCORD_TEST_UNIT_ONNX_SHARDINGCASE_H

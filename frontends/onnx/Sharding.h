//===- Sharding.h - Building sharding rules ---------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A small builder, so that a rule reads as the list of its factors.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_FRONTENDS_ONNX_SHARDING_H
#define CONCORD_FRONTENDS_ONNX_SHARDING_H

#include "Registry.h"

#include <initializer_list>

namespace concord::onnx::detail {

using sharding::DimRef;
using sharding::Factor;
using sharding::Reduction;
using sharding::Rule;

/// Where a factor is: tensor number, dimension, blocks outside.
struct At {
  size_t tensor;
  int64_t dim;
  int64_t outer = 1;
};

class RuleBuilder {
public:
  explicit RuleBuilder(const NodeView &view) : view(view) {}

  /// Add a factor. A factor of one iteration cannot be split and is left out.
  /// Returns it for reductions and addends, or a scratch one.
  Factor &factor(int64_t size, const std::vector<At> &operands,
                 const std::vector<At> &results);
  /// The results are linear in these operands together.
  void linear(std::initializer_list<int> operands);
  /// Linear in every present operand together.
  void linearInAll();

  Rule take() { return std::move(rule); }

  const Shape &in(size_t i) const { return view.inputs[i].shape; }
  const Shape &out(size_t i) const { return view.outputs[i].shape; }
  size_t rankIn(size_t i) const { return in(i).size(); }
  bool hasIn(size_t i) const { return view.hasInput(i); }
  bool hasOut(size_t i) const {
    return i < view.outputs.size() && view.outputs[i].dtype != DType::Invalid;
  }

  const NodeView &view;

private:
  Rule rule;
  Factor scratch;
};

/// The rules of convolutions, pools, norms and attention (ShardingNetwork.cpp).
ShardFn networkSharding(std::string_view name);

/// Factors of the dimensions of operand 0 that the operator leaves alone and
/// that every result has at the same place.
void untouchedDims(RuleBuilder &b, const std::vector<int64_t> &touched);

/// `axis` normalised for operand 0; the rank itself where it is invalid.
int64_t axisIn(const RuleBuilder &b, int64_t axis);

} // namespace concord::onnx::detail

#endif // CONCORD_FRONTENDS_ONNX_SHARDING_H

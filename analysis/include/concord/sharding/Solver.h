//===- Solver.h - Choose the layout of every tensor -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Given operations with their sharding rules and one mesh axis of T ranks,
// choose for every operation how it is split, so that the predicted step time
// (computation, plus the collectives that change layouts in between) is least,
// and weights are split. Several axes are solved one after another, each on the
// local shapes that the one before left.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SHARDING_SOLVER_H
#define CONCORD_SHARDING_SOLVER_H

#include "concord/sharding/Rule.h"

#include <string>

namespace concord::sharding {

/// How one tensor lies over the ranks of the axis.
struct Layout {
  enum Kind : uint8_t { Replicated, Split, Partial } kind = Replicated;
  DimRef dim;                              ///< for Split
  Reduction reduction = Reduction::None;   ///< for Partial
  bool operator==(const Layout &) const = default;
};

enum class TensorKind : uint8_t {
  Weight,   ///< any layout but Partial, free of charge, sliced at compile time
  Input,    ///< a model input: Replicated or Split, free
  Constant, ///< a small constant: Replicated, or sliced for free
  Value,    ///< a node's result
};

struct TensorInfo {
  TensorKind kind = TensorKind::Value;
  std::vector<int64_t> shape;
  int64_t elementBytes = 4;
  bool isOutput = false;      ///< a model output: must end Replicated or Split(outer 1)
  bool mustReplicate = false; ///< for Input/Output: the caller asked for whole tensors
  /// Layout demanded by an annotation or by the data-parallel batch split.
  bool fixed = false;
  Layout fixedLayout;
};

struct OpInfo {
  Rule rule;
  std::vector<int32_t> operands; ///< tensor index, -1 absent
  std::vector<int32_t> results;  ///< tensor index, -1 unused
  double flops = 0;              ///< whole, unsplit
  double bytes = 0;              ///< memory traffic, whole, unsplit
  std::string name;              ///< for messages
};

struct CostModel {
  double flopsPerSecond = 1e11;
  double bytesPerSecond = 2e10;      ///< memory
  double linkBytesPerSecond = 1e10;  ///< collectives, per rank
  double latencySeconds = 2e-6;      ///< per collective
  double opSeconds = 2e-7;           ///< fixed cost of any operation
};

struct Problem {
  int64_t ranks = 1; ///< T, the size of the axis
  bool splitWeights = true; ///< false for a data-parallel axis: weights stay whole
  std::vector<TensorInfo> tensors;
  std::vector<OpInfo> ops; ///< in topological order
  CostModel cost;
  uint32_t beamWidth = 512;
};

struct OpChoice {
  int32_t factor = -1;     ///< index into rule.factors, or -1
  int32_t linear = -1;     ///< index into rule.linear (partial-in, partial-out), or -1
  std::vector<Layout> operands; ///< layout in which each operand is consumed
  std::vector<Layout> results;  ///< layout in which each result is produced
};

struct Solution {
  std::vector<OpChoice> ops;
  /// Layout each Weight/Input/Constant tensor is stored in. A weight that is
  /// wanted in several layouts lists them all.
  std::vector<std::vector<Layout>> sources;
  /// Layout in which each model output leaves (index = tensor; others unused).
  std::vector<Layout> outputs;
  double seconds = 0;
  /// Weights (>= 2 dims) that had to stay whole, with the reason.
  std::vector<std::pair<int32_t, std::string>> wholeWeights;
};

/// Deterministic: the same problem gives the same solution on every machine.
/// A weight matrix (two or more dimensions, each > 1) stays whole only when no factor
/// of any of its users can split it.
Solution solve(const Problem &problem);

} // namespace concord::sharding

#endif // CONCORD_SHARDING_SOLVER_H

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

#include "concord/sharding/Reshard.h"

namespace concord::sharding {

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
  bool isOutput =
      false; ///< a model output: must end Replicated or Split(outer 1)
  bool mustReplicate =
      false; ///< for Input/Output: the caller asked for whole tensors
  /// Layout demanded by an annotation or by the data-parallel batch split.
  bool fixed = false;
  Layout fixedLayout;
  /// Whether this tensor's split may move to another dimension by one
  /// all-to-all, whatever Problem::allToAll says.
  bool allToAll = false;
};

struct OpInfo {
  Rule rule;
  std::vector<int32_t> operands; ///< tensor index, -1 absent
  std::vector<int32_t> results;  ///< tensor index, -1 unused
  double flops = 0;              ///< whole, unsplit
  double bytes = 0;              ///< memory traffic, whole, unsplit
  std::string name;              ///< for messages
};

struct Problem {
  int64_t ranks = 1; ///< T, the size of the axis
  bool splitWeights =
      true; ///< false for a data-parallel axis: weights stay whole
  /// Whether a Constant, or a Weight that is no matrix, may be stored as
  /// Partial(sum): its value on the first rank and zeros on the others. This
  /// lets a bias join a partial sum before the all-reduce, and is needed for
  /// rules with Factor::addends.
  bool partialWeights = false;
  /// Weight matrices of at most so many bytes may stay whole where that is
  /// faster. (A router of [hidden, experts] costs a collective per layer when
  /// it is split, and next to no memory when it is not.)
  int64_t smallWeightBytes = 0;
  /// Whether a split may move to another dimension by one all-to-all. It is
  /// cheaper than a gather, but tempts the solver into more collectives around
  /// embeddings and poolers than there are all-reduces saved.
  bool allToAll = false;
  bool mayExchange(int32_t tensor) const {
    return allToAll || tensors[tensor].allToAll;
  }
  std::vector<TensorInfo> tensors;
  std::vector<OpInfo> ops; ///< in topological order
  CostModel cost;
  uint32_t beamWidth = 1024;
};

struct OpChoice {
  int32_t factor = -1; ///< index into rule.factors, or -1
  int32_t linear = -1; ///< index into rule.linear (partial in and out), or -1
  /// The factor was refined: seen as [refine, size / refine] with the second
  /// part split, so every DimRef's outer is multiplied by this. (The output
  /// dimension of a fused QKV projection is refined by 3.) The layouts below
  /// have it already.
  int64_t refine = 1;
  std::vector<Layout> operands; ///< layout in which each operand is consumed
  std::vector<Layout> results;  ///< layout in which each result is produced
  /// To be emitted before the operation, in this order. Each step's `from` is
  /// available by then; afterwards its `to` is available to all later ops, and
  /// nobody makes the same layout of the same tensor twice.
  std::vector<Reshard> before;
  /// To be emitted after it: brings results to their fixed layouts, which then
  /// replace the produced ones.
  std::vector<Reshard> after;
};

struct Solution {
  std::vector<OpChoice> ops;
  /// Layout each Weight/Input/Constant tensor is stored in. A weight that is
  /// wanted in several layouts lists them all; an input has exactly one. Never
  /// empty for these kinds; empty for Values.
  std::vector<std::vector<Layout>> sources;
  /// Layout in which each model output leaves (index = tensor; others unused).
  std::vector<Layout> outputs;
  /// To be emitted after the last op, before the outputs are returned.
  std::vector<Reshard> finish;
  double seconds = 0;    ///< predicted step time
  int64_t objective = 0; ///< what was minimised: picoseconds, weighted
  /// Bytes of matrix weights that each rank stores above its T-th part.
  int64_t excessBytes = 0;
  /// False when there were more states than the beam is wide; the solution may
  /// then not be the cheapest, though it seldom loses more than microseconds.
  bool exact = true;
  /// Weights (>= 2 dims) that had to stay whole, with the reason.
  std::vector<std::pair<int32_t, std::string>> wholeWeights;
};

/// Deterministic: the same problem gives the same solution on every machine.
/// A weight matrix (two or more dimensions > 1,
/// and larger than smallWeightBytes) stays whole only when no factor
/// of any of its users can split it, and is stored in a second layout only when
/// its users have none in common. Throws std::invalid_argument that names the
/// op when the problem is malformed (an index out of range, a rule that does
/// not fit the shapes) or when a fixed layout cannot be reached. Thread-safe.
///
/// Algorithm: dynamic programming over the topological order. A state is, for
/// every live tensor, the set of layouts it is available in; the cheapest way
/// to each state is kept, states that a cheaper one can imitate are dropped,
/// and at most beamWidth go on; when there are more, those are dropped first
/// that a kept one can imitate for much less than a collective. Cost is
/// compared first by excess weight bytes, then by predicted time with
/// collectives weighted (Solution::objective).
Solution solve(const Problem &problem);

/// Checks a solution against its problem, independently of the solver: every
/// operand consumed is available, every choice is one its rule allows, no
/// partial value is summed twice or leaves the model, fixed layouts hold, and
/// `seconds` and `excessBytes` are right. Returns what is wrong, or nullopt.
/// Without `totals` the solution may have been found at other sizes: what it
/// costs is not compared.
std::optional<std::string> verify(const Problem &problem,
                                  const Solution &solution, bool totals = true);

/// Bytes of Weight tensors each rank stores under the solution.
int64_t storedWeightBytes(const Problem &problem, const Solution &solution);

/// Why an axis size does not suit a model, and which would.
struct Refusal {
  int32_t op = -1;              ///< the op that splits a dimension in blocks
  int32_t tensor = -1;          ///< the operand it splits
  int64_t size = 0;             ///< number of blocks (heads)
  std::vector<int64_t> allowed; ///< axis sizes in 1..64 that suit all ops
  std::string message;          ///< "mesh axis tp=8 does not divide ..."
};

/// Refuses an axis that does not divide the blocks (attention heads) into which
/// a reshape or an attention op cuts a dimension that a weight matrix produced:
/// such a model would run, but gather its activations around every attention.
/// `axis` is the name used in the message. Nothing is refused when weights are
/// not split.
std::optional<Refusal> checkMesh(const Problem &problem,
                                 const std::string &axis = "tp");

/// One entry per weight matrix and per family of blocks that checkMesh looks
/// at.
struct DivisorEntry {
  int32_t op = -1;            ///< for blocks: the op that cuts; for weights: -1
  int32_t tensor = -1;        ///< the weight, or the operand that is cut
  std::vector<int64_t> sizes; ///< trip counts that may be split
  std::vector<int64_t> divisors; ///< T in 1..64 that divides one of the sizes
};
std::vector<DivisorEntry> divisorsReport(const Problem &problem);

} // namespace concord::sharding

#endif // CONCORD_SHARDING_SOLVER_H

//===- Model.h - A problem prepared for the solver --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to analysis/sharding. Numbers every layout that a tensor can have in
// any solution, lists every way in which an op can be executed over those
// numbers, and tabulates the prices, so that the search itself only moves bits.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_SHARDING_MODEL_H
#define CONCORD_ANALYSIS_SHARDING_MODEL_H

#include "concord/sharding/Solver.h"

#include <compare>

namespace concord::sharding::detail {

/// A set of a tensor's layouts, by number.
using Mask = uint32_t;
constexpr size_t maxLayouts = 32;
constexpr int64_t impossible = INT64_MAX / 4;

/// Excess weight bytes outrank time: see solve().
struct Cost {
  int64_t excess = 0;
  int64_t time = 0; ///< picoseconds
  auto operator<=>(const Cost &) const = default;
  Cost &operator+=(const Cost &other) {
    excess += other.excess;
    time += other.time;
    return *this;
  }
};

/// How the search treats a tensor.
enum class Role : uint8_t {
  Free,   ///< any layout at no cost: constants, vectors, single-use matrices
          ///< (whose storage is priced with the op that uses them)
  Stored, ///< inputs and shared matrix weights: the set they are stored in
  Value,  ///< node results, and sources whose layout is given: the set they are
          ///< available in
};

struct TensorModel {
  Role role = Role::Value;
  bool matrix = false;         ///< a weight whose storage is priced
  bool later = false;          ///< Role::Value: produced by an op, not a source
  int64_t bytes = 0;           ///< whole
  int32_t uses = 0;            ///< operand positions that name it
  int32_t first = -1;          ///< op that produces it or uses it first
  int32_t last = -1;           ///< op after which it is dead
  int32_t slot = -1;           ///< word of the state, while it lives
  int32_t fixedId = -1;        ///< number of its fixed layout
  Mask outputMask = 0;         ///< layouts in which it may leave the model
  std::vector<Layout> layouts; ///< [0] is Replicated
  std::vector<int64_t> path;   ///< [from * n + to], picoseconds, or impossible
  std::vector<Mask> adds;      ///< layouts a path makes available

  size_t size() const { return layouts.size(); }
  int32_t find(const Layout &layout) const;
  int32_t add(const Layout &layout); ///< number, or -1 when there is no room

  /// Cheapest path to `want` from any layout of `from`; {cost, source}.
  std::pair<int64_t, int32_t> reach(Mask from, int32_t want) const;
};

/// One way to execute an op.
struct Option {
  int32_t factor = -1;
  int32_t linear = -1;
  int64_t refine = 1;
  Cost cost; ///< of the op and of the single-use weights it wants
  std::vector<int32_t> operands; ///< layout number wanted, -1 absent
  std::vector<int32_t> results;  ///< layout number produced, -1 unused
};

struct OpModel {
  std::vector<Option> options;
  std::vector<int32_t> dying; ///< tensors whose slot is free after this op
};

struct Model {
  explicit Model(const Problem &problem); ///< throws std::invalid_argument

  const Problem &problem;
  std::vector<TensorModel> tensors;
  std::vector<OpModel> ops;
  int32_t slots = 0;

  /// What storing a Role::Stored tensor in a set of layouts costs.
  Cost storage(int32_t tensor, Mask set) const;

private:
  void describeTensors();
  void collectLayouts();
  void buildOptions();
  void priceLayouts();
  void assignSlots();
  bool refineFactor(size_t op, size_t factor, int64_t refine);

  /// Per op and factor, the refinements that are worth offering (1 first).
  std::vector<std::vector<std::vector<int64_t>>> refinements;
};

/// Throws std::invalid_argument naming the op when the problem is malformed.
void checkProblem(const Problem &problem);

/// "op 12 'node name'", for messages.
std::string opLabel(const Problem &problem, size_t op);

/// Bytes of the whole tensor; saturates instead of overflowing.
int64_t wholeBytes(const TensorInfo &tensor);

/// Whether a tensor is a weight that must be split if it can: two or more
/// dimensions above 1, and larger than Problem::smallWeightBytes.
bool isMatrix(const Problem &problem, const TensorInfo &tensor);

/// How an op is executed, as far as its price goes.
enum class Way : uint8_t { Whole, Split, Linear };
inline Way wayOf(const OpChoice &choice) {
  if (choice.factor >= 0)
    return Way::Split;
  return choice.linear >= 0 ? Way::Linear : Way::Whole;
}

/// Predicted time of an op. On partial operands its arithmetic is that of the
/// whole op, but its memory traffic is priced like a T-th part: scaling and
/// adding partial products folds into the product that makes them (alpha and
/// beta of a GEMM) or into the reduction that follows. Were it priced whole,
/// each of Mixtral's experts would get a reduction of its own.
int64_t opPicoseconds(const Problem &problem, const OpInfo &op, Way way);

} // namespace concord::sharding::detail

#endif // CONCORD_ANALYSIS_SHARDING_MODEL_H

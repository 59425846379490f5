//===- Uniform.h - What the members of a group have in common ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two questions. Does every member of a group reach an operation (control)? And
// which ranks hold the same bits of a value (data)? The first takes a whole
// argument of the entry function on trust, because a program whose ranks
// disagree there hangs anyway; the second does not, because a wrong answer
// would change results.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_UNIFORM_H
#define CONCORD_PASSES_COMMON_UNIFORM_H

#include "comm/Comm.h"
#include "common/RankValues.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace concord {

/// The operands and carried values that decide whether, and how often, the
/// regions of `parent` run.
mlir::SmallVector<mlir::Value> decidingValues(mlir::Operation *parent);

/// Which ranks hold the same bits of each tensor and scalar of a function: a
/// partition of the ranks per value, found in one forward walk (loops to a
/// fixed point). The partition is in terms of classes: ranks of one class are
/// equal, nothing is said of others.
class Equality {
public:
  /// What an argument of the entry that nothing is said of holds.
  enum class Arguments {
    PerRank, ///< what each rank was given
    Whole    ///< the same everywhere, for questions of control
  };
  Equality(mlir::ModuleOp module, int64_t world,
           Arguments arguments = Arguments::PerRank);
  void run(mlir::func::FuncOp function);

  /// Whether all members of each group of `domain` hold the same bits.
  bool isEqual(mlir::Value value, comm::DomainOp domain);
  /// Makes `value`, which is new, as equal as `like` is.
  void alike(mlir::Value value, mlir::Value like);
  void forget(mlir::Value value) { classes.erase(value); }

private:
  using Id = uint32_t;
  using Labels = std::vector<uint32_t>;
  static constexpr Id kSame = 0; ///< one class; the ids of others begin at 1

  Id intern(Labels labels);
  Id meet(Id a, Id b);
  Id get(mlir::Value value) const;
  bool set(mlir::Value value, Id id);
  Id byGroupRank(comm::DomainOp domain);
  Id bySplits(mlir::ArrayAttr splits);
  Id byParts(mlir::DenseI64ArrayAttr parts);
  Id ofArgument(mlir::func::FuncOp function, unsigned index);
  std::optional<Id> ofChangedView(mlir::Operation &op);
  Id ofCollective(comm::CollectiveOpInterface op);
  const std::vector<std::pair<int32_t, int32_t>> &
  placesOf(comm::DomainOp domain);
  bool visit(mlir::Block &block);
  bool visit(mlir::Operation &op);
  bool visitRegions(mlir::Operation &op);

  mlir::ModuleOp module;
  int64_t world;
  Arguments arguments;
  bool wholeArguments;              ///< the partitioner made the module
  RankValues *rankValues = nullptr; ///< while the function is walked
  Id different;                     ///< every rank a class of its own
  std::vector<Labels> table;
  std::map<Labels, Id> ids;
  llvm::DenseMap<std::pair<Id, Id>, Id> meets;
  llvm::DenseMap<mlir::Value, Id> classes;
  llvm::DenseMap<mlir::Operation *, Id> started;
  /// (group, position) of each rank; (-1, -1) outside the domain.
  llvm::DenseMap<mlir::Operation *, std::vector<std::pair<int32_t, int32_t>>>
      places;
  llvm::DenseMap<std::pair<mlir::Operation *, Id>, Id> combined;
};

/// A condition or loop around an issue that its members may not agree on.
struct Divergence {
  mlir::Operation *parent = nullptr; ///< null: all members reach the issue
  mlir::Value origin;
};
/// Remembers what it found out about each condition and loop.
class Reach {
public:
  Divergence of(comm::CollectiveOpInterface issue);

private:
  bool isEqual(mlir::Value value, comm::CollectiveOpInterface issue);

  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, Divergence>
      known;
  /// Of the function that was asked about last, where a search for an origin
  /// found one.
  std::shared_ptr<Equality> equality; ///< a pass that is copied holds one
  mlir::Operation *function = nullptr;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_UNIFORM_H

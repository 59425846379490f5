//===- RankValues.h - Integers that each rank computes ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which part of a tensor a rank takes is written as arithmetic on its rank, or,
// in HLO, as a table that is looked up by the partition's number. Both are
// evaluated for every rank, so that "the own shard" is recognised by what it is
// and not by how it is spelled.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_RANKVALUES_H
#define CONCORD_PASSES_COMMON_RANKVALUES_H

#include "comm/Comm.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpDefinition.h"

#include <optional>
#include <vector>

namespace concord {

class RankValues {
public:
  RankValues(mlir::ModuleOp module, int64_t world)
      : module(module), world(world) {}

  static constexpr int64_t kUnknown = INT64_MIN;
  using Values = std::vector<int64_t>;

  /// The integer that `value` (a scalar, or a tensor of one element) is on each
  /// rank; an entry is kUnknown where it has none. Null when nothing is known.
  const Values *of(mlir::Value value);
  /// The same of an attribute or value.
  std::optional<Values> of(mlir::OpFoldResult value);

  /// Whether `values` is the group rank in `domain`, times `factor`, on every
  /// rank of the domain.
  bool isPlace(const Values &values, comm::DomainOp domain, int64_t factor);

  void forget(mlir::Value value) { known.erase(value); }

private:
  std::optional<Values> compute(mlir::Value value, unsigned depth);
  std::optional<Values> computeOpaque(comm::ComputeOp op, unsigned depth);
  std::optional<Values> lookUp(mlir::Value table, const Values &index);
  const Values *cached(mlir::Value value, unsigned depth);

  mlir::ModuleOp module;
  int64_t world;
  llvm::DenseMap<mlir::Value, std::optional<Values>> known;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_RANKVALUES_H

//===- CommCost.h - What a collective costs, for the rewrites ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The cost model as rewrites ask it: of domains, and of groups that have none
// yet.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_COMMCOST_H
#define CONCORD_PASSES_COMMON_COMMCOST_H

#include "comm/Comm.h"
#include "common/CostBridge.h"
#include "concord/cost/Cost.h"

#include "mlir/IR/BuiltinOps.h"

namespace concord {

class CommCost {
public:
  using Groups = llvm::ArrayRef<llvm::SmallVector<int64_t>>;

  /// `machine` as CostModel takes it. Emits an error on failure.
  static mlir::FailureOr<CommCost> create(mlir::ModuleOp module,
                                          llvm::StringRef machine);

  /// Seconds of one collective; `bytes` are those of the whole array (the
  /// larger of input and output).
  double seconds(comm::CollectiveKind kind, double bytes,
                 comm::DomainOp domain);
  double seconds(comm::CollectiveKind kind, double bytes, Groups groups) const;
  /// Of the best algorithm that does not go level by level.
  double flatSeconds(comm::CollectiveKind kind, double bytes,
                     comm::DomainOp domain);
  /// Seconds to copy `bytes` within a rank.
  double copySeconds(double bytes) const;
  /// Seconds that an operation computes; 0 for collectives and waits.
  double computeSeconds(mlir::Operation *op) const { return model.compute(op); }

  /// Whether ranks are known to lie on several hosts, and where one lies.
  bool hasHosts() const { return figures.levels.size() > 1; }
  int64_t hostOf(int64_t rank) const {
    return figures.levels.front().blockOf(rank);
  }

private:
  const cost::Placement &placement(comm::DomainOp domain);

  CostModel model;
  cost::Machine figures;
  llvm::DenseMap<mlir::Attribute, cost::Placement> placements; ///< by groups
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_COMMCOST_H

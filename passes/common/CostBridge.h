//===- CostBridge.h - Predicted times of MLIR operations --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the cost model (analysis/cost) says of an operation. Sizes are taken
// from types, so it works on every phase.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_COSTBRIDGE_H
#define CONCORD_PASSES_COMMON_COSTBRIDGE_H

#include "comm/Comm.h"
#include "concord/cost/Cost.h"

#include "mlir/IR/BuiltinOps.h"

namespace concord {

class CostModel {
public:
  /// `machine` as loadMachine takes it. Without a calibration, a module of
  /// opaque computations (from HLO) is costed on the built-in "accelerator",
  /// any other on the "cpu". Emits an error on failure.
  static mlir::FailureOr<CostModel> create(mlir::ModuleOp module,
                                           llvm::StringRef machine);

  const cost::Machine &machine() const { return figures; }

  /// A collective on `domain` of the module; `bytes` is the whole array.
  cost::CollectiveCost
  collective(comm::CollectiveKind kind, double bytes, llvm::StringRef domain,
             cost::Algorithm algorithm = cost::Algorithm::Auto) const;
  cost::CollectiveCost collective(comm::CollectiveOpInterface op) const;
  /// Members of the largest group of a domain; 1 when there is no such domain.
  int64_t groupSize(llvm::StringRef domain) const;
  /// Whether the members of the domain's groups move its bytes by themselves:
  /// then nothing can be hidden behind computation on the same cores.
  bool movesByCore(llvm::StringRef domain) const;

  /// Computation of one operation, regions included (a loop counts its trips,
  /// or once where they are not known; a branch its longest arm); 0 for what
  /// costs nothing. Collectives inside are not counted.
  double compute(mlir::Operation *op) const;
  /// The product that is part of a fused collective; 0 for none.
  double fusedProduct(comm::FusedOp op) const;

private:
  cost::Machine figures;
  llvm::StringMap<cost::Placement> placements;
};

/// Bytes of the whole array that a collective works on, as comm-bench counts.
double wholeBytes(comm::CollectiveOpInterface op, int64_t groupSize);

/// Bytes of a shaped type; 0 for anything else and for dynamic shapes.
double typeBytes(mlir::Type type);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_COSTBRIDGE_H

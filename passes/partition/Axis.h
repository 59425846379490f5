//===- Axis.h - Splitting a function over one mesh axis ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_PARTITION_AXIS_H
#define CONCORD_PASSES_PARTITION_AXIS_H

#include "comm/Comm.h"
#include "concord/sharding/Solver.h"
#include "import/OnnxImport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>

namespace concord::partition {

/// A value with a dimension for where its parts are and one for where they go:
/// one all_to_all changes which of the two is split.
struct Exchange {
  mlir::Value value;
  /// How it is split once it is made; the solver's choice when there is none.
  std::optional<sharding::Layout> layout;
  bool moves = true; ///< false: only its layout is given
};

struct AxisOptions {
  std::string name;
  int64_t size = 1;
  bool dataParallel = false; ///< split the batch, keep parameters whole
  bool replicateInputs = false, replicateOutputs = false;
  mlir::SmallVector<Exchange> exchanges; ///< of prepareExperts
};

/// The sharding problem of a function, with the tensor number of each value.
struct BoundProblem {
  sharding::Problem problem;
  llvm::DenseMap<mlir::Value, int32_t> tensors;
  mlir::SmallVector<mlir::Value> values;    ///< by tensor number
  mlir::SmallVector<mlir::Operation *> ops; ///< by op number
};

/// Puts what cuts fused projections (queries, keys and values in one matrix)
/// into a form that can be split: Slices become Splits, and where the parts
/// differ in size, columns of parameters are reordered. Computes the same
/// values.
void prepareProjections(mlir::func::FuncOp function,
                        const AxisOptions &options);

/// Makes one computation on stacked parameters of experts that were exported
/// one by one, where the axis divides their number and that of the tokens.
/// Computes the same values.
void stackExperts(mlir::func::FuncOp function, const AxisOptions &options);

/// Brings mixtures of experts with stacked parameters into a form in which
/// tokens are sent to the owners of their experts and what these make of them
/// is sent back. Computes the same values. Empty when there is none, or when
/// the axis divides neither experts nor tokens (which it explains).
mlir::SmallVector<Exchange> prepareExperts(mlir::func::FuncOp function,
                                           const AxisOptions &options);

/// A product of stacked matrices with one and the same tensor reads it where it
/// is, instead of a copy for each.
void readBroadcastInPlace(mlir::func::FuncOp function);

/// Reads rules, shapes and costs from the function's operations. Emits a
/// diagnostic when a data-parallel axis does not divide the batch.
mlir::LogicalResult bindProblem(mlir::func::FuncOp function,
                                const AxisOptions &options,
                                BoundProblem &bound);

/// Rewrites the function to what one rank of `domain` computes.
mlir::LogicalResult applySolution(mlir::func::FuncOp function,
                                  const AxisOptions &options,
                                  mlir::FlatSymbolRefAttr domain,
                                  const BoundProblem &bound,
                                  const sharding::Solution &solution);

/// How a function becomes the programs of a pipeline.
struct StageOptions {
  Mesh mesh;
  int64_t stages = 1;       ///< size of the axis pp
  int64_t microBatches = 1; ///< parts of the batch, one after another
  /// The axis pp; and the one that stood for micro-batches in bindProblem and
  /// applySolution, null without.
  mlir::FlatSymbolRefAttr stageDomain, microDomain;
};

/// Replaces a function that is partitioned over all other axes by one per
/// stage, with a comm.program each; by one that computes all micro-batches, for
/// one stage. Emits a diagnostic when a value depends on the whole batch.
mlir::LogicalResult buildStages(mlir::func::FuncOp function,
                                const StageOptions &options);

} // namespace concord::partition

#endif // CONCORD_PASSES_PARTITION_AXIS_H

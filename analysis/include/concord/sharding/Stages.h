//===- Stages.h - Cutting a graph into pipeline stages ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chooses where a straight-line program is cut into contiguous segments, one
// per pipeline stage. MLIR-free.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SHARDING_STAGES_H
#define CONCORD_SHARDING_STAGES_H

#include "concord/sharding/Reshard.h"

#include <cstdint>
#include <vector>

namespace concord::sharding {

struct StageProblem {
  int64_t stages = 2;
  /// Predicted time of each operation, in program order, for one micro-batch.
  std::vector<double> seconds;
  /// A parameter, stored by every stage that uses it.
  struct Parameter {
    int64_t bytes = 0;
    std::vector<int32_t> uses; ///< operations, ascending
  };
  std::vector<Parameter> parameters;
  /// A value that is sent to every other stage that uses it.
  struct Value {
    int64_t bytes = 0;
    int32_t definition = 0;
    std::vector<int32_t> uses; ///< operations behind `definition`
  };
  std::vector<Value> values;
  /// Parameters that one stage should store at most.
  int64_t mostBytes = INT64_MAX;
  /// Stage that an operation has to be in, or -1. Ascending where given.
  std::vector<int32_t> fixed;
  CostModel cost;
};

struct StageSolution {
  /// Segment of each operation; segments are contiguous and none is empty.
  std::vector<int32_t> segment;
  int32_t segments = 0;
  /// Stage of each segment: its number, but for one more segment than stages,
  /// whose last one runs on stage 0 again.
  std::vector<int32_t> stage;
  int64_t parameterBytes = 0; ///< of the stage that stores most
  double seconds = 0;         ///< of the slowest stage, transfers included
  int64_t crossingBytes = 0;  ///< sent between stages
};

/// Where to cut, by exhaustive search over cuts (dynamic programming). In this
/// order: no stage stores more than `mostBytes` (or, where that cannot be, as
/// little above it as can be); the slowest stage is fastest; the fewest bytes
/// are sent, within 2 % of that time. Where contiguous stages store too much
/// because a parameter is used at both ends (tied embeddings), the end of the
/// program may go to stage 0. Deterministic. Throws std::invalid_argument when
/// there are fewer operations than stages, or `fixed` cannot be met.
StageSolution cutStages(const StageProblem &problem);

} // namespace concord::sharding

#endif // CONCORD_SHARDING_STAGES_H

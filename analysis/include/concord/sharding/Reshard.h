//===- Reshard.h - From one layout to another, step by step -----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The primitive steps by which a tensor changes its layout, what they cost, and
// the one table that says which sequence of steps leads from a layout to
// another. The solver prices this table and the partitioning pass emits it, so
// that what runs is what was priced.
//
//   from          to            steps
//   Replicated    Split         Slice
//   Split         Replicated    AllGather
//   Partial       Replicated    AllReduce
//   Partial       Split         ReduceScatter
//   Split a       Split b       AllGather, Slice; or AllToAll where it is
//   allowed,
//                               both are plain (outer = 1) and on different
//                               dimensions
//   anything      Partial       impossible (except Partial of the same kind)
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SHARDING_RESHARD_H
#define CONCORD_SHARDING_RESHARD_H

#include "concord/sharding/Layout.h"

#include <optional>

namespace concord::sharding {

struct CostModel {
  double flopsPerSecond = 1e11;
  double bytesPerSecond = 2e10;     ///< memory
  double linkBytesPerSecond = 1e10; ///< collectives, per rank
  double latencySeconds = 2e-6;     ///< per collective
  double opSeconds = 2e-7;          ///< fixed cost of any operation
  /// How much the time of a collective counts against that of computation when
  /// layouts are chosen (not in the predicted time). Above 1 because ops are
  /// priced one by one, although later passes fuse elementwise chains:
  /// splitting a chain of five saves much less than five times the traffic of
  /// one, and is not worth a gather of its own; and because ranks never arrive
  /// together.
  double collectiveWeight = 16;
};

enum class StepKind : uint8_t {
  Slice,         ///< local: keep the own part of `to`
  AllGather,     ///< along `from.dim`, with its outer count
  AllReduce,     ///< with `from.reduction`
  ReduceScatter, ///< with `from.reduction`, along `to.dim` with its outer count
  AllToAll,      ///< scatter `to.dim`, gather `from.dim`
};

/// One primitive step. Everything the emitter needs is in the two layouts.
struct Step {
  StepKind kind = StepKind::Slice;
  Layout from;
  Layout to;
  bool operator==(const Step &) const = default;
};

/// A step on a given tensor of a Problem.
struct Reshard {
  int32_t tensor = -1;
  Step step;
  bool operator==(const Reshard &) const = default;
};

bool isCollective(StepKind kind);
const char *toString(StepKind kind);

/// The steps from one layout to another (none when they are equal); nullopt
/// when there is no way, or when a split does not divide the shape.
std::optional<std::vector<Step>> planReshard(const Layout &from,
                                             const Layout &to,
                                             std::span<const int64_t> shape,
                                             int64_t ranks,
                                             bool allToAll = false);

/// The cheapest steps that make `wanted` of what is available; between equal
/// ones the earlier in `available` wins. The first step's `from` says which.
/// Empty when `wanted` is available already.
std::optional<std::vector<Step>>
planReshard(std::span<const Layout> available, const Layout &wanted,
            std::span<const int64_t> shape, int64_t elementBytes, int64_t ranks,
            const CostModel &cost, bool allToAll = false);

/// Bytes that each rank puts on the link in a step on a tensor of `bytes` bytes
/// (whole): 2(T-1)/T for an all-reduce, (T-1)/T for all-gather and
/// reduce-scatter, (T-1)/T^2 for an all-to-all, none for a slice.
double linkBytes(StepKind kind, double bytes, int64_t ranks);

/// Predicted time of a step on a tensor of `bytes` bytes (whole), picoseconds.
/// Integers, so that sums do not depend on their order: the solver's choice is
/// the same on every machine.
int64_t stepPicoseconds(StepKind kind, double bytes, int64_t ranks,
                        const CostModel &cost);

/// What the step counts for in the choice of layouts: its time, that of a
/// collective weighted by CostModel::collectiveWeight.
int64_t stepObjective(StepKind kind, double bytes, int64_t ranks,
                      const CostModel &cost);

/// Rounds seconds to picoseconds; negative and NaN become 0, and anything above
/// 100 s becomes 100 s, so that sums over any graph stay in range.
int64_t toPicoseconds(double seconds);

} // namespace concord::sharding

#endif // CONCORD_SHARDING_RESHARD_H

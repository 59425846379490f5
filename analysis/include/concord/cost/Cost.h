//===- Cost.h - Predicted time of computation and collectives ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Latency and bandwidth terms of each collective under each algorithm, over the
// levels that its group spans. Sizes are those of the whole array, as
// comm-bench counts them: the input of all_reduce, reduce_scatter and
// all_to_all, the output of all_gather, the tensor of broadcast and reduce, the
// root's side of gather and scatter, what one member sends in a permute.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_COST_COST_H
#define CONCORD_COST_COST_H

#include "concord/cost/Machine.h"

#include <array>
#include <span>

namespace concord::cost {

enum class Algorithm : uint8_t {
  Auto,         ///< the cheapest
  Direct,       ///< every member reads its peers' memory, or sends to each peer
  Ring,         ///< neighbour to neighbour, p - 1 steps each way
  Tree,         ///< up and down a binary tree over the levels
  Recursive,    ///< halving and doubling, log2 p steps each way
  Hierarchical, ///< level by level: inside, between, inside again
  Measured,     ///< taken from a calibration's curve, which hides the algorithm
};
const char *toString(Algorithm algorithm);

/// Where the groups of a domain lie on the machine.
struct Placement {
  struct Span {
    /// Members of a group in one block of the level below, at most, and the
    /// number of such blocks that a group lies in, at most.
    int64_t members = 1, blocks = 1;
    /// Bytes/s with which one group leaves one block below when all groups of
    /// the domain do so at once.
    double share = 0;
  };
  int64_t ranks = 1; ///< of the largest group
  /// Groups that move bytes on one host at the same time, at most.
  int64_t groupsPerHost = 1;
  std::vector<Span> levels; ///< one per level of the machine
  /// The highest level that the group crosses, or -1 for a group of one.
  int top() const;
};

/// All groups at once. Ranks beyond the machine's levels count as one block.
Placement place(const Machine &machine,
                std::span<const std::vector<int32_t>> groups);
/// One group of `ranks` neighbours, the first of which is rank 0.
Placement place(const Machine &machine, int64_t ranks);

struct CollectiveCost {
  double seconds = 0;     ///< from the last arrival to the end
  double latency = 0;     ///< the part that does not depend on the size
  double coreSeconds = 0; ///< for which each member's core is busy
  Algorithm algorithm = Algorithm::Auto;
  /// Bytes that one group takes out of the fullest block below each level.
  std::vector<double> levelBytes;
};

/// Predicted cost of one collective. With `algorithm` other than Auto, of that
/// algorithm; one that the kind does not have is answered by Ring.
CollectiveCost collective(const Machine &machine, plan::Kind kind, double bytes,
                          const Placement &placement,
                          Algorithm algorithm = Algorithm::Auto);

/// Computation of one operation on one rank: the longer of arithmetic and
/// memory traffic, and the fixed cost of an operation. `dtype` is the type that
/// it computes in; `bytes` are read and written together.
double compute(const Machine &machine, double flops, double bytes,
               DType dtype = DType::F32);

/// Bytes/s at which one core goes through `footprint` bytes while `active`
/// cores of the host do the same.
double memoryBandwidth(const Machine &machine, double footprint,
                       int64_t active = 1);

/// What a member of a group on shared memory moves.
struct Traffic {
  double local = 0;     ///< loaded and stored where no other core looks
  double taken = 0;     ///< loaded that another core has just stored
  double contended = 0; ///< stored over what another core has loaded since
  double bytes() const { return local + taken; } ///< moved; contended included
};
/// Seconds in which each of `active` cores moves that; `footprint` as for
/// memoryBandwidth. Beyond the caches there is nothing to contend for.
double exchange(const Machine &machine, const Traffic &traffic,
                double footprint, int64_t active);

/// Bytes of the whole array of an issue (see the top of this file).
double wholeBytes(const plan::Issue &issue, int64_t groupSize);

} // namespace concord::cost

#endif // CONCORD_COST_COST_H

//===- Verifier.h - Internals of the certificate check ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared by verify() and solve(). Words used here:
//   node      a sequence of instances: vertex of the rank-group graph
//   instance  (node, index), numbered densely
//   set       matched set: an instance, or the instances that grouped transfers
//             connect; represented by one of its instances (union-find)
//   list      what one (rank, program) issues of one block, in issue order
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_VERIFIER_H
#define CONCORD_ANALYSIS_ORDER_VERIFIER_H

#include "concord/order/Certificate.h"

#include <functional>
#include <unordered_map>

namespace concord::order {

/// Which items of one program are forced to have completed before another one
/// starts: per item a vector of counts, one per stream (a prefix of a FIFO
/// stream completes in order).
class Completion {
public:
  /// `transient[i]`: item i may be absent on some rank or in some round;
  /// nothing is deduced *through* it.
  Completion(const ProgramForm &program, std::vector<bool> transient);
  /// Extend by the next item in order.
  void append(uint32_t item);
  /// Add wait edges to the item appended last.
  void addWaits(uint32_t item, const std::vector<uint32_t> &waits);
  /// Item `before` has completed when item `after` starts. Both appended,
  /// before < after. Transient items are compared directly only.
  bool forced(uint32_t before, uint32_t after) const;

private:
  const ProgramForm &program;
  std::vector<bool> transient;
  uint32_t streams = 0;
  std::vector<uint32_t> streamOf;    ///< dense
  std::vector<uint32_t> position;    ///< in its stream, from 1
  std::vector<uint32_t> clock;       ///< items x streams: at the start
  std::vector<uint32_t> streamClock; ///< streams x streams
  std::vector<uint32_t> streamLength;
  std::vector<uint32_t> hostClock;
  std::unordered_map<uint32_t, uint32_t> domainRow; ///< domain -> row
  std::vector<std::vector<uint32_t>> domainClock;
  std::vector<std::vector<uint32_t>> directWaits; ///< on transient items
  std::unordered_map<uint32_t, uint32_t>
      hostDirect; ///< transient item -> where the host waited

  void join(uint32_t *into, const uint32_t *from) const;
  void joinItem(uint32_t *into, uint32_t item) const;
  void waitOn(uint32_t item, uint32_t waited);
  void publish(uint32_t item);
};

struct Occurrence {
  uint32_t set = 0; ///< instance that represents it
  uint32_t item = 0;
};

struct IssueList {
  Rank rank = 0;
  uint32_t program = 0;
  uint32_t block = 0;
  std::vector<Occurrence> entries;
};

/// The problem spread out over ranks, and the parts of the certificate that do
/// not depend on the order: C4 and C5.
class Expansion {
public:
  Expansion(const OrderProblem &problem, Certificate &out);

  const OrderProblem &problem;
  Certificate &out;
  std::vector<uint64_t> nodeBase; ///< first instance of a node
  std::vector<uint32_t> instanceNode;
  std::vector<IssueList> lists; ///< of blocks that need an order
  std::vector<std::vector<uint32_t>> listsOfBlock;
  std::vector<bool> severalIssuers;  ///< per block: a rank has two programs
  std::vector<bool> collectivesOnly; ///< per block
  std::vector<std::vector<bool>> transient; ///< per program and item
  bool consistent = false; ///< C4 and C5 hold; lists are filled
  /// Scratch of orderBlock, by instance; all zero (or kNone) between calls.
  mutable std::vector<uint32_t> wanted, arrived, standing;

  uint32_t find(uint32_t instance) const;
  std::string itemText(uint32_t program, uint32_t item) const;
  std::string setText(const Occurrence &o, const IssueList &list) const;
  Location itemLocation(uint32_t program, uint32_t item) const;
  ChainEdge::End end(const Occurrence &o, const IssueList &list) const;
  uint64_t indexOf(uint32_t instance) const {
    return instance - nodeBase[instanceNode[instance]];
  }

private:
  struct NodeKey;
  std::vector<std::vector<int32_t>> groupOfRank; ///< per domain
  mutable std::vector<uint32_t>
      setParent; ///< union-find; empty: all singletons
  /// Node by domain and group, kNone if not in use.
  std::vector<std::vector<uint32_t>> collectiveNode, hostNode;
  std::unordered_map<uint64_t, uint32_t> transferNode;

  void fault(Finding::Kind kind, std::string id, std::string title,
             std::string cause, std::string cure, std::vector<Rank> culprits,
             std::vector<std::string> details = {});
  bool buildNodes();
  bool number();
  /// By rank: nodes that it is a member of, rising, and where in them.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> nodesOf;
  /// Zeroes what one rank has counted by node: its own nodes only.
  void reset(std::vector<uint32_t> &local, Rank r) const {
    for (auto [n, k] : nodesOf[size_t(r)])
      local[n] = 0;
  }
  void collect();
  void reportDivergence(uint32_t node, uint64_t index);
  /// The instances that an item takes part in on a rank: calls f(node,
  /// signature).
  template <typename F>
  void visit(Rank rank, const ProgramForm &p, const Item &item, F f) const;
  void unite(uint32_t a, uint32_t b);
};

/// Total order of a block by running the lists against each other; false leaves
/// the cycle in `cycle`.
bool orderBlock(const Expansion &x, uint32_t block,
                std::vector<uint32_t> &order, std::vector<ChainEdge> &cycle);

/// The exact walk test of one block of collectives. `mayHoldUp(list, a, b)`:
/// entry b of the list may hold up entry a. Returns 1 no closed walk, 0 a
/// closed walk (in `walk`), -1 too large.
int walkTest(
    const Expansion &x, uint32_t block,
    const std::function<bool(uint32_t list, uint32_t a, uint32_t b)> &mayHoldUp,
    uint64_t maxEdges, std::vector<ChainEdge> *walk);

} // namespace concord::order

#endif // CONCORD_ANALYSIS_ORDER_VERIFIER_H

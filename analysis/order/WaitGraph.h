//===- WaitGraph.h - Who waits for whom in a stuck state --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The wait-for graph of a stuck, closed state. An edge u -> v says: u cannot
// move until v has (AND edges), so any cycle is a complete explanation. The one
// exception is a free slot, for which one of several holders would do; in a
// stuck state every holder is stuck too, so the edge still tells the truth.
//
// Without a cycle every chain ends at something that never comes: an instance
// that nobody issues, a flag that nobody sets, a thread that stalls.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_WAITGRAPH_H
#define CONCORD_ANALYSIS_ORDER_WAITGRAPH_H

#include "Machine.h"
#include "concord/order/Judge.h"

namespace concord::order {

class WaitGraph {
public:
  WaitGraph(const Machine &machine, const Machine::State &state);

  /// The shortest cycle, rotated to begin at a host thread or at the waiter for
  /// a slot; empty if there is none.
  std::vector<ChainEdge> shortestCycle() const;
  /// The longest of the shortest chains into something that never comes; empty
  /// if there is none.
  std::vector<ChainEdge> chainToMissing() const;

private:
  struct Edge {
    uint32_t to;
    ChainEdge::Reason reason;
    std::string note; ///< replaces the standard sentence
    std::vector<uint32_t> via =
        {}; ///< started operations on the way (GroupSet)
  };
  const Machine &m;
  const Machine::State &s;
  const Program &prog;
  uint32_t nOps, nThreads;
  std::vector<uint32_t> threadOfOp;
  std::vector<std::vector<Edge>> edges;
  std::vector<ChainEdge::End> endings; ///< nodes beyond ops and threads

  uint32_t ending(ChainEdge::End end);
  void addOp(uint32_t op);
  void addThread(uint32_t thread);
  bool needInstance(uint32_t from, uint32_t queue, uint32_t index);
  void neverIssued(uint32_t from, uint32_t index, const Part &part,
                   std::vector<Rank> ranks);
  void needFlag(uint32_t from, uint32_t flag);
  void needHost(uint32_t from, uint32_t thread);
  void needGroupSet(uint32_t op);
  ChainEdge::End end(uint32_t node) const;
  ChainEdge edge(uint32_t from, const Edge &e) const;
  void expand(uint32_t from, const Edge &e, std::vector<ChainEdge> &out) const;
  std::vector<ChainEdge> path(const std::vector<uint32_t> &nodes,
                              bool closed) const;
};

/// Text of an operation with its instance and rank: "AR(W)#0@r0".
std::string opText(const Machine &m, const Machine::State &s, uint32_t op);

/// Divergences visible in a state, the earliest of every domain and direction,
/// most decisive first. Empty if there is none.
std::vector<Finding> findMismatches(const Machine &m, const Machine::State &s);
/// Calls by non-members, roots and peers outside the domain: judged on the
/// text.
std::vector<Finding> findStaticMismatches(const Program &program);
/// Unordered conflicting accesses.
std::vector<Finding> findRaces(const Program &program);

/// Turn a chain into a finding with cause and cure.
Finding explainChain(const Program &program, std::vector<ChainEdge> chain,
                     bool cycle);

} // namespace concord::order

#endif // CONCORD_ANALYSIS_ORDER_WAITGRAPH_H

//===- Certificate.h - One order, and the proof that it holds ---*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The compact form of a multi-rank program (what each rank issues, in order,
// with streams and waits), the rank-group graph with its blocks, the
// certificate C1-C5 / W, its check in time linear in the issues, and the choice
// of an order with the edges that carry it to the streams.
//
// Scope: one device per process. Several issue threads per rank (several
// programs that run on one rank) are certified under `gate=hold` only. What is
// proven, and why, is in docs/rationale-order.md.
//
// Every function here is pure and thread-safe. Nothing is recursive in the
// input, and time and memory are O(issues x streams), the walk test excepted,
// which is bounded by `VerifyOptions::maxWalkEdges`.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ORDER_CERTIFICATE_H
#define CONCORD_ORDER_CERTIFICATE_H

#include "concord/order/Judge.h"

#include <cstdint>
#include <string>
#include <vector>

namespace concord::plan {
struct Plan;
}

namespace concord::order {

/// One transfer of an item, between global ranks.
struct ItemTransfer {
  Rank source = -1, destination = -1;
  bool receive = false;   ///< this item is the receiving side
  uint64_t signature = 0; ///< equal on both sides
  Rank self() const { return receive ? destination : source; }
};

/// One statement of a rank's host program, in issue order.
struct Item {
  enum class Kind : uint8_t {
    Collective,     ///< asynchronous, on a stream
    HostCollective, ///< blocks the thread until every member has called it
    Transfer,       ///< asynchronous: one or several transfers in one launch
    Sync,           ///< the host waits for `stream`, or for everything
    WaitFor,        ///< the host waits for the items in its wait list
    Hazard, ///< allocation, free, kernel load: forbidden inside a region
  };
  static constexpr uint32_t kAllStreams = kNone;

  Kind kind = Kind::Collective;
  bool optional = false;    ///< an optional slot, or inside a uniform branch
  bool synchronous = false; ///< completed when the issuing call returns
  bool captured = false;    ///< part of a captured graph
  uint16_t need = 1;        ///< slots
  uint32_t domain = 0;      ///< index into OrderProblem::domains
  uint32_t stream = 0;
  uint64_t signature = 0; ///< hash of everything that must agree on members
  uint32_t waitBegin = 0, waitCount = 0; ///< in ProgramForm::waits
  /// In ProgramForm::transfers, by the rank that takes part
  /// (ProgramForm::transfer()).
  uint32_t transferBegin = 0, transferCount = 0;
  uint32_t location = kNone; ///< in OrderProblem::locations
  uint32_t name = kNone;     ///< in OrderProblem::names
};

/// What a set of ranks runs.
struct ProgramForm {
  std::string name;
  std::string issuer;
  std::vector<Rank> ranks;
  std::vector<Item> items;
  /// Wait lists: indices of earlier items of this program whose completion
  /// precedes the start of the waiting item.
  std::vector<uint32_t> waits;
  /// For Transfer items; entries in which the rank takes no part are skipped,
  /// so that one list serves all ranks of an SPMD program.
  std::vector<ItemTransfer> transfers;
  /// Of a program of a plan: the part of its body (plan::Turn::unit) that each
  /// item belongs to. Else empty.
  std::vector<uint32_t> units;
  /// Of a program of a plan: the site that each item is an issue of. Else
  /// empty.
  std::vector<uint32_t> sites;

  /// Append helpers that keep the pools right; they return the item's index.
  uint32_t collective(uint32_t domain, uint32_t stream, uint64_t signature,
                      const std::vector<uint32_t> &waitsFor = {});
  uint32_t transfer(uint32_t domain, uint32_t stream,
                    const std::vector<ItemTransfer> &list,
                    const std::vector<uint32_t> &waitsFor = {});
  uint32_t hostCollective(uint32_t domain, uint64_t signature);
  uint32_t sync(uint32_t stream = Item::kAllStreams);
  uint32_t waitFor(const std::vector<uint32_t> &items);
};

/// A domain, partitioned into groups of world ranks.
struct OrderDomain {
  std::string name;
  std::vector<std::vector<Rank>> groups;
  int32_t priority = 0;
};

struct OrderProblem {
  uint32_t world = 1;
  std::vector<OrderDomain> domains;
  std::vector<ProgramForm> programs;
  std::vector<std::string> locations, names;
  std::vector<std::string> assumptions; ///< of the builder; printed with it
  /// Items stand for two of possibly more iterations of a loop. C1 and C2 see
  /// every pair of neighbours then; W would need all iterations and is not
  /// used.
  bool loops = false;
};

/// A node of the rank-group graph.
struct GraphNode {
  enum class Kind : uint8_t { Collective, Host, Transfer, Process };
  Kind kind = Kind::Collective;
  uint32_t domain = 0, group = 0;
  Rank source = -1, destination = -1; ///< Transfer
  std::vector<Rank> members;
};

/// Biconnected components of a bipartite graph between ranks and nodes.
struct RankGroupGraph {
  std::vector<GraphNode> nodes;
  /// edgeBlock[n][k]: the block of the edge from node n to its k-th member.
  std::vector<std::vector<uint32_t>> edgeBlock;
  uint32_t blocks = 0;
  std::vector<uint32_t> blockEdges; ///< number of edges; 1 = a bridge
  bool forest() const;
  std::string describe(const std::vector<OrderDomain> &domains,
                       uint32_t node) const;
};
/// Fill `edgeBlock`, `blocks` and `blockEdges` from `nodes`.
void computeBlocks(RankGroupGraph &graph);

struct BlockCertificate {
  enum class By : uint8_t { Bridge, Order, Walk };
  By by = By::Bridge;
  uint32_t block = 0;
  std::vector<uint32_t> nodes; ///< of the rank-group graph
  uint64_t instances = 0;
};

struct Certificate {
  bool valid = false;
  uint32_t version = 1;
  std::string digest; ///< SHA-256, hex, of order and assumptions
  std::vector<std::string> assumes;
  RankGroupGraph graph;
  std::vector<BlockCertificate> blocks;
  uint64_t issues = 0, instances = 0; ///< over all ranks
  uint32_t maxNeed = 1;
  /// Why it is not valid: mismatches, missing participants, cycles, unordered
  /// starts, in this order.
  std::vector<Finding> faults;
  std::vector<Finding> warnings; ///< hazards inside a region and the like

  /// "forest" / "blocks=3 (2 by order, 1 by=walk) assumes=… digest=…"
  std::string str() const;
};

struct VerifyOptions {
  bool allowWalk = true;
  uint64_t maxWalkEdges = 20000000;
  uint32_t slots = 1; ///< W holds for this K only
};

/// Check issues, streams and waits as they stand. Exact for programs in the
/// compact form up to the sufficient condition C1-C5 / W: a certificate is a
/// proof, its absence is not a proof of a hang unless the fault says so.
Certificate verify(const OrderProblem &problem,
                   const VerifyOptions &options = {});

/// A wait edge that the order needs: `to` starts after `from` has completed.
struct OrderEdge {
  uint32_t program = 0, from = 0, to = 0; ///< item indices of the input
};

struct OrderSolution {
  bool valid = false;
  /// Per program: the issue order, as item indices of the input.
  std::vector<std::vector<uint32_t>> order;
  std::vector<OrderEdge> edges; ///< beyond what streams and waits give already
  uint64_t droppedByWalk = 0; ///< edges of the total order that W made needless
  Certificate certificate;    ///< of the program with order and edges in place
  std::vector<Finding>
      faults; ///< a contradiction of dependences, with its cycle
};

struct SolveOptions {
  /// Keep each program's own issue order. Otherwise only waits, host
  /// statements and index order constrain, and items may be reordered.
  bool keepProgramOrder = true;
  /// Drop edges, one after another, while no walk closes.
  bool dropByWalk = true;
  uint64_t maxWalkEdges = 2000000;
  /// Predicted seconds per item of each program, for the choice among legal
  /// orders (longest remaining path first, then domain priority); optional.
  std::vector<std::vector<double>> seconds;
};

/// Choose one order and the edges that carry it to the streams. Deterministic.
OrderSolution solve(const OrderProblem &problem,
                    const SolveOptions &options = {});

/// Insert order and edges of a solution into a copy of the problem.
OrderProblem apply(const OrderProblem &problem, const OrderSolution &solution);

/// The compact form of a plan table. False with `error` if the plan is not well
/// formed. Loops run twice (enough for the edge back to the next iteration),
/// branch arms and optional slots become optional items, `Wait` nodes and
/// synchronous issues hold the host.
bool fromPlan(const plan::Plan &plan, OrderProblem &problem,
              std::string &error);

/// Fill `plan.rounds`: for every rank that several programs run on, the order
/// of their parts within a round. Round decisions come first, then domain
/// priority, then the programs' own order. False with the reason when the
/// programs' orders contradict each other, or the plan is faulty otherwise.
/// Deterministic; a plan with one program per rank gets no rounds.
bool orderRounds(plan::Plan &plan, std::vector<Finding> &faults);

/// Judge a lowered program by its plan table alone, `plan.rounds` included.
Certificate verifyPlan(const plan::Plan &plan,
                       const VerifyOptions &options = {});

/// An issue of one of a plan's programs.
struct ProgramSite {
  uint32_t program = 0, site = 0;
  bool operator==(const ProgramSite &) const = default;
};

/// Collectives that members of one group run in several programs: of each the
/// sites of all those programs, matched instance by instance as verifyPlan()
/// does, and rising. What only one program has is in no set, and no transfer
/// is, whose two sides do different things. False where the plan does not hold.
bool matchPrograms(const plan::Plan &plan,
                   std::vector<std::vector<ProgramSite>> &sets);

/// The compact form of a small program, for tests and the doctor. False if it
/// has something the compact form cannot say (several devices per process,
/// several threads, locks, flags, finite launch queue).
bool fromProgram(const Program &program, OrderProblem &problem,
                 std::string &why);

/// 64-bit mixing for signatures; stable over machines and releases.
uint64_t mixSignature(uint64_t seed, uint64_t value);
uint64_t hashSignature(std::string_view text);

} // namespace concord::order

#endif // CONCORD_ORDER_CERTIFICATE_H

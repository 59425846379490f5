//===- Order.cpp - comm-order ---------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With one program that every rank runs, program order is one order that all
// ranks agree on and that respects data dependences; carrying all issues on one
// lane carries it to the device. Whoever schedules the operations anew (XLA,
// for a module that came from HLO) needs to keep less than that: only the order
// inside the cyclic blocks of the rank-group graph, and of that only what data
// dependences do not say already. Those pairs are the `edges` of comm.order.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"
#include "concord/order/Certificate.h"

namespace concord {
#define GEN_PASS_DEF_COMMORDER
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

/// A nominal accelerator, for the price of the order only: it says by how much
/// the order lengthens the critical path, not how long a step takes.
constexpr double kFlopsPerSecond = 1e14, kBytesPerSecond = 1e12;
constexpr double kLinkBytesPerSecond = 1e11, kLaunchSeconds = 1e-5;

/// Which cyclic blocks of the rank-group graph each domain has a part in.
llvm::StringMap<SmallVector<uint32_t>>
cyclicBlocks(const order::Certificate &certificate, const plan::Plan &plan,
             uint32_t &count) {
  llvm::StringMap<SmallVector<uint32_t>> result;
  llvm::DenseMap<uint32_t, uint32_t> dense;
  const order::RankGroupGraph &graph = certificate.graph;
  for (auto [node, blocks] : llvm::zip(graph.nodes, graph.edgeBlock)) {
    if (node.domain >= plan.domains.size())
      continue;
    SmallVector<uint32_t> &list = result[plan.domains[node.domain].name];
    for (uint32_t block : blocks) {
      if (graph.blockEdges[block] <= 1)
        continue;
      uint32_t id = dense.try_emplace(block, dense.size()).first->second;
      if (!llvm::is_contained(list, id))
        list.push_back(id);
    }
  }
  count = dense.size();
  return result;
}

/// Chains the issues of each cyclic block in program order, region by region,
/// and follows the critical path with and without the chain. Linear in
/// operations times blocks.
class Chains {
public:
  Chains(const llvm::StringMap<SmallVector<uint32_t>> &blocks, uint32_t count)
      : blocks(blocks), count(count) {}

  /// Seconds on the critical path.
  struct Path {
    double free = 0, ordered = 0;
  };
  Path run(Block &block);

  SmallVector<int64_t> edges; ///< pairs of sites
  bool costed = false;        ///< some operation has a cost

private:
  /// First and last issue in each cyclic block inside an operation; -1: none.
  struct Span {
    SmallVector<int64_t, 2> first, last;
  };
  struct State {
    /// Per cyclic block: the position of the last item of the chain that this
    /// operation depends on.
    SmallVector<int32_t, 2> reached;
    Path finish;
  };
  void note(Span &span, uint32_t block, int64_t site) {
    if (span.first[block] < 0)
      span.first[block] = site;
    span.last[block] = site;
  }
  Span emptySpan() const {
    return {SmallVector<int64_t, 2>(count, -1),
            SmallVector<int64_t, 2>(count, -1)};
  }
  Path durationOf(Operation *op);

  const llvm::StringMap<SmallVector<uint32_t>> &blocks;
  uint32_t count;
  llvm::DenseMap<Operation *, Span> inside; ///< of operations with regions
};

Chains::Path Chains::durationOf(Operation *op) {
  double seconds = 0;
  if (auto compute = dyn_cast<comm::ComputeOp>(op)) {
    double bytes = compute.getBytesRead().value_or(0) +
                   static_cast<double>(compute.getBytesWritten().value_or(0));
    seconds = std::max(compute.getFlops().value_or(0) / kFlopsPerSecond,
                       bytes / kBytesPerSecond);
    costed |= seconds > 0;
  } else if (auto issue = dyn_cast<comm::CollectiveOpInterface>(op)) {
    seconds = kLaunchSeconds;
    for (Value data : {issue.getCollectiveInput(), issue.getCollectiveOutput()})
      if (auto type =
              data ? dyn_cast<ShapedType>(data.getType()) : ShapedType();
          type && type.hasStaticShape())
        seconds += static_cast<double>(type.getNumElements()) *
                   elementBytes(type.getElementType()) / kLinkBytesPerSecond;
  }
  return {seconds, seconds};
}

Chains::Path Chains::run(Block &block) {
  llvm::DenseMap<Operation *, State> states;
  struct Last {
    int64_t site = -1;
    int32_t position = -1;
    double finish = 0;
  };
  SmallVector<Last, 2> last(count);
  Path path;
  Span whole = emptySpan();
  for (Operation &op : block) {
    State state;
    state.reached.assign(count, -1);
    for (Value operand : op.getOperands()) {
      auto from = states.find(operand.getDefiningOp());
      if (from == states.end())
        continue;
      for (uint32_t b = 0; b < count; ++b)
        state.reached[b] = std::max(state.reached[b], from->second.reached[b]);
      state.finish.free = std::max(state.finish.free, from->second.finish.free);
      state.finish.ordered =
          std::max(state.finish.ordered, from->second.finish.ordered);
    }
    Path duration = durationOf(&op);
    Span span = emptySpan();
    if (auto issue = dyn_cast<comm::CollectiveOpInterface>(op)) {
      auto site = op.getAttrOfType<IntegerAttr>("site");
      auto found = blocks.find(issue.getCollectiveDomain().getValue());
      if (site && found != blocks.end())
        for (uint32_t b : found->second)
          note(span, b, site.getInt());
    }
    for (Region &region : op.getRegions())
      for (Block &inner : region) {
        Path nested = run(inner);
        duration.free += nested.free;
        duration.ordered += nested.ordered;
      }
    if (auto found = inside.find(&op); found != inside.end())
      span = found->second;
    for (uint32_t b = 0; b < count; ++b) {
      if (span.first[b] < 0)
        continue;
      if (last[b].site >= 0 && state.reached[b] < last[b].position) {
        // Two blocks may ask for the same pair.
        size_t size = edges.size();
        if (size < 2 || edges[size - 2] != last[b].site ||
            edges[size - 1] != span.first[b])
          edges.append({last[b].site, span.first[b]});
        state.finish.ordered = std::max(state.finish.ordered, last[b].finish);
      }
    }
    state.finish.free += duration.free;
    state.finish.ordered += duration.ordered;
    for (uint32_t b = 0; b < count; ++b) {
      if (span.first[b] < 0)
        continue;
      last[b] = {span.last[b], last[b].position + 1, state.finish.ordered};
      state.reached[b] = last[b].position;
      if (whole.first[b] < 0)
        whole.first[b] = span.first[b];
      whole.last[b] = span.last[b];
    }
    path.free = std::max(path.free, state.finish.free);
    path.ordered = std::max(path.ordered, state.finish.ordered);
    states.try_emplace(&op, std::move(state));
  }
  // What the enclosing operation holds, all its regions together.
  if (Operation *parent = block.getParentOp()) {
    Span &span = inside.try_emplace(parent, emptySpan()).first->second;
    for (uint32_t b = 0; b < count; ++b)
      if (whole.first[b] >= 0) {
        if (span.first[b] < 0)
          span.first[b] = whole.first[b];
        span.last[b] = whole.last[b];
      }
  }
  return path;
}

/// The function that a program of the plan runs.
StringRef programEntry(ModuleOp module, StringRef name) {
  auto program = module.lookupSymbol<comm::ProgramOp>(name);
  return program ? program.getEntry() : name;
}

/// Position of every site of a program in its round, over all issuers; -1 for
/// one that needs no turn. Empty if the program shares no rank.
SmallVector<int64_t> placesInRound(const plan::Plan &plan, size_t program) {
  const plan::Program &own = plan.programs[program];
  for (const plan::Round &round : plan.rounds) {
    if (own.ranks.empty() || !llvm::is_contained(round.ranks, own.ranks[0]))
      continue;
    SmallVector<int64_t> places(own.issues.size(), -1);
    for (auto [place, turn] : llvm::enumerate(round.turns)) {
      if (turn.program != program)
        continue;
      SmallVector<const plan::Node *> worklist = {
          &own.body.children[turn.unit]};
      while (!worklist.empty()) {
        const plan::Node *node = worklist.pop_back_val();
        if (node->type == plan::Node::Type::Issue)
          places[node->site] = static_cast<int64_t>(place);
        for (const plan::Node &child : node->children)
          worklist.push_back(&child);
      }
    }
    return places;
  }
  return {};
}

struct Order : public concord::impl::CommOrderBase<Order> {
  using CommOrderBase::CommOrderBase;

  /// What the certificate rests on: no order at all, the walk test, or the
  /// order.
  static StringRef ground(const order::Certificate &certificate) {
    if (certificate.graph.forest())
      return "forest";
    for (const order::BlockCertificate &block : certificate.blocks)
      if (block.by == order::BlockCertificate::By::Order)
        return "order";
    return "walk";
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    // A solution of an earlier run is replaced.
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<comm::OrderOp, comm::CertificateOp>(op))
        op.erase();

    builder.setInsertionPointToEnd(module.getBody());
    SmallVector<comm::OrderOp> orders;
    for (func::FuncOp function : entryFunctions(module)) {
      SmallVector<int64_t> sites;
      for (comm::CollectiveOpInterface issue : issuesOf(function)) {
        issue->setAttr("site", builder.getI64IntegerAttr(sites.size()));
        sites.push_back(sites.size());
      }
      numSites += sites.size();
      orders.push_back(comm::OrderOp::create(builder, function.getLoc(),
                                             function.getSymName(), sites));
    }
    FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
    if (failed(plan))
      return signalPassFailure();
    order::Certificate certificate = order::verifyPlan(*plan);
    uint32_t count = 0;
    auto blocks = cyclicBlocks(certificate, *plan, count);
    for (comm::OrderOp order : orders) {
      auto function = module.lookupSymbol<func::FuncOp>(order.getProgram());
      Chains chains(blocks, count);
      Chains::Path path;
      for (Block &block : function.getBody()) {
        Chains::Path one = chains.run(block);
        path.free += one.free;
        path.ordered += one.ordered;
      }
      // Where several issuers share a rank: the place of each site in the round
      // of its first rank.
      for (auto [index, program] : llvm::enumerate(plan->programs))
        if (StringRef(programEntry(module, program.name)) == order.getProgram())
          if (SmallVector<int64_t> places = placesInRound(*plan, index);
              !places.empty())
            order->setAttr("round", builder.getDenseI64ArrayAttr(places));
      if (!chains.edges.empty())
        order->setAttr("edges", builder.getDenseI64ArrayAttr(chains.edges));
      if (chains.costed) {
        auto nanoseconds = [&](double seconds) {
          return builder.getI64IntegerAttr(static_cast<int64_t>(seconds * 1e9));
        };
        order->setAttr("path_ns", nanoseconds(path.ordered));
        order->setAttr("unordered_path_ns", nanoseconds(path.free));
      }
    }
    // What is not proven gets no certificate; comm-verify-order says why.
    if (certificate.valid) {
      SmallVector<StringRef> assumes = {!plan->rounds.empty() ? "gate=hold" : "gate=check",
                                        "one issue thread per rank"};
      for (const std::string &text : certificate.assumes)
        if (!llvm::is_contained(assumes, StringRef(text)))
          assumes.push_back(text);
      comm::CertificateOp::create(
          builder, module.getLoc(), 1, ground(certificate),
          plan::toHex(plan::digest(*plan)), builder.getStrArrayAttr(assumes));
    }
    setPhase(module, std::max(getPhase(module), Phase::Ordered));
  }
};

} // namespace

//===- Overlap.cpp - comm-overlap -----------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Turns each block that communicates into a scheduling problem
// (analysis/schedule), and puts its solution back: collectives that something
// hides become comm.start and comm.wait. All ranks of a program get the same
// new order, so that comm-order still finds one that all agree on; between
// programs the relative order of issues is kept. Operations whose effects are
// not known, transfers and barriers hold everything that communicates in place.
//
//===----------------------------------------------------------------------===//

#include "concord/schedule/Overlap.h"
#include "Passes.h"
#include "comm/Comm.h"
#include "common/Choices.h"
#include "common/CostBridge.h"
#include "common/Explain.h"
#include "common/PlanBuilder.h"
#include "common/Workspace.h"
#include "concord/order/Certificate.h"
#include "overlap/Rewrite.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/Support/FormatVariadic.h"

#include <limits>
#include <utility>

namespace concord {
#define GEN_PASS_DEF_COMMOVERLAP
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

using schedule::Action;
using schedule::Node;

bool communicates(Operation *root) {
  return root
      ->walk([](Operation *op) {
        return comm::isIssue(op) ? WalkResult::interrupt()
                                 : WalkResult::advance();
      })
      .wasInterrupted();
}

/// Whether what the blocks of `op` make may be tensors.
bool holdsTensors(Operation *op) {
  return op->getNumRegions() &&
         !isa<comm::CollectiveOpInterface, linalg::LinalgOp, tensor::GenerateOp,
              tensor::PadOp>(op);
}

/// What takes no time and nothing: it goes wherever it is used.
bool isFree(Operation *op) {
  return op->getNumOperands() == 0 && op->getNumRegions() == 0 &&
         op->getNumResults() > 0 && isMemoryEffectFree(op);
}

/// A started collective whose wait is in the same block, outside any launch.
comm::WaitOp waitInBlock(comm::StartOp start) {
  comm::WaitOp found;
  for (Operation *user : start.getFuture().getUsers()) {
    auto wait = dyn_cast<comm::WaitOp>(user);
    if (!wait || wait->getBlock() != start->getBlock())
      return {};
    found = wait;
  }
  return found;
}

class BlockScheduler {
public:
  BlockScheduler(Block &block, const CostModel &cost, bool keepIssueOrder)
      : block(block), cost(cost) {
    problem.keepIssueOrder = keepIssueOrder;
    // A start and a wait, an issue's time each.
    problem.startSeconds = 2 * cost.machine().issueSeconds;
  }

  void build();
  schedule::Problem problem;
  /// Puts `solution` into the IR; returns the number of collectives started.
  unsigned apply(const schedule::Schedule &solution);
  void explainAll(const schedule::Schedule &solution) const;
  /// Bytes beyond its results that a nested operation holds at its peak: as it
  /// was given, and as it is now.
  struct Inside {
    double given = 0, now = 0;
  };
  llvm::DenseMap<Operation *, Inside> inside;
  /// The problem with every nested operation as it was given; only where one
  /// holds more now.
  std::optional<schedule::Problem> givenProblem() const;

private:
  Node::Kind kindOf(Operation *op) const;
  uint32_t newBuffer(double bytes) {
    problem.bytes.push_back(bytes);
    problem.outlives.push_back(false);
    return static_cast<uint32_t>(problem.bytes.size() - 1);
  }
  void use(Value value, Node &node, uint32_t index);
  void place(Operation *op, Operation *before);

  Block &block;
  const CostModel &cost;
  SmallVector<Operation *> ops;    ///< of each node; the start of a pair
  SmallVector<comm::WaitOp> waits; ///< of each node that is a pair
  llvm::DenseMap<Operation *, uint32_t> nodeOf;
  llvm::DenseMap<Value, uint32_t> bufferOf;
  /// Buffers of nested operations that hold more than they were given, with
  /// what they held.
  SmallVector<std::pair<uint32_t, double>> grown;
  llvm::SmallPtrSet<Operation *, 16> unplaced; ///< free, not placed yet
};

Node::Kind BlockScheduler::kindOf(Operation *op) const {
  if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op)) {
    switch (collective.getCollectiveKind()) {
    case comm::CollectiveKind::send:
    case comm::CollectiveKind::recv:
    case comm::CollectiveKind::barrier:
    case comm::CollectiveKind::group:
      return Node::Kind::Barrier;
    default:
      break;
    }
    auto start = dyn_cast<comm::StartOp>(op);
    return !start || waitInBlock(start) ? Node::Kind::Collective
                                        : Node::Kind::Barrier;
  }
  return isMemoryEffectFree(op) ? Node::Kind::Compute : Node::Kind::Barrier;
}

void BlockScheduler::use(Value value, Node &node, uint32_t index) {
  if (Operation *def = value.getDefiningOp())
    if (auto found = nodeOf.find(def);
        found != nodeOf.end() && found->second != index)
      node.needs.push_back(found->second);
  if (auto found = bufferOf.find(value); found != bufferOf.end())
    node.reads.push_back(found->second);
}

void BlockScheduler::build() {
  auto size = static_cast<unsigned>(block.getOperations().size());
  problem.nodes.reserve(size);
  problem.bytes.reserve(size);
  problem.outlives.reserve(size);
  ops.reserve(size);
  waits.reserve(size);
  nodeOf.reserve(size);
  bufferOf.reserve(size);
  for (Operation &op : block.without_terminator()) {
    if (isFree(&op)) {
      unplaced.insert(&op);
      continue;
    }
    // The second half of a pair.
    if (auto wait = dyn_cast<comm::WaitOp>(op))
      if (comm::StartOp start = wait.getStart())
        if (auto found = nodeOf.find(start);
            found != nodeOf.end() && waits[found->second] == wait) {
          nodeOf[&op] = found->second;
          continue;
        }
    auto index = static_cast<uint32_t>(problem.nodes.size());
    Node node;
    node.kind = kindOf(&op);
    comm::WaitOp wait;
    ValueRange results = op.getResults();
    if (node.kind == Node::Kind::Collective) {
      auto collective = cast<comm::CollectiveOpInterface>(op);
      StringRef domain = collective.getCollectiveDomain().getValue();
      node.seconds = cost.collective(collective).seconds;
      // A fused kernel computes while it communicates: it is not started.
      node.onCore =
          cost.movesByCore(domain) || !collective.getCollectiveKernel().empty();
      node.lane = static_cast<uint32_t>(collective.getLane());
      if (comm::DomainOp declared =
              comm::lookupDomain(&op, collective.getCollectiveDomain()))
        node.priority = static_cast<int32_t>(declared.getPriority());
      if (auto start = dyn_cast<comm::StartOp>(op)) {
        wait = waitInBlock(start);
        results = wait->getResults();
      }
    } else {
      node.seconds = cost.compute(&op);
    }
    node.needs.reserve(op.getNumOperands());
    node.reads.reserve(op.getNumOperands());
    for (Value operand : op.getOperands())
      use(operand, node, index);
    if (op.getNumRegions()) {
      llvm::SetVector<Value> above;
      getUsedValuesDefinedAbove(op.getRegions(), above);
      for (Value value : above)
        use(value, node, index);
    }
    // A view of what exists holds nothing of its own, but keeps it alive.
    bool view = isa<ViewLikeOpInterface>(op) && op.getNumOperands() &&
                op.getNumResults() == 1;
    for (Value result : results) {
      if (view) {
        if (auto found = bufferOf.find(op.getOperand(0));
            found != bufferOf.end())
          bufferOf[result] = found->second;
        continue;
      }
      double bytes = typeBytes(result.getType());
      if (bytes <= 0)
        continue;
      uint32_t buffer = newBuffer(bytes);
      bufferOf[result] = buffer;
      node.writes.push_back(buffer);
    }
    auto [given, workspace] = inside.lookup(&op);
    if (auto compute = dyn_cast<comm::ComputeOp>(op))
      workspace += static_cast<double>(compute.getWorkspaceBytes().value_or(0));
    if (workspace > 0) {
      uint32_t buffer = newBuffer(workspace);
      node.writes.push_back(buffer);
      if (op.getNumRegions() && given < workspace)
        grown.emplace_back(buffer, given);
    }
    nodeOf[&op] = index;
    ops.push_back(&op);
    waits.push_back(wait);
    problem.nodes.push_back(std::move(node));
  }
  if (block.mightHaveTerminator())
    for (Value value : block.getTerminator()->getOperands())
      if (auto found = bufferOf.find(value); found != bufferOf.end())
        problem.outlives[found->second] = true;
}

std::optional<schedule::Problem> BlockScheduler::givenProblem() const {
  if (grown.empty())
    return std::nullopt;
  schedule::Problem given = problem;
  for (auto [buffer, bytes] : grown)
    given.bytes[buffer] = bytes;
  return given;
}

/// Moves `op` before `before`, and what it uses that goes anywhere.
void BlockScheduler::place(Operation *op, Operation *before) {
  auto bring = [&](Value value) {
    Operation *def = value.getDefiningOp();
    if (def && unplaced.erase(def))
      def->moveBefore(before);
  };
  if (!unplaced.empty()) {
    for (Value operand : op->getOperands())
      bring(operand);
    if (op->getNumRegions()) {
      llvm::SetVector<Value> above;
      getUsedValuesDefinedAbove(op->getRegions(), above);
      for (Value value : above)
        bring(value);
    }
  }
  op->moveBefore(before);
}

unsigned BlockScheduler::apply(const schedule::Schedule &solution) {
  Operation *end = block.getTerminator();
  unsigned started = 0;
  SmallVector<comm::StartOp> starts(ops.size());
  for (size_t i = 0; i < solution.actions.size(); ++i) {
    auto [kind, n] = solution.actions[i];
    switch (kind) {
    case Action::Kind::Run:
      place(ops[n], end);
      break;
    case Action::Kind::Start: {
      place(ops[n], end);
      if (waits[n]) {
        ++started;
        break;
      }
      // Nothing in between: it stays one operation.
      bool whole = i + 1 < solution.actions.size() &&
                   solution.actions[i + 1] == Action{Action::Kind::Wait, n};
      if (whole) {
        ++i;
        break;
      }
      starts[n] = startCollective(cast<comm::CollectiveOpInterface>(ops[n]));
      ++started;
      break;
    }
    case Action::Kind::Wait:
      if (waits[n])
        waits[n]->moveBefore(end);
      else
        waitForCollective(cast<comm::CollectiveOpInterface>(ops[n]), starts[n],
                          end);
      break;
    }
  }
  for (Value value : end->getOperands())
    if (Operation *def = value.getDefiningOp(); def && unplaced.erase(def))
      def->moveBefore(end);
  return started;
}

void BlockScheduler::explainAll(const schedule::Schedule &solution) const {
  for (const schedule::Decision &decision : solution.decisions) {
    Operation *op = ops[decision.node];
    auto collective = cast<comm::CollectiveOpInterface>(op);
    bool started = decision.hidden > 0;
    explain(op, op->getLoc(), "comm-overlap",
            started ? (decision.earlier ? "start-earlier" : "start") : "keep",
            toString(decision.reason),
            "kind=" +
                comm::stringifyCollectiveKind(collective.getCollectiveKind()) +
                " domain=" + collective.getCollectiveDomain().getValue() +
                " seconds=" + llvm::formatv("{0:e3}", decision.seconds).str() +
                " hidden_seconds=" +
                llvm::formatv("{0:e3}", decision.hidden).str());
  }
}

struct Overlap : public concord::impl::CommOverlapBase<Overlap> {
  using CommOverlapBase::CommOverlapBase;

  LogicalResult scheduleBlock(Block &block, const CostModel &cost,
                              Choices &choices, bool outermost, double growth,
                              BlockScheduler::Inside &peak);
  double givenPeak(Block &block, const CostModel &cost);
  double givenPeak(func::FuncOp function, const CostModel &cost) {
    double most = 0;
    for (Block &block : function.getBody())
      most = std::max(most, givenPeak(block, cost));
    return most;
  }
  double pipelineLoops(func::FuncOp function, const CostModel &cost,
                       bool bounded);
  bool assignLanes(ModuleOp module);
  void removeLanes(ModuleOp module);

  bool several = false, explaining = false;
  int64_t allowed = -1; ///< bytes that the arena may have; negative: growth
  double before = 0, after = 0;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (getPhase(module) >= Phase::Planned) {
      module.emitError("comm-overlap works on tensors; this module has its "
                       "memory planned already, run it before comm-bufferize");
      return signalPassFailure();
    }
    if (growth < 1) {
      module.emitError("comm-overlap: growth is less than 1: the given order "
                       "would not fit");
      return signalPassFailure();
    }
    if (llvm::none_of(module.getOps<func::FuncOp>(),
                      [](func::FuncOp f) { return communicates(f); })) {
      markAllAnalysesPreserved();
      return;
    }
    FailureOr<CostModel> cost = CostModel::create(module, machine);
    if (failed(cost))
      return signalPassFailure();
    explaining = explains(module);
    explain(module, module.getLoc(), "comm-overlap", "cost",
            cost->machine().calibrated ? "calibrated" : "built-in",
            "machine=" + cost->machine().name);
    several = llvm::range_size(module.getOps<comm::ProgramOp>()) > 1;
    // comm-plan-workspace has the last word: only then are buffers known.
    allowed =
        memory >= 0 ? memory.getValue() : memoryLimit(module).value_or(-1);
    if (allowed >= 0 && !memoryLimit(module))
      setMemoryLimit(module, allowed);
    // A solution of an earlier run is not one of the new order.
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<comm::OrderOp, comm::CertificateOp>(op))
        op.erase();
    module.walk([](comm::CollectiveOpInterface op) { op->removeAttr("site"); });
    if (getPhase(module) == Phase::Ordered)
      setPhase(module, Phase::Decomposed);

    Choices choices(module, "comm-overlap");
    if (chunk) {
      auto pieces =
          splitLargeCollectives(module, *cost, chunkBytes, "comm-overlap");
      numChunks += pieces;
    }
    // What each function's schedule may still add to what it holds.
    llvm::DenseMap<Operation *, double> growthOf;
    for (auto function : module.getOps<func::FuncOp>())
      growthOf[function] =
          function.isExternal() || !communicates(function)
              ? growth.getValue()
              : pipelineLoops(function, *cost, choices.bounded());
    bool lanes = assignLanes(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      if (function.isExternal() || !communicates(function))
        continue;
      for (Block &block : function.getBody()) {
        BlockScheduler::Inside peak;
        if (failed(scheduleBlock(block, *cost, choices, /*outermost=*/true,
                                 growthOf.lookup(function), peak)))
          return signalPassFailure();
      }
    }
    // The new order may be one that several lanes do not carry.
    if (lanes && !provable(module))
      removeLanes(module);
    if (failed(choices.finish()))
      return signalPassFailure();
    explain(module, module.getLoc(), "comm-overlap", "schedule",
            after < before ? "list-schedule" : "given-order",
            "seconds_before=" + llvm::formatv("{0:e4}", before).str() +
                " seconds_after=" + llvm::formatv("{0:e4}", after).str());
  }

  /// Loops that communicate by themselves, not in an inner loop.
  static SmallVector<scf::ForOp> loopsOf(func::FuncOp function) {
    SmallVector<scf::ForOp> result;
    function.walk([&](scf::ForOp loop) {
      if (llvm::any_of(*loop.getBody(), [](Operation &op) {
            return isa<comm::CollectiveOpInterface>(op);
          }))
        result.push_back(loop);
    });
    return result;
  }

  /// Whether comm-verify-order would accept the issues as they are.
  static bool provable(ModuleOp module) {
    ScopedDiagnosticHandler silent(module.getContext(),
                                   [](Diagnostic &) { return success(); });
    FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
    return succeeded(plan) && order::verifyPlan(*plan).valid;
  }
};

/// A lane for each priority, where no order between them is needed.
bool Overlap::assignLanes(ModuleOp module) {
  llvm::SmallVector<int64_t> priorities;
  llvm::StringMap<int64_t> of;
  for (auto domain : module.getOps<comm::DomainOp>()) {
    auto priority = static_cast<int64_t>(domain.getPriority());
    of[domain.getSymName()] = priority;
    if (!llvm::is_contained(priorities, priority))
      priorities.push_back(priority);
  }
  if (!lanes || priorities.size() < 2)
    return false;
  bool given = false;
  module.walk(
      [&](comm::CollectiveOpInterface op) { given |= op->hasAttr("lane"); });
  if (given)
    return false;
  llvm::sort(priorities);
  Builder builder(module.getContext());
  module.walk([&](comm::CollectiveOpInterface op) {
    auto lane =
        llvm::find(priorities, of.lookup(op.getCollectiveDomain().getValue())) -
        priorities.begin();
    if (lane)
      op->setAttr("lane", builder.getI64IntegerAttr(lane));
  });
  if (provable(module)) {
    explain(module, module.getLoc(), "comm-overlap", "assign-lanes",
            "priorities", "lanes=" + Twine(priorities.size()));
    return true;
  }
  removeLanes(module);
  return false;
}

void Overlap::removeLanes(ModuleOp module) {
  module.walk([](comm::CollectiveOpInterface op) { op->removeAttr("lane"); });
  explain(module, module.getLoc(), "comm-overlap", "one-lane",
          "order-needs-it");
}

double Overlap::givenPeak(Block &block, const CostModel &cost) {
  if (!block.mightHaveTerminator())
    return 0;
  BlockScheduler scheduler(block, cost, /*keepIssueOrder=*/true);
  for (Operation &op : block)
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        if (holdsTensors(&op)) {
          auto &most = scheduler.inside[&op];
          most.given = most.now = std::max(most.now, givenPeak(inner, cost));
        }
  scheduler.build();
  return schedule::overlap(scheduler.problem).bytesBefore;
}

/// Pipelines the loops of `function`, unless that alone holds more than may be
/// held. Returns the growth that is left to its schedule.
double Overlap::pipelineLoops(func::FuncOp function, const CostModel &cost,
                              bool bounded) {
  // Ranks of another program meet these collectives in the order given.
  if (!pipeline || several || keepIssueOrder)
    return growth;
  SmallVector<scf::ForOp> loops = loopsOf(function);
  if (loops.empty())
    return growth;
  // How often a loop runs may follow the sizes.
  if (bounded) {
    for (scf::ForOp loop : loops)
      explain(function, loop.getLoc(), "comm-overlap", "keep-in-iteration",
              "bounded-sizes");
    return growth;
  }
  double given = givenPeak(function, cost);
  OwningOpRef<func::FuncOp> saved(function.clone());
  unsigned moved = 0;
  for (scf::ForOp loop : loops)
    moved += pipelineLoop(loop, cost);
  if (!moved)
    return growth;
  double now = givenPeak(function, cost);
  double limit = allowed >= 0 ? static_cast<double>(allowed) : given * growth;
  if (now > limit) {
    function.getBody().takeBody(saved->getBody());
    explain(function, function.getLoc(), "comm-overlap", "keep-loops",
            "memory-limit",
            "bytes_before=" + Twine(static_cast<int64_t>(given)) +
                " bytes_pipelined=" + Twine(static_cast<int64_t>(now)) +
                " limit_bytes=" + Twine(static_cast<int64_t>(limit)));
    return growth;
  }
  numPipelined += moved;
  return now > given && given > 0 ? growth * given / now : growth.getValue();
}

/// Takes the actions that were chosen for all members of a program with bounded
/// dimensions. False when they are none of this block.
static bool choose(schedule::Schedule &solution,
                   const schedule::Problem &problem, Choices &choices) {
  if (!choices.bounded())
    return true;
  std::vector<Action> own = std::move(solution.actions);
  auto count = choices(static_cast<int64_t>(own.size()));
  if (count < 0 || count > 3 * static_cast<int64_t>(problem.nodes.size()))
    return false;
  solution.actions.clear();
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    Action mine = i < own.size() ? own[i] : Action{Action::Kind::Run, 0};
    int64_t kind = choices(static_cast<int64_t>(mine.kind));
    int64_t node = choices(static_cast<int64_t>(mine.node));
    if (kind < 0 || kind > static_cast<int64_t>(Action::Kind::Wait) ||
        node < 0 || node >= static_cast<int64_t>(problem.nodes.size()))
      return false;
    solution.actions.push_back(
        {static_cast<Action::Kind>(kind), static_cast<uint32_t>(node)});
  }
  // How much memory it may hold was asked for the first member.
  double limit =
      std::exchange(solution.limit, std::numeric_limits<double>::infinity());
  bool fits = schedule::verify(problem, solution).empty();
  solution.limit = limit;
  return fits;
}

LogicalResult Overlap::scheduleBlock(Block &block, const CostModel &cost,
                                     Choices &choices, bool outermost,
                                     double growth,
                                     BlockScheduler::Inside &peak) {
  // A block of a function that returns in another way has no single end.
  if (!block.mightHaveTerminator())
    return success();
  BlockScheduler scheduler(block, cost, several || keepIssueOrder);
  for (Operation &op : block)
    for (Region &region : op.getRegions())
      for (Block &inner : region) {
        if (!holdsTensors(&op))
          continue;
        BlockScheduler::Inside innerPeak;
        if (!communicates(&op))
          innerPeak.given = innerPeak.now = givenPeak(inner, cost);
        else if (failed(scheduleBlock(inner, cost, choices, /*outermost=*/false,
                                      growth, innerPeak)))
          return failure();
        BlockScheduler::Inside &most = scheduler.inside[&op];
        most.given = std::max(most.given, innerPeak.given);
        most.now = std::max(most.now, innerPeak.now);
      }
  scheduler.build();
  if (llvm::none_of(scheduler.problem.nodes, [](const Node &node) {
        return node.kind == Node::Kind::Collective;
      }))
    return success();
  // Each block may grow in proportion: then so does the sum of an inner one and
  // what surrounds it. A limit in bytes leaves inner blocks with what they
  // hold.
  bool limited = allowed >= 0;
  scheduler.problem.growth = limited ? 1.0 : growth;
  scheduler.problem.align = 64; // as comm-plan-workspace by default
  scheduler.problem.limit =
      outermost && limited ? static_cast<double>(allowed) : -1;
  std::optional<double> givenBytes;
  if (std::optional<schedule::Problem> given = scheduler.givenProblem()) {
    givenBytes = schedule::overlap(*given).bytesBefore;
    if (!limited) {
      // Rounding apart, the order as it stands is within that.
      schedule::Problem &problem = scheduler.problem;
      problem.limit = *givenBytes * growth * (1 + 1e-9);
    }
  }
  schedule::Schedule solution = schedule::overlap(scheduler.problem);
  // Buffers may turn out to be fewer than values, so that the given order is
  // not over the limit after all; nothing may be added to it.
  if (!solution.possible) {
    scheduler.problem.limit = -1;
    solution = schedule::overlap(scheduler.problem);
  }
  if (!choose(solution, scheduler.problem, choices)) {
    choices.mismatch();
    return choices.finish();
  }
  peak.given = givenBytes.value_or(solution.bytesBefore);
  peak.now = solution.bytesAfter;
  before += solution.secondsBefore;
  after += solution.secondsAfter;
  if (explaining) {
    scheduler.explainAll(solution);
    Operation *parent = block.getParentOp();
    explain(
        parent, parent->getLoc(), "comm-overlap", "memory",
        limited && outermost ? "limit" : "growth",
        "bytes_before=" + Twine(static_cast<int64_t>(solution.bytesBefore)) +
            " bytes_after=" + Twine(static_cast<int64_t>(solution.bytesAfter)) +
            " arena_bytes=" + Twine(static_cast<int64_t>(solution.arenaAfter)) +
            " limit_bytes=" + Twine(static_cast<int64_t>(solution.limit)));
  }
  numStarts += scheduler.apply(solution);
  return success();
}

} // namespace

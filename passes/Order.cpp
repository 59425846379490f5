//===- Order.cpp - comm-order ---------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One order for all ranks and programs. Only what lies in a cyclic block of the
// rank-group graph needs one; it is chosen by predicted time, the operations
// are put in it, and the issues of a block share a lane, which carries the
// order to the device. Domains that no block joins get lanes of their own. A
// module whose programs disagree is put in an order that all can follow, if
// there is one.
//
// Whoever schedules the operations anew (XLA, for a module that came from HLO)
// needs to keep less than that: inside the blocks, what data dependences do not
// say already and the walk test does not find needless. Those pairs are the
// `edges` of comm.order.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/CostBridge.h"
#include "common/Explain.h"
#include "common/Fences.h"
#include "common/Issuers.h"
#include "common/PlanBuilder.h"
#include "concord/order/Certificate.h"
#include "concord/order/Schedule.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"

#include <map>
#include <queue>
#include <set>

namespace concord {
#define GEN_PASS_DEF_COMMORDER
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

/// What the certificate says of operations that it cannot see into: they stay
/// where they are among the issues, as if they were issues of every domain.
static std::string unknownOperations(ModuleOp module) {
  size_t count = 0;
  Operation *first = nullptr;
  for (func::FuncOp function : entryFunctions(module))
    function.walk([&](Operation *op) {
      if (op == function.getOperation() || !concord::isUnknown(*op))
        return;
      first = count++ ? first : op;
    });
  if (!count)
    return {};
  return std::to_string(count) + " unknown operation" + (count > 1 ? "s" : "") +
         " as if of every domain, the first " +
         first->getName().getStringRef().str() + " at " +
         describeLocation(first->getLoc());
}

namespace {

/// Edges are tried one by one for being needless up to this many issues.
constexpr size_t kMostWalkSites = 256;
/// Classes of blocks are bits of a word; what is beyond shares the last one.
constexpr uint32_t kMostClasses = 64;

/// Where the rank-group graph needs an order. Cyclic blocks of the same domains
/// look the same to a program, and are one class.
struct Classes {
  llvm::StringMap<SmallVector<uint32_t>> ofDomain;
  llvm::StringMap<int64_t> lanes;
  uint32_t count = 0;

  Classes(const order::Certificate &certificate, const plan::Plan &plan) {
    const order::RankGroupGraph &graph = certificate.graph;
    std::map<uint32_t, std::set<uint32_t>> blocks; // to domains
    for (auto [node, list] : llvm::zip(graph.nodes, graph.edgeBlock))
      for (uint32_t block : list)
        if (node.domain < plan.domains.size() && graph.blockEdges[block] > 1)
          blocks[block].insert(node.domain);
    std::map<std::set<uint32_t>, uint32_t> seen;
    llvm::EquivalenceClasses<uint32_t> together;
    for (auto &[block, domains] : blocks) {
      for (uint32_t domain : domains)
        together.unionSets(*domains.begin(), domain);
      uint32_t id = std::min<uint32_t>(seen.size(), kMostClasses - 1);
      if (!seen.try_emplace(domains, id).second)
        continue;
      count = std::max(count, id + 1);
      for (uint32_t domain : domains) {
        auto &classes = ofDomain[plan.domains[domain].name];
        if (!llvm::is_contained(classes, id))
          classes.push_back(id);
      }
    }
    // Domains in use are numbered as they stand; those of one block as their
    // first.
    std::set<uint32_t> used;
    for (const plan::Program &program : plan.programs)
      for (const plan::Issue &issue : program.issues)
        used.insert(issue.domain);
    std::map<uint32_t, int64_t> laneOf;
    for (uint32_t index : used) {
      uint32_t leader = index;
      if (auto found = together.findLeader(index);
          found != together.member_end())
        leader = *found;
      lanes[plan.domains[index].name] =
          laneOf.try_emplace(leader, int64_t(laneOf.size())).first->second;
    }
  }

  ArrayRef<uint32_t> of(comm::CollectiveOpInterface issue) const {
    auto found = ofDomain.find(issue.getCollectiveDomain().getValue());
    if (found == ofDomain.end())
      return {};
    return found->second;
  }
};

/// Seconds on the critical path, in whole picoseconds so that all machines
/// agree.
struct Path {
  int64_t free = 0, ordered = 0;
  void include(const Path &other) {
    free = std::max(free, other.free);
    ordered = std::max(ordered, other.ordered);
  }
};

/// Orders the issues of each class block by block, and follows the critical
/// path with and without that order.
class Chains {
public:
  Chains(const Classes &classes, const CostModel &model,
         const llvm::StringMap<int64_t> &priorities)
      : classes(classes), model(model), priorities(priorities),
        count(classes.count) {}

  /// Puts the operations of `block` and all inside in the order of least
  /// predicted time. Only what is costed and in value form is moved. Returns
  /// whether something was.
  bool choose(Block &block);
  Path run(Block &block);

  SmallVector<int64_t> edges; ///< pairs of sites
  bool costed = false;        ///< some computation has a cost
  /// Per domain: the longest path through its operations.
  llvm::StringMap<Path> through;

private:
  /// First and last issue of each class inside an operation; -1: none.
  struct Span {
    SmallVector<int64_t, 2> first, last;
    bool any() const {
      return llvm::any_of(first, [](int64_t site) { return site >= 0; });
    }
  };
  /// What only a task with issues has.
  struct Issues {
    Span span;
    SmallVector<StringRef, 1> domains;
    SmallVector<uint32_t, 2> chained; ///< tasks that the order puts before
    int32_t priority = 0;
  };
  struct Task {
    Operation *op;
    Path duration, end, tail;
    size_t firstAfter, numAfter; ///< in `after`
    int32_t issues = -1;         ///< in `issues`
  };
  struct Tasks {
    std::vector<Task> list;
    std::vector<uint32_t> after; ///< tasks that come before each
    std::vector<Issues> issues;
    ArrayRef<uint32_t> afterOf(const Task &task) const {
      return ArrayRef(after).slice(task.firstAfter, task.numAfter);
    }
  };

  Span emptySpan() const {
    return {SmallVector<int64_t, 2>(count, -1),
            SmallVector<int64_t, 2>(count, -1)};
  }
  static bool hasIssues(Operation *op) {
    return op
        ->walk([](Operation *inner) {
          return comm::isIssue(inner) ? WalkResult::interrupt()
                                      : WalkResult::advance();
        })
        .wasInterrupted();
  }
  /// Whether issues may move past it as far as values allow.
  static bool isFree(Operation *op) {
    return isMemoryEffectFree(op) || isFreeToo(op);
  }
  static bool isFreeToo(Operation *op) {
    if (comm::isIssue(op))
      return true;
    if (auto compute = dyn_cast<comm::ComputeOp>(op))
      return !compute.getTouchesAll() && !compute.getTouches();
    return op->getNumRegions() > 0 &&
           llvm::all_of(op->getRegions(), [](Region &region) {
             return llvm::all_of(region.getOps(), [](Operation &inner) {
               return isFree(&inner);
             });
           });
  }
  Tasks tasksOf(Block &block);

  const Classes &classes;
  const CostModel &model;
  const llvm::StringMap<int64_t> &priorities;
  uint32_t count;
};

int64_t picoseconds(double seconds) {
  return static_cast<int64_t>(std::min(seconds, 1e6) * 1e12 + 0.5);
}

/// One task per operation.
Chains::Tasks Chains::tasksOf(Block &block) {
  Tasks tasks;
  size_t size = block.getOperations().size();
  tasks.list.reserve(size);
  tasks.after.reserve(2 * size);
  llvm::DenseMap<Operation *, uint32_t> number;
  number.reserve(size);
  SmallVector<uint32_t> sincePin, after;
  int64_t pin = -1;
  for (Operation &op : block) {
    auto index = static_cast<uint32_t>(tasks.list.size());
    number[&op] = index;
    Task task;
    task.op = &op;
    after.clear();
    auto depend = [&](Value value) {
      if (Operation *definition = value.getDefiningOp())
        if (auto found = number.find(definition); found != number.end())
          after.push_back(found->second);
    };
    for (Value operand : op.getOperands())
      depend(operand);
    bool holds = false;
    if (op.getNumRegions()) {
      llvm::SetVector<Value> captured;
      getUsedValuesDefinedAbove(op.getRegions(), captured);
      for (Value value : captured)
        depend(value);
      holds = hasIssues(&op);
    }
    auto note = [&](comm::CollectiveOpInterface issue) {
      if (task.issues < 0) {
        task.issues = static_cast<int32_t>(tasks.issues.size());
        tasks.issues.push_back({emptySpan(), {}, {}, 0});
      }
      Issues &own = tasks.issues[task.issues];
      StringRef domain = issue.getCollectiveDomain().getValue();
      if (!llvm::is_contained(own.domains, domain))
        own.domains.push_back(domain);
      own.priority = std::max(own.priority,
                              static_cast<int32_t>(priorities.lookup(domain)));
      auto site = issue->getAttrOfType<IntegerAttr>("site");
      for (uint32_t c : classes.of(issue)) {
        int64_t at = site ? site.getInt() : 0;
        if (own.span.first[c] < 0)
          own.span.first[c] = at;
        own.span.last[c] = at;
      }
    };
    if (auto issue = dyn_cast<comm::CollectiveOpInterface>(op)) {
      note(issue);
      int64_t time = picoseconds(model.collective(issue).seconds);
      task.duration = {time, time};
    } else if (holds) {
      op.walk([&](comm::CollectiveOpInterface issue) { note(issue); });
      for (Region &region : op.getRegions())
        for (Block &inner : region) {
          Path path = run(inner);
          task.duration.free += path.free;
          task.duration.ordered += path.ordered;
        }
    } else {
      int64_t time = picoseconds(model.compute(&op));
      costed |= time > 0 && isa<comm::ComputeOp>(op);
      task.duration = {time, time};
    }
    // Everything keeps its place around what has effects of its own.
    bool pure = isMemoryEffectFree(&op);
    if ((!pure && !isFreeToo(&op)) || op.hasTrait<OpTrait::IsTerminator>()) {
      after.append(sincePin.begin(), sincePin.end());
      sincePin.clear();
      if (pin >= 0)
        after.push_back(static_cast<uint32_t>(pin));
      pin = index;
    } else {
      if (pin >= 0 && !pure)
        after.push_back(static_cast<uint32_t>(pin));
      sincePin.push_back(index);
    }
    llvm::sort(after);
    after.erase(llvm::unique(after), after.end());
    task.firstAfter = tasks.after.size();
    task.numAfter = after.size();
    tasks.after.insert(tasks.after.end(), after.begin(), after.end());
    tasks.list.push_back(task);
  }
  return tasks;
}

bool Chains::choose(Block &block) {
  bool moved = false;
  for (Operation &op : block)
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        moved |= choose(inner);
  bool movable = false;
  for (Operation &op : block) {
    // Launches are grouped where they stand, and buffers have an order too.
    if (isa<comm::GroupOp>(op) ||
        llvm::any_of(op.getOperandTypes(), llvm::IsaPred<BaseMemRefType>))
      return moved;
    movable |= comm::isIssue(&op);
  }
  if (!movable || !count)
    return moved;
  Tasks tasks = tasksOf(block);
  edges.clear();
  // In a compiled program computations are issued in their order anyway.
  if (!costed)
    return moved;
  size_t size = tasks.list.size();
  std::vector<order::ScheduleTask> problem(size);
  std::vector<uint32_t> given;
  for (auto [index, task] : llvm::enumerate(tasks.list)) {
    order::ScheduleTask &one = problem[index];
    one.picoseconds = task.duration.ordered;
    ArrayRef<uint32_t> after = tasks.afterOf(task);
    one.after.assign(after.begin(), after.end());
    if (task.issues < 0)
      continue;
    const Issues &issues = tasks.issues[task.issues];
    one.communicates = true;
    one.priority = issues.priority;
    for (uint32_t c = 0; c < count; ++c)
      if (issues.span.first[c] >= 0)
        one.blocks |= uint64_t(1) << c;
    if (one.blocks)
      given.push_back(static_cast<uint32_t>(index));
  }
  order::Schedule schedule = order::chooseOrder(problem);
  if (schedule.order == given)
    return moved;
  // Everything else keeps its order as far as the new one allows.
  std::vector<std::vector<uint32_t>> next(size);
  std::vector<uint32_t> waiting(size, 0);
  auto edge = [&](uint32_t a, uint32_t b) {
    next[a].push_back(b);
    ++waiting[b];
  };
  for (auto [index, task] : llvm::enumerate(tasks.list))
    for (uint32_t before : tasks.afterOf(task))
      edge(before, static_cast<uint32_t>(index));
  for (size_t i = 1; i < schedule.order.size(); ++i)
    edge(schedule.order[i - 1], schedule.order[i]);
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
  for (uint32_t t = 0; t < size; ++t)
    if (!waiting[t])
      ready.push(t);
  std::vector<uint32_t> sorted;
  while (!ready.empty()) {
    uint32_t t = ready.top();
    ready.pop();
    sorted.push_back(t);
    for (uint32_t follower : next[t])
      if (--waiting[follower] == 0)
        ready.push(follower);
  }
  // A total order over several classes can close a cycle that one per class
  // does not: then the order stays.
  if (sorted.size() != size)
    return moved;
  for (uint32_t t : sorted)
    tasks.list[t].op->moveBefore(&block, block.end());
  explain(block.getParentOp(), block.getParentOp()->getLoc(), "comm-order",
          "reorder", "least-predicted-time",
          "picoseconds=" + Twine(schedule.picoseconds) +
              " before_picoseconds=" + Twine(schedule.programOrder) +
              " optimal=" + Twine(schedule.optimal));
  return true;
}

Path Chains::run(Block &block) {
  Tasks tasks = tasksOf(block);
  struct Last {
    int64_t site = -1;
    int32_t position = -1;
    uint32_t task = 0;
  };
  SmallVector<Last, 2> last(count);
  // Per task and class: the position of the last item of the chain that it
  // depends on.
  std::vector<int32_t> reachedOf(tasks.list.size() * count, -1);
  auto reached = [&](size_t task) { return reachedOf.data() + task * count; };
  Path path;
  for (auto [index, task] : llvm::enumerate(tasks.list)) {
    int32_t *own = reached(index);
    for (uint32_t before : tasks.afterOf(task)) {
      for (uint32_t c = 0; c < count; ++c)
        own[c] = std::max(own[c], reached(before)[c]);
      task.end.include(tasks.list[before].end);
    }
    Issues *issues = task.issues < 0 ? nullptr : &tasks.issues[task.issues];
    for (uint32_t c = 0; issues && c < count; ++c) {
      int64_t first = issues->span.first[c];
      if (first < 0 || last[c].site < 0 || own[c] >= last[c].position)
        continue;
      // Two classes may ask for the same pair.
      size_t size = edges.size();
      if (size < 2 || edges[size - 2] != last[c].site ||
          edges[size - 1] != first)
        edges.append({last[c].site, first});
      issues->chained.push_back(last[c].task);
      task.end.ordered =
          std::max(task.end.ordered, tasks.list[last[c].task].end.ordered);
    }
    task.end.free += task.duration.free;
    task.end.ordered += task.duration.ordered;
    for (uint32_t c = 0; issues && c < count; ++c) {
      if (issues->span.first[c] < 0)
        continue;
      last[c] = {issues->span.last[c], last[c].position + 1,
                 static_cast<uint32_t>(index)};
      own[c] = last[c].position;
    }
    path.include(task.end);
  }
  // What still comes behind each; then the longest path through a domain.
  for (size_t index = tasks.list.size(); index-- > 0;) {
    Task &task = tasks.list[index];
    Path whole = {task.tail.free + task.duration.free,
                  task.tail.ordered + task.duration.ordered};
    for (uint32_t before : tasks.afterOf(task))
      tasks.list[before].tail.include(whole);
    if (task.issues < 0)
      continue;
    const Issues &issues = tasks.issues[task.issues];
    for (uint32_t before : issues.chained)
      tasks.list[before].tail.ordered =
          std::max(tasks.list[before].tail.ordered, whole.ordered);
    for (StringRef domain : issues.domains)
      through[domain].include({task.end.free + task.tail.free,
                               task.end.ordered + task.tail.ordered});
  }
  return path;
}

//===----------------------------------------------------------------------===//
// Over all programs
//===----------------------------------------------------------------------===//

/// The plan as whoever schedules anew sees it: every issue on a stream of its
/// own, after what its data come from and nothing else. Issues only, no loops.
struct Loose {
  plan::Plan plan;
  bool straight = true;
  size_t sites = 0;
};

Loose loosen(ModuleOp module, const plan::Plan &plan,
             ArrayRef<func::FuncOp> entries) {
  Loose loose{plan, true, 0};
  for (auto [entry, program] : llvm::zip(entries, loose.plan.programs)) {
    func::FuncOp function = entry;
    SmallVector<comm::CollectiveOpInterface> issues = issuesOf(function);
    loose.sites += issues.size();
    if (loose.sites > kMostWalkSites ||
        program.issues.size() != issues.size() ||
        !function.getBody().hasOneBlock() ||
        llvm::any_of(issues, [&](comm::CollectiveOpInterface issue) {
          return issue->getParentOp() != function ||
                 llvm::any_of(issue->getOperandTypes(),
                              llvm::IsaPred<BaseMemRefType>);
        })) {
      loose.straight = false;
      return loose;
    }
    auto width = static_cast<unsigned>(issues.size());
    llvm::DenseMap<Operation *, unsigned> number;
    for (auto [i, issue] : llvm::enumerate(issues))
      number[issue] = static_cast<unsigned>(i);
    program.body = plan::Node{plan::Node::Type::Seq};
    llvm::DenseMap<Operation *, llvm::BitVector> from; // nearest issues
    llvm::BitVector pinned(width), all(width);
    for (Operation &op : function.getBody().front()) {
      llvm::BitVector mine(width);
      auto depend = [&](Value value) {
        auto found = from.find(value.getDefiningOp());
        if (found != from.end())
          mine |= found->second;
      };
      for (Value operand : op.getOperands())
        depend(operand);
      llvm::SetVector<Value> captured;
      getUsedValuesDefinedAbove(op.getRegions(), captured);
      for (Value value : captured)
        depend(value);
      auto compute = dyn_cast<comm::ComputeOp>(op);
      bool free =
          isMemoryEffectFree(&op) || comm::isIssue(&op) ||
          isa<comm::WaitOp>(op) ||
          (compute && !compute.getTouchesAll() && !compute.getTouches());
      if (!free) {
        pinned |= all;
        mine |= pinned;
      }
      auto at = number.find(&op);
      if (at == number.end()) {
        from[&op] = mine;
        continue;
      }
      mine |= pinned;
      plan::Issue &issue = program.issues[at->second];
      issue.lane = at->second;
      issue.synchronous = false;
      issue.records = {at->second};
      for (unsigned before : mine.set_bits())
        issue.waits.push_back(before);
      plan::Node node{plan::Node::Type::Issue};
      node.site = at->second;
      program.body.children.push_back(node);
      llvm::BitVector self(width);
      self.set(at->second);
      from[&op] = self;
      all.set(at->second);
    }
  }
  return loose;
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

  using IssueLists = std::vector<SmallVector<comm::CollectiveOpInterface>>;

  /// Gives the issues of each entry their sites, and returns them.
  static IssueLists number(ArrayRef<func::FuncOp> entries) {
    IssueLists lists;
    for (func::FuncOp function : entries) {
      lists.push_back(issuesOf(function));
      for (auto [i, issue] : llvm::enumerate(lists.back()))
        issue->setAttr("site", Builder(function.getContext())
                                   .getI64IntegerAttr(static_cast<int64_t>(i)));
    }
    return lists;
  }

  /// Programs that disagree are put in one order that all can follow. False
  /// after an error: the dependences of the ranks contradict each other.
  LogicalResult agree(const plan::Plan &plan, ArrayRef<func::FuncOp> entries) {
    Loose loose = loosen(getOperation(), plan, entries);
    order::OrderProblem problem;
    std::string error;
    if (!loose.straight || !order::fromPlan(loose.plan, problem, error))
      return success(); // comm-verify-order says what is wrong
    order::SolveOptions options;
    options.keepProgramOrder = false;
    options.dropByWalk = false;
    order::OrderSolution solution = order::solve(problem, options);
    for (const order::Finding &fault : solution.faults) {
      if (fault.id != "contradicting-dependences")
        continue;
      Location where = getOperation().getLoc();
      llvm::StringMap<Location> locations;
      for (func::FuncOp function : entries)
        for (comm::CollectiveOpInterface issue : issuesOf(function))
          locations.try_emplace(describeLocation(issue->getLoc()),
                                issue->getLoc());
      auto locate = [&](const order::ChainEdge::End &end) {
        auto it = locations.find(end.loc.file);
        return it == locations.end() ? where : it->second;
      };
      InFlightDiagnostic diagnostic =
          emitError(fault.chain.empty() ? where
                                        : locate(fault.chain.front().from))
          << fault.title;
      for (const order::ChainEdge &edge : fault.chain)
        diagnostic.attachNote(locate(edge.from)) << edge.why;
      if (!fault.cure.empty())
        diagnostic.attachNote(where) << "cure: " << fault.cure;
      return failure();
    }
    if (!solution.valid)
      return success();
    for (auto [entry, order] : llvm::zip(entries, solution.order)) {
      func::FuncOp function = entry;
      if (std::is_sorted(order.begin(), order.end()))
        continue;
      SmallVector<comm::CollectiveOpInterface> issues = issuesOf(function);
      Block &block = function.getBody().front();
      // A stable topological order with the issues chained.
      llvm::DenseMap<Operation *, Operation *> before;
      for (size_t i = 1; i < order.size(); ++i)
        before[issues[order[i]]] = issues[order[i - 1]];
      llvm::SetVector<Operation *> placed;
      SmallVector<Operation *> all;
      for (Operation &op : block)
        all.push_back(&op);
      for (Operation *op : all) {
        SmallVector<Operation *> stack = {op};
        while (!stack.empty()) {
          Operation *top = stack.back();
          if (placed.contains(top)) {
            stack.pop_back();
            continue;
          }
          Operation *missing = nullptr;
          auto need = [&](Operation *other) {
            if (other && other->getBlock() == &block && other != top &&
                !placed.contains(other))
              missing = other;
          };
          for (Value operand : top->getOperands())
            need(operand.getDefiningOp());
          llvm::SetVector<Value> captured;
          getUsedValuesDefinedAbove(top->getRegions(), captured);
          for (Value value : captured)
            need(value.getDefiningOp());
          if (auto found = before.find(top); found != before.end())
            need(found->second);
          if (missing) {
            stack.push_back(missing);
            continue;
          }
          placed.insert(top);
          stack.pop_back();
        }
      }
      for (Operation *op : placed)
        op->moveBefore(&block, block.end());
      explain(function, function.getLoc(), "comm-order", "reorder",
              "programs-disagree", "issues=" + Twine(order.size()));
    }
    return success();
  }

  /// Edges that nothing makes needless. False where that is not looked for.
  bool fewestEdges(const plan::Plan &plan, ArrayRef<func::FuncOp> entries,
                   std::vector<SmallVector<int64_t>> &edges) {
    Loose loose = loosen(getOperation(), plan, entries);
    order::OrderProblem problem;
    std::string error;
    if (!loose.straight || severalIssuers(plan) ||
        !order::fromPlan(loose.plan, problem, error) || problem.loops)
      return false;
    for (auto [form, program] :
         llvm::zip(problem.programs, loose.plan.programs))
      if (form.items.size() != program.issues.size())
        return false;
    order::OrderSolution solution = order::solve(problem);
    if (!solution.valid)
      return false;
    edges.assign(entries.size(), {});
    for (const order::OrderEdge &edge : solution.edges)
      edges[edge.program].append({edge.from, edge.to});
    return true;
  }

  /// Returns whether a lane changed.
  bool setLanes(IssueLists &lists, const Classes &classes) {
    bool changed = false;
    for (auto &issues : lists)
      for (comm::CollectiveOpInterface issue : issues) {
        int64_t lane =
            classes.lanes.lookup(issue.getCollectiveDomain().getValue());
        if (issue.getLane() == lane)
          continue;
        changed = true;
        if (lane)
          issue->setAttr("lane",
                         Builder(&getContext()).getI64IntegerAttr(lane));
        else
          issue->removeAttr("lane");
      }
    return changed;
  }

  FailureOr<order::Certificate> certify(plan::Plan &plan) {
    FailureOr<plan::Plan> built = buildPlan(getOperation(), /*buffers=*/false);
    if (failed(built))
      return failure();
    plan = std::move(*built);
    return order::verifyPlan(plan);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    OpBuilder builder(&getContext());
    // A solution of an earlier run is replaced.
    for (Operation &op : llvm::make_early_inc_range(*module.getBody()))
      if (isa<comm::OrderOp, comm::CertificateOp>(op))
        op.erase();
    FailureOr<CostModel> model = CostModel::create(module, "");
    if (failed(model))
      return signalPassFailure();
    llvm::StringMap<int64_t> priorities;
    for (auto domain : module.getOps<comm::DomainOp>())
      priorities[domain.getSymName()] = domain.getPriority();

    SmallVector<func::FuncOp> entries = entryFunctions(module);
    IssueLists issues = number(entries);
    plan::Plan plan;
    FailureOr<order::Certificate> certificate = certify(plan);
    if (failed(certificate))
      return signalPassFailure();
    Classes classes(*certificate, plan);
    bool changed = setLanes(issues, classes);
    // HLO text names control predecessors that stand above: a module that goes
    // back to text keeps the text's order.
    if (entries.size() == 1) {
      Chains chains(classes, *model, priorities);
      if (!module->hasAttr("comm.hlo_source"))
        for (Block &block : entries.front().getBody())
          changed |= chains.choose(block);
    } else if (!certificate->valid && !severalIssuers(plan)) {
      changed = true;
      if (failed(agree(plan, entries)))
        return signalPassFailure();
    }
    if (changed) {
      issues = number(entries);
      certificate = certify(plan);
      if (failed(certificate))
        return signalPassFailure();
    }

    std::vector<SmallVector<int64_t>> fewest;
    bool have = certificate->valid && !certificate->graph.forest() &&
                fewestEdges(plan, entries, fewest);
    builder.setInsertionPointToEnd(module.getBody());
    for (auto [index, function] : llvm::enumerate(entries)) {
      SmallVector<int64_t> sites =
          llvm::to_vector(llvm::seq<int64_t>(0, issues[index].size()));
      numSites += sites.size();
      auto order = comm::OrderOp::create(builder, function.getLoc(),
                                         function.getSymName(), sites);
      Chains chains(classes, *model, priorities);
      Path path;
      for (Block &block : function.getBody()) {
        Path one = chains.run(block);
        path.free += one.free;
        path.ordered += one.ordered;
      }
      SmallVector<int64_t> &edges = have ? fewest[index] : chains.edges;
      if (!edges.empty())
        order->setAttr("edges", builder.getDenseI64ArrayAttr(edges));
      // Where several issuers share a rank: the place of each site in the round
      // of its first rank.
      for (auto [index, program] : llvm::enumerate(plan.programs))
        if (StringRef(programEntry(module, program.name)) == order.getProgram())
          if (SmallVector<int64_t> places = placesInRound(plan, index);
              !places.empty())
            order->setAttr("round", builder.getDenseI64ArrayAttr(places));
      if (!chains.costed)
        continue;
      auto nanoseconds = [&](int64_t time) {
        return builder.getI64IntegerAttr(time / 1000);
      };
      order->setAttr("path_ns", nanoseconds(path.ordered));
      order->setAttr("unordered_path_ns", nanoseconds(path.free));
      SmallVector<NamedAttribute> prices;
      for (auto &[domain, through] : chains.through)
        prices.push_back(builder.getNamedAttr(
            domain, builder.getDenseI64ArrayAttr(
                        {through.ordered / 1000, through.free / 1000})));
      order->setAttr("domain_path_ns", builder.getDictionaryAttr(prices));
    }
    // What is not proven gets no certificate; comm-verify-order says why.
    if (certificate->valid) {
      SmallVector<StringRef> assumes = {!plan.rounds.empty() ? "gate=hold"
                                                             : "gate=check"};
      for (const std::string &text : certificate->assumes)
        if (!llvm::is_contained(assumes, StringRef(text)))
          assumes.push_back(text);
      std::string unknown = unknownOperations(module);
      if (!unknown.empty())
        assumes.push_back(unknown);
      comm::CertificateOp::create(
          builder, module.getLoc(), 1, ground(*certificate),
          plan::toHex(plan::digest(plan)), builder.getStrArrayAttr(assumes));
    }
    setPhase(module, std::max(getPhase(module), Phase::Ordered));
  }
};

} // namespace

//===- Simplify.cpp - comm-simplify ---------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The driver, and the rewrites that only take collectives away or move them out
// of loops. Those that exchange one kind for another are in
// simplify/Algebra.cpp, those over a two-level topology in simplify/Levels.cpp.
//
// A collective is never taken away on one rank alone: each rewrite first shows
// that every member of the group runs this very operation (they run the same
// program, and agree on the conditions and trip counts around it).
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "common/Explain.h"
#include "common/PlanBuilder.h"
#include "simplify/Simplifier.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

namespace concord {
#define GEN_PASS_DEF_COMMSIMPLIFY
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

/// Rewrites feed each other, but every one takes something away: this many
/// rounds are never reached by programs seen so far.
static constexpr unsigned kMaxRounds = 32;

Simplifier::Simplifier(ModuleOp module, func::FuncOp function,
                       const SimplifyOptions &options, CommCost &cost,
                       Choices &choices)
    : module(module), function(function), options(options), cost(cost),
      choices(choices), world(comm::getWorld(module)),
      foreign(module->hasAttr("comm.hlo_source")),
      explains(module->hasAttr("comm.explain")), equality(module, world),
      rankValues(module, world), members(module, function) {}

void Simplifier::run() {
  for (unsigned i = 0; i < kMaxRounds && round(); ++i)
    ;
  for (const Refusal &refusal : refusals)
    explain(function, refusal.loc, "comm-simplify", refusal.action,
            refusal.reason, refusal.keys);
}

bool Simplifier::round() {
  refusals.clear();
  indices.clear();
  issues.clear();
  seen.clear();
  fences.run(function);
  equality.run(function);
  rankValues = RankValues(module, world);
  members.reset();
  for (comm::CollectiveOpInterface issue : issuesOf(function)) {
    indices[issue] = issues.size();
    issues.push_back(issue);
  }
  bool changed = false;
  for (size_t i = 0; i < issues.size(); ++i) {
    // A rewrite may leave the issue in place, changed; the next round sees it.
    if (!issues[i])
      continue;
    auto view = viewIssue(cast<comm::CollectiveOpInterface>(issues[i]));
    if (view && view->domain())
      changed |= visit(*view);
  }
  return changed;
}

bool Simplifier::visit(Issue issue) {
  return removeDead(issue) || removeDuplicate(issue) || reduceEqual(issue) ||
         moveEqual(issue) || foldConstant(issue) || hoist(issue) ||
         gatherThenSlice(issue) || gatherOwnSlice(issue) ||
         gatherScattered(issue) || reduceThenSlice(issue) || addTwo(issue) ||
         joinLevels(issue) || narrowMoved(issue) || widenAfterMove(issue) ||
         narrowReduction(issue) || splitLevels(issue);
}

//===----------------------------------------------------------------------===//
// Bookkeeping
//===----------------------------------------------------------------------===//

std::string Simplifier::keysOf(Issue issue) {
  return ("domain=@" + issue.op.getCollectiveDomain().getValue() +
          " bytes=" + Twine(wholeBytes(issue)))
      .str();
}

void Simplifier::done(Issue issue, StringRef action, StringRef reason,
                      const Twine &keys) {
  ++rewritten;
  if (!explains)
    return;
  std::string text = keysOf(issue);
  std::string more = keys.str();
  explain(function, issue.op->getLoc(), "comm-simplify", action, reason,
          more.empty() ? text : text + " " + more);
}

bool Simplifier::refuse(Issue issue, StringRef action, StringRef reason,
                        const Twine &keys) {
  if (!explains)
    return false;
  std::string text = keysOf(issue);
  std::string more = keys.str();
  refusals.push_back({issue.op->getLoc(), action.str(), reason.str(),
                      more.empty() ? text : text + " " + more});
  return false;
}

void Simplifier::replace(Value from, Value to) {
  equality.alike(to, from);
  from.replaceAllUsesWith(to);
}

void Simplifier::erase(Operation *op) {
  SmallVector<Operation *> worklist = {op};
  bool first = true;
  while (!worklist.empty()) {
    Operation *next = worklist.pop_back_val();
    if (!first && !isOpTriviallyDead(next))
      continue;
    first = false;
    SmallVector<Operation *> sources;
    for (Value operand : next->getOperands())
      if (Operation *source = operand.getDefiningOp())
        if (!llvm::is_contained(sources, source))
          sources.push_back(source);
    for (Value result : next->getResults()) {
      // Another value may come to lie at its address.
      equality.forget(result);
      rankValues.forget(result);
    }
    if (auto found = indices.find(next); found != indices.end()) {
      issues[found->second] = nullptr;
      indices.erase(found);
    }
    fences.forget(next);
    llvm::erase(worklist, next);
    next->erase();
    for (Operation *source : sources)
      if (isOpTriviallyDead(source) && !llvm::is_contained(worklist, source))
        worklist.push_back(source);
  }
}

void Simplifier::erase(Issue issue) {
  ++removed;
  if (issue.wait)
    erase(issue.wait);
  erase(issue.op);
}

//===----------------------------------------------------------------------===//
// Dead, duplicate, loop-invariant
//===----------------------------------------------------------------------===//

bool Simplifier::removeDead(Issue issue) {
  if (!issue.result.use_empty())
    return false;
  StringRef name = stringifyCollectiveKind(issue.kind());
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, ("keep-" + name).str(), why);
  done(issue, ("remove-" + name).str(), "dead");
  erase(issue);
  return true;
}

/// What a collective is but for its destination; two that agree in it yield the
/// same.
static size_t hashOf(IssueView issue) {
  comm::CollectiveOpInterface op = issue.op;
  return llvm::hash_combine(
      static_cast<int>(op.getCollectiveKind()), op.getCollectiveDomain(),
      static_cast<int>(op.getCollectiveReduction()), op.getCollectiveRoot(),
      op.getCollectiveSplitDim(), op.getCollectiveConcatDim(),
      issue.input().getAsOpaquePointer(), issue.type());
}

static bool isSame(IssueView a, IssueView b) {
  return a.kind() == b.kind() && a.input() == b.input() &&
         a.type() == b.type() &&
         a.op.getCollectiveDomain() == b.op.getCollectiveDomain() &&
         a.op.getCollectiveReduction() == b.op.getCollectiveReduction() &&
         a.op.getCollectiveRoot() == b.op.getCollectiveRoot() &&
         a.op.getCollectiveSplitDim() == b.op.getCollectiveSplitDim() &&
         a.op.getCollectiveConcatDim() == b.op.getCollectiveConcatDim() &&
         a.op.getCollectivePairs() == b.op.getCollectivePairs() &&
         a.op.getCollectiveSendSizes() == b.op.getCollectiveSendSizes() &&
         a.op.getCollectiveRecvSizes() == b.op.getCollectiveRecvSizes();
}

bool Simplifier::removeDuplicate(Issue issue) {
  // These leave their outs as they were on some members.
  if (issue.kind() == comm::CollectiveKind::reduce ||
      issue.kind() == comm::CollectiveKind::gather)
    return false;
  auto &list = seen[hashOf(issue)];
  std::string name = stringifyCollectiveKind(issue.kind()).str();
  for (size_t index : list) {
    if (!issues[index])
      continue;
    auto candidate =
        viewIssue(cast<comm::CollectiveOpInterface>(issues[index]));
    if (!candidate || !isSame(*candidate, issue))
      continue;
    Issue first = *candidate;
    // The first one's result must be there wherever the second one's is.
    Operation *here =
        first.last()->getBlock()->findAncestorOpInBlock(*issue.last());
    if (!here || here == first.last() || !first.last()->isBeforeInBlock(here))
      continue;
    StringRef why = whyNotAll(issue);
    if (why.empty())
      why = whyNotAll(first);
    if (!why.empty())
      return refuse(issue, "keep-" + name, why);
    done(issue, "remove-" + name, "duplicate");
    issue.result.replaceAllUsesWith(first.result);
    erase(issue);
    return true;
  }
  list.push_back(indices.lookup(issue.op));
  return false;
}

bool Simplifier::hoist(Issue issue) {
  Operation *loop = issue.op->getParentOp();
  Block *block = issue.op->getBlock();
  auto counted = dyn_cast<scf::ForOp>(loop);
  auto conditional = dyn_cast<scf::WhileOp>(loop);
  if (!counted && !conditional)
    return false;
  // What computes the input, in the loop, from values outside of it.
  SmallVector<Operation *> chain;
  SmallVector<Value> worklist = {issue.input()};
  llvm::SmallPtrSet<Operation *, 8> known;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (value.getParentRegion()->isProperAncestor(block->getParent()))
      continue;
    Operation *op = value.getDefiningOp();
    // It runs in every round, so that nothing is done that was not.
    if (!op || op->getBlock() != block || !isMemoryEffectFree(op) ||
        (op->getNumRegions() && !isa<linalg::LinalgOp>(op)) ||
        chain.size() > 16)
      return false; // not invariant, or not worth it
    if (!known.insert(op).second)
      continue;
    chain.push_back(op);
    llvm::append_range(worklist, op->getOperands());
    llvm::SetVector<Value> captured;
    getUsedValuesDefinedAbove(op->getRegions(), captured);
    llvm::append_range(worklist, captured);
  }
  std::string name = stringifyCollectiveKind(issue.kind()).str();
  // These leave on some members what a round of the loop had put in their outs.
  if (issue.kind() == comm::CollectiveKind::reduce ||
      issue.kind() == comm::CollectiveKind::gather)
    return refuse(issue, "keep-" + name, "keeps-outs");
  bool runs = conditional && block == conditional.getBeforeBody();
  if (counted)
    if (auto count = counted.getStaticTripCount())
      runs = count->sgt(0);
  if (!runs)
    return refuse(issue, "keep-" + name, "may-run-zero-times");
  if (fences.hasFence(loop))
    return refuse(issue, "keep-" + name, "fence");
  if (StringRef why = whyNotAll(issue); !why.empty())
    return refuse(issue, "keep-" + name, why);
  done(issue, "hoist-" + name, "loop-invariant");
  llvm::sort(chain,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : chain)
    op->moveBefore(loop);
  OpBuilder builder(loop);
  RankedTensorType type =
      cast<RankedTensorType>(issue.op.getCollectiveOutput().getType());
  Value init = tensor::EmptyOp::create(builder, issue.op->getLoc(),
                                       type.getShape(), type.getElementType());
  issue.op->setOperand(1, init); // the outs
  issue.op->moveBefore(loop);
  if (issue.wait) {
    issue.wait.getInitMutable().assign(init);
    issue.wait->moveBefore(loop);
  }
  for (Operation *op : {issue.op.getOperation(), issue.last()})
    fences.like(op, loop);
  return true;
}

namespace {

struct Simplify : public concord::impl::CommSimplifyBase<Simplify> {
  using CommSimplifyBase::CommSimplifyBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<CommCost> cost = CommCost::create(module, machine);
    if (failed(cost))
      return signalPassFailure();
    Choices choices(module, "comm-simplify");
    SimplifyOptions options;
    options.exact = exact;
    int64_t rewritten = 0, removed = 0;
    for (func::FuncOp function : entryFunctions(module)) {
      if (function.isExternal())
        continue;
      Simplifier simplifier(module, function, options, *cost, choices);
      simplifier.run();
      numRemoved += simplifier.removed;
      numRewrites += simplifier.rewritten;
      rewritten += simplifier.rewritten;
      removed += simplifier.removed;
    }
    if (failed(choices.finish()))
      return signalPassFailure();
    if (!rewritten && !removed)
      markAllAnalysesPreserved();
    // The text that the module came from no longer says what it does.
    if (rewritten && module->hasAttr("comm.hlo_source"))
      module->setAttr("comm.hlo_rewritten", UnitAttr::get(&getContext()));
  }
};

} // namespace

//===- Communicated.cpp - What programs have in one collective ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/Communicated.h"

#include "common/CarriedLayouts.h"
#include "common/PlanBuilder.h"
#include "concord/order/Certificate.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

#include <set>

using namespace mlir;

namespace concord {

SmallVector<Value> issueBuffers(comm::CollectiveOpInterface op) {
  if (!op.getCollectiveKernel().empty())
    return llvm::to_vector(op->getOperands());
  SmallVector<Value> buffers;
  for (Value value : {op.getCollectiveInput(), op.getCollectiveOutput()})
    if (value)
      buffers.push_back(value);
  return buffers;
}

FailureOr<std::vector<SharedIssue>> sharedIssues(ModuleOp module,
                                                 bool &proven) {
  std::vector<SharedIssue> result;
  proven = true;
  SmallVector<SmallVector<comm::CollectiveOpInterface>> issues;
  for (auto program : module.getOps<comm::ProgramOp>())
    if (auto entry = module.lookupSymbol<func::FuncOp>(program.getEntry()))
      issues.push_back(issuesOf(entry));
  if (issues.size() < 2)
    return result;
  FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
  if (failed(plan))
    return failure();
  std::vector<std::vector<order::ProgramSite>> sets;
  proven = order::matchPrograms(*plan, sets);
  for (const std::vector<order::ProgramSite> &set : sets) {
    SharedIssue shared;
    for (auto [program, site] : set)
      shared.parts.push_back({program, issues[program][site]});
    result.push_back(std::move(shared));
  }
  if (proven)
    return result;
  std::vector<std::set<uint32_t>> users(plan->domains.size());
  auto each = [&](auto act) {
    for (auto [p, program] : llvm::enumerate(plan->programs))
      for (size_t s = 0; s < issues[p].size(); ++s)
        if (plan::Kind kind = program.issues[s].kind;
            kind != plan::Kind::Send && kind != plan::Kind::Recv)
          act(static_cast<uint32_t>(p), s, program.issues[s].domain);
  };
  each([&](uint32_t p, size_t, uint32_t d) { users[d].insert(p); });
  each([&](uint32_t p, size_t s, uint32_t d) {
    if (users[d].size() > 1)
      result.push_back({{{p, issues[p][s]}}});
  });
  return result;
}

/// What a loop or branch hands on, one step nearer to where it comes from; null
/// where it is not one buffer in every round.
static Value source(Value value) {
  if (auto result = dyn_cast<OpResult>(value)) {
    unsigned number = result.getResultNumber();
    if (auto loop = dyn_cast<scf::ForOp>(result.getOwner()))
      return loop.getRegionIterArg(number);
    if (auto loop = dyn_cast<scf::WhileOp>(result.getOwner()))
      return loop.getConditionOp().getArgs()[number];
    if (auto branch = dyn_cast<scf::IfOp>(result.getOwner())) {
      auto one = placeOf(branch.thenYield().getOperand(number));
      auto other = placeOf(branch.elseYield().getOperand(number));
      return one && other && *one == *other
                 ? branch.thenYield().getOperand(number)
                 : Value();
    }
    return {};
  }
  auto argument = cast<BlockArgument>(value);
  Operation *parent = argument.getOwner()->getParentOp();
  auto conditional = dyn_cast<scf::WhileOp>(parent);
  if (conditional && argument.getOwner() == conditional.getAfterBody())
    return conditional.getConditionOp().getArgs()[argument.getArgNumber()];
  auto loop = dyn_cast<LoopLikeOpInterface>(parent);
  OpOperand *init = loop ? loop.getTiedLoopInit(argument) : nullptr;
  OpOperand *yielded = loop ? loop.getTiedLoopYieldedValue(argument) : nullptr;
  if (!init || !yielded)
    return {};
  // The same in the next round: it was handed in, or is what the loop began
  // with.
  Value next = stripCasts(yielded->get());
  if (auto after = dyn_cast<BlockArgument>(next);
      conditional && after && after.getOwner() == conditional.getAfterBody())
    next = stripCasts(
        conditional.getConditionOp().getArgs()[after.getArgNumber()]);
  return next == argument || next == stripCasts(init->get()) ? init->get()
                                                             : Value();
}

std::optional<BufferPlace> placeOf(Value buffer) {
  BufferPlace place{buffer, 0};
  while (true) {
    Operation *op = place.root.getDefiningOp();
    if (auto view = dyn_cast_or_null<memref::ViewOp>(op)) {
      auto shift = getConstantIntValue(view.getByteShift());
      if (!shift)
        return std::nullopt;
      place.offset += *shift;
      place.root = view.getSource();
    } else if (isa_and_nonnull<memref::CollapseShapeOp, memref::ExpandShapeOp,
                               memref::CastOp>(op)) {
      place.root = cast<ViewLikeOpInterface>(op).getViewSource();
    } else if (op ? isa<scf::ForOp, scf::WhileOp, scf::IfOp>(op)
                  : !isa<FunctionOpInterface>(
                        place.root.getParentBlock()->getParentOp())) {
      Value from = source(place.root);
      if (!from)
        return std::nullopt;
      place.root = from;
    } else if (isa_and_nonnull<ViewLikeOpInterface>(op)) {
      return std::nullopt;
    } else {
      return place;
    }
  }
}

std::optional<int64_t> arenaOffset(Value buffer) {
  std::optional<BufferPlace> place = placeOf(buffer);
  auto argument = place ? dyn_cast<BlockArgument>(place->root) : nullptr;
  auto function =
      argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp())
               : nullptr;
  if (!function || !function.getArgAttr(argument.getArgNumber(), "comm.arena"))
    return std::nullopt;
  return place->offset;
}

} // namespace concord

//===- VerifyUniform.cpp - comm-verify-uniform ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A collective under a condition must be reached by all members of its group or
// by none. Uniform is: a constant; a whole (not split) argument of the entry
// function; the result of a collective that leaves the same value on every
// member of the world; and what pure operations compute from uniform values.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace concord {
#define GEN_PASS_DEF_COMMVERIFYUNIFORM
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct VerifyUniform
    : public concord::impl::CommVerifyUniformBase<VerifyUniform> {
  using CommVerifyUniformBase::CommVerifyUniformBase;

  /// Whether every member of `domain`'s groups gets the same value from `op`.
  bool makesEqual(comm::CollectiveOpInterface op, FlatSymbolRefAttr domain) {
    // What a fused kernel makes of it may differ: a product with other weights.
    if (!op.getCollectiveKernel().empty())
      return false;
    switch (op.getCollectiveKind()) {
    case comm::CollectiveKind::all_reduce:
    case comm::CollectiveKind::all_gather:
    case comm::CollectiveKind::broadcast:
      break;
    default:
      return false;
    }
    comm::DomainOp from = comm::lookupDomain(op, op.getCollectiveDomain());
    comm::DomainOp to = comm::lookupDomain(op, domain);
    if (!from || !to)
      return false;
    // Each group of `domain` lies inside one group that was made equal.
    for (ArrayRef<int64_t> group : to.getGroupRanks()) {
      bool inside =
          llvm::any_of(from.getGroupRanks(), [&](ArrayRef<int64_t> wide) {
            return llvm::all_of(group, [&](int64_t rank) {
              return llvm::is_contained(wide, rank);
            });
          });
      if (!inside)
        return false;
    }
    return true;
  }

  /// The value that makes `value` differ between members, or null when uniform.
  Value origin(Value value, FlatSymbolRefAttr domain,
               llvm::SmallPtrSetImpl<void *> &seen) {
    if (!seen.insert(value.getAsOpaquePointer()).second)
      return {};
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      Operation *parent = argument.getOwner()->getParentOp();
      if (auto function = dyn_cast<func::FuncOp>(parent))
        return function.getArgAttr(argument.getArgNumber(), "comm.sharding")
                   ? value
                   : Value();
      // The arguments of the second region are what the first one hands on.
      if (auto loop = dyn_cast<scf::WhileOp>(parent);
          loop && argument.getOwner() == loop.getAfterBody())
        return origin(loop.getConditionOp().getArgs()[argument.getArgNumber()],
                      domain, seen);
      if (auto loop = dyn_cast<scf::WhileOp>(parent)) {
        unsigned index = argument.getArgNumber();
        if (Value from = origin(loop.getInits()[index], domain, seen))
          return from;
        return origin(loop.getYieldOp().getOperands()[index], domain, seen);
      }
      if (auto loop = dyn_cast<LoopLikeOpInterface>(parent)) {
        for (Value operand : parent->getOperands())
          if (Value from = origin(operand, domain, seen))
            return from;
        if (auto *init = loop.getTiedLoopYieldedValue(argument))
          return origin(init->get(), domain, seen);
        return {};
      }
      return value;
    }
    Operation *op = value.getDefiningOp();
    if (auto loop = dyn_cast<scf::WhileOp>(op))
      return origin(loop.getConditionOp()
                        .getArgs()[cast<OpResult>(value).getResultNumber()],
                    domain, seen);
    if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op))
      return makesEqual(collective, domain) ? Value() : value;
    if (auto wait = dyn_cast<comm::WaitOp>(op)) {
      comm::StartOp start = wait.getStart();
      return start && makesEqual(start, domain) ? Value() : value;
    }
    if (isa<comm::RankOp>(op) ||
        (!isMemoryEffectFree(op) && op->getNumRegions() == 0))
      return value;
    for (Value operand : op->getOperands())
      if (Value from = origin(operand, domain, seen))
        return from;
    // What a branch yields is uniform if all that the arms yield is.
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (block.mightHaveTerminator())
          for (Value yielded : block.getTerminator()->getOperands())
            if (Value from = origin(yielded, domain, seen))
              return from;
    return {};
  }

  LogicalResult verify(comm::CollectiveOpInterface issue) {
    for (Operation *parent = issue->getParentOp();
         parent && !isa<func::FuncOp, ModuleOp>(parent);
         parent = parent->getParentOp()) {
      SmallVector<Value> deciding;
      if (auto loop = dyn_cast<scf::WhileOp>(parent)) {
        deciding.push_back(loop.getConditionOp().getCondition());
      } else {
        for (Value operand : parent->getOperands()) {
          // What a loop merely carries does not decide how often it runs.
          auto loop = dyn_cast<LoopLikeOpInterface>(parent);
          if (!loop || !llvm::is_contained(loop.getInits(), operand) ||
              !isa<scf::ForOp>(parent))
            deciding.push_back(operand);
        }
      }
      for (Value operand : deciding) {
        llvm::SmallPtrSet<void *, 16> seen;
        Value from = origin(operand, issue.getCollectiveDomain(), seen);
        if (!from)
          continue;
        InFlightDiagnostic diagnostic =
            issue->emitOpError()
            << "on " << issue.getCollectiveDomain() << " is under a "
            << (isa<LoopLikeOpInterface>(parent) ? "loop" : "condition")
            << " that may differ between the members of its group; make the "
               "value "
               "equal on them first (all_reduce or broadcast it), or decide it "
               "once "
               "for the round";
        diagnostic.attachNote(from.getLoc()) << "the value comes from here";
        diagnostic.attachNote(parent->getLoc()) << "and decides here";
        return diagnostic;
      }
    }
    return success();
  }

  void runOnOperation() override {
    bool ok = true;
    for (func::FuncOp function : entryFunctions(getOperation()))
      for (comm::CollectiveOpInterface issue : issuesOf(function))
        ok &= succeeded(verify(issue));
    if (!ok)
      signalPassFailure();
  }
};

} // namespace

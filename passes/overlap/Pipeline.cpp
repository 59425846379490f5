//===- Pipeline.cpp - Collectives across loop iterations ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two rotations of a counted loop, each of which leaves as many collectives as
// before. Their order changes, in the same way on all ranks: the caller sees to
// it that no other program meets them.
//
// - A collective that needs nothing of the iteration (the gather of a layer's
//   weights) is made one iteration ahead: once before the loop, for the next
//   iteration at the top of the body, and the last iteration follows the loop.
// - A collective whose result only leaves the iteration (the reduction of a
//   layer's gradients) is made one iteration late: the first iteration precedes
//   the loop, the body begins with the collective of the one before, and the
//   last collective follows the loop.
//
// Between the collective and the end of the body lies then everything else, and
// the list scheduler starts and waits around it.
//
//===----------------------------------------------------------------------===//

#include "common/Explain.h"
#include "overlap/Rewrite.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace concord {
namespace {

using OpSet = llvm::SetVector<Operation *>;

bool anyIssue(Operation *root) {
  return root
      ->walk([](Operation *op) {
        return comm::isIssue(op) ? WalkResult::interrupt()
                                 : WalkResult::advance();
      })
      .wasInterrupted();
}

/// What of the body `values` are computed from. False when that includes
/// something that changes from iteration to iteration other than the counter,
/// or that has effects.
bool backward(scf::ForOp loop, ArrayRef<Value> values, OpSet &slice) {
  SmallVector<Value> worklist(values);
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (value.getParentRegion() != &loop.getRegion())
      continue; // from outside
    if (isa<BlockArgument>(value)) {
      if (value != loop.getInductionVar())
        return false;
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (!isMemoryEffectFree(op) || anyIssue(op))
      return false;
    if (!slice.insert(op))
      continue;
    worklist.append(op->operand_begin(), op->operand_end());
    llvm::SetVector<Value> above;
    getUsedValuesDefinedAbove(op->getRegions(), above);
    worklist.append(above.begin(), above.end());
  }
  return true;
}

struct Candidate {
  comm::CollectiveOpInterface op;
  OpSet slice;   ///< ahead: what it needs; late: what needs it
  OpSet again{}; ///< late: what those take besides, from the counter alone
};

bool rotatable(comm::CollectiveOpInterface op) {
  switch (op.getCollectiveKind()) {
  case comm::CollectiveKind::all_reduce:
  case comm::CollectiveKind::all_gather:
  case comm::CollectiveKind::reduce_scatter:
  case comm::CollectiveKind::all_to_all:
  case comm::CollectiveKind::broadcast:
    return !op.isAsync() && op->getNumResults() == 1;
  default:
    return false;
  }
}

/// Clones the operations of `body` in their order, except the terminator and
/// `skip`.
void cloneBody(OpBuilder &builder, Block *body, IRMapping &mapping,
               const llvm::SmallPtrSetImpl<Operation *> &skip) {
  for (Operation &op : body->without_terminator())
    if (!skip.contains(&op))
      builder.clone(op, mapping);
}

void cloneSlice(OpBuilder &builder, Block *body, IRMapping &mapping,
                const OpSet &slice) {
  for (Operation &op : body->without_terminator())
    if (slice.contains(&op))
      builder.clone(op, mapping);
}

class Rotation {
public:
  Rotation(scf::ForOp loop, const CostModel &cost) : loop(loop), cost(cost) {}
  unsigned run();

private:
  void say(comm::CollectiveOpInterface op, StringRef action, StringRef reason) {
    explain(loop, op->getLoc(), "comm-overlap", action, reason,
            "domain=" + op.getCollectiveDomain().getValue());
  }
  SmallVector<Candidate> ahead();
  bool late(comm::CollectiveOpInterface op, Candidate &candidate);
  scf::ForOp rotateAhead(MutableArrayRef<Candidate> candidates);
  scf::ForOp rotateLate(Candidate &candidate);
  Value index(OpBuilder &builder, int64_t value) {
    Type type = loop.getInductionVar().getType();
    return arith::ConstantOp::create(builder, loop.getLoc(), type,
                                     builder.getIntegerAttr(type, value));
  }

  scf::ForOp loop;
  const CostModel &cost;
  int64_t lower = 0, step = 0, trips = 0;
};

SmallVector<Candidate> Rotation::ahead() {
  SmallVector<Candidate> result;
  for (Operation &op : loop.getBody()->without_terminator()) {
    auto collective = dyn_cast<comm::CollectiveOpInterface>(op);
    if (!collective || !rotatable(collective))
      continue;
    Candidate candidate{collective, {}, {}};
    SmallVector<Value> operands(op.getOperands());
    if (backward(loop, operands, candidate.slice))
      result.push_back(std::move(candidate));
  }
  return result;
}

scf::ForOp Rotation::rotateAhead(MutableArrayRef<Candidate> candidates) {
  OpBuilder builder(loop);
  Block *body = loop.getBody();
  llvm::SmallPtrSet<Operation *, 8> skip;
  for (Candidate &candidate : candidates)
    skip.insert(candidate.op);
  auto make = [&](OpBuilder &at, Value counter) {
    SmallVector<Value> results;
    for (Candidate &candidate : candidates) {
      IRMapping mapping;
      mapping.map(loop.getInductionVar(), counter);
      cloneSlice(at, body, mapping, candidate.slice);
      results.push_back(at.clone(*candidate.op, mapping)->getResult(0));
    }
    return results;
  };
  SmallVector<Value> inits(loop.getInitArgs());
  size_t own = inits.size();
  inits.append(make(builder, index(builder, lower)));
  Value from = index(builder, lower);
  Value to = index(builder, lower + (trips - 1) * step);
  auto inner = scf::ForOp::create(
      builder, loop.getLoc(), from, to, loop.getStep(), inits,
      [&](OpBuilder &at, Location loc, Value counter, ValueRange arguments) {
        Value next = arith::AddIOp::create(at, loc, counter, loop.getStep());
        SmallVector<Value> fetched = make(at, next);
        IRMapping mapping;
        mapping.map(loop.getInductionVar(), counter);
        for (size_t i = 0; i < own; ++i)
          mapping.map(loop.getRegionIterArgs()[i], arguments[i]);
        for (auto [i, candidate] : llvm::enumerate(candidates))
          mapping.map(candidate.op->getResult(0), arguments[own + i]);
        cloneBody(at, body, mapping, skip);
        SmallVector<Value> yields;
        for (Value value : body->getTerminator()->getOperands())
          yields.push_back(mapping.lookupOrDefault(value));
        yields.append(fetched);
        scf::YieldOp::create(at, loc, yields);
      });
  inner->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), to);
  for (size_t i = 0; i < own; ++i)
    mapping.map(loop.getRegionIterArgs()[i], inner.getResult(i));
  for (auto [i, candidate] : llvm::enumerate(candidates))
    mapping.map(candidate.op->getResult(0), inner.getResult(own + i));
  cloneBody(builder, body, mapping, skip);
  for (size_t i = 0; i < own; ++i)
    loop.getResult(i).replaceAllUsesWith(
        mapping.lookupOrDefault(body->getTerminator()->getOperand(i)));
  loop.erase();
  return inner;
}

/// Fills the slice with what follows from the result. It has to be pure, and to
/// leave the iteration through values that nothing else in the body uses.
bool Rotation::late(comm::CollectiveOpInterface op, Candidate &candidate) {
  Block *body = loop.getBody();
  candidate.op = op;
  SmallVector<Value> worklist = {op->getResult(0)};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (OpOperand &use : value.getUses()) {
      Operation *user = body->findAncestorOpInBlock(*use.getOwner());
      if (!user)
        return false;
      if (user == body->getTerminator()) {
        // The next iteration's value belongs to the slice as well.
        Value argument = loop.getRegionIterArgs()[use.getOperandNumber()];
        for (Operation *inner : argument.getUsers()) {
          Operation *top = body->findAncestorOpInBlock(*inner);
          if (!top || top == op.getOperation() || top == body->getTerminator())
            return false;
          if (candidate.slice.insert(top)) {
            if (!isMemoryEffectFree(top) || anyIssue(top))
              return false;
            worklist.append(top->result_begin(), top->result_end());
          }
        }
        continue;
      }
      if (!candidate.slice.insert(user))
        continue;
      if (!isMemoryEffectFree(user) || anyIssue(user))
        return false;
      worklist.append(user->result_begin(), user->result_end());
    }
  }
  // What the slice takes besides is computed from the counter alone, and again.
  OpSet &again = candidate.again;
  auto recomputable = [&](Value value) {
    if (value == op->getResult(0))
      return true;
    if (auto argument = dyn_cast<BlockArgument>(value);
        argument && argument.getOwner() == body &&
        argument != loop.getInductionVar()) {
      // Its own carried values; those that other parts use were refused above,
      // and a carried value that the slice does not make is not its own.
      Value yielded =
          body->getTerminator()->getOperand(argument.getArgNumber() - 1);
      Operation *def = yielded.getDefiningOp();
      return def && candidate.slice.contains(def) &&
             llvm::all_of(argument.getUsers(), [&](Operation *user) {
               return candidate.slice.contains(
                   body->findAncestorOpInBlock(*user));
             });
    }
    Operation *def = value.getDefiningOp();
    if (def && candidate.slice.contains(def))
      return true;
    return backward(loop, {value}, again);
  };
  for (Operation *user : candidate.slice) {
    for (Value operand : user->getOperands())
      if (!recomputable(operand))
        return false;
    llvm::SetVector<Value> above;
    getUsedValuesDefinedAbove(user->getRegions(), above);
    for (Value operand : above)
      if (!recomputable(operand))
        return false;
  }
  // The outs as well.
  for (Value operand : op->getOperands())
    if (operand != op.getCollectiveInput() && !backward(loop, {operand}, again))
      return false;
  // An input from outside the body is no work of this iteration: rotateAhead
  // has it.
  Operation *input = op.getCollectiveInput().getDefiningOp();
  return input && input->getBlock() == body;
}

scf::ForOp Rotation::rotateLate(Candidate &candidate) {
  OpBuilder builder(loop);
  Block *body = loop.getBody();
  Value input = candidate.op.getCollectiveInput();
  size_t own = loop.getInitArgs().size();
  // The carried values that the slice makes.
  llvm::SmallBitVector late(own);
  for (size_t i = 0; i < own; ++i) {
    Operation *def = body->getTerminator()->getOperand(i).getDefiningOp();
    late[i] = def == candidate.op.getOperation() ||
              (def && candidate.slice.contains(def));
  }
  llvm::SmallPtrSet<Operation *, 8> skip = {candidate.op.getOperation()};
  for (Operation *op : candidate.slice)
    skip.insert(op);
  auto runHead = [&](OpBuilder &at, Value counter, ValueRange arguments,
                     IRMapping &mapping) {
    mapping.map(loop.getInductionVar(), counter);
    for (size_t i = 0; i < own; ++i)
      mapping.map(loop.getRegionIterArgs()[i], arguments[i]);
    cloneBody(at, body, mapping, skip);
  };
  /// The collective and what follows from it, of the iteration at `counter`.
  auto runCollective = [&](OpBuilder &at, Value counter, ValueRange arguments,
                           Value carried, IRMapping &mapping) {
    mapping.map(loop.getInductionVar(), counter);
    for (size_t i = 0; i < own; ++i)
      mapping.map(loop.getRegionIterArgs()[i], arguments[i]);
    mapping.map(input, carried);
    for (Operation &op : body->without_terminator())
      if (candidate.slice.contains(&op) || candidate.again.contains(&op) ||
          &op == candidate.op.getOperation())
        at.clone(op, mapping);
  };
  Value first = index(builder, lower);
  IRMapping prologue;
  runHead(builder, first, loop.getInitArgs(), prologue);
  SmallVector<Value> inits;
  for (size_t i = 0; i < own; ++i)
    inits.push_back(late[i] ? loop.getInitArgs()[i]
                            : prologue.lookupOrDefault(
                                  body->getTerminator()->getOperand(i)));
  inits.push_back(prologue.lookupOrDefault(input));
  Value from = index(builder, lower + step);
  Value to = index(builder, lower + trips * step);
  auto inner = scf::ForOp::create(
      builder, loop.getLoc(), from, to, loop.getStep(), inits,
      [&](OpBuilder &at, Location loc, Value counter, ValueRange arguments) {
        Value previous =
            arith::SubIOp::create(at, loc, counter, loop.getStep());
        IRMapping tail, now;
        runCollective(at, previous, arguments, arguments[own], tail);
        runHead(at, counter, arguments, now);
        SmallVector<Value> yields;
        for (size_t i = 0; i < own; ++i)
          yields.push_back(
              (late[i] ? tail : now)
                  .lookupOrDefault(body->getTerminator()->getOperand(i)));
        yields.push_back(now.lookupOrDefault(input));
        scf::YieldOp::create(at, loc, yields);
      });
  inner->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
  IRMapping epilogue;
  Value last = index(builder, lower + (trips - 1) * step);
  runCollective(builder, last, inner.getResults().take_front(own),
                inner.getResult(own), epilogue);
  for (size_t i = 0; i < own; ++i)
    loop.getResult(i).replaceAllUsesWith(
        late[i] ? epilogue.lookupOrDefault(body->getTerminator()->getOperand(i))
                : inner.getResult(i));
  loop.erase();
  return inner;
}

/// Transfers, barriers, opaque calls and effects hold everything that
/// communicates in place.
bool holdsInPlace(Operation &op) {
  if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op))
    return !rotatable(collective);
  return op.getNumRegions() ? anyIssue(&op) || !isMemoryEffectFree(&op)
                            : !isMemoryEffectFree(&op);
}

unsigned Rotation::run() {
  SmallVector<comm::CollectiveOpInterface> wanted;
  for (Operation &op : loop.getBody()->without_terminator())
    if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op);
        collective && rotatable(collective) &&
        !cost.movesByCore(collective.getCollectiveDomain().getValue()))
      wanted.push_back(collective);
  if (wanted.empty())
    return 0;
  if (llvm::any_of(loop.getBody()->without_terminator(), holdsInPlace)) {
    for (comm::CollectiveOpInterface op : wanted)
      say(op, "keep-in-iteration", "held-in-place");
    return 0;
  }
  auto from = getConstantIntValue(loop.getLowerBound());
  auto by = getConstantIntValue(loop.getStep());
  auto count = loop.getStaticTripCount();
  if (!from || !by || !count || count->ugt(1u << 30) || loop.getUnsignedCmp()) {
    for (comm::CollectiveOpInterface op : wanted)
      say(op, "keep-in-iteration", "unknown-trip-count");
    return 0;
  }
  lower = *from;
  step = *by;
  trips = count->getSExtValue();
  double compute = 0;
  for (Operation &op : *loop.getBody())
    compute += cost.compute(&op);
  if (trips < 2 || compute <= 0) {
    for (comm::CollectiveOpInterface op : wanted)
      say(op, "keep-in-iteration",
          trips < 2 ? "runs-once" : "nothing-independent");
    return 0;
  }
  SmallVector<Candidate> candidates = ahead();
  llvm::erase_if(candidates, [&](Candidate &candidate) {
    return !llvm::is_contained(wanted, candidate.op);
  });
  unsigned moved = candidates.size();
  if (moved) {
    for (Candidate &candidate : candidates)
      say(candidate.op, "pipeline-ahead", "needs-only-the-counter");
    loop = rotateAhead(candidates);
    --trips;
    return moved;
  }
  for (comm::CollectiveOpInterface op : wanted) {
    Candidate candidate;
    if (!late(op, candidate)) {
      say(op, "keep-in-iteration", "used-in-its-iteration");
      continue;
    }
    say(op, "pipeline-late", "leaves-the-iteration");
    rotateLate(candidate);
    return 1;
  }
  return 0;
}

} // namespace

unsigned pipelineLoop(scf::ForOp loop, const CostModel &cost) {
  return Rotation(loop, cost).run();
}

} // namespace concord

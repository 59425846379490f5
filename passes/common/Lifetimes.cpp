//===- Lifetimes.cpp - How long a buffer is in use ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A forward walk over everything that may alias the buffer. An operation that
// yields a memref and takes the buffer is assumed to yield an alias of it.
//
//===----------------------------------------------------------------------===//

#include "common/Lifetimes.h"

#include "comm/Comm.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace concord {

Lifetimes::Lifetimes(Block &block) : block(block) {
  spans.reserve(static_cast<unsigned>(block.getOperations().size()));
  number(block);
}

void Lifetimes::number(Block &block) {
  for (Operation &op : block) {
    int64_t begin = next++;
    // The bodies of structured computations are one point.
    if (op.getNumRegions() &&
        isa<RegionBranchOpInterface, LoopLikeOpInterface>(op))
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          number(inner);
    spans[&op] = {begin, next - 1};
  }
}

int64_t Lifetimes::position(Operation *op) const {
  for (; op; op = op->getParentOp())
    if (auto found = spans.find(op); found != spans.end())
      return found->second.first;
  return -1;
}

int64_t Lifetimes::end(Operation *op) const {
  for (; op; op = op->getParentOp())
    if (auto found = spans.find(op); found != spans.end())
      return found->second.second;
  return -1;
}

Lifetime Lifetimes::span(Operation *user, Block *home) const {
  int64_t at = position(user);
  Lifetime life{at, at};
  for (Operation *op = user; op && op->getBlock() != home;) {
    op = op->getParentOp();
    // Every round uses it.
    if (op && isa<LoopLikeOpInterface>(op))
      life = {position(op), end(op)};
    if (op && op->getBlock() == home)
      break;
  }
  return life;
}

Lifetime Lifetimes::of(Value buffer) const {
  Lifetime life;
  life.first = next;
  auto extend = [&](Lifetime by) {
    life.first = std::min(life.first, by.first);
    life.last = std::max(life.last, by.last);
  };
  // With the block of whose rounds each alias is part.
  SmallVector<std::pair<Value, Block *>> worklist = {
      {buffer, buffer.getParentBlock()}};
  llvm::SmallDenseMap<Value, Block *> seen;
  while (!worklist.empty()) {
    auto [value, home] = worklist.pop_back_val();
    auto [entry, isNew] = seen.try_emplace(value, home);
    if (!isNew) {
      // Known, but perhaps as something that lives in a narrower place.
      if (entry->second == home ||
          !home->getParent()->isProperAncestor(entry->second->getParent()))
        continue;
      entry->second = home;
    }
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      bool aliases = false;
      auto follow = [&](Value next, Block *in) {
        if (isa<BaseMemRefType>(next.getType())) {
          worklist.push_back({next, in});
          aliases = true;
        }
      };
      for (Value result : user->getResults())
        follow(result, home);
      for (Region &region : user->getRegions())
        for (BlockArgument argument : region.getArguments())
          follow(argument, home);
      // A region's terminator hands the value to the operation around it: it
      // lives there, and in a loop in the next round too.
      bool leaves = user->getBlock() != &block && user->getParentOp() &&
                    user->hasTrait<OpTrait::IsTerminator>();
      if (leaves && isa<BaseMemRefType>(value.getType())) {
        Operation *parent = user->getParentOp();
        Block *out = parent->getBlock();
        if (!home->getParent()->isProperAncestor(parent->getParentRegion()))
          home = out;
        for (Value result : parent->getResults())
          follow(result, home);
        if (isa<LoopLikeOpInterface>(parent)) {
          for (Region &region : parent->getRegions())
            for (BlockArgument argument : region.getArguments())
              follow(argument, home);
          extend({position(parent), end(parent)});
        }
      }
      // A view alone touches nothing: its users count.
      bool pureView = aliases && user->getNumRegions() == 0 &&
                      !user->hasTrait<OpTrait::IsTerminator>() &&
                      isMemoryEffectFree(user);
      if (pureView)
        continue;
      // An operation that takes it into its regions uses it from here on.
      extend(span(user, home));
      // In flight until its wait, wherever the wait is.
      if (auto start = dyn_cast<comm::StartOp>(user))
        for (Operation *wait : start.getFuture().getUsers())
          extend(span(wait, home));
    }
  }
  if (life.last < 0 && buffer.getDefiningOp())
    life.first = life.last = position(buffer.getDefiningOp());
  return life;
}

} // namespace concord

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
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace concord {

Lifetimes::Lifetimes(Block &block) : block(block) {
  int64_t next = 0;
  for (Operation &op : block)
    positions[&op] = next++;
}

int64_t Lifetimes::position(Operation *op) const {
  Operation *top = block.findAncestorOpInBlock(*op);
  auto it = top ? positions.find(top) : positions.end();
  return it == positions.end() ? -1 : it->second;
}

Lifetime Lifetimes::of(Value buffer) const {
  Lifetime life;
  life.first = static_cast<int64_t>(positions.size());
  SmallVector<Value> worklist = {buffer};
  llvm::SmallPtrSet<Value, 8> seen;
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      int64_t at = position(user);
      bool aliases = false;
      auto follow = [&](Value next) {
        if (isa<BaseMemRefType>(next.getType())) {
          worklist.push_back(next);
          aliases = true;
        }
      };
      for (Value result : user->getResults())
        follow(result);
      for (Region &region : user->getRegions())
        for (BlockArgument argument : region.getArguments())
          follow(argument);
      // A region's terminator hands the value to the operation around it.
      if (user->hasTrait<OpTrait::IsTerminator>() && user->getParentOp() &&
          block.findAncestorOpInBlock(*user) != user)
        for (Value result : user->getParentOp()->getResults())
          follow(result);
      // A view alone touches nothing: its users count.
      bool pureView = aliases && user->getNumRegions() == 0 &&
                      !user->hasTrait<OpTrait::IsTerminator>() &&
                      isMemoryEffectFree(user);
      if (pureView)
        continue;
      life.first = std::min(life.first, at);
      life.last = std::max(life.last, at);
      // In flight until its wait, wherever the wait is.
      if (auto start = dyn_cast<comm::StartOp>(user))
        for (Operation *wait : start.getFuture().getUsers())
          life.last = std::max(life.last, position(wait));
    }
  }
  if (life.last < 0 && buffer.getDefiningOp())
    life.first = life.last = position(buffer.getDefiningOp());
  return life;
}

} // namespace concord

//===- Fences.cpp - What communication may not be moved across ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/Fences.h"

#include "comm/Comm.h"

using namespace mlir;

namespace concord {

void Fences::run(func::FuncOp function) {
  places.clear();
  fenced.clear();
  next = epoch = 0;
  for (Block &block : function.getBody())
    (void)visit(block);
}

bool isUnknown(Operation &op) {
  // Regions are judged by what they hold.
  return !isa<MemoryEffectOpInterface>(op) &&
         !isa<comm::CollectiveOpInterface, comm::WaitOp, comm::GroupOp>(op) &&
         !op.hasTrait<OpTrait::IsTerminator>() &&
         !op.hasTrait<OpTrait::HasRecursiveMemoryEffects>() && !isPure(&op);
}

/// Communicates, as far as one can tell, and is no collective of ours.
static bool isFence(Operation &op) {
  if (isa<comm::CollectiveOpInterface, comm::WaitOp>(op))
    return false;
  if (isa<comm::GroupOp>(op))
    return true;
  if (auto effects = dyn_cast<MemoryEffectOpInterface>(op)) {
    SmallVector<MemoryEffects::EffectInstance> list;
    effects.getEffects(list);
    return llvm::any_of(list, [](const MemoryEffects::EffectInstance &effect) {
      return effect.getResource() == comm::IssueResource::get();
    });
  }
  return isUnknown(op);
}

bool Fences::visit(Block &block) {
  bool any = false;
  for (Operation &op : block) {
    bool fence = isFence(op);
    places[&op] = {next++, epoch};
    for (Region &region : op.getRegions())
      for (Block &inner : region)
        fence |= visit(inner);
    if (fence) {
      fenced.insert(&op);
      ++epoch;
      // The fence itself is on neither side.
      places[&op].epoch = epoch++;
      any = true;
    }
  }
  return any;
}

bool Fences::areNear(Operation *a, Operation *b) const {
  auto first = places.find(a), second = places.find(b);
  return a->getBlock() == b->getBlock() && first != places.end() &&
         second != places.end() && first->second.epoch == second->second.epoch;
}

int64_t Fences::position(Operation *op) const {
  auto found = places.find(op);
  return found == places.end() ? -1 : found->second.position;
}

void Fences::like(Operation *op, Operation *old) {
  auto found = places.find(old);
  if (found != places.end())
    places[op] = Place(found->second);
}

} // namespace concord

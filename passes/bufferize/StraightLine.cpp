//===- StraightLine.cpp - What needs no alias analysis --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values that share a buffer are one class (a union-find). In a straight line a
// write in place is right where its class has no later use: whoever would need
// the old contents comes after it.
//
//===----------------------------------------------------------------------===//

#include "bufferize/Bufferize.h"

#include "comm/Comm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"

using namespace mlir;
using namespace mlir::bufferization;

namespace concord {
namespace {

bool isTensor(Value value) { return isa<TensorType>(value.getType()); }

bool hasTensors(Operation *op) {
  return llvm::any_of(op->getOperands(), isTensor) ||
         llvm::any_of(op->getResults(), isTensor);
}

class StraightLine {
public:
  StraightLine(Block &block, const AnalysisState &state)
      : block(block), state(state) {}
  bool inPlace();

private:
  struct Class {
    uint32_t parent;
    int64_t lastUse;
    bool writable;
  };
  bool visit(Operation &op, int64_t at);
  bool mayWrite(OpOperand &operand, int64_t at);
  bool define(Value value, bool writable);
  uint32_t find(Value value) {
    uint32_t id = ids.lookup(value);
    while (classes[id].parent != id)
      id = classes[id].parent = classes[classes[id].parent].parent;
    return id;
  }
  void join(Value a, Value b) {
    uint32_t x = find(a), y = find(b);
    classes[y].parent = x;
    classes[x].lastUse = std::max(classes[x].lastUse, classes[y].lastUse);
    classes[x].writable &= classes[y].writable;
  }

  Block &block;
  const AnalysisState &state;
  DenseMap<Operation *, int64_t> positions;
  DenseMap<Value, uint32_t> ids;
  SmallVector<Class> classes;
};

} // namespace

bool StraightLine::define(Value value, bool writable) {
  int64_t last = -1;
  for (Operation *user : value.getUsers()) {
    auto found = positions.find(user);
    if (found == positions.end())
      return false;
    last = std::max(last, found->second);
  }
  auto id = static_cast<uint32_t>(classes.size());
  ids[value] = id;
  classes.push_back({id, last, writable});
  return true;
}

/// Whether what shares the operand's buffer is not needed any more.
bool StraightLine::mayWrite(OpOperand &operand, int64_t at) {
  uint32_t id = find(operand.get());
  if (!classes[id].writable || classes[id].lastUse > at)
    return false;
  for (OpOperand &other : operand.getOwner()->getOpOperands()) {
    if (&other == &operand || !isTensor(other.get()) || find(other.get()) != id)
      continue;
    auto op = cast<BufferizableOpInterface>(operand.getOwner());
    bool elementwise =
        other.get() == operand.get() &&
        op.bufferizesToElementwiseAccess(state, {&operand, &other});
    if (state.bufferizesToMemoryWrite(other) ||
        (state.bufferizesToMemoryRead(other) && !elementwise))
      return false;
  }
  return true;
}

bool StraightLine::visit(Operation &op, int64_t at) {
  for (Region &region : op.getRegions()) {
    WalkResult nested = region.walk([](Operation *inner) {
      return hasTensors(inner) ? WalkResult::interrupt()
                               : WalkResult::advance();
    });
    if (nested.wasInterrupted())
      return false;
  }
  if (!hasTensors(&op))
    return true;
  // Inserted slices and calls have more to be found out.
  if (isa<SubsetInsertionOpInterface>(op) &&
      !isa<MaterializeInDestinationOp>(op))
    return false;
  if (isa<CallOpInterface>(op) || op.hasTrait<OpTrait::IsTerminator>())
    return false;
  if (auto read = dyn_cast<ToBufferOp>(op))
    return read.getReadOnly() &&
           llvm::all_of(read->getUsers(), [&](Operation *user) {
             return isa<memref::CopyOp>(user) && user == op.getNextNode();
           });
  auto bufferizable = dyn_cast<BufferizableOpInterface>(op);
  if (!bufferizable)
    return false;
  for (Value result : op.getResults())
    if (isTensor(result) &&
        !define(result, bufferizable.isWritable(result, state)))
      return false;
  // A start's results come from its wait; its outs are written there.
  for (OpOperand &operand : op.getOpOperands()) {
    if (!isTensor(operand.get()))
      continue;
    AliasingValueList aliases = state.getAliasingValues(operand);
    if (aliases.getNumAliases() == 0)
      continue;
    if (state.bufferizesToMemoryWrite(operand) && !mayWrite(operand, at))
      return false;
    for (const AliasingValue &alias : aliases)
      join(operand.get(), alias.value);
  }
  return true;
}

bool StraightLine::inPlace() {
  int64_t at = 0;
  for (Operation &op : block)
    positions[&op] = at++;
  for (BlockArgument argument : block.getArguments())
    if (isTensor(argument) && !define(argument, false))
      return false;
  at = 0;
  for (Operation &op : block)
    if (!visit(op, at++))
      return false;
  return true;
}

bool bufferizesInPlace(ModuleOp module, const BufferizationOptions &options) {
  AnalysisState state(options);
  for (Operation &op : *module.getBody()) {
    auto function = dyn_cast<func::FuncOp>(op);
    if (!function)
      continue;
    bool tensors =
        llvm::any_of(function.getResultTypes(), llvm::IsaPred<TensorType>);
    if (tensors ||
        (!function.isExternal() &&
         (!function.getBody().hasOneBlock() ||
          !StraightLine(function.getBody().front(), state).inPlace())))
      return false;
    if (function.isExternal() &&
        llvm::any_of(function.getArgumentTypes(), llvm::IsaPred<TensorType>))
      return false;
  }
  return true;
}

void writeToDestinations(ModuleOp module, const llvm::DenseSet<Value> &views) {
  module.walk([&](MaterializeInDestinationOp op) {
    Value destination = op.getDest();
    if (!isa<BaseMemRefType>(destination.getType()) ||
        !destination.hasOneUse() || !op.getRestrict() || !op.getWritable() ||
        (!isa<BlockArgument>(destination) && !views.contains(destination)))
      return;
    Value value = op.getSource();
    while (auto dst = value.getDefiningOp<DestinationStyleOpInterface>())
      value = dst.getTiedOpOperand(cast<OpResult>(value))->get();
    auto empty = value.getDefiningOp<tensor::EmptyOp>();
    if (!empty || empty.getType() != op.getSource().getType())
      return;
    Operation *first = *empty->user_begin(),
              *view = destination.getDefiningOp();
    for (Operation *user : empty->getUsers()) {
      if (user->getBlock() != op->getBlock())
        return;
      if (user->isBeforeInBlock(first))
        first = user;
    }
    if (view && !view->isBeforeInBlock(first))
      return;
    OpBuilder builder(first);
    Value place = ToTensorOp::create(builder, op.getLoc(), empty.getType(),
                                     destination, /*restrict=*/true,
                                     /*writable=*/true);
    empty.getResult().replaceAllUsesWith(place);
    empty.erase();
  });
}

} // namespace concord

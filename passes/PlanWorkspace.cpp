//===- PlanWorkspace.cpp - comm-plan-workspace ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lifetimes are intervals over the top-level operations of the function;
// offsets are chosen largest first, each at the lowest place that no buffer
// live at the same time occupies (the greedy-by-size rule of Pisarchyk and Lee,
// "Efficient Memory Management for Deep Neural Net Inference", 2020).
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/Lifetimes.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

#include <algorithm>
#include <numeric>

namespace concord {
#define GEN_PASS_DEF_COMMPLANWORKSPACE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct Planned {
  memref::AllocOp op;
  Lifetime life;
  int64_t bytes = 0;
  int64_t offset = 0;
};

int64_t alignUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

/// Assigns offsets; returns the size of the arena.
int64_t place(MutableArrayRef<Planned> buffers) {
  SmallVector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  SmallVector<size_t> placed;
  int64_t size = 0;
  for (size_t index : order) {
    Planned &buffer = buffers[index];
    SmallVector<std::pair<int64_t, int64_t>> taken;
    for (size_t other : placed)
      if (buffers[other].life.overlaps(buffer.life))
        taken.push_back({buffers[other].offset,
                         buffers[other].offset + buffers[other].bytes});
    llvm::sort(taken);
    int64_t offset = 0;
    for (auto [begin, end] : taken) {
      if (offset + buffer.bytes <= begin)
        break;
      offset = std::max(offset, end);
    }
    buffer.offset = offset;
    size = std::max(size, offset + buffer.bytes);
    placed.push_back(index);
  }
  return size;
}

/// The largest sum of sizes that are live at one operation.
int64_t lowerBound(ArrayRef<Planned> buffers) {
  std::map<int64_t, int64_t> change;
  for (const Planned &buffer : buffers) {
    change[buffer.life.first] += buffer.bytes;
    change[buffer.life.last + 1] -= buffer.bytes;
  }
  int64_t live = 0, peak = 0;
  for (auto &entry : change)
    peak = std::max(peak, live += entry.second);
  return peak;
}

struct PlanWorkspace
    : public concord::impl::CommPlanWorkspaceBase<PlanWorkspace> {
  using CommPlanWorkspaceBase::CommPlanWorkspaceBase;

  LogicalResult plan(func::FuncOp function) {
    if (!function.getBody().hasOneBlock())
      return function.emitError(
          "has branches between blocks; only structured control "
          "flow (scf) can be planned");
    Block &body = function.getBody().front();
    // An allocation inside a region lives as long as the region's operation.
    SmallVector<memref::AllocOp> allocs;
    function.walk([&](memref::AllocOp op) { allocs.push_back(op); });
    for (memref::AllocOp op : allocs) {
      if (!op.getType().hasStaticShape() ||
          !op.getType().getLayout().isIdentity())
        return op.emitOpError(
            "cannot be planned: its shape is only known at run "
            "time; fix the dimension with --dim");
      if (op->getBlock() != &body)
        op->moveBefore(body.findAncestorOpInBlock(*op));
    }
    function.walk([](memref::DeallocOp op) { op.erase(); });

    Lifetimes lifetimes(body);
    SmallVector<Planned> buffers;
    for (memref::AllocOp op : allocs) {
      Planned buffer{op, lifetimes.of(op.getResult()), 0, 0};
      buffer.bytes = alignUp(op.getType().getNumElements() *
                                 elementBytes(op.getType().getElementType()),
                             align);
      // With bounded dimensions the place is for the largest size.
      if (auto most = op->getAttrOfType<IntegerAttr>(kMaxBytes))
        buffer.bytes = alignUp(most.getInt(), align);
      buffers.push_back(buffer);
    }
    int64_t size = place(buffers);
    OpBuilder builder(function.getContext());
    auto arenaType = MemRefType::get({size}, builder.getI8Type());
    (void)function.insertArgument(
        0, arenaType,
        builder.getDictionaryAttr(
            builder.getNamedAttr("comm.arena", builder.getUnitAttr())),
        function.getLoc());
    Value arena = function.getArgument(0);
    SmallVector<int64_t> offsets, sizes, first, last;
    for (Planned &buffer : buffers) {
      builder.setInsertionPoint(buffer.op);
      Value shift = arith::ConstantIndexOp::create(builder, buffer.op.getLoc(),
                                                   buffer.offset);
      Value view = memref::ViewOp::create(builder, buffer.op.getLoc(),
                                          buffer.op.getType(), arena, shift,
                                          ValueRange());
      if (Attribute most = buffer.op->getAttr(kMaxBytes))
        view.getDefiningOp()->setAttr(kMaxBytes, most);
      buffer.op.replaceAllUsesWith(view);
      buffer.op.erase();
      offsets.push_back(buffer.offset);
      sizes.push_back(buffer.bytes);
      first.push_back(buffer.life.first);
      last.push_back(buffer.life.last);
    }
    builder.setInsertionPointAfter(function);
    comm::ArenaOp::create(builder, function.getLoc(), function.getSymName(),
                          size, align, lowerBound(buffers), offsets, sizes,
                          first, last);
    arenaBytes += size;
    explain(function, function.getLoc(), "comm-plan-workspace", "place",
            "greedy-by-size",
            "bytes=" + Twine(size) +
                " lower_bound_bytes=" + Twine(lowerBound(buffers)) +
                " buffers=" + Twine(buffers.size()));
    return success();
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (module->hasAttr(kSizesPending))
      return;
    if (align < 1 || (align & (align - 1)) || align > 4096) {
      module.emitError(
          "comm-plan-workspace: align is a power of two up to 4096");
      return signalPassFailure();
    }
    auto isPlanned = [](func::FuncOp function) {
      return function && function.getNumArguments() &&
             function.getArgAttr(0, "comm.arena");
    };
    // A plan stays with the function that was rewritten for it.
    for (auto arena :
         llvm::make_early_inc_range(module.getOps<comm::ArenaOp>()))
      if (!isPlanned(module.lookupSymbol<func::FuncOp>(arena.getProgram())))
        arena.erase();
    for (func::FuncOp function : entryFunctions(module)) {
      if (isPlanned(function))
        continue;
      if (failed(plan(function)))
        return signalPassFailure();
    }
    setPhase(module, Phase::Planned);
  }
};

} // namespace

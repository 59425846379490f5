//===- PlanWorkspace.cpp - comm-plan-workspace ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lifetimes are intervals over the operations of the function; where buffers
// lie is chosen by analysis/memory.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "bufferize/Bufferize.h"
#include "comm/Comm.h"
#include "common/CarriedLayouts.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/Lifetimes.h"
#include "common/PlanBuilder.h"
#include "common/Workspace.h"
#include "concord/memory/Place.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <map>
#include <vector>

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

struct PlanWorkspace
    : public concord::impl::CommPlanWorkspaceBase<PlanWorkspace> {
  using CommPlanWorkspaceBase::CommPlanWorkspaceBase;

  /// What planning looks at.
  struct Found {
    SmallVector<Operation *> loops;
    SmallVector<comm::ComputeOp> scratch; ///< that declare it and have none yet
    SmallVector<memref::DeallocOp> frees;
    memref::ReallocOp grown;
  };
  static Found find(func::FuncOp function) {
    Found found;
    function.walk([&](Operation *op) {
      if (auto compute = dyn_cast<comm::ComputeOp>(op)) {
        if (compute.getWorkspaceBytes().value_or(0) &&
            !op->hasAttr("workspace"))
          found.scratch.push_back(compute);
      } else if (isa<scf::ForOp, scf::WhileOp>(op)) {
        found.loops.push_back(op);
      } else if (auto free = dyn_cast<memref::DeallocOp>(op)) {
        found.frees.push_back(free);
      } else if (auto realloc = dyn_cast<memref::ReallocOp>(op)) {
        if (!found.grown)
          found.grown = realloc;
      }
    });
    return found;
  }

  /// Opaque compute gets the scratch memory that it declares.
  static void giveWorkspace(ArrayRef<comm::ComputeOp> list) {
    for (comm::ComputeOp op : list) {
      OpBuilder builder(op);
      auto type = MemRefType::get(
          {static_cast<int64_t>(*op.getWorkspaceBytes())}, builder.getI8Type());
      Value scratch = memref::AllocOp::create(builder, op.getLoc(), type);
      op.getOperandsMutable().append(scratch);
      op->setAttr("workspace", builder.getUnitAttr());
    }
  }

  /// What a loop hands on in a new buffer is copied to one that stays, so that
  /// each round may make its buffers at the same places.
  LogicalResult settle(Operation *loop) {
    MutableArrayRef<OpOperand> inits;
    Block::BlockArgListType carried;
    Operation *yield = nullptr;
    auto conditional = dyn_cast<scf::WhileOp>(loop);
    if (auto counted = dyn_cast<scf::ForOp>(loop)) {
      inits = counted.getInitsMutable();
      carried = counted.getRegionIterArgs();
      yield = counted.getBody()->getTerminator();
    } else {
      inits = loop->getOpOperands();
      carried = conditional.getBeforeArguments();
      yield = conditional.getYieldOp();
    }
    /// The buffer that an argument of the loop stands for.
    auto resolve = [&](Value value) {
      value = stripCasts(value);
      auto argument = dyn_cast<BlockArgument>(value);
      if (conditional && argument &&
          argument.getOwner() == conditional.getAfterBody())
        value = stripCasts(
            conditional.getConditionOp().getArgs()[argument.getArgNumber()]);
      return value;
    };
    SmallVector<std::pair<Value, Value>> copies;
    OpBuilder builder(loop);
    for (auto [init, argument, operand] :
         llvm::zip(inits, carried, yield->getOpOperands())) {
      auto type = dyn_cast<MemRefType>(argument.getType());
      if (!isa<BaseMemRefType>(argument.getType()) ||
          resolve(operand.get()) == argument)
        continue;
      if (!type || !type.hasStaticShape() || !type.getLayout().isIdentity())
        return loop->emitOpError("cannot be planned: it carries ")
               << (type && type.hasStaticShape()
                       ? "a view of a part of a buffer from round to round; "
                         "copy it into a buffer of its own"
                       : "a buffer whose shape is only known at run time; fix "
                         "the dimension with --dim");
      builder.setInsertionPoint(loop);
      Value stays = memref::AllocOp::create(builder, loop->getLoc(), type);
      memref::CopyOp::create(builder, loop->getLoc(), init.get(), stays);
      init.set(stays);
      // Another argument's buffer may be overwritten before it is read.
      builder.setInsertionPoint(yield);
      Value from = operand.get();
      Value root = from;
      while (auto view = root.getDefiningOp<ViewLikeOpInterface>())
        root = view.getViewSource();
      if (isa<BlockArgument>(root)) {
        Value aside = memref::AllocOp::create(builder, loop->getLoc(), type);
        memref::CopyOp::create(builder, loop->getLoc(), from, aside);
        from = aside;
      }
      copies.push_back({from, stays});
      operand.set(stays);
    }
    builder.setInsertionPoint(yield);
    for (auto [from, to] : copies)
      memref::CopyOp::create(builder, loop->getLoc(), from, to);
    return success();
  }

  /// Why the place of `op` cannot be chosen here; null when it can.
  static const char *cannotPlan(memref::AllocOp op) {
    MemRefType type = op.getType();
    if (!type.hasStaticShape() || !type.getLayout().isIdentity())
      return "its shape is only known at run time; fix the dimension with "
             "--dim";
    if (type.getMemorySpace())
      return "it is in a memory space of its own, the arena is in the default "
             "one; take it as an argument of the function";
    if (op->getParentOfType<scf::ParallelOp>() ||
        op->getParentOfType<scf::ForallOp>())
      return "rounds of the parallel loop around it may run at one time, and "
             "one place is not enough for them; make it a sequential loop "
             "(scf.for), or take the buffers of all rounds outside";
    return nullptr;
  }

  /// Says which buffers make the largest live set.
  LogicalResult refuse(func::FuncOp function, ArrayRef<Planned> buffers,
                       const memory::Placement &placement, int64_t limit) {
    int64_t at = 0, most = -1;
    std::map<int64_t, int64_t> changes;
    for (const Planned &buffer : buffers) {
      changes[buffer.life.first] += buffer.bytes;
      changes[buffer.life.last + 1] -= buffer.bytes;
    }
    int64_t live = 0;
    for (auto [time, change] : changes)
      if ((live += change) > most) {
        most = live;
        at = time;
      }
    SmallVector<Planned> largest;
    for (const Planned &buffer : buffers)
      if (buffer.life.first <= at && at <= buffer.life.last)
        largest.push_back(buffer);
    llvm::stable_sort(largest, [](const Planned &a, const Planned &b) {
      return a.bytes > b.bytes;
    });
    InFlightDiagnostic error =
        emitError(function.getLoc(), "comm-plan-workspace: the arena of ")
        << function.getSymName() << " takes " << placement.bytes
        << " bytes, over the limit of " << limit << "; " << placement.bound
        << " are live at one time, in " << largest.size() << " buffers";
    if (placement.bound <= limit)
      error << (placement.optimal ? ", and no placement of them is smaller"
                                  : ", and no smaller placement was found");
    error << ". Raise memory=, or split the program";
    constexpr size_t kShown = 5;
    for (Planned &buffer : MutableArrayRef(largest).take_front(kShown)) {
      std::string where = describeLocation(buffer.op.getLoc());
      error.attachNote(buffer.op.getLoc())
          << buffer.bytes << " bytes, " << buffer.op.getType()
          << (where.empty() ? "" : " of ") << where;
    }
    return error;
  }

  LogicalResult plan(func::FuncOp function, std::optional<int64_t> limit) {
    if (!function.getBody().hasOneBlock())
      return function.emitError(
          "has branches between blocks; only structured control "
          "flow (scf) can be planned");
    Found found = find(function);
    for (Operation *loop : found.loops)
      if (failed(settle(loop)))
        return failure();
    giveWorkspace(found.scratch);
    Block &body = function.getBody().front();
    SmallVector<memref::AllocOp> allocs;
    function.walk([&](memref::AllocOp op) { allocs.push_back(op); });
    for (memref::AllocOp op : allocs)
      if (const char *why = cannotPlan(op))
        return op.emitOpError("cannot be planned: ") << why;
    if (found.grown)
      return found.grown.emitOpError(
          "cannot be planned: what it grows may move at run time; allocate the "
          "final size at once");
    for (memref::DeallocOp op : found.frees)
      op.erase();

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
    std::vector<memory::Buffer> intervals;
    for (const Planned &buffer : buffers)
      intervals.push_back({buffer.life.first, buffer.life.last, buffer.bytes});
    memory::Placement placement = memory::place(intervals);
    if (limit && placement.bytes > *limit)
      return refuse(function, buffers, placement, *limit);
    for (auto [buffer, offset] : llvm::zip(buffers, placement.offsets))
      buffer.offset = offset;
    int64_t size = placement.bytes, bound = placement.bound;
    OpBuilder builder(function.getContext());
    auto arenaType = MemRefType::get({size}, builder.getI8Type());
    (void)function.insertArgument(
        0, arenaType,
        builder.getDictionaryAttr(
            builder.getNamedAttr("comm.arena", builder.getUnitAttr())),
        function.getLoc());
    Value arena = function.getArgument(0);
    SmallVector<int64_t> offsets, sizes, first, last;
    // One constant for all that lie at one place.
    std::map<int64_t, Value> shifts;
    builder.setInsertionPointToStart(&body);
    for (Planned &buffer : buffers)
      if (Value &shift = shifts[buffer.offset]; !shift)
        shift = arith::ConstantIndexOp::create(builder, function.getLoc(),
                                               buffer.offset);
    for (Planned &buffer : buffers) {
      builder.setInsertionPoint(buffer.op);
      Value shift = shifts[buffer.offset];
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
                          size, align, bound, offsets, sizes, first, last);
    arenaBytes += size;
    explain(function, function.getLoc(), "comm-plan-workspace", "place",
            placement.rule,
            "bytes=" + Twine(size) + " lower_bound_bytes=" + Twine(bound) +
                " buffers=" + Twine(buffers.size()) +
                " gap_bytes=" + Twine(size - bound) + " gap_reason=" +
                (size == bound       ? "none"
                 : placement.optimal ? "no-placement-is-smaller"
                                     : "fragmentation"));
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
    // What is still in tensors gets its buffers first.
    bool tensors =
        llvm::any_of(entryFunctions(module), [](func::FuncOp function) {
          return function
              .walk([](Operation *op) {
                return llvm::any_of(op->getResultTypes(),
                                    llvm::IsaPred<TensorType>)
                           ? WalkResult::interrupt()
                           : WalkResult::advance();
              })
              .wasInterrupted();
        });
    if (tensors) {
      bool straight = false;
      if (failed(bufferizeModule(module, straight)))
        return signalPassFailure();
      OpPassManager manager("builtin.module");
      manager.addPass(createCanonicalizerPass());
      if (!straight && failed(runPipeline(manager, module)))
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
    std::optional<int64_t> limit =
        memory >= 0 ? std::optional(memory.getValue()) : memoryLimit(module);
    for (func::FuncOp function : entryFunctions(module)) {
      if (isPlanned(function))
        continue;
      if (failed(plan(function, limit)))
        return signalPassFailure();
    }
    setPhase(module, Phase::Planned);
  }
};

} // namespace

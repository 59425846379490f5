//===- PlanWorkspace.cpp - comm-plan-workspace ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lifetimes are intervals over the operations of the function. Offsets are
// chosen by several rules, of which the best plan is kept: as memory would be
// given out while the program runs, and largest first, each at the lowest place
// that no buffer live at the same time occupies (the greedy-by-size rule of
// Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020).
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/Lifetimes.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

namespace concord {
#define GEN_PASS_DEF_COMMPLANWORKSPACE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

/// Pairs of buffers that are live together, up to which more than one rule is
/// tried: a second or so.
constexpr int64_t kMaxPairs = 100000000;

struct Planned {
  memref::AllocOp op;
  Lifetime life;
  int64_t bytes = 0;
  int64_t offset = 0;
};

int64_t alignUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

/// Intervals of time by number; finds those that meet another one. A segment
/// tree: what covers a node's whole span is kept there, and with every node all
/// that begins or ends inside of it.
class Timeline {
public:
  explicit Timeline(int64_t events) {
    while (leaves < events)
      leaves *= 2;
    covering.resize(2 * leaves);
    inside.resize(2 * leaves);
  }
  void insert(const Lifetime &life, size_t id) {
    visit(life, 1, 0, leaves, [&](size_t node, bool whole) {
      (whole ? covering : inside)[node].push_back(id);
    });
  }
  /// Calls `found` for each interval that meets `life`, some more than once.
  template <typename Found> void find(const Lifetime &life, Found found) const {
    visit(life, 1, 0, leaves, [&](size_t node, bool whole) {
      for (size_t id : covering[node])
        found(id);
      if (!whole)
        return;
      // All that lies below, too.
      for (size_t id : inside[node])
        found(id);
    });
  }

private:
  template <typename Act>
  void visit(const Lifetime &life, size_t node, int64_t begin, int64_t end,
             const Act &act) const {
    if (life.last < begin || life.first >= end)
      return;
    bool whole = life.first <= begin && end - 1 <= life.last;
    act(node, whole);
    if (whole)
      return;
    int64_t middle = begin + (end - begin) / 2;
    visit(life, 2 * node, begin, middle, act);
    visit(life, 2 * node + 1, middle, end, act);
  }

  int64_t leaves = 1;
  std::vector<std::vector<size_t>> covering, inside;
};

/// Gives each buffer, in that order, the lowest place that no buffer live at
/// the same time occupies. Returns the size of the arena.
int64_t placeInOrder(MutableArrayRef<Planned> buffers, ArrayRef<size_t> order,
                     int64_t events) {
  Timeline timeline(events);
  std::vector<size_t> stamp(buffers.size(), SIZE_MAX);
  SmallVector<std::pair<int64_t, int64_t>> taken;
  int64_t size = 0;
  for (size_t index : order) {
    Planned &buffer = buffers[index];
    taken.clear();
    timeline.find(buffer.life, [&](size_t other) {
      if (stamp[other] == index || !buffers[other].life.overlaps(buffer.life))
        return;
      stamp[other] = index;
      taken.push_back({buffers[other].offset,
                       buffers[other].offset + buffers[other].bytes});
    });
    llvm::sort(taken);
    int64_t offset = 0;
    for (auto [begin, end] : taken) {
      if (offset + buffer.bytes <= begin)
        break;
      offset = std::max(offset, end);
    }
    buffer.offset = offset;
    size = std::max(size, offset + buffer.bytes);
    timeline.insert(buffer.life, index);
  }
  return size;
}

/// As memory is given out and taken back while the program runs: the smallest
/// hole that fits, else the end. Linear in buffers times holes.
int64_t placeInTime(MutableArrayRef<Planned> buffers) {
  SmallVector<size_t> begins(buffers.size());
  std::iota(begins.begin(), begins.end(), 0);
  SmallVector<size_t> ends = begins;
  llvm::stable_sort(begins, [&](size_t a, size_t b) {
    return std::make_pair(buffers[a].life.first, -buffers[a].bytes) <
           std::make_pair(buffers[b].life.first, -buffers[b].bytes);
  });
  llvm::stable_sort(ends, [&](size_t a, size_t b) {
    return buffers[a].life.last < buffers[b].life.last;
  });
  std::map<int64_t, int64_t> holes = {{0, INT64_MAX}}; // begin -> end
  int64_t size = 0;
  size_t ended = 0;
  for (size_t index : begins) {
    Planned &buffer = buffers[index];
    for (; ended < ends.size() &&
           buffers[ends[ended]].life.last < buffer.life.first;
         ++ended) {
      Planned &old = buffers[ends[ended]];
      if (!old.bytes)
        continue;
      int64_t begin = old.offset, end = old.offset + old.bytes;
      auto next = holes.lower_bound(begin);
      if (next != holes.end() && next->first == end) {
        end = next->second;
        next = holes.erase(next);
      }
      if (next != holes.begin()) {
        auto previous = std::prev(next);
        if (previous->second == begin) {
          begin = previous->first;
          holes.erase(previous);
        }
      }
      holes[begin] = end;
    }
    if (!buffer.bytes) {
      buffer.offset = 0;
      continue;
    }
    auto best = holes.end();
    for (auto hole = holes.begin(); hole != holes.end(); ++hole)
      if (hole->second - hole->first >= buffer.bytes &&
          (best == holes.end() ||
           hole->second - hole->first < best->second - best->first))
        best = hole;
    int64_t begin = best->first, end = best->second;
    holes.erase(best);
    buffer.offset = begin;
    if (begin + buffer.bytes < end)
      holes[begin + buffer.bytes] = end;
    size = std::max(size, begin + buffer.bytes);
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

  /// The best of a few orders; stops where nothing better is possible.
  int64_t place(MutableArrayRef<Planned> buffers, int64_t events,
                StringRef &rule) {
    int64_t bound = lowerBound(buffers);
    int64_t best = placeInTime(buffers);
    rule = "best-fit-in-time";
    // How much the other orders would have to look at.
    std::vector<int64_t> begun(events + 2), ended(events + 2);
    for (const Planned &buffer : buffers) {
      ++begun[buffer.life.first + 1];
      ++ended[buffer.life.last + 1];
    }
    for (size_t i = 1; i < begun.size(); ++i) {
      begun[i] += begun[i - 1];
      ended[i] += ended[i - 1];
    }
    int64_t pairs = 0;
    for (const Planned &buffer : buffers)
      pairs += begun[buffer.life.last + 1] - ended[buffer.life.first];
    if (best == bound || pairs > kMaxPairs)
      return best;
    SmallVector<int64_t> offsets;
    for (const Planned &buffer : buffers)
      offsets.push_back(buffer.offset);
    auto attempt = [&](StringRef name, auto before) {
      if (best == bound)
        return;
      SmallVector<size_t> order(buffers.size());
      std::iota(order.begin(), order.end(), 0);
      llvm::stable_sort(order, [&](size_t a, size_t b) {
        return before(buffers[a], buffers[b]);
      });
      int64_t size = placeInOrder(buffers, order, events);
      if (size >= best)
        return;
      best = size;
      rule = name;
      for (auto [offset, buffer] : llvm::zip(offsets, buffers))
        offset = buffer.offset;
    };
    attempt("greedy-by-size", [](const Planned &a, const Planned &b) {
      return a.bytes > b.bytes;
    });
    attempt("greedy-by-area", [](const Planned &a, const Planned &b) {
      auto area = [](const Planned &p) {
        return static_cast<double>(p.bytes) *
               static_cast<double>(p.life.last - p.life.first + 1);
      };
      return area(a) > area(b);
    });
    for (auto [offset, buffer] : llvm::zip(offsets, buffers))
      buffer.offset = offset;
    return best;
  }

  /// Opaque compute gets the scratch memory that it declares.
  void giveWorkspace(func::FuncOp function) {
    SmallVector<comm::ComputeOp> list;
    function.walk([&](comm::ComputeOp op) {
      if (op.getWorkspaceBytes().value_or(0) && !op->hasAttr("workspace"))
        list.push_back(op);
    });
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
  LogicalResult settleLoops(func::FuncOp function) {
    SmallVector<Operation *> loops;
    function.walk([&](Operation *op) {
      if (isa<scf::ForOp, scf::WhileOp>(op))
        loops.push_back(op);
    });
    for (Operation *loop : loops)
      if (failed(settle(loop)))
        return failure();
    return success();
  }

  static Value withoutCasts(Value value) {
    while (auto cast = value.getDefiningOp<memref::CastOp>())
      value = cast.getSource();
    return value;
  }

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
      value = withoutCasts(value);
      auto argument = dyn_cast<BlockArgument>(value);
      if (conditional && argument &&
          argument.getOwner() == conditional.getAfterBody())
        value = withoutCasts(
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
        return loop->emitOpError(
            "cannot be planned: it carries a buffer whose shape or layout is "
            "only known at run time; fix the dimension with --dim");
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

  LogicalResult plan(func::FuncOp function) {
    if (!function.getBody().hasOneBlock())
      return function.emitError(
          "has branches between blocks; only structured control "
          "flow (scf) can be planned");
    if (failed(settleLoops(function)))
      return failure();
    giveWorkspace(function);
    Block &body = function.getBody().front();
    SmallVector<memref::AllocOp> allocs;
    function.walk([&](memref::AllocOp op) { allocs.push_back(op); });
    for (memref::AllocOp op : allocs)
      if (!op.getType().hasStaticShape() ||
          !op.getType().getLayout().isIdentity())
        return op.emitOpError(
            "cannot be planned: its shape is only known at run "
            "time; fix the dimension with --dim");
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
    StringRef rule;
    int64_t size = place(buffers, lifetimes.events(), rule);
    int64_t bound = lowerBound(buffers);
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
                          size, align, bound, offsets, sizes, first, last);
    arenaBytes += size;
    explain(function, function.getLoc(), "comm-plan-workspace", "place", rule,
            "bytes=" + Twine(size) + " lower_bound_bytes=" + Twine(bound) +
                " buffers=" + Twine(buffers.size()) +
                " gap_bytes=" + Twine(size - bound) +
                " gap_reason=" + (size == bound ? "none" : "fragmentation"));
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
    bool tensors = false;
    for (func::FuncOp function : entryFunctions(module))
      function.walk([&](Operation *op) {
        tensors |=
            llvm::any_of(op->getResultTypes(), llvm::IsaPred<TensorType>);
      });
    if (tensors) {
      OpPassManager manager("builtin.module");
      manager.addPass(createCommBufferize());
      manager.addPass(createCanonicalizerPass());
      if (failed(runPipeline(manager, module)))
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

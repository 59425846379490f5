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
#include "common/Communicated.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/Lifetimes.h"
#include "common/PlanBuilder.h"
#include "common/Workspace.h"
#include "concord/memory/Together.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

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
};

/// A function on its way to its arena.
struct Program {
  func::FuncOp function;
  SmallVector<Planned> buffers;
  memory::Placement placement;

  std::vector<memory::Buffer> intervals() const {
    std::vector<memory::Buffer> list;
    for (const Planned &buffer : buffers)
      list.push_back({buffer.life.first, buffer.life.last, buffer.bytes});
    return list;
  }
};

/// What an arena may have beside its largest live set, or what it has alone, so
/// that what programs communicate lies at equal offsets.
constexpr double kEqualGrowth = 1.05;

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

  static bool isArena(BlockArgument argument) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return function &&
           function.getArgAttr(argument.getArgNumber(), "comm.arena");
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
  LogicalResult refuse(Program &program, int64_t limit) {
    func::FuncOp function = program.function;
    ArrayRef<Planned> buffers = program.buffers;
    const memory::Placement &placement = program.placement;
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

  /// All that is to be placed.
  LogicalResult prepare(Program &program) {
    func::FuncOp function = program.function;
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
    for (memref::AllocOp op : allocs) {
      Planned buffer{op, lifetimes.of(op.getResult()), 0};
      buffer.bytes = alignUp(op.getType().getNumElements() *
                                 elementBytes(op.getType().getElementType()),
                             align);
      // With bounded dimensions the place is for the largest size.
      if (auto most = op->getAttrOfType<IntegerAttr>(kMaxBytes))
        buffer.bytes = alignUp(most.getInt(), align);
      program.buffers.push_back(buffer);
    }
    return success();
  }

  /// Where everything lies: what programs have in one collective at one offset
  /// in all of them, as far as that is possible.
  LogicalResult placeAll(MutableArrayRef<Program> programs,
                         std::optional<int64_t> limit) {
    ModuleOp module = getOperation();
    bool proven = true;
    FailureOr<std::vector<SharedIssue>> shared = sharedIssues(module, proven);
    if (failed(shared))
      return failure();
    llvm::DenseMap<Value, memory::Member> placed;
    std::vector<std::vector<memory::Buffer>> arenas;
    for (auto [a, program] : llvm::enumerate(programs)) {
      arenas.push_back(program.intervals());
      for (auto [b, buffer] : llvm::enumerate(program.buffers))
        placed[buffer.op.getResult()] = {static_cast<uint32_t>(a),
                                         static_cast<uint32_t>(b)};
    }
    // One set for each buffer of a collective, and why some are none.
    struct Operand {
      const SharedIssue *issue;
      unsigned index;
      const char *apart;
      size_t set;
    };
    std::vector<Operand> operands;
    std::vector<std::vector<memory::Member>> sets;
    for (const SharedIssue &issue : *shared) {
      size_t most = 0;
      for (const SharedIssue::Part &part : issue.parts)
        most = std::max(most, issueBuffers(part.op).size());
      for (unsigned index = 0; index < most; ++index) {
        std::vector<memory::Member> members;
        const char *apart = proven ? whyApart(issue, index, placed, members)
                                   : "order-not-proven";
        operands.push_back({&issue, index, apart, sets.size()});
        if (!apart)
          sets.push_back(std::move(members));
      }
    }
    std::vector<memory::Apart> found;
    if (sets.empty()) {
      for (auto [program, buffers] : llvm::zip(programs, arenas))
        program.placement = memory::place(buffers);
    } else {
      memory::JointPlacement joint =
          memory::placeTogether(arenas, sets, kEqualGrowth, limit);
      for (auto [program, placement] : llvm::zip(programs, joint.arenas))
        program.placement = std::move(placement);
      found = std::move(joint.sets);
    }
    llvm::MapVector<Operation *, SmallVector<bool>> symmetric;
    for (Operand &operand : operands) {
      if (!operand.apart)
        operand.apart = reasonOf(found[operand.set]);
      for (const SharedIssue::Part &part : operand.issue->parts) {
        SmallVector<bool> &flags = symmetric[part.op];
        flags.resize(issueBuffers(part.op).size());
        if (operand.index < flags.size())
          flags[operand.index] = !operand.apart;
      }
      ++(operand.apart ? numPerRank : numSymmetric);
      if (operand.apart)
        explainApart(*operand.issue, operand.index, operand.apart);
    }
    for (auto &[op, flags] : symmetric)
      op->setAttr(kSymmetric, DenseBoolArrayAttr::get(op->getContext(), flags));
    return success();
  }

  /// Why a buffer of a collective has no common offset; null, and its
  /// `members`, where one can be looked for.
  static const char *
  whyApart(const SharedIssue &issue, unsigned index,
           const llvm::DenseMap<Value, memory::Member> &placed,
           std::vector<memory::Member> &members) {
    std::optional<int64_t> bytes;
    comm::CollectiveOpInterface first = issue.parts.front().op;
    for (SharedIssue::Part part : issue.parts) {
      SmallVector<Value> buffers = issueBuffers(part.op);
      if (index >= buffers.size() ||
          part.op.getCollectiveKernel() != first.getCollectiveKernel())
        return "forms-differ";
      std::optional<BufferPlace> place = placeOf(buffers[index]);
      if (!place)
        return "known-at-run-time";
      auto argument = dyn_cast<BlockArgument>(place->root);
      if (argument && isArena(argument))
        return "planned-before";
      auto found = placed.find(place->root);
      if (found == placed.end() || place->offset)
        return "not-in-arena";
      auto type = cast<MemRefType>(buffers[index].getType());
      int64_t own = type.getNumElements() * elementBytes(type.getElementType());
      if (bytes.value_or(own) != own)
        return "sizes-differ";
      bytes = own;
      members.push_back(found->second);
    }
    return nullptr;
  }

  static const char *reasonOf(memory::Apart apart) {
    switch (apart) {
    case memory::Apart::No:
      return nullptr;
    case memory::Apart::LiveTogether:
      return "live-together";
    case memory::Apart::LargerArena:
      return "larger-arena";
    case memory::Apart::TooMany:
      return "too-many-buffers";
    }
    llvm_unreachable("one of them");
  }

  void explainApart(const SharedIssue &issue, unsigned index,
                    const char *reason) {
    if (!explains(getOperation()))
      return;
    SmallVector<StringRef> names;
    for (auto program : getOperation().getOps<comm::ProgramOp>())
      names.push_back(program.getSymName());
    llvm::SetVector<StringRef> parts;
    for (const SharedIssue::Part &part : issue.parts)
      parts.insert(names[part.program]);
    std::string programs = llvm::join(parts, ",");
    comm::CollectiveOpInterface op = issue.parts.front().op;
    explain(getOperation(), op->getLoc(), "comm-plan-workspace", "per-rank",
            reason,
            "domain=" + op.getCollectiveDomain().getValue() +
                " buffer=" + Twine(index) + " programs=" + programs);
  }

  /// The arena, and a view of it for each buffer.
  void rewrite(Program &program) {
    func::FuncOp function = program.function;
    Block &body = function.getBody().front();
    const memory::Placement &placement = program.placement;
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
    for (int64_t offset : placement.offsets)
      if (Value &shift = shifts[offset]; !shift)
        shift =
            arith::ConstantIndexOp::create(builder, function.getLoc(), offset);
    for (auto [buffer, offset] :
         llvm::zip(program.buffers, placement.offsets)) {
      builder.setInsertionPoint(buffer.op);
      Value shift = shifts[offset];
      Value view = memref::ViewOp::create(builder, buffer.op.getLoc(),
                                          buffer.op.getType(), arena, shift,
                                          ValueRange());
      if (Attribute most = buffer.op->getAttr(kMaxBytes))
        view.getDefiningOp()->setAttr(kMaxBytes, most);
      buffer.op.replaceAllUsesWith(view);
      buffer.op.erase();
      offsets.push_back(offset);
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
                " buffers=" + Twine(program.buffers.size()) +
                " gap_bytes=" + Twine(size - bound) + " gap_reason=" +
                (size == bound       ? "none"
                 : placement.optimal ? "no-placement-is-smaller"
                                     : "fragmentation"));
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
             isArena(function.getArgument(0));
    };
    // A plan stays with the function that was rewritten for it.
    for (auto arena :
         llvm::make_early_inc_range(module.getOps<comm::ArenaOp>()))
      if (!isPlanned(module.lookupSymbol<func::FuncOp>(arena.getProgram())))
        arena.erase();
    std::optional<int64_t> limit =
        memory >= 0 ? std::optional(memory.getValue()) : memoryLimit(module);
    SmallVector<Program> programs;
    llvm::SetVector<func::FuncOp> entries;
    entries.insert_range(entryFunctions(module));
    for (func::FuncOp function : entries)
      if (!isPlanned(function))
        programs.emplace_back().function = function;
    for (Program &program : programs)
      if (failed(prepare(program)))
        return signalPassFailure();
    if (!programs.empty() && failed(placeAll(programs, limit)))
      return signalPassFailure();
    for (Program &program : programs)
      if (limit && program.placement.bytes > *limit) {
        (void)refuse(program, *limit);
        return signalPassFailure();
      }
    for (Program &program : programs)
      rewrite(program);
    setPhase(module, Phase::Planned);
  }
};

} // namespace

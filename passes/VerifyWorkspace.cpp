//===- VerifyWorkspace.cpp - comm-verify-workspace ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Judges the memory plan by the views themselves.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Communicated.h"
#include "common/Family.h"
#include "common/Lifetimes.h"
#include "common/PlanBuilder.h"
#include "common/Workspace.h"
#include "concord/memory/Place.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

#include <string>
#include <utility>
#include <vector>

namespace concord {
#define GEN_PASS_DEF_COMMVERIFYWORKSPACE
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct VerifyWorkspace
    : public concord::impl::CommVerifyWorkspaceBase<VerifyWorkspace> {
  using CommVerifyWorkspaceBase::CommVerifyWorkspaceBase;

  /// What `op` by itself may do that a step must not do between issues; null
  /// when it is known not to.
  static const char *disturbance(Operation *op) {
    if (auto compute = dyn_cast<comm::ComputeOp>(op);
        compute && compute.getWorkspaceBytes().value_or(0) &&
        !op->hasAttr("workspace"))
      return "declares workspace and is given none: it would take it from the "
             "system";
    // Their bodies are judged by themselves.
    if (op->hasTrait<OpTrait::HasRecursiveMemoryEffects>() ||
        op->hasTrait<OpTrait::IsTerminator>())
      return nullptr;
    auto effects = dyn_cast<MemoryEffectOpInterface>(op);
    if (!effects && isPure(op))
      return nullptr;
    if (!effects && isa<CallOpInterface>(op))
      return "has unknown effects: what it calls may allocate, free, load "
             "lazily or synchronise; where its body is known, inline it "
             "(--inline) before comm-plan-workspace";
    if (!effects)
      return "has unknown effects: it may allocate, free, load lazily or "
             "synchronise";
    SmallVector<MemoryEffects::EffectInstance> list;
    effects.getEffects(list);
    for (const MemoryEffects::EffectInstance &effect : list) {
      // The stack is nobody's lock.
      if (effect.getResource() ==
          SideEffects::AutomaticAllocationScopeResource::get())
        continue;
      if (isa<MemoryEffects::Allocate, MemoryEffects::Free>(effect.getEffect()))
        return "an allocation or free";
    }
    return nullptr;
  }

  /// Allocations, frees and the like between the first and the last issue.
  LogicalResult verifyQuiet(func::FuncOp function, Lifetimes &lifetimes) {
    int64_t first = INT64_MAX, last = -1;
    function.walk([&](Operation *op) {
      if (!comm::isIssue(op))
        return;
      // In a loop, what follows one round's issues precedes the next one's.
      Operation *around = op;
      for (Operation *up = op->getParentOp(); up && up != function;
           up = up->getParentOp())
        if (isa<LoopLikeOpInterface>(up))
          around = up;
      first = std::min(first, lifetimes.position(around));
      last = std::max(last, lifetimes.end(around));
    });
    WalkResult result =
        function.walk([&](Operation *op) {
          int64_t at = lifetimes.position(op);
          if (op == function || at < first || at > last)
            return WalkResult::advance();
          const char *what = disturbance(op);
          if (!what)
            return WalkResult::advance();
          if (StringRef(what) == "an allocation or free")
            op->emitOpError()
                << "between communication issues: an allocation or free "
                   "there may synchronise the device and hang the job; "
                   "run comm-plan-workspace";
          else
            op->emitOpError() << "between communication issues " << what;
          return WalkResult::interrupt();
        });
    return failure(result.wasInterrupted());
  }

  LogicalResult verifyViews(func::FuncOp function, Lifetimes &lifetimes) {
    if (!function.getNumArguments() || !function.getArgAttr(0, "comm.arena"))
      return success();
    Value arena = function.getArgument(0);
    int64_t size = cast<MemRefType>(arena.getType()).getDimSize(0);
    if (auto limit = memoryLimit(getOperation()); limit && size > *limit)
      return function.emitError("its arena of ")
             << size << " bytes is over the limit of " << *limit << " ("
             << kMemoryLimit << ")";
    SmallVector<memref::ViewOp> views;
    std::vector<memory::Buffer> buffers;
    std::vector<int64_t> offsets;
    for (Operation *user : arena.getUsers()) {
      auto view = dyn_cast<memref::ViewOp>(user);
      if (!view)
        return user->emitOpError("uses the arena other than by memref.view");
      auto shift = getConstantIntValue(view.getByteShift());
      if (!shift || !view.getType().hasStaticShape())
        return view.emitOpError("has no static place in the arena");
      int64_t bytes = view.getType().getNumElements() *
                      elementBytes(view.getType().getElementType());
      if (auto most = view->getAttrOfType<IntegerAttr>(kMaxBytes))
        bytes = most.getInt();
      if (*shift < 0 || *shift + bytes > size)
        return view.emitOpError() << "leaves the arena of " << size << " bytes";
      Lifetime life = lifetimes.of(view.getResult());
      views.push_back(view);
      buffers.push_back({life.first, life.last, bytes});
      offsets.push_back(*shift);
    }
    auto pair = memory::findOverlap(buffers, offsets);
    if (!pair)
      return success();
    auto [one, other] = *pair;
    if (offsets[other] < offsets[one])
      std::swap(one, other);
    auto bytes = [&](size_t i) {
      return std::to_string(offsets[i]) + " to " +
             std::to_string(offsets[i] + buffers[i].bytes);
    };
    InFlightDiagnostic diagnostic =
        views[other].emitOpError()
        << "overlaps a buffer that is live at the same time (bytes "
        << bytes(other) << ")";
    diagnostic.attachNote(views[one].getLoc())
        << "the other one has bytes " << bytes(one);
    return diagnostic;
  }

  /// One buffer of a collective in all its programs.
  LogicalResult verifyShared(const SharedIssue &issue, unsigned index,
                             ArrayRef<std::string> names) {
    std::optional<bool> symmetric;
    std::optional<int64_t> offset;
    const SharedIssue::Part *first = nullptr;
    for (const SharedIssue::Part &part : issue.parts) {
      comm::CollectiveOpInterface op = part.op;
      SmallVector<Value> buffers = issueBuffers(op);
      auto said = op->getAttrOfType<DenseBoolArrayAttr>(kSymmetric);
      if (said && static_cast<size_t>(said.size()) != buffers.size())
        return op->emitOpError()
               << kSymmetric << " has " << said.size() << " entries for "
               << buffers.size() << " buffers";
      bool claimed = said && index < buffers.size() && said[index];
      auto function = op->getParentOfType<func::FuncOp>();
      bool planned =
          function.getNumArguments() && function.getArgAttr(0, "comm.arena");
      if (planned && index < buffers.size() && !placeOf(buffers[index]))
        return op->emitOpError()
               << "buffer " << index << " of program '" << names[part.program]
               << "' has a place that is only known at run time, and other "
                  "programs take part: the plan table cannot say where it lies";
      std::optional<int64_t> at;
      if (index < buffers.size())
        at = arenaOffset(buffers[index]);
      if (claimed && !at)
        return op->emitOpError()
               << "buffer " << index << " is " << kSymmetric
               << " and does not lie in the arena of program '"
               << names[part.program] << "'";
      if (!first) {
        first = &part;
        symmetric = claimed;
        offset = at;
        continue;
      }
      if (claimed == *symmetric && (!claimed || *at == *offset))
        continue;
      InFlightDiagnostic error = op->emitOpError() << "buffer " << index;
      if (claimed != *symmetric)
        error << " is said to be " << kSymmetric << " in program '"
              << names[claimed ? part.program : first->program]
              << "' and not in program '"
              << names[claimed ? first->program : part.program] << "'";
      else
        error << " is " << kSymmetric << " and lies at byte " << *at
              << " in program '" << names[part.program] << "' and at byte "
              << *offset << " in program '" << names[first->program] << "'";
      error.attachNote(first->op->getLoc())
          << "the same operation in program '" << names[first->program] << "'";
      return error;
    }
    return success();
  }

  /// What is said of collectives that members run in several programs.
  LogicalResult verifyCommunicated(ModuleOp module) {
    bool proven = true;
    FailureOr<std::vector<SharedIssue>> shared = sharedIssues(module, proven);
    if (failed(shared))
      return failure();
    SmallVector<std::string> names;
    for (auto program : module.getOps<comm::ProgramOp>())
      names.push_back(program.getSymName().str());
    for (const SharedIssue &issue : *shared) {
      size_t most = 0;
      for (const SharedIssue::Part &part : issue.parts) {
        most = std::max(most, issueBuffers(part.op).size());
        auto said = part.op->getAttrOfType<DenseBoolArrayAttr>(kSymmetric);
        if (!proven && said && llvm::is_contained(said.asArrayRef(), true))
          return part.op->emitOpError()
                 << "is said to have " << kSymmetric
                 << " buffers, and the order of issues is not proven: which "
                    "operations belong together is not known "
                    "(comm-verify-order "
                    "says why)";
      }
      for (unsigned index = 0; index < most; ++index)
        if (failed(verifyShared(issue, index, names)))
          return failure();
    }
    return success();
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    // Nothing has its place yet (common/Family.h); it is run again then.
    if (getOperation()->hasAttr(kSizesPending))
      return;
    for (func::FuncOp function : entryFunctions(getOperation())) {
      if (!function.getBody().hasOneBlock()) {
        function.emitError(
            "has branches between blocks; only structured control flow "
            "(scf) can be judged");
        return signalPassFailure();
      }
      Lifetimes lifetimes(function.getBody().front());
      if (failed(verifyQuiet(function, lifetimes)) ||
          failed(verifyViews(function, lifetimes)))
        return signalPassFailure();
    }
    if (failed(verifyCommunicated(getOperation())))
      return signalPassFailure();
  }
};

} // namespace

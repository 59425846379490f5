//===- Pipelines.cpp - Phases and the whole pipeline ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order of passes, phase by phase. A pass skips a module that is already
// past its phase, so the pipeline can take up a module that was saved in
// between.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/Predicted.h"
#include "common/Workspace.h"

#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>
#include <optional>

using namespace mlir;

namespace concord {

static constexpr StringLiteral kPhases[] = {
    "",        "imported", "partitioned", "decomposed",
    "ordered", "planned",  "lowered"};

Phase getPhase(Operation *module) {
  auto attr = module->getAttrOfType<StringAttr>("comm.phase");
  if (!attr)
    return Phase::Foreign;
  for (auto [i, name] : llvm::enumerate(kPhases))
    if (i && name == attr.getValue())
      return static_cast<Phase>(i);
  return Phase::Foreign;
}

void setPhase(Operation *module, Phase phase) {
  module->setAttr(
      "comm.phase",
      StringAttr::get(module->getContext(), kPhases[static_cast<int>(phase)]));
}

namespace {

/// Adds a phase's passes.
using FillPhase = std::function<void(OpPassManager &)>;

/// Runs passes only while the module has not reached `until`.
struct PhasePass : public PassWrapper<PhasePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PhasePass)
  PhasePass(Phase until, FillPhase fill)
      : until(until), fill(std::move(fill)) {}
  PhasePass(const PhasePass &other) = default;

  StringRef getArgument() const override { return "comm-phase"; }
  StringRef getDescription() const override {
    return "Run passes unless the module is past their phase";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager manager("builtin.module");
    fill(manager);
    manager.getDependentDialects(registry);
  }
  void runOnOperation() override {
    if (getPhase(getOperation()) >= until)
      return;
    // Whoever has all members goes on when their buffers have sizes.
    if (until == Phase::Lowered && getOperation()->hasAttr(kSizesPending)) {
      getOperation()->setAttr(kToLower, UnitAttr::get(&getContext()));
      return;
    }
    OpPassManager manager("builtin.module");
    fill(manager);
    if (failed(runPipeline(manager, getOperation())))
      return signalPassFailure();
    if (getPhase(getOperation()) < until)
      setPhase(getOperation(), until);
  }

  Phase until;
  FillPhase fill;
};

/// Fails with a message: how a pipeline refuses its options.
struct RefusePass : public PassWrapper<RefusePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RefusePass)
  explicit RefusePass(std::string message) : message(std::move(message)) {}
  StringRef getArgument() const override { return "comm-refuse"; }
  void runOnOperation() override {
    getOperation().emitError(message);
    signalPassFailure();
  }
  std::string message;
};

/// Keeps on the module whose figures it is compiled by: what is lowered in
/// another run is predicted with the same.
struct MachinePass : public PassWrapper<MachinePass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MachinePass)
  explicit MachinePass(std::string machine) : machine(std::move(machine)) {}
  StringRef getArgument() const override { return "comm-machine"; }
  StringRef getDescription() const override {
    return "Keep the machine's name on the module";
  }
  void runOnOperation() override {
    getOperation()->setAttr(kMachine, StringAttr::get(&getContext(), machine));
  }
  std::string machine;
};

/// Keeps the limit of memory on the module, for whoever plans it.
struct MemoryPass : public PassWrapper<MemoryPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(MemoryPass)
  explicit MemoryPass(int64_t bytes) : bytes(bytes) {}
  StringRef getArgument() const override { return "comm-memory"; }
  StringRef getDescription() const override {
    return "Keep the limit of memory on the module";
  }
  void runOnOperation() override { setMemoryLimit(getOperation(), bytes); }
  int64_t bytes;
};

/// Schedules and plans. Where the arena is over the limit that the module
/// carries, if it does, again from where it was, with less to be held at once;
/// in the end as it was given, and comm-plan-workspace refuses what is still
/// too much.
struct FitPass : public PassWrapper<FitPass, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FitPass)
  /// Adds the passes up to the plan; with std::nullopt nothing is overlapped.
  /// `judges`: what is over the limit is refused.
  using Fill = std::function<void(OpPassManager &,
                                  std::optional<int64_t> memory, bool judges)>;
  explicit FitPass(Fill fill) : fill(std::move(fill)) {}
  FitPass(const FitPass &other) = default;

  StringRef getArgument() const override { return "comm-fit"; }
  StringRef getDescription() const override {
    return "Overlap as far as the arena stays within the limit of memory";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    OpPassManager manager("builtin.module");
    fill(manager, 0, true);
    manager.getDependentDialects(registry);
  }

  LogicalResult attempt(std::optional<int64_t> memory, bool judges) {
    OpPassManager manager("builtin.module");
    fill(manager, memory, judges);
    return runPipeline(manager, getOperation());
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!memoryLimit(module)) {
      if (failed(attempt(-1, /*judges=*/true)))
        signalPassFailure();
      return;
    }
    OwningOpRef<ModuleOp> given = module.clone();
    auto restore = [&] {
      OwningOpRef<ModuleOp> copy = given->clone();
      module.getBodyRegion().takeBody(copy->getBodyRegion());
      module->setAttrs((*copy)->getAttrDictionary());
    };
    // What is given up is not explained.
    const bool explained = explains(module);
    auto hush = [&] {
      module->removeAttr("comm.explain");
      module->removeAttr("comm.explain_collect");
    };
    const int64_t limit = *memoryLimit(module);
    constexpr int64_t kNoMore = 0; // than the given order holds
    std::optional<int64_t> memory = limit;
    int64_t over = 0;
    for (int tries = 0; memory; ++tries) {
      if (explained)
        hush();
      if (failed(attempt(memory, /*judges=*/false)))
        return signalPassFailure();
      int64_t arena = 0;
      for (auto planned : module.getOps<comm::ArenaOp>())
        arena = std::max(arena, static_cast<int64_t>(planned.getSize()));
      // Members of a program with bounded dimensions are placed, and judged,
      // when all of them have come to this.
      if (arena <= limit)
        break;
      over = arena;
      restore();
      if (memory == kNoMore)
        memory = std::nullopt;
      else if (tries)
        memory = kNoMore;
      else
        memory =
            static_cast<int64_t>(static_cast<double>(limit) * limit / arena);
    }
    if (memory && !explained) {
      OpPassManager judge("builtin.module");
      judge.addPass(createCommVerifyWorkspace());
      if (failed(runPipeline(judge, module)))
        signalPassFailure();
      return;
    }
    if (memory)
      restore();
    if (memory != limit)
      explain(module, module.getLoc(), "comm-overlap",
              memory ? "tighter" : "give-up", "memory-limit",
              "arena_bytes=" + Twine(over) + " limit_bytes=" + Twine(limit));
    if (failed(attempt(memory, /*judges=*/true)))
      signalPassFailure();
  }

  Fill fill;
};

void addPhase(OpPassManager &manager, Phase until, FillPhase fill) {
  manager.addPass(std::make_unique<PhasePass>(until, std::move(fill)));
}

void cleanUp(OpPassManager &manager) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

} // namespace

void buildPipeline(OpPassManager &manager, const PipelineOptions &options) {
  Phase to = llvm::StringSwitch<Phase>(options.to)
                 .Case("partitioned", Phase::Partitioned)
                 .Case("decomposed", Phase::Decomposed)
                 .Case("ordered", Phase::Ordered)
                 .Case("lowered", Phase::Lowered)
                 .Case("planned", Phase::Planned)
                 .Default(Phase::Foreign);
  if (to == Phase::Foreign) {
    manager.addPass(std::make_unique<RefusePass>(
        "comm-pipeline: to=" + options.to.getValue() +
        " is none of partitioned, decomposed, ordered, planned, lowered"));
    return;
  }
  if (!options.machine.empty())
    manager.addPass(std::make_unique<MachinePass>(options.machine));
  if (options.memory >= 0)
    manager.addPass(std::make_unique<MemoryPass>(options.memory));
  CommPartitionOptions split;
  split.experts = options.experts;
  addPhase(manager, Phase::Partitioned,
           [=](OpPassManager &pm) { pm.addPass(createCommPartition(split)); });
  if (to == Phase::Partitioned)
    return;
  bool recognize = options.recognize, fuse = options.fuseElementwise;
  bool simplify = options.opt && options.simplify, exact = options.exact;
  bool bucket = options.opt && options.bucket;
  std::string machine = options.machine;
  addPhase(manager, Phase::Decomposed, [=](OpPassManager &pm) {
    if (recognize)
      pm.addPass(createCommRecognize());
    pm.addPass(createCommDecompose());
    cleanUp(pm);
    // Before elementwise operations are fused: a sum of two reductions is still
    // an operation of its own.
    if (simplify) {
      CommSimplifyOptions rewrites;
      rewrites.exact = exact;
      rewrites.machine = machine;
      pm.addPass(createCommSimplify(rewrites));
    }
    if (fuse)
      pm.addNestedPass<func::FuncOp>(createCommFuseElementwise());
    cleanUp(pm);
  });
  if (to == Phase::Decomposed)
    return;
  bool fuseCollectives = options.opt && options.fuse;
  CommOverlapOptions overlap;
  overlap.machine = options.machine;
  overlap.memory = options.memory;
  CommBucketOptions joined;
  joined.machine = options.machine;
  CommFuseOptions fused;
  fused.machineName = options.machine;
  fused.exact = exact;
  bool overlaps = options.opt && options.overlap, health = options.health;
  auto order = [=](OpPassManager &pm) {
    if (health)
      pm.addPass(createCommHealth());
    pm.addPass(createCommOrder());
    pm.addPass(createCommVerifyOrder());
  };
  auto plan = [](OpPassManager &pm, bool judges) {
    CommPlanWorkspaceOptions workspace;
    if (!judges)
      workspace.memory = std::numeric_limits<int64_t>::max();
    pm.addPass(createCommBufferize());
    cleanUp(pm);
    pm.addPass(createCommPlanWorkspace(workspace));
    if (judges)
      pm.addPass(createCommVerifyWorkspace());
    pm.addPass(createCommVerifyOrder());
  };
  bool fits = overlaps && to != Phase::Ordered;
  addPhase(manager, Phase::Ordered, [=](OpPassManager &pm) {
    if (bucket)
      pm.addPass(createCommBucket(joined));
    if (fuseCollectives)
      pm.addPass(createCommFuse(fused));
    pm.addPass(createCommVerifyUniform());
    if (fits) {
      pm.addPass(std::make_unique<FitPass>(
          [=](OpPassManager &pm, std::optional<int64_t> memory, bool judges) {
            if (memory) {
              CommOverlapOptions within = overlap;
              within.memory = *memory;
              pm.addPass(createCommOverlap(within));
            }
            order(pm);
            plan(pm, judges);
          }));
      return;
    }
    if (overlaps)
      pm.addPass(createCommOverlap(overlap));
    order(pm);
  });
  if (to == Phase::Ordered)
    return;
  addPhase(manager, Phase::Planned,
           [=](OpPassManager &pm) { plan(pm, /*judges=*/true); });
  if (to == Phase::Planned)
    return;
  addPhase(manager, Phase::Lowered,
           [](OpPassManager &pm) { pm.addPass(createCommLower()); });
}

void registerConcordPasses() {
  registerConcordPassesPasses();
  PassPipelineRegistration<PipelineOptions>(
      "comm-pipeline",
      "From any phase to a planned (or, with to=, another) one", buildPipeline);
}

} // namespace concord

//===- Partition.cpp - comm-partition -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One axis of the mesh after another: bind the sharding problem, solve it,
// apply the solution (passes/partition; the solver is analysis/sharding).
//
//===----------------------------------------------------------------------===//

#include "Passes.h"
#include "comm/Comm.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "import/OnnxImport.h"
#include "partition/Axis.h"
#include "partition/Solutions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

namespace concord {
#define GEN_PASS_DEF_COMMPARTITION
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

struct Partition : public concord::impl::CommPartitionBase<Partition> {
  using CommPartitionBase::CommPartitionBase;

  /// The name that stands for micro-batches while the batch is cut: they are
  /// split like an axis whose ranks come one after another.
  static constexpr StringLiteral kMicroBatches = "micro-batches";

  /// The predicted solution of an axis, on a copy of the function: with tokens
  /// sent to their experts, or without. None when there is nothing to send.
  static std::optional<sharding::Solution>
  trySolving(func::FuncOp function, partition::AxisOptions options, bool send) {
    OwningOpRef<func::FuncOp> copy = function.clone();
    if (send) {
      options.exchanges = partition::prepareExperts(*copy, options);
      if (options.exchanges.empty())
        return std::nullopt;
    }
    partition::BoundProblem bound;
    if (failed(bindProblem(*copy, options, bound)))
      return std::nullopt;
    try {
      return sharding::solve(bound.problem);
    } catch (const std::exception &) {
      return std::nullopt; // the chosen form meets it again, and says so
    }
  }

  /// Puts the exchanges of mixtures of experts into the function, if they are
  /// wanted.
  void sendTokens(func::FuncOp function, partition::AxisOptions &options) {
    if (experts == "reduce")
      return;
    // Sizes at which tokens do not divide must be split like the others.
    if (getOperation()->hasAttr(kSizesPending)) {
      explain(function, function.getLoc(), "comm-partition", "keep-tokens",
              "bounded-sizes", "axis=" + Twine(options.name));
      return;
    }
    if (experts == "cost" || explains(function)) {
      auto sent = trySolving(function, options, /*send=*/true);
      auto kept = trySolving(function, options, /*send=*/false);
      bool cheaper = sent && kept && sent->objective < kept->objective;
      bool keep = experts == "cost" && !cheaper;
      if (sent && kept)
        explain(function, function.getLoc(), "comm-partition",
                keep ? "keep-tokens" : "send-tokens",
                experts == "cost" ? "least-predicted-time" : "experts-split",
                "axis=" + Twine(options.name) +
                    " sent_seconds=" + std::to_string(sent->seconds) +
                    " kept_seconds=" + std::to_string(kept->seconds));
      if (keep)
        return;
    }
    options.exchanges = partition::prepareExperts(function, options);
  }

  LogicalResult splitAxis(func::FuncOp function, const Mesh &mesh,
                          const std::string &name, int64_t size) {
    partition::AxisOptions options;
    options.name = name;
    options.size = size;
    options.dataParallel = name == "dp" || name == kMicroBatches;
    options.replicateInputs = replicateInputs && name != kMicroBatches;
    options.replicateOutputs = replicateOutputs && name != kMicroBatches;

    // Dead operations would be solved for, and could ask for collectives.
    IRRewriter rewriter(&getContext());
    (void)runRegionDCE(rewriter, function->getRegions());

    prepareProjections(function, options);
    if (name == "ep")
      sendTokens(function, options);
    partition::BoundProblem bound;
    if (failed(bindProblem(function, options, bound)))
      return failure();
    if (size > 1 &&
        llvm::all_of(bound.problem.ops, [](const sharding::OpInfo &op) {
          return op.rule.factors.empty();
        }))
      emitWarning(function.getLoc())
          << "mesh axis " << name << "=" << size
          << " splits nothing here, and every rank will compute the whole: "
             "operations of an ONNX model are split, others are not";
    // Parts of a batch cannot talk to each other: whatever needs no collective
    // is better than what does.
    if (name == kMicroBatches)
      bound.problem.cost.latencySeconds = 1;
    // At the least sizes latency may be all that a collective costs; and a
    // reduction that stays whole is fused, at any size, with the norm behind
    // it. One collective instead of two is worth a lot of elementwise work.
    else if (getOperation()->hasAttr(kSizesPending))
      bound.problem.cost.latencySeconds = 1e-4;
    std::optional<sharding::Refusal> refusal;
    try {
      refusal = sharding::checkMesh(bound.problem, name);
    } catch (const std::exception &error) {
      // Shapes that the reader would have refused can stand in IR.
      return function.emitError() << "comm-partition: " << error.what();
    }
    if (refusal) {
      Operation *op =
          refusal->op >= 0 ? bound.ops[refusal->op] : function.getOperation();
      InFlightDiagnostic error = emitError(op->getLoc()) << refusal->message;
      // The numbers are those of one rank of the axes that come before.
      for (auto &[before, ranks] : mesh) {
        if (before == name)
          break;
        if (before != "dp" && before != "pp" && ranks > 1)
          error << " (of what " << before << "=" << ranks << " leaves)";
      }
      return error;
    }
    sharding::Solution solution;
    // Members of one program are split in one way.
    auto solved =
        getOperation()->getAttrOfType<DictionaryAttr>(partition::kSolutions);
    auto taken =
        solved ? solved.getAs<DenseI64ArrayAttr>(name) : DenseI64ArrayAttr();
    auto point =
        getOperation()->getAttrOfType<DenseI64ArrayAttr>(partition::kPoint);
    if (taken) {
      auto decoded = partition::decodeSolution(taken.asArrayRef());
      auto from = solved.getAs<DenseI64ArrayAttr>(partition::kPoint);
      if (decoded && from && point &&
          !partition::solves(*decoded, bound.problem)) {
        int64_t cut = 1;
        for (auto &[other, extent] : mesh)
          if (other == "dp")
            cut = extent;
        decoded = partition::atOtherSizes(
            std::move(*decoded), from.asArrayRef(), point.asArrayRef(), cut);
      }
      if (!decoded || !partition::solves(*decoded, bound.problem))
        return function.emitError()
               << "mesh axis " << name
               << ": another size of a bounded dimension cannot be split in "
                  "the same way; fix it with --dim NAME=N";
      solution = std::move(*decoded);
    }
    try {
      if (!taken)
        solution = sharding::solve(bound.problem);
    } catch (const std::exception &error) {
      return function.emitError()
             << "mesh axis " << name << ": " << error.what();
    }
    if (!taken && getOperation()->hasAttr(kSizesPending)) {
      NamedAttrList list(solved);
      list.set(name, DenseI64ArrayAttr::get(
                         &getContext(), partition::encodeSolution(solution)));
      if (point)
        list.set(partition::kPoint, point);
      getOperation()->setAttr(partition::kSolutions,
                              list.getDictionary(&getContext()));
    }
    explain(function, function.getLoc(), "comm-partition", "solve",
            "least-predicted-time",
            "axis=" + Twine(name) +
                " seconds=" + std::to_string(solution.seconds));
    for (auto &[tensor, reason] : solution.wholeWeights)
      if (auto weight = bound.values[tensor].getDefiningOp<comm::WeightOp>())
        emitWarning(weight.getLoc())
            << "parameter '" << weight.getSection()
            << "' stays whole on every rank of " << name << ": " << reason;

    FlatSymbolRefAttr domain = FlatSymbolRefAttr::get(&getContext(), name);
    if (name != kMicroBatches)
      addDomain(function, mesh, name);
    if (failed(applySolution(function, options, domain, bound, solution)))
      return failure();
    if (!options.exchanges.empty())
      partition::readBroadcastInPlace(function);
    (void)runRegionDCE(rewriter, function->getRegions());
    return success();
  }

  FlatSymbolRefAttr addDomain(func::FuncOp function, const Mesh &mesh,
                              const std::string &name) {
    if (!getOperation().lookupSymbol(name)) {
      OpBuilder builder(&getContext());
      builder.setInsertionPoint(function);
      SmallVector<Attribute> groups;
      for (auto &group : meshGroups(mesh, {name}))
        groups.push_back(builder.getDenseI64ArrayAttr(group));
      comm::DomainOp::create(builder, function.getLoc(), name,
                             builder.getArrayAttr(groups), 0, nullptr);
    }
    return FlatSymbolRefAttr::get(&getContext(), name);
  }

  LogicalResult partition(func::FuncOp function, const Mesh &mesh,
                          int64_t micro) {
    // The batch first: what it splits is split for the other axes too.
    partition::StageOptions stages;
    for (auto &[name, size] : mesh) {
      if (name == "dp" && size > 1 &&
          failed(splitAxis(function, mesh, name, size)))
        return failure();
      if (name == "pp")
        stages.stages = size;
    }
    if (micro > 1) {
      if (failed(splitAxis(function, mesh, kMicroBatches.str(), micro)))
        return failure();
      stages.microDomain = FlatSymbolRefAttr::get(&getContext(), kMicroBatches);
    }
    for (auto &[name, size] : mesh)
      if (name != "dp" && name != "pp" && size > 1 &&
          failed(splitAxis(function, mesh, name, size)))
        return failure();
    if (stages.stages == 1 && micro == 1)
      return success();
    stages.mesh = mesh;
    stages.microBatches = micro;
    if (stages.stages > 1)
      stages.stageDomain = addDomain(function, mesh, "pp");
    return buildStages(function, stages);
  }

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (experts != "send" && experts != "reduce" && experts != "cost") {
      module.emitError("comm-partition: experts=")
          << experts << " is none of send, reduce, cost";
      return signalPassFailure();
    }
    Mesh mesh;
    if (auto attr = module->getAttrOfType<ArrayAttr>("comm.mesh"))
      for (Attribute entry : attr) {
        auto axis = dyn_cast<ArrayAttr>(entry);
        auto name = axis && axis.size() == 2 ? dyn_cast<StringAttr>(axis[0])
                                             : StringAttr();
        auto size = name ? dyn_cast<IntegerAttr>(axis[1]) : IntegerAttr();
        if (!size || size.getValue().getSignificantBits() > 32 ||
            size.getInt() < 1) {
          module.emitError("comm.mesh is a list of [name, size]");
          return signalPassFailure();
        }
        mesh.push_back({name.getValue().str(), size.getInt()});
      }
    int64_t micro = 1;
    if (auto attr = module->getAttrOfType<IntegerAttr>("comm.micro_batches"))
      micro = attr.getInt();
    module->removeAttr("comm.micro_batches");
    if (micro < 1 || micro > 1024) {
      module.emitError("micro-batches: a number from 1 to 1024, not ") << micro;
      return signalPassFailure();
    }
    SmallVector<func::FuncOp> entries = entryFunctions(module);
    bool staged = micro > 1;
    for (auto &[name, size] : mesh)
      staged |= name == "pp" && size > 1;
    if (staged &&
        (entries.size() != 1 || !module.getOps<comm::ProgramOp>().empty())) {
      module.emitError("pipeline stages and micro-batches are made from one "
                       "program that every rank runs");
      return signalPassFailure();
    }
    for (func::FuncOp function : entries)
      if (failed(partition(function, mesh, micro)))
        return signalPassFailure();
    for (func::FuncOp function : entryFunctions(module)) {
      function.walk([&](Operation *op) {
        numCollectives += isa<comm::CollectiveOpInterface>(op);
        if (auto weight = dyn_cast<comm::WeightOp>(op))
          numSplitWeights += weight.getSplits() && !weight.getSplits()->empty();
      });
    }
    setPhase(module, Phase::Partitioned);
  }
};

} // namespace

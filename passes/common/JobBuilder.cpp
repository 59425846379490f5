//===- JobBuilder.cpp - From a module to a job to simulate ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plan says who issues what; the operations say what is computed in
// between.
//
//===----------------------------------------------------------------------===//

#include "common/JobBuilder.h"

#include "common/PlanBuilder.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace concord {
namespace {

constexpr size_t kMostSteps = 8u << 20;

class Builder {
public:
  Builder(const CostModel &cost, simulate::Job &job) : cost(cost), job(job) {}
  LogicalResult program(func::FuncOp function, simulate::Program &program);

private:
  LogicalResult block(Block &block, simulate::Program &program);
  void note(const Twine &text) {
    std::string line = text.str();
    if (!llvm::is_contained(job.notes, line))
      job.notes.push_back(line);
  }

  const CostModel &cost;
  simulate::Job &job;
  llvm::DenseMap<Operation *, uint32_t> sites;
  llvm::DenseMap<Operation *, bool> issues;
  llvm::DenseMap<Operation *, std::pair<double, uint32_t>> computations;
};

bool communicates(Operation *root) {
  return root
      ->walk([](Operation *op) {
        return comm::isIssue(op) ? WalkResult::interrupt()
                                 : WalkResult::advance();
      })
      .wasInterrupted();
}

std::string nameOf(Operation *op) {
  if (auto compute = dyn_cast<comm::ComputeOp>(op)) {
    std::string name = compute.getName().str();
    if (auto key = compute.getKey())
      name += " " + key->str();
    return name;
  }
  if (auto kernel = dyn_cast<comm::KernelOp>(op))
    return kernel.getDescription().split(' ').first.str() + " " +
           describeLocation(op->getLoc());
  return (op->getName().getStringRef() + " " + describeLocation(op->getLoc()))
      .str();
}

} // namespace

LogicalResult Builder::program(func::FuncOp function,
                               simulate::Program &program) {
  auto list = issuesOf(function);
  for (auto [index, op] : llvm::enumerate(list))
    sites[op] = static_cast<uint32_t>(index);
  if (function.isExternal())
    return success();
  return block(function.getBody().front(), program);
}

LogicalResult Builder::block(Block &block, simulate::Program &program) {
  using Type = simulate::Step::Type;
  for (Operation &op : block) {
    if (program.steps.size() > kMostSteps)
      return op.emitOpError("is more than 8388608 steps into the program; a "
                            "loop is too long to be simulated");
    if (isa<comm::CollectiveOpInterface>(op)) {
      // What a fused one computes comes before what it communicates.
      if (auto fused = dyn_cast<comm::FusedOp>(op)) {
        auto [at, fresh] = computations.try_emplace(&op);
        if (fresh) {
          at->second = {cost.fusedProduct(fused),
                        static_cast<uint32_t>(program.names.size())};
          program.names.push_back("fused gemm " +
                                  describeLocation(op.getLoc()));
        }
        if (at->second.first > 0)
          program.steps.push_back(
              {Type::Compute, at->second.second, at->second.first});
      }
      program.steps.push_back({Type::Issue, sites.lookup(&op), 0});
      continue;
    }
    if (auto wait = dyn_cast<comm::WaitOp>(op)) {
      comm::StartOp start = wait.getStart();
      if (!start)
        return op.emitOpError("waits for a future whose comm.start is not "
                              "known, and cannot be simulated");
      program.steps.push_back({Type::Wait, sites.lookup(start), 0});
      continue;
    }
    if (op.getNumRegions()) {
      auto [at, fresh] = issues.try_emplace(&op, false);
      if (fresh)
        at->second = communicates(&op);
      if (at->second) {
        if (auto loop = dyn_cast<scf::ForOp>(op)) {
          uint64_t trips = 1;
          if (auto count = loop.getStaticTripCount())
            trips = count->getZExtValue();
          else
            note("one iteration of the loop at " +
                 describeLocation(op.getLoc()) +
                 ", whose trip count is not known");
          for (uint64_t i = 0; i < trips; ++i)
            if (failed(this->block(*loop.getBody(), program)))
              return failure();
          continue;
        }
        if (isa<scf::IfOp, scf::IndexSwitchOp>(op)) {
          // The arm that is predicted to take longest.
          note("the longest arm of the branch at " +
               describeLocation(op.getLoc()));
          Region *longest = nullptr;
          double most = -1;
          for (Region &region : op.getRegions()) {
            double seconds = 0;
            region.walk([&](Operation *inner) {
              if (auto issue = dyn_cast<comm::CollectiveOpInterface>(inner))
                seconds += cost.collective(issue).seconds;
            });
            for (Block &inner : region)
              for (Operation &one : inner)
                seconds += cost.compute(&one);
            if (seconds > most) {
              most = seconds;
              longest = &region;
            }
          }
          if (longest)
            for (Block &inner : *longest)
              if (failed(this->block(inner, program)))
                return failure();
          continue;
        }
        if (isa<scf::WhileOp>(op))
          note("one iteration of the loop at " + describeLocation(op.getLoc()) +
               ", whose trip count is not known");
        for (Region &region : op.getRegions())
          for (Block &inner : region)
            if (failed(this->block(inner, program)))
              return failure();
        continue;
      }
    }
    auto [at, fresh] = computations.try_emplace(&op);
    if (fresh) {
      at->second.first = cost.compute(&op);
      if (at->second.first > 0) {
        at->second.second = static_cast<uint32_t>(program.names.size());
        program.names.push_back(nameOf(&op));
      }
    }
    if (at->second.first > 0)
      program.steps.push_back(
          {Type::Compute, at->second.second, at->second.first});
  }
  return success();
}

FailureOr<simulate::Job> buildJob(ModuleOp module, const CostModel &cost) {
  FailureOr<plan::Plan> plan = buildPlan(module, /*buffers=*/false);
  if (failed(plan))
    return failure();
  simulate::Job job;
  job.world = plan->world;
  job.domains = plan->domains;
  SmallVector<func::FuncOp> functions = entryFunctions(module);
  if (functions.size() != plan->programs.size()) {
    module.emitError("has ") << functions.size() << " entry functions and "
                             << plan->programs.size() << " programs";
    return failure();
  }
  for (auto [function, from] : llvm::zip(functions, plan->programs)) {
    simulate::Program program;
    program.name = from.name;
    program.ranks = from.ranks;
    for (const plan::Issue &issue : from.issues) {
      simulate::Issue entry;
      entry.kind = issue.kind;
      entry.domain = issue.domain;
      entry.lane = issue.lane;
      entry.synchronous = issue.synchronous;
      entry.pairs = issue.pairs;
      int64_t size = 1;
      for (const auto &group : plan->domains[issue.domain].groups)
        size = std::max<int64_t>(size, static_cast<int64_t>(group.size()));
      entry.bytes = cost::wholeBytes(issue, size);
      entry.name = comm::stringifyCollectiveKind(
                       static_cast<comm::CollectiveKind>(issue.kind))
                       .str() +
                   " " + issue.location;
      program.issues.push_back(std::move(entry));
    }
    Builder builder(cost, job);
    if (failed(builder.program(function, program)))
      return failure();
    job.programs.push_back(std::move(program));
  }
  return job;
}

} // namespace concord

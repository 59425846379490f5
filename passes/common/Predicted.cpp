//===- Predicted.cpp - What a step should take, for the artefact ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/Predicted.h"

#include "common/CostBridge.h"
#include "common/Family.h"
#include "common/JobBuilder.h"
#include "common/PlanBuilder.h"

#include <cmath>

using namespace mlir;
namespace json = llvm::json;

namespace concord {

/// Microseconds to a hundredth: no artefact differs by a rounding error.
static double micros(double seconds) { return std::round(seconds * 1e8) / 100; }

static json::Object ofProgram(const simulate::Program &program,
                              const simulate::Result &result,
                              uint32_t rankClass, func::FuncOp function,
                              const CostModel &cost) {
  struct Site {
    int64_t issues = 0;
    double transfer = 0, exposed = 0, compute = 0;
  };
  std::vector<Site> sites(program.issues.size());
  double compute = 0, exposed = 0, since = 0;
  for (const simulate::Step &step : program.steps) {
    if (step.type == simulate::Step::Type::Compute) {
      since += step.seconds;
      compute += step.seconds;
    } else if (step.type == simulate::Step::Type::Issue) {
      ++sites[step.index].issues;
      sites[step.index].compute += since;
      since = 0;
    }
  }
  for (const simulate::Span &span : result.spans) {
    if (span.rankClass != rankClass)
      continue;
    if (span.kind == simulate::Span::Kind::Transfer)
      sites[span.index].transfer += span.end - span.begin;
    if (span.kind == simulate::Span::Kind::Wait) {
      sites[span.index].exposed += span.end - span.begin;
      exposed += span.end - span.begin;
    }
  }
  json::Array list, fused;
  // What a fused one computes is no computation before it.
  for (auto [index, op] : llvm::enumerate(issuesOf(function)))
    if (auto one = dyn_cast<comm::FusedOp>(op.getOperation()))
      sites[index].compute -= cost.fusedProduct(one) * sites[index].issues;
  for (const Site &site : sites)
    list.push_back(json::Array{site.issues, micros(site.transfer),
                               micros(site.exposed), micros(site.compute)});
  for (auto [index, op] : llvm::enumerate(issuesOf(function)))
    if (auto gain = op->getAttrOfType<DenseF64ArrayAttr>(kPredictedFusion);
        gain && gain.size() == 3)
      fused.push_back(
          json::Array{static_cast<int64_t>(index), gain[0], gain[1], gain[2]});
  return json::Object{{"step_us", micros(result.classes[rankClass].seconds)},
                      {"compute_us", micros(compute)},
                      {"exposed_us", micros(exposed)},
                      {"sites", std::move(list)},
                      {"fused", std::move(fused)}};
}

FailureOr<json::Object> predictStep(ModuleOp module) {
  if (module->hasAttr(kDims))
    return json::Object{{"error", "it has bounded dimensions"}};
  StringRef machine;
  if (auto named = module->getAttrOfType<StringAttr>(kMachine))
    machine = named.getValue();
  FailureOr<CostModel> cost = CostModel::create(module, machine);
  if (failed(cost))
    return failure();
  FailureOr<simulate::Job> job = failure();
  std::string error;
  {
    // What cannot be simulated can still be compiled.
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
      error = d.str();
      return success();
    });
    job = buildJob(module, *cost);
  }
  simulate::Result result;
  simulate::Options options;
  options.spans = true;
  if (failed(job) ||
      !simulate::simulate(*job, cost->machine(), options, result, error))
    return json::Object{{"error", error}};
  json::Array programs;
  SmallVector<func::FuncOp> functions = entryFunctions(module);
  for (auto [index, program] : llvm::enumerate(job->programs)) {
    // Of its ranks those that take longest.
    uint32_t longest = ~0u;
    for (auto [c, one] : llvm::enumerate(result.classes))
      if (one.program == index &&
          (longest == ~0u || one.seconds > result.classes[longest].seconds))
        longest = static_cast<uint32_t>(c);
    programs.push_back(longest == ~0u ? json::Object{}
                                      : ofProgram(program, result, longest,
                                                  functions[index], *cost));
  }
  const cost::Machine &figures = cost->machine();
  return json::Object{{"machine", figures.name},
                      {"validated", simulate::validatedRange(figures)},
                      {"programs", std::move(programs)}};
}

} // namespace concord

//===- Simulate.cpp - --simulate ------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Simulate.h"

#include "common/JobBuilder.h"
#include "common/Predicted.h"

#include "llvm/Support/Format.h"

using namespace mlir;

namespace concord {

FailureOr<Prediction> predict(ModuleOp module, StringRef topology, bool spans) {
  // Else by the figures that it was compiled with.
  if (auto named = module->getAttrOfType<StringAttr>(kMachine);
      named && topology.empty())
    topology = named.getValue();
  FailureOr<CostModel> cost = CostModel::create(module, topology);
  if (failed(cost))
    return failure();
  FailureOr<simulate::Job> job = buildJob(module, *cost);
  if (failed(job))
    return failure();
  Prediction prediction{cost->machine(), std::move(*job), {}};
  simulate::Options options;
  options.spans = spans;
  std::string error;
  if (!simulate::simulate(prediction.job, prediction.machine, options,
                          prediction.result, error)) {
    module.emitError("simulate: ") << error;
    return failure();
  }
  return prediction;
}

/// A time with three significant digits in the unit that suits it.
static std::string time(double seconds) {
  const char *unit = seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "us";
  double value = seconds >= 1      ? seconds
                 : seconds >= 1e-3 ? seconds * 1e3
                                   : seconds * 1e6;
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.3f %s", value, unit);
  return text;
}

static std::string percent(double part, double whole) {
  std::string text;
  if (whole > 0)
    llvm::raw_string_ostream(text)
        << llvm::format("%.1f %%", 100 * part / whole);
  else
    text = "-";
  return text;
}

void printPrediction(const Prediction &prediction, llvm::raw_ostream &os) {
  const simulate::Result &result = prediction.result;
  const cost::Machine &machine = prediction.machine;
  os << "simulated: " << prediction.job.world << " ranks as "
     << result.classes.size()
     << (result.classes.size() == 1 ? " class" : " classes") << " on "
     << machine.name << " (" << machine.source << ")";
  if (machine.ranks)
    os << ", " << machine.ranks << " ranks, " << machine.coresPerHost
       << " cores per host";
  os << "\n";
  double exposed = 0;
  for (const simulate::DomainLoad &load : result.domains)
    exposed += load.exposed;
  double compute = 0;
  for (const simulate::RankClass &one : result.classes)
    if (one.seconds >= result.seconds)
      compute = one.compute;
  os << "predicted step: " << time(result.seconds) << ": computation "
     << time(compute) << ", exposed communication " << time(exposed) << " ("
     << percent(exposed, result.seconds) << ")\n";
  os << "critical path: computation " << time(result.criticalCompute)
     << ", communication " << time(result.criticalComm) << "\n";
  if (result.classes.size() > 1) {
    os << llvm::format("%-24s %8s %14s %14s\n", "ranks", "count", "computes",
                       "done at");
    for (const simulate::RankClass &one : result.classes) {
      std::string first = std::to_string(one.ranks.front());
      if (one.ranks.size() > 1)
        first += " ... " + std::to_string(one.ranks.back());
      os << llvm::format("%-24s %8zu %14s %14s\n", first.c_str(),
                         one.ranks.size(), time(one.compute).c_str(),
                         time(one.seconds).c_str());
    }
  }
  os << llvm::format("%-12s %7s %6s %7s %14s %14s %14s %8s\n", "domain",
                     "groups", "ranks", "issues", "busy", "exposed",
                     "of it queued", "hidden");
  for (auto [domain, load] :
       llvm::zip(prediction.job.domains, result.domains)) {
    size_t ranks = 0;
    for (const auto &group : domain.groups)
      ranks = std::max(ranks, group.size());
    os << llvm::format(
        "%-12s %7zu %6zu %7llu %14s %14s %14s %8s\n",
        ("@" + domain.name).c_str(), domain.groups.size(), ranks,
        static_cast<unsigned long long>(load.issues), time(load.busy).c_str(),
        time(load.exposed).c_str(), time(load.exposedQueue).c_str(),
        percent(std::max(0.0, load.busy - load.exposed), load.busy).c_str());
  }
  if (!result.links.empty())
    os << llvm::format("%-12s %7s %14s %16s %16s %8s\n", "links into", "blocks",
                       "GB/s a block", "busiest sends", "mean", "used");
  for (const simulate::LinkLoad &load : result.links)
    os << llvm::format("%-12s %7lld %14.2f %13.3f GB %13.3f GB %8s\n",
                       load.level.c_str(), static_cast<long long>(load.blocks),
                       load.capacity / 1e9, load.busiest / 1e9, load.mean / 1e9,
                       percent(load.utilisation, 1).c_str());
  for (const std::string &note : prediction.job.notes)
    os << "counts " << note << "\n";
  if (result.timedWait)
    os << "timed wait: " << machine.ranksPerHost << " ranks share "
       << machine.coresPerHost
       << " cores of a host; computation is counted as if each had its own\n";
  if (machine.calibrated && !machine.validated.empty())
    os << "calibrated: " << machine.validated << "\n";
  os << "validated: " << simulate::validatedRange(machine) << "\n";
}

} // namespace concord

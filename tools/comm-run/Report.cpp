//===- Report.cpp - What a run has to say ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Lines and JSON.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "common/Files.h"
#include "concord/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace fs = std::filesystem;
using nlohmann::json;

namespace concord::tools {

Latency latencyOf(std::vector<double> seconds) {
  Latency latency;
  latency.seconds = seconds;
  if (seconds.empty())
    return latency;
  std::sort(seconds.begin(), seconds.end());
  size_t count = seconds.size();
  latency.least = seconds.front();
  latency.median = seconds[(count - 1) / 2];
  size_t rank = static_cast<size_t>(std::ceil(0.99 * count));
  latency.p99 = seconds[std::max<size_t>(rank, 1) - 1];
  return latency;
}

OutputReport describeOutput(const std::string &name, const HostTensor &tensor) {
  OutputReport report;
  report.name = name;
  report.dtype = tensor.dtype;
  report.shape = tensor.shape;
  report.digest = plan::toHex(plan::sha256(tensor.bytes));
  bool any = false;
  for (uint64_t i = 0, count = tensor.numElements(); i < count; ++i) {
    double value =
        static_cast<double>(elementAt(tensor.dtype, tensor.bytes, i));
    if (!std::isfinite(value)) {
      ++report.notFinite;
      continue;
    }
    report.least = any ? std::min(report.least, value) : value;
    report.greatest = any ? std::max(report.greatest, value) : value;
    any = true;
  }
  return report;
}

void printOutput(const OutputReport &output, double rtol, double atol) {
  std::printf("output %s %s %s", output.name.c_str(),
              std::string(dtypeName(output.dtype)).c_str(),
              shapeToString(output.shape).c_str());
  std::printf("  min %.6g max %.6g", output.least, output.greatest);
  if (output.notFinite)
    std::printf("  NaN or infinite: %llu",
                static_cast<unsigned long long>(output.notFinite));
  std::printf("  sha256 %s\n", output.digest.substr(0, 16).c_str());
  if (!output.file.empty())
    std::printf("  written to %s\n", output.file.c_str());
  if (output.expectedFile.empty())
    return;
  const Comparison &result = output.comparison;
  if (!result.problem.empty()) {
    std::printf("  DIFFERS from %s: %s\n", output.expectedFile.c_str(),
                result.problem.c_str());
    return;
  }
  if (result.ok) {
    std::printf("  ok: max abs err %.3g over %llu elements", result.maxAbsError,
                static_cast<unsigned long long>(result.elements));
    if (result.elements && result.maxAbsError > 0)
      std::printf(", worst at %s",
                  indexToString(result.worst, output.shape).c_str());
    std::printf("\n");
    return;
  }
  std::printf(
      "  DIFFERS from %s: %llu of %llu elements beyond rtol %g atol %g; "
      "max abs err %.3g; worst at %s: got %.9g, expected %.9g\n",
      output.expectedFile.c_str(),
      static_cast<unsigned long long>(result.wrong),
      static_cast<unsigned long long>(result.elements), rtol, atol,
      result.maxAbsError, indexToString(result.worst, output.shape).c_str(),
      result.got, result.expected);
}

namespace {

/// JSON has no infinity and no NaN.
json number(double value) {
  if (std::isfinite(value))
    return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

} // namespace

void writeJson(const fs::path &path, const Options &options,
               const Artefact &artefact, const ProgramMeta &meta,
               const std::vector<InputSources> &sources,
               const std::vector<OutputReport> &outputs, const RankStats &stats,
               const RunResult &run, int exitCode) {
  const Latency &latency = stats.latency;
  json root = {{"program", options.program},
               {"artefact", artefact.path.string()},
               {"name", meta.name},
               {"digest", meta.digest},
               {"world", meta.world},
               {"target_cpu", meta.targetCpu},
               {"arena_bytes", meta.arenaBytes},
               {"parameter_bytes", meta.parameterBytes},
               {"seed", options.seed},
               {"exit", exitCode}};
  json &mesh = root["mesh"] = json::array();
  for (const auto &[axis, size] : meta.mesh)
    mesh.push_back({axis, size});
  root["compile"] = {{"compiled", artefact.compiled},
                     {"cached", artefact.cached},
                     {"seconds", artefact.seconds},
                     {"options", options.compile}};
  json &inputs = root["inputs"] = json::array();
  for (size_t i = 0; i < meta.inputs.size(); ++i) {
    json list = json::array();
    for (const InputSource &source : sources[i])
      list.push_back(source.describe());
    inputs.push_back({{"name", meta.inputs[i].name},
                      {"dtype", dtypeName(meta.inputs[i].dtype)},
                      {"shape", meta.inputs[i].shape},
                      {"source", list}});
  }
  json &list = root["outputs"] = json::array();
  for (const OutputReport &output : outputs) {
    json item = {
        {"name", output.name},           {"dtype", dtypeName(output.dtype)},
        {"shape", output.shape},         {"sha256", output.digest},
        {"min", number(output.least)},   {"max", number(output.greatest)},
        {"not_finite", output.notFinite}};
    if (!output.file.empty())
      item["file"] = output.file.string();
    if (!output.expectedFile.empty()) {
      const Comparison &result = output.comparison;
      json &expect = item["expect"] = {{"file", output.expectedFile.string()},
                                       {"ok", result.ok},
                                       {"rtol", options.rtol},
                                       {"atol", options.atol}};
      if (!result.problem.empty()) {
        expect["problem"] = result.problem;
      } else {
        expect["max_abs_err"] = number(result.maxAbsError);
        expect["wrong"] = result.wrong;
        expect["worst_index"] = indexToString(result.worst, output.shape);
        expect["worst_got"] = number(result.got);
        expect["worst_expected"] = number(result.expected);
      }
    }
    list.push_back(std::move(item));
  }
  if (!latency.seconds.empty()) {
    root["step_seconds"] = latency.seconds;
    root["latency"] = {{"steps", latency.seconds.size()},
                       {"warmup", options.warmup},
                       {"min_s", latency.least},
                       {"median_s", latency.median},
                       {"p99_s", latency.p99}};
  }
  json &ranks = root["ranks"] = json::array();
  for (const std::string &text : stats.texts)
    ranks.push_back(json::parse(text));
  if (!stats.health.empty())
    root["health"] = json::parse(stats.health);
  if (run.exitCode != ExitOk)
    root["failure"] = {{"rank", run.failedRank},
                       {"message", run.message},
                       {"last_words", run.lastWords}};
  writeFile(path,
            root.dump(1, ' ', false, json::error_handler_t::replace) + "\n");
}

} // namespace concord::tools

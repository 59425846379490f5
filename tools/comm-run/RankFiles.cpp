//===- RankFiles.cpp - Statistics and traces that the ranks left ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// concord-rank writes times of CLOCK_MONOTONIC, which all processes of a host
// share, so that traces need no alignment, only a common zero.
//
//===----------------------------------------------------------------------===//

#include "Report.h"

#include "common/ElfFile.h"
#include "common/Files.h"
#include "concord/concord.h"
#include "concord/plan.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace fs = std::filesystem;
using nlohmann::json;

namespace concord::tools {

namespace {

json readJson(const fs::path &path, int64_t rank, const char *what) {
  MappedFile file(path);
  std::string_view text(reinterpret_cast<const char *>(file.bytes().data()),
                        file.bytes().size());
  json root = json::parse(text.begin(), text.end(), nullptr, false);
  if (root.is_discarded() || !root.is_object())
    throw RankError("rank " + std::to_string(rank) + ": its " + what +
                    " are not usable");
  return root;
}

const char *kindName(plan::Kind kind) {
  switch (static_cast<int>(kind)) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_KINDS(X)
#undef X
  }
  return "operation";
}

/// The plan of an artefact, and which of its programs each rank runs.
plan::Plan readPlan(const fs::path &program) {
  MappedFile file(program);
  auto section = elfSection(file.bytes(), ".concord.plan", program.string());
  plan::Plan plan;
  std::string error;
  if (!section)
    throw Error(program.string() + ": has no .concord.plan section");
  if (!plan::parse(*section, plan, error))
    throw Error(program.string() + ": its plan is not usable: " + error);
  return plan;
}

/// The program whose steps a rank records: of several issuers' the first that
/// issues in every round, as the runtime has it.
const plan::Program *programOf(const plan::Plan &plan, int64_t rank) {
  const plan::Program *found = nullptr;
  for (const plan::Program &program : plan.programs) {
    if (std::find(program.ranks.begin(), program.ranks.end(), rank) ==
        program.ranks.end())
      continue;
    if (std::any_of(program.issues.begin(), program.issues.end(),
                    [](const plan::Issue &x) { return !x.optional; }))
      return &program;
    if (!found)
      found = &program;
  }
  return found;
}

std::string nameOf(const plan::Plan &plan, const plan::Issue &issue) {
  std::string name = kindName(issue.kind);
  if (issue.domain < plan.domains.size() && issue.kind != plan::Kind::Group)
    name += " " + plan.domains[issue.domain].name;
  if (!issue.location.empty())
    name += " " + issue.location;
  return name;
}

json threadName(int64_t rank, int64_t row, const std::string &name) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", rank},
          {"tid", row},
          {"args", {{"name", name}}}};
}

json slice(const std::string &name, const char *category, int64_t rank,
           int64_t row, double begin, double end, json args) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", rank},
          {"tid", row},
          {"ts", begin},
          {"dur", std::max(end - begin, 0.0)},
          {"args", std::move(args)}};
}

} // namespace

RankStats readStats(const Job &job, const ProgramMeta &meta) {
  RankStats stats;
  std::vector<double> slowest;
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    json root = readJson(job.statsFile(rank), rank, "statistics");
    json seconds = json::array();
    size_t step = 0;
    for (const json &time : root.value("step_ns", json::array())) {
      double value = time.is_number() ? time.get<double>() * 1e-9 : 0;
      seconds.push_back(value);
      if (slowest.size() <= step)
        slowest.resize(step + 1);
      slowest[step] = std::max(slowest[step], value);
      ++step;
    }
    root.erase("step_ns");
    root["step_seconds"] = std::move(seconds);
    stats.texts.push_back(root.dump());
  }
  stats.latency = latencyOf(std::move(slowest));
  return stats;
}

void writeTrace(const Job &job, const ProgramMeta &meta,
                const fs::path &program, const fs::path &path) {
  plan::Plan plan = readPlan(program);
  std::vector<json> roots;
  int64_t zero = INT64_MAX;
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    roots.push_back(readJson(job.traceFile(rank), rank, "trace events"));
    for (const json &step : roots.back().at("steps"))
      zero = std::min(zero, step.at(0).get<int64_t>());
  }
  // Microseconds since the first step, as the format has it.
  auto at = [&](const json &time) {
    return static_cast<double>(time.get<int64_t>() - zero) * 1e-3;
  };
  json events = json::array();
  constexpr int64_t computeRow = 0;
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    const json &root = roots[static_cast<size_t>(rank)];
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", 0},
                      {"args", {{"name", "rank " + std::to_string(rank)}}}});
    events.push_back({{"name", "process_sort_index"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"tid", 0},
                      {"args", {{"sort_index", rank}}}});
    events.push_back(threadName(rank, computeRow, "compute"));
    const plan::Program *code = programOf(plan, rank);
    std::set<uint32_t> lanes;
    if (code)
      for (const plan::Issue &issue : code->issues)
        lanes.insert(issue.lane);
    for (uint32_t lane : lanes)
      events.push_back(threadName(rank, int64_t(lane) + 1,
                                  "stream " + std::to_string(lane)));

    const json &steps = root.at("steps");
    // An asynchronous operation starts when the one before it on its stream has
    // ended; slices of one row must not overlap.
    std::map<uint32_t, double> laneFree;
    // Where the issuing thread is free to compute: from the return of one call
    // to the begin of the next.
    std::vector<double> computesFrom;
    for (size_t step = 0; step < steps.size(); ++step) {
      double begin = at(steps[step].at(0)), end = at(steps[step].at(1));
      computesFrom.push_back(begin);
      events.push_back(slice("step " + std::to_string(step), "step", rank,
                             computeRow, begin, end, json::object()));
    }
    auto compute = [&](double from, double to) {
      if (to > from)
        events.push_back(slice("compute", "compute", rank, computeRow, from, to,
                               json::object()));
    };
    for (const json &event : root.at("events")) {
      size_t step = event.at(0).get<size_t>(), site = event.at(1).get<size_t>();
      double begin = at(event.at(2)), returned = at(event.at(3)),
             completed = at(event.at(4));
      if (step < computesFrom.size()) {
        compute(computesFrom[step], begin);
        computesFrom[step] = std::max(computesFrom[step], returned);
      }
      if (!code || site >= code->issues.size())
        continue;
      const plan::Issue &issue = code->issues[site];
      double &free = laneFree[issue.lane];
      double start = std::max(begin, free);
      free = std::max(start, completed);
      events.push_back(slice(nameOf(plan, issue), "collective", rank,
                             int64_t(issue.lane) + 1, start, completed,
                             {{"site", site},
                              {"queued_us", start - begin},
                              {"step", step},
                              {"kind", kindName(issue.kind)},
                              {"dtype", dtypeName(issue.dtype)},
                              {"bytes", issue.count * dtypeSize(issue.dtype)},
                              {"location", issue.location}}));
    }
    for (size_t step = 0; step < steps.size(); ++step)
      compute(computesFrom[step], at(steps[step].at(1)));
  }
  json root = {{"traceEvents", std::move(events)},
               {"displayTimeUnit", "ms"},
               {"otherData", {{"program", meta.name}, {"world", meta.world}}}};
  writeFile(path,
            root.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

} // namespace concord::tools

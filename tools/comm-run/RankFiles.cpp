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
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace fs = std::filesystem;
using nlohmann::json;

namespace concord::tools {

namespace {

/// Rows of a rank in a trace that each of its issuers has: computation, and one
/// per stream.
constexpr int64_t kIssuerRows = 100;
/// Sites of a program in the table.
constexpr size_t kShownSites = 16;

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

/// The program of the plan that an issuer of a rank has recorded, by its name
/// where there are several.
const plan::Program *programOf(const plan::Plan &plan, int64_t rank,
                               const std::string &name) {
  for (const plan::Program &program : plan.programs)
    if (plan.programs.size() == 1 ||
        (program.name == name &&
         std::find(program.ranks.begin(), program.ranks.end(), rank) !=
             program.ranks.end()))
      return &program;
  return nullptr;
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

size_t hostsOf(const RankStats &stats) {
  std::set<std::string> hosts;
  for (const std::string &text : stats.texts)
    hosts.insert(json::parse(text).value("host", ""));
  return hosts.size();
}

std::pair<double, double> healthOf(const RankStats &stats) {
  // Sites of the program: a barrier, then the two.
  double medians[2] = {};
  for (int site : {1, 2}) {
    std::vector<double> slowest;
    for (const std::string &text : stats.texts) {
      json times = json::parse(text).value("health_ns", json::object());
      size_t round = 0;
      for (const json &time :
           times.value(std::to_string(site), json::array())) {
        if (slowest.size() <= round)
          slowest.resize(round + 1);
        slowest[round] = std::max(slowest[round], time.get<double>() * 1e-3);
        ++round;
      }
    }
    if (slowest.empty())
      throw RankError(
          "no round had the health check: more steps (--repeat), or "
          "a larger share of them (--slots)");
    auto middle = slowest.begin() + ptrdiff_t(slowest.size() / 2);
    std::nth_element(slowest.begin(), middle, slowest.end());
    medians[site - 1] = *middle;
  }
  return {medians[0], medians[1]};
}

namespace {

/// What comm-opt predicts of a step of one program (passes/common/Predicted.h),
/// and what was measured of it: sums over all recorded steps of all ranks.
struct Compared {
  struct Site {
    std::string name;
    bool synchronous = true;
    double transfer = 0, exposed = 0, compute = 0; ///< predicted, of a step
    double apart = -1, fused = -1;                 ///< of a fused collective
    double tookTransfer = 0, tookExposed = 0, tookCompute = 0;
  };
  std::string name;
  bool predicted = false;
  double step = 0, compute = 0, exposed = 0;
  double tookStep = 0, tookCompute = 0, tookExposed = 0;
  size_t steps = 0; ///< of all ranks
  std::set<int64_t> ranks;
  std::vector<Site> sites;
};

class TraceWriter {
public:
  TraceWriter(const fs::path &program);
  void add(int64_t rank, const json &root, int64_t zero);
  json take() { return std::move(events); }
  void print() const;

private:
  void addIssuer(int64_t rank, const json &issuer, size_t number, int64_t zero);

  plan::Plan plan;
  std::string machine, validated, error;
  std::vector<Compared> programs;
  json events = json::array();
};

TraceWriter::TraceWriter(const fs::path &program) : plan(readPlan(program)) {
  MappedFile file(program);
  auto section = elfSection(file.bytes(), ".concord.meta", program.string());
  std::string_view text;
  if (section)
    text = {reinterpret_cast<const char *>(section->data()), section->size()};
  text = text.substr(0, text.find('\0'));
  json meta = json::parse(text, nullptr, false);
  json predicted = meta.is_object() ? meta.value("predicted", json()) : json();
  if (!predicted.is_object())
    error = "the artefact has none; compile it with this comm-opt";
  else if (predicted.contains("error"))
    error = predicted.value("error", "");
  else {
    machine = predicted.value("machine", "");
    validated = predicted.value("validated", "");
  }
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    Compared &own = programs.emplace_back();
    own.name = plan.programs[i].name;
    for (const plan::Issue &issue : plan.programs[i].issues)
      own.sites.push_back({nameOf(plan, issue), issue.synchronous});
    if (!error.empty() || i >= predicted.at("programs").size())
      continue;
    const json &from = predicted["programs"][i];
    if (!from.contains("sites") || from["sites"].size() != own.sites.size())
      continue;
    own.predicted = true;
    own.step = from.value("step_us", 0.0);
    own.compute = from.value("compute_us", 0.0);
    own.exposed = from.value("exposed_us", 0.0);
    for (size_t site = 0; site < own.sites.size(); ++site) {
      own.sites[site].transfer = from["sites"][site].at(1);
      own.sites[site].exposed = from["sites"][site].at(2);
      own.sites[site].compute = from["sites"][site].at(3);
    }
    for (const json &one : from.value("fused", json::array()))
      if (size_t site = one.at(0); site < own.sites.size()) {
        own.sites[site].apart = one.at(2);
        own.sites[site].fused = one.at(3);
      }
  }
}

/// Microseconds since the first step, as the format has it.
void TraceWriter::addIssuer(int64_t rank, const json &issuer, size_t number,
                            int64_t zero) {
  auto at = [&](const json &time) {
    return static_cast<double>(time.get<int64_t>() - zero) * 1e-3;
  };
  const plan::Program *code =
      programOf(plan, rank, issuer.value("program", std::string()));
  if (!code)
    return;
  auto index = static_cast<size_t>(code - plan.programs.data());
  Compared &own = programs[index];
  own.ranks.insert(rank);
  // Rows of further issuers follow.
  const int64_t computeRow = static_cast<int64_t>(number) * kIssuerRows;
  std::string prefix = number ? own.name + ": " : "";
  events.push_back(threadName(rank, computeRow, prefix + "compute"));
  std::set<uint32_t> lanes;
  for (const plan::Issue &issue : code->issues)
    lanes.insert(issue.lane);
  for (uint32_t lane : lanes)
    events.push_back(threadName(rank, computeRow + int64_t(lane) + 1,
                                prefix + "stream " + std::to_string(lane)));
  json which = {{"program", index}};
  auto with = [&](json more) {
    more.update(which);
    return more;
  };

  const json &steps = issuer.at("steps");
  // When the host is held up, and by which site; where it computes in between.
  struct Call {
    double begin, end;
    size_t site;
    bool waits, issues;
  };
  std::map<size_t, std::vector<Call>> calls;
  std::map<size_t, std::pair<double, double>> bounds;
  for (const json &step : steps) {
    auto n = step.at(0).get<size_t>();
    double begin = at(step.at(1)), end = at(step.at(2));
    bounds[n] = {begin, end};
    json arguments = with({{"step", n}});
    if (own.predicted)
      arguments["predicted_us"] = own.step;
    events.push_back(slice("step " + std::to_string(n), "step", rank,
                           computeRow, begin, end, arguments));
    own.tookStep += end - begin;
    ++own.steps;
  }
  // An asynchronous operation starts when the one before it on its stream has
  // ended; slices of one row must not overlap.
  std::map<uint32_t, double> laneFree;
  for (const json &event : issuer.at("events")) {
    auto step = event.at(0).get<size_t>(), site = event.at(1).get<size_t>();
    if (site >= code->issues.size())
      continue;
    const plan::Issue &issue = code->issues[site];
    double begin = at(event.at(2)), returned = at(event.at(3)),
           completed = at(event.at(5));
    bool waited = event.at(4).get<int64_t>() != -1;
    double exposed = 0;
    if (issue.synchronous) {
      exposed = returned - begin;
      calls[step].push_back({begin, returned, site, true, true});
    } else {
      calls[step].push_back({begin, returned, site, false, true});
      if (waited) {
        double from = at(event.at(4));
        exposed = completed - from;
        calls[step].push_back({from, completed, site, true, false});
      }
    }
    double &free = laneFree[issue.lane];
    double start = std::max(begin, free);
    free = std::max(start, completed);
    Compared::Site &compared = own.sites[site];
    compared.tookTransfer += free - start;
    compared.tookExposed += exposed;
    json arguments = with({{"site", site},
                           {"queued_us", start - begin},
                           {"exposed_us", exposed},
                           {"step", step},
                           {"kind", kindName(issue.kind)},
                           {"dtype", dtypeName(issue.dtype)},
                           {"bytes", issue.count * dtypeSize(issue.dtype)},
                           {"location", issue.location}});
    if (own.predicted) {
      arguments["predicted_us"] =
          compared.fused >= 0 ? compared.fused : compared.transfer;
      arguments["predicted_exposed_us"] =
          compared.fused >= 0 ? compared.fused : compared.exposed;
    }
    events.push_back(slice(compared.name, "collective", rank,
                           computeRow + int64_t(issue.lane) + 1, start,
                           completed, std::move(arguments)));
  }
  for (auto &[step, list] : calls) {
    auto [from, to] = bounds[step];
    std::stable_sort(
        list.begin(), list.end(),
        [](const Call &a, const Call &b) { return a.begin < b.begin; });
    double free = from, since = 0;
    auto compute = [&](double until) {
      if (until <= free)
        return;
      events.push_back(
          slice("compute", "compute", rank, computeRow, free, until, which));
      own.tookCompute += until - free;
      since += until - free;
    };
    for (const Call &call : list) {
      compute(call.begin);
      if (call.issues) {
        own.sites[call.site].tookCompute += since;
        since = 0;
      }
      if (call.waits && call.end > call.begin) {
        events.push_back(slice("wait " + own.sites[call.site].name, "wait",
                               rank, computeRow, call.begin, call.end,
                               with({{"site", call.site}})));
        own.tookExposed += call.end - call.begin;
      }
      free = std::max(free, call.end);
    }
    compute(to);
  }
}

void TraceWriter::add(int64_t rank, const json &root, int64_t zero) {
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
  size_t number = 0;
  for (const json &issuer : root.at("issuers"))
    addIssuer(rank, issuer, number++, zero);
}

/// A table for people: means of a step.
void TraceWriter::print() const {
  if (!error.empty()) {
    std::printf("predicted against measured: no prediction: %s\n",
                error.c_str());
    return;
  }
  std::printf("predicted against measured, us of a step; figures of %s, "
              "validated: %s\n",
              machine.c_str(), validated.c_str());
  for (const Compared &one : programs) {
    if (!one.steps)
      continue;
    auto n = static_cast<double>(one.steps);
    std::printf("%s%s%zu steps of %zu rank%s\n", one.name.c_str(),
                one.name.empty() ? "" : ": ", one.steps / one.ranks.size(),
                one.ranks.size(), one.ranks.size() == 1 ? "" : "s");
    if (!one.predicted) {
      std::printf("  no prediction\n");
      continue;
    }
    auto line = [&](const char *what, double predicted, double measured) {
      std::printf("  %-24s %12.1f %12.1f\n", what, predicted, measured);
    };
    std::printf("  %-24s %12s %12s\n", "", "predicted", "measured");
    line("step", one.step, one.tookStep / n);
    line("computation", one.compute, one.tookCompute / n);
    line("exposed communication", one.exposed, one.tookExposed / n);
    std::vector<const Compared::Site *> order;
    for (const Compared::Site &site : one.sites)
      order.push_back(&site);
    std::stable_sort(order.begin(), order.end(), [](auto *a, auto *b) {
      return a->tookTransfer > b->tookTransfer;
    });
    if (order.empty())
      continue;
    std::printf("  %4s  %10s %10s  %10s %10s  %10s %10s  %s\n", "site",
                "transfer", "measured", "exposed", "measured", "before it",
                "measured", "operation");
    size_t shown = 0;
    for (const Compared::Site *site : order) {
      if (shown == kShownSites)
        break;
      ++shown;
      bool fused = site->fused >= 0;
      std::printf("  %4zu  %10.1f %10.1f  %10.1f %10.1f  %10.1f %10.1f  %s\n",
                  static_cast<size_t>(site - one.sites.data()),
                  fused ? site->fused : site->transfer, site->tookTransfer / n,
                  fused ? site->fused : site->exposed, site->tookExposed / n,
                  site->compute, site->tookCompute / n, site->name.c_str());
    }
    if (shown < order.size())
      std::printf("  and %zu more, in the trace\n", order.size() - shown);
    double apart = 0, fused = 0, took = 0;
    size_t count = 0;
    for (const Compared::Site &site : one.sites)
      if (site.fused >= 0) {
        apart += site.apart;
        fused += site.fused;
        took += site.tookTransfer / n;
        ++count;
      }
    if (count)
      std::printf("  %zu fused: predicted %.1f us instead of %.1f apart, "
                  "measured %.1f\n",
                  count, fused, apart, took);
  }
}

} // namespace

void writeTrace(const Job &job, const ProgramMeta &meta,
                const fs::path &program, const fs::path &path) {
  std::vector<json> roots;
  int64_t zero = INT64_MAX;
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    roots.push_back(readJson(job.traceFile(rank), rank, "trace events"));
    for (const json &issuer : roots.back().at("issuers"))
      for (const json &step : issuer.at("steps"))
        zero = std::min(zero, step.at(1).get<int64_t>());
  }
  TraceWriter writer(program);
  for (int64_t rank = 0; rank < meta.world; ++rank)
    writer.add(rank, roots[static_cast<size_t>(rank)], zero);
  json root = {{"traceEvents", writer.take()},
               {"displayTimeUnit", "ms"},
               {"otherData", {{"program", meta.name}, {"world", meta.world}}}};
  writeFile(path,
            root.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  writer.print();
}

} // namespace concord::tools

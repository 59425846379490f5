//===- Health.cpp - comm-run --health -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Of a host: runs comm-run itself on a program, so that the check takes the way
// that every program takes, and reads the times of the two sites from its
// trace. Of a program the check is a slot (comm-health), and the ranks have the
// times.
//
//===----------------------------------------------------------------------===//

#include "Health.h"

#include "Compile.h"
#include "Options.h"
#include "Topology.h"
#include "common/Files.h"
#include "common/HostTensor.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace fs = std::filesystem;
using nlohmann::json;

namespace concord::tools {

namespace {

constexpr int64_t kElements = 1 << 20;

std::string programText(int64_t ranks) {
  std::string group, world = std::to_string(ranks),
                     large = "tensor<" + std::to_string(kElements) + "xf32>";
  for (int64_t r = 0; r < ranks; ++r)
    group += (r ? ", " : "") + std::to_string(r);
  std::string text = "module attributes {comm.world = " + world +
                     " : i64, comm.name = \"health\"} {\n"
                     "  comm.domain @health groups([[" +
                     group +
                     "]])\n"
                     "  func.func @main(%a: tensor<2xf32>, %b: " +
                     large + ") -> (tensor<2xf32>, " + large + ") {\n";
  int value = 0;
  for (const std::string &type : {std::string("tensor<2xf32>"), large}) {
    std::string in = value ? "%b" : "%a", empty = "%" + std::to_string(value),
                out = "%" + std::to_string(value + 1);
    text += "    " + empty + " = tensor.empty() : " + type + "\n    " + out +
            " = comm.all_reduce @health sum ins(" + in + " : " + type +
            ") outs(" + empty + " : " + type + ") -> " + type + "\n";
    value += 2;
  }
  return text + "    return %1, %3 : tensor<2xf32>, " + large + "\n  }\n}\n";
}

void runItself(const std::vector<std::string> &arguments) {
  std::string self = (executableDir() / "comm-run").string();
  std::vector<char *> argv = {self.data()};
  std::vector<std::string> copies(arguments);
  for (std::string &argument : copies)
    argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t child;
  int failed = ::posix_spawn(&child, self.c_str(), &actions, nullptr,
                             argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
      WEXITSTATUS(status) != 0)
    throw RankError("the health check's program did not run; see above");
}

/// Median over the steps of the slowest rank's time, by site, in microseconds.
std::map<int, double> siteTimes(const fs::path &trace) {
  std::ifstream file(trace);
  json document = json::parse(file, nullptr, false);
  std::map<int, std::map<int64_t, double>> slowest;
  if (document.is_object())
    for (const json &event : document.value("traceEvents", json::array()))
      if (event.value("cat", "") == "collective") {
        double &time = slowest[event["args"]["site"].get<int>()]
                              [event["args"]["step"].get<int64_t>()];
        time = std::max(time, event["dur"].get<double>());
      }
  std::map<int, double> medians;
  for (const auto &[site, steps] : slowest) {
    std::vector<double> times;
    for (const auto &[step, time] : steps)
      times.push_back(time);
    std::nth_element(times.begin(), times.begin() + ptrdiff_t(times.size() / 2),
                     times.end());
    medians[site] = times[times.size() / 2];
  }
  if (!medians.count(0) || !medians.count(1))
    throw Error(trace.string() + ": has no times of both sites");
  return medians;
}

} // namespace

int checkHealth(Options options) {
  if (options.ranks == 0)
    options.ranks =
        std::min<int64_t>(std::max(2, placeRanks({}, 0, false).cores), 64);
  ScratchDir dir(makePrivateDir(tempParent(), "comm-run-health."));
  fs::path program = dir.path() / "health.mlir", trace = dir.path() / "trace";
  std::ofstream(program) << programText(options.ranks);
  runItself({program.string(), "-n", std::to_string(options.ranks), "--repeat",
             "100", "--warmup", "10", "--trace", trace.string()});
  std::map<int, double> times = siteTimes(trace);
  std::string words;
  int code = judgeHealth(options, options.ranks, times[0], times[1], kElements,
                         "", words);
  if (!options.jsonFile.empty()) {
    std::ofstream file(options.jsonFile);
    file << words << "\n";
    file.close();
    if (!file)
      throw Error(options.jsonFile + ": cannot be written");
  }
  return code;
}

int judgeHealth(const Options &options, int64_t ranks, double small,
                double large, int64_t elements, const std::string &where,
                std::string &words) {
  double bandwidth = 2.0 * double(ranks - 1) / double(ranks) *
                     double(elements) * 4 / (large * 1e-6);
  char host[256] = "host";
  ::gethostname(host, sizeof host - 1);
  fs::path baseline = options.baseline;
  if (baseline.empty())
    baseline = cacheDir() / ("health-" + fileSafe(host) + "-" +
                             std::to_string(ranks) + where + ".json");
  json now = {{"version", 1},        {"host", host},      {"ranks", ranks},
              {"latency_us", small}, {"large_us", large}, {"busbw", bandwidth}};
  std::printf(
      "health of %lld ranks: all_reduce of 8 bytes %.2f us, of %.3g MiB "
      "%.1f us (%.2f GB/s bus bandwidth)\n",
      (long long)ranks, small, double(elements) * 4 / (1 << 20), large,
      bandwidth / 1e9);
  json before;
  if (std::ifstream file(baseline); file && !options.renew)
    before = json::parse(file, nullptr, false);
  int code = ExitOk;
  if (before.is_object()) {
    auto number = [&](const char *key) {
      auto found = before.find(key);
      if (found == before.end() || !found->is_number())
        throw Error(baseline.string() +
                    ": is no baseline of comm-run --health: it has no number "
                    "\"" +
                    key + "\"");
      return found->get<double>();
    };
    if (number("ranks") != double(ranks))
      throw Error(baseline.string() + ": is of another number of ranks");
    json report = json::object();
    auto compare = [&](const char *what, const char *key, double value) {
      double was = number(key);
      if (!(was > 0))
        throw Error(baseline.string() +
                    ": is no baseline of comm-run --health");
      double ratio = value / was;
      bool degraded = ratio > options.tolerance;
      std::printf("%-10s %.2f us, was %.2f us: %.2f times%s\n", what, value,
                  was, ratio, degraded ? ", DEGRADED" : "");
      report[key] = {{"was", was}, {"ratio", ratio}, {"degraded", degraded}};
      if (degraded)
        code = ExitMismatch;
    };
    compare("latency", "latency_us", small);
    compare("bandwidth", "large_us", large);
    now["baseline"] = report;
    now["degraded"] = code != ExitOk;
    std::printf("compared with %s: %s\n", baseline.c_str(),
                code == ExitOk ? "healthy" : "degraded");
  } else if (!before.is_null()) {
    throw Error(baseline.string() + ": is no baseline of comm-run --health");
  } else {
    std::error_code ignored;
    if (baseline.has_parent_path())
      fs::create_directories(baseline.parent_path(), ignored);
    std::ofstream file(baseline);
    file << now.dump(2) << "\n";
    file.close();
    if (!file)
      throw Error(baseline.string() + ": cannot be written");
    std::printf("stored as the baseline: %s\n", baseline.c_str());
  }
  words = now.dump(2);
  return code;
}

} // namespace concord::tools

//===- Calibrate.cpp - What the cost model needs of this host -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measures flags, memory, products and every collective, fits lines to their
// times, and writes the calibration that passes and comm-opt read
// (docs/cost-model.md).
//
// A collective is measured as it stands in a program: its input was just
// written, and its output is read afterwards. What it adds to such a step is
// its time. Between caches that is not what a loop of collectives takes: the
// writer of the input has to win back the lines that its peers have read.
//
//===----------------------------------------------------------------------===//

#include "Calibrate.h"
#include "Report.h"
#include "concord/cost/Machine.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>

using namespace concord::bench;
using namespace concord;

namespace {

struct Point {
  double bytes, micros;
};

/// The line with the least relative error; neither part below zero.
void fitLine(const std::vector<Point> &points, size_t from, size_t to,
             double &alpha, double &beta) {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = from; i < to; ++i) {
    double weight = 1 / (points[i].micros * points[i].micros);
    w += weight;
    x += weight * points[i].bytes;
    y += weight * points[i].micros;
    xx += weight * points[i].bytes * points[i].bytes;
    xy += weight * points[i].bytes * points[i].micros;
  }
  double d = w * xx - x * x;
  beta = d > 0 ? (w * xy - x * y) / d : 0;
  alpha = (y - beta * x) / w;
  if (beta < 0) {
    beta = 0;
    alpha = y / w;
  }
  if (alpha < 0) {
    alpha = 0;
    beta = xy / xx;
  }
}

double worstError(const std::vector<Point> &points, size_t from, size_t to,
                  double alpha, double beta) {
  double worst = 0;
  for (size_t i = from; i < to; ++i)
    worst = std::max(
        worst, std::fabs(alpha + beta * points[i].bytes - points[i].micros) /
                   points[i].micros);
  return worst;
}

} // namespace

void concord::bench::fitSegments(
    const std::vector<std::pair<uint64_t, double>> &measured,
    std::vector<cost::Segment> &segments) {
  constexpr double kTolerance = 0.1;
  std::vector<Point> points;
  for (auto [bytes, micros] : measured)
    points.push_back({double(bytes), micros});
  for (size_t from = 0; from < points.size();) {
    // As far as one line describes it.
    size_t to = std::min(from + 2, points.size());
    double alpha, beta;
    // One that is left over takes its slope from the one before.
    fitLine(points, to - from == 1 && from ? from - 1 : from, to, alpha, beta);
    while (to < points.size()) {
      double a, b;
      fitLine(points, from, to + 1, a, b);
      if (worstError(points, from, to + 1, a, b) > kTolerance)
        break;
      alpha = a;
      beta = b;
      ++to;
    }
    cost::Segment segment;
    segment.upTo = to < points.size() ? measured[to - 1].first : UINT64_MAX;
    segment.alpha = alpha * 1e-6;
    segment.beta = beta * 1e-6;
    segments.push_back(segment);
    from = to;
  }
}

/// Time the flat and the direct form of every collective, as far as slots
/// carry, in turns.
static void measureForms(const Options &given, cost::Machine &machine) {
  constexpr int32_t kKindsMeasured[] = {kAllReduce, kAllGather, kReduceScatter,
                                        kAllToAll,  kBroadcast, kReduce,
                                        kGather,    kScatter};
  constexpr uint64_t kPayloads[] = {64, 256, 512, 1024, 2048, 4096, 6144};
  Options options = given;
  options.peers.clear();
  options.from = 8;
  options.to = 16 << 10;
  const char *asked = std::getenv("CONCORD_ALGORITHM");
  std::string before = asked ? asked : "";
  struct Candidate {
    const char *form, *range;
    std::unique_ptr<Driver> driver;
  } candidates[] = {{"flat", "0-6145", nullptr}, {"direct", "0-inf", nullptr}};
  for (Candidate &candidate : candidates) {
    std::string scores;
    for (int32_t kind : kKindsMeasured)
      scores += std::string(kindText(kind)) + ":" + candidate.range + ":" +
                candidate.form + ";";
    ::setenv("CONCORD_ALGORITHM", scores.c_str(), 1);
    candidate.driver = std::make_unique<Driver>(options);
    candidate.driver->start();
  }
  if (asked)
    ::setenv("CONCORD_ALGORITHM", before.c_str(), 1);
  else
    ::unsetenv("CONCORD_ALGORITHM");
  uint64_t all = uint64_t(options.ranks);
  for (int32_t kind : kKindsMeasured) {
    bool reduces =
        kind == kAllReduce || kind == kReduceScatter || kind == kReduce;
    std::vector<std::pair<uint64_t, double>> latency[2], throughput[2];
    for (uint64_t payload : kPayloads) {
      Command command;
      command.call.kind = kind;
      command.call.type = CONCORD_DTYPE_F32;
      command.call.reduction =
          reduces ? CONCORD_REDUCTION_SUM : CONCORD_REDUCTION_NONE;
      command.call.count = payload / 4 / (wideInput(kind) ? all : 1);
      uint64_t chunk = command.call.count * 4;
      command.inBytes = wideInput(kind) ? chunk * all : chunk;
      command.outBytes = wideOutput(kind) ? chunk * all : chunk;
      command.iterations = 400;
      command.warmup = 20;
      std::vector<double> alone[2], many[2];
      for (int round = 0; round < options.rounds; ++round)
        for (int i = 0; i < 2; ++i) {
          command.verb = kBatch;
          double slowest = 0;
          for (auto &numbers :
               candidates[i].driver->command(0, command).numbers)
            slowest = std::max(slowest, numbers.at(0));
          many[i].push_back(slowest);
          command.verb = kSingles;
          Answer answer = candidates[i].driver->command(0, command);
          for (uint64_t n = 0; n < command.iterations; ++n) {
            double began = 0, ended = 0;
            for (auto &numbers : answer.numbers) {
              began = std::max(began, numbers.at(2 * n));
              ended = std::max(ended, numbers[2 * n] + numbers.at(2 * n + 1));
            }
            alone[i].push_back(std::max(ended - began, 0.01));
          }
        }
      uint64_t whole = std::max(command.inBytes, command.outBytes);
      for (int i = 0; i < 2; ++i) {
        latency[i].push_back({whole, median(alone[i])});
        throughput[i].push_back({whole, median(many[i])});
      }
    }
    for (int i = 0; i < 2; ++i)
      for (bool one : {true, false}) {
        cost::FormCurve form;
        form.curve.kind = plan::Kind(kind);
        form.curve.ranks = options.ranks;
        form.form = candidates[i].form;
        form.objective = one ? "latency" : "throughput";
        fitSegments(one ? latency[i] : throughput[i], form.curve.segments);
        machine.forms.push_back(form);
      }
    std::printf("# %-14s flat and direct, us:", kindText(kind));
    for (size_t i = 0; i < latency[0].size(); ++i)
      std::printf("  %llu B %.2f %.2f", (unsigned long long)latency[0][i].first,
                  throughput[0][i].second, throughput[1][i].second);
    std::printf("\n");
    std::fflush(stdout);
  }
  for (Candidate &candidate : candidates)
    candidate.driver->finish();
}

void concord::bench::calibrate(const Options &given, Teams &teams) {
  auto machine = *cost::builtinMachine("cpu");
  Options options = given;
  options.peers.clear();
  machine.coresPerHost = int64_t(std::thread::hardware_concurrency());
  auto best = [&](uint64_t bytes, uint64_t ranks, bool reused) {
    double top = 0;
    for (int round = 0; round < options.rounds; ++round) {
      Answer answer = teams.special(kBandwidth, Call(),
                                    {bytes, 1500, ranks, uint64_t(reused)});
      for (int method = 0; method < kNumMethods; ++method) {
        double longest = 0, moved = 0;
        for (auto &numbers : answer.numbers) {
          longest = std::max(longest, numbers.at(size_t(3 * method)));
          moved += numbers[size_t(3 * method + 2)];
        }
        top = std::max(top, moved / longest * 1e6);
      }
    }
    return top;
  };
  uint64_t all = uint64_t(options.ranks);
  machine.cache.core = best(128 << 10, 1, true);
  machine.cache.node = std::max(machine.cache.core, best(128 << 10, all, true));
  machine.dram.core = best(8 << 20, 1, false);
  machine.dram.node = std::max(machine.dram.core, best(8 << 20, all, false));
  std::printf("# memory, GB/s: in cache %.1f a core, %.1f all; beyond %.1f a "
              "core, %.1f all\n",
              machine.cache.core * 1e-9, machine.cache.node * 1e-9,
              machine.dram.core * 1e-9, machine.dram.node * 1e-9);
  std::fflush(stdout);

  if (options.ranks > 1) {
    std::vector<double> stores;
    for (int round = 0; round < options.rounds; ++round)
      stores.push_back(
          teams.special(kContended, Call(), {2000}).numbers.at(0).at(0));
    machine.contended = median(stores);
    std::printf("# stores to lines that another core has read: %.1f GB/s\n",
                machine.contended * 1e-9);
  }
  for (auto [type, dtype] :
       {std::pair{int32_t(CONCORD_DTYPE_F32), DType::F32},
        std::pair{int32_t(CONCORD_DTYPE_F64), DType::F64},
        std::pair{int32_t(CONCORD_DTYPE_F16), DType::F16},
        std::pair{int32_t(CONCORD_DTYPE_BF16), DType::BF16}}) {
    // The size of a layer of a small transformer.
    double slowest = INFINITY;
    for (auto &numbers :
         teams.special(kProduct, Call(), {uint64_t(type), 256, 512, 512})
             .numbers)
      if (numbers.at(0) > 0)
        slowest = std::min(slowest, numbers[0]);
    if (!std::isfinite(slowest))
      continue;
    machine.flops[dtype] = slowest;
    std::printf("# products in %s: %.1f Gflop/s a rank\n",
                std::string(dtypeName(dtype)).c_str(), slowest * 1e-9);
  }
  double instruction = 0;
  for (auto &numbers : teams.special(kUpdate, Call(), {}).numbers)
    instruction = std::max(instruction, numbers.at(0));
  if (instruction > 0) {
    machine.updateSeconds = instruction * 1e-9;
    std::printf("# updates: %.3f ns an instruction and element\n", instruction);
  }
  std::fflush(stdout);

  // A flag, and what issuing takes beside it.
  Meter meter(options, teams);
  options.kind = kAllReduce;
  options.groupSize = options.ranks;
  Row small = meter.measure(std::max<uint64_t>(options.from, 4 * all),
                            CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM);
  double flag = small.flag;
  double issue = std::max(small.outOfPlace.time - small.flag, 0.01);
  for (int32_t kind : {kAllReduce, kAllGather, kReduceScatter, kAllToAll,
                       kBroadcast, kReduce, kGather, kScatter, kPermute}) {
    bool reduces =
        kind == kAllReduce || kind == kReduceScatter || kind == kReduce;
    bool divided = wideInput(kind) || wideOutput(kind);
    std::vector<std::pair<uint64_t, double>> measured;
    for (uint64_t bytes = std::max<uint64_t>(options.from, 4 * all);
         bytes <= options.to; bytes *= 4) {
      Call call;
      call.kind = kind;
      call.type = CONCORD_DTYPE_F32;
      call.reduction = reduces ? CONCORD_REDUCTION_SUM : CONCORD_REDUCTION_NONE;
      call.count = bytes / 4 / (divided ? all : 1);
      uint64_t chunk = call.count * 4;
      std::vector<double> rounds;
      for (int round = 0; round < options.rounds; ++round) {
        Answer answer =
            teams.special(kCycle, call,
                          {wideInput(kind) ? chunk * all : chunk,
                           wideOutput(kind) ? chunk * all : chunk, 3000});
        double with = 0, without = 0;
        for (auto &numbers : answer.numbers) {
          with = std::max(with, numbers.at(0));
          without = std::max(without, numbers.at(1));
        }
        rounds.push_back(std::max(with - without, 0.01));
      }
      measured.push_back({chunk * (divided ? all : 1), median(rounds)});
    }
    cost::Curve curve;
    curve.kind = plan::Kind(kind);
    curve.ranks = options.ranks;
    fitSegments(measured, curve.segments);
    machine.curves.push_back(curve);
    std::printf("# %-14s", kindText(kind));
    for (const cost::Segment &segment : curve.segments)
      std::printf(
          "  %.2f us + B / %.1f GB/s%s", segment.alpha * 1e6,
          segment.beta > 0 ? 1e-9 / segment.beta : INFINITY,
          segment.upTo == UINT64_MAX
              ? ""
              : (" to " + std::to_string(segment.upTo) + " B;").c_str());
    std::printf("\n");
    std::fflush(stdout);
  }
  if (options.ranks > 1)
    measureForms(given, machine);
  if (flag > 0)
    machine.flagSeconds = flag * 1e-6;
  machine.issueSeconds = issue * 1e-6;
  machine.inlineBytes = 1024;
  machine.name = std::to_string(machine.coresPerHost) + " cores of this host";
  machine.validated = std::to_string(options.from) + " B to " +
                      std::to_string(options.to) + " B, " +
                      std::to_string(options.ranks) +
                      " ranks, inputs just written and outputs read";
  if (auto folder = std::filesystem::path(given.calibrateFile).parent_path();
      !folder.empty()) {
    std::error_code failed; // of which writeFile will tell
    std::filesystem::create_directories(folder, failed);
  }
  writeFile(given.calibrateFile, cost::writeCalibration(machine));
  // What is written has to be read.
  cost::Machine again;
  std::string error;
  if (!cost::readCalibration(given.calibrateFile, again, error))
    throw Failure("the calibration cannot be read back: " + error);
  std::printf("# written: %s\n", given.calibrateFile.c_str());
}

//===- GateBench.cpp - Serving beside a placement, in one order -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ./run bench gate. Two processes. A decode step computes for at least 5 ms, in
// tiles, and has two small all-reduces of high priority; a placement thread
// moves 1 MiB per rank at low priority in the slots that rank 0 asks for, in 3
// % of the steps. Runs with and without placement take turns; the work of a
// step is fixed, so that what the engine moves in between shows in its time.
//
//===----------------------------------------------------------------------===//

#include "GateCost.h"
#include "concord/launch.h"
#include "concord/order/Certificate.h"

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <unistd.h>

using namespace concord;
using concord::bench::median;
using concord::bench::need;

namespace {

constexpr int kSteps = 500, kPhases = 6, kTiles = 300;
constexpr uint64_t kMove = uint64_t(1) << 18; ///< floats: 1 MiB
constexpr double kStepSeconds = 0.0052;

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

plan::Plan twoIssuers() {
  plan::Plan p;
  p.world = 2;
  std::vector<std::vector<int32_t>> all = {{0, 1}};
  p.domains = {{"ctl", 9, all}, {"decode", 5, all}, {"move", -1, all}};
  auto issue = [](plan::Kind kind, uint32_t domain, uint64_t count) {
    plan::Issue x{};
    x.kind = kind;
    x.domain = domain;
    x.count = count;
    if (kind != plan::Kind::RoundDecision)
      x.dtype = DType::F32;
    if (kind == plan::Kind::AllReduce)
      x.reduction = plan::Reduction::Sum;
    x.root = kind == plan::Kind::RoundDecision ? 0 : -1;
    return x;
  };
  auto program = [](const char *name, std::vector<plan::Issue> issues) {
    plan::Program made{
        name, name, {0, 1}, std::move(issues), {plan::Node::Type::Seq}};
    for (uint32_t i = 0; i < made.issues.size(); ++i) {
      plan::Node node{plan::Node::Type::Issue};
      node.site = i;
      made.body.children.push_back(node);
    }
    return made;
  };
  plan::Issue move = issue(plan::Kind::AllGather, 2, kMove);
  move.optional = true;
  p.programs = {program("serving", {issue(plan::Kind::RoundDecision, 0, 0),
                                    issue(plan::Kind::AllReduce, 1, 1024),
                                    issue(plan::Kind::AllReduce, 1, 1024)}),
                program("placement", {move})};
  std::vector<order::Finding> faults;
  order::orderRounds(p, faults);
  return p;
}

concord_comm *domain(concord_context *context, const char *name, int priority) {
  int32_t both[2] = {0, 1};
  concord_comm_config config{};
  config.struct_size = sizeof config;
  config.name = name;
  config.priority = priority;
  concord_comm *comm = nullptr;
  need(concord_comm_create_group(context, both, 2, &config, &comm));
  return comm;
}

/// Arithmetic that the compiler keeps.
float tile(int turns) {
  float x = 1.0f;
  for (int i = 0; i < turns; ++i) {
    x = x * 1.0000001f + 1e-7f;
#if defined(__aarch64__)
    asm volatile("" : "+w"(x));
#else
    asm volatile("" : "+x"(x));
#endif
  }
  return x;
}

int runRank(const char *path) {
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.thread_level = CONCORD_THREAD_MULTIPLE;
  concord_context *context = nullptr;
  need(concord_context_create(&config, &context));
  int32_t rank = 0, world = 0;
  need(concord_context_rank(context, &rank, &world));
  concord_comm *ctl = domain(context, "ctl", 9),
               *decode = domain(context, "decode", 5),
               *moves = domain(context, "move", -1);
  void *memory[2];
  need(concord_heap_alloc(context, kMove * 4, 0, &memory[0]));
  need(concord_heap_alloc(context, kMove * 8, 0, &memory[1]));
  std::memset(memory[0], 1, kMove * 4);
  std::memset(memory[1], 1, kMove * 8);
  void *small[2];
  need(concord_heap_alloc(context, 4096, 0, &small[0]));
  need(concord_heap_alloc(context, 4096, 0, &small[1]));
  std::memset(small[0], 0, 4096);

  // The work of a step, the same on both ranks.
  int turns = 1000;
  for (;;) {
    std::vector<double> times;
    for (int i = 0; i < 9; ++i) {
      double begin = now();
      for (int t = 0; t < kTiles; ++t)
        tile(turns);
      times.push_back(now() - begin);
    }
    double took = median(times);
    if (took >= kStepSeconds)
      break;
    turns = int(turns * std::max(1.02, kStepSeconds * 1.01 / took));
  }
  // Outside the plan, so before it is loaded.
  int32_t most = 0;
  concord_comm *everybody = nullptr;
  need(concord_comm_world(context, &everybody));
  need(concord_all_reduce(everybody, &turns, &most, 1, CONCORD_DTYPE_I32,
                          CONCORD_REDUCTION_MAX, nullptr));
  turns = most;
  auto bytes = plan::serialize(twoIssuers());
  need(concord_plan_load(context, bytes.data(), bytes.size()));

  std::atomic<bool> stop{false};
  std::thread placement([&] {
    concord_stream *stream = nullptr;
    need(concord_stream_create(context, -1, &stream));
    while (!stop.load()) {
      uint64_t round = 0, used = 0;
      int32_t status =
          concord_slot_wait(context, "placement", 0.05, &round, &used);
      if (status == CONCORD_ERROR_NOT_READY)
        continue;
      if (status != CONCORD_OK)
        return;
      need(concord_all_gather(moves, memory[0], memory[1], kMove,
                              CONCORD_DTYPE_F32, stream));
      need(concord_stream_synchronize(stream));
    }
  });
  std::vector<double> times[2], slots;
  std::mt19937 random(11);
  for (int phase = 0; phase < kPhases; ++phase) {
    bool with = phase % 2;
    for (int i = 0; i < kSteps; ++i) {
      // 1 to 5 % of the steps, and never the last ones.
      if (with && rank == 0 && random() % 100 < 3 && i < kSteps - 20)
        need(concord_slot_request(context, "placement", 0));
      double begin = now();
      uint64_t bits = 0;
      need(concord_round_decision(ctl, 0, &bits));
      for (int half = 0; half < 2; ++half) {
        for (int t = 0; t < kTiles / 2; ++t) {
          tile(turns);
          concord_poll(context);
        }
        need(concord_all_reduce(decode, small[0], small[1], 1024,
                                CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                nullptr));
      }
      double took = now() - begin;
      if (i < 10)
        continue; // the change of the phase
      times[with].push_back(took);
      if (bits)
        slots.push_back(took);
    }
  }
  stop.store(true);
  placement.join();
  if (rank == 0) {
    auto p99 = [](std::vector<double> v) {
      std::sort(v.begin(), v.end());
      return v.empty() ? 0.0 : v[std::min(v.size() - 1, v.size() * 99 / 100)];
    };
    std::FILE *file = std::fopen(path, "w");
    if (!file)
      return 2;
    std::fprintf(file, "%.9f %.9f %.9f %.9f %zu\n", median(times[0]),
                 p99(times[0]), p99(times[1]), p99(slots), slots.size());
    std::fclose(file);
  }
  need(concord_context_finalize(context));
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  if (argc == 3 && !std::strcmp(argv[1], "--rank"))
    return runRank(argv[2]);
  BenchRows rows(argc, argv);
  bench::gateCost(rows);
  char path[] = "/tmp/concord-gate-XXXXXX";
  int fd = ::mkstemp(path);
  if (fd < 0)
    return 2;
  ::close(fd);
  const char *arguments[] = {"/proc/self/exe", "--rank", path, nullptr};
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0)
    return 2;
  self[n] = 0;
  arguments[0] = self;
  concord_launch_config config{};
  config.struct_size = sizeof config;
  config.world = 2;
  config.argv_all = arguments;
  config.heap_bytes = uint64_t(256) << 20;
  config.bind_cores = 1;
  config.timeout_seconds = 180;
  concord_launch_result result{};
  result.struct_size = sizeof result;
  int32_t status = concord_launch_job(&config, &result);
  std::FILE *file = std::fopen(path, "r");
  double typical = 0, without = 0, with = 0, slot = 0;
  size_t count = 0;
  bool read = file && std::fscanf(file, "%lf %lf %lf %lf %zu", &typical,
                                  &without, &with, &slot, &count) == 5;
  if (file)
    std::fclose(file);
  ::unlink(path);
  if (status != CONCORD_OK || !read) {
    std::fprintf(stderr, "bench gate: %s\n", result.message);
    return 2;
  }
  rows.add("decode step, median", typical * 1e3, "ms", 0, true);
  rows.add("decode step, p99 without placement", without * 1e3, "ms", 0, true);
  rows.add("decode step, p99 with placement", with * 1e3, "ms", 0, true);
  rows.add("steps with a slot", double(count), "", 0, true);
  rows.add("steps with a slot, p99", slot * 1e3, "ms", 0, true);
  rows.add("p99 over all steps, with / without", with / without, "x", 1.2,
           with / without <= 1.2 && count > 0);
  return rows.finish();
}

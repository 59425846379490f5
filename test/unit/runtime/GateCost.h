//===- GateCost.h - What the gate costs per issue ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One rank, an 8-byte all_reduce: nothing is waited for, so that what a mode
// adds to an issue is all that differs. Modes take turns in short runs, and
// medians are compared.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_RUNTIME_GATECOST_H
#define CONCORD_TEST_UNIT_RUNTIME_GATECOST_H

#include "../order/BenchRows.h"
#include "concord/concord.h"
#include "concord/plan.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace concord::bench {

inline void need(int32_t status) {
  if (status == CONCORD_OK)
    return;
  std::fprintf(stderr, "bench: %s\n", concord_last_error());
  std::exit(2);
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// One rank in one mode; with a plan for "check".
class Loop {
public:
  Loop(int32_t mode, bool planned) {
    need(concord_job_create(1, uint64_t(16) << 20, &job));
    concord_context_config config{};
    config.struct_size = sizeof config;
    config.job = job;
    config.gate_mode = mode;
    need(concord_context_create(&config, &context));
    int32_t rank = 0;
    concord_comm_config named{};
    named.struct_size = sizeof named;
    named.name = "tp";
    need(concord_comm_create_group(context, &rank, 1, &named, &comm));
    if (!planned)
      return;
    plan::Plan p;
    p.domains = {{"tp", 0, {{0}}}};
    plan::Issue issue{};
    issue.kind = plan::Kind::AllReduce;
    issue.reduction = plan::Reduction::Sum;
    issue.dtype = DType::F32;
    issue.count = 2;
    plan::Node node{plan::Node::Type::Issue};
    p.programs.push_back({"main", "", {0}, {issue}, {plan::Node::Type::Seq}});
    p.programs[0].body.children = {node};
    auto bytes = plan::serialize(p);
    need(concord_plan_load(context, bytes.data(), bytes.size()));
  }
  ~Loop() {
    concord_context_finalize(context);
    concord_job_destroy(job);
  }
  Loop(const Loop &) = delete;

  /// Nanoseconds per call.
  double run(int calls) {
    float in[2] = {1, 2}, out[2];
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i)
      need(concord_all_reduce(comm, in, out, 2, CONCORD_DTYPE_F32,
                              CONCORD_REDUCTION_SUM, nullptr));
    return std::chrono::duration<double, std::nano>(
               std::chrono::steady_clock::now() - begin)
               .count() /
           calls;
  }

private:
  concord_job *job = nullptr;
  concord_context *context = nullptr;
  concord_comm *comm = nullptr;
};

/// Rows for the modes, against off.
inline void gateCost(BenchRows &rows) {
  Loop off(CONCORD_GATE_OFF, false), record(CONCORD_GATE_RECORD, false),
      check(CONCORD_GATE_CHECK, false), planned(CONCORD_GATE_CHECK, true),
      hold(CONCORD_GATE_HOLD, true);
  Loop *loops[] = {&off, &record, &check, &planned, &hold};
  std::vector<double> times[5];
  for (int round = 0; round < 41; ++round)
    for (int i = 0; i < 5; ++i)
      times[i].push_back(loops[i]->run(20000));
  double base = median(times[0]);
  rows.add("issue without the gate", base / 1000, "us", 0, true);
  const char *names[] = {"", "gate record, per issue", "gate check, per issue",
                         "gate check with a plan, per issue",
                         "gate hold with a plan, per issue"};
  for (int i = 1; i < 5; ++i) {
    double cost = (median(times[i]) - base) / 1000;
    rows.add(names[i], cost, "us", 0.2, cost < 0.2);
  }
}

} // namespace concord::bench

#endif // CONCORD_TEST_UNIT_RUNTIME_GATECOST_H

//===- SimulateTest.cpp - The discrete-event model of a job ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/simulate/Simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace concord::simulate {
namespace {

using plan::Kind;
using testing::DoubleNear;
using testing::HasSubstr;

/// Hosts of `ranks` on a fabric, joined by one NIC each; no fixed costs.
cost::Machine cluster(int hosts, int ranks, const char *inside = "") {
  cost::Machine machine;
  std::string error;
  std::string text =
      R"({"concord_topology": 1, "device": {"machine": "accelerator",
          "flag_round_us": 0}, "hosts": [{"count": )" +
      std::to_string(hosts) + R"(, "ranks": )" + std::to_string(ranks) +
      R"(}], "inside": {"kind": "link", "bytes_per_second": 1e11,
          "latency_us": 0)" +
      inside + R"(}, "network": [{"name": "net", "bytes_per_second": 1e10,
          "latency_us": 0}]})";
  if (hosts == 1)
    text.erase(text.find(", \"network\""), std::string::npos), text += "}";
  EXPECT_TRUE(cost::parseTopology(text, "test", machine, error)) << error;
  return machine;
}

struct Builder {
  Job job;
  Builder(uint32_t world) {
    job.world = world;
    Program program;
    program.name = "main";
    for (uint32_t rank = 0; rank < world; ++rank)
      program.ranks.push_back(static_cast<int32_t>(rank));
    program.names = {"op"};
    job.programs.push_back(program);
  }
  Program &program(size_t i = 0) { return job.programs[i]; }
  /// Groups of `size` ranks, `stride` apart.
  uint32_t domain(int32_t size, int32_t stride, int32_t priority = 0) {
    plan::Domain domain;
    domain.name = "d" + std::to_string(job.domains.size());
    domain.priority = priority;
    for (int32_t base = 0; base < static_cast<int32_t>(job.world);
         base += size * stride)
      for (int32_t first = base; first < base + stride; ++first) {
        auto &group = domain.groups.emplace_back();
        for (int32_t i = 0; i < size; ++i)
          group.push_back(first + i * stride);
      }
    job.domains.push_back(domain);
    return static_cast<uint32_t>(job.domains.size() - 1);
  }
  void compute(double seconds, size_t p = 0) {
    program(p).steps.push_back({Step::Type::Compute, 0, seconds});
  }
  uint32_t start(uint32_t domain, double bytes, uint32_t lane = 0,
                 Kind kind = Kind::AllReduce, size_t p = 0, bool sync = false,
                 std::vector<std::array<int32_t, 2>> pairs = {}) {
    auto site = static_cast<uint32_t>(program(p).issues.size());
    program(p).issues.push_back(
        {kind, domain, lane, sync, bytes, pairs, "op" + std::to_string(site)});
    program(p).steps.push_back({Step::Type::Issue, site, 0});
    return site;
  }
  void sync(uint32_t domain, double bytes) {
    start(domain, bytes, 0, Kind::AllReduce, 0, true);
  }
  void wait(uint32_t site, size_t p = 0) {
    program(p).steps.push_back({Step::Type::Wait, site, 0});
  }
  Result run(const cost::Machine &machine, bool spans = true) {
    Result result;
    std::string error;
    EXPECT_TRUE(simulate(job, machine, {spans}, result, error)) << error;
    return result;
  }
  std::string fails(const cost::Machine &machine) {
    Result result;
    std::string error;
    EXPECT_FALSE(simulate(job, machine, {}, result, error));
    return error;
  }
};

/// Seconds of an all_reduce of `bytes` over two ranks of a host.
double pair(const cost::Machine &machine, double bytes) {
  return cost::collective(machine, Kind::AllReduce, bytes,
                          cost::place(machine, 2))
      .seconds;
}

TEST(Simulate, ComputeThenCommunicate) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  b.compute(1);
  b.sync(d, 1e9);
  cost::Machine machine = cluster(1, 2);
  Result r = b.run(machine);
  double comm = pair(machine, 1e9);
  EXPECT_THAT(r.seconds, DoubleNear(1 + comm, 1e-9));
  EXPECT_THAT(r.domains[d].exposed, DoubleNear(comm, 1e-9));
  EXPECT_EQ(r.classes.size(), 1u);
  EXPECT_THAT(r.criticalCompute, DoubleNear(1, 1e-9));
  EXPECT_THAT(r.criticalComm, DoubleNear(comm, 1e-9));
}

TEST(Simulate, HiddenBehindCompute) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  uint32_t s = b.start(d, 1e9);
  b.compute(1);
  b.wait(s);
  Result r = b.run(cluster(1, 2));
  EXPECT_THAT(r.seconds, DoubleNear(1, 1e-9));
  EXPECT_THAT(r.domains[d].exposed, DoubleNear(0, 1e-9));
  EXPECT_GT(r.domains[d].busy, 0);
  EXPECT_EQ(r.criticalComm, 0);
}

TEST(Simulate, WhatMovesThroughMemoryIsNotHidden) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  uint32_t s = b.start(d, 1e9);
  b.compute(1);
  b.wait(s);
  cost::Machine machine = *cost::builtinMachine("cpu");
  Result r = b.run(machine);
  EXPECT_THAT(r.seconds, DoubleNear(1 + pair(machine, 1e9), 1e-4));
}

TEST(Simulate, OneLaneIsAQueueTwoShareTheLink) {
  cost::Machine machine = cluster(1, 2);
  double comm = pair(machine, 1e9);
  for (uint32_t lane : {0u, 1u}) {
    Builder b(2);
    uint32_t x = b.domain(2, 1), y = b.domain(2, 1);
    uint32_t first = b.start(x, 1e9, 0), second = b.start(y, 1e9, lane);
    b.wait(first);
    b.compute(1e-3);
    b.wait(second);
    Result r = b.run(machine);
    double whole = 2 * comm;
    EXPECT_NEAR(r.seconds, whole, 0.1 * whole) << lane;
    // In one lane the first has the link to itself.
    double firstEnd = 0;
    for (const Span &span : r.spans)
      if (span.kind == Span::Kind::Transfer && span.index == first)
        firstEnd = span.end;
    EXPECT_NEAR(firstEnd, lane ? whole : comm, 0.1 * comm) << lane;
  }
}

TEST(Simulate, HighPriorityGoesFirst) {
  cost::Machine machine = cluster(1, 2);
  double comm = pair(machine, 1e9);
  Builder b(2);
  uint32_t bulk = b.domain(2, 1), urgent = b.domain(2, 1, 1);
  uint32_t slow = b.start(bulk, 1e10, 0);
  b.compute(comm);
  uint32_t fast = b.start(urgent, 1e9, 1);
  b.wait(fast);
  b.wait(slow);
  Result r = b.run(machine);
  EXPECT_THAT(r.domains[urgent].exposed, DoubleNear(comm, 0.1 * comm));
}

TEST(Simulate, LateMembersHoldUpTheOthers) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  Program late = b.program();
  b.program().ranks = {0};
  b.sync(d, 8);
  late.name = "late";
  late.ranks = {1};
  b.job.programs.push_back(late);
  b.compute(2, 1);
  b.start(d, 8, 0, Kind::AllReduce, 1, true);
  Result r = b.run(cluster(1, 2));
  EXPECT_EQ(r.classes.size(), 2u);
  EXPECT_THAT(r.seconds, DoubleNear(2, 1e-3));
  double queued = 0;
  for (const Span &span : r.spans)
    if (span.kind == Span::Kind::Queue)
      queued += span.end - span.begin;
  EXPECT_THAT(queued, DoubleNear(2, 1e-6));
}

TEST(Simulate, RanksFoldToFewClasses) {
  Builder b(16384);
  uint32_t tp = b.domain(8, 1), dp = b.domain(2048, 8);
  for (int layer = 0; layer < 50; ++layer) {
    b.compute(1e-3);
    b.sync(tp, 1e7);
  }
  b.sync(dp, 1e9);
  Result r = b.run(cluster(2048, 8), false);
  EXPECT_EQ(r.classes.size(), 1u);
  EXPECT_EQ(r.classes[0].ranks.size(), 16384u);
  ASSERT_EQ(r.links.size(), 2u);
  EXPECT_EQ(r.links[1].level, "net");
  EXPECT_EQ(r.links[1].blocks, 2048);
  // Eight groups leave each host through its NIC.
  EXPECT_NEAR(r.links[1].busiest, 8 * 2 * 2047.0 / 2048 * 1e9, 1e6);
  EXPECT_GT(r.links[1].utilisation, 0.9);
  EXPECT_EQ(r.links[0].busiest, r.links[0].mean);
}

TEST(Simulate, AClassIsNotMadeOfUnlikeHosts) {
  cost::Machine machine;
  std::string error;
  ASSERT_TRUE(cost::parseTopology(R"({"concord_topology": 1,
    "device": {"machine": "accelerator"},
    "hosts": [{"ranks": 2}, {"ranks": 1}, {"ranks": 1}],
    "inside": {"kind": "link", "bytes_per_second": 1e11, "latency_us": 1},
    "network": [{"bytes_per_second": 1e9, "latency_us": 1}]})",
                                  "x", machine, error))
      << error;
  Builder b(4);
  uint32_t d = b.domain(2, 1);
  b.sync(d, 1e9);
  Result r = b.run(machine);
  // Ranks 0 and 1 share a host, 2 and 3 do not.
  EXPECT_EQ(r.classes.size(), 2u);
  EXPECT_GT(r.seconds, 0.9);
}

TEST(Simulate, MessagesOfAPipeline) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  Program second = b.program();
  second.name = "second";
  second.ranks = {1};
  b.program().ranks = {0};
  b.compute(1);
  b.start(d, 1e9, 0, Kind::Send, 0, true, {{0, 1}});
  b.job.programs.push_back(second);
  b.start(d, 1e9, 0, Kind::Recv, 1, true, {{0, 1}});
  b.compute(1, 1);
  Result r = b.run(cluster(1, 2));
  EXPECT_THAT(r.seconds, DoubleNear(2 + 1e9 / 1e11, 1e-3));
}

TEST(Simulate, GroupedMessagesBothWays) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  uint32_t out = b.start(d, 1e9, 0, Kind::Send, 0, false, {{0, 1}, {1, 0}});
  uint32_t in = b.start(d, 1e9, 0, Kind::Recv, 0, false, {{0, 1}, {1, 0}});
  b.wait(out);
  b.wait(in);
  Result r = b.run(cluster(1, 2));
  EXPECT_GT(r.seconds, 0);
  EXPECT_EQ(r.classes.size(), 2u);
}

TEST(Simulate, OversubscribedComputeIsATimedWait) {
  Builder b(4);
  uint32_t d = b.domain(4, 1);
  b.compute(1);
  b.sync(d, 64);
  cost::Machine machine;
  std::string error;
  ASSERT_TRUE(cost::parseTopology(R"({"concord_topology": 1,
    "hosts": [{"ranks": 4, "cores": 2}]})",
                                  "x", machine, error))
      << error;
  Result r = b.run(machine);
  EXPECT_TRUE(r.timedWait);
  EXPECT_THAT(r.seconds, DoubleNear(1, 1e-3));
}

TEST(Simulate, WhatDoesNotFinishIsNamed) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  Program silent;
  silent.name = "silent";
  silent.ranks = {1};
  b.program().ranks = {0};
  b.job.programs.push_back(silent);
  b.sync(d, 8);
  EXPECT_THAT(b.fails(cluster(1, 2)), HasSubstr("rank 0 waits for op0 on d0"));
  Builder large(8);
  large.compute(1);
  EXPECT_THAT(large.fails(cluster(1, 2)), HasSubstr("has 8 ranks"));
}

TEST(Simulate, TheCriticalPathIsTheWholeStep) {
  Builder b(2);
  uint32_t d = b.domain(2, 1);
  b.compute(1);
  uint32_t s = b.start(d, 1e11);
  b.compute(0.1);
  b.wait(s);
  b.compute(0.5);
  Result r = b.run(cluster(1, 2));
  EXPECT_NEAR(r.criticalCompute + r.criticalComm, r.seconds, 1e-6);
  EXPECT_NEAR(r.criticalCompute, 1.5, 1e-6);
  int critical = 0;
  for (const Span &span : r.spans)
    critical += span.critical;
  EXPECT_EQ(critical, 3);
}

} // namespace
} // namespace concord::simulate

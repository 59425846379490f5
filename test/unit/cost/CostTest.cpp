//===- CostTest.cpp - Formulas of the cost model --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/cost/Cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace concord::cost {
namespace {

using plan::Kind;
using testing::DoubleNear;

Machine links() {
  Machine machine;
  std::string error;
  EXPECT_TRUE(parseTopology(R"({
    "concord_topology": 1,
    "device": {"machine": "accelerator"},
    "hosts": [{"count": 4, "ranks": 8, "nics": 2}],
    "inside": {"kind": "link", "bytes_per_second": 1e11, "latency_us": 2},
    "network": [{"name": "leaf", "bytes_per_second": 1e10, "latency_us": 10}]
  })",
                            "links", machine, error))
      << error;
  return machine;
}

std::vector<std::vector<int32_t>> strided(int32_t groups, int32_t size,
                                          int32_t stride, int32_t step) {
  std::vector<std::vector<int32_t>> result;
  for (int32_t g = 0; g < groups; ++g) {
    auto &group = result.emplace_back();
    for (int32_t i = 0; i < size; ++i)
      group.push_back(g * step + i * stride);
  }
  return result;
}

TEST(Place, InsideAHost) {
  Machine machine = links();
  Placement placement = place(machine, strided(4, 8, 1, 8));
  EXPECT_EQ(placement.ranks, 8);
  EXPECT_EQ(placement.top(), 0);
  EXPECT_EQ(placement.groupsPerHost, 1);
  EXPECT_DOUBLE_EQ(placement.levels[0].share, 1e11);
}

TEST(Place, AcrossHostsGroupsShareTheNics) {
  Machine machine = links();
  // Rank i of every host: eight groups leave each host through its two NICs.
  Placement placement = place(machine, strided(8, 4, 8, 1));
  EXPECT_EQ(placement.ranks, 4);
  EXPECT_EQ(placement.top(), 1);
  EXPECT_EQ(placement.groupsPerHost, 8);
  EXPECT_EQ(placement.levels[1].members, 1);
  EXPECT_EQ(placement.levels[1].blocks, 4);
  EXPECT_DOUBLE_EQ(placement.levels[1].share, 2e10 / 8);
  // One group alone cannot use more NICs than it has members on a host.
  EXPECT_DOUBLE_EQ(place(machine, strided(1, 4, 8, 1)).levels[1].share, 1e10);
  // All ranks in one group use both.
  EXPECT_DOUBLE_EQ(place(machine, 32).levels[1].share, 2e10);
}

TEST(Collective, RingOfLargeAndTreeOfSmall) {
  Machine machine = links();
  Placement host = place(machine, 8);
  CollectiveCost large = collective(machine, Kind::AllReduce, 1e9, host);
  // 2 (p - 1) / p of the bytes over a port, and as much again as a rank adds.
  EXPECT_THAT(large.seconds,
              DoubleNear(2 * 7.0 / 8 * 1e9 / 1e11 + 1e9 / 8 / 1e12, 1e-3));
  CollectiveCost small = collective(machine, Kind::AllReduce, 8, host);
  EXPECT_THAT(small.seconds, DoubleNear(2 * 3 * 2e-6, 1e-7));
  CollectiveCost ring =
      collective(machine, Kind::AllReduce, 8, host, Algorithm::Ring);
  EXPECT_THAT(ring.seconds, DoubleNear(14 * 2e-6, 1e-7));
  EXPECT_LT(small.seconds, ring.seconds);
  EXPECT_DOUBLE_EQ(ring.levelBytes[0], 2 * 7.0 / 8 * 8);
}

TEST(Collective, TwoLevelsSendLessOverTheSlowOne) {
  Machine machine = links();
  Placement world = place(machine, 32);
  CollectiveCost flat =
      collective(machine, Kind::AllReduce, 1e8, world, Algorithm::Ring);
  CollectiveCost split =
      collective(machine, Kind::AllReduce, 1e8, world, Algorithm::Hierarchical);
  EXPECT_DOUBLE_EQ(flat.levelBytes[1], 2 * 31.0 / 32 * 1e8);
  EXPECT_DOUBLE_EQ(split.levelBytes[1], 2 * 3.0 / 4 * 1e8);
  EXPECT_LT(split.latency, flat.latency);
  // Small ones are bound by latency, where levels win clearly.
  EXPECT_EQ(collective(machine, Kind::AllReduce, 1e4, world).algorithm,
            Algorithm::Hierarchical);
}

TEST(Collective, AllToAllLeavesAHostWithWhatIsForOthers) {
  Machine machine = links();
  CollectiveCost cost =
      collective(machine, Kind::AllToAll, 32e6, place(machine, 32));
  EXPECT_DOUBLE_EQ(cost.levelBytes[1], 8 * 24.0 / 32 * 32e6);
}

TEST(Collective, EveryKindGrowsWithBytesAndRanks) {
  for (const char *name : {"cpu", "accelerator"}) {
    Machine machine = *builtinMachine(name);
    for (int kind = 1; kind <= 11; ++kind) {
      auto which = static_cast<Kind>(kind);
      double previous = 0;
      for (double bytes = 8; bytes < 1e9; bytes *= 4) {
        double seconds =
            collective(machine, which, bytes, place(machine, 4)).seconds;
        EXPECT_GE(seconds, previous) << name << " " << kind << " " << bytes;
        previous = seconds;
      }
      EXPECT_LE(collective(machine, which, 64, place(machine, 2)).seconds,
                collective(machine, which, 64, place(machine, 16)).seconds)
          << name << " " << kind;
    }
    EXPECT_GT(collective(machine, Kind::Barrier, 0, place(machine, 4)).seconds,
              0);
    EXPECT_DOUBLE_EQ(
        collective(machine, Kind::AllReduce, 1e6, place(machine, 1)).seconds,
        machine.issueSeconds);
  }
}

TEST(Collective, SharedMemoryKeepsTheCoreBusy) {
  Machine machine = *builtinMachine("cpu");
  CollectiveCost cost =
      collective(machine, Kind::AllReduce, 2 << 20, place(machine, 2));
  EXPECT_EQ(cost.algorithm, Algorithm::Direct);
  EXPECT_DOUBLE_EQ(cost.coreSeconds, cost.seconds);
  // 1 MiB of x and of y each that the other core has looked at.
  EXPECT_THAT(cost.seconds, DoubleNear(290e-6, 20e-6));
  auto seconds = [&](double bytes) {
    return collective(machine, Kind::AllReduce, bytes, place(machine, 2))
        .seconds;
  };
  // Where nothing is contended, it is the bytes that count.
  machine.contended = 0;
  EXPECT_THAT(seconds(2 << 20), DoubleNear(58e-6, 6e-6));
  // Beyond the cache both the core's and the node's bandwidth are lower.
  EXPECT_GT(seconds(64 << 20), 32 * seconds(2 << 20) * 1.2);
}

TEST(Collective, ContentionEndsWithTheCoresOwnCache) {
  Machine machine = *builtinMachine("cpu");
  double before = 0;
  for (double bytes = 1024; bytes < 1e9; bytes *= 2) {
    double seconds =
        collective(machine, Kind::AllReduce, bytes, place(machine, 2)).seconds;
    EXPECT_GT(seconds, before) << bytes;
    before = seconds;
  }
  Traffic traffic{0, 0, 1 << 20};
  EXPECT_DOUBLE_EQ(exchange(machine, traffic, 1 << 20, 1),
                   (1 << 20) / machine.contended);
  traffic.contended = 1 << 30;
  EXPECT_DOUBLE_EQ(exchange(machine, traffic, 1 << 20, 1),
                   (2 << 20) / machine.contended);
  EXPECT_EQ(exchange(machine, traffic, 1 << 30, 1), 0);
}

TEST(Collective, MeasuredCurvesWin) {
  Machine machine = *builtinMachine("cpu");
  machine.curves.push_back({Kind::AllReduce,
                            2,
                            "host",
                            {{1024, 1e-6, 0}, {UINT64_MAX, 2e-6, 1e-9}}});
  CollectiveCost cost =
      collective(machine, Kind::AllReduce, 1e6, place(machine, 2));
  EXPECT_EQ(cost.algorithm, Algorithm::Measured);
  EXPECT_THAT(cost.seconds, DoubleNear(2e-6 + 1e-3, 1e-12));
  EXPECT_DOUBLE_EQ(
      collective(machine, Kind::AllReduce, 8, place(machine, 2)).seconds, 1e-6);
  // Scaled by the formulas for other numbers of ranks, untouched for kinds
  // without a curve.
  EXPECT_GT(collective(machine, Kind::AllReduce, 8, place(machine, 8)).seconds,
            1e-6);
  EXPECT_NE(
      collective(machine, Kind::AllGather, 8, place(machine, 2)).algorithm,
      Algorithm::Measured);
}

/// A curve of a level was measured across it, wherever its ranks come first.
TEST(Collective, CurvesOfALevelAreScaledByGroupsThatCrossIt) {
  Machine machine;
  std::string error;
  ASSERT_TRUE(parseTopology(R"({
    "concord_topology": 1,
    "device": {"machine": "cpu"},
    "hosts": [{"count": 2, "ranks": 2, "cores": 1, "nics": 1}],
    "inside": {"kind": "memory"},
    "network": [{"name": "link", "bytes_per_second": 1e8, "latency_us": 50}]
  })",
                            "two hosts", machine, error))
      << error;
  machine.curves.push_back(
      {Kind::AllReduce, 2, "link", {{UINT64_MAX, 1e-4, 1e-8}}});
  // One rank of each host: as measured. Two such groups share the link.
  double one = collective(machine, Kind::AllReduce, 1e6,
                          place(machine, strided(1, 2, 2, 1)))
                   .seconds;
  EXPECT_DOUBLE_EQ(one, 1e-4 + 1e-2);
  double two = collective(machine, Kind::AllReduce, 1e6,
                          place(machine, strided(2, 2, 2, 1)))
                   .seconds;
  EXPECT_GT(two, 1.9 * one);
  EXPECT_LT(two, 2.1 * one);
}

TEST(Compute, TheLongerOfArithmeticAndMemory) {
  Machine machine = *builtinMachine("accelerator");
  EXPECT_DOUBLE_EQ(compute(machine, 1e14, 1), 1);
  EXPECT_DOUBLE_EQ(compute(machine, 1, 1e12), 1);
  EXPECT_DOUBLE_EQ(compute(machine, 1e14, 1, DType::F64), 2);
  EXPECT_DOUBLE_EQ(compute(machine, 1e14, 1, DType::BF16), 1); // as f32
}

TEST(WholeBytes, AsTheBenchmarkCounts) {
  plan::Issue issue;
  issue.dtype = DType::F32;
  issue.count = 100;
  issue.kind = Kind::AllReduce;
  EXPECT_EQ(wholeBytes(issue, 4), 400);
  for (Kind kind : {Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll,
                    Kind::Gather, Kind::Scatter}) {
    issue.kind = kind;
    EXPECT_EQ(wholeBytes(issue, 4), 1600);
  }
  issue.kind = Kind::AllToAll;
  issue.sendCounts = {1, 2, 3};
  EXPECT_EQ(wholeBytes(issue, 3), 24);
}

} // namespace
} // namespace concord::cost

//===- ReshardTest.cpp - The step table and its prices --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/sharding/Reshard.h"

#include <gtest/gtest.h>

namespace concord::sharding::test {
namespace {

const std::vector<int64_t> shape{4, 12, 8};

std::string plan(const Layout &from, const Layout &to, bool allToAll = true) {
  auto steps = planReshard(from, to, shape, 2, allToAll);
  if (!steps)
    return "impossible";
  std::string text;
  Layout at = from;
  for (const Step &step : *steps) {
    EXPECT_EQ(step.from, at);
    at = step.to;
    text += std::string(text.empty() ? "" : ", ") + toString(step.kind);
  }
  EXPECT_EQ(at, to);
  return text;
}

const Layout whole = Layout::replicated(), sum = Layout::partial();

TEST(Reshard, Table) {
  EXPECT_EQ(plan(whole, whole), "");
  EXPECT_EQ(plan(whole, Layout::split(0)), "slice");
  EXPECT_EQ(plan(Layout::split(1), whole), "all_gather");
  EXPECT_EQ(plan(sum, whole), "all_reduce");
  EXPECT_EQ(plan(sum, Layout::split(2)), "reduce_scatter");
  EXPECT_EQ(plan(sum, Layout::split(1, 3)), "reduce_scatter");
  EXPECT_EQ(plan(Layout::split(0), Layout::split(2)), "all_to_all");
  EXPECT_EQ(plan(Layout::split(0), Layout::split(2), false),
            "all_gather, slice");
  EXPECT_EQ(plan(Layout::split(1, 3), Layout::split(1)), "all_gather, slice");
  EXPECT_EQ(plan(Layout::split(1, 3), Layout::split(0)), "all_gather, slice");
}

TEST(Reshard, WhatCannotBe) {
  EXPECT_EQ(plan(whole, sum), "impossible");
  EXPECT_EQ(plan(Layout::split(0), sum), "impossible");
  EXPECT_EQ(plan(Layout::partial(Reduction::Max), sum), "impossible");
  EXPECT_EQ(plan(Layout::partial(Reduction::Max), whole), "all_reduce");
  EXPECT_EQ(plan(whole, Layout::split(1, 5)), "impossible");
  EXPECT_EQ(plan(whole, Layout::split(1, 4)), "impossible"); // 3 over 2 ranks
  EXPECT_EQ(plan(whole, Layout::split(3)), "impossible");
}

TEST(Reshard, CheapestOfWhatIsThere) {
  CostModel cost;
  auto steps = planReshard(std::vector{sum, Layout::split(0), whole},
                           Layout::split(1), shape, 4, 2, cost);
  ASSERT_TRUE(steps);
  EXPECT_EQ(*steps,
            (std::vector{Step{StepKind::Slice, whole, Layout::split(1)}}));
  steps =
      planReshard(std::vector{sum, Layout::split(0)}, whole, shape, 4, 2, cost);
  ASSERT_TRUE(steps);
  EXPECT_EQ(steps->front().kind, StepKind::AllGather);
  EXPECT_FALSE(planReshard({}, whole, shape, 4, 2, cost));
}

TEST(Reshard, BytesAndTime) {
  EXPECT_DOUBLE_EQ(linkBytes(StepKind::AllReduce, 800, 4), 1200);
  EXPECT_DOUBLE_EQ(linkBytes(StepKind::AllGather, 800, 4), 600);
  EXPECT_DOUBLE_EQ(linkBytes(StepKind::ReduceScatter, 800, 4), 600);
  EXPECT_DOUBLE_EQ(linkBytes(StepKind::AllToAll, 800, 4), 150);
  EXPECT_DOUBLE_EQ(linkBytes(StepKind::Slice, 800, 4), 0);
  CostModel cost;
  cost.latencySeconds = 1e-6;
  cost.linkBytesPerSecond = 1e9;
  cost.collectiveWeight = 10;
  EXPECT_EQ(stepPicoseconds(StepKind::AllReduce, 800, 4, cost), 2'200'000);
  EXPECT_EQ(stepObjective(StepKind::AllReduce, 800, 4, cost), 22'000'000);
  EXPECT_EQ(toPicoseconds(-1), 0);
  EXPECT_EQ(toPicoseconds(0.0 / 0.0), 0);
  EXPECT_EQ(toPicoseconds(1e300), 100'000'000'000'000);
}

TEST(Reshard, Shapes) {
  EXPECT_EQ(localShape(shape, Layout::split(1, 3), 2),
            (std::vector<int64_t>{4, 6, 8}));
  EXPECT_EQ(localShape(shape, sum, 2), shape);
  EXPECT_TRUE(canSplit(shape, {1, 3}, 4));
  EXPECT_FALSE(canSplit(shape, {1, 3}, 3));
  EXPECT_FALSE(canSplit(shape, {-1, 1}, 2));
  EXPECT_FALSE(canSplit(std::vector<int64_t>{0}, {0, 1}, 2));
  EXPECT_EQ(toString(Layout::split(1, 3)), "S1/3");
  EXPECT_EQ(toString(Layout::partial(Reduction::Max)), "P(max)");
}

} // namespace
} // namespace concord::sharding::test

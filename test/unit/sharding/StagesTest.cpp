//===- StagesTest.cpp - Cutting a graph into pipeline stages --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Small programs are cut in every way and judged by the words of the header;
// then the cases that a transformer brings.
//
//===----------------------------------------------------------------------===//

#include "concord/sharding/Stages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>

namespace concord::sharding::test {
namespace {

/// What one assignment of segments costs, counted from the definitions.
struct Cost {
  int64_t stored = 0, sent = 0;
  double seconds = 0;
};

Cost costOf(const StageProblem &problem, const std::vector<int32_t> &segment,
            int32_t segments, bool looped) {
  auto stageOf = [&](int32_t s) { return looped && s + 1 == segments ? 0 : s; };
  std::vector<double> seconds(size_t(problem.stages), 0);
  std::vector<int64_t> stored(size_t(problem.stages), 0);
  for (size_t op = 0; op < segment.size(); ++op)
    seconds[size_t(stageOf(segment[op]))] += problem.seconds[op];
  for (const auto &parameter : problem.parameters) {
    std::vector<bool> on(size_t(problem.stages), false);
    for (int32_t use : parameter.uses)
      on[size_t(stageOf(segment[size_t(use)]))] = true;
    for (size_t s = 0; s < on.size(); ++s)
      stored[s] += on[s] ? parameter.bytes : 0;
  }
  Cost cost;
  for (size_t op = 1; op < segment.size(); ++op) {
    if (segment[op] == segment[op - 1])
      continue;
    int64_t bytes = 0, count = 0;
    for (const auto &value : problem.values) {
      bool later = std::any_of(value.uses.begin(), value.uses.end(),
                               [&](int32_t use) { return use >= int32_t(op); });
      if (value.definition < int32_t(op) && later) {
        bytes += value.bytes;
        ++count;
      }
    }
    double time = double(count) * problem.cost.latencySeconds +
                  double(bytes) / problem.cost.linkBytesPerSecond;
    seconds[size_t(stageOf(segment[op]))] += time;
    seconds[size_t(stageOf(segment[op - 1]))] += time;
    cost.sent += bytes;
  }
  cost.stored = *std::max_element(stored.begin(), stored.end());
  cost.seconds = *std::max_element(seconds.begin(), seconds.end());
  return cost;
}

/// All ways to cut into `segments` contiguous parts.
std::vector<std::vector<int32_t>> allCuts(int32_t ops, int32_t segments) {
  std::vector<std::vector<int32_t>> all;
  std::vector<int32_t> segment(size_t(ops), 0);
  auto go = [&](auto &self, int32_t op) -> void {
    if (op == ops) {
      if (segment.back() == segments - 1)
        all.push_back(segment);
      return;
    }
    for (int32_t next :
         {segment[size_t(op) - 1], segment[size_t(op) - 1] + 1}) {
      segment[size_t(op)] = next;
      if (next < segments)
        self(self, op + 1);
    }
  };
  go(go, 1);
  return all;
}

TEST(Stages, EqualsExhaustiveSearch) {
  std::mt19937 random(7);
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  int loops = 0;
  for (int round = 0; round < 400; ++round) {
    StageProblem problem;
    problem.stages = draw(2, 3);
    int ops = draw(int(problem.stages) + 1, 8);
    for (int i = 0; i < ops; ++i) {
      problem.seconds.push_back(draw(1, 9) * 1e-5);
      StageProblem::Value value{draw(1, 40) * 1000, i, {}};
      for (int use = i + 1; use < ops; ++use)
        if (use == i + 1 || draw(0, 5) == 0)
          value.uses.push_back(use);
      problem.values.push_back(value);
    }
    int64_t total = 0;
    for (int p = draw(1, 6); p > 0; --p) {
      StageProblem::Parameter parameter{draw(1, 50) * 100, {}};
      int first = draw(0, ops - 1);
      parameter.uses.push_back(first);
      if (draw(0, 2) == 0 && first + 1 < ops)
        parameter.uses.push_back(draw(first + 1, ops - 1));
      total += parameter.bytes;
      problem.parameters.push_back(parameter);
    }
    problem.mostBytes = total / problem.stages * draw(9, 16) / 10;

    StageSolution got = cutStages(problem);
    bool looped = got.segments > problem.stages;
    loops += looped;
    ASSERT_EQ(got.segments, problem.stages + looped);
    Cost cost = costOf(problem, got.segment, got.segments, looped);
    EXPECT_EQ(cost.stored, got.parameterBytes);
    EXPECT_EQ(cost.sent, got.crossingBytes);
    EXPECT_NEAR(cost.seconds, got.seconds, 1e-12);

    auto least = [&](bool loop) {
      int64_t best = INT64_MAX;
      for (auto &segment : allCuts(ops, int32_t(problem.stages) + loop))
        best = std::min(
            best, costOf(problem, segment, int32_t(problem.stages) + loop, loop)
                      .stored);
      return best;
    };
    int64_t contiguous = least(false);
    bool wanted = contiguous > problem.mostBytes && ops > problem.stages &&
                  std::max(least(true), problem.mostBytes) < contiguous;
    EXPECT_EQ(looped, wanted);
    int64_t limit = std::max(problem.mostBytes, least(looped));
    EXPECT_LE(cost.stored, limit);
    double fastest = 1e9;
    std::vector<Cost> costs;
    for (auto &segment : allCuts(ops, got.segments)) {
      costs.push_back(costOf(problem, segment, got.segments, looped));
      if (costs.back().stored <= limit)
        fastest = std::min(fastest, costs.back().seconds);
    }
    EXPECT_LE(cost.seconds, fastest * 1.02 + 1e-12);
    for (const Cost &other : costs) {
      if (other.stored <= limit && other.seconds <= fastest * 1.02 - 1e-12) {
        EXPECT_LE(cost.sent, other.sent);
      }
    }
  }
  EXPECT_GT(loops, 5) << "the generator makes no program worth a loop";
}

/// Embedding, layers of two halves, and a head that uses the embedding again.
StageProblem transformer(int layers, bool tied) {
  StageProblem problem;
  int ops = 2 + 2 * layers;
  for (int i = 0; i < ops; ++i) {
    problem.seconds.push_back(i == 0 ? 1e-6 : i + 1 == ops ? 4e-3 : 1e-3);
    StageProblem::Value value{4096, i, {}};
    if (i + 1 < ops)
      value.uses = {i + 1};
    problem.values.push_back(value);
  }
  StageProblem::Parameter table{40'000'000, {0}};
  if (tied)
    table.uses.push_back(ops - 1);
  else
    problem.parameters.push_back({40'000'000, {ops - 1}});
  problem.parameters.push_back(table);
  for (int i = 1; i + 1 < ops; ++i)
    problem.parameters.push_back({3'500'000, {i}});
  return problem;
}

TEST(Stages, TiedEmbeddingsGoToOneStage) {
  StageProblem problem = transformer(12, true);
  int64_t total = int64_t(40'000'000) + 24 * 3'500'000;
  problem.mostBytes = total / 2 * 108 / 100;
  StageSolution solution = cutStages(problem);
  EXPECT_EQ(solution.segments, 3);
  EXPECT_EQ(solution.stage, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_LE(solution.parameterBytes, problem.mostBytes);
}

TEST(Stages, SeparateEmbeddingsNeedNoLoop) {
  StageProblem problem = transformer(12, false);
  problem.mostBytes = int64_t(80'000'000 + 24 * 3'500'000) / 2 * 108 / 100;
  StageSolution solution = cutStages(problem);
  EXPECT_EQ(solution.segments, 2);
  EXPECT_LE(solution.parameterBytes, problem.mostBytes);
}

TEST(Stages, WishesOfTheModelAreKept) {
  StageProblem problem = transformer(3, false);
  problem.fixed = {0, -1, 0, 1, -1, -1, -1, 1};
  StageSolution solution = cutStages(problem);
  EXPECT_EQ(solution.segment[2], 0);
  EXPECT_EQ(solution.segment[3], 1);
  problem.fixed = {1, -1, -1, -1, -1, -1, -1, 0};
  EXPECT_THROW(cutStages(problem), std::invalid_argument);
}

TEST(Stages, FewerOperationsThanStages) {
  StageProblem problem;
  problem.stages = 3;
  problem.seconds = {1, 1};
  EXPECT_THROW(cutStages(problem), std::invalid_argument);
}

TEST(Stages, LargeProgramsTakeLittleTime) {
  StageProblem problem = transformer(2500, true);
  problem.stages = 4;
  problem.mostBytes = 1;
  StageSolution solution = cutStages(problem);
  EXPECT_EQ(solution.segment.size(), 5002u);
}

} // namespace
} // namespace concord::sharding::test

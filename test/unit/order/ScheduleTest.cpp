//===- ScheduleTest.cpp - The choice among legal orders -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Against the best of all orders, found here by going through every one that
// the dependences allow, with a predictor of its own.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace concord::order::test {
namespace {

using Tasks = std::vector<ScheduleTask>;

/// The least makespan over all orders. A state is a set of placed collectives
/// with the times that still matter: when each task can begin as far as it is
/// known, when each block is free, and the last end. Of two states of one set,
/// one that is later nowhere is enough.
class Exhaustive {
public:
  explicit Exhaustive(const Tasks &tasks) : tasks(tasks) {
    for (uint32_t t = 0; t < tasks.size(); ++t)
      if (tasks[t].blocks)
        issues.push_back(t);
    followers.resize(tasks.size());
    for (uint32_t t = 0; t < tasks.size(); ++t)
      for (uint32_t before : tasks[t].after)
        followers[before].push_back(t);
  }

  int64_t run() {
    std::map<uint32_t, std::vector<State>> states;
    State first(tasks.size() + kBlocks + 1, 0);
    std::vector<uint32_t> waiting;
    for (const ScheduleTask &task : tasks)
      waiting.push_back(uint32_t(task.after.size()));
    for (uint32_t t = 0; t < tasks.size(); ++t)
      if (tasks[t].after.empty() && !tasks[t].blocks)
        settle(first, waiting, t);
    states[0] = {first};
    for (size_t placed = 0; placed < issues.size(); ++placed) {
      std::map<uint32_t, std::vector<State>> next;
      for (auto &[set, frontier] : states)
        for (size_t i = 0; i < issues.size(); ++i) {
          uint32_t t = issues[i];
          if (set >> i & 1 || waitingFor(set)[t] > 0)
            continue;
          for (State state : frontier) {
            std::vector<uint32_t> open = waitingFor(set);
            settle(state, open, t);
            std::vector<State> &list = next[set | 1u << i];
            auto covers = [](const State &a, const State &b) {
              return std::equal(a.begin(), a.end(), b.begin(),
                                [](int64_t x, int64_t y) { return x <= y; });
            };
            if (std::any_of(list.begin(), list.end(),
                            [&](auto &have) { return covers(have, state); }))
              continue;
            std::erase_if(list,
                          [&](auto &have) { return covers(state, have); });
            list.push_back(state);
          }
        }
      states = std::move(next);
    }
    int64_t best = INT64_MAX;
    for (auto &[set, frontier] : states)
      for (const State &state : frontier)
        best = std::min(best, state.back());
    return best;
  }

private:
  static constexpr size_t kBlocks = 4;
  using State = std::vector<int64_t>;

  /// Unfinished predecessors of each task once `set` is placed.
  std::vector<uint32_t> waitingFor(uint32_t set) {
    auto [at, isNew] = known.try_emplace(set);
    if (!isNew)
      return at->second;
    std::vector<bool> done(tasks.size());
    std::vector<uint32_t> waiting(tasks.size());
    for (uint32_t t = 0; t < tasks.size(); ++t) {
      for (uint32_t before : tasks[t].after)
        waiting[t] += !done[before];
      auto issue = std::find(issues.begin(), issues.end(), t);
      done[t] = issue == issues.end() ? waiting[t] == 0
                                      : set >> (issue - issues.begin()) & 1;
    }
    return at->second = waiting;
  }
  /// Ends `task`, and every computation that could begin with that.
  void settle(State &state, std::vector<uint32_t> &waiting, uint32_t task) {
    int64_t start = state[task];
    for (size_t b = 0; b < kBlocks; ++b)
      if (tasks[task].blocks >> b & 1)
        start = std::max(start, state[tasks.size() + b]);
    int64_t end = start + tasks[task].picoseconds;
    for (size_t b = 0; b < kBlocks; ++b)
      if (tasks[task].blocks >> b & 1)
        state[tasks.size() + b] = end;
    state[task] = 0;
    state.back() = std::max(state.back(), end);
    for (uint32_t next : followers[task]) {
      state[next] = std::max(state[next], end);
      if (--waiting[next] == 0 && !tasks[next].blocks)
        settle(state, waiting, next);
    }
  }

  const Tasks &tasks;
  std::vector<uint32_t> issues;
  std::vector<std::vector<uint32_t>> followers;
  std::map<uint32_t, std::vector<uint32_t>> known;
};

/// Up to `most` collectives of one to three blocks between computations.
Tasks randomTasks(std::mt19937 &random, int most) {
  auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Tasks tasks;
  int collectives = draw(2, most), blocks = draw(1, 3), made = 0;
  int density = draw(1, 4);
  while (made < collectives) {
    ScheduleTask task;
    bool communicates = draw(0, 1);
    task.picoseconds = draw(1, 100) * 1000;
    if (communicates) {
      ++made;
      task.communicates = true;
      task.priority = draw(0, 2);
      // Some are bridges, some lie in two blocks.
      if (draw(0, 7))
        task.blocks = 1u << draw(0, blocks - 1);
      if (task.blocks && !draw(0, 7))
        task.blocks |= 1u << draw(0, blocks - 1);
    }
    for (uint32_t before = 0; before < tasks.size(); ++before)
      if (draw(0, int(tasks.size())) < density)
        task.after.push_back(before);
    tasks.push_back(std::move(task));
  }
  return tasks;
}

TEST(Schedule, WithinFivePercentOfTheOptimum) {
  std::mt19937 random(12);
  int proven = 0, better = 0;
  for (int round = 0; round < 1000; ++round) {
    Tasks tasks = randomTasks(random, 12);
    Schedule schedule = chooseOrder(tasks);
    int64_t optimum = Exhaustive(tasks).run();
    ASSERT_GE(schedule.picoseconds, optimum) << "round " << round;
    EXPECT_LE(double(schedule.picoseconds), 1.05 * double(optimum))
        << "round " << round;
    EXPECT_LE(schedule.picoseconds, schedule.sequenced);
    EXPECT_LE(schedule.picoseconds, schedule.programOrder);
    EXPECT_GE(schedule.picoseconds, schedule.unordered);
    EXPECT_EQ(predict(tasks, schedule.order), schedule.picoseconds);
    if (schedule.optimal) {
      EXPECT_EQ(schedule.picoseconds, optimum) << "round " << round;
    }
    proven += schedule.optimal;
    better += schedule.picoseconds < schedule.programOrder;
  }
  EXPECT_GT(better, 200) << "the generator leaves nothing to choose";
  EXPECT_GT(proven, 900);
}

/// Without the search that proves: rules and exchanges alone, as in large
/// programs.
TEST(Schedule, RulesAloneAreNeverWorseThanProgramOrder) {
  std::mt19937 random(13);
  double sum = 0;
  for (int round = 0; round < 300; ++round) {
    Tasks tasks = randomTasks(random, 12);
    ScheduleOptions options;
    options.effort = 4000;
    Schedule schedule = chooseOrder(tasks, options);
    EXPECT_LE(schedule.picoseconds, schedule.programOrder);
    sum +=
        double(schedule.picoseconds) / double(chooseOrder(tasks).picoseconds);
  }
  EXPECT_LE(sum / 300, 1.02);
}

TEST(Schedule, LongestPathFirst) {
  // Two collectives are ready; a long computation waits for the second.
  Tasks tasks(3);
  tasks[0] = {10'000, {}, 1, true, 0};
  tasks[1] = {10'000, {}, 1, true, 0};
  tasks[2] = {50'000, {1}, 0, false, 0};
  Schedule schedule = chooseOrder(tasks);
  EXPECT_EQ(schedule.order, (std::vector<uint32_t>{1, 0}));
  EXPECT_EQ(schedule.picoseconds, 60'000);
  EXPECT_EQ(schedule.programOrder, 70'000);
}

TEST(Schedule, PriorityDecidesAmongEquals) {
  Tasks tasks(2);
  tasks[0] = {10'000, {}, 1, true, 0};
  tasks[1] = {10'000, {}, 1, true, 5};
  EXPECT_EQ(chooseOrder(tasks).order, (std::vector<uint32_t>{1, 0}));
  tasks[0].priority = 9;
  EXPECT_EQ(chooseOrder(tasks).order, (std::vector<uint32_t>{0, 1}));
}

TEST(Schedule, BridgesAreNotOrdered) {
  Tasks tasks(3);
  for (ScheduleTask &task : tasks)
    task = {10'000, {}, 0, true, 0};
  Schedule schedule = chooseOrder(tasks);
  EXPECT_TRUE(schedule.order.empty());
  EXPECT_EQ(schedule.picoseconds, 10'000);
  EXPECT_EQ(schedule.sequenced, 30'000);
}

TEST(Schedule, ContradictionIsNever) {
  Tasks tasks(2);
  tasks[0] = {1000, {}, 1, true, 0};
  tasks[1] = {1000, {0}, 1, true, 0};
  EXPECT_EQ(predict(tasks, {1, 0}), INT64_MAX);
}

TEST(Schedule, LargeProgramsEnd) {
  std::mt19937 random(5);
  Tasks tasks;
  for (uint32_t t = 0; t < 20'000; ++t) {
    ScheduleTask task;
    task.picoseconds = 1000 + random() % 9000;
    task.communicates = t % 10 == 0;
    task.blocks = t % 10 == 0 ? 1 + (random() % 3) : 0;
    for (int k = 0; t && k < 2; ++k)
      task.after.push_back(t - 1 - uint32_t(random() % std::min(t, 50u)));
    std::sort(task.after.begin(), task.after.end());
    task.after.erase(std::unique(task.after.begin(), task.after.end()),
                     task.after.end());
    tasks.push_back(std::move(task));
  }
  Schedule schedule = chooseOrder(tasks);
  EXPECT_LE(schedule.picoseconds, schedule.programOrder);
}

} // namespace
} // namespace concord::order::test

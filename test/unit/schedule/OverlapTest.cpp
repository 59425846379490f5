//===- OverlapTest.cpp - List scheduling under a memory limit -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/schedule/Overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace concord::schedule {
namespace {

using Kind = Node::Kind;

struct Builder {
  Problem problem;
  uint32_t add(Kind kind, double seconds, std::vector<uint32_t> needs = {},
               double bytes = 1, int32_t priority = 0) {
    Node node;
    node.kind = kind;
    node.seconds = seconds;
    node.priority = priority;
    node.needs = needs;
    for (uint32_t before : needs)
      node.reads.insert(node.reads.end(), problem.nodes[before].writes.begin(),
                        problem.nodes[before].writes.end());
    node.writes = {static_cast<uint32_t>(problem.bytes.size())};
    problem.bytes.push_back(bytes);
    problem.nodes.push_back(node);
    return static_cast<uint32_t>(problem.nodes.size() - 1);
  }
  uint32_t compute(double seconds, std::vector<uint32_t> needs = {},
                   double bytes = 1) {
    return add(Kind::Compute, seconds, std::move(needs), bytes);
  }
  uint32_t comm(double seconds, std::vector<uint32_t> needs = {},
                double bytes = 1, int32_t priority = 0) {
    return add(Kind::Collective, seconds, std::move(needs), bytes, priority);
  }
  Schedule run() {
    Schedule schedule = overlap(problem);
    EXPECT_EQ(verify(problem, schedule), "");
    return schedule;
  }
};

size_t position(const Schedule &schedule, Action::Kind kind, uint32_t node) {
  auto at = std::find(schedule.actions.begin(), schedule.actions.end(),
                      Action{kind, node});
  return static_cast<size_t>(at - schedule.actions.begin());
}

TEST(Overlap, FillsTheGapBeforeAConsumer) {
  Builder b;
  uint32_t x = b.compute(1);
  uint32_t c = b.comm(1, {x});
  uint32_t y = b.compute(1, {c});
  uint32_t independent = b.compute(1);
  b.compute(1, {y, independent});
  b.problem.growth = 2;
  Schedule s = b.run();
  EXPECT_DOUBLE_EQ(s.secondsBefore, 5);
  EXPECT_DOUBLE_EQ(s.secondsAfter, 4);
  EXPECT_LT(position(s, Action::Kind::Run, independent),
            position(s, Action::Kind::Wait, c));
  EXPECT_EQ(s.decisions[0].reason, Reason::Hidden);
}

TEST(Overlap, WeightsAreFetchedAheadButNotTooEarly) {
  Builder b;
  uint32_t x = b.compute(1);
  for (int layer = 0; layer < 8; ++layer) {
    uint32_t w = b.comm(0.5, {}, 10);
    x = b.compute(1, {x, w});
  }
  b.problem.growth = 2.5;
  Schedule s = b.run();
  EXPECT_NEAR(s.secondsAfter, 9, 0.51);
  EXPECT_LE(s.bytesAfter, 2.5 * s.bytesBefore);
  // The last layer's does not start at the very beginning.
  EXPECT_GT(position(s, Action::Kind::Start, 15), 8u);
  EXPECT_TRUE(s.decisions.back().earlier);
}

TEST(Overlap, TheLimitIsHard) {
  Builder b;
  uint32_t x = b.compute(1);
  for (int layer = 0; layer < 8; ++layer) {
    uint32_t w = b.comm(0.5, {}, 10);
    x = b.compute(1, {x, w});
  }
  // What the given order needs: nothing can be brought forward.
  b.problem.limit = b.run().bytesBefore;
  Schedule s = b.run();
  EXPECT_TRUE(s.possible);
  EXPECT_LE(s.bytesAfter, b.problem.limit);
  EXPECT_EQ(s.decisions.back().reason, Reason::MemoryLimit);
  b.problem.limit -= 0.5;
  s = overlap(b.problem);
  EXPECT_FALSE(s.possible);
  EXPECT_TRUE(s.actions.empty());
}

TEST(Overlap, GradientsAreReducedBehindTheBackwardPass) {
  Builder b;
  uint32_t x = b.compute(1);
  std::vector<uint32_t> reduced;
  for (int layer = 0; layer < 8; ++layer) {
    uint32_t g = b.compute(0.5, {x}, 4);
    reduced.push_back(b.comm(0.4, {g}, 4));
    x = b.compute(0.5, {x});
  }
  for (uint32_t r : reduced)
    b.compute(0.01, {r}, 0);
  Schedule s = b.run();
  EXPECT_NEAR(s.secondsAfter, 1 + 8 + 0.08, 0.45);
  EXPECT_LE(s.bytesAfter, s.limit);
}

TEST(Overlap, AChainHasNothingToHideBehind) {
  Builder b;
  uint32_t x = b.compute(1);
  for (int i = 0; i < 4; ++i)
    x = b.compute(1, {b.comm(1, {x})});
  Schedule s = b.run();
  EXPECT_DOUBLE_EQ(s.secondsAfter, s.secondsBefore);
  for (const Decision &decision : s.decisions)
    EXPECT_EQ(decision.reason, Reason::NoGain);
  // The given order is kept.
  EXPECT_EQ(s.actions[1], (Action{Action::Kind::Start, 1}));
  EXPECT_EQ(s.actions[2], (Action{Action::Kind::Wait, 1}));
}

TEST(Overlap, WhatTheCoresMoveIsNotStarted) {
  Builder b;
  uint32_t x = b.compute(1);
  uint32_t c = b.comm(1, {x});
  b.problem.nodes[c].onCore = true;
  b.compute(1, {c});
  b.compute(1);
  Schedule s = b.run();
  EXPECT_EQ(s.decisions[0].reason, Reason::MovedByCore);
  EXPECT_DOUBLE_EQ(s.decisions[0].hidden, 0);
}

TEST(Overlap, BarriersHold) {
  Builder b;
  uint32_t x = b.compute(1);
  uint32_t c = b.comm(1, {x});
  b.add(Kind::Barrier, 0.1);
  uint32_t d = b.comm(1);
  b.compute(2, {c, d});
  b.compute(2);
  b.run();
}

TEST(Overlap, LowPriorityStaysOutOfTheWay) {
  Builder b;
  uint32_t g = b.compute(1);
  uint32_t bulk = b.comm(4, {g}, 1, 0);
  uint32_t x = b.compute(1, {g});
  uint32_t urgent = b.comm(0.5, {x}, 1, 1);
  uint32_t y = b.compute(10, {urgent});
  b.compute(0.1, {bulk, y});
  b.problem.growth = 3;
  Schedule s = b.run();
  EXPECT_LT(position(s, Action::Kind::Start, urgent),
            position(s, Action::Kind::Start, bulk));
  EXPECT_NEAR(s.secondsAfter, 1 + 1 + 0.5 + 10 + 0.1, 0.2);
}

TEST(Overlap, IssueOrderIsKeptOnRequest) {
  Builder b;
  b.problem.keepIssueOrder = true;
  uint32_t g = b.compute(1);
  b.comm(4, {g}, 1, 0);
  uint32_t x = b.compute(1, {g});
  uint32_t urgent = b.comm(0.5, {x}, 1, 1);
  b.compute(10, {urgent});
  b.run();
}

/// Two chains that need each other's time (two micro-batches, one behind the
/// other): the second one's collectives have to be started for it.
TEST(Overlap, IndependentChainsTakeTurns) {
  Builder b;
  for (int chain = 0; chain < 2; ++chain) {
    uint32_t x = b.compute(0.1);
    for (int layer = 0; layer < 10; ++layer)
      x = b.comm(0.9, {b.compute(1, {x})});
    b.compute(0.1, {x});
  }
  b.problem.limit = 100;
  Schedule s = b.run();
  EXPECT_NEAR(s.secondsBefore, 38.4, 1e-9);
  // All but the first computation and the last collective.
  EXPECT_LT(s.secondsAfter, 22.5);
  // Without room for the second chain's values nothing changes.
  b.problem.limit = s.bytesBefore;
  EXPECT_LE(b.run().bytesAfter, s.bytesBefore);
}

/// Collectives are much shorter than the computations between them, a fast
/// link: what fills a gap is longer than it, and hides what comes next.
TEST(Overlap, ChainsOfLongComputationsTakeTurns) {
  for (double gap : {0.3, 0.1, 0.05}) {
    Builder b;
    for (int chain = 0; chain < 2; ++chain) {
      uint32_t x = b.compute(0.01);
      for (int layer = 0; layer < 10; ++layer)
        x = b.comm(gap, {b.compute(1, {x})});
      b.compute(0.01, {x});
    }
    b.problem.limit = 100;
    Schedule s = b.run();
    EXPECT_NEAR(s.secondsBefore - s.computeSeconds, 20 * gap, 1e-9);
    EXPECT_LT(s.secondsAfter - s.computeSeconds, 3 * gap);
  }
}

/// A collective between two computations of the other chain: a little work
/// comes forward, so that the link is not idle while the host is busy.
TEST(Overlap, ShortWorkGoesAheadForTheLink) {
  Builder b;
  for (int chain = 0; chain < 2; ++chain) {
    uint32_t x = b.compute(0.1);
    for (int layer = 0; layer < 10; ++layer) {
      for (int i = 0; i < 3; ++i)
        x = b.compute(0.5, {x});
      // As reduce_scatter, norm, all_gather.
      x = b.comm(0.4, {x});
      x = b.compute(0.01, {x});
      x = b.comm(0.4, {x});
    }
    b.compute(0.1, {x});
  }
  b.problem.limit = 100;
  Schedule s = b.run();
  EXPECT_LT(s.secondsAfter, 1.15 * s.computeSeconds);
}

/// Two micro-batches of a transformer over a link that is the bottleneck: what
/// is found comes close to the link's time, and stays close to computation's
/// where that takes twice as long as predicted.
TEST(Overlap, MicroBatchesOnASlowLink) {
  for (double link : {0.8, 1.0, 1.3, 2.3}) {
    Builder b;
    double onLink = 0;
    for (int chain = 0; chain < 2; ++chain) {
      uint32_t x = b.compute(0.1);
      for (int layer = 0; layer < 12; ++layer)
        for (auto [first, second] :
             {std::pair(4.2, 1.7), std::pair(4.9, 4.6)}) {
          x = b.compute(second, {b.compute(first, {x})});
          x = b.comm(3.9 * link, {x});
          x = b.compute(0.1, {x});
          x = b.comm(4.9 * link, {x});
          onLink += 8.8 * link;
        }
    }
    b.problem.limit = 100;
    Schedule s = b.run();
    EXPECT_LT(s.secondsAfter, 1.2 * std::max(onLink, s.computeSeconds)) << link;
    Problem slower = b.problem;
    for (Node &node : slower.nodes)
      if (node.kind == Kind::Compute)
        node.seconds *= 2;
    EXPECT_LT(outcome(slower, s.actions).seconds,
              1.2 * std::max(onLink, 2 * s.computeSeconds))
        << link;
  }
}

/// Nothing is ready, but something will be before the one that is waited for.
TEST(Overlap, TakesWhatArrivesFirst) {
  Builder b;
  uint32_t x = b.compute(1);
  uint32_t late = b.comm(1, {x});
  uint32_t y = b.compute(1, {x});
  uint32_t soon = b.comm(0.5, {y});
  b.problem.nodes[soon].lane = 1;
  b.problem.nodes[late].seconds = 4;
  b.compute(0.5, {late});
  uint32_t other = b.compute(2, {soon});
  b.problem.limit = 100;
  Schedule s = b.run();
  EXPECT_NEAR(s.secondsAfter, 5.5, 1e-9);
  EXPECT_LT(position(s, Action::Kind::Run, other),
            position(s, Action::Kind::Wait, late));
}

/// Random graphs: every schedule is checked by verify(), which knows nothing of
/// how it was made, under limits from none to what the given order needs.
TEST(Overlap, RandomGraphs) {
  std::mt19937 random(7);
  auto upTo = [&](int n) {
    return std::uniform_int_distribution<int>(0, n)(random);
  };
  int gains = 0, whole = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Builder b;
    int count = 2 + upTo(40);
    for (int i = 0; i < count; ++i) {
      std::vector<uint32_t> needs;
      for (int k = upTo(3); k > 0 && i; --k)
        needs.push_back(static_cast<uint32_t>(
            upTo(4) ? std::max(0, i - 1 - upTo(6)) : upTo(i - 1)));
      std::sort(needs.begin(), needs.end());
      needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
      int what = upTo(9);
      Kind kind = what < 4    ? Kind::Collective
                  : what == 9 ? Kind::Barrier
                              : Kind::Compute;
      if (kind == Kind::Barrier && upTo(3))
        kind = Kind::Compute;
      b.add(kind, upTo(10) / 4.0, needs, upTo(20), upTo(2));
      if (kind == Kind::Collective) {
        b.problem.nodes.back().onCore = upTo(9) == 0;
        b.problem.nodes.back().lane = static_cast<uint32_t>(upTo(4) == 0);
      }
    }
    b.problem.outlives.resize(b.problem.bytes.size());
    for (size_t i = 0; i < b.problem.outlives.size(); ++i)
      b.problem.outlives[i] = upTo(8) == 0;
    b.problem.keepIssueOrder = upTo(3) == 0;
    b.problem.growth = 1 + upTo(3) / 2.0;
    Schedule s = b.run();
    ASSERT_TRUE(s.possible) << trial;
    ASSERT_LE(s.secondsAfter, s.secondsBefore + 1e-9) << trial;
    gains += s.secondsAfter < s.secondsBefore - 1e-9;
    // What is said of a schedule is what it takes.
    auto judged = [&](const Schedule &schedule) {
      Outcome outcome = schedule::outcome(b.problem, schedule.actions);
      EXPECT_NEAR(outcome.seconds, schedule.secondsAfter, 1e-9) << trial;
      EXPECT_NEAR(outcome.bytes, schedule.bytesAfter, 1e-6) << trial;
      for (const Decision &decision : schedule.decisions)
        EXPECT_NEAR(std::min(outcome.hidden[decision.node], decision.seconds),
                    decision.hidden, 1e-9)
            << trial;
    };
    judged(s);
    b.problem.limit = s.bytesBefore;
    s = b.run();
    ASSERT_TRUE(s.possible) << trial;
    ASSERT_LE(s.bytesAfter, b.problem.limit * (1 + 1e-9)) << trial;
    judged(s);
    if (trial % 4 == 0) {
      b.problem.startSeconds = 0.3;
      s = b.run();
      judged(s);
      EXPECT_LE(s.secondsAfter, s.secondsBefore + 1e-9) << trial;
      for (const Decision &decision : s.decisions)
        whole += decision.reason == Reason::StartCost;
    }
    if (HasFailure())
      FAIL() << "trial " << trial;
  }
  EXPECT_GT(gains, 1000);
  EXPECT_GT(whole, 20);
}

/// A start and a wait are not for nothing.
TEST(Overlap, WhatHidesLessThanAStartCostsStaysWhole) {
  Builder b;
  uint32_t x = b.compute(1);
  uint32_t small = b.comm(1, {x});
  uint32_t tiny = b.compute(0.001);
  uint32_t y = b.compute(1, {small});
  uint32_t large = b.comm(1, {y});
  uint32_t independent = b.compute(0.5, {y});
  b.compute(1, {large, independent, tiny});
  b.problem.growth = 2;
  Schedule s = b.run();
  double free = s.secondsAfter;
  auto starts = [](const Schedule &schedule) {
    size_t count = 0;
    for (size_t i = 0; i + 1 < schedule.actions.size(); ++i)
      count += schedule.actions[i].kind == Action::Kind::Start &&
               schedule.actions[i + 1].kind != Action::Kind::Wait;
    return count;
  };
  EXPECT_EQ(starts(s), 2u);
  b.problem.startSeconds = 0.01;
  s = b.run();
  EXPECT_EQ(starts(s), 1u);
  EXPECT_LE(s.secondsAfter, free + 0.01);
  size_t whole = 0;
  for (const Decision &decision : s.decisions)
    if (decision.reason == Reason::StartCost) {
      ++whole;
      EXPECT_EQ(decision.hidden, 0);
    }
  EXPECT_EQ(whole, 1u);
  // Everything is started for nothing: the given order.
  b.problem.startSeconds = 2;
  s = b.run();
  EXPECT_EQ(starts(s), 0u);
}

/// The limit is one of the arena: holes between buffers count.
TEST(Overlap, TheArenaKeepsTheLimit) {
  std::mt19937 random(17);
  auto upTo = [&](int n) {
    return std::uniform_int_distribution<int>(0, n)(random);
  };
  int gains = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Builder b;
    int count = 10 + upTo(40);
    for (int i = 0; i < count; ++i) {
      std::vector<uint32_t> needs;
      for (int k = upTo(2); k > 0 && i; --k)
        needs.push_back(static_cast<uint32_t>(std::max(0, i - 1 - upTo(9))));
      std::sort(needs.begin(), needs.end());
      needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
      b.add(upTo(2) ? Kind::Compute : Kind::Collective, 1 + upTo(8) / 4.0,
            needs, 64.0 * (1 + upTo(1) * upTo(40)));
    }
    b.problem.growth = 1.3;
    Schedule s = b.run();
    ASSERT_LE(s.arenaAfter,
              std::max(1.3 * s.bytesBefore * (1 + 1e-9), s.arenaBefore))
        << trial;
    gains += s.secondsAfter < s.secondsBefore;
    b.problem.limit = 1.15 * s.arenaBefore;
    s = b.run();
    ASSERT_TRUE(s.possible) << trial;
    ASSERT_LE(s.arenaAfter, b.problem.limit * (1 + 1e-9)) << trial;
    ASSERT_LE(arenaBytes(b.problem, s, b.problem.limit),
              b.problem.limit * (1 + 1e-9));
  }
  EXPECT_GT(gains, 200);
}

/// Work grows with the number of nodes, not with its square: counted, not
/// timed, by the number of actions that a ten times longer program takes.
TEST(Overlap, LongPrograms) {
  for (int layers : {100, 10000}) {
    Builder b;
    uint32_t x = b.compute(1);
    for (int layer = 0; layer < layers; ++layer) {
      uint32_t w = b.comm(0.5, {}, 10);
      x = b.compute(1, {x, w});
      b.comm(0.2, {x}, 1);
    }
    b.problem.growth = 3;
    Schedule s = b.run();
    EXPECT_LT(s.secondsAfter, 0.8 * s.secondsBefore);
  }
}

} // namespace
} // namespace concord::schedule

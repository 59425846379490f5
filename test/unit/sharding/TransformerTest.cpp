//===- TransformerTest.cpp - The layouts of whole transformers ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts and sizes of collectives, and weight bytes per rank, for the four
// families the project promises: two all-reduces of [tokens, hidden] per layer
// (or as many reduce-scatters with as many all-gathers), and at most two more.
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace concord::sharding::test {
namespace {

int64_t elements(const Shape &shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    n *= size;
  return n;
}

struct Case {
  int64_t ranks, tokens, batch, hidden, heads;
  double latency; ///< high: all-reduces; low: reduce-scatter and all-gather
};

class Family : public testing::TestWithParam<Case> {
protected:
  Transformer config() const {
    Transformer t;
    t.layers = 12;
    t.batch = GetParam().batch;
    t.tokens = GetParam().tokens;
    t.hidden = GetParam().hidden;
    t.heads = t.kvHeads = GetParam().heads;
    t.inner = 4 * t.hidden;
    t.vocab = 30528;
    return t;
  }

  /// Solves, checks what must hold of any transformer, and returns the rest.
  Traffic check(Net &net, const Transformer &t, int64_t small = 0) {
    Problem &p = net.problem;
    p.cost.latencySeconds = GetParam().latency;
    Solution solution = solve(p);
    EXPECT_EQ(verify(p, solution), std::nullopt);
    EXPECT_FALSE(checkMesh(p));
    if (p.smallWeightBytes == 0) {
      EXPECT_EQ(solution.excessBytes, 0);
      EXPECT_TRUE(solution.wholeWeights.empty());
    }
    int64_t weights = 0;
    for (const TensorInfo &info : p.tensors)
      if (info.kind == TensorKind::Weight)
        weights += elements(info.shape) * info.elementBytes;
    EXPECT_LE(static_cast<double>(storedWeightBytes(p, solution)),
              1.10 * static_cast<double>(weights) /
                      static_cast<double>(p.ranks) +
                  (1 << 20));

    Traffic moved = traffic(p, solution);
    int64_t full = t.batch * t.tokens * t.hidden;
    int64_t tiny = std::ranges::count_if(
        moved.shapes, [&](const Shape &s) { return elements(s) < full; });
    for (const Shape &s : moved.shapes)
      EXPECT_LE(elements(s), full);
    EXPECT_EQ(moved.allToAll, 0);
    // Two a layer, and at most two more. A pair is a scatter and a gather.
    EXPECT_LE(tiny, small + 1) << dump(p, solution);
    int64_t most = moved.allReduce +
                   std::max(moved.allGather, moved.reduceScatter) -
                   std::min(tiny, small);
    int64_t least =
        moved.allReduce + std::min(moved.allGather, moved.reduceScatter);
    EXPECT_GE(least, 2 * t.layers) << dump(p, solution);
    EXPECT_LE(most, 2 * t.layers + 2) << dump(p, solution);
    if (GetParam().latency > 1e-4) {
      EXPECT_EQ(moved.reduceScatter, 0);
    }
    return moved;
  }
};

TEST_P(Family, Bert) {
  Net net = bert(GetParam().ranks, config());
  check(net, config());
}

TEST_P(Family, Gpt2FusedAndTied) {
  Net net = gpt2(GetParam().ranks, config());
  check(net, config());
  // The tied table has one layout: split by vocabulary at both ends.
  Solution solution = solve(net.problem);
  const OpInfo &lookup = net.problem.ops[0];
  ASSERT_EQ(net.meta[0].op, Op::Gather);
  EXPECT_EQ(solution.sources[lookup.operands[0]],
            std::vector{Layout::split(0)});
  EXPECT_TRUE(lookup.rule.factors[solution.ops[0].factor].lookup);
  EXPECT_EQ(solution.ops.back().operands[1], Layout::split(1));
  EXPECT_EQ(solution.ops.back().results[0], Layout::split(2));
  // The fused projection is split inside each of its three parts.
  bool thirds = false;
  for (const OpChoice &choice : solution.ops)
    thirds |= choice.refine == 3 && choice.operands.size() == 3 &&
              choice.operands[1] == Layout::split(1, 3);
  EXPECT_TRUE(thirds);
}

TEST_P(Family, Llama) {
  Transformer t = config();
  for (int64_t groups = 2; groups <= 4; ++groups)
    if (t.heads % (groups * GetParam().ranks) == 0)
      t.kvHeads = t.heads / groups;
  Net net = llama(GetParam().ranks, t);
  check(net, t);
  Net tied = llama(GetParam().ranks, t, true);
  check(tied, t);
}

TEST_P(Family, Mixtral) {
  Transformer t = config();
  t.layers = 3;
  t.experts = 8;
  Net net = mixtral(GetParam().ranks, t);
  // Splitting the router costs one small collective a layer.
  check(net, t, t.layers);
  Net whole = mixtral(GetParam().ranks, t);
  whole.problem.smallWeightBytes = t.hidden * t.experts * 4;
  // (With many tokens the time it takes whole is worth the collective.)
  check(whole, t, t.batch > 1 ? t.layers : 0);
}

INSTANTIATE_TEST_SUITE_P(Transformer, Family,
                         testing::Values(Case{2, 128, 1, 768, 12, 2e-6},
                                         Case{4, 128, 1, 768, 12, 2e-6},
                                         Case{2, 128, 8, 768, 12, 2e-6},
                                         Case{2, 127, 1, 768, 12, 2e-6},
                                         Case{4, 128, 1, 768, 12, 1e-2},
                                         Case{2, 1, 1, 768, 12, 2e-6},
                                         Case{8, 128, 1, 1024, 16, 2e-6},
                                         Case{8, 64, 1, 1024, 16, 1e-2},
                                         Case{4, 16, 1, 64, 4, 2e-6},
                                         Case{2, 16, 2, 64, 4, 0}));

TEST(Transformer, SameSolutionEveryTime) {
  Transformer t;
  t.layers = 3;
  Net first = llama(2, t), second = llama(2, t);
  first.problem.beamWidth = second.problem.beamWidth = 64;
  Solution a = solve(first.problem), b = solve(second.problem);
  EXPECT_EQ(dump(first.problem, a), dump(second.problem, b));
  EXPECT_EQ(a.objective, b.objective);
  EXPECT_EQ(a.sources, b.sources);
}

/// A graph of several thousand ops goes through with the default beam; how long
/// that takes is recorded, not asserted.
TEST(Transformer, DeepGraph) {
  Transformer t;
  t.layers = 96;
  t.hidden = 1024;
  t.heads = t.kvHeads = 16;
  t.inner = 4096;
  Net net = llama(4, t);
  RecordProperty("ops", static_cast<int>(net.problem.ops.size()));
  EXPECT_GT(net.problem.ops.size(), 4500u);
  Solution solution = solve(net.problem);
  EXPECT_EQ(verify(net.problem, solution), std::nullopt);
  EXPECT_LE(traffic(net.problem, solution).allReduces(), 2 * t.layers + 2);
}

/// Data parallel: the batch stays split from end to end, and nothing moves.
TEST(Transformer, DataParallel) {
  Transformer t;
  t.layers = 2;
  t.batch = 4;
  for (int64_t ranks : {2, 4}) {
    for (Net net : {bert(ranks, t), gpt2(ranks, t), llama(ranks, t)}) {
      Problem &p = net.problem;
      p.splitWeights = false;
      for (size_t i = 0; i < p.tensors.size(); ++i)
        if (p.tensors[i].kind == TensorKind::Input)
          net.fix(static_cast<Id>(i), Layout::split(0));
      Solution solution = solve(p);
      ASSERT_EQ(verify(p, solution), std::nullopt);
      Traffic moved = traffic(p, solution);
      EXPECT_EQ(moved.collectives(), 0) << dump(p, solution);
      for (size_t i = 0; i < p.tensors.size(); ++i) {
        if (p.tensors[i].isOutput)
          EXPECT_EQ(solution.outputs[i], Layout::split(0));
        if (p.tensors[i].kind == TensorKind::Weight)
          EXPECT_EQ(solution.sources[i], std::vector{Layout::replicated()});
      }
      EXPECT_TRUE(solution.wholeWeights.empty());
    }
  }
}

} // namespace
} // namespace concord::sharding::test

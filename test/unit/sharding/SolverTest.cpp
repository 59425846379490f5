//===- SolverTest.cpp - What the solver chooses, case by case -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace concord::sharding::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

const Layout whole = Layout::replicated(), sum = Layout::partial();

Solution solved(const Net &net) {
  Solution solution = solve(net.problem);
  EXPECT_EQ(verify(net.problem, solution), std::nullopt)
      << dump(net.problem, solution);
  return solution;
}

Id wholeInput(Net &net, Shape shape) {
  Id id = net.input(std::move(shape));
  net.problem.tensors[id].mustReplicate = true;
  return id;
}

TEST(Solver, PerceptronHasOneAllReduce) {
  for (int64_t ranks : {2, 4, 8}) {
    Net net(ranks);
    Id x = wholeInput(net, {1, 16, 64});
    Id up = net.weight({64, 256}), down = net.weight({256, 64});
    Id h = net.unary(net.add(net.matmul(x, up), net.weight({256})));
    net.output(net.matmul(h, down), true);
    Solution s = solved(net);
    Traffic moved = traffic(net.problem, s);
    EXPECT_EQ(moved.allReduce, 1) << dump(net.problem, s);
    EXPECT_EQ(moved.collectives(), 1);
    EXPECT_EQ(s.sources[up], std::vector{Layout::split(1)});
    EXPECT_EQ(s.sources[down], std::vector{Layout::split(0)});
    EXPECT_TRUE(s.exact);
  }
}

TEST(Solver, AttentionHasOneAllReduce) {
  for (int64_t ranks : {2, 4}) {
    Net net(ranks);
    Id x = wholeInput(net, {1, 15, 64});
    auto heads = [&] {
      Id y = net.matmul(x, net.weight({64, 64}));
      return net.transpose(net.reshape(y, {1, 15, 4, 16}), {0, 2, 1, 3});
    };
    Id q = heads(), k = heads(), v = heads();
    Id scores = net.softmax(net.matmul(q, net.transpose(k, {0, 1, 3, 2})));
    Id mixed = net.transpose(net.matmul(scores, v), {0, 2, 1, 3});
    Id out = net.matmul(net.reshape(mixed, {1, 15, 64}), net.weight({64, 64}));
    net.output(out, true);
    Solution s = solved(net);
    EXPECT_EQ(traffic(net.problem, s).collectives(), 1) << dump(net.problem, s);
    EXPECT_EQ(traffic(net.problem, s).allReduce, 1);
  }
}

/// Two products that are added share one reduction, and so do a product and its
/// scaled, transposed self.
TEST(Solver, PartialValuesPassThroughLinearOps) {
  Net net(2);
  Id x = wholeInput(net, {15, 64});
  auto branch = [&] {
    Id h = net.unary(net.matmul(x, net.weight({64, 256})));
    return net.matmul(h, net.weight({256, 64}));
  };
  Id both = net.add(branch(), net.mul(branch(), net.constant({1})));
  net.output(net.reshape(net.transpose(both, {1, 0}), {64 * 15}), true);
  Solution s = solved(net);
  EXPECT_EQ(traffic(net.problem, s).allReduce, 1) << dump(net.problem, s);
  EXPECT_EQ(traffic(net.problem, s).collectives(), 1);
}

/// A whole bias must not be added to partial sums: it would count T times. Only
/// where weights may be stored on the first rank alone can it join them.
TEST(Solver, BiasWaitsForTheReduction) {
  auto build = [](bool partialWeights) {
    Net net(2);
    net.problem.partialWeights = partialWeights;
    Id x = wholeInput(net, {15, 64});
    auto branch = [&] {
      Id h = net.unary(net.matmul(x, net.weight({64, 256})));
      return net.add(net.matmul(h, net.weight({256, 64})), net.weight({64}));
    };
    net.output(net.add(branch(), branch()), true);
    return net;
  };
  Net plain = build(false), partial = build(true);
  EXPECT_EQ(traffic(plain.problem, solved(plain)).allReduces(), 2);
  EXPECT_EQ(traffic(partial.problem, solved(partial)).allReduces(), 1);
}

TEST(Solver, ValueUsedTwiceIsReducedOnce) {
  Net net(2);
  Id x = wholeInput(net, {15, 64});
  Id h = net.unary(net.matmul(x, net.weight({64, 256})));
  Id y = net.matmul(h, net.weight({256, 64}));
  net.output(net.mul(net.unary(y), net.softmax(y)), true);
  Traffic moved = traffic(net.problem, solved(net));
  EXPECT_EQ(moved.collectives(), 1);
}

/// What is not linear in a partial value never sees it.
TEST(Solver, NonlinearOpsSeeWholeValues) {
  Net net(2);
  Id x = wholeInput(net, {15, 64});
  Id y = net.matmul(net.unary(net.matmul(x, net.weight({64, 64}))),
                    net.weight({64, 64}));
  net.output(net.mul(y, y), true);
  Solution s = solved(net);
  for (const Layout &layout : s.ops.back().operands)
    EXPECT_NE(layout.kind, Layout::Partial);
}

TEST(Solver, OneRankSplitsNothing) {
  Net net = bert(1, {});
  Solution s = solved(net);
  EXPECT_EQ(traffic(net.problem, s).collectives(), 0);
  EXPECT_EQ(s.excessBytes, 0);
  EXPECT_THAT(s.wholeWeights, IsEmpty());
  for (const OpChoice &choice : s.ops)
    EXPECT_EQ(choice.factor, -1);
}

TEST(Solver, OutputsLeaveWholeOrPlainlySplit) {
  Net net(2);
  Id x = wholeInput(net, {4, 6, 10});
  Id y = net.matmul(x, net.weight({10, 6}));
  Id z = net.split(net.reshape(y, {4, 36}), 1, 3)[0];
  net.output(y);
  net.output(z);
  Solution s = solved(net);
  for (Id t : {y, z})
    EXPECT_TRUE(
        s.outputs[t].kind == Layout::Replicated ||
        (s.outputs[t].kind == Layout::Split && s.outputs[t].dim.outer == 1));
}

TEST(Solver, PartialOutputIsScatteredWhenItMayBeSplit) {
  for (bool mustBeWhole : {false, true}) {
    Net net(2);
    Id x = wholeInput(net, {16, 64});
    Id h = net.unary(net.matmul(x, net.weight({64, 256})));
    Id y = net.matmul(h, net.weight({256, 64}));
    net.output(y, mustBeWhole);
    Solution s = solved(net);
    ASSERT_EQ(s.finish.size(), 1u);
    EXPECT_EQ(s.finish[0].step.kind,
              mustBeWhole ? StepKind::AllReduce : StepKind::ReduceScatter);
    EXPECT_EQ(s.outputs[y], mustBeWhole ? whole : Layout::split(0));
  }
}

/// Small values made early and needed whole much later: whether each is
/// computed split differs by nanoseconds now and by a gather then. Their
/// combinations must not push the right one out of a narrow beam.
TEST(Solver, SideChainsDoNotCrowdTheBeam) {
  Net net(2);
  Id x = wholeInput(net, {1, 16, 16});
  std::vector<Id> values;
  for (int i = 0; i < 12; ++i)
    values.push_back(net.unary(net.unary(x)));
  for (Id value : values)
    net.output(net.op({}, "Opaque", {value}, {{1}}, {}, 0)[0]);
  net.problem.beamWidth = 64;
  Solution s = solved(net);
  EXPECT_FALSE(s.exact);
  EXPECT_EQ(traffic(net.problem, s).collectives(), 0);
}

// --- Weights -----------------------------------------------------------------

TEST(Solver, TiedEmbeddingHasOneLayout) {
  for (bool transposed : {false, true})
    for (int64_t ranks : {2, 4}) {
      Net net(ranks);
      Id ids = wholeInput(net, {1, 16});
      Id table = net.weight({1000, 64});
      Id x = net.unary(net.gather(table, ids));
      // Without a Transpose node the product is written with its operands
      // swapped: [vocab, hidden] x [hidden, tokens].
      Id logits =
          transposed ? net.matmul(x, net.transpose(table, {1, 0}))
                     : net.matmul(table, net.transpose(net.reshape(x, {16, 64}),
                                                       {1, 0}));
      net.output(logits);
      Solution s = solved(net);
      EXPECT_EQ(s.sources[table], std::vector{Layout::split(0)})
          << dump(net.problem, s);
      EXPECT_EQ(s.excessBytes, 0);
      EXPECT_TRUE(net.problem.ops[0].rule.factors[s.ops[0].factor].lookup);
      EXPECT_EQ(s.outputs[logits], Layout::split(transposed ? 2 : 0));
    }
}

/// A vocabulary that does not divide: the table is split by its columns, and is
/// still stored once.
TEST(Solver, OddVocabularyIsSplitByColumns) {
  Net net(2);
  Id table = net.weight({1001, 64});
  Id x = net.unary(net.gather(table, wholeInput(net, {1, 16})));
  net.output(net.matmul(x, net.transpose(table, {1, 0})));
  Solution s = solved(net);
  EXPECT_EQ(s.sources[table], std::vector{Layout::split(1)});
  EXPECT_EQ(s.excessBytes, 0);
}

TEST(Solver, WeightStaysWholeOnlyWhenNothingDividesAndSaysWhy) {
  Net net(2);
  Id x = wholeInput(net, {15, 63});
  Id odd = net.weight({63, 33});
  net.output(net.matmul(x, odd), true);
  Solution s = solved(net);
  EXPECT_EQ(s.sources[odd], std::vector{whole});
  EXPECT_EQ(s.excessBytes, 63 * 33 * 4 / 2);
  ASSERT_EQ(s.wholeWeights.size(), 1u);
  EXPECT_EQ(s.wholeWeights[0].first, odd);
  EXPECT_THAT(s.wholeWeights[0].second, HasSubstr("MatMul_0"));
  EXPECT_THAT(s.wholeWeights[0].second, HasSubstr("33, 63"));
}

/// Splitting costs two gathers here and saves next to nothing; the promise
/// about memory comes first. Below smallWeightBytes it does not.
TEST(Solver, MemoryComesBeforeTime) {
  Net net(2);
  Id x = wholeInput(net, {3, 64});
  Id w = net.weight({64, 64});
  net.output(net.softmax(net.matmul(x, w)), true);
  Solution s = solved(net);
  EXPECT_EQ(s.sources[w][0].kind, Layout::Split);
  net.problem.smallWeightBytes = 64 * 64 * 4;
  s = solved(net);
  EXPECT_EQ(s.sources[w], std::vector{whole});
  EXPECT_EQ(traffic(net.problem, s).collectives(), 0);
}

/// Two users with no layout in common: the second copy is the lesser evil only
/// because there is no other way.
TEST(Solver, SharedWeightIsStoredTwiceOnlyIfItMust) {
  auto build = [](int64_t other) {
    Net net(4);
    Id w = net.weight({64, 64});
    net.output(net.matmul(wholeInput(net, {15, 64}), w), true);
    Rule rule;
    Factor factor;
    factor.size = 64;
    factor.operands = {{static_cast<int32_t>(other), 1}};
    factor.results = {{static_cast<int32_t>(other), 1}};
    rule.factors = {factor};
    net.output(net.op({}, "Special", {w}, {{64, 64}}, rule, 0)[0], true);
    return std::pair(net, w);
  };
  for (int64_t other : {0, 1}) {
    auto [net, w] = build(other);
    Solution s = solved(net);
    EXPECT_EQ(s.sources[w],
              std::vector{Layout::split(static_cast<int32_t>(other))});
  }
  auto [net, w] = build(0);
  // Take the inner dimension away from the product.
  net.problem.ops[0].rule.factors.pop_back();
  Solution s = solved(net);
  EXPECT_EQ(s.sources[w].size(), 2u);
  EXPECT_EQ(s.excessBytes, 64 * 64 * 4 / 4);
}

// --- Fixed layouts -----------------------------------------------------------

TEST(Solver, FixedLayoutsAreHonoured) {
  for (const Layout &fixed : {whole, Layout::split(0), Layout::split(1)}) {
    Net net(2);
    Id x = net.input({16, 64});
    Id w = net.weight({64, 64});
    Id y = net.matmul(x, w);
    Id z = net.unary(y);
    net.fix(y, fixed);
    net.fix(w, Layout::split(1));
    net.output(z);
    Solution s = solved(net);
    EXPECT_EQ(s.sources[w], std::vector{Layout::split(1)});
    EXPECT_EQ(s.ops[1].operands[0],
              fixed == whole ? s.ops[1].operands[0] : fixed);
  }
}

TEST(Solver, FixedInputIsResharded) {
  Net net(2);
  Id x = net.input({16, 64});
  net.fix(x, Layout::split(0));
  Id y = net.matmul(x, net.weight({64, 64}));
  net.output(y);
  Solution s = solved(net);
  EXPECT_EQ(s.sources[x], std::vector{Layout::split(0)});
  EXPECT_EQ(traffic(net.problem, s).allGather, 1) << dump(net.problem, s);
}

TEST(Solver, ImpossibleFixedLayoutNamesTheOp) {
  Net net(2);
  Id x = net.input({16, 64});
  Id y = net.unary(x);
  net.fix(y, sum);
  net.output(net.unary(y));
  EXPECT_THAT([&] { solve(net.problem); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("'Gelu_0'")));
  net.fix(y, Layout::split(0, 5));
  EXPECT_THAT([&] { solve(net.problem); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("S0/5")));
}

// --- Malformed problems ------------------------------------------------------

template <typename Change>
void expectRejected(Change change, const char *message) {
  Net net(2);
  Id x = net.input({16, 64});
  Id y = net.matmul(x, net.weight({64, 64}));
  net.output(net.unary(y));
  change(net.problem);
  EXPECT_THAT([&] { solve(net.problem); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(message)));
}

TEST(Solver, MalformedProblemsAreErrors) {
  using P = Problem &;
  expectRejected([](P p) { p.ops[0].operands[0] = 99; }, "'MatMul_0'");
  expectRejected([](P p) { p.ops[0].operands[0] = -7; }, "out of range");
  expectRejected([](P p) { std::swap(p.ops[0], p.ops[1]); },
                 "not produced by an earlier op");
  expectRejected([](P p) { p.ops[1].results[0] = p.ops[0].results[0]; },
                 "produced twice");
  expectRejected([](P p) { p.ops[1].results[0] = 0; }, "not a Value");
  expectRejected([](P p) { p.ops[0].rule.factors[0].size = 0; },
                 "needs a size");
  expectRejected([](P p) { p.ops[0].rule.factors[0].size = 12; },
                 "does not fit");
  expectRejected([](P p) { p.ops[0].rule.factors[0].operands.pop_back(); },
                 "one entry per operand");
  expectRejected([](P p) { p.ops[0].rule.factors[0].operands[0].dim = 5; },
                 "dimension 5");
  expectRejected([](P p) { p.ops[0].rule.factors[0].operands[0].outer = 0; },
                 "0 outer blocks");
  expectRejected([](P p) { p.ops[0].rule.linear.push_back({9}); },
                 "linear set");
  expectRejected([](P p) { p.ops[0].rule.factors[0].addends = {0}; }, "addend");
  expectRejected([](P p) { p.tensors[0].shape[0] = -1; }, "negative dimension");
  expectRejected([](P p) { p.ranks = 0; }, "at least one rank");
  expectRejected([](P p) { p.ops.pop_back(); }, "no op produces");
}

TEST(Solver, EmptyAndOddGraphs) {
  Problem empty;
  empty.ranks = 2;
  EXPECT_EQ(verify(empty, solve(empty)), std::nullopt);

  // An input that is an output, a weight nobody uses, a result nobody uses, an
  // absent operand, an empty tensor.
  Net net(2);
  Id x = net.input({16, 64});
  net.output(x);
  net.weight({8, 8});
  net.gemm(x, net.weight({64, 64}), -1);
  net.output(net.unary(net.input({0, 4})));
  Solution s = solved(net);
  EXPECT_EQ(s.outputs[x], whole);
}

/// The verifier is what the pass trusts: it must see errors in solutions.
TEST(Solver, VerifierSeesWrongSolutions) {
  Net net = bert(2, {});
  const Problem &p = net.problem;
  Solution good = solved(net);
  auto broken = [&](auto change) {
    Solution bad = good;
    change(bad);
    return verify(p, bad).has_value();
  };
  for (size_t i = 0; i < good.ops.size(); ++i) {
    if (!good.ops[i].before.empty())
      EXPECT_TRUE(broken([&](Solution &s) { s.ops[i].before.clear(); })) << i;
    EXPECT_TRUE(broken([&](Solution &s) {
      s.ops[i].results[0] = Layout::partial(Reduction::Max);
    })) << i;
    if (good.ops[i].factor >= 0) {
      EXPECT_TRUE(broken([&](Solution &s) { s.ops[i].factor = -1; })) << i;
      EXPECT_TRUE(broken([&](Solution &s) { s.ops[i].factor = 99; })) << i;
      EXPECT_TRUE(broken([&](Solution &s) { s.ops[i].refine = 7; })) << i;
    }
  }
  EXPECT_TRUE(broken([](Solution &s) { s.seconds *= 0.5; }));
  EXPECT_TRUE(broken([](Solution &s) { s.objective += 1; }));
  EXPECT_TRUE(broken([](Solution &s) { s.excessBytes += 1; }));
  EXPECT_TRUE(broken([](Solution &s) { s.ops.pop_back(); }));
  EXPECT_TRUE(broken([](Solution &s) {
    for (std::vector<Layout> &stored : s.sources)
      stored.clear();
  }));
  EXPECT_TRUE(broken([&](Solution &s) {
    for (size_t t = 0; t < p.tensors.size(); ++t)
      if (p.tensors[t].isOutput)
        s.outputs[t] = sum;
  }));
}

} // namespace
} // namespace concord::sharding::test

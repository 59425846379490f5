//===- ShardingRuleTest.cpp - Rules that plans rest on, spelled out
//---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// That a rule is right is tried in ShardingTest.cpp; that it has the factors
// that the partitioner needs for transformers is said here.
//
//===----------------------------------------------------------------------===//

#include "ShardingCase.h"

#include "gtest/gtest.h"

using namespace concord;
using namespace concord::onnx;
using namespace concord::onnx::test;
using sharding::DimRef;
using sharding::Reduction;

namespace {

sharding::Rule ruleOf(const Case &c) {
  NodeView v = c.view();
  const OpDef *def = findOp(c.node.domain, c.node.opType);
  def->infer(v);
  return def->shard(v);
}

TEST(ShardingRule, MatMulHasBatchRowsColumnsAndInner) {
  Rng rng(1);
  const auto rule =
      ruleOf(Case("MatMul", 13, {floats(rng, {2, 4, 6}), floats(rng, {6, 8})}));
  ASSERT_EQ(rule.factors.size(), 4u);
  EXPECT_EQ(rule.factors[3].size, 6);
  EXPECT_EQ(rule.factors[3].reduction, Reduction::Sum);
  EXPECT_EQ(rule.factors[3].operands[0], (DimRef{2, 1}));
  EXPECT_EQ(rule.factors[3].operands[1], (DimRef{0, 1}));
  EXPECT_EQ(rule.linear.size(), 2u);
}

TEST(ShardingRule, FusedQkvSplitHasOuterBlocks) {
  Rng rng(1);
  Case c("Split", 13, {floats(rng, {2, 24})}, {}, 3);
  c.attr("axis", int64_t{1});
  const auto rule = ruleOf(c);
  ASSERT_EQ(rule.factors.size(), 2u);
  EXPECT_EQ(rule.factors[1].size, 8);
  EXPECT_EQ(rule.factors[1].operands[0], (DimRef{1, 3}));
  EXPECT_EQ(rule.factors[1].results[2], (DimRef{1, 1}));
}

TEST(ShardingRule, ReshapeToHeadsKeepsTheHeads) {
  Rng rng(1);
  const auto rule = ruleOf(Case(
      "Reshape", 14, {floats(rng, {2, 5, 768}), list({2, 5, 12, 64})}, {1}));
  ASSERT_EQ(rule.factors.size(), 4u);
  EXPECT_EQ(rule.factors[2].size, 12);
  EXPECT_EQ(rule.factors[2].operands[0], (DimRef{2, 1}));
  EXPECT_EQ(rule.factors[2].results[0], (DimRef{2, 1}));
  EXPECT_EQ(rule.factors[3].size, 64);
  EXPECT_EQ(rule.factors[3].operands[0], (DimRef{2, 12}));
  EXPECT_EQ(rule.factors[3].results[0], (DimRef{3, 1}));
}

TEST(ShardingRule, ReshapeOfCoprimePartsStopsButGoesOnBehind) {
  Rng rng(1);
  // [4,6 | 5] -> [6,4 | 5]: 2 outside is common, then 2*6 against 3*4 is not.
  const auto rule = ruleOf(
      Case("Reshape", 14, {floats(rng, {4, 6, 5}), list({6, 4, 5})}, {1}));
  ASSERT_EQ(rule.factors.size(), 2u);
  EXPECT_EQ(rule.factors[0].size, 2);
  EXPECT_EQ(rule.factors[1].size, 5);
}

TEST(ShardingRule, MeanIsNotASumOverParts) {
  Rng rng(1);
  const auto rule =
      ruleOf(Case("ReduceMean", 18, {floats(rng, {4, 6}), list({1})}, {1}));
  ASSERT_EQ(rule.factors.size(), 1u);
  EXPECT_EQ(rule.factors[0].reduction, Reduction::None);
}

TEST(ShardingRule, MaxPoolIndicesCannotBeSplit) {
  Rng rng(1);
  Case c("MaxPool", 12, {floats(rng, {2, 4, 6, 6})}, {}, 2);
  c.attr("kernel_shape", std::vector<int64_t>{2, 2});
  EXPECT_TRUE(ruleOf(c).factors.empty());
}

TEST(ShardingRule, GroupedQueryAttentionSplitsByKeyHeads) {
  Rng rng(1);
  const auto rule =
      ruleOf(Case("Attention", 23,
                  {floats(rng, {2, 8, 3, 4}), floats(rng, {2, 2, 5, 4}),
                   floats(rng, {2, 2, 5, 4})}));
  ASSERT_EQ(rule.factors.size(), 2u);
  EXPECT_EQ(rule.factors[1].size, 2);
  EXPECT_EQ(rule.factors[1].operands[0], (DimRef{1, 1}));
}

} // namespace

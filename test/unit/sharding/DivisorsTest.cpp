//===- DivisorsTest.cpp - Axis sizes that a model refuses -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace concord::sharding::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Transformer base() {
  Transformer t;
  t.hidden = 768;
  t.heads = 12;
  t.kvHeads = 12;
  t.inner = 3072;
  return t;
}

/// The scores of [..., heads, positions, width] with themselves.
Id scores(Net &net, Id x, std::vector<int64_t> swapped) {
  return net.matmul(x, net.transpose(x, std::move(swapped)));
}

TEST(Divisors, HeadsOfBert) {
  for (int64_t good : {1, 2, 3, 4, 6, 12})
    EXPECT_FALSE(checkMesh(bert(good, base()).problem)) << good;
  Net net = bert(8, base());
  auto refusal = checkMesh(net.problem, "tp");
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->size, 12);
  EXPECT_THAT(refusal->allowed, ElementsAre(1, 2, 3, 4, 6, 12));
  const OpInfo &op = net.problem.ops[refusal->op];
  EXPECT_EQ(op.operands[0], refusal->tensor);
  EXPECT_EQ(refusal->message,
            "mesh axis tp=8 does not divide the 12 heads of node " + op.name +
                "; use 1, 2, 3, 4, 6 or 12");
  // 5 divides neither the heads nor the hidden size; it is no better.
  EXPECT_TRUE(checkMesh(bert(5, base()).problem));
}

/// The 3 of [3, heads, size] is not what has to divide.
TEST(Divisors, FusedProjectionInThreePlusHeads) {
  for (int64_t ranks : {2, 4, 5, 8}) {
    Net net(ranks);
    Id x = net.input({1, 16, 768});
    Id qkv = net.matmul(x, net.weight({768, 3 * 768}));
    qkv = net.reshape(qkv, {1, 16, 3, 12, 64}, "cut");
    net.output(
        scores(net, net.transpose(qkv, {0, 2, 3, 1, 4}), {0, 1, 2, 4, 3}));
    auto refusal = checkMesh(net.problem);
    EXPECT_EQ(refusal.has_value(), 12 % ranks != 0) << ranks;
    if (refusal)
      EXPECT_EQ(refusal->size, 12);
  }
}

/// Of batch and heads in one dimension, only the heads come from a weight.
TEST(Divisors, BatchAndHeadsInOneDimension) {
  for (int64_t ranks : {2, 4, 5}) {
    Net net(ranks);
    Id x = net.input({2, 16, 768});
    Id k = net.matmul(x, net.weight({768, 768}));
    k = net.transpose(net.reshape(k, {2, 16, 12, 64}), {0, 2, 1, 3});
    k = net.transpose(net.reshape(k, {24, 16, 64}), {0, 2, 1});
    net.output(scores(net, net.reshape(k, {2, 12, 64, 16}), {0, 1, 3, 2}));
    auto refusal = checkMesh(net.problem);
    EXPECT_EQ(refusal.has_value(), 12 % ranks != 0) << ranks;
    if (refusal) {
      EXPECT_EQ(refusal->size, 12);
    }
  }
}

/// Nor do they where a parameter has a piece for each sequence and head.
TEST(Divisors, BatchedProductWithAParameter) {
  Net net(4);
  Id x = net.input({2, 16, 768});
  Id q = net.matmul(x, net.weight({768, 768}));
  q = net.transpose(net.reshape(q, {2, 16, 12, 64}), {0, 2, 1, 3});
  q = net.matmul(net.reshape(q, {24, 16, 64}), net.weight({24, 64, 32}));
  net.output(net.reshape(q, {2, 12, 16, 32}));
  EXPECT_FALSE(checkMesh(net.problem));
}

/// [3, 768] is no cut into heads, since its 3 are told apart; what follows is.
TEST(Divisors, PartsThatArePickedAreNoHeads) {
  for (int64_t ranks : {2, 4, 5}) {
    Net net(ranks);
    Id x = net.input({1, 16, 768});
    Id qkv = net.matmul(x, net.weight({768, 3 * 768}));
    qkv = net.transpose(net.reshape(qkv, {1, 16, 3, 768}), {2, 0, 1, 3});
    for (int i = 0; i < 3; ++i) {
      Id part = net.reshape(net.pick(qkv, 0), {1, 16, 12, 64});
      net.output(scores(net, net.transpose(part, {0, 2, 1, 3}), {0, 1, 3, 2}));
    }
    auto refusal = checkMesh(net.problem);
    EXPECT_EQ(refusal.has_value(), 12 % ranks != 0) << ranks;
    if (refusal) {
      EXPECT_EQ(refusal->size, 12);
    }
  }
}

/// Pixels of patches, as a diffusion transformer ends: [2, 2, 4] of 16.
TEST(Divisors, BlocksThatAreOnlyMovedAreNoHeads) {
  for (int64_t ranks : {2, 4, 8}) {
    Net net(ranks);
    Id x = net.input({2, 16, 64});
    x = net.matmul(x, net.weight({64, 16}));
    x = net.transpose(net.reshape(x, {2, 4, 4, 2, 2, 4}), {0, 5, 1, 3, 2, 4});
    net.output(net.reshape(x, {2, 4, 8, 8}));
    EXPECT_FALSE(checkMesh(net.problem)) << ranks;
  }
}

/// With grouped heads those of the queries count: a head of keys and values is
/// there on every rank whose queries it serves.
TEST(Divisors, GroupedHeads) {
  Transformer t = base();
  t.hidden = 512;
  t.heads = 16;
  t.kvHeads = 4;
  for (int64_t good : {4, 8, 16})
    EXPECT_FALSE(checkMesh(llama(good, t).problem)) << good;
  auto refusal = checkMesh(llama(32, t).problem);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->size, 16);
  EXPECT_THAT(refusal->allowed, ElementsAre(1, 2, 4, 8, 16));
}

TEST(Divisors, OnlyWhatComesFromWeightsCounts) {
  Net net(2);
  Id x = net.input({4, 21});
  net.output(net.reshape(x, {4, 3, 7}));
  EXPECT_FALSE(checkMesh(net.problem));

  Net data = bert(8, base());
  data.problem.splitWeights = false;
  EXPECT_FALSE(checkMesh(data.problem));
}

TEST(Divisors, Report) {
  Net net = bert(8, base());
  int weights = 0, blocks = 0;
  for (const DivisorEntry &entry : divisorsReport(net.problem)) {
    if (entry.op >= 0) {
      ++blocks;
      EXPECT_THAT(entry.sizes, ElementsAre(12));
      EXPECT_THAT(entry.divisors, ElementsAre(1, 2, 3, 4, 6, 12));
    } else {
      ++weights;
    }
  }
  EXPECT_EQ(blocks, 3);      // q, k and v of the one layer
  EXPECT_EQ(weights, 3 + 7); // embeddings; four projections, two, the pooler
}

} // namespace
} // namespace concord::sharding::test

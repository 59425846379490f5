//===- PlanTest.cpp - The plan table's bytes, digests and JSON ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Round trip, known digests, prefix chains and refusals.
//
//===----------------------------------------------------------------------===//

#include "concord/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::plan;

static Plan samplePlan() {
  Plan plan;
  plan.world = 4;
  plan.assumptions = {"spmd", "na\xc3\xafve \"quoted\"\n"};
  plan.domains = {{"tp", 7, {{0, 1}, {3, 2}}}, {"world", 0, {{0, 1, 2, 3}}}};
  Program program;
  program.name = "main";
  program.ranks = {0, 1, 2, 3};
  Issue reduce{};
  reduce.kind = Kind::AllReduce;
  reduce.reduction = Reduction::Sum;
  reduce.dtype = DType::F32;
  reduce.count = 384;
  Buffer buffer{Buffer::Space::Arena};
  buffer.offset = 128;
  buffer.innerBytes = 1536;
  reduce.buffers = {buffer, buffer};
  reduce.location = "layer.0/MatMul";
  program.issues.push_back(reduce);
  Issue exchange{};
  exchange.kind = Kind::AllToAll;
  exchange.dtype = DType::BF16;
  exchange.domain = 1;
  exchange.synchronous = false;
  exchange.sendCounts = {1, 2, 3, 4};
  exchange.recvCounts = {4, 3, 2, 1};
  exchange.records = {0};
  program.issues.push_back(exchange);
  Issue shift{};
  shift.kind = Kind::Permute;
  shift.dtype = DType::I8;
  shift.count = 5;
  shift.domain = 1;
  shift.pairs = {{0, 1}, {1, 2}};
  program.issues.push_back(shift);
  Node loop{Node::Type::Loop};
  loop.tripCount = 3;
  Node leaf{Node::Type::Issue};
  leaf.site = 1;
  Node compute{Node::Type::Compute};
  compute.seconds = 0.25;
  loop.children = {leaf, compute};
  program.body.children = {loop, leaf};
  plan.programs.push_back(program);
  return plan;
}

TEST(Sha256, StandardVectors) {
  auto hash = [](const std::string &text) {
    return toHex(sha256(std::as_bytes(std::span(text.data(), text.size()))));
  };
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991"
                      "b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410"
                         "ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Plan, RoundTrip) {
  Plan plan = samplePlan();
  auto bytes = serialize(plan);
  Plan back;
  std::string error;
  ASSERT_TRUE(parse(bytes, back, error)) << error;
  EXPECT_EQ(serialize(back), bytes);
  EXPECT_EQ(digest(back), digest(plan));
  EXPECT_EQ(back.programs[0].issues[0].location, "layer.0/MatMul");
  EXPECT_EQ(back.programs[0].issues[1].recvCounts[0], 4u);
  EXPECT_EQ(back.programs[0].body.children[0].children[1].seconds, 0.25);
  EXPECT_EQ(toJson(back), toJson(plan));
}

TEST(Plan, NamesThatAreNoUtf8AreReplaced) {
  // As a model may have them; \xe9 is Latin-1, the last one is cut short.
  Plan plan = samplePlan(), back;
  plan.programs[0].issues[0].location = "caf\xe9/\xe2\x82\xac/\xe2\x82";
  auto bytes = serialize(plan);
  std::string error;
  ASSERT_TRUE(parse(bytes, back, error)) << error;
  EXPECT_EQ(back.programs[0].issues[0].location,
            "caf\xef\xbf\xbd/\xe2\x82\xac/\xef\xbf\xbd\xef\xbf\xbd");
  Plan again;
  ASSERT_TRUE(parseJson(toJson(plan), again, error)) << error;
  EXPECT_EQ(digest(again), digest(plan));
  // Bytes that another writer has made.
  constexpr std::string_view kName = "caf";
  auto at = std::search(bytes.begin(), bytes.end(), kName.begin(), kName.end(),
                        [](std::byte a, char b) { return a == std::byte(b); });
  ASSERT_NE(at, bytes.end());
  *at = std::byte(0xff);
  EXPECT_FALSE(parse(bytes, back, error));
  EXPECT_EQ(error, "a text in it is not UTF-8");
}

TEST(Plan, PrefixChainFindsTheFirstDifference) {
  Plan a = samplePlan(), b = samplePlan();
  b.programs[0].issues[1].sendCounts[2] = 9;
  auto left = prefixDigests(a), right = prefixDigests(b);
  ASSERT_EQ(left.size(), 4u);
  EXPECT_EQ(left[0], right[0]);
  EXPECT_EQ(left[1], right[1]);
  EXPECT_NE(left[2], right[2]);
  EXPECT_NE(left[3], right[3]);
  b.domains[0].priority = 8;
  EXPECT_NE(prefixDigests(b)[0], left[0]);
}

TEST(Plan, EveryTruncationIsRefused) {
  auto bytes = serialize(samplePlan());
  for (size_t n = 0; n < bytes.size(); ++n) {
    Plan plan;
    std::string error;
    EXPECT_FALSE(parse(std::span(bytes).first(n), plan, error));
    EXPECT_FALSE(error.empty());
  }
  bytes.push_back(std::byte(0));
  Plan plan;
  std::string error;
  EXPECT_FALSE(parse(bytes, plan, error));
}

TEST(Plan, BadReferencesAreRefused) {
  auto refused = [](auto change, const char *word) {
    Plan plan = samplePlan(), back;
    change(plan);
    std::string error;
    EXPECT_FALSE(parse(serialize(plan), back, error)) << word;
    EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  refused([](Plan &p) { p.programs[0].issues[0].domain = 2; }, "domain");
  refused([](Plan &p) { p.programs[0].issues[0].root = 2; }, "root");
  refused([](Plan &p) { p.domains[0].groups[0][0] = 4; }, "outside the world");
  refused([](Plan &p) { p.domains[0].groups[0][0] = 1; }, "twice");
  refused([](Plan &p) { p.domains[0].groups.push_back({}); }, "empty group");
  refused([](Plan &p) { p.programs[0].issues[1].sendCounts.pop_back(); },
          "split sizes");
  refused([](Plan &p) { p.programs[0].body.children[1].site = 3; }, "site");
  refused([](Plan &p) { p.programs[0].body.site = 1; }, "its type has not");
  refused([](Plan &p) { p.programs[0].body.tripCount = 1; },
          "its type has not");
  refused([](Plan &p) { p.programs[0].body.children[1].seconds = 1; },
          "its type has not");
  refused(
      [](Plan &p) { p.programs[0].body.children[0].children[1].seconds = -1; },
      "its type has not");
  refused([](Plan &p) { p.programs[0].issues[0].members = {0}; }, "member");
  refused([](Plan &p) { p.programs[0].issues[0].count = ~uint64_t(0); },
          "count");
  refused(
      [](Plan &p) {
        p.programs[0].issues[0].buffers[0].outer = 1ull << 50;
        p.programs[0].issues[0].buffers[0].strideBytes = 1ull << 50;
      },
      "buffer");
  refused(
      [](Plan &p) {
        Node *node = &p.programs[0].body;
        for (int i = 0; i < 100; ++i) {
          node->children = {Node{Node::Type::Seq}};
          node = &node->children[0];
        }
      },
      "nested");
  refused([](Plan &p) { p.world = 0; }, "world");
  refused([](Plan &p) { p.world = 1000000; }, "world");
}

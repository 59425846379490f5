//===- PlanOrderTest.cpp - Judging lowered programs by their plan ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// verifyPlan on plans built by hand: what a compiler emits, and what it must
// not.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Certificate.h"
#include "concord/plan.h"

#include <algorithm>
#include <gtest/gtest.h>

using namespace concord::order;
namespace plan = concord::plan;

namespace {

plan::Issue collective(uint32_t domain, uint32_t lane, uint64_t count = 64) {
  plan::Issue i{};
  i.kind = plan::Kind::AllReduce;
  i.reduction = plan::Reduction::Sum;
  i.dtype = concord::DType::F32;
  i.synchronous = false;
  i.domain = domain;
  i.lane = lane;
  i.count = count;
  i.location = "/layer/" + std::to_string(domain);
  return i;
}

plan::Node issue(uint32_t site) {
  plan::Node n{plan::Node::Type::Issue};
  n.site = site;
  return n;
}

plan::Node wait(uint32_t site) {
  plan::Node n{plan::Node::Type::Wait};
  n.site = site;
  return n;
}

/// 2x2 mesh: rows are tp, columns are dp.
plan::Plan mesh() {
  plan::Plan p;
  p.world = 4;
  p.domains = {{"tp", 0, {{0, 1}, {2, 3}}}, {"dp", 0, {{0, 2}, {1, 3}}}};
  p.programs.push_back({"main", "", {0, 1, 2, 3}, {}, {plan::Node::Type::Seq}});
  return p;
}

bool has(const Certificate &c, const std::string &assumption) {
  return std::find(c.assumes.begin(), c.assumes.end(), assumption) !=
         c.assumes.end();
}

/// Ranks 0 and 1 run one program, 2 and 3 another; "dp" joins them.
plan::Plan twoStages() {
  plan::Plan p = mesh();
  p.programs = {{"p0", "", {0, 1}, {}, {plan::Node::Type::Seq}},
                {"p1", "", {2, 3}, {}, {plan::Node::Type::Seq}}};
  for (plan::Program &program : p.programs) {
    program.issues = {collective(0, 0), collective(1, 0), collective(1, 0, 32)};
    for (uint32_t site = 0; site < 3; ++site)
      program.body.children.insert(program.body.children.end(),
                                   {issue(site), wait(site)});
  }
  return p;
}

/// serving: decision on all, tp; placement: dp, optional. Both on all ranks.
plan::Plan twoIssuers() {
  plan::Plan p = mesh();
  p.domains.push_back({"ctl", 9, {{0, 1, 2, 3}}});
  plan::Issue decide = collective(2, 0, 0);
  decide.kind = plan::Kind::RoundDecision;
  decide.reduction = plan::Reduction::None;
  decide.dtype = concord::DType::Invalid;
  decide.synchronous = true;
  decide.root = 0;
  p.programs[0].issuer = "serving";
  p.programs[0].issues = {decide, collective(0, 0)};
  p.programs[0].body.children = {issue(0), issue(1)};
  plan::Issue move = collective(1, 0);
  move.optional = true;
  p.programs.push_back(
      {"move", "placement", {0, 1, 2, 3}, {move}, {plan::Node::Type::Seq}});
  p.programs[1].body.children = {issue(0)};
  return p;
}

TEST(Rounds, DecisionFirstThenPriorityThenProgram) {
  plan::Plan p = twoIssuers();
  std::vector<Finding> faults;
  ASSERT_TRUE(orderRounds(p, faults));
  ASSERT_EQ(p.rounds.size(), 1u);
  EXPECT_EQ(p.rounds[0].ranks, (std::vector<int32_t>{0, 1, 2, 3}));
  auto order = [&] {
    std::string text;
    for (const plan::Turn &turn : p.rounds[0].turns)
      text +=
          std::to_string(turn.program) + "." + std::to_string(turn.unit) + " ";
    return text;
  };
  EXPECT_EQ(order(), "0.0 0.1 1.0 ");
  EXPECT_TRUE(verifyPlan(p).valid);
  EXPECT_TRUE(has(verifyPlan(p), "gate=hold"));
  // The order is part of the plan, and it is the checker's to judge.
  p.domains[1].priority = 1;
  ASSERT_TRUE(orderRounds(p, faults));
  EXPECT_EQ(order(), "0.0 1.0 0.1 ");
  plan::Plan late = p;
  std::swap(late.rounds[0].turns[0], late.rounds[0].turns[1]);
  Certificate c = verifyPlan(late); // a slot before its decision
  ASSERT_FALSE(c.valid);
  EXPECT_EQ(c.faults[0].id, "contradicting-issuers");
  plan::Plan backwards = p;
  std::swap(backwards.rounds[0].turns[0], backwards.rounds[0].turns[2]);
  c = verifyPlan(backwards);
  ASSERT_FALSE(c.valid);
  EXPECT_EQ(c.faults[0].id, "malformed-round");
  plan::Plan less = p;
  less.rounds[0].turns.pop_back();
  c = verifyPlan(less);
  ASSERT_FALSE(c.valid);
  EXPECT_NE(c.faults[0].title.find("no turn"), std::string::npos);
}

TEST(Rounds, RanksMayNotDisagree) {
  plan::Plan p = twoIssuers();
  std::vector<Finding> faults;
  ASSERT_TRUE(orderRounds(p, faults));
  plan::Round other = p.rounds[0];
  p.rounds[0].ranks = {0, 3};
  other.ranks = {1, 2};
  std::swap(other.turns[1], other.turns[2]);
  p.rounds.push_back(other);
  Certificate c = verifyPlan(p);
  ASSERT_FALSE(c.valid); // row on 0, column on 1, row on 3, column on 2
  EXPECT_EQ(c.faults[0].id, "contradicting-issuers");
  EXPECT_FALSE(c.faults[0].chain.empty());
}

TEST(Rounds, ALoopIsOneTurnAndAForestNeedsNone) {
  plan::Plan p = twoIssuers();
  p.domains.push_back({"again", 0, {{0, 2}, {1, 3}}});
  p.programs[1].issues = {collective(1, 0), collective(3, 0)};
  plan::Node loop{plan::Node::Type::Loop};
  loop.tripCount = 2;
  loop.children = {issue(0), issue(1)};
  p.programs[1].body.children = {loop};
  std::vector<Finding> faults;
  ASSERT_TRUE(orderRounds(p, faults)) << faults[0].title;
  // The loop is one part, with one turn.
  EXPECT_EQ(p.rounds[0].turns.size(), 3u);
  EXPECT_TRUE(verifyPlan(p).valid);
  // A forest needs no turns at all.
  plan::Plan tree = mesh();
  tree.programs[0].issues = {collective(0, 0)};
  tree.programs[0].body.children = {issue(0)};
  tree.programs.push_back({"other", "o", {0}, {}, {plan::Node::Type::Seq}});
  ASSERT_TRUE(orderRounds(tree, faults));
  EXPECT_TRUE(tree.rounds.empty());
}

TEST(Plan, OneDomainIsAForest) {
  plan::Plan p = mesh();
  p.domains.pop_back();
  auto &m = p.programs[0];
  m.issues = {collective(0, 0), collective(0, 1)};
  m.body.children = {issue(0), issue(1)};
  Certificate c = verifyPlan(p);
  ASSERT_TRUE(c.valid) << c.str();
  EXPECT_TRUE(c.graph.forest());
  EXPECT_EQ(c.issues, 8u);
  EXPECT_EQ(c.instances, 4u);
  EXPECT_EQ(c.digest.size(), 64u);
  EXPECT_NE(c.str().find("forest"), std::string::npos);
}

TEST(Plan, TwoDomainsNeedTheChain) {
  plan::Plan p = mesh();
  auto &m = p.programs[0];
  m.issues = {collective(0, 0), collective(1, 1)};
  m.body.children = {issue(0), issue(1)};
  Certificate c = verifyPlan(p);
  ASSERT_FALSE(c.valid);
  ASSERT_EQ(c.faults.size(), 1u);
  EXPECT_EQ(c.faults[0].id, "closed-walk");
  EXPECT_FALSE(c.faults[0].chain.empty());
  EXPECT_NE(c.faults[0].chain[0].from.loc.file.find("/layer/"),
            std::string::npos);

  // Any of: an event edge, one lane, a host wait, synchronous issues.
  plan::Plan chained = p;
  chained.programs[0].issues[0].records = {7};
  chained.programs[0].issues[1].waits = {7};
  EXPECT_TRUE(verifyPlan(chained).valid);
  plan::Plan lane = p;
  lane.programs[0].issues[1].lane = 0;
  EXPECT_TRUE(verifyPlan(lane).valid);
  plan::Plan waited = p;
  waited.programs[0].body.children = {issue(0), wait(0), issue(1)};
  EXPECT_TRUE(verifyPlan(waited).valid);
  plan::Plan synchronous = p;
  synchronous.programs[0].issues[0].synchronous = true;
  EXPECT_TRUE(verifyPlan(synchronous).valid);
  // A wait that comes before its record binds to nothing.
  plan::Plan late = p;
  late.programs[0].issues[0].waits = {7};
  late.programs[0].issues[1].records = {7};
  EXPECT_FALSE(verifyPlan(late).valid);
  // The digest covers the order.
  EXPECT_NE(verifyPlan(chained).digest, "");
  plan::Plan swapped = chained;
  std::swap(swapped.programs[0].issues[0], swapped.programs[0].issues[1]);
  std::swap(swapped.programs[0].issues[0].waits,
            swapped.programs[0].issues[0].records);
  std::swap(swapped.programs[0].issues[1].waits,
            swapped.programs[0].issues[1].records);
  EXPECT_TRUE(verifyPlan(swapped).valid);
  EXPECT_NE(verifyPlan(chained).digest, verifyPlan(swapped).digest);
}

TEST(Plan, LoopsNeedTheEdgeBack) {
  plan::Plan p = mesh();
  auto &m = p.programs[0];
  m.issues = {collective(0, 0), collective(1, 1)};
  m.issues[0].records = {1};
  m.issues[1].waits = {1};
  plan::Node loop{plan::Node::Type::Loop};
  loop.tripCount = 12;
  loop.children = {issue(0), issue(1)};
  m.body.children = {loop};
  EXPECT_FALSE(verifyPlan(p).valid);
  m.issues[1].records = {2};
  m.issues[0].waits = {2};
  Certificate c = verifyPlan(p);
  EXPECT_TRUE(c.valid) << c.str();
  EXPECT_FALSE(has(c, "uniform-trip-counts"));
  m.body.children[0].tripCount = 0;
  EXPECT_TRUE(has(verifyPlan(p), "uniform-trip-counts"));
}

TEST(Plan, BranchesAreCheckedForEverySubset) {
  plan::Plan p = mesh();
  auto &m = p.programs[0];
  // tp, then maybe dp on another lane, then dp: chained only through the
  // branch.
  m.issues = {collective(0, 0), collective(1, 1), collective(1, 2)};
  m.issues[0].records = {1};
  m.issues[1].waits = {1};
  m.issues[1].records = {2};
  m.issues[2].waits = {2};
  plan::Node branch{plan::Node::Type::Branch};
  branch.children = {issue(1)};
  m.body.children = {issue(0), branch, issue(2)};
  EXPECT_FALSE(
      verifyPlan(p).valid); // without the branch nothing orders 0 before 2
  m.issues[2].waits = {1, 2};
  Certificate c = verifyPlan(p);
  EXPECT_TRUE(c.valid) << c.str();
  EXPECT_TRUE(has(c, "uniform-branches"));
}

TEST(Plan, MismatchNamesTheOddRanks) {
  plan::Plan p = mesh();
  p.programs[0].ranks = {0, 1, 2};
  p.programs[0].issues = {collective(0, 0)};
  p.programs[0].body.children = {issue(0)};
  p.programs.push_back(
      {"other", "", {3}, {collective(0, 0, 65)}, {plan::Node::Type::Seq}});
  p.programs[1].body.children = {issue(0)};
  Certificate c = verifyPlan(p);
  ASSERT_FALSE(c.valid);
  EXPECT_EQ(c.faults[0].kind, Finding::Kind::Mismatch);
  EXPECT_NE(c.faults[0].title.find("n=65"), std::string::npos);
  p.programs[1].issues.clear();
  p.programs[1].body.children.clear();
  c = verifyPlan(p);
  ASSERT_FALSE(c.valid);
  EXPECT_EQ(c.faults[0].id, "missing-participant");
  EXPECT_EQ(c.faults[0].culprits, std::vector<Rank>{3});
}

TEST(Plan, PipelineTransfers) {
  plan::Plan p;
  p.world = 2;
  p.domains = {{"pp", 0, {{0, 1}}}};
  plan::Issue send = collective(0, 0), recv = collective(0, 0);
  send.kind = plan::Kind::Send;
  send.pairs = {{0, 1}};
  recv.kind = plan::Kind::Recv;
  recv.pairs = {{0, 1}};
  plan::Issue sendBack = send, recvBack = recv;
  sendBack.pairs = recvBack.pairs = {{1, 0}};
  p.programs.push_back(
      {"first", "", {0}, {send, recvBack}, {plan::Node::Type::Seq}});
  p.programs.push_back(
      {"second", "", {1}, {recv, sendBack}, {plan::Node::Type::Seq}});
  for (auto &program : p.programs)
    program.body.children = {issue(0), issue(1)};
  Certificate c = verifyPlan(p);
  EXPECT_TRUE(c.valid) << c.str();
  // Both send first: the two directions contradict.
  p.programs[1].body.children = {issue(1), issue(0)};
  c = verifyPlan(p);
  ASSERT_FALSE(c.valid);
  EXPECT_EQ(c.faults[0].id, "order-cycle");
  // A closed group on both sides mends it.
  for (auto &program : p.programs) {
    plan::Issue group = collective(0, 0);
    group.kind = plan::Kind::Group;
    bool first =
        program.name == "first"; // one common listing order: 0->1, 1->0
    group.members =
        first ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{0, 1};
    program.issues.push_back(group);
    program.body.children = {issue(2)};
  }
  c = verifyPlan(p);
  EXPECT_TRUE(c.valid) << c.str();
  p.programs[1].issues[2].members = {1, 0};
  EXPECT_FALSE(verifyPlan(p).valid); // unlike listing order
}

TEST(Plan, TwoIssuersAssumeTheGate) {
  plan::Plan p = mesh();
  p.programs[0].issuer = "serving";
  p.programs[0].issues = {collective(0, 0)};
  p.programs[0].body.children = {issue(0)};
  p.programs.push_back({"placement",
                        "placement",
                        {0, 1, 2, 3},
                        {collective(1, 1)},
                        {plan::Node::Type::Seq}});
  p.programs[1].body.children = {issue(0)};
  Certificate c = verifyPlan(p);
  ASSERT_TRUE(c.valid) << c.str();
  EXPECT_TRUE(has(c, "gate=hold"));
  p.programs[1].issues[0].domain = 0;
  EXPECT_EQ(verifyPlan(p).faults.at(0).id, "two-issuers-one-domain");
}

TEST(Plan, MalformedPlansAreRefused) {
  plan::Plan p = mesh();
  p.programs[0].body.children = {issue(3)};
  EXPECT_EQ(verifyPlan(p).faults.at(0).id, "malformed-plan");
  p = mesh();
  p.programs[0].issues = {collective(9, 0)};
  p.programs[0].body.children = {issue(0)};
  EXPECT_EQ(verifyPlan(p).faults.at(0).id, "malformed-plan");
  p = mesh();
  p.domains[0].groups[0][0] = 17;
  EXPECT_EQ(verifyPlan(p).faults.at(0).id, "malformed-plan");
  p = mesh();
  p.world = 0;
  EXPECT_FALSE(verifyPlan(p).valid);
  p = mesh();
  plan::Node deep{plan::Node::Type::Seq};
  for (int i = 0; i < 400; ++i) {
    plan::Node outer{plan::Node::Type::Seq};
    outer.children.push_back(std::move(deep));
    deep = std::move(outer);
  }
  p.programs[0].body = std::move(deep);
  EXPECT_FALSE(verifyPlan(p).valid);
}

TEST(Solve, EmitsEdgesOnlyInsideBlocks) {
  OrderProblem problem;
  problem.world = 4;
  problem.domains = {{"tp", {{0, 1}, {2, 3}}, 0},
                     {"dp", {{0, 2}, {1, 3}}, 0},
                     {"one", {{0}, {1}, {2}, {3}}, 0}};
  ProgramForm f;
  f.name = "main";
  f.ranks = {0, 1, 2, 3};
  f.collective(0, 0, 1);
  f.collective(2, 2, 1); // a domain of one: a bridge
  f.collective(1, 1, 1);
  f.collective(1, 1, 1); // same stream: forced already
  problem.programs.push_back(f);
  OrderSolution s = solve(problem);
  ASSERT_TRUE(s.valid);
  ASSERT_EQ(s.edges.size(), 1u);
  EXPECT_EQ(s.edges[0].from, 0u);
  EXPECT_EQ(s.edges[0].to, 2u);
  EXPECT_FALSE(verify(problem).valid);
  EXPECT_TRUE(verify(apply(problem, s)).valid);
}

TEST(Solve, ContradictionIsReportedWithItsCycle) {
  OrderProblem problem;
  problem.world = 2;
  problem.domains = {{"a", {{0, 1}}, 0}, {"b", {{0, 1}}, 0}};
  ProgramForm x, y;
  x.name = "x";
  x.ranks = {0};
  uint32_t first = x.collective(0, 0, 1);
  x.collective(1, 1, 1, {first});
  y.name = "y";
  y.ranks = {1};
  first = y.collective(1, 0, 1);
  y.collective(0, 1, 1, {first});
  problem.programs = {x, y};
  SolveOptions options;
  options.keepProgramOrder = false;
  OrderSolution s = solve(problem, options);
  ASSERT_FALSE(s.valid);
  ASSERT_EQ(s.faults.size(), 1u);
  EXPECT_EQ(s.faults[0].id, "contradicting-dependences");
  EXPECT_EQ(s.faults[0].chain.size(), 2u);
}

TEST(Blocks, CountsAndBridges) {
  RankGroupGraph g;
  auto add = [&](std::vector<Rank> members) {
    GraphNode n;
    n.members = std::move(members);
    g.nodes.push_back(std::move(n));
  };
  add({0, 1});
  add({1, 2});
  add({2, 3});
  computeBlocks(g);
  EXPECT_TRUE(g.forest());
  EXPECT_EQ(g.blocks, 6u);
  add({3, 0}); // closes the ring
  computeBlocks(g);
  EXPECT_EQ(g.blocks, 1u);
  EXPECT_EQ(g.blockEdges[0], 8u);
  add({3, 4});
  add({4, 5});
  add({4, 5}); // a second block: two groups with two common members
  computeBlocks(g);
  EXPECT_EQ(g.blocks, 4u);
  EXPECT_FALSE(g.forest());
}

TEST(MatchPrograms, InstanceByInstance) {
  using Sets = std::vector<std::vector<ProgramSite>>;
  Sets sets;
  plan::Plan p = twoStages();
  ASSERT_TRUE(matchPrograms(p, sets));
  // Groups of "tp" run one program each.
  EXPECT_EQ(sets, (Sets{{{0, 1}, {1, 1}}, {{0, 2}, {1, 2}}}));
  // Its sites are numbered otherwise, its order is the same.
  std::swap(p.programs[1].issues[0], p.programs[1].issues[2]);
  std::swap(p.programs[1].body.children[0], p.programs[1].body.children[4]);
  std::swap(p.programs[1].body.children[1], p.programs[1].body.children[5]);
  ASSERT_TRUE(matchPrograms(p, sets));
  EXPECT_EQ(sets, (Sets{{{0, 1}, {1, 1}}, {{0, 2}, {1, 0}}}));
  // One program: nothing to match.
  p.programs.pop_back();
  p.programs[0].ranks = {0, 1, 2, 3};
  ASSERT_TRUE(matchPrograms(p, sets));
  EXPECT_TRUE(sets.empty());
}

/// A loop's rounds are matched with those of a loop.
TEST(MatchPrograms, Loops) {
  plan::Plan p = twoStages();
  for (plan::Program &program : p.programs) {
    program.issues[2].count = program.issues[1].count;
    plan::Node loop{plan::Node::Type::Loop};
    loop.tripCount = 4;
    loop.children = {issue(1), wait(1), issue(2), wait(2)};
    program.body.children = {issue(0), wait(0), loop};
  }
  std::vector<std::vector<ProgramSite>> sets;
  ASSERT_TRUE(matchPrograms(p, sets));
  EXPECT_EQ(sets.size(), 2u);
  // One loop after the other: each meets both.
  plan::Node &loop = p.programs[1].body.children[2];
  plan::Node second = loop;
  loop.children.resize(2);
  second.children.erase(second.children.begin(), second.children.begin() + 2);
  p.programs[1].body.children.push_back(second);
  ASSERT_TRUE(matchPrograms(p, sets));
  ASSERT_EQ(sets.size(), 1u);
  EXPECT_EQ(sets[0].size(), 4u);
}

TEST(MatchPrograms, NothingWhereThePlanDoesNotHold) {
  plan::Plan p = twoStages();
  p.programs[1].issues[2].count = 33;
  std::vector<std::vector<ProgramSite>> sets = {{{0, 0}}};
  EXPECT_FALSE(matchPrograms(p, sets));
  EXPECT_TRUE(sets.empty());
}

} // namespace

//===- GateTest.cpp - Several issuers of a rank, in one order -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks as threads, each with a serving and a placement thread on one context.
// Plans are built by hand and ordered by the order library, as comm-order does.
//
//===----------------------------------------------------------------------===//

#include "../TimeScale.h"
#include "Ranks.h"
#include "concord/issuelog.h"
#include "concord/order/Certificate.h"
#include "concord/order/Evidence.h"
#include "concord/plan.h"

#include <barrier>
#include <chrono>
#include <cstdio>
#include <random>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord;
using namespace concord::test;
using plan::Kind;

namespace {

plan::Issue issue(Kind kind, uint32_t domain, uint64_t count = 64) {
  plan::Issue x{};
  x.kind = kind;
  x.domain = domain;
  if (kind == Kind::AllReduce || kind == Kind::ReduceScatter)
    x.reduction = plan::Reduction::Sum;
  if (kind != Kind::Barrier && kind != Kind::RoundDecision) {
    x.dtype = DType::F32;
    x.count = count;
  }
  if (kind == Kind::RoundDecision)
    x.root = 0;
  x.location = "site/" + std::to_string(domain);
  return x;
}

plan::Program program(const char *issuer, int world,
                      std::vector<plan::Issue> issues) {
  plan::Program p;
  p.name = std::string(issuer) + "_main";
  p.issuer = issuer;
  for (int r = 0; r < world; ++r)
    p.ranks.push_back(r);
  p.issues = std::move(issues);
  for (uint32_t i = 0; i < p.issues.size(); ++i) {
    plan::Node node{plan::Node::Type::Issue};
    node.site = i;
    p.body.children.push_back(node);
  }
  return p;
}

/// serving: an all_reduce on "one" in every round; placement: one on "two".
plan::Plan twoIssuers(int world, bool optional) {
  plan::Plan p;
  p.world = uint32_t(world);
  std::vector<int32_t> all;
  for (int r = 0; r < world; ++r)
    all.push_back(r);
  p.domains = {{"ctl", 9, {all}}, {"one", 5, {all}}, {"two", 0, {all}}};
  std::vector<plan::Issue> serving = {issue(Kind::AllReduce, 1)};
  if (optional)
    serving.insert(serving.begin(), issue(Kind::RoundDecision, 0));
  plan::Issue moves = issue(Kind::AllReduce, 2);
  moves.optional = optional;
  p.programs = {program("serving", world, serving),
                program("placement", world, {moves})};
  std::vector<order::Finding> faults;
  EXPECT_TRUE(order::orderRounds(p, faults));
  return p;
}

int32_t load(concord_context *context, const plan::Plan &p) {
  auto bytes = plan::serialize(p);
  return concord_plan_load(context, bytes.data(), bytes.size());
}

/// A communicator of all ranks under the name of a domain.
concord_comm *domain(const Rank &rank, const char *name, int priority = 0) {
  std::vector<int32_t> all;
  for (int r = 0; r < rank.size; ++r)
    all.push_back(r);
  concord_comm_config config{};
  config.struct_size = sizeof config;
  config.name = name;
  config.priority = priority;
  concord_comm *comm = nullptr;
  EXPECT_OK(concord_comm_create_group(rank.context, all.data(),
                                      uint32_t(all.size()), &config, &comm));
  return comm;
}

int32_t allReduce(concord_comm *comm, const float *in, float *out,
                  uint64_t count = 64, concord_stream *stream = nullptr) {
  return concord_all_reduce(comm, in, out, count, CONCORD_DTYPE_F32,
                            CONCORD_REDUCTION_SUM, stream);
}

void multiple(concord_context_config &config) {
  config.thread_level = CONCORD_THREAD_MULTIPLE;
  config.timeout_seconds = scaled(20);
}

std::string lastWords() { return concord_last_error(); }

} // namespace

TEST(Gate, TwoIssuersInOneOrderOnADeviceWithOneSlot) {
  plan::Plan p = twoIssuers(3, false);
  runRanks(
      3,
      [&](Rank &rank) {
        concord_comm *one = domain(rank, "one"), *two = domain(rank, "two");
        ASSERT_OK(load(rank.context, p));
        int32_t mode = 0;
        ASSERT_OK(concord_gate_mode_get(rank.context, &mode));
        EXPECT_EQ(mode, CONCORD_GATE_HOLD);
        constexpr int kRounds = 300;
        auto work = [&](concord_comm *comm, int which) {
          std::vector<float> in(64), out(64);
          std::mt19937 random(uint32_t(rank.rank * 7 + which));
          for (int i = 0; i < kRounds; ++i) {
            in[0] = float(i);
            ASSERT_OK(allReduce(comm, in.data(), out.data()));
            ASSERT_EQ(out[0], 3.0f * float(i));
            if (random() % 64 == 0)
              std::this_thread::yield();
          }
        };
        std::thread placement([&] { work(two, 1); });
        work(one, 0);
        placement.join();
      },
      [](concord_context_config &config) {
        multiple(config);
        config.device_slots = 1;
      });
}

TEST(Gate, OppositeOrdersHangOnOneSlotAndTheChainIsNamed) {
  // No plan: rank 0 issues one, two; rank 1 two, one; the slot makes a cycle.
  std::vector<std::string> said(2);
  std::barrier issued(2);
  testing::internal::CaptureStderr();
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *one = domain(rank, "one"), *two = domain(rank, "two");
        concord_stream *a = nullptr, *b = nullptr;
        ASSERT_OK(concord_stream_create(rank.context, 0, &a));
        ASSERT_OK(concord_stream_create(rank.context, 0, &b));
        std::vector<float> x(64), y(64), u(64), v(64);
        concord_comm *first = rank.rank ? two : one,
                     *second = rank.rank ? one : two;
        ASSERT_OK(allReduce(first, x.data(), y.data(), 64, a));
        ASSERT_OK(allReduce(second, u.data(), v.data(), 64, b));
        issued.arrive_and_wait();
        // The first to give up frees its slot, so the other may get through.
        if (concord_device_synchronize(rank.context) != CONCORD_OK)
          said[size_t(rank.rank)] = lastWords();
      },
      [](concord_context_config &config) {
        config.device_slots = 1;
        // One gives up and says why while the other still waits.
        config.timeout_seconds = scaled(config.rank == 0 ? 0.5 : 20);
      });
  std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("[cross-domain-cycle]"), std::string::npos) << text;
  EXPECT_NE(text.find("a cycle of 4 waits"), std::string::npos) << text;
  EXPECT_NE((said[0] + said[1]).find("CONCORD_TIMEOUT"), std::string::npos)
      << said[0] << said[1];
}

TEST(Gate, RefusesToStartWithoutHold) {
  plan::Plan p = twoIssuers(2, false);
  for (int32_t mode :
       {CONCORD_GATE_OFF, CONCORD_GATE_RECORD, CONCORD_GATE_CHECK})
    runRanks(
        2,
        [&](Rank &rank) {
          EXPECT_EQ(load(rank.context, p), CONCORD_ERROR_INVALID_ARGUMENT);
          EXPECT_NE(lastWords().find("gate=hold"), std::string::npos)
              << lastWords();
        },
        [&](concord_context_config &config) {
          multiple(config);
          config.gate_mode = mode;
        });
  // And once loaded, the mode stays.
  runRanks(
      2,
      [&](Rank &rank) {
        ASSERT_OK(load(rank.context, p));
        EXPECT_EQ(concord_gate_mode_set(rank.context, CONCORD_GATE_CHECK),
                  CONCORD_ERROR_INVALID_ARGUMENT);
        ASSERT_OK(concord_gate_mode_set(rank.context, CONCORD_GATE_DEFAULT));
        int32_t mode = 0;
        ASSERT_OK(concord_gate_mode_get(rank.context, &mode));
        EXPECT_EQ(mode, CONCORD_GATE_HOLD);
      },
      multiple);
}

TEST(Gate, ThreadLevelIsChecked) {
  plan::Plan p = twoIssuers(2, false);
  runRanks(
      2,
      [&](Rank &rank) {
        EXPECT_EQ(load(rank.context, p), CONCORD_ERROR_THREAD);
        EXPECT_NE(lastWords().find("CONCORD_THREAD_MULTIPLE"),
                  std::string::npos);
      },
      [](concord_context_config &config) {
        config.thread_level = CONCORD_THREAD_SERIALIZED;
      });
}

TEST(Gate, ALateIssuerIsNamedAtTheDeadline) {
  plan::Plan p = twoIssuers(2, false);
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *one = domain(rank, "one"), *two = domain(rank, "two");
        ASSERT_OK(load(rank.context, p));
        std::vector<float> in(64), out(64);
        // Round 0 is whole. In round 1 the placement of rank 1 never comes.
        std::thread placement([&] {
          std::vector<float> a(64), b(64);
          ASSERT_OK(concord_issuer_attach(rank.context, "placement"));
          ASSERT_OK(allReduce(two, a.data(), b.data()));
          if (rank.rank == 0)
            EXPECT_NE(allReduce(two, a.data(), b.data()), CONCORD_OK);
          else
            std::this_thread::sleep_for(
                std::chrono::duration<double>(scaled(0.9)));
        });
        ASSERT_OK(allReduce(one, in.data(), out.data()));
        ASSERT_OK(allReduce(one, in.data(), out.data()));
        int32_t status = allReduce(one, in.data(), out.data());
        std::string words = lastWords();
        EXPECT_NE(status, CONCORD_OK);
        if (rank.rank == 1) {
          EXPECT_EQ(status, CONCORD_ERROR_LATE_ISSUER) << words;
          for (const char *part :
               {"'placement'", "site 0", "all_reduce on 'two'", "round 1",
                "has not issued it"})
            EXPECT_NE(words.find(part), std::string::npos)
                << part << ": " << words;
        }
        placement.join();
        // Afterwards nothing waits: the gate says what went wrong first.
        EXPECT_NE(allReduce(one, in.data(), out.data()), CONCORD_OK);
      },
      [](concord_context_config &config) {
        multiple(config);
        config.gate_timeout_seconds = scaled(0.4);
      });
}

TEST(Gate, AnIssuerThatEndsIsNotWaitedFor) {
  plan::Plan p = twoIssuers(2, false);
  for (bool says : {true, false})
    runRanks(
        2,
        [&](Rank &rank) {
          concord_comm *one = domain(rank, "one");
          domain(rank, "two");
          ASSERT_OK(load(rank.context, p));
          std::thread placement([&] {
            ASSERT_OK(concord_issuer_attach(rank.context, "placement"));
            if (says)
              ASSERT_OK(concord_issuer_leave(rank.context, "placement"));
          });
          placement.join();
          std::vector<float> in(64), out(64);
          ASSERT_OK(allReduce(one, in.data(), out.data()));
          // The gate's own deadline is far away.
          EXPECT_EQ(allReduce(one, in.data(), out.data()),
                    CONCORD_ERROR_LATE_ISSUER);
          EXPECT_NE(lastWords().find(says ? "has left" : "has ended"),
                    std::string::npos)
              << lastWords();
        },
        multiple);
}

TEST(Gate, AnAbortEndsEveryWait) {
  // A turn, the round that uses a slot, and the decision that tells of one:
  // rank 0 aborts while all of them are waited for, on both ranks.
  for (bool optional : {false, true}) {
    plan::Plan p = twoIssuers(2, optional);
    std::barrier waiting(2);
    runRanks(
        2,
        [&](Rank &rank) {
          concord_comm *ctl = domain(rank, "ctl"), *one = domain(rank, "one"),
                       *two = domain(rank, "two");
          ASSERT_OK(load(rank.context, p));
          std::vector<float> in(64), out(64), a(64), b(64);
          std::atomic<bool> entered{false};
          std::thread placement;
          if (optional) {
            // Never asked for, so this issue has no round to go into.
            placement = std::thread([&] {
              entered = true;
              EXPECT_EQ(allReduce(two, a.data(), b.data()),
                        CONCORD_ERROR_ABORTED)
                  << lastWords();
            });
          }
          uint64_t bits = 0;
          if (optional)
            ASSERT_OK(concord_round_decision(ctl, 0, &bits));
          ASSERT_OK(allReduce(one, in.data(), out.data()));
          waiting.arrive_and_wait();
          std::thread abort([&] {
            while (optional && !entered)
              std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(60));
            if (rank.rank == 0)
              EXPECT_OK(concord_context_abort(rank.context, "enough"));
          });
          if (!optional) {
            // Placement does not come in round 0, so round 1 cannot begin.
            EXPECT_EQ(allReduce(one, in.data(), out.data()),
                      CONCORD_ERROR_ABORTED)
                << lastWords();
            EXPECT_NE(lastWords().find("aborted"), std::string::npos)
                << lastWords();
          } else {
            uint64_t round = 0;
            EXPECT_EQ(
                concord_slot_wait(rank.context, "placement", 30, &round, &bits),
                CONCORD_ERROR_ABORTED)
                << lastWords();
          }
          abort.join();
          if (placement.joinable())
            placement.join();
          EXPECT_EQ(allReduce(one, in.data(), out.data()),
                    CONCORD_ERROR_ABORTED)
              << lastWords();
        },
        multiple);
  }
}

TEST(Gate, CheckComparesWithThePlan) {
  plan::Plan p = twoIssuers(2, false);
  p.programs.pop_back();
  p.rounds.clear();
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *one = domain(rank, "one");
        ASSERT_OK(load(rank.context, p));
        int32_t mode = 0;
        ASSERT_OK(concord_gate_mode_get(rank.context, &mode));
        EXPECT_EQ(mode, CONCORD_GATE_CHECK);
        std::vector<float> in(64), out(64);
        ASSERT_OK(allReduce(one, in.data(), out.data()));
        // A domain that is not in the plan is not checked in this mode.
        ASSERT_OK(concord_barrier(rank.world, nullptr));
        EXPECT_EQ(allReduce(one, in.data(), out.data(), 32),
                  CONCORD_ERROR_PLAN);
        for (const char *part :
             {"count 64 there", "32 here", "site 0", "'serving'", "site/1"})
          EXPECT_NE(lastWords().find(part), std::string::npos)
              << part << ": " << lastWords();
      },
      [](concord_context_config &config) {
        config.timeout_seconds = scaled(20);
      });
}

TEST(Gate, HoldIssuesOnlyWhatIsPlanned) {
  plan::Plan p = twoIssuers(2, false);
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *other = domain(rank, "other");
        ASSERT_OK(load(rank.context, p));
        EXPECT_EQ(concord_barrier(other, nullptr), CONCORD_ERROR_PLAN);
        EXPECT_NE(lastWords().find("'other'"), std::string::npos);
      },
      multiple);
}

TEST(Gate, OptionalSlotsAreDecidedOnceAndSkippedElse) {
  plan::Plan p = twoIssuers(2, true);
  constexpr int kRounds = 400;
  std::atomic<int> moved[2] = {};
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *ctl = domain(rank, "ctl"), *one = domain(rank, "one"),
                     *two = domain(rank, "two");
        ASSERT_OK(load(rank.context, p));
        std::thread placement([&] {
          // Started late: nothing is granted before.
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
          std::vector<float> a(64), b(64);
          for (;;) {
            uint64_t round = 0, bits = 0;
            int32_t status =
                concord_slot_wait(rank.context, "placement", 10, &round, &bits);
            if (status != CONCORD_OK) {
              EXPECT_EQ(status, CONCORD_ERROR_LATE_ISSUER) << lastWords();
              return;
            }
            EXPECT_EQ(bits, 1u);
            a[0] = float(round);
            ASSERT_OK(allReduce(two, a.data(), b.data()));
            ASSERT_EQ(b[0], 2.0f * float(round)); // both in the same round
            ++moved[rank.rank];
          }
        });
        std::mt19937 random(5);
        std::vector<float> in(64), out(64);
        for (int i = 0; i < kRounds; ++i) {
          if (rank.rank == 0 && random() % 8 == 0)
            ASSERT_OK(concord_slot_request(rank.context, "placement", 0));
          uint64_t bits = 0;
          ASSERT_OK(concord_round_decision(ctl, 0, &bits));
          in[0] = float(i);
          ASSERT_OK(allReduce(one, in.data(), out.data()));
          ASSERT_EQ(out[0], 2.0f * float(i));
          if (i % 16 == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ASSERT_OK(concord_issuer_leave(rank.context, "serving"));
        placement.join();
      },
      multiple);
  EXPECT_GT(moved[0], 0);
  EXPECT_EQ(moved[0], moved[1]);
}

TEST(Gate, SlotsAreAskedForWhereTheyAreDecided) {
  plan::Plan p = twoIssuers(2, true);
  runRanks(
      2,
      [&](Rank &rank) {
        EXPECT_EQ(concord_slot_request(rank.context, "placement", 0),
                  CONCORD_ERROR_INVALID_ARGUMENT); // no plan
        ASSERT_OK(load(rank.context, p));
        EXPECT_EQ(concord_slot_request(rank.context, "nobody", 0),
                  CONCORD_ERROR_NOT_FOUND);
        EXPECT_EQ(concord_slot_request(rank.context, "placement", 2),
                  CONCORD_ERROR_INVALID_ARGUMENT);
        int32_t status = concord_slot_request(rank.context, "placement", 1);
        EXPECT_EQ(status,
                  rank.rank == 0 ? CONCORD_OK : CONCORD_ERROR_INVALID_ARGUMENT);
        uint64_t round = 0, bits = 0;
        EXPECT_EQ(
            concord_slot_wait(rank.context, "placement", 0, &round, &bits),
            CONCORD_ERROR_NOT_READY);
        EXPECT_EQ(concord_slot_wait(rank.context, "serving", 0, &round, &bits),
                  CONCORD_ERROR_INVALID_ARGUMENT);
      },
      multiple);
}

TEST(Gate, TransfersInGroupsAndAlone) {
  plan::Plan p;
  p.world = 2;
  p.domains = {{"pp", 0, {{0, 1}}}};
  plan::Issue send = issue(Kind::Send, 0), recv = issue(Kind::Recv, 0),
              group = issue(Kind::Group, 0), lone = issue(Kind::Send, 0),
              taken = issue(Kind::Recv, 0);
  send.pairs = {{0, 1}, {1, 0}};
  recv.pairs = {{0, 1}, {1, 0}};
  lone.pairs = {{1, 0}};
  taken.pairs = {{1, 0}};
  group.dtype = DType::Invalid;
  group.count = 0;
  group.members = {0, 1};
  plan::Program main = program("", 2, {send, recv, lone, taken, group});
  main.body.children.clear();
  for (uint32_t site : {4u, 2u, 3u}) {
    plan::Node node{plan::Node::Type::Issue};
    node.site = site;
    main.body.children.push_back(node);
  }
  p.programs = {main};
  runRanks(2, [&](Rank &rank) {
    concord_comm *pp = domain(rank, "pp");
    ASSERT_OK(load(rank.context, p));
    ASSERT_OK(concord_gate_mode_set(rank.context, CONCORD_GATE_HOLD));
    std::vector<float> a(64, float(rank.rank)), b(64);
    int32_t peer = 1 - rank.rank;
    concord_p2p both[2] = {{1, peer, a.data(), 64, CONCORD_DTYPE_F32},
                           {0, peer, b.data(), 64, CONCORD_DTYPE_F32}};
    for (int i = 0; i < 3; ++i) {
      ASSERT_OK(concord_batch_p2p(pp, both, 2, nullptr));
      EXPECT_EQ(b[0], float(peer));
      ASSERT_OK(
          rank.rank
              ? concord_send(pp, a.data(), 64, CONCORD_DTYPE_F32, 0, nullptr)
              : concord_recv(pp, b.data(), 64, CONCORD_DTYPE_F32, 1, nullptr));
    }
    // A group where the plan has one, and no transfer alone.
    EXPECT_EQ(concord_send(pp, a.data(), 64, CONCORD_DTYPE_F32, peer, nullptr),
              CONCORD_ERROR_PLAN);
  });
}

TEST(Gate, DifferentPlansAreBisectedToTheFirstSite) {
  std::string text[2];
  runRanks(2, [&](Rank &rank) {
    plan::Plan p = twoIssuers(2, false);
    p.programs.pop_back();
    p.rounds.clear();
    for (int i = 0; i < 40; ++i)
      p.programs[0].issues.push_back(issue(Kind::AllReduce, 1));
    if (rank.rank == 1)
      p.programs[0].issues[17].count = 65;
    EXPECT_EQ(load(rank.context, p), CONCORD_ERROR_PLAN_DIFFERS);
    text[rank.rank] = lastWords();
  });
  for (const std::string &words : text)
    EXPECT_NE(words.find("site 17 of program 'serving_main'"),
              std::string::npos)
        << words;
}

TEST(Gate, ModesDifferAndBrokenPlansAreEverybodysError) {
  plan::Plan p = twoIssuers(2, false);
  p.programs.pop_back();
  p.rounds.clear();
  runRanks(
      2,
      [&](Rank &rank) {
        EXPECT_EQ(load(rank.context, p), CONCORD_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(lastWords().find("mode is one for the job"),
                  std::string::npos)
            << lastWords();
        auto bytes = plan::serialize(p);
        if (rank.rank == 1)
          bytes.resize(bytes.size() - 1);
        EXPECT_EQ(concord_plan_load(rank.context, bytes.data(), bytes.size()),
                  CONCORD_ERROR_CORRUPT);
      },
      [](concord_context_config &config) {
        config.gate_mode =
            config.rank ? CONCORD_GATE_RECORD : CONCORD_GATE_CHECK;
      });
}

TEST(Gate, JsonIsTheSamePlan) {
  plan::Plan p = twoIssuers(2, true);
  std::string json = plan::toJson(p);
  plan::Plan back;
  std::string error;
  ASSERT_TRUE(plan::parseJson(json, back, error)) << error;
  EXPECT_EQ(plan::digest(back), plan::digest(p));
  EXPECT_EQ(plan::toJson(back), json);
  // An edit is noticed.
  std::string edited = json;
  size_t at = edited.find("\"count\":64");
  ASSERT_NE(at, std::string::npos);
  edited.replace(at, 10, "\"count\":65");
  EXPECT_FALSE(plan::parseJson(edited, back, error));
  EXPECT_NE(error.find("digest"), std::string::npos) << error;
  for (size_t cut = 0; cut < json.size(); cut += 7)
    EXPECT_FALSE(plan::parseJson(json.substr(0, cut), back, error));
  runRanks(
      2,
      [&](Rank &rank) {
        ASSERT_OK(concord_plan_load(rank.context, json.data(), json.size()));
        EXPECT_EQ(concord_plan_load_file(rank.context, "/no/such/file"),
                  CONCORD_ERROR_CORRUPT);
        EXPECT_NE(lastWords().find("/no/such/file"), std::string::npos);
      },
      multiple);
}

TEST(Gate, WithoutRoundsSeveralIssuersAreRefused) {
  plan::Plan p = twoIssuers(2, false);
  p.rounds.clear();
  runRanks(
      2,
      [&](Rank &rank) {
        EXPECT_EQ(load(rank.context, p), CONCORD_ERROR_PLAN);
        EXPECT_NE(lastWords().find("run comm-order"), std::string::npos);
      },
      multiple);
}

TEST(Gate, RecordLeavesALogThatTheDoctorReads) {
  namespace evidence = order::evidence;
  std::string folder =
      testing::TempDir() + "concord-gate-log-" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0755), 0);
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *one = domain(rank, "one");
        std::vector<float> in(64), out(64);
        for (int i = 0; i < 3; ++i)
          ASSERT_OK(allReduce(one, in.data(), out.data()));
        // Nothing is compared in this mode: different counts go unnoticed.
        ASSERT_OK(rank.rank ? concord_send(one, in.data(), 64,
                                           CONCORD_DTYPE_F32, 0, nullptr)
                            : concord_recv(one, out.data(), 64,
                                           CONCORD_DTYPE_F32, 1, nullptr));
        std::string path =
            folder + "/rank_" + std::to_string(rank.rank) + ".issues";
        ASSERT_OK(concord_issue_log_write(rank.context, path.c_str()));
      },
      [](concord_context_config &config) {
        config.gate_mode = CONCORD_GATE_RECORD;
      });
  std::vector<evidence::ReadError> errors;
  evidence::Job job = evidence::readEvidence({folder}, {}, errors);
  EXPECT_TRUE(errors.empty());
  ASSERT_EQ(job.ranks.size(), 2u);
  for (auto &[rank, own] : job.ranks) {
    // The barriers of two communicators come first.
    ASSERT_EQ(own.issues.size(), 6u) << rank;
    EXPECT_EQ(job.strings[own.issues[2].signature], "all_reduce(n=64,F32,sum)");
    EXPECT_EQ(job.domains[job.sequences[own.issues[2].sequence].domain].name,
              "one");
    EXPECT_EQ(job.sequences[own.issues[5].sequence].source, 1);
    for (const evidence::Issue &issue : own.issues)
      EXPECT_EQ(issue.state, evidence::State::Completed);
  }
  EXPECT_TRUE(evidence::diagnose(job).findings.empty());

  // Damaged logs are refused, or read as far as they make sense.
  std::string path = folder + "/rank_0.issues", bytes, error;
  std::FILE *file = std::fopen(path.c_str(), "rb");
  ASSERT_TRUE(file);
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    bytes.append(buffer, n);
  std::fclose(file);
  evidence::Job none;
  EXPECT_FALSE(evidence::readIssueLog(
      std::string_view(bytes).substr(0, bytes.size() / 2), path, none, error));
  std::mt19937 random(3);
  // Where something stands: the header, and the records at the end.
  size_t records = bytes.size() - issuelog::kRecords * 64;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 4; ++k) {
      size_t at = random() % 2 ? random() % 512 : records + random() % 512;
      damaged[at] = char(random());
    }
    evidence::Job read;
    if (evidence::readIssueLog(damaged, path, read, error))
      evidence::diagnose(read);
    else
      EXPECT_FALSE(error.empty());
  }
  for (const char *name : {"/rank_0.issues", "/rank_1.issues"})
    ::unlink((folder + name).c_str());
  ::rmdir(folder.c_str());
}

TEST(Gate, StateInWords) {
  runRanks(
      2,
      [&](Rank &rank) {
        concord_stream *stream = nullptr;
        concord_comm *one = domain(rank, "one");
        ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
        std::vector<float> in(64), out(64);
        if (rank.rank == 0) {
          ASSERT_OK(allReduce(one, in.data(), out.data(), 64, stream));
          std::FILE *file = std::tmpfile();
          ASSERT_OK(concord_state_print(rank.context, fileno(file)));
          std::rewind(file);
          char text[2048] = {};
          ASSERT_GT(std::fread(text, 1, sizeof text - 1, file), 0u);
          std::fclose(file);
          EXPECT_NE(std::string(text).find("all_reduce of 'one', instance 1"),
                    std::string::npos)
              << text;
        }
        ASSERT_OK(concord_barrier(rank.world, nullptr));
        if (rank.rank == 1)
          ASSERT_OK(allReduce(one, in.data(), out.data(), 64, stream));
        ASSERT_OK(concord_device_synchronize(rank.context));
      },
      [](concord_context_config &config) {
        config.timeout_seconds = scaled(20);
      });
}

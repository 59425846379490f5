//===- RoundsTest.cpp - Schedules of collectives between hosts ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every schedule is carried out with expressions for values: everybody ends
// with what the kind promises, each input is taken once, all have the same
// expression (the same bits), and what the cost model counts is what the
// schedule does.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Rounds.h"
#include "diagnosis/Error.h"
#include "engine/Op.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <map>

using namespace concord;
using namespace concord::rt;
using plan::Kind;

namespace {

constexpr Kind kKinds[] = {Kind::AllReduce, Kind::ReduceScatter,
                           Kind::AllGather, Kind::Broadcast, Kind::Reduce};
constexpr Form kForms[] = {Form::Pairwise, Form::Ring, Form::Recursive,
                           Form::Halving, Form::Tree};

bool isReduction(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::ReduceScatter ||
         kind == Kind::Reduce;
}

/// What a run of a schedule took on its longest path.
struct Taken {
  int rounds = 0;
  double messages = 0, arrays = 0; ///< beyond one in a round; of all blocks
};

struct Trial {
  int size;
  std::vector<std::vector<Transfer>> lists;
  /// By participant and block: "(0+1)", or "" for nothing.
  std::vector<std::vector<std::string>> values;
  Taken taken;

  Trial(Kind kind, Form form, int size, int root) : size(size) {
    lists.resize(size_t(size));
    values.assign(size_t(size), std::vector<std::string>(size_t(size)));
    for (int me = 0; me < size; ++me) {
      EXPECT_TRUE(makeRounds(kind, form, size, me, root, lists[size_t(me)]));
      EXPECT_LE(int(lists[size_t(me)].size()), mostTransfers(size));
      for (int block = 0; block < size; ++block)
        if (isReduction(kind) || (kind == Kind::AllGather && block == me) ||
            (kind == Kind::Broadcast && me == root))
          at(me, block) = isReduction(kind) ? std::to_string(me) : "x";
    }
    go();
  }
  std::string &at(int who, int block) {
    return values[size_t(who)][size_t(block)];
  }

  /// Each participant posts its round, waits for it, and begins the next; a
  /// pair's messages keep their order.
  void go() {
    using Message = std::vector<std::string>;
    std::map<std::pair<int, int>, std::deque<Message>> links;
    std::vector<size_t> next(size_t(size), 0);
    std::vector<bool> sent(size_t(size), false);
    for (bool moved = true; moved;) {
      moved = false;
      for (int me = 0; me < size; ++me) {
        auto &list = lists[size_t(me)];
        size_t begin = next[size_t(me)], end = begin;
        while (end < list.size() && list[end].round == list[begin].round)
          ++end;
        if (begin == end)
          continue;
        std::map<std::pair<int, bool>, int> each;
        for (size_t i = begin; i < end; ++i) {
          EXPECT_EQ(++each[std::make_pair(int(list[i].peer), list[i].sends)],
                    1);
          EXPECT_LT(list[i].first, list[i].last);
          EXPECT_LE(list[i].last, size);
        }
        if (!sent[size_t(me)]) {
          for (size_t i = begin; i < end; ++i)
            if (list[i].sends)
              links[{me, list[i].peer}].push_back(
                  Message(values[size_t(me)].begin() + list[i].first,
                          values[size_t(me)].begin() + list[i].last));
          sent[size_t(me)] = moved = true;
        }
        bool all = true;
        for (size_t i = begin; i < end; ++i)
          all &= list[i].sends || !links[{list[i].peer, me}].empty();
        if (!all)
          continue;
        finish(me, begin, end, links);
        next[size_t(me)] = end;
        sent[size_t(me)] = false;
        moved = true;
      }
    }
    for (int me = 0; me < size; ++me)
      EXPECT_EQ(next[size_t(me)], lists[size_t(me)].size()) << "stuck: " << me;
    for (auto &[pair, queue] : links)
      EXPECT_TRUE(queue.empty()) << pair.first << " to " << pair.second;
    count();
  }

  template <typename Links>
  void finish(int me, size_t begin, size_t end, Links &links) {
    std::map<int, std::vector<std::string>> sums;
    int first = -1, last = -1;
    for (size_t i = begin; i < end; ++i) {
      const Transfer &t = lists[size_t(me)][i];
      if (t.sends)
        continue;
      auto &queue = links[{t.peer, me}];
      auto message = queue.front();
      queue.pop_front();
      EXPECT_EQ(message.size(), size_t(t.last - t.first));
      if (t.reduces) {
        EXPECT_TRUE(first < 0 || (first == t.first && last == t.last));
        first = t.first;
        last = t.last;
        sums[t.peer] = message;
        continue;
      }
      for (size_t k = 0; k < message.size(); ++k)
        if (!message[k].empty())
          at(me, t.first + int(k)) = message[k];
    }
    for (int block = first; block < last; ++block) {
      sums[me] = {};
      std::string text;
      for (auto &[peer, message] : sums)
        text += (text.empty() ? "(" : "+") +
                (peer == me ? at(me, block) : message[size_t(block - first)]);
      at(me, block) = text + ")";
    }
  }

  void count() {
    std::map<int, std::vector<int>> messages, blocks; // by round, participant
    for (int me = 0; me < size; ++me)
      for (const Transfer &t : lists[size_t(me)]) {
        auto &m = messages[t.round], &b = blocks[t.round];
        m.resize(size_t(2 * size));
        b.resize(size_t(2 * size));
        m[size_t(2 * me + t.sends)] += 1;
        b[size_t(2 * me + t.sends)] += t.last - t.first;
      }
    taken.rounds = int(messages.size());
    for (auto &[round, m] : messages)
      taken.messages += *std::max_element(m.begin(), m.end()) - 1;
    for (auto &[round, b] : blocks)
      taken.arrays += double(*std::max_element(b.begin(), b.end())) / size;
  }
};

std::string asText(Kind kind, Form form, int size, int root) {
  return std::string(kindName(kind)) + " " + formText(form) + " of " +
         std::to_string(size) + ", root " + std::to_string(root);
}

} // namespace

/// Of the engine, which is not linked here.
const char *concord::rt::kindName(Kind kind) {
  static const char *const kNames[] = {"?", "all_reduce", "all_gather",
                                       "reduce_scatter", "all_to_all"};
  return int(kind) < 5             ? kNames[int(kind)]
         : kind == Kind::Broadcast ? "broadcast"
         : kind == Kind::Reduce    ? "reduce"
                                   : "another";
}

TEST(Rounds, EverybodyEndsWithWhatIsPromised) {
  for (int size = 2; size <= 17; ++size)
    for (Kind kind : kKinds)
      for (Form form : kForms)
        for (int root : {0, 1, size - 1}) {
          if (!formExists(form, kind))
            continue;
          SCOPED_TRACE(asText(kind, form, size, root));
          Trial run(kind, form, size, root);
          if (testing::Test::HasFailure())
            return;
          std::vector<std::string> first(static_cast<size_t>(size));
          for (int me = 0; me < size; ++me)
            for (int block = 0; block < size; ++block) {
              if ((kind == Kind::ReduceScatter && block != me) ||
                  (kind == Kind::Reduce && me != root))
                continue;
              const std::string &value = run.at(me, block);
              if (!isReduction(kind)) {
                ASSERT_EQ(value, "x") << me << " " << block;
                continue;
              }
              // Every input once.
              std::vector<int> seen(static_cast<size_t>(size));
              for (size_t i = 0; i < value.size();)
                if (std::isdigit(value[i])) {
                  size_t used = 0;
                  ++seen.at(size_t(std::stoi(value.substr(i), &used)));
                  i += used;
                } else {
                  ++i;
                }
              for (int who = 0; who < size; ++who)
                ASSERT_EQ(seen[size_t(who)], 1) << value;
              // All the same.
              if (first[size_t(block)].empty())
                first[size_t(block)] = value;
              ASSERT_EQ(value, first[size_t(block)]);
            }
        }
}

TEST(Rounds, TheOrderIsTheDocumentedOne) {
  // docs/algorithms.md.
  EXPECT_EQ(Trial(Kind::AllReduce, Form::Pairwise, 3, 0).at(2, 1), "(0+1+2)");
  EXPECT_EQ(Trial(Kind::AllReduce, Form::Recursive, 4, 0).at(3, 1),
            "((0+1)+(2+3))");
  EXPECT_EQ(Trial(Kind::AllReduce, Form::Recursive, 3, 0).at(1, 1),
            "((0+1)+2)");
  EXPECT_EQ(Trial(Kind::AllReduce, Form::Halving, 4, 0).at(3, 1),
            "((0+2)+(1+3))");
  // Block 1 begins at host 2 and ends at host 1.
  EXPECT_EQ(Trial(Kind::AllReduce, Form::Ring, 4, 0).at(3, 1), "((0+(2+3))+1)");
  EXPECT_EQ(Trial(Kind::Reduce, Form::Tree, 4, 0).at(0, 2), "((0+1)+(2+3))");
}

TEST(Rounds, CostsCountWhatTheSchedulesDo) {
  for (int size = 2; size <= 17; ++size)
    for (Kind kind : kKinds)
      for (Form form : kForms) {
        if (!formExists(form, kind)) {
          EXPECT_LT(secondsOfRounds(kind, form, size, 1, {1, 1, 1}), 0);
          continue;
        }
        SCOPED_TRACE(asText(kind, form, size, 0));
        Taken taken = Trial(kind, form, size, 0).taken;
        EXPECT_NEAR(secondsOfRounds(kind, form, size, 1, {1, 0, 0}),
                    taken.rounds, 1e-9);
        EXPECT_NEAR(secondsOfRounds(kind, form, size, 1, {0, 1, 0}),
                    taken.messages, 1e-9);
        // Where pairs stand for one, their blocks are longer.
        EXPECT_NEAR(secondsOfRounds(kind, form, size, 1, {0, 0, 1}),
                    taken.arrays, size & (size - 1) ? 0.7 : 1e-9);
      }
}

TEST(Rounds, TheCheapestDependsOnSize) {
  Link link{30e-6, 4e-6, 8e-10};
  EXPECT_EQ(cheapestRounds(Kind::AllReduce, 2, 64, link), Form::Recursive);
  EXPECT_EQ(cheapestRounds(Kind::AllReduce, 4, 64, link), Form::Recursive);
  EXPECT_EQ(cheapestRounds(Kind::AllReduce, 4, 8 << 20, link), Form::Pairwise);
  EXPECT_EQ(cheapestRounds(Kind::Broadcast, 8, 64, link), Form::Pairwise);
  EXPECT_EQ(cheapestRounds(Kind::Broadcast, 8, 64 << 10, link), Form::Tree);
  EXPECT_EQ(cheapestRounds(Kind::Broadcast, 8, 64 << 20, link), Form::Ring);
}

TEST(Rounds, LinksAreParsed) {
  Link link = parseLink("30us,10gbit");
  EXPECT_DOUBLE_EQ(link.latency, 30e-6);
  EXPECT_DOUBLE_EQ(link.byte, 8e-10);
  EXPECT_GT(link.message, 0);
  link = parseLink("1.5ms,500ns,200mbit");
  EXPECT_DOUBLE_EQ(link.latency, 1.5e-3);
  EXPECT_DOUBLE_EQ(link.message, 5e-7);
  EXPECT_DOUBLE_EQ(link.byte, 4e-8);
  for (const char *text :
       {"", "30us", "30us,", ",10gbit", "30,10gbit", "30us,10", "-1us,10gbit",
        "0us,10gbit", "30us,nan gbit", "1us,1us,1us,1gbit", "30us,10gbit,",
        "10gbit,30us", "infus,1gbit"})
    EXPECT_THROW(parseLink(text), Error) << text;
}

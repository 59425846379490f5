//===- TogetherTest.cpp - Equal offsets in several arenas -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/memory/Together.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace concord::memory {
namespace {

using Arenas = std::vector<std::vector<Buffer>>;
using Sets = std::vector<std::vector<Member>>;
constexpr double kGrowth = 1.05;

int64_t limitOf(const std::vector<Buffer> &buffers) {
  return std::max(place(buffers).bytes,
                  static_cast<int64_t>(
                      kGrowth * static_cast<double>(largestLiveSet(buffers))));
}

JointPlacement placed(const Arenas &arenas, const Sets &sets) {
  JointPlacement placement = placeTogether(arenas, sets, kGrowth);
  EXPECT_EQ(verify(arenas, sets, placement), "");
  for (size_t a = 0; a < arenas.size(); ++a)
    EXPECT_LE(placement.arenas[a].bytes, limitOf(arenas[a]));
  return placement;
}

/// Whether all sets, which share no buffer, can lie at equal offsets within
/// the limits: some order of classes and buffers, each at its lowest place,
/// shows it if so (that of rising offsets).
bool possible(const Arenas &arenas, const Sets &sets) {
  struct Item {
    std::vector<Member> members;
    int64_t at = 0;
  };
  std::vector<Item> items;
  std::vector<int64_t> limits;
  Sets rest = sets;
  for (uint32_t a = 0; a < arenas.size(); ++a) {
    limits.push_back(limitOf(arenas[a]));
    for (uint32_t b = 0; b < arenas[a].size(); ++b)
      if (std::none_of(sets.begin(), sets.end(), [&](auto &set) {
            return std::find(set.begin(), set.end(), Member{a, b}) != set.end();
          }))
        rest.push_back({{a, b}});
  }
  for (auto &members : rest)
    items.push_back({members});
  auto buffer = [&](const Member &m) { return arenas[m.arena][m.buffer]; };
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    bool fits = true;
    for (size_t i = 0; fits && i < order.size(); ++i) {
      Item &item = items[order[i]];
      item.at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t j = 0; j < i; ++j)
          for (const Member &theirs : items[order[j]].members)
            for (const Member &mine : item.members)
              if (mine.arena == theirs.arena &&
                  buffer(mine).meets(buffer(theirs)) &&
                  item.at < items[order[j]].at + buffer(theirs).bytes &&
                  items[order[j]].at < item.at + buffer(mine).bytes) {
                item.at = items[order[j]].at + buffer(theirs).bytes;
                moved = true;
              }
      }
      for (const Member &mine : item.members)
        fits &= item.at + buffer(mine).bytes <= limits[mine.arena];
    }
    if (fits)
      return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

TEST(Together, NothingToDo) {
  JointPlacement p = placed({{{0, 1, 8}, {1, 2, 8}}, {}}, {});
  EXPECT_EQ(p.arenas[0].bytes, 16);
  EXPECT_EQ(p.arenas[1].bytes, 0);
}

/// By itself each would put it elsewhere.
TEST(Together, OneOffset) {
  Arenas arenas = {{{0, 1, 64}, {0, 5, 128}}, {{0, 4, 64}}};
  Sets sets = {{{0, 0}, {1, 0}}};
  JointPlacement p = placed(arenas, sets);
  EXPECT_EQ(p.sets[0], Apart::No);
  EXPECT_EQ(p.arenas[0].bytes, 192);
  EXPECT_EQ(p.arenas[1].bytes, 64);
  EXPECT_STREQ(p.arenas[1].rule, "equal-offsets");
}

/// Two arenas with the same two buffers, live one after the other in one of
/// them: the one with the larger peak decides.
TEST(Together, ConflictsOfAnyArenaCount) {
  Arenas arenas = {{{0, 1, 64}, {1, 2, 64}},
                   {{0, 0, 64}, {1, 1, 64}, {0, 1, 64}}};
  Sets sets = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
  JointPlacement p = placed(arenas, sets);
  EXPECT_EQ(std::count(p.sets.begin(), p.sets.end(), Apart::No), 1);
  EXPECT_EQ(std::count(p.sets.begin(), p.sets.end(), Apart::LargerArena), 1);
  // Room for both apart.
  arenas[1].push_back({2, 2, 192});
  p = placed(arenas, sets);
  EXPECT_EQ(p.sets, (std::vector<Apart>{Apart::No, Apart::No}));
  EXPECT_EQ(p.arenas[1].bytes, 192);
}

/// In place in one program, from one buffer to another in the other one.
TEST(Together, TwoThatLiveAtOnceAreNotOne) {
  Arenas arenas = {{{0, 3, 64}}, {{0, 1, 64}, {1, 2, 64}}};
  Sets sets = {{{0, 0}, {1, 0}}, {{0, 0}, {1, 1}}};
  JointPlacement p = placed(arenas, sets);
  EXPECT_EQ(p.sets, (std::vector<Apart>{Apart::No, Apart::LiveTogether}));
  // One after another: one offset for all three.
  arenas[1] = {{0, 1, 64}, {2, 3, 64}};
  p = placed(arenas, sets);
  EXPECT_EQ(p.sets, (std::vector<Apart>{Apart::No, Apart::No}));
}

TEST(Together, TheLimitIsKept) {
  // Only 64 bytes are allowed beyond nothing: what would grow stays apart.
  Arenas arenas = {{{0, 1, 640}, {0, 1, 640}}, {{0, 0, 640}, {1, 1, 640}}};
  Sets sets = {{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}};
  JointPlacement loose = placeTogether(arenas, sets, 2.0);
  EXPECT_EQ(loose.sets, (std::vector<Apart>{Apart::No, Apart::No}));
  JointPlacement limited = placeTogether(arenas, sets, 2.0, 1000);
  EXPECT_EQ(verify(arenas, sets, limited), "");
  EXPECT_EQ(limited.arenas[1].bytes, 640);
  EXPECT_EQ(std::count(limited.sets.begin(), limited.sets.end(), Apart::No), 1);
}

/// As trying all says: where all sets can be equal they are, and none that is
/// apart could be equal beside those that are.
TEST(Together, SmallOnesAreAsTryingAllSays) {
  std::mt19937 random(4);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int can = 0, cannot = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Arenas arenas(static_cast<size_t>(pick(2, 3)));
    auto count = static_cast<size_t>(pick(1, 3));
    Sets sets(count);
    for (uint32_t a = 0; a < arenas.size(); ++a) {
      for (uint32_t s = 0; s < count; ++s) {
        int64_t first = pick(0, 5);
        arenas[a].push_back(
            {first, first + pick(0, 3), a ? arenas[0][s].bytes : pick(1, 9)});
        if (a < 2 || pick(0, 1))
          sets[s].push_back({a, s});
      }
      for (int64_t more = pick(0, arenas.size() == 2 ? 2 : 1); more > 0;
           --more) {
        int64_t first = pick(0, 5);
        arenas[a].push_back({first, first + pick(0, 3), pick(1, 9)});
      }
    }
    JointPlacement p = placed(arenas, sets);
    bool all = std::count(p.sets.begin(), p.sets.end(), Apart::No) ==
               static_cast<int64_t>(count);
    ASSERT_EQ(all, possible(arenas, sets)) << trial;
    for (size_t left = 0; left < count; ++left) {
      Sets more;
      for (size_t s = 0; s < count; ++s)
        if (s == left || p.sets[s] == Apart::No)
          more.push_back(sets[s]);
      if (p.sets[left] != Apart::No) {
        ASSERT_FALSE(possible(arenas, more)) << trial << ", set " << left;
      }
    }
    ++(all ? can : cannot);
  }
  EXPECT_GT(can, 100);
  EXPECT_GT(cannot, 30);
}

/// Programs of hundreds of buffers, most of whose sets have a common offset.
TEST(Together, RandomPrograms) {
  std::mt19937 random(21);
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int64_t equal = 0, total = 0;
  for (int trial = 0; trial < 12; ++trial) {
    Arenas arenas(static_cast<size_t>(pick(2, 4)));
    Sets sets;
    int64_t times = 300;
    for (std::vector<Buffer> &buffers : arenas)
      for (int64_t i = pick(50, 300); i > 0; --i) {
        int64_t first = pick(0, times);
        buffers.push_back({first, first + pick(1, 12), 64 * pick(1, 40)});
      }
    for (int64_t t = 0; t < times; t += 8) {
      std::vector<Member> set;
      int64_t bytes = 64 * pick(1, 20);
      for (uint32_t a = 0; a < arenas.size(); ++a) {
        set.push_back({a, static_cast<uint32_t>(arenas[a].size())});
        int64_t first = t + pick(0, 20);
        arenas[a].push_back({first, first + pick(1, 6), bytes});
      }
      // Some share a buffer with the one before.
      if (!sets.empty() && pick(0, 5) == 0)
        set.front() = sets.back().front();
      sets.push_back(set);
    }
    JointPlacement p = placed(arenas, sets);
    EXPECT_EQ(placeTogether(arenas, sets, kGrowth).sets, p.sets);
    equal += std::count(p.sets.begin(), p.sets.end(), Apart::No);
    total += static_cast<int64_t>(sets.size());
  }
  EXPECT_GT(10 * equal, 8 * total) << equal << " of " << total;
}

TEST(Together, VerifyFindsWhatIsWrong) {
  Arenas arenas = {{{0, 1, 8}}, {{0, 1, 8}, {1, 2, 8}}};
  Sets sets = {{{0, 0}, {1, 1}}};
  JointPlacement p = placed(arenas, sets);
  ASSERT_EQ(p.sets[0], Apart::No);
  JointPlacement moved = p;
  moved.arenas[0].offsets[0] += 8;
  moved.arenas[0].bytes += 8;
  EXPECT_EQ(verify(arenas, sets, moved), "the members of set 0 are apart");
  moved.arenas[1].offsets = {0, 4};
  EXPECT_EQ(verify(arenas, sets, moved), "arena 1: buffers 0 and 1 overlap");
}

} // namespace
} // namespace concord::memory

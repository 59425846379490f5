//===- PackingTest.cpp - How payloads go into slots -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "algorithms/Packing.h"

#include <gtest/gtest.h>

using namespace concord::rt;

namespace {

/// `count` payloads, which take so many nanoseconds per 4 KiB; how many of them
/// were not packed in the faster way, as it was known then.
int pack(Packing &packing, int count, int64_t throughCaches, int64_t past,
         uint64_t bytes = 4096) {
  int others = 0;
  for (int i = 0; i < count; ++i) {
    bool timed;
    bool way = packing.next(bytes, timed);
    others += way != packing.past(bytes);
    if (timed)
      packing.note(way, (way ? past : throughCaches) * int64_t(bytes / 4096),
                   bytes);
  }
  return others;
}

} // namespace

TEST(Packing, FollowsTheFasterWay) {
  Packing packing(/*whole=*/false);
  EXPECT_TRUE(packing.past(4096)); // what costs less where it is the wrong one
  pack(packing, 200, 150, 400);
  EXPECT_FALSE(packing.past(4096));
  EXPECT_LE(pack(packing, 100'000, 150, 400), 300);
  // The cores have been moved apart, and together again.
  pack(packing, 40'000, 3000, 450);
  EXPECT_TRUE(packing.past(4096));
  pack(packing, 80'000, 150, 400);
  EXPECT_FALSE(packing.past(4096));
  // Not much is gained, and readers would lose it.
  pack(packing, 40'000, 320, 400);
  EXPECT_TRUE(packing.past(4096));
}

TEST(Packing, ReadingIncludedTheLesserTimeDecides) {
  Packing packing(/*whole=*/true);
  pack(packing, 1000, 390, 400);
  EXPECT_FALSE(packing.past(4096));
  pack(packing, 40'000, 410, 400);
  EXPECT_TRUE(packing.past(4096));
}

TEST(Packing, SizesAreJudgedApart) {
  Packing packing(/*whole=*/true);
  pack(packing, 1000, 150, 400);
  pack(packing, 1000, 500, 400, 64 << 20);
  EXPECT_FALSE(packing.past(4096));
  EXPECT_TRUE(packing.past(64 << 20));
  EXPECT_TRUE(packing.past(uint64_t(1) << 40)); // as what is large
  EXPECT_FALSE(packing.past(1));                // as what is small
}

// Members that call for the same operations try the same way at the same time,
// whatever each has measured.
TEST(Packing, MembersTryTogether) {
  Packing one(/*whole=*/true), other(/*whole=*/true);
  for (int i = 0; i < 5000; ++i) {
    bool timed, timedThere;
    const uint64_t bytes = 4096 << i % 3 * 4;
    bool way = one.next(bytes, timed), wayThere = other.next(bytes, timedThere);
    ASSERT_EQ(timed, timedThere);
    if (!timed)
      continue;
    ASSERT_EQ(way, wayThere);
    one.note(way, 100, bytes);
    other.note(way, way ? 5000 : 3, bytes);
  }
}

TEST(Packing, AnInterruptionIsNoMeasure) {
  Packing packing(/*whole=*/false);
  pack(packing, 1000, 150, 400);
  packing.note(/*past=*/false, 1'000'000, 4096);
  EXPECT_FALSE(packing.past(4096));
  packing.note(/*past=*/true, 0, 4096); // a clock that has not moved
  pack(packing, 40'000, 150, 400);
  EXPECT_FALSE(packing.past(4096));
}

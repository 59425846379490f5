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

/// `count` payloads of 4 KiB, which take so many nanoseconds; how many of them
/// were timed.
int pack(Packing &packing, int count, int64_t throughCaches, int64_t past) {
  int times = 0;
  for (int i = 0; i < count; ++i) {
    bool timed;
    bool way = packing.next(timed);
    if (!timed) {
      EXPECT_EQ(way, packing.past());
      continue;
    }
    ++times;
    packing.note(way, way ? past : throughCaches, 4096);
  }
  return times;
}

} // namespace

TEST(Packing, FollowsTheFasterWay) {
  Packing packing;
  EXPECT_TRUE(packing.past()); // what costs less where it is the wrong one
  int timed = pack(packing, 1000, 150, 400);
  EXPECT_FALSE(packing.past());
  EXPECT_GE(timed, 16); // both ways
  EXPECT_LE(timed, 24);
  // The cores have been moved apart, and together again.
  pack(packing, 20'000, 3000, 450);
  EXPECT_TRUE(packing.past());
  pack(packing, 40'000, 150, 400);
  EXPECT_FALSE(packing.past());
  // Not much is gained, and readers would lose it.
  pack(packing, 40'000, 320, 400);
  EXPECT_TRUE(packing.past());
}

TEST(Packing, AnInterruptionIsNoMeasure) {
  Packing packing;
  pack(packing, 1000, 150, 400);
  packing.note(/*past=*/false, 1'000'000, 4096);
  EXPECT_FALSE(packing.past());
  packing.note(/*past=*/true, 0, 4096); // a clock that has not moved
  pack(packing, 40'000, 150, 400);
  EXPECT_FALSE(packing.past());
}

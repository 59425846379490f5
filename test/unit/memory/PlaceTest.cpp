//===- PlaceTest.cpp - Where buffers lie in one arena ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/memory/Place.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace concord::memory {
namespace {

Placement placed(const std::vector<Buffer> &buffers) {
  Placement placement = place(buffers);
  EXPECT_EQ(verify(buffers, placement), "");
  EXPECT_GE(placement.bytes, placement.bound);
  EXPECT_EQ(placement.bound, largestLiveSet(buffers));
  return placement;
}

/// The least of all orders, each buffer at its lowest place: some order gives
/// an optimal placement (that of rising offsets).
int64_t bruteForce(const std::vector<Buffer> &buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  int64_t least = INT64_MAX;
  std::vector<int64_t> at(buffers.size());
  do {
    int64_t size = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      const Buffer &buffer = buffers[order[i]];
      int64_t offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (size_t j = 0; j < i; ++j) {
          const Buffer &other = buffers[order[j]];
          if (other.meets(buffer) && offset < at[order[j]] + other.bytes &&
              at[order[j]] < offset + buffer.bytes) {
            offset = at[order[j]] + other.bytes;
            moved = true;
          }
        }
      }
      at[order[i]] = offset;
      size = std::max(size, offset + buffer.bytes);
    }
    least = std::min(least, size);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

/// Rectangles that fill `times` x `bytes` without a hole.
void cut(std::mt19937 &random, Buffer whole, int64_t bytes, int parts,
         std::vector<Buffer> &out) {
  auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  bool time = pick(0, 1) ? whole.last > whole.first : bytes < 2;
  if (parts <= 1 || (time ? whole.last == whole.first : bytes < 2)) {
    out.push_back({whole.first, whole.last, bytes});
    return;
  }
  auto first = static_cast<int>(pick(1, parts - 1));
  if (time) {
    int64_t at = pick(whole.first, whole.last - 1);
    cut(random, {whole.first, at, 0}, bytes, first, out);
    cut(random, {at + 1, whole.last, 0}, bytes, parts - first, out);
  } else {
    int64_t at = pick(1, bytes - 1);
    cut(random, whole, at, first, out);
    cut(random, whole, bytes - at, parts - first, out);
  }
}

TEST(Place, Nothing) {
  EXPECT_EQ(placed({}).bytes, 0);
  EXPECT_EQ(placed({{3, 9, 0}}).bytes, 0);
  EXPECT_EQ(placed({{3, 9, 5}, {1, 4, 0}}).bytes, 5);
}

TEST(Place, BothEndsAreIncluded) {
  EXPECT_EQ(placed({{0, 1, 8}, {1, 2, 8}}).bytes, 16);
  EXPECT_EQ(placed({{0, 1, 8}, {2, 3, 8}}).bytes, 8);
}

/// First in time takes the middle away from what comes last.
TEST(Place, FragmentationIsFound) {
  Placement p = placed({{0, 1, 10}, {0, 3, 10}, {2, 4, 20}, {4, 5, 10}});
  EXPECT_EQ(p.bytes, 30);
  EXPECT_TRUE(p.optimal);
}

/// Parts that nothing connects: only the largest decides.
TEST(Place, PartsAreApart) {
  std::vector<Buffer> buffers;
  for (int64_t part = 0; part < 100; ++part)
    for (int64_t i = 0; i < 10; ++i)
      buffers.push_back({100 * part + i, 100 * part + i + 3, 1 + i * part % 7});
  EXPECT_TRUE(placed(buffers).optimal);
}

TEST(Place, SmallOnesAreOptimal) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 600; ++trial) {
    auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    std::vector<Buffer> buffers;
    for (int64_t count = pick(2, 7); count > 0; --count) {
      int64_t first = pick(0, 6);
      buffers.push_back({first, first + pick(0, 4), pick(0, 9)});
    }
    Placement p = placed(buffers);
    ASSERT_EQ(p.bytes, bruteForce(buffers)) << "trial " << trial;
    EXPECT_TRUE(p.optimal);
  }
}

TEST(Place, WithinFivePercent) {
  std::mt19937 random(5);
  for (int parts : {20, 60, 100})
    for (int trial = 0; trial < 5; ++trial) {
      std::vector<Buffer> buffers;
      cut(random, {0, 4 * parts, 0}, 100 * parts, parts, buffers);
      std::shuffle(buffers.begin(), buffers.end(), random);
      Placement p = placed(buffers);
      EXPECT_EQ(p.bound, 100 * parts);
      EXPECT_LE(static_cast<double>(p.bytes),
                1.05 * static_cast<double>(p.bound))
          << parts << " parts, trial " << trial;
    }
}

TEST(Place, SizesKeepTheirAlignment) {
  std::mt19937 random(9);
  std::vector<Buffer> buffers;
  cut(random, {0, 200, 0}, 5000, 50, buffers);
  for (Buffer &buffer : buffers)
    buffer.bytes *= 64;
  for (int64_t offset : placed(buffers).offsets)
    EXPECT_EQ(offset % 64, 0);
}

TEST(Place, TheSameEveryTime) {
  std::mt19937 random(11);
  std::vector<Buffer> buffers;
  cut(random, {0, 1000, 0}, 50000, 300, buffers);
  Placement a = place(buffers), b = place(buffers);
  EXPECT_EQ(a.offsets, b.offsets);
  // Less work may find less, never nothing.
  Placement none = place(buffers, 0);
  EXPECT_EQ(verify(buffers, none), "");
  EXPECT_GE(none.bytes, a.bytes);
}

/// A limit that can be kept is kept; nothing is spent on one that cannot.
TEST(Place, StopsAtWhatIsEnough) {
  std::mt19937 random(13);
  int sooner = 0;
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<Buffer> buffers;
    cut(random, {0, 120, 0}, 3000, 30, buffers);
    Placement best = placed(buffers), quick = place(buffers, 0);
    for (int64_t enough : {best.bytes, (best.bytes + quick.bytes) / 2}) {
      Placement p = place(buffers, kPlaceWork, enough);
      EXPECT_EQ(verify(buffers, p), "");
      EXPECT_LE(p.bytes, enough) << trial;
      sooner += p.bytes > best.bytes;
    }
    Placement hopeless = place(buffers, kPlaceWork, best.bound - 1);
    EXPECT_EQ(hopeless.offsets, quick.offsets);
  }
  EXPECT_GT(sooner, 3);
}

/// Long programs take the near-linear rules only: none is compared with all.
TEST(Place, ManyBuffers) {
  std::vector<Buffer> buffers;
  for (int64_t i = 0; i < 200000; ++i)
    buffers.push_back({i, i % 10 ? i + 3 : 400000 - i, 64 * (1 + i % 5)});
  EXPECT_LE(static_cast<double>(placed(buffers).bytes),
            1.05 * static_cast<double>(largestLiveSet(buffers)));
}

TEST(Place, VerifyFindsWhatIsWrong) {
  std::vector<Buffer> buffers = {{0, 2, 8}, {1, 3, 8}};
  Placement p;
  p.bytes = 16;
  p.offsets = {0, 8};
  EXPECT_EQ(verify(buffers, p), "");
  p.offsets = {0, 7};
  EXPECT_EQ(verify(buffers, p), "buffers 0 and 1 overlap");
  p.offsets = {9, 0};
  EXPECT_EQ(verify(buffers, p), "buffer 0 leaves the arena");
  p.offsets = {0};
  EXPECT_EQ(verify(buffers, p), "not one offset for each buffer");
}

/// As comparing all pairs says, with buffers that never live or are empty.
TEST(FindOverlap, AsAllPairsSay) {
  std::mt19937 random(1);
  auto upTo = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Buffer> buffers;
    std::vector<int64_t> offsets;
    for (int64_t n = upTo(9); n >= 0; --n) {
      int64_t first = upTo(12);
      buffers.push_back({first, first + upTo(5) - 1, upTo(4)});
      offsets.push_back(upTo(24));
    }
    auto clash = [&](size_t a, size_t b) {
      return buffers[a].bytes && buffers[b].bytes &&
             buffers[a].first <= buffers[a].last &&
             buffers[b].first <= buffers[b].last &&
             buffers[a].meets(buffers[b]) &&
             offsets[a] < offsets[b] + buffers[b].bytes &&
             offsets[b] < offsets[a] + buffers[a].bytes;
    };
    bool any = false;
    for (size_t b = 0; b < buffers.size(); ++b)
      for (size_t a = 0; a < b; ++a)
        any |= clash(a, b);
    auto pair = findOverlap(buffers, offsets);
    ASSERT_EQ(pair.has_value(), any) << round;
    if (!pair)
      continue;
    ++found;
    EXPECT_LT(pair->first, pair->second);
    EXPECT_TRUE(clash(pair->first, pair->second)) << round;
  }
  EXPECT_GT(found, 300);
  EXPECT_LT(found, 2700);
}

} // namespace
} // namespace concord::memory

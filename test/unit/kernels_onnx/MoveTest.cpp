//===- MoveTest.cpp - Data movement, indexing, selection kernels
//------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Positions are what can go wrong here, so the values are their own indices.
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include <numeric>

using namespace concord::test;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

namespace {

template <class T = float> std::vector<T> iota(size_t n) {
  std::vector<T> v(n);
  std::iota(v.begin(), v.end(), T(0));
  return v;
}

TEST(Move, TransposeOfManyShapes) {
  // Large enough for the tiled path, odd enough to cross tile borders.
  constexpr int64_t a = 3, b = 45, c = 70;
  auto y = Case("transpose")
               .attr("perm", "[0,2,1]")
               .in<float>({a, b, c}, iota(a * b * c))
               .out<float>({a, c, b})
               .run()
               .get<float>();
  for (int64_t i = 0; i < a; ++i)
    for (int64_t j = 0; j < b; ++j)
      for (int64_t k = 0; k < c; ++k)
        ASSERT_EQ(y[size_t((i * c + k) * b + j)], float((i * b + j) * c + k));
  auto reversed = Case("transpose")
                      .in<uint8_t>({2, 3}, iota<uint8_t>(6))
                      .out<uint8_t>({3, 2})
                      .run()
                      .get<uint8_t>();
  EXPECT_THAT(reversed, ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(Move, SliceInBothForms) {
  Case old("slice", 9);
  old.attr("starts", "[1]").attr("ends", "[3]").attr("axes", "[1]");
  EXPECT_THAT(
      old.in<float>({2, 3}, iota(6)).out<float>({2, 2}).run().get<float>(),
      ElementsAre(1, 2, 4, 5));
  Case backwards("slice", 13);
  backwards.in<float>({5}, iota(5))
      .in<int64_t>({1}, {-1})
      .in<int64_t>({1}, {INT64_MIN})
      .in<int64_t>({1}, {0})
      .in<int64_t>({1}, {-2});
  EXPECT_THAT(backwards.out<float>({3}).run().get<float>(),
              ElementsAre(4, 2, 0));
}

TEST(Move, SliceBeyondTheInputIsAnError) {
  Case c("slice", 13);
  c.in<float>({5}, iota(5)).in<int64_t>({1}, {3}).in<int64_t>({1}, {9});
  EXPECT_NE(c.out<float>({4}).tryRun(), 0);
  EXPECT_THAT(concord_kernel_last_error(), HasSubstr("slice"));
}

TEST(Move, ConcatAndSplitAreInverse) {
  auto y = Case("concat")
               .attr("axis", "1")
               .in<int64_t>({2, 1}, {0, 10})
               .in<int64_t>({2, 2}, {1, 2, 11, 12})
               .out<int64_t>({2, 3})
               .run()
               .get<int64_t>();
  EXPECT_THAT(y, ElementsAre(0, 1, 2, 10, 11, 12));
  Case split("split");
  split.attr("axis", "1").in<int64_t>({2, 3}, y).in<int64_t>({2}, {1, 2});
  split.out<int64_t>({2, 1}).out<int64_t>({2, 2}).run();
  EXPECT_THAT(split.get<int64_t>(0), ElementsAre(0, 10));
  EXPECT_THAT(split.get<int64_t>(1), ElementsAre(1, 2, 11, 12));
}

TEST(Move, TileAndExpand) {
  auto tiled = Case("tile")
                   .in<float>({1, 2}, {1, 2})
                   .in<int64_t>({2}, {2, 2})
                   .out<float>({2, 4})
                   .run()
                   .get<float>();
  EXPECT_THAT(tiled, ElementsAre(1, 2, 1, 2, 1, 2, 1, 2));
  auto expanded = Case("expand")
                      .in<float>({2, 1}, {1, 2})
                      .in<int64_t>({3}, {2, 1, 2})
                      .out<float>({2, 2, 2})
                      .run()
                      .get<float>();
  EXPECT_THAT(expanded, ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
}

TEST(Move, PadModes) {
  auto pad = [](const char *mode) {
    return Case("pad", 19)
        .attr("mode", mode)
        .in<float>({3}, {1, 2, 3})
        .in<int64_t>({2}, {2, 2})
        .out<float>({7})
        .run()
        .get<float>();
  };
  EXPECT_THAT(pad("\"constant\""), ElementsAre(0, 0, 1, 2, 3, 0, 0));
  EXPECT_THAT(pad("\"edge\""), ElementsAre(1, 1, 1, 2, 3, 3, 3));
  EXPECT_THAT(pad("\"reflect\""), ElementsAre(3, 2, 1, 2, 3, 2, 1));
  EXPECT_THAT(pad("\"wrap\""), ElementsAre(2, 3, 1, 2, 3, 1, 2));
  Case old("pad", 2);
  old.attr("pads", "[-1,1]").attr("value", "7");
  EXPECT_THAT(old.in<float>({3}, {1, 2, 3}).out<float>({3}).run().get<float>(),
              ElementsAre(2, 3, 7));
}

TEST(Move, DepthToSpaceOrders) {
  auto y = [](const char *mode) {
    return Case("depthtospace")
        .attr("blocksize", "2")
        .attr("mode", mode)
        .in<float>({1, 8, 1, 1}, iota(8))
        .out<float>({1, 2, 2, 2})
        .run()
        .get<float>();
  };
  EXPECT_THAT(y("\"DCR\""), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(y("\"CRD\""), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

TEST(Move, TriluShapeSizeReverse) {
  auto lower = Case("trilu")
                   .attr("upper", "0")
                   .in<int64_t>({2, 3}, {1, 2, 3, 4, 5, 6})
                   .in<int64_t>({}, {-1})
                   .out<int64_t>({2, 3})
                   .run()
                   .get<int64_t>();
  EXPECT_THAT(lower, ElementsAre(0, 0, 0, 4, 0, 0));
  auto shape = Case("shape")
                   .attr("start", "-2")
                   .in<float>({2, 1, 3}, iota(6))
                   .out<int64_t>({2})
                   .run()
                   .get<int64_t>();
  EXPECT_THAT(shape, ElementsAre(1, 3));
  auto reversed = Case("reversesequence")
                      .attr("batch_axis", "0")
                      .attr("time_axis", "1")
                      .in<float>({2, 3}, iota(6))
                      .in<int64_t>({2}, {2, 3})
                      .out<float>({2, 3})
                      .run()
                      .get<float>();
  EXPECT_THAT(reversed, ElementsAre(1, 0, 2, 5, 4, 3));
}

TEST(Index, GatherTakesNegativeIndicesAndRefusesBadOnes) {
  auto y = Case("gather")
               .attr("axis", "1")
               .in<float>({2, 3}, iota(6))
               .in<int32_t>({2}, {-1, 0})
               .out<float>({2, 2})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(2, 0, 5, 3));
  Case bad("gather");
  bad.in<float>({3}, iota(3)).in<int64_t>({1}, {3}).out<float>({1});
  EXPECT_NE(bad.tryRun(), 0);
  EXPECT_THAT(concord_kernel_last_error(), HasSubstr("index 3"));
}

TEST(Index, GatherElementsAndND) {
  auto elements = Case("gatherelements")
                      .attr("axis", "1")
                      .in<float>({2, 2}, {1, 2, 3, 4})
                      .in<int64_t>({2, 2}, {0, 0, 1, 0})
                      .out<float>({2, 2})
                      .run()
                      .get<float>();
  EXPECT_THAT(elements, ElementsAre(1, 1, 4, 3));
  auto nd = Case("gathernd")
                .attr("batch_dims", "1")
                .in<float>({2, 2, 2}, iota(8))
                .in<int64_t>({2, 1}, {1, 0})
                .out<float>({2, 2})
                .run()
                .get<float>();
  EXPECT_THAT(nd, ElementsAre(2, 3, 4, 5));
}

TEST(Index, ScatterReductions) {
  auto scatter = [](const char *reduction) {
    return Case("scatterelements", 18)
        .attr("reduction", reduction)
        .in<float>({3}, {1, 2, 3})
        .in<int64_t>({2}, {1, 1})
        .in<float>({2}, {10, 20})
        .out<float>({3})
        .run()
        .get<float>();
  };
  EXPECT_THAT(scatter("\"none\""), ElementsAre(1, 20, 3));
  EXPECT_THAT(scatter("\"add\""), ElementsAre(1, 32, 3));
  EXPECT_THAT(scatter("\"mul\""), ElementsAre(1, 400, 3));
  EXPECT_THAT(scatter("\"max\""), ElementsAre(1, 20, 3));
  EXPECT_THAT(scatter("\"min\""), ElementsAre(1, 2, 3));
  auto nd = Case("scatternd")
                .in<int64_t>({2, 2}, {1, 2, 3, 4})
                .in<int64_t>({1, 1}, {-1})
                .in<int64_t>({1, 2}, {8, 9})
                .out<int64_t>({2, 2})
                .run()
                .get<int64_t>();
  EXPECT_THAT(nd, ElementsAre(1, 2, 8, 9));
}

TEST(Index, TensorScatterWrapsAround) {
  auto y = Case("tensorscatter", 24)
               .attr("mode", "\"circular\"")
               .in<float>({1, 3, 1}, {0, 0, 0})
               .in<float>({1, 2, 1}, {1, 2})
               .in<int64_t>({1}, {2})
               .out<float>({1, 3, 1})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(2, 0, 1));
}

TEST(Select, GeneratorsAndOneHot) {
  auto range = Case("range")
                   .in<int64_t>({}, {10})
                   .in<int64_t>({}, {4})
                   .in<int64_t>({}, {-3})
                   .out<int64_t>({2})
                   .run()
                   .get<int64_t>();
  EXPECT_THAT(range, ElementsAre(10, 7));
  auto filled = Case("constantofshape")
                    .attr("value", "[u64,18446744073709551615]")
                    .in<int64_t>({1}, {2})
                    .out<uint64_t>({2})
                    .run()
                    .get<uint64_t>();
  EXPECT_THAT(filled, ElementsAre(UINT64_MAX, UINT64_MAX));
  auto hot = Case("onehot")
                 .attr("axis", "0")
                 .in<int64_t>({2}, {-1, 0})
                 .in<int64_t>({}, {3})
                 .in<float>({2}, {-1, 1})
                 .out<float>({3, 2})
                 .run()
                 .get<float>();
  EXPECT_THAT(hot, ElementsAre(-1, 1, -1, -1, 1, -1));
  auto eye = Case("eyelike")
                 .attr("k", "1")
                 .in<float>({2, 3}, iota(6))
                 .out<uint8_t>({2, 3}, "bool")
                 .run()
                 .get<uint8_t>();
  EXPECT_THAT(eye, ElementsAre(0, 1, 0, 0, 0, 1));
}

TEST(Select, TopKOrdersTiesByIndex) {
  Case c("topk");
  c.attr("axis", "0").in<float>({4, 1}, {3, 5, 5, 1}).in<int64_t>({1}, {3});
  c.out<float>({3, 1}).out<int64_t>({3, 1}).run();
  EXPECT_THAT(c.get<float>(0), ElementsAre(5, 5, 3));
  EXPECT_THAT(c.get<int64_t>(1), ElementsAre(1, 2, 0));
}

TEST(Select, DataDependentSizesAreChecked) {
  auto found = Case("nonzero")
                   .in<float>({2, 2}, {1, 0, 0, 1})
                   .out<int64_t>({2, 2})
                   .run()
                   .get<int64_t>();
  EXPECT_THAT(found, ElementsAre(0, 1, 0, 1));
  Case fewer("nonzero");
  fewer.in<float>({2, 2}, {1, 0, 0, 0}).out<int64_t>({2, 2});
  EXPECT_NE(fewer.tryRun(), 0);
  auto kept = Case("compress")
                  .attr("axis", "1")
                  .in<float>({2, 3}, iota(6))
                  .in<uint8_t>({3}, {1, 0, 1}, "bool")
                  .out<float>({2, 2})
                  .run()
                  .get<float>();
  EXPECT_THAT(kept, ElementsAre(0, 2, 3, 5));
  Case unique("unique");
  unique.attr("sorted", "0").in<float>({5}, {4, 1, 4, 3, 1});
  unique.out<float>({3}).out<int64_t>({3}).out<int64_t>({5}).out<int64_t>({3});
  unique.run();
  EXPECT_THAT(unique.get<float>(0), ElementsAre(4, 1, 3));
  EXPECT_THAT(unique.get<int64_t>(1), ElementsAre(0, 1, 3));
  EXPECT_THAT(unique.get<int64_t>(2), ElementsAre(0, 1, 0, 2, 1));
  EXPECT_THAT(unique.get<int64_t>(3), ElementsAre(2, 2, 1));
}

TEST(Select, NonMaxSuppressionKeepsTheBest) {
  Case c("nonmaxsuppression");
  c.in<float>({1, 3, 4}, {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 0, 10, 1, 11})
      .in<float>({1, 1, 3}, {0.7f, 0.9f, 0.8f})
      .in<int64_t>({1}, {3})
      .in<float>({1}, {0.5f})
      .in<float>({1}, {0});
  EXPECT_THAT(c.out<int64_t>({2, 3}).run().get<int64_t>(),
              ElementsAre(0, 0, 1, 0, 0, 2));
}

} // namespace

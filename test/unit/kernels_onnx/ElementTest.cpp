//===- ElementTest.cpp - Elementwise, cast, reduction kernels
//---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Values worked out by hand, with the corners that a wrong type of computation
// or a wrong default would get wrong.
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include <cmath>
#include <limits>

using namespace concord::test;
using ::testing::ElementsAre;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Elementwise, BroadcastsBothOperands) {
  auto y = Case("add")
               .in<float>({2, 1}, {1, 2})
               .in<float>({3}, {10, 20, 30})
               .out<float>({2, 3})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(11, 21, 31, 12, 22, 32));
}

TEST(Elementwise, LongRunsCrossChunks) {
  std::vector<float> x(3 * 1500), expected;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = float(i);
    expected.push_back(float(i) * 2);
  }
  auto y = Case("mul")
               .in<float>({3, 1500}, x)
               .in<float>({}, {2})
               .out<float>({3, 1500})
               .run()
               .get<float>();
  EXPECT_EQ(y, expected);
}

TEST(Elementwise, IntegersWrap) {
  auto sum = Case("add")
                 .in<int8_t>({2}, {127, -128})
                 .in<int8_t>({2}, {1, -1})
                 .out<int8_t>({2})
                 .run()
                 .get<int8_t>();
  EXPECT_THAT(sum, ElementsAre(-128, 127));
  auto quotient = Case("div")
                      .in<int64_t>({3}, {-7, INT64_MIN, 5})
                      .in<int64_t>({3}, {2, -1, 0})
                      .out<int64_t>({3})
                      .run()
                      .get<int64_t>();
  EXPECT_THAT(quotient, ElementsAre(-3, INT64_MIN, 0));
}

TEST(Elementwise, ModHasTheSignOfItsKind) {
  auto floored = Case("mod")
                     .in<int64_t>({2}, {-7, 7})
                     .in<int64_t>({2}, {3, -3})
                     .out<int64_t>({2})
                     .run()
                     .get<int64_t>();
  EXPECT_THAT(floored, ElementsAre(2, -2));
  auto truncated = Case("mod")
                       .attr("fmod", "1")
                       .in<int64_t>({2}, {-7, 7})
                       .in<int64_t>({2}, {3, -3})
                       .out<int64_t>({2})
                       .run()
                       .get<int64_t>();
  EXPECT_THAT(truncated, ElementsAre(-1, 1));
}

TEST(Elementwise, PowMixesDtypes) {
  auto y = Case("pow")
               .in<int64_t>({3}, {2, 3, 9})
               .in<float>({3}, {3, 2, 0.5f})
               .out<int64_t>({3})
               .run()
               .get<int64_t>();
  EXPECT_THAT(y, ElementsAre(8, 9, 3));
}

TEST(Elementwise, HalfIsComputedInFloat) {
  // 2048 + 1 is not a half; 2048 + 1 + 1 in one f32 step would be 2050.
  auto y = Case("sum")
               .in<uint16_t>({1}, {0x6800}, "f16")
               .in<uint16_t>({1}, {0x3c00}, "f16")
               .in<uint16_t>({1}, {0x3c00}, "f16")
               .out<uint16_t>({1}, "f16")
               .run()
               .get<uint16_t>();
  EXPECT_THAT(y, ElementsAre(0x6801));
}

TEST(Elementwise, ComparisonsAndLogic) {
  auto less = Case("lessorequal")
                  .in<uint64_t>({2}, {UINT64_MAX, 1})
                  .in<uint64_t>({2}, {1, 1})
                  .out<uint8_t>({2}, "bool")
                  .run()
                  .get<uint8_t>();
  EXPECT_THAT(less, ElementsAre(0, 1));
  auto both = Case("xor")
                  .in<uint8_t>({4}, {0, 0, 1, 1}, "bool")
                  .in<uint8_t>({4}, {0, 1, 0, 1}, "bool")
                  .out<uint8_t>({4}, "bool")
                  .run()
                  .get<uint8_t>();
  EXPECT_THAT(both, ElementsAre(0, 1, 1, 0));
}

TEST(Elementwise, MaxKeepsNaN) {
  auto y = Case("max")
               .in<float>({2}, {NAN, 1})
               .in<float>({2}, {1, NAN})
               .out<float>({2})
               .run()
               .get<float>();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_TRUE(std::isnan(y[1]));
}

TEST(Elementwise, ClipTakesAttributesOrInputs) {
  for (bool attributes : {true, false}) {
    Case c("clip", attributes ? 6 : 13);
    c.in<float>({3}, {-2, 0.5f, 9});
    if (attributes)
      c.attr("min", "-1").attr("max", "6");
    else
      c.in<float>({}, {-1}).in<float>({}, {6});
    EXPECT_THAT(c.out<float>({3}).run().get<float>(), ElementsAre(-1, 0.5f, 6));
  }
}

TEST(Elementwise, ActivationsUseTheirDefaults) {
  auto apply = [](const char *name, float x) {
    return Case(name, 22)
        .in<float>({1}, {x})
        .out<float>({1})
        .run()
        .get<float>()[0];
  };
  EXPECT_NEAR(apply("elu", -1), std::expm1(-1.0), 1e-6);
  EXPECT_NEAR(apply("leakyrelu", -2), -0.02, 1e-6);
  EXPECT_NEAR(apply("hardsigmoid", 1), 0.7, 1e-6);
  EXPECT_NEAR(apply("selu", -1), -1.1113307, 1e-5);
  EXPECT_NEAR(apply("gelu", 1), 0.8413447, 1e-6);
  EXPECT_NEAR(apply("sigmoid", -100), 0, 1e-30);
  EXPECT_NEAR(apply("softplus", 100), 100, 1e-4);
  EXPECT_EQ(apply("round", 2.5f), 2);
}

TEST(Elementwise, WhereMovesAnyDtype) {
  auto y = Case("where")
               .in<uint8_t>({2, 1}, {1, 0}, "bool")
               .in<int64_t>({2}, {1, 2})
               .in<int64_t>({}, {9})
               .out<int64_t>({2, 2})
               .run()
               .get<int64_t>();
  EXPECT_THAT(y, ElementsAre(1, 2, 9, 9));
}

TEST(Cast, RoundsOnceAndSaturatesF8) {
  auto bf16 = Case("cast")
                  .attr("to", "16")
                  .in<float>({2}, {1.00390625f, 1.01171875f})
                  .out<uint16_t>({2}, "bf16")
                  .run()
                  .get<uint16_t>();
  EXPECT_THAT(bf16, ElementsAre(0x3f80, 0x3f82)); // ties to even
  // Half way between two halves, plus a bit that only f64 holds.
  auto half =
      Case("cast")
          .in<double>({1}, {1 + std::ldexp(1, -11) + std::ldexp(1, -40)})
          .out<uint16_t>({1}, "f16")
          .run()
          .get<uint16_t>();
  EXPECT_THAT(half, ElementsAre(0x3c01));
  auto f8 = Case("cast", 19)
                .in<float>({2}, {1000, kInf})
                .out<uint8_t>({2}, "f8_e4m3")
                .run()
                .get<uint8_t>();
  EXPECT_THAT(f8, ElementsAre(0x7e, 0x7e));
  auto nan = Case("cast", 19)
                 .attr("saturate", "0")
                 .in<float>({2}, {1000, kInf})
                 .out<uint8_t>({2}, "f8_e5m2")
                 .run()
                 .get<uint8_t>();
  EXPECT_THAT(nan, ElementsAre(0x64, 0x7c));
}

TEST(Cast, EveryHalfSurvivesTheRoundTrip) {
  std::vector<uint16_t> all;
  for (int i = 0; i < 0x10000; ++i)
    if ((i & 0x7fff) <= 0x7c00) // NaNs keep no payload
      all.push_back(uint16_t(i));
  int64_t n = int64_t(all.size());
  auto wide = Case("cast")
                  .in<uint16_t>({n}, all, "f16")
                  .out<float>({n})
                  .run()
                  .get<float>();
  auto back = Case("cast")
                  .in<float>({n}, wide)
                  .out<uint16_t>({n}, "f16")
                  .run()
                  .get<uint16_t>();
  EXPECT_EQ(back, all);
}

TEST(Reduce, AxesComeFromEitherPlace) {
  for (bool attributes : {true, false}) {
    Case c("reducesum", attributes ? 11 : 13);
    c.in<float>({2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
    if (attributes)
      c.attr("axes", "[0,2]");
    else
      c.in<int64_t>({2}, {0, -1});
    c.attr("keepdims", "0");
    EXPECT_THAT(c.out<float>({2}).run().get<float>(), ElementsAre(14, 22));
  }
}

TEST(Reduce, EmptyAxesMeanAllOrNone) {
  Case all("reducemax", 18);
  EXPECT_THAT(all.in<float>({2}, {1, 5}).out<float>({1}).run().get<float>(),
              ElementsAre(5));
  Case none("reducemax", 18);
  none.attr("noop_with_empty_axes", "1").in<float>({2}, {1, 5});
  EXPECT_THAT(none.out<float>({2}).run().get<float>(), ElementsAre(1, 5));
}

TEST(Reduce, EmptySetsHaveTheirNeutralElement) {
  auto reduce = [](const char *name) {
    return Case(name, 18)
        .in<float>({2, 0}, {})
        .in<int64_t>({1}, {1})
        .out<float>({2, 1})
        .run()
        .get<float>();
  };
  EXPECT_THAT(reduce("reducesum"), ElementsAre(0, 0));
  EXPECT_THAT(reduce("reduceprod"), ElementsAre(1, 1));
  EXPECT_THAT(reduce("reducemax"), ElementsAre(-kInf, -kInf));
  EXPECT_THAT(reduce("reducelogsumexp"), ElementsAre(-kInf, -kInf));
}

TEST(Reduce, LogSumExpDoesNotOverflow) {
  auto y = Case("reducelogsumexp", 18)
               .in<float>({2}, {1000, 1000})
               .out<float>({1})
               .run()
               .get<float>();
  EXPECT_THAT(y, near({1000.6931f}, 1e-3f));
}

TEST(Reduce, ArgMaxTies) {
  Case first("argmax"), last("argmax");
  EXPECT_THAT(first.attr("axis", "-1")
                  .in<float>({3}, {2, 7, 7})
                  .out<int64_t>({1})
                  .run()
                  .get<int64_t>(),
              ElementsAre(1));
  EXPECT_THAT(last.attr("axis", "-1")
                  .attr("select_last_index", "1")
                  .in<float>({3}, {2, 7, 7})
                  .out<int64_t>({1})
                  .run()
                  .get<int64_t>(),
              ElementsAre(2));
}

TEST(Reduce, CumSumInAllFourWays) {
  auto scan = [](const char *exclusive, const char *reverse) {
    return Case("cumsum")
        .attr("exclusive", exclusive)
        .attr("reverse", reverse)
        .in<float>({3}, {1, 2, 3})
        .in<int64_t>({}, {0})
        .out<float>({3})
        .run()
        .get<float>();
  };
  EXPECT_THAT(scan("0", "0"), ElementsAre(1, 3, 6));
  EXPECT_THAT(scan("1", "0"), ElementsAre(0, 1, 3));
  EXPECT_THAT(scan("0", "1"), ElementsAre(6, 5, 3));
  EXPECT_THAT(scan("1", "1"), ElementsAre(5, 3, 0));
}

TEST(Reduce, SoftmaxFlattensBeforeOpset13) {
  Floats zeros(4, 0.0f);
  auto old = Case("softmax", 11)
                 .in<float>({1, 2, 2}, zeros)
                 .out<float>({1, 2, 2})
                 .run()
                 .get<float>();
  EXPECT_THAT(old, near({0.25f, 0.25f, 0.25f, 0.25f}));
  auto now = Case("softmax", 13)
                 .in<float>({1, 2, 2}, zeros)
                 .out<float>({1, 2, 2})
                 .run()
                 .get<float>();
  EXPECT_THAT(now, near({0.5f, 0.5f, 0.5f, 0.5f}));
}

} // namespace

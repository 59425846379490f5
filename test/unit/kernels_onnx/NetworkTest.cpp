//===- NetworkTest.cpp - Products, convolutions, norms, attention
//-----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Small cases worked out by hand, one or more per family.
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include <cmath>
#include <limits>

using namespace concord::test;
using ::testing::ElementsAre;

namespace {

TEST(Product, MatMulBroadcastsBatches) {
  auto y = Case("matmul")
               .in<float>({2, 1, 2}, {1, 2, 3, 4})
               .in<float>({2, 2}, {1, 0, 0, 10})
               .out<float>({2, 1, 2})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(1, 20, 3, 40));
  auto dot = Case("matmul")
                 .in<int32_t>({3}, {1, 2, 3})
                 .in<int32_t>({3}, {4, 5, 6})
                 .out<int32_t>({})
                 .run()
                 .get<int32_t>();
  EXPECT_THAT(dot, ElementsAre(32));
}

TEST(Product, MatMulSumsInDouble) {
  // 1e8 + 1 - 1e8 in f32 would lose the 1.
  auto y = Case("matmul")
               .in<float>({1, 3}, {1e8f, 1, -1e8f})
               .in<float>({3, 1}, {1, 1, 1})
               .out<float>({1, 1})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(1));
}

TEST(Product, GemmScalesTransposesAndAdds) {
  auto y = Case("gemm")
               .attr("alpha", "2")
               .attr("beta", "0.5")
               .attr("transA", "1")
               .attr("transB", "1")
               .in<float>({2, 1}, {1, 2})
               .in<float>({2, 2}, {3, 4, 5, 6})
               .in<float>({2}, {10, 20})
               .out<float>({1, 2})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(2 * 11 + 5, 2 * 17 + 10));
}

TEST(Product, EinsumDiagonalAndEllipsis) {
  auto trace = Case("einsum")
                   .attr("equation", "\"ii\"")
                   .in<float>({2, 2}, {1, 2, 3, 4})
                   .out<float>({})
                   .run()
                   .get<float>();
  EXPECT_THAT(trace, ElementsAre(5));
  auto batched = Case("einsum")
                     .attr("equation", "\"...ij,jk->...ik\"")
                     .in<float>({2, 1, 2}, {1, 2, 3, 4})
                     .in<float>({2, 1}, {1, 10})
                     .out<float>({2, 1, 1})
                     .run()
                     .get<float>();
  EXPECT_THAT(batched, ElementsAre(21, 43));
}

TEST(Product, Determinant) {
  auto y = Case("det")
               .in<float>({2, 2, 2}, {0, 1, 1, 0, 2, 1, 4, 2})
               .out<float>({2})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(-1, 0));
}

TEST(Convolution, PadsStridesGroups) {
  auto y = Case("conv")
               .attr("kernel_shape", "[3]")
               .attr("pads", "[1,1]")
               .attr("strides", "[2]")
               .attr("group", "2")
               .in<float>({1, 2, 3}, {1, 2, 3, 4, 5, 6})
               .in<float>({2, 1, 3}, {1, 1, 1, 1, 0, 0})
               .in<float>({2}, {0, 100})
               .out<float>({1, 2, 2})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(3, 5, 100, 105));
}

TEST(Convolution, TransposeIsTheAdjoint) {
  auto y = Case("convtranspose")
               .attr("strides", "[2]")
               .in<float>({1, 1, 2}, {1, 2})
               .in<float>({1, 1, 3}, {1, 10, 100})
               .out<float>({1, 1, 5})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(1, 10, 102, 20, 200));
}

TEST(Convolution, Col2ImAddsOverlaps) {
  auto y = Case("col2im", 18)
               .in<float>({1, 2, 2}, {1, 2, 3, 4})
               .in<int64_t>({1}, {3})
               .in<int64_t>({1}, {2})
               .out<float>({1, 1, 3})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(1, 2 + 3, 4));
}

TEST(Pool, MaxGivesIndices) {
  Case c("maxpool");
  c.attr("kernel_shape", "[2,2]").attr("storage_order", "1");
  c.in<float>({1, 1, 2, 3}, {1, 5, 2, 0, 3, 9});
  c.out<float>({1, 1, 1, 2}).out<int64_t>({1, 1, 1, 2}).run();
  EXPECT_THAT(c.get<float>(0), ElementsAre(5, 9));
  EXPECT_THAT(c.get<int64_t>(1), ElementsAre(2, 5)); // column-major
}

TEST(Pool, AverageCountsPadsWhenTold) {
  auto pool = [](const char *include) {
    return Case("averagepool", 19)
        .attr("count_include_pad", include)
        .attr("kernel_shape", "[2]")
        .attr("pads", "[1,0]")
        .in<float>({1, 1, 2}, {4, 8})
        .out<float>({1, 1, 2})
        .run()
        .get<float>();
  };
  EXPECT_THAT(pool("0"), ElementsAre(4, 6));
  EXPECT_THAT(pool("1"), ElementsAre(2, 6));
  auto global = Case("globalaveragepool")
                    .in<float>({1, 2, 2}, {1, 3, 5, 7})
                    .out<float>({1, 2, 1})
                    .run()
                    .get<float>();
  EXPECT_THAT(global, ElementsAre(2, 6));
}

TEST(Pool, UnpoolUsesTheSmallerShape) {
  auto y = Case("maxunpool")
               .attr("kernel_shape", "[2,2]")
               .attr("strides", "[2,2]")
               .in<float>({1, 1, 1, 1}, {7})
               .in<int64_t>({1, 1, 1, 1}, {3})
               .in<int64_t>({4}, {1, 1, 3, 3})
               .out<float>({1, 1, 3, 3})
               .run()
               .get<float>();
  EXPECT_THAT(y, ElementsAre(0, 0, 0, 0, 7, 0, 0, 0, 0));
}

TEST(Norm, LayerGivesStatistics) {
  Case c("layernormalization");
  c.attr("epsilon", "0").in<float>({1, 4}, {1, 3, 1, 3});
  c.in<float>({4}, {1, 1, 2, 2}).in<float>({4}, {0, 0, 5, 5});
  c.out<float>({1, 4}).out<float>({1, 1}).out<float>({1, 1}).run();
  EXPECT_THAT(c.get<float>(0), ElementsAre(-1, 1, 3, 7));
  EXPECT_THAT(c.get<float>(1), ElementsAre(2));
  EXPECT_THAT(c.get<float>(2), ElementsAre(1));
}

TEST(Norm, RmsBatchGroupLp) {
  auto rms = Case("rmsnormalization", 23)
                 .attr("epsilon", "0")
                 .in<float>({2}, {3, 4})
                 .in<float>({2}, {1, 2})
                 .out<float>({2})
                 .run()
                 .get<float>();
  float root = std::sqrt(12.5f);
  EXPECT_THAT(rms, near({3 / root, 8 / root}));
  auto batch = Case("batchnormalization")
                   .attr("epsilon", "0")
                   .in<float>({1, 2, 1}, {5, 5})
                   .in<float>({2}, {1, 2})
                   .in<float>({2}, {0, 1})
                   .in<float>({2}, {1, 3})
                   .in<float>({2}, {4, 1})
                   .out<float>({1, 2, 1})
                   .run()
                   .get<float>();
  EXPECT_THAT(batch, near({2, 5}));
  // Opset 18 has one scale per group, 21 one per channel.
  for (int opset : {18, 21}) {
    Case group("groupnormalization", opset);
    group.attr("num_groups", "1").attr("epsilon", "0");
    group.in<float>({1, 2, 1}, {1, 3});
    if (opset == 18)
      group.in<float>({1}, {2}).in<float>({1}, {1});
    else
      group.in<float>({2}, {2, 4}).in<float>({2}, {1, 1});
    EXPECT_THAT(group.out<float>({1, 2, 1}).run().get<float>(),
                near({-1, opset == 18 ? 3.0f : 5.0f}));
  }
  auto lp = Case("lpnormalization")
                .in<float>({2, 2}, {3, 4, 0, 0})
                .out<float>({2, 2})
                .run()
                .get<float>();
  EXPECT_THAT(lp, near({0.6f, 0.8f, 0, 0}));
}

TEST(Attention, CausalWithPastAndGroupedHeads) {
  // Keys are zero, so the weights are equal over what the mask lets through.
  Case c("attention", 23);
  c.attr("is_causal", "1");
  c.in<float>({1, 2, 2, 1}, {1, 1, 1, 1});
  c.in<float>({1, 1, 2, 1}, {0, 0}).in<float>({1, 1, 2, 1}, {6, 9});
  c.absent();
  c.in<float>({1, 1, 1, 1}, {0}).in<float>({1, 1, 1, 1}, {0});
  c.out<float>({1, 2, 2, 1});
  c.out<float>({1, 1, 3, 1}).out<float>({1, 1, 3, 1});
  c.run();
  EXPECT_THAT(c.get<float>(0), near({3, 5, 3, 5}));
  EXPECT_THAT(c.get<float>(2), ElementsAre(0, 6, 9));
}

TEST(Attention, MasksSoftcapAndScores) {
  Case c("attention", 23);
  c.attr("q_num_heads", "1").attr("kv_num_heads", "1").attr("scale", "1");
  c.attr("softcap", "2").attr("qk_matmul_output_mode", "2");
  c.in<float>({1, 1, 1}, {1});
  c.in<float>({1, 2, 1}, {100, 50}).in<float>({1, 2, 1}, {3, 4});
  c.in<uint8_t>({1, 2}, {0, 1}, "bool");
  c.out<float>({1, 1, 1}).absentOut().absentOut().out<float>({1, 1, 1, 2});
  c.run();
  EXPECT_THAT(c.get<float>(0), ElementsAre(4));
  EXPECT_THAT(c.get<float>(3),
              ElementsAre(-std::numeric_limits<float>::infinity(), 2));
}

TEST(Attention, RotaryTurnsPairs) {
  auto rotate = [](const char *interleaved) {
    return Case("rotaryembedding", 23)
        .attr("interleaved", interleaved)
        .in<float>({1, 1, 1, 4}, {1, 2, 3, 4})
        .in<float>({2, 2}, {1, 1, 0, 0})
        .in<float>({2, 2}, {0, 0, 1, 1})
        .in<int64_t>({1, 1}, {1})
        .out<float>({1, 1, 1, 4})
        .run()
        .get<float>();
  };
  EXPECT_THAT(rotate("0"), ElementsAre(-3, -4, 1, 2));
  EXPECT_THAT(rotate("1"), ElementsAre(-2, 1, -4, 3));
}

TEST(Attention, LinearDeltaRuleReplaces) {
  // With beta 1 the delta rule overwrites what the key stored before.
  Case c("linearattention", 27);
  c.attr("q_num_heads", "1").attr("kv_num_heads", "1");
  c.attr("update_rule", "\"delta\"").attr("scale", "1");
  c.in<float>({1, 2, 1}, {1, 1}).in<float>({1, 2, 1}, {1, 1});
  c.in<float>({1, 2, 1}, {5, 8}).absent().absent();
  c.in<float>({1, 2, 1}, {1, 1});
  c.out<float>({1, 2, 1}).out<float>({1, 1, 1, 1}).run();
  EXPECT_THAT(c.get<float>(0), ElementsAre(5, 8));
  EXPECT_THAT(c.get<float>(1), ElementsAre(8));
}

TEST(Quant, LinearRoundsToEvenAndSaturates) {
  auto q = Case("quantizelinear", 13)
               .in<float>({4}, {1, 3, 1000, -1000})
               .in<float>({}, {2})
               .in<uint8_t>({}, {128})
               .out<uint8_t>({4})
               .run()
               .get<uint8_t>();
  EXPECT_THAT(q, ElementsAre(128, 130, 255, 0));
  auto blocked = Case("dequantizelinear", 21)
                     .attr("axis", "0")
                     .attr("block_size", "2")
                     .in<int8_t>({3}, {1, 1, 1})
                     .in<float>({2}, {2, 5})
                     .in<int8_t>({2}, {0, -1})
                     .out<float>({3})
                     .run()
                     .get<float>();
  EXPECT_THAT(blocked, ElementsAre(2, 2, 10));
}

TEST(Quant, IntegerProductsSubtractZeroPoints) {
  auto y = Case("matmulinteger")
               .in<uint8_t>({1, 2}, {3, 5})
               .in<int8_t>({2, 2}, {1, 2, 3, 4})
               .in<uint8_t>({}, {1})
               .in<int8_t>({2}, {1, 2})
               .out<int32_t>({1, 2})
               .run()
               .get<int32_t>();
  EXPECT_THAT(y, ElementsAre(8, 8));
  auto conv = Case("convinteger")
                  .in<uint8_t>({1, 1, 2}, {2, 3})
                  .in<uint8_t>({1, 1, 2}, {1, 1})
                  .in<uint8_t>({}, {1})
                  .out<int32_t>({1, 1, 1})
                  .run()
                  .get<int32_t>();
  EXPECT_THAT(conv, ElementsAre(3));
}

TEST(Signal, TransformsInvert) {
  Floats x = {1, 2, 0, -1, 5};
  auto spectrum = Case("dft", 20)
                      .attr("onesided", "1")
                      .in<float>({1, 5, 1}, x)
                      .out<float>({1, 3, 2})
                      .run()
                      .get<float>();
  EXPECT_NEAR(spectrum[0], 7, 1e-5);
  auto back = Case("dft", 20)
                  .attr("inverse", "1")
                  .attr("onesided", "1")
                  .in<float>({1, 3, 2}, spectrum)
                  .in<int64_t>({}, {5})
                  .out<float>({1, 5, 1})
                  .run()
                  .get<float>();
  EXPECT_THAT(back, near(x));
  auto window = Case("hannwindow")
                    .attr("periodic", "0")
                    .in<int64_t>({}, {3})
                    .out<float>({3})
                    .run()
                    .get<float>();
  EXPECT_THAT(window, near({0, 1, 0}));
}

TEST(Image, ResizeKnowsItsCoordinates) {
  auto resize = [](const char *mode, const char *coordinate) {
    return Case("resize", 19)
        .attr("mode", mode)
        .attr("coordinate_transformation_mode", coordinate)
        .in<float>({2}, {0, 10})
        .absent()
        .in<float>({1}, {2})
        .out<float>({4})
        .run()
        .get<float>();
  };
  EXPECT_THAT(resize("\"linear\"", "\"half_pixel\""),
              near({0, 2.5f, 7.5f, 10}));
  EXPECT_THAT(resize("\"linear\"", "\"align_corners\""),
              near({0, 10 / 3.0f, 20 / 3.0f, 10}));
  EXPECT_THAT(resize("\"nearest\"", "\"asymmetric\""),
              ElementsAre(0, 0, 10, 10));
  Case old("upsample", 9);
  old.in<float>({1, 2}, {1, 2}).in<float>({2}, {2, 2});
  EXPECT_THAT(old.out<float>({2, 4}).run().get<float>(),
              ElementsAre(1, 1, 2, 2, 1, 1, 2, 2));
}

TEST(Image, GridSamplePadsOutside) {
  auto sample = [](const char *padding) {
    return Case("gridsample", 20)
        .attr("align_corners", "1")
        .attr("padding_mode", padding)
        .in<float>({1, 1, 1, 3}, {1, 2, 3})
        .in<float>({1, 1, 3, 2}, {-1, 0, 0.5f, 0, 2, 0})
        .out<float>({1, 1, 1, 3})
        .run()
        .get<float>();
  };
  EXPECT_THAT(sample("\"zeros\""), near({1, 2.5f, 0}));
  EXPECT_THAT(sample("\"border\""), near({1, 2.5f, 3}));
  EXPECT_THAT(sample("\"reflection\""), near({1, 2.5f, 2}));
}

TEST(Loss, IgnoresAndWeighs) {
  auto y = Case("negativeloglikelihoodloss")
               .attr("ignore_index", "-1")
               .in<float>({3, 2}, {-1, -2, -3, -4, -5, -6})
               .in<int64_t>({3}, {0, 1, -1})
               .in<float>({2}, {1, 3})
               .out<float>({})
               .run()
               .get<float>();
  EXPECT_THAT(y, near({(1 + 12) / 4.0f}));
  Case bad("softmaxcrossentropyloss");
  bad.in<float>({1, 2}, {0, 0}).in<int64_t>({1}, {2}).out<float>({});
  EXPECT_NE(bad.tryRun(), 0);
}

} // namespace

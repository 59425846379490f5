//===- ConvTest.cpp - conv and pool against float64 -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One to three dimensions, groups, depthwise, pads, strides, dilations, all
// element types, against loops over every index.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

using namespace concord;
using namespace concord::test;

namespace {

using List = std::vector<int64_t>;

std::string listOf(const List &values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? "," : "") + std::to_string(values[i]);
  return text + "]";
}

struct Case {
  List x = {}, kernel = {};
  int64_t m = 1, group = 1;
  List strides = {}, dilations = {}, pads = {};
  DType type = DType::F32;
  bool bias = false, residual = false, packed = false;
  std::string act = "none";
};

/// The case with all lists of rank 3.
struct Full {
  int64_t n, c, in[3], kernel[3], stride[3], dilation[3], begin[3], end[3],
      out[3];
  explicit Full(Case &c0, bool ceil = false) {
    size_t rank = c0.x.size() - 2;
    if (c0.strides.empty())
      c0.strides.assign(rank, 1);
    if (c0.dilations.empty())
      c0.dilations.assign(rank, 1);
    if (c0.pads.empty())
      c0.pads.assign(2 * rank, 0);
    n = c0.x[0];
    c = c0.x[1];
    for (size_t d = 0; d < 3; ++d) {
      bool real = d + rank >= 3;
      size_t i = d + rank - 3;
      in[d] = real ? c0.x[2 + i] : 1;
      kernel[d] = real ? c0.kernel[i] : 1;
      stride[d] = real ? c0.strides[i] : 1;
      dilation[d] = real ? c0.dilations[i] : 1;
      begin[d] = real ? c0.pads[i] : 0;
      end[d] = real ? c0.pads[rank + i] : 0;
      int64_t room =
          in[d] + begin[d] + end[d] - (kernel[d] - 1) * dilation[d] - 1;
      out[d] = room / stride[d] + 1;
      if (ceil && room % stride[d] && out[d] * stride[d] < in[d] + begin[d])
        ++out[d];
    }
  }
};

void check(Case c, std::mt19937 &rng) {
  Full f(c);
  int64_t outSize = f.out[0] * f.out[1] * f.out[2];
  int64_t inSize = f.in[0] * f.in[1] * f.in[2];
  int64_t kernelSize = f.kernel[0] * f.kernel[1] * f.kernel[2];
  int64_t channels = f.c / c.group;
  std::string text =
      "conv act=" + c.act + " bias=" + std::to_string(c.bias) +
      " dilations=" + listOf(c.dilations) + " dtype=" + lower(c.type) +
      " group=" + std::to_string(c.group) + " kernel=" + listOf(c.kernel) +
      " m=" + std::to_string(c.m) + " packed=" + std::to_string(c.packed) +
      " pads=" + listOf(c.pads) + " residual=" + std::to_string(c.residual) +
      " strides=" + listOf(c.strides) + " x=" + listOf(c.x);
  SCOPED_TRACE(text);
  Data x(c.type, f.n * f.c * inSize), w(c.type, c.m * channels * kernelSize),
      bias(c.type, c.m), residual(c.type, f.n * c.m * outSize),
      y(c.type, f.n * c.m * outSize);
  x.random(rng);
  w.random(rng);
  bias.random(rng);
  residual.random(rng);
  Handle kernel(text);
  std::vector<void *> pointers = {x.bytes,
                                  c.packed ? kernel.pack(w.bytes) : w.bytes};
  if (c.bias)
    pointers.push_back(bias.bytes);
  if (c.residual)
    pointers.push_back(residual.bytes);
  pointers.push_back(y.bytes);
  kernel.run(pointers);
  int64_t at = 0;
  for (int64_t n = 0; n < f.n; ++n)
    for (int64_t m = 0; m < c.m; ++m)
      for (int64_t od = 0; od < f.out[0]; ++od)
        for (int64_t oh = 0; oh < f.out[1]; ++oh)
          for (int64_t ow = 0; ow < f.out[2]; ++ow, ++at) {
            double want = c.bias ? bias.get(m) : 0, size = 1;
            for (int64_t ch = 0; ch < channels; ++ch)
              for (int64_t kd = 0; kd < f.kernel[0]; ++kd)
                for (int64_t kh = 0; kh < f.kernel[1]; ++kh)
                  for (int64_t kw = 0; kw < f.kernel[2]; ++kw) {
                    int64_t id =
                        od * f.stride[0] + kd * f.dilation[0] - f.begin[0];
                    int64_t ih =
                        oh * f.stride[1] + kh * f.dilation[1] - f.begin[1];
                    int64_t iw =
                        ow * f.stride[2] + kw * f.dilation[2] - f.begin[2];
                    if (id < 0 || id >= f.in[0] || ih < 0 || ih >= f.in[1] ||
                        iw < 0 || iw >= f.in[2])
                      continue;
                    int64_t from =
                        n * f.c + m / (c.m / c.group) * channels + ch;
                    double term =
                        x.get(((from * f.in[0] + id) * f.in[1] + ih) * f.in[2] +
                              iw) *
                        w.get((((m * channels + ch) * f.kernel[0] + kd) *
                                   f.kernel[1] +
                               kh) *
                                  f.kernel[2] +
                              kw);
                    want += term;
                    size += std::fabs(term);
                  }
            if (c.residual)
              want += residual.get(at);
            if (c.act == "relu")
              want = std::max(want, 0.0);
            double eps = epsilonOf(c.type);
            ASSERT_NEAR(y.get(at), want,
                        eps * std::fabs(want) +
                            (c.type == DType::F64 ? 0x1p-52 : 0x1p-23) * 16 *
                                size)
                << "n " << n << " m " << m << " at " << od << "," << oh << ","
                << ow;
          }
}

TEST(Conv, TwoDimensions) {
  std::mt19937 rng(1);
  for (int64_t width : {5, 16, 33, 40})
    for (int64_t stride : {1, 2, 3})
      for (int64_t dilation : {1, 2})
        for (int64_t pad : {0, 1, 3})
          check({.x = {2, 3, 9, width},
                 .kernel = {3, 2},
                 .m = 5,
                 .strides = {stride, stride},
                 .dilations = {dilation, dilation},
                 .pads = {pad, pad, 0, pad},
                 .bias = true,
                 .packed = pad == 1},
                rng);
}

TEST(Conv, OneAndThreeDimensions) {
  std::mt19937 rng(2);
  check(
      {.x = {2, 3, 50}, .kernel = {5}, .m = 4, .strides = {2}, .pads = {2, 1}},
      rng);
  check({.x = {1, 2, 5, 6, 7},
         .kernel = {2, 3, 3},
         .m = 3,
         .strides = {1, 2, 1},
         .pads = {1, 0, 1, 0, 1, 1},
         .act = "relu"},
        rng);
}

TEST(Conv, OneByOneIsAProduct) {
  std::mt19937 rng(3);
  for (int packed : {0, 1})
    check({.x = {2, 70, 9, 9},
           .kernel = {1, 1},
           .m = 37,
           .bias = true,
           .residual = true,
           .packed = packed != 0,
           .act = "relu"},
          rng);
  check({.x = {1, 512, 4, 4}, .kernel = {1, 1}, .m = 20, .packed = true}, rng);
  check({.x = {1, 8, 7, 7}, .kernel = {1, 1}, .m = 6, .strides = {2, 2}}, rng);
}

TEST(Conv, Groups) {
  std::mt19937 rng(4);
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    check({.x = {2, 6, 10, 20},
           .kernel = {3, 3},
           .m = 9,
           .group = 3,
           .pads = {1, 1, 1, 1},
           .type = type,
           .bias = true,
           .packed = true,
           .act = "relu"},
          rng);
}

TEST(Conv, Depthwise) {
  std::mt19937 rng(5);
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t stride : {1, 2})
      for (int64_t m : {4, 8})
        check({.x = {2, 4, 9, 37},
               .kernel = {3, 3},
               .m = m,
               .group = 4,
               .strides = {stride, stride},
               .dilations = {1, 2},
               .pads = {1, 2, 1, 1},
               .type = type,
               .bias = true,
               .packed = stride == 1,
               .act = "relu"},
              rng);
  check({.x = {1, 4, 9, 9},
         .kernel = {3, 3},
         .m = 4,
         .group = 4,
         .residual = true},
        rng);
}

TEST(Conv, ManyBlocksOfPatches) {
  std::mt19937 rng(6);
  check({.x = {1, 256, 12, 12},
         .kernel = {3, 3},
         .m = 20,
         .pads = {1, 1, 1, 1},
         .bias = true,
         .residual = true,
         .packed = true},
        rng);
}

void checkPool(Case c, const std::string &op, bool ceil, std::mt19937 &rng) {
  Full f(c, ceil);
  int64_t planes = f.n * f.c, inSize = f.in[0] * f.in[1] * f.in[2];
  int64_t outSize = f.out[0] * f.out[1] * f.out[2];
  Data x(c.type, planes * inSize), y(c.type, planes * outSize);
  x.random(rng);
  std::string text = "pool ceil=" + std::to_string(ceil) +
                     " dilations=" + listOf(c.dilations) +
                     " dtype=" + lower(c.type) + " kernel=" + listOf(c.kernel) +
                     " op=" + op + " pads=" + listOf(c.pads) +
                     " strides=" + listOf(c.strides) + " x=" + listOf(c.x);
  SCOPED_TRACE(text);
  Handle kernel(text);
  kernel.run({x.bytes, y.bytes});
  int64_t at = 0;
  for (int64_t p = 0; p < planes; ++p)
    for (int64_t od = 0; od < f.out[0]; ++od)
      for (int64_t oh = 0; oh < f.out[1]; ++oh)
        for (int64_t ow = 0; ow < f.out[2]; ++ow, ++at) {
          double best = -INFINITY, sum = 0;
          int64_t inside = 0, padded = 0;
          for (int64_t kd = 0; kd < f.kernel[0]; ++kd)
            for (int64_t kh = 0; kh < f.kernel[1]; ++kh)
              for (int64_t kw = 0; kw < f.kernel[2]; ++kw) {
                int64_t i[3] = {
                    od * f.stride[0] + kd * f.dilation[0] - f.begin[0],
                    oh * f.stride[1] + kh * f.dilation[1] - f.begin[1],
                    ow * f.stride[2] + kw * f.dilation[2] - f.begin[2]};
                bool in = true, pad = true;
                for (int d = 0; d < 3; ++d) {
                  in &= i[d] >= 0 && i[d] < f.in[d];
                  pad &= i[d] < f.in[d] + f.end[d];
                }
                padded += pad;
                if (!in)
                  continue;
                ++inside;
                double v = x.get(
                    ((p * f.in[0] + i[0]) * f.in[1] + i[1]) * f.in[2] + i[2]);
                best = std::max(best, v);
                sum += v;
              }
          double want = op == "max"
                            ? best
                            : sum / double(op == "average" ? inside : padded);
          ASSERT_NEAR(y.get(at), want, 4 * epsilonOf(c.type)) << at;
        }
}

TEST(Pool, WindowsPadsAndRounding) {
  std::mt19937 rng(7);
  for (const char *op : {"max", "average", "average_with_pad"})
    for (bool ceil : {false, true})
      for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
        checkPool({.x = {2, 3, 10, 11},
                   .kernel = {3, 3},
                   .strides = {2, 2},
                   .pads = {1, 1, 1, 1},
                   .type = type},
                  op, ceil, rng);
        checkPool({.x = {1, 2, 20},
                   .kernel = {4},
                   .strides = {3},
                   .dilations = {2},
                   .type = type},
                  op, ceil, rng);
        checkPool({.x = {1, 2, 5, 6, 7},
                   .kernel = {2, 2, 3},
                   .strides = {2, 2, 2},
                   .pads = {0, 1, 1, 1, 0, 1},
                   .type = type},
                  op, ceil, rng);
        // Global.
        checkPool({.x = {2, 3, 7, 9}, .kernel = {7, 9}, .type = type}, op, ceil,
                  rng);
      }
}

TEST(Pool, MaximumOfNanIsNan) {
  Data x(DType::F32, 64), y(DType::F32, 16);
  x.fill(1);
  x.set(9, NAN);
  Handle kernel("pool dtype=f32 kernel=[2,2] op=max strides=[2,2] x=[1,1,8,8]");
  kernel.run({x.bytes, y.bytes});
  EXPECT_TRUE(std::isnan(y.get(0)));
  EXPECT_EQ(y.get(1), 1);
}

TEST(Conv, BadDescriptions) {
  for (const char *text :
       {"conv dtype=f32 kernel=[3] m=1 x=[1,1,2]",
        "conv dtype=f32 kernel=[1] m=1 x=[1,1]",
        "conv dtype=f32 group=2 kernel=[1] m=1 x=[1,2,4]",
        "conv dtype=f32 kernel=[1,1] m=1 x=[1,2,4]",
        "conv dtype=f32 kernel=[1] m=1 strides=[0] x=[1,2,4]",
        "conv dtype=f32 kernel=[1] m=1 pads=[-1,0] x=[1,2,4]",
        "pool dtype=f32 kernel=[1] op=median x=[1,2,4]",
        "pool dtype=i8 kernel=[1] op=max x=[1,2,4]"}) {
    concord_kernel *kernel = nullptr;
    EXPECT_NE(concord_kernel_create(text, &kernel, nullptr), 0) << text;
  }
}

} // namespace

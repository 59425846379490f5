//===- RowsTest.cpp - softmax, layernorm, rmsnorm against float64 ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All element types, widths around the vector length, strides, masks with
// broadcast, causal cuts, and values that overflow a careless exp.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

using namespace concord;
using namespace concord::test;

namespace {

const DType kTypes[] = {DType::F32, DType::F64, DType::F16, DType::BF16};

TEST(Softmax, WidthsAndTypes) {
  std::mt19937 rng(1);
  for (DType type : kTypes)
    for (int64_t cols : {1, 3, 15, 16, 17, 64, 100, 1000})
      for (int log : {0, 1}) {
        const int64_t rows = 3, xs = cols + 2, ys = cols + 1;
        Data x(type, rows * xs), y(type, rows * ys);
        x.random(rng, -9, 9);
        y.fill(5);
        Handle kernel("softmax cols=" + std::to_string(cols) +
                      " dtype=" + lower(type) + " log=" + std::to_string(log) +
                      " rows=3 scale=0.5 xstride=" + std::to_string(xs) +
                      " ystride=" + std::to_string(ys));
        kernel.run({x.bytes, y.bytes});
        for (int64_t r = 0; r < rows; ++r) {
          double top = -INFINITY, total = 0;
          for (int64_t j = 0; j < cols; ++j)
            top = std::max(top, 0.5 * x.get(r * xs + j));
          for (int64_t j = 0; j < cols; ++j)
            total += std::exp(0.5 * x.get(r * xs + j) - top);
          for (int64_t j = 0; j < cols; ++j) {
            double v = 0.5 * x.get(r * xs + j) - top;
            double want = log ? v - std::log(total) : std::exp(v) / total;
            double eps = std::max(epsilonOf(type),
                                  type == DType::F64 ? 0x1p-52 : 0x1p-23);
            ASSERT_NEAR(y.get(r * ys + j), want,
                        8 * eps * std::max(std::fabs(want), log ? 10.0 : 0.0) +
                            (type == DType::F16 ? 0x1p-25 : 0))
                << cols << " " << lower(type);
          }
          EXPECT_EQ(y.get(r * ys + cols), 5) << "padding written";
        }
      }
}

TEST(Softmax, MaskWithBroadcast) {
  std::mt19937 rng(2);
  // Scores [2, 3, 4, 20]; mask [2, 1, 1, 20], and [1, 1, 4, 20].
  const int64_t cols = 20;
  for (bool perBatch : {true, false}) {
    Data x(DType::F32, 24 * cols), y(DType::F32, 24 * cols),
        mask(DType::F32, perBatch ? 2 * cols : 4 * cols);
    x.random(rng);
    mask.random(rng);
    mask.set(3, -INFINITY);
    Handle kernel(
        std::string("softmax cols=20 dtype=f32 maskshape=[2,3,4,20] ") +
        (perBatch ? "maskstrides=[20,0,0,1]" : "maskstrides=[0,0,20,1]") +
        " rows=24 scale=2");
    kernel.run({x.bytes, mask.bytes, y.bytes});
    for (int64_t r = 0; r < 24; ++r) {
      int64_t at = perBatch ? r / 12 * cols : r % 4 * cols;
      double total = 0;
      for (int64_t j = 0; j < cols; ++j)
        total += std::exp(2 * x.get(r * cols + j) + mask.get(at + j));
      for (int64_t j = 0; j < cols; ++j)
        ASSERT_NEAR(
            y.get(r * cols + j),
            std::exp(2 * x.get(r * cols + j) + mask.get(at + j)) / total, 1e-6);
    }
  }
}

TEST(Softmax, Causal) {
  std::mt19937 rng(3);
  Data x(DType::F32, 10 * 9), y(DType::F32, 10 * 9);
  x.random(rng);
  Handle kernel("softmax causal=1 cols=9 dtype=f32 offset=4 rows=10 sq=5");
  kernel.run({x.bytes, y.bytes});
  for (int64_t r = 0; r < 10; ++r) {
    double total = 0;
    for (int64_t j = 0; j <= r % 5 + 4; ++j)
      total += std::exp(x.get(r * 9 + j));
    for (int64_t j = 0; j < 9; ++j)
      EXPECT_NEAR(y.get(r * 9 + j),
                  j <= r % 5 + 4 ? std::exp(x.get(r * 9 + j)) / total : 0,
                  1e-6);
  }
}

TEST(Softmax, ExtremeValues) {
  Data x(DType::F32, 4 * 20), y(DType::F32, 4 * 20);
  x.fill(-3e38);
  x.set(0, 3e38); // one hot
  x.set(25, NAN); // a NaN spoils its row
  for (int j = 0; j < 20; ++j)
    x.set(40 + j, -INFINITY); // nothing left: NaN, as 0 / 0
  Handle kernel("softmax cols=20 dtype=f32 rows=4");
  kernel.run({x.bytes, y.bytes});
  EXPECT_EQ(y.get(0), 1);
  EXPECT_EQ(y.get(1), 0);
  EXPECT_TRUE(std::isnan(y.get(20)));
  EXPECT_TRUE(std::isnan(y.get(40)));
  EXPECT_NEAR(y.get(60), 0.05, 1e-7);
}

void checkNorm(DType type, int64_t cols, bool rms, bool gammaGiven,
               bool betaGiven, bool residualGiven, std::mt19937 &rng) {
  const int64_t rows = 4, xs = cols + 3;
  Data x(type, rows * xs), gamma(type, cols), beta(type, cols),
      residual(type, rows * cols), y(type, rows * cols), sum(type, rows * cols);
  x.random(rng, 1, 3);
  gamma.random(rng);
  beta.random(rng);
  residual.random(rng);
  std::string text = std::string(rms ? "rmsnorm" : "layernorm") +
                     " beta=" + std::to_string(betaGiven) +
                     " cols=" + std::to_string(cols) + " dtype=" + lower(type) +
                     " eps=0.001 gamma=" + std::to_string(gammaGiven) +
                     " residual=" + std::to_string(residualGiven) +
                     " rows=4 sum=" + std::to_string(residualGiven) +
                     " xstride=" + std::to_string(xs);
  SCOPED_TRACE(text);
  Handle kernel(text);
  std::vector<void *> pointers = {x.bytes};
  if (gammaGiven)
    pointers.push_back(gamma.bytes);
  if (betaGiven)
    pointers.push_back(beta.bytes);
  if (residualGiven)
    pointers.push_back(residual.bytes);
  pointers.push_back(y.bytes);
  if (residualGiven)
    pointers.push_back(sum.bytes);
  kernel.run(pointers);
  double eps =
      std::max(epsilonOf(type), type == DType::F64 ? 0x1p-52 : 0x1p-23);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> v(cols);
    double mean = 0, square = 0;
    for (int64_t j = 0; j < cols; ++j) {
      v[j] =
          x.get(r * xs + j) + (residualGiven ? residual.get(r * cols + j) : 0);
      if (residualGiven)
        ASSERT_NEAR(sum.get(r * cols + j), v[j], eps * 4);
      mean += v[j];
    }
    mean = rms ? 0 : mean / double(cols);
    for (double d : v)
      square += (d - mean) * (d - mean);
    double factor = 1 / std::sqrt(square / double(cols) + 0.001);
    for (int64_t j = 0; j < cols; ++j) {
      double want = (v[j] - mean) * factor;
      if (gammaGiven)
        want *= gamma.get(j);
      if (betaGiven)
        want += beta.get(j);
      ASSERT_NEAR(y.get(r * cols + j), want, 40 * eps) << r << ", " << j;
    }
  }
}

TEST(Norm, WidthsTypesAndOptions) {
  std::mt19937 rng(4);
  for (DType type : kTypes)
    for (int64_t cols : {1, 7, 16, 33, 384})
      for (int bits = 0; bits < 16; ++bits)
        checkNorm(type, cols, bits & 1, bits & 2, bits & 4, bits & 8, rng);
}

TEST(Norm, LargeMeanDoesNotCancel) {
  Data x(DType::F32, 64), gamma(DType::F32, 64), y(DType::F32, 64);
  gamma.fill(1);
  for (int j = 0; j < 64; ++j)
    x.set(j, 10000 + (j % 2 ? 1 : -1));
  Handle kernel("layernorm cols=64 dtype=f32 eps=0 rows=1");
  kernel.run({x.bytes, gamma.bytes, y.bytes});
  for (int j = 0; j < 64; ++j)
    EXPECT_NEAR(y.get(j), j % 2 ? 1 : -1, 1e-5);
}

TEST(Rows, BadDescriptions) {
  for (const char *text :
       {"softmax cols=4 dtype=i32 rows=1", "softmax cols=4 dtype=f32 rows=-1",
        "softmax cols=4 dtype=f32 maskshape=[2,4] maskstrides=[4] rows=2",
        "softmax cols=4 dtype=f32 maskshape=[3,4] maskstrides=[4,1] rows=2",
        "softmax causal=1 cols=4 dtype=f32 rows=2",
        "layernorm cols=0 dtype=f32 rows=2",
        "layernorm cols=4 dtype=f32 rows=2 sum=1"}) {
    concord_kernel *kernel = nullptr;
    EXPECT_NE(concord_kernel_create(text, &kernel, nullptr), 0) << text;
  }
}

} // namespace

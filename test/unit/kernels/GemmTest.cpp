//===- GemmTest.cpp - gemm against float64 --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes around every tile and block edge, all element types, strides,
// transposes, epilogues, broadcast batches, and the promise that a row's bits
// depend on nothing but the row.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

#include "concord/kernel_poll.h"

using namespace concord;
using namespace concord::test;

namespace {

double activation(const std::string &act, double x) {
  if (act == "relu")
    return x < 0 ? 0 : x;
  if (act == "gelu_erf")
    return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (act == "gelu_tanh")
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  if (act == "silu")
    return x / (1 + std::exp(-x));
  if (act == "tanh")
    return std::tanh(x);
  if (act == "sigmoid")
    return 1 / (1 + std::exp(-x));
  return x;
}

struct Case {
  int64_t m, n, k;
  DType type = DType::F32;
  bool transA = false, transB = false, packed = false;
  std::string bias = "none", act = "none";
  bool residual = false;
  double alpha = 1, beta = 1;
  int64_t padA = 0, padB = 0, padC = 0;
};

void check(const Case &c, std::mt19937 &rng) {
  int64_t lda = (c.transA ? c.m : c.k) + c.padA;
  int64_t ldb = (c.transB ? c.k : c.n) + c.padB;
  int64_t ldc = c.n + c.padC;
  std::string text =
      "gemm act=" + c.act + " alpha=" + std::to_string(c.alpha) +
      " beta=" + std::to_string(c.beta) + " bias=" + c.bias +
      " dtype=" + lower(c.type) + " k=" + std::to_string(c.k) +
      " lda=" + std::to_string(lda) + " ldb=" + std::to_string(ldb) +
      " ldc=" + std::to_string(ldc) + " m=" + std::to_string(c.m) +
      " n=" + std::to_string(c.n) + " packed=" + std::to_string(c.packed) +
      " residual=" + std::to_string(c.residual) +
      " transa=" + std::to_string(c.transA) +
      " transb=" + std::to_string(c.transB);
  SCOPED_TRACE(text);
  Data a(c.type, (c.transA ? c.k : c.m) * lda),
      b(c.type, (c.transB ? c.n : c.k) * ldb);
  Data bias(c.type, c.bias == "row" ? c.n : c.bias == "col" ? c.m : c.m * ldc);
  Data residual(c.type, c.m * ldc), out(c.type, c.m * ldc);
  a.random(rng);
  b.random(rng);
  bias.random(rng);
  residual.random(rng);
  out.fill(77);
  Handle gemm(text);
  std::vector<void *> pointers = {a.bytes,
                                  c.packed ? gemm.pack(b.bytes) : b.bytes};
  if (c.bias != "none")
    pointers.push_back(bias.bytes);
  if (c.residual)
    pointers.push_back(residual.bytes);
  pointers.push_back(out.bytes);
  gemm.run(pointers);
  double eps = epsilonOf(c.type);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      double got = out.get(i * ldc + j);
      if (j >= c.n) {
        ASSERT_EQ(got, 77) << "padding written at " << i << ", " << j;
        continue;
      }
      double sum = 0, size = 0;
      for (int64_t p = 0; p < c.k; ++p) {
        double term = a.get(c.transA ? p * lda + i : i * lda + p) *
                      b.get(c.transB ? j * ldb + p : p * ldb + j);
        sum += term;
        size += std::fabs(term);
      }
      sum *= c.alpha;
      if (c.bias == "row")
        sum += c.beta * bias.get(j);
      if (c.bias == "col")
        sum += c.beta * bias.get(i);
      if (c.bias == "full")
        sum += c.beta * bias.get(i * ldc + j);
      if (c.residual)
        sum += residual.get(i * ldc + j);
      double want = activation(c.act, sum);
      double sumEps = c.type == DType::F64 ? 0x1p-52 : 0x1p-23;
      double bound = eps * std::fabs(want) +
                     sumEps * (8 + std::sqrt(double(c.k))) * (size + 4);
      ASSERT_NEAR(got, want, bound) << i << ", " << j;
    }
}

TEST(Gemm, SizesAroundEveryEdge) {
  std::mt19937 rng(1);
  for (int64_t m : {1, 2, 3, 4, 5, 13, 14, 15, 27, 29, 43})
    for (int64_t n : {1, 5, 16, 17, 31, 32, 33, 64, 100, 129, 160})
      for (int64_t k : {1, 7, 32, 65})
        for (int packed : {0, 1})
          check({.m = m, .n = n, .k = k, .packed = packed != 0}, rng);
}

TEST(Gemm, SizesOfBfloat16) {
  std::mt19937 rng(12);
  // Pairs of k are multiplied at once where the CPU can: odd k, and rows that
  // begin in the middle of a pair.
  for (int64_t m : {1, 2, 3, 7, 8, 14, 15, 43})
    for (int64_t n : {1, 5, 16, 17, 32, 33, 160})
      for (int64_t k : {1, 2, 7, 16, 33, 66})
        for (int bits = 0; bits < 4; ++bits)
          check({.m = m,
                 .n = n,
                 .k = k,
                 .type = DType::BF16,
                 .packed = (bits & 1) != 0,
                 .padA = bits >> 1},
                rng);
}

TEST(Gemm, EveryTileHeight) {
  std::mt19937 rng(2);
  for (DType type : {DType::F32, DType::BF16})
    for (int64_t m = 1; m <= 30; ++m)
      check({.m = m, .n = 48, .k = 40, .type = type, .packed = true}, rng);
}

TEST(Gemm, BlocksOfK) {
  std::mt19937 rng(3);
  check({.m = 20, .n = 70, .k = 3000, .packed = true, .act = "gelu_erf"}, rng);
  check({.m = 20, .n = 70, .k = 3000, .packed = false, .padC = 3}, rng);
  check({.m = 3, .n = 200, .k = 3000, .packed = true, .residual = true}, rng);
  check({.m = 150, .n = 33, .k = 2048, .packed = true, .bias = "row"}, rng);
  check({.m = 200, .n = 600, .k = 40, .transB = true}, rng);
  check({.m = 150, .n = 33, .k = 1030, .type = DType::F64, .packed = true},
        rng);
  check({.m = 20, .n = 70, .k = 3301, .type = DType::BF16, .packed = true},
        rng);
  check({.m = 40, .n = 70, .k = 3300, .type = DType::BF16, .transB = true},
        rng);
  check({.m = 9, .n = 70, .k = 3300, .type = DType::BF16, .packed = true}, rng);
}

TEST(Gemm, RowsThatArePackedFirst) {
  std::mt19937 rng(11);
  // Many columns; rows 2 KiB apart; and both with several blocks of k.
  check({.m = 31, .n = 1050, .k = 77, .packed = true}, rng);
  check({.m = 31, .n = 1050, .k = 77, .type = DType::F64}, rng);
  check({.m = 20, .n = 160, .k = 512, .packed = true, .bias = "row"}, rng);
  check({.m = 6, .n = 160, .k = 512, .packed = true}, rng);
  check({.m = 33, .n = 150, .k = 1024, .packed = true, .act = "relu"}, rng);
  check({.m = 33, .n = 150, .k = 1024, .type = DType::F64, .packed = true},
        rng);
}

TEST(Gemm, TypesAndTransposes) {
  std::mt19937 rng(4);
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int bits = 0; bits < 8; ++bits)
      for (int64_t m : {1, 3, 37})
        check({.m = m,
               .n = 45,
               .k = 70,
               .type = type,
               .transA = (bits & 1) != 0,
               .transB = (bits & 2) != 0,
               .packed = (bits & 4) != 0,
               .padA = 3,
               .padB = 2,
               .padC = 5},
              rng);
}

TEST(Gemm, Epilogues) {
  std::mt19937 rng(5);
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (const char *act :
         {"none", "relu", "gelu_erf", "gelu_tanh", "silu", "tanh", "sigmoid"})
      for (const char *bias : {"none", "row", "col", "full"})
        check({.m = 17,
               .n = 35,
               .k = 20,
               .type = type,
               .packed = true,
               .bias = bias,
               .act = act,
               .residual = bias[0] == 'r',
               .alpha = 0.5,
               .beta = 2,
               .padC = 1},
              rng);
}

TEST(Gemm, EmptySums) {
  std::mt19937 rng(6);
  check({.m = 5, .n = 7, .k = 0, .bias = "row"}, rng);
  check({.m = 20, .n = 7, .k = 0, .packed = true}, rng);
  check({.m = 0, .n = 7, .k = 3}, rng);
  check({.m = 5, .n = 0, .k = 3}, rng);
}

TEST(Gemm, BatchBroadcast) {
  std::mt19937 rng(7);
  // A [2, 3, 5, 8] x B [3, 8, 6] broadcast over the first dimension.
  Data a(DType::F32, 2 * 3 * 5 * 8), b(DType::F32, 3 * 8 * 6),
      out(DType::F32, 2 * 3 * 5 * 6);
  a.random(rng);
  b.random(rng);
  for (int packed : {0, 1}) {
    Handle gemm("gemm astrides=[120,40] batch=[2,3] bstrides=[0,48] "
                "cstrides=[90,30] dtype=f32 k=8 m=5 n=6 packed=" +
                std::to_string(packed));
    gemm.run({a.bytes, packed ? gemm.pack(b.bytes) : b.bytes, out.bytes});
    for (int64_t x = 0; x < 6; ++x)
      for (int64_t i = 0; i < 5; ++i)
        for (int64_t j = 0; j < 6; ++j) {
          double want = 0;
          for (int64_t p = 0; p < 8; ++p)
            want += a.get(x * 40 + i * 8 + p) * b.get(x % 3 * 48 + p * 6 + j);
          ASSERT_NEAR(out.get(x * 30 + i * 6 + j), want, 1e-5);
        }
  }
}

TEST(Gemm, RowsMergeOverBatch) {
  std::mt19937 rng(8);
  Data a(DType::F32, 4 * 5 * 8), b(DType::F32, 8 * 6), bias(DType::F32, 6),
      one(DType::F32, 4 * 5 * 6), two(DType::F32, 4 * 5 * 6);
  a.random(rng);
  b.random(rng);
  bias.random(rng);
  Handle batched("gemm astrides=[40] batch=[4] bias=row bstrides=[0] "
                 "cstrides=[30] dtype=f32 k=8 m=5 n=6");
  Handle flat("gemm bias=row dtype=f32 k=8 m=20 n=6");
  batched.run({a.bytes, b.bytes, bias.bytes, one.bytes});
  flat.run({a.bytes, b.bytes, bias.bytes, two.bytes});
  EXPECT_EQ(memcmp(one.bytes, two.bytes, 4 * 5 * 6 * 4), 0);
}

class GemmBits : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, GemmBits,
                         testing::Values(DType::F32, DType::BF16),
                         [](const auto &info) { return lower(info.param); });

TEST_P(GemmBits, OfARowDependOnTheRowOnly) {
  std::mt19937 rng(9);
  const DType type = GetParam();
  const size_t size = dtypeSize(type);
  const int64_t n = 80, k = 1800, most = 200;
  Data a(type, most * k), b(type, k * n), whole(type, most * n);
  a.random(rng);
  b.random(rng);
  auto text = [&](int64_t m, int64_t columns, int packed) {
    return "gemm dtype=" + lower(type) +
           " k=1800 ldb=80 m=" + std::to_string(m) +
           " n=" + std::to_string(columns) +
           " packed=" + std::to_string(packed);
  };
  Handle all(text(most, n, 1));
  all.run({a.bytes, all.pack(b.bytes), whole.bytes});
  for (int64_t m : {1, 2, 5, 14, 15, 90})
    for (int packed : {0, 1}) {
      Data part(type, m * n);
      Handle some(text(m, n, packed));
      some.run({a.bytes, packed ? some.pack(b.bytes) : b.bytes, part.bytes});
      EXPECT_EQ(memcmp(part.bytes, whole.bytes, m * n * size), 0) << m;
    }
  // Half of the columns, as a rank of two computes them.
  Data half(type, most * 40);
  Handle rank1(text(most, 40, 1));
  rank1.run({a.bytes, rank1.pack(b.bytes + 40 * size), half.bytes});
  for (int64_t i = 0; i < most; ++i)
    ASSERT_EQ(memcmp(half.bytes + i * 40 * size,
                     whole.bytes + (i * 80 + 40) * size, 40 * size),
              0);
}

float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

/// An element as docs/kernels.md says that the CPU class makes it.
float chain(DType type, const Data &a, int64_t row, const Data &b, int64_t n,
            int64_t column, int64_t k) {
  const std::string target = concord_kernel_target();
  const bool pairs = type == DType::BF16 && target == "x86-64-v4-bf16";
  float sum = 0;
  for (int64_t p = 0; p < (pairs ? k + k % 2 : k); ++p) {
    int64_t at = pairs ? p ^ 1 : p; // of a pair, the odd one first
    float x = at < k ? float(a.get(row * k + at)) : 0;
    float y = at < k ? float(b.get(at * n + column)) : 0;
    if (pairs)
      sum = flushed(std::fma(flushed(x), flushed(y), sum));
    else if (target == "x86-64-v2")
      sum += x * y;
    else
      sum = std::fma(x, y, sum);
  }
  return sum;
}

TEST_P(GemmBits, AreThoseOfOneChain) {
  std::mt19937 rng(13);
  const DType type = GetParam();
  for (int64_t m : {1, 3, 9, 20})
    for (int64_t k : {1, 2, 37, 3300})
      for (int packed : {0, 1}) {
        const int64_t n = 50;
        Data a(type, m * k), b(type, k * n), out(type, m * n);
        // What is expected is taken off in two parts, so that the last bit of a
        // sum in f32 shows in a result of 8.
        Data high(type, m * n), low(type, m * n), want(type, m * n);
        a.random(rng);
        b.random(rng);
        // Below what a normal number can be: whole products, and some factors.
        for (int64_t i = 0; i < m * k; i += 5)
          a.set(i, a.get(i) * 0x1p-100);
        for (int64_t i = 0; i < k * n; i += 7)
          b.set(i, b.get(i) * 0x1p-126);
        for (int64_t i = 0; i < m * n; ++i) {
          double sum = chain(type, a, i / n, b, n, i % n, k);
          high.set(i, -sum);
          low.set(i, -(sum + high.get(i)));
          want.set(i, sum + high.get(i) + low.get(i));
        }
        Handle gemm("gemm bias=full dtype=" + lower(type) +
                    " k=" + std::to_string(k) + " m=" + std::to_string(m) +
                    " n=50 packed=" + std::to_string(packed) + " residual=1");
        gemm.run({a.bytes, packed ? gemm.pack(b.bytes) : b.bytes, high.bytes,
                  low.bytes, out.bytes});
        for (int64_t i = 0; i < m * n; ++i)
          ASSERT_EQ(out.get(i), want.get(i))
              << "m=" << m << " k=" << k << " packed=" << packed << ": "
              << i / n << ", " << i % n;
      }
}

TEST_P(GemmBits, NonFiniteValuesStayInTheirRowAndColumn) {
  const DType type = GetParam();
  for (int64_t k : {8, 9}) {
    Data a(type, 20 * k), b(type, k * 33), out(type, 20 * 33);
    a.fill(1);
    b.fill(1);
    a.set(3 * k + k - 1, NAN);
    b.set(5 * 33 + 32, INFINITY);
    Handle gemm("gemm dtype=" + lower(type) + " k=" + std::to_string(k) +
                " m=20 n=33 packed=1");
    gemm.run({a.bytes, gemm.pack(b.bytes), out.bytes});
    for (int64_t i = 0; i < 20; ++i)
      for (int64_t j = 0; j < 33; ++j) {
        double v = out.get(i * 33 + j);
        if (i == 3)
          EXPECT_TRUE(std::isnan(v));
        else if (j == 32)
          EXPECT_TRUE(std::isinf(v));
        else
          EXPECT_EQ(v, k);
      }
  }
}

TEST(Gemm, Integers) {
  std::mt19937 rng(10);
  std::vector<uint8_t> a(6 * 9), b(9 * 5);
  for (auto &v : a)
    v = uint8_t(rng());
  for (auto &v : b)
    v = uint8_t(rng());
  std::vector<int32_t> out(30);
  Handle bytes("gemm bdtype=i8 dtype=u8 k=9 m=6 n=5");
  bytes.run({a.data(), b.data(), out.data()});
  for (int i = 0; i < 6; ++i)
    for (int j = 0; j < 5; ++j) {
      int32_t want = 0;
      for (int p = 0; p < 9; ++p)
        want += int32_t(a[i * 9 + p]) * int32_t(int8_t(b[p * 5 + j]));
      EXPECT_EQ(out[i * 5 + j], want);
    }
  std::vector<int64_t> x = {INT64_MAX, 2, 3, 4}, y = {2, 0, 0, 1}, z(4);
  Handle wide("gemm dtype=i64 k=2 m=2 n=2");
  wide.run({x.data(), y.data(), z.data()});
  EXPECT_EQ(z, (std::vector<int64_t>{-2, 2, 6, 4}));
}

TEST(Gemm, BadDescriptions) {
  for (const char *text :
       {"gemm dtype=f32 k=2 m=2", "gemm dtype=f32 k=-1 m=2 n=2",
        "gemm dtype=f32 k=2 lda=1 m=2 n=2", "gemm dtype=bool k=2 m=2 n=2",
        "gemm act=swish dtype=f32 k=2 m=2 n=2",
        "gemm batch=[2] bstrides=[1,2] dtype=f32 k=2 m=2 n=2",
        "gemm dtype=f32 k=1099511627776 m=1099511627776 n=2",
        "gemm batch=[1099511627776,1099511627776] dtype=f32 k=2 m=2 n=2",
        "gemm dtype=f32 k=2 m=2 n=2 zzz=1"}) {
    concord_kernel *kernel = nullptr;
    EXPECT_NE(concord_kernel_create(text, &kernel, nullptr), 0) << text;
    EXPECT_EQ(kernel, nullptr);
  }
}

int polls = 0;
TEST(Gemm, PollsAtTileBoundaries) {
  concord_kernel_set_poll_hook(
      [](void *count) { ++*static_cast<int *>(count); }, &polls);
  Data a(DType::F32, 64 * 512), b(DType::F32, 512 * 512),
      c(DType::F32, 64 * 512);
  Handle gemm("gemm dtype=f32 k=512 m=64 n=512");
  gemm.run({a.bytes, b.bytes, c.bytes});
  concord_kernel_set_poll_hook(nullptr, nullptr);
  // 33 MFLOP are at least 100 us on any core: some polls, not one per tile.
  EXPECT_GE(polls, 4);
  EXPECT_LE(polls, 200);
}

} // namespace

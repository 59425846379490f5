//===- FusedExchangeTest.cpp - All-to-alls that compute -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// fused_dispatch and fused_combine on 1 to 4 ranks as threads, randomly
// delayed, against float64. Operands are written again between the runs, so
// that whoever reads or stores too late or too early is seen; under
// ThreadSanitizer this is the test of the flag protocol.
//
//===----------------------------------------------------------------------===//

#include "FusedRanks.h"

#include <cmath>

using namespace concord;
using namespace concord::test;

namespace {

struct Case {
  int members = 2;
  bool bf16 = false;
  int64_t groups = 1, rows = 6, k = 24, n = 40; ///< rows: from each to each
  bool bias = false, weighed = false, outside = false;
  int products = 1;

  DType type() const { return bf16 ? DType::BF16 : DType::F32; }
  const char *name() const { return bf16 ? "bf16" : "f32"; }
  size_t size() const { return bf16 ? 2 : 4; }
  std::string product() const {
    return std::string("\"gemm") + (bias ? " bias=row" : "") +
           " dtype=" + name() + " k=" + std::to_string(k) +
           " m=" + std::to_string(rows * members) + " n=" + std::to_string(n) +
           "\"";
  }
  std::string head(const char *name) const {
    return std::string(name) + " dtype=" + this->name() +
           " groups=" + std::to_string(groups) +
           " members=" + std::to_string(members) + " product=" + product();
  }
};

float valueOf(const Case &c, int operand, int rank, int run, uint64_t i) {
  return test::valueOf(c.type(), operand, rank, i, run);
}

void fill(const Case &c, char *at, int operand, int rank, int run,
          uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    toBits(c.type(), valueOf(c, operand, rank, run, i), at + i * c.size());
}

double tolerance(const Case &c, double want) {
  return (c.bf16 ? 8e-3 : 2e-6) *
         (std::abs(want) + std::sqrt(double(c.k * c.groups)));
}

void runDispatch(const Case &c, int runs) {
  std::string text = c.head("fused_dispatch");
  for (int i = 1; i < c.products; ++i)
    text += " product" + std::to_string(i) + "=" + c.product();
  SCOPED_TRACE(text);
  const int64_t all = c.rows * c.members;
  runRanks(c.members, [&](Rank &rank) {
    FusedRank runner(rank, text, c.outside, unsigned(c.n));
    auto add = [&](int64_t count) {
      return runner.add(uint64_t(count) * c.size());
    };
    auto write = [&](char *at, int operand, int run, int64_t count) {
      fill(c, at, operand, rank.rank, run, uint64_t(count));
    };
    ASSERT_NE(runner.kernel, nullptr);
    char *x = add(all * c.k);
    for (int i = 0; i < c.products; ++i) {
      const uint64_t count = uint64_t(c.groups * c.k * c.n);
      write(add(count), 10 + i, 0, count);
      if (c.bias)
        write(add(uint64_t(c.n)), 20 + i, 0, uint64_t(c.n));
    }
    std::vector<char *> out;
    for (int i = 0; i < c.products; ++i)
      out.push_back(add(uint64_t(c.groups * all * c.n)));
    for (int run = 0; run < runs; ++run) {
      write(x, 0, run, uint64_t(all * c.k));
      for (char *y : out)
        std::memset(y, 0xff, size_t(c.groups * all * c.n) * c.size());
      runner.issue();
      // Peers have read it: it may be written at once.
      std::memset(x, 0xee, size_t(all * c.k) * c.size());
      for (int i = 0; i < c.products; ++i)
        for (int64_t g = 0; g < c.groups; ++g)
          for (int64_t r = 0; r < all; r += 3)
            for (int64_t j = 0; j < c.n; j += 7) {
              const int owner = int(r / c.rows);
              const int64_t from = rank.rank * c.rows + r % c.rows;
              double want =
                  c.bias ? valueOf(c, 20 + i, rank.rank, 0, uint64_t(j)) : 0;
              for (int64_t p = 0; p < c.k; ++p)
                want += double(valueOf(c, 0, owner, run,
                                       uint64_t(from * c.k + p))) *
                        double(valueOf(c, 10 + i, rank.rank, 0,
                                       uint64_t((g * c.k + p) * c.n + j)));
              ASSERT_NEAR(
                  fromBits(c.type(), out[size_t(i)] +
                                         ((g * all + r) * c.n + j) * c.size()),
                  want, tolerance(c, want))
                  << "run " << run << " product " << i << " at " << g << ", "
                  << r << ", " << j;
            }
    }
  });
}

void runCombine(const Case &c, int runs) {
  const std::string text =
      c.head("fused_combine") + (c.weighed ? " weighed=1" : "");
  SCOPED_TRACE(text);
  const int64_t all = c.rows * c.members;
  runRanks(c.members, [&](Rank &rank) {
    FusedRank runner(rank, text, c.outside, unsigned(c.n));
    auto add = [&](int64_t count) {
      return runner.add(uint64_t(count) * c.size());
    };
    auto write = [&](char *at, int operand, int run, int64_t count) {
      fill(c, at, operand, rank.rank, run, uint64_t(count));
    };
    ASSERT_NE(runner.kernel, nullptr);
    const uint64_t aCount = uint64_t(c.groups * all * c.k);
    const uint64_t bCount = uint64_t(c.groups * c.k * c.n);
    char *a = add(aCount);
    write(add(bCount), 10, 0, bCount);
    if (c.bias)
      write(add(uint64_t(c.n)), 20, 0, uint64_t(c.n));
    char *factors = c.weighed ? add(uint64_t(c.groups * all)) : nullptr;
    char *y = add(uint64_t(all * c.n));
    for (int run = 0; run < runs; ++run) {
      write(a, 0, run, aCount);
      if (factors)
        write(factors, 1, run, uint64_t(c.groups * all));
      std::memset(y, 0xff, size_t(all * c.n) * c.size());
      runner.issue();
      std::memset(a, 0xee, aCount * c.size());
      for (int64_t r = 0; r < all; r += 2)
        for (int64_t j = 0; j < c.n; j += 7) {
          const int member = int(r / c.rows);
          const int64_t row = rank.rank * c.rows + r % c.rows;
          double want = 0;
          for (int64_t g = 0; g < c.groups; ++g) {
            double part = c.bias ? valueOf(c, 20, member, 0, uint64_t(j)) : 0;
            for (int64_t p = 0; p < c.k; ++p)
              part += double(valueOf(c, 0, member, run,
                                     uint64_t((g * all + row) * c.k + p))) *
                      double(valueOf(c, 10, member, 0,
                                     uint64_t((g * c.k + p) * c.n + j)));
            if (c.weighed)
              part *=
                  double(valueOf(c, 1, member, run, uint64_t(g * all + row)));
            want += part;
          }
          ASSERT_NEAR(fromBits(c.type(), y + (r * c.n + j) * c.size()), want,
                      tolerance(c, want))
              << "run " << run << " at " << r << ", " << j;
        }
    }
  });
}

TEST(FusedExchange, DispatchFeedsTheProducts) {
  for (int members : {1, 2, 3, 4})
    for (bool bf16 : {false, true}) {
      Case c;
      c.members = members;
      c.bf16 = bf16;
      runDispatch(c, 4);
      c.groups = 3;
      c.bias = true;
      c.products = 1 + members % 3;
      runDispatch(c, 4);
    }
}

TEST(FusedExchange, CombineReturnsTheRows) {
  for (int members : {1, 2, 3, 4})
    for (bool bf16 : {false, true}) {
      Case c;
      c.members = members;
      c.bf16 = bf16;
      c.bias = members == 2;
      runCombine(c, 4);
      c.groups = 1 + members % 3;
      c.weighed = true;
      runCombine(c, 4);
    }
}

TEST(FusedExchange, ManyPartsAndRuns) {
  Case c;
  c.rows = 250; // three parts, the last one short
  c.k = 8;
  c.n = 16;
  c.groups = 2;
  c.weighed = true;
  runCombine(c, 12);
  runDispatch(c, 12);
}

TEST(FusedExchange, BuffersOutsideTheHeap) {
  Case c;
  c.outside = true;
  runDispatch(c, 4);
  c.weighed = true;
  runCombine(c, 4);
}

TEST(FusedExchange, WhatCannotBeIsRefused) {
  auto refusal = [](const std::string &text) -> std::string {
    concord_kernel *kernel = nullptr;
    int32_t status = concord_kernel_create(text.c_str(), &kernel, nullptr);
    concord_kernel_destroy(kernel);
    return status ? concord_kernel_last_error() : "";
  };
  Case c;
  c.groups = 2;
  EXPECT_NE(refusal(c.head("fused_combine")).find("rows are weighed"),
            std::string::npos);
  EXPECT_NE(refusal("fused_dispatch dtype=f32 members=2 product=\"gemm "
                    "dtype=f32 k=4 m=5 n=4\"")
                .find("do not divide"),
            std::string::npos);
  EXPECT_NE(refusal("fused_dispatch dtype=f32 members=2 product=\"gemm "
                    "dtype=f32 k=4 m=4 n=4 residual=1\"")
                .find("residual"),
            std::string::npos);
  EXPECT_NE(refusal("fused_dispatch dtype=f32 members=2 product=\"gemm "
                    "dtype=f32 k=4 m=4 n=4\" product1=\"gemm dtype=f32 k=8 m=4 "
                    "n=4\"")
                .find("another A"),
            std::string::npos);
}

} // namespace

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

#include "Ranks.h"

#include "concord/kernel.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <random>

using namespace concord;
using namespace concord::test;

namespace {

struct Case {
  int members = 2;
  bool bf16 = false;
  int64_t groups = 1, rows = 6, k = 24, n = 40; ///< rows: from each to each
  bool bias = false, weighed = false, outside = false;
  int products = 1;

  size_t size() const { return bf16 ? 2 : 4; }
  const char *type() const { return bf16 ? "bf16" : "f32"; }
  std::string product() const {
    return std::string("\"gemm") + (bias ? " bias=row" : "") +
           " dtype=" + type() + " k=" + std::to_string(k) +
           " m=" + std::to_string(rows * members) + " n=" + std::to_string(n) +
           "\"";
  }
  std::string head(const char *name) const {
    return std::string(name) + " dtype=" + type() +
           " groups=" + std::to_string(groups) +
           " members=" + std::to_string(members) + " product=" + product();
  }
};

float valueOf(const Case &c, int operand, int rank, int run, uint64_t i) {
  uint64_t hash = (uint64_t(operand) * 1000003 + uint64_t(rank) * 7919 +
                   uint64_t(run) * 104729 + i) *
                  0x9e3779b97f4a7c15;
  float value = float(int(hash >> 40 & 0xffff) - 32768) / 32768;
  if (!c.bf16)
    return value;
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits &= 0xffff0000;
  std::memcpy(&value, &bits, 4);
  return value;
}

void store(const Case &c, char *at, uint64_t i, float value) {
  if (c.bf16)
    std::memcpy(at + i * 2, reinterpret_cast<char *>(&value) + 2, 2);
  else
    std::memcpy(at + i * 4, &value, 4);
}

float load(const Case &c, const char *at, uint64_t i) {
  float value = 0;
  if (c.bf16)
    std::memcpy(reinterpret_cast<char *>(&value) + 2, at + i * 2, 2);
  else
    std::memcpy(&value, at + i * 4, 4);
  return value;
}

/// Busy for up to some microseconds, so that ranks meet in every order.
void delay(std::mt19937 &random) {
  auto end = std::chrono::steady_clock::now() +
             std::chrono::microseconds(random() % 8 == 0 ? random() % 300
                                                         : random() % 10);
  while (std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
}

class Runner {
public:
  Runner(Rank &rank, const Case &c, const std::string &text)
      : rank(rank), c(c), random(unsigned(rank.rank) * 31 + unsigned(c.n)) {
    info.struct_size = sizeof info;
    fused.struct_size = sizeof fused;
    EXPECT_EQ(concord_kernel_create(text.c_str(), &kernel, &info), 0)
        << text << ": " << concord_kernel_last_error();
    if (kernel) {
      EXPECT_EQ(concord_kernel_fused(kernel, &fused), 0);
    }
    kept.reserve(16);
  }
  ~Runner() { concord_kernel_destroy(kernel); }

  char *add(uint64_t count, bool heap = true) {
    return addBytes(count * c.size(), heap);
  }
  char *addBytes(uint64_t bytes, bool heap) {
    char *at;
    if (heap && !c.outside) {
      at = rank.heap<char>(bytes + 64);
    } else {
      kept.emplace_back(bytes + 64);
      at = kept.back().data();
      at += -reinterpret_cast<uintptr_t>(at) & 63;
    }
    buffers.push_back({at, 1, bytes, bytes});
    return at;
  }
  void fill(char *at, int operand, int run, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i)
      store(c, at, i, valueOf(c, operand, rank.rank, run, i));
  }
  void issue() {
    if (info.workspace_bytes && buffers.size() == fused.num_operands)
      addBytes(info.workspace_bytes, false);
    delay(random);
    ASSERT_OK(concord_fused(rank.world, kernel, buffers.data(),
                            uint32_t(buffers.size())));
  }

  Rank &rank;
  const Case &c;
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  concord_fused_info fused{};
  std::vector<concord_buffer> buffers;

private:
  std::vector<std::vector<char>> kept;
  std::mt19937 random;
};

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
    Runner runner(rank, c, text);
    ASSERT_NE(runner.kernel, nullptr);
    char *x = runner.add(uint64_t(all * c.k));
    for (int i = 0; i < c.products; ++i) {
      const uint64_t count = uint64_t(c.groups * c.k * c.n);
      runner.fill(runner.add(count), 10 + i, 0, count);
      if (c.bias)
        runner.fill(runner.add(uint64_t(c.n)), 20 + i, 0, uint64_t(c.n));
    }
    std::vector<char *> out;
    for (int i = 0; i < c.products; ++i)
      out.push_back(runner.add(uint64_t(c.groups * all * c.n)));
    for (int run = 0; run < runs; ++run) {
      runner.fill(x, 0, run, uint64_t(all * c.k));
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
                  load(c, out[size_t(i)], uint64_t((g * all + r) * c.n + j)),
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
    Runner runner(rank, c, text);
    ASSERT_NE(runner.kernel, nullptr);
    const uint64_t aCount = uint64_t(c.groups * all * c.k);
    const uint64_t bCount = uint64_t(c.groups * c.k * c.n);
    char *a = runner.add(aCount);
    runner.fill(runner.add(bCount), 10, 0, bCount);
    if (c.bias)
      runner.fill(runner.add(uint64_t(c.n)), 20, 0, uint64_t(c.n));
    char *factors = c.weighed ? runner.add(uint64_t(c.groups * all)) : nullptr;
    char *y = runner.add(uint64_t(all * c.n));
    for (int run = 0; run < runs; ++run) {
      runner.fill(a, 0, run, aCount);
      if (factors)
        runner.fill(factors, 1, run, uint64_t(c.groups * all));
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
          ASSERT_NEAR(load(c, y, uint64_t(r * c.n + j)), want,
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

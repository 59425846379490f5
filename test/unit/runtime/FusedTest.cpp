//===- FusedTest.cpp - Collectives that compute ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fused kernels on 1 to 5 ranks as threads, randomly delayed, against float64
// and against each other: results that every rank has must have the same bits.
// Under ThreadSanitizer this is the test of the flag protocol.
//
//===----------------------------------------------------------------------===//

#include "FusedRanks.h"

#include <cmath>
#include <mutex>

using namespace concord;
using namespace concord::test;

namespace {

const char *nameOf(DType type) {
  return type == DType::F32   ? "f32"
         : type == DType::F64 ? "f64"
         : type == DType::F16 ? "f16"
                              : "bf16";
}

struct Case {
  int members = 2;
  DType type = DType::F32;
  int64_t rows = 8, cols = 64, k = 0; ///< k: with a product
  std::string norm = "none";
  bool gamma = false, beta = false, bias = false, residual = false;
  bool sum = false, scatter = false, every = false, packed = false;
  bool outside = false; ///< buffers outside the heap

  std::string product(int64_t m) const {
    return std::string("gemm dtype=") + nameOf(type) +
           " k=" + std::to_string(k) + " m=" + std::to_string(m) +
           " n=" + std::to_string(cols) + (packed ? " packed=1" : "");
  }
  std::string text() const {
    auto flag = [](const char *key, bool value) {
      return value ? std::string(" ") + key + "=1" : std::string();
    };
    return "fused_reduce" + flag("beta", beta) + flag("bias", bias) +
           " cols=" + std::to_string(cols) + " dtype=" + nameOf(type) +
           flag("every", every) + flag("gamma", gamma) +
           " members=" + std::to_string(members) + " norm=" + norm +
           (k ? " product=\"" + product(rows) + "\"" : "") +
           flag("residual", residual) + " rows=" + std::to_string(rows) +
           flag("scatter", scatter) + flag("sum", sum);
  }
};

/// Tolerance relative to the size of what was added.
double tolerance(DType type, int64_t k) {
  double unit = type == DType::F64   ? 1e-7 // compared as f32
                : type == DType::F32 ? 6e-8
                : type == DType::F16 ? 5e-4
                                     : 4e-3;
  return unit * (8 + std::sqrt(double(k)));
}

/// What one rank's results are in float64: y and sum, all rows.
void reference(const Case &c, std::vector<double> &y,
               std::vector<double> &sum) {
  size_t count = size_t(c.rows * c.cols);
  y.assign(count, 0);
  for (int r = 0; r < c.members; ++r)
    for (int64_t i = 0; i < c.rows; ++i)
      for (int64_t j = 0; j < c.cols; ++j) {
        double value = 0;
        if (c.k)
          for (int64_t p = 0; p < c.k; ++p)
            value += double(valueOf(c.type, 0, r, uint64_t(i * c.k + p))) *
                     double(valueOf(c.type, 1, r, uint64_t(p * c.cols + j)));
        else
          value = valueOf(c.type, 0, r, uint64_t(i * c.cols + j));
        y[size_t(i * c.cols + j)] += value;
      }
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < c.cols; ++j) {
      double &value = y[size_t(i * c.cols + j)];
      if (c.bias)
        value += valueOf(c.type, 2, 0, uint64_t(j));
      if (c.residual)
        value += valueOf(c.type, 3, 0, uint64_t(i * c.cols + j));
    }
  sum = y;
  if (c.norm == "none")
    return;
  for (int64_t i = 0; i < c.rows; ++i) {
    double *row = &y[size_t(i * c.cols)];
    double mean = 0, square = 0;
    if (c.norm == "layernorm")
      for (int64_t j = 0; j < c.cols; ++j)
        mean += row[j] / double(c.cols);
    for (int64_t j = 0; j < c.cols; ++j)
      square += (row[j] - mean) * (row[j] - mean) / double(c.cols);
    for (int64_t j = 0; j < c.cols; ++j) {
      row[j] = (row[j] - mean) / std::sqrt(square + 1e-5);
      if (c.gamma)
        row[j] *= valueOf(c.type, 4, 0, uint64_t(j));
      if (c.beta)
        row[j] += valueOf(c.type, 5, 0, uint64_t(j));
    }
  }
}

void runCase(const Case &c, int repeats) {
  SCOPED_TRACE(c.text());
  std::vector<double> wantY, wantSum;
  reference(c, wantY, wantSum);
  std::mutex mutex;
  std::vector<std::vector<char>> results(size_t(c.members));
  runRanks(c.members, [&](Rank &rank) {
    FusedRank fused(rank, c.text(), c.outside, unsigned(c.rows));
    ASSERT_NE(fused.kernel, nullptr);
    const size_t es = dtypeSize(c.type);
    const size_t own = size_t(c.scatter ? c.rows / c.members : c.rows);
    auto input = [&](int operand, int r, size_t count, size_t skip = 0) {
      char *at = fused.add(count * es);
      for (size_t i = 0; i < count; ++i)
        toBits(c.type, valueOf(c.type, operand, r, i + skip), at + i * es);
      return at;
    };
    size_t cols = size_t(c.cols), rows = size_t(c.rows);
    if (c.k) {
      input(0, rank.rank, rows * size_t(c.k));
      char *b = input(1, rank.rank, size_t(c.k) * cols);
      if (c.packed) {
        std::vector<char> weight(b, b + size_t(c.k) * cols * es);
        fused.buffers.pop_back();
        char *packed = fused.add(fused.info.packed_weight_bytes, false);
        ASSERT_EQ(concord_kernel_pack(fused.kernel, weight.data(), packed), 0);
      }
    } else {
      input(0, rank.rank, rows * cols);
    }
    size_t skip = c.scatter ? own * size_t(rank.rank) * cols : 0;
    if (c.bias)
      input(2, 0, cols);
    if (c.residual)
      input(3, 0, own * cols, skip);
    if (c.gamma)
      input(4, 0, cols);
    if (c.beta)
      input(5, 0, cols);
    char *y = fused.add(own * cols * es);
    char *sum = c.sum ? fused.add(own * cols * es) : nullptr;
    char *partial = c.k ? rank.heap<char>(rows * cols * es) : nullptr;
    if (c.k)
      fused.buffers.push_back({partial, 1, rows * cols * es, rows * cols * es});
    ASSERT_EQ(fused.buffers.size(), fused.fused.num_operands);
    int32_t *other = rank.heap<int32_t>(4096);
    std::vector<char> first;
    for (int i = 0; i < repeats; ++i) {
      std::memset(y, 0xff, own * cols * es);
      if (sum)
        std::memset(sum, 0xff, own * cols * es);
      fused.issue();
      std::vector<char> got(y, y + own * cols * es);
      if (sum)
        got.insert(got.end(), sum, sum + own * cols * es);
      // Inputs that peers have read may be written at once.
      if (partial)
        std::memset(partial, 0xee, rows * cols * es);
      if (i == 0)
        first = got;
      else
        ASSERT_EQ(first, got) << "run " << i;
      // Other operations of the communicator in between, of both protocols.
      if (i % 3 == 1) {
        for (int j = 0; j < 4096; ++j)
          other[j] = rank.rank + j;
        ASSERT_OK(concord_all_reduce(rank.world, other, other, i % 2 ? 4096 : 3,
                                     CONCORD_DTYPE_I32, CONCORD_REDUCTION_SUM,
                                     nullptr));
        ASSERT_EQ(other[2], c.members * (c.members - 1) / 2 + 2 * c.members);
      }
    }
    double error = tolerance(c.type, c.k);
    double scale =
        std::sqrt(double(c.members) * double(std::max<int64_t>(c.k, 1)));
    for (size_t i = 0; i < own * cols; ++i) {
      double want = wantY[i + skip];
      ASSERT_NEAR(fromBits(c.type, y + i * es), want,
                  error * (std::abs(want) + (c.norm == "none" ? scale : 4)))
          << "element " << i;
      if (sum) {
        ASSERT_NEAR(fromBits(c.type, sum + i * es), wantSum[i + skip],
                    error * (std::abs(wantSum[i + skip]) + scale));
      }
    }
    std::lock_guard lock(mutex);
    results[size_t(rank.rank)] = first;
  });
  if (!c.scatter)
    for (int r = 1; r < c.members; ++r)
      EXPECT_TRUE(results[size_t(r)] == results[0])
          << "ranks 0 and " << r << " differ";
}

TEST(Fused, ReductionsWithNorms) {
  for (int members : {1, 2, 3, 5})
    for (DType type : {DType::F32, DType::BF16})
      for (const char *norm : {"none", "layernorm", "rmsnorm"}) {
        Case c;
        c.members = members;
        c.type = type;
        c.norm = norm;
        c.rows = 37;
        c.cols = 72;
        c.residual = true;
        c.bias = members != 3;
        c.gamma = c.norm != "none";
        c.beta = c.norm == "layernorm";
        c.sum = c.norm != "none" && members != 2;
        runCase(c, 4);
        c.every = true;
        runCase(c, 3);
      }
}

TEST(Fused, Products) {
  for (int members : {1, 2, 3, 4})
    for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16}) {
      // The types differ in the kernel alone, the members in the protocol.
      if (type != DType::F32 && type != DType::BF16 && members != 2)
        continue;
      Case c;
      c.members = members;
      c.type = type;
      c.rows = 28 * members;
      c.cols = 200;
      c.k = 24;
      c.packed = members % 2 == 0;
      c.residual = true;
      runCase(c, 3); // by rows
      c.norm = "rmsnorm";
      c.gamma = c.sum = true;
      runCase(c, 3);
      c.scatter = true;
      runCase(c, 3);
      c.norm = "none";
      c.gamma = c.sum = false;
      runCase(c, 3);
      c.scatter = false;
      c.cols = 64 * members + 24;
      c.rows = 3; // by columns
      runCase(c, 3);
      c.rows = 20; // of several tiles
      c.bias = true;
      runCase(c, 3);
      c.bias = c.residual = false;
      runCase(c, 3);
      c.cols = 64 * members + 3; // the last columns fill no vector
      runCase(c, 3);
    }
}

TEST(Fused, FewRowsOfALongProduct) {
  // More of k than one block: partial sums lie in the result meanwhile.
  Case c;
  c.cols = 330; // four panels at once, one, and half of one
  c.k = 1700;
  c.packed = true;
  for (DType type : {DType::F32, DType::BF16})
    for (int64_t rows : {1, 3, 20})
      for (bool residual : {true, false}) {
        c.type = type;
        c.rows = rows;
        c.residual = residual;
        runCase(c, 3);
      }
}

TEST(Fused, ManyPartsAndRuns) {
  Case c;
  c.members = 3;
  c.rows = 1200; // several parts for each
  c.cols = 64;
  c.k = 8;
  c.bias = true;
  runCase(c, 12);
  c.members = 2;
  c.norm = "layernorm";
  c.residual = c.sum = true;
  runCase(c, 20);
  c.k = 0;
  c.cols = 600; // 128 KiB a part
  runCase(c, 12);
}

TEST(Fused, FewerRowsThanMembers) {
  for (int64_t rows : {1, 2, 3}) {
    Case c;
    c.members = 4;
    c.rows = rows;
    c.norm = "rmsnorm";
    c.residual = c.sum = true;
    runCase(c, 4);
    c.k = 16;
    runCase(c, 4);
  }
}

TEST(Fused, BuffersOutsideTheHeap) {
  Case c;
  c.outside = true;
  c.norm = "layernorm";
  c.residual = c.sum = c.gamma = c.beta = true;
  runCase(c, 4);
  c.k = 24;
  runCase(c, 4);
}

TEST(Fused, GatherFeedsTheProduct) {
  for (int members : {1, 2, 3, 4})
    for (DType type : {DType::F32, DType::F16, DType::BF16}) {
      const int64_t share = 19, rows = share * members, k = 48, n = 96;
      Case c;
      c.members = members;
      c.type = type;
      c.cols = n;
      c.k = k;
      const std::string text = std::string("fused_gather dtype=") +
                               nameOf(type) +
                               " members=" + std::to_string(members) +
                               " product=\"" + c.product(rows) + "\"";
      SCOPED_TRACE(text);
      runRanks(members, [&](Rank &rank) {
        FusedRank fused(rank, text, false, unsigned(members));
        ASSERT_NE(fused.kernel, nullptr);
        const size_t es = dtypeSize(type);
        char *a = fused.add(size_t(share * k) * es);
        char *b = fused.add(size_t(k * n) * es);
        char *out = fused.add(size_t(rows * n) * es);
        for (size_t i = 0; i < size_t(k * n); ++i)
          toBits(type, valueOf(type, 1, rank.rank, i), b + i * es);
        for (int run = 0; run < 5; ++run) {
          // Written again in every run: a late reader would see it.
          for (size_t i = 0; i < size_t(share * k); ++i)
            toBits(type, valueOf(type, 10 + run, rank.rank, i), a + i * es);
          fused.issue();
          for (int64_t i = 0; i < rows; i += 5)
            for (int64_t j = 0; j < n; j += 7) {
              double want = 0;
              for (int64_t p = 0; p < k; ++p)
                want +=
                    double(valueOf(type, 10 + run, int(i / share),
                                   uint64_t(i % share * k + p))) *
                    double(valueOf(type, 1, rank.rank, uint64_t(p * n + j)));
              ASSERT_NEAR(fromBits(type, out + size_t(i * n + j) * es), want,
                          tolerance(type, k) * (std::abs(want) + 7))
                  << "run " << run << " at " << i << ", " << j;
            }
        }
      });
    }
}

TEST(Fused, DifferentKernelsAreNamed) {
  runRanks(2, [&](Rank &rank) {
    Case c;
    c.norm = rank.rank ? "rmsnorm" : "none";
    FusedRank fused(rank, c.text(), false, 0);
    for (uint64_t bytes : {uint64_t(2048), uint64_t(2048)})
      fused.add(bytes);
    fused.add(fused.info.workspace_bytes, false);
    EXPECT_EQ(concord_fused(rank.world, fused.kernel, fused.buffers.data(), 3),
              CONCORD_ERROR_MISMATCH);
    EXPECT_NE(std::string(concord_last_error()).find("fused with a kernel"),
              std::string::npos)
        << concord_last_error();
  });
}

TEST(Fused, WrongBuffersAreRefused) {
  runRanks(1, [&](Rank &rank) {
    Case c;
    c.members = 1;
    FusedRank fused(rank, c.text(), false, 0);
    float *x = rank.heap<float>(4096);
    concord_buffer buffers[] = {{x, 1, 2048, 2048},
                                {x + 512, 1, 2044, 2044},
                                {x + 1024, 1, 8192, 8192}};
    EXPECT_EQ(concord_fused(rank.world, fused.kernel, buffers, 3),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(concord_fused(rank.world, fused.kernel, buffers, 2),
              CONCORD_ERROR_INVALID_ARGUMENT);
    concord_kernel *plain = nullptr;
    ASSERT_EQ(concord_kernel_create("rmsnorm cols=64 dtype=f32 rows=8", &plain,
                                    nullptr),
              0);
    EXPECT_EQ(concord_fused(rank.world, plain, buffers, 3),
              CONCORD_ERROR_KERNEL);
    concord_kernel_destroy(plain);
    void *pointers[4] = {};
    EXPECT_NE(concord_kernel_run(fused.kernel, pointers, nullptr), 0);
  });
}

} // namespace

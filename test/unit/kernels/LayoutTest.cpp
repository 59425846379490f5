//===- LayoutTest.cpp - transpose, gather_rows, rope ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every permutation of up to four dimensions in every element size, against an
// index-by-index copy; strides; indices outside the table.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

#include <algorithm>
#include <numeric>

using namespace concord;
using namespace concord::test;

namespace {

std::string listOf(const std::vector<int64_t> &values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i ? "," : "") + std::to_string(values[i]);
  return text + "]";
}

void checkTranspose(const std::vector<int64_t> &shape,
                    const std::vector<int64_t> &perm, DType type) {
  size_t size = dtypeSize(type);
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  std::vector<char> x(count * size), y(count * size, 0);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = char(i * 131 + i / 251);
  std::string text = "transpose dtype=" + lower(type) +
                     " perm=" + listOf(perm) + " shape=" + listOf(shape);
  Handle kernel(text);
  kernel.run({x.data(), y.data()});
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t out = 0; out < count; ++out) {
    int64_t in = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      in += index[d] * strides[perm[d]];
    ASSERT_EQ(memcmp(&y[out * size], &x[in * size], size), 0)
        << text << " " << out;
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[perm[d]])
        break;
      index[d] = 0;
    }
  }
}

TEST(Transpose, EveryPermutation) {
  for (DType type : {DType::I8, DType::F16, DType::F32, DType::F64})
    for (const std::vector<int64_t> &shape : {std::vector<int64_t>{},
                                              {7},
                                              {9, 17},
                                              {70, 130},
                                              {3, 10, 20},
                                              {1, 33, 8},
                                              {2, 5, 9, 16},
                                              {2, 1, 19, 3},
                                              {3, 0, 2}}) {
      std::vector<int64_t> perm(shape.size());
      std::iota(perm.begin(), perm.end(), 0);
      do
        checkTranspose(shape, perm, type);
      while (std::next_permutation(perm.begin(), perm.end()));
    }
}

TEST(Transpose, StridedSlices) {
  // The middle columns of a [6, 20] array, turned, into every second row of y.
  std::vector<float> x(120), y(2 * 8 * 6, -1);
  std::iota(x.begin(), x.end(), 0);
  Handle kernel("transpose dtype=f32 perm=[1,0] shape=[6,8] xstrides=[20,1] "
                "ystrides=[12,1]");
  kernel.run({x.data() + 5, y.data()});
  for (int c = 0; c < 8; ++c)
    for (int r = 0; r < 12; ++r)
      EXPECT_EQ(y[c * 12 + r], r < 6 ? float(r * 20 + 5 + c) : -1.0f);
  // Stride 0 expands.
  std::vector<float> z(12);
  Handle expand("transpose dtype=f32 perm=[0,1] shape=[3,4] xstrides=[0,1]");
  expand.run({x.data(), z.data()});
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(z[i], float(i % 4));
}

TEST(GatherRows, IndicesAndShards) {
  std::vector<float> table(10 * 3);
  std::iota(table.begin(), table.end(), 0);
  std::vector<int64_t> index = {0, 9, -1, 4};
  std::vector<float> out(12);
  Handle kernel("gather_rows cols=3 dtype=f32 itype=i64 n=4 rows=10");
  kernel.run({table.data(), index.data(), out.data()});
  EXPECT_EQ(out,
            (std::vector<float>{0, 1, 2, 27, 28, 29, 27, 28, 29, 12, 13, 14}));
  // Rank 1 of 2 holds rows 5..9: the rest is zero.
  Handle shard("gather_rows cols=3 dtype=f32 itype=i64 n=4 offset=5 rows=5 "
               "total=10");
  shard.run({table.data() + 15, index.data(), out.data()});
  EXPECT_EQ(out,
            (std::vector<float>{0, 0, 0, 27, 28, 29, 27, 28, 29, 0, 0, 0}));
  index[2] = 10;
  void *pointers[] = {table.data(), index.data(), out.data()};
  EXPECT_NE(concord_kernel_run(kernel.kernel, pointers, nullptr), 0);
  EXPECT_NE(std::string(concord_kernel_last_error()).find("10"),
            std::string::npos);
}

TEST(Rope, HalvesAndInterleaved) {
  std::mt19937 rng(1);
  const int64_t B = 2, S = 5, H = 3, D = 40;
  for (DType type : {DType::F32, DType::F64, DType::F16, DType::BF16})
    for (int64_t rotary : {40, 20})
      for (int interleaved : {0, 1})
        for (int positions : {0, 1}) {
          int64_t half = rotary / 2, tableRows = positions ? 11 : B * S;
          Data x(type, B * S * H * D), y(type, B * S * H * D),
              cos(type, tableRows * half), sin(type, tableRows * half);
          x.random(rng);
          cos.random(rng);
          sin.random(rng);
          std::vector<int64_t> ids;
          for (int64_t i = 0; i < B * S; ++i)
            ids.push_back(int64_t(rng() % 11));
          // y as [b, h, s, d].
          Handle kernel("rope b=2 d=40 dtype=" + lower(type) +
                        " h=3 interleaved=" + std::to_string(interleaved) +
                        " positions=" + std::to_string(positions) +
                        " rotary=" + std::to_string(rotary) + " s=5" +
                        (positions ? " tablerows=11" : "") +
                        " ystrides=[600,40,200]");
          std::vector<void *> pointers = {x.bytes, cos.bytes, sin.bytes};
          if (positions)
            pointers.push_back(ids.data());
          pointers.push_back(y.bytes);
          kernel.run(pointers);
          for (int64_t b = 0; b < B; ++b)
            for (int64_t s = 0; s < S; ++s)
              for (int64_t h = 0; h < H; ++h)
                for (int64_t j = 0; j < D; ++j) {
                  int64_t in = ((b * S + s) * H + h) * D;
                  double got = y.get(b * 600 + h * 200 + s * 40 + j);
                  double want = x.get(in + j);
                  if (j < rotary) {
                    int64_t pair = interleaved ? j / 2 : j % half;
                    bool second = interleaved ? j % 2 : j >= half;
                    int64_t row = positions ? ids[b * S + s] : b * S + s;
                    double c = cos.get(row * half + pair),
                           n = sin.get(row * half + pair);
                    double u = x.get(in + (interleaved ? 2 * pair : pair));
                    double v =
                        x.get(in + (interleaved ? 2 * pair + 1 : pair + half));
                    want = second ? v * c + u * n : u * c - v * n;
                  }
                  ASSERT_NEAR(got, want, 2 * epsilonOf(type));
                }
          if (positions) {
            ids[3] = 11;
            EXPECT_NE(
                concord_kernel_run(kernel.kernel, pointers.data(), nullptr), 0);
          }
        }
}

TEST(Layout, BadDescriptions) {
  for (const char *text :
       {"transpose dtype=f32 perm=[0,0] shape=[2,3]",
        "transpose dtype=f32 perm=[0] shape=[2,3]",
        "transpose dtype=f32 perm=[0,2] shape=[2,3]",
        "transpose dtype=f32 perm=[0] shape=[-1]",
        "transpose dtype=f32 perm=[0] shape=[4] xstrides=[-4]",
        "gather_rows cols=3 dtype=f32 itype=f32 n=4 rows=10",
        "gather_rows cols=3 dtype=f32 n=4 offset=8 rows=10 total=12",
        "rope b=1 d=8 dtype=f32 h=1 rotary=3 s=1",
        "rope b=1 d=8 dtype=i8 h=1 s=1"}) {
    concord_kernel *kernel = nullptr;
    EXPECT_NE(concord_kernel_create(text, &kernel, nullptr), 0) << text;
  }
}

} // namespace

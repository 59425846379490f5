//===- AttentionTest.cpp - attention against float64 ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sizes on both sides of every block, grouped heads, strides that stand for
// transposes, causal cuts, masks with broadcast, soft caps, decoding.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

using namespace concord;
using namespace concord::test;

namespace {

struct Case {
  int64_t b = 1, h = 2, hkv = 2, sq = 5, sk = 7, d = 8, dv = 8;
  DType type = DType::F32;
  bool causal = false;
  int64_t offset = 0;
  double softcap = 0;
  std::string mask = "none"; ///< bool or f32, [b, 1, sq, sk]
  bool seqMajor = false;     ///< [b, s, h, d] instead of [b, h, s, d]
  bool lengths = false;
};

std::string strides(bool seqMajor, int64_t h, int64_t s, int64_t d) {
  return seqMajor ? "[" + std::to_string(s * h * d) + "," + std::to_string(d) +
                        "," + std::to_string(h * d) + "]"
                  : "[" + std::to_string(s * h * d) + "," +
                        std::to_string(s * d) + "," + std::to_string(d) + "]";
}

void check(const Case &c, std::mt19937 &rng) {
  std::string text =
      "attention b=" + std::to_string(c.b) +
      " causal=" + std::to_string(c.causal) + " d=" + std::to_string(c.d) +
      " dtype=" + lower(c.type) + " dv=" + std::to_string(c.dv) +
      " h=" + std::to_string(c.h) + " hkv=" + std::to_string(c.hkv) +
      " kstrides=" + strides(c.seqMajor, c.hkv, c.sk, c.d) +
      " lengths=" + std::to_string(c.lengths) + " mask=" + c.mask +
      (c.mask == "none" ? ""
                        : " maskstrides=[" + std::to_string(c.sq * c.sk) +
                              ",0," + std::to_string(c.sk) + ",1]") +
      " offset=" + std::to_string(c.offset) +
      " ostrides=" + strides(c.seqMajor, c.h, c.sq, c.dv) +
      " qstrides=" + strides(c.seqMajor, c.h, c.sq, c.d) +
      " scale=0.3 sk=" + std::to_string(c.sk) +
      " softcap=" + std::to_string(c.softcap) + " sq=" + std::to_string(c.sq) +
      " vstrides=" + strides(c.seqMajor, c.hkv, c.sk, c.dv);
  SCOPED_TRACE(text);
  Data q(c.type, c.b * c.h * c.sq * c.d), k(c.type, c.b * c.hkv * c.sk * c.d),
      v(c.type, c.b * c.hkv * c.sk * c.dv), o(c.type, c.b * c.h * c.sq * c.dv),
      maskF(DType::F32, c.b * c.sq * c.sk);
  q.random(rng, -2, 2);
  k.random(rng, -2, 2);
  v.random(rng);
  maskF.random(rng);
  std::vector<uint8_t> maskB(c.b * c.sq * c.sk);
  for (auto &m : maskB)
    m = rng() % 3 != 0;
  std::vector<int64_t> lengths;
  for (int64_t b = 0; b < c.b; ++b)
    lengths.push_back(int64_t(rng() % uint64_t(c.sk + 1)));
  Handle kernel(text);
  std::vector<void *> pointers = {q.bytes, k.bytes, v.bytes};
  if (c.mask == "bool")
    pointers.push_back(maskB.data());
  if (c.mask == "f32")
    pointers.push_back(maskF.bytes);
  if (c.lengths)
    pointers.push_back(lengths.data());
  pointers.push_back(o.bytes);
  kernel.run(pointers);
  auto at = [&](int64_t heads, int64_t seq, int64_t size, int64_t b, int64_t h,
                int64_t s) {
    return c.seqMajor ? ((b * seq + s) * heads + h) * size
                      : ((b * heads + h) * seq + s) * size;
  };
  std::vector<double> p(c.sk);
  for (int64_t b = 0; b < c.b; ++b)
    for (int64_t h = 0; h < c.h; ++h)
      for (int64_t i = 0; i < c.sq; ++i) {
        int64_t kv = h / (c.h / c.hkv);
        double total = 0;
        for (int64_t j = 0; j < c.sk; ++j) {
          double dot = 0;
          for (int64_t x = 0; x < c.d; ++x)
            dot += q.get(at(c.h, c.sq, c.d, b, h, i) + x) *
                   k.get(at(c.hkv, c.sk, c.d, b, kv, j) + x);
          dot *= 0.3;
          if (c.softcap != 0)
            dot = c.softcap * std::tanh(dot / c.softcap);
          int64_t m = (b * c.sq + i) * c.sk + j;
          if (c.mask == "f32")
            dot += maskF.get(m);
          bool seen = (!c.causal || j <= i + c.offset) &&
                      (c.mask != "bool" || maskB[m]) &&
                      (!c.lengths || j < lengths[b]);
          p[j] = seen ? std::exp(dot) : 0;
          total += p[j];
        }
        for (int64_t x = 0; x < c.dv; ++x) {
          double want = 0;
          for (int64_t j = 0; j < c.sk; ++j)
            want += p[j] * v.get(at(c.hkv, c.sk, c.dv, b, kv, j) + x);
          want = total == 0 ? 0 : want / total;
          ASSERT_NEAR(o.get(at(c.h, c.sq, c.dv, b, h, i) + x), want,
                      std::max(3e-6, epsilonOf(c.type)))
              << "b " << b << " h " << h << " query " << i << " column " << x;
        }
      }
}

TEST(Attention, Sizes) {
  std::mt19937 rng(1);
  for (int64_t sq : {1, 2, 5, 14, 33, 128, 150})
    for (int64_t sk : {1, 7, 32, 33, 128, 140})
      check({.sq = sq, .sk = sk, .d = 20, .dv = 24}, rng);
}

TEST(Attention, HeadSizes) {
  std::mt19937 rng(2);
  for (int64_t d : {1, 3, 16, 32, 64, 80})
    for (int64_t dv : {1, 16, 17, 33, 64, 100})
      for (int64_t sq : {2, 9})
        check({.sq = sq, .sk = 19, .d = d, .dv = dv}, rng);
}

TEST(Attention, SeveralBlocksOfKeys) {
  std::mt19937 rng(3);
  for (int64_t sq : {1, 3, 40})
    for (int64_t sk : {511, 512, 513, 1100}) {
      check({.sq = sq, .sk = sk}, rng);
      check({.h = 1,
             .hkv = 1,
             .sq = sq,
             .sk = sk,
             .causal = true,
             .offset = sk - sq,
             .mask = "f32"},
            rng);
    }
}

TEST(Attention, KeysThatAreNotPackedAtOnce) {
  std::mt19937 rng(4);
  check({.h = 2, .hkv = 1, .sq = 20, .sk = 9000, .d = 64, .dv = 64}, rng);
}

TEST(Attention, GroupedHeads) {
  std::mt19937 rng(5);
  for (int64_t sq : {1, 6, 20})
    for (int64_t hkv : {1, 2, 6})
      for (bool seqMajor : {false, true})
        check({.b = 2,
               .h = 12,
               .hkv = hkv,
               .sq = sq,
               .sk = 40,
               .d = 16,
               .dv = 32,
               .mask = sq == 6 ? "f32" : "none",
               .seqMajor = seqMajor},
              rng);
}

TEST(Attention, TypesAndMasks) {
  std::mt19937 rng(6);
  for (DType type : {DType::F32, DType::F16, DType::BF16})
    for (int64_t sq : {1, 3, 37})
      for (const char *mask : {"none", "bool", "f32"})
        for (bool causal : {false, true})
          check({.b = 2,
                 .h = 4,
                 .hkv = 2,
                 .sq = sq,
                 .sk = 50,
                 .d = 24,
                 .dv = 40,
                 .type = type,
                 .causal = causal,
                 .offset = 3,
                 .softcap = causal ? 0.0 : 5.0,
                 .mask = mask,
                 .seqMajor = true},
                rng);
}

TEST(Attention, CausalWithoutKeysGivesZeros) {
  std::mt19937 rng(7);
  check({.sq = 20, .sk = 30, .causal = true, .offset = -5}, rng);
  check({.sq = 3, .sk = 30, .causal = true, .offset = -2}, rng);
}

TEST(Attention, KeyLengths) {
  std::mt19937 rng(8);
  check({.b = 6, .sq = 1, .sk = 60, .lengths = true}, rng);
  check({.b = 6, .sq = 20, .sk = 60, .lengths = true}, rng);
  check({.b = 6,
         .sq = 20,
         .sk = 700,
         .causal = true,
         .offset = 600,
         .lengths = true},
        rng);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Data q(DType::F32, 16 * 4), k(DType::F32, 8 * 4), v(DType::F32, 8 * 4),
      o(DType::F32, 16 * 4);
  q.fill(1e4);
  k.fill(1e4);
  for (int i = 0; i < 32; ++i)
    v.set(i, i / 4);
  Handle kernel("attention b=1 d=4 dtype=f32 h=1 sk=8 sq=16");
  kernel.run({q.bytes, k.bytes, v.bytes, o.bytes});
  for (int i = 0; i < 64; ++i)
    EXPECT_NEAR(o.get(i), 3.5, 1e-5);
}

TEST(Attention, BadDescriptions) {
  for (const char *text :
       {"attention b=1 d=0 dtype=f32 h=1 sk=8 sq=16",
        "attention b=1 d=4 dtype=f64 h=1 sk=8 sq=16",
        "attention b=1 d=4 dtype=f32 h=3 hkv=2 sk=8 sq=16",
        "attention b=1 d=4 dtype=f32 h=3 mask=f32 maskstrides=[1,1,1,2] sk=8 "
        "sq=16",
        "attention b=1 d=4 dtype=f32 h=1 qstrides=[1,2] sk=8 sq=16",
        "attention b=1099511627776 d=4 dtype=f32 h=1099511627776 sk=8 sq=16"}) {
    concord_kernel *kernel = nullptr;
    EXPECT_NE(concord_kernel_create(text, &kernel, nullptr), 0) << text;
  }
}

} // namespace

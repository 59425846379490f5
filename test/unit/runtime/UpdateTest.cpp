//===- UpdateTest.cpp - reduce_scatter, an update, all_gather as one ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `fused_update` on 1 to 5 ranks as threads, randomly delayed: the bits are
// those of the separate operations, on every rank.
//
//===----------------------------------------------------------------------===//

#include "FusedRanks.h"

#include <cmath>

#pragma clang fp contract(off)

using namespace concord;
using namespace concord::test;

namespace {

float valueOf(int operand, int rank, uint64_t i) {
  return test::valueOf(DType::F32, operand, rank, i);
}

struct Case {
  int members;
  uint64_t share;
  bool narrow;          ///< gradients and gathered parameters in bf16
  bool outside;         ///< buffers outside the heap
  bool inPlace = false; ///< new states over old ones
};

/// Adam, with the learning rate as a tensor of one element: value 0 is the
/// gradient, 1 to 4 parameter, two moments and rate. The parameter stays f32.
std::string text(const Case &c) {
  // 5 and 6 beta 1 and 1 - beta 1; 7 and 8 those of beta 2; 9 epsilon.
  std::string program = "const 3f666666;const 3dccccd0;const 3f7fbe77;"
                        "const 3a831200;const 322bcc77;";
  program += "mul 5 2;mul 6 0;add 10 11;"                     // 12: m
             "mul 0 0;mul 7 3;mul 8 13;add 14 15;"            // 16: v
             "sqrt 16;add 17 9;div 12 18;mul 4 19;sub 1 20;"; // 21: p
  program += c.narrow ? "round bf16 21" : "max 21 21";        // 22
  std::string type = c.narrow ? "bf16" : "f32";
  return "fused_update count=" + std::to_string(c.share) + " dtype=" + type +
         " inputs=[f32,f32,f32,f32] members=" + std::to_string(c.members) +
         " outputs=[f32,f32,f32] program=\"" + program +
         "\" results=[22,21,12,16] single=[3]";
}

float bitsOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

void runCase(const Case &c) {
  SCOPED_TRACE(text(c));
  const uint64_t count = c.share * uint64_t(c.members);
  const DType type = c.narrow ? DType::BF16 : DType::F32;
  const size_t es = dtypeSize(type);
  runRanks(c.members, [&](Rank &rank) {
    FusedRank fused(rank, text(c), c.outside, unsigned(c.share));
    ASSERT_NE(fused.kernel, nullptr);
    ASSERT_EQ(fused.info.num_inputs, 5u);
    ASSERT_EQ(fused.info.num_outputs, 4u);
    char *gradient = fused.add(count * es);
    float *inputs[4];
    for (auto &input : inputs)
      input = reinterpret_cast<float *>(
          fused.add((&input == &inputs[3] ? 1 : c.share) * 4, false));
    char *gathered = fused.add(count * es);
    float *outputs[3];
    for (int n = 0; n < 3; ++n) {
      outputs[n] = reinterpret_cast<float *>(fused.add(c.share * 4, false));
      if (c.inPlace) {
        fused.buffers.back() = fused.buffers[size_t(1 + n)];
        outputs[n] = inputs[n];
      }
    }
    for (int round = 0; round < 6; ++round) {
      for (uint64_t i = 0; i < count; ++i)
        toBits(type, valueOf(round, rank.rank, i), gradient + i * es);
      for (int n = 0; n < 3; ++n)
        for (uint64_t i = 0; i < c.share; ++i)
          inputs[n][i] =
              std::fabs(valueOf(50 + n, rank.rank, i + uint64_t(round)));
      *inputs[3] = 0.01f;
      std::memset(gathered, 0xff, count * es);
      fused.issue();
      for (uint64_t i = 0; i < count; ++i) {
        int owner = int(i / c.share);
        float g = 0;
        for (int r = 0; r < c.members; ++r) {
          float part = rounded(type, valueOf(round, r, i));
          g = r ? g + part : part;
        }
        g = rounded(type, g);
        auto state = [&](int n) {
          return std::fabs(
              valueOf(50 + n, owner, i % c.share + uint64_t(round)));
        };
        float m1 = bitsOf(0x3f666666) * state(1), m2 = bitsOf(0x3dccccd0) * g;
        float m = m1 + m2;
        float v1 = bitsOf(0x3f7fbe77) * state(2);
        float v2 = bitsOf(0x3a831200) * (g * g);
        float v = v1 + v2;
        float step = 0.01f * (m / (std::sqrt(v) + bitsOf(0x322bcc77)));
        float p = state(0) - step;
        ASSERT_EQ(fromBits(type, gathered + i * es), rounded(type, p))
            << "element " << i;
        if (owner == rank.rank) {
          ASSERT_EQ(outputs[0][i % c.share], p);
          ASSERT_EQ(outputs[1][i % c.share], m);
          ASSERT_EQ(outputs[2][i % c.share], v);
        }
      }
    }
  });
}

TEST(Update, Adam) {
  for (int members : {1, 2, 3, 5})
    for (uint64_t share : {1, 255, 1000, 40000})
      for (bool narrow : {false, true})
        runCase({members, share, narrow, false});
}

TEST(Update, BuffersOutsideTheHeap) { runCase({3, 777, false, true}); }

TEST(Update, InPlace) { runCase({2, 3000, false, false, true}); }

TEST(Update, PastTheCaches) {
  ::setenv("CONCORD_CACHE_BYTES", "1", 1);
  for (uint64_t share : {255, 40000})
    for (bool narrow : {false, true})
      runCase({3, share, narrow, false});
  ::unsetenv("CONCORD_CACHE_BYTES");
}

void refused(const std::string &text, const std::string &why) {
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  EXPECT_NE(concord_kernel_create(text.c_str(), &kernel, &info), 0) << text;
  EXPECT_NE(std::string(concord_kernel_last_error()).find(why),
            std::string::npos)
      << concord_kernel_last_error();
}

TEST(Update, WhatIsNoProgram) {
  auto with = [](const std::string &program, const std::string &results = "[1]",
                 const std::string &dtype = "f32") {
    return "fused_update count=4 dtype=" + dtype +
           " inputs=[f32] members=2 outputs=[] program=\"" + program +
           "\" results=" + results;
  };
  refused(with("pow 0 1"), "'pow' is no operation");
  refused(with("add 0 2"), "does not exist yet");
  refused(with("add 0"), "is no number");
  refused(with("add 0 1 1"), "is too much");
  refused(with("const xyz"), "is no number");
  refused(with("round f32 0"), "rounds to bf16 or f16");
  refused(with("add 0 1", "[3]"), "names no value");
  refused(with("add 0 1", "[2,2]"), "one for each output");
  refused(with("add 0 1", "[2]", "f64"), "must be f32, f16 or bf16");
}

} // namespace

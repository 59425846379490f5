//===- AbiTest.cpp - What every kernel promises ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One description per kernel: made twice it asks for the same memory; run never
// allocates, gives the same bits again, in other threads, and in a workspace
// with other contents. Descriptions with any digit or word changed are refused
// or accepted, never a crash. Calls of malloc are counted by replacing it.
//
//===----------------------------------------------------------------------===//

#include "KernelTestUtil.h"

#include "concord/kernel_poll.h"

#include <atomic>
#include <thread>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CONCORD_NO_MALLOC_COUNT 1
#endif
#endif

namespace {
thread_local long allocations = 0;
}

#ifndef CONCORD_NO_MALLOC_COUNT
extern "C" void *__libc_malloc(size_t);
extern "C" void *malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
#endif

using namespace concord::test;

namespace {

const char *kDescriptions[] = {
    "gemm act=gelu_erf bias=row dtype=f32 k=100 m=40 n=300 packed=1",
    "gemm act=relu bias=col dtype=f16 k=1000 m=20 n=70 residual=1",
    "gemm dtype=f32 k=2000 m=3 n=70 transa=1 transb=1",
    "gemm dtype=f64 k=900 m=33 n=40",
    "gemm astrides=[60,0] batch=[2,3] bstrides=[0,40] cstrides=[120,40] "
    "dtype=bf16 k=8 m=5 n=5",
    "gemm bdtype=i8 dtype=u8 k=30 m=5 n=20",
    "softmax cols=70 dtype=f32 maskshape=[2,3,70] maskstrides=[70,0,1] rows=6 "
    "scale=0.5",
    "layernorm beta=1 cols=70 dtype=bf16 residual=1 rows=6 sum=1",
    "rmsnorm cols=70 dtype=f32 rows=6",
    "attention b=2 causal=1 d=20 dtype=f32 h=4 hkv=2 mask=f32 "
    "maskstrides=[0,0,600,1] offset=3 sk=600 sq=30",
    "attention b=1 d=32 dtype=f16 h=8 hkv=2 sk=90 sq=1",
    "conv act=relu bias=1 dtype=f32 kernel=[3,3] m=20 packed=1 pads=[1,1,1,1] "
    "x=[2,8,12,13]",
    "conv dtype=f32 group=8 kernel=[3,3] m=8 strides=[2,2] x=[1,8,12,13]",
    "conv dtype=f32 kernel=[1,1] m=20 x=[1,8,12,13]",
    "pool ceil=1 dtype=f32 kernel=[3,3] op=max strides=[2,2] x=[1,8,12,13]",
    "transpose dtype=f32 perm=[2,0,1] shape=[20,30,17]",
    "rope b=2 d=16 dtype=f32 h=3 s=5",
    "unary dtype=f32 n=1000 op=sin",
    "unary dtype=f16 n=1000 op=gelu_tanh",
    "binary dtype=f32 n=1000 op=pow yscalar=1",
    "busy bytes=1000 inputs=3 ns=1000",
};

/// Every operand has room for the largest of the above.
constexpr size_t kOperand = 1 << 20;

struct Operands {
  explicit Operands(const concord_kernel_info &info, unsigned seed) {
    std::mt19937 rng(seed);
    for (uint32_t i = 0; i < info.num_inputs + info.num_outputs; ++i) {
      char *p = static_cast<char *>(aligned_alloc(64, kOperand));
      // Small values in any of the types.
      for (size_t k = 0; k < kOperand / 4; ++k) {
        uint32_t v = 0x3c003c00u | (rng() & 0x01ff01ffu);
        memcpy(p + 4 * k, &v, 4);
      }
      pointers.push_back(p);
    }
  }
  ~Operands() {
    for (void *p : pointers)
      free(p);
  }
  std::vector<void *> pointers;
};

TEST(Abi, SameMemoryEachTime) {
  for (const char *text : kDescriptions) {
    Handle a(text), b(text);
    EXPECT_EQ(a.info.workspace_bytes, b.info.workspace_bytes) << text;
    EXPECT_EQ(a.info.packed_weight_bytes, b.info.packed_weight_bytes) << text;
    EXPECT_EQ(a.info.num_inputs, b.info.num_inputs) << text;
    EXPECT_EQ(a.info.packed_input != ~0u, a.info.packed_weight_bytes != 0)
        << text;
  }
}

TEST(Abi, RunsAreRepeatableAndDoNotAllocate) {
  for (const char *text : kDescriptions) {
    SCOPED_TRACE(text);
    Handle kernel(text);
    Operands one(kernel.info, 1), two(kernel.info, 1), three(kernel.info, 1);
    if (kernel.info.packed_weight_bytes) {
      uint32_t at = kernel.info.packed_input;
      kernel.pack(one.pointers[at]);
      for (Operands *o : {&one, &two, &three})
        memcpy(o->pointers[at], kernel.packed, kernel.info.packed_weight_bytes);
    }
    long before = allocations;
    ASSERT_EQ(concord_kernel_run(kernel.kernel, one.pointers.data(),
                                 kernel.workspace),
              0);
    EXPECT_EQ(allocations - before, 0);
    memset(kernel.workspace, 0xff, kernel.info.workspace_bytes);
    ASSERT_EQ(concord_kernel_run(kernel.kernel, two.pointers.data(),
                                 kernel.workspace),
              0);
    std::thread([&] {
      char *own = static_cast<char *>(
          aligned_alloc(64, kernel.info.workspace_bytes / 64 * 64 + 64));
      EXPECT_EQ(concord_kernel_run(kernel.kernel, three.pointers.data(), own),
                0);
      free(own);
    }).join();
    for (uint32_t i = 0; i < kernel.info.num_inputs + kernel.info.num_outputs;
         ++i) {
      EXPECT_EQ(memcmp(one.pointers[i], two.pointers[i], kOperand), 0) << i;
      EXPECT_EQ(memcmp(one.pointers[i], three.pointers[i], kOperand), 0) << i;
    }
  }
}

#ifndef CONCORD_NO_MALLOC_COUNT
TEST(Abi, TheCounterCounts) {
  long before = allocations;
  free(malloc(100));
  EXPECT_EQ(allocations - before, 1);
}
#endif

TEST(Abi, PollingDoesNotChangeResults) {
  for (const char *text : kDescriptions) {
    Handle kernel(text);
    if (kernel.info.packed_weight_bytes)
      continue;
    Operands one(kernel.info, 2), two(kernel.info, 2);
    kernel.run(one.pointers);
    concord_kernel_set_poll_hook([](void *) {}, nullptr);
    kernel.run(two.pointers);
    concord_kernel_set_poll_hook(nullptr, nullptr);
    for (size_t i = 0; i < one.pointers.size(); ++i)
      EXPECT_EQ(memcmp(one.pointers[i], two.pointers[i], kOperand), 0) << text;
  }
}

TEST(Abi, ChangedDescriptionsNeverCrash) {
  std::mt19937 rng(3);
  const char *numbers[] = {"0",
                           "-1",
                           "1",
                           "2",
                           "7",
                           "65536",
                           "1099511627776",
                           "9223372036854775807",
                           "-9223372036854775808",
                           "99999999999999999999",
                           "1.5",
                           "nan",
                           "f32",
                           "[]",
                           "[1]",
                           "[[1]]",
                           "\"x\""};
  int accepted = 0;
  for (const char *original : kDescriptions)
    for (int round = 0; round < 300; ++round) {
      std::string text = original;
      for (unsigned changes = 1 + rng() % 2; changes; --changes) {
        // Replace one value, or one element of a list.
        std::vector<size_t> starts;
        for (size_t i = 1; i < text.size(); ++i)
          if (text[i - 1] == '=' || text[i - 1] == '[' || text[i - 1] == ',')
            starts.push_back(i);
        size_t from = starts[rng() % starts.size()], to = from;
        while (to < text.size() && text[to] != ' ' && text[to] != ',' &&
               text[to] != ']')
          ++to;
        text.replace(from, to - from, numbers[rng() % std::size(numbers)]);
      }
      concord_kernel *kernel = nullptr;
      concord_kernel_info info = {};
      info.struct_size = sizeof info;
      if (concord_kernel_create(text.c_str(), &kernel, &info) == 0) {
        ++accepted;
        concord_kernel_destroy(kernel);
      } else {
        EXPECT_STRNE(concord_kernel_last_error(), "");
        EXPECT_EQ(kernel, nullptr);
      }
    }
  EXPECT_GT(accepted, 100);
}

TEST(Abi, NullArgumentsAndSmallInfo) {
  concord_kernel *kernel = nullptr;
  EXPECT_NE(concord_kernel_create(nullptr, &kernel, nullptr), 0);
  EXPECT_NE(concord_kernel_create("rmsnorm cols=1 dtype=f32 rows=1", nullptr,
                                  nullptr),
            0);
  // An older caller's struct ends earlier: nothing is written behind it.
  concord_kernel_info info;
  memset(&info, 0x5a, sizeof info);
  info.struct_size = 8;
  ASSERT_EQ(
      concord_kernel_create("rmsnorm cols=1 dtype=f32 rows=1", &kernel, &info),
      0);
  EXPECT_EQ(info.struct_size, 8u);
  EXPECT_EQ(info.num_inputs, 2u);
  EXPECT_EQ(info.num_outputs, 0x5a5a5a5au);
  EXPECT_NE(concord_kernel_pack(kernel, &info, &info), 0);
  EXPECT_NE(concord_kernel_pack(nullptr, &info, &info), 0);
  concord_kernel_destroy(kernel);
  concord_kernel_destroy(nullptr);
}

TEST(Abi, BusyCopiesItsFirstInput) {
  concord_kernel *kernel = nullptr;
  EXPECT_NE(
      concord_kernel_create("busy bytes=4 inputs=0 ns=1", &kernel, nullptr), 0);
  EXPECT_NE(
      concord_kernel_create("busy bytes=4 inputs=17 ns=1", &kernel, nullptr),
      0);
  EXPECT_NE(std::string(concord_kernel_last_error()).find("1 to 16"),
            std::string::npos);
  ASSERT_EQ(
      concord_kernel_create("busy bytes=4 inputs=2 ns=1000", &kernel, nullptr),
      0);
  char first[] = "abcdefg", second[] = "xxxxxxx", result[] = ".......";
  void *pointers[] = {first, second, result};
  EXPECT_EQ(concord_kernel_run(kernel, pointers, nullptr), 0);
  EXPECT_STREQ(result, "abcd...");
  concord_kernel_destroy(kernel);
}

TEST(Abi, TargetIsKnown) {
  std::string target = concord_kernel_target();
  EXPECT_TRUE(target == "x86-64-v4-bf16" || target == "x86-64-v4" ||
              target == "x86-64-v3" || target == "x86-64-v2" ||
              target == "aarch64");
  if (const char *wanted = getenv("CONCORD_KERNEL_TARGET"); wanted && *wanted)
    EXPECT_LE(target, std::string(wanted));
}

} // namespace

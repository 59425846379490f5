//===- ContractTest.cpp - Bad descriptions, no allocation, threads
//----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What kernel.h promises of every kernel, tried on this room's.
//
//===----------------------------------------------------------------------===//

#include "Case.h"

#include <atomic>
#include <new>
#include <thread>

#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#include <sanitizer/allocator_interface.h>
#endif

using namespace concord::test;
using ::testing::HasSubstr;

namespace {
std::atomic<long> allocations{0};
}

// Counts what the kernels allocate: they are C++, so all goes through here. The
// sanitizers have an operator new of their own, and hooks for those who count.
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
[[maybe_unused]] static const int hooked =
    __sanitizer_install_malloc_and_free_hooks(
        [](const volatile void *, size_t) { ++allocations; },
        [](const volatile void *) {});
#else
void *operator new(size_t size) {
  ++allocations;
  if (void *memory = std::malloc(size ? size : 1))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

int32_t create(const std::string &text) {
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  int32_t code = concord_kernel_create(text.c_str(), &kernel, &info);
  concord_kernel_destroy(kernel);
  return code;
}

TEST(Contract, BadDescriptionsAreRefused) {
  const char *good = "onnx.relu in=[[f32,2]] opset=14 out=[[f32,2]]";
  EXPECT_EQ(create(good), 0) << concord_kernel_last_error();
  for (const char *bad : {
           "onnx.",
           "onnx.relu",
           "onnx.nosuchoperator in=[[f32,2]] opset=14 out=[[f32,2]]",
           "onnx.relu in=[[f32,2] opset=14 out=[[f32,2]]",
           "onnx.relu in=[[f33,2]] opset=14 out=[[f32,2]]",
           "onnx.relu in=[[f32,-2]] opset=14 out=[[f32,2]]",
           "onnx.relu in=[[f32,2.5]] opset=14 out=[[f32,2]]",
           "onnx.relu in=[[f32,2]] opset=14 out=[[f32,3]]",
           "onnx.relu in=[[none]] opset=14 out=[[f32,2]]",
           "onnx.relu in=[[f32,2]] opset=14 out=[[none]]",
           "onnx.relu in=[[bool,2]] opset=14 out=[[bool,2]]",
           "onnx.relu in=[[f32,2]] opset=x out=[[f32,2]]",
           "onnx.relu in=[[f32,99999999999,99999999999]] opset=14 "
           "out=[[f32,99999999999,99999999999]]",
           "onnx.relu in=[[f32,0,99999999999,99999999999]] opset=14 "
           "out=[[f32,0,99999999999,99999999999]]",
           "onnx.relu in=[[f32,1,1,1,1,1,1,1,1,1,1,1,1,1]] opset=14 "
           "out=[[f32,1,1,1,1,1,1,1,1,1,1,1,1,1]]",
           "onnx.transpose attr.perm=[0,0] in=[[f32,2,2]] opset=14 "
           "out=[[f32,2,2]]",
           "onnx.transpose attr.perm=\"a\\\"b\" in=[[f32,2,2]] opset=14 "
           "out=[[f32,2,2]]",
           "onnx.gather attr.axis=7 in=[[f32,2],[i64,1]] opset=14 "
           "out=[[f32,1]]",
           "onnx.conv in=[[f32,1,2,4],[f32,1,1,1]] opset=14 out=[[f32,1,1,4]]",
           "onnx.conv attr.strides=[0] in=[[f32,1,1,4],[f32,1,1,1]] opset=14 "
           "out=[[f32,1,1,4]]",
           "onnx.einsum attr.equation=\"ij,jk->ik\" in=[[f32,2,2]] opset=14 "
           "out=[[f32,2,2]]",
           "onnx.matmul in=[[f32,3],[f32,3,4]] opset=13 out=[[f32]]",
       }) {
    EXPECT_NE(create(bad), 0) << bad;
    EXPECT_STRNE(concord_kernel_last_error(), "") << bad;
  }
}

TEST(Contract, MessagesNameTheOperator) {
  EXPECT_NE(create("onnx.gather attr.axis=7 in=[[f32,2],[i64,1]] opset=14 "
                   "out=[[f32,1]]"),
            0);
  EXPECT_THAT(concord_kernel_last_error(), HasSubstr("onnx.gather"));
  EXPECT_THAT(concord_kernel_last_error(), HasSubstr("axis 7"));
}

/// Runs a kernel on zeros twice and returns what the second run allocated.
long allocatedByRun(const std::string &text, std::vector<size_t> sizes) {
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(concord_kernel_create(text.c_str(), &kernel, &info), 0)
      << text << ": " << concord_kernel_last_error();
  if (!kernel)
    return -1;
  std::vector<std::vector<char>> memory;
  std::vector<void *> pointers;
  for (size_t size : sizes)
    memory.emplace_back(size + 64);
  for (auto &block : memory)
    pointers.push_back(block.data());
  void *workspace =
      std::aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
  long before = 0;
  for (int round = 0; round < 2; ++round) {
    before = allocations;
    EXPECT_EQ(concord_kernel_run(kernel, pointers.data(), workspace), 0)
        << text << ": " << concord_kernel_last_error();
  }
  long after = allocations;
  std::free(workspace);
  concord_kernel_destroy(kernel);
  return after - before;
}

TEST(Contract, RunDoesNotAllocate) {
  std::vector<std::pair<const char *, std::vector<size_t>>> cases = {
      {"onnx.add in=[[f16,3,5],[f16,5]] opset=14 out=[[f16,3,5]]",
       {30, 10, 30}},
      {"onnx.reducesum in=[[bf16,4,5],[i64,1]] opset=13 out=[[bf16,1,5]]",
       {40, 8, 10}},
      {"onnx.slice in=[[f32,4],[i64,1],[i64,1]] opset=13 out=[[f32,0]]",
       {16, 8, 8, 0}},
      {"onnx.pad in=[[f32,4],[i64,2]] opset=13 out=[[f32,4]]", {16, 16, 16}},
      {"onnx.topk in=[[f32,8],[i64,1]] opset=11 out=[[f32,3],[i64,3]]",
       {32, 8, 12, 24}},
      {"onnx.unique in=[[f32,8]] opset=11 out=[[f32,1],[none],[i64,8]]",
       {32, 4, 0, 64}},
      {"onnx.conv in=[[f16,1,2,4],[f16,3,2,1]] opset=14 out=[[f16,1,3,4]]",
       {16, 12, 24}},
      {"onnx.attention in=[[f32,1,2,3,4],[f32,1,1,5,4],[f32,1,1,5,6]] "
       "opset=23 out=[[f32,1,2,3,6]]",
       {96, 80, 120, 144}},
      {"onnx.einsum attr.equation=\"bij,bjk->bik\" in=[[f32,2,3,4],[f32,2,4,5]]"
       " opset=13 out=[[f32,2,3,5]]",
       {96, 160, 120}},
      {"onnx.dft in=[[f32,1,8,1]] opset=20 out=[[f32,1,8,2]]", {32, 64}},
  };
  for (const auto &[text, sizes] : cases)
    EXPECT_EQ(allocatedByRun(text, sizes), 0) << text;
}

TEST(Contract, OneHandleServesManyThreads) {
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(concord_kernel_create("onnx.softmax attr.axis=-1 in=[[f16,16,64]] "
                                  "opset=13 out=[[f16,16,64]]",
                                  &kernel, &info),
            0);
  std::vector<uint16_t> x(16 * 64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = uint16_t(0x3000 + i * 7 % 0xc00);
  std::vector<std::vector<uint16_t>> results(4, std::vector<uint16_t>(16 * 64));
  std::vector<std::thread> threads;
  for (auto &result : results)
    threads.emplace_back([&] {
      void *workspace =
          std::aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
      for (int i = 0; i < 20; ++i) {
        void *pointers[] = {x.data(), result.data()};
        EXPECT_EQ(concord_kernel_run(kernel, pointers, workspace), 0);
      }
      std::free(workspace);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (auto &result : results)
    EXPECT_EQ(result, results[0]);
  concord_kernel_destroy(kernel);
}

} // namespace

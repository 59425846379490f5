//===- Ranks.h - Ranks as threads, for tests --------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs one function as every rank of a job inside this process, over the same
// heap code as processes use, and helpers to look at results.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_RUNTIME_RANKS_H
#define CONCORD_TEST_UNIT_RUNTIME_RANKS_H

#include "concord/concord.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace concord::test {

#define ASSERT_OK(call)                                                        \
  ASSERT_EQ(call, CONCORD_OK) << #call << ": " << concord_last_error()
#define EXPECT_OK(call)                                                        \
  EXPECT_EQ(call, CONCORD_OK) << #call << ": " << concord_last_error()

struct Rank {
  concord_context *context = nullptr;
  concord_comm *world = nullptr;
  int rank = 0, size = 1;

  /// Heap memory; lives until the context is finalized.
  template <typename T> T *heap(size_t count) const {
    void *pointer = nullptr;
    EXPECT_OK(concord_heap_alloc(context, count * sizeof(T), 0, &pointer));
    return static_cast<T *>(pointer);
  }
};

/// Run `body` as each of `size` ranks. `settings` may be null.
inline void
runRanks(int size, const std::function<void(Rank &)> &body,
         const std::function<void(concord_context_config &)> &settings = {}) {
  concord_job *job = nullptr;
  ASSERT_OK(concord_job_create(size, uint64_t(256) << 20, &job));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      concord_context_config config{};
      config.struct_size = sizeof config;
      config.job = job;
      config.rank = r;
      config.timeout_seconds = 60;
      if (settings)
        settings(config);
      Rank rank;
      rank.rank = r;
      rank.size = size;
      ASSERT_OK(concord_context_create(&config, &rank.context));
      ASSERT_OK(concord_comm_world(rank.context, &rank.world));
      body(rank);
      EXPECT_OK(concord_context_finalize(rank.context));
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_OK(concord_job_destroy(job));
}

} // namespace concord::test

#endif // CONCORD_TEST_UNIT_RUNTIME_RANKS_H

//===- PoolTest.cpp - Pools, and what bring-up makes of devices -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Communicators that are kept, evicted and never grow in number or memory;
// ranks whose devices differ.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"

#include <atomic>
#include <cstring>
#include <fstream>
#include <unistd.h>

using namespace concord::test;

namespace {

concord_pool_stats stats(const concord_pool *pool) {
  concord_pool_stats value{};
  value.struct_size = sizeof value;
  EXPECT_OK(concord_pool_stats_query(pool, &value));
  return value;
}

concord_pool *makePool(const Rank &rank, uint32_t comms, uint64_t bytes = 0,
                       uint64_t connections = 0) {
  concord_pool_config config{};
  config.struct_size = sizeof config;
  config.max_comms = comms;
  config.max_bytes = bytes;
  config.max_connections = connections;
  concord_pool *pool = nullptr;
  EXPECT_OK(concord_pool_create(rank.world, &config, &pool));
  return pool;
}

struct Held {
  uint32_t ticket = 0;
  concord_comm *comm = nullptr;
};

Held acquire(concord_pool *pool, std::vector<int32_t> members,
             int32_t resident = 0) {
  Held held;
  EXPECT_OK(concord_pool_acquire(pool, members.data(), uint32_t(members.size()),
                                 nullptr, resident, &held.ticket, &held.comm));
  return held;
}

/// Sum of ones over a communicator; its size, when it works.
int32_t count(concord_comm *comm) {
  int32_t one = 1, sum = 0;
  EXPECT_OK(concord_all_reduce(comm, &one, &sum, 1, CONCORD_DTYPE_I32,
                               CONCORD_REDUCTION_SUM, nullptr));
  return sum;
}

long residentPages() {
  std::ifstream file("/proc/self/statm");
  long total = 0, resident = 0;
  file >> total >> resident;
  return resident;
}

} // namespace

TEST(Pool, WhatIsIdleIsReused) {
  runRanks(3, [](Rank &rank) {
    concord_pool *pool = makePool(rank, 8);
    Held first = acquire(pool, {0, 2});
    EXPECT_EQ(first.comm != nullptr, rank.rank != 1);
    if (first.comm)
      EXPECT_EQ(count(first.comm), 2);
    // In use: the same members get another one.
    Held second = acquire(pool, {0, 2});
    EXPECT_NE(first.ticket, second.ticket);
    EXPECT_OK(concord_pool_release(pool, first.ticket, 0));
    Held third = acquire(pool, {0, 2});
    EXPECT_EQ(third.ticket, first.ticket);
    EXPECT_EQ(third.comm, first.comm);
    if (third.comm)
      EXPECT_EQ(count(third.comm), 2);
    // Another order of members is another communicator.
    Held turned = acquire(pool, {2, 0});
    EXPECT_NE(turned.ticket, first.ticket);
    concord_pool_stats now = stats(pool);
    EXPECT_EQ(now.hits, 1u);
    EXPECT_EQ(now.misses, 3u);
    EXPECT_EQ(now.in_use, 3u);
    EXPECT_EQ(concord_pool_destroy(pool), CONCORD_ERROR_BUSY);
    for (uint32_t ticket : {second.ticket, third.ticket, turned.ticket})
      EXPECT_OK(concord_pool_release(pool, ticket, 0));
    EXPECT_EQ(concord_pool_release(pool, turned.ticket, 0),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(concord_pool_destroy(pool));
  });
}

TEST(Pool, BudgetsEvictTemporaryOnesOnly) {
  runRanks(3, [](Rank &rank) {
    concord_pool *pool = makePool(rank, 2);
    Held resident = acquire(pool, {0, 1, 2}, 1);
    EXPECT_OK(concord_pool_release(pool, resident.ticket, 0));
    Held temporary = acquire(pool, {0, 1});
    // Nothing can go: one is in use, one is resident.
    uint32_t ticket;
    concord_comm *comm;
    int32_t members[] = {1, 2};
    EXPECT_EQ(
        concord_pool_acquire(pool, members, 2, nullptr, 0, &ticket, &comm),
        CONCORD_ERROR_OUT_OF_MEMORY);
    EXPECT_NE(std::strstr(concord_last_error(), "budgets are 2"), nullptr)
        << concord_last_error();
    EXPECT_OK(concord_pool_release(pool, temporary.ticket, 0));
    Held other = acquire(pool, {1, 2});
    if (other.comm)
      EXPECT_EQ(count(other.comm), 2);
    EXPECT_EQ(stats(pool).evictions, 1u);
    // The resident one is still there.
    Held again = acquire(pool, {0, 1, 2}, 1);
    EXPECT_EQ(again.ticket, resident.ticket);
    EXPECT_EQ(count(again.comm), 3);
    EXPECT_OK(concord_pool_release(pool, again.ticket, 0));
    EXPECT_OK(concord_pool_release(pool, other.ticket, 1));
    EXPECT_OK(concord_pool_destroy(pool));
    // Connections and bytes count, too.
    concord_pool *narrow = makePool(rank, 0, 0, 2);
    EXPECT_EQ(concord_pool_acquire(narrow, (const int32_t[]){0, 1, 2}, 3,
                                   nullptr, 0, &ticket, &comm),
              CONCORD_ERROR_OUT_OF_MEMORY);
    Held pair = acquire(narrow, {0, 1});
    EXPECT_EQ(stats(narrow).connections, 1u);
    EXPECT_GT(stats(narrow).bytes, 0u);
    EXPECT_OK(concord_pool_release(narrow, pair.ticket, 0));
    EXPECT_OK(concord_pool_destroy(narrow));
    concord_pool *small = makePool(rank, 0, 4096);
    EXPECT_EQ(
        concord_pool_acquire(small, members, 2, nullptr, 0, &ticket, &comm),
        CONCORD_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(concord_pool_acquire(small, (const int32_t[]){0, 0}, 2, nullptr,
                                   0, &ticket, &comm),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(concord_pool_destroy(small));
  });
}

/// 4 KiB pages that repeated work may add. AddressSanitizer keeps up to 256 MiB
/// of what has been freed.
static long growth(long pages) {
#if __has_feature(address_sanitizer)
  return pages + (long(256) << 20) / 4096;
#else
  return pages;
#endif
}

TEST(Pool, TenThousandCyclesDoNotGrow) {
  runRanks(1, [](Rank &rank) {
    concord_pool *pool = makePool(rank, 4);
    auto cycle = [&](int i) {
      int32_t self = 0;
      concord_comm *comm;
      ASSERT_OK(
          concord_comm_create_group(rank.context, &self, 1, nullptr, &comm));
      ASSERT_OK(concord_comm_destroy(comm));
      Held held = acquire(pool, {0});
      ASSERT_OK(concord_pool_release(pool, held.ticket, i % 2));
    };
    for (int i = 0; i < 1000; ++i)
      cycle(i);
    long before = residentPages();
    for (int i = 0; i < 10'000; ++i)
      cycle(i);
    EXPECT_LT(residentPages() - before, growth(256)) << "4 KiB pages";
    EXPECT_OK(concord_pool_destroy(pool));
  });
  // And with a peer, whose block has to come back as well: a job has room for
  // 4,096 at a time. Heap and streams with them.
  runRanks(2, [](Rank &rank) {
    auto cycle = [&] {
      concord_comm *comm;
      ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
      EXPECT_EQ(count(comm), 2);
      ASSERT_OK(concord_comm_destroy(comm));
      void *block;
      ASSERT_OK(concord_heap_alloc(rank.context, 1 << 16, 0, &block));
      ASSERT_OK(concord_heap_free(rank.context, block));
      concord_stream *stream;
      ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
      ASSERT_OK(concord_stream_destroy(stream));
    };
    for (int i = 0; i < 500; ++i)
      cycle();
    ASSERT_OK(concord_barrier(rank.world, nullptr));
    long before = residentPages();
    for (int i = 0; i < 10'000; ++i)
      cycle();
    ASSERT_OK(concord_barrier(rank.world, nullptr));
    EXPECT_LT(residentPages() - before, growth(512))
        << "4 KiB pages, of both ranks";
  });
}

TEST(Devices, DifferentOnesAreNormalised) {
  concord_device_desc devices[2]{};
  for (int r = 0; r < 2; ++r) {
    devices[r].struct_size = sizeof devices[r];
    devices[r].kind = r ? "npu" : "cpu";
    devices[r].plane = uint32_t(r);
    devices[r].alignment = r ? 4096 : 64;
    devices[r].bandwidth = 1e10 * (r + 1);
    devices[r].physical_id = r;
  }
  runRanks(
      2,
      [](Rank &rank) {
        concord_device_desc peer{};
        peer.struct_size = sizeof peer;
        ASSERT_OK(concord_context_device(rank.context, 1, &peer));
        EXPECT_STREQ(peer.kind, "npu");
        EXPECT_EQ(peer.alignment, 4096u);
        EXPECT_EQ(peer.bandwidth, 2e10);
        // Memory of every rank suits every device.
        float *in = rank.heap<float>(3000);
        float *out = rank.heap<float>(3000);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(in) % 4096, 0u);
        for (int i = 0; i < 3000; ++i)
          in[i] = float(rank.rank + i);
        EXPECT_OK(concord_all_reduce(rank.world, in, out, 3000,
                                     CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                     nullptr));
        for (int i = 0; i < 3000; ++i)
          ASSERT_EQ(out[i], float(2 * i + 1));
      },
      [&](concord_context_config &config) {
        config.device = &devices[config.rank];
      });
}

TEST(Devices, OneDeviceIsNotTwoRanks) {
  concord_device_desc device{};
  device.struct_size = sizeof device;
  device.physical_id = 3;
  concord_job *job;
  ASSERT_OK(concord_job_create(2, 1 << 22, &job));
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      concord_context_config config{};
      config.struct_size = sizeof config;
      config.job = job;
      config.rank = r;
      config.device = &device;
      concord_context *context;
      EXPECT_EQ(concord_context_create(&config, &context),
                CONCORD_ERROR_DEVICE_MAPPING);
      EXPECT_NE(std::strstr(concord_last_error(),
                            "ranks 0 and 1 both use physical device 3"),
                nullptr)
          << concord_last_error();
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_OK(concord_job_destroy(job));
}

TEST(Devices, TheRankTableHasItsSay) {
  char name[] = "/tmp/concord-table-XXXXXX";
  int file = ::mkstemp(name);
  const char table[] =
      R"({"version":"1.0","status":"completed","server_count":"1",
      "server_list":[{"server_id":"a","device":[
      {"device_id":"6","rank_id":"1"},{"device_id":"2","rank_id":"0"}]}]})";
  ASSERT_EQ(::write(file, table, sizeof table - 1), ssize_t(sizeof table - 1));
  ::close(file);
  runRanks(
      2,
      [](Rank &rank) {
        concord_device_desc own{};
        own.struct_size = sizeof own;
        ASSERT_OK(concord_context_device(rank.context, rank.rank, &own));
        EXPECT_EQ(own.physical_id, rank.rank ? 6 : 2);
      },
      [&](concord_context_config &config) { config.rank_table = name; });
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.rank_table = name;
  concord_context *context;
  EXPECT_EQ(concord_context_create(&config, &context),
            CONCORD_ERROR_INVALID_ARGUMENT)
      << "two ranks, and nobody says which this is";
  config.rank_table = "/nonexistent";
  EXPECT_EQ(concord_context_create(&config, &context), CONCORD_ERROR_NOT_FOUND);
  ::unlink(name);
}

TEST(Lifetime, DestroyedTwiceOrUsedAfterwards) {
  runRanks(2, [](Rank &rank) {
    concord_comm *comm;
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
    ASSERT_OK(concord_comm_destroy(comm));
    EXPECT_EQ(concord_comm_destroy(comm), CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(concord_last_error(), "was destroyed already"),
              nullptr);
    EXPECT_EQ(concord_comm_abort(comm), CONCORD_ERROR_INVALID_ARGUMENT);
    const int gone = CONCORD_ERROR_INVALID_ARGUMENT;
    EXPECT_EQ(concord_barrier(comm, nullptr), gone);
    concord_comm *other;
    concord_pool *pool;
    int32_t status;
    char text[8];
    EXPECT_EQ(concord_comm_split(comm, 0, 0, nullptr, &other), gone);
    EXPECT_EQ(concord_comm_shrink(comm, nullptr, &other), gone);
    EXPECT_EQ(concord_comm_drain(comm), gone);
    EXPECT_EQ(concord_comm_async_error(comm, &status), gone);
    EXPECT_EQ(concord_comm_last_form(comm, text, sizeof text), gone);
    EXPECT_EQ(concord_pool_create(comm, nullptr, &pool), gone);
    // Its memory may be another's by now: nobody else's is revoked.
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &other));
    EXPECT_EQ(concord_comm_revoke(comm), gone);
    EXPECT_EQ(count(other), 2);
    EXPECT_OK(concord_comm_destroy(other));
    concord_stream *stream;
    concord_event *event;
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    ASSERT_OK(concord_event_create(rank.context, &event));
    EXPECT_OK(concord_stream_destroy(stream));
    EXPECT_OK(concord_event_destroy(event));
    for (int32_t status :
         {concord_stream_destroy(stream), concord_stream_synchronize(stream),
          concord_stream_query(stream), concord_barrier(rank.world, stream),
          concord_event_destroy(event), concord_event_query(event),
          concord_event_synchronize(event)})
      EXPECT_EQ(status, gone) << concord_last_error();
    // The others are none the worse for it.
    EXPECT_EQ(count(rank.world), 2);
    EXPECT_OK(concord_comm_destroy(nullptr));
    EXPECT_EQ(concord_comm_destroy(rank.world), CONCORD_ERROR_INVALID_ARGUMENT);
  });
}

TEST(Lifetime, WhatAGroupOrAPoolHoldsIsKept) {
  runRanks(2, [](Rank &rank) {
    concord_comm *comm, *pooled;
    concord_stream *stream;
    concord_pool *pool;
    uint32_t ticket;
    const int32_t both[] = {0, 1};
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    ASSERT_OK(concord_group_start(rank.context));
    ASSERT_OK(concord_barrier(comm, stream));
    EXPECT_EQ(concord_comm_destroy(comm), CONCORD_ERROR_BUSY);
    EXPECT_EQ(concord_comm_abort(comm), CONCORD_ERROR_BUSY);
    EXPECT_EQ(concord_stream_destroy(stream), CONCORD_ERROR_BUSY);
    ASSERT_OK(concord_group_end(rank.context));
    ASSERT_OK(concord_stream_synchronize(stream));
    EXPECT_OK(concord_stream_destroy(stream));
    ASSERT_OK(concord_pool_create(comm, nullptr, &pool));
    EXPECT_EQ(concord_comm_destroy(comm), CONCORD_ERROR_BUSY);
    ASSERT_OK(
        concord_pool_acquire(pool, both, 2, nullptr, 0, &ticket, &pooled));
    EXPECT_EQ(concord_comm_destroy(pooled), CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(concord_last_error(), "concord_pool_release"),
              nullptr);
    EXPECT_EQ(count(pooled), 2);
    EXPECT_OK(concord_pool_release(pool, ticket, 0));
    EXPECT_OK(concord_pool_destroy(pool));
    EXPECT_OK(concord_comm_destroy(comm));
  });
}

TEST(Lifetime, StreamsOfOtherContextsAreRefused) {
  static std::atomic<concord_stream *> streams[2];
  runRanks(2, [](Rank &rank) {
    concord_stream *own;
    ASSERT_OK(concord_stream_create(rank.context, 0, &own));
    streams[rank.rank] = own;
    ASSERT_OK(concord_barrier(rank.world, nullptr));
    concord_stream *other = streams[1 - rank.rank];
    int32_t x = 0;
    concord_p2p message{1, 1 - rank.rank, &x, 1, CONCORD_DTYPE_I32};
    EXPECT_EQ(concord_batch_p2p(rank.world, &message, 1, other),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(concord_barrier(rank.world, other),
              CONCORD_ERROR_INVALID_ARGUMENT);
    ASSERT_OK(concord_barrier(rank.world, nullptr));
  });
}

TEST(Lifetime, WhatIsInFlightKeepsItsCommunicator) {
  runRanks(2, [](Rank &rank) {
    concord_comm *comm;
    concord_stream *stream;
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    auto *data = rank.heap<float>(1000);
    ASSERT_OK(concord_all_reduce(comm, data, data, 1000, CONCORD_DTYPE_F32,
                                 CONCORD_REDUCTION_SUM, stream));
    EXPECT_EQ(concord_comm_destroy(comm), CONCORD_ERROR_BUSY);
    EXPECT_EQ(concord_stream_destroy(stream), CONCORD_ERROR_BUSY);
    ASSERT_OK(concord_comm_drain(comm));
    EXPECT_OK(concord_stream_destroy(stream));
    EXPECT_OK(concord_comm_destroy(comm));
  });
}

TEST(Arguments, CountsThatOverflow) {
  runRanks(2, [](Rank &rank) {
    auto *data = rank.heap<double>(16);
    for (uint64_t count : {~uint64_t(0), uint64_t(1) << 61,
                           (uint64_t(1) << 61) + 1, uint64_t(1) << 54}) {
      EXPECT_EQ(concord_all_reduce(rank.world, data, data, count,
                                   CONCORD_DTYPE_F64, CONCORD_REDUCTION_SUM,
                                   nullptr),
                CONCORD_ERROR_INVALID_ARGUMENT)
          << count;
      EXPECT_EQ(concord_all_gather(rank.world, data, data, count,
                                   CONCORD_DTYPE_F64, nullptr),
                CONCORD_ERROR_INVALID_ARGUMENT);
      EXPECT_EQ(concord_send(rank.world, data, count, CONCORD_DTYPE_F64,
                             1 - rank.rank, nullptr),
                CONCORD_ERROR_INVALID_ARGUMENT);
      uint64_t counts[2] = {count, count};
      EXPECT_EQ(concord_all_gather_v(rank.world, data, data, counts,
                                     CONCORD_DTYPE_F64, nullptr),
                CONCORD_ERROR_INVALID_ARGUMENT);
    }
    void *memory;
    EXPECT_EQ(concord_heap_alloc(rank.context, ~uint64_t(0) - 8, 64, &memory),
              CONCORD_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(count(rank.world), 2);
  });
}

TEST(Numerics, InfinitiesAndOverflow) {
  runRanks(2, [](Rank &rank) {
    float infinity = __builtin_inff();
    float in[3] = {rank.rank ? -infinity : infinity, infinity, 3e38f}, out[3];
    ASSERT_OK(concord_all_reduce(rank.world, in, out, 3, CONCORD_DTYPE_F32,
                                 CONCORD_REDUCTION_SUM, nullptr));
    EXPECT_NE(out[0], out[0]) << "infinity less infinity is no number";
    EXPECT_EQ(out[1], infinity);
    EXPECT_EQ(out[2], infinity);
    int32_t most = 2147483647, wrapped = 0;
    ASSERT_OK(concord_all_reduce(rank.world, &most, &wrapped, 1,
                                 CONCORD_DTYPE_I32, CONCORD_REDUCTION_SUM,
                                 nullptr));
    EXPECT_EQ(wrapped, -2) << "integers wrap";
  });
}

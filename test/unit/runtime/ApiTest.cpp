//===- ApiTest.cpp - Streams, groups, messages, errors ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rest of the C ABI on ranks as threads: asynchronous operations, messages,
// communicators, and that every misuse ends in the documented error.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

using namespace concord::test;

static concord_p2p message(bool send, int peer, void *buffer, uint64_t count) {
  return {send, peer, buffer, count, CONCORD_DTYPE_I32};
}

TEST(Api, AsynchronousOperationsOnStreams) {
  runRanks(3, [](Rank &rank) {
    concord_stream *a, *b;
    concord_event *event;
    ASSERT_OK(concord_stream_create(rank.context, 0, &a));
    ASSERT_OK(concord_stream_create(rank.context, 5, &b));
    ASSERT_OK(concord_event_create(rank.context, &event));
    EXPECT_OK(concord_event_query(event));
    concord_comm *fast;
    concord_comm_config config{sizeof(concord_comm_config), "fast", 5};
    ASSERT_OK(concord_comm_split(rank.world, 0, rank.rank, &config, &fast));
    const uint64_t big = 300'000;
    auto *x = rank.heap<int32_t>(big), *y = rank.heap<int32_t>(big);
    auto *small = rank.heap<int32_t>(16);
    for (int round = 0; round < 5; ++round) {
      for (uint64_t i = 0; i < big; ++i)
        x[i] = rank.rank + int(i) + round;
      std::fill_n(small, 16, 1);
      ASSERT_OK(concord_all_reduce(rank.world, x, y, big, CONCORD_DTYPE_I32,
                                   CONCORD_REDUCTION_SUM, a));
      ASSERT_OK(concord_event_record(event, a));
      ASSERT_OK(concord_stream_wait_event(b, event));
      ASSERT_OK(concord_all_reduce(fast, small, small, 16, CONCORD_DTYPE_I32,
                                   CONCORD_REDUCTION_SUM, b));
      ASSERT_OK(concord_all_reduce(rank.world, y, x, big, CONCORD_DTYPE_I32,
                                   CONCORD_REDUCTION_MAX, a));
      ASSERT_OK(concord_stream_synchronize(b));
      ASSERT_OK(concord_event_synchronize(event));
      EXPECT_EQ(small[15], 3);
      EXPECT_EQ(y[big - 1], 3 + 3 * (int(big) - 1 + round));
      ASSERT_OK(concord_stream_synchronize(a));
      EXPECT_OK(concord_stream_query(a));
      EXPECT_EQ(x[7], 3 + 3 * (7 + round));
    }
    EXPECT_OK(concord_comm_drain(fast));
    EXPECT_OK(concord_comm_destroy(fast));
    EXPECT_OK(concord_event_destroy(event));
    EXPECT_OK(concord_stream_destroy(a));
    EXPECT_OK(concord_stream_destroy(b));
  });
}

TEST(Api, HighPriorityOvertakesAtAChunkBoundary) {
  runRanks(2, [](Rank &rank) {
    concord_comm *fast;
    concord_comm_config config{sizeof(concord_comm_config), "fast", 1};
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, &config, &fast));
    concord_stream *slow;
    ASSERT_OK(concord_stream_create(rank.context, 0, &slow));
    const uint64_t big = 8 << 20;
    auto *x = rank.heap<float>(big), *y = rank.heap<float>(big);
    float one = 1, sum = 0;
    ASSERT_OK(concord_all_reduce(rank.world, x, y, big, CONCORD_DTYPE_F32,
                                 CONCORD_REDUCTION_SUM, slow));
    // The small one completes although the large one is still under way.
    ASSERT_OK(concord_all_reduce(fast, &one, &sum, 1, CONCORD_DTYPE_F32,
                                 CONCORD_REDUCTION_SUM, nullptr));
    EXPECT_EQ(sum, 2);
    EXPECT_EQ(concord_stream_query(slow), CONCORD_ERROR_NOT_READY);
    EXPECT_EQ(concord_stream_destroy(slow), CONCORD_ERROR_BUSY);
    ASSERT_OK(concord_stream_synchronize(slow));
    EXPECT_OK(concord_stream_destroy(slow));
    EXPECT_OK(concord_comm_destroy(fast));
  });
}

TEST(Api, MessagesKeepTheirOrderAtEverySize) {
  runRanks(2, [](Rank &rank) {
    for (uint64_t count : {0, 1, 200, 5000, 300'000})
      for (bool heap : {true, false}) {
        std::vector<int32_t> own(count + 1);
        int32_t *buffer = heap ? rank.heap<int32_t>(count + 1) : own.data();
        for (int round = 0; round < 3; ++round) {
          if (rank.rank == 0) {
            std::fill_n(buffer, count, round + 10);
            ASSERT_OK(concord_send(rank.world, buffer, count, CONCORD_DTYPE_I32,
                                   1, nullptr));
          } else {
            ASSERT_OK(concord_recv(rank.world, buffer, count, CONCORD_DTYPE_I32,
                                   0, nullptr));
            for (uint64_t i = 0; i < count; ++i)
              ASSERT_EQ(buffer[i], round + 10) << i;
          }
        }
        if (heap) {
          EXPECT_OK(concord_heap_free(rank.context, buffer));
        }
      }
  });
}

TEST(Api, ExchangesInAGroupDoNotHang) {
  runRanks(4, [](Rank &rank) {
    int n = rank.size, right = (rank.rank + 1) % n,
        left = (rank.rank + n - 1) % n;
    const uint64_t count = 100'000; // larger than a mailbox: needs both sides
    std::vector<int32_t> out(count, rank.rank), in(count, -1);
    concord_p2p both[2] = {message(true, right, out.data(), count),
                           message(false, left, in.data(), count)};
    ASSERT_OK(concord_batch_p2p(rank.world, both, 2, nullptr));
    EXPECT_EQ(in[count - 1], left);
    // The same through group calls, on a stream, with a collective beside it.
    concord_stream *stream;
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    int32_t sum = 0;
    ASSERT_OK(concord_group_start(rank.context));
    ASSERT_OK(concord_send(rank.world, out.data(), count, CONCORD_DTYPE_I32,
                           left, stream));
    ASSERT_OK(concord_recv(rank.world, in.data(), count, CONCORD_DTYPE_I32,
                           right, stream));
    ASSERT_OK(concord_all_reduce(rank.world, &rank.rank, &sum, 1,
                                 CONCORD_DTYPE_I32, CONCORD_REDUCTION_SUM,
                                 nullptr));
    ASSERT_OK(concord_group_end(rank.context));
    EXPECT_EQ(sum, 6);
    ASSERT_OK(concord_stream_synchronize(stream));
    EXPECT_EQ(in[0], right);
    EXPECT_EQ(concord_group_end(rank.context), CONCORD_ERROR_INVALID_ARGUMENT);
    // To itself.
    concord_p2p self[2] = {message(true, rank.rank, out.data(), count),
                           message(false, rank.rank, in.data(), count)};
    ASSERT_OK(concord_batch_p2p(rank.world, self, 2, nullptr));
    EXPECT_EQ(in[5], rank.rank);
  });
}

TEST(Api, CommunicatorsOfAllShapes) {
  runRanks(6, [](Rank &rank) {
    concord_comm *half, *none, *group = nullptr;
    // Reversed order by key.
    ASSERT_OK(concord_comm_split(rank.world, rank.rank % 2, -rank.rank, nullptr,
                                 &half));
    int32_t me, size, all[3];
    ASSERT_OK(concord_comm_rank(half, &me, &size));
    EXPECT_EQ(size, 3);
    EXPECT_EQ(me, 2 - rank.rank / 2);
    ASSERT_OK(concord_all_gather(half, &rank.rank, all, 1, CONCORD_DTYPE_I32,
                                 nullptr));
    EXPECT_EQ(all[0], 4 + rank.rank % 2);
    ASSERT_OK(concord_comm_split(rank.world, rank.rank == 0 ? -1 : 3, 0,
                                 nullptr, &none));
    EXPECT_EQ(none == nullptr, rank.rank == 0);
    EXPECT_OK(concord_comm_destroy(none));
    const int32_t members[] = {5, 1, 2};
    if (rank.rank == 1 || rank.rank == 2 || rank.rank == 5) {
      ASSERT_OK(
          concord_comm_create_group(rank.context, members, 3, nullptr, &group));
      int32_t value = rank.rank;
      ASSERT_OK(concord_broadcast(group, &value, &value, 1, CONCORD_DTYPE_I32,
                                  0, nullptr));
      EXPECT_EQ(value, 5);
      EXPECT_OK(concord_comm_destroy(group));
    }
    uint64_t bits = rank.rank == 4 ? 0xdecaf : 0;
    ASSERT_OK(concord_round_decision(rank.world, 4, &bits));
    EXPECT_EQ(bits, 0xdecafu);
    EXPECT_OK(concord_comm_destroy(half));
  });
}

/// Also after an operation that did look at it.
TEST(Api, WhatOnlyTheRootHasIsNotTouchedElsewhere) {
  runRanks(3, [](Rank &rank) {
    const uint64_t count = 100'000, all = 3 * count; // staged, in parts
    const int f32 = CONCORD_DTYPE_F32, sum = CONCORD_REDUCTION_SUM;
    std::vector<float> in(all, float(rank.rank + 1)), out(all);
    for (int root = 0; root < 3; ++root) {
      void *whole = rank.rank == root ? out.data() : nullptr;
      const void *given = rank.rank == root ? in.data() : nullptr;
      auto before = [&] {
        ASSERT_OK(concord_all_to_all(rank.world, in.data(), out.data(), count,
                                     f32, nullptr));
      };
      before();
      ASSERT_OK(concord_gather(rank.world, in.data(), whole, count, f32, root,
                               nullptr));
      EXPECT_EQ(out[all - 1], 3);
      before();
      ASSERT_OK(concord_reduce(rank.world, in.data(), whole, count, f32, sum,
                               root, nullptr));
      EXPECT_EQ(out[count - 1], rank.rank == root ? 6 : 1);
      before();
      ASSERT_OK(concord_scatter(rank.world, given, out.data(), count, f32, root,
                                nullptr));
      EXPECT_EQ(out[count - 1], float(root + 1));
      before();
      ASSERT_OK(concord_broadcast(rank.world, given, out.data(), count, f32,
                                  root, nullptr));
      EXPECT_EQ(out[count - 1], float(root + 1));
    }
  });
}

TEST(Api, CommunicatorsComeAndGoWithoutGrowth) {
  runRanks(2, [](Rank &rank) {
    for (int i = 0; i < 4500; ++i) { // more than the table has entries
      concord_comm *comm;
      ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm)) << i;
      ASSERT_OK(concord_comm_destroy(comm));
    }
  });
}

TEST(Api, MismatchesNameBothSides) {
  auto reduce = [](uint64_t count, int type, int reduction) {
    return [=](Rank &rank, void *data) {
      return concord_all_reduce(rank.world, data, data, count, type, reduction,
                                nullptr);
    };
  };
  auto check = [](std::function<int32_t(Rank &, void *)> zero,
                  std::function<int32_t(Rank &, void *)> one,
                  const char *words0, const char *words1) {
    runRanks(2, [&](Rank &rank) {
      void *data = rank.heap<char>(1 << 16);
      EXPECT_EQ((rank.rank ? one : zero)(rank, data), CONCORD_ERROR_MISMATCH)
          << concord_last_error();
      std::string text = concord_last_error();
      EXPECT_NE(text.find(words0), std::string::npos) << text;
      EXPECT_NE(text.find(words1), std::string::npos) << text;
      EXPECT_EQ(concord_barrier(rank.world, nullptr), CONCORD_ERROR_BROKEN);
      int32_t status = 0;
      EXPECT_OK(concord_comm_async_error(rank.world, &status));
      EXPECT_EQ(status, CONCORD_ERROR_MISMATCH);
    });
  };
  const int f32 = CONCORD_DTYPE_F32, i32 = CONCORD_DTYPE_I32;
  const int sum = CONCORD_REDUCTION_SUM, max = CONCORD_REDUCTION_MAX;
  check(reduce(8, f32, sum), reduce(9, f32, sum), "count 8", "count 9");
  check(reduce(8, f32, sum), reduce(9000, f32, sum), "count 8", "count 9000");
  check(reduce(8, f32, sum), reduce(8, i32, sum), "F32", "I32");
  check(reduce(9000, f32, sum), reduce(9000, f32, max), "sum", "max");
  check(
      reduce(8, f32, sum),
      [](Rank &rank, void *data) {
        return concord_barrier(rank.world, nullptr);
      },
      "all_reduce", "barrier");
  auto broadcast = [](int root) {
    return [=](Rank &rank, void *data) {
      return concord_broadcast(rank.world, data, data, 9000, CONCORD_DTYPE_F32,
                               root, nullptr);
    };
  };
  check(broadcast(0), broadcast(1), "root 0", "root 1");
}

// Nobody reads the slot of one that takes itself for the root, or of one that
// takes another for it: the next operation that hears from all says so, or one
// that has to wait for slots to become free.
TEST(Api, OneWayOperationsThatDisagreeAreFound) {
  using Issue = int32_t (*)(Rank &, int me, float *in, float *out);
  const Issue kinds[] = {
      [](Rank &rank, int me, float *, float *out) {
        return concord_broadcast(rank.world, out, out, 2, CONCORD_DTYPE_F32, me,
                                 nullptr);
      },
      [](Rank &rank, int me, float *in, float *out) {
        return concord_scatter(rank.world, in, out, 2, CONCORD_DTYPE_F32, me,
                               nullptr);
      },
      [](Rank &rank, int me, float *in, float *out) {
        return concord_reduce(rank.world, in, out, 2, CONCORD_DTYPE_F32,
                              CONCORD_REDUCTION_SUM, 1 - me, nullptr);
      },
      [](Rank &rank, int me, float *in, float *out) {
        return concord_gather(rank.world, in, out, 2, CONCORD_DTYPE_F32, 1 - me,
                              nullptr);
      }};
  for (const Issue &issue : kinds)
    for (bool barrier : {true, false})
      for (int before : {0, 1, 5, 30})
        runRanks(3, [&](Rank &rank) {
          auto *in = rank.heap<float>(16), *out = rank.heap<float>(16);
          for (int i = 0; i < before; ++i)
            ASSERT_OK(issue(rank, i % 2, in, out));
          // The third agrees with the first.
          int32_t status = issue(rank, rank.rank == 1, in, out);
          ASSERT_OK(status);
          for (int i = 0; i < 20 && status == CONCORD_OK; ++i)
            status = barrier ? concord_barrier(rank.world, nullptr)
                             : issue(rank, rank.rank == 1, in, out);
          EXPECT_EQ(status, CONCORD_ERROR_MISMATCH) << concord_last_error();
        });
}

TEST(Api, UnevenCountsThatDisagreeAreFound) {
  runRanks(2, [](Rank &rank) {
    uint64_t send[2] = {100, 100}, receive[2] = {100, 100};
    if (rank.rank == 1)
      receive[0] = 99;
    auto *in = rank.heap<int32_t>(200), *out = rank.heap<int32_t>(200);
    int32_t status = concord_all_to_all_v(rank.world, in, out, send, receive,
                                          CONCORD_DTYPE_I32, nullptr);
    EXPECT_EQ(status, CONCORD_ERROR_MISMATCH) << concord_last_error();
  });
}

TEST(Api, ListsOfCountsAreToldAsSuch) {
  runRanks(2, [](Rank &rank) {
    const uint64_t counts[2] = {3, 4};
    int32_t in[4] = {}, out[7] = {};
    int32_t status = rank.rank == 0
                         ? concord_all_gather_v(rank.world, in, out, counts,
                                                CONCORD_DTYPE_I32, nullptr)
                         : concord_all_gather(rank.world, in, out, 3,
                                              CONCORD_DTYPE_I32, nullptr);
    EXPECT_EQ(status, CONCORD_ERROR_MISMATCH) << concord_last_error();
    std::string words = concord_last_error();
    EXPECT_NE(words.find("all_gather_v(counts' hash "), std::string::npos)
        << words;
    EXPECT_NE(words.find("all_gather(count 3, I32)"), std::string::npos)
        << words;
  });
}

TEST(Api, GroupsKeepTheOrderOfTheirCallsAcrossStreams) {
  runRanks(3, [](Rank &rank) {
    // Rank 2 is not in `pair`, so its groups hold less; the order on the
    // communicator of all must be the same all the same.
    const int32_t members[] = {0, 1};
    concord_comm *pair = nullptr;
    concord_stream *stream;
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    if (rank.rank < 2) {
      ASSERT_OK(
          concord_comm_create_group(rank.context, members, 2, nullptr, &pair));
    }
    for (int round = 0; round < 50; ++round) {
      int32_t a = rank.rank, b = rank.rank, c[3] = {}, sum = 0, most = 0;
      ASSERT_OK(concord_group_start(rank.context));
      if (pair) {
        ASSERT_OK(concord_all_reduce(pair, &a, &a, 1, CONCORD_DTYPE_I32,
                                     CONCORD_REDUCTION_SUM, stream));
      }
      ASSERT_OK(concord_all_reduce(rank.world, &b, &sum, 1, CONCORD_DTYPE_I32,
                                   CONCORD_REDUCTION_SUM, nullptr));
      ASSERT_OK(
          concord_all_gather(rank.world, &b, c, 1, CONCORD_DTYPE_I32, stream));
      ASSERT_OK(concord_all_reduce(rank.world, &b, &most, 1, CONCORD_DTYPE_I32,
                                   CONCORD_REDUCTION_MAX, nullptr));
      ASSERT_OK(concord_group_end(rank.context));
      ASSERT_OK(concord_stream_synchronize(stream));
      EXPECT_EQ(sum, 3);
      EXPECT_EQ(most, 2);
      EXPECT_EQ(c[2], 2);
      EXPECT_EQ(a, pair ? 1 : 2);
    }
    EXPECT_OK(concord_stream_destroy(stream));
  });
}

TEST(Api, GroupsBelongToTheirThread) {
  runRanks(
      2,
      [](Rank &rank) {
        concord_comm *comms[2];
        for (auto &comm : comms)
          ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
        for (int round = 0; round < 20; ++round) {
          int32_t a = rank.rank, b = rank.rank;
          ASSERT_OK(concord_group_start(rank.context));
          ASSERT_OK(concord_all_reduce(comms[0], &a, &a, 1, CONCORD_DTYPE_I32,
                                       CONCORD_REDUCTION_SUM, nullptr));
          // What another thread calls meanwhile is done when it returns.
          std::thread other([&] {
            EXPECT_EQ(concord_group_end(rank.context),
                      CONCORD_ERROR_INVALID_ARGUMENT);
            ASSERT_OK(concord_all_reduce(comms[1], &b, &b, 1, CONCORD_DTYPE_I32,
                                         CONCORD_REDUCTION_SUM, nullptr));
            EXPECT_EQ(b, 1);
          });
          other.join();
          EXPECT_EQ(a, rank.rank);
          ASSERT_OK(concord_group_end(rank.context));
          EXPECT_EQ(a, 1);
        }
      },
      [](concord_context_config &config) {
        config.thread_level = CONCORD_THREAD_MULTIPLE;
      });
}

TEST(Api, SynchronisingTheDeviceEmptiesStreamsAndTellsTheirErrors) {
  runRanks(2, [](Rank &rank) {
    concord_stream *a, *b;
    concord_event *event;
    ASSERT_OK(concord_stream_create(rank.context, 0, &a));
    ASSERT_OK(concord_stream_create(rank.context, 0, &b));
    ASSERT_OK(concord_event_create(rank.context, &event));
    auto *x = rank.heap<float>(100'000);
    for (int round = 0; round < 20; ++round) {
      ASSERT_OK(concord_all_reduce(rank.world, x, x, 100'000, CONCORD_DTYPE_F32,
                                   CONCORD_REDUCTION_SUM, a));
      ASSERT_OK(concord_event_record(event, a));
      // The last entry of b is a wait, that of a a group.
      ASSERT_OK(concord_stream_wait_event(b, event));
      ASSERT_OK(concord_group_start(rank.context));
      ASSERT_OK(concord_barrier(rank.world, a));
      ASSERT_OK(concord_group_end(rank.context));
      ASSERT_OK(concord_device_synchronize(rank.context));
      EXPECT_OK(concord_stream_query(a));
      EXPECT_OK(concord_stream_query(b));
    }
    EXPECT_OK(concord_stream_destroy(b));
    // An error that came up before, while something else was waited for.
    concord_comm *comm;
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
    ASSERT_OK(
        concord_broadcast(comm, x, x, 9000, CONCORD_DTYPE_F32, rank.rank, a));
    EXPECT_EQ(concord_stream_synchronize(a), CONCORD_ERROR_MISMATCH);
    EXPECT_EQ(concord_device_synchronize(rank.context), CONCORD_ERROR_MISMATCH);
    EXPECT_NE(std::strstr(concord_last_error(), "broadcast"), nullptr)
        << concord_last_error();
    EXPECT_OK(concord_stream_destroy(a));
    EXPECT_OK(concord_device_synchronize(rank.context));
    EXPECT_OK(concord_event_destroy(event));
  });
}

TEST(Api, BadArgumentsLeaveTheCommunicatorUsable) {
  runRanks(2, [](Rank &rank) {
    float x[64] = {}, y[64] = {};
    auto sum = [&](const void *in, void *out, uint64_t count, int type,
                   int reduction) {
      return concord_all_reduce(rank.world, in, out, count, type, reduction,
                                nullptr);
    };
    const int bad = CONCORD_ERROR_INVALID_ARGUMENT;
    const int f32 = CONCORD_DTYPE_F32;
    EXPECT_EQ(sum(nullptr, y, 4, f32, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, nullptr, 4, f32, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, y, 4, 0, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, y, 4, 99, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, y, 4, f32, CONCORD_REDUCTION_NONE), bad);
    EXPECT_EQ(sum(x, y, 4, f32, CONCORD_REDUCTION_AND), bad);
    EXPECT_EQ(sum(x, y, 4, f32, 42), bad);
    EXPECT_EQ(sum(x, y, 4, f32, 256 + CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, y, 4, f32, -1), bad);
    EXPECT_EQ(sum(x, y, 4, CONCORD_DTYPE_F8E4M3, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, y, ~0ull, f32, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, y, 1ull << 62, f32, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(sum(x, x + 1, 8, f32, CONCORD_REDUCTION_SUM), bad);
    EXPECT_EQ(concord_broadcast(rank.world, x, x, 4, f32, 2, nullptr), bad);
    EXPECT_EQ(concord_broadcast(rank.world, x, x, 4, f32, -1, nullptr), bad);
    EXPECT_EQ(concord_send(rank.world, x, 4, f32, 7, nullptr), bad);
    const int32_t twice[] = {0, 1, 1, 1};
    EXPECT_EQ(concord_permute(rank.world, x, y, 4, f32, twice, 2, nullptr),
              bad);
    concord_p2p odd = message(true, 1 - rank.rank, x, 4);
    odd.send = 7;
    EXPECT_EQ(concord_batch_p2p(rank.world, &odd, 1, nullptr), bad);
    EXPECT_EQ(concord_all_reduce(nullptr, x, y, 4, f32, 1, nullptr), bad);
    // A struct whose size was forgotten is not a struct of defaults.
    concord_comm_config config{};
    concord_comm *comm;
    EXPECT_EQ(concord_comm_split(rank.world, 0, 0, &config, &comm), bad);
    EXPECT_NE(std::strstr(concord_last_error(),
                          "config->struct_size is 0: set it to sizeof *config"),
              nullptr)
        << concord_last_error();
    concord_live_status live{};
    EXPECT_EQ(concord_live_status_query(rank.context, 0, &live), bad);
    // Memory that is not there is not touched.
    EXPECT_EQ(concord_buffer_register(
                  rank.context, reinterpret_cast<void *>(uintptr_t(64)), 8),
              bad);
    EXPECT_EQ(concord_buffer_register(rank.context, x, ~0ull), bad);
    EXPECT_EQ(concord_buffer_register(rank.context, x, 0), bad);
    EXPECT_EQ(concord_buffer_deregister(rank.context, x), bad);
    EXPECT_OK(concord_buffer_register(rank.context, x, sizeof x));
    EXPECT_OK(concord_buffer_register(rank.context, x, sizeof x));
    EXPECT_OK(concord_buffer_deregister(rank.context, x));
    EXPECT_OK(concord_buffer_deregister(rank.context, x));
    EXPECT_EQ(concord_buffer_deregister(rank.context, x), bad);
    EXPECT_EQ(concord_comm_destroy(rank.world), bad);
    EXPECT_EQ(concord_heap_free(rank.context, x), bad);
    void *pointer;
    EXPECT_EQ(concord_heap_alloc(rank.context, 8, 3, &pointer), bad);
    EXPECT_EQ(concord_heap_alloc(rank.context, 1ull << 50, 0, &pointer),
              CONCORD_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(concord_comm_grow(rank.world, 3, nullptr, nullptr), bad);
    x[0] = 1;
    EXPECT_OK(sum(x, y, 1, f32, CONCORD_REDUCTION_SUM));
    EXPECT_EQ(y[0], 2);
    // Nothing at all is a legal operation.
    EXPECT_OK(sum(nullptr, nullptr, 0, f32, CONCORD_REDUCTION_SUM));
  });
}

// A call that asks for what the last one did takes a short way
// (engine/Collective.cpp, runAgain): nothing but its operands may be new.
TEST(Api, CallsLikeTheLastOne) {
  runRanks(3, [](Rank &rank) {
    const int i32 = CONCORD_DTYPE_I32, sum = CONCORD_REDUCTION_SUM;
    const int bad = CONCORD_ERROR_INVALID_ARGUMENT;
    concord_stream *stream;
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    int32_t x[15][6], y[15][6], other[6];
    for (int round = 0; round < 15; ++round)
      for (int i = 0; i < 6; ++i)
        x[round][i] = 100 * round + 10 * rank.rank + i;
    auto all = [&](const int32_t *in, int32_t *out, uint64_t count = 2) {
      return concord_all_reduce(rank.world, in, out, count, i32, sum, nullptr);
    };
    auto check = [&](int round, int i, int32_t want) {
      ASSERT_EQ(y[round][i], want) << "round " << round << ", element " << i;
    };
    for (int round = 0; round < 15; ++round) {
      for (int again = 0; again < 2; ++again) {
        ASSERT_OK(all(x[round], y[round]));
        check(round, 1, 300 * round + 33);
      }
      // What is wrong with a later call is said, and spoils nothing.
      ASSERT_EQ(all(nullptr, y[round]), bad);
      ASSERT_EQ(all(x[round], nullptr), bad);
      ASSERT_OK(all(x[round], y[round]));
      std::copy_n(x[round], 6, other);
      ASSERT_EQ(all(other, other + 1), bad);
      ASSERT_OK(all(other, other));
      ASSERT_OK(all(x[round], y[round], 3)); // another count
      check(round, 2, 300 * round + 36);
      for (int again = 0; again < 3; ++again)
        ASSERT_OK(concord_all_gather(rank.world, x[round] + again, y[round], 2,
                                     i32, nullptr));
      for (int i = 0; i < 6; ++i)
        check(round, i, 100 * round + 10 * (i / 2) + 2 + i % 2);
      for (int again = 0; again < 3; ++again)
        ASSERT_OK(concord_all_to_all(rank.world, x[round], y[round], 2, i32,
                                     nullptr));
      for (int i = 0; i < 6; ++i)
        check(round, i, 100 * round + 10 * (i / 2) + 2 * rank.rank + i % 2);
      for (int again = 0; again < 3; ++again)
        ASSERT_OK(concord_reduce_scatter(rank.world, x[round], y[round], 2, i32,
                                         sum, nullptr));
      check(round, 1, 300 * round + 30 + 3 * (2 * rank.rank + 1));
      for (int root : {0, 0, 0, 2, 2, 1}) { // roots may change in between
        ASSERT_OK(concord_broadcast(rank.world, x[round], y[round], 3, i32,
                                    root, nullptr));
        check(round, 2, 100 * round + 10 * root + 2);
      }
      for (int again = 0; again < 3; ++again)
        ASSERT_OK(concord_reduce(rank.world, x[round],
                                 rank.rank == 1 ? y[round] : nullptr, 2, i32,
                                 sum, 1, nullptr));
      if (rank.rank == 1)
        check(round, 1, 300 * round + 33);
      for (int again = 0; again < 3; ++again)
        ASSERT_OK(concord_gather(rank.world, x[round] + again,
                                 rank.rank == 2 ? y[round] : nullptr, 2, i32, 2,
                                 nullptr));
      if (rank.rank == 2)
        for (int i = 0; i < 6; ++i)
          check(round, i, 100 * round + 10 * (i / 2) + 2 + i % 2);
      for (int again = 0; again < 3; ++again)
        ASSERT_OK(concord_scatter(rank.world,
                                  rank.rank == 0 ? x[round] : nullptr, y[round],
                                  2, i32, 0, nullptr));
      check(round, 1, 100 * round + 2 * rank.rank + 1);
      // It keeps its place behind what a stream has been given.
      ASSERT_OK(all(x[round], y[round]));
      int32_t one = 1, three = 0, nine = 0;
      ASSERT_OK(
          concord_all_reduce(rank.world, &one, &three, 1, i32, sum, stream));
      ASSERT_OK(all(x[round], y[round]));
      ASSERT_EQ(three, 3);
      ASSERT_OK(
          concord_all_reduce(rank.world, &three, &nine, 1, i32, sum, nullptr));
      ASSERT_EQ(nine, 9);
      ASSERT_OK(concord_stream_synchronize(stream));
      if (round % 7 == rank.rank) // late, so that the others have to wait
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    EXPECT_OK(concord_stream_destroy(stream));
    // Members that do not ask for the same find out.
    ASSERT_OK(all(x[0], y[0]));
    ASSERT_OK(all(x[0], y[0]));
    EXPECT_EQ(all(x[0], y[0], rank.rank == 2 ? 3 : 2), CONCORD_ERROR_MISMATCH);
    EXPECT_EQ(all(x[0], y[0]), CONCORD_ERROR_BROKEN);
  });
}

TEST(Api, RevokedCommunicatorsFailAtEveryMember) {
  runRanks(2, [](Rank &rank) {
    concord_comm *comm;
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
    if (rank.rank == 0) {
      EXPECT_OK(concord_comm_revoke(comm));
    } else {
      EXPECT_EQ(concord_barrier(comm, nullptr), CONCORD_ERROR_REVOKED);
    }
    // The survivors' communicator works.
    concord_comm *again;
    ASSERT_OK(concord_comm_shrink(comm, nullptr, &again));
    EXPECT_OK(concord_barrier(again, nullptr));
    EXPECT_OK(concord_comm_destroy(again));
    EXPECT_OK(concord_comm_destroy(comm));
  });
}

TEST(Api, AbortFreesThoseWhoWait) {
  runRanks(3, [](Rank &rank) {
    if (rank.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_OK(concord_context_abort(rank.context, "no reason at all"));
      return;
    }
    EXPECT_EQ(concord_barrier(rank.world, nullptr), CONCORD_ERROR_ABORTED);
    EXPECT_NE(std::strstr(concord_last_error(), "no reason at all"), nullptr);
    EXPECT_NE(std::strstr(concord_last_error(), "rank 2"), nullptr);
    int32_t status = 0;
    EXPECT_OK(concord_context_async_error(rank.context, &status));
    EXPECT_EQ(status, CONCORD_ERROR_ABORTED);
  });
}

TEST(Api, LeavingPeersAndLateOnesAreNamed) {
  runRanks(2,
           [](Rank &rank) {
             if (rank.rank == 0)
               return;
             EXPECT_EQ(concord_barrier(rank.world, nullptr),
                       CONCORD_ERROR_PEER_LEFT);
             EXPECT_NE(std::strstr(concord_last_error(), "rank 0"), nullptr);
           },
           {});
  std::atomic<bool> done{false};
  runRanks(
      2,
      [&](Rank &rank) {
        if (rank.rank == 0) {
          while (!done)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return;
        }
        EXPECT_EQ(concord_barrier(rank.world, nullptr), CONCORD_ERROR_TIMEOUT);
        EXPECT_NE(std::strstr(concord_last_error(), "rank 0 is running"),
                  nullptr)
            << concord_last_error();
        done = true;
      },
      [](concord_context_config &config) { config.timeout_seconds = 0.05; });
}

TEST(Api, ThreadLevels) {
  // Two threads inside one context are detected below MULTIPLE ...
  std::atomic<bool> caught{false};
  runRanks(2, [&](Rank &rank) {
    if (rank.rank == 1) {
      while (!caught)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_OK(concord_barrier(rank.world, nullptr));
      return;
    }
    std::atomic<bool> waiting{false};
    std::thread other([&] {
      while (!waiting)
        std::this_thread::yield();
      // The rank's own thread is inside the barrier by then.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      void *pointer = nullptr;
      EXPECT_EQ(concord_heap_alloc(rank.context, 8, 0, &pointer),
                CONCORD_ERROR_THREAD);
      caught = true;
    });
    waiting = true;
    EXPECT_OK(concord_barrier(rank.world, nullptr));
    other.join();
  });
  // ... and work at MULTIPLE, each on its own communicator.
  runRanks(
      2,
      [](Rank &rank) {
        concord_comm *comms[2];
        for (auto &comm : comms)
          ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &comm));
        std::vector<std::thread> threads;
        for (concord_comm *comm : comms)
          threads.emplace_back([comm] {
            for (int i = 0; i < 50; ++i) {
              int32_t sum = 0;
              ASSERT_OK(concord_all_reduce(comm, &i, &sum, 1, CONCORD_DTYPE_I32,
                                           CONCORD_REDUCTION_SUM, nullptr));
              ASSERT_EQ(sum, 2 * i);
            }
          });
        for (std::thread &thread : threads)
          thread.join();
      },
      [](concord_context_config &config) {
        config.thread_level = CONCORD_THREAD_MULTIPLE;
      });
}

TEST(Api, RanksAreTakenOnce) {
  concord_job *job;
  ASSERT_OK(concord_job_create(1, 1 << 22, &job));
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.job = job;
  concord_context *context, *second;
  ASSERT_OK(concord_context_create(&config, &context));
  EXPECT_EQ(concord_context_create(&config, &second), CONCORD_ERROR_RANK_TAKEN);
  EXPECT_EQ(concord_job_destroy(job), CONCORD_ERROR_BUSY);
  config.rank = 1;
  EXPECT_EQ(concord_context_create(&config, &second),
            CONCORD_ERROR_INVALID_ARGUMENT);
  concord_rank_entry entry{};
  entry.struct_size = sizeof entry;
  ASSERT_OK(concord_context_rank_table(context, &entry, 1));
  EXPECT_EQ(entry.state, CONCORD_RANK_RUNNING);
  EXPECT_OK(concord_context_finalize(context));
  EXPECT_OK(concord_job_destroy(job));
  EXPECT_EQ(concord_job_create(65, 0, &job), CONCORD_ERROR_INVALID_ARGUMENT);
}

TEST(Api, MissingRanksAreNamed) {
  concord_job *job;
  ASSERT_OK(concord_job_create(3, 1 << 22, &job));
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.job = job;
  config.rank = 1;
  config.connect_timeout_seconds = 0.05;
  concord_context *context;
  EXPECT_EQ(concord_context_create(&config, &context), CONCORD_ERROR_TIMEOUT);
  EXPECT_NE(std::strstr(concord_last_error(), "0, 2"), nullptr)
      << concord_last_error();
  EXPECT_OK(concord_job_destroy(job));
}

TEST(Api, UniqueIdsJoinProcessesWithoutALauncher) {
  concord_unique_id id;
  ASSERT_OK(concord_unique_id_create(&id));
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      concord_context_config config{};
      config.struct_size = sizeof config;
      config.unique_id = &id;
      config.rank = r;
      config.world = 2;
      config.heap_bytes = 1 << 22;
      concord_context *context;
      ASSERT_OK(concord_context_create(&config, &context));
      concord_comm *world;
      ASSERT_OK(concord_comm_world(context, &world));
      int32_t sum = 0;
      EXPECT_OK(concord_all_reduce(world, &r, &sum, 1, CONCORD_DTYPE_I32,
                                   CONCORD_REDUCTION_SUM, nullptr));
      EXPECT_EQ(sum, 1);
      EXPECT_OK(concord_context_finalize(context));
    });
  for (std::thread &thread : threads)
    thread.join();
  std::memset(id.bytes, 'x', sizeof id.bytes);
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.unique_id = &id;
  config.world = 1;
  concord_context *context;
  EXPECT_EQ(concord_context_create(&config, &context),
            CONCORD_ERROR_INVALID_ARGUMENT);
}

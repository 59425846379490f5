//===- GrowTest.cpp - Communicators that grow ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// concord_comm_grow on ranks as threads, which others join: what can be made of
// the grown communicator, and how it and its context end. What processes do to
// each other is in test/system/runtime/test_grow.py.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"

#include <cstring>

using namespace concord::test;

namespace {

/// A thread that joins as `rank` of `world`, while it lives.
class Joiner {
public:
  Joiner(const concord_unique_id &id, int rank, int world,
         std::function<void(Rank &)> body)
      : thread([=] {
          concord_context_config config{};
          config.struct_size = sizeof config;
          config.unique_id = &id;
          config.rank = rank;
          config.world = world;
          config.timeout_seconds = config.connect_timeout_seconds = 60;
          Rank self;
          self.rank = rank;
          self.size = world;
          ASSERT_OK(concord_context_create(&config, &self.context));
          ASSERT_OK(concord_comm_world(self.context, &self.world));
          body(self);
          EXPECT_OK(concord_context_finalize(self.context));
        }) {}
  ~Joiner() { thread.join(); }

private:
  std::thread thread;
};

int32_t sumOf(concord_comm *comm, int32_t value) {
  int32_t sum = -1;
  EXPECT_OK(concord_all_reduce(comm, &value, &sum, 1, CONCORD_DTYPE_I32,
                               CONCORD_REDUCTION_SUM, nullptr));
  return sum;
}

concord_unique_id newId() {
  concord_unique_id id;
  EXPECT_OK(concord_unique_id_create(&id));
  return id;
}

} // namespace

TEST(Grow, ThreadsAreJoinedByThreads) {
  concord_unique_id id = newId();
  auto both = [](concord_comm *grown, int rank) {
    EXPECT_EQ(sumOf(grown, rank + 1), 10);
    // What can be made of any communicator can be made of it.
    concord_comm *half, *all;
    ASSERT_OK(concord_comm_split(grown, rank % 2, 0, nullptr, &half));
    EXPECT_EQ(sumOf(half, 1), 2);
    ASSERT_OK(concord_comm_shrink(grown, nullptr, &all));
    EXPECT_EQ(sumOf(all, 1), 4);
    EXPECT_OK(concord_comm_destroy(all));
    EXPECT_OK(concord_comm_destroy(half));
  };
  Joiner two(id, 2, 4, [&](Rank &self) { both(self.world, 2); });
  Joiner three(id, 3, 4, [&](Rank &self) { both(self.world, 3); });
  runRanks(2, [&](Rank &rank) {
    concord_comm *grown = nullptr;
    ASSERT_OK(concord_comm_grow(rank.world, 4, &id, &grown));
    int32_t me, size;
    ASSERT_OK(concord_comm_rank(grown, &me, &size));
    EXPECT_EQ(me, rank.rank);
    EXPECT_EQ(size, 4);
    both(grown, me);
    // The parent is as it was.
    EXPECT_EQ(sumOf(rank.world, 5), 10);
    EXPECT_OK(concord_comm_destroy(grown));
    EXPECT_EQ(sumOf(rank.world, 6), 12);
  });
}

TEST(Grow, AGrownCommunicatorHasAContextOfItsOwn) {
  concord_unique_id id = newId();
  Joiner one(id, 1, 2, [&](Rank &self) { EXPECT_EQ(sumOf(self.world, 1), 3); });
  runRanks(1, [&](Rank &rank) {
    concord_comm *grown, *child;
    concord_context *context, *same;
    ASSERT_OK(concord_comm_grow(rank.world, 2, &id, &grown));
    ASSERT_OK(concord_comm_context(grown, &context));
    ASSERT_OK(concord_comm_context(rank.world, &same));
    EXPECT_EQ(same, rank.context);
    EXPECT_NE(context, rank.context);
    int32_t world = 0;
    ASSERT_OK(concord_context_rank(context, nullptr, &world));
    EXPECT_EQ(world, 2);
    // A stream belongs to one of them.
    concord_stream *stream;
    ASSERT_OK(concord_stream_create(rank.context, 0, &stream));
    int32_t value = 1;
    EXPECT_EQ(concord_all_reduce(grown, &value, &value, 1, CONCORD_DTYPE_I32,
                                 CONCORD_REDUCTION_SUM, stream),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(concord_stream_destroy(stream));
    void *memory;
    ASSERT_OK(concord_heap_alloc(context, 4096, 0, &memory));
    EXPECT_EQ(concord_heap_free(rank.context, memory),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(concord_heap_free(context, memory));
    EXPECT_EQ(sumOf(grown, 2), 3);
    // It goes with its communicator, when nothing else is left of it.
    ASSERT_OK(concord_stream_create(context, 0, &stream));
    const int32_t alone[] = {0};
    ASSERT_OK(concord_comm_create_group(context, alone, 1, nullptr, &child));
    EXPECT_EQ(concord_comm_destroy(grown), CONCORD_ERROR_BUSY);
    EXPECT_NE(std::strstr(concord_last_error(), "2 communicators, streams"),
              nullptr)
        << concord_last_error();
    EXPECT_OK(concord_comm_destroy(child));
    EXPECT_OK(concord_stream_destroy(stream));
    EXPECT_EQ(concord_comm_abort(grown), CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_OK(concord_comm_destroy(grown));
  });
}

TEST(Grow, TheParentMayGoFirst) {
  concord_unique_id id = newId();
  concord_comm *kept[2] = {};
  Joiner two(id, 2, 3, [&](Rank &self) { EXPECT_EQ(sumOf(self.world, 1), 3); });
  runRanks(2, [&](Rank &rank) {
    ASSERT_OK(concord_comm_grow(rank.world, 3, &id, &kept[rank.rank]));
  });
  std::vector<std::thread> threads;
  for (concord_comm *comm : kept)
    threads.emplace_back([comm] {
      EXPECT_EQ(sumOf(comm, 1), 3);
      concord_context *context;
      ASSERT_OK(concord_comm_context(comm, &context));
      EXPECT_OK(concord_context_finalize(context));
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(Grow, WhoCannotBeginSaysWhyAndNothingIsChanged) {
  concord_unique_id id = newId(), garbage;
  std::memset(&garbage, 'x', sizeof garbage);
  runRanks(2, [&](Rank &rank) {
    concord_comm *grown = nullptr, *revoked;
    auto grow = [&](concord_comm *parent, int size,
                    const concord_unique_id *name) {
      int32_t status = concord_comm_grow(parent, size, name, &grown);
      EXPECT_EQ(grown, nullptr);
      return status;
    };
    EXPECT_EQ(grow(nullptr, 3, &id), CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(grow(rank.world, 3, &garbage), CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(concord_last_error(), "its rank 0: the unique id"),
              nullptr)
        << concord_last_error();
    // What one rank has is said at both.
    ASSERT_OK(concord_group_start(rank.context));
    if (rank.rank == 0) {
      ASSERT_OK(concord_group_end(rank.context));
    }
    EXPECT_EQ(grow(rank.world, 3, &id), CONCORD_ERROR_BUSY);
    EXPECT_NE(std::strstr(concord_last_error(), "its rank 1: a group is open"),
              nullptr)
        << concord_last_error();
    if (rank.rank == 1) {
      ASSERT_OK(concord_group_end(rank.context));
    }
    ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &revoked));
    ASSERT_OK(concord_comm_revoke(revoked));
    EXPECT_EQ(grow(revoked, 3, &id), CONCORD_ERROR_REVOKED);
    EXPECT_OK(concord_comm_destroy(revoked));
    EXPECT_EQ(grow(revoked, 3, &id), CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(sumOf(rank.world, 1), 2);
  });
}

TEST(Grow, OtherCommunicatorsGoOnMeanwhile) {
  concord_unique_id id = newId();
  std::atomic<int> ready{0};
  std::unique_ptr<Joiner> last;
  runRanks(
      2,
      [&](Rank &rank) {
        concord_comm *beside;
        ASSERT_OK(concord_comm_split(rank.world, 0, 0, nullptr, &beside));
        std::thread other([&] {
          // The growth waits for the joiner, which waits for this.
          for (int i = 0; i < 50; ++i)
            ASSERT_EQ(sumOf(beside, i), 2 * i);
          if (ready.fetch_add(1) == 1)
            last = std::make_unique<Joiner>(id, 2, 3, [&](Rank &self) {
              EXPECT_EQ(sumOf(self.world, 1), 3);
            });
        });
        concord_comm *grown = nullptr;
        EXPECT_OK(concord_comm_grow(rank.world, 3, &id, &grown));
        EXPECT_EQ(sumOf(grown, 1), 3);
        other.join();
        EXPECT_OK(concord_comm_destroy(grown));
        EXPECT_OK(concord_comm_destroy(beside));
      },
      [](concord_context_config &config) {
        config.thread_level = CONCORD_THREAD_MULTIPLE;
      });
}

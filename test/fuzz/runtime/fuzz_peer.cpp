//===- fuzz_peer.cpp - Fuzz target: a peer in shared memory ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A peer that writes anything into its slots and mailboxes while this rank runs
// collectives with it, or into the table of communicators while this rank makes
// some. Every call must end in a result or an error, in bounded time.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "context/Context.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;

namespace {

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "fuzz_peer: %s: %s\n", what, concord_last_error());
  std::abort();
}

/// A job of two ranks, both in this process.
struct Pair {
  Pair() {
    if (concord_job_create(2, 1 << 22, &job) != CONCORD_OK)
      wrong("job");
    std::thread peer([&] { join(1); });
    join(0);
    peer.join();
  }
  ~Pair() {
    for (int rank : {1, 0})
      if (concord_context_finalize(contexts[rank]) != CONCORD_OK)
        wrong("finalize");
    if (concord_job_destroy(job) != CONCORD_OK)
      wrong("destroy");
  }
  void join(int rank) {
    concord_context_config config{};
    config.struct_size = sizeof config;
    config.job = job;
    config.rank = rank;
    config.timeout_seconds = 60;
    if (concord_context_create(&config, &contexts[rank]) != CONCORD_OK)
      wrong("context");
    // Nobody is late for the meeting; from here on the peer may do anything.
    contexts[rank]->timeoutSeconds = 0.02;
  }
  concord_job *job = nullptr;
  concord_context *contexts[2] = {};
};

/// Rank 1 writes `data` where its peer reads.
void hostilePeer(const uint8_t *data, size_t size) {
  Pair pair;
  concord_context **contexts = pair.contexts;
  Comm &own = *contexts[0]->worldComm;
  Comm &theirs = *contexts[1]->worldComm;
  unsigned choice = data[0];
  auto put = [&](void *target, size_t most) {
    std::memcpy(target, data + 3, std::min(size - 3, most));
  };
  // The victim's next operation; what it compares is right, all else is not.
  const uint64_t next = own.sequence + 1;
  std::thread hostile([&] {
    Member &member = theirs.block.members[1];
    Slot &mine = own.block.members[0].slot(next);
    for (int i = 0; i < 2000 && mine.sequence.load() < next; ++i)
      ::usleep(5);
    Slot &slot = member.slot(next);
    put(slot.payload, sizeof slot.payload);
    slot.fingerprint =
        choice & 64 ? mine.fingerprint ^ data[2] : mine.fingerprint;
    slot.sequence.store(next + (data[1] & 1), std::memory_order_release);
    Mailbox &box = theirs.block.mailbox(1, 0);
    put(&box.fingerprint,
        offsetof(Mailbox, taken) - offsetof(Mailbox, fingerprint));
    if (choice & 32) {
      box.fingerprint = uint64_t(CONCORD_DTYPE_F32) << 4 | uint64_t(4096) << 18;
      box.bytes = data[2] & 1 ? 16384 : box.bytes;
    }
    box.posted.store(1, std::memory_order_release);
    member.tick.store(data[1], std::memory_order_release);
  });
  void *in, *out;
  if (concord_heap_alloc(contexts[0], 1 << 16, 0, &in) != CONCORD_OK ||
      concord_heap_alloc(contexts[0], 1 << 17, 0, &out) != CONCORD_OK)
    wrong("heap");
  uint64_t count = choice & 16 ? 16 : 4096;
  int32_t f32 = CONCORD_DTYPE_F32, sum = CONCORD_REDUCTION_SUM;
  uint64_t counts[2] = {100, 3000};
  switch (choice % 8) {
  case 0:
    concord_all_reduce(&own, in, out, count, f32, sum, nullptr);
    break;
  case 1:
    concord_all_gather(&own, in, out, count, f32, nullptr);
    break;
  case 2:
    concord_reduce_scatter(&own, out, in, count, f32, sum, nullptr);
    break;
  case 3:
    concord_all_to_all(&own, in, out, count / 2, f32, nullptr);
    break;
  case 4:
    concord_broadcast(&own, in, out, count, f32, 1, nullptr);
    break;
  case 5:
    concord_all_to_all_v(&own, in, out, counts, counts, f32, nullptr);
    break;
  case 6:
    concord_recv(&own, out, 4096, f32, 1, nullptr);
    break;
  default:
    concord_all_gather_v(&own, in, out, counts, f32, nullptr);
  }
  hostile.join();
}

/// Rank 1 writes into the table of communicators; rank 0 makes some.
void hostileTable(const uint8_t *data, size_t size) {
  Pair pair;
  concord_context *context = pair.contexts[0];
  Comm &own = *context->worldComm;
  Segment &segment = *context->segment;
  const uint64_t block = CommBlock::bytes(2);
  CommEntry entry{};
  std::memcpy(&entry, data + 3, std::min(size - 3, sizeof entry));
  if (data[1] & 4)
    entry.offset = block * (1 + entry.offset % 8);
  entry.bytes = data[1] & 8 ? entry.bytes : block;
  switch (data[1] % 4) {
  case 0:
    entry.key = 0; // free, but not as it was
    break;
  case 1: // the one that rank 0 makes next, as if rank 1 had been first
    entry.key = hashWords({own.key, own.splits + 1, 0, 3});
    entry.size = 2;
    if (entry.holds(block)) {
      CommBlock made(segment.commArea() + entry.offset, 2);
      std::memcpy(static_cast<void *>(made.header->ranks), data + 3, 2);
    }
    break;
  case 2:
    std::memcpy(&segment.header().commBytes, data + 3, 1);
    break;
  default:
    break;
  }
  segment.comms()[1 + data[2] % 3] = entry;
  const int32_t both[2] = {0, 1};
  concord_comm *made = nullptr;
  if (concord_comm_shrink(&own, nullptr, &made) == CONCORD_OK &&
      concord_comm_destroy(made) != CONCORD_OK)
    wrong("destroy a communicator");
  for (uint32_t count : {1, 2})
    if (concord_comm_create_group(context, both, count, nullptr, &made) ==
            CONCORD_OK &&
        concord_comm_destroy(made) != CONCORD_OK)
      wrong("destroy a group");
}

} // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  for (char choice = 0; choice < 64; choice = char(choice + 1)) {
    std::string seed(400, 0);
    seed[0] = choice;
    for (size_t i = 2; i < seed.size(); ++i)
      seed[i] = char(i * 7 + size_t(choice));
    all.push_back(seed);
    seed[0] = char(choice | 0x80);
    seed[1] = choice;
    all.push_back(seed);
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 4)
    return 0;
  // A peer that says nothing is reported here thousands of times.
  ::setenv("CONCORD_HANG_REPORT", "0", 1);
  if (data[0] & 128)
    hostileTable(data, size);
  else
    hostilePeer(data, size);
  fuzz::accept();
  return 0;
}

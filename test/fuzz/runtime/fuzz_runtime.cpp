//===- fuzz_runtime.cpp - What a hostile or crashed peer may write --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first byte chooses the reader: greetings at the socket where ranks meet,
// rank tables, device descriptions, the head of a job's memory file, and a peer
// that writes anything into its slots and mailboxes while this rank runs
// collectives with it. Every input must end in a result or an error, in bounded
// time.
//
// With -DCONCORD_FUZZ=ON this is a libFuzzer target; without, a test that runs
// so many random inputs from a fixed seed: fuzz_runtime [COUNT [SEED]].
//
//===----------------------------------------------------------------------===//

#include "bootstrap/Rendezvous.h"
#include "context/Context.h"
#include "diagnosis/Error.h"
#include "topology/RankTable.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace concord::rt;

namespace {

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "fuzz_runtime: %s: %s\n", what, concord_last_error());
  std::abort();
}

void greetings(const uint8_t *data, size_t size) {
  JobKey key;
  std::vector<int64_t> taken = {1, 0, 7};
  Judgement judgement = judgeGreeting(data, size, key, 42, taken);
  if (judgement.kind == Judgement::Kind::Welcome &&
      (size != sizeof(Greeting) || judgement.greeting.rank != 1))
    wrong("a greeting was let in");
}

void memoryHead(const uint8_t *data, size_t size) {
  std::shared_ptr<Segment> made = Segment::create(2, kHugePage);
  int fd = ::dup(made->fd());
  if (::pwrite(fd, data, std::min<size_t>(size, sizeof(JobHeader)), 0) < 0)
    wrong("pwrite");
  if (size > 64 && ::ftruncate(fd, off_t(data[64]) << 20) != 0)
    wrong("ftruncate");
  std::shared_ptr<Segment> opened = Segment::open(fd);
  if (opened->world() < 1 || opened->world() > kMaxRanks)
    wrong("a world of impossible size");
}

/// Rank 1 joins and then writes `data` where its peers read.
void hostilePeer(const uint8_t *data, size_t size) {
  if (size < 4)
    return;
  concord_job *job;
  if (concord_job_create(2, 1 << 22, &job) != CONCORD_OK)
    wrong("job");
  concord_context *contexts[2] = {};
  auto join = [&](int rank) {
    concord_context_config config{};
    config.struct_size = sizeof config;
    config.job = job;
    config.rank = rank;
    config.timeout_seconds = 0.02;
    if (concord_context_create(&config, &contexts[rank]) != CONCORD_OK)
      wrong("context");
  };
  std::thread peer(join, 1);
  join(0);
  peer.join();
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
  for (int rank : {1, 0})
    if (concord_context_finalize(contexts[rank]) != CONCORD_OK)
      wrong("finalize");
  if (concord_job_destroy(job) != CONCORD_OK)
    wrong("destroy");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 2)
    return 0;
  unsigned choice = data[0] % 5;
  ++data;
  --size;
  try {
    std::string text(reinterpret_cast<const char *>(data), size);
    switch (choice) {
    case 0:
      greetings(data, size);
      break;
    case 1:
      parseRankTable(text, "table");
      break;
    case 2:
      if (data[0] & 1)
        parseDevices(text.substr(1), "devices");
      else
        parseVisible(text.substr(1), "V");
      break;
    case 3:
      memoryHead(data, size);
      break;
    default:
      hostilePeer(data, size);
    }
  } catch (const Error &) {
    // An error is a good end.
  }
  return 0;
}

#ifndef CONCORD_LIBFUZZER
int main(int argc, char **argv) {
  int count = argc > 1 ? std::atoi(argv[1]) : 100;
  std::mt19937_64 generator(argc > 2 ? std::atoi(argv[2]) : 1);
  for (int i = 0; i < count; ++i) {
    std::vector<uint8_t> input(2 + generator() % 400);
    for (uint8_t &byte : input)
      byte = uint8_t(generator());
    // Small and huge numbers are where the errors are.
    for (unsigned n = generator() % 12; n; --n) {
      static constexpr uint64_t kValues[] = {
          0, 1, ~0ull, 1ull << 63, 4096, 1ull << 22, 512};
      uint64_t value = kValues[generator() % std::size(kValues)];
      size_t at = 4 + 8 * (generator() % 12);
      if (at + 8 <= input.size())
        std::memcpy(input.data() + at, &value, 8);
    }
    input[0] = uint8_t(i % 5);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%d inputs\n", count);
  return 0;
}
#endif

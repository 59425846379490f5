//===- HostsFaults.cpp - What goes wrong between hosts --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of hosts-rank in which a rank dies, stops, leaves, or means
// something else.
//
//===----------------------------------------------------------------------===//

#include "HostsRank.h"
#include "concord/kernel.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace concord::hosts;

static void expect(int32_t status, int32_t wanted, const std::string &words) {
  std::string text = concord_last_error();
  if (status != wanted || text.find(words) == std::string::npos)
    wrong(std::string("expected ") + concord_status_name(wanted) + " with '" +
          words + "', got " + concord_status_name(status) + ": " + text);
  std::fprintf(stderr, "rank %d was told: %s: %s\n", me,
               concord_status_name(status), text.c_str());
}

void concord::hosts::mismatch() {
  // The last rank asks for one element more.
  std::vector<float> in(2000), out(2000);
  uint64_t n = me == ranks - 1 ? 1001 : 1000;
  int32_t status =
      concord_all_reduce(world, in.data(), out.data(), n, CONCORD_DTYPE_F32,
                         CONCORD_REDUCTION_SUM, nullptr);
  // Who does not meet the odd one himself has it from one that did.
  bool compared =
      std::string(concord_last_error()).find("1001") != std::string::npos;
  // Who hears of it before it has begun finds the communicator broken.
  expect(status,
         status == CONCORD_ERROR_BROKEN && !compared ? CONCORD_ERROR_BROKEN
                                                     : CONCORD_ERROR_MISMATCH,
         compared ? "1001" : "members disagree about an operation");
  if (me == ranks - 1 && !compared)
    wrong("the odd one was not told what it asked for");
}

void concord::hosts::death(int victim, const std::string &kind) {
  std::vector<float> in(1 << 20), out(1 << 20);
  auto step = [&] {
    uint64_t n = in.size(), part = n / uint64_t(ranks);
    if (kind == "all_gather")
      return concord_all_gather(world, in.data(), out.data(), part,
                                CONCORD_DTYPE_F32, nullptr);
    if (kind == "reduce_scatter")
      return concord_reduce_scatter(world, in.data(), out.data(), part,
                                    CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                                    nullptr);
    if (kind == "broadcast")
      return concord_broadcast(world, in.data(), out.data(), n,
                               CONCORD_DTYPE_F32, 0, nullptr);
    if (kind == "reduce")
      return concord_reduce(world, in.data(), out.data(), n, CONCORD_DTYPE_F32,
                            CONCORD_REDUCTION_SUM, 0, nullptr);
    if (kind == "barrier")
      return concord_barrier(world, nullptr);
    return concord_all_reduce(world, in.data(), out.data(), n,
                              CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                              nullptr);
  };
  int32_t status = CONCORD_OK;
  for (int i = 0; i < 5 && status == CONCORD_OK; ++i)
    status = step();
  if (me == victim) {
    std::fprintf(stderr, "rank %d is process %d and kills itself\n", me,
                 int(::getpid()));
    // In the middle of one, wherever that is.
    if (!kind.empty()) {
      std::thread([] {
        ::usleep(useconds_t(20'000 + ::getpid() % 7 * 3000));
        ::kill(::getpid(), SIGKILL);
      }).detach();
      while (status == CONCORD_OK)
        status = step();
    }
    ::kill(::getpid(), SIGKILL);
  }
  double began = seconds();
  while (status == CONCORD_OK)
    status = step();
  double took = seconds() - began;
  expect(status, CONCORD_ERROR_PEER_DIED, "rank " + std::to_string(victim));
  if (took > 10)
    wrong("it took " + std::to_string(took) + " s to see it");
  // The rest goes on without it.
  if (std::getenv("HOSTS_SHRINK")) {
    concord_comm *rest = nullptr;
    check(concord_comm_shrink(world, nullptr, &rest), "shrink");
    float one = 1, sum = 0;
    check(concord_all_reduce(rest, &one, &sum, 1, CONCORD_DTYPE_F32,
                             CONCORD_REDUCTION_SUM, nullptr),
          "all_reduce of the rest");
    if (sum != float(ranks - 1))
      wrong("the rest counts " + std::to_string(sum));
    std::fprintf(stderr, "rank %d goes on with %d\n", me, ranks - 1);
  }
}

/// The others wait for CONCORD_TIMEOUT; the last of them ends it.
void concord::hosts::stopped(int victim) {
  std::vector<concord_rank_entry> table(static_cast<size_t>(ranks));
  for (concord_rank_entry &entry : table)
    entry.struct_size = sizeof entry;
  check(concord_context_rank_table(context, table.data(), uint32_t(ranks)),
        "rank table");
  std::vector<float> in(1 << 18), out(1 << 18);
  int32_t status = CONCORD_OK;
  for (int i = 0; status == CONCORD_OK; ++i) {
    if (i == 3 && me == victim)
      ::kill(::getpid(), SIGSTOP);
    status =
        concord_all_reduce(world, in.data(), out.data(), in.size(),
                           CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM, nullptr);
  }
  std::string text = concord_last_error();
  if ((status != CONCORD_ERROR_TIMEOUT && status != CONCORD_ERROR_BROKEN) ||
      text.find("rank " + std::to_string(victim)) == std::string::npos)
    wrong("a rank that is stopped: " + text);
  std::fprintf(stderr, "rank %d was told: %s\n", me, text.c_str());
  ::sleep(1);
  if (me == (victim + 1) % ranks)
    ::kill(int(table[size_t(victim)].pid), SIGKILL);
  ::sleep(1);
  std::_Exit(0);
}

void concord::hosts::aborting() {
  float one = 1, sum;
  if (me == 1) {
    ::usleep(100'000);
    check(concord_context_abort(context, "enough of it"), "abort");
    return;
  }
  int32_t status = CONCORD_OK;
  while (status == CONCORD_OK)
    status = concord_all_reduce(world, &one, &sum, 1, CONCORD_DTYPE_F32,
                                CONCORD_REDUCTION_SUM, nullptr);
  expect(status, CONCORD_ERROR_ABORTED, "enough of it");
}

void concord::hosts::revoke() {
  concord_comm *made = nullptr;
  check(concord_comm_split(world, 0, me, nullptr, &made), "split");
  float one = 1, sum;
  if (me == 0) {
    ::usleep(100'000);
    check(concord_comm_revoke(made), "revoke");
  } else {
    int32_t status = CONCORD_OK;
    while (status == CONCORD_OK)
      status = concord_all_reduce(made, &one, &sum, 1, CONCORD_DTYPE_F32,
                                  CONCORD_REDUCTION_SUM, nullptr);
    expect(status, CONCORD_ERROR_REVOKED, "revoked");
  }
  // The communicator of all is whole.
  check(concord_barrier(world, nullptr), "barrier");
}

/// The last rank leaves early.
void concord::hosts::early() {
  if (me == ranks - 1)
    return;
  float one = 1, sum;
  int32_t status = concord_all_reduce(world, &one, &sum, 1, CONCORD_DTYPE_F32,
                                      CONCORD_REDUCTION_SUM, nullptr);
  std::string text = concord_last_error();
  bool direct = status == CONCORD_ERROR_PEER_LEFT;
  // Or another one has seen it first.
  if (!direct && status != CONCORD_ERROR_BROKEN)
    wrong("a rank that left: " + text);
  std::fprintf(stderr, "rank %d was told: %s\n", me, text.c_str());
}

/// The last two disagree about the second operation while rank 0 may still wait
/// for the first one's data.
void concord::hosts::overtaken() {
  std::vector<float> in(16, 1), out(16);
  auto step = [&](uint64_t n) {
    return concord_all_reduce(world, in.data(), out.data(), n,
                              CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM,
                              nullptr);
  };
  // With HOSTS_HOLD rank 0 is as much later than the others.
  if (const char *hold = std::getenv("HOSTS_HOLD"); hold && me != 0)
    ::usleep(useconds_t(std::atoi(hold)) * 1000);
  check(step(16), "what a later operation must not break");
  for (float each : out)
    if (each != float(ranks))
      wrong("the sum is " + std::to_string(each));
  int32_t status = step(me == ranks - 1 ? 15 : 16);
  if (status != CONCORD_ERROR_MISMATCH && status != CONCORD_ERROR_BROKEN)
    wrong(std::string("a mismatch: ") + concord_last_error());
}

/// Until somebody pulls the plug.
void concord::hosts::lost() {
  std::vector<float> in(1000), out(1000);
  double began = seconds();
  int32_t status = CONCORD_OK;
  while (status == CONCORD_OK && seconds() < began + 60)
    status =
        concord_all_reduce(world, in.data(), out.data(), in.size(),
                           CONCORD_DTYPE_F32, CONCORD_REDUCTION_SUM, nullptr);
  expect(status, CONCORD_ERROR_PEER_DIED, "died");
}

void concord::hosts::fused() {
  std::string text =
      "fused_reduce cols=64 dtype=f32 members=" + std::to_string(ranks) +
      " norm=none rows=8";
  concord_kernel *kernel = nullptr;
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  if (concord_kernel_create(text.c_str(), &kernel, &info) != CONCORD_OK)
    wrong(std::string("no kernel: ") + concord_kernel_last_error());
  concord_buffer buffer{};
  expect(concord_fused(world, kernel, &buffer, 1), CONCORD_ERROR_NOT_SUPPORTED,
         "keep the group within a host");
  concord_kernel_destroy(kernel);
  // Nothing is broken by it.
  check(concord_barrier(world, nullptr), "barrier");
}

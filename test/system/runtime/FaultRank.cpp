//===- FaultRank.cpp - A rank that misbehaves ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `fault-rank MODE VICTIM [OPERATION]`: all ranks run collectives in a loop;
// the victim does what MODE says. Those that see an error print it and exit
// with 40
// + its number. Without OPERATION the loop mixes all_reduce and all_gather.
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

static int report(int32_t status) {
  std::fprintf(stderr, "%s: %s\n", concord_status_name(status),
               concord_last_error());
  return 40 + status;
}

namespace {

struct Loop {
  concord_comm *comm = nullptr;
  int32_t rank = 0, size = 1;
  void *in = nullptr, *out = nullptr;
  uint64_t count = 4;

  int32_t once(const std::string &operation, int turn) const {
    int32_t root = turn % size, type = CONCORD_DTYPE_F32,
            sum = CONCORD_REDUCTION_SUM;
    if (operation == "all_reduce")
      return concord_all_reduce(comm, in, out, count, type, sum, nullptr);
    if (operation == "all_gather")
      return concord_all_gather(comm, in, out, count, type, nullptr);
    if (operation == "reduce_scatter")
      return concord_reduce_scatter(comm, out, in, count, type, sum, nullptr);
    if (operation == "all_to_all")
      return concord_all_to_all(comm, out, out, count, type, nullptr);
    if (operation == "broadcast")
      return concord_broadcast(comm, in, out, count, type, root, nullptr);
    if (operation == "reduce")
      return concord_reduce(comm, in, out, count, type, sum, root, nullptr);
    if (operation == "gather")
      return concord_gather(comm, in, out, count, type, root, nullptr);
    if (operation == "scatter")
      return concord_scatter(comm, out, in, count, type, root, nullptr);
    if (operation == "barrier")
      return concord_barrier(comm, nullptr);
    if (operation == "permute") {
      // A ring.
      int32_t pairs[2 * 64];
      for (int32_t i = 0; i < size; ++i) {
        pairs[2 * i] = i;
        pairs[2 * i + 1] = (i + 1) % size;
      }
      return concord_permute(comm, in, out, count, type, pairs, uint32_t(size),
                             nullptr);
    }
    if (operation == "p2p") {
      concord_p2p messages[2] = {
          {1, (rank + 1) % size, in, count, type},
          {0, (rank + size - 1) % size, out, count, type}};
      return concord_batch_p2p(comm, messages, 2, nullptr);
    }
    std::fprintf(stderr, "no operation '%s'\n", operation.c_str());
    std::exit(2);
  }
};

/// Shrink until those who are left can work. The rank after the victim dies
/// somewhere on the way.
int goOn(concord_context *context, const Loop &loop, int rank, int victim) {
  std::thread hand;
  if (rank == victim + 1)
    hand = std::thread([] {
      ::usleep(unsigned(::getpid()) % 40 * 50);
      ::kill(::getpid(), SIGKILL);
    });
  for (int i = 0; i < 5; ++i) {
    concord_comm *rest = nullptr;
    int32_t status = concord_comm_shrink(loop.comm, nullptr, &rest);
    Loop without = loop;
    without.comm = rest;
    int turns = 0;
    if (status == CONCORD_OK)
      concord_comm_rank(rest, &without.rank, &without.size);
    while (status == CONCORD_OK && (without.size > 2 || turns < 100)) {
      status = without.once("all_reduce", turns++);
    }
    if (status == CONCORD_OK) {
      status = concord_context_finalize(context);
      return status ? report(status) : 0;
    }
    report(status);
    if (status != CONCORD_ERROR_PEER_DIED && status != CONCORD_ERROR_BROKEN)
      return 40 + status;
    if (rest)
      return goOn(context, without, rank, -9);
  }
  return 1;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3 && argc != 4)
    return 2;
  std::string mode = argv[1];
  std::string operation = argc == 4 ? argv[3] : "";
  int victim = std::atoi(argv[2]);
  // Other launchers have other names for it.
  int rank = -1;
  for (const char *name :
       {"CONCORD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "RANK"})
    if (const char *text = std::getenv(name); text && rank < 0)
      rank = std::atoi(text);
  bool mine = rank == victim;
  if (mine && mode == "absent")
    return 9;
  if (mine && mode == "segv-early")
    ::raise(SIGSEGV);
  if (mine && mode == "duplicate")
    ::setenv("CONCORD_RANK", victim ? "0" : "1", 1);
  if (mine && mode == "world")
    ::setenv("CONCORD_WORLD", "63", 1);
  if (mine && mode == "descriptors") {
    // What is open already, and not one more.
    int next = ::dup(2);
    ::close(next);
    rlimit limit{rlim_t(next), rlim_t(next)};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (mine && mode == "address-space") {
    rlimit limit{rlim_t(256) << 20, rlim_t(256) << 20};
    ::setrlimit(RLIMIT_AS, &limit);
  }

  concord_context *context;
  if (int32_t status = concord_context_create(nullptr, &context))
    return report(status);
  Loop loop;
  concord_comm_world(context, &loop.comm);
  concord_comm_rank(loop.comm, &loop.rank, &loop.size);
  bool large = mode.find("large") != std::string::npos;
  if (large)
    loop.count = operation.empty() ? 20'000 : 200'000;
  const uint64_t most = loop.count * 4 * uint64_t(loop.size);
  if (int32_t status = concord_heap_alloc(context, most, 0, &loop.in))
    return report(status);
  if (int32_t status = concord_heap_alloc(context, most, 0, &loop.out))
    return report(status);
  if (mine && mode == "fork") {
    // A child that inherits the context must not speak for the rank.
    pid_t child = ::fork();
    if (child == 0) {
      int32_t status = concord_context_finalize(context);
      ::_exit(status == CONCORD_ERROR_INVALID_ARGUMENT ? 7 : 8);
    }
    int status;
    ::waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
      return 3;
  }
  const int turns = large && !operation.empty() ? 60 : 400;
  std::thread hand;
  for (int i = 0; i < turns; ++i) {
    if (mine && i == turns / 2) {
      if (mode.rfind("mid-", 0) == 0) {
        // From outside, somewhere inside an operation.
        int number = mode.rfind("mid-stop", 0) == 0 ? SIGSTOP : SIGKILL;
        unsigned after = unsigned(::getpid()) % 300;
        hand = std::thread([=] {
          ::usleep(after);
          ::kill(::getpid(), number);
        });
      } else if (mode == "abort-exit") {
        concord_context_abort(context, "the watch said so");
        ::_exit(40 + CONCORD_ERROR_ABORTED);
      } else if (mode.rfind("kill", 0) == 0 || mode == "shrink") {
        ::raise(SIGKILL);
      } else if (mode == "exit") {
        ::_exit(0); // without a word
      } else if (mode.rfind("stop", 0) == 0) {
        ::raise(SIGSTOP);
      } else if (mode == "leave") {
        break;
      } else if (mode == "abort-thread") {
        hand = std::thread(
            [=] { concord_context_abort(context, "the watch said so"); });
      }
    }
    int32_t status;
    if (operation.empty()) {
      status = loop.once("all_reduce", i);
      if (status == CONCORD_OK && i % 3 == 0)
        status = loop.once("all_gather", i);
    } else {
      status = loop.once(operation, i);
    }
    // The others go on without it, though one more dies while they shrink.
    if (mode == "shrink" && status != CONCORD_OK)
      return goOn(context, loop, rank, victim);
    // An operation that only sends may be over before the hand has struck.
    if (i + 1 == turns && mode != "none" && mode != "fork" && mode != "leave")
      i = turns - 2;
    if (status != CONCORD_OK) {
      int code = report(status);
      if (hand.joinable())
        hand.join();
      return code;
    }
  }
  if (hand.joinable())
    hand.join();
  if (int32_t status = concord_context_finalize(context))
    return report(status);
  return 0;
}

//===- FaultRank.cpp - A rank that misbehaves ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `fault-rank MODE VICTIM`: all ranks run collectives in a loop; the victim
// does what MODE says. Those that see an error print it and exit with 40 + its
// number.
//
//===----------------------------------------------------------------------===//

#include "concord/concord.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

static int report(int32_t status) {
  std::fprintf(stderr, "%s: %s\n", concord_status_name(status),
               concord_last_error());
  return 40 + status;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 2;
  std::string mode = argv[1];
  int victim = std::atoi(argv[2]);
  int rank = std::atoi(std::getenv("CONCORD_RANK"));
  bool mine = rank == victim;
  if (mine && mode == "absent")
    return 9;
  if (mine && mode == "segv-early")
    ::raise(SIGSEGV);
  if (mine && mode == "duplicate")
    ::setenv("CONCORD_RANK", victim ? "0" : "1", 1);
  if (mine && mode == "world")
    ::setenv("CONCORD_WORLD", "63", 1);

  concord_context *context;
  if (int32_t status = concord_context_create(nullptr, &context))
    return report(status);
  concord_comm *world;
  concord_comm_world(context, &world);
  void *in, *out;
  const uint64_t count = 20'000;
  concord_heap_alloc(context, count * 4, 0, &in);
  concord_heap_alloc(context, count * 4 * 8, 0, &out);
  bool large = mode.find("large") != std::string::npos;
  for (int i = 0; i < 400; ++i) {
    if (mine && i == 200) {
      if (mode.rfind("kill", 0) == 0)
        ::raise(SIGKILL);
      if (mode == "exit")
        ::_exit(0); // without a word
      if (mode == "stop")
        ::raise(SIGSTOP);
      if (mode == "leave")
        break;
    }
    int32_t status =
        concord_all_reduce(world, in, out, large ? count : 4, CONCORD_DTYPE_F32,
                           CONCORD_REDUCTION_SUM, nullptr);
    if (status == CONCORD_OK && i % 3 == 0)
      status = concord_all_gather(world, in, out, large ? count : 4,
                                  CONCORD_DTYPE_F32, nullptr);
    if (status != CONCORD_OK)
      return report(status);
  }
  if (int32_t status = concord_context_finalize(context))
    return report(status);
  return 0;
}

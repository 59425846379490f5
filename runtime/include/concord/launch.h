/*===- launch.h - Starting the ranks of a job ---------------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* What a launcher (comm-run, a test, Python) needs to start N processes on this
|* host as the ranks of one job. Static library `concord_launch`; libconcord.so
|* has the same functions. The launcher makes one anonymous memory file with the
|* job's control data and heaps; the ranks inherit it, so that a job that dies
|* leaves nothing behind. A rank calls concord_context_create(NULL, &context)
|* and finds everything in its environment:
|*
|*   CONCORD_JOB_FD   descriptor of the job's memory file, inherited
|*   CONCORD_RANK     this rank, 0 .. CONCORD_WORLD - 1
|*   CONCORD_WORLD    number of ranks
|*
|* The launcher's own environment and standard descriptors are handed on. Ranks
|* die with the launcher (parent-death signal).
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_LAUNCH_H
#define CONCORD_LAUNCH_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct concord_launch_config {
  uint32_t struct_size;
  int32_t world; /* number of ranks, 1 .. 64 */
  /* argv[r]: NULL-terminated arguments of rank r; argv[r][0] is the program's
   * path (searched in PATH when it has no slash). Or set argv_all: the same
   * for all ranks. */
  const char *const *const *argv;
  const char *const *argv_all;
  const char *const *env; /* NULL or NULL-terminated "NAME=value" to add */
  uint64_t heap_bytes;    /* address space per rank; 0: CONCORD_HEAP_BYTES.
                             Only what is touched costs. */
  int32_t bind_cores;     /* 1: pin rank r to the r-th core allowed, when
                             there are at least as many as ranks */
  double grace_seconds;   /* after the first rank has failed: how long
                             the others may take to stop by themselves
                             before SIGTERM, and again before SIGKILL;
                             0: 5 seconds */
  double timeout_seconds; /* whole job; 0: none */
  /* NULL, or called once after all ranks were started, with their pids. */
  void (*started)(void *user, const int64_t *pids, int32_t world);
  void *user;
  /* NULL, or per rank a descriptor for standard output / error; -1 inherits. */
  const int32_t *stdout_fds;
  const int32_t *stderr_fds;
  /* NULL, or per rank the processing unit (the system's number) to pin it to;
   * -1 leaves it free. Goes before bind_cores. */
  const int32_t *cpus;
} concord_launch_config;

/* What a rank exits with when it fails only because another one has failed: the
 * launcher then names the other one. */
#define CONCORD_EXIT_CONSEQUENCE 75

typedef struct concord_launch_result {
  uint32_t struct_size;
  int32_t failed_rank; /* rank that failed by itself, the first one, or -1 */
  int32_t exit_status; /* its exit code, or 128 + signal */
  int32_t timed_out;   /* 1: timeout_seconds ran out */
  int32_t interrupted; /* signal that stopped the launcher, or 0 */
  char message[256];   /* one line for people, "" when all is well */
} concord_launch_result;

/* Start the ranks, wait until all have ended, and say how it went. Returns 0
 * when every rank has exited with 0; CONCORD_ERROR_PEER_DIED, _TIMEOUT,
 * _ABORTED (interrupted), _SYSTEM or _INVALID_ARGUMENT otherwise, with
 * result->message saying why. SIGINT, SIGTERM and SIGHUP sent to the launcher
 * stop the ranks. Blocks those in the calling thread meanwhile; where other
 * threads do not block them, they take effect there. Several threads may call
 * it at once: a signal then stops the ranks of one of them. The process must
 * not ignore SIGCHLD (ranks would have no exit code). */
__attribute__((visibility("default"))) int32_t concord_launch_job(
    const concord_launch_config *config, concord_launch_result *result);

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_LAUNCH_H */

/*===- fixture.c - A compiled program written by hand -------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* What comm-opt would emit for a small program, so that comm-run, concord-rank
|* and the Python binding are tested without the compiler. Plan and metadata
come
|* from make_fixture.cpp. With W ranks and r this rank:
|*
|*   inputs   x     F32 [4, 6]     replicated
|*            s     F32 [2, 3 * 2W] split: dimension 1 over tp, outer 3
|*            p     I32 [3]        per rank
|*            past  F32 [5]        replicated
|*   outputs  sum     F32 [4, 6]     all_reduce of (r + 1) * x: W (W + 1) / 2 *
x
|*            twice   like s         2 * s
|*            plus    I32 [3]        per rank: p + r
|*            present F32 [5]        past + 1
|*
|* FIXTURE_FAULT=KIND:RANK[:STEP] makes one rank misbehave: `segv`, `kill`,
`hang`,
|* `error`, `disagree` (its `present` differs), `exit`.
|*
\*===----------------------------------------------------------------------===*/

#include "concord/artefact.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture_plan.inc" /* kWorld, kPlan[], kMeta[] */

static const char kKernels[] __attribute__((section(".concord.kernels"))) = "";

static int faultIs(const char *kind, int rank, int step) {
  const char *text = getenv("FIXTURE_FAULT");
  char name[16];
  int faultRank = -1, faultStep = 0;
  if (!text || sscanf(text, "%15[a-z]:%d:%d", name, &faultRank, &faultStep) < 2)
    return 0;
  return strcmp(name, kind) == 0 && faultRank == rank && faultStep == step;
}

static int32_t step(const concord_step_args *args) {
  /* Per process under comm-run; the faults are only used there. */
  static int steps = 0;
  int now = steps++;
  float *scaled = (float *)args->arena;
  float *sum = (float *)(args->arena + 128);
  const float *x = args->inputs[0], *s = args->inputs[1];
  const int32_t *p = args->inputs[2];
  const float *past = args->inputs[3];
  float *twice = args->outputs[1], *present = args->outputs[3];
  int32_t *plus = args->outputs[2];

  if (faultIs("segv", args->rank, now))
    raise(SIGSEGV);
  if (faultIs("kill", args->rank, now)) {
    fprintf(stderr, "about to be killed\n");
    raise(SIGKILL);
  }
  if (faultIs("exit", args->rank, now)) {
    fprintf(stderr, "leaving early\n");
    _exit(7);
  }
  while (faultIs("hang", args->rank, now))
    pause();
  if (faultIs("error", args->rank, now))
    return 22; /* CONCORD_ERROR_KERNEL */

  for (int i = 0; i < 24; ++i)
    scaled[i] = (float)(args->rank + 1) * x[i];
  if (kWorld > 1) {
    concord_buffer buffers[2] = {{scaled, 1, 96, 96}, {sum, 1, 96, 96}};
    int32_t status = concord_issue(args->context, 0, buffers, 2);
    if (status)
      return status;
  } else {
    memcpy(sum, scaled, 96);
  }
  memcpy(args->outputs[0], sum, 96);
  for (int i = 0; i < 12; ++i)
    twice[i] = 2 * s[i];
  for (int i = 0; i < 3; ++i)
    plus[i] = p[i] + args->rank;
  for (int i = 0; i < 5; ++i)
    present[i] = past[i] + 1;
  if (faultIs("disagree", args->rank, now))
    present[3] = 42;
  return 0;
}

__attribute__((visibility("default")))
const concord_program_desc concord_program = {sizeof(concord_program_desc),
                                              CONCORD_ARTEFACT_ABI_VERSION,
                                              kMeta,
                                              kPlan,
                                              sizeof(kPlan),
                                              kKernels,
                                              step,
                                              1,
                                              0};

/*===- TestProgram.c - What the compiler would emit ---------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* A program of two ranks, by hand: strided and asynchronous collectives, a
|* group of messages, a parameter, and a state (present = past + 1). With
|* ALLOCATE every step also allocates, to show that counters count.
|*
\*===----------------------------------------------------------------------===*/

#include "concord/artefact.h"

#include "program_plan.inc"

#ifdef ALLOCATE
#include <stdlib.h>
#include <sys/mman.h>
#endif

#define SECTION(name) __attribute__((section(name)))

static const unsigned char kPlan[PLAN_BYTES] SECTION(".concord.plan") = {
    PLAN_VALUES};
static const char kMeta[] SECTION(".concord.meta") = META;
static const char kKernels[] SECTION(".concord.kernels") = "";

#define TRY(call)                                                              \
  do {                                                                         \
    int32_t status = call;                                                     \
    if (status)                                                                \
      return status;                                                           \
  } while (0)

static int32_t step(const concord_step_args *args) {
  float *scaled = (float *)args->arena;
  const float *x = args->inputs[0], *past = args->inputs[1];
  const float *w = args->parameters[0], *shared = args->parameters[1];
  float *gathered = args->outputs[0], *present = args->outputs[4];
#ifdef ALLOCATE
  /* The control: a step that does what steps must not do. */
  volatile char *block = malloc(100);
  block[0] = 1;
  free((void *)block);
  volatile char *pages =
      mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  pages[0] = pages[4096] = 1;
  munmap((void *)pages, 8192);
#endif
  for (int i = 0; i < 12; ++i)
    scaled[i] = x[i] * w[i] + shared[0];
  concord_buffer dense = {scaled, 1, 48, 48};
  concord_buffer rows = {scaled, 4, 12, 12};
  concord_buffer wide = {gathered, 4, 12, 24};
  concord_buffer gather[2] = {rows, wide};
  TRY(concord_issue(args->context, 0, gather, 2));
  concord_buffer sum[2] = {dense, {args->outputs[1], 1, 48, 48}};
  TRY(concord_issue(args->context, 1, sum, 2));
  for (int i = 0; i < 5; ++i)
    present[i] = past[i] + 1;
  concord_poll(args->context);
  concord_buffer exchange[2] = {dense, {args->outputs[2], 1, 48, 48}};
  TRY(concord_issue(args->context, 2, exchange, 2));
  TRY(concord_site_wait(args->context, 0));
  concord_buffer scatter[2] = {wide, {args->outputs[3], 4, 12, 12}};
  TRY(concord_issue(args->context, 5, scatter, 2));
  return 0;
}

__attribute__((visibility("default")))
const concord_program_desc concord_program = {sizeof(concord_program_desc),
                                              CONCORD_ARTEFACT_ABI_VERSION,
                                              kMeta,
                                              kPlan,
                                              sizeof kPlan,
                                              kKernels,
                                              step,
                                              1,
                                              0};

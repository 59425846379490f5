/*===- artefact.h - What a compiled program exports ---------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* Contracts (b) and (c) of the design, as seen by generated code. NAME.so holds
|* one symbol, `concord_program`, of type concord_program_desc, and three
|* sections that tools read without loading it: `.concord.plan` (the plan table,
|* concord/plan.h), `.concord.meta` (JSON, below) and `.concord.kernels` (the
|* kernel descriptions, one per line). NAME.weights lies beside it.
|*
|* .concord.meta is one JSON object:
|*   {"abi":1, "phase":"lowered", "name":"model", "world":2,
|*    "mesh":[["tp",2]],                  // row-major, last fastest
|*    "target_cpu":"x86-64-v4",           // concord_kernel_target() it needs
|*    "digest":"<64 hex digits>",         // of the whole job's plan
|*    "weights":"NAME.weights",           // relative to the artefact; "" if
none
|*    "arena_bytes":N, "arena_align":64,
|*    "inputs":[ENTRY...], "outputs":[ENTRY...],
|*    "parameters":[{"section":"w#0","bytes":N,"hash":"<hex>"}...],
|*    "kernels":N, "kernel_sizes":[[WORKSPACE,PACKED]...], // bytes, checked at
load
|*    "gate":"check"|"hold",
|*    "dims":[{"name":"seq","min":1,"max":512}...], // only with bounded
dimensions
|*    "sizes":["1536*d0+4"...],           // likewise; EXTENTs for step's sizes
|*    "assumes":["..."],
|*    "programs":[PROGRAM...]}            // only where there are several
|* ENTRY: {"name":"input_ids","dtype":"I64",
|*         "shape":[1,128],               // global, the maximum where bounded
|*         "dims":[["1","1"],["1","512"]] // min and max; only where bounded
|*         "sharding":{"kind":"replicated"}
|* |{"kind":"split","splits":[{"dim":0,"axis":"dp","outer":1}...]}
|*                   |{"kind":"per_rank"},
|*         "local_shape":[1,128],         // what one rank reads or writes
|*         "extents":["1","d0"],          // EXTENTs; only where bounded
|*         "local_extents":["1","d0"],    // likewise, of the local shape
|*         "arena_offset":N|-1}           // where an I/O buffer may live in
place
|* PROGRAM, in the plan's order: {"name":"stage0", "issuer":"", "ranks":[0,1],
|*         "arena_bytes":N,               // of a rank that runs it
|*         "inputs":[0], "outputs":[],    // numbers in the lists above, in the
|*         "parameters":[0,1],            // order of the step's arguments
|*         "kernels":[0,2]}               // lines that it calls
|* Where there are several programs, an ENTRY has "ranks":[...], those that read
or
|* write it, and the top "arena_bytes" is that of the largest.
|* A split dimension of size n over an axis of size T, with `outer` = k, is
viewed
|* as [k, n/k]; the rank with coordinate c on the axis holds [:, c*n/k/T : ...].
|* Splits apply in the order listed.
|* EXTENT: a polynomial of the bounded dimensions d0, d1, ... in the order of
|* "dims" (concord/extent.h). A kernel's line may hold extents in braces:
|* `gemm k=64 m={8*d0} n=64`. Buffers lie where they fit at the largest sizes.
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_ARTEFACT_H
#define CONCORD_ARTEFACT_H

#include "concord/kernel.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONCORD_ARTEFACT_ABI_VERSION 1

struct concord_context;

/* A tensor as collectives see it: `outer` runs of `inner_bytes`, `stride_bytes`
 * apart. A gather along dimension d of [a, n, b] has outer = a, inner = n*b,
 * so that no operand is ever packed. For an operand of p chunks (the output of
 * all_gather, the input of reduce_scatter, both sides of all_to_all) it
 * describes chunk 0; chunk r begins r * inner_bytes further. */
typedef struct concord_buffer {
  void *base;
  uint64_t outer;
  uint64_t inner_bytes;
  uint64_t stride_bytes;
} concord_buffer;

/* Issue the operation at `site` of the program's plan table. Its buffers are
 * the inputs, then the outputs. Returns when the operation has been handed
 * over; it has completed when concord_site_wait returns. A site that the plan
 * marks synchronous has completed on return. 0 or an error code: generated code
 * returns from the step at once with that code. */
int32_t concord_issue(struct concord_context *context, uint32_t site,
                      const concord_buffer *buffers, uint32_t num_buffers);
int32_t concord_site_wait(struct concord_context *context, uint32_t site);

/* Let the engine make progress; called at tile boundaries. Never blocks. */
void concord_poll(struct concord_context *context);

/* What a step is given. All of it is prepared before the first step. Where the
 * artefact has several programs, parameters, inputs and outputs are those of
 * the program that the rank runs. */
typedef struct concord_step_args {
  uint32_t struct_size;
  int32_t rank; /* world rank */
  struct concord_context *context;
  char *arena;                    /* arena_bytes in the symmetric heap */
  const void *const *parameters;  /* one per meta.parameters, 64-byte aligned */
  void *const *inputs;            /* one per meta.inputs, dense, local shape */
  void *const *outputs;           /* one per meta.outputs */
  concord_kernel *const *kernels; /* one per line of .concord.kernels; NULL for
                                   * what only other programs call */
  const int64_t *sizes;           /* one per meta.sizes, for what is bound */
} concord_step_args;

typedef struct concord_program_desc {
  uint32_t struct_size;
  uint32_t abi_version;      /* CONCORD_ARTEFACT_ABI_VERSION */
  const char *meta;          /* NUL-terminated JSON, in .concord.meta */
  const unsigned char *plan; /* in .concord.plan */
  uint64_t plan_bytes;
  const char *kernels; /* NUL-terminated, lines, in .concord.kernels */
  int32_t (*step)(const concord_step_args *args); /* of the first program */
  uint64_t num_steps;                             /* programs of the plan */
  int32_t (*const *steps)(const concord_step_args *args); /* one per program */
} concord_program_desc;

#define CONCORD_PROGRAM_SYMBOL "concord_program"

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_ARTEFACT_H */

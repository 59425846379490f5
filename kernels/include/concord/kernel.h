/*===- kernel.h - The kernel ABI: create, pack, run ---------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* Contract (d) of the design: a kernel is described by one line of text, made
|* once at compile time (to learn its workspace and the size of its packed
|* weight) and once more at load (a difference is an error), and then run any
|* number of times on plain pointers.
|*
|* Description: `NAME key=value key=value ...`, keys in alphabetical order,
|* separated by one space. A value is an integer, a float printed with %.9g
|* (%.17g for f64 data), a lower-case word, a quoted string "..." (for einsum
|* equations), or a list `[a,b,c]` of the former (no spaces); shapes are lists:
|* `[128,384]`, a scalar is `[]`; a list of lists is `[[1,2],[3]]`. dtypes are
|* spelled as in dtype.h, in lower case (`f32`, `bf16`, `bool`).
|*
|* `run` never allocates, never makes a system call (other than the yield or
|* sleep inside concord_poll), keeps no state between runs, and gives the same
|* bits for the same inputs. Different handles may run in different threads; one
|* handle may run in several threads if each call has its own workspace.
|*
\*===----------------------------------------------------------------------===*/

#ifndef CONCORD_KERNEL_H
#define CONCORD_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONCORD_KERNEL_ABI_VERSION 1

typedef struct concord_kernel concord_kernel;

/* What a kernel needs, as told by create. `struct_size` is set by the caller to
 * sizeof(concord_kernel_info). Alignment of the workspace and of packed weights
 * is 64 bytes. */
typedef struct concord_kernel_info {
  uint32_t struct_size;
  uint32_t num_inputs;   /* pointers 0 .. num_inputs-1 of run */
  uint32_t num_outputs;  /* the pointers after them */
  uint32_t packed_input; /* index of the input that is given packed, or ~0u */
  uint64_t workspace_bytes;
  uint64_t packed_weight_bytes; /* 0 when nothing is packed */
} concord_kernel_info;

/* Make a kernel from its description. Returns 0 and sets *out, or an error code
 * of concord.h's list (CONCORD_ERROR_INVALID_ARGUMENT, _NOT_SUPPORTED,
 * _OUT_OF_MEMORY) with concord_kernel_last_error() saying which key and why. */
int32_t concord_kernel_create(const char *description, concord_kernel **out,
                              concord_kernel_info *info);
void concord_kernel_destroy(concord_kernel *kernel);

/* Lay a weight (dense, row-major, in the description's dtype) out as run wants
 * it. `packed` has packed_weight_bytes, 64-byte aligned. The layout depends on
 * the CPU class only through concord_kernel_target(). */
int32_t concord_kernel_pack(const concord_kernel *kernel, const void *weight,
                            void *packed);

/* Run. `pointers` holds inputs, then outputs; an absent optional input is NULL.
 * Returns 0 or an error code (index out of range, ...). */
int32_t concord_kernel_run(const concord_kernel *kernel, void *const *pointers,
                           void *workspace);

/*===-- Kernels that are one with a collective ----------------------------===
 *
 * A fused kernel communicates: it is not run, but issued as the collective of
 * its site (or by concord_fused), and the runtime calls its steps when the
 * members' data are there. The work of every member is cut into `parts` equal
 * parts, and the members own shares of the result. The kernel never waits and
 * touches no flags; between two steps the engine may look after other
 * operations.
 *
 *   produce(owner, part): compute what another member's part needs from this
 *   one into the shared operand; needs nothing of others.
 *
 *   combine(part): finish a part of the own share; reads all members' shared
 *   operand, writes the written operands.
 *
 *   consume(owner, part): compute from the owner's shared operand where it
 *   lies, or into the owner's written operand what this member has for it.
 *
 *   collect(owner): take the owner's share of the result, which it wrote into
 *   this member's shared operand; nobody else touches that any more.
 *
 * Operands are dense. `run` of such a kernel returns an error. */

enum {
  CONCORD_STEP_PRODUCE = 0,
  CONCORD_STEP_COMBINE = 1,
  CONCORD_STEP_CONSUME = 2,
  CONCORD_STEP_COLLECT = 3
};

#define CONCORD_FUSED_MAX_OPERANDS 16

typedef struct concord_fused_info {
  uint32_t struct_size;
  uint32_t kind;      /* of the collective: CONCORD_KIND_* */
  uint32_t reduction; /* CONCORD_REDUCTION_* */
  uint32_t dtype;
  uint32_t members;  /* of the group it is made for */
  uint32_t parts;    /* of one member's share */
  uint32_t produces; /* 1: parts of others are produced before they combine */
  uint32_t gathers;  /* 1: only consume steps; 0: combine */
  uint32_t shared;   /* operand (inputs, then outputs) that others read */
  uint32_t written;  /* bit i: operand i is written by others, too */
  uint32_t num_operands; /* without the workspace */
  uint32_t
      collects; /* 1: when all have combined, others' shares are collected */
  uint64_t identity; /* hash of the description */
  uint64_t count;    /* as in the plan table */
  uint64_t workspace_bytes;
  uint64_t operand_bytes[CONCORD_FUSED_MAX_OPERANDS]; /* 0: not looked at */
} concord_fused_info;

/* What a fused kernel needs, or CONCORD_ERROR_NOT_SUPPORTED for any other. */
int32_t concord_kernel_fused(const concord_kernel *kernel,
                             concord_fused_info *info);

typedef struct concord_fused_step {
  uint32_t struct_size;
  uint32_t what; /* CONCORD_STEP_* */
  uint32_t me;   /* group rank of this member */
  uint32_t owner;
  uint32_t part;
  uint32_t stream;           /* 1: store results past the caches */
  void *const *pointers;     /* this member's operands */
  void *const *const *peers; /* peers[operand][member], for the shared and the
                                written ones; own pointers included */
  void *workspace;
} concord_fused_step;

/* Do one step; as `run`, it neither waits nor allocates. */
int32_t concord_kernel_step(const concord_kernel *kernel,
                            const concord_fused_step *step);

/* Name of the CPU class chosen here: "x86-64-v4-bf16", "x86-64-v4",
 * "x86-64-v3", "x86-64-v2", "aarch64". Packed layouts are valid for one class
 * only. */
const char *concord_kernel_target(void);

/* Message of the last failure in this thread; never NULL. */
const char *concord_kernel_last_error(void);

/* Number of failures in this thread: whether the message is a new one. */
uint64_t concord_kernel_failures(void);

#ifdef __cplusplus
}
#endif
#endif /* CONCORD_KERNEL_H */

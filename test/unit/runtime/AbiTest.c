/*===- AbiTest.c - The C ABI is plain C11 -------------------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* Compiled as C with -pedantic: the headers must be C, every entry point must
|* be exported with the type that the list gives, and a job of one rank must
work
|* without a launcher.
|*
\*===----------------------------------------------------------------------===*/

#include "concord/concord.h"
#include "concord/launch.h"

#include <stdio.h>
#include <string.h>

typedef void (*any_function)(void);

/* Taking every address makes the linker prove that each is there. */
static const struct {
  const char *name;
  any_function function;
} kEntries[] = {
#define X(chapter, type, name, parameters, text) {#name, (any_function)name},
    CONCORD_ENTRIES(X)
#undef X
};

#define CHECK(condition)                                                       \
  if (!(condition)) {                                                          \
    fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition,                 \
            concord_last_error());                                             \
    return 1;                                                                  \
  }

int main(void) {
  concord_context *context = NULL;
  concord_comm *world = NULL;
  float in[3] = {1, 2, 3}, out[3] = {0, 0, 0};
  void *block = NULL;
  int32_t rank = -1, size = -1;
  concord_launch_result result;

  for (size_t i = 0; i < sizeof kEntries / sizeof *kEntries; ++i)
    CHECK(kEntries[i].function != NULL);
  CHECK(concord_abi_version() == CONCORD_ABI_VERSION);
  CHECK(strcmp(concord_status_name(CONCORD_ERROR_TIMEOUT),
               "CONCORD_ERROR_TIMEOUT") == 0);
  CHECK(strlen(concord_status_text(CONCORD_ERROR_TIMEOUT, 2)) > 0);
  CHECK(concord_context_create(NULL, &context) == CONCORD_OK);
  CHECK(concord_context_rank(context, &rank, &size) == CONCORD_OK);
  CHECK(rank == 0 && size == 1);
  CHECK(concord_comm_world(context, &world) == CONCORD_OK);
  CHECK(concord_heap_alloc(context, 100, 0, &block) == CONCORD_OK);
  CHECK((uintptr_t)block % 64 == 0);
  CHECK(concord_all_reduce(world, in, out, 3, CONCORD_DTYPE_F32,
                           CONCORD_REDUCTION_SUM, NULL) == CONCORD_OK);
  CHECK(out[2] == 3);
  CHECK(concord_issue(context, 0, NULL, 0) == CONCORD_ERROR_INVALID_ARGUMENT);
  CHECK(concord_heap_free(context, block) == CONCORD_OK);
  CHECK(concord_context_finalize(context) == CONCORD_OK);

  memset(&result, 0, sizeof result);
  result.struct_size = sizeof result;
  CHECK(concord_launch_job(NULL, &result) == CONCORD_ERROR_INVALID_ARGUMENT);
  CHECK(result.message[0] != 0);
  return 0;
}

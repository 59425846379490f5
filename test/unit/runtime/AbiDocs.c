/*===- AbiDocs.c - Prints docs/abi.md from the lists --------------*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* docs/abi.md is this program's output; a test compares the two, so that the
|* page cannot drift from concord.h.
|*
\*===----------------------------------------------------------------------===*/

#include "concord/concord.h"

#include <stdio.h>
#include <string.h>

static const struct {
  const char *chapter, *type, *name, *parameters, *text;
} kEntries[] = {
#define X(chapter, type, name, parameters, text)                               \
  {chapter, #type, #name, #parameters, text},
    CONCORD_ENTRIES(X)
#undef X
};

int main(void) {
  const char *chapter = "";
  printf("# The C ABI\n\n"
         "Generated from `runtime/include/concord/concord.h` by `abi-docs`; do "
         "not edit.\nABI version %d. The conventions (errors, versioned "
         "structs, thread-safety) are at the\ntop of the header, which is the "
         "documentation of record; structs are described there.\n",
         CONCORD_ABI_VERSION);
  for (size_t i = 0; i < sizeof kEntries / sizeof *kEntries; ++i) {
    if (strcmp(chapter, kEntries[i].chapter) != 0) {
      chapter = kEntries[i].chapter;
      printf("\n## %c%s\n", chapter[0] - 'a' + 'A', chapter + 1);
    }
    printf("\n```c\n%s %s%s;\n```\n%s\n", kEntries[i].type, kEntries[i].name,
           kEntries[i].parameters, kEntries[i].text);
  }
  printf("\n## Errors\n\n| number | name | message | cause | cure |\n"
         "|---|---|---|---|---|\n");
#define X(name, number, message, cause, cure)                                  \
  printf("| %d | `CONCORD_ERROR_%s` | %s | %s | %s |\n", number, #name,        \
         message, cause, cure);
  CONCORD_ERRORS(X)
#undef X
  printf("\n## Kinds\n\n");
#define X(name, number, text) printf("%d `%s`  \n", number, text);
  CONCORD_KINDS(X)
#undef X
  printf("\n## Reductions\n\n");
#define X(name, number, text) printf("%d `%s`  \n", number, text);
  CONCORD_REDUCTIONS(X)
#undef X
  return 0;
}

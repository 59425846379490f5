/*===- reference.c - Prints reference pages from the C headers ----*- C -*-===*\
|*
|* Part of the Concord project, under the Apache License v2.0 with LLVM
|* Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
|*
|*===----------------------------------------------------------------------===*|
|*
|* docs/generate.sh compiles and runs this: `reference environment` prints the
|* list of variables, `reference errors` that of errors.
|*
\*===----------------------------------------------------------------------===*/

#include "concord/concord.h"
#include "concord/environment.h"

#include <stdio.h>
#include <string.h>

static const concord_variable kVariables[] = {
    CONCORD_VARIABLES(CONCORD_VARIABLE_ROW)};

static const char *code(const char *text) {
  static char buffer[2][256];
  static int turn;
  turn = !turn;
  if (!*text)
    return "";
  snprintf(buffer[turn], sizeof buffer[turn], "`%s`", text);
  return buffer[turn];
}

static void printType(const concord_variable *variable) {
  switch (variable->type) {
  case CONCORD_VARIABLE_INTEGER:
    printf("integer, %.15g to %.15g", variable->low, variable->high);
    break;
  case CONCORD_VARIABLE_BYTES:
    printf("bytes (`K`, `M`, `G`, `T`), %.15g to %.15g", variable->low,
           variable->high);
    break;
  case CONCORD_VARIABLE_SECONDS:
    printf("seconds, %.15g to %.15g", variable->low, variable->high);
    break;
  case CONCORD_VARIABLE_WORD: {
    const char *at = variable->words;
    while (*at) {
      int length = (int)strcspn(at, "|");
      printf("%s`%.*s`", at == variable->words ? "" : ", ", length, at);
      at += length + (at[length] == '|');
    }
    break;
  }
  case CONCORD_VARIABLE_FILE:
    printf("file");
    break;
  case CONCORD_VARIABLE_FOLDER:
    printf("folder");
    break;
  default:
    printf("text");
  }
}

static void printEnvironment(void) {
  static const struct {
    int32_t reader;
    const char *title;
  } kChapters[] = {{CONCORD_READER_RUNTIME, "The runtime (every rank)"},
                   {CONCORD_READER_KERNELS, "The kernels"},
                   {CONCORD_READER_TOOLS, "Tools"},
                   {CONCORD_READER_PYTHON, "The Python package"},
                   {CONCORD_READER_TESTS, "Tests"}};
  printf("# Environment variables\n\n"
         "An empty value counts as none. A value that cannot be understood, or "
         "is outside\nits range, is an error and not a default. A name that "
         "begins with `CONCORD_` and\nis not listed is warned about. "
         "`comm-run --env` prints what is set here and where it\ncomes from; "
         "with `CONCORD_LOG=info` every rank says it at bring-up. Variables "
         "marked\n*all ranks* are compared between the ranks at bring-up.\n");
  for (size_t c = 0; c < sizeof kChapters / sizeof *kChapters; ++c) {
    printf("\n## %s\n\n| variable | type and range | default | since | NCCL | "
           "HCCL | meaning |\n|---|---|---|---|---|---|---|\n",
           kChapters[c].title);
    for (size_t i = 0; i < sizeof kVariables / sizeof *kVariables; ++i) {
      const concord_variable *variable = &kVariables[i];
      if (variable->reader != kChapters[c].reader)
        continue;
      printf("| `%s` | ", variable->name);
      printType(variable);
      size_t length = strlen(variable->standard);
      if (*variable->standard == '(')
        printf(" | %.*s", (int)length - 2, variable->standard + 1);
      else
        printf(" | %s", code(variable->standard));
      printf(" | %s | %s", variable->since, code(variable->nccl));
      printf(" | %s | %s%s |\n", code(variable->hccl),
             variable->agree ? "*All ranks.* " : "", variable->text);
    }
  }
}

static void printErrors(void) {
  printf("# Errors\n\n"
         "`concord_last_error()` has the words of the last failure in the "
         "thread;\n`concord_status_text` has what stands here. Numbers never "
         "change. Which symptom\nleads to which error, and the test that "
         "provokes it, is in\n[troubleshooting](../troubleshooting.md).\n\n"
         "| number | name | message | cause | cure |\n|---|---|---|---|---|\n");
#define X(name, number, message, cause, cure)                                  \
  printf("| %d | `CONCORD_ERROR_%s` | %s | %s | %s |\n", number, #name,        \
         message, cause, cure);
  CONCORD_ERRORS(X)
#undef X
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "environment") == 0)
    printEnvironment();
  else if (argc == 2 && strcmp(argv[1], "errors") == 0)
    printErrors();
  else
    return 2;
  return 0;
}

//===- Environment.cpp - comm-run --env -----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row per variable. test_environment.py compares the rows with the
// variables that the sources read, so that the two cannot drift.
//
//===----------------------------------------------------------------------===//

#include "Environment.h"

#include "Options.h"

#include <cstdio>
#include <cstdlib>

namespace concord::tools {

namespace {

struct Variable {
  const char *name;
  const char *type;
  const char *standard;
  const char *text;
};

constexpr Variable kVariables[] = {
    {"CONCORD_CACHE_DIR", "folder", "~/.cache/concord",
     "where comm-run keeps compiled programs"},
    {"CONCORD_CACHE_LIMIT", "bytes", "17179869184",
     "size from which the least recently used of them go"},
    {"CONCORD_CONNECT_TIMEOUT", "seconds", "120",
     "how long a rank waits for all ranks to join"},
    {"CONCORD_HEAP_BYTES", "bytes, K, M, G", "16G",
     "address space of the symmetric heap, per rank"},
    {"CONCORD_JOB_FD", "descriptor", "set by the launcher",
     "the job's memory file"},
    {"CONCORD_KERNEL_TARGET", "word", "best of this CPU",
     "CPU class: x86-64-v2, x86-64-v3 or x86-64-v4"},
    {"CONCORD_LIBRARY", "file", "build/lib/libconcord.so",
     "the library that the Python package loads"},
    {"CONCORD_RANK", "number", "set by the launcher", "this process's rank"},
    {"CONCORD_TIMEOUT", "seconds", "300",
     "how long an operation waits for its peers; negative: for ever"},
    {"CONCORD_VERIFY_WEIGHTS", "0 or 1", "0",
     "compare the SHA-256 of every section of the weights at load"},
    {"CONCORD_WORLD", "number", "set by the launcher", "number of ranks"},
    {"TMPDIR", "folder", "/dev/shm, else /tmp",
     "where a job's inputs and outputs lie while it runs"},
    {"XDG_CACHE_HOME", "folder", "~/.cache",
     "parent of the cache when CONCORD_CACHE_DIR is not set"},
};

} // namespace

int printEnvironment() {
  std::printf("%-24s %-15s %-24s %-20s %s\n", "variable", "type", "default",
              "now", "meaning");
  for (const Variable &variable : kVariables) {
    const char *value = std::getenv(variable.name);
    std::printf("%-24s %-15s %-24s %-20s %s\n", variable.name, variable.type,
                variable.standard, value ? value : "-", variable.text);
  }
  return ExitOk;
}

} // namespace concord::tools

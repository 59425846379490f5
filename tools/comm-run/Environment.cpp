//===- Environment.cpp - comm-run --env -----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row per variable of concord/environment.h, with the value that a job
// started here would see and where it comes from.
//
//===----------------------------------------------------------------------===//

#include "Environment.h"

#include "Options.h"
#include "context/Env.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

namespace concord::tools {

namespace {

std::string typeText(const concord_variable &variable) {
  char range[64];
  std::snprintf(range, sizeof range, "%.15g..%.15g", variable.low,
                variable.high);
  switch (variable.type) {
  case CONCORD_VARIABLE_INTEGER:
    return std::string("integer ") + range;
  case CONCORD_VARIABLE_BYTES:
    return std::string("bytes ") + range;
  case CONCORD_VARIABLE_SECONDS:
    return std::string("seconds ") + range;
  case CONCORD_VARIABLE_WORD:
    return variable.words;
  case CONCORD_VARIABLE_FILE:
    return "file";
  case CONCORD_VARIABLE_FOLDER:
    return "folder";
  default:
    return "text";
  }
}

std::string orDash(const char *text) { return *text ? text : "-"; }

} // namespace

int printEnvironment() {
  constexpr size_t kColumns = 9;
  std::vector<std::array<std::string, kColumns>> rows = {
      {"variable", "value", "source", "type", "default", "since", "NCCL",
       "HCCL", "meaning"}};
  size_t count;
  const concord_variable *variables = concord_variables(&count);
  int code = ExitOk;
  for (size_t i = 0; i < count; ++i) {
    const concord_variable &variable = variables[i];
    rt::Setting setting = rt::settingOf(variable);
    bool set = setting.source[0] == 'e';
    if (variable.reader == CONCORD_READER_TESTS && !set)
      continue;
    if (!setting.problem.empty()) {
      std::fprintf(stderr, "comm-run: error: %s\n", setting.problem.c_str());
      code = ExitUsage;
    }
    rows.push_back(
        {variable.name, orDash(setting.value.c_str()), setting.source,
         typeText(variable), orDash(variable.standard), variable.since,
         orDash(variable.nccl), orDash(variable.hccl), variable.text});
  }
  std::array<size_t, kColumns> width = {};
  for (const auto &row : rows)
    for (size_t c = 0; c < kColumns; ++c)
      width[c] = std::max(width[c], row[c].size());
  for (const auto &row : rows) {
    for (size_t c = 0; c + 1 < kColumns; ++c)
      std::printf("%-*s  ", int(width[c]), row[c].c_str());
    std::printf("%s\n", row.back().c_str());
  }
  warnUnknownVariables();
  return code;
}

void warnUnknownVariables() {
  for (const rt::UnknownVariable &unknown : rt::unknownVariables())
    std::fprintf(stderr,
                 "comm-run: warning: %s is set, but nothing reads it%s%s%s\n",
                 unknown.name.c_str(), unknown.meant.empty() ? "" : "; is ",
                 unknown.meant.c_str(), unknown.meant.empty() ? "" : " meant?");
}

} // namespace concord::tools

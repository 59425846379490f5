//===- Env.cpp - Reading environment variables ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value that cannot be understood is an error, not a default: a typing
// mistake must not change a run silently.
//
//===----------------------------------------------------------------------===//

#include "context/Env.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <time.h>

extern char **environ;

using namespace concord::rt;

static constexpr concord_variable kVariables[] = {
    CONCORD_VARIABLES(CONCORD_VARIABLE_ROW)};

const concord_variable *concord_variables(size_t *count) {
  if (count)
    *count = std::size(kVariables);
  return kVariables;
}

int64_t concord::rt::nowNanoseconds() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

const concord_variable *concord::rt::findVariable(const char *name) {
  for (const concord_variable &variable : kVariables)
    if (std::strcmp(variable.name, name) == 0)
      return &variable;
  return nullptr;
}

/// Index of `text` among words split by '|', or -1.
static int wordIndex(std::string_view words, std::string_view text) {
  for (int index = 0; !words.empty(); ++index) {
    size_t end = std::min(words.find('|'), words.size());
    if (words.substr(0, end) == text)
      return index;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return -1;
}

/// A number of any type; false when `text` is none.
static bool parseNumber(int32_t type, const char *text, double &number,
                        uint64_t &bytes) {
  char *end;
  errno = 0;
  if (type == CONCORD_VARIABLE_SECONDS) {
    number = std::strtod(text, &end);
    return !*end && end != text && std::isfinite(number);
  }
  if (type == CONCORD_VARIABLE_INTEGER) {
    long long value = std::strtoll(text, &end, 10);
    bytes = uint64_t(value);
    number = double(value);
    return !errno && !*end && end != text;
  }
  bytes = std::strtoull(text, &end, 10);
  static constexpr char kUnits[] = "KkMmGgTt";
  unsigned shift = 0;
  if (const char *unit = *end ? std::strchr(kUnits, *end) : nullptr) {
    shift = 10 * (unsigned(unit - kUnits) / 2 + 1);
    ++end;
  }
  if (errno || *end || end == text || *text == '-' || bytes > ~0ull >> shift)
    return false;
  bytes <<= shift;
  number = double(bytes);
  return true;
}

std::string concord::rt::checkValue(const concord_variable &variable,
                                    const char *text) {
  const std::string given = std::string(variable.name) + "=" + text;
  switch (variable.type) {
  case CONCORD_VARIABLE_WORD:
    if (wordIndex(variable.words, text) < 0)
      return given + " is not one of " + variable.words;
    return "";
  case CONCORD_VARIABLE_INTEGER:
  case CONCORD_VARIABLE_BYTES:
  case CONCORD_VARIABLE_SECONDS: {
    double number;
    uint64_t bytes;
    if (!parseNumber(variable.type, text, number, bytes))
      return given + (variable.type == CONCORD_VARIABLE_INTEGER
                          ? " is not an integer"
                      : variable.type == CONCORD_VARIABLE_SECONDS
                          ? " is not a number of seconds"
                          : " is not a number of bytes (like 268435456, 256M "
                            "or 16G)");
    if (number < variable.low || number > variable.high) {
      char range[64];
      std::snprintf(range, sizeof range, "%.15g to %.15g", variable.low,
                    variable.high);
      return given + " is outside its range, " + range;
    }
    return "";
  }
  default:
    return "";
  }
}

Setting concord::rt::settingOf(const concord_variable &variable) {
  const char *text = std::getenv(variable.name);
  if (!text || !*text)
    return {variable.standard, "default", ""};
  return {text, "environment", checkValue(variable, text)};
}

/// Number of single-character edits between two names, counted up to `limit`.
static size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      row[j] = std::min(
          {above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::vector<UnknownVariable> concord::rt::unknownVariables() {
  std::vector<UnknownVariable> unknown;
  for (char **entry = environ; entry && *entry; ++entry) {
    std::string name(*entry, std::strcspn(*entry, "="));
    if (name.rfind("CONCORD_", 0) != 0 || findVariable(name.c_str()))
      continue;
    UnknownVariable found{name, ""};
    size_t best = 4;
    for (const concord_variable &variable : kVariables)
      if (size_t distance = editDistance(name, variable.name);
          distance < best) {
        best = distance;
        found.meant = variable.name;
      }
    unknown.push_back(std::move(found));
  }
  std::sort(unknown.begin(), unknown.end(),
            [](const auto &a, const auto &b) { return a.name < b.name; });
  return unknown;
}

/// The text to read, checked; null when nothing is set.
static const char *checkedText(const char *name) {
  const concord_variable *variable = findVariable(name);
  if (!variable)
    raise(CONCORD_ERROR_INTERNAL, "%s is not in concord/environment.h", name);
  const char *text = std::getenv(name);
  if (!text || !*text)
    return nullptr;
  if (std::string problem = checkValue(*variable, text); !problem.empty())
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%s", problem.c_str());
  return text;
}

static const char *textOrStandard(const char *name) {
  const char *text = checkedText(name);
  return text ? text : findVariable(name)->standard;
}

static double numberOf(int32_t type, const char *text, uint64_t &bytes) {
  double number = 0;
  bytes = 0;
  parseNumber(type, text, number, bytes);
  return number;
}

uint64_t concord::rt::envBytes(const char *name) {
  uint64_t bytes;
  numberOf(CONCORD_VARIABLE_BYTES, textOrStandard(name), bytes);
  return bytes;
}

uint64_t concord::rt::envBytes(const char *name, uint64_t fallback) {
  return checkedText(name) ? envBytes(name) : fallback;
}

double concord::rt::envSeconds(const char *name) {
  uint64_t bytes;
  return numberOf(CONCORD_VARIABLE_SECONDS, textOrStandard(name), bytes);
}

double concord::rt::envSeconds(const char *name, double fallback) {
  return checkedText(name) ? envSeconds(name) : fallback;
}

int64_t concord::rt::envInteger(const char *name) {
  uint64_t bytes;
  numberOf(CONCORD_VARIABLE_INTEGER, textOrStandard(name), bytes);
  return int64_t(bytes);
}

int64_t concord::rt::envInteger(const char *name, int64_t fallback) {
  return checkedText(name) ? envInteger(name) : fallback;
}

int concord::rt::envWord(const char *name) {
  return wordIndex(findVariable(name) ? findVariable(name)->words : "",
                   textOrStandard(name));
}

std::string concord::rt::envText(const char *name) {
  const char *text = textOrStandard(name);
  return *text == '(' ? "" : text;
}

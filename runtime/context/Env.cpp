//===- Env.cpp - The runtime's environment variables ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading and checking CONCORD_* variables. A value that cannot be understood
// is an error, not a default: a typing mistake must not change a run silently.
//
//===----------------------------------------------------------------------===//

#include "context/Context.h"
#include "diagnosis/Error.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <time.h>

using namespace concord::rt;

int64_t concord::rt::nowNanoseconds() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

uint64_t concord::rt::envBytes(const char *name, uint64_t fallback) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return fallback;
  char *end;
  errno = 0;
  unsigned long long value = std::strtoull(text, &end, 10);
  unsigned shift = 0;
  switch (*end) {
  case 'K':
  case 'k':
    shift = 10;
    break;
  case 'M':
  case 'm':
    shift = 20;
    break;
  case 'G':
  case 'g':
    shift = 30;
    break;
  }
  if (shift)
    ++end;
  if (errno || *end || end == text || *text == '-' ||
      value > (~0ull >> (shift + 4)))
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "%s=%s is not a number of bytes (like 268435456, 256M or 16G)", name,
          text);
  return value << shift;
}

double concord::rt::envSeconds(const char *name, double fallback) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return fallback;
  char *end;
  double value = std::strtod(text, &end);
  if (*end || end == text || !std::isfinite(value))
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%s=%s is not a number of seconds",
          name, text);
  return value;
}

int64_t concord::rt::envInteger(const char *name, int64_t fallback) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return fallback;
  char *end;
  errno = 0;
  long long value = std::strtoll(text, &end, 10);
  if (errno || *end || end == text)
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%s=%s is not an integer", name,
          text);
  return value;
}

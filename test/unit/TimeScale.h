//===- TimeScale.h - How slow the machine of the tests is -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_UNIT_TIMESCALE_H
#define CONCORD_TEST_UNIT_TIMESCALE_H

#include <cstdio>
#include <cstdlib>

namespace concord::test {

/// A deadline that a test gives, or sets, longer by CONCORD_TEST_TIME_SCALE:
/// under an emulator the same work takes many times as long.
inline double scaled(double seconds) {
  static const double factor = [] {
    const char *text = std::getenv("CONCORD_TEST_TIME_SCALE");
    if (!text)
      return 1.0;
    char *end;
    double value = std::strtod(text, &end);
    if (end == text || *end || !(value >= 1 && value <= 1000)) {
      std::fprintf(stderr,
                   "CONCORD_TEST_TIME_SCALE=%s: a number from 1 to 1000\n",
                   text);
      std::exit(2);
    }
    return value;
  }();
  return seconds * factor;
}

} // namespace concord::test

#endif // CONCORD_TEST_UNIT_TIMESCALE_H

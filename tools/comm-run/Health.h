//===- Health.h - comm-run --health -----------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Is the link still as fast as it was? A small program of two all-reduces,
// which is compiled, ordered and certified like any other, is run and compared
// with a stored baseline.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_HEALTH_H
#define CONCORD_TOOLS_COMM_RUN_HEALTH_H

#include <cstdint>
#include <string>

namespace concord::tools {

struct HealthOptions {
  int64_t ranks = 2;
  std::string baseline; ///< "": one per host and number of ranks, in the cache
  bool renew = false;   ///< store what is measured as the new baseline
  double tolerance = 2; ///< times as slow as the baseline is degraded
  std::string jsonFile;
};

/// Exit code: 0 as good as the baseline (or none was there), 1 degraded.
int checkHealth(const HealthOptions &options);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_HEALTH_H

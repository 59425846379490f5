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

#include "Options.h"

namespace concord::tools {

/// Of this host, by a program of its own. Exit code: 0 as good as the baseline
/// (or none was there), 1 degraded.
int checkHealth(Options options);

/// Compare with the baseline, or store one: medians of all_reduce in
/// microseconds, `elements` of f32 in the larger one. `where` tells the
/// baselines of an idle host and of a slot apart. The exit code; `words`
/// becomes JSON.
int judgeHealth(const Options &options, int64_t ranks, double small,
                double large, int64_t elements, const std::string &where,
                std::string &words);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_HEALTH_H

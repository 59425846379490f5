//===- Calibrate.h - What the cost model needs of this host -----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// comm-bench --calibrate FILE.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_CALIBRATE_H
#define CONCORD_TOOLS_COMM_BENCH_CALIBRATE_H

#include "Measure.h"
#include "concord/cost/Machine.h"

namespace concord::bench {

/// Measure and write the file. Throws Failure.
void calibrate(const Options &options, Teams &teams);

/// Lines that describe measured (bytes, us) within a tenth, as few as possible
/// from left to right.
void fitSegments(const std::vector<std::pair<uint64_t, double>> &measured,
                 std::vector<cost::Segment> &segments);

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_CALIBRATE_H

//===- Measure.h - Timing one row -------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every rank does for one size: fill, warm up, time, check; and the
// bandwidth of memory at the same footprint.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_MEASURE_H
#define CONCORD_TOOLS_COMM_BENCH_MEASURE_H

#include "Options.h"

namespace concord::bench {

struct Timing {
  double micros = 0;       ///< mean per operation, combined over ranks
  double p50 = 0, p99 = 0; ///< of single operations, slowest rank each
  int64_t wrong = -1;      ///< elements, -1 not checked
};

struct Row {
  uint64_t bytes = 0; ///< of the whole array
  uint64_t count = 0; ///< elements per rank, as the call takes it
  int32_t dtype = 0, reduction = 0;
  Timing outOfPlace, inPlace;
  double algorithmBandwidth = 0, busBandwidth = 0; ///< GB/s, out of place
  double efficiency = 0;
};

class Bench {
public:
  Bench(const Options &options);
  ~Bench();
  Row measure(uint64_t bytes, int32_t dtype, int32_t reduction);
  int rank() const { return me; }

private:
  void call(const char *in, char *out, uint64_t count, int32_t dtype,
            int32_t reduction);
  Timing time(uint64_t count, int32_t dtype, int32_t reduction, bool inPlace,
              uint64_t inBytes, uint64_t outBytes);
  int64_t countWrong(const char *out, uint64_t count, int32_t dtype,
                     int32_t reduction);
  double memoryBandwidth(uint64_t footprint);
  double combine(double mine, int how);

  const Options &options;
  concord_context *context = nullptr;
  concord_comm *world = nullptr;
  int32_t me = 0, ranks = 1;
  char *input = nullptr, *output = nullptr;
  uint64_t capacity = 0;
};

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_MEASURE_H

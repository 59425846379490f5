//===- Measure.h - Rows of the table ----------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row: every team's turns, their medians, and the bound.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_MEASURE_H
#define CONCORD_TOOLS_COMM_BENCH_MEASURE_H

#include "Concord.h"
#include "Driver.h"
#include "Limits.h"

#include <map>

namespace concord::bench {

struct Timing {
  bool supported = true;
  double time = 0;         ///< us per operation, median over turns
  double p50 = 0, p99 = 0; ///< of single operations, the slowest rank's
  int64_t wrong = 0;
  double algorithmBandwidth = 0, busBandwidth = 0; ///< GB/s
  std::vector<double> skewMedian, skewP99; ///< per rank, us after the first
};

struct PeerTiming : Timing {
  std::string name;
  double ratio = 0; ///< its time / Concord's
};

struct Row {
  uint64_t count = 0, bytes = 0; ///< bytes of the whole array
  int32_t dtype = 0, reduction = 0;
  int root = 0;
  Timing outOfPlace, inPlace;
  double efficiency = 0;
  double bound = 0;                   ///< us
  double bandwidth[kNumMethods] = {}; ///< GB/s per rank, all at once
  double flag = 0;                    ///< us
  double link = 0, latency = 0;       ///< between hosts: GB/s, us of a message
  double limit = 0; ///< us of the fastest bare loop (Limits.h); 0: unknown
  BareWay limitWay = kBareSlots;
  double bare[kNumBareWays] = {}; ///< us of each way; 0: there is none
  std::vector<PeerTiming> peers;
  std::string form; ///< how rank 0 did it, and why
};

/// High priority, alone and under a low-priority operation.
struct FloodResult {
  double idle50, idle99, flooded50, flooded99, lowTime, chunk;
};

class Meter {
public:
  Meter(const Options &options, Teams &teams)
      : options(options), teams(teams) {}

  Row measure(uint64_t bytes, int32_t dtype, int32_t reduction, int root = 0);
  /// Only what the host allows `kind`: the row's limit and flag.
  Row measureLimit(int32_t kind, uint64_t bytes);
  FloodResult flood();
  /// latency[i][j], time[i][j] of `bytes`, us.
  void pairs(uint64_t bytes, std::vector<std::vector<double>> &latency,
             std::vector<std::vector<double>> &time);

private:
  double turn(size_t team, Command command);
  Row once(uint64_t bytes, int32_t dtype, int32_t reduction, int root);
  double leastBytes(const Row &row) const;
  double leastFlags(const Row &row) const;
  /// Bytes that at least one host must send, or receive.
  double leastLinkBytes(const Row &row) const;
  /// Time the link between the first two hosts.
  void lookAtLink(Row &row);
  /// Every way of the bare loop, a turn of each per call.
  struct Bare {
    uint64_t iterations[kNumBareWays] = {};
    std::vector<double> times[kNumBareWays];
  };
  void beginBare(const Call &call, Bare &bare);
  void turnBare(const Call &call, Bare &bare);
  void finishBare(const Bare &bare, Row &row) const;

  const Options &options;
  Teams &teams;
  double leastFlag = 0;
  double bestLink = 0, leastLatency = 0;
};

/// Elements of each of `parts` of an array of `bytes`, at least one.
uint64_t elementsOf(uint64_t bytes, uint64_t size, uint64_t parts);
double median(std::vector<double> values);
double percentile(std::vector<double> values, double part);

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_MEASURE_H

//===- Options.h - The command line of comm-bench ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// nccl-tests flags, with one deviation that --help states: -n is the number of
// ranks, --iters the iterations.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_OPTIONS_H
#define CONCORD_TOOLS_COMM_BENCH_OPTIONS_H

#include "concord/concord.h"

#include <cstdint>
#include <string>
#include <vector>

namespace concord::bench {

struct Options {
  int32_t kind = 0; ///< concord_kind
  int ranks = 2, groupSize = 2;
  uint64_t from = 8, to = uint64_t(64) << 20;
  uint64_t step = 0; ///< added per row, or
  double factor = 2; ///< multiplied
  std::vector<int32_t> dtypes, reductions;
  std::vector<int> roots = {0}; ///< a row each
  int iterations = 0;           ///< 0: by size
  int warmup = 2;
  int aggregate = 1; ///< 0 rank 0, 1 average, 2 least, 3 greatest over ranks
  bool check = true;
  int memory = 2;     ///< of Concord's buffers, see Concord.h
  bool rotate = true; ///< buffers that do not stay in the cache
  int cycles = 1, timeout = 0;
  int rounds = 9; ///< turns that every team gets, per row
  std::vector<std::string> peers;
  std::string split; ///< "MOD 2": a communicator per group
  bool flood = false, pairs = false, skew = false, explain = false;
  /// Bare loops beside the rows, or, without an operation, alone.
  bool limits = false, limitsAlone = false;
  bool issuePath = false;
  std::string jsonFile, baselineFile, plotFile, calibrateFile;
  double linkRate = 0; ///< bytes per second of the link between hosts; 0: found
  /// Set before parsing where a launcher has started comm-bench once per rank:
  /// the word of its MPI, the number of ranks, and whether to say nothing.
  std::string launcher;
  int launched = 0;
  bool quiet = false;
};

/// Parse; prints and returns false when the program should end with `code`.
bool parseOptions(int argc, char **argv, Options &options, int &code);

const char *kindText(int32_t kind);
const char *reductionText(int32_t reduction);
std::string dtypeText(int32_t dtype);

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_OPTIONS_H

//===- Report.h - What a run has to say -------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Latencies, outputs and comparisons, as lines for people, as JSON, and as a
// trace for Perfetto.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_REPORT_H
#define CONCORD_TOOLS_COMM_RUN_REPORT_H

#include "Compile.h"
#include "Job.h"
#include "common/Compare.h"

namespace concord::tools {

/// What happened to one output tensor.
struct OutputReport {
  std::string name; ///< with @RANK for per-rank entries
  DType dtype = DType::Invalid;
  Shape shape;
  std::string digest;             ///< SHA-256 of the bytes
  double least = 0, greatest = 0; ///< of the finite elements
  uint64_t notFinite = 0;
  std::filesystem::path file;         ///< written there, or empty
  std::filesystem::path expectedFile; ///< compared with it, or empty
  Comparison comparison;
};

struct Latency {
  std::vector<double> seconds; ///< per step, the slowest rank's time
  double least = 0, median = 0, p99 = 0;
};

/// What the ranks said of themselves (concord-rank's statistics, JobFile.h
/// there).
struct RankStats {
  Latency latency;                ///< a step takes as long as its slowest rank
  std::vector<std::string> texts; ///< per rank, a JSON object
  std::string health;             ///< of --health, a JSON object, or empty
};

/// Read the ranks' statistics files. Throws RankError for one that is not
/// usable.
RankStats readStats(const Job &job, const ProgramMeta &meta);
/// Medians, in microseconds, of the two reductions of the health check
/// (comm-health) over the rounds that had it, of their slowest ranks. Throws
/// RankError where no round had.
std::pair<double, double> healthOf(const RankStats &stats);
/// Hosts that the ranks were on.
size_t hostsOf(const RankStats &stats);

/// Sort and pick: the median is the lower middle; p99 is the smallest value
/// that 99 % of the steps do not exceed.
Latency latencyOf(std::vector<double> seconds);

/// Merge the ranks' event files to one in the Trace Event Format that Perfetto
/// and chrome://tracing read: a process per rank, a thread for compute and one
/// per stream. Names come from the plan table in `program`.
void writeTrace(const Job &job, const ProgramMeta &meta,
                const std::filesystem::path &program,
                const std::filesystem::path &path);

/// Look at a tensor: digest, range, elements that are not finite.
OutputReport describeOutput(const std::string &name, const HostTensor &tensor);

/// Print the lines of one output on standard output.
void printOutput(const OutputReport &output, double rtol, double atol);

/// Everything, as docs/comm-run.md has it.
void writeJson(const std::filesystem::path &path, const Options &options,
               const Artefact &artefact, const ProgramMeta &meta,
               const std::vector<InputSources> &sources,
               const std::vector<OutputReport> &outputs, const RankStats &stats,
               const RunResult &run, int exitCode);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_REPORT_H

//===- Job.h - One run of a program by N processes --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The job's private folder (each rank's inputs, outputs, job description,
// statistics and trace), the start of the ranks, and what they leave behind.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_JOB_H
#define CONCORD_TOOLS_COMM_RUN_JOB_H

#include "Compile.h"
#include "Inputs.h"
#include "common/ProgramMeta.h"

namespace concord::tools {

/// How the ranks ended.
struct RunResult {
  int exitCode = ExitOk; ///< as comm-run's own
  int failedRank = -1;
  std::string message;   ///< one line, when not ExitOk
  std::string lastWords; ///< the last lines that rank wrote
};

class Job {
public:
  /// `member`: this process is that one rank of a job which another launcher
  /// has started, perhaps on several hosts; -1: it starts all of them.
  Job(const Options &options, std::filesystem::path program,
      const ProgramMeta &meta, int64_t member = -1);
  ~Job();

  /// Write the slices of the inputs and the job files; `fills` are the inputs
  /// with the shapes that are written (one that grows with a state has data for
  /// the last step). Throws Error, Interrupted.
  void writeInputs(const std::vector<InputSources> &sources,
                   const std::vector<Entry> &fills);

  /// Start the ranks, hand on what they print (each line prefixed with its rank
  /// when there are several), wait for all. A member starts its own one, which
  /// gives its outputs to rank 0.
  RunResult run();

  /// The global tensor of an output, or one tensor per rank for a per-rank
  /// entry. Throws Error when replicas differ.
  std::vector<HostTensor> readOutput(size_t index) const;

  std::filesystem::path statsFile(int64_t rank) const;
  std::filesystem::path traceFile(int64_t rank) const;
  const std::filesystem::path &folder() const { return dir.path(); }

private:
  RunResult runMember();
  std::filesystem::path inputFile(size_t index, int64_t rank) const;
  std::filesystem::path outputFile(size_t index, int64_t rank) const;
  std::filesystem::path jobFile(int64_t rank) const;

  const Options &options;
  std::filesystem::path program;
  const ProgramMeta &meta;
  int64_t member;
  ScratchDir dir;
  FileLock alive; ///< tells other comm-runs that the folder is in use
};

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_JOB_H

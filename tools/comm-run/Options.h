//===- Options.h - The command line of comm-run -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// comm-run's own options, and those that it hands on to comm-opt. An option
// that comm-run does not know is a compile option: it is written `--name` or
// `--name=value`; the ones in kCompileOptions may also have their value as the
// next argument.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_OPTIONS_H
#define CONCORD_TOOLS_COMM_RUN_OPTIONS_H

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace concord::tools {

/// The documented exit codes; docs/comm-run.md.
enum ExitCode {
  ExitOk = 0,
  ExitMismatch = 1,
  ExitUsage = 2,
  ExitCompile = 3,
  ExitRank = 4,
  ExitTimeout = 5,
  // 128 + signal when interrupted
};

struct Options {
  std::string program;
  int64_t ranks = 0; ///< 0: as many as the program was compiled for
  std::vector<std::string> compile; ///< handed on to comm-opt, in order
  std::vector<std::string> inputs;  ///< NAME[@RANK]=FILE, not yet taken apart
  std::string inputDir;
  uint64_t seed = 0;
  std::vector<std::pair<std::string, std::string>> states; ///< input, output
  std::string outputDir, expectDir;
  double rtol = 1e-3, atol = 1e-5;
  int64_t repeat = 1, warmup = -1; ///< -1: chosen by the other options
  double timeout = 0;
  double slots = 1; ///< share of the steps that ask for optional slots
  std::string traceFile, jsonFile;
  bool keep = false, verbose = false, noCache = false;
  /// --health, of a program or, without one, of this host: compared with a
  /// baseline ("": one per host and number of ranks, in the cache).
  bool health = false, renew = false;
  std::string baseline;
  double tolerance = 2; ///< times as slow as the baseline is degraded
  bool shared = false;  ///< other processes of the job use the same program
  bool quiet = false;   ///< another process of the job says what is done

  /// Set when there is nothing to run: text to print before leaving with 0.
  bool answered = false;
  std::string answer;
  bool env = false; ///< --env was given
};

/// Parse `arguments` (without the program's own name). Throws Error for a
/// command line that is not usable; its message says what to write instead.
Options parseOptions(std::vector<std::string> arguments);

/// The value of a compile option that may be given as `--name value` or
/// `--name=value`; the last one wins, and "" means it is not there.
std::string compileOption(const Options &options, const std::string &name);

/// The number of ranks that --mesh, --tp, --dp, --pp, --ep, else --world, ask
/// for; 0 when none of them is given. Throws Error when one is malformed.
int64_t meshSize(const Options &options);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_OPTIONS_H

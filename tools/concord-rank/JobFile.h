//===- JobFile.h - What comm-run asks of one rank ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The job file, and the two files that a rank writes. All are JSON.
//
// Job: {"program": "path.so",
//       "inputs":  [{"name": N, "file": F}...],   raw little-endian, dense, the
//                                                 rank's local shape
//                  with "shape": [d0, ...], the global shape of the first step,
//                  where a dimension is bounded
//       "outputs": [{"name": N, "file": F}...],   written likewise
//       "repeat": K, "warmup": W,                 K >= 1 measured steps after W
//       "state": [{"input": N, "output": N}...],  bound before the first step
//       "slots": P,                               of a program with several
//                                                 issuers: the share of the
//                                                 steps that use optional slots
//       "json": F, "trace": F, "trace_steps": n,  "" or absent: not written;
//                                                 n = 0: all measured steps
//       "gather": {"ranks": [{"outputs": [..], "json": F, "trace": F}..]}}
//
// With "gather" the ranks share no file system: each sends what it would write
// to rank 0, which writes it to the files of that rank in its list (element 0
// is not used). "ranks" is empty but for rank 0. Times in traces are then
// counted from a barrier before the first step, as clocks of hosts differ.
//
// Statistics: {"rank", "world", "program", "digest", "pid",
//   "load_ns",               from the start of loading to ready
//   "step_ns": [..],         one per measured step
//   "minor_faults",          over all steps but the first
//   "arena_bytes", "weight_bytes", "rss_bytes", "pss_bytes",
//   "heap_peers_rss_bytes"}  part of the RSS that maps peers' heaps
//
// Trace, times in ns of CLOCK_MONOTONIC (the same for all processes of a host):
//   {"rank", "world", "issuers": [
//     {"program",  name in the plan, of the only one as it likes
//      "steps": [[step, begin, end]..],
//      "events": [[step, site, begin, returned, waited, completed]..]}..]}
// The first issuer is the one whose steps are measured. `begin` to `returned`
// is the call of concord_issue. A site that is not synchronous was waited for
// from `waited` to `completed`; otherwise `waited` is -1 and `completed` equal
// to `returned`.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_CONCORD_RANK_JOBFILE_H
#define CONCORD_TOOLS_CONCORD_RANK_JOBFILE_H

#include <cstdint>
#include <string>
#include <vector>

namespace concord::tools {

struct TensorFile {
  std::string name, file;
  std::vector<int64_t> shape; ///< global, of the first step; where bounded
};

/// Where rank 0 writes what another rank sends.
struct RankFiles {
  std::vector<TensorFile> outputs;
  std::string statsFile, traceFile;
};

struct JobFile {
  std::string program;
  std::vector<TensorFile> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> state;
  bool severalIssuers = false;
  double slots = 1;
  bool health = false; ///< time the sites of the health check
  uint64_t repeat = 1, warmup = 0, traceSteps = 0;
  std::string statsFile, traceFile;
  bool gathers = false;
  std::vector<RankFiles> ranks;
};

/// Read a job file. Throws std::runtime_error with one line for people.
JobFile readJobFile(const std::string &path);

/// Read exactly `bytes` bytes, the whole file, to `target`; `orLess`: the whole
/// file, which may be shorter.
void readTensor(const std::string &path, void *target, uint64_t bytes,
                bool orLess = false);
/// Write a file, or leave none behind.
void writeWhole(const std::string &path, const void *data, uint64_t bytes);

} // namespace concord::tools

#endif // CONCORD_TOOLS_CONCORD_RANK_JOBFILE_H

//===- Concord.h - Concord's own team ---------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rank side of comm-bench for Concord, and the measurements that only it
// offers.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_CONCORD_H
#define CONCORD_TOOLS_COMM_BENCH_CONCORD_H

#include "concord/concord.h"

#include "../../bench/peers/Station.h"

#include <cstdint>
#include <memory>

namespace concord::bench {

/// Memory of Concord's buffers.
enum Memory { kForeign, kRegistered, kSymmetric };

/// What Command::inPlace says of a kSpecial command.
enum Special : uint32_t {
  /// arguments: bytes to copy, microseconds to spend, number of ranks that do
  /// (0: all), 1: always the same bytes. Numbers: per method, median and least
  /// time, and bytes moved.
  kBandwidth = 1,
  /// Numbers of rank 0: least microseconds that a flag takes from one core to
  /// another.
  kFlag,
  /// arguments: bytes of the low-priority operation, samples, 1: with it.
  /// Numbers: durations of the call's operation at high priority.
  kFlood,
  /// Numbers: the characters of how and why the last operation was done so.
  kExplain,
  /// The call in a program that writes its input and reads its output in every
  /// step. arguments: bytes of the input, of the output, microseconds to
  /// spend. Numbers: median step with and without the call.
  kCycle,
  /// arguments: microseconds to spend. Numbers of rank 0: bytes per second at
  /// which it stores what rank 1 has just read.
  kContended,
  /// A matrix product on all ranks that have a core. arguments: dtype, m, n, k,
  /// microseconds to spend. Numbers: operations per second, or 0.
  kProduct,
  /// Numbers: nanoseconds of an instruction of fused_update on an element, or
  /// 0 for a rank without a core.
  kUpdate,
  /// The call as a bare loop (Limits.h). arguments: BareWay, iterations.
  /// Numbers: microseconds per operation, or 0.
  kBare,
  /// arguments: how often to run the call. Numbers: system calls but for those
  /// that sleep, the number of the last of them or -1, calls of the memory
  /// functions or -1 (IssuePath.h).
  kIssuePath,
};
/// Bytes behind the flags that ranks 0 and 1 share.
constexpr uint64_t kSharedBytes = 128 << 10;
constexpr uint64_t kFlagBytes = 128 * 64;

constexpr int kNumMethods = 5;
extern const char *const kMethodNames[kNumMethods];

/// Concord's rank in this process.
struct ConcordRank : Backend {
  concord_context *context = nullptr;
  concord_comm *world = nullptr;
};
/// `flags`: a descriptor of the flags of a host's ranks, or -1 for none; then
/// kFlag, kContended and kBare must not be asked for.
std::unique_ptr<ConcordRank> makeConcord(const Address &address, int flags,
                                         Memory memory);

/// Ends the process with the last error's words when a call has failed.
void check(int32_t status);

/// `arguments`: those of bench::Address, then flags' descriptor and Memory. The
/// exit code.
int runConcordRank(char **arguments);

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_CONCORD_H

//===- Limits.h - What the host allows an operation -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A bare loop of the loads, stores and flags that an operation cannot do
// without: no library around it, addresses known from the start, nothing
// checked, nothing logged. It is written in the ways that are known to be fast,
// and the fastest of them is the limit. What takes about as long as that is
// held up by caches and memory, not by its own code.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_LIMITS_H
#define CONCORD_TOOLS_COMM_BENCH_LIMITS_H

#include "../../bench/peers/Station.h"

namespace concord::bench {

/// How a bare loop moves the data.
enum BareWay : uint32_t {
  kBareSlots,      ///< beside and behind the flags
  kBareCached,     ///< in place, stores through the caches
  kBarePast,       ///< in place, stores past the caches
  kBareBlocks,     ///< as kBarePast, a block in the L1 cache at a time
  kBareOwn,        ///< everybody its own output, from all inputs in place
  kBareOwnPast,    ///< the same, stores past the caches
  kBareStaged,     ///< private arrays, copied through memory that all share
  kBareStagedPast, ///< the same, stores past the caches
  kNumBareWays
};
extern const char *const kBareWayNames[kNumBareWays];

/// True for the kinds that have bare loops.
bool hasLimit(int32_t kind);
/// Arrays loaded and stored by a pass of the loop: 2:2 for all_reduce of two.
void bareMixture(int32_t kind, int ranks, int &loads, int &stores);

/// Where in the file of the flags the memory of the bare loops begins, and how
/// much it is with buffers as large as those of the operations.
constexpr uint64_t kLimitsAt = uint64_t(2) << 20;
uint64_t limitBytes(int ranks, uint64_t capacity);

class BareLoops {
public:
  /// Maps limitBytes of the file `fd` at kLimitsAt, which all ranks of the host
  /// share, and makes this rank's part present. With `foreign` the operands are
  /// memory that no other rank can reach. Throws std::runtime_error.
  BareLoops(int fd, uint64_t capacity, int me, int ranks, bool rotate,
            bool foreign);
  ~BareLoops();
  BareLoops(const BareLoops &) = delete;

  /// Us per operation of `iterations` in a row; 0 from a rank that has no core
  /// of its own, and where this way does not exist for the call. All ranks call
  /// it with the same arguments.
  double run(const Call &call, BareWay way, uint64_t iterations);

private:
  struct Area;
  Area &area() const { return *reinterpret_cast<Area *>(base); }
  /// This rank's operands, or with operands in place those of any rank.
  char *input(int rank) const;
  char *output(int rank) const;
  /// The parts of the file that hold a rank's operands, or stage them.
  char *shared(int rank, bool out) const;
  /// Say that this rank has got to `value`, and wait for the others.
  void meet(bool done, uint64_t value);
  void throughSlots(const Call &call, uint64_t chunk, uint64_t at);
  void inPlace(const Call &call, uint64_t chunk, uint64_t at, BareWay way);
  void staged(const Call &call, uint64_t chunk, uint64_t at, BareWay way);

  char *base = nullptr, *mapping = nullptr;
  char *foreign[2] = {}; ///< input and output that no other rank reaches
  uint64_t capacity, mapped = 0;
  int me, ranks, workers;
  bool rotate, present = false;
  uint64_t counter = 0, turn = 0;
};

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_LIMITS_H

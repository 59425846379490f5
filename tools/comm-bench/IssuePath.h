//===- IssuePath.h - What a call costs the system ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Counts the system calls of a thread, but for those that pass its core on, and
// the calls of the memory functions.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_ISSUEPATH_H
#define CONCORD_TOOLS_COMM_BENCH_ISSUEPATH_H

#include <atomic>
#include <cstdint>

namespace concord::bench {

/// From its making on every system call of the calling thread goes through
/// another thread, which lets it pass. For ever: the kernel does not take a
/// filter back. A lock that another thread holds shows as a call of futex.
class CallCounter {
public:
  /// Throws std::runtime_error where the kernel cannot do it.
  CallCounter();
  void begin();
  struct Counts {
    uint64_t systemCalls = 0;
    int lastCall = -1; ///< number of the last of them
    /// Of malloc and its kin, mmap and madvise; -1 where
    /// libconcord_memcount.so is not preloaded.
    int64_t memory = -1;
  };
  Counts end();

private:
  struct Shared {
    std::atomic<int> listener{-1};
    std::atomic<bool> counting{false};
    std::atomic<uint64_t> calls{0};
    std::atomic<int> last{-1};
  };
  static void serve(Shared &shared);
  Shared *shared; ///< outlives this object, as its thread does
};

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_ISSUEPATH_H

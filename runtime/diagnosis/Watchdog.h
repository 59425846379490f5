//===- Watchdog.h - Seeing peers die ----------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A thread per process, asleep in epoll on the pidfds of the peers. A peer's
// end wakes it; it marks the rank dead unless that had finalized, and tells
// everyone who waits to look closer. Twice a second it looks whether anything
// has moved in the job, and explains it once nothing has for
// CONCORD_HANG_REPORT seconds. SIGUSR1 makes it print what the rank does.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_DIAGNOSIS_WATCHDOG_H
#define CONCORD_RUNTIME_DIAGNOSIS_WATCHDOG_H

#include "context/Context.h"

namespace concord::rt {

/// Start time of a process in ticks since boot, 0 if it does not exist; with
/// the pid it names a process for good.
uint64_t processStartTime(int64_t pid);
/// Inode of this process's pid namespace.
uint64_t ownPidNamespace();
/// True when the process of a rank is stopped (by a signal or a debugger).
bool stoppedProcess(const RankSlot &slot);

class Watchdog {
public:
  explicit Watchdog(Context &context);
  ~Watchdog();
  /// Watch the process of a rank that has joined.
  void watch(int rank);
  void start();
  /// Note now which processes of this host have ended, if the thread has not
  /// come to it yet. Any thread, after start().
  void lookForDead();

private:
  void run();
  void markDead(int rank);
  void hear(int rank);
  void look();
  void answer();
  void writeStacks();

  Context &context;
  int poll = -1, wake = -1;
  unsigned watched = 0;
  bool listens = false;
  uint64_t moved = 0;      ///< a sum that changes with every issue of the job
  int64_t movedAt = 0;     ///< when it did
  bool stacked = false;    ///< the stacks have been written
  std::vector<int> pidfds; ///< per rank, -1 none
  std::thread thread;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_DIAGNOSIS_WATCHDOG_H

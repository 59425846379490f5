//===- Driver.h - Teams that take turns -------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Starts Concord's ranks and those of the peers and commands them over sockets.
// All teams live through the whole run; one works at a time, the others sleep.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_BENCH_DRIVER_H
#define CONCORD_TOOLS_COMM_BENCH_DRIVER_H

#include "Options.h"

#include "../../bench/peers/Station.h"

#include <atomic>
#include <stdexcept>
#include <sys/types.h>
#include <thread>

namespace concord::bench {

/// What stops the run; its words are for the user.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Team {
  std::string name;    ///< "concord", "openmpi", ...
  std::string version; ///< of the library
  std::vector<int> sockets;
  std::vector<pid_t> processes; ///< that the driver started and awaits
};

/// Replies of a team, by rank.
struct Answer {
  bool supported = true;
  int64_t wrong = 0;
  std::vector<std::vector<double>> numbers;
};

class Driver {
public:
  explicit Driver(const Options &options);
  ~Driver();
  Driver(const Driver &) = delete;

  /// Start Concord and every peer of the options; returns when all ranks are
  /// there.
  void start();
  /// Let all teams end. Throws when Concord's job ended badly.
  void finish();

  Answer command(size_t team, const Command &command);
  /// A kSpecial command of Concord's.
  Answer special(uint32_t what, const Call &call,
                 std::initializer_list<uint64_t> arguments);

  const std::vector<Team> &all() const { return teams; }
  uint64_t capacity() const { return bufferBytes; }

private:
  void listen();
  void startConcord();
  void startPeer(const std::string &name);
  std::vector<std::string> addressOf(size_t team) const;
  void spawn(Team &team, const std::vector<std::string> &arguments);
  void acceptAll();
  /// Throws when a process of a team has ended.
  void checkAlive();

  const Options &options;
  std::vector<Team> teams;
  std::string socketName;
  uint64_t token = 0, bufferBytes = 0;
  int listener = -1, flags = -1;
  std::thread job; ///< awaits Concord's ranks
  std::atomic<bool> jobEnded{false};
  int32_t jobStatus = 0;
  std::string jobMessage;
  std::string folder; ///< temporary, for peers that meet in a file
};

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_DRIVER_H

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

/// What measures see of the teams: the first is Concord's.
class Teams {
public:
  Teams() = default;
  virtual ~Teams() = default;
  Teams(const Teams &) = delete;

  /// Let all end. Throws when Concord's job ended badly.
  virtual void finish() = 0;
  virtual Answer command(size_t team, const Command &command) = 0;
  /// A kSpecial command of Concord's.
  Answer special(uint32_t what, const Call &call,
                 std::initializer_list<uint64_t> arguments);

  const std::vector<Team> &all() const { return teams; }
  /// Bytes of each of a rank's two buffers.
  uint64_t capacity() const { return bufferBytes; }
  /// Names of the hosts and, by rank, which; empty where there is but one.
  const std::vector<std::string> &hosts() const { return names; }
  int hostOf(int rank) const { return hostIndex[size_t(rank)]; }

protected:
  std::vector<Team> teams;
  uint64_t bufferBytes = 0;
  std::vector<std::string> names;
  std::vector<int> hostIndex;
};

/// What a rank's buffers have to hold.
uint64_t bufferBytesFor(const Options &options);

/// Starts all ranks on this host.
class Driver final : public Teams {
public:
  explicit Driver(const Options &options);
  ~Driver() override;

  /// Start Concord and every peer of the options; returns when all ranks are
  /// there.
  void start();
  void finish() override;
  Answer command(size_t team, const Command &command) override;

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
  std::string socketName;
  uint64_t token = 0;
  int listener = -1, flags = -1;
  std::thread job; ///< awaits Concord's ranks
  std::atomic<bool> jobEnded{false};
  int32_t jobStatus = 0;
  std::string jobMessage;
  std::string folder; ///< temporary, for peers that meet in a file
};

} // namespace concord::bench

#endif // CONCORD_TOOLS_COMM_BENCH_DRIVER_H

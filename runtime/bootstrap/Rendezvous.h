//===- Rendezvous.h - Ranks without a common parent meet --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rank 0 makes the job's memory file and listens on a Unix socket whose
// (abstract) name every rank can compute; the others say who they are and get
// the file's descriptor. Nothing of it has a name in a file system, so nothing
// is left behind, nothing stale can be attached, and /dev/shm may be full.
//
// Whoever knows the name can connect. A peer of another user, one that says
// nothing, or something else than a greeting, is dropped and the others are
// served; a greeting that is ours but does not fit is answered with the reason.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_BOOTSTRAP_RENDEZVOUS_H
#define CONCORD_RUNTIME_BOOTSTRAP_RENDEZVOUS_H

#include "bootstrap/JobKey.h"
#include "diagnosis/Log.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace concord::rt {

/// True when a process has ended, a zombie included.
bool processEnded(int64_t pid);

constexpr uint64_t kGreetingMagic = 0x4c4c4548434e4f43; // "CONCHELL"
constexpr uint64_t kAnswerMagic = 0x53574e41434e4f43;   // "CONCANSW"

/// What a rank says first, one packet.
struct Greeting {
  uint64_t magic = kGreetingMagic;
  uint32_t abi = 0, version = 0;
  int32_t world = 0, rank = 0;
  int64_t pid = 0;
  uint8_t key[16] = {};
};

/// What it is answered, one packet; with the descriptor when status is 0.
struct Answer {
  uint64_t magic = kAnswerMagic;
  int32_t status = 0;
  int32_t reserved = 0;
  char text[496] = {};
};

/// How a greeting is taken.
struct Judgement {
  enum class Kind { Stray, Refused, Welcome } kind = Kind::Stray;
  /// Refused: the job cannot come to be, either.
  bool fatal = false;
  int32_t status = 0;
  std::string text;
  Greeting greeting;
};

/// Judge a packet. `pid` is the sender's as the system tells it, `takenBy[r]`
/// the process that is rank r already, 0 for none; one per rank of the world.
Judgement judgeGreeting(const void *packet, size_t bytes, const JobKey &key,
                        int64_t pid, const std::vector<int64_t> &takenBy);

/// Rank 0's side.
class Leader {
public:
  /// Throws RANK_TAKEN when somebody leads this job already.
  Leader(const JobKey &key, int world, int memory, const Log &log);
  ~Leader();
  Leader(const Leader &) = delete;
  Leader &operator=(const Leader &) = delete;
  /// Take what has come and wait up to `milliseconds` for more. Throws when a
  /// rank came that shows that the job cannot come to be.
  void serve(int milliseconds);
  /// The job does not come to be: tell those who have come and wait why.
  void dismiss(int32_t status, const std::string &why);

private:
  struct Guest {
    int fd;
    int64_t deadline;
    int64_t pid;
  };
  void accept();
  bool answer(const Guest &guest, int32_t status, const std::string &text);
  /// False when the guest is done with.
  bool hear(Guest &guest);

  JobKey key;
  int memory;
  const Log &log;
  int listener = -1;
  std::vector<int64_t> takenBy;
  std::vector<Guest> guests;
};

/// Another rank's side: the descriptor of the job's memory file. Throws TIMEOUT
/// after `seconds`, what the leader answers, or what `look` throws, which is
/// called between tries where it is given.
int joinLeader(const JobKey &key, int rank, int world, double seconds,
               const std::function<void()> &look = {});

} // namespace concord::rt

#endif // CONCORD_RUNTIME_BOOTSTRAP_RENDEZVOUS_H

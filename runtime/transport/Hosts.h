//===- Hosts.h - A job on several hosts -------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which rank is on which host, the transport module and the mesh. Present in a
// context only when its job was started on several hosts. The ranks of a host
// share one memory file, as in a job of one host; the slots of the others in it
// are a mirror, which the host's first rank fills at bring-up and the watchdogs
// keep (dead, finalized).
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_TRANSPORT_HOSTS_H
#define CONCORD_RUNTIME_TRANSPORT_HOSTS_H

#include "bootstrap/Launcher.h"
#include "context/Context.h"
#include "transport/Mesh.h"
#include "transport/Transport.h"

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace concord::rt {

class Hosts {
public:
  /// Load the module that fits the launcher, join its ranks and learn who is
  /// where. Throws NOT_FOUND, NOT_SUPPORTED, MISMATCH or TIMEOUT.
  Hosts(const Context &context, const LaunchedRank &launched, double seconds);
  ~Hosts();

  /// Ranks of this host, ascending.
  const std::vector<int> &localRanks() const { return local; }
  uint64_t localMask() const { return here; }
  uint64_t remoteMask() const { return everywhere & ~here; }
  bool isLocal(int rank) const { return here >> rank & 1; }
  const std::string &nameOf(int rank) const {
    return names[size_t(hostOf[size_t(rank)])];
  }
  /// Ranks under this rank's kernel, be they on other "hosts".
  int ranksOfMachine() const { return onMachine; }
  int numHosts() const { return int(names.size()); }
  int hostIndex(int rank) const { return hostOf[size_t(rank)]; }
  const std::string &library() const { return words; }
  /// By this name the ranks of this host meet; the same text at all of them.
  std::string meetingName() const;

  /// All of this host have joined: tell the others, learn of theirs and mirror
  /// them. Then connect the mesh.
  void mirror(Context &context, double seconds);

  const concord_transport &transport() const { return *module; }
  Mesh &mesh() { return *net; }
  /// The next tag of this rank's, or 0 when there is none left.
  uint32_t takeTag() {
    if (nextTag + kTagsPerComm > highestTag)
      return 0;
    return std::exchange(nextTag, nextTag + kTagsPerComm);
  }

  /// Whether a rank of another host has finalized long enough ago that what it
  /// sent before must have arrived: that comes another way than its goodbye.
  bool hasLeft(int rank) const {
    int64_t when = goodbyes[size_t(rank)].load(std::memory_order_acquire);
    return when != 0 && nowNanoseconds() - when > kLastWords;
  }
  /// What the watchdog's thread has heard; see Notice.
  void note(Context &context, const Notice &notice);
  /// A peer's tag for a communicator, 0 when it has not said it yet.
  uint32_t peerTag(uint64_t key, int rank);
  /// A communicator is in the table now: what was heard of it before.
  void carryOver(uint64_t key, CommHeader &header);
  void forget(uint64_t key);

  /// Something was given up: this memory must stay mapped as long as the
  /// process lives, as the module may still use it.
  void keep(const std::shared_ptr<Segment> &segment) {
    if (!kept)
      kept = new std::shared_ptr<Segment>(segment);
  }
  /// From now on nothing is called that waits for others.
  void disorderly() { orderly = false; }

  static constexpr uint32_t kTagsPerComm = 2; ///< collectives, messages

private:
  static constexpr int64_t kLastWords = 2'000'000'000;
  void await(concord_transport_request &request, const char *what,
             int64_t deadline);

  const concord_transport *module = nullptr;
  std::string words;
  std::string job;
  int rank, world;
  std::vector<int> hostOf;
  std::vector<std::string> names;
  std::string identity;
  std::vector<int> local;
  uint64_t here = 0, everywhere = 0;
  int onMachine = 0;
  std::vector<MeshAddress> addresses;
  std::unique_ptr<Mesh> net;
  bool orderly = true;
  std::shared_ptr<Segment> *kept = nullptr; ///< never released
  uint32_t nextTag = 1, highestTag = 0;

  std::array<std::atomic<int64_t>, kMaxRanks> goodbyes{};
  std::mutex mutex; ///< of what both threads touch
  struct Heard {
    std::vector<std::pair<int, uint32_t>> tags; ///< rank, tag
    uint64_t broken = 0;                        ///< as CommHeader::broken
    bool revoked = false;
  };
  std::unordered_map<uint64_t, Heard> heard;
};

/// What a host is: CONCORD_HOST_ID, or host name, boot and the namespaces that
/// shared memory and the watchdog need in common.
std::string hostIdentity();
/// Its name for people.
std::string hostName();

} // namespace concord::rt

#endif // CONCORD_RUNTIME_TRANSPORT_HOSTS_H

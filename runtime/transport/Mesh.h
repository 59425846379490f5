//===- Mesh.h - Connections between the ranks of hosts ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A TCP connection between every two ranks of different hosts, for what is not
// data: a rank's end (the system closes its sockets, however it dies), a host
// that does not answer any more (the system's keep-alive), and that a
// communicator is broken or revoked, or the job aborted. The watchdog's thread
// listens, so all this works while the rank computes, and with any transport.
//
// Packets have one size. Who connects shows the secret that the other side has
// told all ranks at bring-up, and is dropped otherwise.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_TRANSPORT_MESH_H
#define CONCORD_RUNTIME_TRANSPORT_MESH_H

#include "diagnosis/Log.h"

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace concord::rt {

constexpr uint64_t kNoticeMagic = 0x4853454d434e4f43; // "CONCMESH"

/// One packet.
struct Notice {
  enum class Kind : uint32_t {
    Hello = 1, ///< the connecting side: `secret`
    Welcome,   ///< the answer
    Tag,       ///< `key` is a communicator, `value` the sender's tag for it
    Broken,    ///< communicator `key`: `status`, by group rank `value`, `died`,
               ///< in its operation `sequence`
    Revoked,   ///< communicator `key`
    Aborted,   ///< the job: `text`
    Issuer,    ///< of program `value`: thread `status`, 0 has left
    Goodbye,   ///< the sender has finalized
  };
  uint64_t magic = kNoticeMagic;
  Kind kind = Kind::Hello;
  int32_t rank = 0; ///< world rank of the sender
  uint64_t key = 0;
  int32_t status = 0;
  uint32_t value = 0;
  uint64_t dead = 0; ///< ranks that the sender has seen dead
  uint8_t secret[16] = {};
  int32_t died = -1; ///< the rank whose death broke the communicator
  uint32_t sequence = 0;
  char text[192] = {};
};
static_assert(sizeof(Notice) == 256);

/// Where a rank listens; part of what all ranks tell each other at bring-up.
struct MeshAddress {
  static constexpr int kMost = 8;
  struct One {
    uint32_t family; ///< AF_INET, AF_INET6 or 0
    uint8_t bytes[16];
  } list[kMost] = {};
  uint32_t port = 0; ///< in the host's byte order
  uint32_t scope = 0;
  uint8_t secret[16] = {};
};

class Mesh {
public:
  /// Listen. `interfaces`: CONCORD_IFNAME. Throws Error.
  Mesh(int rank, int world, const std::string &interfaces, const Log &log);
  ~Mesh();
  Mesh(const Mesh &) = delete;
  Mesh &operator=(const Mesh &) = delete;

  const MeshAddress &address() const { return own; }
  /// Connect with the ranks of `remote` (a mask): the higher rank calls the
  /// lower one. Throws TIMEOUT naming those that cannot be reached before
  /// `deadline` (nowNanoseconds), or what `look` throws meanwhile.
  void connect(uint64_t remote, const std::vector<MeshAddress> &all,
               int64_t deadline, double hostTimeout,
               const std::function<void()> &look);

  /// The connection to a rank, -1 for none; for the watchdog's epoll.
  int socketOf(int rank) const { return peers[size_t(rank)].fd; }
  /// Take what has come from a rank; `each` gets the packets. False when the
  /// connection has ended, with the system's reason in `error` (0: closed).
  bool receive(int rank, int &error,
               const std::function<void(const Notice &)> &each);
  /// Tell the ranks of a mask, as far as they are connected. Any thread. Waits
  /// at most two seconds for a peer that takes nothing any more.
  void tell(uint64_t ranks, Notice notice);

private:
  struct Peer {
    int fd = -1;
    size_t filled = 0;
    unsigned char buffer[sizeof(Notice)];
  };
  int tryConnect(int rank, const MeshAddress &address, int64_t deadline);
  /// A stranger's or a peer's first packet. True when it was a peer of `wanted`
  /// that is connected now.
  bool welcome(int fd, uint64_t &wanted);
  void tune(int fd, double hostTimeout);

  int rank, world;
  const Log &log;
  MeshAddress own;
  int listener = -1;
  std::vector<Peer> peers;
  std::mutex sending;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_TRANSPORT_MESH_H

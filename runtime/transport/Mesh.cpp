//===- Mesh.cpp - Connections between the ranks of hosts ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A listening socket takes connections without anybody's help, so every rank
// first calls the lower ones and then takes the calls of the higher ones, and
// none waits for another that waits for it. Which of a host's addresses leads
// to it is found out by trying: an address may be a bridge that every host has,
// so only a peer that answers counts.
//
//===----------------------------------------------------------------------===//

#include "transport/Mesh.h"
#include "context/Env.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace concord::rt;

/// How long one address is tried, and a stranger may take to say hello.
static constexpr int64_t kTry = 2'000'000'000;
/// How long a peer may take to answer: it may be calling others still.
static constexpr int64_t kAnswer = 10'000'000'000;

static bool wantedInterface(const std::string &list, const char *name) {
  if (list.empty())
    return true;
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(',', at), list.size());
    std::string each = list.substr(at, end - at);
    if (!each.empty() && std::string(name).starts_with(each))
      return true;
    at = end + 1;
  }
  return false;
}

Mesh::Mesh(int rank, int world, const std::string &interfaces, const Log &log)
    : rank(rank), world(world), log(log), peers(size_t(world)) {
  if (::getrandom(own.secret, sizeof own.secret, 0) !=
      ssize_t(sizeof own.secret))
    raiseErrno("no random numbers for the connections between hosts");
  // Both families on one socket; without IPv6 in the kernel, the older one.
  listener = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in6 six{};
  sockaddr_in four{};
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  int off = 0;
  bool bound =
      listener >= 0 &&
      ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) ==
          0 &&
      ::bind(listener, reinterpret_cast<sockaddr *>(&six), sizeof six) == 0;
  if (!bound) {
    if (listener >= 0)
      ::close(listener);
    listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bound =
        listener >= 0 &&
        ::bind(listener, reinterpret_cast<sockaddr *>(&four), sizeof four) == 0;
  }
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (!bound || ::listen(listener, 256) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr *>(&name), &length) !=
          0) {
    int number = errno;
    if (listener >= 0)
      ::close(listener);
    errno = number;
    raiseErrno("rank %d cannot listen for the ranks of other hosts", rank);
  }
  // Both families have the port at the same place.
  own.port = ntohs(reinterpret_cast<sockaddr_in *>(&name)->sin_port);

  ifaddrs *all = nullptr;
  ::getifaddrs(&all);
  int count = 0;
  // The loopback device last: it leads to a peer only where "hosts" are parts
  // of one machine.
  for (bool loopback : {false, true})
    for (ifaddrs *each = all; each; each = each->ifa_next) {
      if (!each->ifa_addr || !(each->ifa_flags & IFF_UP) ||
          bool(each->ifa_flags & IFF_LOOPBACK) != loopback ||
          (!loopback && !wantedInterface(interfaces, each->ifa_name)) ||
          count == MeshAddress::kMost)
        continue;
      MeshAddress::One &one = own.list[count];
      if (each->ifa_addr->sa_family == AF_INET) {
        one.family = AF_INET;
        std::memcpy(one.bytes,
                    &reinterpret_cast<sockaddr_in *>(each->ifa_addr)->sin_addr,
                    4);
      } else if (each->ifa_addr->sa_family == AF_INET6) {
        const auto *address = reinterpret_cast<sockaddr_in6 *>(each->ifa_addr);
        // Link-local ones need the other side's interface, too.
        if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr))
          continue;
        one.family = AF_INET6;
        std::memcpy(one.bytes, &address->sin6_addr, 16);
      } else {
        continue;
      }
      ++count;
    }
  ::freeifaddrs(all);
  if (count == 0) {
    ::close(listener);
    raise(
        CONCORD_ERROR_NOT_FOUND,
        "rank %d has no network interface%s%s with an address: ranks of other "
        "hosts cannot reach it",
        rank,
        interfaces.empty() ? "" : " of CONCORD_IFNAME=", interfaces.c_str());
  }
}

Mesh::~Mesh() {
  for (Peer &peer : peers)
    if (peer.fd >= 0)
      ::close(peer.fd);
  if (listener >= 0)
    ::close(listener);
}

/// Everything or nothing before the deadline, on a nonblocking socket.
static bool transfer(int fd, void *data, size_t bytes, bool out,
                     int64_t deadline) {
  for (size_t at = 0; at < bytes;) {
    char *from = static_cast<char *>(data) + at;
    ssize_t n = out ? ::send(fd, from, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                    : ::recv(fd, from, bytes - at, MSG_DONTWAIT);
    if (n > 0) {
      at += size_t(n);
      continue;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
      return false;
    int64_t left = deadline - nowNanoseconds();
    if (left <= 0)
      return false;
    pollfd wait{fd, short(out ? POLLOUT : POLLIN), 0};
    ::poll(&wait, 1, int(std::min<int64_t>(left / 1'000'000 + 1, 1000)));
  }
  return true;
}

int Mesh::tryConnect(int peer, const MeshAddress &address, int64_t deadline) {
  for (const MeshAddress::One &one : address.list) {
    sockaddr_in four{};
    sockaddr_in6 six{};
    sockaddr *to;
    socklen_t length;
    if (one.family == AF_INET) {
      four.sin_family = AF_INET;
      four.sin_port = htons(uint16_t(address.port));
      std::memcpy(&four.sin_addr, one.bytes, 4);
      to = reinterpret_cast<sockaddr *>(&four);
      length = sizeof four;
    } else if (one.family == AF_INET6) {
      six.sin6_family = AF_INET6;
      six.sin6_port = htons(uint16_t(address.port));
      std::memcpy(&six.sin6_addr, one.bytes, 16);
      to = reinterpret_cast<sockaddr *>(&six);
      length = sizeof six;
    } else {
      continue;
    }
    int fd = ::socket(int(one.family),
                      SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
      continue;
    int64_t until = std::min(deadline, nowNanoseconds() + kTry);
    bool good = ::connect(fd, to, length) == 0 || errno == EINPROGRESS;
    Notice hello, answer;
    hello.rank = rank;
    hello.value = uint32_t(peer);
    std::memcpy(hello.secret, address.secret, sizeof hello.secret);
    pollfd wait{fd, POLLOUT, 0};
    int problem = 0;
    socklen_t size = sizeof problem;
    good = good &&
           ::poll(&wait, 1, int((until - nowNanoseconds()) / 1'000'000) + 1) ==
               1 &&
           ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &problem, &size) == 0 &&
           problem == 0 && transfer(fd, &hello, sizeof hello, true, until);
    good = good &&
           transfer(fd, &answer, sizeof answer, false,
                    std::min(deadline, nowNanoseconds() + kAnswer)) &&
           answer.magic == kNoticeMagic &&
           answer.kind == Notice::Kind::Welcome && answer.rank == peer;
    // Only with this does the peer count the connection: one that was given up
    // in the meantime must not look like one that has ended.
    hello.kind = Notice::Kind::Welcome;
    if (good && transfer(fd, &hello, sizeof hello, true, until + kTry))
      return fd;
    ::close(fd);
  }
  return -1;
}

bool Mesh::welcome(int fd, uint64_t &wanted) {
  Notice hello;
  if (!transfer(fd, &hello, sizeof hello, false, nowNanoseconds() + kTry) ||
      hello.magic != kNoticeMagic || hello.kind != Notice::Kind::Hello ||
      std::memcmp(hello.secret, own.secret, sizeof own.secret) != 0 ||
      hello.rank < 0 || hello.rank >= world || int(hello.value) != rank ||
      !(wanted >> hello.rank & 1)) {
    log.write(LogLevel::Warn,
              "bring-up: a connection that showed no valid secret was dropped");
    return false;
  }
  Notice answer, last;
  answer.kind = Notice::Kind::Welcome;
  answer.rank = rank;
  if (!transfer(fd, &answer, sizeof answer, true, nowNanoseconds() + kTry) ||
      !transfer(fd, &last, sizeof last, false, nowNanoseconds() + kTry) ||
      last.kind != Notice::Kind::Welcome || last.rank != hello.rank)
    return false;
  peers[size_t(hello.rank)].fd = fd;
  wanted &= ~(uint64_t(1) << hello.rank);
  return true;
}

void Mesh::tune(int fd, double hostTimeout) {
  int on = 1;
  int idle = std::max(int(hostTimeout / 3), 1);
  int interval = std::max(int(hostTimeout / 6), 1), probes = 4;
  unsigned unanswered = unsigned(hostTimeout * 1000);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered,
               sizeof unanswered);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void Mesh::connect(uint64_t remote, const std::vector<MeshAddress> &all,
                   int64_t deadline, double hostTimeout,
                   const std::function<void()> &look) {
  uint64_t calls = remote & ((uint64_t(1) << rank) - 1);
  for (int peer = 0; peer < rank; ++peer) {
    if (!(calls >> peer & 1))
      continue;
    for (;;) {
      look();
      peers[size_t(peer)].fd = tryConnect(peer, all[size_t(peer)], deadline);
      if (peers[size_t(peer)].fd >= 0)
        break;
      if (nowNanoseconds() > deadline) {
        std::string tried;
        char text[INET6_ADDRSTRLEN];
        for (const MeshAddress::One &one : all[size_t(peer)].list)
          if (one.family &&
              ::inet_ntop(int(one.family), one.bytes, text, sizeof text))
            tried += (tried.empty() ? "" : ", ") + std::string(text);
        raise(CONCORD_ERROR_TIMEOUT,
              "rank %d cannot connect to rank %d at port %u of %s: is a "
              "firewall between the hosts, or does CONCORD_IFNAME name the "
              "wrong interface?",
              rank, peer, all[size_t(peer)].port, tried.c_str());
      }
      ::usleep(20'000);
    }
  }
  uint64_t awaited = remote & ~calls;
  while (awaited) {
    look();
    pollfd wait{listener, POLLIN, 0};
    ::poll(&wait, 1, 20);
    int fd =
        ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 && !welcome(fd, awaited))
      ::close(fd);
    if (fd < 0 && awaited && nowNanoseconds() > deadline) {
      std::string missing;
      for (int peer = 0; peer < world; ++peer)
        if (awaited >> peer & 1)
          missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
      raise(CONCORD_ERROR_TIMEOUT,
            "rank %d waited for the connections of rank(s) %s of other hosts "
            "(CONCORD_CONNECT_TIMEOUT)",
            rank, missing.c_str());
    }
  }
  for (Peer &peer : peers)
    if (peer.fd >= 0)
      tune(peer.fd, hostTimeout);
}

bool Mesh::receive(int from, int &error,
                   const std::function<void(const Notice &)> &each) {
  Peer &peer = peers[size_t(from)];
  for (;;) {
    ssize_t n = ::recv(peer.fd, peer.buffer + peer.filled,
                       sizeof peer.buffer - peer.filled, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0 && errno == EAGAIN)
      return true;
    if (n <= 0) {
      error = n < 0 ? errno : 0;
      return false;
    }
    peer.filled += size_t(n);
    if (peer.filled < sizeof(Notice))
      continue;
    peer.filled = 0;
    Notice notice;
    std::memcpy(&notice, peer.buffer, sizeof notice);
    notice.text[sizeof notice.text - 1] = 0;
    // A peer that is not one of ours any more: better no connection.
    if (notice.magic != kNoticeMagic || notice.rank != from) {
      error = EPROTO;
      return false;
    }
    each(notice);
  }
}

void Mesh::tell(uint64_t ranks, Notice notice) {
  notice.rank = rank;
  std::lock_guard lock(sending);
  for (int peer = 0; peer < world; ++peer)
    if (ranks >> peer & 1 && peers[size_t(peer)].fd >= 0)
      transfer(peers[size_t(peer)].fd, &notice, sizeof notice, true,
               nowNanoseconds() + kTry);
}

//===- Rendezvous.cpp - Ranks without a common parent meet ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Packets of fixed size over SOCK_SEQPACKET: one arrives whole or not at all,
// so there are no lengths to believe and no halves to wait for.
//
//===----------------------------------------------------------------------===//

#include "bootstrap/Rendezvous.h"
#include "context/Env.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"
#include "plan/Sha256.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <span>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

using namespace concord::rt;

static constexpr int64_t kGreetingDeadline = 2'000'000'000;
static constexpr size_t kMaxGuests = 128;

bool concord::rt::processEnded(int64_t pid) {
  int fd = int(::syscall(SYS_pidfd_open, pid_t(pid), 0));
  if (fd < 0)
    return errno == ESRCH;
  pollfd end{fd, POLLIN, 0};
  bool ended = ::poll(&end, 1, 0) == 1;
  ::close(fd);
  return ended;
}

JobKey JobKey::of(const concord_unique_id &id) {
  JobKey key;
  bool zero = true;
  for (size_t i = 24; i < sizeof id.bytes; ++i)
    zero &= id.bytes[i] == 0;
  if (std::memcmp(id.bytes, "concord1", 8) != 0 || !zero)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "the unique id is not one that concord_unique_id_create made, or was "
          "cut short on its way");
  std::memcpy(key.bytes, id.bytes + 8, sizeof key.bytes);
  return key;
}

JobKey JobKey::of(const std::string &text) {
  JobKey key;
  plan::Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  plan::Digest digest = hash.finish();
  std::memcpy(key.bytes, digest.data(), sizeof key.bytes);
  return key;
}

std::string JobKey::hex() const {
  std::string text;
  for (uint8_t byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

/// The socket's address; its length goes to `length`.
static sockaddr_un addressOf(const JobKey &key, socklen_t &length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = "concord/" + std::to_string(::geteuid()) + "/" + key.hex();
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  length = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

/// Who is at the other end. False when it is not this user.
static bool ownPeer(int fd, int64_t &pid) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return false;
  pid = credentials.pid;
  return credentials.uid == ::geteuid();
}

Judgement concord::rt::judgeGreeting(const void *packet, size_t bytes,
                                     const JobKey &key, int64_t pid,
                                     const std::vector<int64_t> &takenBy) {
  Judgement judgement;
  Greeting &greeting = judgement.greeting;
  // The two fields that every version has come first.
  if (bytes < offsetof(Greeting, version))
    return judgement;
  std::memcpy(&greeting, packet, std::min(bytes, sizeof greeting));
  if (greeting.magic != kGreetingMagic)
    return judgement;
  auto refuse = [&](int32_t status, bool fatal, std::string text) {
    judgement.kind = Judgement::Kind::Refused;
    judgement.status = status;
    judgement.fatal = fatal;
    judgement.text = std::move(text);
    return judgement;
  };
  const int world = int(takenBy.size());
  std::string who = "process " + std::to_string(pid);
  if (greeting.abi != CONCORD_ABI_VERSION)
    return refuse(CONCORD_ERROR_VERSION_MISMATCH, true,
                  who + " has ABI version " + std::to_string(greeting.abi) +
                      ", rank 0 has " + std::to_string(CONCORD_ABI_VERSION));
  if (bytes != sizeof greeting ||
      std::memcmp(greeting.key, key.bytes, sizeof key.bytes) != 0) {
    judgement.kind = Judgement::Kind::Stray;
    return judgement;
  }
  if (greeting.version != kLibraryVersion)
    return refuse(
        CONCORD_ERROR_VERSION_MISMATCH, true,
        who + " has version number " + std::to_string(greeting.version) +
            " of Concord, rank 0 has " + std::to_string(kLibraryVersion));
  if (greeting.world != world)
    return refuse(CONCORD_ERROR_WRONG_WORLD, true,
                  "rank " + std::to_string(greeting.rank) + " (" + who +
                      ") wants a job of " + std::to_string(greeting.world) +
                      " ranks, rank 0 one of " + std::to_string(world));
  if (greeting.rank < 1 || greeting.rank >= world)
    return refuse(greeting.rank == 0 ? CONCORD_ERROR_RANK_TAKEN
                                     : CONCORD_ERROR_INVALID_ARGUMENT,
                  false,
                  greeting.rank == 0
                      ? "rank 0 is already taken by process " +
                            std::to_string(takenBy[0])
                      : "rank " + std::to_string(greeting.rank) +
                            " is outside a world of " + std::to_string(world));
  if (greeting.pid != pid)
    return refuse(CONCORD_ERROR_NOT_SUPPORTED, true,
                  "ranks 0 and " + std::to_string(greeting.rank) +
                      " are in different pid namespaces, so they cannot see "
                      "each other die: run the containers with a shared one "
                      "(--pid=host or --pid=container:NAME)");
  if (int64_t holder = takenBy[size_t(greeting.rank)])
    return refuse(CONCORD_ERROR_RANK_TAKEN, false,
                  "rank " + std::to_string(greeting.rank) +
                      " is already taken by process " + std::to_string(holder) +
                      "; this one is " + std::to_string(pid));
  judgement.kind = Judgement::Kind::Welcome;
  return judgement;
}

Leader::Leader(const JobKey &key, int world, int memory, const Log &log)
    : key(key), memory(memory), log(log), takenBy(size_t(world)) {
  takenBy[0] = ::getpid();
  listener =
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0)
    raiseErrno("rank 0 cannot make the socket where ranks meet");
  socklen_t length;
  sockaddr_un address = addressOf(key, length);
  if (::bind(listener, reinterpret_cast<sockaddr *>(&address), length) != 0 ||
      ::listen(listener, 128) != 0) {
    int number = errno;
    ::close(listener);
    listener = -1;
    errno = number;
    if (number != EADDRINUSE)
      raiseErrno("rank 0 cannot listen where ranks meet");
    // Name the holder: the system knows who listens.
    int64_t holder = 0;
    int probe = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (probe >= 0 &&
        ::connect(probe, reinterpret_cast<sockaddr *>(&address), length) == 0)
      ownPeer(probe, holder);
    if (probe >= 0)
      ::close(probe);
    raise(CONCORD_ERROR_RANK_TAKEN,
          "rank 0 is already taken by process %lld; this one is %lld",
          (long long)holder, (long long)::getpid());
  }
}

Leader::~Leader() {
  for (Guest &guest : guests)
    ::close(guest.fd);
  if (listener >= 0)
    ::close(listener);
}

void Leader::accept() {
  for (;;) {
    int fd =
        ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
          errno == ENOBUFS)
        raiseErrno("rank 0 cannot take the ranks that come");
      if (errno == EINTR || errno == ECONNABORTED)
        continue;
      return;
    }
    Guest guest{fd, nowNanoseconds() + kGreetingDeadline, 0};
    if (!ownPeer(fd, guest.pid)) {
      log.write(
          LogLevel::Warn,
          "bring-up: a process of another user (pid %lld) was turned away",
          (long long)guest.pid);
      ::close(fd);
      continue;
    }
    // The oldest silent one makes room.
    if (guests.size() == kMaxGuests) {
      ::close(guests.front().fd);
      guests.erase(guests.begin());
    }
    guests.push_back(guest);
  }
}

/// One packet, with the memory's descriptor when the status is OK. False when
/// it could not be sent.
bool Leader::answer(const Guest &guest, int32_t status,
                    const std::string &text) {
  Answer answer;
  answer.status = status;
  std::snprintf(answer.text, sizeof answer.text, "%s", text.c_str());
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (status == CONCORD_OK) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof(int));
  }
  return ::sendmsg(guest.fd, &message, MSG_NOSIGNAL) == sizeof answer;
}

bool Leader::hear(Guest &guest) {
  char packet[4096];
  ssize_t n = ::recv(guest.fd, packet, sizeof packet, MSG_DONTWAIT | MSG_TRUNC);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return nowNanoseconds() < guest.deadline;
  if (n <= 0)
    return false;
  Judgement judgement = judgeGreeting(
      packet, std::min(size_t(n), sizeof packet), key, guest.pid, takenBy);
  if (judgement.kind == Judgement::Kind::Stray || size_t(n) > sizeof packet) {
    log.write(LogLevel::Warn,
              "bring-up: process %lld sent something that is no greeting and "
              "was turned away",
              (long long)guest.pid);
    return false;
  }
  bool sent = answer(guest, judgement.status, judgement.text);
  if (judgement.kind == Judgement::Kind::Welcome) {
    if (sent)
      takenBy[size_t(judgement.greeting.rank)] = guest.pid;
    return false;
  }
  log.write(LogLevel::Warn, "bring-up: %s", judgement.text.c_str());
  if (judgement.fatal)
    raise(judgement.status, "%s", judgement.text.c_str());
  return false;
}

void Leader::dismiss(int32_t status, const std::string &why) {
  accept();
  for (const Guest &guest : guests) {
    // What is left unread when a socket closes takes the answer with it.
    char greeting[4096];
    [[maybe_unused]] ssize_t n =
        ::recv(guest.fd, greeting, sizeof greeting, MSG_DONTWAIT);
    answer(guest, status, why);
  }
}

void Leader::serve(int milliseconds) {
  // One that was let in and died before it took its rank leaves no other trace.
  for (size_t rank = 1; rank < takenBy.size(); ++rank)
    if (takenBy[rank] && processEnded(takenBy[rank]))
      raise(CONCORD_ERROR_PEER_DIED,
            "rank %zu (process %lld) died before all ranks had joined the job",
            rank, (long long)takenBy[rank]);
  accept();
  std::vector<pollfd> set = {{listener, POLLIN, 0}};
  for (const Guest &guest : guests)
    set.push_back({guest.fd, POLLIN, 0});
  ::poll(set.data(), set.size(), milliseconds);
  accept();
  for (size_t i = 0; i < guests.size();) {
    bool keep = hear(guests[i]);
    if (keep) {
      ++i;
      continue;
    }
    ::close(guests[i].fd);
    guests.erase(guests.begin() + ptrdiff_t(i));
  }
}

namespace {
struct Socket {
  int fd;
  ~Socket() {
    if (fd >= 0)
      ::close(fd);
  }
};
} // namespace

/// One try. A descriptor, or -1 when nobody, or nobody useful, is there yet.
static int tryJoin(const JobKey &key, int rank, int world, int64_t deadline) {
  Socket socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (socket.fd < 0)
    raiseErrno("rank %d cannot make the socket where ranks meet", rank);
  socklen_t length;
  sockaddr_un address = addressOf(key, length);
  int64_t other;
  if (::connect(socket.fd, reinterpret_cast<sockaddr *>(&address), length) !=
          0 ||
      !ownPeer(socket.fd, other))
    return -1;
  Greeting greeting;
  greeting.abi = CONCORD_ABI_VERSION;
  greeting.version = kLibraryVersion;
  greeting.world = world;
  greeting.rank = rank;
  greeting.pid = ::getpid();
  std::memcpy(greeting.key, key.bytes, sizeof greeting.key);
  if (::send(socket.fd, &greeting, sizeof greeting, MSG_NOSIGNAL) !=
      sizeof greeting)
    return -1;
  int left =
      int(std::max<int64_t>((deadline - nowNanoseconds()) / 1'000'000, 1));
  pollfd wait{socket.fd, POLLIN, 0};
  if (::poll(&wait, 1, left) != 1)
    return -1;
  Answer answer;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = ::recvmsg(socket.fd, &message, MSG_CMSG_CLOEXEC);
  int memory = -1;
  for (cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header;
       header = CMSG_NXTHDR(&message, header))
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
      std::memcpy(&memory, CMSG_DATA(header), sizeof(int));
  Socket owned{memory};
  if (n != sizeof answer || answer.magic != kAnswerMagic)
    return -1;
  answer.text[sizeof answer.text - 1] = 0;
  if (answer.status != CONCORD_OK)
    raise(answer.status, "rank 0 refused this process as rank %d: %s", rank,
          answer.text);
  if (memory < 0) {
    // Without room for a descriptor the system drops it.
    errno = EMFILE;
    raiseErrno("rank %d was not given the job's memory file", rank);
  }
  owned.fd = -1;
  return memory;
}

int concord::rt::joinLeader(const JobKey &key, int rank, int world,
                            double seconds, const std::function<void()> &look) {
  int64_t deadline = nowNanoseconds() + int64_t(seconds * 1e9);
  useconds_t pause = 200;
  for (;;) {
    int memory = tryJoin(key, rank, world, deadline);
    if (memory >= 0)
      return memory;
    if (look)
      look();
    if (nowNanoseconds() > deadline)
      raise(CONCORD_ERROR_TIMEOUT,
            "rank %d looked for rank 0 of job %.8s for %.1f s "
            "(CONCORD_CONNECT_TIMEOUT): it has not started, its job is already "
            "complete or over (a stale id), or it is in another network "
            "namespace",
            rank, key.hex().c_str(), seconds);
    ::usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 20'000);
  }
}

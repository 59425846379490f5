//===- Watchdog.cpp - Seeing peers die ------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// pidfds in epoll. A pid alone could by now belong to another process, so the
// start time that the rank published is compared after the pidfd was opened.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Watchdog.h"
#include "diagnosis/Error.h"
#include "diagnosis/Hang.h"
#include "diagnosis/Stacks.h"
#include "transport/Hosts.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace concord::rt;

/// Read the stat of a process's first thread from its third field on (after the
/// command's name, which may contain anything). Null terminated; false if there
/// is no such process. Not /proc/PID/stat: qemu-user answers it with a start
/// time of its own, but only to the process itself.
static bool readStat(int64_t pid, char *text, size_t bytes) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%lld/task/%lld/stat", (long long)pid,
                (long long)pid);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  char buffer[1024];
  ssize_t n = ::read(fd, buffer, sizeof buffer - 1);
  ::close(fd);
  if (n <= 0)
    return false;
  buffer[n] = 0;
  const char *end = std::strrchr(buffer, ')');
  if (!end || end[1] != ' ')
    return false;
  std::snprintf(text, bytes, "%s", end + 2);
  return true;
}

uint64_t concord::rt::processStartTime(int64_t pid) {
  char text[1024];
  if (!readStat(pid, text, sizeof text))
    return 0;
  const char *at = text;
  for (int field = 3; field < 22; ++field) {
    at = std::strchr(at, ' ');
    if (!at)
      return 0;
    ++at;
  }
  return std::strtoull(at, nullptr, 10);
}

uint64_t concord::rt::ownPidNamespace() {
  struct stat info;
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

bool concord::rt::stoppedProcess(const RankSlot &slot) {
  char text[1024];
  return readStat(slot.pid.load(), text, sizeof text) &&
         (text[0] == 'T' || text[0] == 't');
}

Watchdog::Watchdog(Context &context)
    : context(context), pidfds(context.world, -1) {
  poll = ::epoll_create1(EPOLL_CLOEXEC);
  if (poll < 0)
    raiseErrno("cannot create the watchdog's epoll");
  wake = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = ~0u;
  if (wake < 0 || ::epoll_ctl(poll, EPOLL_CTL_ADD, wake, &event) != 0)
    raiseErrno("cannot create the watchdog's eventfd");
}

Watchdog::~Watchdog() {
  if (listens)
    ignoreSignal(wake);
  if (thread.joinable()) {
    uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(wake, &one, sizeof one);
    thread.join();
  }
  for (int fd : pidfds)
    if (fd >= 0)
      ::close(fd);
  ::close(wake);
  ::close(poll);
}

void Watchdog::markDead(int rank) {
  RankSlot &slot = context.segment->slot(rank);
  uint32_t state = slot.state.load(std::memory_order_acquire);
  if (state == CONCORD_RANK_FINALIZED || state == CONCORD_RANK_ABORTED) {
    context.segment->announce();
    return;
  }
  uint64_t none = 0;
  context.segment->header().firstDead.compare_exchange_strong(
      none, uint64_t(rank) + 1);
  slot.state.store(CONCORD_RANK_DEAD, std::memory_order_release);
  context.dead.fetch_or(uint64_t(1) << rank, std::memory_order_release);
  // Ranks end because of an abort, too.
  const JobHeader &header = context.segment->header();
  int32_t ok = CONCORD_OK;
  context.asyncStatus.compare_exchange_strong(
      ok, header.aborted.load() && !header.deadBeforeAbort.load()
              ? CONCORD_ERROR_ABORTED
              : CONCORD_ERROR_PEER_DIED);
  context.segment->announce();
}

void Watchdog::watch(int rank) {
  RankSlot &slot = context.segment->slot(rank);
  if (context.hosts && !context.hosts->isLocal(rank)) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u32 = uint32_t(rank);
    if (::epoll_ctl(poll, EPOLL_CTL_ADD, context.hosts->mesh().socketOf(rank),
                    &event) != 0)
      raiseErrno("cannot watch rank %d of host %s", rank,
                 context.hosts->nameOf(rank).c_str());
    ++watched;
    return;
  }
  int64_t pid = slot.pid.load(std::memory_order_acquire);
  if (pid == ::getpid())
    return;
  int fd = int(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0 && errno != ESRCH)
    raiseErrno("cannot watch rank %d (pid %lld)", rank, (long long)pid);
  if (fd >= 0 && processStartTime(pid) != slot.startTime) {
    ::close(fd); // the pid has been given to another process
    fd = -1;
  }
  if (fd < 0) {
    markDead(rank);
    return;
  }
  pidfds[rank] = fd;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = uint32_t(rank);
  if (::epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) != 0)
    raiseErrno("cannot watch rank %d (pid %lld)", rank, (long long)pid);
  ++watched;
}

/// Something has come from a rank of another host, or its connection has ended.
void Watchdog::hear(int rank) {
  Hosts &hosts = *context.hosts;
  int error = 0;
  bool open = hosts.mesh().receive(rank, error, [&](const Notice &notice) {
    // What broke the communicator there is known here at the same time, so that
    // the survivors of all hosts see the same ranks dead.
    for (int r = 0; r < context.world; ++r)
      if (notice.dead >> r & 1 && r != context.rank)
        markDead(r);
    hosts.note(context, notice);
  });
  if (open)
    return;
  ::epoll_ctl(poll, EPOLL_CTL_DEL, hosts.mesh().socketOf(rank), nullptr);
  uint32_t state = context.segment->slot(rank).state.load();
  if (state != CONCORD_RANK_FINALIZED && state != CONCORD_RANK_ABORTED)
    context.log.write(LogLevel::Warn,
                      "the connection to rank %d on host %s has ended: %s",
                      rank, hosts.nameOf(rank).c_str(),
                      error ? std::strerror(error) : "its process is no more");
  markDead(rank);
}

void Watchdog::start() {
  listens = listenToSignal(wake);
  // The application's signals are not this thread's business.
  sigset_t all, old;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &old);
  thread = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Watchdog::lookForDead() {
  for (int rank = 0; rank < context.world; ++rank)
    if (pollfd ended{pidfds[size_t(rank)], POLLIN, 0};
        ended.fd >= 0 && ::poll(&ended, 1, 0) == 1)
      markDead(rank);
}

void Watchdog::run() {
  for (;;) {
    epoll_event events[16];
    int n = ::epoll_wait(poll, events, 16, context.hangSeconds > 0 ? 500 : -1);
    if (context.hangSeconds > 0)
      look();
    for (int i = 0; i < n; ++i) {
      if (events[i].data.u32 == ~0u) {
        uint64_t value = 0;
        if (::read(wake, &value, sizeof value) != sizeof value)
          continue;
        if (value >= kSignalled)
          answer();
        if (value % kSignalled)
          return;
        continue;
      }
      int rank = int(events[i].data.u32);
      if (context.hosts && !context.hosts->isLocal(rank)) {
        hear(rank);
        continue;
      }
      ::epoll_ctl(poll, EPOLL_CTL_DEL, pidfds[rank], nullptr);
      markDead(rank);
    }
  }
}

/// Whether anything has been issued, or has ended, anywhere in the job.
void Watchdog::look() {
  auto word = [](const uint64_t &w) {
    return std::atomic_ref(const_cast<uint64_t &>(w))
        .load(std::memory_order_relaxed);
  };
  uint64_t sum = 0;
  bool waits = false;
  for (int r = 0; r < context.world; ++r) {
    const issuelog::Block &block = context.segment->log(r);
    uint64_t issued = word(block.issued), completed = word(block.completed);
    sum += issued + completed + word(block.round) + word(block.turn);
    waits |= issued != completed;
    for (const issuelog::Thread &each : block.threads) {
      auto state = issuelog::HostState(uint32_t(word(each.state)));
      waits |= state != issuelog::HostState::None &&
               state != issuelog::HostState::Slot;
    }
  }
  int64_t now = nowNanoseconds();
  if (sum != moved || !waits || movedAt == 0) {
    moved = sum;
    movedAt = now;
    return;
  }
  double seconds = double(now - movedAt) * 1e-9;
  if (seconds < context.hangSeconds)
    return;
  reportHang(context, seconds);
  if (!stacked)
    writeStacks();
  stacked = true;
}

/// Beside the issue logs, where those are wanted.
void Watchdog::writeStacks() {
  if (context.issueFolder.empty() || !listens)
    return;
  std::string path =
      context.issueFolder + "/rank_" + std::to_string(context.rank) + ".stack";
  std::string text = threadStacks();
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0)
    return; // the logs beside it have said why
  [[maybe_unused]] ssize_t n = ::write(fd, text.data(), text.size());
  ::close(fd);
}

/// SIGUSR1.
void Watchdog::answer() {
  std::string text = rankText(context) + threadStacks();
  [[maybe_unused]] ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
}

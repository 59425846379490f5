//===- Launch.cpp - Starting the ranks of a job -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The launcher's side: make the job's memory, start the ranks, watch them, and
// bring the others down when one has failed, first gently.
//
//===----------------------------------------------------------------------===//

#include "concord/launch.h"
#include "concord/concord.h"
#include "context/Env.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

extern char **environ;

using namespace concord::rt;

namespace {

int64_t now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

struct Child {
  pid_t pid = -1;
  int ended = -1; ///< pidfd: readable when it has ended, -1: there is none
  bool running = false;
  int status = 0;
};

class Job {
public:
  Job(const concord_launch_config &config, concord_launch_result &result)
      : config(config), result(result), children(size_t(config.world)) {}
  ~Job() {
    for (Child &child : children) {
      if (child.running) {
        ::kill(child.pid, SIGKILL);
        ::waitpid(child.pid, nullptr, 0);
      }
      if (child.ended >= 0)
        ::close(child.ended);
    }
    if (signals >= 0)
      ::close(signals);
    if (blocked)
      ::sigprocmask(SIG_SETMASK, &oldMask, nullptr);
  }

  int32_t run();

private:
  void blockSignals();
  int await(int64_t nanoseconds);
  void start(int rank, const std::vector<std::string> &common);
  void reap();
  void note(int rank, int status);
  bool anyRunning() const {
    return std::any_of(children.begin(), children.end(),
                       [](const Child &child) { return child.running; });
  }
  void signalAll(int number) {
    for (Child &child : children)
      if (child.running)
        ::kill(child.pid, number);
  }

  const concord_launch_config &config;
  concord_launch_result &result;
  std::vector<Child> children;
  std::shared_ptr<Segment> segment;
  int signals = -1;
  bool blocked = false;
  sigset_t oldMask, watchedMask;
};

void Job::blockSignals() {
  sigemptyset(&watchedMask);
  for (int number : {SIGINT, SIGTERM, SIGHUP})
    sigaddset(&watchedMask, number);
  ::sigprocmask(SIG_BLOCK, &watchedMask, &oldMask);
  blocked = true;
  signals = ::signalfd(-1, &watchedMask, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0)
    raiseErrno("cannot create the launcher's signalfd");
}

/// Until a rank ends or a signal comes, which is returned, but no longer than
/// this. Not by SIGCHLD: of two launchers in one process either may get it that
/// the other one waits for.
int Job::await(int64_t nanoseconds) {
  std::vector<pollfd> entries = {{signals, POLLIN, 0}};
  for (const Child &child : children)
    if (child.running && child.ended >= 0)
      entries.push_back({child.ended, POLLIN, 0});
    else if (child.running) // a system without pidfds, or no more descriptors
      nanoseconds = std::min<int64_t>(nanoseconds, 20'000'000);
  timespec wait{time_t(nanoseconds / 1'000'000'000),
                long(nanoseconds % 1'000'000'000)};
  if (::ppoll(entries.data(), nfds_t(entries.size()), &wait, nullptr) <= 0 ||
      !(entries[0].revents & POLLIN))
    return 0;
  // Another launcher may have taken it meanwhile.
  signalfd_siginfo info;
  return ::read(signals, &info, sizeof info) == sizeof info
             ? int(info.ssi_signo)
             : 0;
}

/// Path of a program, looked for in PATH when its name has no slash.
std::string findProgram(const char *name) {
  if (std::strchr(name, '/'))
    return name;
  const char *path = std::getenv("PATH");
  std::string list = path ? path : "/usr/bin:/bin";
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(':', at), list.size());
    std::string candidate = list.substr(at, end - at) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0)
      return candidate;
    at = end + 1;
  }
  return name;
}

void Job::start(int rank, const std::vector<std::string> &common) {
  const char *const *argv = config.argv ? config.argv[rank] : config.argv_all;
  std::string program = findProgram(argv[0]);
  // All memory that the child needs is made before the fork.
  std::vector<std::string> variables = common;
  variables.push_back("CONCORD_RANK=" + std::to_string(rank));
  std::vector<char *> env;
  for (char **entry = environ; *entry; ++entry) {
    size_t length = size_t(std::strcspn(*entry, "=")) + 1;
    bool replaced = std::any_of(
        variables.begin(), variables.end(), [&](const std::string &own) {
          return std::strncmp(own.c_str(), *entry, length) == 0;
        });
    if (!replaced)
      env.push_back(*entry);
  }
  for (std::string &variable : variables)
    env.push_back(variable.data());
  env.push_back(nullptr);

  cpu_set_t cores;
  bool bind = false;
  if (config.cpus) {
    int cpu = config.cpus[rank];
    bind = cpu >= 0 && cpu < CPU_SETSIZE;
    CPU_ZERO(&cores);
    if (bind)
      CPU_SET(cpu, &cores);
  } else if (config.bind_cores &&
             ::sched_getaffinity(0, sizeof cores, &cores) == 0 &&
             CPU_COUNT(&cores) >= config.world) {
    int seen = 0;
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &cores) && seen++ == rank) {
        CPU_ZERO(&cores);
        CPU_SET(i, &cores);
        bind = true;
        break;
      }
  }
  int outputs[2] = {config.stdout_fds ? config.stdout_fds[rank] : -1,
                    config.stderr_fds ? config.stderr_fds[rank] : -1};

  int report[2]; // carries errno of a failed exec
  if (::pipe2(report, O_CLOEXEC) != 0)
    raiseErrno("cannot start rank %d", rank);
  pid_t parent = ::getpid();
  pid_t pid = ::fork();
  if (pid < 0) {
    int number = errno;
    ::close(report[0]);
    ::close(report[1]);
    errno = number;
    raiseErrno("cannot start rank %d", rank);
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
      ::_exit(127);
    for (int i = 0; i < 2; ++i)
      if (outputs[i] >= 0)
        ::dup2(outputs[i], i + 1);
    if (bind)
      ::sched_setaffinity(0, sizeof cores, &cores);
    ::fcntl(segment->fd(), F_SETFD, 0);
    ::sigprocmask(SIG_SETMASK, &oldMask, nullptr);
    ::execve(program.c_str(), const_cast<char *const *>(argv), env.data());
    int number = errno;
    [[maybe_unused]] ssize_t n = ::write(report[1], &number, sizeof number);
    ::_exit(127);
  }
  ::close(report[1]);
  int number = 0;
  ssize_t n;
  do
    n = ::read(report[0], &number, sizeof number);
  while (n < 0 && errno == EINTR);
  ::close(report[0]);
  children[rank].pid = pid;
  children[rank].ended = int(::syscall(SYS_pidfd_open, pid, 0));
  children[rank].running = true;
  if (n == sizeof number)
    raise(CONCORD_ERROR_NOT_FOUND, "cannot start rank %d: %s: %s", rank,
          program.c_str(), std::strerror(number));
}

void Job::note(int rank, int status) {
  Child &child = children[rank];
  child.running = false;
  child.status = status;
  bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  // Ranks that still wait for it to join must learn of it from here.
  RankSlot &slot = segment->slot(rank);
  uint32_t state = slot.state.load();
  if (state != CONCORD_RANK_FINALIZED && state != CONCORD_RANK_ABORTED) {
    uint64_t none = 0;
    segment->header().firstDead.compare_exchange_strong(none,
                                                        uint64_t(rank) + 1);
    slot.state.store(CONCORD_RANK_DEAD);
  }
  segment->announce();
  if (good)
    return;
  // A rank that was killed explains those that fail because of it, and so does
  // one that failed by itself; which of them ends first is chance.
  bool killed = WIFSIGNALED(status);
  auto weight = [](int exitStatus) {
    if (exitStatus > 128)
      return 3;
    return exitStatus == CONCORD_EXIT_CONSEQUENCE ? 1 : 2;
  };
  int exitStatus = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (result.failed_rank >= 0 &&
      weight(exitStatus) <= weight(result.exit_status))
    return;
  result.failed_rank = rank;
  result.exit_status = exitStatus;
  if (killed)
    std::snprintf(result.message, sizeof result.message,
                  "rank %d (pid %d) was killed by signal %d (%s)", rank,
                  int(child.pid), WTERMSIG(status),
                  ::strsignal(WTERMSIG(status)));
  else
    std::snprintf(result.message, sizeof result.message,
                  "rank %d (pid %d) ended with exit code %d", rank,
                  int(child.pid), WEXITSTATUS(status));
}

void Job::reap() {
  for (int rank = 0; rank < config.world; ++rank) {
    Child &child = children[size_t(rank)];
    int status;
    if (child.running && ::waitpid(child.pid, &status, WNOHANG) == child.pid)
      note(rank, status);
  }
}

int32_t Job::run() {
  segment = Segment::create(config.world, config.heap_bytes
                                              ? config.heap_bytes
                                              : envBytes("CONCORD_HEAP_BYTES"));
  blockSignals();
  std::vector<std::string> common;
  for (const char *const *entry = config.env; entry && *entry; ++entry)
    common.push_back(*entry);
  common.push_back("CONCORD_JOB_FD=" + std::to_string(segment->fd()));
  common.push_back("CONCORD_WORLD=" + std::to_string(config.world));
  for (int rank = 0; rank < config.world; ++rank)
    start(rank, common);
  if (config.started) {
    std::vector<int64_t> pids;
    for (const Child &child : children)
      pids.push_back(child.pid);
    config.started(config.user, pids.data(), config.world);
  }

  double grace = config.grace_seconds > 0 ? config.grace_seconds : 5;
  int64_t deadline = config.timeout_seconds > 0
                         ? now() + int64_t(config.timeout_seconds * 1e9)
                         : INT64_MAX;
  int64_t nextBlow = INT64_MAX; // when to use the next stronger signal
  int blow = 0;                 // 0 none, 1 TERM sent, 2 KILL sent
  auto strike = [&](int64_t at) { nextBlow = std::min(nextBlow, at); };
  reap();
  while (anyRunning()) {
    if (result.failed_rank >= 0 && nextBlow == INT64_MAX && blow == 0)
      strike(now() + int64_t(grace * 1e9));
    int64_t until = std::min(nextBlow, deadline);
    int number =
        await(until == INT64_MAX ? int64_t(3600) * 1'000'000'000
                                 : std::max<int64_t>(until - now(), 0));
    if (number == SIGINT || number == SIGTERM || number == SIGHUP) {
      if (!result.interrupted)
        result.interrupted = number;
      strike(now());
    }
    reap();
    int64_t time = now();
    if (time >= deadline) {
      result.timed_out = 1;
      deadline = INT64_MAX;
      strike(time);
    }
    if (time >= nextBlow) {
      signalAll(blow == 0 ? SIGTERM : SIGKILL);
      ++blow;
      nextBlow = time + int64_t(grace * 1e9);
    }
  }
  if (result.timed_out) {
    std::snprintf(result.message, sizeof result.message,
                  "the job was stopped after %.1f s", config.timeout_seconds);
    return fail(CONCORD_ERROR_TIMEOUT, "%s", result.message);
  }
  if (result.interrupted) {
    std::snprintf(result.message, sizeof result.message,
                  "interrupted by signal %d", result.interrupted);
    return fail(CONCORD_ERROR_ABORTED, "%s", result.message);
  }
  if (result.failed_rank >= 0)
    return fail(CONCORD_ERROR_PEER_DIED, "%s", result.message);
  return CONCORD_OK;
}

} // namespace

int32_t concord_launch_job(const concord_launch_config *config,
                           concord_launch_result *result) {
  concord_launch_config settings{};
  concord_launch_result value{};
  value.failed_rank = -1;
  if (config)
    std::memcpy(&settings, config,
                std::min<size_t>(config->struct_size, sizeof settings));
  int32_t status = guarded([&]() -> int32_t {
    if (settings.world < 1 || settings.world > kMaxRanks)
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "%d ranks: a job has 1 to %d ranks on one host", settings.world,
            kMaxRanks);
    if (!settings.argv && !settings.argv_all)
      raise(CONCORD_ERROR_INVALID_ARGUMENT, "there is no program to start");
    Job job(settings, value);
    return job.run();
  });
  if (status != CONCORD_OK && !value.message[0])
    std::snprintf(value.message, sizeof value.message, "%s", lastError());
  if (result) {
    uint32_t size = result->struct_size;
    std::memcpy(result, &value, std::min<size_t>(size, sizeof value));
    result->struct_size = size;
  }
  return status;
}

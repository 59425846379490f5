//===- Stacks.cpp - Stacks of this process's threads ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each thread unwinds itself in the signal's handler and leaves addresses; the
// asking thread finds the names. No debugger is needed, and none is allowed in
// many containers.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Stacks.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

using namespace concord::rt;

namespace {

constexpr int kListeners = 64, kFrames = 64;
std::atomic<int> listeners[kListeners]; ///< eventfd + 1
std::mutex listening;
bool installed = false;

/// The stack being taken: 0 none, 1 asked for, 2 taken.
std::atomic<int> captureState{0};
std::atomic<pid_t> captureThread{0};
void *frames[kFrames];
std::atomic<int> frameCount{0};

void onSignal(int, siginfo_t *info, void *) {
  int kept = errno;
  if (info->si_code == SI_TKILL && captureState.load() == 1 &&
      captureThread.load() == pid_t(::syscall(SYS_gettid))) {
    frameCount.store(::backtrace(frames, kFrames));
    captureState.store(2);
  } else {
    for (auto &listener : listeners)
      if (int fd = listener.load()) {
        uint64_t value = kSignalled;
        [[maybe_unused]] ssize_t n = ::write(fd - 1, &value, sizeof value);
      }
  }
  errno = kept;
}

std::string commandOf(const char *thread) {
  char path[64], name[64] = {};
  std::snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", thread);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return "";
  ssize_t n = ::read(fd, name, sizeof name - 1);
  ::close(fd);
  return n > 0 ? std::string(name, size_t(n - (name[n - 1] == '\n'))) : "";
}

std::string frameText(int number, void *address) {
  char head[64];
  std::snprintf(
      head, sizeof head, "#%-3d%#018lx in ", number,
      static_cast<unsigned long>(reinterpret_cast<uintptr_t>(address)));
  Dl_info info{};
  // The caller's address is that of the instruction after the call.
  bool known = ::dladdr(static_cast<char *>(address) - 1, &info) != 0;
  std::string name = "??";
  if (known && info.dli_sname) {
    int status = 0;
    std::unique_ptr<char, void (*)(void *)> plain(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status),
        std::free);
    name = status == 0 && plain ? plain.get() : info.dli_sname;
    if (size_t open = name.find('('); open != std::string::npos && open > 0)
      name.resize(open);
  }
  return head + name + " ()" +
         (known && info.dli_fname ? std::string(" from ") + info.dli_fname
                                  : std::string()) +
         "\n";
}

} // namespace

bool concord::rt::listenToSignal(int eventfd) {
  std::lock_guard lock(listening);
  if (!installed) {
    struct sigaction old{};
    if (::sigaction(SIGUSR1, nullptr, &old) != 0 ||
        (old.sa_flags & SA_SIGINFO) || old.sa_handler != SIG_DFL)
      return false;
    // The first call may allocate, which a handler must not.
    void *warm[4];
    (void)::backtrace(warm, 4);
    struct sigaction own{};
    own.sa_sigaction = onSignal;
    own.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&own.sa_mask);
    if (::sigaction(SIGUSR1, &own, nullptr) != 0)
      return false;
    installed = true;
  }
  for (auto &listener : listeners) {
    int none = 0;
    if (listener.compare_exchange_strong(none, eventfd + 1))
      return true;
  }
  return false;
}

void concord::rt::ignoreSignal(int eventfd) {
  for (auto &listener : listeners) {
    int own = eventfd + 1;
    if (listener.compare_exchange_strong(own, 0))
      return;
  }
}

std::string concord::rt::threadStacks() {
  static std::mutex one;
  std::lock_guard lock(one);
  std::string out;
  DIR *tasks = ::opendir("/proc/self/task");
  if (!tasks)
    return out;
  auto self = pid_t(::syscall(SYS_gettid));
  int number = 0;
  while (dirent *entry = ::readdir(tasks)) {
    auto thread = pid_t(std::atoi(entry->d_name));
    if (thread <= 0 || thread == self)
      continue;
    captureThread.store(thread);
    captureState.store(1);
    if (::syscall(SYS_tgkill, ::getpid(), thread, SIGUSR1) != 0) {
      captureState.store(0);
      continue;
    }
    for (int i = 0; i < 200 && captureState.load() != 2; ++i) {
      timespec span{0, 500'000};
      ::nanosleep(&span, nullptr);
    }
    // A thread that blocks the signal answers late, to nobody.
    bool taken = captureState.exchange(0) == 2;
    out += "Thread " + std::to_string(++number) + " (LWP " +
           std::to_string(thread) + " \"" + commandOf(entry->d_name) + "\"):\n";
    int count = taken ? frameCount.load() : 0;
    // The handler's own two frames are of no interest.
    for (int i = 2; i < count; ++i)
      out += frameText(i - 2, frames[i]);
  }
  ::closedir(tasks);
  return out;
}

//===- IssuePath.cpp - What a call costs the system -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// seccomp's notifications, of which the kernel's header is all that is needed.
//
//===----------------------------------------------------------------------===//

#include "IssuePath.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace concord::bench;

void CallCounter::serve(Shared &shared) {
  while (shared.listener.load() < 0)
    ::usleep(100);
  seccomp_notif request;
  seccomp_notif_resp response;
  for (;;) {
    std::memset(&request, 0, sizeof request);
    if (::ioctl(shared.listener.load(), SECCOMP_IOCTL_NOTIF_RECV, &request) !=
        0) {
      if (errno == EINTR || errno == ENOENT)
        continue;
      return;
    }
    if (shared.counting.load()) {
      shared.calls.fetch_add(1);
      shared.last.store(request.data.nr);
    }
    std::memset(&response, 0, sizeof response);
    response.id = request.id;
    response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ::ioctl(shared.listener.load(), SECCOMP_IOCTL_NOTIF_SEND, &response);
  }
}

CallCounter::CallCounter() : shared(new Shared) {
  std::thread([at = shared] { serve(*at); }).detach();
  constexpr auto number = uint32_t(offsetof(seccomp_data, nr));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_nanosleep, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
  };
  sock_fprog program = {sizeof filter / sizeof *filter, filter};
  long listener = -1;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
    listener = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                         SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  if (listener < 0)
    throw std::runtime_error(std::string("--issue-path: the kernel does not "
                                         "let system calls be watched: ") +
                             std::strerror(errno));
  shared->listener.store(int(listener));
}

/// A function of libconcord_memcount.so; null where it is not preloaded.
template <typename Function> static Function counter(const char *name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
}

void CallCounter::begin() {
  // Looked up before counting: the dynamic linker may allocate.
  auto start = counter<void (*)()>("concord_memcount_begin");
  shared->calls.store(0);
  // Before counting: it asks for the page faults of the process.
  if (start)
    start();
  shared->counting.store(true);
}

CallCounter::Counts CallCounter::end() {
  shared->counting.store(false);
  Counts counts;
  counts.systemCalls = shared->calls.load();
  counts.lastCall = counts.systemCalls ? shared->last.load() : -1;
  auto stop = counter<void (*)()>("concord_memcount_pause");
  auto total = counter<unsigned long (*)()>("concord_memcount_total");
  if (stop && total) {
    stop();
    counts.memory = int64_t(total());
  }
  return counts;
}

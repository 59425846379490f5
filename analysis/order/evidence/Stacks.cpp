//===- Stacks.cpp - pstack, gdb and py-spy stacks -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Looks for the frames that tell a device or stream synchronisation, an
// allocation that may drain, a communicator creation, a lock. The innermost
// such frame decides a thread; the first frame above it that is not of the
// library says who called.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Evidence.h"

#include <array>

namespace concord::order::evidence {

namespace {

struct Pattern {
  std::string_view text;
  HostWait::Kind kind;
};

using K = HostWait::Kind;

/// Substrings of function names, the more specific first.
constexpr std::array<Pattern, 37> kPatterns = {{
    {"aclrtSynchronizeDevice", K::DeviceSync},
    {"rtDeviceSynchronize", K::DeviceSync},
    {"cudaDeviceSynchronize", K::DeviceSync},
    {"hipDeviceSynchronize", K::DeviceSync},
    {"cuCtxSynchronize", K::DeviceSync},
    {"npuSynchronizeDevice", K::DeviceSync},
    {"NpuSynchronizeDevice", K::DeviceSync},
    {"device_synchronize", K::DeviceSync},
    {"aclrtSynchronizeStream", K::StreamSync},
    {"rtStreamSynchronize", K::StreamSync},
    {"cudaStreamSynchronize", K::StreamSync},
    {"hipStreamSynchronize", K::StreamSync},
    {"cuStreamSynchronize", K::StreamSync},
    {"cudaEventSynchronize", K::StreamSync},
    {"cuEventSynchronize", K::StreamSync},
    {"aclrtSynchronizeEvent", K::StreamSync},
    {"_local_scalar_dense", K::StreamSync},
    {"aclrtMalloc", K::Allocation},
    {"rtMalloc", K::Allocation},
    {"cudaMalloc", K::Allocation},
    {"cuMemMap", K::Allocation},
    {"cuMemAlloc", K::Allocation},
    {"hipMalloc", K::Allocation},
    {"aclrtFree", K::Free},
    {"cudaFree", K::Free},
    {"cuMemFree", K::Free},
    {"cuModuleLoad", K::Load},
    {"cuLibraryLoad", K::Load},
    {"HcclCommInitRootInfo", K::Communicator},
    {"ncclCommInitRank", K::Communicator},
    {"ncclCommSplit", K::Communicator},
    {"commInitRank", K::Communicator},
    {"c10d::TCPStore::wait", K::HostCollective},
    {"MPI_Barrier", K::HostCollective},
    {"pthread_mutex_lock", K::Lock},
    {"__lll_lock_wait", K::Lock},
    {"take_gil", K::Lock},
}};

/// Frames between the waiting call and the program.
bool isPlumbing(std::string_view f) {
  static constexpr std::string_view names[] = {"acl",
                                               "rt",
                                               "cuda",
                                               "hip",
                                               "cu",
                                               "nccl",
                                               "Hccl",
                                               "hccl",
                                               "pthread",
                                               "__",
                                               "futex",
                                               "syscall",
                                               "poll",
                                               "epoll",
                                               "cr::",
                                               "cce::",
                                               "std::",
                                               "clone",
                                               "start_thread",
                                               "??",
                                               "c10::",
                                               "c10_npu::",
                                               "at_npu::native::allocate",
                                               "_Py",
                                               "Py",
                                               "synchronize"};
  for (std::string_view n : names)
    if (f.substr(0, n.size()) == n)
      return true;
  return false;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t'))
    s.remove_prefix(1);
  while (!s.empty() &&
         (s.back() == ' ' || s.back() == '\t' || s.back() == '\r'))
    s.remove_suffix(1);
  return s;
}

/// The function of a frame line, "" if the line is none. pstack and gdb:
/// "#3  0x00007f.. in name (args) from lib"; py-spy: "    name (file.py:12)".
std::string_view frameFunction(std::string_view line) {
  std::string_view t = trim(line);
  if (t.size() > 2 && t[0] == '#' && t[1] >= '0' && t[1] <= '9') {
    size_t in = t.find(" in ");
    std::string_view f;
    if (in != std::string_view::npos && in < 40)
      f = t.substr(in + 4);
    else {
      size_t space = t.find(' ');
      f = space == std::string_view::npos ? std::string_view()
                                          : trim(t.substr(space));
    }
    size_t open = f.find(" (");
    return trim(f.substr(0, open));
  }
  // py-spy: indented, ends in "(…:line)" or "(…)".
  if (!line.empty() && (line[0] == ' ' || line[0] == '\t') && !t.empty() &&
      t.back() == ')') {
    size_t open = t.rfind(" (");
    if (open != std::string_view::npos)
      return trim(t.substr(0, open));
  }
  return {};
}

} // namespace

void readStack(std::string_view text, const std::string &path, Rank rank,
               Job &job) {
  job.haveStacks = true;
  RankEvidence &own = job.ranks[rank];
  own.files.push_back(path);
  std::string thread;
  bool found = false;
  HostWait wait;
  uint32_t lineNo = 0, frames = 0;
  auto finish = [&] {
    if (found && own.waits.size() < 4096)
      own.waits.push_back(wait);
    found = false;
    wait = {};
  };
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, std::min<size_t>(end - at, 4096));
    at = end + 1;
    ++lineNo;
    if (line.substr(0, 7) == "Thread ") {
      finish();
      thread = std::string(trim(line.substr(0, 120)));
      ++job.linesUnderstood;
      continue;
    }
    std::string_view f = frameFunction(line);
    if (f.empty()) {
      if (!trim(line).empty())
        ++job.linesOther;
      else
        continue;
      continue;
    }
    ++job.linesUnderstood;
    ++frames;
    if (found) {
      if (wait.via.empty() && !isPlumbing(f))
        wait.via = std::string(f.substr(0, 200));
      // An allocation that synchronises is an allocation: the outer one tells.
      for (const Pattern &p : kPatterns)
        if (f.find(p.text) != std::string_view::npos && p.kind == K::Allocation)
          wait.kind = K::Allocation;
      continue;
    }
    for (const Pattern &p : kPatterns)
      if (f.find(p.text) != std::string_view::npos) {
        found = true;
        wait.kind = p.kind;
        wait.function = std::string(f.substr(0, 200));
        wait.thread = thread;
        wait.file = path;
        wait.line = lineNo;
        break;
      }
  }
  finish();
  if (frames == 0)
    job.notes.push_back(path + ": no stack frames recognised");
}

} // namespace concord::order::evidence

//===- Stacks.cpp - Stacks of debuggers and of Python ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// pstack, gdb, eu-stack, lldb, py-spy (text and JSON), Python's faulthandler
// and tracebacks, and what glibc, Open MPI and torch print of their own frames.
//
// A stack is cut into threads, each a list of frames, the innermost first. The
// innermost frame that tells a device or stream synchronisation, an allocation
// that may drain, a communicator creation, a collective that blocks the host or
// a lock decides a thread; the first frame above it that is not of a library
// says who called. Of the main thread it is kept in any case where it stands:
// of a rank that has not come that is the next thing to know.
//
//===----------------------------------------------------------------------===//

#include "Value.h"
#include "concord/order/Evidence.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace concord::order::evidence {

namespace {

struct Pattern {
  std::string_view text;
  HostWait::Kind kind;
};

using K = HostWait::Kind;

/// Substrings of native functions' names, the more specific first.
constexpr auto kPatterns = std::to_array<Pattern>({
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
    {"hipEventSynchronize", K::StreamSync},
    {"aclrtSynchronizeEvent", K::StreamSync},
    {"rtEventSynchronize", K::StreamSync},
    {"zeCommandQueueSynchronize", K::StreamSync},
    {"sycl::queue::wait", K::StreamSync},
    {"_local_scalar_dense", K::StreamSync},
    {"cudaMemcpy", K::StreamSync},
    {"cuMemcpyDtoH", K::StreamSync},
    {"hipMemcpy", K::StreamSync},
    {"aclrtMemcpy", K::StreamSync},
    {"aclrtMalloc", K::Allocation},
    {"rtMalloc", K::Allocation},
    {"cudaMalloc", K::Allocation},
    {"cuMemMap", K::Allocation},
    {"cuMemAlloc", K::Allocation},
    {"hipMalloc", K::Allocation},
    {"aclrtFree", K::Free},
    {"cudaFree", K::Free},
    {"cuMemFree", K::Free},
    {"hipFree", K::Free},
    {"cuModuleLoad", K::Load},
    {"cuLibraryLoad", K::Load},
    {"hipModuleLoad", K::Load},
    {"cudaLaunch", K::Launch},
    {"cuLaunchKernel", K::Launch},
    {"hipLaunchKernel", K::Launch},
    {"rtKernelLaunch", K::Launch},
    {"aclrtLaunchKernel", K::Launch},
    {"HcclCommInit", K::Communicator},
    {"HcclCreateSubComm", K::Communicator},
    {"HcclCommDestroy", K::Communicator},
    {"ncclCommInit", K::Communicator},
    {"ncclCommSplit", K::Communicator},
    {"ncclCommFinalize", K::Communicator},
    {"ncclCommDestroy", K::Communicator},
    {"ncclCommAbort", K::Communicator},
    {"commInitRank", K::Communicator},
    {"MPI_Comm_", K::Communicator},
    {"MPI_Init", K::Communicator},
    {"gloo::rendezvous", K::Communicator},
    {"c10d::TCPStore::wait", K::HostCollective},
    {"c10d::ProcessGroupNCCL::WorkNCCL::handleException", K::HostCollective},
    {"c10d::ProcessGroupNCCL::WorkNCCL::synchronizeInternal",
     K::HostCollective},
    {"c10d::ProcessGroupGloo::AsyncWork", K::HostCollective},
    {"c10d::ProcessGroupGloo::SendWork", K::HostCollective},
    {"c10d::ProcessGroupGloo::RecvWork", K::HostCollective},
    {"c10d::Work::wait", K::HostCollective},
    {"UnboundBuffer::wait", K::HostCollective},
    {"MPI_", K::HostCollective},
    {"pthread_mutex_lock", K::Lock},
    {"pthread_rwlock", K::Lock},
    {"__lll_lock_wait", K::Lock},
    {"take_gil", K::Lock},
});

/// Python functions: the whole name, and a part of the file's.
struct PythonPattern {
  std::string_view function, file;
  HostWait::Kind kind;
};
constexpr auto kPython = std::to_array<PythonPattern>({
    {"synchronize", "streams.py", K::StreamSync},
    {"wait_stream", "streams.py", K::StreamSync},
    {"synchronize", "cuda/", K::DeviceSync},
    {"synchronize", "npu/", K::DeviceSync},
    {"synchronize", "xpu/", K::DeviceSync},
    {"synchronize", "accelerator/", K::DeviceSync},
    {"synchronize", "torch/", K::DeviceSync},
    {"block_until_ready", "jax", K::DeviceSync},
    {"empty_cache", "memory.py", K::Free},
    {"barrier", "distributed", K::HostCollective},
    {"monitored_barrier", "distributed", K::HostCollective},
    {"init_process_group", "distributed", K::Communicator},
    {"new_group", "distributed", K::Communicator},
    {"new_subgroups", "distributed", K::Communicator},
    {"split_group", "distributed", K::Communicator},
    {"_new_process_group_helper", "distributed", K::Communicator},
    {"_store_based_barrier", "distributed", K::Communicator},
    {"_rendezvous_helper", "rendezvous", K::Communicator},
    {"destroy_process_group", "distributed", K::Communicator},
    {"acquire", "threading.py", K::Lock},
});

/// Calls of torch.distributed in which a host may stand until the others come.
constexpr auto kBlockingCalls = std::to_array<std::string_view>(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast",
     "reduce", "gather", "scatter", "send", "recv", "batch_isend_irecv",
     "wait"});

/// Where a thread rests that waits for something else than communication.
constexpr auto kResting =
    std::to_array<std::string_view>({"nanosleep",     "clock_nanosleep",
                                     "usleep",        "sleep",
                                     "poll",          "ppoll",
                                     "select",        "pselect",
                                     "pselect6",      "epoll_wait",
                                     "epoll_pwait",   "read",
                                     "pread64",       "recv",
                                     "recvfrom",      "recvmsg",
                                     "accept",        "accept4",
                                     "connect",       "wait4",
                                     "waitpid",       "waitid",
                                     "sem_wait",      "sem_timedwait",
                                     "do_futex_wait", "pthread_join",
                                     "syscall",       "flock",
                                     "fsync",         "write"});
constexpr auto kRestingFiles = std::to_array<std::string_view>(
    {"threading.py", "queue.py", "queues.py", "selectors.py", "socket.py",
     "ssl.py", "subprocess.py", "connection.py", "popen_fork.py",
     "synchronize.py", "dataloader.py", "_base.py", "base_events.py"});

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t'))
    s.remove_prefix(1);
  while (!s.empty() &&
         (s.back() == ' ' || s.back() == '\t' || s.back() == '\r'))
    s.remove_suffix(1);
  return s;
}

bool starts(std::string_view s, std::string_view with) {
  return s.substr(0, with.size()) == with;
}
bool holds(std::string_view s, std::string_view part) {
  return s.find(part) != std::string_view::npos;
}
bool isDigit(char c) { return c >= '0' && c <= '9'; }

struct Frame {
  std::string function, file; ///< file: of the source, "" if not told
  uint32_t sourceLine = 0;
  uint32_t line = 0; ///< of the text
  bool python = false;

  std::string text() const {
    std::string out = function.substr(0, 200);
    if (!file.empty()) {
      out += " at " + file.substr(file.size() > 120 ? file.size() - 120 : 0);
      if (sourceLine)
        out += ":" + std::to_string(sourceLine);
    }
    return out;
  }
};

/// Frames between the waiting call and the program.
bool isPlumbing(const Frame &frame) {
  std::string_view f = frame.function;
  if (frame.python) {
    if (starts(frame.file, "<frozen") || starts(frame.file, "torch/") ||
        starts(frame.file, "torch_npu/"))
      return true;
    for (std::string_view part :
         {"site-packages/", "dist-packages/", "lib/python3", "multiprocessing/",
          "concurrent/futures/", "asyncio/"})
      if (holds(frame.file, part))
        return true;
    std::string_view name = frame.file;
    name = name.substr(name.rfind('/') + 1);
    return std::find(kRestingFiles.begin(), kRestingFiles.end(), name) !=
               kRestingFiles.end() &&
           name == frame.file;
  }
  // The interpreter's own sources, which debuggers name.
  for (std::string_view folder :
       {"Python/", "Objects/", "Modules/", "./nptl/", "../sysdeps/", "./csu/"})
    if (starts(frame.file, folder))
      return true;
  // Vendors' C functions: a lower-case prefix, then a capital letter.
  for (std::string_view prefix : {"acl", "aclrt", "rt", "cuda", "hip", "cu",
                                  "nccl", "Hccl", "hccl", "ze"})
    if (starts(f, prefix) && f.size() > prefix.size() &&
        f[prefix.size()] >= 'A' && f[prefix.size()] <= 'Z')
      return true;
  for (std::string_view prefix : {"pthread",
                                  "_",
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
                                  "c10d::",
                                  "at::",
                                  "torch::",
                                  "pybind11::",
                                  "at_npu::native::allocate",
                                  "Py",
                                  "gloo::",
                                  "MPI_",
                                  "PMPI_",
                                  "ompi_",
                                  "opal_",
                                  "mca_",
                                  "MPID",
                                  "MPIR",
                                  "ucp_",
                                  "uct_",
                                  "synchronize",
                                  "concord_",
                                  "nanosleep",
                                  "sem_",
                                  "read",
                                  "recv",
                                  "accept",
                                  "select",
                                  "wait4",
                                  "gsignal",
                                  "abort",
                                  "raise",
                                  "cfunction_",
                                  "method_vectorcall",
                                  "vectorcall",
                                  "object_vacall",
                                  "slot_tp_",
                                  "builtin_",
                                  "run_mod",
                                  "run_eval",
                                  "pymain",
                                  "main_impl",
                                  "<signal",
                                  "lock_PyThread",
                                  "time_sleep",
                                  "acquire_timed",
                                  "do_futex",
                                  "0x"})
    if (starts(f, prefix))
      return true;
  return false;
}

/// The name of a native function without its arguments: cut at the first
/// bracket that is not inside a template's list.
std::string_view withoutArguments(std::string_view f) {
  int depth = 0;
  for (size_t i = 0; i < f.size(); ++i) {
    bool arrow = i > 0 && f[i - 1] == '-';
    if (f[i] == '<')
      ++depth;
    else if (f[i] == '>' && !arrow)
      --depth;
    else if (f[i] == '(' && depth <= 0 && i > 0 &&
             !(i >= 8 && f.substr(i - 8, 8) == "operator") &&
             f.substr(i, 21) != "(anonymous namespace)")
      return trim(f.substr(0, i));
    else if (depth <= 0 && (f.substr(i, 5) == " + 0x" || f[i] == '+') &&
             i > 0 && !(i >= 8 && f.substr(i - 8, 8) == "operator"))
      return trim(f.substr(0, i));
  }
  if (depth != 0) // "operator<" and the like
    f = f.substr(0, f.find(" ("));
  return trim(f);
}

/// "file.cpp:12" or "file.cpp:12:5" at the end of a place.
void place(std::string_view text, Frame &frame) {
  text = trim(text);
  for (int round = 0; round < 2; ++round) {
    size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon + 1 == text.size())
      break;
    uint32_t v = 0;
    auto [end, ec] =
        std::from_chars(text.data() + colon + 1, text.data() + text.size(), v);
    if (ec != std::errc() || end != text.data() + text.size())
      break;
    frame.sourceLine = v;
    text = text.substr(0, colon);
  }
  frame.file = std::string(text);
}

/// "#3  0x0… in name (args) at file:12 [from lib]", without the address and
/// "in" where there is none; "frame #3: 0x… lib`name(args) + 4 at file:12";
/// torch's "frame #3: name(args) + 0x4 (0x… in lib)".
bool nativeFrame(std::string_view t, Frame &frame) {
  if (starts(t, "* "))
    t = trim(t.substr(2));
  if (starts(t, "frame #"))
    t.remove_prefix(6);
  if (t.size() < 3 || t[0] != '#' || !isDigit(t[1]))
    return false;
  size_t i = 1;
  while (i < t.size() && isDigit(t[i]))
    ++i;
  if (i < t.size() && t[i] == ':')
    ++i;
  if (i >= t.size() || (t[i] != ' ' && t[i] != '\t'))
    return false;
  std::string_view f = trim(t.substr(i));
  if (starts(f, "0x")) {
    size_t space = f.find(' ');
    if (space == std::string_view::npos)
      return false;
    f = trim(f.substr(space));
    if (starts(f, "in "))
      f = trim(f.substr(3));
    else if (starts(f, "- ")) // eu-stack of what has no name
      f = trim(f.substr(2));
  }
  // lldb: the module first.
  if (size_t tick = f.find('`'); tick != std::string_view::npos && tick < 120)
    f = f.substr(tick + 1);
  size_t at = f.rfind(" at ");
  if (at != std::string_view::npos)
    place(f.substr(at + 4), frame);
  frame.function = std::string(withoutArguments(f.substr(0, at)));
  // eu-stack -m: "name - 1 /lib/libc.so.6".
  if (size_t dash = frame.function.find(" - ");
      dash != std::string::npos && dash > 0)
    frame.function.resize(dash);
  if (starts(frame.function, "__GI_"))
    frame.function.erase(0, 5);
  return !frame.function.empty();
}

/// glibc's "lib(name+0x12) [0x…]", also behind Open MPI's "[ 3] ", and Python's
/// "Binary file "lib", at name+0x12 [0x…]".
bool symbolFrame(std::string_view t, Frame &frame) {
  size_t address = t.rfind("[0x");
  if (address == std::string_view::npos || t.back() != ']')
    return false;
  std::string_view f;
  if (starts(t, "Binary file ")) {
    size_t at = t.rfind(", at ", address);
    if (at == std::string_view::npos)
      return false;
    f = trim(t.substr(at + 5, address - at - 5));
  } else {
    size_t close = t.rfind(')', address);
    size_t open = close == std::string_view::npos ? close : t.rfind('(', close);
    if (open == std::string_view::npos ||
        !holds(t.substr(open, close - open), "+0x"))
      return false;
    f = t.substr(open + 1, close - open - 1);
  }
  f = f.substr(0, f.rfind("+0x"));
  frame.function = f.empty() ? "??" : std::string(f);
  return true;
}

/// `File "x.py", line 12 in f` (faulthandler), `…, line 12, in f` (traceback).
bool pythonFrame(std::string_view t, Frame &frame) {
  if (!starts(t, "File \""))
    return false;
  size_t quote = t.find("\", line ");
  if (quote == std::string_view::npos)
    return false;
  const char *digits = t.data() + quote + 8, *stop = t.data() + t.size();
  auto [end, ec] = std::from_chars(digits, stop, frame.sourceLine);
  if (ec != std::errc())
    return false;
  std::string_view rest(end, size_t(stop - end));
  if (starts(rest, ","))
    rest.remove_prefix(1);
  rest = trim(rest);
  if (starts(rest, "in "))
    rest = trim(rest.substr(3));
  frame.file = std::string(t.substr(6, quote - 6));
  frame.function = rest.empty() ? "<module>" : std::string(rest);
  frame.python = true;
  return true;
}

/// py-spy: "    name (file.py:12)", "    name (lib.so.1)".
bool spyFrame(std::string_view line, Frame &frame) {
  size_t indent = 0;
  while (indent < line.size() && (line[indent] == ' ' || line[indent] == '\t'))
    ++indent;
  std::string_view t = trim(line);
  // Deeper are arguments and locals.
  if (indent == 0 || indent >= 8 || t.size() < 4 || t.back() != ')')
    return false;
  size_t open = t.rfind(" (");
  if (open == std::string_view::npos || open == 0)
    return false;
  std::string_view inside = t.substr(open + 2, t.size() - open - 3);
  size_t colon = inside.rfind(':');
  bool numbered =
      colon != std::string_view::npos && colon + 1 < inside.size() &&
      std::all_of(inside.begin() + long(colon) + 1, inside.end(), isDigit);
  if (!numbered && (inside.empty() || holds(inside, " ") || holds(inside, ",")))
    return false;
  frame.function = std::string(trim(t.substr(0, open)));
  if (numbered)
    place(inside, frame);
  frame.python = holds(inside, ".py") || starts(inside, "<");
  return true;
}

/// How a thread's frames are written; a line is only a frame in its own form.
enum class Style { None, Native, Python, Spy };

struct Thread {
  std::string header;
  std::vector<Frame> frames;
  Style style = Style::None;
  bool reversed = false;  ///< the innermost frame is the last one
  bool traceback = false; ///< of an exception
  std::string exception;
  bool main = false;
};

/// "wait" of "Condition.wait": newer py-spys print qualified names.
std::string_view lastName(std::string_view function) {
  size_t dot = function.rfind('.');
  return dot == std::string_view::npos ? function : function.substr(dot + 1);
}

/// Name and kind of what tells a wait in a frame.
bool decisive(const Frame &frame, HostWait::Kind &kind) {
  if (frame.python)
    for (const PythonPattern &p : kPython)
      if (lastName(frame.function) == p.function && holds(frame.file, p.file)) {
        kind = p.kind;
        return true;
      }
  if (frame.python && holds(frame.file, "distributed_c10d.py"))
    for (std::string_view call : kBlockingCalls)
      if (starts(lastName(frame.function), call)) {
        kind = K::HostCollective;
        return true;
      }
  if (!frame.python || frame.function.find("Synchronize") != std::string::npos)
    for (const Pattern &p : kPatterns)
      if (holds(frame.function, p.text)) {
        kind = p.kind;
        return true;
      }
  return false;
}

bool rests(const Frame &frame) {
  std::string_view f = frame.function;
  if (frame.python) {
    std::string_view name = frame.file;
    name = name.substr(name.rfind('/') + 1);
    return std::find(kRestingFiles.begin(), kRestingFiles.end(), name) !=
           kRestingFiles.end();
  }
  while (starts(f, "_"))
    f.remove_prefix(1);
  if (starts(f, "GI_"))
    f.remove_prefix(3);
  while (starts(f, "_"))
    f.remove_prefix(1);
  if (starts(f, "libc_"))
    f.remove_prefix(5);
  return starts(f, "futex") || starts(f, "pthread_cond_") ||
         std::find(kResting.begin(), kResting.end(), f) != kResting.end();
}

/// The wait that a thread's frames tell; false if none does.
bool judge(const Thread &thread, HostWait &wait) {
  const auto &frames = thread.frames;
  auto viaFrom = [&](size_t n) {
    for (; n < frames.size(); ++n)
      if (!isPlumbing(frames[n])) {
        wait.via = frames[n].text();
        return;
      }
  };
  if (thread.traceback) {
    if (thread.exception.empty())
      return false; // the reason of another one, or cut off
    wait.kind = K::Exception;
    wait.function = thread.exception.substr(0, 200);
    wait.line = frames.empty() ? 0 : frames.front().line;
    viaFrom(0);
    return true;
  }
  for (size_t n = 0; n < frames.size(); ++n) {
    HostWait::Kind kind;
    if (!decisive(frames[n], kind))
      continue;
    wait.kind = kind;
    wait.function = frames[n].text();
    wait.line = frames[n].line;
    // An allocation that synchronises is an allocation: the outer one tells.
    // So is a creation that runs collectives a creation.
    for (size_t k = n + 1; k < frames.size(); ++k) {
      HostWait::Kind outer;
      if (decisive(frames[k], outer) &&
          (outer == K::Allocation || outer == K::Communicator))
        wait.kind = outer;
    }
    viaFrom(n + 1);
    return true;
  }
  if (!thread.main || frames.empty())
    return false;
  size_t at = 0;
  while (at + 1 < frames.size() && isPlumbing(frames[at]) && !rests(frames[at]))
    ++at;
  wait.kind = rests(frames[at]) ? K::Waiting : K::Running;
  wait.function = frames[at].text();
  wait.line = frames[at].line;
  viaFrom(at + 1);
  return true;
}

/// "[rank3]: ", "[default3]:", "[1,3]<stderr>: ": what launchers put before a
/// line. The rank is told, or -1.
std::string_view withoutPrefix(std::string_view line, Rank &rank) {
  rank = -1;
  if (line.empty() || line[0] != '[')
    return line;
  size_t close = line.find(']');
  if (close == std::string_view::npos || close > 40)
    return line;
  std::string_view inside = line.substr(1, close - 1),
                   rest = line.substr(close + 1);
  size_t digits = inside.size();
  while (digits > 0 && isDigit(inside[digits - 1]))
    --digits;
  std::string_view word = inside.substr(0, digits);
  bool launcher = starts(rest, "<std") && !word.empty();
  if (digits == inside.size() ||
      !(word == "rank" || word == "default" || launcher))
    return line;
  std::from_chars(inside.data() + digits, inside.data() + inside.size(), rank);
  size_t colon = rest.find(':');
  if (colon == std::string_view::npos || (colon != 0 && !launcher)) {
    rank = -1;
    return line;
  }
  rest = rest.substr(colon + 1);
  if (starts(rest, " "))
    rest.remove_prefix(1);
  return rest;
}

/// "RuntimeError: words" at the left margin, which ends a traceback.
bool isException(std::string_view line) {
  size_t i = 0;
  while (i < line.size() &&
         (std::isalnum(uint8_t(line[i])) || line[i] == '_' || line[i] == '.'))
    ++i;
  return i > 2 && !isDigit(line[0]) && (i == line.size() || line[i] == ':');
}

/// One stream of lines: a file, or what one rank wrote to a common one.
class Reader {
public:
  Reader(Job &job, std::string path) : job(job), path(std::move(path)) {}

  void take(std::string_view line, uint32_t number) {
    std::string_view t = trim(line);
    if (t.empty())
      return;
    if (header(line, t)) {
      ++job.linesUnderstood;
      return;
    }
    Frame frame;
    frame.line = number;
    Thread *thread = threads.empty() ? nullptr : &threads.back();
    Style now = thread ? thread->style : Style::None;
    Style style = Style::None;
    if (nativeFrame(t, frame) || symbolFrame(withoutNumber(t), frame))
      style = Style::Native;
    else if (pythonFrame(t, frame))
      style = Style::Python;
    else if (now != Style::Python && (spying || !thread) &&
             spyFrame(line, frame))
      style = Style::Spy;
    if (style == Style::None) {
      if (thread && thread->traceback && thread->exception.empty() &&
          !thread->frames.empty() && line[0] != ' ' && isException(t)) {
        thread->exception = std::string(t);
        ++job.linesUnderstood;
        return;
      }
      ++job.linesOther;
      return;
    }
    if (!thread || (thread->traceback && !thread->exception.empty())) {
      threads.emplace_back();
      thread = &threads.back();
    }
    // Native frames stand among Python's with py-spy --native only.
    thread->style = style;
    ++job.linesUnderstood;
    ++frames;
    if (thread->frames.size() < 4096)
      thread->frames.push_back(std::move(frame));
  }

  void finish(Rank rank) {
    if (frames == 0)
      return;
    if (rank < 0)
      rank = told;
    if (rank < 0) {
      job.notes.push_back(path + ": a stack that tells no rank; put the rank "
                                 "into the file's name");
      return;
    }
    std::erase_if(threads, [](const Thread &t) { return t.frames.empty(); });
    for (Thread &thread : threads)
      if (thread.reversed)
        std::reverse(thread.frames.begin(), thread.frames.end());
    // Debuggers and faulthandler list the main thread last.
    bool known = std::any_of(threads.begin(), threads.end(),
                             [](const Thread &t) { return t.main; });
    if (!known)
      for (size_t n = threads.size(); n-- > 0;)
        if (!threads[n].traceback) {
          threads[n].main = true;
          break;
        }
    RankEvidence &own = job.ranks[rank];
    for (const Thread &thread : threads) {
      HostWait wait;
      if (!judge(thread, wait) || own.waits.size() >= 4096)
        continue;
      wait.thread = thread.header;
      wait.file = path;
      wait.main = thread.main;
      own.waits.push_back(std::move(wait));
    }
  }

  bool any() const { return frames != 0; }

private:
  Job &job;
  std::string path;
  std::vector<Thread> threads;
  size_t frames = 0;
  bool spying = false; ///< py-spy's headers were seen
  Rank told = -1;      ///< by a command line

  static std::string_view withoutNumber(std::string_view t) {
    // "[node:123] [ 3] lib(…)": all leading brackets but an address.
    while (!t.empty() && t[0] == '[' && !starts(t, "[0x")) {
      size_t close = t.find(']');
      if (close == std::string_view::npos || close + 1 == t.size())
        break;
      t = trim(t.substr(close + 1));
    }
    return t;
  }

  void open(std::string_view text) {
    if (threads.size() >= 65536)
      threads.pop_back();
    threads.emplace_back();
    threads.back().header = std::string(text.substr(0, 120));
  }

  bool header(std::string_view line, std::string_view t) {
    if (starts(t, "Traceback (most recent call last)") ||
        starts(t, "Stack (most recent call last)")) {
      open(t);
      threads.back().reversed = true;
      threads.back().traceback = t[0] == 'T';
      return true;
    }
    bool first = holds(t, "(most recent call first)");
    // The C stack that newer Pythons add is of the same thread.
    if (starts(t, "Current thread's C stack") && first)
      return true;
    if ((starts(t, "Current thread") && first) ||
        starts(t, "Stack (most recent call first)")) {
      open(t);
      return true;
    }
    if (starts(line, "Thread ") || starts(t, "* thread #") ||
        starts(t, "thread #") || starts(line, "TID ") || starts(line, "LWP ")) {
      open(t);
      Thread &thread = threads.back();
      bool spy = (holds(t, "(active") || holds(t, "(idle")) && !first;
      spying = spying || spy;
      thread.main = holds(t, "\"MainThread\"") || starts(t, "Thread 1 ") ||
                    starts(t, "* thread #1,") || starts(t, "thread #1,");
      return true;
    }
    if (starts(line, "Process ") && holds(t, ":")) {
      spying = true;
      told = rankOfCommand(t);
      return true;
    }
    return starts(line, "Python v") || starts(line, "PID ");
  }

  /// "--rank=3", "--local_rank 3" of a command line.
  static Rank rankOfCommand(std::string_view t) {
    for (std::string_view key :
         {"--rank", "--node_rank_id", "--local-rank", "--local_rank", "RANK"}) {
      size_t at = t.find(key);
      if (at == std::string_view::npos)
        continue;
      at += key.size();
      if (at < t.size() && (t[at] == '=' || t[at] == ' '))
        ++at;
      Rank v = -1;
      auto [end, ec] = std::from_chars(t.data() + at, t.data() + t.size(), v);
      if (ec == std::errc() && v >= 0)
        return v;
    }
    return -1;
  }
};

/// `py-spy dump --json`: a list of threads. False if it is no such thing.
bool readSpyJson(std::string_view text, const std::string &path, Rank rank,
                 Job &job) {
  Document doc;
  std::string error;
  if (!doc.parseJson(text, {"locals", "process_info"}, error))
    return false;
  const Document::Node *root = doc.at(doc.root);
  if (root->type != Document::Type::List)
    return false;
  RankEvidence own;
  size_t frames = 0;
  for (const auto *t = doc.first(root); t; t = doc.next(t)) {
    const auto *list = doc.member(t, "frames");
    if (!list || list->type != Document::Type::List)
      return false;
    Thread thread;
    std::string_view name = Document::string(doc.member(t, "thread_name"));
    thread.header = "Thread " +
                    std::to_string(Document::integer(
                        doc.member(t, "os_thread_id"),
                        Document::integer(doc.member(t, "thread_id"), 0))) +
                    " " + std::string(name.substr(0, 100));
    thread.main = name == "MainThread";
    for (const auto *f = doc.first(list); f; f = doc.next(f)) {
      Frame frame;
      frame.function = std::string(Document::string(doc.member(f, "name")));
      std::string_view file = Document::string(doc.member(f, "filename")),
                       shorter =
                           Document::string(doc.member(f, "short_filename"));
      // Both: the short one is what people know, the long one tells libraries.
      frame.file = std::string(file.empty() ? shorter : file);
      int64_t line = Document::integer(doc.member(f, "line"), 0);
      frame.sourceLine = uint32_t(std::clamp<int64_t>(line, 0, INT32_MAX));
      frame.python = holds(frame.file, ".py") || starts(frame.file, "<");
      if (!frame.python)
        frame.file.clear(), frame.sourceLine = 0;
      frame.line = 1;
      ++frames;
      thread.frames.push_back(std::move(frame));
    }
    HostWait wait;
    if (judge(thread, wait) && own.waits.size() < 4096) {
      wait.thread = thread.header;
      wait.file = path;
      wait.main = thread.main;
      own.waits.push_back(std::move(wait));
    }
  }
  if (frames == 0)
    return false;
  job.haveStacks = true;
  job.linesUnderstood += frames;
  if (rank < 0) {
    job.notes.push_back(path + ": a stack that tells no rank; put the rank "
                               "into the file's name");
    return true;
  }
  RankEvidence &into = job.ranks[rank];
  into.files.push_back(path);
  into.waits.insert(into.waits.end(), own.waits.begin(), own.waits.end());
  return true;
}

} // namespace

bool looksLikeStack(std::string_view head) {
  size_t first = head.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos)
    return false;
  if (head[first] == '[' && holds(head, "\"frames\"") &&
      holds(head, "\"thread_id\""))
    return true;
  // A frame, or the head of a thread, at the start of some line.
  size_t lines = 0;
  for (size_t at = 0; at < head.size() && ++lines < 20000;) {
    size_t end = std::min(head.find('\n', at), head.size());
    std::string_view line = head.substr(at, end - at);
    at = end + 1;
    Rank rank;
    line = withoutPrefix(line, rank);
    std::string_view t = trim(line);
    if (t.empty())
      continue;
    Frame frame;
    if (holds(t, "(most recent call first)") ||
        starts(t, "Traceback (most recent call last)") ||
        nativeFrame(t, frame) || pythonFrame(t, frame))
      return true;
    if (starts(line, "Thread ") &&
        (holds(t, "(LWP ") || holds(t, "(active") || holds(t, "(idle")))
      return true;
    if (starts(line, "TID ") && t.back() == ':')
      return true;
    // "[node:123] [ 3] lib(f+0x1)[0x2]"
    if (t[0] == '[' && holds(t, "] [ ") && holds(t, ")[0x"))
      return true;
  }
  return false;
}

void readStack(std::string_view text, const std::string &path, Rank rank,
               Job &job) {
  size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && text[first] == '[' &&
      readSpyJson(text, path, rank, job))
    return;
  // What launchers have put together is told apart by their prefixes.
  std::map<Rank, Reader> readers;
  uint32_t lineNo = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, std::min<size_t>(end - at, 4096));
    at = end + 1;
    ++lineNo;
    Rank prefix;
    line = withoutPrefix(line, prefix);
    readers.try_emplace(prefix, job, path).first->second.take(line, lineNo);
  }
  job.haveStacks = true;
  bool any = false;
  for (auto &[prefix, reader] : readers) {
    any = any || reader.any();
    Rank of = prefix >= 0 ? prefix : rank;
    if (reader.any() && of >= 0)
      job.ranks[of].files.push_back(path);
    reader.finish(of);
  }
  if (!any)
    job.notes.push_back(path + ": no stack frames recognised");
}

} // namespace concord::order::evidence

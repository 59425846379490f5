//===- HostModes.cpp - comm-run --topology and --preflight ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Preflight does what bring-up will do (memory file, address space, pidfds)
// rather than to read settings that might forbid it.
//
//===----------------------------------------------------------------------===//

#include "HostModes.h"

#include "Environment.h"
#include "Options.h"
#include "Topology.h"
#include "common/CpuClass.h"
#include "common/Files.h"
#include "common/HostTensor.h"
#include "context/Env.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

using nlohmann::json;

namespace concord::tools {

namespace {

struct Check {
  std::string name;
  int grade; ///< 0 ok, 1 a warning, 2 the job will not run
  std::string words;
};

std::string firstLine(const std::string &path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string bytesText(double bytes) {
  char text[32];
  const char *units = "BKMGTP";
  while (bytes >= 1024 && units[1]) {
    bytes /= 1024;
    ++units;
  }
  std::snprintf(text, sizeof text, "%.4g%c", bytes, *units);
  return text;
}

Check checkVersions() {
  auto bin = executableDir();
  std::string missing;
  for (const char *tool : {"concord-rank", "comm-opt"})
    if (::access((bin / tool).c_str(), X_OK) != 0)
      missing += std::string(missing.empty() ? "" : ", ") + tool;
  std::string path = (bin.parent_path() / "lib" / "libconcord.so").string();
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return {"versions", 2, path + ": " + ::dlerror()};
  auto version =
      reinterpret_cast<uint32_t (*)()>(::dlsym(library, "concord_version"));
  auto abi =
      reinterpret_cast<uint32_t (*)()>(::dlsym(library, "concord_abi_version"));
  if (!version || !abi)
    return {"versions", 2, path + ": is not Concord's library"};
  uint32_t number = version(), abiNumber = abi();
  if (number != rt::kLibraryVersion || abiNumber != CONCORD_ABI_VERSION)
    return {"versions", 2,
            path + ": is another version than comm-run (" +
                std::to_string(number) + ", ABI " + std::to_string(abiNumber) +
                "; comm-run is " + std::to_string(rt::kLibraryVersion) +
                ", ABI " + std::to_string(CONCORD_ABI_VERSION) + ")"};
  std::string words =
      "Concord " + std::to_string(number / 10000) + "." +
      std::to_string(number / 100 % 100) + "." + std::to_string(number % 100) +
      ", ABI " + std::to_string(abiNumber) + ", processor class " + cpuClass() +
      ", Linux " + firstLine("/proc/sys/kernel/osrelease");
  if (!missing.empty())
    return {"versions",
            missing.find("concord-rank") != std::string::npos ? 2 : 1,
            words + "; not beside comm-run: " + missing};
  return {"versions", 0, words};
}

Check checkInterfaces() {
  ifaddrs *list = nullptr;
  if (::getifaddrs(&list) != 0)
    return {"interfaces", 1, std::strerror(errno)};
  std::vector<std::string> up;
  for (ifaddrs *at = list; at; at = at->ifa_next)
    if (at->ifa_addr && (at->ifa_flags & IFF_UP) &&
        (at->ifa_flags & IFF_RUNNING) && !(at->ifa_flags & IFF_LOOPBACK) &&
        (at->ifa_addr->sa_family == AF_INET ||
         at->ifa_addr->sa_family == AF_INET6) &&
        std::find(up.begin(), up.end(), at->ifa_name) == up.end())
      up.push_back(at->ifa_name);
  ::freeifaddrs(list);
  std::string words;
  for (const std::string &name : up)
    words += (words.empty() ? "" : ", ") + name;
  if (up.empty())
    return {"interfaces", 0,
            "none is up but loopback; a job on one host needs none"};
  return {"interfaces", 0, words};
}

Check checkLimits(int64_t ranks, uint64_t heapBytes) {
  rlimit files{}, space{}, processes{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_AS, &space);
  ::getrlimit(RLIMIT_NPROC, &processes);
  rlim_t wantFiles = rlim_t(64 + 6 * ranks);
  if (files.rlim_cur < wantFiles)
    return {"limits", 2,
            "open files: " + std::to_string(files.rlim_cur) + ", " +
                std::to_string(ranks) + " ranks need " +
                std::to_string(wantFiles) + " (ulimit -n)"};
  double wantSpace = double(ranks) * double(heapBytes) + 2e9;
  if (space.rlim_cur != RLIM_INFINITY && double(space.rlim_cur) < wantSpace)
    return {"limits", 2,
            "address space: " + bytesText(double(space.rlim_cur)) + ", " +
                std::to_string(ranks) + " heaps of " +
                bytesText(double(heapBytes)) +
                " need more (ulimit -v, or a smaller CONCORD_HEAP_BYTES)"};
  return {"limits", 0,
          "open files " + std::to_string(files.rlim_cur) +
              ", address space unlimited enough, processes " +
              (processes.rlim_cur == RLIM_INFINITY
                   ? std::string("unlimited")
                   : std::to_string(processes.rlim_cur))};
}

Check checkSharedMemory(int64_t ranks, uint64_t heapBytes) {
  try {
    auto segment = rt::Segment::create(int(ranks), heapBytes);
    // Really write: a limit of the control group shows only then.
    for (int r = 0; r < int(ranks); ++r)
      std::memset(segment->heap(r), 1, 4096);
  } catch (const rt::Error &error) {
    return {"shared memory", 2, error.text};
  }
  double available = 0;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string name; meminfo >> name;) {
    double kilobytes;
    if (name == "MemAvailable:" && meminfo >> kilobytes)
      available = kilobytes * 1024;
  }
  std::string limit = firstLine("/sys/fs/cgroup/memory.max");
  std::string words = std::to_string(ranks) + " heaps of " +
                      bytesText(double(heapBytes)) + " can be mapped; " +
                      bytesText(available) + " of memory are available";
  if (!limit.empty() && limit != "max")
    words += ", the control group allows " + bytesText(std::stod(limit));
  struct statvfs info;
  if (::statvfs("/dev/shm", &info) == 0) {
    double left = double(info.f_bavail) * double(info.f_frsize);
    if (left < 64e6)
      return {"shared memory", 1,
              words + "; /dev/shm has " + bytesText(left) +
                  " left: inputs and outputs go there unless TMPDIR is set"};
    words += ", /dev/shm has " + bytesText(left) + " left";
  }
  words += ", huge pages for it: " +
           firstLine("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  return {"shared memory", 0, words};
}

Check checkProcesses() {
  int fd = int(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (fd < 0)
    return {"processes", 2,
            std::string("pidfd_open: ") + std::strerror(errno) +
                ": ranks could not see each other die (Linux 5.3 is needed; a "
                "seccomp filter may forbid it)"};
  ::close(fd);
  return {"processes", 0, "ranks can watch each other (pidfd)"};
}

Check checkClocks() {
  std::string source = firstLine(
      "/sys/devices/system/clocksource/clocksource0/current_clocksource");
  timespec before, after;
  ::clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 0; i < 1000; ++i)
    ::clock_gettime(CLOCK_MONOTONIC, &after);
  double each = (double(after.tv_sec - before.tv_sec) * 1e9 +
                 double(after.tv_nsec - before.tv_nsec)) /
                1000;
  timex state{};
  int synchronised = ::adjtimex(&state);
  char text[160];
  std::snprintf(text, sizeof text, "source %s, %.0f ns a look, wall clock %s",
                source.empty() ? "not known" : source.c_str(), each,
                synchronised == TIME_ERROR ? "not synchronised"
                                           : "synchronised");
  // Only comparing logs of several hosts needs the latter.
  return {"clocks", each > 1000 ? 1 : 0, text};
}

Check checkEnvironment() {
  size_t count;
  const concord_variable *variables = concord_variables(&count);
  std::string problems;
  int set = 0;
  for (size_t i = 0; i < count; ++i) {
    rt::Setting setting = rt::settingOf(variables[i]);
    set += setting.source[0] == 'e';
    if (!setting.problem.empty())
      problems += (problems.empty() ? "" : "; ") + setting.problem;
  }
  if (!problems.empty())
    return {"environment", 2, problems};
  auto unknown = rt::unknownVariables();
  if (!unknown.empty())
    return {"environment", 1,
            "nothing reads " + unknown[0].name +
                (unknown[0].meant.empty()
                     ? ""
                     : "; is " + unknown[0].meant + " meant?")};
  return {"environment", 0, std::to_string(set) + " variables set, all usable"};
}

void save(const std::string &path, const std::string &text) {
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw Error(path + ": cannot be written");
}

int preflight(int64_t ranks, const std::string &jsonFile) {
  if (ranks == 0)
    ranks = placeRanks({}, 0, false).cores;
  ranks = std::min<int64_t>(ranks, rt::kMaxRanks);
  uint64_t heapBytes = 0;
  try {
    heapBytes = rt::envBytes("CONCORD_HEAP_BYTES");
  } catch (const rt::Error &) {
    // checkEnvironment has the words.
    heapBytes = rt::kDefaultHeapBytes;
  }
  std::vector<Check> checks = {checkVersions(),
                               checkInterfaces(),
                               checkLimits(ranks, heapBytes),
                               checkSharedMemory(ranks, heapBytes),
                               checkProcesses(),
                               checkClocks(),
                               checkEnvironment()};
  static constexpr const char *kGrades[] = {"ok", "warning", "FAILED"};
  int worst = 0;
  json list = json::array();
  for (const Check &check : checks) {
    worst = std::max(worst, check.grade);
    std::printf("%-14s %-8s %s\n", check.name.c_str(), kGrades[check.grade],
                check.words.c_str());
    list.push_back(
        {{"check", check.name},
         {"result", check.grade == 2 ? "failed" : kGrades[check.grade]},
         {"words", check.words}});
  }
  std::printf("preflight for %lld ranks: %s\n", (long long)ranks,
              worst == 2   ? "this host cannot join"
              : worst == 1 ? "ready, with warnings"
                           : "ready");
  if (!jsonFile.empty())
    save(jsonFile, json{{"version", 1},
                        {"ranks", ranks},
                        {"ready", worst < 2},
                        {"checks", list}}
                           .dump(2) +
                       "\n");
  return worst == 2 ? 1 : 0;
}

} // namespace

bool isHostMode(const std::vector<std::string> &arguments) {
  return std::any_of(
      arguments.begin(), arguments.end(), [](const std::string &argument) {
        return argument == "--topology" || argument == "--preflight";
      });
}

int runHostMode(std::vector<std::string> arguments) {
  CLI::App app("comm-run --topology, --preflight: look at this host.",
               "comm-run");
  bool topology = false, wantPreflight = false;
  int64_t ranks = 0;
  std::string jsonFile, dotFile, binding = "close";
  TopologySource source;
  app.add_flag("--topology", topology,
               "print which rank goes to which core, memory node, interface");
  app.add_flag("--preflight", wantPreflight,
               "check that this host can join a job; exit 1 when it cannot");
  app.add_option("-n,--ranks", ranks, "number of ranks (one per core)")
      ->check(CLI::Range(1, 1 << 16));
  app.add_option("--json", jsonFile, "write the result as JSON (-: print)");
  app.add_option("--dot", dotFile, "write the map as a Graphviz digraph");
  app.add_option("--bind", binding,
                 "close: neighbours share caches; spread: memory bandwidth")
      ->check(CLI::IsMember({"close", "spread"}));
  app.add_option("--xml", source.xml, "a topology that lstopo wrote");
  app.add_option("--synthetic", source.synthetic,
                 "a topology in hwloc's notation");
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp &) {
    std::fputs(app.help().c_str(), stdout);
    return ExitOk;
  } catch (const CLI::ParseError &error) {
    throw Error(std::string(error.what()) + "; see comm-run --topology --help");
  }
  if (topology && wantPreflight)
    throw Error("--topology, --preflight: one at a time");
  if (wantPreflight)
    return preflight(ranks, jsonFile);
  TopologyMap map = placeRanks(source, ranks, binding == "spread");
  if (jsonFile != "-" && dotFile != "-")
    std::fputs(topologyText(map).c_str(), stdout);
  if (!jsonFile.empty())
    save(jsonFile, topologyJson(map));
  if (!dotFile.empty())
    save(dotFile, topologyDot(map));
  return ExitOk;
}

} // namespace concord::tools

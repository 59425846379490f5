//===- Launcher.cpp - What other launchers say of a rank ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One row per launcher. A batch script inside a Slurm allocation has a rank in
// its environment too, without being one of several; only what srun itself sets
// counts.
//
//===----------------------------------------------------------------------===//

#include "bootstrap/Launcher.h"
#include "context/Env.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

using namespace concord::rt;

namespace {

struct Row {
  const char *launcher;
  const char *rank, *world, *localRank, *localWorld;
  /// Must be set, too, for the launcher to count as seen.
  const char *mark;
  /// Variables whose values together name the job; null-terminated.
  std::array<const char *, 5> job;
  /// The job is named by the process that started the ranks.
  bool byStarter;
};

constexpr Row kRows[] = {
    {"torchrun",
     "RANK",
     "WORLD_SIZE",
     "LOCAL_RANK",
     "LOCAL_WORLD_SIZE",
     "MASTER_PORT",
     {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
      "TORCHELASTIC_RESTART_COUNT"},
     false},
    {"openmpi",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     "PMIX_NAMESPACE",
     {"PMIX_NAMESPACE", "PMIX_SERVER_URI2"},
     false},
    {"slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     nullptr,
     "SLURM_STEP_ID",
     {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID"},
     false},
    {"mpich",
     "PMI_RANK",
     "PMI_SIZE",
     "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS",
     nullptr,
     {},
     true},
};

int number(const Lookup &lookup, const char *name, long low, long high,
           int missing) {
  const char *text = name ? lookup(name) : nullptr;
  if (!text || !*text)
    return missing;
  char *end;
  errno = 0;
  long value = std::strtol(text, &end, 10);
  if (errno || *end || end == text || value < low || value > high)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "%s=%s is not a whole number from %ld to %ld", name, text, low, high);
  return int(value);
}

std::string readOne(const std::string &path) {
  std::string text(512, '\0');
  std::FILE *file = std::fopen(path.c_str(), "re");
  size_t n = file ? std::fread(text.data(), 1, text.size(), file) : 0;
  if (file)
    std::fclose(file);
  text.resize(n);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\0'))
    text.pop_back();
  return text;
}

} // namespace

std::optional<LaunchedRank>
concord::rt::findLauncher(const std::string &wanted, const Lookup &lookup,
                          const std::function<std::string()> &starter) {
  auto set = [&](const char *name) {
    const char *text = lookup(name);
    return text && *text;
  };
  for (const Row &row : kRows) {
    if (wanted != "auto" && wanted != row.launcher)
      continue;
    if (!set(row.rank) || !set(row.world) || (row.mark && !set(row.mark))) {
      if (wanted == "auto")
        continue;
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "CONCORD_LAUNCHER=%s, but %s is not set: this process was not "
            "started by it",
            row.launcher,
            !set(row.rank)    ? row.rank
            : !set(row.world) ? row.world
                              : row.mark);
    }
    LaunchedRank found;
    found.launcher = row.launcher;
    found.world = number(lookup, row.world, 1, 1 << 24, 1);
    found.rank = number(lookup, row.rank, 0, 1 << 24, 0);
    if (found.rank >= found.world)
      raise(CONCORD_ERROR_INVALID_ARGUMENT, "%s=%d is outside a world of %s=%d",
            row.rank, found.rank, row.world, found.world);
    found.localRank = number(lookup, row.localRank, 0, 1 << 24, -1);
    found.localWorld = number(lookup, row.localWorld, 1, 1 << 24, -1);
    bool slurm = std::strcmp(row.launcher, "slurm") == 0;
    if (slurm && number(lookup, "SLURM_STEP_NUM_NODES", 1, 1 << 24, 1) == 1)
      found.localWorld = found.world;
    found.severalHosts =
        (slurm && found.localWorld < 0) ||
        (found.localWorld >= 0 && found.localWorld != found.world);
    if (found.world > kMaxRanks)
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "%s=%d ranks: a job has 1 to %d ranks", row.world, found.world,
            kMaxRanks);
    found.job = row.launcher;
    for (const char *name : row.job)
      if (name)
        found.job += std::string("\n") + (set(name) ? lookup(name) : "");
    if (row.byStarter)
      found.job += "\n" + starter();
    return found;
  }
  return std::nullopt;
}

std::string concord::rt::startingProcess() {
  static constexpr const char *kLaunchers[] = {
      "hydra_pmi_proxy", "mpiexec.hydra", "mpiexec", "mpirun",
      "orted",           "prted",         "prterun", "slurmstepd"};
  std::string nearest;
  long pid = ::getppid();
  for (int step = 0; pid > 1 && step < 32; ++step) {
    std::string folder = "/proc/" + std::to_string(pid);
    std::string stat = readOne(folder + "/stat");
    size_t open = stat.find('('), close = stat.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close < open)
      break;
    std::string comm = stat.substr(open + 1, close - open - 1);
    // After the command come state and parent; the start time is the 22nd.
    std::string rest = stat.substr(std::min(close + 2, stat.size()));
    long parent = 0;
    std::string start;
    size_t at = 0;
    for (int field = 3; field <= 22 && at < rest.size(); ++field) {
      size_t end = std::min(rest.find(' ', at), rest.size());
      if (field == 4)
        parent = std::atol(rest.substr(at, end - at).c_str());
      if (field == 22)
        start = rest.substr(at, end - at);
      at = end + 1;
    }
    std::string name = std::to_string(pid) + "@" + start;
    if (nearest.empty())
      nearest = name;
    for (const char *launcher : kLaunchers)
      if (comm == launcher)
        return name;
    pid = parent;
  }
  return nearest;
}

std::optional<LaunchedRank> concord::rt::launchedHere() {
  static constexpr const char *kWords[] = {"auto",    "concord", "torchrun",
                                           "openmpi", "slurm",   "mpich"};
  std::string word = kWords[envWord("CONCORD_LAUNCHER")];
  if (word == "concord")
    return std::nullopt;
  return findLauncher(word, ::getenv, startingProcess);
}

//===- Context.cpp - Joining and leaving a job ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bring-up: find the job's memory, take the rank, wait until all have joined,
// check that they fit together, watch their processes, make the communicator of
// all ranks. Every step has a deadline and names who is missing.
//
//===----------------------------------------------------------------------===//

#include "context/Context.h"
#include "bootstrap/Rendezvous.h"
#include "concord/cost/Machine.h"
#include "context/BringUp.h"
#include "context/Lifecycle.h"
#include "diagnosis/Error.h"
#include "diagnosis/Hang.h"
#include "diagnosis/Watchdog.h"
#include "engine/Engine.h"
#include "gate/Gate.h"
#include "program/Program.h"
#include "transport/Hosts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <sstream>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

using namespace concord::rt;

concord_context::concord_context() = default;
concord_context::~concord_context() = default;

uint32_t concord_context::groupThread() const {
  return threadLevel == CONCORD_THREAD_MULTIPLE ? threadId() : 0;
}

concord_context::Group *concord_context::findGroup() {
  const uint32_t thread = groupThread();
  for (Group &each : groups)
    if (each.thread == thread)
      return &each;
  return nullptr;
}

int32_t Entry::refused() const {
  return fail(CONCORD_ERROR_THREAD,
              "rank %d: two threads are inside one context, which was made "
              "without CONCORD_THREAD_MULTIPLE",
              context.rank);
}

static bool isLocal(const Context &context, int rank) {
  return !context.hosts || context.hosts->isLocal(rank);
}

static int coresAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static int firstCore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &set))
        return i;
  return -1;
}

/// Bytes of the last-level cache that a core stores into. The C library's
/// figure is that of the whole package, all the caches of its dies together.
static uint64_t lastLevelCache(int core) {
  uint64_t bytes = 0;
  for (int index = 0; index < 8; ++index) {
    std::string path = "/sys/devices/system/cpu/cpu" + std::to_string(core) +
                       "/cache/index" + std::to_string(index) + "/size";
    FILE *file = std::fopen(path.c_str(), "re");
    if (!file)
      break;
    unsigned long long size = 0;
    char unit = 0;
    int fields = std::fscanf(file, "%llu%c", &size, &unit);
    std::fclose(file);
    if (fields >= 1)
      bytes = std::max<uint64_t>(bytes, size << (unit == 'M'   ? 20
                                                 : unit == 'K' ? 10
                                                               : 0));
  }
  return bytes ? bytes : uint64_t(32) << 20;
}

/// What is in a file; nothing where it cannot be read.
static std::string contentOf(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Of a file that all ranks must agree on, what is in it counts.
static uint32_t hashSetting(const concord_variable &variable) {
  std::string value = settingOf(variable).value;
  if (variable.type == CONCORD_VARIABLE_FILE && !value.empty())
    value = contentOf(value);
  return uint32_t(hashText(1, value));
}

/// Forms by the calibration that comm-bench has left for this host; none where
/// there is no such file or CONCORD_CALIBRATION says something else. Nobody has
/// asked for it, so that a file which is no calibration is no reason to fail.
static std::vector<Score> hostScores(const Context &context) {
  const std::string path = concord::cost::defaultCalibrationPath();
  if (!envText("CONCORD_CALIBRATION").empty() ||
      ::access(path.c_str(), F_OK) != 0)
    return {};
  try {
    return measuredScores(path, envText("CONCORD_OBJECTIVE"));
  } catch (const Error &error) {
    context.log.write(LogLevel::Warn,
                      "this host's calibration is not used: %s; write it anew "
                      "with comm-bench --calibrate, or remove it",
                      error.what());
    return {};
  }
}

/// Not 0, but of no scores.
static uint64_t hashScores(const std::vector<Score> &scores) {
  std::string text;
  for (const Score &score : scores)
    text += std::to_string(int(score.kind)) + ':' + std::to_string(score.from) +
            '-' + std::to_string(score.to) + ':' +
            std::to_string(int(score.form)) + '@' +
            std::to_string(score.ranks) + ';';
  return text.empty() ? 0 : hashText(1, text) | 1;
}

/// By what forms are chosen: what was asked for, else a calibration.
static std::vector<Score> findScores(const Context &context) {
  // Who asks for forms does not want others.
  std::vector<Score> scores =
      parseScores(envText("CONCORD_ALGORITHM"), context.hosts != nullptr);
  std::string file = envText("CONCORD_CALIBRATION");
  if (!scores.empty() || file == "none")
    return scores;
  const std::string objective = envText("CONCORD_OBJECTIVE");
  if (!file.empty()) {
    try {
      scores = measuredScores(file, objective);
    } catch (const Error &error) {
      raise(CONCORD_ERROR_INVALID_ARGUMENT, "CONCORD_CALIBRATION: %s",
            error.what());
    }
    if (scores.empty())
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "CONCORD_CALIBRATION: %s has no forms for %s; write it anew with "
            "comm-bench --calibrate",
            file.c_str(), objective.c_str());
    return scores;
  }
  // Nobody has asked, so hosts that were calibrated differently, or only one of
  // them, are no reason to fail; but all ranks must choose alike.
  const uint64_t first = context.segment->slot(0).calibration;
  for (int r = 1; r < context.world; ++r)
    if (context.segment->slot(r).calibration != first) {
      if (context.rank == 0)
        context.log.write(LogLevel::Warn,
                          "ranks 0 and %d (hosts %.63s and %.63s) have "
                          "different calibrations: none is used; set "
                          "CONCORD_CALIBRATION to one that all have, or to "
                          "none",
                          r, context.segment->slot(0).host,
                          context.segment->slot(r).host);
      return scores;
    }
  // What this rank has told the others of, and not what the file says by now.
  return context.hostScores;
}

static void takeRank(Context &context, const Origin &origin,
                     const concord_context_config &config) {
  RankSlot &slot = context.segment->slot(context.rank);
  int64_t none = 0, pid = ::getpid();
  if (!slot.pid.compare_exchange_strong(none, pid))
    raise(CONCORD_ERROR_RANK_TAKEN,
          "rank %d is already taken by process %lld; this one is %lld",
          context.rank, (long long)none, (long long)pid);
  slot.startTime = processStartTime(pid);
  slot.pidNamespace = ownPidNamespace();
  slot.self = reinterpret_cast<uintptr_t>(&slot);
  slot.abi = CONCORD_ABI_VERSION;
  slot.version = kLibraryVersion;
  slot.core = firstCore();
  unsigned index = 0;
  size_t count;
  const concord_variable *variables = concord_variables(&count);
  for (size_t i = 0; i < count && index < kMaxSharedSettings; ++i)
    if (variables[i].agree)
      slot.settings[index++] = hashSetting(variables[i]);
  context.hostScores = hostScores(context);
  slot.calibration = hashScores(context.hostScores);
  if (context.hosts)
    std::snprintf(slot.host, sizeof slot.host, "%s",
                  context.hosts->nameOf(context.rank).c_str());
  else
    ::gethostname(slot.host, sizeof slot.host - 1);
  try {
    describeDevice(context, origin, config);
  } catch (const Error &error) {
    abortJob(context, error.what());
    throw;
  }
  slot.state.store(CONCORD_RANK_RUNNING, std::memory_order_release);
  context.joined = true;
  context.segment->announce();
}

/// True when the process of a rank that has joined is no more.
static bool processGone(const RankSlot &slot) {
  int64_t pid = slot.pid.load(std::memory_order_acquire);
  return pid != ::getpid() &&
         (processEnded(pid) || processStartTime(pid) != slot.startTime);
}

/// Wait for all ranks, or those of this host; name those that are missing after
/// the deadline.
static void awaitRanks(Context &context, double seconds, bool allHosts,
                       const std::function<void()> &lookout) {
  int64_t deadline = nowNanoseconds() + int64_t(seconds * 1e9);
  int64_t nextLook = 0;
  Segment &segment = *context.segment;
  useconds_t pause = 10;
  for (;;) {
    std::string missing;
    int64_t now = nowNanoseconds();
    bool look = now >= nextLook && !context.job;
    if (look)
      nextLook = now + 20'000'000;
    for (int r = 0; r < context.world; ++r) {
      RankSlot &slot = segment.slot(r);
      bool here = isLocal(context, r);
      if (!here && !allHosts)
        continue;
      uint32_t state = slot.state.load(std::memory_order_acquire);
      if (state == CONCORD_RANK_DEAD ||
          (look && here && state == CONCORD_RANK_RUNNING && processGone(slot) &&
           slot.state.load() == CONCORD_RANK_RUNNING))
        raise(CONCORD_ERROR_PEER_DIED,
              "rank %d died before all ranks had joined the job", r);
      if (state == CONCORD_RANK_MISSING)
        missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    }
    segment.throwIfAborted(" during bring-up");
    if (missing.empty())
      return;
    if (lookout)
      lookout();
    if (now > deadline)
      raise(CONCORD_ERROR_TIMEOUT,
            "rank %d waited %.1f s (CONCORD_CONNECT_TIMEOUT) for rank(s) %s "
            "to join",
            context.rank, seconds, missing.c_str());
    if (context.leader)
      context.leader->serve(2);
    else
      ::usleep(pause);
    pause = std::min<useconds_t>(pause * 2, 2000);
  }
}

static std::string versionText(uint32_t version) {
  return std::to_string(version / 10000) + "." +
         std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

static void checkPeers(Context &context) {
  for (int r = 0; r < context.world; ++r) {
    RankSlot &slot = context.segment->slot(r);
    if (slot.abi != CONCORD_ABI_VERSION)
      raise(CONCORD_ERROR_VERSION_MISMATCH,
            "rank %d has ABI version %u, rank %d has %d", r, slot.abi,
            context.rank, CONCORD_ABI_VERSION);
    if (slot.version != kLibraryVersion)
      raise(CONCORD_ERROR_VERSION_MISMATCH,
            "rank %d has version %s of Concord, rank %d has %s", r,
            versionText(slot.version).c_str(), context.rank,
            versionText(kLibraryVersion).c_str());
    RankSlot &own = context.segment->slot(context.rank);
    unsigned index = 0;
    size_t count;
    const concord_variable *variables = concord_variables(&count);
    for (size_t i = 0; i < count && index < kMaxSharedSettings; ++i) {
      if (!variables[i].agree)
        continue;
      unsigned at = index++;
      if (slot.settings[at] != own.settings[at])
        raise(CONCORD_ERROR_MISMATCH,
              "%s differs between rank %d, where it is '%s', and rank %d",
              variables[i].name, context.rank,
              settingOf(variables[i]).value.c_str(), r);
    }
    if (slot.pidNamespace != ownPidNamespace())
      raise(CONCORD_ERROR_NOT_SUPPORTED,
            "ranks %d and %d are in different pid namespaces, so they cannot "
            "see each other die: run the containers with a shared one "
            "(--pid=host or --pid=container:NAME)",
            context.rank, r);
  }
}

/// What this rank goes by and where it has it from; and names in the
/// environment that look like ours and are not.
static void logSettings(const Context &context,
                        const concord_context_config &config) {
  const Log &log = context.log;
  if (context.rank == 0)
    for (const UnknownVariable &unknown : unknownVariables())
      log.write(LogLevel::Warn, "%s is set, but nothing reads it%s%s%s",
                unknown.name.c_str(), unknown.meant.empty() ? "" : "; is ",
                unknown.meant.c_str(), unknown.meant.empty() ? "" : " meant?");
  if (!log.on(LogLevel::Info))
    return;
  log.write(LogLevel::Info, "Concord %s, ABI %d, process %lld",
            versionText(kLibraryVersion).c_str(), CONCORD_ABI_VERSION,
            (long long)::getpid());
  size_t count;
  const concord_variable *variables = concord_variables(&count);
  for (size_t i = 0; i < count; ++i) {
    const concord_variable &variable = variables[i];
    if (variable.reader != CONCORD_READER_RUNTIME &&
        variable.reader != CONCORD_READER_KERNELS)
      continue;
    Setting setting = settingOf(variable);
    std::string name = variable.name;
    auto argument = [&](const char *which, double given) {
      if (name == which && given != 0) {
        char text[32];
        std::snprintf(text, sizeof text, "%.15g", given);
        setting = {text, "argument", ""};
      }
    };
    argument("CONCORD_TIMEOUT", config.timeout_seconds);
    argument("CONCORD_CONNECT_TIMEOUT", config.connect_timeout_seconds);
    argument("CONCORD_HEAP_BYTES", double(config.heap_bytes));
    log.write(LogLevel::Info, "CONCORD_ENV %s set by %s to %s", name.c_str(),
              setting.source, setting.value.c_str());
  }
}

/// What the caller, or the environment, asks for; else the default.
static void chooseGateMode(Context &context, int32_t mode) {
  if (mode < CONCORD_GATE_DEFAULT || mode > CONCORD_GATE_HOLD)
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%d is not a gate mode", mode);
  // The words of the list stand in the order of concord_gate_mode.
  if (mode == CONCORD_GATE_DEFAULT)
    mode = envWord("CONCORD_GATE");
  context.gateChosen = mode != CONCORD_GATE_DEFAULT;
  if (context.gateChosen)
    context.gateMode = mode;
}

/// True when this process may read the memory of all other ranks (ptrace's
/// permission, which containers and Yama may withhold).
static bool readsPeers(Context &context) {
  for (int r = 0; r < context.world; ++r) {
    if (!isLocal(context, r))
      continue;
    RankSlot &slot = context.segment->slot(r);
    uint64_t word;
    iovec here{&word, sizeof word};
    iovec there{reinterpret_cast<void *>(slot.self), sizeof word};
    if (::process_vm_readv(pid_t(slot.pid.load()), &here, 1, &there, 1, 0) !=
        ssize_t(sizeof word))
      return false;
  }
  return true;
}

std::unique_ptr<Context>
concord::rt::prepareContext(const concord_context_config &config) {
  auto context = std::make_unique<concord_context>();
  context->stageAlways = config.stage_always;
  chooseGateMode(*context, config.gate_mode);
  context->deviceSlots = config.device_slots
                             ? config.device_slots
                             : unsigned(envInteger("CONCORD_DEVICE_SLOTS"));
  context->hangSeconds = envSeconds("CONCORD_HANG_REPORT");
  context->issueFolder = envText("CONCORD_ISSUE_LOG");
  context->pid = ::getpid();
  context->timeoutSeconds = config.timeout_seconds != 0
                                ? config.timeout_seconds
                                : envSeconds("CONCORD_TIMEOUT");
  context->connectSeconds = config.connect_timeout_seconds > 0
                                ? config.connect_timeout_seconds
                                : envSeconds("CONCORD_CONNECT_TIMEOUT");
  context->gateSeconds =
      config.gate_timeout_seconds != 0
          ? config.gate_timeout_seconds
          : envSeconds("CONCORD_GATE_TIMEOUT", context->timeoutSeconds);
  return context;
}

Context *concord::rt::joinJob(const concord_context_config &config) {
  if (config.abi_version && config.abi_version != CONCORD_ABI_VERSION)
    raise(CONCORD_ERROR_VERSION_MISMATCH,
          "the caller was compiled for ABI version %u, the library has %d",
          config.abi_version, CONCORD_ABI_VERSION);
  if (config.thread_level < CONCORD_THREAD_SINGLE ||
      config.thread_level > CONCORD_THREAD_MULTIPLE)
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%d is not a thread level",
          config.thread_level);
  for (double seconds : {config.timeout_seconds, config.gate_timeout_seconds,
                         config.connect_timeout_seconds})
    if (std::isnan(seconds))
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "a timeout of the configuration is not a number");
  if (config.connect_timeout_seconds < 0)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "connect_timeout_seconds is %g: ranks that never come must not be "
          "waited for for ever; 0 is CONCORD_CONNECT_TIMEOUT",
          config.connect_timeout_seconds);
  std::unique_ptr<Context> context = prepareContext(config);
  Origin origin = findOrigin(*context, config);
  if (config.unique_id)
    context->usedIds.push_back(*origin.key);
  context->log.open(context->rank);
  logSettings(*context, config);
  context->log.write(LogLevel::Info, "rank %d of %d by %s", context->rank,
                     context->world, origin.words.c_str());
  return enterJob(std::move(context), origin, config);
}

Context *concord::rt::enterJob(std::unique_ptr<Context> context, Origin origin,
                               const concord_context_config &config) {
  const double connect = context->connectSeconds;
  if (origin.severalHosts)
    findHosts(*context, origin, connect);
  if (!context->segment)
    openJob(*context, origin, config);
  // Those of the job that it was grown from have logs of the same ranks.
  if (context->segment->header().grownFrom && origin.key &&
      !context->issueFolder.empty())
    context->issueFolder += "/grown-" + origin.key->hex().substr(0, 8);
  takeRank(*context, origin, config);
  bool complete = false;
  try {
    context->arithmetic = &arithmetic();
    context->cacheBytes = envBytes("CONCORD_CACHE_BYTES",
                                   lastLevelCache(std::max(firstCore(), 0)));
    // Off means off: nothing is remembered either.
    if (context->gateMode != CONCORD_GATE_OFF)
      context->logBlock = &context->segment->log(context->rank);
    context->issues.open(context->logBlock, context->rank, context->world);
    context->heap.reset(context->segment->heap(context->rank),
                        context->segment->heapBytes());
    placeHeap(*context);
    awaitRanks(*context, connect, false, origin.look);
    if (context->hosts) {
      context->hosts->mirror(*context, connect);
      awaitRanks(*context, connect, true, origin.look);
    }
    complete = true;
    context->leader.reset();
    checkPeers(*context);
    checkDevices(*context);
    logRanks(*context);
    context->hugePages = envInteger("CONCORD_HUGE_PAGES") != 0;
    context->scores = findScores(*context);
    context->link = parseLink(envText("CONCORD_LINK"));
    context->singleCopy = envBytes("CONCORD_SINGLE_COPY");
    if (!readsPeers(*context))
      context->singleCopy = ~uint64_t(0);
    if (!config.job || context->hosts) {
      context->watchdog = std::make_unique<Watchdog>(*context);
      for (int r = 0; r < context->world; ++r)
        if (r != context->rank)
          context->watchdog->watch(r);
      context->watchdog->start();
    }
    // Ranks bound to different cores each see one core; together they have as
    // many as there are different ones.
    uint64_t cores = 0;
    int here = 0;
    for (int r = 0; r < context->world; ++r) {
      if (!isLocal(*context, r))
        continue;
      ++here;
      int core = context->segment->slot(r).core;
      if (core >= 0 && core < 64)
        cores |= uint64_t(1) << core;
    }
    context->oversubscribed =
        std::max(coresAllowed(), __builtin_popcountll(cores)) <
        (context->hosts ? std::max(here, context->hosts->ranksOfMachine())
                        : here);
    std::vector<int32_t> all(context->world);
    for (int r = 0; r < context->world; ++r)
      all[r] = r;
    context->worldComm = makeComm(*context, 1, all, "world", 0, true);
  } catch (const Error &error) {
    // Those who still wait learn why; a deadline they have of their own.
    if (!complete && error.status != CONCORD_ERROR_TIMEOUT &&
        error.status != CONCORD_ERROR_ABORTED)
      abortJob(*context, error.what());
    if (context->leader)
      context->leader->dismiss(error.status, error.text);
    leaveJob(context.release(), false);
    throw;
  } catch (...) {
    leaveJob(context.release(), false);
    throw;
  }
  // Until here one thread had it to itself.
  context->threadLevel = config.thread_level;
  if (context->job)
    context->job->contexts.fetch_add(1);
  return context.release();
}

/// A rank that leaves in good order leaves its issue log, if one is wanted.
static void leaveLog(const Context &context) {
  if (context.issueFolder.empty() || !context.logBlock || !context.joined)
    return;
  std::error_code ignored; // writing the log says it
  std::filesystem::create_directories(context.issueFolder, ignored);
  std::string path =
      context.issueFolder + "/rank_" + std::to_string(context.rank) + ".issues";
  std::string why = writeLog(*context.logBlock, path);
  if (!why.empty())
    std::fprintf(stderr, "concord: cannot write the issue log %s: %s\n",
                 path.c_str(), why.c_str());
}

void concord::rt::leaveJob(concord_context *context, bool counted) {
  // An explained hang has left logs that are worth more than what is now.
  if (context->segment && !context->segment->header().explaining.load())
    leaveLog(*context);
  context->watchdog.reset();
  while (!context->programs.empty())
    dropProgram(context->programs.front()); // those of other issuers follow it
  for (concord_pool *pool : context->pools)
    delete pool;
  for (concord_stream *stream : context->streams)
    delete stream;
  for (concord_event *event : context->events)
    delete event;
  try {
    while (!context->comms.empty())
      dropComm(context->comms.back());
  } catch (const Error &) {
    // The table's lock is stuck; the memory goes with the job.
  }
  if (context->joined) {
    RankSlot &slot = context->segment->slot(context->rank);
    bool aborted = slot.state.load() == CONCORD_RANK_ABORTED;
    if (!aborted)
      slot.state.store(CONCORD_RANK_FINALIZED, std::memory_order_release);
    context->segment->announce();
    if (context->hosts) {
      if (!aborted)
        context->hosts->mesh().tell(context->hosts->remoteMask(),
                                    {.kind = Notice::Kind::Goodbye});
      if (aborted || context->dead.load() ||
          context->segment->header().aborted.load() ||
          context->asyncStatus.load() != CONCORD_OK)
        context->hosts->disorderly();
    }
  }
  if (context->job && counted)
    context->job->contexts.fetch_sub(1);
  delete context;
}

void concord::rt::abortJob(concord_context &context, const char *reason) {
  context.segment->recordAbort(context.rank, reason);
  if (context.hosts) {
    Notice notice;
    notice.kind = Notice::Kind::Aborted;
    notice.dead = context.dead.load();
    std::strncpy(notice.text, reason ? reason : "", sizeof notice.text - 1);
    context.hosts->mesh().tell(context.hosts->remoteMask(), notice);
  }
}

//===- BringUp.cpp - Which job, which rank, which device ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Precedence: what the caller gives, Concord's own variables, a rank table, the
// environment of another launcher, a job of one rank.
//
//===----------------------------------------------------------------------===//

#include "context/BringUp.h"
#include "diagnosis/Error.h"
#include "topology/Numa.h"
#include "transport/Hosts.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

using namespace concord::rt;

static std::string givenFile(const char *argument, std::string variable) {
  return argument && *argument ? argument : variable;
}

/// A launcher's word on this process, as CONCORD_LAUNCHER allows.
Origin concord::rt::findOrigin(Context &context,
                               const concord_context_config &config) {
  Origin origin;
  if (std::string file =
          givenFile(config.rank_table, envText("CONCORD_RANK_TABLE"));
      !file.empty()) {
    std::string text = readText(file);
    origin.table = parseRankTable(text, file);
    origin.tableHash = hashText(1, text) | 1;
  }
  context.rank = config.rank;
  if (config.job) {
    origin.words = "threads of one process";
    context.job = config.job;
    context.world = config.job->segment->world();
    origin.local = context.rank;
    if (config.job->transport) {
      origin.launched = {.launcher = origin.words,
                         .rank = context.rank,
                         .world = context.world,
                         .severalHosts = true,
                         .job = origin.words};
      origin.severalHosts = true;
    }
  } else if (config.unique_id) {
    origin.words = "unique id";
    origin.key = JobKey::of(*config.unique_id);
    context.world = config.world;
    origin.local = context.rank;
  } else if (int64_t fd = envInteger("CONCORD_JOB_FD", -1); fd >= 0) {
    origin.words = "comm-run";
    origin.descriptor = int(fd);
    context.world = int(envInteger("CONCORD_WORLD", 1));
    context.rank = int(envInteger("CONCORD_RANK", 0));
    origin.local = context.rank;
  } else if (std::optional<LaunchedRank> found = launchedHere()) {
    origin.words = found->launcher;
    context.world = found->world;
    context.rank = found->rank;
    origin.local = found->localRank >= 0 ? found->localRank : found->rank;
    origin.key = JobKey::of(found->job);
    origin.launched = found;
    origin.severalHosts =
        found->world > 1 &&
        (found->severalHosts || !envText("CONCORD_HOST_ID").empty());
  } else {
    origin.words = "alone";
    context.world = int(envInteger("CONCORD_WORLD", 1));
    context.rank = int(envInteger("CONCORD_RANK", 0));
    origin.local = context.rank;
    if (origin.table) {
      // The table says how many; its text is what the ranks have in common.
      origin.words = "rank table";
      if (!*envText("CONCORD_RANK").c_str() && origin.table->ranks.size() > 1)
        raise(CONCORD_ERROR_INVALID_ARGUMENT,
              "a rank table of %zu ranks without a rank: set CONCORD_RANK",
              origin.table->ranks.size());
      if (envText("CONCORD_WORLD").empty())
        context.world = int(origin.table->ranks.size());
      origin.key =
          JobKey::of("rank table\n" + std::to_string(origin.tableHash));
    } else if (context.world != 1) {
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "CONCORD_WORLD=%d without CONCORD_JOB_FD: ranks are started by "
            "comm-run, torchrun, mpirun or srun, or find each other by a "
            "unique id or a rank table",
            context.world);
    }
  }
  if (context.world < 1 || context.world > kMaxRanks)
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%d ranks: a job has 1 to %d ranks",
          context.world, kMaxRanks);
  if (context.rank < 0 || context.rank >= context.world)
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "rank %d is outside a world of %d",
          context.rank, context.world);
  if (const auto &table = origin.table) {
    if (int(table->ranks.size()) != context.world)
      raise(CONCORD_ERROR_WRONG_WORLD,
            "the rank table has %zu ranks, the job %d", table->ranks.size(),
            context.world);
    for (const TableRank &rank : table->ranks)
      if (rank.host != table->ranks[0].host) {
        if (!origin.launched)
          raise(CONCORD_ERROR_NOT_SUPPORTED,
                "the rank table puts rank 0 on host %s and rank %d on host %s: "
                "shared memory ends at the host, and between hosts Concord "
                "uses MPI; start the ranks with mpirun",
                table->ranks[0].host.c_str(), rank.rank, rank.host.c_str());
        origin.severalHosts = true;
      }
  }
  return origin;
}

void concord::rt::findHosts(Context &context, Origin &origin,
                            double connectSeconds) {
  context.hosts =
      std::make_unique<Hosts>(context, *origin.launched, connectSeconds);
  const Hosts &hosts = *context.hosts;
  const std::vector<int> &local = hosts.localRanks();
  origin.local =
      int(std::find(local.begin(), local.end(), context.rank) - local.begin());
  origin.key = JobKey::of(hosts.meetingName());
  context.log.write(LogLevel::Info,
                    "%d hosts, by %s; %zu of %d ranks on this one, %s",
                    hosts.numHosts(), hosts.library().c_str(), local.size(),
                    context.world, hosts.nameOf(context.rank).c_str());
  if (!origin.table)
    return;
  auto hostInTable = [&](int rank) {
    return origin.table->ranks[size_t(rank)].host;
  };
  for (int r = 0; r < context.world; ++r)
    for (int q = 0; q < r; ++q)
      if ((hostInTable(q) == hostInTable(r)) !=
          (hosts.hostIndex(q) == hosts.hostIndex(r)))
        raise(CONCORD_ERROR_MISMATCH,
              "the rank table puts ranks %d and %d on hosts %s and %s, but "
              "they run on %s and %s",
              q, r, hostInTable(q).c_str(), hostInTable(r).c_str(),
              hosts.nameOf(q).c_str(), hosts.nameOf(r).c_str());
}

void concord::rt::openJob(Context &context, const Origin &origin,
                          const concord_context_config &config) {
  if (config.job) {
    context.segment = config.job->segment;
    return;
  }
  if (origin.descriptor >= 0) {
    int own = ::fcntl(origin.descriptor, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
      raiseErrno("CONCORD_JOB_FD=%d cannot be used", origin.descriptor);
    context.segment = Segment::open(own);
  } else {
    // The ranks of one host, by their numbers there, where there are several.
    int rank = context.rank, world = context.world;
    if (context.hosts) {
      rank = origin.local;
      world = int(context.hosts->localRanks().size());
    }
    if (rank == 0) {
      uint64_t heapBytes = config.heap_bytes ? config.heap_bytes
                                             : envBytes("CONCORD_HEAP_BYTES");
      context.segment = Segment::create(context.world, heapBytes);
      if (origin.key && world > 1)
        context.leader = std::make_unique<Leader>(
            *origin.key, world, context.segment->fd(), context.log);
    } else {
      context.segment = Segment::open(joinLeader(
          *origin.key, rank, world, context.connectSeconds, origin.look));
    }
  }
  if (context.segment->world() != context.world)
    raise(CONCORD_ERROR_WRONG_WORLD,
          "CONCORD_WORLD=%d, but the job's memory was made for %d ranks",
          context.world, context.segment->world());
}

void concord::rt::describeDevice(Context &context, const Origin &origin,
                                 const concord_context_config &config) {
  std::vector<int> visible = parseVisible(envText("CONCORD_VISIBLE_DEVICES"),
                                          "CONCORD_VISIBLE_DEVICES");
  std::vector<Device> devices;
  if (std::string file =
          givenFile(config.device_file, envText("CONCORD_DEVICE_FILE"));
      !file.empty())
    devices = parseDevices(readText(file), file);
  DeviceChoice choice;
  if (config.device) {
    concord_device_desc given{};
    std::memcpy(&given, config.device,
                std::min<size_t>(config.device->struct_size, sizeof given));
    choice.visible = given.visible_id;
    choice.device.physical = given.physical_id;
    if (given.kind && *given.kind)
      choice.device.kind = given.kind;
    choice.device.plane = given.plane;
    choice.device.alignment = given.alignment ? given.alignment : 64;
    choice.device.bandwidth = given.bandwidth;
    uint32_t align = choice.device.alignment;
    if ((align & (align - 1)) || align > kHugePage)
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "device: alignment %u is not a power of two up to 2 MiB", align);
    if (origin.table &&
        origin.table->ranks[size_t(context.rank)].device != given.physical_id)
      raise(CONCORD_ERROR_DEVICE_MAPPING,
            "rank %d: the rank table gives it physical device %d, but it was "
            "made with device %d",
            context.rank, origin.table->ranks[size_t(context.rank)].device,
            given.physical_id);
  } else {
    choice = chooseDevice(context.rank, origin.local, visible, devices,
                          origin.table ? &*origin.table : nullptr);
  }
  RankSlot &slot = context.segment->slot(context.rank);
  std::snprintf(slot.deviceKind, sizeof slot.deviceKind, "%s",
                choice.device.kind.c_str());
  slot.plane = choice.device.plane;
  slot.alignment = choice.device.alignment;
  slot.bandwidth = choice.device.bandwidth;
  slot.visible = choice.visible;
  slot.physical = choice.device.physical;
  slot.rankTable = origin.tableHash;
}

void concord::rt::checkDevices(Context &context) {
  Segment &segment = *context.segment;
  const RankSlot &first = segment.slot(0);
  for (int r = 0; r < context.world; ++r) {
    const RankSlot &slot = segment.slot(r);
    context.deviceKinds.emplace_back(
        slot.deviceKind, ::strnlen(slot.deviceKind, sizeof slot.deviceKind));
    if (slot.rankTable != first.rankTable)
      raise(CONCORD_ERROR_MISMATCH,
            "ranks 0 and %d were brought up with different rank tables", r);
    for (int q = 0; q < r; ++q)
      if (slot.physical >= 0 && segment.slot(q).physical == slot.physical &&
          (!context.hosts ||
           context.hosts->hostIndex(q) == context.hosts->hostIndex(r)))
        raise(CONCORD_ERROR_DEVICE_MAPPING,
              "ranks %d and %d both use physical device %d (their visible "
              "devices %d and %d)",
              q, r, slot.physical, segment.slot(q).visible, slot.visible);
    uint32_t align = slot.alignment;
    if (align && !(align & (align - 1)) && align <= kHugePage)
      context.alignment = std::max<uint64_t>(context.alignment, align);
    // Devices that do not reach each other's memory meet in the host's.
    if (slot.plane != first.plane ||
        context.deviceKinds.back() != context.deviceKinds.front()) {
      if (!context.stageAlways && context.rank == 0)
        context.log.write(LogLevel::Info,
                          "ranks 0 and %d have devices of different kinds or "
                          "planes: all operands go through staging memory",
                          r);
      context.stageAlways = true;
    }
  }
}

void concord::rt::placeHeap(Context &context) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (context.job || ::sched_getaffinity(0, sizeof cores, &cores) != 0)
    return;
  int node = nodeOfCores(cores, "/sys/devices/system/node");
  if (node < 0)
    return;
  bool done = preferNode(context.segment->heap(context.rank),
                         context.segment->heapBytes(), node);
  context.log.write(LogLevel::Info, "heap %s memory node %d",
                    done ? "is placed on" : "could not be placed on", node);
}

void concord::rt::logRanks(const Context &context) {
  if (context.rank != 0 || !context.log.on(LogLevel::Info))
    return;
  for (int r = 0; r < context.world; ++r) {
    const RankSlot &slot = context.segment->slot(r);
    context.log.write(LogLevel::Info,
                      "map: rank %d is process %lld on host %.63s, first core "
                      "%d, device %d (visible %d, kind %.15s, plane %u)",
                      r, (long long)slot.pid.load(), slot.host, slot.core,
                      slot.physical, slot.visible, slot.deviceKind, slot.plane);
  }
}

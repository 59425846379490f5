//===- Grow.cpp - More ranks than a job began with ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Group rank 0 opens the meeting place; the members compare what they were
// given and whether they can; each comes into the new job as any rank does, and
// then they take a verdict. Both exchanges are over the parent, so that all of
// its members go on with the new job or none.
//
//===----------------------------------------------------------------------===//

#include "context/Grow.h"
#include "context/BringUp.h"
#include "context/Lifecycle.h"
#include "diagnosis/Error.h"
#include "engine/Exchange.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace concord::rt;

namespace {

/// What a member tells the others before and after.
struct Report {
  int32_t status = CONCORD_OK;
  int32_t newWorld = 0;
  uint32_t hasKey = 0;
  JobKey key;
  char text[228] = {};

  void set(int32_t number, const char *words) {
    status = number;
    std::snprintf(text, sizeof text, "%s", words);
  }
};

/// The parent's context for as long as the calling thread is inside.
class Inside {
public:
  explicit Inside(Context &context) : entry(context) {
    if (int32_t status = entry.status())
      throw Error(status, lastError());
  }

private:
  Entry entry;
};

/// Why this member cannot begin, if that is so.
void checkMember(const Comm &parent, int32_t newWorld,
                 const concord_unique_id *id, Report &report) {
  const Context &context = *parent.context;
  report.newWorld = newWorld;
  if (parent.span)
    raise(CONCORD_ERROR_NOT_SUPPORTED,
          "it has members on several hosts, which met through MPI, and MPI "
          "does not let ranks in later; start a new job");
  if (newWorld <= parent.size || newWorld > kMaxRanks)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "it has %d ranks and can grow to %d at most; %d were asked for",
          parent.size, kMaxRanks, newWorld);
  // The exchange itself may be too quick to see it.
  if (parent.block.header->revoked.load(std::memory_order_acquire))
    raise(CONCORD_ERROR_REVOKED, "it was revoked");
  if (parent.head || !parent.messages.empty())
    raise(CONCORD_ERROR_BUSY, "operations are in flight on it");
  if (!context.groups.empty())
    raise(CONCORD_ERROR_BUSY, "a group is open");
  if (!context.running.empty())
    raise(CONCORD_ERROR_BUSY, "a step of a program runs");
  if (!id) {
    if (parent.me == 0)
      raise(CONCORD_ERROR_INVALID_ARGUMENT,
            "group rank 0 needs a unique id, which the new ranks have, too");
    return;
  }
  report.key = JobKey::of(*id);
  report.hasKey = 1;
  if (std::find(context.usedIds.begin(), context.usedIds.end(), report.key) !=
      context.usedIds.end())
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "the unique id was used already; make a new one");
}

std::string growthText(const Comm &parent, int32_t newWorld) {
  return "communicator '" + parent.name + "' does not grow to " +
         std::to_string(newWorld) + " ranks: ";
}

/// Throw what one of the reports says is wrong. Consequences come last: a rank
/// that left or aborted did so for a reason, which another one may have.
void judge(const Comm &parent, const std::vector<Report> &reports) {
  const Report *cause = nullptr;
  auto consequence = [](int32_t status) {
    return status == CONCORD_ERROR_ABORTED ||
           status == CONCORD_ERROR_PEER_LEFT || status == CONCORD_ERROR_TIMEOUT;
  };
  for (const Report &report : reports)
    if (report.status != CONCORD_OK &&
        (!cause || (consequence(cause->status) && !consequence(report.status))))
      cause = &report;
  if (!cause)
    return;
  std::string words(cause->text, ::strnlen(cause->text, sizeof cause->text));
  raise(cause->status, "%sat its rank %td: %s",
        growthText(parent, reports[size_t(parent.me)].newWorld).c_str(),
        cause - reports.data(), words.c_str());
}

void compare(const Comm &parent, const std::vector<Report> &reports) {
  judge(parent, reports);
  const Report &first = reports[0];
  for (const Report &report : reports) {
    if (report.newWorld != first.newWorld)
      raise(CONCORD_ERROR_MISMATCH,
            "communicator '%s' does not grow: its rank 0 wants %d ranks, its "
            "rank %td %d",
            parent.name.c_str(), first.newWorld, &report - reports.data(),
            report.newWorld);
    if (report.hasKey && report.key != first.key)
      raise(CONCORD_ERROR_MISMATCH,
            "%sits ranks 0 and %td were given different unique ids",
            growthText(parent, first.newWorld).c_str(),
            &report - reports.data());
  }
}

/// Throws when a member of the parent can no longer come into the new job.
void lookAtMembers(const Comm &parent) {
  const Segment &segment = *parent.context->segment;
  segment.throwIfAborted(" while its communicator grew");
  for (size_t i = 0; i < parent.ranks.size(); ++i) {
    const RankSlot &slot = segment.slot(parent.ranks[i]);
    uint32_t state = slot.state.load(std::memory_order_acquire);
    if (state == CONCORD_RANK_DEAD)
      raise(CONCORD_ERROR_PEER_DIED, "rank %zu (pid %lld) died meanwhile", i,
            (long long)slot.pid.load());
    if (state == CONCORD_RANK_FINALIZED)
      raise(CONCORD_ERROR_PEER_LEFT, "rank %zu has finalized meanwhile", i);
  }
}

/// As the caller's parent was made.
concord_context_config configOf(const Comm &parent,
                                concord_device_desc &device) {
  const Context &context = *parent.context;
  const RankSlot &slot = context.segment->slot(context.rank);
  device.struct_size = sizeof device;
  device.kind = context.deviceKinds[size_t(context.rank)].c_str();
  device.plane = slot.plane;
  device.alignment = slot.alignment;
  device.bandwidth = slot.bandwidth;
  device.visible_id = slot.visible;
  device.physical_id = slot.physical;
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.thread_level = context.threadLevel;
  config.heap_bytes = context.segment->heapBytes();
  // Until all are there, operations are under the deadline of bring-up.
  config.timeout_seconds = context.connectSeconds;
  config.connect_timeout_seconds = context.connectSeconds;
  config.device = &device;
  config.gate_mode =
      context.gateChosen ? context.gateMode : CONCORD_GATE_DEFAULT;
  config.gate_timeout_seconds = context.gateSeconds;
  config.device_slots = context.deviceSlots;
  return config;
}

/// Leave a job that the others do not go on with.
void giveUp(Context *grown, const char *why) {
  if (!grown)
    return;
  abortJob(*grown, why);
  leaveJob(grown, false);
}

} // namespace

Context *concord::rt::growComm(Comm &parent, int32_t newWorld,
                               const concord_unique_id *id) {
  Context &context = *parent.context;
  concord_device_desc device{};
  concord_context_config config = configOf(parent, device);
  std::unique_ptr<Context> fresh;
  Origin origin;
  int64_t began;
  {
    Inside inside(context);
    Report report;
    try {
      checkMember(parent, newWorld, id, report);
      origin.words = "growth of '" + parent.name + "'";
      origin.local = parent.me;
      origin.look = [&parent] { lookAtMembers(parent); };
      fresh = prepareContext(config);
      fresh->rank = parent.me;
      fresh->world = newWorld;
      fresh->grown = true;
      fresh->stageAlways = context.stageAlways;
      fresh->log.open(parent.me);
      if (parent.me == 0) {
        origin.key = report.key;
        openJob(*fresh, origin, config);
        fresh->segment->header().grownFrom = uint32_t(parent.size);
      }
    } catch (const Error &error) {
      report.set(error.status, error.what());
    }
    try {
      Deadline deadline(context, context.connectSeconds);
      std::vector<Report> reports = tellAll(parent, report);
      compare(parent, reports);
      origin.key = reports[0].key;
    } catch (const Error &error) {
      if (fresh && fresh->leader)
        fresh->leader->dismiss(error.status, error.text);
      throw;
    }
    // Also if nothing comes of it: who was late to an attempt that failed must
    // not come into another one.
    context.usedIds.push_back(*origin.key);
    fresh->usedIds = context.usedIds;
    began = nowNanoseconds();
  }

  // The parent's lock is open: other communicators of its context may go on.
  Context *grown = nullptr;
  Report report;
  report.newWorld = newWorld;
  try {
    fresh->log.write(LogLevel::Info, "rank %d of %d by %s", parent.me, newWorld,
                     origin.words.c_str());
    grown = enterJob(std::move(fresh), origin, config);
  } catch (const Error &error) {
    report.set(error.status, error.what());
  } catch (const std::exception &error) {
    report.set(CONCORD_ERROR_INTERNAL, error.what());
  }

  try {
    Inside inside(context);
    // A member is at most three times the deadline of bring-up in enterJob.
    double left =
        4 * context.connectSeconds - double(nowNanoseconds() - began) * 1e-9;
    Deadline deadline(context, std::max(left, context.connectSeconds));
    judge(parent, tellAll(parent, report));
  } catch (const Error &error) {
    giveUp(grown, error.what());
    throw;
  }
  grown->timeoutSeconds = context.timeoutSeconds;
  return grown;
}

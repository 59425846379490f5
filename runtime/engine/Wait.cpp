//===- Wait.cpp - Waiting without blocking for ever -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A waiting rank spins, then yields its core, then sleeps for short spans. When
// ranks outnumber cores it yields almost at once: the rank that is waited for
// may need this very core. All the while it looks at two words, one of its own
// that the watchdog writes and one that all ranks share, and looks closer when
// they change.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "diagnosis/Hang.h"
#include "diagnosis/Watchdog.h"
#include "engine/Engine.h"
#include "engine/Span.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sched.h>
#include <time.h>

using namespace concord;
using namespace concord::rt;

static constexpr uint32_t kSpinsAlone = 8000;
static constexpr uint32_t kSpinsShared = 4;
// ns of yielding before sleeping. A rank that yields is still in the way of
// those that have work, so it gives up sooner when there are more ranks than
// cores.
static constexpr int64_t kYieldAlone = 5'000'000;
static constexpr int64_t kYieldShared = 1'000'000;
static constexpr int64_t kLookEvery = 20'000'000;

const char *concord::rt::kindName(Kind kind) {
  switch (int(kind)) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_KINDS(X)
#undef X
  default:
    return "unknown operation";
  }
}

/// `describe` without allocation: a step never allocates, even where it waits.
static std::string_view describeInto(const Op &op, char *to, size_t bytes) {
  const OpRequest &r = op.request;
  bool message = r.kind == Kind::Send || r.kind == Kind::Recv;
  bool sited = r.site != ~0u, located = sited && *r.location;
  char site[24] = "";
  if (sited)
    std::snprintf(site, sizeof site, " at site %u", r.site);
  int length = std::snprintf(
      to, bytes, "%s%s #%llu of '%s'%s%s%s%s", op.fused ? "fused " : "",
      kindName(r.kind),
      (unsigned long long)(message ? op.ticket + 1 : op.sequence),
      op.comm ? op.comm->name.c_str() : "?", site, located ? " (" : "",
      located ? r.location : "", located ? ")" : "");
  return {to, std::min(size_t(std::max(length, 0)), bytes - 1)};
}

std::string concord::rt::describe(const Op &op) {
  size_t bytes = 128 + (op.comm ? op.comm->name.size() : 0) +
                 std::strlen(op.request.location);
  std::string text(bytes, '\0');
  text.resize(describeInto(op, text.data(), bytes).size());
  return text;
}

Waiter::~Waiter() {
  if (!slow)
    return;
  RankSlot &slot = context.segment->slot(context.rank);
  uint32_t waiting = CONCORD_RANK_WAITING;
  slot.state.compare_exchange_strong(waiting, CONCORD_RANK_RUNNING);
}

void Waiter::enterSlow(const Op *op) {
  slow = true;
  began = lastLook = nowNanoseconds();
  RankSlot &slot = context.segment->slot(context.rank);
  slot.site.store(op ? op->request.site : ~0u, std::memory_order_relaxed);
  slot.kind.store(op ? int(op->request.kind) : 0, std::memory_order_relaxed);
  slot.sequence.store(op ? op->sequence : 0, std::memory_order_relaxed);
  char name[32] = {};
  if (op && op->comm)
    std::strncpy(name, op->comm->name.c_str(), sizeof name - 1);
  for (int i = 0; i < 4; ++i) {
    uint64_t word;
    std::memcpy(&word, name + 8 * i, 8);
    slot.domain[i].store(word, std::memory_order_relaxed);
  }
  if (op && !noted) {
    char words[512];
    waiting.emplace(context.logBlock, issuelog::HostState::Operation,
                    describeInto(*op, words, sizeof words));
  }
  uint32_t running = CONCORD_RANK_RUNNING;
  slot.state.compare_exchange_strong(running, CONCORD_RANK_WAITING);
}

void Waiter::prepare(const Op *op) {
  uint32_t spins = context.oversubscribed ? kSpinsShared : kSpinsAlone;
  if (!slow && (lazy || rounds >= spins))
    enterSlow(op);
}

bool Waiter::pause(const Op *op) {
  ++rounds;
  // A look at the transport takes longer than a look at a flag.
  bool far = op && op->comm && op->comm->span;
  uint32_t spins = context.oversubscribed || far ? kSpinsShared : kSpinsAlone;
  if (rounds <= spins && !lazy) {
    relax();
    // Alone, only the flag itself is looked at: less to do between two looks,
    // and more of the core for a rank that shares it. (Without an operation the
    // context may be another thread's at the moment.)
    while (op && op->watch && context.inFlight == 0 && rounds < spins &&
           op->watch->load(std::memory_order_relaxed) < op->watched) {
      relax();
      ++rounds;
    }
    return false;
  }
  if (!slow || rounds == (lazy ? 1 : spins + 1)) {
    if (!slow)
      enterSlow(op);
    else
      began = lastLook = nowNanoseconds();
  }
  bool look = false;
  uint64_t events =
      context.segment->header().events.load(std::memory_order_acquire);
  if (events != seenEvents) {
    seenEvents = events;
    look = true;
  }
  if (lazy) {
    timespec span{0, 100'000};
    ::nanosleep(&span, nullptr);
    int64_t now = nowNanoseconds();
    look |= now - lastLook > kLookEvery;
    if (look)
      lastLook = now;
    return look;
  }
  if ((rounds & 15) == 0) {
    int64_t now = nowNanoseconds();
    if (now - lastLook > kLookEvery) {
      lastLook = now;
      look = true;
    }
    if (now - began > (context.oversubscribed ? kYieldShared : kYieldAlone)) {
      // Longer sleeps the longer it has lasted, up to 200 us.
      int64_t sleep = std::min<int64_t>((now - began) / 200, 200'000);
      timespec span{0, sleep};
      ::nanosleep(&span, nullptr);
      rounds |= 15; // look at the clock next time
      return look;
    }
  }
  ::sched_yield();
  return look;
}

static const char *stateText(uint32_t state) {
  switch (state) {
  case CONCORD_RANK_MISSING:
    return "has not joined";
  case CONCORD_RANK_RUNNING:
    return "is running, not waiting";
  case CONCORD_RANK_WAITING:
    return "waits";
  case CONCORD_RANK_FINALIZED:
    return "has finalized";
  case CONCORD_RANK_ABORTED:
    return "has aborted";
  default:
    return "is dead";
  }
}

/// ", on host NAME" for a rank of another one.
static std::string onHost(const Context &context, int rank) {
  return context.hosts && !context.hosts->isLocal(rank)
             ? ", on host " + context.hosts->nameOf(rank)
             : "";
}

uint16_t concord::rt::sequenceOf(const Op &op) {
  return uint16_t(op.state == Op::State::Queued ? op.comm->sequence + 1
                                                : op.sequence);
}

/// Who has broken the communicator has completed its earlier operations, and so
/// has sent all that they need: between hosts the news overtakes that.
static bool mayStillEnd(const Op &op, const BrokenWord &word) {
  constexpr int64_t kPatience = 2'000'000'000;
  if (!op.comm->span || word.sequence == 0 ||
      word.status == CONCORD_ERROR_PEER_DIED ||
      int16_t(uint16_t(sequenceOf(op) - word.sequence)) >= 0)
    return false;
  int64_t now = nowNanoseconds();
  // Several threads may wait in operations of one communicator.
  int64_t seen = 0;
  if (op.comm->brokenSeen.compare_exchange_strong(seen, now,
                                                  std::memory_order_relaxed))
    seen = now;
  return now - seen < kPatience;
}

int32_t Waiter::failure(const Op &waitedFor) {
  // What holds the op up may be an earlier one of its communicator.
  const Op *op = &waitedFor;
  bool message =
      op->request.kind == Kind::Send || op->request.kind == Kind::Recv;
  if (!op->comm)
    return CONCORD_OK;
  if (!message && op->comm->head)
    op = op->comm->head;
  const Comm &comm = *op->comm;
  const JobHeader &header = context.segment->header();
  uint64_t missing = message ? missingPeer(*op) : missingMembers(*op);
  uint64_t dead = context.dead.load(std::memory_order_acquire);
  deadRank = -1;
  // Who aborts usually ends at once, and so do those who learn of it: deaths
  // that come after an abort are its consequence.
  std::string aborted = context.segment->abortText();
  if (!aborted.empty() && !header.deadBeforeAbort.load())
    return fail(CONCORD_ERROR_ABORTED, "%s: %s", describe(*op).c_str(),
                aborted.c_str());
  int left = -1;
  for (int i = 0; i < comm.size; ++i) {
    if (!(missing >> i & 1))
      continue;
    int rank = comm.ranks[i];
    RankSlot &slot = context.segment->slot(rank);
    uint32_t state = slot.state.load(std::memory_order_acquire);
    if (dead >> rank & 1 || state == CONCORD_RANK_DEAD) {
      std::string cause;
      uint64_t first = header.firstDead.load(std::memory_order_acquire);
      if (first && first - 1 != uint64_t(rank) && first <= uint64_t(kMaxRanks))
        cause = "; the first to die was rank " + std::to_string(first - 1);
      deadRank = rank;
      return fail(CONCORD_ERROR_PEER_DIED,
                  "%s: rank %d (pid %lld%s) died while rank %d waited for it%s",
                  describe(*op).c_str(), rank, (long long)slot.pid.load(),
                  onHost(context, rank).c_str(), context.rank, cause.c_str());
    }
    if (state == CONCORD_RANK_FINALIZED &&
        (!context.hosts || context.hosts->isLocal(rank) ||
         context.hosts->hasLeft(rank)))
      left = rank;
  }
  if (!aborted.empty())
    return fail(CONCORD_ERROR_ABORTED, "%s: %s", describe(*op).c_str(),
                aborted.c_str());
  if (comm.block.header->revoked.load(std::memory_order_acquire))
    return fail(CONCORD_ERROR_REVOKED, "%s: the communicator was revoked",
                describe(*op).c_str());
  if (uint64_t broken =
          comm.block.header->broken.load(std::memory_order_acquire)) {
    auto word = BrokenWord::unpack(broken);
    if (!message && mayStillEnd(*op, word))
      return CONCORD_OK;
    auto member = size_t(word.member);
    int rank = member < comm.ranks.size() ? comm.ranks[member] : -1;
    // The same cause everywhere: the word names the rank, which this one's own
    // watchdog may not have seen yet.
    if (word.status == CONCORD_ERROR_PEER_DIED && word.died >= 0 &&
        word.died < context.world) {
      deadRank = word.died;
      return fail(CONCORD_ERROR_PEER_DIED,
                  "%s: rank %d (pid %lld%s) died, as "
                  "rank %d has seen",
                  describe(*op).c_str(), deadRank,
                  (long long)context.segment->slot(deadRank).pid.load(),
                  onHost(context, deadRank).c_str(), rank);
    }
    if (word.status == CONCORD_ERROR_TIMEOUT && word.died >= 0 &&
        word.died < context.world)
      return fail(CONCORD_ERROR_BROKEN,
                  "%s: broken by rank %d: it waited too long for rank %d%s",
                  describe(*op).c_str(), rank, word.died,
                  onHost(context, word.died).c_str());
    return fail(word.status == CONCORD_ERROR_MISMATCH ? CONCORD_ERROR_MISMATCH
                                                      : CONCORD_ERROR_BROKEN,
                "%s: broken by rank %d: %s", describe(*op).c_str(), rank,
                statusText(word.status, 0));
  }
  // Only now: a rank that gave up because of one of the above has left, too.
  if (left >= 0)
    return fail(CONCORD_ERROR_PEER_LEFT,
                "%s: rank %d has finalized while rank %d waits for it",
                describe(*op).c_str(), left, context.rank);
  // Between hosts, who waits for one that waits itself leaves it to others,
  // who see the one that does not come, to say which it is.
  double patience = comm.span ? patienceSpan(*op) : 0;
  for (int i = 0; i < comm.size && patience > 0; ++i) {
    RankSlot &slot = context.segment->slot(comm.ranks[i]);
    if (missing >> i & 1 && context.hosts->isLocal(comm.ranks[i]) &&
        (slot.state.load() != CONCORD_RANK_WAITING ||
         slot.sequence.load() != op->sequence))
      patience = 0;
  }
  if (slow && context.timeoutSeconds > 0 &&
      double(nowNanoseconds() - began) >
          (context.timeoutSeconds + patience) * 1e9) {
    reportHang(context, context.timeoutSeconds);
    std::string who;
    if (!op->admitted && context.deviceSlots != 0)
      who = "a communication slot of its device";
    for (int i = 0; i < comm.size; ++i) {
      if (!(missing >> i & 1))
        continue;
      if (deadRank < 0)
        deadRank = comm.ranks[i];
      RankSlot &slot = context.segment->slot(comm.ranks[i]);
      uint32_t state = slot.state.load();
      who += who.empty() ? "rank " : ", rank ";
      who += std::to_string(comm.ranks[i]) + " ";
      // Of another host only what its connection tells is known.
      if (context.hosts && !context.hosts->isLocal(comm.ranks[i])) {
        who += "has not answered, but is connected" +
               onHost(context, comm.ranks[i]);
        continue;
      }
      if (stoppedProcess(slot))
        who += "is stopped (state T)";
      else
        who += stateText(state);
      // Its host waits for a stream or the device, not in one operation.
      if (int kind = slot.kind.load(); state == CONCORD_RANK_WAITING)
        who += kind == 0 ? std::string(" for a stream or its device")
                         : std::string(" in ") + kindName(Kind(kind)) + " #" +
                               std::to_string(slot.sequence.load());
    }
    return fail(CONCORD_ERROR_TIMEOUT,
                "%s: rank %d waited %.1f s (CONCORD_TIMEOUT) for %s",
                describe(*op).c_str(), context.rank, context.timeoutSeconds,
                who.c_str());
  }
  return CONCORD_OK;
}

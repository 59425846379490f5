//===- Collective.cpp - The state machine of a collective -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Publish, gather the peers' slots, move data, settle. Small operations carry
// their payload in the slots and end after the gather. Larger ones read and
// write the peers' buffers where they lie; a buffer outside the heap that a
// peer has to touch goes through staging memory, segment by segment.
//
// The protocol of slots and ticks is described in transport/shm/CommBlock.h;
// who moves which bytes in algorithms/Direct.cpp.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Copy.h"
#include "algorithms/Direct.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "engine/Fused.h"
#include "engine/Operands.h"
#include "engine/Span.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace concord;
using namespace concord::rt;

namespace {

/// Where an inlined payload begins: beside the flag if it fits there, else on
/// the next line, which costs no line more and keeps every access within one.
uint64_t inlineOffset(const Op &op) {
  return op.payload <= 64 - offsetof(Slot, payload)
             ? 0
             : 64 - offsetof(Slot, payload);
}

/// What all members have to have published before the slot of an operation is
/// filled.
uint64_t published(uint64_t sequence) {
  return sequence < kSlots ? 0 : sequence - (kSlots - 1);
}
/// What is waited for where that is not known: more, so that it is known for
/// the next operations, too.
uint64_t awaited(const Op &op) { return op.sequence - kSlots / 2; }

/// Which members an inlined operation needs to hear from.
bool needs(const Op &op, int member) {
  const Comm &comm = *op.comm;
  // With slots of a device: an operation completes when every member's has
  // started, whether it needs their data or not.
  if (!op.inlined || comm.context->deviceSlots != 0)
    return true;
  switch (op.request.kind) {
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
    return comm.me != op.request.root && member == op.request.root;
  case Kind::Reduce:
  case Kind::Gather:
    return comm.me == op.request.root;
  default:
    return true;
  }
}

/// False where data goes one way, so that who sends need not wait.
bool everybodyWaits(Kind kind) {
  switch (kind) {
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
  case Kind::Reduce:
  case Kind::Gather:
    return false;
  default:
    return true;
  }
}

/// True when this member needs every other, so that gathering proves that all
/// have published.
bool symmetric(const Op &op) {
  if (!op.inlined || op.comm->context->deviceSlots != 0)
    return true;
  switch (op.request.kind) {
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
    return op.comm->size == 2 && op.comm->me != op.request.root;
  case Kind::Reduce:
  case Kind::Gather:
    return op.comm->me == op.request.root;
  default:
    return true;
  }
}

} // namespace

namespace {

/// Ask for the lines of this member's output, before anything waits for them;
/// only after the slot is on its way, which peers wait for.
void claimOutput(const Op &op) {
#if defined(__x86_64__)
  const OpRequest &r = op.request;
  const char *at = static_cast<const char *>(r.out.base);
  uint64_t bytes =
      r.chunk * (chunked(r.kind, false) ? uint64_t(op.comm->size) : 1);
  if (r.out.outer == 1 && uses(op, op.comm->me, false))
    for (uint64_t i = 0; i < bytes; i += 64)
      asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

/// The first lines of a slot.
constexpr uint64_t kAheadMost = 512;

/// Where data goes one way, who sends may be ahead: ask for what comes after
/// the next operation, which takes as long to come as some of these last. And
/// for the line that this member will write, if nobody reads it any more.
void fetchAhead(const Op &op) {
  const Comm &comm = *op.comm;
  if (comm.ahead)
    for (int r = 0; r < comm.size; ++r)
      if (r != comm.me && needs(op, r)) {
        const char *at = reinterpret_cast<const char *>(
            &comm.block.members[r].slot(op.sequence + 2));
        uint64_t bytes =
            std::min(16 + inlineOffset(op) + op.payload, kAheadMost);
        for (uint64_t i = 0; i < bytes; i += 64)
          __builtin_prefetch(at + i);
      }
#if defined(__x86_64__)
  if (comm.known >= published(op.sequence + 1))
    asm volatile("prefetchw %0"
                 :
                 : "m"(comm.block.members[comm.me].slot(op.sequence + 1)));
#endif
}

void publish(Op &op) {
  Comm &comm = *op.comm;
  Slot &slot = comm.block.members[comm.me].slot(op.sequence);
  uint32_t flags = 0;
  if (op.inlined) {
    if (!everybodyWaits(op.request.kind)) {
      comm.oneWay = ((comm.oneWay ^ op.fingerprint) + 1) * 0x9e3779b97f4a7c15;
      if (comm.unheardFrom == 0)
        comm.unheardFrom = op.sequence;
    }
    packInline(op, slot.payload + inlineOffset(op));
  } else {
    Wire wire = describeOperands(op);
    op.allSay = op.anySays = flags = wire.flags;
    if (flags & Wire::Flat)
      packInline(op, slot.payload + kFlatOffset);
    *reinterpret_cast<Wire *>(slot.payload) = wire;
  }
  publishSlot(op, slot);
  // What needs no peer is done while the flags travel.
  if (op.inlined && !everybodyWaits(op.request.kind))
    fetchAhead(op);
  comm.ahead = true;
  if (flags & Wire::Flat || op.inlined)
    claimOutput(op);
  else if (!(flags & Wire::Claims))
    workOwn(op);
}

/// Ask for the lines of the slot that the next operation will write, while the
/// caller computes. All members have published this operation, so nobody reads
/// that slot any more, and stores to it will not have to wait for each line.
void claimNextSlot(const Comm &comm, uint64_t sequence, uint64_t bytes) {
#if defined(__x86_64__)
  const char *at = reinterpret_cast<const char *>(
      &comm.block.members[comm.me].slot(sequence + 1));
  for (uint64_t i = 0; i < bytes; i += 64)
    asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

/// Ask for the line of this member's tick, which all have read when they have
/// published: it will be stored to when the work is done.
void claimTick(const Comm &comm) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(comm.block.members[comm.me].tick));
#endif
}

void publishTick(Comm &comm) {
  ++comm.tick;
  comm.block.members[comm.me].tick.store(comm.tick, std::memory_order_release);
}

/// Blocked until `flag` reaches `value`.
Progress waitsFor(Op &op, const std::atomic<uint64_t> &flag, uint64_t value) {
  op.watch = &flag;
  op.watched = value;
  return Progress::Blocked;
}

bool ticksReady(Op &op) {
  Comm &comm = *op.comm;
  for (; op.seen < comm.size; ++op.seen)
    if (const auto &tick = comm.block.members[op.seen].tick;
        op.seen != comm.me &&
        tick.load(std::memory_order_acquire) < comm.tick) {
      waitsFor(op, tick, comm.tick);
      return false;
    }
  op.seen = 0;
  return true;
}

/// As workDirect, where some operands lie in other processes only.
Progress workAcross(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  int failed = -1;
  switch (moveAcross(op, quantum, failed)) {
  case 0:
    return Progress::Advanced;
  case 1:
    return Progress::Done;
  default: {
    int error = errno;
    int rank = comm.ranks[size_t(failed)];
    // A process that has just died has no memory any more.
    int32_t status =
        error == ESRCH ? CONCORD_ERROR_PEER_DIED : CONCORD_ERROR_SYSTEM;
    fail(status, "%s: copying from or to the memory of rank %d: %s",
         describe(op).c_str(), rank, std::strerror(error));
    breakComm(op, status);
    return Progress::Done;
  }
  }
}

/// Take and do pieces until none is left, or for about `quantum` bytes.
/// Blocked: none is left, but peers may be at theirs.
Progress workClaimed(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  Claims &claims = *comm.block.claims;
  auto &holding = comm.block.members[comm.me].holding;
  uint64_t next = claims.next.load(std::memory_order_relaxed);
  for (uint64_t moved = 0; next < op.claimsEnd;) {
    if (next < comm.claims) {
      fail(CONCORD_ERROR_CORRUPT, "%s: the count of pieces is %llu, below %llu",
           describe(op).c_str(), (unsigned long long)next,
           (unsigned long long)comm.claims);
      breakComm(op, CONCORD_ERROR_CORRUPT);
      return Progress::Done;
    }
    if (moved >= quantum)
      return Progress::Advanced;
    if (!claims.next.compare_exchange_weak(next, next + 1,
                                           std::memory_order_relaxed))
      continue;
    holding.store(next + 1, std::memory_order_relaxed);
    moved += workPiece(op, next - comm.claims) / 2 / uint64_t(comm.size);
    if (op.streamed)
      streamFence();
    // Acquire, too: who sees the last count sees what all have done.
    claims.finished.fetch_add(1, std::memory_order_acq_rel);
    holding.store(0, std::memory_order_relaxed);
    next = claims.next.load(std::memory_order_relaxed);
  }
  return Progress::Blocked;
}

/// Adds to what `op` has spent, if that is to be known. `reads`: what others
/// have stored, which counts where all do it.
class Stopwatch {
public:
  Stopwatch(Op &op, bool reads)
      : op(op), runs(op.timed && (!reads || op.timed->countsReading())),
        began(runs ? nowNanoseconds() : 0) {}
  ~Stopwatch() {
    if (runs)
      op.spent += nowNanoseconds() - began;
  }

private:
  Op &op;
  bool runs;
  int64_t began;
};

/// How copies into staging memory, and what is done from there, are stored.
void chooseStaging(Op &op) {
  Comm &comm = *op.comm;
  const bool whole = allExchange(op.request.kind);
  const uint64_t bytes = op.part * chunksOf(op);
  op.streamed = false;
  if (op.across || bytes < kStreamLeast)
    return;
  Packing &staged = comm.staged[whole];
  // Where it goes one way, who has nothing to copy in has nothing to time.
  bool timed = false;
  op.streamed = whole || comm.ownStaged[0].base ? staged.next(bytes, timed)
                                                : staged.past(bytes);
  if (timed) {
    op.timed = &staged;
    op.spent = 0;
  }
}

/// To where peers read it.
void copyInStaged(Op &op) {
  Stopwatch watch(op, /*reads=*/false);
  copyStaged(op, true);
  if (op.streamed)
    streamFence();
  if (op.timed)
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool workTimed(Op &op, uint64_t quantum) {
  Stopwatch watch(op, /*reads=*/true);
  return workDirect(op, quantum);
}

/// The results that peers have stored here.
void copyOutStaged(Op &op) {
  Stopwatch watch(op, /*reads=*/true);
  copyStaged(op, false);
}

bool claimsFinished(const Op &op) {
  return op.comm->block.claims->finished.load(std::memory_order_acquire) >=
         op.claimsEnd;
}

enum class Heard : uint8_t { NotYet, Failed, All };

/// Compare the one-way operations up to a number that all have published. A
/// member that is so far ahead that its slot has another number compares itself
/// with this one. False after breakComm.
bool oneWayAgree(Op &op, uint64_t sequence) {
  Comm &comm = *op.comm;
  if (comm.unheardFrom == 0 || comm.unheardFrom > sequence ||
      comm.context->gateMode < CONCORD_GATE_CHECK)
    return true;
  auto wordOf = [&](int member) {
    return comm.block.members[member].slot(sequence).oneWay.load(
        std::memory_order_relaxed);
  };
  const uint64_t own = wordOf(comm.me);
  for (int r = 0; r < comm.size; ++r) {
    uint64_t other = wordOf(r);
    if (other == own || (other ^ own) & 0xffff)
      continue;
    fail(CONCORD_ERROR_MISMATCH,
         "%s: ranks %d and %d did not issue the same broadcasts, reduces, "
         "gathers and scatters between #%llu and #%llu; compare their roots",
         describe(op).c_str(), comm.ranks[size_t(comm.me)],
         comm.ranks[size_t(r)], (unsigned long long)comm.unheardFrom,
         (unsigned long long)sequence);
    breakComm(op, CONCORD_ERROR_MISMATCH);
    return false;
  }
  comm.unheardFrom = sequence == comm.sequence ? 0 : sequence + 1;
  return true;
}

/// The slots of those that are needed, from `op.seen` on.
Heard hearSlots(Op &op) {
  Comm &comm = *op.comm;
  for (; op.seen < comm.size; ++op.seen) {
    if (op.seen == comm.me || !needs(op, op.seen))
      continue;
    Slot &slot = comm.block.members[op.seen].slot(op.sequence);
    if (slot.sequence.load(std::memory_order_acquire) < op.sequence) {
      comm.ahead = false;
      waitsFor(op, slot.sequence, op.sequence);
      return Heard::NotYet;
    }
    if (slot.fingerprint != op.fingerprint &&
        comm.context->gateMode >= CONCORD_GATE_CHECK) {
      fail(CONCORD_ERROR_MISMATCH, "%s: rank %d issued %s, but rank %d %s",
           describe(op).c_str(), comm.ranks[comm.me],
           fingerprintText(op.fingerprint).c_str(), comm.ranks[op.seen],
           fingerprintText(slot.fingerprint).c_str());
      breakComm(op, CONCORD_ERROR_MISMATCH);
      return Heard::Failed;
    }
    if (!op.inlined) {
      uint32_t says = wireOf(comm, op.seen, op.sequence).flags;
      op.allSay &= says;
      op.anySays |= says;
    }
  }
  op.seen = 0;
  if (symmetric(op))
    comm.known = op.sequence;
  if (comm.unheardFrom && everybodyWaits(op.request.kind) &&
      !oneWayAgree(op, op.sequence))
    return Heard::Failed;
  return Heard::All;
}

/// All that an inlined operation needs is there.
void endInline(Op &op) {
  const Comm &comm = *op.comm;
  finishInline(op, inlineOffset(op));
  if (symmetric(op) && comm.size > 1)
    claimNextSlot(comm, op.sequence,
                  packsPast(op) || !uses(op, comm.me, true)
                      ? 64
                      : 16 + inlineOffset(op) + op.payload);
  op.state = Op::State::Done;
}

} // namespace

/// As far as it goes.
static Progress advanceSteps(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  if (comm.span)
    return advanceSpan(op, quantum);
  for (;;) {
    switch (op.state) {
    case Op::State::Queued:
      op.sequence = ++comm.sequence;
      op.seen = 0;
      op.state = Op::State::Publish;
      [[fallthrough]];
    case Op::State::Publish:
      // The slot may still hold operation sequence - kSlots.
      if (comm.known < published(op.sequence)) {
        uint64_t least = awaited(op);
        for (; op.seen < comm.size; ++op.seen)
          if (const auto &flag =
                  comm.block.members[op.seen].slot(least).sequence;
              op.seen != comm.me &&
              flag.load(std::memory_order_acquire) < least)
            return waitsFor(op, flag, least);
        comm.known = least;
        op.seen = 0;
        if (!oneWayAgree(op, least))
          return Progress::Done;
      }
      if (comm.size > 1)
        publish(op);
      else if (op.inlined)
        packInline(op, comm.block.members[0].slot(op.sequence).payload +
                           inlineOffset(op));
      op.state = Op::State::Gather;
      [[fallthrough]];
    case Op::State::Gather: {
      switch (hearSlots(op)) {
      case Heard::NotYet:
        return Progress::Blocked;
      case Heard::Failed:
        return Progress::Done;
      case Heard::All:
        break;
      }
      if (op.inlined) {
        endInline(op);
        noteForm(op);
        return Progress::Done;
      }
      if (comm.size > 1 && op.allSay & Wire::Flat) {
        finishInline(op, kFlatOffset);
        claimNextSlot(comm, op.sequence,
                      packsPast(op) ? 64 : 16 + kFlatOffset + op.payload);
        op.flat = true;
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      op.claimed = comm.size > 1 && op.allSay & Wire::Claims;
      op.ownResult = false;
      if (op.claimed) {
        op.claimsEnd = comm.claims + numPieces(op);
        // Late, and others have done it all.
        if (claimsFinished(op)) {
          op.state = Op::State::Settle;
          continue;
        }
      }
      if (comm.size == 1) {
        openLocal(op);
      } else if (!openViews(op)) {
        return Progress::Done;
      }
      op.timed = nullptr;
      if (op.anyStaged)
        chooseStaging(op);
      else
        op.streamed = !op.across && (op.cold || op.shared);
      if (op.claimed) {
        // Whoever works stores to all.
        op.streamed |= (op.anySays & Wire::Cold) != 0;
        op.state = Op::State::Work;
        continue;
      }
      if (comm.size > 1)
        claimTick(comm);
      op.state = Op::State::CopyIn;
      [[fallthrough]];
    }
    case Op::State::CopyIn:
      beginSegment(op);
      if (op.anyStaged) {
        copyInStaged(op);
        publishTick(comm);
      }
      op.state = Op::State::Staged;
      [[fallthrough]];
    case Op::State::Staged:
      if (op.anyStaged && !ticksReady(op))
        return Progress::Blocked;
      op.state = Op::State::Work;
      [[fallthrough]];
    case Op::State::Work:
      if (op.claimed) {
        Progress result = workClaimed(op, quantum);
        if (result != Progress::Blocked)
          return result;
        op.state = Op::State::Settle;
        continue;
      }
      if (op.across) {
        Progress result = workAcross(op, quantum);
        if (result != Progress::Done)
          return result;
        if (op.state == Op::State::Done)
          return Progress::Done; // broken
      } else if (!workTimed(op, quantum)) {
        return Progress::Advanced;
      }
      {
        // Of a member that writes to its own output only, others wait for its
        // reads; its stores may go on meanwhile.
        bool later = op.streamed &&
                     (op.ownResult || !outputIsRemote(op.request.kind)) &&
                     !op.shared && !op.exchange;
        if (op.streamed && !later)
          streamFence();
        if (comm.size > 1)
          publishTick(comm);
        if (later)
          streamFence();
      }
      op.state = Op::State::Settle;
      [[fallthrough]];
    case Op::State::Settle:
      if (op.claimed) {
        if (!claimsFinished(op))
          return Progress::Blocked;
        comm.claims = op.claimsEnd;
        claimNextSlot(comm, op.sequence, 64);
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      if (comm.size > 1 && !ticksReady(op))
        return Progress::Blocked;
      if (op.anyStaged)
        copyOutStaged(op);
      op.segment += op.segmentBytes;
      if (op.segment >= op.part) {
        if (op.timed)
          op.timed->note(op.streamed, op.spent, op.part * chunksOf(op));
        if (comm.size > 1)
          claimNextSlot(comm, op.sequence, 64);
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      op.state = Op::State::CopyIn;
      continue;
    default:
      return Progress::Done;
    }
  }
}

Progress concord::rt::advanceCollective(Op &op, uint64_t quantum) {
  op.watch = nullptr;
  if (op.fused)
    return advanceFused(op);
  Op::State state = op.state;
  uint64_t segment = op.segment;
  Progress result = advanceSteps(op, quantum);
  // It waits, but for something else than before: that is a new wait, and not
  // the more patient for the former ones.
  if (result == Progress::Blocked &&
      (op.state != state || op.segment != segment))
    return Progress::Advanced;
  return result;
}

void concord::rt::keepForCalls(const Op &op, const Asked &asked) {
  Comm &comm = *op.comm;
  const Context &context = *comm.context;
  if (!op.inlined || comm.prepared.chunk != op.request.chunk || comm.span ||
      comm.size == 1 || context.gate || context.deviceSlots != 0 ||
      context.threadLevel == CONCORD_THREAD_MULTIPLE)
    return;
  Op &kept = *comm.again;
  kept.request = op.request;
  kept.admitted = true;
  if (prepare(kept, comm) == CONCORD_OK)
    comm.asked = asked;
}

int32_t concord::rt::runAgain(Op &op, const void *in, void *out) {
  // A flag from a core with the same cache takes less than this.
  constexpr int kLooks = 40;
  Comm &comm = *op.comm;
  IssueLog &issues = comm.context->issues;
  op.request.in.base = const_cast<void *>(in);
  op.request.out.base = out;
  op.status = CONCORD_OK;
  op.seen = 0;
  op.launch = 0;
  op.instance = comm.instances++;
  op.state = Op::State::Queued;
  issues.issue(op, comm.logDomain, 0);
  issues.state(op, issuelog::State::Started);
  // The way of advanceSteps where nobody has to be waited for long.
  if (comm.known < published(comm.sequence + 1))
    return runOn(op);
  op.sequence = ++comm.sequence;
  publish(op);
  op.state = Op::State::Gather;
  for (int looks = comm.context->oversubscribed ? 1 : kLooks; looks > 0;
       --looks) {
    Heard heard = hearSlots(op);
    if (heard == Heard::All) {
      endInline(op); // comm.last is as it was
      issues.state(op, issuelog::State::Completed);
      return CONCORD_OK;
    }
    if (heard == Heard::Failed)
      break;
    while (looks > 0 &&
           op.watch->load(std::memory_order_relaxed) < op.watched) {
      relax();
      --looks;
    }
  }
  return runOn(op);
}

uint64_t concord::rt::missingMembers(const Op &op) {
  if (op.fused)
    return missingFused(op);
  const Comm &comm = *op.comm;
  if (comm.span)
    return missingSpan(op);
  uint64_t mask = 0;
  for (int r = 0; r < comm.size; ++r) {
    if (r == comm.me)
      continue;
    const Member &member = comm.block.members[r];
    bool late = false;
    switch (op.state) {
    case Op::State::Publish:
      late = member.slot(awaited(op)).sequence.load() < awaited(op);
      break;
    case Op::State::Gather:
      late = needs(op, r) &&
             member.slot(op.sequence).sequence.load() < op.sequence;
      break;
    case Op::State::Settle:
      if (op.claimed) {
        late = member.holding.load() != 0;
        break;
      }
      [[fallthrough]];
    case Op::State::Staged:
      late = member.tick.load() < comm.tick;
      break;
    default:
      break;
    }
    mask |= uint64_t(late) << r;
  }
  // A piece may be taken and not be anybody's yet.
  if (op.claimed && op.state == Op::State::Settle && !mask)
    for (int r = 0; r < comm.size; ++r)
      mask |= uint64_t(r != comm.me) << r;
  return mask;
}

//===- Span.cpp - Communicators that span hosts ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state machine behind Span.h.
//
// What another member reads lies in the input's or the result's area: the input
// is written before the first tick and read up to Work or Collect, the result
// before the tick after Work, or after Divide. Both are written again only
// after the tick that follows TakeOut (test/spin/hosts.pml).
//
// The transport sees only memory of the communicator: a message that is given
// up when a peer dies may be written late, and never into a user's buffer.
//
//===----------------------------------------------------------------------===//

#include "engine/Span.h"
#include "diagnosis/Error.h"
#include "engine/SpanParts.h"

#include <algorithm>
#include <cstring>
#include <sched.h>

using namespace concord;
using namespace concord::rt;
using namespace concord::rt::spans;

namespace {

/// Looks of which one is thorough.
constexpr uint32_t kThorough = 16;
/// Who computes and polls looks in vain for a fiftieth of the time at most, and
/// once in 100 us at least.
constexpr int64_t kLookShare = 50, kLookMost = 100'000;

void noteFailure(Span &span, int member) {
  if (span.failedMember >= 0)
    return;
  span.failedMember = member;
  span.failedAt = nowNanoseconds();
  span.failure = transportOf(span.comm).error();
}

} // namespace

bool concord::rt::spans::settled(Span &span, concord_transport_request &request,
                                 int member, uint64_t *bytes) {
  if (!request)
    return true;
  switch (transportOf(span.comm).test(&request, bytes)) {
  case CONCORD_TRANSPORT_DONE:
    span.progressed = true;
    return true;
  case CONCORD_TRANSPORT_FAILED:
    noteFailure(span, member);
    return false;
  default:
    return false;
  }
}

bool concord::rt::spans::allSettled(
    Span &span, std::vector<concord_transport_request> &requests) {
  bool all = true;
  for (int member : span.remote) {
    all &= settled(span, requests[size_t(member)], member);
    if (!all && !span.thorough)
      return false;
  }
  return all && span.failedMember < 0;
}

void concord::rt::spans::post(Span &span, int member, bool sending,
                              uint32_t tag, void *data, uint64_t bytes,
                              concord_transport_request &request,
                              bool synchronous) {
  const concord_transport &transport = transportOf(span.comm);
  int32_t rank = span.comm.ranks[size_t(member)];
  int32_t status =
      sending ? transport.send(rank, tag, data, bytes, synchronous, &request)
              : transport.receive(rank, tag, data, bytes, &request);
  if (status != 0)
    noteFailure(span, member);
}

namespace {

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

void publishTick(Comm &comm) {
  ++comm.tick;
  comm.block.members[comm.me].tick.store(comm.tick, std::memory_order_release);
}

bool ticksReady(const Span &span) {
  for (int member : span.local)
    if (span.comm.block.members[member].tick.load(std::memory_order_acquire) <
        span.comm.tick)
      return false;
  return true;
}

uint64_t longestOf(const Op &op) {
  const OpRequest &r = op.request;
  uint64_t longest = r.chunk;
  if (uneven(r)) {
    longest = *std::max_element(r.receive, r.receive + op.comm->size);
    if (r.kind == Kind::AllToAll)
      longest =
          std::max(longest, *std::max_element(r.send, r.send + op.comm->size));
  }
  return longest;
}

uint64_t memoryBytes(uint64_t area, int hosts) {
  return 3 * (area + kSlack) + 2 * headBytes(hosts);
}

/// For the others of this host.
void publish(Op &op) {
  Comm &comm = *op.comm;
  const Span &span = *comm.span;
  const OpRequest &r = op.request;
  Slot &slot = comm.block.members[comm.me].slot(op.sequence);
  *reinterpret_cast<SpanWire *>(slot.payload) = {
      span.memoryAt, span.area, op.inlined ? 0 : longestOf(op), 0};
  if (op.inlined)
    packInline(op, slot.payload + kSpanPayload);
  else if (unevenExchange(r))
    std::memcpy(slot.payload + kSpanPayload, r.send,
                sizeof(uint64_t) * size_t(comm.size));
  publishSlot(op, slot);
}

} // namespace

bool concord::rt::spans::agrees(Op &op, int member, uint64_t fingerprint) {
  Comm &comm = *op.comm;
  if (fingerprint == op.fingerprint ||
      comm.context->gateMode < CONCORD_GATE_CHECK)
    return true;
  fail(CONCORD_ERROR_MISMATCH, "%s: rank %d issued %s, but rank %d %s",
       describe(op).c_str(), comm.ranks[size_t(comm.me)],
       fingerprintText(op.fingerprint).c_str(), comm.ranks[size_t(member)],
       fingerprintText(fingerprint).c_str());
  breakComm(op, CONCORD_ERROR_MISMATCH);
  return false;
}

bool concord::rt::spans::corrupt(Op &op, int member, const char *what) {
  fail(CONCORD_ERROR_CORRUPT, "%s: rank %d sent %s", describe(op).c_str(),
       op.comm->ranks[size_t(member)], what);
  breakComm(op, CONCORD_ERROR_CORRUPT);
  return false;
}

namespace {

/// Waits for the slots of this host.
Heard hearSlots(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  bool all = true;
  for (int member : span.local) {
    if (span.heard[size_t(member)])
      continue;
    Slot &slot = comm.block.members[member].slot(op.sequence);
    if (slot.sequence.load(std::memory_order_acquire) < op.sequence) {
      all = false;
      continue;
    }
    if (!agrees(op, member, slot.fingerprint))
      return Heard::Failed;
    span.heard[size_t(member)] = 1;
    span.progressed = true;
  }
  return all ? Heard::All : Heard::NotYet;
}

/// Where the others of this host have what this one reads. False after
/// breakComm.
bool openLocals(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const Segment &segment = *comm.context->segment;
  for (int member : span.local) {
    const auto &wire = *reinterpret_cast<const SpanWire *>(
        comm.block.members[member].slot(op.sequence).payload);
    char *memory =
        wire.area > kArea || wire.area % 64 || wire.memory % 64
            ? nullptr
            : segment.pointerAt(wire.memory,
                                memoryBytes(wire.area, span.numHosts()));
    if (!memory)
      return corrupt(op, member, "memory outside its heap");
    span.inputs[size_t(member)] = memory;
    span.results[size_t(member)] = memory + wire.area + kSlack;
    if (member == span.leader(span.host))
      span.heads[op.sequence & 1] =
          memory + 3 * (wire.area + kSlack) +
          (op.sequence & 1) * headBytes(span.numHosts());
  }
  return true;
}

/// What a member sends this one in an uneven exchange.
uint64_t sendsHere(const Op &op, int member) {
  const Comm &comm = *op.comm;
  const unsigned char *row =
      comm.context->hosts->isLocal(comm.ranks[size_t(member)])
          ? comm.block.members[member].slot(op.sequence).payload + kSpanPayload
          : remotePayload(op, member);
  uint64_t bytes;
  std::memcpy(&bytes, row + 8 * comm.me, 8);
  return bytes;
}

/// All have been heard: how the work is divided. False after breakComm.
bool layOut(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  const uint64_t own = longestOf(op);
  uint64_t area = span.area, longest = own;
  auto take = [&](int member, uint64_t areaThere, uint64_t longestThere) {
    // Only in an uneven exchange do members know different lengths; elsewhere
    // another one would be as many segments as its sender likes.
    if (!unevenExchange(r) && longestThere != own)
      return corrupt(op, member, "another length than its operation has");
    area = std::min(area, areaThere);
    longest = std::max(longest, longestThere);
    return true;
  };
  for (int member : span.local) {
    const auto &wire = *reinterpret_cast<const SpanWire *>(
        comm.block.members[member].slot(op.sequence).payload);
    if (!take(member, wire.area, wire.longest))
      return false;
  }
  for (int host = 0; host < span.numHosts(); ++host)
    if (const SpanHeader &header = headOf(op, host);
        host != span.host &&
        !take(span.leader(host), header.area, header.longest))
      return false;
  for (int member = 0; unevenExchange(r) && member < comm.size; ++member)
    if (uint64_t sends = sendsHere(op, member); sends != r.receive[member]) {
      fail(CONCORD_ERROR_MISMATCH,
           "%s: rank %d sends %llu bytes to rank %d, which expects %llu",
           describe(op).c_str(), comm.ranks[size_t(member)],
           (unsigned long long)sends, comm.ranks[size_t(comm.me)],
           (unsigned long long)r.receive[member]);
      breakComm(op, CONCORD_ERROR_MISMATCH);
      return false;
    }
  span.byRounds = betweenHosts(op.form);
  uint64_t chunks = span.byRounds ? chunksByRounds(op)
                    : chunked(r.kind, true) || chunked(r.kind, false)
                        ? uint64_t(comm.size)
                        : 1;
  op.part = longest; // the whole length, for the segment loop
  op.segment = 0;
  op.segmentBytes = std::min(longest, area / chunks / 64 * 64);
  if (longest != 0 && op.segmentBytes == 0)
    return corrupt(op, comm.me, "no room for a segment");
  if (span.byRounds)
    openRounds(op);
  return true;
}

Progress complete(Op &op) {
  Comm &comm = *op.comm;
  comm.last = {};
  comm.last.kind = op.request.kind;
  comm.last.form = op.form;
  comm.last.bytes = op.payload;
  comm.last.inlined = op.inlined;
  comm.last.hosts = true;
  comm.last.asked = op.askedFor ? op.form : Form::Automatic;
  comm.last.whole = wholeBytes(op);
  comm.last.divides = dividesAmongHosts(op.request);
  comm.span->step = Span::Step::Connect;
  op.state = Op::State::Done;
  return Progress::Done;
}

/// The headers are there: end, or go on with the first segment. False after
/// breakComm.
bool heard(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  if (op.inlined) {
    const unsigned char *payloads[kMaxRanks];
    for (int member : span.remote)
      payloads[member] = remotePayload(op, member);
    for (int member : span.onHost[size_t(span.host)])
      payloads[member] =
          comm.block.members[member].slot(op.sequence).payload + kSpanPayload;
    finishFrom(op, payloads);
    op.part = 0;
  } else if (!layOut(op)) {
    return false;
  }
  op.state = Op::State::Work;
  span.step = Span::Step::CopyIn;
  return true;
}

/// Whether a member on another host has died, or the transport has failed; then
/// nothing is called that could wait for it or end the process.
bool lost(const Span &span) {
  const Context &context = *span.comm.context;
  return (context.dead.load(std::memory_order_acquire) & span.remoteRanks) ||
         span.failedMember >= 0;
}

} // namespace

Progress concord::rt::spans::mourn(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const Context &context = *comm.context;
  if ((context.dead.load() & span.remoteRanks) || span.failedMember < 0 ||
      nowNanoseconds() - span.failedAt < kExplain)
    return Progress::Blocked;
  int rank = comm.ranks[size_t(span.failedMember)];
  fail(CONCORD_ERROR_SYSTEM,
       "%s: the transport failed between rank %d and rank %d on host %s: %s",
       describe(op).c_str(), context.rank, rank,
       context.hosts->nameOf(rank).c_str(), span.failure.c_str());
  breakComm(op, CONCORD_ERROR_SYSTEM);
  return Progress::Done;
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

static Progress advanceSteps(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  if (lost(span)) {
    if (op.state == Op::State::Queued) {
      op.sequence = ++comm.sequence;
      op.state = Op::State::Publish;
    }
    return mourn(op);
  }
  bool moved = false;
  uint64_t left = quantum;
  span.progressed = false;
  span.thorough = ++span.looks % kThorough == 0;
  auto blocked = [&] {
    return moved || span.progressed ? Progress::Advanced : Progress::Blocked;
  };
  auto go = [&](Span::Step step) {
    span.step = step;
    moved = true;
  };
  auto tick = [&] {
    if (!span.local.empty())
      publishTick(comm);
  };
  if (op.state == Op::State::Queued) {
    op.sequence = ++comm.sequence;
    op.state = Op::State::Publish;
    op.peerIndex = 0;
    op.position = 0;
    go(Span::Step::Connect);
  }
  for (;;) {
    switch (span.step) {
    case Span::Step::Connect: {
      if (!span.connected) {
        for (int member : span.remote)
          if (!(span.peerTags[size_t(member)] = comm.context->hosts->peerTag(
                    comm.key, comm.ranks[size_t(member)])))
            return blocked();
        span.connected = true;
      }
      // The headers' memory may still be on its way.
      if (!allSettled(span, span.headerSends[op.sequence & 1]))
        return blocked();
      publish(op);
      std::fill(span.heard.begin(), span.heard.end(), 0);
      op.state = Op::State::Gather;
      go(Span::Step::Slots);
      break;
    }
    case Span::Step::Slots:
      switch (hearSlots(op)) {
      case Heard::NotYet:
        return blocked();
      case Heard::Failed:
        return Progress::Done;
      case Heard::All:
        break;
      }
      comm.known = op.sequence;
      if (!openLocals(op))
        return Progress::Done;
      placeHeads(op);
      if (span.leads()) {
        writeHead(op);
        go(Span::Step::Heads);
      } else {
        tick();
        go(Span::Step::Told);
      }
      break;
    case Span::Step::Heads:
      switch (exchangeHeads(op)) {
      case Heard::NotYet:
        return blocked();
      case Heard::Failed:
        return Progress::Done;
      case Heard::All:
        break;
      }
      tick();
      if (!heard(op))
        return Progress::Done;
      tick();
      break;
    case Span::Step::Told:
      if (comm.block.members[span.leader(span.host)].tick.load(
              std::memory_order_acquire) < comm.tick)
        return blocked();
      moved = true;
      if (!checkHeads(op) || !heard(op))
        return Progress::Done;
      // So that the leader knows when it may give the headers' memory back.
      tick();
      break;
    case Span::Step::CopyIn:
      if (op.part == 0)
        return complete(op);
      if (span.byRounds) {
        if (op.position == 0 && op.peerIndex == 0)
          beginRounds(op);
        if (!copyInByRounds(op, left))
          return Progress::Advanced;
        tick();
        go(span.agent() ? Span::Step::Collect : Span::Step::Shared);
        if (!span.agent())
          tick();
        break;
      }
      if (!copyIn(op, left))
        return Progress::Advanced;
      tick();
      postInputs(op);
      go(Span::Step::Inputs);
      break;
    case Span::Step::Collect:
      if (!ticksReady(span))
        return blocked();
      if (!collect(op, left))
        return Progress::Advanced;
      go(Span::Step::Rounds);
      break;
    case Span::Step::Rounds:
      switch (exchangeRounds(op, left)) {
      case Progress::Blocked:
        return blocked();
      case Progress::Advanced:
        return Progress::Advanced;
      case Progress::Done:
        break;
      }
      go(Span::Step::Divide);
      break;
    case Span::Step::Divide:
      if (!divide(op, left))
        return Progress::Advanced;
      tick();
      go(Span::Step::Shared);
      break;
    case Span::Step::Inputs:
      if (!ticksReady(span) || !allSettled(span, span.receives))
        return blocked();
      go(Span::Step::Work);
      break;
    case Span::Step::Work:
      if (!work(op, left))
        return Progress::Advanced;
      tick();
      if (!hasResults(op.request.kind)) {
        go(Span::Step::Release);
        break;
      }
      postResults(op);
      go(Span::Step::Results);
      break;
    case Span::Step::Results:
      if (!allSettled(span, span.receives))
        return blocked();
      go(Span::Step::Shared);
      break;
    case Span::Step::Shared:
      if (!ticksReady(span))
        return blocked();
      go(Span::Step::TakeOut);
      break;
    case Span::Step::TakeOut:
      if (!(span.byRounds ? takeOutByRounds(op, left) : takeOut(op, left)))
        return Progress::Advanced;
      tick();
      go(Span::Step::Release);
      break;
    case Span::Step::Release: {
      // The areas may be written again once nobody reads them.
      bool sent = allSettled(span, span.sends);
      if (sent || span.thorough)
        sent &= allSettled(span, span.resultSends);
      // By rounds, who writes them has first waited for all inputs.
      if (!sent || (!span.byRounds && !ticksReady(span)))
        return blocked();
      op.segment += op.segmentBytes;
      if (op.segment >= op.part)
        return complete(op);
      go(Span::Step::CopyIn);
      break;
    }
    }
    if (left == 0)
      return Progress::Advanced;
  }
}

Progress concord::rt::advanceSpan(Op &op, uint64_t quantum) {
  if (!op.comm->context->computing)
    return advanceSteps(op, quantum);
  Span &span = *op.comm->span;
  const int64_t began = nowNanoseconds();
  if (began < span.nextLook)
    return Progress::Blocked;
  Progress result = advanceSteps(op, quantum);
  if (result == Progress::Blocked) {
    int64_t now = nowNanoseconds();
    span.nextLook = now + std::min(kLookMost, kLookShare * (now - began));
  }
  return result;
}

uint64_t concord::rt::missingSpan(const Op &op) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  uint64_t mask = 0;
  uint64_t dead = comm.context->dead.load(std::memory_order_acquire);
  auto add = [&](int member) { mask |= uint64_t(1) << member; };
  if (op.state == Op::State::Queued || op.state == Op::State::Idle)
    return 0;
  for (int member : span.local) {
    bool late = false;
    switch (span.step) {
    case Span::Step::Connect:
    case Span::Step::Heads:
      break;
    case Span::Step::Slots:
      // Not as it was when it was last asked.
      late = comm.block.members[member].slot(op.sequence).sequence.load() <
             op.sequence;
      break;
    case Span::Step::Told:
      if (member != span.leader(span.host))
        break;
      [[fallthrough]];
    default:
      late = comm.block.members[member].tick.load() < comm.tick;
    }
    if (late)
      add(member);
  }
  // Of the host whose header comes next, anyone may be late. Who is further on
  // may have finished, and left.
  if (span.step == Span::Step::Heads)
    for (int member : span.onHost[size_t(span.next(-(1 << span.headRound)))])
      add(member);
  for (int member : span.remote) {
    size_t m = size_t(member);
    bool late = dead >> comm.ranks[m] & 1 || member == span.failedMember;
    if (span.step == Span::Step::Connect)
      late |= span.peerTags[m] == 0 || span.headerSends[op.sequence & 1][m];
    else if (span.step > Span::Step::Told)
      late |= span.sends[m] || span.resultSends[m] || span.receives[m];
    if (late)
      add(member);
  }
  return mask;
}

double concord::rt::patienceSpan(const Op &op) {
  const Span &span = *op.comm->span;
  // Who sends nothing in the first round has not all of its host; later it may
  // wait for a third.
  double most =
      span.step == Span::Step::Heads ? 0.3 * (1 + span.headRound) : 2.5;
  return std::min(most, op.comm->context->timeoutSeconds / 2);
}

int32_t concord::rt::prepareSpan(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  if (r.kind != Kind::Send && r.kind != Kind::Recv) {
    chooseSpan(op);
    return CONCORD_OK;
  }
  // Made at the first message with a member, not in every step.
  SpanChannel &channel =
      (r.kind == Kind::Send ? span.outgoing : span.incoming)[size_t(r.root)];
  if (remoteMessage(op) && !channel.memory) {
    channel.memory = comm.context->heap.allocate(2 * kPart, 4096);
    if (!channel.memory)
      return fail(CONCORD_ERROR_OUT_OF_MEMORY,
                  "%s on '%s': the heap has no room for messages to another "
                  "host",
                  kindName(r.kind), comm.name.c_str());
  }
  return CONCORD_OK;
}

//===----------------------------------------------------------------------===//
// Making and dropping
//===----------------------------------------------------------------------===//

void concord::rt::makeSpan(Comm &comm) {
  Context &context = *comm.context;
  Hosts *table = context.hosts.get();
  if (!table)
    return;
  uint64_t mask = 0;
  for (int32_t rank : comm.ranks)
    mask |= uint64_t(1) << rank;
  if (!(mask & table->remoteMask()))
    return;
  auto span = std::make_unique<Span>(comm);
  size_t n = size_t(comm.size);
  span->remoteRanks = mask & table->remoteMask();
  std::vector<int> numbers; // of hosts, in the order of their first members
  for (int member = 0; member < comm.size; ++member) {
    int host = table->hostIndex(comm.ranks[size_t(member)]);
    auto known = std::find(numbers.begin(), numbers.end(), host);
    size_t number = size_t(known - numbers.begin());
    if (known == numbers.end()) {
      numbers.push_back(host);
      span->onHost.emplace_back();
    }
    span->hostOf.push_back(int(number));
    span->placeOnHost.push_back(int(span->onHost[number].size()));
    span->onHost[number].push_back(member);
    if (!table->isLocal(comm.ranks[size_t(member)]))
      span->remote.push_back(member);
    else if (member != comm.me)
      span->local.push_back(member);
  }
  span->host = span->hostOf[size_t(comm.me)];
  span->fullest = span->emptiest = int(span->onHost.front().size());
  for (const std::vector<int> &list : span->onHost) {
    span->fullest = std::max(span->fullest, int(list.size()));
    span->emptiest = std::min(span->emptiest, int(list.size()));
  }
  for (auto *list :
       {&span->headerSends[0], &span->headerSends[1], &span->headerReceives,
        &span->sends, &span->resultSends, &span->receives})
    list->assign(n, 0);
  const int hosts = span->numHosts();
  span->headAt.assign(size_t(hosts) + 1, 0);
  span->blockAt.assign(size_t(hosts) + 1, 0);
  span->chunkAt.assign(n, 0);
  span->rounds.reserve(size_t(mostTransfers(hosts)));
  span->peerTags.assign(n, 0);
  span->inputs.assign(n, nullptr);
  span->results.assign(n, nullptr);
  span->heard.assign(n, 0);
  span->outgoing.resize(n);
  span->incoming.resize(n);
  span->area = comm.priority < 0 ? kLowArea : kArea;
  const uint64_t bytes = memoryBytes(span->area, hosts);
  span->memory = context.heap.allocate(bytes, 4096);
  if (!span->memory)
    raise(CONCORD_ERROR_OUT_OF_MEMORY,
          "the heap of %llu bytes (CONCORD_HEAP_BYTES) has no room for "
          "communicator '%s', which has members on other hosts and needs %llu "
          "bytes",
          (unsigned long long)context.segment->heapBytes(), comm.name.c_str(),
          (unsigned long long)bytes);
  span->memoryAt = context.segment->offsetOf(span->memory, bytes);
  for (int parity : {0, 1})
    span->heads[parity] = span->memory + 3 * (span->area + kSlack) +
                          uint64_t(parity) * headBytes(hosts);
  span->tag = table->takeTag();
  if (!span->tag) {
    context.heap.release(span->memory);
    raise(CONCORD_ERROR_OUT_OF_MEMORY,
          "no tag of the transport is left for communicator '%s': rank %d has "
          "made too many that span hosts",
          comm.name.c_str(), context.rank);
  }
  table->carryOver(comm.key, *comm.block.header);
  Notice notice;
  notice.kind = Notice::Kind::Tag;
  notice.key = comm.key;
  notice.value = span->tag;
  table->mesh().tell(span->remoteRanks, notice);
  comm.span = std::move(span);
}

void concord::rt::dropSpan(Comm &comm) {
  if (!comm.span)
    return;
  Span &span = *comm.span;
  const concord_transport &transport = transportOf(comm);
  std::vector<std::pair<concord_transport_request *, bool>> requests;
  for (auto *list :
       {&span.headerSends[0], &span.headerSends[1], &span.headerReceives,
        &span.sends, &span.resultSends, &span.receives})
    for (concord_transport_request &request : *list)
      requests.emplace_back(&request, list == &span.headerReceives ||
                                          list == &span.receives);
  for (auto *list : {&span.outgoing, &span.incoming})
    for (SpanChannel &channel : *list)
      for (concord_transport_request &request : channel.requests)
        requests.emplace_back(&request, list == &span.incoming);
  auto pending = [&] {
    bool any = false;
    for (auto [request, receiving] : requests)
      if (*request)
        any |= transport.test(request, nullptr) == CONCORD_TRANSPORT_PENDING;
    return any;
  };
  // What has been sent is on its way out; where all is well, let it go.
  bool well = comm.status == CONCORD_OK && !lost(span);
  int64_t deadline = nowNanoseconds() + kExplain;
  auto read = [&] { return span.local.empty() || ticksReady(span); };
  while (well && (pending() || !read()) && nowNanoseconds() < deadline)
    ::sched_yield();
  // Others of this host may still read what is in this memory.
  bool gaveUp = well && !read();
  for (auto [request, receiving] : requests)
    if (*request) {
      transport.abandon(request, receiving);
      gaveUp = true;
    }
  if (gaveUp) {
    comm.context->hosts->keep(comm.context->segment);
  } else {
    Heap &heap = comm.context->heap;
    heap.release(span.memory);
    for (auto *list : {&span.outgoing, &span.incoming})
      for (SpanChannel &channel : *list)
        if (channel.memory)
          heap.release(channel.memory);
  }
  comm.context->hosts->forget(comm.key);
  comm.span.reset();
}

void concord::rt::tellBroken(Comm &comm, const BrokenWord &word) {
  if (!comm.span)
    return;
  Hosts &hosts = *comm.context->hosts;
  Notice notice;
  notice.kind = Notice::Kind::Broken;
  notice.key = comm.key;
  notice.status = word.status;
  notice.value = uint32_t(word.member);
  notice.died = word.died;
  notice.sequence = word.sequence;
  notice.dead = comm.context->dead.load();
  hosts.mesh().tell(comm.span->remoteRanks, notice);
}

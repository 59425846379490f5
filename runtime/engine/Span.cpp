//===- Span.cpp - Communicators that span hosts ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state machine behind Span.h.
//
// What another member reads lies in one of three areas: the input is written
// before the first tick and read up to Work, the result before the tick after
// Work, and what has arrived for others before the tick after Results (by
// hosts). All are written again only after the tick that follows TakeOut
// (test/spin/hosts.pml).
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

/// Of `member`: 0 and 1 to send, by the parity of the sequence; 2 received.
SpanHeader &headerAt(const Span &span, int member, uint64_t which) {
  return *reinterpret_cast<SpanHeader *>(
      span.headers + (uint64_t(member) * 3 + which) * kHeaderBytes);
}
unsigned char *payloadOf(SpanHeader &header) {
  return reinterpret_cast<unsigned char *>(&header + 1);
}

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
  for (int member : span.remote)
    all &= settled(span, requests[size_t(member)], member);
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

bool unevenExchange(const OpRequest &r) {
  return r.kind == Kind::AllToAll && uneven(r);
}

/// The slot, for this host, and a header for every remote member.
void publish(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  uint64_t parity = op.sequence & 1;
  Slot &slot = comm.block.members[comm.me].slot(op.sequence);
  slot.fingerprint = op.fingerprint;
  if (op.inlined) {
    packInline(op, slot.payload);
  } else {
    auto &wire = *reinterpret_cast<SpanWire *>(slot.payload);
    wire.input = span.memoryAt;
    wire.result = span.memoryAt + span.area + kSlack;
    wire.arrivals = span.memoryAt + 2 * (span.area + kSlack);
    wire.area = span.area;
    wire.longest = longestOf(op);
    for (int i = 0; unevenExchange(r) && i < comm.size; ++i)
      wire.sendBytes[i] = r.send[i];
  }
  slot.sequence.store(op.sequence, std::memory_order_release);
  uint64_t payload = op.inlined ? op.payload : 0;
  std::fill(span.heard.begin(), span.heard.end(), 0);
  for (int member : span.remote) {
    SpanHeader &header = headerAt(span, member, parity);
    header = {};
    header.sequence = op.sequence;
    header.fingerprint = op.fingerprint;
    header.sendBytes = unevenExchange(r) ? r.send[member] : 0;
    header.area = span.area;
    header.longest = longestOf(op);
    header.payload = payload;
    if (payload)
      std::memcpy(payloadOf(header), slot.payload, payload);
    post(span, member, true, span.peerTags[size_t(member)], &header,
         sizeof header + payload, span.headerSends[parity][size_t(member)]);
    post(span, member, false, span.tag, &headerAt(span, member, 2),
         kHeaderBytes, span.headerReceives[size_t(member)]);
  }
}

/// A member's header or slot is there: does it fit? False after breakComm.
bool agrees(Op &op, int member, uint64_t fingerprint) {
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

} // namespace

bool concord::rt::spans::corrupt(Op &op, int member, const char *what) {
  fail(CONCORD_ERROR_CORRUPT, "%s: rank %d sent %s", describe(op).c_str(),
       op.comm->ranks[size_t(member)], what);
  breakComm(op, CONCORD_ERROR_CORRUPT);
  return false;
}

namespace {

enum class Heard : uint8_t { NotYet, All, Failed };

Heard hear(Op &op) {
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
  for (int member : span.remote) {
    if (span.heard[size_t(member)])
      continue;
    uint64_t bytes = 0;
    if (!settled(span, span.headerReceives[size_t(member)], member, &bytes)) {
      all = false;
      continue;
    }
    SpanHeader &header = headerAt(span, member, 2);
    if (bytes < sizeof header || header.sequence != op.sequence ||
        bytes != sizeof header + header.payload) {
      corrupt(op, member, "a malformed header");
      return Heard::Failed;
    }
    if (!agrees(op, member, header.fingerprint))
      return Heard::Failed;
    if (header.payload != (op.inlined ? op.payload : 0)) {
      corrupt(op, member, "a header of another size");
      return Heard::Failed;
    }
    span.heard[size_t(member)] = 1;
  }
  return all && span.failedMember < 0 ? Heard::All : Heard::NotYet;
}

/// All have been heard: how the work is divided. False after breakComm.
bool layOut(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  const uint64_t own = longestOf(op);
  uint64_t area = span.area, longest = own;
  auto take = [&](int member, uint64_t theirs, uint64_t longestThere,
                  uint64_t sends) {
    // Only in an uneven exchange do members know different lengths; elsewhere
    // another one would be as many segments as its sender likes.
    if (!unevenExchange(r) && longestThere != own)
      return corrupt(op, member, "another length than its operation has");
    area = std::min(area, theirs);
    longest = std::max(longest, longestThere);
    if (!unevenExchange(r) || sends == r.receive[member])
      return true;
    fail(CONCORD_ERROR_MISMATCH,
         "%s: rank %d sends %llu bytes to rank %d, which expects %llu",
         describe(op).c_str(), comm.ranks[size_t(member)],
         (unsigned long long)sends, comm.ranks[size_t(comm.me)],
         (unsigned long long)r.receive[member]);
    breakComm(op, CONCORD_ERROR_MISMATCH);
    return false;
  };
  if (unevenExchange(r) && !take(comm.me, area, longest, r.send[comm.me]))
    return false;
  for (int member : span.local) {
    const auto &wire = *reinterpret_cast<const SpanWire *>(
        comm.block.members[member].slot(op.sequence).payload);
    const Segment &segment = *comm.context->segment;
    uint64_t bytes = wire.area + kSlack;
    char *input = segment.pointerAt(wire.input, bytes);
    char *result = segment.pointerAt(wire.result, bytes);
    char *arrivals = segment.pointerAt(wire.arrivals, bytes);
    if (wire.area > kArea || !input || !result || !arrivals)
      return corrupt(op, member, "memory outside its heap");
    span.inputs[size_t(member)] = input;
    span.results[size_t(member)] = result;
    span.arrivals[size_t(member)] = arrivals;
    if (!take(member, wire.area, wire.longest, wire.sendBytes[comm.me]))
      return false;
  }
  for (int member : span.remote) {
    const SpanHeader &header = headerAt(span, member, 2);
    if (!take(member, header.area, header.longest, header.sendBytes))
      return false;
  }
  uint64_t chunks =
      chunked(r.kind, true) || chunked(r.kind, false) ? uint64_t(comm.size) : 1;
  op.part = longest; // the whole length, for the segment loop
  op.segment = 0;
  span.byHosts = goesByHosts(op);
  if (span.byHosts && reduces(r.kind))
    span.partial = comm.context->arithmetic->reduce(
        r.dtype, r.reduction == Reduction::Avg ? Reduction::Sum : r.reduction);
  op.segmentBytes = std::min(longest, area / chunks / 64 * 64);
  if (longest != 0 && op.segmentBytes == 0)
    return corrupt(op, comm.me, "no room for a segment");
  return true;
}

Progress complete(Op &op) {
  Comm &comm = *op.comm;
  comm.last = {};
  comm.last.kind = op.request.kind;
  comm.last.form = op.inlined ? Form::Flat : Form::Staged;
  comm.last.bytes = op.payload;
  comm.last.inlined = op.inlined;
  comm.last.hosts = true;
  comm.last.byHosts = !op.inlined && comm.span->byHosts;
  comm.span->step = Span::Step::Connect;
  op.state = Op::State::Done;
  return Progress::Done;
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

Progress concord::rt::advanceSpan(Op &op, uint64_t quantum) {
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
      op.state = Op::State::Gather;
      go(Span::Step::Headers);
      break;
    }
    case Span::Step::Headers:
      switch (hear(op)) {
      case Heard::NotYet:
        return blocked();
      case Heard::Failed:
        return Progress::Done;
      case Heard::All:
        break;
      }
      comm.known = op.sequence;
      if (op.inlined) {
        const unsigned char *payloads[kMaxRanks];
        for (int member : span.remote)
          payloads[member] = payloadOf(headerAt(span, member, 2));
        for (int member : span.local)
          payloads[member] =
              comm.block.members[member].slot(op.sequence).payload;
        payloads[comm.me] =
            comm.block.members[comm.me].slot(op.sequence).payload;
        finishFrom(op, payloads);
        return complete(op);
      }
      if (!layOut(op))
        return Progress::Done;
      if (op.part == 0)
        return complete(op);
      op.state = Op::State::Work;
      go(Span::Step::CopyIn);
      break;
    case Span::Step::CopyIn:
      if (!copyIn(op, left))
        return Progress::Advanced;
      tick();
      if (span.byHosts && reduces(op.request.kind)) {
        go(Span::Step::Partial);
      } else {
        postInputs(op);
        go(Span::Step::Inputs);
      }
      break;
    case Span::Step::Partial:
      if (!ticksReady(span))
        return blocked();
      if (!sumForOthers(op, left))
        return Progress::Advanced;
      postInputs(op);
      go(Span::Step::Inputs);
      break;
    case Span::Step::Inputs:
      if (!ticksReady(span) || !allSettled(span, span.receives))
        return blocked();
      if (span.byHosts && op.request.kind == Kind::Broadcast) {
        tick();
        go(Span::Step::Arrived);
      } else {
        go(Span::Step::Work);
      }
      break;
    case Span::Step::Arrived:
      if (!ticksReady(span))
        return blocked();
      go(Span::Step::Work);
      break;
    case Span::Step::Work:
      if (!work(op, left))
        return Progress::Advanced;
      if (!hasResults(op.request.kind)) {
        tick();
        go(Span::Step::Release);
        break;
      }
      // By hosts, what a member has for the others is complete only when it has
      // the remote results that it receives for them.
      if (!span.byHosts)
        tick();
      postResults(op);
      go(Span::Step::Results);
      break;
    case Span::Step::Results:
      if (!allSettled(span, span.receives))
        return blocked();
      if (span.byHosts)
        tick();
      go(Span::Step::Shared);
      break;
    case Span::Step::Shared:
      if (!ticksReady(span))
        return blocked();
      go(Span::Step::TakeOut);
      break;
    case Span::Step::TakeOut:
      if (!takeOut(op, left))
        return Progress::Advanced;
      tick();
      go(Span::Step::Release);
      break;
    case Span::Step::Release: {
      // The areas may be written again once nobody reads them.
      bool sent = allSettled(span, span.sends);
      sent &= allSettled(span, span.resultSends);
      if (!sent || !ticksReady(span))
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

uint64_t concord::rt::missingSpan(const Op &op) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  uint64_t mask = 0;
  uint64_t dead = comm.context->dead.load(std::memory_order_acquire);
  auto add = [&](int member) { mask |= uint64_t(1) << member; };
  if (op.state == Op::State::Queued || op.state == Op::State::Idle)
    return 0;
  for (int member : span.local) {
    bool late =
        span.step == Span::Step::Headers
            // Not as it was when it was last asked.
            ? comm.block.members[member].slot(op.sequence).sequence.load() <
                  op.sequence
            : span.step != Span::Step::Connect &&
                  comm.block.members[member].tick.load() < comm.tick;
    if (late)
      add(member);
  }
  for (int member : span.remote) {
    size_t m = size_t(member);
    bool late = dead >> comm.ranks[m] & 1 || member == span.failedMember;
    switch (span.step) {
    case Span::Step::Connect:
      late |= span.peerTags[m] == 0 || span.headerSends[op.sequence & 1][m];
      break;
    case Span::Step::Headers:
      late |= !span.heard[m];
      break;
    default:
      late |= span.sends[m] || span.resultSends[m] || span.receives[m];
    }
    if (late)
      add(member);
  }
  return mask;
}

int32_t concord::rt::prepareSpan(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  // Members of an uneven operation know different sizes.
  op.form = comm.context->scores.empty() || uneven(r)
                ? Form::Automatic
                : chooseForm(comm.context->scores, r.kind, 0, op.payload);
  if (r.kind != Kind::Send && r.kind != Kind::Recv) {
    op.inlined = !uneven(r) && op.payload <= kSpanInline;
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
  Hosts *hosts = context.hosts.get();
  if (!hosts)
    return;
  uint64_t mask = 0;
  for (int32_t rank : comm.ranks)
    mask |= uint64_t(1) << rank;
  if (!(mask & hosts->remoteMask()))
    return;
  auto span = std::make_unique<Span>(comm);
  size_t n = size_t(comm.size);
  span->remoteRanks = mask & hosts->remoteMask();
  std::vector<int> numbers; // of hosts, in the order of their first members
  for (int member = 0; member < comm.size; ++member) {
    int host = hosts->hostIndex(comm.ranks[size_t(member)]);
    auto known = std::find(numbers.begin(), numbers.end(), host);
    size_t number = size_t(known - numbers.begin());
    if (known == numbers.end()) {
      numbers.push_back(host);
      span->onHost.emplace_back();
    }
    span->hostOf.push_back(int(number));
    span->placeOnHost.push_back(int(span->onHost[number].size()));
    span->onHost[number].push_back(member);
    span->several |= span->onHost[number].size() > 1;
    if (!hosts->isLocal(comm.ranks[size_t(member)]))
      span->remote.push_back(member);
    else if (member != comm.me)
      span->local.push_back(member);
  }
  for (auto *list :
       {&span->headerSends[0], &span->headerSends[1], &span->headerReceives,
        &span->sends, &span->resultSends, &span->receives})
    list->assign(n, 0);
  span->peerTags.assign(n, 0);
  span->inputs.assign(n, nullptr);
  span->results.assign(n, nullptr);
  span->arrivals.assign(n, nullptr);
  span->heard.assign(n, 0);
  span->outgoing.resize(n);
  span->incoming.resize(n);
  span->area = comm.priority < 0 ? kLowArea : kArea;
  uint64_t areas = 3 * (span->area + kSlack);
  span->memory = context.heap.allocate(areas + n * 3 * kHeaderBytes, 4096);
  if (!span->memory)
    raise(CONCORD_ERROR_OUT_OF_MEMORY,
          "the heap of %llu bytes (CONCORD_HEAP_BYTES) has no room for "
          "communicator '%s', which has members on other hosts and needs %llu "
          "bytes",
          (unsigned long long)context.segment->heapBytes(), comm.name.c_str(),
          (unsigned long long)(areas + n * 3 * kHeaderBytes));
  span->memoryAt = context.segment->offsetOf(span->memory, areas);
  span->headers = span->memory + areas;
  span->tag = hosts->takeTag();
  if (!span->tag) {
    context.heap.release(span->memory);
    raise(CONCORD_ERROR_OUT_OF_MEMORY,
          "no tag of the transport is left for communicator '%s': rank %d has "
          "made too many that span hosts",
          comm.name.c_str(), context.rank);
  }
  hosts->carryOver(comm.key, *comm.block.header);
  Notice notice;
  notice.kind = Notice::Kind::Tag;
  notice.key = comm.key;
  notice.value = span->tag;
  hosts->mesh().tell(span->remoteRanks, notice);
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
  bool left = true;
  while (well && (left = pending()) && nowNanoseconds() < deadline)
    ::sched_yield();
  bool gaveUp = false;
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
  notice.dead = comm.context->dead.load();
  hosts.mesh().tell(comm.span->remoteRanks, notice);
}

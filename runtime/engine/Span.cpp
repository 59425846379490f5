//===- Span.cpp - Communicators that span hosts ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state machines behind Span.h. Which bytes one member needs of another is
// computed by both sides from what all know (inputPart, resultPart), so no
// message says where it belongs, and an empty part is no message.
//
// The transport sees only memory of the communicator: a message that is given
// up when a peer dies may be written late, and never into a user's buffer.
//
//===----------------------------------------------------------------------===//

#include "engine/Span.h"
#include "algorithms/Direct.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <cstring>
#include <sched.h>

using namespace concord;
using namespace concord::rt;

namespace {

constexpr uint64_t kArea = uint64_t(2) << 20;
/// At low priority less is under way at a time, so that what has high priority
/// does not queue behind it on the link.
constexpr uint64_t kLowArea = uint64_t(256) << 10;
/// Room behind an area for chunks that are rounded up.
constexpr uint64_t kSlack = uint64_t(64) << 10;
constexpr uint64_t kHeaderBytes = sizeof(SpanHeader) + kSpanInline;
/// Longest part of a message.
constexpr uint64_t kPart = uint64_t(256) << 10;
constexpr uint64_t kLowPart = uint64_t(32) << 10;
/// How long a failure of the transport may be explained by a death.
constexpr int64_t kExplain = 2'000'000'000;

/// Before the data of a message's first part.
struct MessageHeader {
  uint64_t fingerprint;
  uint64_t bytes;     ///< of the whole message
  uint64_t partBytes; ///< of a part, this header included
  uint64_t reserved;
};

constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

const concord_transport &transportOf(const Comm &comm) {
  return comm.context->hosts->transport();
}

char *resultArea(const Span &span) { return span.memory + span.area + kSlack; }
char *incomingArea(const Span &span) {
  return span.memory + 2 * (span.area + kSlack);
}
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

/// True when there is no such request any more; a failure is noted.
bool settled(Span &span, concord_transport_request &request, int member,
             uint64_t *bytes = nullptr) {
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

bool allSettled(Span &span, std::vector<concord_transport_request> &requests) {
  bool all = true;
  for (int member : span.remote)
    all &= settled(span, requests[size_t(member)], member);
  return all && span.failedMember < 0;
}

void post(Span &span, int member, bool sending, uint32_t tag, void *data,
          uint64_t bytes, concord_transport_request &request,
          bool synchronous = false) {
  const concord_transport &transport = transportOf(span.comm);
  int32_t rank = span.comm.ranks[size_t(member)];
  int32_t status =
      sending ? transport.send(rank, tag, data, bytes, synchronous, &request)
              : transport.receive(rank, tag, data, bytes, &request);
  if (status != 0)
    noteFailure(span, member);
}

//===----------------------------------------------------------------------===//
// Who needs what
//===----------------------------------------------------------------------===//

struct Part {
  uint64_t chunk = 0; ///< of the sender's input
  uint64_t begin = 0; ///< within the segment
  uint64_t bytes = 0;
};

/// What of a chunk of `length` bytes lies in the segment.
uint64_t clip(const Op &op, uint64_t length) {
  return length <= op.segment ? 0
                              : std::min(length - op.segment, op.segmentBytes);
}

Part shareOf(const Op &op, int member) {
  uint64_t whole = clip(op, op.request.chunk);
  uint64_t begin = shareBegin(whole, member, op.comm->size);
  uint64_t end = shareBegin(whole, member + 1, op.comm->size);
  return {0, begin, end > begin ? end - begin : 0};
}

/// What `to` needs of the input of `from`; one of them is this member.
Part inputPart(const Op &op, int from, int to) {
  const OpRequest &r = op.request;
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
    return shareOf(op, to);
  case Kind::ReduceScatter:
    return {uint64_t(to), 0, clip(op, uneven(r) ? r.receive[to] : r.chunk)};
  case Kind::AllToAll:
    return {uint64_t(to), 0,
            clip(op, from == op.comm->me ? chunkBytes(op, true, to)
                                         : chunkBytes(op, false, from))};
  case Kind::Broadcast:
  case Kind::RoundDecision:
    return {0, 0, from == r.root ? clip(op, r.chunk) : 0};
  case Kind::Scatter:
    return {uint64_t(to), 0, from == r.root ? clip(op, r.chunk) : 0};
  case Kind::Permute:
    for (uint32_t i = 0; i < r.numPairs; ++i)
      if (r.pairs[i][0] == from && r.pairs[i][1] == to)
        return {0, 0, clip(op, r.chunk)};
    return {};
  default:
    return {};
  }
}

bool hasResults(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce ||
         kind == Kind::AllGather || kind == Kind::Gather;
}

/// What `to` wants of the result of `from`; `chunk` is of its output.
Part resultPart(const Op &op, int from, int to) {
  const OpRequest &r = op.request;
  switch (r.kind) {
  case Kind::Reduce:
    if (to != r.root)
      return {};
    [[fallthrough]];
  case Kind::AllReduce:
    return shareOf(op, from);
  case Kind::Gather:
    if (to != r.root)
      return {};
    [[fallthrough]];
  case Kind::AllGather:
    return {uint64_t(from), 0, clip(op, uneven(r) ? r.receive[from] : r.chunk)};
  default:
    return {};
  }
}

/// Where a part of an input lies in the area of its owner.
uint64_t inputAt(const Op &op, const Part &part) {
  return part.chunk * roundUp(op.segmentBytes) + part.begin;
}

/// Where what comes from `member` goes in this one's area.
uint64_t incomingAt(const Op &op, int member) {
  uint64_t size = uint64_t(op.comm->size);
  switch (op.request.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
    return uint64_t(member) * roundUp(op.segmentBytes / size + size + 64);
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
  case Kind::Permute:
    return 0; // from one member only
  default:
    return uint64_t(member) * roundUp(op.segmentBytes);
  }
}

View viewOf(const Op &op, const concord_buffer &buffer) {
  View view;
  view.base = static_cast<char *>(buffer.base);
  view.outer = buffer.outer;
  view.inner = view.pitch = buffer.inner_bytes;
  view.stride = buffer.stride_bytes;
  view.start = op.segment;
  return view;
}

View flatView(char *base, uint64_t bytes) {
  View view;
  view.base = base;
  view.inner = view.pitch = bytes;
  return view;
}

/// Where chunk c begins in this member's own operand.
uint64_t displacement(const Op &op, bool input, uint64_t c) {
  const OpRequest &r = op.request;
  const concord_buffer &buffer = input ? r.in : r.out;
  if (!chunked(r.kind, input))
    return 0;
  if (!uneven(r))
    return c * buffer.inner_bytes;
  uint64_t at = 0;
  for (uint64_t i = 0; i < c; ++i)
    at += chunkBytes(op, input, int(i));
  return at;
}

/// Between this member's operand and plain memory.
void copyOwn(const Op &op, bool input, uint64_t chunk, uint64_t at, char *plain,
             uint64_t bytes) {
  View own = viewOf(op, input ? op.request.in : op.request.out);
  own.start += at;
  View other = flatView(plain, bytes);
  uint64_t offset = displacement(op, input, chunk);
  SpreadFunction spread = op.comm->context->arithmetic->spread;
  if (input)
    copyLinear(other, 0, own, offset, bytes, spread);
  else
    copyLinear(own, offset, other, 0, bytes, spread);
}

/// Take the next piece of `length` bytes, at most `left`, which shrinks. True
/// at the end.
template <typename Take>
bool piece(Op &op, uint64_t &left, uint64_t length, Take take) {
  uint64_t n = std::min(left, length - op.position);
  if (n)
    take(op.position, n);
  op.position += n;
  left -= n;
  if (op.position < length)
    return false;
  op.position = 0;
  return true;
}

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

bool corrupt(Op &op, int member, const char *what) {
  fail(CONCORD_ERROR_CORRUPT, "%s: rank %d sent %s", describe(op).c_str(),
       op.comm->ranks[size_t(member)], what);
  breakComm(op, CONCORD_ERROR_CORRUPT);
  return false;
}

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
  uint64_t area = span.area, longest = longestOf(op);
  auto take = [&](int member, uint64_t theirs, uint64_t longestThere,
                  uint64_t sends) {
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
    if (wire.area > kArea || !input || !result)
      return corrupt(op, member, "memory outside its heap");
    span.inputs[size_t(member)] = input;
    span.results[size_t(member)] = result;
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
  op.segmentBytes = std::min(longest, area / chunks / 64 * 64);
  if (longest != 0 && op.segmentBytes == 0)
    return corrupt(op, comm.me, "no room for a segment");
  return true;
}

/// Copy the own input where others find it. True at the end.
bool copyIn(Op &op, uint64_t &left) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  bool others = inputIsRemote(r.kind) && uses(op, comm.me, true);
  int chunks = !others ? 0 : chunked(r.kind, true) ? comm.size : 1;
  for (; op.peerIndex < chunks; ++op.peerIndex) {
    uint64_t c = uint64_t(op.peerIndex);
    char *to = comm.span->memory + inputAt(op, {c, 0, 0});
    uint64_t length = clip(op, chunkBytes(op, true, int(c)));
    if (!piece(op, left, length, [&](uint64_t at, uint64_t n) {
          copyOwn(op, true, c, at, to + at, n);
        }))
      return false;
  }
  op.peerIndex = 0;
  return true;
}

void postInputs(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  for (int member : span.remote) {
    if (Part part = inputPart(op, comm.me, member); part.bytes)
      post(span, member, true, span.peerTags[size_t(member)],
           span.memory + inputAt(op, part), part.bytes,
           span.sends[size_t(member)]);
    if (Part part = inputPart(op, member, comm.me); part.bytes)
      post(span, member, false, span.tag,
           incomingArea(span) + incomingAt(op, member), part.bytes,
           span.receives[size_t(member)]);
  }
}

void postResults(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  for (int member : span.remote) {
    if (Part part = resultPart(op, comm.me, member); part.bytes)
      post(span, member, true, span.peerTags[size_t(member)], resultArea(span),
           part.bytes, span.resultSends[size_t(member)]);
    if (Part part = resultPart(op, member, comm.me); part.bytes)
      post(span, member, false, span.tag,
           incomingArea(span) + incomingAt(op, member), part.bytes,
           span.receives[size_t(member)]);
  }
}

/// Where a member's input part for this one lies now.
char *inputFrom(const Op &op, int member, const Part &part) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  if (member == comm.me)
    return span.memory + inputAt(op, part);
  if (char *theirs = span.inputs[size_t(member)])
    return theirs + inputAt(op, part);
  return incomingArea(span) + incomingAt(op, member);
}

/// Reduce, or move. True at the end.
bool work(Op &op, uint64_t &left) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
  case Kind::ReduceScatter: {
    const char *begins[kMaxRanks];
    Part part;
    for (int member = 0; member < comm.size; ++member) {
      part = inputPart(op, member, comm.me);
      begins[member] = inputFrom(op, member, part);
    }
    size_t element = dtypeSize(r.dtype);
    return piece(op, left, part.bytes, [&](uint64_t at, uint64_t n) {
      const void *sources[kMaxRanks];
      for (int member = 0; member < comm.size; ++member)
        sources[member] = begins[member] + at;
      char *target = resultArea(span) + at;
      op.reduce(sources, comm.size, target, n / element);
      if (r.kind == Kind::ReduceScatter)
        copyOwn(op, false, 0, at, target, n);
    });
  }
  case Kind::AllGather:
  case Kind::Gather:
    return piece(op, left, clip(op, chunkBytes(op, true, 0)),
                 [&](uint64_t at, uint64_t n) {
                   copyOwn(op, true, 0, at, resultArea(span) + at, n);
                 });
  case Kind::Permute: {
    bool target = false;
    for (uint32_t i = 0; i < r.numPairs; ++i)
      target |= r.pairs[i][1] == comm.me;
    if (!target) {
      // Nothing comes: zeros.
      std::memset(resultArea(span), 0, std::min(left, clip(op, r.chunk)));
      return piece(op, left, clip(op, r.chunk), [&](uint64_t at, uint64_t n) {
        copyOwn(op, false, 0, at, resultArea(span), n);
      });
    }
    [[fallthrough]];
  }
  default:
    for (; op.peerIndex < comm.size; ++op.peerIndex) {
      int from = (comm.me + op.peerIndex) % comm.size;
      Part part = inputPart(op, from, comm.me);
      if (!part.bytes)
        continue;
      uint64_t chunk = r.kind == Kind::AllToAll ? uint64_t(from) : 0;
      char *source = inputFrom(op, from, part);
      if (!piece(op, left, part.bytes, [&](uint64_t at, uint64_t n) {
            copyOwn(op, false, chunk, at, source + at, n);
          }))
        return false;
    }
    op.peerIndex = 0;
    return true;
  }
}

/// Copy the members' results to the own output. True at the end.
bool takeOut(Op &op, uint64_t &left) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  for (; op.peerIndex < comm.size; ++op.peerIndex) {
    int from = (comm.me + op.peerIndex) % comm.size;
    Part part = resultPart(op, from, comm.me);
    if (!part.bytes)
      continue;
    char *theirs = span.results[size_t(from)];
    char *source = from == comm.me ? resultArea(span)
                   : theirs        ? theirs
                                   : incomingArea(span) + incomingAt(op, from);
    if (!piece(op, left, part.bytes, [&](uint64_t at, uint64_t n) {
          copyOwn(op, false, part.chunk, part.begin + at, source + at, n);
        }))
      return false;
  }
  op.peerIndex = 0;
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

/// What to do about it: wait for the watchdog's word, which names the rank, or
/// give up.
Progress mourn(Op &op) {
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

} // namespace

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
      if (!span.local.empty())
        publishTick(comm);
      postInputs(op);
      go(Span::Step::Inputs);
      break;
    case Span::Step::Inputs:
      if (!ticksReady(span) || !allSettled(span, span.receives))
        return blocked();
      go(Span::Step::Work);
      break;
    case Span::Step::Work:
      if (!work(op, left))
        return Progress::Advanced;
      if (!span.local.empty())
        publishTick(comm);
      if (hasResults(op.request.kind)) {
        postResults(op);
        go(Span::Step::Results);
      } else {
        go(Span::Step::Release);
      }
      break;
    case Span::Step::Results:
      if (!ticksReady(span) || !allSettled(span, span.receives))
        return blocked();
      go(Span::Step::TakeOut);
      break;
    case Span::Step::TakeOut:
      if (!takeOut(op, left))
        return Progress::Advanced;
      if (!span.local.empty())
        publishTick(comm);
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
  op.form = Form::Automatic;
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
// Messages
//===----------------------------------------------------------------------===//

bool concord::rt::remoteMessage(const Op &op) {
  const Comm &comm = *op.comm;
  return comm.span &&
         !comm.context->hosts->isLocal(comm.ranks[size_t(op.request.root)]);
}

static Progress advanceSpanSend(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  int peer = r.root;
  SpanChannel &channel = span.outgoing[size_t(peer)];
  uint32_t &tag = span.peerTags[size_t(peer)];
  if (!tag &&
      !(tag = comm.context->hosts->peerTag(comm.key, comm.ranks[size_t(peer)])))
    return Progress::Blocked;
  const bool slots = comm.context->deviceSlots != 0;
  const uint64_t partBytes = comm.priority < 0 ? kLowPart : kPart;
  if (op.part == 0 || op.position < r.chunk) {
    uint64_t turn = comm.sendPart[size_t(peer)] & 1;
    if (!settled(span, channel.requests[turn], peer))
      return Progress::Blocked;
    char *memory = channel.memory + turn * kPart;
    uint64_t head = op.part == 0 ? sizeof(MessageHeader) : 0;
    uint64_t n = std::min(r.chunk - op.position, partBytes - head);
    if (head)
      *reinterpret_cast<MessageHeader *>(memory) = {op.fingerprint, r.chunk,
                                                    partBytes, 0};
    if (n) {
      View source = viewOf(op, r.in);
      source.start = op.position;
      copyLinear(flatView(memory + head, n), 0, source, 0, n);
    }
    post(span, peer, true, tag + 1, memory, head + n, channel.requests[turn],
         slots);
    op.position += n;
    ++op.part;
    ++comm.sendPart[size_t(peer)];
    if (op.position < r.chunk)
      return Progress::Advanced;
  }
  // A short message has been copied; a long one needs this side's help until it
  // has arrived. With slots of a device nothing is buffered.
  if (r.chunk > kMailboxPayload || slots)
    for (concord_transport_request &request : channel.requests)
      if (!settled(span, request, peer))
        return Progress::Blocked;
  ++comm.sendDone[size_t(peer)];
  op.state = Op::State::Done;
  return Progress::Done;
}

static Progress advanceSpanReceive(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  int peer = r.root;
  SpanChannel &channel = span.incoming[size_t(peer)];
  uint64_t &taken = comm.receivePart[size_t(peer)]; // of all messages
  // Of this message: op.part parts are asked for, op.peerIndex taken.
  auto memoryOf = [&](uint64_t part) {
    return channel.memory + (part & 1) * kPart;
  };
  auto ask = [&] {
    uint64_t part = taken + (op.part - uint64_t(op.peerIndex));
    post(span, peer, false, span.tag + 1, memoryOf(part), kPart,
         channel.requests[part & 1]);
    ++op.part;
  };
  if (op.part == 0)
    ask();
  uint64_t bytes = 0;
  if (!settled(span, channel.requests[taken & 1], peer, &bytes))
    return Progress::Blocked;
  char *memory = memoryOf(taken);
  uint64_t head = 0;
  if (op.peerIndex == 0) {
    MessageHeader header{};
    head = sizeof header;
    if (bytes >= head)
      std::memcpy(&header, memory, head);
    if (bytes >= head && header.fingerprint != op.fingerprint) {
      size_t size = dtypeSize(r.dtype);
      fail(CONCORD_ERROR_MISMATCH,
           "%s: rank %d receives %llu elements of %s, but rank %d sends %llu "
           "of %s",
           describe(op).c_str(), comm.ranks[size_t(comm.me)],
           (unsigned long long)(r.chunk / size),
           std::string(dtypeName(r.dtype)).c_str(), comm.ranks[size_t(peer)],
           (unsigned long long)(header.fingerprint >> 18),
           std::string(dtypeName(DType(header.fingerprint >> 4 & 15))).c_str());
      breakComm(op, CONCORD_ERROR_MISMATCH);
      return Progress::Done;
    }
    op.partBytes = header.partBytes;
    if (bytes < head || header.bytes != r.chunk || header.partBytes <= head ||
        header.partBytes > kPart) {
      corrupt(op, peer, "a malformed message");
      return Progress::Done;
    }
  }
  uint64_t want = std::min(r.chunk - op.position, op.partBytes - head);
  if (bytes != head + want) {
    corrupt(op, peer, "a part of another size");
    return Progress::Done;
  }
  if (want) {
    View target = viewOf(op, r.out);
    target.start = op.position;
    copyLinear(target, 0, flatView(memory + head, want), 0, want);
  }
  op.position += want;
  ++op.peerIndex;
  ++taken;
  // Two parts under way at a time.
  uint64_t rest = (r.chunk - op.position + op.partBytes - 1) / op.partBytes;
  while (op.part - uint64_t(op.peerIndex) < std::min<uint64_t>(rest, 2))
    ask();
  if (op.position < r.chunk)
    return Progress::Advanced;
  ++comm.receiveDone[size_t(peer)];
  op.state = Op::State::Done;
  return Progress::Done;
}

Progress concord::rt::advanceSpanMessage(Op &op) {
  Comm &comm = *op.comm;
  bool send = op.request.kind == Kind::Send;
  if (op.state == Op::State::Queued) {
    auto &done = send ? comm.sendDone : comm.receiveDone;
    if (done[size_t(op.request.root)] != op.ticket)
      return Progress::Blocked;
    op.position = op.part = op.partBytes = op.segment = 0;
    op.peerIndex = 0;
    op.state = Op::State::Message;
  }
  // Only a dead partner keeps a message from arriving.
  uint64_t dead = comm.context->dead.load(std::memory_order_acquire);
  if (dead >> comm.ranks[size_t(op.request.root)] & 1 ||
      comm.span->failedMember >= 0)
    return mourn(op);
  return send ? advanceSpanSend(op) : advanceSpanReceive(op);
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
  for (int member = 0; member < comm.size; ++member) {
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

void concord::rt::tellBroken(Comm &comm, int32_t status) {
  if (!comm.span)
    return;
  Hosts &hosts = *comm.context->hosts;
  Notice notice;
  notice.kind = Notice::Kind::Broken;
  notice.key = comm.key;
  notice.status = status;
  notice.value = uint32_t(comm.me);
  notice.dead = comm.context->dead.load();
  hosts.mesh().tell(comm.span->remoteRanks, notice);
}

//===- SpanHeads.cpp - What hosts tell each other of an operation ---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Bruck's all-gather of one header per host, among the leaders. In round k a
// leader sends what it knows, of up to 2^k hosts, to the one 2^k further on.
// Every host hears of its predecessor in round 0, so two hosts that disagree,
// however many agree with each, are always told by some host that compares its
// own with another; that one breaks the communicator for all.
//
// The memory of one parity is written again two operations later. By then the
// leader has heard the slots of the operation between, so nobody of its host
// reads it any more.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "engine/SpanParts.h"

#include <cstring>

using namespace concord;
using namespace concord::rt;
using namespace concord::rt::spans;

namespace {

/// Bytes of each member that the header carries, of those that have some.
uint64_t payloadOfMember(const Op &op) {
  return op.inlined                   ? op.payload
         : unevenExchange(op.request) ? 8 * uint64_t(op.comm->size)
                                      : 0;
}

/// Only the root's payload matters.
bool fromRoot(Kind kind) {
  return kind == Kind::Broadcast || kind == Kind::RoundDecision ||
         kind == Kind::Scatter;
}

/// Number of a host in the memory of this one's leader.
size_t numberOf(const Span &span, int host) {
  return size_t((span.host - host + span.numHosts()) % span.numHosts());
}

char *headAt(const Op &op, size_t number) {
  const Span &span = *op.comm->span;
  return span.heads[op.sequence & 1] + span.headAt[number];
}

/// False after breakComm. `number`: of the host.
bool checkHead(Op &op, size_t number) {
  Span &span = *op.comm->span;
  SpanHeader header;
  std::memcpy(&header, headAt(op, number), sizeof header);
  int host = span.next(-int(number));
  if (header.sequence != op.sequence)
    return corrupt(op, span.leader(host), "a header of another operation");
  if (!agrees(op, span.leader(host), header.fingerprint))
    return false;
  if (header.payload != payloadOfHost(op, host))
    return corrupt(op, span.leader(host), "a header of another size");
  return true;
}

} // namespace

uint64_t concord::rt::spans::payloadOfHost(const Op &op, int host) {
  const Span &span = *op.comm->span;
  uint64_t each = payloadOfMember(op);
  if (each && op.inlined && fromRoot(op.request.kind))
    return span.hostOf[size_t(op.request.root)] == host ? roundUp(each) : 0;
  return roundUp(each * span.onHost[size_t(host)].size());
}

void concord::rt::spans::placeHeads(const Op &op) {
  Span &span = *op.comm->span;
  uint64_t at = 0;
  for (int i = 0; i < span.numHosts(); ++i) {
    span.headAt[size_t(i)] = at;
    at += sizeof(SpanHeader) + payloadOfHost(op, span.next(-i));
  }
  span.headAt[size_t(span.numHosts())] = at;
}

void concord::rt::spans::writeHead(const Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  SpanHeader header = {};
  header.sequence = op.sequence;
  header.fingerprint = op.fingerprint;
  header.area = ~uint64_t(0);
  header.payload = payloadOfHost(op, span.host);
  char *to = headAt(op, 0) + sizeof header;
  uint64_t each = payloadOfMember(op);
  for (int member : span.onHost[size_t(span.host)]) {
    const unsigned char *slot =
        comm.block.members[member].slot(op.sequence).payload;
    const auto &wire = *reinterpret_cast<const SpanWire *>(slot);
    header.area = std::min(header.area, wire.area);
    header.longest = std::max(header.longest, wire.longest);
    if (!each ||
        (op.inlined && fromRoot(op.request.kind) && member != op.request.root))
      continue;
    std::memcpy(to, slot + kSpanPayload, each);
    to += each;
  }
  std::memcpy(headAt(op, 0), &header, sizeof header);
  span.headRound = 0;
  span.headPosted = false;
}

Heard concord::rt::spans::exchangeHeads(Op &op) {
  Span &span = *op.comm->span;
  int hosts = span.numHosts();
  char *memory = span.heads[op.sequence & 1];
  for (; span.headRound < gatherRounds(hosts); ++span.headRound) {
    int bit = 1 << span.headRound, count = std::min(bit, hosts - bit);
    int to = span.leader(span.next(bit)), from = span.leader(span.next(-bit));
    uint64_t begin = span.headAt[size_t(bit)];
    uint64_t wanted = span.headAt[size_t(bit + count)] - begin;
    if (!span.headPosted) {
      post(span, to, true, span.peerTags[size_t(to)], memory,
           span.headAt[size_t(count)],
           span.headerSends[op.sequence & 1][size_t(to)]);
      post(span, from, false, span.tag, memory + begin,
           headBytes(hosts) - begin, span.headerReceives[size_t(from)]);
      span.headPosted = true;
    }
    uint64_t bytes = 0;
    if (!settled(span, span.headerReceives[size_t(from)], from, &bytes) ||
        span.failedMember >= 0)
      return Heard::NotYet;
    span.headPosted = false;
    if (bytes < sizeof(SpanHeader)) {
      corrupt(op, from, "a malformed header");
      return Heard::Failed;
    }
    // First what its sender says of itself: where both mean different things,
    // the sizes differ, too.
    for (int i = 0; i < count; ++i) {
      if (!checkHead(op, size_t(bit + i)))
        return Heard::Failed;
      if (bytes != wanted) {
        corrupt(op, from, "a malformed header");
        return Heard::Failed;
      }
    }
  }
  return Heard::All;
}

bool concord::rt::spans::checkHeads(Op &op) {
  for (int i = 1; i < op.comm->span->numHosts(); ++i)
    if (!checkHead(op, size_t(i)))
      return false;
  return true;
}

const SpanHeader &concord::rt::spans::headOf(const Op &op, int host) {
  return *reinterpret_cast<const SpanHeader *>(
      headAt(op, numberOf(*op.comm->span, host)));
}

const unsigned char *concord::rt::spans::remotePayload(const Op &op,
                                                       int member) {
  const Span &span = *op.comm->span;
  int host = span.hostOf[size_t(member)];
  uint64_t place = op.inlined && fromRoot(op.request.kind)
                       ? 0
                       : uint64_t(span.placeOnHost[size_t(member)]);
  return reinterpret_cast<const unsigned char *>(
             headAt(op, numberOf(span, host))) +
         sizeof(SpanHeader) + place * payloadOfMember(op);
}

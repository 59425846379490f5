//===- SpanMessages.cpp - Messages between hosts --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// send and recv with a member on another host, by parts, two under way.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "engine/SpanParts.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::rt;
using namespace concord::rt::spans;

namespace {

/// Before the data of a message's first part.
struct MessageHeader {
  uint64_t fingerprint;
  uint64_t bytes;     ///< of the whole message
  uint64_t partBytes; ///< of a part, this header included
  uint64_t reserved;
};

} // namespace

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

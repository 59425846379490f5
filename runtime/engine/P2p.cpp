//===- P2p.cpp - Point-to-point messages ----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Messages between two members through the pair's mailbox. A short message
// travels in the mailbox; the sender is done when it is posted. A source in the
// heap is posted by its place and copied once, by the receiver. Any other
// source goes through a bounce buffer in parts. Messages of one pair keep their
// order; different pairs are independent, so an exchange that is started as a
// group cannot hang.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Direct.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "engine/Span.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::rt;

static constexpr uint64_t kInMailbox = ~uint64_t(0);
static constexpr uint64_t kBounce = uint64_t(256) << 10;

static View bufferView(const concord_buffer &buffer) {
  View view;
  view.base = static_cast<char *>(buffer.base);
  view.outer = buffer.outer;
  view.inner = view.pitch = buffer.inner_bytes;
  view.stride = buffer.stride_bytes;
  return view;
}

static View denseView(char *base, uint64_t bytes) {
  View view;
  view.base = base;
  view.inner = view.pitch = bytes;
  return view;
}

static uint64_t strideEnd(uint64_t outer, uint64_t inner, uint64_t stride) {
  uint64_t end;
  if (outer == 0)
    return 0;
  if (__builtin_mul_overflow(outer - 1, stride, &end) ||
      __builtin_add_overflow(end, inner, &end))
    return ~uint64_t(0);
  return end;
}

static Progress advanceSend(Op &op) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  Segment &segment = *comm.context->segment;
  int peer = r.root;
  Mailbox &box = comm.block.mailbox(comm.me, peer);
  uint64_t &part = comm.sendPart[peer];
  auto finish = [&] {
    if (op.bounce)
      comm.context->heap.release(op.bounce);
    op.bounce = nullptr;
    ++comm.sendDone[peer];
    op.state = Op::State::Done;
    return Progress::Done;
  };
  if (op.state == Op::State::Queued) {
    if (comm.sendDone[peer] != op.ticket)
      return Progress::Blocked;
    op.position = 0;
    op.part = 0;
    op.state = Op::State::Message;
  }
  // The mailbox is free when the last part was taken.
  if (box.taken.load(std::memory_order_acquire) < part)
    return Progress::Blocked;
  if (op.part != 0 && op.position >= r.chunk)
    return finish();
  View source = bufferView(r.in);
  box.fingerprint = op.fingerprint;
  uint64_t offset =
      comm.context->stageAlways
          ? kInMailbox
          : segment.offsetOf(r.in.base, strideEnd(r.in.outer, r.in.inner_bytes,
                                                  r.in.stride_bytes));
  bool done = false;
  if (r.chunk <= kMailboxPayload) {
    if (r.chunk)
      copyLinear(denseView(reinterpret_cast<char *>(box.payload), r.chunk), 0,
                 source, 0, r.chunk);
    box.offset = kInMailbox;
    box.bytes = r.chunk;
    // With slots of a device nothing is buffered.
    done = comm.context->deviceSlots == 0;
  } else if (offset != kInMailbox) {
    box.offset = offset;
    box.bytes = r.chunk;
    box.outer = r.in.outer;
    box.inner = r.in.inner_bytes;
    box.stride = r.in.stride_bytes;
  } else {
    if (!op.bounce) {
      op.bounce = comm.context->heap.allocate(std::min(kBounce, r.chunk), 4096);
      if (!op.bounce) {
        fail(CONCORD_ERROR_OUT_OF_MEMORY,
             "%s: the heap has no room for a bounce buffer",
             describe(op).c_str());
        breakComm(op, CONCORD_ERROR_OUT_OF_MEMORY);
        return Progress::Done;
      }
    }
    uint64_t bytes = std::min(kBounce, r.chunk - op.position);
    source.start = op.position;
    copyLinear(denseView(op.bounce, bytes), 0, source, 0, bytes);
    box.offset = segment.offsetOf(op.bounce, bytes);
    box.bytes = bytes;
    box.outer = 1;
    box.inner = box.stride = bytes;
  }
  op.position += box.bytes;
  ++op.part;
  ++part;
  box.posted.store(part, std::memory_order_release);
  return done ? finish() : Progress::Advanced;
}

static Progress advanceReceive(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  int peer = r.root;
  Mailbox &box = comm.block.mailbox(peer, comm.me);
  uint64_t &part = comm.receivePart[peer];
  if (op.state == Op::State::Queued) {
    if (comm.receiveDone[peer] != op.ticket)
      return Progress::Blocked;
    op.position = 0;
    op.segment = 0;
    op.state = Op::State::Message;
  }
  if (box.posted.load(std::memory_order_acquire) <= part)
    return Progress::Blocked;
  if (box.fingerprint != op.fingerprint) {
    auto size = dtypeSize(r.dtype);
    DType theirs = DType(box.fingerprint >> 4 & 15);
    fail(CONCORD_ERROR_MISMATCH,
         "%s: rank %d receives %llu elements of %s, but rank %d sends %llu "
         "of %s",
         describe(op).c_str(), comm.ranks[comm.me],
         (unsigned long long)(r.chunk / size),
         std::string(dtypeName(r.dtype)).c_str(), comm.ranks[peer],
         (unsigned long long)(box.fingerprint >> 18),
         std::string(dtypeName(theirs)).c_str());
    breakComm(op, CONCORD_ERROR_MISMATCH);
    return Progress::Done;
  }
  uint64_t bytes = box.bytes;
  View target = bufferView(r.out), source;
  bool good = bytes <= r.chunk - op.position;
  if (box.offset == kInMailbox) {
    good &= bytes <= kMailboxPayload;
    source = denseView(reinterpret_cast<char *>(box.payload), bytes);
  } else {
    source.outer = box.outer;
    source.inner = source.pitch = box.inner;
    source.stride = box.stride;
    source.base = comm.context->segment->pointerAt(
        box.offset, strideEnd(box.outer, box.inner, box.stride));
    uint64_t total;
    good &= source.base && source.inner &&
            !__builtin_mul_overflow(box.outer, box.inner, &total) &&
            total == bytes;
  }
  if (!good) {
    fail(CONCORD_ERROR_CORRUPT, "%s: rank %d posted a malformed message",
         describe(op).c_str(), comm.ranks[peer]);
    breakComm(op, CONCORD_ERROR_CORRUPT);
    return Progress::Done;
  }
  // By chunks, so that a long message of low priority holds nobody up.
  uint64_t step = std::min(bytes - op.segment, quantum);
  target.start = op.position + op.segment;
  source.start = op.segment;
  copyLinear(target, 0, source, 0, step);
  op.segment += step;
  if (op.segment < bytes)
    return Progress::Advanced;
  op.segment = 0;
  op.position += bytes;
  ++part;
  box.taken.store(part, std::memory_order_release);
  if (op.position < r.chunk)
    return Progress::Advanced;
  ++comm.receiveDone[peer];
  op.state = Op::State::Done;
  return Progress::Done;
}

Progress concord::rt::advanceMessage(Op &op, uint64_t quantum) {
  if (op.comm->span && remoteMessage(op))
    return advanceSpanMessage(op);
  return op.request.kind == Kind::Send ? advanceSend(op)
                                       : advanceReceive(op, quantum);
}

uint64_t concord::rt::missingPeer(const Op &op) {
  return uint64_t(1) << op.request.root;
}

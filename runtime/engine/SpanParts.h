//===- SpanParts.h - Inside of communicators that span hosts ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Span.cpp (the state machine), SpanHeads.cpp (headers), SpanForms.cpp
// (the choice of a form, and the direct one), SpanRounds.cpp (the forms by
// rounds) and SpanMessages.cpp (send and recv) share.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_SPANPARTS_H
#define CONCORD_RUNTIME_ENGINE_SPANPARTS_H

#include "algorithms/Direct.h"
#include "engine/Span.h"

#include <algorithm>

namespace concord::rt::spans {

constexpr uint64_t kArea = uint64_t(2) << 20;
/// At low priority less is under way at a time, so that what has high priority
/// does not queue behind it on the link.
constexpr uint64_t kLowArea = uint64_t(256) << 10;
/// Room behind an area for chunks that are rounded up.
constexpr uint64_t kSlack = uint64_t(64) << 10;
/// Longest part of a message.
constexpr uint64_t kPart = uint64_t(256) << 10;
constexpr uint64_t kLowPart = uint64_t(32) << 10;
/// How long a failure of the transport may be explained by a death.
constexpr int64_t kExplain = 2'000'000'000;

inline const concord_transport &transportOf(const Comm &comm) {
  return comm.context->hosts->transport();
}
inline char *resultArea(const Span &span) {
  return span.memory + span.area + kSlack;
}
inline char *incomingArea(const Span &span) {
  return span.memory + 2 * (span.area + kSlack);
}
constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
/// What of a chunk of `length` bytes lies in the segment.
inline uint64_t clip(const Op &op, uint64_t length) {
  return length <= op.segment ? 0
                              : std::min(length - op.segment, op.segmentBytes);
}
inline View viewOf(const Op &op, const concord_buffer &buffer) {
  View view;
  view.base = static_cast<char *>(buffer.base);
  view.outer = buffer.outer;
  view.inner = view.pitch = buffer.inner_bytes;
  view.stride = buffer.stride_bytes;
  view.start = op.segment;
  return view;
}
inline View flatView(char *base, uint64_t bytes) {
  View view;
  view.base = base;
  view.inner = view.pitch = bytes;
  return view;
}

//===----------------------------------------------------------------------===//
// Of the transport
//===----------------------------------------------------------------------===//

/// Begin to send to a member, or to receive; a failure is noted.
void post(Span &span, int member, bool sending, uint32_t tag, void *data,
          uint64_t bytes, concord_transport_request &request,
          bool synchronous = false);
/// True when there is no such request any more; a failure is noted.
bool settled(Span &span, concord_transport_request &request, int member,
             uint64_t *bytes = nullptr);
bool allSettled(Span &span, std::vector<concord_transport_request> &requests);
/// A member's slot, or a host's header, is there: does it fit? False after
/// breakComm.
bool agrees(Op &op, int member, uint64_t fingerprint);
/// The member has sent nonsense; false, for who returns that.
bool corrupt(Op &op, int member, const char *what);
/// What to do where a member has died or the transport has failed: wait for the
/// watchdog's word, which names the rank, or give up.
Progress mourn(Op &op);

//===----------------------------------------------------------------------===//
// Headers
//===----------------------------------------------------------------------===//

inline bool unevenExchange(const OpRequest &r) {
  return r.kind == Kind::AllToAll && uneven(r);
}
/// Bytes behind the header of a host.
uint64_t payloadOfHost(const Op &op, int host);
/// Compute where the headers of an operation lie.
void placeHeads(const Op &op);
/// The leader, when it has heard its host: begin with the own header.
void writeHead(const Op &op);
enum class Heard : uint8_t { NotYet, All, Failed };
/// The leader: as far as it goes.
Heard exchangeHeads(Op &op);
/// The others: compare what the leader has. False after breakComm.
bool checkHeads(Op &op);
const SpanHeader &headOf(const Op &op, int host);
/// What a remote member has sent with its host's header.
const unsigned char *remotePayload(const Op &op, int member);

//===----------------------------------------------------------------------===//
// Of the forms
//===----------------------------------------------------------------------===//

bool reduces(Kind kind);
/// Whether hosts may reduce their own members' inputs first.
bool dividesAmongHosts(const OpRequest &request);
/// Of the array that an operation is about; 0 for an uneven all_to_all.
uint64_t wholeBytes(const Op &op);
/// Direct: members take something of each other's results.
bool hasResults(Kind kind);
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
/// Between this member's operand and plain memory.
void copyOwn(const Op &op, bool input, uint64_t chunk, uint64_t at, char *plain,
             uint64_t bytes);

/// Fill op.form and op.inlined, the same at all members.
void chooseSpan(Op &op);
/// Copy the own input where others find it. True at the end.
bool copyIn(Op &op, uint64_t &left);
/// Send and receive what is needed of inputs, or of results.
void postInputs(Op &op);
void postResults(Op &op);
/// Reduce, or move. True at the end.
bool work(Op &op, uint64_t &left);
/// Copy the members' results to the own output. True at the end.
bool takeOut(Op &op, uint64_t &left);

/// By rounds: once for an operation, and for each of its segments.
void openRounds(Op &op);
void beginRounds(Op &op);
/// Chunks for which an area must have room.
uint64_t chunksByRounds(const Op &op);
bool copyInByRounds(Op &op, uint64_t &left);
bool collect(Op &op, uint64_t &left);
/// Done, Advanced (no quantum is left) or Blocked.
Progress exchangeRounds(Op &op, uint64_t &left);
bool divide(Op &op, uint64_t &left);
bool takeOutByRounds(Op &op, uint64_t &left);

} // namespace concord::rt::spans

#endif // CONCORD_RUNTIME_ENGINE_SPANPARTS_H

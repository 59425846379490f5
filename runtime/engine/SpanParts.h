//===- SpanParts.h - Inside of communicators that span hosts ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What Span.cpp (the state machine), SpanForms.cpp (which bytes go where) and
// SpanMessages.cpp (send and recv) share.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_SPANPARTS_H
#define CONCORD_RUNTIME_ENGINE_SPANPARTS_H

#include "algorithms/Direct.h"
#include "engine/Span.h"

namespace concord::rt::spans {

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

inline const concord_transport &transportOf(const Comm &comm) {
  return comm.context->hosts->transport();
}
inline char *resultArea(const Span &span) {
  return span.memory + span.area + kSlack;
}
inline char *incomingArea(const Span &span) {
  return span.memory + 2 * (span.area + kSlack);
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
/// The member has sent nonsense; false, for who returns that.
bool corrupt(Op &op, int member, const char *what);
/// What to do where a member has died or the transport has failed: wait for the
/// watchdog's word, which names the rank, or give up.
Progress mourn(Op &op);

//===----------------------------------------------------------------------===//
// Of the forms
//===----------------------------------------------------------------------===//

bool reduces(Kind kind);
/// Members take something of each other's results.
bool hasResults(Kind kind);
/// The same at all members: the form of an operation that is not inlined.
bool goesByHosts(const Op &op);
/// Copy the own input where others find it. True at the end.
bool copyIn(Op &op, uint64_t &left);
/// The sums of this host's inputs for the owners on other hosts whose delegate
/// this member is, in place: nobody else reads these parts of its area. True at
/// the end.
bool sumForOthers(Op &op, uint64_t &left);
/// Send and receive what is needed of inputs, or of results.
void postInputs(Op &op);
void postResults(Op &op);
/// Reduce, or move. True at the end.
bool work(Op &op, uint64_t &left);
/// Copy the members' results to the own output. True at the end.
bool takeOut(Op &op, uint64_t &left);

} // namespace concord::rt::spans

#endif // CONCORD_RUNTIME_ENGINE_SPANPARTS_H

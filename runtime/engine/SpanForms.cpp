//===- SpanForms.cpp - The choice of a form, and the direct one -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Direct: every member exchanges with every remote one. Which bytes one member
// needs of another is computed by both sides from what all know (inputPart,
// resultPart), so no message says where it belongs, and an empty part is no
// message.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "engine/SpanParts.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace concord;
using namespace concord::rt;
using namespace concord::rt::spans;

namespace {

//===----------------------------------------------------------------------===//
// Who needs what
//===----------------------------------------------------------------------===//

struct Part {
  uint64_t chunk = 0; ///< of the sender's input
  uint64_t begin = 0; ///< within the segment
  uint64_t bytes = 0;
};

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

} // namespace

bool concord::rt::spans::hasResults(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce ||
         kind == Kind::AllGather || kind == Kind::Gather;
}

bool concord::rt::spans::reduces(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce ||
         kind == Kind::ReduceScatter;
}

// Narrow floats are accumulated in f32 and rounded once, which a partial sum of
// their type is not.
bool concord::rt::spans::dividesAmongHosts(const OpRequest &r) {
  bool narrow = r.dtype == DType::F16 || r.dtype == DType::BF16;
  bool sums = r.reduction == Reduction::Sum || r.reduction == Reduction::Prod ||
              r.reduction == Reduction::Avg;
  return !reduces(r.kind) || !narrow || !sums;
}

uint64_t concord::rt::spans::wholeBytes(const Op &op) {
  const OpRequest &r = op.request;
  uint64_t size = uint64_t(op.comm->size), total = 0;
  if (!uneven(r))
    return chunked(r.kind, true) || chunked(r.kind, false) ? r.chunk * size
                                                           : r.chunk;
  for (uint64_t i = 0; i < size && r.kind != Kind::AllToAll; ++i)
    total += r.receive[i];
  return total;
}

void concord::rt::spans::chooseSpan(Op &op) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  const Context &context = *comm.context;
  const OpRequest &r = op.request;
  const uint64_t whole = wholeBytes(op);
  // Members of an uneven operation know different sizes of their inputs.
  uint64_t known = !uneven(r)              ? op.payload
                   : chunked(r.kind, true) ? whole
                                           : whole / uint64_t(comm.size);
  Form asked = context.scores.empty() || (uneven(r) && r.kind == Kind::AllToAll)
                   ? Form::Automatic
                   : chooseForm(context.scores, r.kind, 0, known);
  // How operands within a host are reached is no question here.
  if (asked != Form::Flat && asked != Form::Direct && !betweenHosts(asked))
    asked = Form::Automatic;
  bool rounds = formExists(Form::Pairwise, r.kind) && dividesAmongHosts(r);
  Form best = rounds
                  ? cheapestRounds(r.kind, span.numHosts(), whole, context.link)
                  : Form::Direct;
  op.inlined = false;
  if (!uneven(r) && op.payload <= kSpanInline &&
      (asked == Form::Flat || asked == Form::Automatic ||
       r.kind == Kind::Barrier)) {
    op.inlined = true;
    uint64_t total = 0;
    for (int host = 0; host < span.numHosts(); ++host)
      total += payloadOfHost(op, host);
    double more = rounds ? secondsOfRounds(r.kind, best, span.numHosts(), whole,
                                           context.link)
                         : 2 * context.link.latency;
    op.inlined =
        total <= kSpanRoom && (asked == Form::Flat || total <= kSpanInline ||
                               double(total) * context.link.byte <= more);
  }
  if (op.inlined)
    op.form = Form::Flat;
  else if (asked == Form::Direct || !rounds)
    op.form = Form::Direct;
  else if (betweenHosts(asked))
    op.form = asked;
  else
    op.form = best;
  // The same messages and the same order, and nothing is copied twice.
  if (op.form == Form::Pairwise && span.fullest == 1 && asked != op.form &&
      r.kind != Kind::Broadcast && r.kind != Kind::Reduce)
    op.form = Form::Direct;
  op.askedFor = op.form == asked;
}

std::string concord::rt::spanReason(const Comm &comm) {
  const Span &span = *comm.span;
  const LastForm &last = comm.last;
  const Link &link = comm.context->link;
  std::string text =
      "the members are on " + std::to_string(span.numHosts()) + " hosts, and ";
  if (last.asked != Form::Automatic)
    return text + "CONCORD_ALGORITHM says so";
  if (last.inlined)
    return text + "payloads of up to " + std::to_string(kSpanInline) +
           " B travel with the headers where that costs less than rounds of "
           "their own";
  if (!last.divides)
    return text +
           "sums of f16 and bf16 are rounded once, where all inputs meet";
  if (!formExists(Form::Pairwise, last.kind))
    return text + "every byte goes once, to the member that wants it";
  std::string costs;
  for (Form form : {Form::Pairwise, Form::Recursive, Form::Halving, Form::Tree,
                    Form::Ring}) {
    double seconds =
        secondsOfRounds(last.kind, form, span.numHosts(), last.whole, link);
    char cost[48];
    std::snprintf(cost, sizeof cost, " %.1f us", seconds * 1e6);
    if (seconds >= 0)
      costs += (costs.empty() ? "" : ", ") + std::string(formText(form)) + cost;
  }
  return text +
         (last.form == Form::Direct
              ? "with one member each it is the pairwise form"
              : "it costs least") +
         " by CONCORD_LINK: " + costs;
}

namespace {

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

} // namespace

void concord::rt::spans::copyOwn(const Op &op, bool input, uint64_t chunk,
                                 uint64_t at, char *plain, uint64_t bytes) {
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

//===----------------------------------------------------------------------===//
// The work
//===----------------------------------------------------------------------===//

bool concord::rt::spans::copyIn(Op &op, uint64_t &left) {
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

namespace {

void sendPart(Span &span, int member, char *memory, const Part &part,
              std::vector<concord_transport_request> &requests) {
  if (part.bytes)
    post(span, member, true, span.peerTags[size_t(member)], memory, part.bytes,
         requests[size_t(member)]);
}

/// Into this member's area, at the place of `owner`.
void receivePart(const Op &op, int member, int owner, const Part &part) {
  Span &span = *op.comm->span;
  if (part.bytes)
    post(span, member, false, span.tag,
         incomingArea(span) + incomingAt(op, owner), part.bytes,
         span.receives[size_t(member)]);
}

} // namespace

void concord::rt::spans::postInputs(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  for (int member : span.remote) {
    Part part = inputPart(op, comm.me, member);
    sendPart(span, member, span.memory + inputAt(op, part), part, span.sends);
    receivePart(op, member, member, inputPart(op, member, comm.me));
  }
}

void concord::rt::spans::postResults(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  for (int member : span.remote) {
    sendPart(span, member, resultArea(span), resultPart(op, comm.me, member),
             span.resultSends);
    receivePart(op, member, member, resultPart(op, member, comm.me));
  }
}

namespace {

/// Where what has come from a remote member lies on this host.
char *arrivedFrom(const Op &op, int member) {
  return incomingArea(*op.comm->span) + incomingAt(op, member);
}

/// Where a member's input part for this one lies now.
char *inputFrom(const Op &op, int member, const Part &part) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  if (member == comm.me)
    return span.memory + inputAt(op, part);
  if (char *theirs = span.inputs[size_t(member)])
    return theirs + inputAt(op, part);
  return arrivedFrom(op, member);
}

} // namespace

bool concord::rt::spans::work(Op &op, uint64_t &left) {
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

bool concord::rt::spans::takeOut(Op &op, uint64_t &left) {
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
                                   : arrivedFrom(op, from);
    if (!piece(op, left, part.bytes, [&](uint64_t at, uint64_t n) {
          copyOwn(op, false, part.chunk, part.begin + at, source + at, n);
        }))
      return false;
  }
  op.peerIndex = 0;
  return true;
}

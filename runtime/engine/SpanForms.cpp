//===- SpanForms.cpp - Which bytes go where between hosts -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which bytes one member needs of another is computed by both sides from what
// all know (inputPart, resultPart), so no message says where it belongs, and an
// empty part is no message.
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

constexpr uint64_t roundUp(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

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

} // namespace

bool concord::rt::spans::hasResults(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce ||
         kind == Kind::AllGather || kind == Kind::Gather;
}

bool concord::rt::spans::reduces(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce ||
         kind == Kind::ReduceScatter;
}

namespace {

/// Whether partial sums of the hosts are the same thing. Narrow floats are
/// accumulated in f32 and rounded once, which a partial sum of their type is
/// not.
bool divides(DType dtype, Reduction reduction) {
  bool narrow = dtype == DType::F16 || dtype == DType::BF16;
  return !narrow ||
         (reduction != Reduction::Sum && reduction != Reduction::Prod &&
          reduction != Reduction::Avg);
}

} // namespace

bool concord::rt::spans::goesByHosts(const Op &op) {
  const OpRequest &r = op.request;
  if (!op.comm->span->several || op.form == Form::Direct)
    return false;
  return reduces(r.kind)
             ? divides(r.dtype, r.reduction)
             : r.kind == Kind::AllGather || r.kind == Kind::Broadcast;
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

/// Whether a host wants the result of `from`, and what its delegate takes.
Part resultForHost(const Op &op, int from, int host) {
  const std::vector<int> &list = op.comm->span->onHost[size_t(host)];
  const OpRequest &r = op.request;
  bool rooted = r.kind == Kind::Reduce || r.kind == Kind::Gather;
  if (rooted && op.comm->span->hostOf[size_t(r.root)] != host)
    return {};
  return resultPart(op, from, rooted ? r.root : list.front());
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
// The work
//===----------------------------------------------------------------------===//

} // namespace

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

bool concord::rt::spans::sumForOthers(Op &op, uint64_t &left) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  int host = span.hostOf[size_t(comm.me)];
  const std::vector<int> &here = span.onHost[size_t(host)];
  size_t element = dtypeSize(op.request.dtype);
  for (; op.peerIndex < comm.size; ++op.peerIndex) {
    int owner = op.peerIndex;
    if (here.size() == 1 || span.hostOf[size_t(owner)] == host ||
        span.delegate(host, owner) != comm.me)
      continue;
    Part part = inputPart(op, comm.me, owner);
    uint64_t at = inputAt(op, part);
    if (!piece(op, left, part.bytes, [&](uint64_t offset, uint64_t n) {
          const void *sources[kMaxRanks];
          int count = 0;
          for (int member : here)
            sources[count++] =
                (member == comm.me ? span.memory
                                   : span.inputs[size_t(member)]) +
                at + offset;
          span.partial(sources, count, span.memory + at + offset, n / element);
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

/// Each part once per host: sums from delegate to owner, and a broadcast from
/// the root to its delegates.
void postInputsByHosts(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  int host = span.hostOf[size_t(comm.me)];
  if (r.kind == Kind::Broadcast) {
    int rootHost = span.hostOf[size_t(r.root)];
    Part whole = inputPart(op, r.root, comm.me);
    for (int h = 0; comm.me == r.root && h < span.numHosts(); ++h)
      if (h != host)
        sendPart(span, span.delegate(h, r.root),
                 span.memory + inputAt(op, whole), whole, span.sends);
    if (rootHost != host && span.delegate(host, r.root) == comm.me)
      receivePart(op, r.root, r.root, whole);
    return;
  }
  if (!reduces(r.kind))
    return;
  for (int owner : span.remote)
    if (span.delegate(host, owner) == comm.me) {
      Part part = inputPart(op, comm.me, owner);
      sendPart(span, owner, span.memory + inputAt(op, part), part, span.sends);
    }
  for (int h = 0; h < span.numHosts(); ++h)
    if (h != host) {
      int from = span.delegate(h, comm.me);
      receivePart(op, from, from, inputPart(op, from, comm.me));
    }
}

void postResultsByHosts(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  int host = span.hostOf[size_t(comm.me)];
  for (int h = 0; h < span.numHosts(); ++h)
    if (h != host)
      sendPart(span, span.delegate(h, comm.me), resultArea(span),
               resultForHost(op, comm.me, h), span.resultSends);
  for (int owner : span.remote)
    if (span.delegate(host, owner) == comm.me)
      receivePart(op, owner, owner, resultForHost(op, owner, host));
}

} // namespace

void concord::rt::spans::postInputs(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  if (span.byHosts)
    return postInputsByHosts(op);
  for (int member : span.remote) {
    Part part = inputPart(op, comm.me, member);
    sendPart(span, member, span.memory + inputAt(op, part), part, span.sends);
    receivePart(op, member, member, inputPart(op, member, comm.me));
  }
}

void concord::rt::spans::postResults(Op &op) {
  Comm &comm = *op.comm;
  Span &span = *comm.span;
  if (span.byHosts)
    return postResultsByHosts(op);
  for (int member : span.remote) {
    sendPart(span, member, resultArea(span), resultPart(op, comm.me, member),
             span.resultSends);
    receivePart(op, member, member, resultPart(op, member, comm.me));
  }
}

namespace {

/// Bytes of a block of neutral elements of a sum.
constexpr uint64_t kNeutral = 4096;

/// x + (-0.0) is x for every x, which x + 0.0 is not.
const char *neutralOf(DType dtype) {
  struct Blocks {
    alignas(64) float f32[kNeutral / 4];
    alignas(64) double f64[kNeutral / 8];
    alignas(64) char zeros[kNeutral];
  };
  static const Blocks blocks = [] {
    Blocks made{};
    std::fill(std::begin(made.f32), std::end(made.f32), -0.0f);
    std::fill(std::begin(made.f64), std::end(made.f64), -0.0);
    return made;
  }();
  return dtype == DType::F32   ? reinterpret_cast<const char *>(blocks.f32)
         : dtype == DType::F64 ? reinterpret_cast<const char *>(blocks.f64)
                               : blocks.zeros;
}

/// Where what has come from a remote member lies on this host.
char *arrivedFrom(const Op &op, int member) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  char *area = incomingArea(span);
  if (span.byHosts)
    if (int who = span.delegate(span.hostOf[size_t(comm.me)], member);
        who != comm.me)
      area = span.arrivals[size_t(who)];
  return area + incomingAt(op, member);
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

/// What the members of this host, and the other hosts, make of a share: first
/// the sum of those here, then that of the hosts.
void reduceByHosts(const Op &op, const Part &part, uint64_t at, uint64_t n) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  size_t element = dtypeSize(op.request.dtype);
  const void *sources[kMaxRanks];
  int host = span.hostOf[size_t(comm.me)], count = 0;
  char *target = resultArea(span) + at;
  for (int member : span.onHost[size_t(host)])
    sources[count++] = inputFrom(op, member, part) + at;
  span.partial(sources, count, target, n / element);
  for (int h = 0; h < span.numHosts(); ++h)
    sources[h] = h == host ? target
                           : incomingArea(span) +
                                 incomingAt(op, span.delegate(h, comm.me)) + at;
  count = span.numHosts();
  if (op.request.reduction != Reduction::Avg)
    return op.reduce(sources, count, target, n / element);
  // The average divides by the number of its sources: the members that are in
  // the sums already count as the neutral element, block by block.
  const char *neutral = neutralOf(op.request.dtype);
  for (uint64_t done = 0; done < n; done += kNeutral) {
    uint64_t length = std::min(n - done, kNeutral);
    const void *blocks[kMaxRanks];
    for (int i = 0; i < comm.size; ++i)
      blocks[i] =
          i < count ? static_cast<const char *>(sources[i]) + done : neutral;
    op.reduce(blocks, comm.size, target + done, length / element);
  }
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
    if (span.byHosts) {
      Part part = inputPart(op, comm.me, comm.me);
      return piece(op, left, part.bytes, [&](uint64_t at, uint64_t n) {
        reduceByHosts(op, part, at, n);
        if (r.kind == Kind::ReduceScatter)
          copyOwn(op, false, 0, at, resultArea(span) + at, n);
      });
    }
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

//===- SpanRounds.cpp - Collectives between hosts by rounds ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A segment of the array is divided into lanes, as many as every host has
// members, but none below 64 KiB. The member at place j of a host is the agent
// of lane j there. It collects what its host has for the lane in its result
// area, exchanges blocks of it with the lane's agents on the other hosts by the
// operation's schedule (algorithms/Rounds.h), one block per host, and from
// there the members of its host take what they want.
//
// Of all_reduce, reduce and broadcast a lane is a slice of the array, and its
// blocks are equal shares. Of reduce_scatter and all_gather a lane has the
// chunks of the members at the places j, j + lanes, ... of every host, and a
// block has those of one host. All sizes are computed by everybody from what
// all know, and an empty block is no message.
//
// What arrives to be reduced goes to the arrivals' area, all else to its place.
// A round waits for its own sends, so that none reads what a later one writes.
//
//===----------------------------------------------------------------------===//

#include "diagnosis/Error.h"
#include "engine/SpanParts.h"

#include <cstring>
#include <iterator>

using namespace concord;
using namespace concord::rt;
using namespace concord::rt::spans;

namespace {

/// Below this a lane more costs a message more than it saves copying.
constexpr uint64_t kLaneLeast = uint64_t(64) << 10;

/// Lanes are slices of one array, rather than chunks of members.
bool sliced(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::Reduce ||
         kind == Kind::Broadcast;
}

/// Bytes, in this segment, of the chunk of a member.
uint64_t chunkOf(const Op &op, int member) {
  const OpRequest &r = op.request;
  return clip(op, uneven(r) ? r.receive[member] : r.chunk);
}

struct Range {
  uint64_t begin = 0, end = 0;
};

/// What of a sliced array is a lane's.
Range sliceOf(const Op &op, int lane) {
  uint64_t whole = clip(op, op.request.chunk);
  int lanes = op.comm->span->lanes;
  return {shareBegin(whole, lane, lanes), shareBegin(whole, lane + 1, lanes)};
}

/// Where the lane's data lies on this host.
char *laneMemory(const Span &span, int lane) {
  int agent = span.onHost[size_t(span.host)][size_t(lane)];
  return agent == span.comm.me ? resultArea(span) : span.results[size_t(agent)];
}

bool wants(const Op &op) {
  return op.request.kind != Kind::Reduce || op.comm->me == op.request.root;
}

/// Reduce this host's inputs at `from` of their areas to the lane.
bool reduceHere(Op &op, uint64_t &left, uint64_t from, char *to,
                uint64_t bytes) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  size_t element = dtypeSize(op.request.dtype);
  return piece(op, left, bytes, [&](uint64_t at, uint64_t n) {
    const void *sources[kMaxRanks];
    int count = 0;
    for (int member : span.onHost[size_t(span.host)])
      sources[count++] =
          (member == comm.me ? span.memory : span.inputs[size_t(member)]) +
          from + at;
    span.partial(sources, count, to + at, n / element);
  });
}

} // namespace

void concord::rt::spans::openRounds(Op &op) {
  const Comm &comm = *op.comm;
  Span &span = *comm.span;
  const OpRequest &r = op.request;
  if (reduces(r.kind))
    span.partial = comm.context->arithmetic->reduce(
        r.dtype, r.reduction == Reduction::Avg ? Reduction::Sum : r.reduction);
  uint64_t whole = 0;
  for (int i = 0; i < comm.size; ++i)
    whole += sliced(r.kind) ? 0 : uneven(r) ? r.receive[i] : r.chunk;
  if (sliced(r.kind))
    whole = r.chunk;
  span.lanes =
      int(std::clamp<uint64_t>(whole / kLaneLeast, 1, uint64_t(span.emptiest)));
  int root = r.root < 0 ? 0 : span.hostOf[size_t(r.root)];
  span.rounds.clear();
  if (span.agent())
    makeRounds(r.kind, op.form, span.numHosts(), span.host, root, span.rounds);
}

uint64_t concord::rt::spans::chunksByRounds(const Op &op) {
  const Span &span = *op.comm->span;
  if (sliced(op.request.kind))
    return 1;
  // The pairwise form receives its host's block from every other one.
  return std::max<uint64_t>(uint64_t(op.comm->size),
                            uint64_t(span.numHosts() - 1) *
                                uint64_t(span.fullest));
}

void concord::rt::spans::beginRounds(Op &op) {
  Span &span = *op.comm->span;
  int hosts = span.numHosts();
  span.nextTransfer = span.roundEnd = 0;
  span.posted = false;
  if (sliced(op.request.kind)) {
    Range slice = sliceOf(op, span.lane());
    for (int h = 0; h <= hosts; ++h)
      span.blockAt[size_t(h)] =
          slice.begin + shareBegin(slice.end - slice.begin, h, hosts);
    return;
  }
  for (int lane = 0; lane < span.lanes; ++lane) {
    uint64_t at = 0;
    for (int h = 0; h < hosts; ++h) {
      const std::vector<int> &list = span.onHost[size_t(h)];
      if (lane == span.lane())
        span.blockAt[size_t(h)] = at;
      for (size_t k = size_t(lane); k < list.size(); k += size_t(span.lanes)) {
        span.chunkAt[size_t(list[k])] = at;
        at += roundUp(chunkOf(op, list[k]));
      }
    }
    if (lane == span.lane())
      span.blockAt[size_t(hosts)] = at;
  }
}

bool concord::rt::spans::copyInByRounds(Op &op, uint64_t &left) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  // What no other member of this host reads, an agent takes from where it is.
  if (span.agent() &&
      (op.request.kind == Kind::AllGather || span.local.empty()))
    return true;
  if (op.request.kind != Kind::AllGather)
    return copyIn(op, left);
  return piece(op, left, chunkOf(op, comm.me), [&](uint64_t at, uint64_t n) {
    copyOwn(op, true, 0, at, span.memory + at, n);
  });
}

bool concord::rt::spans::collect(Op &op, uint64_t &left) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  const OpRequest &r = op.request;
  char *lane = resultArea(span);
  Range slice = sliceOf(op, span.lane());
  auto inLane = [&](int member) {
    return span.placeOnHost[size_t(member)] % span.lanes == span.lane();
  };
  const bool alone = span.local.empty();
  auto takeOwn = [&](int chunk, uint64_t from, char *to, uint64_t bytes) {
    return piece(op, left, bytes, [&](uint64_t at, uint64_t n) {
      copyOwn(op, true, uint64_t(chunk), from + at, to + at, n);
    });
  };
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
    if (alone)
      return takeOwn(0, slice.begin, lane + slice.begin,
                     slice.end - slice.begin);
    return reduceHere(op, left, slice.begin, lane + slice.begin,
                      slice.end - slice.begin);
  case Kind::Broadcast: {
    if (span.hostOf[size_t(r.root)] != span.host)
      return true;
    if (alone)
      return takeOwn(0, slice.begin, lane + slice.begin,
                     slice.end - slice.begin);
    const char *from =
        comm.me == r.root ? span.memory : span.inputs[size_t(r.root)];
    return piece(
        op, left, slice.end - slice.begin, [&](uint64_t at, uint64_t n) {
          std::memcpy(lane + slice.begin + at, from + slice.begin + at, n);
        });
  }
  case Kind::ReduceScatter:
    for (; op.peerIndex < comm.size; ++op.peerIndex) {
      int member = op.peerIndex;
      if (!inLane(member))
        continue;
      char *to = lane + span.chunkAt[size_t(member)];
      if (alone ? !takeOwn(member, 0, to, chunkOf(op, member))
                : !reduceHere(op, left,
                              uint64_t(member) * roundUp(op.segmentBytes), to,
                              chunkOf(op, member)))
        return false;
    }
    op.peerIndex = 0;
    return true;
  default: // all_gather
    for (; op.peerIndex < comm.size; ++op.peerIndex) {
      int member = op.peerIndex;
      if (span.hostOf[size_t(member)] != span.host || !inLane(member))
        continue;
      char *to = lane + span.chunkAt[size_t(member)];
      if (!piece(op, left, chunkOf(op, member), [&](uint64_t at, uint64_t n) {
            if (member == comm.me)
              copyOwn(op, true, 0, at, to + at, n);
            else
              std::memcpy(to + at, span.inputs[size_t(member)] + at, n);
          }))
        return false;
    }
    op.peerIndex = 0;
    return true;
  }
}

Progress concord::rt::spans::exchangeRounds(Op &op, uint64_t &left) {
  Span &span = *op.comm->span;
  auto partner = [&](const Transfer &transfer) {
    return span.onHost[transfer.peer][size_t(span.lane())];
  };
  auto rangeOf = [&](const Transfer &transfer) {
    return Range{span.blockAt[transfer.first], span.blockAt[transfer.last]};
  };
  char *lane = resultArea(span);
  while (span.nextTransfer < span.rounds.size()) {
    const Transfer *begin = &span.rounds[span.nextTransfer];
    if (!span.posted) {
      span.roundEnd = span.nextTransfer;
      uint64_t arrival = 0;
      for (; span.roundEnd < span.rounds.size() &&
             span.rounds[span.roundEnd].round == begin->round;
           ++span.roundEnd) {
        const Transfer &transfer = span.rounds[span.roundEnd];
        Range range = rangeOf(transfer);
        uint64_t bytes = range.end - range.begin;
        int member = partner(transfer);
        char *memory = lane + range.begin;
        if (transfer.reduces) {
          memory = incomingArea(span) + arrival;
          arrival += roundUp(bytes);
        }
        if (bytes)
          post(span, member, transfer.sends,
               transfer.sends ? span.peerTags[size_t(member)] : span.tag,
               memory, bytes,
               (transfer.sends ? span.sends : span.receives)[size_t(member)]);
      }
      span.posted = true;
    }
    bool all = allSettled(span, span.receives);
    if (all || span.thorough)
      all &= allSettled(span, span.sends);
    if (!all)
      return Progress::Blocked;
    // All that a round reduces is of the same blocks.
    Range range;
    int count = 0, before = 0;
    for (size_t i = span.nextTransfer; i < span.roundEnd; ++i)
      if (const Transfer &transfer = span.rounds[i]; transfer.reduces) {
        range = rangeOf(transfer);
        before += transfer.peer < span.host;
        ++count;
      }
    size_t element = dtypeSize(op.request.dtype);
    if (count &&
        !piece(op, left, range.end - range.begin, [&](uint64_t at, uint64_t n) {
          // By the order of the hosts they come from; so are transfers
          // of a round.
          const void *sources[kMaxRanks];
          char *own = lane + range.begin + at;
          uint64_t each = roundUp(range.end - range.begin);
          for (int i = 0; i < count; ++i)
            sources[i < before ? i : i + 1] =
                incomingArea(span) + uint64_t(i) * each + at;
          sources[before] = own;
          span.partial(sources, count + 1, own, n / element);
        }))
      return Progress::Advanced;
    span.nextTransfer = span.roundEnd;
    span.posted = false;
  }
  return Progress::Done;
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

} // namespace

bool concord::rt::spans::divide(Op &op, uint64_t &left) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  const OpRequest &r = op.request;
  if (!reduces(r.kind) || r.reduction != Reduction::Avg)
    return true;
  Range range{span.blockAt.front(), span.blockAt[size_t(span.numHosts())]};
  if (r.kind == Kind::ReduceScatter)
    range = {span.blockAt[size_t(span.host)],
             span.blockAt[size_t(span.host) + 1]};
  else if (r.kind == Kind::Reduce && span.hostOf[size_t(r.root)] != span.host)
    return true;
  // The average divides by the number of its sources; the members that are in
  // the sum already count as the neutral element.
  const char *neutral = neutralOf(r.dtype);
  size_t element = dtypeSize(r.dtype);
  char *lane = resultArea(span) + range.begin;
  return piece(op, left, range.end - range.begin, [&](uint64_t at, uint64_t n) {
    const void *sources[kMaxRanks];
    std::fill(sources, sources + comm.size, neutral);
    for (uint64_t done = 0; done < n; done += kNeutral) {
      sources[0] = lane + at + done;
      op.reduce(sources, comm.size, lane + at + done,
                std::min(n - done, kNeutral) / element);
    }
  });
}

bool concord::rt::spans::takeOutByRounds(Op &op, uint64_t &left) {
  const Comm &comm = *op.comm;
  const Span &span = *comm.span;
  const OpRequest &r = op.request;
  if (!wants(op))
    return true;
  auto chunkIn = [&](int member) {
    int lane = span.placeOnHost[size_t(member)] % span.lanes;
    return laneMemory(span, lane) + span.chunkAt[size_t(member)];
  };
  if (sliced(r.kind)) {
    for (; op.peerIndex < span.lanes; ++op.peerIndex) {
      Range slice = sliceOf(op, op.peerIndex);
      const char *from = laneMemory(span, op.peerIndex);
      if (!piece(op, left, slice.end - slice.begin,
                 [&](uint64_t at, uint64_t n) {
                   copyOwn(op, false, 0, slice.begin + at,
                           const_cast<char *>(from) + slice.begin + at, n);
                 }))
        return false;
    }
    op.peerIndex = 0;
    return true;
  }
  if (r.kind == Kind::ReduceScatter) {
    char *from = chunkIn(comm.me);
    return piece(op, left, chunkOf(op, comm.me), [&](uint64_t at, uint64_t n) {
      copyOwn(op, false, 0, at, from + at, n);
    });
  }
  for (; op.peerIndex < comm.size; ++op.peerIndex) {
    int member = op.peerIndex;
    char *from = chunkIn(member);
    if (!piece(op, left, chunkOf(op, member), [&](uint64_t at, uint64_t n) {
          copyOwn(op, false, uint64_t(member), at, from + at, n);
        }))
      return false;
  }
  op.peerIndex = 0;
  return true;
}

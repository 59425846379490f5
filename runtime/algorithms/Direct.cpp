//===- Direct.cpp - Who moves which bytes ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives that read and write the members' operands in place. all_reduce
// and reduce divide the array among the members; all_gather and gather push;
// reduce_scatter, all_to_all, broadcast, scatter and permute pull. A broadcast
// that goes past the caches is divided, too.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Direct.h"
#include "algorithms/Copy.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::rt;

namespace {

/// Bytes exchanged at a time: stays in the L1 cache.
constexpr uint64_t kSwapBlock = 2048;

/// Address of a linear byte; `run` is cut to what is contiguous there.
inline char *at(const View &view, uint64_t offset, uint64_t linear,
                uint64_t &run) {
  linear += view.start;
  if (view.outer <= 1)
    return view.base + offset + linear;
  uint64_t row = linear / view.inner, column = linear % view.inner;
  run = std::min(run, view.inner - column);
  return view.base + offset + row * view.stride + column;
}

/// Displacement of chunk c in this member's own packed operand.
uint64_t ownDisplacement(const Op &op, const uint64_t *counts, int c) {
  uint64_t offset = 0;
  for (int i = 0; i < c; ++i)
    offset += counts[i];
  return offset;
}

uint64_t clip(const Op &op, uint64_t length) {
  return length <= op.segment ? 0
                              : std::min(length - op.segment, op.segmentBytes);
}

/// Offset of chunk c in a chunked view.
uint64_t chunkOffset(const Op &op, const View &view, int c) {
  if (view.staged || !uneven(op.request))
    return c * view.pitch;
  return ownDisplacement(op, op.request.receive, c);
}

/// Reduce linear bytes [from, from + bytes) of the members' inputs at chunk
/// `chunk` into the given outputs.
void reduceTo(const Op &op, int chunk, View *outputs, int first, int last,
              uint64_t from, uint64_t bytes) {
  const Comm &comm = *op.comm;
  size_t element = dtypeSize(op.request.dtype);
  const void *sources[kMaxRanks];
  char *targets[kMaxRanks];
  bool inChunked = chunked(op.request.kind, true);
  uint64_t offsets[kMaxRanks];
  for (int r = 0; r < comm.size; ++r)
    offsets[r] = inChunked ? chunkOffset(op, comm.in[r], chunk) : 0;
  while (bytes) {
    uint64_t run = bytes;
    for (int r = 0; r < comm.size; ++r)
      at(comm.in[r], offsets[r], from, run);
    for (int r = first; r < last; ++r)
      targets[r] = at(outputs[r], 0, from, run);
    for (int r = 0; r < comm.size; ++r)
      sources[r] = at(comm.in[r], offsets[r], from, run);
    if (last - first == 1 && !op.streamed)
      op.reduce(sources, comm.size, targets[first], run / element);
    else
      (op.streamed ? op.reduceStreamed : op.reduceStored)(
          sources, comm.size, reinterpret_cast<void *const *>(targets + first),
          last - first, run / element);
    from += run;
    bytes -= run;
  }
}

/// Copy a piece of this member's or the root's input to the outputs
/// [first, last) but for `without`, reading it once.
void spreadTo(const Op &op, const View &source, uint64_t sourceOffset,
              const View *outputs, const uint64_t *targetOffsets, int first,
              int last, uint64_t from, uint64_t bytes, int without = -1) {
  void *targets[kMaxRanks];
  while (bytes) {
    uint64_t run = bytes;
    const char *begin = at(source, sourceOffset, from, run);
    // A run may only shrink, so addresses stay valid.
    for (int r = first; r < last; ++r)
      at(outputs[r], targetOffsets[r], from, run);
    int count = 0;
    for (int r = first; r < last; ++r) {
      char *target = at(outputs[r], targetOffsets[r], from, run);
      if (target != begin && r != without)
        targets[count++] = target;
    }
    if (count)
      (op.streamed
           ? op.comm->context->arithmetic->streamSpread
           : op.comm->context->arithmetic->spread)(begin, targets, count, run);
    from += run;
    bytes -= run;
  }
}

/// Exchange `bytes` linear bytes, beginning with `from`, of two chunks.
void swapLinear(const View &a, uint64_t aOffset, const View &b,
                uint64_t bOffset, uint64_t from, uint64_t bytes) {
  char block[kSwapBlock];
  while (bytes) {
    uint64_t run = std::min<uint64_t>(bytes, sizeof block);
    char *one = at(a, aOffset, from, run);
    char *other = at(b, bOffset, from, run);
    std::memcpy(block, one, run);
    std::memcpy(one, other, run);
    std::memcpy(other, block, run);
    from += run;
    bytes -= run;
  }
}

} // namespace

uint64_t concord::rt::chunkBytes(const Op &op, bool input, int c) {
  const OpRequest &r = op.request;
  if (!uneven(r))
    return r.chunk;
  if (r.kind == Kind::AllToAll)
    return input ? r.send[c] : r.receive[c];
  return chunked(r.kind, input) ? r.receive[c] : r.receive[op.comm->me];
}

void concord::rt::copyLinear(const View &to, uint64_t toOffset,
                             const View &from, uint64_t fromOffset,
                             uint64_t bytes, SpreadFunction spread) {
  uint64_t linear = 0;
  while (linear < bytes) {
    uint64_t run = bytes - linear;
    char *target = at(to, toOffset, linear, run);
    // A run may only shrink, so the target's address stays valid.
    const char *source = at(from, fromOffset, linear, run);
    if (target != source) {
      if (spread)
        spread(source, reinterpret_cast<void *const *>(&target), 1, run);
      else
        std::memcpy(target, source, run);
    }
    linear += run;
  }
}

static View ownView(const concord_buffer &buffer) {
  View view;
  view.base = static_cast<char *>(buffer.base);
  view.outer = buffer.outer;
  view.inner = view.pitch = buffer.inner_bytes;
  view.stride = buffer.stride_bytes;
  return view;
}

/// Bytes of one's own that are moved before peers are heard of: not so many
/// that one who is ready waits for them.
static constexpr uint64_t kOwnMost = uint64_t(32) << 10;

/// Ask for what will be read soon, if it is in one piece.
static void fetch(const View &view, uint64_t offset, uint64_t bytes) {
  if (view.outer > 1)
    return;
  for (uint64_t i = 0; i < bytes; i += 64)
    __builtin_prefetch(view.base + offset + i);
}

static View payloadView(const unsigned char *payload, uint64_t chunk) {
  View view;
  view.base = reinterpret_cast<char *>(const_cast<unsigned char *>(payload));
  view.inner = view.pitch = chunk;
  return view;
}

/// True when this member's chunk of its own input stays where it is: no peer
/// needs it.
static bool keepsOwnChunk(const OpRequest &r) {
  return chunked(r.kind, true) && r.in.outer == 1;
}

bool concord::rt::allExchange(Kind kind) {
  switch (kind) {
  case Kind::AllReduce:
  case Kind::ReduceScatter:
  case Kind::AllGather:
  case Kind::AllToAll:
    return true;
  default:
    return false;
  }
}

/// Between hosts who reads is known to none of these.
static Packing &packingOf(const Op &op) {
  return op.comm->packing[allExchange(op.request.kind) && !op.comm->span];
}

bool concord::rt::packsPast(const Op &op) {
  return op.payload >= kPackPast && packingOf(op).past(op.payload);
}

void concord::rt::packInline(Op &op, unsigned char *payload) {
  const OpRequest &r = op.request;
  op.timed = nullptr;
  if (r.chunk == 0 || !uses(op, op.comm->me, true))
    return;
  if (r.in.outer == 1) {
    uint64_t bytes = r.chunk * (chunked(r.kind, true) ? op.comm->size : 1);
    const char *from = static_cast<const char *>(r.in.base);
    bool timed = false;
    Packing &packing = packingOf(op);
    const bool past =
        op.payload >= kPackPast && packing.next(op.payload, timed);
    const int64_t began = timed ? nowNanoseconds() : 0;
    auto pack = [&](uint64_t begin, uint64_t end) {
      void *target = payload + begin;
      const Arithmetic &arithmetic = *op.comm->context->arithmetic;
      if (end - begin < 1024)
        std::memcpy(target, from + begin, end - begin);
      else
        (past ? arithmetic.streamSpread
              : arithmetic.spread)(from + begin, &target, 1, end - begin);
    };
    if (keepsOwnChunk(r)) {
      uint64_t own = r.chunk * uint64_t(op.comm->me);
      pack(0, own);
      pack(own + r.chunk, bytes);
    } else {
      pack(0, bytes);
    }
    if (past)
      streamFence();
    if (timed) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      op.spent = nowNanoseconds() - began;
      if (packing.countsReading()) {
        op.timed = &packing;
        op.streamed = past;
      } else {
        packing.note(past, op.spent, op.payload);
      }
    }
    return;
  }
  View from = ownView(r.in), to = payloadView(payload, r.chunk);
  int chunks = chunked(r.kind, true) ? op.comm->size : 1;
  for (int c = 0; c < chunks; ++c)
    copyLinear(to, c * r.chunk, from, c * from.pitch, r.chunk);
}

/// `payload(i)` is what member i has packed.
template <typename Payload>
static void finishWith(const Op &op, Payload payload) {
  const OpRequest &r = op.request;
  const Comm &comm = *op.comm;
  if (r.chunk == 0 || !uses(op, comm.me, false))
    return;
  View out = ownView(r.out);
  auto take = [&](int member, int chunk, int toChunk) {
    View from = member == comm.me ? ownView(r.in)
                                  : payloadView(payload(member), r.chunk);
    if (out.outer <= 1 && from.outer <= 1) {
      char *target = out.base + toChunk * out.pitch;
      const char *source = from.base + chunk * from.pitch;
      if (target != source)
        std::memcpy(target, source, r.chunk);
      return;
    }
    copyLinear(out, toChunk * out.pitch, from, chunk * from.pitch, r.chunk);
  };
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
  case Kind::ReduceScatter: {
    uint64_t offset = r.kind == Kind::ReduceScatter ? comm.me * r.chunk : 0;
    const void *sources[kMaxRanks];
    for (int i = 0; i < comm.size; ++i)
      sources[i] = i == comm.me && keepsOwnChunk(r)
                       ? static_cast<const unsigned char *>(r.in.base) + offset
                       : payload(i) + offset;
    size_t count = elementsIn(r.dtype, r.chunk);
    if (r.out.outer == 1) {
      op.reduce(sources, comm.size, r.out.base, count);
      return;
    }
    alignas(64) unsigned char result[kSlotPayload];
    op.reduce(sources, comm.size, result, count);
    copyLinear(out, 0, payloadView(result, r.chunk), 0, r.chunk);
    return;
  }
  case Kind::AllGather:
  case Kind::Gather:
    for (int i = 0; i < comm.size; ++i)
      take(i, 0, i);
    return;
  case Kind::AllToAll:
    for (int i = 0; i < comm.size; ++i)
      take(i, comm.me, i);
    return;
  case Kind::Broadcast:
  case Kind::RoundDecision:
    if (comm.me != r.root || r.in.base != r.out.base)
      take(r.root, 0, 0);
    return;
  case Kind::Scatter:
    take(r.root, comm.me, 0);
    return;
  case Kind::Permute: {
    for (uint32_t i = 0; i < r.numPairs; ++i)
      if (r.pairs[i][1] == comm.me) {
        take(r.pairs[i][0], 0, 0);
        return;
      }
    for (uint64_t row = 0; row < r.out.outer; ++row)
      std::memset(out.base + row * out.stride, 0, out.inner);
    return;
  }
  default:
    return;
  }
}

void concord::rt::finishInline(Op &op, uint64_t begin) {
  const Comm &comm = *op.comm;
  const int64_t began = op.timed ? nowNanoseconds() : 0;
  finishWith(op, [&](int member) -> const unsigned char * {
    return comm.block.members[member].slot(op.sequence).payload + begin;
  });
  if (op.timed)
    op.timed->note(op.streamed, op.spent + nowNanoseconds() - began,
                   op.payload);
}

void concord::rt::finishFrom(const Op &op,
                             const unsigned char *const *payloads) {
  finishWith(op, [&](int member) { return payloads[member]; });
}

void concord::rt::workOwn(Op &op) {
  const OpRequest &r = op.request;
  Comm &comm = *op.comm;
  if (uneven(r) || r.chunk > kOwnMost || comm.size == 1)
    return;
  View in = ownView(r.in), out = ownView(r.out);
  uint64_t me = uint64_t(comm.me);
  switch (r.kind) {
  case Kind::AllToAll:
    if (r.in.base == r.out.base)
      return;
    copyLinear(out, me * out.pitch, in, me * in.pitch, r.chunk,
               op.cold ? comm.context->arithmetic->streamSpread
                       : comm.context->arithmetic->spread);
    op.ownDone = true;
    return;
  case Kind::AllGather:
    copyLinear(out, me * out.pitch, in, 0, r.chunk,
               op.cold ? comm.context->arithmetic->streamSpread
                       : comm.context->arithmetic->spread);
    op.ownDone = true;
    return;
  case Kind::ReduceScatter:
    fetch(in, me * in.pitch, r.chunk);
    return;
  case Kind::AllReduce: {
    // Two members need it whole where each computes its own output.
    bool whole = comm.size == 2 && r.chunk <= kOwnResult;
    uint64_t begin = whole ? 0 : shareBegin(r.chunk, comm.me, comm.size);
    uint64_t end =
        whole ? r.chunk : shareBegin(r.chunk, comm.me + 1, comm.size);
    fetch(in, begin, end - begin);
    return;
  }
  default:
    return;
  }
}

void concord::rt::openLocal(Op &op) {
  Comm &comm = *op.comm;
  comm.in[0] = ownView(op.request.in);
  comm.out[0] = ownView(op.request.out);
  comm.peerDisplacement[0] = 0;
  op.anyStaged = false;
  op.segment = 0;
  op.segmentBytes = op.part =
      uneven(op.request) ? op.request.receive[0] : op.request.chunk;
}

void concord::rt::beginSegment(Op &op) {
  op.position = 0;
  op.peerIndex = 0;
  for (int r = 0; r < op.comm->size; ++r)
    for (View *view : {&op.comm->in[r], &op.comm->out[r]})
      view->start = view->staged ? 0 : op.segment;
}

namespace {

/// Bytes loaded and stored for one piece: taking it costs two transfers of a
/// line between cores, which must not show.
constexpr uint64_t kPieceTraffic = uint64_t(256) << 10;
/// No longer than what a low-priority operation may do at a time.
constexpr uint64_t kPieceMost = uint64_t(32) << 10;
constexpr uint64_t kPieceLeast = 2048;
/// So that cores which come late still find some.
constexpr uint64_t kPiecesWanted = 8;

/// How an operation's work, over all members, is cut.
struct Division {
  uint64_t whole = 0; ///< length of the work, in bytes of some operand
  uint64_t piece = 0;
  uint64_t traffic = 0; ///< bytes loaded and stored per byte of it
};

Division divide(const Op &op) {
  const OpRequest &r = op.request;
  uint64_t p = uint64_t(op.comm->size);
  Division d;
  switch (r.kind) {
  case Kind::AllReduce:
    d = {r.chunk, 0, 2 * p};
    break;
  case Kind::Reduce:
  case Kind::Broadcast:
    d = {r.chunk, 0, p + 1};
    break;
  case Kind::ReduceScatter:
  case Kind::AllGather:
    d = {r.chunk * p, 0, p + 1};
    break;
  case Kind::Gather:
  case Kind::Scatter:
    d = {r.chunk * p, 0, 2};
    break;
  case Kind::AllToAll:
    d = {r.chunk * p * p, 0, 2};
    break;
  default:
    return d;
  }
  uint64_t piece = std::min(kPieceTraffic / d.traffic, kPieceMost);
  piece = std::min(piece, std::max(d.whole / kPiecesWanted, kPieceLeast));
  d.piece = (piece + 63) / 64 * 64;
  return d;
}

} // namespace

uint64_t concord::rt::numPieces(const Op &op) {
  Division d = divide(op);
  return d.piece ? (d.whole + d.piece - 1) / d.piece : 0;
}

uint64_t concord::rt::workPiece(const Op &op, uint64_t piece) {
  const OpRequest &r = op.request;
  Comm &comm = *op.comm;
  int size = comm.size;
  Division d = divide(op);
  uint64_t begin = piece * d.piece;
  uint64_t end = std::min(begin + d.piece, d.whole);
  SpreadFunction spread = op.streamed ? comm.context->arithmetic->streamSpread
                                      : comm.context->arithmetic->spread;
  // Within one chunk at a time; `block` counts chunks.
  for (uint64_t at = begin; at < end;) {
    uint64_t block = at / r.chunk, from = at % r.chunk;
    uint64_t n = std::min(end - at, r.chunk - from);
    at += n;
    auto copy = [&](int to, uint64_t toChunk, int source, uint64_t fromChunk) {
      View target = comm.out[to], view = comm.in[source];
      target.start += from;
      view.start += from;
      copyLinear(target, toChunk * target.pitch, view, fromChunk * view.pitch,
                 n, spread);
    };
    auto carry = [&](int source, uint64_t chunk, int first, int last) {
      uint64_t offsets[kMaxRanks];
      for (int i = first; i < last; ++i)
        offsets[i] = chunk * comm.out[i].pitch;
      spreadTo(op, comm.in[source], 0, comm.out.data(), offsets, first, last,
               from, n);
    };
    switch (r.kind) {
    case Kind::AllReduce:
      reduceTo(op, 0, comm.out.data(), 0, size, from, n);
      break;
    case Kind::Reduce:
      reduceTo(op, 0, comm.out.data(), r.root, r.root + 1, from, n);
      break;
    case Kind::ReduceScatter:
      reduceTo(op, int(block), comm.out.data(), int(block), int(block) + 1,
               from, n);
      break;
    case Kind::Broadcast:
      carry(r.root, 0, 0, size);
      break;
    case Kind::AllGather:
      carry(int(block), block, 0, size);
      break;
    case Kind::Gather:
      carry(int(block), block, r.root, r.root + 1);
      break;
    case Kind::Scatter:
      copy(int(block), 0, r.root, block);
      break;
    case Kind::AllToAll: {
      uint64_t to = block / uint64_t(size), source = block % uint64_t(size);
      copy(int(to), source, int(source), to);
      break;
    }
    default:
      break;
    }
  }
  return (end - begin) * d.traffic;
}

bool concord::rt::workDirect(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  int me = comm.me, size = comm.size;
  SpreadFunction spread = op.streamed ? comm.context->arithmetic->streamSpread
                                      : comm.context->arithmetic->spread;
  // Take the next piece of `length` bytes; `step` says what to do with it.
  auto advance = [&](uint64_t length, auto step) {
    uint64_t n = std::min(quantum, length - op.position);
    if (n)
      step(op.position, n);
    op.position += n;
    return op.position >= length;
  };
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::Reduce: {
    uint64_t whole = clip(op, r.chunk);
    uint64_t begin = op.ownResult ? 0 : shareBegin(whole, me, size);
    uint64_t end = op.ownResult ? whole : shareBegin(whole, me + 1, size);
    if (end <= begin)
      return true;
    int first = op.ownResult ? me : r.kind == Kind::Reduce ? r.root : 0;
    int last = op.ownResult             ? me + 1
               : r.kind == Kind::Reduce ? r.root + 1
                                        : size;
    return advance(end - begin, [&](uint64_t at, uint64_t n) {
      reduceTo(op, 0, comm.out.data(), first, last, begin + at, n);
    });
  }
  case Kind::ReduceScatter:
    return advance(clip(op, chunkBytes(op, false, 0)),
                   [&](uint64_t at, uint64_t n) {
                     reduceTo(op, me, comm.out.data(), me, me + 1, at, n);
                   });
  case Kind::AllGather:
  case Kind::Gather: {
    int first = r.kind == Kind::Gather ? r.root : 0;
    int last = r.kind == Kind::Gather ? r.root + 1 : size;
    return advance(clip(op, chunkBytes(op, true, 0)),
                   [&](uint64_t from, uint64_t n) {
                     uint64_t offsets[kMaxRanks];
                     for (int i = first; i < last; ++i)
                       offsets[i] = chunkOffset(op, comm.out[i], me);
                     spreadTo(op, comm.in[me], 0, comm.out.data(), offsets,
                              first, last, from, n, op.ownDone ? me : -1);
                   });
  }
  case Kind::AllToAll:
    while (op.exchange && op.peerIndex < size) {
      // Of the two blocks of a pair, each member moves one half of both.
      int peer = (me + op.peerIndex) % size;
      uint64_t middle = shareBegin(r.chunk, 1, 2);
      uint64_t begin = me < peer ? 0 : middle;
      uint64_t length = me < peer ? middle : r.chunk - middle;
      if (peer == me)
        length = 0;
      bool done = advance(length, [&](uint64_t at, uint64_t n) {
        swapLinear(comm.in[me], peer * comm.in[me].pitch, comm.in[peer],
                   me * comm.in[peer].pitch, begin + at, n);
      });
      if (!done)
        return false;
      op.position = 0;
      if (++op.peerIndex < size && length)
        return false;
    }
    if (op.ownDone && op.peerIndex == 0)
      op.peerIndex = 1;
    while (op.peerIndex < size) {
      int from = (me + op.peerIndex) % size;
      const View &in = comm.in[from];
      uint64_t offset =
          in.staged || !uneven(r) ? me * in.pitch : comm.peerDisplacement[from];
      bool done = advance(clip(op, chunkBytes(op, false, from)),
                          [&](uint64_t at, uint64_t n) {
                            View target = comm.out[me], source = in;
                            target.start += at;
                            source.start += at;
                            copyLinear(target, chunkOffset(op, target, from),
                                       source, offset, n, spread);
                          });
      if (!done)
        return false;
      op.position = 0;
      if (++op.peerIndex < size)
        return false;
    }
    return true;
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter: {
    if (op.shared) {
      // Every member carries its share of the root's array to all: each byte is
      // read once.
      uint64_t whole = clip(op, r.chunk);
      uint64_t begin = shareBegin(whole, me, size),
               end = shareBegin(whole, me + 1, size);
      if (end <= begin)
        return true;
      return advance(end - begin, [&](uint64_t at, uint64_t n) {
        static constexpr uint64_t kZero[kMaxRanks] = {};
        spreadTo(op, comm.in[r.root], 0, comm.out.data(), kZero, 0, size,
                 begin + at, n);
      });
    }
    uint64_t offset = r.kind == Kind::Scatter ? me * comm.in[r.root].pitch : 0;
    return advance(clip(op, r.chunk), [&](uint64_t at, uint64_t n) {
      View target = comm.out[me], source = comm.in[r.root];
      target.start += at;
      source.start += at;
      copyLinear(target, 0, source, offset, n, spread);
    });
  }
  case Kind::Permute: {
    int from = -1;
    for (uint32_t i = 0; i < r.numPairs; ++i)
      if (r.pairs[i][1] == me)
        from = r.pairs[i][0];
    return advance(clip(op, r.chunk), [&](uint64_t position, uint64_t n) {
      View target = comm.out[me];
      target.start += position;
      if (from >= 0) {
        View source = comm.in[from];
        source.start += position;
        copyLinear(target, 0, source, 0, n, spread);
        return;
      }
      for (uint64_t linear = 0; linear < n;) {
        uint64_t run = n - linear;
        char *to = at(target, 0, linear, run);
        std::memset(to, 0, run);
        linear += run;
      }
    });
  }
  default:
    return true;
  }
}

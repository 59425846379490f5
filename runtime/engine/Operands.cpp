//===- Operands.cpp - Where the members' operands lie ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Saying where one's operands lie, finding where those of the others do, and
// the copies between memory that peers cannot reach and staging memory.
//
//===----------------------------------------------------------------------===//

#include "engine/Operands.h"
#include "algorithms/Copy.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"

#include <algorithm>
#include <numeric>

using namespace concord;
using namespace concord::rt;

namespace {

/// Output up to which a copy through the slots is worth while.
constexpr uint64_t kFlatOutput = 8192;

/// Bytes that all members together touch when a chunk is `length`.
uint64_t footprint(const Op &op, uint64_t length) {
  uint64_t bytes = 0;
  for (bool input : {true, false})
    bytes += length * (chunked(op.request.kind, input) ? op.comm->size : 1);
  return bytes * uint64_t(op.comm->size);
}

/// True when this member's stores fall on lines that it, or a peer for it, has
/// just read: these need no further read, and going past the caches gains
/// nothing.
bool overwrites(const Op &op) {
  const OpRequest &r = op.request;
  const char *in = static_cast<const char *>(r.in.base);
  const char *out = static_cast<const char *>(r.out.base);
  switch (r.kind) {
  case Kind::AllReduce:
  case Kind::Reduce:
    return in == out;
  case Kind::ReduceScatter:
  case Kind::Scatter:
    return out == in + uint64_t(op.comm->me) * r.chunk;
  default:
    return false;
  }
}

/// Judge once per operation whether this member's output is in the caches.
Recency::Verdict judgeOutput(const Op &op) {
  const OpRequest &r = op.request;
  Context &context = *op.comm->context;
  if (r.kind == Kind::Barrier || !uses(op, op.comm->me, false))
    return Recency::New;
  uint64_t bytes = footprint(op, r.chunk);
  auto verdict = context.recency.note(r.out.base, bytes, context.cacheBytes);
  return bytes > context.cacheBytes ? Recency::Cold : verdict;
}

/// True when workAcross (algorithms/Across.cpp) has this kind.
bool copiesAcross(Kind kind) {
  switch (kind) {
  case Kind::AllReduce:
  case Kind::ReduceScatter:
  case Kind::AllGather:
  case Kind::AllToAll:
  case Kind::Broadcast:
    return true;
  default:
    return false;
  }
}

/// True when whoever runs should take the next piece of the work, if all
/// operands are in the heap.
bool mayClaim(const Op &op) {
  const OpRequest &r = op.request;
  return (op.form == Form::Claimed ||
          (op.form == Form::Automatic && op.comm->context->oversubscribed)) &&
         !uneven(r) && !copies(r) && numPieces(op) != 0;
}

} // namespace

// What is written is computed before: a load that waits for a store to the
// slot, which may have to be fetched from another core, waits long.
Wire concord::rt::describeOperands(Op &op) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  Segment &segment = *comm.context->segment;
  bool staged = false, claims = mayClaim(op);
  auto operand = [&](const concord_buffer &buffer, bool input) -> uint64_t {
    bool remote = input ? inputIsRemote(r.kind) : outputIsRemote(r.kind);
    bool optional = !input && r.kind == Kind::Broadcast;
    if ((!remote && !optional && !claims) || !uses(op, comm.me, input))
      return 0;
    uint64_t offset = comm.context->stageAlways
                          ? kStaged
                          : segment.offsetOf(buffer.base, extent(op, input));
    if (offset == kStaged) {
      claims = false;
      staged |= remote;
      // Nobody else touches it in any other form.
      if (!remote && !optional)
        return 0;
    }
    return offset;
  };
  Wire wire;
  wire.in = operand(r.in, true);
  wire.out = operand(r.out, false);
  wire.flags = 0;
  auto set = [&](uint32_t flag, bool value) {
    wire.flags |= value ? flag : 0;
    return value;
  };
  set(Wire::Outside, wire.in == kStaged || wire.out == kStaged);
  bool copying = set(Wire::Copies, copies(r));
  set(Wire::InPlace, r.in.base == r.out.base);
  set(Wire::Claims, claims && !staged);
  // Only where nobody reduces or shares does the kernel's copy gain anything.
  bool wanted = op.form == Form::SingleCopy ||
                (op.form == Form::Automatic && r.kind == Kind::AllToAll &&
                 r.chunk >= comm.context->singleCopy);
  bool across =
      set(Wire::Across, wanted && comm.context->singleCopy != ~uint64_t(0) &&
                            !comm.context->stageAlways && !uneven(r) &&
                            r.in.outer <= 1 && r.out.outer <= 1 && !copying &&
                            copiesAcross(r.kind));
  wire.staging = kStaged;
  wire.stagingHalf = kStagingHalf;
  if (staged || copying) {
    wire.staging = segment.offsetOf(comm.staging, comm.stagingBytes);
    wire.stagingHalf = uint32_t(comm.stagingBytes / 2);
  }
  uint64_t outBytes =
      r.chunk * (chunked(r.kind, false) ? uint64_t(comm.size) : 1);
  op.cold = set(Wire::Cold, judgeOutput(op) == Recency::Cold &&
                                !overwrites(op) && outBytes >= kStreamLeast);
  set(Wire::Flat, staged && !comm.context->stageAlways && !uneven(r) &&
                      op.form == Form::Automatic && op.payload <= kFlatLimit &&
                      outBytes < kFlatOutput && r.kind != Kind::Barrier);
  wire.longest = r.chunk;
  if (uneven(r)) {
    wire.longest = *std::max_element(r.receive, r.receive + comm.size);
    if (r.kind == Kind::AllToAll)
      wire.longest =
          std::max(wire.longest, *std::max_element(r.send, r.send + comm.size));
  }
  if (!set(Wire::Dense,
           !uneven(r) && !across && r.in.outer <= 1 && r.out.outer <= 1)) {
    Layout &layout = layoutOf(comm, comm.me, op.sequence);
    layout.in = {r.in.outer, r.in.inner_bytes, r.in.stride_bytes};
    layout.out = {r.out.outer, r.out.inner_bytes, r.out.stride_bytes};
    layout.inAddress = reinterpret_cast<uintptr_t>(r.in.base);
    layout.outAddress = reinterpret_cast<uintptr_t>(r.out.base);
    if (uneven(r) && r.kind == Kind::AllToAll) {
      uint64_t at = 0;
      for (int i = 0; i < comm.size; ++i) {
        layout.sendDisplacement[i] = at;
        layout.sendBytes[i] = r.send[i];
        at += r.send[i];
      }
    }
  }
  return wire;
}

static bool outsideHeap(Op &op, int member) {
  fail(CONCORD_ERROR_CORRUPT, "%s: rank %d published a buffer outside its heap",
       describe(op).c_str(), op.comm->ranks[size_t(member)]);
  breakComm(op, CONCORD_ERROR_CORRUPT);
  return false;
}

/// The common case: all that peers touch is in the heap and in one piece.
static bool openDense(Op &op) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  Segment &segment = *comm.context->segment;
  op.anyStaged = op.across = op.exchange = false;
  op.ownResult = r.kind == Kind::AllReduce && comm.size == 2 && !op.claimed &&
                 op.form == Form::Automatic && r.chunk <= kOwnResult &&
                 !(op.anySays & Wire::InPlace);
  op.peerIndex = 0;
  op.segment = 0;
  op.segmentBytes = op.part = r.chunk;
  op.shared =
      r.kind == Kind::Broadcast && !op.claimed && r.chunk >= kShareLeast &&
      wireOf(comm, (r.root + 1) % comm.size, op.sequence).is(Wire::Cold);
  bool remoteIn = op.claimed || inputIsRemote(r.kind);
  bool remoteOut = op.claimed || outputIsRemote(r.kind) || op.shared;
  uint64_t inBytes = r.chunk * (chunked(r.kind, true) ? comm.size : 1);
  uint64_t outBytes = r.chunk * (chunked(r.kind, false) ? comm.size : 1);
  for (int member = 0; member < comm.size; ++member) {
    const Wire &wire = wireOf(comm, member, op.sequence);
    auto open = [&](bool input, bool remote, uint64_t bytes) {
      View &view = input ? comm.in[member] : comm.out[member];
      view = View{};
      if (!uses(op, member, input) || (!remote && member != comm.me))
        return true;
      // A peer may have crashed while it wrote this.
      view.base = member == comm.me
                      ? static_cast<char *>(input ? r.in.base : r.out.base)
                      : segment.pointerAt(input ? wire.in : wire.out, bytes);
      view.inner = view.pitch = r.chunk;
      return view.base || r.chunk == 0;
    };
    if (!open(true, remoteIn, inBytes) || !open(false, remoteOut, outBytes))
      return outsideHeap(op, member);
  }
  comm.ownStaged[0] = comm.ownStaged[1] = View();
  return true;
}

bool concord::rt::openViews(Op &op) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  Segment &segment = *comm.context->segment;
  constexpr uint32_t kSpecial = Wire::Outside | Wire::Copies;
  if (op.allSay & Wire::Dense && !(op.anySays & kSpecial))
    return openDense(op);
  uint64_t half = ~uint64_t(0), longest = 0;
  op.anyStaged = false;
  bool outside = false;
  bool across = true;
  int copying = 0;
  for (int member = 0; member < comm.size; ++member) {
    const Wire &wire = wireOf(comm, member, op.sequence);
    longest = std::max(longest, wire.longest);
    op.anyStaged |= wire.in == kStaged ||
                    (wire.out == kStaged && r.kind != Kind::Broadcast);
    outside |= wire.out == kStaged;
    copying += wire.is(Wire::Copies);
    across &= wire.is(Wire::Across);
    half = std::min<uint64_t>(half, wire.stagingHalf);
    if (r.kind == Kind::AllToAll && uneven(r)) {
      const Layout &layout = layoutOf(comm, member, op.sequence);
      comm.peerDisplacement[member] = layout.sendDisplacement[comm.me];
      if (layout.sendBytes[comm.me] != r.receive[member]) {
        fail(CONCORD_ERROR_MISMATCH,
             "%s: rank %d sends %llu bytes to rank %d, which expects %llu",
             describe(op).c_str(), comm.ranks[member],
             (unsigned long long)layout.sendBytes[comm.me], comm.ranks[comm.me],
             (unsigned long long)r.receive[member]);
        breakComm(op, CONCORD_ERROR_MISMATCH);
        return false;
      }
    }
  }
  // When all work in place, blocks change places without a copy of either.
  op.exchange =
      r.kind == Kind::AllToAll && copying == comm.size && !op.anyStaged;
  op.anyStaged |= copying && !op.exchange;
  op.across = op.anyStaged && across;
  op.anyStaged &= !op.across;
  uint64_t chunks = chunksOf(op);
  op.segmentBytes = longest;
  if (op.anyStaged)
    op.segmentBytes = std::min(longest, half / chunks / 64 * 64);
  if (op.anyStaged && op.segmentBytes == 0 && longest != 0) {
    fail(CONCORD_ERROR_CORRUPT, "%s: a member published no staging memory",
         describe(op).c_str());
    breakComm(op, CONCORD_ERROR_CORRUPT);
    return false;
  }
  op.peerIndex = 0;
  op.segment = 0;
  op.part = longest; // the whole length, for the segment loop
  // Of an operand that is not used here the former operation's would stay.
  comm.ownStaged[0] = comm.ownStaged[1] = View();
  // What decides how the work is divided has to be the same at all members.
  op.shared =
      r.kind == Kind::Broadcast && !op.claimed && !op.anyStaged && !op.across &&
      !outside && r.chunk >= kShareLeast &&
      wireOf(comm, (r.root + 1) % comm.size, op.sequence).is(Wire::Cold);

  const uint64_t total =
      uneven(r) ? std::accumulate(r.receive, r.receive + comm.size, uint64_t(0))
                : 0;
  for (int member = 0; member < comm.size; ++member)
    for (bool input : {true, false}) {
      View &view = input ? comm.in[member] : comm.out[member];
      view = View{};
      bool remote = op.claimed || (input ? inputIsRemote(r.kind)
                                         : outputIsRemote(r.kind) || op.shared);
      if (!uses(op, member, input) || (!remote && member != comm.me))
        continue;
      const Wire &wire = wireOf(comm, member, op.sequence);
      const Layout &layout = layoutOf(comm, member, op.sequence);
      uint64_t offset = input ? wire.in : wire.out;
      OperandLayout operand{1, wire.longest, 0};
      if (!wire.is(Wire::Dense))
        operand = input ? layout.in : layout.out;
      bool isChunked = chunked(r.kind, input);
      if (op.across && remote && member != comm.me && offset == kStaged) {
        view.base = reinterpret_cast<char *>(input ? layout.inAddress
                                                   : layout.outAddress);
        view.inner = view.pitch = operand.inner;
        view.process =
            int32_t(segment.slot(comm.ranks[size_t(member)]).pid.load());
        continue;
      }
      if (!op.across && remote &&
          (offset == kStaged ||
           (input && wire.is(Wire::Copies) && !op.exchange))) {
        view.base = segment.pointerAt(
            wire.staging + (input ? 0 : wire.stagingHalf), wire.stagingHalf);
        view.inner = view.pitch = op.segmentBytes;
        view.staged = true;
      }
      if (member == comm.me) {
        comm.ownStaged[input ? 0 : 1] = view.staged ? view : View();
        if (view.staged && !keepsOwnPart(r.kind, input))
          continue;
        view = View();
        const concord_buffer &buffer = input ? r.in : r.out;
        view.base = static_cast<char *>(buffer.base);
        view.outer = buffer.outer;
        view.inner = view.pitch = buffer.inner_bytes;
        view.stride = buffer.stride_bytes;
      } else if (!view.staged) {
        view.outer = operand.outer;
        view.inner = view.pitch = operand.inner;
        view.stride = operand.stride;
        // A peer may have crashed while it wrote this: what it says has to
        // cover what is touched there.
        uint64_t end = 0, bytes;
        if (uneven(r)) {
          bool sends = r.kind == Kind::AllToAll && input;
          if (operand.outer > 1 ||
              __builtin_add_overflow(
                  sends ? comm.peerDisplacement[member] : 0,
                  isChunked && !sends ? total : r.receive[member], &end))
            return outsideHeap(op, member);
          end = std::max(end, operand.inner);
        } else {
          if (__builtin_mul_overflow(operand.outer, operand.inner, &bytes) ||
              bytes != r.chunk)
            return outsideHeap(op, member);
          if (bytes != 0 &&
              (__builtin_mul_overflow(operand.outer - 1, operand.stride,
                                      &end) ||
               __builtin_add_overflow(
                   end, operand.inner * (isChunked ? comm.size : 1), &end)))
            end = ~uint64_t(0);
        }
        view.base = segment.pointerAt(offset, end);
        if (!view.base && end != 0)
          return outsideHeap(op, member);
      }
      if (!view.base && op.segmentBytes != 0 && view.inner != 0)
        return outsideHeap(op, member);
    }
  return true;
}

uint64_t concord::rt::copyStaged(Op &op, bool input) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  const View &staged = comm.ownStaged[input ? 0 : 1];
  if (!staged.base)
    return 0;
  uint64_t bytes = 0;
  const concord_buffer &buffer = input ? r.in : r.out;
  View own;
  own.base = static_cast<char *>(buffer.base);
  own.outer = buffer.outer;
  own.inner = own.pitch = buffer.inner_bytes;
  own.stride = buffer.stride_bytes;
  const Arithmetic &arithmetic = *comm.context->arithmetic;
  // Bytes [from, to) of a chunk, counted from the segment's begin.
  auto copy = [&](uint64_t stagedOffset, uint64_t ownOffset, uint64_t from,
                  uint64_t to) {
    if (from >= to)
      return;
    bytes += to - from;
    View here = staged, there = own;
    here.start = from;
    there.start = op.segment + from;
    if (input)
      copyLinear(here, stagedOffset, there, ownOffset, to - from,
                 op.streamed ? arithmetic.streamSpread : arithmetic.spread);
    else
      copyLinear(there, ownOffset, here, stagedOffset, to - from,
                 op.cold ? arithmetic.streamSpread : arithmetic.spread);
  };
  bool keeps = keepsOwnPart(r.kind, input);
  uint64_t at = 0;
  int chunks = chunked(r.kind, input) ? comm.size : 1;
  for (int c = 0; c < chunks; ++c) {
    uint64_t length = chunkBytes(op, input, c);
    uint64_t offset = uneven(r) && chunks > 1 ? at : c * own.pitch;
    at += length;
    if (length <= op.segment)
      continue;
    length = std::min(length - op.segment, op.segmentBytes);
    if (keeps && chunks == 1) {
      copy(0, offset, 0, shareBegin(length, comm.me, comm.size));
      copy(0, offset, shareBegin(length, comm.me + 1, comm.size), length);
    } else if (!keeps || c != comm.me) {
      copy(uint64_t(c) * staged.pitch, offset, 0, length);
    }
  }
  if (!input && op.cold)
    streamFence();
  return bytes;
}

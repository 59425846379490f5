//===- Collective.cpp - The state machine of a collective -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Publish, gather the peers' slots, move data, settle. Small operations carry
// their payload in the slots and end after the gather. Larger ones read and
// write the peers' buffers where they lie; a buffer outside the heap that a
// peer has to touch goes through staging memory, segment by segment.
//
// The protocol of slots and ticks is described in transport/shm/CommBlock.h;
// who moves which bytes in algorithms/Direct.cpp.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Copy.h"
#include "algorithms/Direct.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"
#include "engine/Fused.h"
#include "engine/Span.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

using namespace concord;
using namespace concord::rt;

namespace {

constexpr uint64_t kStaged = ~uint64_t(0);
/// Payload up to which slots carry the data; found by comm-bench.
constexpr uint64_t kInlineLimit = 1024;
/// Output below which stores always go through the caches: the drain at the end
/// costs more than it saves.
constexpr uint64_t kStreamLeast = 8192;
constexpr uint64_t kStagingHalf = uint64_t(512) << 10;

struct WireOperand {
  uint64_t offset; ///< kStaged, or where it lies in the heaps
  uint64_t outer, inner, stride;
};

/// What a member says of an operation that is not carried in the slots.
struct Wire {
  WireOperand in, out;
  uint64_t staging;     ///< of the two halves; kStaged when there is none
  uint64_t stagingHalf; ///< bytes of a half
  uint64_t longest;     ///< bytes of the longest chunk
  uint64_t cold;        ///< 1: its output is not in the caches
  uint64_t copies;      ///< 1: writes in place what others have to read
  uint64_t inAddress, outAddress; ///< in its own process
  uint64_t across; ///< 1: peers may copy from and to these addresses
  uint64_t flat;   ///< 1: its input follows, at kFlatOffset
  uint64_t claims; ///< 1: both operands are in the heap, anyone may do the work
  /// Uneven all_to_all: per member, displacement and bytes of what it is sent.
  uint64_t sendDisplacement[kMaxRanks], sendBytes[kMaxRanks];
};
static_assert(sizeof(Wire) <= kSlotPayload);
/// Where an even operation's Wire has ended.
constexpr uint64_t kFlatOffset =
    (offsetof(Wire, sendDisplacement) + 63 + 16) / 64 * 64 - 16;
/// Payload up to which cold buffers are copied into the slots: copying costs
/// less than misses on peers' pages and a second round of flags.
constexpr uint64_t kFlatLimit = kFlatMost;
static_assert(kFlatOffset + kFlatLimit <= kSlotPayload);

/// Where an inlined payload begins: beside the flag if it fits there, else on
/// the next line, which costs no line more and keeps every access within one.
uint64_t inlineOffset(const Op &op) {
  return op.payload <= 64 - offsetof(Slot, payload)
             ? 0
             : 64 - offsetof(Slot, payload);
}

Wire &wireOf(const Comm &comm, int member, uint64_t sequence) {
  return *reinterpret_cast<Wire *>(
      comm.block.members[member].slot(sequence).payload);
}

/// What all members have to have published before this operation's slot is
/// filled.
uint64_t published(const Op &op) {
  return op.sequence < kSlots ? 0 : op.sequence - (kSlots - 1);
}

/// Which members an inlined operation needs to hear from.
bool needs(const Op &op, int member) {
  const Comm &comm = *op.comm;
  // With slots of a device: an operation completes when every member's has
  // started, whether it needs their data or not.
  if (!op.inlined || comm.context->deviceSlots != 0)
    return true;
  switch (op.request.kind) {
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
    return comm.me != op.request.root && member == op.request.root;
  case Kind::Reduce:
  case Kind::Gather:
    return comm.me == op.request.root;
  default:
    return true;
  }
}

/// True when every member needs every other, so that gathering proves that all
/// have published.
bool symmetric(const Op &op) {
  if (!op.inlined || op.comm->context->deviceSlots != 0)
    return true;
  switch (op.request.kind) {
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
    return false;
  case Kind::Reduce:
  case Kind::Gather:
    return op.comm->me == op.request.root;
  default:
    return true;
  }
}

} // namespace

std::string concord::rt::fingerprintText(uint64_t print) {
  Kind kind = Kind(print & 15);
  DType type = DType(print >> 4 & 15);
  auto reduction = unsigned(print >> 8 & 7);
  int root = int(print >> 11 & 127) - 1;
  static const char *const kNames[] = {
#define X(name, number, text) text,
      CONCORD_REDUCTIONS(X)
#undef X
  };
  std::string text = kindName(kind);
  text += "(count " + std::to_string(print >> 18);
  if (type != DType::Invalid)
    text += ", " + std::string(dtypeName(type));
  if (reduction)
    text += std::string(", ") + kNames[reduction];
  bool fused =
      root >= 0 && (kind == Kind::AllReduce || kind == Kind::ReduceScatter ||
                    kind == Kind::AllGather);
  if (fused)
    text += ", fused with a kernel of hash " + std::to_string(root);
  else if (root >= 0 && kind == Kind::Permute)
    text += ", pairs' hash " + std::to_string(root);
  else if (root >= 0)
    text += ", root " + std::to_string(root);
  return text + ")";
}

namespace {

uint64_t hashBytes(const void *data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; ++i)
    hash = (hash ^ static_cast<const unsigned char *>(data)[i]) *
           uint64_t(0x100000001b3);
  return hash ^ hash >> 29;
}

inline uint64_t rowEnd(const concord_buffer &buffer, uint64_t chunks) {
  if (buffer.outer == 1)
    return buffer.inner_bytes * chunks;
  return buffer.outer == 0 ? 0
                           : (buffer.outer - 1) * buffer.stride_bytes +
                                 buffer.inner_bytes * chunks;
}

uint64_t sum(const uint64_t *values, int n) {
  uint64_t total = 0;
  for (int i = 0; i < n; ++i)
    total += values[i];
  return total;
}

/// Bytes from an operand's base to its end.
[[gnu::always_inline]] inline uint64_t extent(const Op &op, bool input) {
  const OpRequest &r = op.request;
  if (uneven(r) && chunked(r.kind, input))
    return sum(input && r.kind == Kind::AllToAll ? r.send : r.receive,
               op.comm->size);
  return rowEnd(input ? r.in : r.out,
                chunked(r.kind, input) ? uint64_t(op.comm->size) : 1);
}

/// Chunks of the wider operand.
uint64_t chunksOf(const Op &op) {
  Kind kind = op.request.kind;
  return chunked(kind, true) || chunked(kind, false) ? uint64_t(op.comm->size)
                                                     : 1;
}

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

/// Ask for the lines of this member's output, before anything waits for them;
/// only after the slot is on its way, which peers wait for.
void claimOutput(const Op &op) {
#if defined(__x86_64__)
  const OpRequest &r = op.request;
  const char *at = static_cast<const char *>(r.out.base);
  uint64_t bytes =
      r.chunk * (chunked(r.kind, false) ? uint64_t(op.comm->size) : 1);
  if (r.out.outer == 1 && uses(op, op.comm->me, false))
    for (uint64_t i = 0; i < bytes; i += 64)
      asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

/// True when this member writes in place what others have to read.
bool copies(const OpRequest &r) {
  return (r.kind == Kind::AllToAll || r.kind == Kind::Permute) &&
         r.in.base == r.out.base;
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

void publish(Op &op) {
  Comm &comm = *op.comm;
  Slot &slot = comm.block.members[comm.me].slot(op.sequence);
  slot.fingerprint = op.fingerprint;
  bool flat = false, claims = false;
  if (op.inlined) {
    packInline(op, slot.payload + inlineOffset(op));
  } else {
    const OpRequest &r = op.request;
    Segment &segment = *comm.context->segment;
    Wire &wire = *reinterpret_cast<Wire *>(slot.payload);
    bool staged = false;
    claims = mayClaim(op);
    auto operand = [&](const concord_buffer &buffer, bool input) {
      bool remote = input ? inputIsRemote(r.kind) : outputIsRemote(r.kind);
      bool optional = !input && r.kind == Kind::Broadcast;
      if ((!remote && !optional && !claims) || !uses(op, comm.me, input))
        return WireOperand{0, 0, 0, 0};
      uint64_t offset = comm.context->stageAlways
                            ? kStaged
                            : segment.offsetOf(buffer.base, extent(op, input));
      if (offset == kStaged) {
        claims = false;
        staged |= remote;
        // Nobody else touches it in any other form.
        if (!remote && !optional)
          return WireOperand{0, 0, 0, 0};
      }
      return WireOperand{offset, buffer.outer, buffer.inner_bytes,
                         buffer.stride_bytes};
    };
    wire.in = operand(r.in, true);
    wire.out = operand(r.out, false);
    wire.copies = copies(r);
    wire.claims = claims && !staged;
    wire.inAddress = reinterpret_cast<uintptr_t>(r.in.base);
    wire.outAddress = reinterpret_cast<uintptr_t>(r.out.base);
    // Only where nobody reduces or shares does the kernel's copy gain anything.
    bool wanted = op.form == Form::SingleCopy ||
                  (op.form == Form::Automatic && r.kind == Kind::AllToAll &&
                   r.chunk >= comm.context->singleCopy);
    wire.across = wanted && comm.context->singleCopy != ~uint64_t(0) &&
                  !comm.context->stageAlways && !uneven(r) && r.in.outer <= 1 &&
                  r.out.outer <= 1 && !wire.copies && copiesAcross(r.kind);
    wire.staging = kStaged;
    wire.stagingHalf = kStagingHalf;
    if (staged || wire.copies) {
      wire.staging = segment.offsetOf(comm.staging, comm.stagingBytes);
      wire.stagingHalf = comm.stagingBytes / 2;
    }
    wire.longest = r.chunk;
    auto verdict = judgeOutput(op);
    uint64_t outBytes =
        r.chunk * (chunked(r.kind, false) ? uint64_t(comm.size) : 1);
    wire.cold = op.cold =
        verdict == Recency::Cold && !overwrites(op) && outBytes >= kStreamLeast;
    wire.flat = (verdict != Recency::Warm || staged) &&
                !comm.context->stageAlways && !uneven(r) &&
                op.form == Form::Automatic && op.payload <= kFlatLimit &&
                outBytes < kStreamLeast && r.kind != Kind::Barrier;
    flat = wire.flat;
    claims = wire.claims;
    if (flat)
      packInline(op, slot.payload + kFlatOffset);
    if (uneven(r)) {
      wire.longest = *std::max_element(r.receive, r.receive + comm.size);
      if (r.kind == Kind::AllToAll) {
        uint64_t at = 0;
        for (int i = 0; i < comm.size; ++i) {
          wire.sendDisplacement[i] = at;
          wire.sendBytes[i] = r.send[i];
          at += r.send[i];
          wire.longest = std::max(wire.longest, r.send[i]);
        }
      }
    }
  }
  slot.sequence.store(op.sequence, std::memory_order_release);
  // What needs no peer is done while the flags travel.
  if (flat || op.inlined)
    claimOutput(op);
  else if (!claims)
    workOwn(op);
}

/// Ask for the lines of the slot that the next operation will write, while the
/// caller computes. All members have published this operation, so nobody reads
/// that slot any more, and stores to it will not have to wait for each line.
void claimNextSlot(const Comm &comm, uint64_t sequence, uint64_t bytes) {
#if defined(__x86_64__)
  const char *at = reinterpret_cast<const char *>(
      &comm.block.members[comm.me].slot(sequence + 1));
  for (uint64_t i = 0; i < bytes; i += 64)
    asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

void publishTick(Comm &comm) {
  ++comm.tick;
  comm.block.members[comm.me].tick.store(comm.tick, std::memory_order_release);
}

bool ticksReady(Op &op) {
  Comm &comm = *op.comm;
  for (; op.seen < comm.size; ++op.seen)
    if (op.seen != comm.me && comm.block.members[op.seen].tick.load(
                                  std::memory_order_acquire) < comm.tick)
      return false;
  op.seen = 0;
  return true;
}

/// As workDirect, where some operands lie in other processes only.
Progress workAcross(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  int failed = -1;
  switch (moveAcross(op, quantum, failed)) {
  case 0:
    return Progress::Advanced;
  case 1:
    return Progress::Done;
  default: {
    int error = errno;
    int rank = comm.ranks[size_t(failed)];
    // A process that has just died has no memory any more.
    int32_t status =
        error == ESRCH ? CONCORD_ERROR_PEER_DIED : CONCORD_ERROR_SYSTEM;
    fail(status, "%s: copying from or to the memory of rank %d: %s",
         describe(op).c_str(), rank, std::strerror(error));
    breakComm(op, status);
    return Progress::Done;
  }
  }
}

/// True when all members have copied their input into the slots.
bool allFlat(const Op &op) {
  const Comm &comm = *op.comm;
  for (int member = 0; member < comm.size; ++member)
    if (!wireOf(comm, member, op.sequence).flat)
      return false;
  return true;
}

/// True when all members let whoever runs do the work.
bool allClaim(const Op &op) {
  const Comm &comm = *op.comm;
  if (op.comm->size == 1)
    return false;
  for (int member = 0; member < comm.size; ++member)
    if (!wireOf(comm, member, op.sequence).claims)
      return false;
  return true;
}

/// Take and do pieces until none is left, or for about `quantum` bytes.
/// Blocked: none is left, but peers may be at theirs.
Progress workClaimed(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  Claims &claims = *comm.block.claims;
  auto &holding = comm.block.members[comm.me].holding;
  uint64_t next = claims.next.load(std::memory_order_relaxed);
  for (uint64_t moved = 0; next < op.claimsEnd;) {
    if (next < comm.claims) {
      fail(CONCORD_ERROR_CORRUPT, "%s: the count of pieces is %llu, below %llu",
           describe(op).c_str(), (unsigned long long)next,
           (unsigned long long)comm.claims);
      breakComm(op, CONCORD_ERROR_CORRUPT);
      return Progress::Done;
    }
    if (moved >= quantum)
      return Progress::Advanced;
    if (!claims.next.compare_exchange_weak(next, next + 1,
                                           std::memory_order_relaxed))
      continue;
    holding.store(next + 1, std::memory_order_relaxed);
    moved += workPiece(op, next - comm.claims) / 2 / uint64_t(comm.size);
    if (op.streamed)
      streamFence();
    // Acquire, too: who sees the last count sees what all have done.
    claims.finished.fetch_add(1, std::memory_order_acq_rel);
    holding.store(0, std::memory_order_relaxed);
    next = claims.next.load(std::memory_order_relaxed);
  }
  return Progress::Blocked;
}

bool claimsFinished(const Op &op) {
  return op.comm->block.claims->finished.load(std::memory_order_acquire) >=
         op.claimsEnd;
}

/// Build the views of all members from their slots. False after breakComm.
bool openViews(Op &op) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  Segment &segment = *comm.context->segment;
  uint64_t half = ~uint64_t(0), longest = 0;
  op.anyStaged = false;
  bool outside = false;
  bool across = true;
  int copying = 0;
  for (int member = 0; member < comm.size; ++member) {
    const Wire &wire = wireOf(comm, member, op.sequence);
    longest = std::max(longest, wire.longest);
    op.anyStaged |= wire.in.offset == kStaged ||
                    (wire.out.offset == kStaged && r.kind != Kind::Broadcast);
    outside |= wire.out.offset == kStaged;
    copying += wire.copies != 0;
    across &= wire.across != 0;
    half = std::min(half, wire.stagingHalf);
    if (r.kind == Kind::AllToAll && uneven(r)) {
      comm.peerDisplacement[member] = wire.sendDisplacement[comm.me];
      if (wire.sendBytes[comm.me] != r.receive[member]) {
        fail(CONCORD_ERROR_MISMATCH,
             "%s: rank %d sends %llu bytes to rank %d, which expects %llu",
             describe(op).c_str(), comm.ranks[member],
             (unsigned long long)wire.sendBytes[comm.me], comm.ranks[comm.me],
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
  // What decides how the work is divided has to be the same at all members.
  op.shared = r.kind == Kind::Broadcast && !op.claimed && !op.anyStaged &&
              !op.across && !outside &&
              wireOf(comm, (r.root + 1) % comm.size, op.sequence).cold;

  for (int member = 0; member < comm.size; ++member)
    for (bool input : {true, false}) {
      View &view = input ? comm.in[member] : comm.out[member];
      view = View{};
      bool remote = op.claimed || (input ? inputIsRemote(r.kind)
                                         : outputIsRemote(r.kind) || op.shared);
      if (!uses(op, member, input) || (!remote && member != comm.me))
        continue;
      const Wire &wire = wireOf(comm, member, op.sequence);
      const WireOperand &operand = input ? wire.in : wire.out;
      bool isChunked = chunked(r.kind, input);
      if (op.across && remote && member != comm.me &&
          operand.offset == kStaged) {
        view.base =
            reinterpret_cast<char *>(input ? wire.inAddress : wire.outAddress);
        view.inner = view.pitch = operand.inner;
        view.process =
            int32_t(segment.slot(comm.ranks[size_t(member)]).pid.load());
        continue;
      }
      if (!op.across && remote &&
          (operand.offset == kStaged ||
           (input && wire.copies && !op.exchange))) {
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
        uint64_t end;
        // A peer may have crashed while it wrote this.
        if (operand.outer == 0 || operand.inner == 0)
          end = 0;
        else if (uneven(r) && isChunked)
          end = operand.inner;
        else if (__builtin_mul_overflow(operand.outer - 1, operand.stride,
                                        &end) ||
                 __builtin_add_overflow(
                     end, operand.inner * (isChunked ? comm.size : 1), &end) ||
                 operand.inner > uint64_t(1) << 56)
          end = ~uint64_t(0);
        view.base = segment.pointerAt(operand.offset, end);
      }
      if (!view.base && op.segmentBytes != 0 && view.inner != 0) {
        fail(CONCORD_ERROR_CORRUPT,
             "%s: rank %d published a buffer outside its heap",
             describe(op).c_str(), comm.ranks[member]);
        breakComm(op, CONCORD_ERROR_CORRUPT);
        return false;
      }
    }
  return true;
}

/// Copy this member's staged operand between its own memory and the staging.
void copyStaged(Op &op, bool input) {
  Comm &comm = *op.comm;
  const OpRequest &r = op.request;
  const View &staged = comm.ownStaged[input ? 0 : 1];
  if (!staged.base)
    return;
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
}

} // namespace

int32_t concord::rt::prepare(Op &op, Comm &comm) {
  OpRequest &r = op.request;
  op.comm = &comm;
  size_t element = dtypeSize(r.dtype);
  auto invalid = [&](const char *what) {
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "%s on '%s': %s",
                kindName(r.kind), comm.name.c_str(), what);
  };
  if (comm.destroyed)
    return invalid("the communicator was destroyed");
  if (r.kind == Kind::Barrier) {
    r.dtype = DType::Invalid;
    r.chunk = 0;
  } else if (element == 0) {
    return invalid("unknown dtype");
  }
  if (element && r.chunk % element != 0)
    return invalid("the size is not a multiple of the element's");
  bool reducing = r.kind == Kind::AllReduce || r.kind == Kind::ReduceScatter ||
                  r.kind == Kind::Reduce;
  op.reduce = nullptr;
  if (reducing) {
    auto key = uint32_t(r.dtype) << 8 | uint32_t(r.reduction);
    if (comm.reduceKey != key) {
      const Arithmetic &arithmetic = *comm.context->arithmetic;
      comm.reduceKey = key;
      comm.reduce = arithmetic.reduce(r.dtype, r.reduction);
      comm.reduceStored = arithmetic.store(r.dtype, r.reduction);
      comm.reduceStreamed = arithmetic.stream(r.dtype, r.reduction);
    }
    op.reduce = comm.reduce;
    op.reduceStored = comm.reduceStored;
    op.reduceStreamed = comm.reduceStreamed;
    if (!op.reduce)
      return invalid("this dtype does not have this reduction");
  } else {
    r.reduction = Reduction::None;
  }
  bool rooted = r.kind == Kind::Broadcast || r.kind == Kind::Reduce ||
                r.kind == Kind::Gather || r.kind == Kind::Scatter ||
                r.kind == Kind::Send || r.kind == Kind::Recv ||
                r.kind == Kind::RoundDecision;
  if (rooted && (r.root < 0 || r.root >= comm.size))
    return invalid("root or peer is not a member");
  if (!rooted)
    r.root = -1;
  uint64_t size = uint64_t(comm.size), total;
  if (__builtin_mul_overflow(r.chunk, size, &total) || total > uint64_t(1)
                                                                   << 56)
    return invalid("the count is impossible");

  uint64_t hash = 0;
  if (uneven(r)) {
    for (const uint64_t *list : {r.send, r.receive})
      for (int i = 0; list && i < comm.size; ++i)
        if (list[i] % element || list[i] > uint64_t(1) << 50)
          return invalid("a count is impossible");
    if (r.kind != Kind::AllToAll)
      hash = hashBytes(r.receive, sizeof(uint64_t) * size);
  }
  if (r.kind == Kind::Permute) {
    uint64_t targets = 0;
    for (uint32_t i = 0; i < r.numPairs; ++i) {
      auto [from, to] = r.pairs[i];
      if (from < 0 || from >= comm.size || to < 0 || to >= comm.size)
        return invalid("a pair names a rank that is not a member");
      if (targets >> to & 1)
        return invalid("a rank is the target of two pairs");
      targets |= uint64_t(1) << to;
    }
    r.root = int32_t(hashBytes(r.pairs, sizeof(*r.pairs) * r.numPairs) & 63);
  }

  bool message = r.kind == Kind::Send || r.kind == Kind::Recv;
  for (bool input : {true, false}) {
    if (r.kind == Kind::Barrier || (message && input != (r.kind == Kind::Send)))
      continue;
    const concord_buffer &b = input ? r.in : r.out;
    if (!message && !uses(op, comm.me, input))
      continue;
    bool empty = uneven(r) && chunked(r.kind, input) ? extent(op, input) == 0
                                                     : r.chunk == 0;
    if (uneven(r) && !chunked(r.kind, input))
      empty = r.receive[comm.me] == 0;
    if (empty)
      continue;
    if (!b.base)
      return invalid(input ? "input is null" : "output is null");
    if (b.outer > 1 && (b.inner_bytes % element || b.stride_bytes % element))
      return invalid("rows are not whole elements");
    if (uneven(r) ? b.outer > 1 : b.outer * b.inner_bytes != r.chunk)
      return invalid("the buffer's layout does not match the count");
  }
  if (!message && r.kind != Kind::Barrier && uses(op, comm.me, true) &&
      uses(op, comm.me, false) && r.in.outer <= 1 && r.out.outer <= 1) {
    const char *in = static_cast<const char *>(r.in.base);
    const char *out = static_cast<const char *>(r.out.base);
    uint64_t inBytes = extent(op, true), outBytes = extent(op, false);
    const char *inPlace = out;
    uint64_t before = uneven(r) ? (r.receive ? sum(r.receive, comm.me) : 0)
                                : r.chunk * comm.me;
    bool same = in == out;
    if (r.kind == Kind::AllGather || r.kind == Kind::Gather)
      same = in == inPlace + before;
    else if (r.kind == Kind::ReduceScatter || r.kind == Kind::Scatter)
      same = out == in + before;
    if (!same && inBytes && outBytes && in < out + outBytes &&
        out < in + inBytes)
      return invalid("input and output overlap without being in place");
    if (same && inBytes && r.kind == Kind::AllToAll && uneven(r))
      return invalid("an uneven exchange cannot be done in place");
  }

  uint64_t count = element ? r.chunk / element : 0;
  op.fingerprint = uint64_t(r.kind) | uint64_t(r.dtype) << 4 |
                   uint64_t(r.reduction) << 8 | uint64_t(r.root + 1) << 11 |
                   (uneven(r) ? hash : count) << 18;
  if (message) // both sides say the same: dtype and count
    op.fingerprint = uint64_t(r.dtype) << 4 | count << 18;
  uint64_t payload = chunked(r.kind, true) ? total : r.chunk;
  op.payload = payload;
  if (comm.span)
    return prepareSpan(op);
  op.form = comm.context->scores.empty()
                ? Form::Automatic
                : chooseForm(comm.context->scores, r.kind, payload);
  // Where data goes one way, who sends does not wait for those who take.
  bool oneWay = r.kind == Kind::Broadcast || r.kind == Kind::Reduce ||
                r.kind == Kind::Gather || r.kind == Kind::Scatter;
  uint64_t inlineLimit = oneWay ? kFlatMost : kInlineLimit;
  if (op.form == Form::Flat)
    inlineLimit = kFlatMost;
  else if (op.form != Form::Automatic)
    inlineLimit = 0;
  op.inlined = !uneven(r) && payload <= inlineLimit;
  if (message || op.inlined || comm.size == 1)
    return CONCORD_OK;
  // Staging is made at the first operation that needs it, not in every step.
  Segment &segment = *comm.context->segment;
  auto foreign = [&](bool input) {
    return (input ? inputIsRemote(r.kind) : outputIsRemote(r.kind)) &&
           uses(op, comm.me, input) &&
           segment.offsetOf((input ? r.in : r.out).base, extent(op, input)) ==
               kStaged;
  };
  // Fetching for a reduction needs it whether or not this member is in the
  // heap.
  if (!comm.staging &&
      (op.form == Form::SingleCopy || comm.context->stageAlways || copies(r) ||
       foreign(true) || foreign(false))) {
    comm.staging = comm.context->heap.allocate(2 * kStagingHalf, 4096);
    if (!comm.staging)
      return fail(CONCORD_ERROR_OUT_OF_MEMORY,
                  "%s on '%s': the heap has no room for staging",
                  kindName(r.kind), comm.name.c_str());
    comm.stagingBytes = 2 * kStagingHalf;
  }
  return CONCORD_OK;
}

/// Keep how it was done, for concord_comm_last_form.
static void noteForm(const Op &op) {
  bool inSlots = op.inlined || op.flat;
  op.comm->last = {op.request.kind,
                   inSlots        ? Form::Flat
                   : op.claimed   ? Form::Claimed
                   : op.across    ? Form::SingleCopy
                   : op.anyStaged ? Form::Staged
                                  : Form::Direct,
                   op.payload,
                   op.form != Form::Automatic,
                   op.inlined,
                   op.across || op.anyStaged,
                   op.cold,
                   op.streamed,
                   op.shared,
                   op.exchange,
                   op.comm->context->oversubscribed};
}

std::string concord::rt::formOf(const Comm &comm) {
  const LastForm &last = comm.last;
  std::string text = std::string(kindName(last.kind)) + " of " +
                     std::to_string(last.bytes) + " B: " + formText(last.form) +
                     " (" + formMeaning(last.form) + "), because ";
  if (last.hosts)
    return text + "the members are on several hosts" +
           (last.byHosts ? ", and what several of a host need goes there once"
                         : "") +
           (last.inlined ? ", and up to " + std::to_string(kSpanInline) +
                               " B travel in the headers"
                         : "");
  if (last.asked)
    return text + "CONCORD_ALGORITHM says so";
  switch (last.form) {
  case Form::Flat:
    if (last.inlined)
      return text + "up to " + std::to_string(kInlineLimit) + " B, or " +
             std::to_string(kFlatMost) +
             " B where data goes one way, the copy costs less than a second "
             "round of flags";
    return text +
           "the buffers are not in the caches or not in the heap, and "
           "up to " +
           std::to_string(kFlatMost) +
           " B copies cost less than misses on "
           "peers' pages";
  case Form::Claimed:
    text += "all operands are in the heap, and ranks outnumber cores: nobody "
            "has to run once more for its share";
    if (last.streamed)
      text += "; stores go past the caches";
    return text;
  case Form::Staged:
    return text + "an operand of some member is outside the heap";
  case Form::SingleCopy:
    return text +
           "operands are outside the heap and at least "
           "CONCORD_SINGLE_COPY = " +
           std::to_string(comm.context->singleCopy) + " B per peer";
  default:
    text += "all operands are in the heap";
    if (last.exchange)
      text += "; blocks change places, as all members work in place";
    if (last.shared)
      text += "; every member carries a share, so that each byte is read once";
    if (last.streamed)
      text += "; stores go past the caches, as more than the last-level cache "
              "(" +
              std::to_string(comm.context->cacheBytes) +
              " B) has moved since the output was last written";
    return text;
  }
}

/// As far as it goes.
static Progress advanceSteps(Op &op, uint64_t quantum) {
  Comm &comm = *op.comm;
  if (comm.span)
    return advanceSpan(op, quantum);
  for (;;) {
    switch (op.state) {
    case Op::State::Queued:
      op.sequence = ++comm.sequence;
      op.seen = 0;
      op.state = Op::State::Publish;
      [[fallthrough]];
    case Op::State::Publish:
      // The slot may still hold operation sequence - kSlots.
      if (uint64_t least = published(op); comm.known < least) {
        for (; op.seen < comm.size; ++op.seen)
          if (op.seen != comm.me &&
              comm.block.members[op.seen].slot(least).sequence.load(
                  std::memory_order_acquire) < least)
            return Progress::Blocked;
        comm.known = least;
        op.seen = 0;
      }
      if (comm.size > 1)
        publish(op);
      else if (op.inlined)
        packInline(op, comm.block.members[0].slot(op.sequence).payload +
                           inlineOffset(op));
      op.state = Op::State::Gather;
      [[fallthrough]];
    case Op::State::Gather: {
      for (; op.seen < comm.size; ++op.seen) {
        if (op.seen == comm.me || !needs(op, op.seen))
          continue;
        Slot &slot = comm.block.members[op.seen].slot(op.sequence);
        if (slot.sequence.load(std::memory_order_acquire) < op.sequence)
          return Progress::Blocked;
        if (slot.fingerprint != op.fingerprint &&
            comm.context->gateMode >= CONCORD_GATE_CHECK) {
          fail(CONCORD_ERROR_MISMATCH, "%s: rank %d issued %s, but rank %d %s",
               describe(op).c_str(), comm.ranks[comm.me],
               fingerprintText(op.fingerprint).c_str(), comm.ranks[op.seen],
               fingerprintText(slot.fingerprint).c_str());
          breakComm(op, CONCORD_ERROR_MISMATCH);
          return Progress::Done;
        }
      }
      op.seen = 0;
      if (symmetric(op))
        comm.known = op.sequence;
      if (op.inlined) {
        finishInline(op, inlineOffset(op));
        if (symmetric(op) && comm.size > 1)
          claimNextSlot(comm, op.sequence, 16 + inlineOffset(op) + op.payload);
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      if (comm.size > 1 && allFlat(op)) {
        finishInline(op, kFlatOffset);
        claimNextSlot(comm, op.sequence, 16 + kFlatOffset + op.payload);
        op.flat = true;
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      op.claimed = allClaim(op);
      if (op.claimed) {
        op.claimsEnd = comm.claims + numPieces(op);
        // Late, and others have done it all.
        if (claimsFinished(op)) {
          op.state = Op::State::Settle;
          continue;
        }
      }
      if (comm.size == 1) {
        openLocal(op);
      } else if (!openViews(op)) {
        return Progress::Done;
      }
      // What goes through staging memory is always stored past the caches when
      // it is long: a line that one core has written and another has read makes
      // the next store to it wait for the other core, where these do not share
      // a cache, six times as long as for memory.
      op.streamed =
          !op.across && (op.anyStaged ? op.part * chunksOf(op) >= kStreamLeast
                                      : op.cold || op.shared);
      if (op.claimed) {
        // Whoever works stores to all.
        for (int member = 0; member < comm.size; ++member)
          op.streamed |= wireOf(comm, member, op.sequence).cold != 0;
        op.state = Op::State::Work;
        continue;
      }
      op.state = Op::State::CopyIn;
      [[fallthrough]];
    }
    case Op::State::CopyIn:
      beginSegment(op);
      if (op.anyStaged) {
        copyStaged(op, true);
        if (op.streamed)
          streamFence();
        publishTick(comm);
      }
      op.state = Op::State::Staged;
      [[fallthrough]];
    case Op::State::Staged:
      if (op.anyStaged && !ticksReady(op))
        return Progress::Blocked;
      op.state = Op::State::Work;
      [[fallthrough]];
    case Op::State::Work:
      if (op.claimed) {
        Progress result = workClaimed(op, quantum);
        if (result != Progress::Blocked)
          return result;
        op.state = Op::State::Settle;
        continue;
      }
      if (op.across) {
        Progress result = workAcross(op, quantum);
        if (result != Progress::Done)
          return result;
        if (op.state == Op::State::Done)
          return Progress::Done; // broken
      } else if (!workDirect(op, quantum)) {
        return Progress::Advanced;
      }
      if (op.streamed)
        streamFence();
      if (comm.size > 1)
        publishTick(comm);
      op.state = Op::State::Settle;
      [[fallthrough]];
    case Op::State::Settle:
      if (op.claimed) {
        if (!claimsFinished(op))
          return Progress::Blocked;
        comm.claims = op.claimsEnd;
        claimNextSlot(comm, op.sequence, 128);
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      if (comm.size > 1 && !ticksReady(op))
        return Progress::Blocked;
      if (op.anyStaged)
        copyStaged(op, false);
      op.segment += op.segmentBytes;
      if (op.segment >= op.part) {
        if (comm.size > 1)
          claimNextSlot(comm, op.sequence, 128);
        noteForm(op);
        op.state = Op::State::Done;
        return Progress::Done;
      }
      op.state = Op::State::CopyIn;
      continue;
    default:
      return Progress::Done;
    }
  }
}

Progress concord::rt::advanceCollective(Op &op, uint64_t quantum) {
  if (op.fused)
    return advanceFused(op);
  Op::State state = op.state;
  uint64_t segment = op.segment;
  Progress result = advanceSteps(op, quantum);
  // It waits, but for something else than before: that is a new wait, and not
  // the more patient for the former ones.
  if (result == Progress::Blocked &&
      (op.state != state || op.segment != segment))
    return Progress::Advanced;
  return result;
}

uint64_t concord::rt::missingMembers(const Op &op) {
  if (op.fused)
    return missingFused(op);
  const Comm &comm = *op.comm;
  if (comm.span)
    return missingSpan(op);
  uint64_t mask = 0;
  for (int r = 0; r < comm.size; ++r) {
    if (r == comm.me)
      continue;
    const Member &member = comm.block.members[r];
    bool late = false;
    switch (op.state) {
    case Op::State::Publish:
      late = member.slot(published(op)).sequence.load() < published(op);
      break;
    case Op::State::Gather:
      late = needs(op, r) &&
             member.slot(op.sequence).sequence.load() < op.sequence;
      break;
    case Op::State::Settle:
      if (op.claimed) {
        late = member.holding.load() != 0;
        break;
      }
      [[fallthrough]];
    case Op::State::Staged:
      late = member.tick.load() < comm.tick;
      break;
    default:
      break;
    }
    mask |= uint64_t(late) << r;
  }
  // A piece may be taken and not be anybody's yet.
  if (op.claimed && op.state == Op::State::Settle && !mask)
    for (int r = 0; r < comm.size; ++r)
      mask |= uint64_t(r != comm.me) << r;
  return mask;
}

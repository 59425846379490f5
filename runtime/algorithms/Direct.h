//===- Direct.h - Who moves which bytes -------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The data movement of collectives over views of the members' operands, without
// any waiting: that is the state machine's part (engine/Collective.cpp).
//
// Reductions take the members in group order, so every member gets the same
// bits in every run. Bytes moved per member for S bytes and p members:
// all_reduce 2S, reduce_scatter and all_gather S(1 + 1/p), all_to_all 2S; these
// are the lower bounds.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_DIRECT_H
#define CONCORD_RUNTIME_ALGORITHMS_DIRECT_H

#include "context/Context.h"

namespace concord::rt {

/// True when the operand has one chunk per member.
inline bool chunked(Kind kind, bool input) {
  if (input)
    return kind == Kind::ReduceScatter || kind == Kind::AllToAll ||
           kind == Kind::Scatter;
  return kind == Kind::AllGather || kind == Kind::AllToAll ||
         kind == Kind::Gather;
}

/// True when other members read this input.
inline bool inputIsRemote(Kind kind) {
  return kind != Kind::AllGather && kind != Kind::Gather;
}
/// True when other members write this output; of a broadcast only when the
/// work is shared (Op::shared).
inline bool outputIsRemote(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::AllGather ||
         kind == Kind::Reduce || kind == Kind::Gather;
}

inline bool uneven(const OpRequest &request) { return request.receive; }

/// True when `member`'s input or output takes part.
inline bool uses(const Op &op, int member, bool input) {
  switch (op.request.kind) {
  case Kind::Broadcast:
  case Kind::RoundDecision:
  case Kind::Scatter:
    return !input || member == op.request.root;
  case Kind::Reduce:
  case Kind::Gather:
    return input || member == op.request.root;
  case Kind::Barrier:
    return false;
  default:
    return true;
  }
}

/// Begin of the share of member r when `bytes` are divided: whole cache lines,
/// so that no two members write to one.
inline uint64_t shareBegin(uint64_t bytes, int r, int size) {
  uint64_t begin = (bytes / uint64_t(size) * uint64_t(r) + 63) / 64 * 64;
  return r == size || begin > bytes ? bytes : begin;
}

/// Of a staged operand, no other member touches one part: the share or chunk
/// that this member works on. That part stays where it is.
inline bool keepsOwnPart(Kind kind, bool input) {
  return kind == Kind::AllReduce ||
         (input ? kind == Kind::ReduceScatter || kind == Kind::AllToAll
                : kind == Kind::AllGather);
}

/// all_reduce of two: array up to which each of them computes all of its own
/// output. That is half as much again to load and store, but nobody waits for
/// the other's stores to arrive.
constexpr uint64_t kOwnResult = uint64_t(16) << 10;
/// broadcast: array from which members whose outputs have left the caches share
/// the work.
constexpr uint64_t kShareLeast = uint64_t(16) << 10;

/// Bytes of chunk c of this member's input or output.
uint64_t chunkBytes(const Op &op, bool input, int c);

/// Copy `bytes` linear bytes between views, beginning at their segment's start;
/// the offsets lead to the chunk. With `spread`, past the caches.
void copyLinear(const View &to, uint64_t toOffset, const View &from,
                uint64_t fromOffset, uint64_t bytes,
                SpreadFunction spread = nullptr);

/// Payload from which it may go into a slot past the caches (Packing.h).
constexpr uint64_t kPackPast = 2048;
bool packsPast(const Op &op);
/// True of operations in which all members store for others and read from them.
bool allExchange(Kind kind);

/// Fill a slot's payload with this member's input.
void packInline(Op &op, unsigned char *payload);
/// Compute this member's output from the payloads of all slots, which begin
/// `offset` bytes behind the slots' own.
void finishInline(Op &op, uint64_t offset);
/// The same from payloads that lie elsewhere, by member.
void finishFrom(const Op &op, const unsigned char *const *payloads);

/// Do, or get ready, what needs nothing of a peer; sets op.ownDone when this
/// member's chunk has gone to its own output.
void workOwn(Op &op);

/// Views of a group of one: its own operands, wherever they lie.
void openLocal(Op &op);
/// Begin with this member's share of the segment.
void beginSegment(Op &op);
/// Do up to `quantum` bytes of this member's share. True when it is done.
bool workDirect(Op &op, uint64_t quantum);
/// The pieces into which a claimed operation is divided, the same at all
/// members; 0 when the kind is not divided in this way.
uint64_t numPieces(const Op &op);
/// Do one of them, whosever share it is in. The bytes that were moved.
uint64_t workPiece(const Op &op, uint64_t piece);
/// The same where views may lie in other processes (View::process): 1 done, 0
/// not yet, -1 an error (errno) with the member `failed`.
int moveAcross(Op &op, uint64_t quantum, int &failed);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_DIRECT_H

//===- Operands.h - Where the members' operands lie -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What members tell each other of their operands through the slots, and the
// views of all members that come of it. The protocol of slots is described in
// transport/shm/CommBlock.h.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_OPERANDS_H
#define CONCORD_RUNTIME_ENGINE_OPERANDS_H

#include "algorithms/Direct.h"

namespace concord::rt {

constexpr uint64_t kStaged = ~uint64_t(0);
/// Payload up to which slots carry the data; found by comm-bench.
constexpr uint64_t kInlineLimit = 1024;
constexpr uint64_t kStagingHalf = uint64_t(512) << 10;

/// Output below which stores always go through the caches: the drain at the end
/// costs more than it saves.
constexpr uint64_t kStreamLeast = 2048;

/// What a member says of an operation that is not carried in the slots. On the
/// line of the flag, so that one transfer between cores brings both.
struct Wire {
  enum : uint32_t {
    Dense = 1,     ///< both operands in one piece, chunks all alike: no Layout
    Cold = 2,      ///< its output is not in the caches
    Copies = 4,    ///< writes in place what others have to read
    Across = 8,    ///< peers may copy from and to its addresses
    Flat = 16,     ///< its input follows, at kFlatOffset
    Claims = 32,   ///< both operands are in the heap, anyone may do the work
    Outside = 64,  ///< an operand that peers touch, or may, is not in the heap
    InPlace = 128, ///< its output is its input
  };
  uint64_t in, out;     ///< kStaged, or where they lie in the heaps
  uint64_t staging;     ///< of the two halves; kStaged when there is none
  uint64_t longest;     ///< bytes of the longest chunk
  uint32_t stagingHalf; ///< bytes of a half
  uint32_t flags;
  bool is(uint32_t flag) const { return flags & flag; }
};
static_assert(offsetof(Slot, payload) + sizeof(Wire) <= 64);

struct OperandLayout {
  uint64_t outer, inner, stride;
};
/// What else there is to say, on the lines after it.
struct Layout {
  OperandLayout in, out;
  uint64_t inAddress, outAddress; ///< in its own process
  /// Uneven all_to_all: per member, displacement and bytes of what it is sent.
  uint64_t sendDisplacement[kMaxRanks], sendBytes[kMaxRanks];
};
constexpr uint64_t kLayoutOffset = 64 - offsetof(Slot, payload);
static_assert(kLayoutOffset + sizeof(Layout) <= kSlotPayload);
/// Where an even operation's Layout has ended.
constexpr uint64_t kFlatOffset = 128 - offsetof(Slot, payload);
static_assert(kLayoutOffset + offsetof(Layout, sendDisplacement) <=
              kFlatOffset);
/// Payload up to which operands outside the heap are copied into the slots: one
/// copy and one round of flags less than through staging memory.
constexpr uint64_t kFlatLimit = kFlatMost;
static_assert(kFlatOffset + kFlatLimit <= kSlotPayload);

inline Wire &wireOf(const Comm &comm, int member, uint64_t sequence) {
  return *reinterpret_cast<Wire *>(
      comm.block.members[member].slot(sequence).payload);
}
inline Layout &layoutOf(const Comm &comm, int member, uint64_t sequence) {
  return *reinterpret_cast<Layout *>(
      comm.block.members[member].slot(sequence).payload + kLayoutOffset);
}

inline uint64_t rowEnd(const concord_buffer &buffer, uint64_t chunks) {
  if (buffer.outer == 1)
    return buffer.inner_bytes * chunks;
  return buffer.outer == 0 ? 0
                           : (buffer.outer - 1) * buffer.stride_bytes +
                                 buffer.inner_bytes * chunks;
}

inline uint64_t sum(const uint64_t *values, int n) {
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
inline uint64_t chunksOf(const Op &op) {
  Kind kind = op.request.kind;
  return chunked(kind, true) || chunked(kind, false) ? uint64_t(op.comm->size)
                                                     : 1;
}

/// True when this member writes in place what others have to read.
inline bool copies(const OpRequest &r) {
  return (r.kind == Kind::AllToAll || r.kind == Kind::Permute) &&
         r.in.base == r.out.base;
}

/// Put into the slot what peers have to know of an operation that it does not
/// carry, but for the line of the flag, which is returned.
Wire describeOperands(Op &op);
/// Build the views of all members from their slots. False after breakComm.
bool openViews(Op &op);
/// Copy this member's staged operand between its own memory and the staging.
/// Returns how many bytes that were.
uint64_t copyStaged(Op &op, bool input);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_OPERANDS_H

//===- Op.h - One operation in flight ---------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The state of a resumable collective or message. Everything it needs is in the
// object or in its communicator, so that advancing it never allocates.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_OP_H
#define CONCORD_RUNTIME_ENGINE_OP_H

#include "algorithms/Reduce.h"
#include "algorithms/Score.h"
#include "concord/concord.h"
#include "concord/issuelog.h"
#include "concord/plan.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <vector>

namespace concord::rt {

class Packing;

using plan::Kind;
using plan::Reduction;

/// Elements in `bytes`, which are whole ones. Sizes are powers of two: a
/// division takes longer than the copy of a small operation.
constexpr uint64_t elementsIn(DType type, uint64_t bytes) {
  size_t size = dtypeSize(type);
  return size ? bytes >> std::countr_zero(size) : 0;
}

/// What one member wants done. Sizes are in bytes.
struct OpRequest {
  Kind kind = Kind::Barrier;
  Reduction reduction = Reduction::None;
  DType dtype = DType::Invalid;
  int32_t root = -1;  ///< root, or the peer of send and recv
  uint64_t chunk = 0; ///< bytes of the logical array per member (plan.h: count)
  concord_buffer in = {};
  concord_buffer out = {};
  /// For the uneven kinds, bytes per member; null otherwise. all_to_all: what
  /// is sent and received; all_gather and reduce_scatter use `receive` only.
  const uint64_t *send = nullptr;
  const uint64_t *receive = nullptr;
  const std::array<int32_t, 2> *pairs = nullptr;
  uint32_t numPairs = 0;
  uint32_t site = ~0u;
  const char *location = "";
};

/// Where one member's operand lies in this process. Chunk c of row r begins at
/// base + r * stride + c * pitch.
struct View {
  char *base = nullptr;
  uint64_t outer = 1;
  uint64_t inner = 0;
  uint64_t stride = 0;
  uint64_t pitch = 0;
  uint64_t start = 0; ///< linear byte, within a chunk, where the segment begins
  bool staged = false; ///< lies in staging memory
  int32_t process = 0; ///< lies in the memory of this one only, base there
};

struct Fused;

struct Op {
  OpRequest request;
  uint64_t number = 0;   ///< of the issue on this rank, from 1
  uint64_t instance = 0; ///< of the collective on its communicator; known
                         ///< before it starts, unlike `sequence`
  uint64_t launch = 0;   ///< number of the first issue that starts with it
  issuelog::Record *record = nullptr; ///< in the issue log, or null
  bool admitted = false;              ///< holds a slot of the device
  Fused *fused = nullptr; ///< its work is done by a kernel, see Fused.h
  concord_comm *comm = nullptr;
  ReduceFunction reduce = nullptr;
  StoreFunction reduceStored = nullptr, reduceStreamed = nullptr;
  uint64_t sequence = 0;
  uint64_t fingerprint = 0;
  uint64_t payload = 0; ///< bytes of this member's input

  enum class State : uint8_t {
    Idle,     ///< not in use
    Queued,   ///< waits for its turn on its communicator or stream
    Publish,  ///< about to fill the slot
    Gather,   ///< waits for all slots
    CopyIn,   ///< stages this member's input
    Staged,   ///< waits for all to have staged
    Work,     ///< moves data
    Settle,   ///< waits for all to have worked
    Message,  ///< point-to-point, see P2p.cpp
    Children, ///< a group: waits for its members
    Done,
  };
  State state = State::Idle;
  Form form = Form::Automatic; ///< that the user asks for
  bool measured = false;       ///< a calibration decided about the slots
  bool askedFor = false;       ///< between hosts, `form` is what was asked for
  bool inlined = false;        ///< payload travels in the slots
  bool anyStaged = false;      ///< some member's buffer is not in the heap
  bool flat = false;           ///< slots carry copies, as buffers are cold
  bool cold = false;           ///< this member's output is not in the caches
  bool streamed = false;       ///< stores go past the caches
  bool shared = false;    ///< broadcast: every member carries a share to all
  bool across = false;    ///< copies go straight from process to process
  bool exchange = false;  ///< all_to_all: in place at all members
  bool ownDone = false;   ///< what needs no peer was done before the gather
  bool ownResult = false; ///< all_reduce: every member computes all of its own
                          ///< output, and stores to no other's
  bool claimed = false;   ///< whoever runs takes the next piece of the work
  bool busy = false;      ///< inside a kernel's step
  /// Of the members that have published: what all and what any of them say
  /// (Wire::flags).
  uint32_t allSay = 0, anySays = 0;
  int32_t status = 0;
  /// Who is to be told what packing or staging takes, or null; what it has
  /// taken so far, in ns.
  Packing *timed = nullptr;
  int64_t spent = 0;

  uint64_t segment = 0;      ///< first byte, within a chunk, of this segment
  uint64_t segmentBytes = 0; ///< its length
  uint64_t position = 0;     ///< progress of Work
  int peerIndex = 0;         ///< progress of Work over peers
  int seen = 0;              ///< members found ready so far
  /// While blocked: what has to reach `watched`, or null.
  const std::atomic<uint64_t> *watch = nullptr;
  uint64_t watched = 0;
  uint64_t claimsEnd = 0; ///< claimed: the count at which it is finished
  uint64_t ticket = 0;    ///< point-to-point: number of the message
  uint64_t part = 0;      ///< point-to-point: number of the part in flight
  uint64_t partBytes = 0;
  char *bounce = nullptr; ///< point-to-point: staging of a foreign source
  uint64_t bounceBytes = 0;

  Op *nextInComm = nullptr;
  Op *nextInStream = nullptr;
  concord_stream *stream = nullptr;
  Op *parent = nullptr;
  uint32_t pendingChildren = 0;
  std::vector<Op *> children;
  bool pooled = false;    ///< goes back to the context's pool when done
  bool started = false;   ///< a group: its members may run
  bool eventWait = false; ///< a stream's wait for an event
  concord_stream *waitStream = nullptr; ///< that stream, null once it happened
  uint64_t waitTicket = 0;

  // Copies of a caller's arrays, for operations that outlive the call.
  std::vector<uint64_t> counts;
  std::vector<std::array<int32_t, 2>> pairCopy;

  void reset() {
    state = State::Idle;
    inlined = flat = anyStaged = cold = streamed = shared = exchange = across =
        claimed = ownDone = ownResult = started = false;
    admitted = false;
    launch = 0;
    record = nullptr;
    status = 0;
    segment = segmentBytes = position = 0;
    peerIndex = seen = 0;
    nextInComm = nextInStream = nullptr;
    stream = nullptr;
    parent = nullptr;
    pendingChildren = 0;
    children.clear();
    eventWait = false;
    waitStream = nullptr;
  }
};

/// What was found out about a communicator's last operation: the next one is
/// mostly like it, and a small one lasts no longer than finding it out.
struct Prepared {
  Kind kind = Kind::Barrier;
  Reduction reduction = Reduction::None;
  DType dtype = DType::Invalid;
  int32_t root = -1;
  uint64_t chunk = ~uint64_t(0); ///< this: there is none
  uint64_t fingerprint = 0, payload = 0;
  bool measured = false, inlined = false;
  bool usesIn = false, usesOut = false;
  uint64_t inBytes = 0, outBytes = 0;
  int64_t inPlace = 0; ///< output minus input when it works in place
};

/// What a call asks for, but for addresses.
struct Asked {
  Kind kind = Kind::Group; ///< of no call: there is none
  int32_t dtype = 0, reduction = 0, root = 0;
  uint64_t count = 0;
  bool operator==(const Asked &) const = default;
};

/// How the last collective of a communicator was done, for explanations.
struct LastForm {
  Kind kind = Kind::Barrier;
  Form form = Form::Automatic;
  uint64_t bytes = 0;           ///< of this member's input
  Form asked = Form::Automatic; ///< by CONCORD_ALGORITHM
  bool measured = false;        ///< by CONCORD_CALIBRATION
  bool inlined = false, foreign = false, cold = false, streamed = false;
  bool shared = false, exchange = false, outnumbered = false;
  bool hosts = false;   ///< between hosts
  uint64_t whole = 0;   ///< bytes of the whole array
  bool divides = false; ///< hosts may reduce their own members' inputs first
};

const char *kindName(Kind kind);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_OP_H

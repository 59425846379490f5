//===- Span.h - Communicators that span hosts -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Collectives and messages of a communicator whose members are on several
// hosts. To the queues, the order, the fingerprints and the watchdog they are
// operations like any other; members of one host meet in the heap, those of
// different hosts over the transport (transport/Transport.h).
//
// Headers. Members of a host hear each other by their slots. The first member
// of each host, its *leader*, then tells the other leaders that all of its host
// have come, with what, and what is small enough of their payloads; it passes
// on what it has heard (Bruck's all-gather: after round k a leader knows of 2^k
// hosts), so an operation has H ceil(log2 H) headers for H hosts, however many
// members there are. Then it ticks, and the others of its host read the headers
// in its memory (engine/SpanHeads.cpp).
//
// What does not travel with the headers goes by segments through memory of the
// communicator, which is made with it, in one of two ways. *Direct*
// (engine/SpanForms.cpp): every member exchanges with every remote one, and
// reductions take the members in group order, so the bits are those of one
// host. *By rounds* (engine/SpanRounds.cpp): what is needed twice on a host
// goes there once. The array is divided into lanes; each lane has an agent on
// every host, which reduces, or collects, the inputs of its host and exchanges
// with the lane's other agents by a schedule (algorithms/Rounds.h); the members
// of its host take the result from its memory. Reductions then take the members
// within a host in group order, and the hosts, numbered by their first members,
// in the schedule's order: all members have the same bits, in every run.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_SPAN_H
#define CONCORD_RUNTIME_ENGINE_SPAN_H

#include "engine/Engine.h"
#include "transport/Hosts.h"

namespace concord::rt {

/// Payload of one member that travels in the headers, at most, and of all.
constexpr uint64_t kSpanInline = 4096;
constexpr uint64_t kSpanRoom = uint64_t(32) << 10;

/// Of one host, to the others; the payloads of its members follow.
struct SpanHeader {
  uint64_t sequence;
  uint64_t fingerprint;
  uint64_t area;    ///< least bytes of an area of its members (see Span::area)
  uint64_t longest; ///< bytes of the longest chunk that they know of
  uint64_t payload; ///< bytes that follow
  uint64_t reserved[3];
};
static_assert(sizeof(SpanHeader) == 64);

/// Of the headers of all hosts. Twice, so that those of an operation that does
/// not fit the own one are received whole.
constexpr uint64_t headBytes(int hosts) {
  return 2 * (uint64_t(hosts) * sizeof(SpanHeader) + kSpanRoom);
}

/// What members of one host say in their slots; a payload follows, at
/// kSpanPayload: what is inlined, or of an uneven all_to_all the bytes for each
/// member.
struct SpanWire {
  uint64_t memory; ///< Span::memory, in the heaps
  uint64_t area, longest, reserved;
};
constexpr uint64_t kSpanPayload = 64 - offsetof(Slot, payload);
static_assert(sizeof(SpanWire) <= kSpanPayload &&
              kSpanPayload + kSpanInline <= kSlotPayload &&
              kSpanPayload + 8 * kMaxRanks <= kSlotPayload &&
              8 * kMaxRanks * kMaxRanks <= kSpanRoom);

/// One direction of the messages with one remote member.
struct SpanChannel {
  char *memory = nullptr; ///< two parts
  concord_transport_request requests[2] = {};
};

struct Span {
  explicit Span(Comm &comm) : comm(comm) {}

  enum class Step : uint8_t {
    Connect, ///< waits for the remote members' tags
    Slots,   ///< waits for the slots of this host
    Heads,   ///< the leader: exchanges headers
    Told,    ///< the others: wait for the leader
    CopyIn,  ///< copies the own input to where others read or receive it from
    Inputs,  ///< direct: waits for what it needs of the others' inputs
    Work,    ///< direct: reduces or copies
    Results, ///< direct: waits for the others' results
    Collect, ///< an agent: reduces or copies what its host has for its lane
    Rounds,  ///< an agent: exchanges with the others of its lane
    Divide,  ///< an agent: makes averages of sums
    Shared,  ///< waits until the others of this host have their results
    TakeOut, ///< copies them out
    Release, ///< waits until all have read what they need
  };

  Comm &comm;
  std::vector<int> local;   ///< other members on this host
  std::vector<int> remote;  ///< members on other hosts
  uint64_t remoteRanks = 0; ///< world ranks of those
  uint32_t tag = 0;         ///< that others send with; messages: the next one
  std::vector<uint32_t> peerTags; ///< by member
  bool connected = false;

  /// Members by host, in group order; hosts in the order of their first ones.
  std::vector<std::vector<int>> onHost;
  std::vector<int> hostOf, placeOnHost; ///< by member
  int host = 0;                         ///< this one
  int fullest = 1, emptiest = 1;        ///< members on a host
  int numHosts() const { return int(onHost.size()); }
  int leader(int host) const { return onHost[size_t(host)].front(); }
  bool leads() const { return leader(host) == comm.me; }
  int next(int steps) const { return (host + steps + numHosts()) % numHosts(); }

  /// Bytes of one area. There are three, with some room behind each: the own
  /// input and the own result, which members of this host read in place, and
  /// what comes from other hosts.
  uint64_t area = 0;
  char *memory = nullptr;
  uint64_t memoryAt = 0;               ///< in the heaps
  std::vector<char *> inputs, results; ///< of those on this host

  /// Headers, by the parity of the sequence: the leader's memory, this member's
  /// or another one's of this host. Of the hosts this one, the one before, ...
  char *heads[2] = {};
  std::vector<uint64_t> headAt; ///< where each begins; the end
  int headRound = 0;
  bool headPosted = false;

  /// Of the operation in flight, by rounds.
  bool byRounds = false;
  int lanes = 1;
  bool agent() const { return placeOnHost[size_t(comm.me)] < lanes; }
  int lane() const { return placeOnHost[size_t(comm.me)] % lanes; }
  ReduceFunction partial = nullptr; ///< for sums that others add to
  std::vector<Transfer> rounds;
  size_t nextTransfer = 0, roundEnd = 0;
  bool posted = false;
  /// Of the segment: where the blocks of the own lane begin, by host, and
  /// where each member's chunk lies in its lane.
  std::vector<uint64_t> blockAt, chunkAt;

  Step step = Step::Connect;
  std::vector<concord_transport_request> headerSends[2], headerReceives;
  std::vector<concord_transport_request> sends, resultSends, receives;
  std::vector<uint8_t> heard;                  ///< by member: its slot is there
  std::vector<SpanChannel> outgoing, incoming; ///< by member
  bool progressed = false; ///< something has come since it was last asked
  /// One test of the transport lets all requests go on, and is a system call:
  /// mostly the first that is pending is enough. All are looked at now and
  /// then, so that who is late can be named.
  bool thorough = false;
  uint32_t looks = 0;
  int64_t nextLook = 0;  ///< of who computes: when the transport is next asked
  int failedMember = -1; ///< the transport has failed with it
  int64_t failedAt = 0;
  std::string failure;
};

/// Attach to `comm` what it needs when it has members on other hosts. Throws
/// Error.
void makeSpan(Comm &comm);
/// Give up what is in flight, and the memory where nobody can write to it any
/// more.
void dropSpan(Comm &comm);

/// As prepare, once the request has been checked.
int32_t prepareSpan(Op &op);
Progress advanceSpan(Op &op, uint64_t quantum);
uint64_t missingSpan(const Op &op);
/// Seconds, beyond CONCORD_TIMEOUT, that a member which waits for others that
/// may wait themselves leaves to those who know more.
double patienceSpan(const Op &op);
/// Why the last operation was done as it was; for concord_comm_last_form.
std::string spanReason(const Comm &comm);
/// Messages with a member on another host.
bool remoteMessage(const Op &op);
Progress advanceSpanMessage(Op &op);
/// The communicator is broken: the other hosts have to know.
void tellBroken(Comm &comm, const BrokenWord &word);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_SPAN_H

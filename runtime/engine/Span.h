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
// Every member sends every other a header (sequence, fingerprint, and a payload
// up to kSpanInline) and hears from all before it goes on, as with slots. What
// is larger goes by segments through memory of the communicator, which is made
// with it: inputs to those who need them, work, results to those who want them.
//
// Two forms. *Direct*: every member exchanges with every remote one, and
// reductions take the members in group order, so the bits are those of one
// host. *By hosts*: what is needed twice on a host goes there once. Of each
// member's share one member of every other host, its delegate, reduces the
// inputs of that host and sends the sum; its result, or its part of a gather,
// goes to the delegates alone, from whose memory the others of their hosts take
// it. Reductions then take the members within a host in group order, and the
// hosts in the order of their first members: all members still have the same
// bits, in every run. Per segment of S bytes, p members and h hosts, a host
// sends all_reduce 2S(h-1)/h, and reduce_scatter, all_gather, reduce and
// broadcast each byte once to each host.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_SPAN_H
#define CONCORD_RUNTIME_ENGINE_SPAN_H

#include "engine/Engine.h"
#include "transport/Hosts.h"

namespace concord::rt {

/// Payload that travels in the headers.
constexpr uint64_t kSpanInline = 4096;

/// First message of every operation, from every member to every remote one.
struct SpanHeader {
  uint64_t sequence;
  uint64_t fingerprint;
  uint64_t sendBytes; ///< uneven all_to_all: what the receiver is sent
  uint64_t area;      ///< bytes of an area of the sender's (see Span::area)
  uint64_t longest;   ///< bytes of the longest chunk it knows of
  uint64_t payload;   ///< bytes that follow
  uint64_t reserved[2];
};
static_assert(sizeof(SpanHeader) == 64);

/// What members of one host say in their slots, where nothing is inlined.
struct SpanWire {
  /// Where the areas that others read lie in the heaps.
  uint64_t input, result, arrivals;
  uint64_t area, longest;
  uint64_t sendBytes[kMaxRanks];
};
static_assert(sizeof(SpanWire) <= kSlotPayload);

/// One direction of the messages with one remote member.
struct SpanChannel {
  char *memory = nullptr; ///< two parts
  concord_transport_request requests[2] = {};
};

struct Span {
  explicit Span(Comm &comm) : comm(comm) {}

  enum class Step : uint8_t {
    Connect, ///< waits for the remote members' tags
    Headers, ///< waits for headers and slots
    CopyIn,  ///< copies the own input to where others read or receive it from
    Partial, ///< by hosts: reduces this host's inputs for remote owners
    Inputs,  ///< waits for what it needs of the others' inputs
    Arrived, ///< by hosts: waits until the others of this host have theirs
    Work,    ///< reduces or copies
    Results, ///< waits for the others' results
    Shared,  ///< by hosts: as Arrived, of the results
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
  bool several = false;                 ///< a host has more than one member
  /// Of the operation in flight: it goes by hosts, with this for partial sums.
  bool byHosts = false;
  ReduceFunction partial = nullptr;
  int numHosts() const { return int(onHost.size()); }
  /// Who acts for `member` on another host.
  int delegate(int host, int member) const {
    const std::vector<int> &list = onHost[size_t(host)];
    return list[size_t(placeOnHost[size_t(member)]) % list.size()];
  }

  /// Bytes of one area. There are three, with some room behind each: the own
  /// input and the own result, which members of this host read in place, and
  /// what comes from other hosts.
  uint64_t area = 0;
  char *memory = nullptr;
  uint64_t memoryAt = 0;                         ///< in the heaps
  std::vector<char *> inputs, results, arrivals; ///< of those on this host
  char *headers = nullptr; ///< per member: two to send, one received

  Step step = Step::Connect;
  std::vector<concord_transport_request> headerSends[2], headerReceives;
  std::vector<concord_transport_request> sends, resultSends, receives;
  std::vector<uint8_t> heard; ///< by member: its header or slot is there
  std::vector<SpanChannel> outgoing, incoming; ///< by member
  bool progressed = false; ///< something has come since it was last asked
  int failedMember = -1;   ///< the transport has failed with it
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
/// Messages with a member on another host.
bool remoteMessage(const Op &op);
Progress advanceSpanMessage(Op &op);
/// The communicator is broken: the other hosts have to know.
void tellBroken(Comm &comm, const BrokenWord &word);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_SPAN_H

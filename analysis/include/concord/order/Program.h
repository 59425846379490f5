//===- Program.h - A multi-rank program of issues ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The entities of the issue model: processes with issue threads, devices with
// streams and communication slots, domains, and the finite list of statements
// that each thread executes. A Program is immutable data; `Machine` gives it a
// transition relation, `Explorer` walks it, `WaitGraph` explains a stuck state.
//
// All cross references are indices into the vectors of `Program`, checked by
// whoever builds it (`CaseParser`, the evidence readers, the plan verifier).
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ORDER_PROGRAM_H
#define CONCORD_ORDER_PROGRAM_H

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace concord::order {

/// A global rank as the user writes it; not an index.
using Rank = int32_t;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

/// Where a statement stands in its source. Line 0: unknown.
struct Location {
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  std::string str() const;
};

/// What the model assumes of devices and library; see docs/rationale-order.md.
struct Config {
  enum class Order : uint8_t { None, Launch, Serial };
  enum class Profile : uint8_t { Indep, InOrder, Atomic };
  static constexpr uint32_t kUnlimited = std::numeric_limits<uint32_t>::max();

  uint32_t slots = 1;        ///< K
  Order order = Order::None; ///< device order rule
  uint64_t buffer = 0;       ///< B: sends of at most B complete alone
  Profile group = Profile::Indep;
  uint32_t launchDepth = kUnlimited; ///< L
  bool sameDomainSerial = true;      ///< samecomm=serial

  /// One slot, no buffering, atomic groups, no order rule, unbounded queue.
  Config portable() const;
  /// "K=1 order=none buf=0 group=indep L=inf samecomm=serial"
  std::string str() const;
  bool operator==(const Config &) const = default;
};

/// An ordered member list with a name.
struct Domain {
  std::string name;
  std::vector<Rank> members;
  bool contains(Rank rank) const;
};

enum class OpKind : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Reduce,
  Gather,
  Scatter,
  Barrier, // collectives
  Send,
  Recv,  // transfers
  Group, // one launch of several transfers
  Kernel,
  Record,
  Wait,
  Spin,
  SetFlag, // no slot, no partner
};

constexpr bool isCollective(OpKind kind) { return kind <= OpKind::Barrier; }
constexpr bool isTransfer(OpKind kind) {
  return kind == OpKind::Send || kind == OpKind::Recv;
}
constexpr bool isCommunication(OpKind kind) { return kind <= OpKind::Group; }
std::string_view mnemonic(OpKind kind);
std::string_view longName(OpKind kind);

/// Sorted by key; keys unique.
using Attributes = std::vector<std::pair<std::string, std::string>>;

/// The part of an operation that has partners: a collective, a transfer, or one
/// member of a group.
struct Part {
  OpKind kind = OpKind::AllReduce;
  uint32_t domain = kNone;
  Rank peer = -1;      ///< transfers: destination or source, a global rank
  uint64_t count = 1;  ///< `n`; decides buffering
  Attributes compared; ///< what must agree on all members
  bool hasRoot = false;
  Rank root = -1; ///< `groot`, a global rank
  Location loc;
};

/// One asynchronous operation of one device.
struct Operation {
  OpKind kind = OpKind::Kernel;
  uint32_t device = 0;
  uint32_t stream = 0;   ///< index into Program::streams; FIFO per device
  uint32_t need = 1;     ///< slots held from start to completion
  uint32_t name = kNone; ///< Record/Wait: event; Spin/SetFlag: flag
  std::string label;     ///< Kernel: its name
  std::vector<Part> parts;
  std::vector<std::string> reads, writes; ///< buffers of this device
  Location loc;
};

enum class StmtKind : uint8_t {
  Issue,
  SyncDevice,
  SyncProcess,
  SyncStream,
  MapMemory,  ///< mm!
  Free,       ///< free!
  LoadKernel, ///< load!
  HostCollective,
  Lock,
  Unlock,
  SetFlag,
  AwaitFlag,
  Nop,
  Stall,
};

struct Statement {
  StmtKind kind = StmtKind::Nop;
  uint32_t op = kNone; ///< Issue: index into Program::ops
  uint32_t device = kNone;
  uint32_t stream = kNone; ///< SyncStream
  uint32_t domain = kNone; ///< HostCollective
  uint32_t name = kNone;   ///< lock or flag
  std::string label;       ///< HostCollective: its name
  Attributes compared;
  bool hasRoot = false;
  Rank root = -1;
  Location loc;
};

struct Thread {
  uint32_t process = 0;
  std::string name;
  std::vector<Statement> body;
};

struct Device {
  Rank rank = 0;
  uint32_t process = 0;
};

struct Process {
  std::string name; ///< "r0" for `rank 0`
  std::vector<uint32_t> threads, devices;
};

struct Program {
  Config config;
  std::vector<Domain> domains;
  std::vector<Process> processes;
  std::vector<Device> devices;
  std::vector<Thread> threads;
  std::vector<Operation> ops;
  std::vector<std::string> streams, events, flags, locks;

  uint32_t deviceOfRank(Rank rank) const; ///< kNone if no program drives it
  /// "AR(W)" / "SND(P,1)" / "GRP{..}" / "K(f)" with its compared attributes.
  std::string describe(const Part &part, bool attributes = true) const;
  std::string describe(const Operation &op) const;
  std::string describe(const Statement &stmt) const;
  /// "r0", or "proc A T0" where the process has several devices or threads.
  std::string threadName(uint32_t thread) const;
};

std::string toString(const Attributes &attributes);

} // namespace concord::order

#endif // CONCORD_ORDER_PROGRAM_H

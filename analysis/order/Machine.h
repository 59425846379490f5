//===- Machine.h - The transition relation of a program ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to the order library. States are flat vectors of integers with a
// layout fixed by the program, so that a state is its own exact key.
//
// Invariants of a state, on which everything else leans:
//  I1  An operation's status only grows: unissued, issued, started, completed.
//      Operations without a slot skip "started".
//  I2  The issue sequence of a device only grows at its end; an operation's
//      instance indices are fixed when it is issued.
//  I3  Every transition strictly increases the sum of statuses, program
//      counters, phases, cursors and flags (locks go back only together with a
//      program counter going forward), so every run is finite and a state in
//      which nothing can move ends it.
//
// Choice. Most transitions can neither disable another one nor be disabled
// (completions, everything on the stream that is not a contended start, all
// host steps of a process with one thread). `close` executes them at once,
// which keeps all terminal states: such a transition stays enabled until it is
// taken and commutes with every other. Real choices ("moves") are
//   * starts on a device where two startable operations can compete for slots,
//   * host steps of a process with several threads.
// Two moves are dependent only if they are starts on one device or steps of one
// process: `component` says which.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_MACHINE_H
#define CONCORD_ANALYSIS_ORDER_MACHINE_H

#include "concord/order/Program.h"

#include <cstdint>
#include <vector>

namespace concord::order {

class Machine {
public:
  using State = std::vector<uint32_t>;
  enum Status : uint32_t { Unissued, Issued, Started, Completed };

  explicit Machine(const Program &program);

  State initial() const;
  /// Execute everything that is no choice.
  void close(State &s) const;
  /// The choices of a closed state: operation `id` starts (id < ops), or thread
  /// `id - ops` executes its next step.
  void moves(const State &s, std::vector<uint32_t> &out) const;
  /// Shrink the moves of a closed state to a persistent subset.
  void reduce(const State &s, std::vector<uint32_t> &moves) const;
  void fire(State &s, uint32_t move) const;
  bool finished(const State &s) const;
  uint32_t component(uint32_t move) const;

  // Queries of a state, used by the explanation and the mismatch check.
  const Program &program() const { return prog; }
  Status status(const State &s, uint32_t op) const {
    return Status(s[opAt + op]);
  }
  uint32_t pc(const State &s, uint32_t thread) const {
    return s[pcAt + thread];
  }
  uint32_t phase(const State &s, uint32_t thread) const {
    return s[phaseAt + thread];
  }
  bool ended(const State &s, uint32_t thread) const {
    return pc(s, thread) >= prog.threads[thread].body.size();
  }
  uint32_t cursor(const State &s, uint32_t op) const {
    return s[cursorAt + op];
  }
  bool flag(const State &s, uint32_t f) const { return s[flagAt + f] != 0; }
  /// Thread + 1, or 0.
  uint32_t lockOwner(const State &s, uint32_t process, uint32_t lock) const {
    return s[lockAt + process * uint32_t(prog.locks.size()) + lock];
  }
  uint32_t memoryOwner(const State &s, uint32_t p) const {
    return s[memoryAt + p];
  }
  uint32_t drainOwner(const State &s, uint32_t p) const {
    return s[drainAt + p];
  }

  uint32_t issuedCount(const State &s, uint32_t device) const {
    return s[hiAt + device];
  }
  uint32_t firstUnfinished(const State &s, uint32_t device) const {
    return s[loAt + device];
  }
  uint32_t issuedOp(const State &s, uint32_t device, uint32_t k) const;
  uint32_t position(const State &s, uint32_t op) const;

  /// Part ids number the parts of all operations in order.
  uint32_t firstPart(uint32_t op) const { return partStart[op]; }
  uint32_t opOfPart(uint32_t part) const { return partOp[part]; }
  const Part &part(uint32_t id) const {
    return prog.ops[partOp[id]].parts[id - partStart[partOp[id]]];
  }
  /// The index of an issued part among the instances of its queue. For a
  /// statically numbered part the answer holds before the issue, too.
  uint32_t instance(const State &s, uint32_t part) const;
  bool numbered(uint32_t part) const {
    return !queues[partQueue[part]].dynamic;
  }
  uint32_t queueOfPart(uint32_t part) const { return partQueue[part]; }

  static constexpr uint32_t kNoQueue = kNone;
  /// Queue of a member's collectives on a domain, aligned with the members.
  const std::vector<uint32_t> &collectiveQueues(uint32_t domain) const {
    return collQueues[domain];
  }
  const std::vector<uint32_t> &hostQueues(uint32_t domain) const {
    return hostQueueIds[domain];
  }
  /// The queue of the other side of a transfer, kNoQueue if nobody has one.
  uint32_t otherSide(uint32_t part) const { return partOther[part]; }
  /// The i-th entry of a queue if it has been issued, else kNone. Entries are
  /// part ids; of host queues, statement ids.
  uint32_t entry(const State &s, uint32_t queue, uint32_t i) const;
  /// The i-th entry, issued or not, where it is known beforehand.
  uint32_t plannedEntry(uint32_t queue, uint32_t i) const;
  bool dynamic(uint32_t queue) const { return queues[queue].dynamic; }
  uint32_t capacity(uint32_t queue) const { return queues[queue].capacity; }
  uint32_t count(const State &s, uint32_t queue) const;
  uint32_t queueDevice(uint32_t queue) const { return queues[queue].device; }
  uint32_t queueCount() const { return uint32_t(queues.size()); }

  uint32_t statementId(uint32_t thread, uint32_t index) const {
    return stmtStart[thread] + index;
  }
  uint32_t threadOfStatement(uint32_t id) const;
  const Statement &statement(uint32_t id) const;
  uint32_t hostInstance(const State &s,
                        uint32_t thread) const; ///< of a waiting H:

  bool buffered(const Part &part) const {
    return part.kind == OpKind::Send && prog.config.buffer > 0 &&
           part.count <= prog.config.buffer;
  }
  bool sharesDomain(uint32_t a, uint32_t b) const;
  bool atHead(const State &s, uint32_t op) const;
  uint32_t slotsUsed(const State &s, uint32_t device) const;
  uint32_t outstanding(const State &s, uint32_t process) const;
  bool deviceIdle(const State &s, uint32_t device,
                  uint32_t stream = kNone) const;
  /// Operations that complete together with `op` under `atomic`: everything
  /// reached over partners; a part without issued partner yields kNone.
  void matchedSet(const State &s, uint32_t op,
                  std::vector<uint32_t> &set) const;
  bool threadEnabled(const State &s, uint32_t thread) const;

private:
  struct Queue {
    uint32_t base = 0, capacity = 0, countAt = 0, device = 0;
    bool dynamic = false;
  };

  const Program &prog;
  uint32_t pcAt, phaseAt, opAt, posAt, cursorAt, flagAt, lockAt, memoryAt,
      drainAt, hiAt, loAt, dynAt, size;
  std::vector<uint32_t> partStart, partOp, partQueue, partOther, partIndex;
  std::vector<uint32_t> stmtStart;
  std::vector<Queue> queues;
  std::vector<uint32_t> entries;    // of static queues
  std::vector<uint32_t> issueQueue; // per device
  std::vector<std::vector<uint32_t>> collQueues, hostQueueIds;
  std::vector<uint32_t> stmtQueue; // host statements, by statement id
  std::vector<uint32_t> stmtIndex;
  std::vector<uint32_t> staticPos;   // per op
  std::vector<uint32_t> dynIndexAt;  // per part: where a dynamic index is kept
  std::vector<uint32_t> hostIndexAt; // per thread
  std::vector<bool> eagerDevice, eagerProcess;
  std::vector<uint32_t> needSum;

  void number();
  void layOut();
  void push(State &s, uint32_t queue, uint32_t entry) const;
  bool startable(const State &s, uint32_t op, bool slots) const;
  bool completable(const State &s, uint32_t op,
                   const std::vector<bool> *wild) const;
  bool partnerStarted(const State &s, uint32_t part,
                      const std::vector<bool> *wild) const;
  bool advanceCursor(State &s, uint32_t op,
                     const std::vector<bool> *wild) const;
  void complete(State &s, uint32_t op) const;
  bool stepDevice(State &s, uint32_t device, bool starts, bool slots,
                  const std::vector<bool> *wild) const;
  bool eagerStatement(const State &s, uint32_t thread) const;
  bool isWild(const std::vector<bool> *wild, uint32_t queue) const {
    return wild && (*wild)[prog.devices[queues[queue].device].process];
  }
  void fireThread(State &s, uint32_t thread) const;
  bool hostPasses(const State &s, uint32_t thread,
                  const std::vector<bool> *wild) const;
  bool persistent(const State &s, const std::vector<uint32_t> &set,
                  const std::vector<bool> &frozenDevice,
                  const std::vector<bool> &frozenProcess) const;
};

} // namespace concord::order

#endif // CONCORD_ANALYSIS_ORDER_MACHINE_H

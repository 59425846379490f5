//===- IssueLog.h - Keeping the issue log -----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes a rank's block of concord/issuelog.h. One thread at a time, as for the
// context that it belongs to; threads that wait have slots of their own. A
// record costs one line of memory and no system call.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_DIAGNOSIS_ISSUELOG_H
#define CONCORD_RUNTIME_DIAGNOSIS_ISSUELOG_H

#include "concord/issuelog.h"
#include "engine/Op.h"

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

namespace concord::rt {

class IssueLog {
public:
  /// Begin to write `block`, whose pages are made present. Null: record
  /// nothing.
  void open(issuelog::Block *block, int rank, int world);
  /// Number of the latest issue.
  uint64_t latest() const { return numbers; }
  bool enabled() const { return block != nullptr; }

  /// A line for a communicator; the number that its issues carry.
  uint32_t addDomain(const std::string &name,
                     const std::vector<int32_t> &members);

  /// An issue; fills op.record.
  void issue(Op &op, uint32_t domain, uint32_t stream);
  void state(Op &op, issuelog::State state) {
    if (op.record && word(op.record->number) == op.number)
      set(op.record->state, uint64_t(state));
    if (state >= issuelog::State::Completed && block)
      set(block->completed, word(block->completed) + 1);
  }
  void gate(uint64_t mode, uint64_t round, uint64_t turn);

private:
  issuelog::Block *block = nullptr;
  uint64_t numbers = 0;

  static uint64_t word(const uint64_t &w) {
    return std::atomic_ref(const_cast<uint64_t &>(w))
        .load(std::memory_order_relaxed);
  }
  static void set(uint64_t &w, uint64_t value) {
    std::atomic_ref(w).store(value, std::memory_order_relaxed);
  }
};

/// Says what the calling thread waits in for as long as it lives.
class HostWaiting {
public:
  HostWaiting(issuelog::Block *block, issuelog::HostState state,
              std::string_view note);
  ~HostWaiting();
  HostWaiting(const HostWaiting &) = delete;

private:
  issuelog::Thread *thread = nullptr;
};

/// A copy of a block that its rank may be writing.
void copyBlock(const issuelog::Block &from, issuelog::Block &to);

/// The id of the calling thread, asked for once per thread.
uint32_t threadId();

} // namespace concord::rt

#endif // CONCORD_RUNTIME_DIAGNOSIS_ISSUELOG_H

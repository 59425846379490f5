//===- Schedule.h - The choice among legal orders ---------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which of the orders that dependences allow is to be agreed on: the one with
// the least predicted time. Times are whole picoseconds, so that every machine
// comes to the same order.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ORDER_SCHEDULE_H
#define CONCORD_ORDER_SCHEDULE_H

#include <cstdint>
#include <vector>

namespace concord::order {

/// One operation of a rank.
struct ScheduleTask {
  int64_t picoseconds = 0;
  /// Earlier tasks that have to be complete first.
  std::vector<uint32_t> after;
  /// The cyclic blocks it has a part in, a bit each; those that share one run
  /// one after another. 0: needs no order (a computation, or a bridge).
  uint64_t blocks = 0;
  bool communicates = false;
  int32_t priority = 0; ///< of its domain; higher goes first among equals
};

struct ScheduleOptions {
  /// Bound on the work, in tasks looked at. It decides how good the order of a
  /// large program is, never whether it is legal.
  uint64_t effort = 8'000'000;
};

struct Schedule {
  /// Tasks with blocks, in the order to agree on.
  std::vector<uint32_t> order;
  int64_t picoseconds = 0;  ///< predicted with that order
  int64_t unordered = 0;    ///< critical path of the dependences alone
  int64_t programOrder = 0; ///< with the order of `tasks`
  int64_t sequenced = 0; ///< with all communication in that order, one by one
  bool optimal = false;  ///< proven to be the least
};

/// Predicted time when the tasks of each block run in the given order.
int64_t predict(const std::vector<ScheduleTask> &tasks,
                const std::vector<uint32_t> &order);

/// `tasks` in an order that respects `after`. Never worse than that order, and
/// so never worse than all communication one by one. Deterministic. A branch
/// and bound search where it ends within the effort; otherwise the best of
/// priority rules, improved by exchanges on the critical path.
Schedule chooseOrder(const std::vector<ScheduleTask> &tasks,
                     const ScheduleOptions &options = {});

} // namespace concord::order

#endif // CONCORD_ORDER_SCHEDULE_H

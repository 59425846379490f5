//===- Poll.h - Calling the poll hook from kernels --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels count work in units of about a nanosecond and call the hook when
// kPollBudget of them have passed: no clock is read.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_POLL_H
#define CONCORD_KERNELS_POLL_H

#include "concord/kernel_poll.h"

#include <stdint.h>

namespace concord::kernels {

struct PollState {
  concord_kernel_poll_hook hook = nullptr;
  void *context = nullptr;
};
extern thread_local PollState pollState;

/// About 20 us of work on the machines measured; a slower CPU still polls
/// within the 50 us of the contract.
constexpr int64_t kPollBudget = 20000;

/// One per run; `work(n)` after each tile of about n nanoseconds.
class Poller {
public:
  Poller() : state(pollState) {}
  // Always inlined: hot files are compiled with wider instruction sets, and an
  // out-of-line copy of theirs must never be used elsewhere.
  __attribute__((always_inline)) void work(int64_t nanoseconds) {
    if (!state.hook)
      return;
    left -= nanoseconds;
    if (left <= 0) {
      left = kPollBudget;
      state.hook(state.context);
    }
  }

private:
  PollState state;
  int64_t left = kPollBudget;
};

} // namespace concord::kernels

#endif // CONCORD_KERNELS_POLL_H

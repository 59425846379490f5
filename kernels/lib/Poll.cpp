//===- Poll.cpp - The per-thread poll hook --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Storage of the hook; the calls are in Poll.h.
//
//===----------------------------------------------------------------------===//

#include "Poll.h"

namespace concord::kernels {
thread_local PollState pollState;
}

extern "C" void concord_kernel_set_poll_hook(concord_kernel_poll_hook hook,
                                             void *context) {
  concord::kernels::pollState = {hook, context};
}

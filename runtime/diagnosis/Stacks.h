//===- Stacks.h - Stacks of this process's threads --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SIGUSR1: "what is this rank doing?". The disposition of a signal belongs to
// the process, so this is the one place with state outside a context: the
// descriptors to wake, and the one stack that is being taken. It is installed
// only where the application has not taken the signal, whose default action
// would end the process.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_DIAGNOSIS_STACKS_H
#define CONCORD_RUNTIME_DIAGNOSIS_STACKS_H

#include <cstdint>
#include <string>

namespace concord::rt {

/// Added to an eventfd by the signal; the rest of the counter is the owner's.
constexpr uint64_t kSignalled = uint64_t(1) << 32;

/// Wake `eventfd` on SIGUSR1. False if the application has the signal.
bool listenToSignal(int eventfd);
void ignoreSignal(int eventfd);

/// Stacks of all threads but the calling one, as pstack prints them.
std::string threadStacks();

} // namespace concord::rt

#endif // CONCORD_RUNTIME_DIAGNOSIS_STACKS_H

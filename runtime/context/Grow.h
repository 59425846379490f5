//===- Grow.h - More ranks than a job began with ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands behind concord_comm_grow. The members of a communicator and the
// processes that join them make a job of their own, with another memory file,
// watchdogs and heaps: a rank that joins needs no other call than one of a new
// job, what fails there does not touch the old job, and nothing that is still
// under way in the old one can arrive in the new one.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_CONTEXT_GROW_H
#define CONCORD_RUNTIME_CONTEXT_GROW_H

#include "context/Context.h"

namespace concord::rt {

/// This rank in the grown job. Throws Error, the same status at every member
/// that is alive; the parent is as it was unless one of its members has died or
/// does not answer. `id` may be null but at group rank 0.
Context *growComm(Comm &parent, int32_t newWorld, const concord_unique_id *id);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_CONTEXT_GROW_H

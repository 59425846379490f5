//===- Lifecycle.h - Joining and leaving a job ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What stands behind concord_context_create, _finalize and _abort.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_CONTEXT_LIFECYCLE_H
#define CONCORD_RUNTIME_CONTEXT_LIFECYCLE_H

#include "context/Context.h"

namespace concord::rt {

/// Join the job that `config` or the environment names. Throws Error.
concord_context *joinJob(const concord_context_config &config);
/// Release everything made from the context. `counted`: it was handed out.
void leaveJob(concord_context *context, bool counted);
/// Make all ranks' calls fail. Safe in any thread.
void abortJob(concord_context &context, const char *reason);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_CONTEXT_LIFECYCLE_H

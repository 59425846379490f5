//===- Live.h - Looking at a running job ------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// comm-doctor --live: what every rank of a job on this host does on each of its
// communicators, read from the job's own memory without disturbing it.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_DOCTOR_LIVE_H
#define CONCORD_TOOLS_COMM_DOCTOR_LIVE_H

#include <string>

namespace concord::doctor {

/// `job`: pid of a rank or of the launcher. Returns the exit code: 0 all is
/// well, 1 something is wrong, 2 there is no such job.
int live(const std::string &job, bool wantJson);

} // namespace concord::doctor

#endif // CONCORD_TOOLS_COMM_DOCTOR_LIVE_H

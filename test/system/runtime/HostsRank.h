//===- HostsRank.h - What the tests between hosts share ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_SYSTEM_RUNTIME_HOSTSRANK_H
#define CONCORD_TEST_SYSTEM_RUNTIME_HOSTSRANK_H

#include "concord/concord.h"

#include <string>

namespace concord::hosts {

/// Of this rank, which may be a thread.
extern thread_local concord_context *context;
extern thread_local concord_comm *world;
extern thread_local int me, ranks;

/// All that one rank does; its exit code. `argv` as for `hosts-rank`.
int runRank(int argc, char **argv, const concord_context_config &config);

/// Say what was not as it must be, and end the job.
[[noreturn]] void wrong(const std::string &what);
/// Unless the status is CONCORD_OK.
void check(int32_t status, const char *what);
double seconds();

// HostsFaults.cpp; HostsRank.cpp says what each does.
void mismatch();
void death(int victim, const std::string &kind);
void stopped(int victim);
void aborting();
void revoke();
void early();
void overtaken();
void lost();
void fused();

} // namespace concord::hosts

#endif // CONCORD_TEST_SYSTEM_RUNTIME_HOSTSRANK_H

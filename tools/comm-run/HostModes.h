//===- HostModes.h - comm-run --topology and --preflight --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What comm-run does without a program: look at the host.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_HOSTMODES_H
#define CONCORD_TOOLS_COMM_RUN_HOSTMODES_H

#include <string>
#include <vector>

namespace concord::tools {

/// True when the arguments ask for one of these modes.
bool isHostMode(const std::vector<std::string> &arguments);
/// Do it; returns the exit code.
int runHostMode(std::vector<std::string> arguments);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_HOSTMODES_H

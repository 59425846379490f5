//===- Environment.h - comm-run --env ---------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The environment variables that Concord looks at.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_ENVIRONMENT_H
#define CONCORD_TOOLS_COMM_RUN_ENVIRONMENT_H

namespace concord::tools {

/// Print the table of variables with the values now set and their source.
/// Returns an exit code: 2 when a value is not usable.
int printEnvironment();
/// Name variables that look like Concord's and are not.
void warnUnknownVariables();

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_ENVIRONMENT_H

//===- Launcher.h - What other launchers say of a rank ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// torchrun, Open MPI, MPICH (and others that speak PMI) and Slurm tell each
// process its rank in environment variables. Their ranks have no memory file in
// common; they find each other by a name that all can compute, see
// Rendezvous.h.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_BOOTSTRAP_LAUNCHER_H
#define CONCORD_RUNTIME_BOOTSTRAP_LAUNCHER_H

#include <functional>
#include <optional>
#include <string>

namespace concord::rt {

struct LaunchedRank {
  std::string launcher; ///< a word of CONCORD_LAUNCHER
  int rank = 0, world = 1;
  int localRank = -1;        ///< on this host, -1 when not said
  int localWorld = -1;       ///< ranks on this host, -1 when not said
  bool severalHosts = false; ///< the launcher says so
  std::string job; ///< the same text at all ranks, and at no other job
};

/// Looks a variable up; null when it is not set.
using Lookup = std::function<const char *(const char *)>;

/// What the environment says; nothing when no launcher is seen. `wanted` is a
/// word of CONCORD_LAUNCHER: one launcher alone, or auto. `starter` names the
/// process that started the ranks, for launchers whose environment does not
/// name the job. Throws Error when the variables contradict each other.
std::optional<LaunchedRank>
findLauncher(const std::string &wanted, const Lookup &lookup,
             const std::function<std::string()> &starter);

/// What CONCORD_LAUNCHER and the environment of this process say; nothing too
/// when the variable says that this is no rank. Throws Error.
std::optional<LaunchedRank> launchedHere();

/// Pid and start time of the nearest ancestor that is a known launcher, else of
/// the parent.
std::string startingProcess();

} // namespace concord::rt

#endif // CONCORD_RUNTIME_BOOTSTRAP_LAUNCHER_H

//===- BringUp.h - Which job, which rank, which device ----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The steps of concord_context_create that find out who this rank is, before
// and after it has met the others.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_CONTEXT_BRINGUP_H
#define CONCORD_RUNTIME_CONTEXT_BRINGUP_H

#include "bootstrap/Launcher.h"
#include "bootstrap/Rendezvous.h"
#include "context/Context.h"
#include "topology/RankTable.h"

#include <functional>
#include <memory>
#include <optional>

namespace concord::rt {

/// Where a rank has its place in a job from.
struct Origin {
  std::string words;         ///< for the log: "torchrun", "unique id", ...
  int descriptor = -1;       ///< inherited, or -1
  std::optional<JobKey> key; ///< by which the ranks meet
  int local = 0;             ///< rank on this host
  std::optional<LaunchedRank> launched;
  bool severalHosts = false; ///< or it has to be found out
  std::optional<RankTable> table;
  uint64_t tableHash = 0;
  /// Called while the rank waits for others; throws when that is in vain.
  std::function<void()> look;
};

/// A context with what the caller and the environment ask for, that has no
/// place in a job yet.
std::unique_ptr<Context> prepareContext(const concord_context_config &config);
/// Come into the job that `origin` names as the rank that the context has, and
/// wait for the others. Throws Error, after the context has left again.
Context *enterJob(std::unique_ptr<Context> context, Origin origin,
                  const concord_context_config &config);

/// Sets rank and world. Throws what is wrong with configuration or environment.
Origin findOrigin(Context &context, const concord_context_config &config);
/// The job is on several hosts: who is where, and how the ranks of this one
/// meet. Throws Error.
void findHosts(Context &context, Origin &origin, double connectSeconds);
/// Get the job's memory; waits for rank 0 where the ranks meet by a key.
void openJob(Context &context, const Origin &origin,
             const concord_context_config &config);
/// Find this rank's device and write it into its slot. Throws DEVICE_MAPPING.
void describeDevice(Context &context, const Origin &origin,
                    const concord_context_config &config);
/// All have joined: do their devices fit together? Throws DEVICE_MAPPING or
/// MISMATCH naming two ranks; else sets what all have in common.
void checkDevices(Context &context);
/// Put this rank's heap on the memory node of its cores.
void placeHeap(Context &context);
/// Which rank is where, into the log of rank 0.
void logRanks(const Context &context);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_CONTEXT_BRINGUP_H

//===- Numa.h - Where a rank's memory lies ----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The memory node of a set of cores, and keeping a heap on it.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_TOPOLOGY_NUMA_H
#define CONCORD_RUNTIME_TOPOLOGY_NUMA_H

#include <cstdint>
#include <sched.h>
#include <string>

namespace concord::rt {

/// The node that has all `cores`, or -1: they span nodes, or there is but one.
/// `root` is "/sys/devices/system/node", or a copy of it.
int nodeOfCores(const cpu_set_t &cores, const std::string &root);

/// Prefer a node for memory that is not touched yet. False when the system
/// does not do that.
bool preferNode(void *memory, uint64_t bytes, int node);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_TOPOLOGY_NUMA_H

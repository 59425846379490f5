//===- Topology.h - Where ranks go on a host --------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The map rank -> host -> package -> memory node -> core -> network interface,
// from hwloc. Ranks that are neighbours by number, which talk most in a ring
// and along the innermost axis of a mesh, get cores that are near each other.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMM_RUN_TOPOLOGY_H
#define CONCORD_TOOLS_COMM_RUN_TOPOLOGY_H

#include <cstdint>
#include <string>
#include <vector>

namespace concord::tools {

struct TopologySource {
  std::string xml;       ///< file of lstopo, or ""
  std::string synthetic; ///< hwloc's notation, or ""
};

struct Placement {
  int rank = 0;
  int package = -1, node = -1, core = -1;
  int pu = -1; ///< the system's number of the processing unit
  std::string nic;
};

struct TopologyMap {
  std::string host;
  int packages = 0, nodes = 0, cores = 0, units = 0;
  std::vector<std::string> nics;
  bool oversubscribed = false;
  bool spread = false;
  std::vector<Placement> ranks;
  /// Sum over neighbours of the levels up to what they share, as placed and as
  /// the system's numbering alone would place them.
  int64_t cost = 0, numberedCost = 0;
};

/// Place `ranks` ranks (0: one per core). `spread`: as far apart as possible,
/// for memory bandwidth; else close together. Throws Error.
TopologyMap placeRanks(const TopologySource &source, int64_t ranks,
                       bool spread);

std::string topologyText(const TopologyMap &map);
std::string topologyJson(const TopologyMap &map);
std::string topologyDot(const TopologyMap &map);

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMM_RUN_TOPOLOGY_H

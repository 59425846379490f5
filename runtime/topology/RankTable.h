//===- RankTable.h - Rank tables and device descriptions --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// HCCL's rank tables (versions 1.0, 1.2 and 2.0), checked in full, and
// Concord's own description of devices, which lets mapping and heterogeneity be
// tried with CPU ranks. What a rank really uses must agree with both.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_TOPOLOGY_RANKTABLE_H
#define CONCORD_RUNTIME_TOPOLOGY_RANKTABLE_H

#include <cstdint>
#include <string>
#include <vector>

namespace concord::rt {

struct TableRank {
  int rank = 0;
  std::string host; ///< server_id, or the layer-0 instance of version 2.0
  int device = 0;   ///< physical id on its host
  std::vector<std::string> addresses;
};

struct RankTable {
  std::string version;
  std::vector<TableRank> ranks; ///< by rank
};

/// Parse and check. Throws CORRUPT with `name` and the place.
RankTable parseRankTable(const std::string &text, const std::string &name);

struct Device {
  int physical = 0;
  std::string kind = "cpu";
  uint32_t plane = 0;
  uint32_t alignment = 64;
  double bandwidth = 0; ///< bytes per second, 0: not known
};

/// {"devices": [{"physical_id": 0, "kind": "cpu", "plane": 0, "alignment": 64,
/// "bandwidth": 1e10}]}; all but physical_id may be left out.
std::vector<Device> parseDevices(const std::string &text,
                                 const std::string &name);

/// "4,5,6" or "4-6". Throws INVALID_ARGUMENT naming `variable`.
std::vector<int> parseVisible(const std::string &text, const char *variable);

/// What a rank knows of its device before it talks to others.
struct DeviceChoice {
  int visible = -1; ///< its number among the visible ones
  Device device;    ///< physical -1: nobody says
};

/// Choose the device of `rank`, the `local`-th of its host. `visible` may be
/// empty (all), `devices` may be empty (nothing is described), `table` null.
/// Throws DEVICE_MAPPING when they do not agree, naming rank and device.
DeviceChoice chooseDevice(int rank, int local, const std::vector<int> &visible,
                          const std::vector<Device> &devices,
                          const RankTable *table);

/// Read a file, or throw NOT_FOUND.
std::string readText(const std::string &path);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_TOPOLOGY_RANKTABLE_H

//===- Topology.cpp - Where ranks go on a host ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// hwloc numbers what it finds along the tree, so its logical order is the one
// in which neighbours share most. Hardware threads come after all cores have
// one.
//
//===----------------------------------------------------------------------===//

#include "Topology.h"

#include "common/HostTensor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <hwloc.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

using nlohmann::json;

namespace concord::tools {

namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const {
    hwloc_topology_destroy(topology);
  }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

Topology load(const TopologySource &source) {
  hwloc_topology_t raw;
  if (hwloc_topology_init(&raw) != 0)
    throw Error("hwloc cannot be started");
  Topology topology(raw);
  if (!source.xml.empty() && ::access(source.xml.c_str(), R_OK) != 0)
    throw Error(source.xml + ": cannot be read: " + std::strerror(errno));
  if (!source.xml.empty() &&
      hwloc_topology_set_xml(raw, source.xml.c_str()) != 0)
    throw Error(source.xml + ": is not a topology of hwloc");
  if (!source.synthetic.empty() &&
      hwloc_topology_set_synthetic(raw, source.synthetic.c_str()) != 0)
    throw Error("--synthetic '" + source.synthetic +
                "': is not in hwloc's notation, like 'package:2 core:4 pu:2'");
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  if (hwloc_topology_load(raw) != 0)
    throw Error(
        (source.xml.empty() ? "the topology of this host" : source.xml) +
        ": cannot be read: " + std::strerror(errno));
  return topology;
}

int levels(hwloc_topology_t topology, hwloc_obj_t a, hwloc_obj_t b) {
  if (a == b)
    return 0;
  hwloc_obj_t common = hwloc_get_common_ancestor_obj(topology, a, b);
  return a->depth - common->depth;
}

int64_t neighbourCost(hwloc_topology_t topology,
                      const std::vector<hwloc_obj_t> &units) {
  int64_t cost = 0;
  for (size_t i = 0; i + 1 < units.size(); ++i)
    cost += levels(topology, units[i], units[i + 1]);
  return cost;
}

int logical(hwloc_topology_t topology, hwloc_obj_type_t type,
            hwloc_obj_t unit) {
  hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(topology, type, unit);
  return above ? int(above->logical_index) : -1;
}

int memoryNode(hwloc_topology_t topology, hwloc_obj_t unit) {
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node));)
    if (hwloc_bitmap_isincluded(unit->cpuset, node->cpuset))
      return int(node->os_index);
  return -1;
}

/// The `ranks` of `units`, every one as far from the ones before as the tree
/// allows: halves of halves.
void spreadOrder(hwloc_obj_t under, size_t ranks,
                 const std::vector<hwloc_obj_t> &units,
                 std::vector<hwloc_obj_t> &chosen) {
  if (ranks == 0)
    return;
  std::vector<hwloc_obj_t> here;
  for (hwloc_obj_t unit : units)
    if (hwloc_bitmap_isincluded(unit->cpuset, under->cpuset))
      here.push_back(unit);
  if (under->arity == 0 || ranks >= here.size()) {
    for (size_t i = 0; i < std::min(ranks, here.size()); ++i)
      chosen.push_back(here[i]);
    return;
  }
  // Shares by children, none larger than the child has units.
  std::vector<size_t> room, share;
  for (unsigned i = 0; i < under->arity; ++i) {
    size_t n = 0;
    for (hwloc_obj_t unit : here)
      n += hwloc_bitmap_isincluded(unit->cpuset, under->children[i]->cpuset);
    room.push_back(n);
    share.push_back(0);
  }
  for (size_t left = ranks; left > 0;)
    for (size_t i = 0; i < room.size() && left > 0; ++i)
      if (share[i] < room[i]) {
        ++share[i];
        --left;
      }
  for (unsigned i = 0; i < under->arity; ++i)
    spreadOrder(under->children[i], share[i], here, chosen);
}

/// Interfaces that are as near to a unit as any other.
std::vector<std::string> nearestNics(hwloc_topology_t topology,
                                     hwloc_obj_t unit) {
  std::vector<std::string> near;
  int best = 1 << 30;
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_osdev(topology, device));) {
    auto type = device->attr->osdev.type;
    if (type != HWLOC_OBJ_OSDEV_NETWORK && type != HWLOC_OBJ_OSDEV_OPENFABRICS)
      continue;
    hwloc_obj_t anchor = hwloc_get_non_io_ancestor_obj(topology, device);
    int distance =
        levels(topology, unit,
               anchor && anchor->cpuset &&
                       hwloc_bitmap_isincluded(unit->cpuset, anchor->cpuset)
                   ? anchor
                   : hwloc_get_root_obj(topology));
    if (distance < best) {
      best = distance;
      near.clear();
    }
    if (distance == best)
      near.push_back(device->name);
  }
  std::sort(near.begin(), near.end());
  near.erase(std::unique(near.begin(), near.end()), near.end());
  return near;
}

} // namespace

TopologyMap placeRanks(const TopologySource &source, int64_t ranks,
                       bool spread) {
  Topology topology = load(source);
  hwloc_topology_t t = topology.get();
  TopologyMap map;
  map.spread = spread;
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  bool own = source.xml.empty() && source.synthetic.empty();
  map.host = own ? host : source.xml.empty() ? "synthetic" : source.xml;
  map.packages = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
  map.nodes = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_NUMANODE);

  // What this process may run on.
  hwloc_bitmap_t allowed =
      hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(t));
  if (own) {
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(t, bound, 0) == 0)
      hwloc_bitmap_and(allowed, allowed, bound);
    hwloc_bitmap_free(bound);
  }
  // First thread of every core, then the second ones.
  std::map<unsigned, std::vector<hwloc_obj_t>> byTurn;
  std::map<int, unsigned> turns;
  for (hwloc_obj_t unit = nullptr;
       (unit = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_PU, unit));) {
    if (!hwloc_bitmap_isincluded(unit->cpuset, allowed))
      continue;
    int core = logical(t, HWLOC_OBJ_CORE, unit);
    byTurn[core < 0 ? 0 : turns[core]++].push_back(unit);
    ++map.units;
  }
  hwloc_bitmap_free(allowed);
  if (map.units == 0)
    throw Error(map.host + ": has no processing unit that may be used");
  map.cores = int(byTurn[0].size());
  if (ranks == 0)
    ranks = map.cores;
  size_t wanted = size_t(ranks);

  std::vector<hwloc_obj_t> units;
  for (const auto &[turn, list] : byTurn)
    units.insert(units.end(), list.begin(), list.end());
  std::vector<hwloc_obj_t> chosen;
  if (wanted > units.size()) {
    // More ranks than units: blocks of neighbours share one.
    map.oversubscribed = true;
    std::vector<hwloc_obj_t> ordered(units);
    std::sort(ordered.begin(), ordered.end(), [](hwloc_obj_t a, hwloc_obj_t b) {
      return a->logical_index < b->logical_index;
    });
    for (size_t r = 0; r < wanted; ++r)
      chosen.push_back(ordered[r * ordered.size() / wanted]);
  } else {
    if (spread && wanted <= byTurn[0].size())
      spreadOrder(hwloc_get_root_obj(t), wanted, byTurn[0], chosen);
    else
      chosen.assign(units.begin(), units.begin() + ptrdiff_t(wanted));
    // Neighbours by number next to each other.
    std::sort(chosen.begin(), chosen.end(), [](hwloc_obj_t a, hwloc_obj_t b) {
      return a->logical_index < b->logical_index;
    });
  }
  map.cost = neighbourCost(t, chosen);
  std::vector<hwloc_obj_t> numbered(units);
  std::sort(numbered.begin(), numbered.end(), [](hwloc_obj_t a, hwloc_obj_t b) {
    return a->os_index < b->os_index;
  });
  std::vector<hwloc_obj_t> asNumbered;
  for (size_t r = 0; r < wanted; ++r)
    asNumbered.push_back(numbered[r % numbered.size()]);
  map.numberedCost = neighbourCost(t, asNumbered);

  std::map<std::string, int> load;
  for (hwloc_obj_t device = nullptr;
       (device = hwloc_get_next_osdev(t, device));)
    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK ||
        device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
      map.nics.push_back(device->name);
  for (size_t r = 0; r < wanted; ++r) {
    hwloc_obj_t unit = chosen[r];
    Placement place;
    place.rank = int(r);
    place.package = logical(t, HWLOC_OBJ_PACKAGE, unit);
    place.node = memoryNode(t, unit);
    place.core = logical(t, HWLOC_OBJ_CORE, unit);
    place.pu = int(unit->os_index);
    // Of several as near, the one that has fewest ranks.
    for (const std::string &nic : nearestNics(t, unit))
      if (place.nic.empty() || load[nic] < load[place.nic])
        place.nic = nic;
    if (!place.nic.empty())
      ++load[place.nic];
    map.ranks.push_back(place);
  }
  return map;
}

static std::string number(int value) {
  return value < 0 ? "-" : std::to_string(value);
}

std::string topologyText(const TopologyMap &map) {
  std::string text = "host " + map.host + ": " + std::to_string(map.packages) +
                     " packages, " + std::to_string(map.nodes) +
                     " memory nodes, " + std::to_string(map.cores) +
                     " cores, " + std::to_string(map.units) +
                     " processing units, interfaces";
  for (const std::string &nic : map.nics)
    text += " " + nic;
  text += map.nics.empty() ? " none\n" : "\n";
  if (map.oversubscribed)
    text += "more ranks than processing units: neighbours share one\n";
  char line[256];
  std::snprintf(line, sizeof line, "%-5s %-8s %-5s %-5s %-4s %s\n", "rank",
                "package", "node", "core", "cpu", "interface");
  text += line;
  for (const Placement &place : map.ranks) {
    std::snprintf(line, sizeof line, "%-5d %-8s %-5s %-5s %-4d %s\n",
                  place.rank, number(place.package).c_str(),
                  number(place.node).c_str(), number(place.core).c_str(),
                  place.pu, place.nic.empty() ? "-" : place.nic.c_str());
    text += line;
  }
  text += "levels between neighbours: " + std::to_string(map.cost) +
          " (in the system's numbering: " + std::to_string(map.numberedCost) +
          ")\n";
  return text;
}

std::string topologyJson(const TopologyMap &map) {
  json ranks = json::array();
  for (const Placement &place : map.ranks)
    ranks.push_back({{"rank", place.rank},
                     {"host", map.host},
                     {"package", place.package},
                     {"numa", place.node},
                     {"core", place.core},
                     {"cpu", place.pu},
                     {"nic", place.nic}});
  return json{{"version", 1},
              {"host", map.host},
              {"packages", map.packages},
              {"numa_nodes", map.nodes},
              {"cores", map.cores},
              {"cpus", map.units},
              {"nics", map.nics},
              {"binding", map.spread ? "spread" : "close"},
              {"oversubscribed", map.oversubscribed},
              {"cost", {{"placed", map.cost}, {"numbered", map.numberedCost}}},
              {"ranks", ranks}}
             .dump(2) +
         "\n";
}

std::string topologyDot(const TopologyMap &map) {
  std::string text = "digraph topology {\n  rankdir=LR;\n  node [shape=box];\n";
  std::map<std::string, bool> edges;
  auto edge = [&](const std::string &from, const std::string &to) {
    if (!edges.emplace(from + "\n" + to, true).second)
      return;
    text += "  " + json(from).dump() + " -> " + json(to).dump() + ";\n";
  };
  for (const Placement &place : map.ranks) {
    std::string package = map.host + " package " + number(place.package);
    std::string node = "node " + number(place.node) + " of " + package;
    std::string cpu = "cpu " + std::to_string(place.pu);
    edge("rank " + std::to_string(place.rank), cpu);
    edge(cpu, node);
    edge(node, package);
    if (!place.nic.empty())
      edge(cpu, place.nic);
  }
  return text + "}\n";
}

} // namespace concord::tools

//===- RankTable.cpp - Rank tables and device descriptions ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A table that is a little wrong brings a job up with the wrong neighbours, so
// nothing is guessed: every field that is used is checked, and the message has
// the path of the one that is not right.
//
//===----------------------------------------------------------------------===//

#include "topology/RankTable.h"
#include "diagnosis/Error.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

using namespace concord::rt;
using nlohmann::json;

namespace {

/// A value with its path in the document.
class Node {
public:
  Node(const json &value, const std::string &file, std::string path)
      : value(value), file(file), path(std::move(path)) {}

  [[noreturn]] void wrong(const std::string &what) const {
    raise(CONCORD_ERROR_CORRUPT, "%s: %s %s", file.c_str(),
          path.empty() ? "the document" : path.c_str(), what.c_str());
  }
  bool has(const char *key) const {
    return value.is_object() && value.contains(key) && !value[key].is_null();
  }
  Node at(const char *key) const {
    if (!value.is_object())
      wrong("is not an object");
    if (!has(key))
      wrong(std::string("has no '") + key + "'");
    return {value[key], file, path.empty() ? key : path + "." + key};
  }
  std::vector<Node> list(size_t least, size_t most) const {
    if (!value.is_array())
      wrong("is not an array");
    if (value.size() < least || value.size() > most)
      wrong("has " + std::to_string(value.size()) + " entries, not " +
            std::to_string(least) + " to " + std::to_string(most));
    std::vector<Node> nodes;
    for (size_t i = 0; i < value.size(); ++i)
      nodes.emplace_back(value[i], file, path + "[" + std::to_string(i) + "]");
    return nodes;
  }
  std::string text() const {
    if (!value.is_string() || value.get_ref<const std::string &>().empty())
      wrong("is not a text");
    return value.get<std::string>();
  }
  /// A whole number; versions 1.x write them as text.
  int number(int low, int high, bool asText) const {
    int64_t found;
    if (asText) {
      std::string digits = text();
      if (digits.size() > 10 ||
          digits.find_first_not_of("0123456789") != std::string::npos)
        wrong("is '" + digits + "', not a whole number in quotes");
      found = std::stoll(digits);
    } else {
      if (!value.is_number_integer())
        wrong("is not a whole number");
      found = value.get<int64_t>();
    }
    if (found < low || found > high)
      wrong("is " + std::to_string(found) + ", not " + std::to_string(low) +
            " to " + std::to_string(high));
    return int(found);
  }
  double real() const {
    if (!value.is_number())
      wrong("is not a number");
    return value.get<double>();
  }
  std::string address() const {
    std::string given = text();
    unsigned char buffer[16];
    if (::inet_pton(AF_INET, given.c_str(), buffer) != 1 &&
        ::inet_pton(AF_INET6, given.c_str(), buffer) != 1)
      wrong("is '" + given + "', not an IP address");
    return given;
  }
  const std::string &where() const { return path; }

private:
  const json &value;
  const std::string &file;
  std::string path;
};

constexpr int kMostRanks = 1 << 20;

/// Ranks by number; each there once. `where[i]` is the place of ranks[i].
void order(RankTable &table, const std::vector<Node> &where) {
  std::map<int, size_t> seen;
  std::map<std::pair<std::string, int>, int> devices;
  for (size_t i = 0; i < table.ranks.size(); ++i) {
    const TableRank &rank = table.ranks[i];
    if (rank.rank >= int(table.ranks.size()))
      where[i].wrong("has rank " + std::to_string(rank.rank) +
                     " in a table of " + std::to_string(table.ranks.size()) +
                     " ranks");
    auto [other, fresh] = seen.emplace(rank.rank, i);
    if (!fresh)
      where[i].wrong("has rank " + std::to_string(rank.rank) + ", which " +
                     where[other->second].where() + " has already");
    auto [holder, free] =
        devices.emplace(std::pair(rank.host, rank.device), rank.rank);
    if (!free)
      where[i].wrong("gives rank " + std::to_string(rank.rank) + " device " +
                     std::to_string(rank.device) + " of host " + rank.host +
                     ", which rank " + std::to_string(holder->second) +
                     " has already");
  }
  std::sort(
      table.ranks.begin(), table.ranks.end(),
      [](const TableRank &a, const TableRank &b) { return a.rank < b.rank; });
}

/// Versions 1.0 and 1.2.
void readServers(const Node &root, RankTable &table) {
  bool pods = table.version == "1.2";
  if (std::string status = root.at("status").text(); status != "completed")
    root.at("status").wrong("is '" + status + "', not 'completed'");
  std::vector<Node> servers = root.at("server_list").list(1, kMostRanks);
  if (int count = root.at("server_count").number(1, kMostRanks, true);
      count != int(servers.size()))
    root.at("server_count")
        .wrong("is " + std::to_string(count) + ", but there are " +
               std::to_string(servers.size()) + " servers");
  std::set<std::string> ids, superDevices;
  std::vector<Node> where;
  for (const Node &server : servers) {
    std::string id = server.at("server_id").text();
    if (!ids.insert(id).second)
      server.at("server_id").wrong("is '" + id + "', as another one is");
    for (const char *key : {"host_ip", "container_ip"})
      if (server.has(key))
        server.at(key).address();
    for (const Node &device : server.at("device").list(1, 1 << 12)) {
      TableRank rank;
      rank.host = id;
      rank.device = device.at("device_id").number(0, 1 << 16, true);
      rank.rank = device.at("rank_id").number(0, kMostRanks, true);
      if (device.has("device_ip"))
        rank.addresses.push_back(device.at("device_ip").address());
      if (pods) {
        std::string super = device.at("super_device_id").text();
        if (!superDevices.insert(super).second)
          device.at("super_device_id")
              .wrong("is '" + super + "', as another one is");
        if (device.has("device_logical_id"))
          device.at("device_logical_id").number(0, 1 << 16, true);
      }
      table.ranks.push_back(rank);
      where.push_back(device);
    }
  }
  if (pods) {
    std::set<std::string> podIds, placed;
    for (const Node &pod : root.at("super_pod_list").list(1, kMostRanks)) {
      std::string id = pod.at("super_pod_id").text();
      if (!podIds.insert(id).second)
        pod.at("super_pod_id").wrong("is '" + id + "', as another one is");
      for (const Node &server : pod.at("server_list").list(1, kMostRanks)) {
        std::string name = server.at("server_id").text();
        if (!ids.count(name))
          server.wrong("names server '" + name + "', which is not there");
        if (!placed.insert(name).second)
          server.wrong("names server '" + name + "' a second time");
      }
    }
    for (const std::string &id : ids)
      if (!placed.count(id))
        root.at("super_pod_list").wrong("leaves out server '" + id + "'");
  }
  order(table, where);
}

/// Version 2.0.
void readRanks(const Node &root, RankTable &table) {
  if (root.has("status") && root.at("status").text() != "completed")
    root.at("status").wrong("is not 'completed'");
  std::vector<Node> ranks = root.at("rank_list").list(1, kMostRanks);
  if (int count = root.at("rank_count").number(1, kMostRanks, false);
      count != int(ranks.size()))
    root.at("rank_count")
        .wrong("is " + std::to_string(count) + ", but there are " +
               std::to_string(ranks.size()) + " ranks");
  std::set<std::string> addresses;
  for (const Node &node : ranks) {
    TableRank rank;
    rank.rank = node.at("rank_id").number(0, kMostRanks, false);
    rank.device = node.at("device_id").number(0, 1 << 16, false);
    if (node.has("local_id"))
      node.at("local_id").number(0, 1 << 16, false);
    std::set<int> layers;
    for (const Node &level : node.at("level_list").list(1, 8)) {
      int layer = level.at("net_layer").number(0, 7, false);
      if (!layers.insert(layer).second)
        level.at("net_layer")
            .wrong("is " + std::to_string(layer) + ", as another one is");
      std::string instance = level.at("net_instance_id").text();
      if (layer == 0)
        rank.host = instance;
      std::string type = level.at("net_type").text();
      if (type != "TOPO_FILE_DESC" && type != "CLOS")
        level.at("net_type")
            .wrong("is '" + type + "', not TOPO_FILE_DESC or CLOS");
      for (const Node &entry : level.at("rank_addr_list").list(1, 24)) {
        std::string kind = entry.at("addr_type").text();
        std::string address;
        if (kind == "EID") {
          address = entry.at("addr").text();
          if (address.find_first_not_of("0123456789abcdefABCDEF:") !=
              std::string::npos)
            entry.at("addr").wrong("is '" + address + "', not an EID");
        } else if (kind == "IPV4" || kind == "IPv4" || kind == "IPV6" ||
                   kind == "IPv6") {
          address = entry.at("addr").address();
        } else {
          entry.at("addr_type")
              .wrong("is '" + kind + "', not EID, IPV4 or IPV6");
        }
        if (!addresses.insert(std::to_string(layer) + "/" + address).second)
          entry.at("addr").wrong("is '" + address +
                                 "', which another rank has in this layer");
        for (const Node &port : entry.at("ports").list(1, 64)) {
          std::string text = port.text();
          size_t slash = text.find('/');
          if (slash == 0 || slash == std::string::npos ||
              slash + 1 == text.size() ||
              text.find_first_not_of("0123456789/") != std::string::npos ||
              text.find('/', slash + 1) != std::string::npos)
            port.wrong("is '" + text + "', not DIE/PORT");
        }
        rank.addresses.push_back(address);
      }
    }
    if (!layers.count(0))
      node.at("level_list").wrong("has no net_layer 0");
    table.ranks.push_back(rank);
  }
  order(table, ranks);
}

json parseText(const std::string &text, const std::string &name) {
  // Hostile nesting must not use up the stack.
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > 64)
        raise(CONCORD_ERROR_CORRUPT, "%s: nested too deeply", name.c_str());
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  json document = json::parse(text, nullptr, false);
  if (document.is_discarded())
    raise(CONCORD_ERROR_CORRUPT, "%s: is not JSON", name.c_str());
  return document;
}

} // namespace

RankTable concord::rt::parseRankTable(const std::string &text,
                                      const std::string &name) {
  json document = parseText(text, name);
  Node root(document, name, "");
  RankTable table;
  if (root.has("server_group_list"))
    root.wrong("has groups of servers (server_group_list): each group is a job "
               "of its own; give the table of one group");
  table.version = root.at("version").text();
  if (table.version == "1.0" || table.version == "1.2")
    readServers(root, table);
  else if (table.version == "2.0")
    readRanks(root, table);
  else
    root.at("version").wrong("is '" + table.version +
                             "'; known are 1.0, 1.2 and 2.0");
  return table;
}

std::vector<Device> concord::rt::parseDevices(const std::string &text,
                                              const std::string &name) {
  json document = parseText(text, name);
  Node root(document, name, "");
  std::vector<Device> devices;
  std::set<int> seen;
  for (const Node &node : root.at("devices").list(1, 1 << 16)) {
    Device device;
    device.physical = node.at("physical_id").number(0, 1 << 16, false);
    if (!seen.insert(device.physical).second)
      node.at("physical_id").wrong("is that of another device");
    if (node.has("kind")) {
      device.kind = node.at("kind").text();
      if (device.kind.size() > 15)
        node.at("kind").wrong("is longer than 15 characters");
    }
    if (node.has("plane"))
      device.plane = uint32_t(node.at("plane").number(0, 1 << 30, false));
    if (node.has("alignment")) {
      device.alignment =
          uint32_t(node.at("alignment").number(1, 1 << 21, false));
      if (device.alignment & (device.alignment - 1))
        node.at("alignment").wrong("is not a power of two");
    }
    if (node.has("bandwidth")) {
      device.bandwidth = node.at("bandwidth").real();
      if (!(device.bandwidth > 0) || device.bandwidth > 1e18)
        node.at("bandwidth").wrong("is not a number of bytes per second");
    }
    devices.push_back(device);
  }
  return devices;
}

std::vector<int> concord::rt::parseVisible(const std::string &text,
                                           const char *variable) {
  std::vector<int> list;
  std::vector<bool> seen(100'000); // numbers have five digits
  auto wrong = [&](const char *what) {
    raise(CONCORD_ERROR_INVALID_ARGUMENT, "%s=%s: %s", variable, text.c_str(),
          what);
  };
  size_t at = 0;
  auto number = [&] {
    size_t end = text.find_first_not_of("0123456789", at);
    end = std::min(end, text.size());
    if (end == at || end - at > 5)
      wrong("write device numbers like 0,1,4-7");
    int value = std::stoi(text.substr(at, end - at));
    at = end;
    return value;
  };
  while (at < text.size()) {
    int first = number(), last = first;
    if (at < text.size() && text[at] == '-') {
      ++at;
      last = number();
    }
    if (last < first)
      wrong("a range goes backwards");
    for (int i = first; i <= last; ++i) {
      if (seen[size_t(i)])
        wrong("a device is there twice");
      seen[size_t(i)] = true;
      list.push_back(i);
    }
    if (at < text.size() && text[at++] != ',')
      wrong("write device numbers like 0,1,4-7");
  }
  return list;
}

DeviceChoice concord::rt::chooseDevice(int rank, int local,
                                       const std::vector<int> &visible,
                                       const std::vector<Device> &devices,
                                       const RankTable *table) {
  DeviceChoice choice;
  choice.device.physical = -1;
  if (!visible.empty()) {
    // A process that sees one device uses it; one that sees several uses the
    // one of its turn.
    int index = visible.size() == 1 ? 0 : local;
    if (index >= int(visible.size()))
      raise(CONCORD_ERROR_DEVICE_MAPPING,
            "rank %d is number %d on its host, but CONCORD_VISIBLE_DEVICES "
            "shows %zu devices",
            rank, local, visible.size());
    choice.visible = index;
    choice.device.physical = visible[size_t(index)];
  } else if (!devices.empty()) {
    if (local >= int(devices.size()))
      raise(CONCORD_ERROR_DEVICE_MAPPING,
            "rank %d is number %d on its host, but %zu devices are described",
            rank, local, devices.size());
    choice.visible = local;
    choice.device.physical = devices[size_t(local)].physical;
  }
  if (table) {
    int wanted = table->ranks[size_t(rank)].device;
    if (choice.device.physical < 0) {
      choice.device.physical = choice.visible = wanted;
    } else if (choice.device.physical != wanted) {
      raise(CONCORD_ERROR_DEVICE_MAPPING,
            "rank %d: the rank table gives it physical device %d, but its "
            "visible device %d is physical device %d",
            rank, wanted, choice.visible, choice.device.physical);
    }
  }
  if (!devices.empty()) {
    int physical = choice.device.physical;
    auto found =
        std::find_if(devices.begin(), devices.end(), [&](const Device &device) {
          return device.physical == physical;
        });
    if (found == devices.end())
      raise(CONCORD_ERROR_DEVICE_MAPPING,
            "rank %d uses physical device %d, which is not described", rank,
            physical);
    choice.device = *found;
  }
  return choice;
}

std::string concord::rt::readText(const std::string &path) {
  std::FILE *file = std::fopen(path.c_str(), "re");
  if (!file)
    raise(CONCORD_ERROR_NOT_FOUND, "%s: cannot be opened", path.c_str());
  std::string text;
  char buffer[1 << 14];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, file)) > 0;) {
    text.append(buffer, n);
    if (text.size() > size_t(256) << 20)
      break;
  }
  std::fclose(file);
  return text;
}

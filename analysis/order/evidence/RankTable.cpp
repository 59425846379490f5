//===- RankTable.cpp - Rank tables v1.0, v1.2, v2.0 -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Checks what a communication library would trust: counts, ids unique and
// dense, no device twice, addresses valid and distinct.
//
//===----------------------------------------------------------------------===//

#include "Value.h"
#include "concord/order/Evidence.h"

#include <algorithm>
#include <arpa/inet.h>
#include <map>
#include <set>

namespace concord::order::evidence {

namespace {

using Node = Document::Node;

bool validAddress(const std::string &text) {
  unsigned char buffer[16];
  if (inet_pton(AF_INET, text.c_str(), buffer) == 1) {
    // 0.0.0.0 and 255.255.255.255 name no interface.
    return !(buffer[0] == 0 || buffer[0] == 255 || buffer[0] == 127);
  }
  return inet_pton(AF_INET6, text.c_str(), buffer) == 1;
}

std::string textOf(const Node *n) {
  if (!n)
    return {};
  if (n->type == Document::Type::String)
    return std::string(n->text);
  if (n->type == Document::Type::Int)
    return std::to_string(n->integer);
  return {};
}

struct Checker {
  Job &job;
  const std::string &path;
  size_t reported = 0;

  void fault(const char *id, std::string title, const char *cause,
             const char *cure, std::vector<Rank> culprits = {}) {
    if (++reported > 32)
      return;
    Finding f;
    f.kind = Finding::Kind::Mismatch;
    f.id = id;
    f.title = path + ": " + std::move(title);
    f.cause = cause;
    f.cure = cure;
    f.culprits = std::move(culprits);
    job.tableFindings.push_back(std::move(f));
  }
};

/// An address of the fabric: hexadecimal digits, with or without colons.
bool validFabricAddress(const std::string &text) {
  return !text.empty() &&
         text.find_first_not_of("0123456789abcdefABCDEF:") == std::string::npos;
}

struct Row {
  int64_t rank = -1;
  std::string server, device, superDevice;
  std::vector<std::string> addresses;
  std::vector<std::string> fabricAddresses;
};

void checkRows(const std::vector<Row> &rows, Checker &c) {
  std::map<int64_t, size_t> byRank;
  std::map<std::pair<std::string, std::string>, int64_t> byDevice;
  std::map<std::string, int64_t> byAddress;
  auto reachable = [](const Row &r) {
    return !r.addresses.empty() || !r.fabricAddresses.empty();
  };
  bool addressed = std::any_of(rows.begin(), rows.end(), reachable);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row &r = rows[i];
    if (r.rank < 0) {
      c.fault("rank-id-missing",
              "entry " + std::to_string(i) + " has no valid rank_id",
              "a rank without a number cannot join", "number the ranks from 0");
      continue;
    }
    Rank rank = Rank(std::min<int64_t>(r.rank, INT32_MAX));
    auto [it, fresh] = byRank.try_emplace(r.rank, i);
    if (!fresh)
      c.fault("rank-id-twice",
              "rank " + std::to_string(r.rank) + " is given to device " +
                  rows[it->second].device + " of " + rows[it->second].server +
                  " and to device " + r.device + " of " + r.server,
              "two processes would answer to one rank: wrong results or a hang "
              "at the first collective",
              "number the ranks uniquely, from 0 without gaps", {rank});
    auto [dev, newDevice] = byDevice.try_emplace({r.server, r.device}, r.rank);
    if (!newDevice)
      c.fault("device-twice",
              "device " + r.device + " of server " + r.server +
                  " is listed for ranks " + std::to_string(dev->second) +
                  " and " + std::to_string(r.rank),
              "two ranks would share a device", "one device per rank", {rank});
    if (r.device.empty() ||
        r.device.find_first_not_of("0123456789") != std::string::npos)
      c.fault("device-id-invalid",
              "rank " + std::to_string(r.rank) + " has device_id '" + r.device +
                  "'",
              "the device number is not a number",
              "use the local device number", {rank});
    if (addressed && !reachable(r))
      c.fault("address-missing",
              "rank " + std::to_string(r.rank) +
                  " has no address, and others have",
              "peers cannot reach it: they wait until they time out",
              "enter the address of the device's own interface", {rank});
    std::vector<std::string> all = r.addresses;
    all.insert(all.end(), r.fabricAddresses.begin(), r.fabricAddresses.end());
    for (size_t k = 0; k < all.size(); ++k) {
      const std::string &a = all[k];
      if (k < r.addresses.size() ? !validAddress(a) : !validFabricAddress(a)) {
        c.fault("address-invalid",
                "rank " + std::to_string(r.rank) + " has the address '" + a +
                    "'",
                "no interface has that address: peers wait for an "
                "acknowledgement that never comes",
                "enter the address of the device's own interface", {rank});
        continue;
      }
      auto [at, newAddress] = byAddress.try_emplace(a, r.rank);
      if (!newAddress && at->second != r.rank)
        c.fault(
            "address-twice",
            "address " + a + " is given to ranks " +
                std::to_string(at->second) + " and " + std::to_string(r.rank),
            "peers reach the wrong device", "one address per device", {rank});
    }
  }
  int64_t expected = 0;
  for (const auto &[rank, _] : byRank) {
    if (rank != expected) {
      c.fault("rank-ids-not-dense",
              "rank " + std::to_string(expected) + " is missing (the next is " +
                  std::to_string(rank) + ")",
              "ranks have to be numbered without gaps",
              "number the ranks from 0 without gaps",
              {Rank(std::min<int64_t>(expected, INT32_MAX))});
      break;
    }
    ++expected;
  }
}

/// One table: a file's, or that of one group in a file of several.
void readTable(const Document &doc, const Node *root, const Node *servers,
               const Node *ranks, std::string version, std::string status,
               const std::string &path, Job &job) {
  Checker c{job, path};
  if (const Node *own = doc.member(root, "version"))
    version = textOf(own);
  if (const Node *own = doc.member(root, "status"))
    status = textOf(own);
  std::vector<Row> rows;
  if (ranks) {
    if (version != "2.0")
      c.fault("version-unknown", "rank_list with version '" + version + "'",
              "the format is 2.0's", "write version 2.0");
    for (const Node *r = doc.first(ranks); r; r = doc.next(r)) {
      Row row;
      row.rank = Document::integer(doc.member(r, "rank_id"), -1);
      row.device = textOf(doc.member(r, "device_id"));
      row.server = textOf(doc.member(r, "server_id"));
      for (const Node *level = doc.first(doc.member(r, "level_list")); level;
           level = doc.next(level)) {
        if (row.server.empty())
          row.server = textOf(doc.member(level, "net_instance_id"));
        for (const Node *a = doc.first(doc.member(level, "rank_addr_list")); a;
             a = doc.next(a)) {
          std::string type = textOf(doc.member(a, "addr_type")),
                      address = textOf(doc.member(a, "addr"));
          if (type == "IPV4" || type == "IPV6")
            row.addresses.push_back(address);
          else if (type == "EID")
            row.fabricAddresses.push_back(address);
        }
      }
      rows.push_back(std::move(row));
    }
    int64_t count = Document::integer(doc.member(root, "rank_count"), -1);
    if (count != int64_t(rows.size()))
      c.fault("count-mismatch",
              "rank_count is " + std::to_string(count) + ", the list has " +
                  std::to_string(rows.size()),
              "the library waits for ranks that are not listed",
              "make the count agree");
  } else {
    if (version != "1.0" && version != "1.2")
      c.fault("version-unknown", "server_list with version '" + version + "'",
              "the format is 1.0's or 1.2's", "write version 1.0 or 1.2");
    int64_t count = Document::integer(doc.member(root, "server_count"), -1);
    int64_t have = servers->count;
    if (count != have)
      c.fault("count-mismatch",
              "server_count is " + std::to_string(count) + ", the list has " +
                  std::to_string(have),
              "the library waits for servers that are not listed",
              "make the count agree");
    if (!status.empty() && status != "completed")
      c.fault("table-not-complete", "status is '" + status + "'",
              "the table was read before its generator had finished",
              "wait for status 'completed'");
    std::set<std::string> ids;
    std::map<std::string, std::string> pods; ///< of each server
    for (const Node *s = doc.first(servers); s; s = doc.next(s)) {
      std::string server = textOf(doc.member(s, "server_id"));
      if (!ids.insert(server).second)
        c.fault("server-twice", "server " + server + " is listed twice",
                "its devices appear twice", "one entry per server");
      if (!doc.first(doc.member(s, "device")))
        c.fault("server-without-devices",
                "server " + server + " lists no device", "its ranks never join",
                "list its devices, or leave it out");
      for (const Node *d = doc.first(doc.member(s, "device")); d;
           d = doc.next(d)) {
        Row row;
        row.server = server;
        row.device = textOf(doc.member(d, "device_id"));
        row.rank = Document::integer(doc.member(d, "rank_id"), -1);
        std::string ip = textOf(doc.member(d, "device_ip"));
        if (!ip.empty())
          row.addresses.push_back(ip);
        row.superDevice = textOf(doc.member(d, "super_device_id"));
        if (version == "1.2" && row.superDevice.empty())
          c.fault("super-device-missing",
                  "rank " + std::to_string(row.rank) +
                      " has no super_device_id",
                  "version 1.2 needs one per device",
                  "add it, or write version 1.0");
        rows.push_back(std::move(row));
      }
    }
    for (const Node *pod = doc.first(doc.member(root, "super_pod_list")); pod;
         pod = doc.next(pod))
      for (const Node *s = doc.first(doc.member(pod, "server_list")); s;
           s = doc.next(s)) {
        std::string server = textOf(doc.member(s, "server_id"));
        if (!ids.count(server))
          c.fault("pod-server-unknown",
                  "super pod " + textOf(doc.member(pod, "super_pod_id")) +
                      " names server " + server + ", which is not listed",
                  "the pod list and the server list disagree",
                  "list every server once");
        if (!pods.try_emplace(server, textOf(doc.member(pod, "super_pod_id")))
                 .second)
          c.fault("pod-server-twice",
                  "server " + server + " is in two super pods",
                  "a server belongs to one pod", "list every server once");
      }
    if (!pods.empty())
      for (const std::string &server : ids)
        if (!pods.count(server))
          c.fault("pod-server-missing",
                  "server " + server + " is in no super pod",
                  "the pod list and the server list disagree",
                  "list every server once");
    // Numbered within a pod.
    std::map<std::pair<std::string, std::string>, int64_t> superDevices;
    for (const Row &row : rows) {
      auto pod = pods.find(row.server);
      auto [first, fresh] = superDevices.try_emplace(
          {pod == pods.end() ? std::string() : pod->second, row.superDevice},
          row.rank);
      if (!fresh && !row.superDevice.empty())
        c.fault("super-device-twice",
                "super_device_id " + row.superDevice + " is given to ranks " +
                    std::to_string(first->second) + " and " +
                    std::to_string(row.rank),
                "peers reach the wrong device",
                "one super_device_id per device of a super pod",
                {Rank(std::clamp<int64_t>(row.rank, 0, INT32_MAX))});
    }
  }
  checkRows(rows, c);
  job.notes.push_back(path + ": rank table " + version + ", " +
                      std::to_string(rows.size()) + " ranks");
}

} // namespace

bool readRankTable(std::string_view text, const std::string &path, Job &job,
                   std::string &error) {
  Document doc;
  if (!doc.parseJson(text, {}, error))
    return false;
  const Node *root = doc.at(doc.root);
  const Node *servers = doc.member(root, "server_list"),
             *ranks = doc.member(root, "rank_list"),
             *groups = doc.member(root, "server_group_list");
  if (servers || ranks) {
    job.haveRankTable = true;
    readTable(doc, root, servers, ranks, "", "", path, job);
    return true;
  }
  // Of a serving cluster: one table per group of servers (prefill, decode),
  // each numbered from 0, in one file.
  bool any = false;
  for (const Node *group = doc.first(groups); group; group = doc.next(group)) {
    const Node *own = doc.member(group, "server_list");
    // A group that has no devices yet, or none at all (its coordinator).
    if (!own || !doc.first(own) ||
        !doc.first(doc.member(doc.first(own), "device")))
      continue;
    any = true;
    readTable(doc, group, own, nullptr, textOf(doc.member(root, "version")),
              textOf(doc.member(root, "status")),
              path + ", group " + textOf(doc.member(group, "group_id")), job);
  }
  if (!any) {
    error = groups ? "no group of server_group_list has devices"
                   : "neither server_list nor rank_list";
    return false;
  }
  job.haveRankTable = true;
  return true;
}

} // namespace concord::order::evidence

//===- OperatorLog.cpp - From processes of a log to ranks -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OperatorLog.h"

#include <algorithm>

namespace concord::order::evidence::operators {

namespace {

constexpr Operator kOperators[] = {
    {"ReduceScatter", "reduce_scatter", true, false, true, false},
    {"AllReduce", "all_reduce", true, false, true, false},
    {"AllGather", "all_gather", false, false, true, false},
    {"AlltoAll", "all_to_all", false, false, false, false},
    {"AllToAll", "all_to_all", false, false, false, false},
    {"Broadcast", "broadcast", false, true, true, false},
    {"Scatter", "scatter", false, true, true, false},
    {"Gather", "gather", false, true, false, false},
    {"Reduce", "reduce", true, true, true, false},
    {"Barrier", "barrier", false, false, false, false},
    {"BatchSendRecv", "batch_send_recv", false, false, false, true},
    {"Send", "send", false, false, true, true},
    {"Recv", "recv", false, false, true, true},
    {"Receive", "recv", false, false, true, true},
};

} // namespace

const Operator *find(std::string_view name) {
  for (const Operator &o : kOperators)
    if (name.substr(0, o.name.size()) == o.name)
      return &o;
  return nullptr;
}

bool addProcesses(Processes &processes, Job &job, bool &unknownPeers) {
  // Global ranks: from the largest domain that any process has joined.
  int64_t world = 0;
  uint32_t worldId = kNone;
  for (auto &[_, p] : processes)
    for (const Membership &m : p.memberships)
      if (m.size > world) {
        world = m.size;
        worldId = m.identifier;
      }
  std::set<Rank> taken;
  for (auto &[key, p] : processes) {
    for (const Membership &m : p.memberships)
      if (m.identifier == worldId)
        p.rank = Rank(m.rank);
    if (p.rank < 0)
      p.rank = p.fromPath;
    if (p.rank >= 0 && !taken.insert(p.rank).second) {
      job.notes.push_back("processes " + key.second + " in " + key.first +
                          " and another one both claim rank " +
                          std::to_string(p.rank) + ": logs of two runs?");
      p.rank = -1;
    }
  }
  Rank next = 0;
  for (auto &[key, p] : processes) {
    if (p.rank >= 0 || (p.entries.empty() && p.errors.empty()))
      continue;
    while (taken.count(next))
      ++next;
    p.rank = next;
    taken.insert(next);
    job.notes.push_back("process " + key.second + " in " + key.first +
                        " tells no rank; it is called rank " +
                        std::to_string(next) + " here");
  }
  // Members by group rank.
  std::map<uint32_t, std::vector<Rank>> members;
  for (auto &[_, p] : processes)
    for (const Membership &m : p.memberships) {
      auto &list = members[m.identifier];
      if (list.size() < size_t(m.size))
        list.resize(size_t(m.size), -1);
      if (p.rank >= 0)
        list[size_t(m.rank)] = p.rank;
    }
  std::map<uint32_t, std::set<Rank>>
      users; // domains whose creation was not logged
  for (auto &[_, p] : processes)
    for (const Entry &e : p.entries)
      if (!members.count(e.identifier) && p.rank >= 0)
        users[e.identifier].insert(p.rank);
  // A member whose creation line is lost but that uses the tag fills a gap.
  for (auto &[_, p] : processes) {
    std::set<uint32_t> used;
    for (const Entry &e : p.entries)
      used.insert(e.identifier);
    for (uint32_t id : used) {
      auto it = members.find(id);
      if (it == members.end() || std::find(it->second.begin(), it->second.end(),
                                           p.rank) != it->second.end())
        continue;
      std::vector<size_t> gaps;
      for (size_t k = 0; k < it->second.size(); ++k)
        if (it->second[k] < 0)
          gaps.push_back(k);
      if (gaps.size() == 1)
        it->second[gaps[0]] = p.rank;
    }
  }
  // Of the world domain, group ranks are the global ranks, logged or not.
  if (worldId != kNone)
    for (size_t k = 0; k < members[worldId].size(); ++k)
      members[worldId][k] = Rank(k);
  std::map<uint32_t, uint32_t> domainOf;
  for (auto &[id, list] : members)
    domainOf[id] = job.domainId(job.strings[id], list);
  for (auto &[id, set] : users) {
    domainOf[id] = job.domainId(job.strings[id],
                                std::vector<Rank>(set.begin(), set.end()));
    job.notes.push_back(
        "the creation of domain " + job.strings[id] +
        " is not in the logs; its members are taken to be those that use it");
  }
  bool any = false;
  for (auto &[key, p] : processes) {
    if (p.rank < 0 ||
        (p.entries.empty() && p.errors.empty() && p.memberships.empty()))
      continue;
    any = true;
    std::vector<uint32_t> at(p.entries.size());
    for (uint32_t i = 0; i < at.size(); ++i)
      at[i] = i;
    // Stable by time; lines without one stay where they are.
    bool timed = std::all_of(p.entries.begin(), p.entries.end(),
                             [](const Entry &e) { return e.time; });
    if (timed)
      std::sort(at.begin(), at.end(), [&](uint32_t a, uint32_t b) {
        const Entry &x = p.entries[a], &y = p.entries[b];
        return x.time != y.time ? x.time < y.time : a < b;
      });
    RankEvidence &own = job.ranks[p.rank];
    own.present = own.present || !p.entries.empty();
    for (uint32_t f : p.files)
      own.files.push_back(job.strings[f]);
    own.errors.insert(own.errors.end(), p.errors.begin(), p.errors.end());
    own.truncatedStart =
        own.truncatedStart || (p.memberships.empty() && !p.entries.empty());
    std::map<uint32_t, int64_t> counters;
    uint64_t order = 0, launch = 0;
    for (uint32_t i : at) {
      const Entry &e = p.entries[i];
      uint32_t domain = domainOf.at(e.identifier);
      Issue issue;
      if (!e.launch || e.launch != launch)
        ++order;
      launch = e.launch;
      issue.order = order;
      issue.file = e.file;
      issue.line = e.line;
      issue.stream = e.stream;
      issue.thread = e.thread;
      issue.signature = e.signature;
      issue.kind = job.strings.id(e.op->kind);
      if (e.op->transfer) {
        const auto &m = job.domains[domain].members;
        Rank peer = e.peer >= 0 && size_t(e.peer) < m.size() ? m[size_t(e.peer)]
                                                             : Rank(-1);
        if (peer < 0 && m.size() == 2 &&
            e.op->kind != std::string_view("batch_send_recv"))
          peer = m[0] == p.rank ? m[1] : m[0];
        if (e.op->kind == std::string_view("batch_send_recv") &&
            m.size() == 2) {
          // Both directions in one launch; as a two-member sequence.
          issue.sequence = job.sequenceId(domain, false);
          issue.index = counters[issue.sequence]++;
          own.issues.push_back(issue);
          continue;
        }
        if (peer < 0) {
          unknownPeers = true;
          issue.sequence = job.sequenceId(domain, true, -1, -1);
        } else if (e.op->kind == std::string_view("send"))
          issue.sequence = job.sequenceId(domain, true, p.rank, peer);
        else
          issue.sequence = job.sequenceId(domain, true, peer, p.rank);
      } else {
        issue.sequence = job.sequenceId(domain, false);
        issue.index = counters[issue.sequence]++;
      }
      own.issues.push_back(issue);
    }
  }
  return any;
}

} // namespace concord::order::evidence::operators

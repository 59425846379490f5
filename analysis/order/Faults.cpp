//===- Faults.cpp - Mismatches, races, and the words for a chain ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What can be seen in one state or in the program text, and how a chain of
// waits is classified into a cause and a cure.
//
//===----------------------------------------------------------------------===//

#include "StableSort.h"
#include "WaitGraph.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

namespace concord::order {

using Reason = ChainEdge::Reason;

namespace {

std::string rankName(Rank r) { return "r" + std::to_string(r); }

std::string rankList(const std::vector<Rank> &ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8 && ranks.size() > 9)
      return out + " and " + std::to_string(ranks.size() - 8) + " more";
    out += (i ? (i + 1 == ranks.size() ? " and " : ", ") : "") +
           rankName(ranks[i]);
  }
  return out;
}

/// What one member did at one index.
struct Entry {
  Rank rank;
  std::string kind; ///< mnemonic or host name
  const Attributes *attributes;
  Location loc;
  std::string signature() const {
    return kind + "(" + toString(*attributes) + ")";
  }
};

std::string value(const Attributes &attributes, const std::string &key) {
  for (const auto &[k, v] : attributes)
    if (k == key)
      return v;
  return "absent";
}

/// Divide the members by what they did; the majority first.
std::vector<std::vector<const Entry *>>
divide(const std::vector<Entry> &entries) {
  std::map<std::string, std::vector<const Entry *>> groups;
  for (const Entry &e : entries)
    groups[e.signature()].push_back(&e);
  std::vector<std::vector<const Entry *>> out;
  for (auto &[_, g] : groups)
    out.push_back(g);
  stableSort(out, [](const auto &a, const auto &b) {
    if (a.size() != b.size())
      return a.size() > b.size();
    return a.front()->rank < b.front()->rank;
  });
  return out;
}

std::string
alternatives(const std::vector<std::vector<const Entry *>> &groups,
             const std::function<std::string(const Entry &)> &text) {
  std::string out;
  for (const auto &g : groups) {
    std::vector<Rank> ranks;
    for (const Entry *e : g)
      ranks.push_back(e->rank);
    out +=
        (out.empty() ? "" : ", ") + text(*g.front()) + " on " + rankList(ranks);
  }
  return out;
}

Finding mismatchOf(const std::string &what, const std::vector<Entry> &entries) {
  Finding f;
  f.kind = Finding::Kind::Mismatch;
  auto groups = divide(entries);
  bool kinds = false;
  for (const auto &g : groups)
    kinds = kinds || g.front()->kind != groups.front().front()->kind;
  std::set<std::string> keys;
  for (const auto &g : groups)
    for (const auto &[k, _] : *g.front()->attributes)
      keys.insert(k);
  std::vector<std::string> differing;
  for (const std::string &k : keys) {
    std::set<std::string> values;
    for (const auto &g : groups)
      values.insert(value(*g.front()->attributes, k));
    if (values.size() > 1)
      differing.push_back(k);
  }
  if (kinds) {
    f.id = "kind-mismatch";
    f.title = what + ": " + alternatives(groups, [](const Entry &e) {
                return e.signature();
              });
    f.cause = "the members do not issue the same sequence on this domain: a "
              "branch, a trip count "
              "or an early return that depends on rank-local data, or two "
              "issuers without order";
    f.cure = "issue the same sequence on every member: make the collective "
             "unconditional, or take "
             "the decision from replicated or broadcast data";
  } else {
    std::string key = differing.empty() ? "" : differing.front();
    std::string list;
    for (const std::string &k : differing)
      list += (list.empty() ? "" : "; ") + k + " is " +
              alternatives(groups, [&](const Entry &e) {
                return value(*e.attributes, k);
              });
    f.title = what + " (" + groups.front().front()->kind + "): " + list;
    static const std::map<std::string, std::array<const char *, 3>> byKey = {
        {"n",
         {"count-mismatch",
          "the element counts differ: a size that follows what a rank happened "
          "to execute",
          "size the buffer from configuration that is equal on all ranks, or "
          "agree on the layout first"}},
        {"dt",
         {"dtype-mismatch", "the element types differ",
          "use one dtype on all members; check before the issue"}},
        {"op",
         {"reduction-mismatch", "the reductions differ",
          "use one reduction on all members"}},
        {"groot",
         {"root-mismatch",
          "the members name different roots (Flight Recorder dumps carry no "
          "root; HCCL entry lines of rooted collectives do)",
          "name one root, as a global rank"}},
        {"t",
         {"tensor-mismatch",
          "the members pair different logical tensors: with equal sizes "
          "nothing "
          "hangs and the values are wrong",
          "agree on the order of tensors (a static plan or a "
          "coordinator); without tags, transfers pair by order alone"}},
        {"cap",
         {"capture-mismatch",
          "captured on some members and issued singly on others",
          "capture on all members or on none"}}};
    auto it = byKey.find(key);
    f.id = it == byKey.end() ? "attribute-mismatch" : it->second[0];
    f.cause = it == byKey.end() ? "the members disagree on '" + key + "'"
                                : it->second[1];
    f.cure = it == byKey.end() ? "make it equal on all members" : it->second[2];
  }
  // The odd ones out, by majority. Two equal camps have none: then all of the
  // smaller-ranked camp's opponents are named after it.
  for (size_t i = 1; i < groups.size(); ++i)
    for (const Entry *e : groups[i])
      f.culprits.push_back(e->rank);
  bool majority = groups.size() > 1 && groups[0].size() > groups[1].size();
  if (majority)
    f.details.push_back("odd one out by majority: " + rankList(f.culprits));
  else {
    f.details.push_back(
        "no majority: the evidence does not say which side is wrong");
    for (const Entry *e : groups[0])
      f.culprits.push_back(e->rank);
  }
  for (const auto &g : groups)
    f.details.push_back(g.front()->signature() + " of " +
                        rankName(g.front()->rank) + " at " +
                        g.front()->loc.str());
  return f;
}

struct Located {
  uint32_t position;
  Finding finding;
};

/// Whether the rank of queue `odd` seems to have skipped instance `index`: what
/// it does from there equals what the others do one instance later.
bool looksSkipped(const Machine &m, const Machine::State &s, uint32_t odd,
                  uint32_t other, uint32_t index) {
  uint32_t compared = 0;
  for (uint32_t i = index; compared < 16; ++i) {
    uint32_t a = m.entry(s, odd, i), b = m.entry(s, other, i + 1);
    if (a == kNone)
      break;
    if (b == kNone || m.part(a).kind != m.part(b).kind ||
        m.part(a).compared != m.part(b).compared)
      return false;
    ++compared;
  }
  return compared > 0;
}

} // namespace

std::vector<Finding> findStaticMismatches(const Program &p) {
  std::vector<Finding> out;
  auto report = [&](Rank rank, const Location &loc, std::string id,
                    std::string title, std::string cause, std::string cure) {
    Finding f;
    f.kind = Finding::Kind::Mismatch;
    f.id = std::move(id);
    f.title = std::move(title);
    f.details.push_back("at " + loc.str());
    f.culprits.push_back(rank);
    f.cause = std::move(cause);
    f.cure = std::move(cure);
    out.push_back(std::move(f));
  };
  auto check = [&](Rank self, uint32_t domain, const std::string &what,
                   bool hasRoot, Rank root, Rank peer, const Location &loc) {
    const Domain &d = p.domains[domain];
    std::string members = "members of " + d.name + ": " + rankList(d.members);
    if (!d.contains(self))
      report(self, loc, "not-a-member",
             rankName(self) + " calls " + what + " but is no member of " +
                 d.name,
             "the caller is not in the domain (" + members + ")",
             "issue it on members only; reject it at the issue");
    if (hasRoot && !d.contains(root))
      report(self, loc, "root-not-a-member",
             what + " on " + rankName(self) + ": root " + rankName(root) +
                 " is not in " + d.name,
             "the root is a global rank and not a member (" + members +
                 "); a group rank was probably given",
             "convert between group and global ranks through the domain; use "
             "distinct types");
    if (peer >= 0 && !d.contains(peer))
      report(self, loc, "peer-not-a-member",
             what + " on " + rankName(self) + ": peer " + rankName(peer) +
                 " is not in " + d.name,
             "the peer is not in the domain (" + members + ")",
             "use a domain that holds both ends");
  };
  for (const Thread &t : p.threads)
    for (const Statement &stmt : t.body) {
      if (stmt.kind == StmtKind::HostCollective)
        check(p.devices[stmt.device].rank, stmt.domain, p.describe(stmt),
              stmt.hasRoot, stmt.root, -1, stmt.loc);
      if (stmt.kind != StmtKind::Issue)
        continue;
      const Operation &o = p.ops[stmt.op];
      for (const Part &part : o.parts)
        check(p.devices[o.device].rank, part.domain, p.describe(part),
              part.hasRoot, part.root, isTransfer(part.kind) ? part.peer : -1,
              part.loc);
    }
  return out;
}

std::vector<Finding> findMismatches(const Machine &m, const Machine::State &s) {
  const Program &p = m.program();
  std::vector<Located> found;
  auto entryOf = [&](uint32_t part, Rank rank) {
    return Entry{rank, std::string(mnemonic(m.part(part).kind)),
                 &m.part(part).compared, m.part(part).loc};
  };
  for (uint32_t c = 0; c < p.domains.size(); ++c) {
    const Domain &d = p.domains[c];
    const auto &queues = m.collectiveQueues(c);
    for (uint32_t i = 0;; ++i) {
      std::vector<Entry> entries;
      std::vector<uint32_t> from;
      uint32_t position = kNone;
      for (size_t k = 0; k < queues.size(); ++k) {
        uint32_t part = m.entry(s, queues[k], i);
        if (part == kNone)
          continue;
        entries.push_back(entryOf(part, d.members[k]));
        from.push_back(queues[k]);
        position = std::min(position, m.position(s, m.opOfPart(part)));
      }
      if (entries.empty())
        break;
      bool same = true;
      for (const Entry &e : entries)
        same = same && e.kind == entries[0].kind &&
               *e.attributes == *entries[0].attributes;
      if (same)
        continue;
      Finding f = mismatchOf("instance " + std::to_string(i) + " of " + d.name,
                             entries);
      for (size_t a = 0; a < from.size(); ++a)
        for (size_t b = 0; b < from.size(); ++b)
          if (a != b && entries[a].signature() != entries[b].signature() &&
              looksSkipped(m, s, from[a], from[b], i)) {
            f.details.insert(f.details.begin(),
                             rankName(entries[a].rank) +
                                 " seems to have skipped instance " +
                                 std::to_string(i) +
                                 ": what it issues from there equals what " +
                                 rankName(entries[b].rank) +
                                 " issues one instance later; later hangs are "
                                 "a consequence");
            auto &c2 = f.culprits;
            c2.erase(std::remove(c2.begin(), c2.end(), entries[a].rank),
                     c2.end());
            c2.insert(c2.begin(), entries[a].rank);
            b = a = from.size() - 1;
          }
      found.push_back({position, std::move(f)});
      break; // the earliest of this domain
    }
    const auto &hosts = m.hostQueues(c);
    for (uint32_t i = 0;; ++i) {
      std::vector<Entry> entries;
      for (size_t k = 0; k < hosts.size(); ++k) {
        uint32_t id = m.entry(s, hosts[k], i);
        if (id == kNone)
          continue;
        const Statement &stmt = m.statement(id);
        entries.push_back(
            {d.members[k], "H:" + stmt.label, &stmt.compared, stmt.loc});
      }
      if (entries.empty())
        break;
      bool same = true;
      for (const Entry &e : entries)
        same = same && e.kind == entries[0].kind &&
               *e.attributes == *entries[0].attributes;
      if (same)
        continue;
      Finding f = mismatchOf(
          "host collective " + std::to_string(i) + " of " + d.name, entries);
      f.cause = "the members are in different host phases of one domain: a "
                "rank-dependent branch "
                "or configuration";
      f.cure = "take the same path on every member; compare a digest of the "
               "configuration when a "
               "domain is created";
      found.push_back({0, std::move(f)});
      break;
    }
  }
  // Transfers: each direction once, from its sending side.
  std::set<std::pair<uint32_t, uint32_t>> reported; // queue pairs
  for (uint32_t o = 0; o < p.ops.size(); ++o) {
    if (m.status(s, o) == Machine::Unissued)
      continue;
    for (uint32_t k = 0; k < p.ops[o].parts.size(); ++k) {
      uint32_t id = m.firstPart(o) + k;
      const Part &a = m.part(id);
      if (a.kind != OpKind::Send)
        continue;
      uint32_t index = m.instance(s, id),
               other = m.entry(s, m.otherSide(id), index);
      if (other == kNone || m.part(other).compared == a.compared)
        continue;
      if (!reported.insert({m.queueOfPart(id), m.otherSide(id)}).second)
        continue;
      Rank src = p.devices[p.ops[o].device].rank, dst = a.peer;
      std::vector<Entry> entries{
          {src, "transfer", &a.compared, a.loc},
          {dst, "transfer", &m.part(other).compared, m.part(other).loc}};
      Finding f = mismatchOf("transfer " + std::to_string(index) + " from " +
                                 rankName(src) + " to " + rankName(dst) +
                                 " on " + p.domains[a.domain].name,
                             entries);
      found.push_back({m.position(s, o), std::move(f)});
    }
  }
  stableSort(found, [](const Located &a, const Located &b) {
    return a.position < b.position;
  });
  std::vector<Finding> out;
  for (Located &l : found)
    out.push_back(std::move(l.finding));
  return out;
}

std::vector<Finding> findRaces(const Program &p) {
  std::vector<Finding> out;
  for (const Process &process : p.processes) {
    if (process.threads.size() != 1 || process.devices.size() != 1)
      continue;
    const Thread &t = p.threads[process.threads.front()];
    // Happens-before of the operations in issue order, as bit rows: row i holds
    // what happens before operation i.
    std::vector<uint32_t> issued;
    std::vector<std::vector<bool>> before;
    std::map<uint32_t, uint32_t> lastInStream, lastRecord;
    std::vector<bool> hostKnows; // finished before the host went on
    for (const Statement &stmt : t.body) {
      switch (stmt.kind) {
      case StmtKind::Issue: {
        const Operation &o = p.ops[stmt.op];
        uint32_t i = uint32_t(issued.size());
        std::vector<bool> row(i, false);
        auto after = [&](uint32_t j) {
          row[j] = true;
          for (uint32_t k = 0; k < before[j].size(); ++k)
            if (before[j][k])
              row[k] = true;
        };
        if (auto it = lastInStream.find(o.stream); it != lastInStream.end())
          after(it->second);
        if (o.kind == OpKind::Wait)
          if (auto it = lastRecord.find(o.name); it != lastRecord.end())
            after(it->second);
        for (uint32_t k = 0; k < hostKnows.size(); ++k)
          if (hostKnows[k])
            row[k] = true;
        lastInStream[o.stream] = i;
        if (o.kind == OpKind::Record)
          lastRecord[o.name] = i;
        issued.push_back(stmt.op);
        before.push_back(std::move(row));
        hostKnows.push_back(false);
        break;
      }
      case StmtKind::SyncDevice:
      case StmtKind::SyncProcess:
      case StmtKind::MapMemory:
      case StmtKind::Free:
      case StmtKind::LoadKernel:
        hostKnows.assign(issued.size(), true);
        break;
      case StmtKind::SyncStream:
        if (auto it = lastInStream.find(stmt.stream);
            it != lastInStream.end()) {
          hostKnows[it->second] = true;
          for (uint32_t k = 0; k < before[it->second].size(); ++k)
            if (before[it->second][k])
              hostKnows[k] = true;
        }
        break;
      default:
        break;
      }
    }
    auto conflict = [&](const Operation &a, const Operation &b) -> std::string {
      for (const std::string &w : a.writes) {
        if (std::find(b.writes.begin(), b.writes.end(), w) != b.writes.end())
          return w;
        if (std::find(b.reads.begin(), b.reads.end(), w) != b.reads.end())
          return w;
      }
      return {};
    };
    for (uint32_t i = 0; i < issued.size(); ++i) {
      const Operation &b = p.ops[issued[i]];
      if (b.reads.empty() && b.writes.empty())
        continue;
      for (uint32_t j = 0; j < i; ++j) {
        const Operation &a = p.ops[issued[j]];
        std::string buffer = conflict(a, b);
        if (buffer.empty())
          buffer = conflict(b, a);
        if (buffer.empty() || before[i][j])
          continue;
        auto verb = [&](const Operation &o) {
          bool w = std::find(o.writes.begin(), o.writes.end(), buffer) !=
                   o.writes.end();
          return std::string(w ? " writes " : " reads ");
        };
        Finding f;
        f.kind = Finding::Kind::Race;
        f.id = "race";
        Rank rank = p.devices[a.device].rank;
        f.title = rankName(rank) + ": " + p.describe(a) + " on stream " +
                  p.streams[a.stream] + verb(a) + buffer + ", " +
                  p.describe(b) + " on stream " + p.streams[b.stream] +
                  verb(b) + buffer + ", and no event orders stream " +
                  p.streams[a.stream] + " before stream " + p.streams[b.stream];
        f.details = {p.describe(a) + " at " + a.loc.str(),
                     p.describe(b) + " at " + b.loc.str()};
        f.culprits = {rank};
        f.cause = "the edge between producer and consumer is missing, or was "
                  "lost in a lowering";
        f.cure = "record an event after the first and wait for it before the "
                 "second; keep the wait "
                 "edge through every pass";
        out.push_back(std::move(f));
        if (out.size() >= 32)
          return out;
      }
    }
  }
  return out;
}

Finding explainChain(const Program &p, std::vector<ChainEdge> chain,
                     bool cycle) {
  Finding f;
  f.kind = cycle ? Finding::Kind::Cycle : Finding::Kind::Missing;
  std::set<Reason> reasons;
  std::set<std::string> domains;
  std::set<Rank> ranks;
  bool transfer = false, collective = false;
  for (const ChainEdge &e : chain) {
    reasons.insert(e.reason);
    if (!e.from.domain.empty())
      domains.insert(e.from.domain);
    if (e.from.rank >= 0) {
      ranks.insert(e.from.rank);
      if (std::find(f.culprits.begin(), f.culprits.end(), e.from.rank) ==
          f.culprits.end())
        f.culprits.push_back(e.from.rank);
    }
    for (const ChainEdge::End *end : {&e.from, &e.to}) {
      transfer = transfer || end->text.rfind("SND", 0) == 0 ||
                 end->text.rfind("RCV", 0) == 0 ||
                 end->text.rfind("GRP", 0) == 0;
      collective =
          collective ||
          (end->text.rfind("host", 0) != 0 && !end->domain.empty() &&
           end->text.rfind("SND", 0) != 0 && end->text.rfind("RCV", 0) != 0 &&
           end->text.rfind("GRP", 0) != 0);
    }
  }
  auto has = [&](Reason r) { return reasons.count(r) > 0; };
  std::string domainList;
  for (const std::string &d : domains)
    domainList += (domainList.empty() ? "" : ", ") + d;
  if (!cycle) {
    const ChainEdge &last = chain.back();
    if (last.to.rank >= 0) {
      std::vector<Rank> first = last.to.ranks;
      if (first.empty())
        first.push_back(last.to.rank);
      for (Rank r : f.culprits)
        if (std::find(first.begin(), first.end(), r) == first.end())
          first.push_back(r);
      f.culprits = std::move(first);
    }
    f.id = "missing-participant";
    f.title = last.why;
    f.cause = "a member does not take part: a loop or branch that ended on "
              "rank-local data, an "
              "early return, an exception, or a rank that has died";
    f.cure = "take every decision that guards a collective from replicated or "
             "broadcast data; let "
             "every member issue every instance, or shadow the missing ones";
    if (last.reason == Reason::HostStall) {
      f.kind = Finding::Kind::Blocked;
      f.id = "host-stalled";
      f.cause = "a host thread never continues";
      f.cure = "look at that thread's stack";
    } else if (last.to.text.find("slots on") != std::string::npos) {
      f.id = "too-few-slots";
      f.cause = "one operation needs more slots than the device has";
      f.cure = "lower its need, or give the device more slots";
    } else if (last.to.text.rfind("set(", 0) == 0 ||
               last.to.text.rfind("unlock", 0) == 0) {
      f.kind = Finding::Kind::Blocked;
      f.id = "never-released";
      f.cause = "nobody releases what is waited for";
      f.cure = "set the flag, or release the lock, on every path";
    }
    f.chain = std::move(chain);
    return f;
  }
  if (has(Reason::HostMemoryLock) || has(Reason::HostMap)) {
    f.id = "allocation-inside-region";
    f.title = "an allocation waits for a collective whose partner waits for "
              "the allocation";
    f.cause = "a memory-mapping allocation takes the process's memory lock and "
              "waits for the device "
              "while another device's issue still needs that lock";
    f.cure = "reserve all workspace and finish set-up before the first issue, "
             "with a host barrier";
  } else if (has(Reason::HostDrain) || has(Reason::HostDrainLock)) {
    f.id = "drain-inside-region";
    f.title = "a process-wide drain (free or lazy load) waits for work that "
              "the drain holds back";
    f.cause = "a free or the first load of a kernel drains the process between "
              "the issues of one "
              "collective, or behind a spinning kernel";
    f.cure = "load every kernel and free nothing between the first and the "
             "last issue of a region; "
             "or let one lock really cover both";
  } else if (has(Reason::Flag)) {
    f.id = "spin-behind-host";
    f.title =
        "a spinning kernel waits for what its own waiter does only afterwards";
    f.cause =
        "the host waits for a kernel that waits for what the host posts next";
    f.cure = "post the work first; treat blocking-launch mode as a host sync "
             "after every issue";
  } else if (has(Reason::HostLock)) {
    f.id = "lock-cycle";
    f.title = "a lock is held across a wait for work that needs the lock";
    f.cause = "locks of a process are held while waiting for communication";
    f.cure =
        "release the lock before waiting, and take locks in one nesting order";
  } else if (has(Reason::HostQueue)) {
    f.id = "launch-queue-full";
    f.title = "a full launch queue holds back the issue that would empty it";
    f.cause = "with a finite launch queue an issue blocks while earlier "
              "launches wait for partners";
    f.cure = "issue all members of one instance adjacently; deepen the queue";
  } else if (has(Reason::HostCollective) && !has(Reason::HostSync) &&
             !has(Reason::Partner)) {
    f.id = "creation-order-cycle";
    f.title = "host collectives of " + domainList +
              " are called in orders that form a cycle";
    f.cause = "communicators are created (or host barriers called) in "
              "different orders per rank";
    f.cure = "create every domain up front, in one order known to all";
  } else if (has(Reason::GroupSet)) {
    f.id = "grouped-transfer-cycle";
    f.title = "a group waits for a transfer that waits for the group";
    f.cause = "two transfers of one group depend on each other through another "
              "rank, and the group "
              "completes as a whole (assumed: group=atomic)";
    f.cure = "do not group transfers when one depends on the other through "
             "another rank";
  } else if (has(Reason::GroupCursor)) {
    f.id = "group-replayed-in-order";
    f.title = "both groups stand at a receive whose send is listed later";
    f.cause = "the library replays the members of a group one by one (assumed: "
              "group=inorder)";
    f.cure = "list a group's transfers in one common order, sends first";
  } else if (has(Reason::HostSync)) {
    f.id = domains.size() > 1 ? "host-sync-cross-domain" : "host-sync-cycle";
    f.title = domains.size() > 1
                  ? "host synchronisations between the issues of " +
                        domainList + " close a cycle over these domains"
                  : "a host synchronisation waits for work whose partner is "
                    "issued only after it";
    f.cause = "a host thread blocks between two issues, so what it has not "
              "issued holds up what the "
              "others wait for";
    f.cure = "one agreed order over all domains, and no host synchronisation, "
             "allocation or free "
             "between the issues";
  } else if (domains.size() > 1 || (has(Reason::Slot) && collective)) {
    f.id = has(Reason::Slot) ? "cross-domain-slot-cycle"
                             : "cross-domain-order-cycle";
    f.title = has(Reason::Slot)
                  ? "operations of " + domainList +
                        " hold the slots that the others need: their "
                        "start order is not the same on all devices"
                  : "operations of " + domainList +
                        " are queued in orders that form a cycle";
    f.cause = has(Reason::Slot)
                  ? (p.config.order == Config::Order::None
                         ? "nothing orders the starts on the device: issue "
                           "order alone does not reach the streams"
                         : "the ranks issue these operations in different "
                           "orders, and the device keeps each rank's order")
                  : "the ranks issue operations of several domains in "
                    "different orders";
    f.cure = "one agreed order over all domains on every rank, carried to the "
             "streams by an event "
             "edge, one queue, or the launch-order setting";
  } else if (transfer) {
    f.id = "transfer-order-cycle";
    f.title = "transfers between " +
              rankList(std::vector<Rank>(ranks.begin(), ranks.end())) +
              " are queued in orders that form a cycle";
    f.cause = "both sides put the transfer that the other waits for behind the "
              "one it waits for; "
              "small messages may hide it by buffering";
    f.cure = "group the exchange, or derive both sides' order from one list of "
             "transfers";
  } else {
    f.id = "order-cycle";
    f.title = "operations wait for each other in a cycle";
    f.cause = "issue or start orders differ between ranks";
    f.cure = "one agreed order on every rank, carried to the streams";
  }
  // Which device put what first: the cycle in the words of an order.
  for (const ChainEdge &e : chain)
    if ((e.reason == Reason::Slot || e.reason == Reason::Stream ||
         e.reason == Reason::LaunchOrder || e.reason == Reason::SerialOrder) &&
        domains.size() > 1)
      f.details.push_back(rankName(e.from.rank) + " has " + e.to.text +
                          " before " + e.from.text);
  f.chain = std::move(chain);
  return f;
}

} // namespace concord::order

//===- WaitGraph.cpp - Who waits for whom in a stuck state ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Builds the edges from the same rules by which Machine holds things up, and
// searches them breadth first.
//
//===----------------------------------------------------------------------===//

#include "WaitGraph.h"

#include <algorithm>
#include <deque>

namespace concord::order {

using Reason = ChainEdge::Reason;

std::string_view toString(ChainEdge::Reason reason) {
  static constexpr std::string_view names[] = {
      "host-sync",  "host-drain",   "host-map",     "host-collective",
      "lock",       "memory-lock",  "drain-lock",   "launch-queue",
      "await-flag", "stall",        "stream",       "same-domain",
      "slot",       "launch-order", "serial-order", "event",
      "spin",       "partner",      "group-cursor", "group-set",
      "not-issued", "never-issued"};
  return names[size_t(reason)];
}

namespace {
std::string rankName(Rank r) { return "r" + std::to_string(r); }
} // namespace

std::string opText(const Machine &m, const Machine::State &s, uint32_t op) {
  const Program &prog = m.program();
  const Operation &o = prog.ops[op];
  std::string text;
  bool known = m.status(s, op) != Machine::Unissued;
  auto number = [&](uint32_t part) {
    return known || m.numbered(part) ? "#" + std::to_string(m.instance(s, part))
                                     : "";
  };
  if (o.kind == OpKind::Group) {
    text = "GRP{";
    for (uint32_t i = 0; i < o.parts.size(); ++i) {
      if (i == 4) {
        text += " ; .. " + std::to_string(o.parts.size()) + " transfers";
        break;
      }
      text += (i ? " ; " : "") + prog.describe(o.parts[i]) +
              number(m.firstPart(op) + i);
    }
    text += "}";
  } else {
    text = prog.describe(o);
    if (!o.parts.empty())
      text += number(m.firstPart(op));
  }
  return text + "@" + rankName(prog.devices[o.device].rank);
}

WaitGraph::WaitGraph(const Machine &machine, const Machine::State &state)
    : m(machine), s(state), prog(machine.program()),
      nOps(uint32_t(prog.ops.size())), nThreads(uint32_t(prog.threads.size())),
      threadOfOp(nOps, 0) {
  for (uint32_t t = 0; t < nThreads; ++t)
    for (const Statement &stmt : prog.threads[t].body)
      if (stmt.kind == StmtKind::Issue)
        threadOfOp[stmt.op] = t;
  edges.resize(nOps + nThreads);
  for (uint32_t o = 0; o < nOps; ++o)
    addOp(o);
  for (uint32_t t = 0; t < nThreads; ++t)
    addThread(t);
}

uint32_t WaitGraph::ending(ChainEdge::End end) {
  endings.push_back(std::move(end));
  edges.emplace_back();
  return uint32_t(edges.size()) - 1;
}

/// `from` needs instance `index` of `queue`, which has not been issued. False
/// if the text has no such instance.
bool WaitGraph::needInstance(uint32_t from, uint32_t queue, uint32_t index) {
  uint32_t planned = m.plannedEntry(queue, index);
  if (planned != kNone) {
    edges[from].push_back({m.opOfPart(planned), Reason::Partner, {}});
    return true;
  }
  if (queue == kNone || !m.dynamic(queue))
    return false;
  // Several threads issue here: the first candidate of each thread.
  bool any = false;
  std::vector<bool> seen(nThreads, false);
  for (uint32_t o = 0; o < nOps; ++o) {
    if (prog.ops[o].device != m.queueDevice(queue) ||
        m.status(s, o) != Machine::Unissued || seen[threadOfOp[o]])
      continue;
    for (uint32_t i = 0; i < prog.ops[o].parts.size(); ++i)
      if (m.queueOfPart(m.firstPart(o) + i) == queue) {
        seen[threadOfOp[o]] = any = true;
        edges[from].push_back({o, Reason::Partner, {}});
        break;
      }
  }
  return any;
}

/// One ending for all members that will never take part in an instance.
void WaitGraph::neverIssued(uint32_t from, uint32_t index, const Part &part,
                            std::vector<Rank> ranks) {
  if (ranks.empty())
    return;
  ChainEdge::End end;
  end.rank = ranks.front();
  end.domain = prog.domains[part.domain].name;
  end.instance = index;
  std::string what =
      isTransfer(part.kind)
          ? std::string(part.kind == OpKind::Send ? "receive" : "send") + " #" +
                std::to_string(index) + " on " + end.domain
          : "instance #" + std::to_string(index) + " of " + end.domain;
  end.text = what + "@" + rankName(end.rank);
  auto stateOf = [&](Rank rank) {
    uint32_t device = prog.deviceOfRank(rank);
    if (device == kNone)
      return std::string("no program drives it");
    for (uint32_t t : prog.processes[prog.devices[device].process].threads)
      if (!m.ended(s, t))
        return std::string("the rest of its program has no such call");
    return std::string("its host program has ended");
  };
  std::string note =
      (from < nOps ? opText(m, s, from) + " needs a partner, but "
                   : std::string()) +
      what + " is never issued ";
  for (size_t i = 0; i < ranks.size() && i < 8; ++i)
    note += (i ? ", " : "") + ("on " + rankName(ranks[i])) + " (" +
            stateOf(ranks[i]) + ")";
  if (ranks.size() > 8)
    note += " and on " + std::to_string(ranks.size() - 8) + " more ranks";
  end.ranks = std::move(ranks);
  uint32_t node = ending(std::move(end)); // may move `edges`
  edges[from].push_back({node, Reason::NeverIssued, std::move(note)});
}

void WaitGraph::needFlag(uint32_t from, uint32_t flag) {
  bool any = false;
  for (uint32_t o = 0; o < nOps; ++o)
    if (prog.ops[o].kind == OpKind::SetFlag && prog.ops[o].name == flag &&
        m.status(s, o) != Machine::Completed) {
      edges[from].push_back({o, Reason::Flag, {}});
      any = true;
    }
  for (uint32_t t = 0; t < nThreads; ++t)
    for (uint32_t i = m.pc(s, t); i < prog.threads[t].body.size(); ++i) {
      const Statement &stmt = prog.threads[t].body[i];
      if (stmt.kind == StmtKind::SetFlag && stmt.name == flag) {
        edges[from].push_back(
            {nOps + t, Reason::Flag,
             (from < nOps ? opText(m, s, from) : end(from).text) +
                 " waits for set(" + prog.flags[flag] +
                 "), which the host of " + prog.threadName(t) +
                 " executes only later, at " + stmt.loc.str()});
        any = true;
        break;
      }
    }
  if (any)
    return;
  ChainEdge::End end;
  end.text = "set(" + prog.flags[flag] + ")";
  uint32_t node = ending(std::move(end));
  edges[from].push_back({node, Reason::NeverIssued,
                         "flag " + prog.flags[flag] + " is never set"});
}

/// Edges of a started operation under `atomic`: to the nearest parts of its
/// matched set that have not started, over the started ones on the way there.
void WaitGraph::needGroupSet(uint32_t op) {
  std::vector<uint32_t> set{op}, parent{kNone};
  for (size_t i = 0; i < set.size(); ++i) {
    uint32_t x = set[i];
    std::vector<uint32_t> via;
    for (uint32_t j = uint32_t(i); parent[j] != kNone; j = parent[j])
      via.insert(via.begin(), set[j]);
    for (uint32_t k = 0; k < prog.ops[x].parts.size(); ++k) {
      uint32_t p = m.firstPart(x) + k;
      if (m.buffered(m.part(p)))
        continue;
      uint32_t index = m.instance(s, p), q = m.otherSide(p);
      uint32_t other = m.entry(s, q, index);
      size_t before = edges[op].size();
      if (other == kNone) {
        if (!needInstance(op, q, index))
          neverIssued(op, index, m.part(p), {m.part(p).peer});
      } else {
        uint32_t y = m.opOfPart(other);
        if (m.status(s, y) < Machine::Started)
          edges[op].push_back({y, Reason::Partner, {}});
        else if (std::find(set.begin(), set.end(), y) == set.end()) {
          set.push_back(y);
          parent.push_back(uint32_t(i));
        }
      }
      for (size_t e = before; e < edges[op].size(); ++e)
        edges[op][e].via = via;
    }
  }
}

void WaitGraph::addOp(uint32_t op) {
  const Operation &o = prog.ops[op];
  Machine::Status st = m.status(s, op);
  auto to = [&](uint32_t node, Reason reason, std::string note = {}) {
    edges[op].push_back({node, reason, std::move(note)});
  };
  if (st == Machine::Completed)
    return;
  if (st == Machine::Unissued) {
    to(nOps + threadOfOp[op], Reason::NotIssued);
    return;
  }
  uint32_t device = o.device;
  if (st == Machine::Issued) {
    uint32_t end = m.position(s, op);
    bool held = false, domain = false, order = false;
    for (uint32_t k = m.firstUnfinished(s, device); k < end; ++k) {
      uint32_t y = m.issuedOp(s, device, k);
      Machine::Status sy = m.status(s, y);
      if (sy == Machine::Completed)
        continue;
      const Operation &other = prog.ops[y];
      if (!held && other.stream == o.stream) {
        to(y, Reason::Stream);
        held = true;
        continue;
      }
      if (!isCommunication(o.kind)) {
        if (o.kind == OpKind::Wait && other.kind == OpKind::Record &&
            other.name == o.name)
          to(y, Reason::Event);
        continue;
      }
      if (!domain && prog.config.sameDomainSerial && m.sharesDomain(op, y)) {
        to(y, Reason::Domain);
        domain = true;
      }
      if (!order && isCommunication(other.kind) &&
          ((prog.config.order == Config::Order::Launch &&
            sy == Machine::Issued) ||
           prog.config.order == Config::Order::Serial)) {
        to(y, prog.config.order == Config::Order::Launch ? Reason::LaunchOrder
                                                         : Reason::SerialOrder);
        order = true;
      }
    }
    if (held || domain || order)
      return;
    if (o.kind == OpKind::Spin)
      needFlag(op, o.name);
    if (isCommunication(o.kind)) {
      for (uint32_t k = m.firstUnfinished(s, device);
           k < m.issuedCount(s, device); ++k) {
        uint32_t y = m.issuedOp(s, device, k);
        if (m.status(s, y) == Machine::Started)
          to(y, Reason::Slot);
      }
      if (edges[op].empty()) {
        ChainEdge::End end;
        end.rank = prog.devices[device].rank;
        end.text = std::to_string(o.need) + " slots on " + rankName(end.rank);
        to(ending(end), Reason::NeverIssued,
           opText(m, s, op) + " needs " + std::to_string(o.need) +
               " slots, the device has " + std::to_string(prog.config.slots));
      }
    }
    return;
  }
  // Started, not completed.
  if (isCollective(o.kind)) {
    const Part &part = o.parts.front();
    uint32_t index = m.instance(s, m.firstPart(op));
    const Domain &d = prog.domains[part.domain];
    const auto &members = m.collectiveQueues(part.domain);
    std::vector<Rank> never;
    for (size_t i = 0; i < members.size(); ++i) {
      uint32_t other = m.entry(s, members[i], index);
      if (other == kNone) {
        if (!needInstance(op, members[i], index))
          never.push_back(d.members[i]);
      } else if (m.status(s, m.opOfPart(other)) < Machine::Started)
        to(m.opOfPart(other), Reason::Partner);
    }
    neverIssued(op, index, part, std::move(never));
    return;
  }
  if (prog.config.group == Config::Profile::Atomic) {
    needGroupSet(op);
    return;
  }
  bool inorder = prog.config.group == Config::Profile::InOrder;
  uint32_t first = 0, last = uint32_t(o.parts.size());
  if (inorder && o.kind == OpKind::Group) {
    first = m.cursor(s, op);
    last = std::min(last, first + 1);
  }
  for (uint32_t k = first; k < last; ++k) {
    uint32_t p = m.firstPart(op) + k;
    if (m.buffered(m.part(p)))
      continue;
    uint32_t index = m.instance(s, p);
    uint32_t other = m.entry(s, m.otherSide(p), index);
    if (other == kNone) {
      if (!needInstance(op, m.otherSide(p), index))
        neverIssued(op, index, m.part(p), {m.part(p).peer});
      continue;
    }
    uint32_t y = m.opOfPart(other);
    if (m.status(s, y) < Machine::Started)
      to(y, Reason::Partner);
    else if (inorder && prog.ops[y].kind == OpKind::Group &&
             m.status(s, y) != Machine::Completed &&
             m.cursor(s, y) < other - m.firstPart(y))
      to(y, Reason::GroupCursor,
         (o.kind == OpKind::Group
              ? "the group of " + rankName(prog.devices[device].rank) +
                    " is at its " + prog.describe(m.part(p))
              : opText(m, s, op)) +
             " and waits for " + prog.describe(m.part(other)) + " of " +
             rankName(prog.devices[prog.ops[y].device].rank) +
             ", which follows " +
             prog.describe(prog.ops[y].parts[m.cursor(s, y)]) +
             " in that rank's group");
  }
}

void WaitGraph::needHost(uint32_t from, uint32_t thread) {
  const Statement &stmt = prog.threads[thread].body[m.pc(s, thread)];
  uint32_t index = m.hostInstance(s, thread);
  const Domain &d = prog.domains[stmt.domain];
  const auto &members = m.hostQueues(stmt.domain);
  Rank self = prog.devices[stmt.device].rank;
  std::vector<Rank> never;
  for (size_t i = 0; i < members.size(); ++i) {
    if (d.members[i] == self ||
        (members[i] != kNone && m.count(s, members[i]) > index))
      continue;
    bool any = false;
    if (members[i] != kNone) {
      uint32_t device = m.queueDevice(members[i]);
      for (uint32_t t : prog.processes[prog.devices[device].process].threads) {
        for (uint32_t k = m.pc(s, t) + (m.phase(s, t) ? 1 : 0);
             k < prog.threads[t].body.size(); ++k) {
          const Statement &other = prog.threads[t].body[k];
          if (other.kind != StmtKind::HostCollective ||
              other.domain != stmt.domain || other.device != device)
            continue;
          edges[from].push_back({nOps + t, Reason::HostCollective, {}});
          any = true;
          break;
        }
        if (any)
          break;
      }
    }
    if (any)
      continue;
    never.push_back(d.members[i]);
  }
  if (never.empty())
    return;
  ChainEdge::End end;
  end.rank = never.front();
  end.domain = d.name;
  end.instance = index;
  end.text = "H:" + stmt.label + "(" + d.name + ")#" + std::to_string(index) +
             "@" + rankName(end.rank);
  std::string note = "host of " + prog.threadName(thread) + " waits in " +
                     prog.describe(stmt) + "#" + std::to_string(index) +
                     ", which ";
  for (size_t i = 0; i < never.size() && i < 8; ++i)
    note += (i ? (i + 1 == never.size() ? " and " : ", ") : "") +
            rankName(never[i]);
  if (never.size() > 8)
    note += " and " + std::to_string(never.size() - 8) + " more";
  note += never.size() > 1 ? " never call" : " never calls";
  end.ranks = std::move(never);
  uint32_t node = ending(std::move(end));
  edges[from].push_back({node, Reason::NeverIssued, std::move(note)});
}

void WaitGraph::addThread(uint32_t t) {
  if (m.ended(s, t))
    return;
  const Statement &stmt = prog.threads[t].body[m.pc(s, t)];
  uint32_t process = prog.threads[t].process, node = nOps + t;
  auto to = [&](uint32_t target, Reason reason, std::string note = {}) {
    edges[node].push_back({target, reason, std::move(note)});
  };
  auto owner = [&](uint32_t ownerPlus1, Reason reason,
                   const std::string &what) {
    if (!ownerPlus1)
      return;
    uint32_t o = ownerPlus1 - 1;
    if (!m.ended(s, o)) {
      to(nOps + o, reason);
      return;
    }
    ChainEdge::End end;
    end.text = "unlock of " + what;
    to(ending(end), Reason::NeverIssued,
       what + " is held by " + prog.threadName(o) +
           ", which has ended without releasing it");
  };
  auto unfinished = [&](uint32_t device, uint32_t stream, Reason reason) {
    for (uint32_t k = m.firstUnfinished(s, device);
         k < m.issuedCount(s, device); ++k) {
      uint32_t y = m.issuedOp(s, device, k);
      if (m.status(s, y) != Machine::Completed &&
          (stream == kNone || prog.ops[y].stream == stream))
        to(y, reason);
    }
  };
  uint32_t drain = m.drainOwner(s, process);
  bool drained = drain && drain != t + 1;
  switch (stmt.kind) {
  case StmtKind::Issue:
    if (drained)
      owner(drain, Reason::HostDrainLock, "the process's drain");
    else
      for (uint32_t d : prog.processes[process].devices)
        for (uint32_t k = m.firstUnfinished(s, d); k < m.issuedCount(s, d); ++k)
          if (m.status(s, m.issuedOp(s, d, k)) == Machine::Issued)
            to(m.issuedOp(s, d, k), Reason::HostQueue);
    break;
  case StmtKind::SyncDevice:
    unfinished(stmt.device, kNone, Reason::HostSync);
    break;
  case StmtKind::SyncStream:
    unfinished(stmt.device, stmt.stream, Reason::HostSync);
    break;
  case StmtKind::SyncProcess:
    for (uint32_t d : prog.processes[process].devices)
      unfinished(d, kNone, Reason::HostSync);
    break;
  case StmtKind::MapMemory:
    if (m.phase(s, t))
      unfinished(stmt.device, kNone, Reason::HostMap);
    else if (drained)
      owner(drain, Reason::HostDrainLock, "the process's drain");
    else
      owner(m.memoryOwner(s, process), Reason::HostMemoryLock,
            "the memory lock");
    break;
  case StmtKind::Free:
  case StmtKind::LoadKernel:
    if (!m.phase(s, t))
      owner(drain, Reason::HostDrainLock, "the process's drain");
    else
      for (uint32_t d : prog.processes[process].devices)
        unfinished(d, kNone, Reason::HostDrain);
    break;
  case StmtKind::HostCollective:
    needHost(node, t);
    break;
  case StmtKind::Lock:
    owner(m.lockOwner(s, process, stmt.name), Reason::HostLock,
          "lock " + prog.locks[stmt.name]);
    break;
  case StmtKind::AwaitFlag:
    needFlag(node, stmt.name);
    break;
  case StmtKind::Stall: {
    ChainEdge::End end;
    end.text = "stall";
    end.loc = stmt.loc;
    to(ending(end), Reason::HostStall,
       "host of " + prog.threadName(t) + " never continues (stall)");
    break;
  }
  default:
    break;
  }
}

ChainEdge::End WaitGraph::end(uint32_t node) const {
  ChainEdge::End e;
  if (node < nOps) {
    const Operation &o = prog.ops[node];
    e.text = opText(m, s, node);
    e.rank = prog.devices[o.device].rank;
    e.stream = prog.streams[o.stream];
    if (!o.parts.empty()) {
      e.domain = prog.domains[o.parts.front().domain].name;
      if (m.status(s, node) != Machine::Unissued ||
          m.numbered(m.firstPart(node)))
        e.instance = m.instance(s, m.firstPart(node));
    }
    e.loc = o.loc;
    return e;
  }
  if (node >= nOps + nThreads)
    return endings[node - nOps - nThreads];
  uint32_t t = node - nOps;
  e.text = "host of " + prog.threadName(t);
  uint32_t process = prog.threads[t].process;
  if (!prog.processes[process].devices.empty())
    e.rank = prog.devices[prog.processes[process].devices.front()].rank;
  if (!m.ended(s, t)) {
    const Statement &stmt = prog.threads[t].body[m.pc(s, t)];
    e.loc = stmt.loc;
    if (stmt.device != kNone)
      e.rank = prog.devices[stmt.device].rank;
    if (stmt.kind == StmtKind::HostCollective) {
      e.domain = prog.domains[stmt.domain].name;
      if (m.phase(s, t))
        e.instance = m.hostInstance(s, t);
    }
    if (stmt.stream != kNone)
      e.stream = prog.streams[stmt.stream];
    e.text += " in " + prog.describe(stmt);
  }
  return e;
}

ChainEdge WaitGraph::edge(uint32_t from, const Edge &e) const {
  ChainEdge out;
  out.from = end(from);
  out.to = end(e.to);
  out.reason = e.reason;
  if (!e.note.empty()) {
    out.why = e.note;
    return out;
  }
  const std::string &a = out.from.text, &b = out.to.text;
  auto inStream = [](const ChainEdge::End &x) {
    return x.stream.empty() ? std::string() : " [stream " + x.stream + "]";
  };
  bool toIsUnissued = e.to < nOps && m.status(s, e.to) == Machine::Unissued;
  switch (e.reason) {
  case Reason::HostSync:
    out.why = a + " waits for " + b + inStream(out.to);
    break;
  case Reason::HostDrain:
    out.why = a + " drains the process and waits for " + b + inStream(out.to);
    break;
  case Reason::HostMap:
    out.why =
        a + " holds the memory lock and waits for " + b + inStream(out.to);
    break;
  case Reason::HostCollective:
    out.why = a + " waits there for " + b;
    break;
  case Reason::HostLock:
    out.why = a + " waits for the lock held by " + b;
    break;
  case Reason::HostMemoryLock:
    out.why = a + " waits for the memory lock held by " + b;
    break;
  case Reason::HostDrainLock:
    out.why = a + " is held back by the drain of " + b;
    break;
  case Reason::HostQueue:
    out.why = a + " waits for room in the launch queue (L=" +
              std::to_string(prog.config.launchDepth) + "), taken by " + b;
    break;
  case Reason::Stream:
    out.why = a + " is queued in stream " + out.from.stream + " behind " + b;
    break;
  case Reason::Domain:
    out.why = a + " waits for the earlier operation of its domain, " + b;
    break;
  case Reason::Slot:
    out.why = a + inStream(out.from) + " waits for the slot of " +
              rankName(out.from.rank) + " held by " + b + inStream(out.to);
    break;
  case Reason::LaunchOrder:
    out.why = a + " may start only after " + b + " has (order=launch)";
    break;
  case Reason::SerialOrder:
    out.why =
        a + " may start only after " + b + " has completed (order=serial)";
    break;
  case Reason::Event:
    out.why = a + " waits for " + b;
    break;
  case Reason::Flag:
    out.why = a + " spins until " + b +
              (toIsUnissued ? ", which is not issued" : " has run");
    break;
  case Reason::NotIssued:
    out.why = a + " is not issued: it is behind the " + b;
    break;
  default:
    out.why =
        a + " has started and needs " + b +
        (toIsUnissued ? ", which is not issued" : ", which has not started");
    break;
  }
  return out;
}

void WaitGraph::expand(uint32_t from, const Edge &e,
                       std::vector<ChainEdge> &out) const {
  uint32_t at = from;
  for (uint32_t v : e.via) {
    ChainEdge step;
    step.from = end(at);
    step.to = end(v);
    step.reason = Reason::GroupSet;
    step.why = step.from.text + " completes only together with " + step.to.text;
    out.push_back(std::move(step));
    at = v;
  }
  out.push_back(edge(at, e));
}

std::vector<ChainEdge> WaitGraph::path(const std::vector<uint32_t> &nodes,
                                       bool closed) const {
  std::vector<ChainEdge> out;
  for (size_t i = 0; i + (closed ? 0 : 1) < nodes.size(); ++i) {
    uint32_t a = nodes[i], b = nodes[(i + 1) % nodes.size()];
    for (const Edge &e : edges[a])
      if (e.to == b) {
        expand(a, e, out);
        break;
      }
  }
  return out;
}

std::vector<ChainEdge> WaitGraph::shortestCycle() const {
  uint32_t n = uint32_t(edges.size());
  std::vector<uint32_t> best, dist(n), parent(n);
  for (uint32_t start = 0; start < n; ++start) {
    if (edges[start].empty())
      continue;
    std::fill(dist.begin(), dist.end(), kNone);
    std::deque<uint32_t> queue{start};
    dist[start] = 0;
    bool found = false;
    while (!queue.empty() && !found) {
      uint32_t u = queue.front();
      queue.pop_front();
      if (!best.empty() && dist[u] + 1 >= best.size())
        break;
      for (const Edge &e : edges[u]) {
        if (e.to == start) {
          best.clear();
          for (uint32_t v = u;; v = parent[v]) {
            best.push_back(v);
            if (v == start)
              break;
          }
          std::reverse(best.begin(), best.end());
          found = true;
          break;
        }
        if (dist[e.to] == kNone) {
          dist[e.to] = dist[u] + 1;
          parent[e.to] = u;
          queue.push_back(e.to);
        }
      }
    }
    if (best.size() == 1)
      break;
  }
  if (best.empty())
    return {};
  // Begin where a reader would: at the first blocked host thread, else at the
  // operation that waits for a slot, else at the lowest rank.
  size_t at = 0;
  int score = -1;
  for (size_t i = 0; i < best.size(); ++i) {
    uint32_t v = best[i], w = best[(i + 1) % best.size()];
    int value = 0;
    if (v >= nOps && v < nOps + nThreads)
      value = w < nOps ? 4 : 3; // waits for a device, rather than for a thread
    for (const Edge &e : edges[v])
      if (e.to == w) {
        if (e.reason == Reason::Slot)
          value = 2;
        else if (value == 0 && v < nOps && m.status(s, v) == Machine::Started)
          value = 1;
        break;
      }
    if (value > score || (value == score && end(v).rank < end(best[at]).rank)) {
      score = value;
      at = i;
    }
  }
  std::rotate(best.begin(), best.begin() + long(at), best.end());
  return path(best, true);
}

std::vector<ChainEdge> WaitGraph::chainToMissing() const {
  uint32_t n = uint32_t(edges.size());
  std::vector<std::vector<uint32_t>> back(n);
  for (uint32_t u = 0; u < n; ++u)
    for (const Edge &e : edges[u])
      back[e.to].push_back(u);
  std::vector<uint32_t> dist(n, kNone), next(n, kNone);
  std::deque<uint32_t> queue;
  for (uint32_t v = nOps + nThreads; v < n; ++v) {
    dist[v] = 0;
    queue.push_back(v);
  }
  uint32_t farthest = kNone;
  while (!queue.empty()) {
    uint32_t v = queue.front();
    queue.pop_front();
    if (dist[v] > 0 &&
        (farthest == kNone || dist[v] > dist[farthest] ||
         (dist[v] == dist[farthest] && v >= nOps && farthest < nOps)))
      farthest = v;
    for (uint32_t u : back[v])
      if (dist[u] == kNone) {
        dist[u] = dist[v] + 1;
        next[u] = v;
        queue.push_back(u);
      }
  }
  if (farthest == kNone)
    return {};
  std::vector<uint32_t> nodes;
  for (uint32_t v = farthest; v != kNone; v = next[v])
    nodes.push_back(v);
  return path(nodes, false);
}

} // namespace concord::order

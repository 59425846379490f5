//===- Machine.cpp - The transition relation of a program -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Implements the fine print of the notation: instance numbering, the rules for
// starting and completing operations, and host statements that block.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <set>
#include <unordered_map>

namespace concord::order {

namespace {

/// Names that have been seen while walking a device's issue window. Stamped, so
/// that a walk costs the window's length and no clearing.
struct Seen {
  std::vector<uint32_t> marks;
  uint32_t stamp = 0;
  void begin(size_t n) {
    if (marks.size() < n)
      marks.resize(n, 0);
    if (++stamp == 0) {
      std::fill(marks.begin(), marks.end(), 0);
      stamp = 1;
    }
  }
  void add(uint32_t i) { marks[i] = stamp; }
  bool has(uint32_t i) const { return marks[i] == stamp; }
};

struct WindowScratch {
  Seen streams, domains, events;
};

WindowScratch &scratch() {
  thread_local WindowScratch s;
  return s;
}

} // namespace

Machine::Machine(const Program &program) : prog(program) {
  number();
  layOut();
}

void Machine::number() {
  uint32_t nOps = uint32_t(prog.ops.size());
  partStart.resize(nOps + 1, 0);
  for (uint32_t o = 0; o < nOps; ++o) {
    partStart[o + 1] = partStart[o] + uint32_t(prog.ops[o].parts.size());
    for (size_t i = 0; i < prog.ops[o].parts.size(); ++i)
      partOp.push_back(o);
  }
  uint32_t nParts = partStart[nOps];
  partQueue.assign(nParts, kNoQueue);
  partOther.assign(nParts, kNoQueue);
  partIndex.assign(nParts, 0);
  staticPos.assign(nOps, 0);

  // A device is numbered statically if one thread issues on it.
  std::vector<std::set<uint32_t>> issuers(prog.devices.size());
  stmtStart.assign(1, 0);
  for (uint32_t t = 0; t < prog.threads.size(); ++t) {
    for (const Statement &stmt : prog.threads[t].body)
      if (stmt.kind == StmtKind::Issue)
        issuers[prog.ops[stmt.op].device].insert(t);
    stmtStart.push_back(stmtStart.back() +
                        uint32_t(prog.threads[t].body.size()));
  }
  std::vector<std::set<std::pair<uint32_t, uint32_t>>> hostCallers(
      prog.devices.size());
  for (uint32_t t = 0; t < prog.threads.size(); ++t)
    for (const Statement &stmt : prog.threads[t].body)
      if (stmt.kind == StmtKind::HostCollective)
        hostCallers[stmt.device].insert({stmt.domain, t});
  auto hostDynamic = [&](uint32_t device, uint32_t domain) {
    auto lower = hostCallers[device].lower_bound({domain, 0});
    uint32_t n = 0;
    for (; lower != hostCallers[device].end() && lower->first == domain;
         ++lower)
      ++n;
    return n > 1;
  };

  struct Key {
    uint32_t kind, domain;
    Rank a, b;
    bool operator==(const Key &) const = default;
  };
  struct Hash {
    size_t operator()(const Key &k) const {
      uint64_t h = k.kind * 0x9E3779B97F4A7C15ull ^ (uint64_t(k.domain) << 32);
      h = (h ^ uint32_t(k.a)) * 0xBF58476D1CE4E5B9ull;
      h = (h ^ uint32_t(k.b)) * 0x94D049BB133111EBull;
      return size_t(h ^ (h >> 29));
    }
  };
  std::unordered_map<Key, uint32_t, Hash> ids;
  std::vector<std::vector<uint32_t>> content;
  auto queueOf = [&](const Key &key, uint32_t device, bool isDynamic) {
    auto [it, fresh] = ids.try_emplace(key, uint32_t(queues.size()));
    if (fresh) {
      Queue q;
      q.device = device;
      q.dynamic = isDynamic;
      queues.push_back(q);
      content.emplace_back();
    }
    return it->second;
  };
  for (uint32_t d = 0; d < prog.devices.size(); ++d)
    issueQueue.push_back(queueOf({4, 0, Rank(d), 0}, d, issuers[d].size() > 1));

  stmtQueue.assign(stmtStart.back(), kNoQueue);
  stmtIndex.assign(stmtStart.back(), 0);
  for (uint32_t t = 0; t < prog.threads.size(); ++t) {
    for (uint32_t i = 0; i < prog.threads[t].body.size(); ++i) {
      const Statement &stmt = prog.threads[t].body[i];
      if (stmt.kind == StmtKind::HostCollective) {
        uint32_t q =
            queueOf({3, stmt.domain, prog.devices[stmt.device].rank, 0},
                    stmt.device, hostDynamic(stmt.device, stmt.domain));
        stmtQueue[stmtStart[t] + i] = q;
        stmtIndex[stmtStart[t] + i] = uint32_t(content[q].size());
        content[q].push_back(stmtStart[t] + i);
      }
      if (stmt.kind != StmtKind::Issue)
        continue;
      const Operation &op = prog.ops[stmt.op];
      bool isDynamic = issuers[op.device].size() > 1;
      uint32_t iq = issueQueue[op.device];
      staticPos[stmt.op] = uint32_t(content[iq].size());
      content[iq].push_back(stmt.op);
      Rank self = prog.devices[op.device].rank;
      for (uint32_t k = 0; k < op.parts.size(); ++k) {
        const Part &part = op.parts[k];
        Key key{0, part.domain, self, 0};
        if (part.kind == OpKind::Send)
          key = {1, part.domain, self, part.peer};
        else if (part.kind == OpKind::Recv)
          key = {2, part.domain, part.peer, self};
        uint32_t q = queueOf(key, op.device, isDynamic);
        uint32_t id = partStart[stmt.op] + k;
        partQueue[id] = q;
        partIndex[id] = uint32_t(content[q].size());
        content[q].push_back(id);
      }
    }
  }
  for (uint32_t id = 0; id < nParts; ++id) {
    const Part &p = part(id);
    if (!isTransfer(p.kind))
      continue;
    Rank self = prog.devices[prog.ops[partOp[id]].device].rank;
    Key key = p.kind == OpKind::Send ? Key{2, p.domain, self, p.peer}
                                     : Key{1, p.domain, p.peer, self};
    auto it = ids.find(key);
    if (it != ids.end())
      partOther[id] = it->second;
  }
  collQueues.resize(prog.domains.size());
  hostQueueIds.resize(prog.domains.size());
  for (uint32_t c = 0; c < prog.domains.size(); ++c)
    for (Rank member : prog.domains[c].members) {
      auto coll = ids.find(Key{0, c, member, 0});
      collQueues[c].push_back(coll == ids.end() ? kNoQueue : coll->second);
      auto host = ids.find(Key{3, c, member, 0});
      hostQueueIds[c].push_back(host == ids.end() ? kNoQueue : host->second);
    }
  for (uint32_t q = 0; q < queues.size(); ++q) {
    queues[q].capacity = uint32_t(content[q].size());
    if (queues[q].dynamic)
      continue;
    queues[q].base = uint32_t(entries.size());
    entries.insert(entries.end(), content[q].begin(), content[q].end());
  }
}

void Machine::layOut() {
  uint32_t nThreads = uint32_t(prog.threads.size()),
           nOps = uint32_t(prog.ops.size());
  uint32_t nProc = uint32_t(prog.processes.size()),
           nDev = uint32_t(prog.devices.size());
  uint32_t at = 0;
  auto take = [&](uint32_t n) {
    uint32_t begin = at;
    at += n;
    return begin;
  };
  pcAt = take(nThreads);
  phaseAt = take(nThreads);
  opAt = take(nOps);
  cursorAt = take(prog.config.group == Config::Profile::InOrder ? nOps : 0);
  flagAt = take(uint32_t(prog.flags.size()));
  lockAt = take(nProc * uint32_t(prog.locks.size()));
  memoryAt = take(nProc);
  drainAt = take(nProc);
  hiAt = take(nDev);
  loAt = take(nDev);
  // Positions and indices that depend on the schedule.
  bool anyDynamic = std::any_of(queues.begin(), queues.end(),
                                [](const Queue &q) { return q.dynamic; });
  posAt = take(anyDynamic ? nOps : 0);
  dynIndexAt.assign(partOp.size(), kNone);
  for (uint32_t p = 0; p < partOp.size(); ++p)
    if (queues[partQueue[p]].dynamic)
      dynIndexAt[p] = take(1);
  hostIndexAt.resize(nThreads);
  for (uint32_t t = 0; t < nThreads; ++t)
    hostIndexAt[t] = take(anyDynamic ? 1 : 0);
  dynAt = at;
  std::vector<bool> isHost(queues.size(), false);
  for (uint32_t q : stmtQueue)
    if (q != kNoQueue)
      isHost[q] = true;
  for (uint32_t q = 0; q < queues.size(); ++q) {
    if (queues[q].dynamic)
      queues[q].base = take(queues[q].capacity);
    if (queues[q].dynamic || isHost[q])
      queues[q].countAt = take(1);
  }
  size = at;

  for (const Process &p : prog.processes)
    eagerProcess.push_back(p.threads.size() <= 1);
  eagerDevice.assign(nDev, true);
  if (prog.config.order != Config::Order::None)
    return;
  std::vector<std::unordered_map<uint32_t, uint64_t>> perStream(nDev),
      perDomain(nDev);
  for (const Operation &op : prog.ops) {
    if (!isCommunication(op.kind))
      continue;
    auto &bound = perStream[op.device][op.stream];
    bound = std::max<uint64_t>(bound, op.need);
    auto &other = perDomain[op.device][op.parts.front().domain];
    other = std::max<uint64_t>(other, op.need);
  }
  for (uint32_t d = 0; d < nDev; ++d) {
    uint64_t streams = 0, domains = 0;
    for (auto &[_, need] : perStream[d])
      streams += need;
    for (auto &[_, need] : perDomain[d])
      domains += need;
    uint64_t most =
        prog.config.sameDomainSerial ? std::min(streams, domains) : streams;
    bool single = perStream[d].size() <= 1 ||
                  (prog.config.sameDomainSerial && perDomain[d].size() <= 1);
    eagerDevice[d] = single || most <= prog.config.slots;
  }
}

Machine::State Machine::initial() const { return State(size, 0); }

uint32_t Machine::issuedOp(const State &s, uint32_t device, uint32_t k) const {
  const Queue &q = queues[issueQueue[device]];
  return q.dynamic ? s[q.base + k] - 1 : entries[q.base + k];
}

uint32_t Machine::position(const State &s, uint32_t op) const {
  return queues[issueQueue[prog.ops[op].device]].dynamic ? s[posAt + op]
                                                         : staticPos[op];
}

uint32_t Machine::instance(const State &s, uint32_t part) const {
  return dynIndexAt[part] == kNone ? partIndex[part] : s[dynIndexAt[part]];
}

uint32_t Machine::plannedEntry(uint32_t queue, uint32_t i) const {
  if (queue == kNoQueue || queues[queue].dynamic || i >= queues[queue].capacity)
    return kNone;
  return entries[queues[queue].base + i];
}

uint32_t Machine::entry(const State &s, uint32_t queue, uint32_t i) const {
  if (queue == kNoQueue || i >= queues[queue].capacity)
    return kNone;
  const Queue &q = queues[queue];
  if (q.dynamic)
    return s[q.base + i] ? s[q.base + i] - 1 : kNone;
  uint32_t id = entries[q.base + i];
  if (q.countAt) // a host queue
    return i < s[q.countAt] ? id : kNone;
  return s[opAt + partOp[id]] != Unissued ? id : kNone;
}

uint32_t Machine::count(const State &s, uint32_t queue) const {
  if (queue == kNoQueue)
    return 0;
  if (queues[queue].countAt)
    return s[queues[queue].countAt];
  uint32_t n = 0;
  while (n < queues[queue].capacity && entry(s, queue, n) != kNone)
    ++n;
  return n;
}

uint32_t Machine::threadOfStatement(uint32_t id) const {
  return uint32_t(std::upper_bound(stmtStart.begin(), stmtStart.end(), id) -
                  stmtStart.begin()) -
         1;
}

const Statement &Machine::statement(uint32_t id) const {
  uint32_t t = threadOfStatement(id);
  return prog.threads[t].body[id - stmtStart[t]];
}

uint32_t Machine::hostInstance(const State &s, uint32_t thread) const {
  uint32_t id = statementId(thread, pc(s, thread));
  return queues[stmtQueue[id]].dynamic ? s[hostIndexAt[thread]] : stmtIndex[id];
}

void Machine::push(State &s, uint32_t queue, uint32_t entry) const {
  const Queue &q = queues[queue];
  uint32_t n = s[q.countAt]++;
  s[q.base + n] = entry + 1;
}

bool Machine::sharesDomain(uint32_t a, uint32_t b) const {
  for (const Part &x : prog.ops[a].parts)
    for (const Part &y : prog.ops[b].parts)
      if (x.domain == y.domain)
        return true;
  return false;
}

bool Machine::atHead(const State &s, uint32_t op) const {
  uint32_t device = prog.ops[op].device, end = position(s, op);
  for (uint32_t k = firstUnfinished(s, device); k < end; ++k) {
    uint32_t y = issuedOp(s, device, k);
    if (status(s, y) != Completed && prog.ops[y].stream == prog.ops[op].stream)
      return false;
  }
  return true;
}

uint32_t Machine::slotsUsed(const State &s, uint32_t device) const {
  uint64_t used = 0;
  for (uint32_t k = firstUnfinished(s, device); k < issuedCount(s, device);
       ++k) {
    uint32_t y = issuedOp(s, device, k);
    if (status(s, y) == Started)
      used += prog.ops[y].need;
  }
  return uint32_t(std::min<uint64_t>(used, kNone));
}

uint32_t Machine::outstanding(const State &s, uint32_t process) const {
  uint32_t n = 0;
  for (uint32_t d : prog.processes[process].devices)
    for (uint32_t k = firstUnfinished(s, d); k < issuedCount(s, d); ++k)
      if (status(s, issuedOp(s, d, k)) ==
          Issued) // I1: slotless ones skip Started
        ++n;
  return n;
}

bool Machine::deviceIdle(const State &s, uint32_t device,
                         uint32_t stream) const {
  for (uint32_t k = firstUnfinished(s, device); k < issuedCount(s, device);
       ++k) {
    uint32_t y = issuedOp(s, device, k);
    if (status(s, y) != Completed &&
        (stream == kNone || prog.ops[y].stream == stream))
      return false;
  }
  return true;
}

void Machine::matchedSet(const State &s, uint32_t op,
                         std::vector<uint32_t> &set) const {
  set.assign(1, op);
  for (size_t i = 0; i < set.size(); ++i) {
    if (set[i] == kNone)
      continue;
    uint32_t x = set[i];
    for (uint32_t p = firstPart(x); p < partStart[x + 1]; ++p) {
      if (buffered(part(p)))
        continue;
      uint32_t other = entry(s, partOther[p], instance(s, p));
      uint32_t y = other == kNone ? kNone : partOp[other];
      if (std::find(set.begin(), set.end(), y) == set.end())
        set.push_back(y);
    }
  }
}

bool Machine::partnerStarted(const State &s, uint32_t p,
                             const std::vector<bool> *wild) const {
  uint32_t q = partOther[p];
  if (q == kNoQueue)
    return false;
  if (isWild(wild, q))
    return true;
  uint32_t other = entry(s, q, instance(s, p));
  if (other == kNone)
    return false;
  uint32_t y = partOp[other];
  if (s[opAt + y] < Started)
    return false;
  if (prog.config.group == Config::Profile::InOrder &&
      prog.ops[y].kind == OpKind::Group && s[opAt + y] != Completed)
    return s[cursorAt + y] >= other - partStart[y];
  return true;
}

/// Whether a started communication operation may complete. Groups under
/// `inorder` complete when their cursor has passed the end.
bool Machine::completable(const State &s, uint32_t op,
                          const std::vector<bool> *wild) const {
  const Operation &o = prog.ops[op];
  if (isCollective(o.kind)) {
    uint32_t p = firstPart(op), i = instance(s, p);
    const auto &members = collQueues[o.parts[0].domain];
    for (uint32_t q : members) {
      if (q != kNoQueue && isWild(wild, q))
        continue;
      uint32_t other = entry(s, q, i);
      if (other == kNone || s[opAt + partOp[other]] < Started)
        return false;
    }
    return true;
  }
  if (o.kind == OpKind::Group && prog.config.group == Config::Profile::InOrder)
    return s[cursorAt + op] >= o.parts.size();
  if (prog.config.group == Config::Profile::Atomic) {
    thread_local std::vector<uint32_t> set;
    set.assign(1, op);
    for (size_t i = 0; i < set.size(); ++i) {
      uint32_t x = set[i];
      if (s[opAt + x] < Started)
        return false;
      for (uint32_t p = firstPart(x); p < partStart[x + 1]; ++p) {
        if (buffered(part(p)))
          continue;
        if (partOther[p] != kNoQueue && isWild(wild, partOther[p]))
          continue;
        uint32_t other = entry(s, partOther[p], instance(s, p));
        if (other == kNone)
          return false;
        if (std::find(set.begin(), set.end(), partOp[other]) == set.end())
          set.push_back(partOp[other]);
      }
    }
    return true;
  }
  for (uint32_t p = firstPart(op); p < partStart[op + 1]; ++p)
    if (!buffered(part(p)) && !partnerStarted(s, p, wild))
      return false;
  return true;
}

bool Machine::advanceCursor(State &s, uint32_t op,
                            const std::vector<bool> *wild) const {
  bool changed = false;
  while (s[cursorAt + op] < prog.ops[op].parts.size()) {
    uint32_t p = firstPart(op) + s[cursorAt + op];
    if (!buffered(part(p)) && !partnerStarted(s, p, wild))
      break;
    ++s[cursorAt + op];
    changed = true;
  }
  return changed;
}

void Machine::complete(State &s, uint32_t op) const {
  s[opAt + op] = Completed;
  const Operation &o = prog.ops[op];
  if (o.kind == OpKind::SetFlag)
    s[flagAt + o.name] = 1;
  uint32_t &lo = s[loAt + o.device];
  while (lo < s[hiAt + o.device] &&
         status(s, issuedOp(s, o.device, lo)) == Completed)
    ++lo;
}

/// One walk over a device's unfinished operations in issue order. An operation
/// is at the head iff no unfinished one of its stream was met before it.
bool Machine::stepDevice(State &s, uint32_t device, bool starts, bool slots,
                         const std::vector<bool> *wild) const {
  WindowScratch &w = scratch();
  w.streams.begin(prog.streams.size());
  w.domains.begin(prog.domains.size());
  w.events.begin(prog.events.size());
  bool changed = false, unstarted = false, unfinished = false;
  uint32_t used = starts && slots ? slotsUsed(s, device) : 0;
  uint32_t hi = s[hiAt + device];
  for (uint32_t k = s[loAt + device]; k < hi; ++k) {
    uint32_t x = issuedOp(s, device, k);
    if (status(s, x) == Completed)
      continue;
    const Operation &o = prog.ops[x];
    bool head = !w.streams.has(o.stream);
    if (!isCommunication(o.kind)) {
      bool ready = head;
      if (o.kind == OpKind::Wait)
        ready = head && !w.events.has(o.name);
      else if (o.kind == OpKind::Spin)
        ready = head && s[flagAt + o.name];
      if (ready) {
        complete(s, x);
        changed = true;
        continue;
      }
      if (o.kind == OpKind::Record)
        w.events.add(o.name);
      w.streams.add(o.stream);
      continue;
    }
    if (status(s, x) == Issued && starts && head) {
      bool ok = !slots || uint64_t(used) + o.need <= prog.config.slots;
      if (prog.config.sameDomainSerial)
        for (const Part &p : o.parts)
          ok = ok && !w.domains.has(p.domain);
      if (prog.config.order == Config::Order::Launch)
        ok = ok && !unstarted;
      else if (prog.config.order == Config::Order::Serial)
        ok = ok && !unfinished;
      if (ok) {
        s[opAt + x] = Started;
        used += o.need;
        changed = true;
      }
    }
    if (status(s, x) == Started) {
      if (o.kind == OpKind::Group &&
          prog.config.group == Config::Profile::InOrder)
        changed |= advanceCursor(s, x, wild);
      if (completable(s, x, wild)) {
        complete(s, x);
        used -= std::min(used, o.need);
        changed = true;
        continue;
      }
    } else
      unstarted = true;
    unfinished = true;
    w.streams.add(o.stream);
    for (const Part &p : o.parts)
      w.domains.add(p.domain);
  }
  return changed;
}

bool Machine::startable(const State &s, uint32_t op, bool slots) const {
  const Operation &o = prog.ops[op];
  if (!isCommunication(o.kind) || status(s, op) != Issued)
    return false;
  uint64_t used = 0;
  uint32_t device = o.device, end = position(s, op);
  for (uint32_t k = firstUnfinished(s, device); k < issuedCount(s, device);
       ++k) {
    uint32_t y = issuedOp(s, device, k);
    Status st = status(s, y);
    if (st == Started)
      used += prog.ops[y].need;
    if (k >= end || st == Completed)
      continue;
    if (prog.ops[y].stream == o.stream ||
        (prog.config.sameDomainSerial && sharesDomain(op, y)))
      return false;
    if (isCommunication(prog.ops[y].kind) &&
        ((prog.config.order == Config::Order::Launch && st == Issued) ||
         prog.config.order == Config::Order::Serial))
      return false;
  }
  return !slots || used + o.need <= prog.config.slots;
}

bool Machine::hostPasses(const State &s, uint32_t thread,
                         const std::vector<bool> *wild) const {
  const Statement &stmt = prog.threads[thread].body[pc(s, thread)];
  uint32_t i = hostInstance(s, thread);
  uint32_t own = stmtQueue[statementId(thread, pc(s, thread))];
  for (uint32_t q : hostQueueIds[stmt.domain]) {
    if (q == own || (q != kNoQueue && isWild(wild, q)))
      continue;
    if (q == kNoQueue || s[queues[q].countAt] <= i)
      return false;
  }
  return true;
}

bool Machine::threadEnabled(const State &s, uint32_t thread) const {
  if (ended(s, thread))
    return false;
  const Statement &stmt = prog.threads[thread].body[pc(s, thread)];
  uint32_t process = prog.threads[thread].process;
  uint32_t drain = s[drainAt + process];
  bool drained = drain && drain != thread + 1; // held by another thread
  switch (stmt.kind) {
  case StmtKind::Issue:
    return !drained && (prog.config.launchDepth == Config::kUnlimited ||
                        outstanding(s, process) < prog.config.launchDepth);
  case StmtKind::SyncDevice:
    return stmt.device == kNone || deviceIdle(s, stmt.device);
  case StmtKind::SyncStream:
    return deviceIdle(s, stmt.device, stmt.stream);
  case StmtKind::MapMemory:
    if (phase(s, thread) == 0)
      return !drained && s[memoryAt + process] == 0;
    return deviceIdle(s, stmt.device);
  case StmtKind::Free:
  case StmtKind::LoadKernel:
    if (phase(s, thread) == 0)
      return drain == 0;
    [[fallthrough]];
  case StmtKind::SyncProcess:
    for (uint32_t d : prog.processes[process].devices)
      if (!deviceIdle(s, d))
        return false;
    return true;
  case StmtKind::HostCollective:
    return phase(s, thread) == 0 || hostPasses(s, thread, nullptr);
  case StmtKind::Lock:
    return lockOwner(s, process, stmt.name) == 0;
  case StmtKind::AwaitFlag:
    return s[flagAt + stmt.name] != 0;
  case StmtKind::Unlock:
  case StmtKind::SetFlag:
  case StmtKind::Nop:
    return true;
  case StmtKind::Stall:
    return false;
  }
  return false;
}

void Machine::fireThread(State &s, uint32_t thread) const {
  const Statement &stmt = prog.threads[thread].body[pc(s, thread)];
  uint32_t process = prog.threads[thread].process;
  uint32_t &ph = s[phaseAt + thread];
  switch (stmt.kind) {
  case StmtKind::Issue: {
    const Operation &o = prog.ops[stmt.op];
    s[opAt + stmt.op] = Issued;
    uint32_t iq = issueQueue[o.device];
    if (queues[iq].dynamic) {
      s[posAt + stmt.op] = s[hiAt + o.device];
      push(s, iq, stmt.op);
    }
    ++s[hiAt + o.device];
    for (uint32_t p = partStart[stmt.op]; p < partStart[stmt.op + 1]; ++p)
      if (dynIndexAt[p] != kNone) {
        s[dynIndexAt[p]] = s[queues[partQueue[p]].countAt];
        push(s, partQueue[p], p);
      }
    break;
  }
  case StmtKind::MapMemory:
    if (ph == 0) {
      s[memoryAt + process] = thread + 1;
      ph = 1;
      return;
    }
    s[memoryAt + process] = 0;
    break;
  case StmtKind::Free:
  case StmtKind::LoadKernel:
    if (ph == 0) {
      s[drainAt + process] = thread + 1;
      ph = 1;
      return;
    }
    s[drainAt + process] = 0;
    break;
  case StmtKind::HostCollective:
    if (ph == 0) {
      uint32_t id = statementId(thread, pc(s, thread)), q = stmtQueue[id];
      if (queues[q].dynamic) {
        s[hostIndexAt[thread]] = s[queues[q].countAt];
        push(s, q, id);
      } else
        ++s[queues[q].countAt];
      ph = 1;
      return;
    }
    break;
  case StmtKind::Lock:
    s[lockAt + process * uint32_t(prog.locks.size()) + stmt.name] = thread + 1;
    break;
  case StmtKind::Unlock: {
    uint32_t &owner =
        s[lockAt + process * uint32_t(prog.locks.size()) + stmt.name];
    if (owner == thread + 1)
      owner = 0;
    break;
  }
  case StmtKind::SetFlag:
    s[flagAt + stmt.name] = 1;
    break;
  default:
    break;
  }
  ph = 0;
  ++s[pcAt + thread];
}

/// A step that no other step can disable and that disables none, even with
/// several threads in the process.
bool Machine::eagerStatement(const State &s, uint32_t thread) const {
  if (eagerProcess[prog.threads[thread].process])
    return true;
  const Statement &stmt = prog.threads[thread].body[pc(s, thread)];
  switch (stmt.kind) {
  case StmtKind::Nop:
  case StmtKind::SetFlag:
  case StmtKind::AwaitFlag:
  case StmtKind::Unlock:
    return true;
  case StmtKind::HostCollective:
    return phase(s, thread) == 1 ||
           !queues[stmtQueue[statementId(thread, pc(s, thread))]].dynamic;
  default:
    return false;
  }
}

void Machine::close(State &s) const {
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t t = 0; t < prog.threads.size(); ++t)
      while (!ended(s, t) && eagerStatement(s, t) && threadEnabled(s, t)) {
        fireThread(s, t);
        changed = true;
      }
    for (uint32_t d = 0; d < prog.devices.size(); ++d)
      while (stepDevice(s, d, eagerDevice[d], true, nullptr))
        changed = true;
  }
}

void Machine::moves(const State &s, std::vector<uint32_t> &out) const {
  out.clear();
  for (uint32_t d = 0; d < prog.devices.size(); ++d) {
    if (eagerDevice[d])
      continue;
    for (uint32_t k = firstUnfinished(s, d); k < issuedCount(s, d); ++k) {
      uint32_t x = issuedOp(s, d, k);
      if (startable(s, x, true))
        out.push_back(x);
    }
  }
  for (uint32_t t = 0; t < prog.threads.size(); ++t)
    if (!eagerProcess[prog.threads[t].process] && threadEnabled(s, t))
      out.push_back(uint32_t(prog.ops.size()) + t);
}

void Machine::fire(State &s, uint32_t move) const {
  if (move < prog.ops.size())
    s[opAt + move] = Started;
  else
    fireThread(s, move - uint32_t(prog.ops.size()));
}

uint32_t Machine::component(uint32_t move) const {
  if (move < prog.ops.size())
    return prog.ops[move].device;
  return uint32_t(prog.devices.size()) +
         prog.threads[move - prog.ops.size()].process;
}

bool Machine::finished(const State &s) const {
  for (uint32_t t = 0; t < prog.threads.size(); ++t)
    if (!ended(s, t))
      return false;
  for (uint32_t d = 0; d < prog.devices.size(); ++d)
    if (firstUnfinished(s, d) != issuedCount(s, d))
      return false;
  return true;
}

} // namespace concord::order

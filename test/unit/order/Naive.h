//===- Naive.h - The issue model, once more and without cleverness -*- C++
//-*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A second implementation of the fine print, written from the text and sharing
// no code with analysis/order but the program structure: every issue, start,
// completion, cursor step and host step is a transition of its own, nothing is
// eager, nothing is reduced. Slow on purpose.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_ORDER_NAIVE_H
#define CONCORD_TEST_ORDER_NAIVE_H

#include "concord/order/Program.h"

#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

namespace naive {

using namespace concord::order;

struct Result {
  bool over = false, stuck = false, finished = false, mismatch = false;
  size_t states = 0;
};

class Model {
public:
  explicit Model(const Program &p) : p(p) {}

  Result run(size_t bound) {
    Result r;
    State first;
    first.pc.assign(p.threads.size(), 0);
    first.phase.assign(p.threads.size(), 0);
    first.status.assign(p.ops.size(), 0);
    first.cursor.assign(p.ops.size(), 0);
    first.flags.assign(p.flags.size(), 0);
    first.locks.assign(p.processes.size() * (p.locks.size() + 2), 0);
    first.seq.resize(p.devices.size());
    std::unordered_set<std::string> seen{first.key()};
    std::vector<State> todo{first};
    while (!todo.empty()) {
      State s = std::move(todo.back());
      todo.pop_back();
      r.mismatch = r.mismatch || mismatch(s);
      std::vector<State> next;
      expand(s, next);
      if (next.empty())
        (done(s) ? r.finished : r.stuck) = true;
      for (State &n : next)
        if (seen.insert(n.key()).second) {
          if (seen.size() > bound) {
            r.over = true;
            return r;
          }
          todo.push_back(std::move(n));
        }
    }
    r.states = seen.size();
    return r;
  }

private:
  const Program &p;
  struct State {
    std::vector<int> pc, phase, status, cursor, flags, locks;
    std::vector<std::vector<int>> seq; // per device: ops as issued
    std::map<std::pair<int, int>, std::vector<int>>
        host; // (domain, device) -> thread*1000+pc
    std::string key() const {
      std::string k;
      auto put = [&](const std::vector<int> &v) {
        for (int x : v) {
          k += char(x & 255);
          k += char(x >> 8);
        }
        k += '|';
      };
      put(pc);
      put(phase);
      put(status);
      put(cursor);
      put(flags);
      put(locks);
      for (const auto &v : seq)
        put(v);
      for (const auto &[a, v] : host) {
        k += char(a.first);
        k += char(a.second);
        put(v);
      }
      return k;
    }
  };

  // (op, part) of the i-th entry of a queue on a rank, or (-1, -1).
  using Place = std::pair<int, int>;
  int deviceOf(Rank rank) const {
    for (size_t d = 0; d < p.devices.size(); ++d)
      if (p.devices[d].rank == rank)
        return int(d);
    return -1;
  }
  Place nth(const State &s, Rank rank, int index, auto match) const {
    int d = deviceOf(rank);
    if (d < 0)
      return {-1, -1};
    for (int op : s.seq[size_t(d)])
      for (size_t k = 0; k < p.ops[size_t(op)].parts.size(); ++k)
        if (match(p.ops[size_t(op)].parts[k]) && index-- == 0)
          return {op, int(k)};
    return {-1, -1};
  }
  int indexOf(const State &s, int op, int part, auto match) const {
    int n = 0;
    for (int y : s.seq[p.ops[size_t(op)].device])
      for (size_t k = 0; k < p.ops[size_t(y)].parts.size(); ++k) {
        if (y == op && int(k) == part)
          return n;
        n += match(p.ops[size_t(y)].parts[k]);
      }
    return n;
  }
  Place partner(const State &s, int op, int part) const {
    const Part &a = p.ops[size_t(op)].parts[size_t(part)];
    Rank self = p.devices[p.ops[size_t(op)].device].rank;
    int i = indexOf(s, op, part, [&](const Part &x) {
      return x.kind == a.kind && x.domain == a.domain && x.peer == a.peer;
    });
    OpKind other = a.kind == OpKind::Send ? OpKind::Recv : OpKind::Send;
    return nth(s, a.peer, i, [&](const Part &x) {
      return x.kind == other && x.domain == a.domain && x.peer == self;
    });
  }
  Place member(const State &s, int op, Rank rank) const {
    const Part &a = p.ops[size_t(op)].parts[0];
    auto same = [&](const Part &x) {
      return isCollective(x.kind) && x.domain == a.domain;
    };
    return nth(s, rank, indexOf(s, op, 0, same), same);
  }
  bool buffered(const Part &a) const {
    return a.kind == OpKind::Send && p.config.buffer > 0 &&
           a.count <= p.config.buffer;
  }

  bool reached(const State &s, Place q) const {
    if (q.first < 0 || s.status[size_t(q.first)] < 2)
      return false;
    if (p.config.group == Config::Profile::InOrder &&
        p.ops[size_t(q.first)].kind == OpKind::Group &&
        s.status[size_t(q.first)] < 3)
      return s.cursor[size_t(q.first)] >= q.second;
    return true;
  }

  bool canComplete(const State &s, int op) const {
    const Operation &o = p.ops[size_t(op)];
    if (isCollective(o.kind)) {
      for (Rank r : p.domains[o.parts[0].domain].members) {
        Place q = member(s, op, r);
        if (q.first < 0 || s.status[size_t(q.first)] < 2)
          return false;
      }
      return true;
    }
    if (p.config.group == Config::Profile::InOrder && o.kind == OpKind::Group)
      return s.cursor[size_t(op)] == int(o.parts.size());
    if (p.config.group == Config::Profile::Atomic) {
      std::set<int> set{op};
      std::vector<int> todo{op};
      while (!todo.empty()) {
        int x = todo.back();
        todo.pop_back();
        if (s.status[size_t(x)] < 2)
          return false;
        for (size_t k = 0; k < p.ops[size_t(x)].parts.size(); ++k) {
          if (buffered(p.ops[size_t(x)].parts[k]))
            continue;
          Place q = partner(s, x, int(k));
          if (q.first < 0)
            return false;
          if (set.insert(q.first).second)
            todo.push_back(q.first);
        }
      }
      return true;
    }
    for (size_t k = 0; k < o.parts.size(); ++k)
      if (!buffered(o.parts[k]) && !reached(s, partner(s, op, int(k))))
        return false;
    return true;
  }

  bool idle(const State &s, uint32_t device, uint32_t stream = kNone) const {
    for (int y : s.seq[device])
      if (s.status[size_t(y)] < 3 &&
          (stream == kNone || p.ops[size_t(y)].stream == stream))
        return false;
    return true;
  }

  void expand(const State &s, std::vector<State> &out) const {
    for (size_t d = 0; d < p.devices.size(); ++d) {
      uint64_t used = 0;
      for (int y : s.seq[d])
        if (s.status[size_t(y)] == 2)
          used += p.ops[size_t(y)].need;
      for (size_t at = 0; at < s.seq[d].size(); ++at) {
        int x = s.seq[d][at];
        const Operation &o = p.ops[size_t(x)];
        int st = s.status[size_t(x)];
        if (st == 3)
          continue;
        bool head = true, domain = true, allStarted = true, allDone = true,
             records = true;
        for (size_t k = 0; k < at; ++k) {
          int y = s.seq[d][k];
          int sy = s.status[size_t(y)];
          const Operation &oy = p.ops[size_t(y)];
          if (sy == 3)
            continue;
          head = head && oy.stream != o.stream;
          for (const Part &a : o.parts)
            for (const Part &b : oy.parts)
              domain = domain && a.domain != b.domain;
          if (isCommunication(oy.kind)) {
            allStarted = allStarted && sy == 2;
            allDone = false;
          }
          if (oy.kind == OpKind::Record && o.kind == OpKind::Wait &&
              oy.name == o.name)
            records = false;
        }
        State n = s;
        if (!isCommunication(o.kind)) {
          bool ok = head;
          if (o.kind == OpKind::Wait)
            ok = ok && records;
          if (o.kind == OpKind::Spin)
            ok = ok && s.flags[o.name];
          if (!ok)
            continue;
          n.status[size_t(x)] = 3;
          if (o.kind == OpKind::SetFlag)
            n.flags[o.name] = 1;
          out.push_back(std::move(n));
          continue;
        }
        if (st == 1) {
          bool ok = head && (domain || !p.config.sameDomainSerial) &&
                    used + o.need <= p.config.slots;
          if (p.config.order == Config::Order::Launch)
            ok = ok && allStarted;
          if (p.config.order == Config::Order::Serial)
            ok = ok && allDone;
          if (!ok)
            continue;
          n.status[size_t(x)] = 2;
          out.push_back(std::move(n));
          continue;
        }
        if (p.config.group == Config::Profile::InOrder &&
            o.kind == OpKind::Group &&
            s.cursor[size_t(x)] < int(o.parts.size())) {
          int k = s.cursor[size_t(x)];
          if (buffered(o.parts[size_t(k)]) || reached(s, partner(s, x, k))) {
            ++n.cursor[size_t(x)];
            out.push_back(std::move(n));
          }
          continue;
        }
        if (canComplete(s, x)) {
          n.status[size_t(x)] = 3;
          out.push_back(std::move(n));
        }
      }
    }
    for (size_t t = 0; t < p.threads.size(); ++t)
      step(s, t, out);
  }

  void step(const State &s, size_t t, std::vector<State> &out) const {
    if (size_t(s.pc[t]) >= p.threads[t].body.size())
      return;
    const Statement &st = p.threads[t].body[size_t(s.pc[t])];
    size_t proc = p.threads[t].process, base = proc * (p.locks.size() + 2);
    size_t memory = base + p.locks.size(), drain = memory + 1;
    bool drained = s.locks[drain] && s.locks[drain] != int(t) + 1;
    State n = s;
    auto next = [&] {
      n.phase[t] = 0;
      ++n.pc[t];
      out.push_back(std::move(n));
    };
    auto processIdle = [&] {
      for (uint32_t d : p.processes[proc].devices)
        if (!idle(s, d))
          return false;
      return true;
    };
    switch (st.kind) {
    case StmtKind::Issue: {
      if (drained)
        return;
      if (p.config.launchDepth != Config::kUnlimited) {
        uint32_t waiting = 0;
        for (uint32_t d : p.processes[proc].devices)
          for (int y : s.seq[d])
            waiting += isCommunication(p.ops[size_t(y)].kind)
                           ? s.status[size_t(y)] == 1
                           : s.status[size_t(y)] < 3;
        if (waiting >= p.config.launchDepth)
          return;
      }
      n.status[st.op] = 1;
      n.seq[p.ops[st.op].device].push_back(int(st.op));
      next();
      return;
    }
    case StmtKind::SyncDevice:
      if (idle(s, st.device))
        next();
      return;
    case StmtKind::SyncProcess:
      if (processIdle())
        next();
      return;
    case StmtKind::SyncStream:
      if (idle(s, st.device, st.stream))
        next();
      return;
    case StmtKind::MapMemory:
      if (s.phase[t] == 0) {
        if (drained || s.locks[memory])
          return;
        n.locks[memory] = int(t) + 1;
        n.phase[t] = 1;
        out.push_back(std::move(n));
      } else if (idle(s, st.device)) {
        n.locks[memory] = 0;
        next();
      }
      return;
    case StmtKind::Free:
    case StmtKind::LoadKernel:
      if (s.phase[t] == 0) {
        if (s.locks[drain])
          return;
        n.locks[drain] = int(t) + 1;
        n.phase[t] = 1;
        out.push_back(std::move(n));
      } else if (processIdle()) {
        n.locks[drain] = 0;
        next();
      }
      return;
    case StmtKind::HostCollective: {
      std::pair<int, int> key{int(st.domain), int(st.device)};
      if (s.phase[t] == 0) {
        n.host[key].push_back(int(t) * 1000 + s.pc[t]);
        n.phase[t] = 1;
        out.push_back(std::move(n));
        return;
      }
      const auto &own = s.host.at(key);
      size_t i = 0;
      while (own[i] != int(t) * 1000 + s.pc[t])
        ++i;
      for (Rank r : p.domains[st.domain].members) {
        int d = deviceOf(r);
        if (d == int(st.device))
          continue;
        auto it = s.host.find({int(st.domain), d});
        if (d < 0 || it == s.host.end() || it->second.size() <= i)
          return;
      }
      next();
      return;
    }
    case StmtKind::Lock:
      if (!s.locks[base + st.name]) {
        n.locks[base + st.name] = int(t) + 1;
        next();
      }
      return;
    case StmtKind::Unlock:
      if (s.locks[base + st.name] == int(t) + 1)
        n.locks[base + st.name] = 0;
      next();
      return;
    case StmtKind::SetFlag:
      n.flags[st.name] = 1;
      next();
      return;
    case StmtKind::AwaitFlag:
      if (s.flags[st.name])
        next();
      return;
    case StmtKind::Nop:
      next();
      return;
    case StmtKind::Stall:
      return;
    }
  }

  bool done(const State &s) const {
    for (size_t t = 0; t < p.threads.size(); ++t)
      if (size_t(s.pc[t]) < p.threads[t].body.size())
        return false;
    for (const auto &seq : s.seq)
      for (int y : seq)
        if (s.status[size_t(y)] < 3)
          return false;
    return true;
  }

  bool mismatch(const State &s) const {
    for (size_t d = 0; d < p.devices.size(); ++d)
      for (int x : s.seq[d]) {
        const Operation &o = p.ops[size_t(x)];
        if (isCollective(o.kind)) {
          for (Rank r : p.domains[o.parts[0].domain].members) {
            Place q = member(s, x, r);
            if (q.first >= 0 && (p.ops[size_t(q.first)].kind != o.kind ||
                                 p.ops[size_t(q.first)].parts[0].compared !=
                                     o.parts[0].compared))
              return true;
          }
          continue;
        }
        for (size_t k = 0; k < o.parts.size(); ++k) {
          Place q = partner(s, x, int(k));
          if (q.first >= 0 &&
              p.ops[size_t(q.first)].parts[size_t(q.second)].compared !=
                  o.parts[k].compared)
            return true;
        }
      }
    for (const auto &[a, va] : s.host)
      for (const auto &[b, vb] : s.host)
        if (a.first == b.first)
          for (size_t i = 0; i < va.size() && i < vb.size(); ++i) {
            const Statement &x =
                p.threads[size_t(va[i] / 1000)].body[size_t(va[i] % 1000)];
            const Statement &y =
                p.threads[size_t(vb[i] / 1000)].body[size_t(vb[i] % 1000)];
            if (x.label != y.label || x.compared != y.compared)
              return true;
          }
    return false;
  }
};

} // namespace naive

#endif // CONCORD_TEST_ORDER_NAIVE_H

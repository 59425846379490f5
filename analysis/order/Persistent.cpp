//===- Persistent.cpp - Persistent subsets of the moves -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A set of moves is persistent if nothing that happens outside of it, in any
// order, can enable a move that depends on one of the set. Moves depend only
// within a component (Machine.h), so candidates are unions of components, and
// the condition is: running everything else enables nothing new inside.
//
//===----------------------------------------------------------------------===//

#include "Machine.h"
#include "StableSort.h"

#include <algorithm>

namespace concord::order {

/// Whether no sequence of transitions outside the frozen components enables a
/// new transition inside. Everything outside is let run on in a relaxed system
/// that can only do more: slots are unlimited, and a process with several
/// threads that is not frozen has done everything already. All of that is
/// monotone, so one fixpoint covers every sequence.
bool Machine::persistent(const State &s, const std::vector<uint32_t> &set,
                         const std::vector<bool> &frozenDevice,
                         const std::vector<bool> &frozenProcess) const {
  std::vector<bool> wild(prog.processes.size(), false);
  State r = s;
  for (uint32_t p = 0; p < prog.processes.size(); ++p) {
    wild[p] = !eagerProcess[p] && !frozenProcess[p];
    if (!wild[p])
      continue;
    for (uint32_t t : prog.processes[p].threads)
      for (uint32_t i = pc(s, t); i < prog.threads[t].body.size(); ++i) {
        const Statement &stmt = prog.threads[t].body[i];
        if (stmt.kind == StmtKind::SetFlag)
          r[flagAt + stmt.name] = 1;
        if (stmt.kind != StmtKind::Issue)
          continue;
        const Operation &o = prog.ops[stmt.op];
        if (o.kind == OpKind::SetFlag)
          r[flagAt + o.name] = 1;
        if (frozenDevice[o.device] && isCommunication(o.kind))
          return false;
      }
    for (uint32_t d : prog.processes[p].devices)
      for (uint32_t k = firstUnfinished(s, d); k < issuedCount(s, d); ++k) {
        const Operation &o = prog.ops[issuedOp(s, d, k)];
        if (o.kind == OpKind::SetFlag)
          r[flagAt + o.name] = 1;
      }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t t = 0; t < prog.threads.size(); ++t) {
      uint32_t p = prog.threads[t].process;
      if (!eagerProcess[p])
        continue;
      while (!ended(r, t)) {
        const Statement &stmt = prog.threads[t].body[pc(r, t)];
        bool ok = stmt.kind == StmtKind::HostCollective && phase(r, t) == 1
                      ? hostPasses(r, t, &wild)
                      : threadEnabled(r, t);
        if (!ok)
          break;
        fireThread(r, t);
        changed = true;
      }
    }
    for (uint32_t d = 0; d < prog.devices.size(); ++d) {
      if (wild[prog.devices[d].process] && !frozenDevice[d])
        continue;
      while (stepDevice(r, d, !frozenDevice[d], false, &wild))
        changed = true;
    }
  }
  auto inSet = [&](uint32_t move) {
    return std::find(set.begin(), set.end(), move) != set.end();
  };
  for (uint32_t d = 0; d < prog.devices.size(); ++d) {
    if (!frozenDevice[d])
      continue;
    for (uint32_t k = firstUnfinished(r, d); k < issuedCount(r, d); ++k) {
      uint32_t y = issuedOp(r, d, k);
      if (!inSet(y) && startable(r, y, true))
        return false;
    }
  }
  for (uint32_t t = 0; t < prog.threads.size(); ++t) {
    uint32_t p = prog.threads[t].process;
    if (!frozenProcess[p] || eagerProcess[p] ||
        inSet(uint32_t(prog.ops.size()) + t) || ended(r, t))
      continue;
    const Statement &stmt = prog.threads[t].body[pc(r, t)];
    bool ok = stmt.kind == StmtKind::HostCollective && phase(r, t) == 1
                  ? hostPasses(r, t, &wild)
                  : threadEnabled(r, t);
    if (ok)
      return false;
  }
  return true;
}

void Machine::reduce(const State &s, std::vector<uint32_t> &moves) const {
  if (moves.size() <= 1)
    return;
  uint32_t nDev = uint32_t(prog.devices.size());
  std::vector<uint32_t> components;
  for (uint32_t m : moves)
    components.push_back(component(m));
  std::vector<uint32_t> distinct = components;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  if (distinct.size() <= 1)
    return;
  // Candidates: one device; one process; a process with its devices. Smallest
  // persistent one wins; if none is, everything is explored.
  struct Candidate {
    std::vector<uint32_t> set;
    std::vector<bool> devices, processes;
  };
  std::vector<Candidate> candidates;
  auto add = [&](std::vector<bool> devices, std::vector<bool> processes) {
    Candidate c{{}, std::move(devices), std::move(processes)};
    for (size_t i = 0; i < moves.size(); ++i)
      if (components[i] < nDev ? c.devices[components[i]]
                               : c.processes[components[i] - nDev])
        c.set.push_back(moves[i]);
    if (!c.set.empty() && c.set.size() < moves.size())
      candidates.push_back(std::move(c));
  };
  std::vector<bool> noDevice(nDev, false),
      noProcess(prog.processes.size(), false);
  for (uint32_t c : distinct) {
    if (c < nDev) {
      auto devices = noDevice;
      devices[c] = true;
      add(devices, noProcess);
      continue;
    }
    auto processes = noProcess;
    processes[c - nDev] = true;
    add(noDevice, processes);
    auto devices = noDevice;
    for (uint32_t d : prog.processes[c - nDev].devices)
      devices[d] = true;
    add(devices, processes);
  }
  stableSort(candidates, [](const Candidate &a, const Candidate &b) {
    return a.set.size() < b.set.size();
  });
  for (Candidate &c : candidates)
    if (persistent(s, c.set, c.devices, c.processes)) {
      moves = std::move(c.set);
      return;
    }
}

} // namespace concord::order

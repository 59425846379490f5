//===- Judge.cpp - Verdict and explanation of a program -------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Puts exploration, mismatch check, race check and explanation together.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Judge.h"
#include "Explorer.h"
#include "WaitGraph.h"

#include <algorithm>
#include <map>
#include <set>

namespace concord::order {

Judgement judge(const Program &program, const ExploreOptions &options) {
  Judgement out;
  out.assumed = program.config;
  out.findings = findStaticMismatches(program);
  if (!out.findings.empty()) {
    out.verdict = Verdict::Mismatch;
    out.stats.complete = true;
    return out;
  }
  Machine machine(program);
  bool stuck = false, finished = false;
  std::vector<Finding> mismatches;
  std::vector<ChainEdge> cycle, missing;
  uint32_t explained = 0;
  // Explaining is quadratic in the size of the program; look at fewer stuck
  // states of large ones.
  uint32_t toExplain = program.ops.size() > 500 ? 1 : 32;
  out.stats =
      explore(machine, options, [&](const Machine::State &s, bool done) {
        (done ? finished : stuck) = true;
        std::vector<Finding> found = findMismatches(machine, s);
        if (!found.empty() && mismatches.empty()) {
          mismatches = std::move(found);
          if (options.stopAtMismatch)
            return false;
        }
        if (!done && explained < toExplain) {
          ++explained;
          WaitGraph graph(machine, s);
          std::vector<ChainEdge> c = graph.shortestCycle();
          if (!c.empty() && (cycle.empty() || c.size() < cycle.size()))
            cycle = std::move(c);
          c = graph.chainToMissing();
          if (!c.empty() && (missing.empty() || c.size() < missing.size()))
            missing = std::move(c);
        }
        return true;
      });
  if (!mismatches.empty()) {
    out.verdict = Verdict::Mismatch;
    out.findings = std::move(mismatches);
    out.stats.complete = true; // nothing can outrank it
    out.stats.bound.clear();
    return out;
  }
  if (stuck) {
    out.verdict = finished             ? Verdict::DeadlockSome
                  : out.stats.complete ? Verdict::DeadlockAlways
                                       : Verdict::DeadlockUnknown;
    if (!cycle.empty())
      out.findings.push_back(explainChain(program, std::move(cycle), true));
    if (!missing.empty())
      out.findings.push_back(explainChain(program, std::move(missing), false));
    return out;
  }
  if (!out.stats.complete) {
    out.verdict = Verdict::NotProven;
    return out;
  }
  out.findings = findRaces(program);
  out.verdict = out.findings.empty() ? Verdict::Clean : Verdict::Race;
  return out;
}

namespace {

bool isDeadlock(Verdict v) {
  return v == Verdict::DeadlockSome || v == Verdict::DeadlockAlways ||
         v == Verdict::DeadlockUnknown;
}

/// What hides the fault: each setting is put back to its portable value alone.
std::vector<std::string> hidingAssumptions(const Program &program,
                                           const ExploreOptions &options) {
  Config portable = program.config.portable();
  std::vector<std::string> hiding;
  auto tryOne = [&](auto set, std::string name) {
    Program changed = program;
    set(changed.config);
    if (changed.config == program.config)
      return;
    if (isDeadlock(judge(changed, options).verdict))
      hiding.push_back(std::move(name));
  };
  tryOne([&](Config &c) { c.slots = portable.slots; },
         "K=" + std::to_string(program.config.slots));
  tryOne([&](Config &c) { c.order = portable.order; },
         program.config.order == Config::Order::Launch ? "order=launch"
                                                       : "order=serial");
  tryOne([&](Config &c) { c.buffer = portable.buffer; },
         "buf=" + std::to_string(program.config.buffer));
  tryOne([&](Config &c) { c.group = portable.group; },
         program.config.group == Config::Profile::Indep ? "group=indep"
                                                        : "group=inorder");
  return hiding;
}

/// Host synchronisations behind an outstanding collective: harmless alone, but
/// the first half of many cycles.
void warnHostSync(const Program &p, std::vector<std::string> &out) {
  std::set<std::string> lines;
  for (const Thread &t : p.threads) {
    std::vector<uint32_t> outstanding;
    for (size_t i = 0; i < t.body.size(); ++i) {
      const Statement &stmt = t.body[i];
      if (stmt.kind == StmtKind::Issue && isCommunication(p.ops[stmt.op].kind))
        outstanding.push_back(stmt.op);
      bool blocks = stmt.kind == StmtKind::SyncDevice ||
                    stmt.kind == StmtKind::SyncProcess ||
                    stmt.kind == StmtKind::SyncStream ||
                    stmt.kind == StmtKind::MapMemory ||
                    stmt.kind == StmtKind::Free ||
                    stmt.kind == StmtKind::LoadKernel;
      if (!blocks)
        continue;
      bool more = false; // something is still to be issued or called afterwards
      for (size_t k = i + 1; k < t.body.size(); ++k)
        more = more || t.body[k].kind == StmtKind::Issue ||
               t.body[k].kind == StmtKind::HostCollective;
      for (uint32_t op : outstanding)
        if ((stmt.kind != StmtKind::SyncStream ||
             p.ops[op].stream == stmt.stream) &&
            (stmt.device == kNone || stmt.device == p.ops[op].device)) {
          lines.insert("host sync while a collective is outstanding: " +
                       p.describe(stmt) + " at " + stmt.loc.str() +
                       " waits for " + p.describe(p.ops[op]) +
                       (more ? ", and more is issued after it" : ""));
          break;
        }
      outstanding.clear();
    }
  }
  size_t n = 0;
  for (const std::string &line : lines) {
    if (n++ == 4) {
      out.push_back(std::to_string(lines.size() - 4) +
                    " more host syncs of this kind");
      break;
    }
    out.push_back(line);
  }
}

/// Two operations of one domain on streams that nothing orders.
void warnUnorderedStreams(const Program &p, std::vector<std::string> &out) {
  std::set<std::pair<uint32_t, uint32_t>> reported; // device, domain
  for (uint32_t d = 0; d < p.devices.size(); ++d) {
    std::map<uint32_t, std::pair<uint32_t, const Operation *>>
        last;                  // domain -> stream, op
    std::set<uint32_t> waited; // streams that waited for something since
    for (const Thread &t : p.threads)
      for (const Statement &stmt : t.body) {
        if (stmt.kind != StmtKind::Issue) {
          if (stmt.kind == StmtKind::SyncDevice ||
              stmt.kind == StmtKind::SyncProcess ||
              stmt.kind == StmtKind::SyncStream)
            last.clear();
          continue;
        }
        const Operation &o = p.ops[stmt.op];
        if (o.device != d)
          continue;
        if (o.kind == OpKind::Wait)
          waited.insert(o.stream);
        for (const Part &part : o.parts) {
          auto it = last.find(part.domain);
          if (it != last.end() && it->second.first != o.stream &&
              !waited.count(o.stream) &&
              reported.insert({d, part.domain}).second && out.size() < 32)
            out.push_back("operations of domain " +
                          p.domains[part.domain].name + " on r" +
                          std::to_string(p.devices[d].rank) +
                          " are on streams " + p.streams[it->second.first] +
                          " and " + p.streams[o.stream] +
                          " without an event between them: safe only if the "
                          "library serialises a "
                          "domain's operations (assumed: samecomm=serial)");
          last[part.domain] = {o.stream, &o};
        }
      }
  }
}

} // namespace

Judgement judgeWithWarnings(const Program &program,
                            const ExploreOptions &options) {
  Judgement out = judge(program, options);
  bool comparable =
      out.verdict != Verdict::Mismatch; // no configuration mends one
  Config portable = program.config.portable();
  bool groups =
      std::any_of(program.ops.begin(), program.ops.end(),
                  [](const Operation &o) { return o.kind == OpKind::Group; });
  // Profiles differ only where there are groups.
  Config effective = program.config;
  if (!groups)
    effective.group = portable.group;
  if (comparable && !(effective == portable)) {
    Program changed = program;
    changed.config = portable;
    Judgement other = judge(changed, options);
    if (other.verdict != out.verdict) {
      std::string text = "the portable verdict (" + portable.str() + ") is " +
                         std::string(toString(other.verdict)) + ", not " +
                         std::string(toString(out.verdict));
      if (isDeadlock(other.verdict) && !isDeadlock(out.verdict)) {
        std::vector<std::string> hiding = hidingAssumptions(program, options);
        std::string list;
        for (const std::string &h : hiding)
          list += (list.empty() ? "" : ", ") + h;
        if (!list.empty())
          text += "; the fault is hidden by " + list;
        if (!other.findings.empty()) {
          Finding f = other.findings.front();
          f.kind = Finding::Kind::Divergence;
          f.id = "order-divergence";
          f.details.insert(f.details.begin(), "shown under " + portable.str());
          out.findings.push_back(std::move(f));
        }
        if (std::find_if(hiding.begin(), hiding.end(),
                         [](const std::string &h) {
                           return h.rfind("K=", 0) == 0;
                         }) != hiding.end())
          text +=
              "; the program is order-divergent: with one slot it can stick";
      }
      out.warnings.push_back(std::move(text));
    }
  }
  if (out.verdict == Verdict::Clean) {
    warnHostSync(program, out.warnings);
    warnUnorderedStreams(program, out.warnings);
  }
  return out;
}

} // namespace concord::order

//===- CompactForm.cpp - Building the compact form ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From plan tables and from small programs to the compact form.
//
//===----------------------------------------------------------------------===//

#include "Rounds.h"
#include "concord/order/Certificate.h"
#include "concord/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace concord::order {

uint64_t mixSignature(uint64_t seed, uint64_t value) {
  // splitmix64 finaliser over a running sum (Steele, Lea, Flood 2014).
  uint64_t z = seed + 0x9E3779B97F4A7C15ull + value * 0xD1B54A32D192ED03ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

uint64_t hashSignature(std::string_view text) {
  uint64_t h = text.size();
  for (char c : text)
    h = mixSignature(h, uint8_t(c));
  return h;
}

uint32_t ProgramForm::collective(uint32_t domain, uint32_t stream,
                                 uint64_t signature,
                                 const std::vector<uint32_t> &waitsFor) {
  Item item;
  item.domain = domain;
  item.stream = stream;
  item.signature = signature;
  item.waitBegin = uint32_t(waits.size());
  item.waitCount = uint32_t(waitsFor.size());
  waits.insert(waits.end(), waitsFor.begin(), waitsFor.end());
  items.push_back(item);
  return uint32_t(items.size()) - 1;
}

uint32_t ProgramForm::transfer(uint32_t domain, uint32_t stream,
                               const std::vector<ItemTransfer> &list,
                               const std::vector<uint32_t> &waitsFor) {
  uint32_t at = collective(domain, stream, 0, waitsFor);
  items[at].kind = Item::Kind::Transfer;
  items[at].transferBegin = uint32_t(transfers.size());
  items[at].transferCount = uint32_t(list.size());
  transfers.insert(transfers.end(), list.begin(), list.end());
  // By rank, so that each finds its own.
  std::stable_sort(transfers.end() - std::ptrdiff_t(list.size()),
                   transfers.end(),
                   [](const ItemTransfer &a, const ItemTransfer &b) {
                     return a.self() < b.self();
                   });
  return at;
}

uint32_t ProgramForm::hostCollective(uint32_t domain, uint64_t signature) {
  uint32_t at = collective(domain, 0, signature);
  items[at].kind = Item::Kind::HostCollective;
  return at;
}

uint32_t ProgramForm::sync(uint32_t stream) {
  Item item;
  item.kind = Item::Kind::Sync;
  item.stream = stream;
  items.push_back(item);
  return uint32_t(items.size()) - 1;
}

uint32_t ProgramForm::waitFor(const std::vector<uint32_t> &list) {
  uint32_t at = collective(0, 0, 0, list);
  items[at].kind = Item::Kind::WaitFor;
  return at;
}

namespace {

constexpr uint64_t kMaxPlanItems = 20000000;
constexpr uint32_t kMaxPlanDepth = 256;

std::string_view kindName(plan::Kind kind) {
  using K = plan::Kind;
  switch (kind) {
  case K::AllReduce:
    return "all_reduce";
  case K::AllGather:
    return "all_gather";
  case K::ReduceScatter:
    return "reduce_scatter";
  case K::AllToAll:
    return "all_to_all";
  case K::Broadcast:
    return "broadcast";
  case K::Reduce:
    return "reduce";
  case K::Gather:
    return "gather";
  case K::Scatter:
    return "scatter";
  case K::Permute:
    return "permute";
  case K::Send:
    return "send";
  case K::Recv:
    return "recv";
  case K::Barrier:
    return "barrier";
  case K::Group:
    return "group";
  case K::RoundDecision:
    return "round_decision";
  }
  return "unknown";
}

std::string_view reductionName(plan::Reduction r) {
  using R = plan::Reduction;
  switch (r) {
  case R::None:
    return "";
  case R::Sum:
    return "sum";
  case R::Prod:
    return "prod";
  case R::Min:
    return "min";
  case R::Max:
    return "max";
  case R::Avg:
    return "avg";
  case R::And:
    return "and";
  case R::Or:
    return "or";
  }
  return "unknown";
}

/// Walks one program of a plan. Loops are walked twice: that shows every pair
/// of neighbours, the one over the back edge included.
class PlanWalker {
public:
  PlanWalker(const plan::Plan &plan, const plan::Program &source,
             OrderProblem &problem, ProgramForm &form,
             std::unordered_map<std::string, uint32_t> &names)
      : plan(plan), source(source), problem(problem), form(form), names(names),
        lastOfSite(source.issues.size(), kNone) {}

  std::string error;

  void run() {
    // A part of a round is a child of the body.
    if (source.body.type != plan::Node::Type::Seq) {
      walk(source.body, 0, false, 0);
      form.units.assign(form.items.size(), 0);
      return;
    }
    for (uint32_t unit = 0; unit < source.body.children.size(); ++unit) {
      if (!walk(source.body.children[unit], 1, false, 0))
        return;
      form.units.resize(form.items.size(), unit);
    }
  }

private:
  const plan::Plan &plan;
  const plan::Program &source;
  OrderProblem &problem;
  ProgramForm &form;
  std::unordered_map<std::string, uint32_t> &names;
  std::vector<uint32_t> lastOfSite;
  std::map<uint32_t, std::vector<uint32_t>> recordedBy; // event -> items

  bool fail(std::string why) {
    if (error.empty())
      error = "program " + source.name + ": " + std::move(why);
    return false;
  }

  uint32_t nameId(const std::string &text) {
    auto [it, fresh] = names.try_emplace(text, uint32_t(problem.names.size()));
    if (fresh)
      problem.names.push_back(text);
    return it->second;
  }

  bool walk(const plan::Node &node, uint32_t depth, bool optional,
            uint64_t loops) {
    using T = plan::Node::Type;
    if (depth > kMaxPlanDepth)
      return fail("plan tree deeper than 256");
    if (form.items.size() > kMaxPlanItems)
      return fail("more than 20000000 issues after unrolling");
    switch (node.type) {
    case T::Seq:
      for (const plan::Node &child : node.children)
        if (!walk(child, depth + 1, optional, loops))
          return false;
      return true;
    case T::Loop: {
      // The trip count is part of every signature inside, so that members whose
      // loops differ do not pass for equal.
      if (node.tripCount == 0)
        assume("uniform-trip-counts");
      uint64_t inside = mixSignature(loops, node.tripCount + 1);
      uint32_t times = node.tripCount == 1 ? 1 : 2;
      problem.loops = problem.loops || node.tripCount != 1;
      for (uint32_t i = 0; i < times; ++i)
        for (const plan::Node &child : node.children)
          if (!walk(child, depth + 1, optional, inside))
            return false;
      return true;
    }
    case T::Branch: {
      size_t before = form.items.size();
      for (const plan::Node &arm : node.children)
        if (!walk(arm, depth + 1, true, loops))
          return false;
      if (form.items.size() != before)
        assume("uniform-branches");
      return true;
    }
    case T::Issue:
      return issue(node.site, optional, loops);
    case T::Wait: {
      if (node.site >= source.issues.size())
        return fail("a wait names site " + std::to_string(node.site) + " of " +
                    std::to_string(source.issues.size()));
      if (lastOfSite[node.site] == kNone)
        return true;
      uint32_t at = form.waitFor({lastOfSite[node.site]});
      form.items[at].optional = optional;
      return true;
    }
    case T::Compute:
      return true;
    }
    return fail("unknown plan node");
  }

  void assume(const std::string &text) {
    auto &list = problem.assumptions;
    if (std::find(list.begin(), list.end(), text) == list.end())
      list.push_back(text);
  }

  bool addTransfers(const plan::Issue &i, uint32_t domain, uint64_t loops,
                    bool grouped, std::vector<ItemTransfer> &list) {
    uint64_t signature =
        mixSignature(mixSignature(loops, i.count), uint64_t(i.dtype));
    for (const auto &pair : i.pairs) {
      // Pairs are group ranks: one transfer in every group of the domain.
      for (const auto &group : plan.domains[domain].groups) {
        if (pair[0] < 0 || pair[1] < 0 || size_t(pair[0]) >= group.size() ||
            size_t(pair[1]) >= group.size())
          return fail("transfer between group ranks " +
                      std::to_string(pair[0]) + " and " +
                      std::to_string(pair[1]) + " of a group of " +
                      std::to_string(group.size()));
        Rank source = group[size_t(pair[0])],
             destination = group[size_t(pair[1])];
        if (source == destination) {
          if (grouped)
            continue; // a copy inside the launch
          return fail("a transfer of rank " + std::to_string(source) +
                      " to itself outside a group");
        }
        list.push_back(
            {source, destination, i.kind == plan::Kind::Recv, signature});
      }
    }
    return true;
  }

  bool issue(uint32_t site, bool optional, uint64_t loops) {
    if (site >= source.issues.size())
      return fail("an issue names site " + std::to_string(site) + " of " +
                  std::to_string(source.issues.size()));
    const plan::Issue &i = source.issues[site];
    if (i.domain >= plan.domains.size())
      return fail("site " + std::to_string(site) + " names domain " +
                  std::to_string(i.domain));
    std::vector<uint32_t> waits;
    for (uint32_t event : i.waits)
      if (auto it = recordedBy.find(event); it != recordedBy.end())
        waits.insert(waits.end(), it->second.begin(), it->second.end());
    uint32_t at = 0;
    std::vector<ItemTransfer> list;
    switch (i.kind) {
    case plan::Kind::Send:
    case plan::Kind::Recv:
      if (!addTransfers(i, i.domain, loops, false, list))
        return false;
      at = form.transfer(i.domain, i.lane, list, waits);
      break;
    case plan::Kind::Group:
      for (uint32_t member : i.members) {
        if (member >= source.issues.size() ||
            source.issues[member].domain >= plan.domains.size())
          return fail("a group names site " + std::to_string(member));
        const plan::Issue &m = source.issues[member];
        if (m.kind != plan::Kind::Send && m.kind != plan::Kind::Recv)
          return fail("site " + std::to_string(site) + " groups a " +
                      std::string(kindName(m.kind)) +
                      "; a group holds transfers only");
        if (m.domain != i.domain)
          return fail("site " + std::to_string(site) +
                      " groups transfers of two domains");
        if (!addTransfers(m, m.domain, loops, true, list))
          return false;
      }
      at = form.transfer(i.domain, i.lane, list, waits);
      break;
    default: {
      uint64_t s = mixSignature(loops, uint64_t(i.kind));
      s = mixSignature(s, uint64_t(i.reduction));
      s = mixSignature(s, uint64_t(i.dtype));
      s = mixSignature(s, uint64_t(int64_t(i.root)));
      if (i.sendCounts.empty() && i.recvCounts.empty())
        s = mixSignature(s, i.count);
      for (const auto &pair : i.pairs)
        s = mixSignature(mixSignature(s, uint64_t(pair[0])), uint64_t(pair[1]));
      if (i.kind == plan::Kind::RoundDecision)
        at = form.hostCollective(i.domain, s);
      else
        at = form.collective(i.domain, i.lane, s, waits);
    }
    }
    form.sites.resize(at + 1, kNone);
    form.sites[at] = site;
    Item &item = form.items[at];
    item.optional = optional || i.optional;
    item.synchronous = i.synchronous;
    if (!i.location.empty()) {
      item.location = uint32_t(problem.locations.size());
      problem.locations.push_back(i.location);
    }
    std::string name(kindName(i.kind));
    std::string extra;
    if (i.reduction != plan::Reduction::None)
      extra += "," + std::string(reductionName(i.reduction));
    if (i.count)
      extra += ",n=" + std::to_string(i.count);
    if (i.dtype != DType::Invalid)
      extra += "," + std::string(dtypeName(i.dtype));
    if (i.root >= 0)
      extra += ",root=" + std::to_string(i.root);
    item.name = nameId(name + "(" + plan.domains[i.domain].name + extra + ")");
    lastOfSite[site] = at;
    for (uint32_t event : i.records) {
      // An event binds to its latest record; inside a branch both may be meant.
      auto &recorders = recordedBy[event];
      if (!item.optional)
        recorders.clear();
      recorders.push_back(at);
    }
    return true;
  }
};

} // namespace

bool fromPlan(const plan::Plan &plan, OrderProblem &problem,
              std::string &error) {
  problem = {};
  problem.world = plan.world;
  problem.assumptions = plan.assumptions;
  if (plan.world == 0 || plan.world > (1u << 20)) {
    error = "world of " + std::to_string(plan.world) + " ranks";
    return false;
  }
  for (const plan::Domain &d : plan.domains) {
    OrderDomain domain{d.name, {}, d.priority};
    std::vector<bool> seen(plan.world, false);
    for (const auto &group : d.groups) {
      for (int32_t rank : group) {
        if (rank < 0 || uint32_t(rank) >= plan.world) {
          error = "domain " + d.name + " has rank " + std::to_string(rank) +
                  " of a world of " + std::to_string(plan.world);
          return false;
        }
        if (seen[size_t(rank)]) {
          error = "domain " + d.name + " has rank " + std::to_string(rank) +
                  " twice";
          return false;
        }
        seen[size_t(rank)] = true;
      }
      domain.groups.push_back(group);
    }
    problem.domains.push_back(std::move(domain));
  }
  std::unordered_map<std::string, uint32_t> names;
  for (const plan::Program &p : plan.programs) {
    ProgramForm form;
    form.name = p.name;
    form.issuer = p.issuer;
    std::set<int32_t> ranks;
    for (int32_t rank : p.ranks) {
      if (rank < 0 || uint32_t(rank) >= plan.world ||
          !ranks.insert(rank).second) {
        error = "program " + p.name + " has rank " + std::to_string(rank);
        return false;
      }
      form.ranks.push_back(rank);
    }
    PlanWalker walker(plan, p, problem, form, names);
    walker.run();
    if (!walker.error.empty()) {
      error = walker.error;
      return false;
    }
    problem.programs.push_back(std::move(form));
  }
  return true;
}

Certificate verifyPlan(const plan::Plan &plan, const VerifyOptions &options) {
  OrderProblem problem;
  std::string error;
  Certificate out;
  if (fromPlan(plan, problem, error)) {
    out = verify(problem, options);
    // Several issuers need one order of the round: the plan's, or any.
    if (out.valid && !plan.rounds.empty()) {
      out.valid = checkRounds(plan, problem, out.faults);
    } else if (out.valid && plan.programs.size() > 1) {
      plan::Plan copy = plan;
      out.valid = orderRounds(copy, out.faults);
    }
    return out;
  }
  Finding f;
  f.kind = Finding::Kind::Mismatch;
  f.id = "malformed-plan";
  f.title = error;
  f.cause = "the plan table is not well formed";
  f.cure = "compile the program again";
  out.faults.push_back(std::move(f));
  return out;
}

bool fromProgram(const Program &p, OrderProblem &problem, std::string &why) {
  problem = {};
  if (p.config.launchDepth != Config::kUnlimited) {
    why = "finite launch queue";
    return false;
  }
  for (const Process &process : p.processes)
    if (process.threads.size() != 1 || process.devices.size() != 1) {
      why = "several threads or devices in a process";
      return false;
    }
  for (const Device &d : p.devices)
    problem.world = std::max(problem.world, uint32_t(d.rank) + 1);
  for (const Domain &d : p.domains) {
    problem.domains.push_back({d.name, {d.members}, 0});
    for (Rank r : d.members)
      problem.world = std::max(problem.world, uint32_t(r) + 1);
  }
  auto place = [&](const Location &loc) {
    problem.locations.push_back(loc.str());
    return uint32_t(problem.locations.size()) - 1;
  };
  for (const Thread &t : p.threads) {
    ProgramForm form;
    Rank self = p.devices[p.processes[t.process].devices.front()].rank;
    form.ranks = {self};
    form.name = p.processes[t.process].name;
    std::map<uint32_t, uint32_t> lastInStream; // stream -> item
    std::map<uint32_t, std::vector<uint32_t>>
        recorded; // event -> items before its records
    std::map<uint32_t, std::vector<uint32_t>>
        streamWaits; // waits taken over by a stream
    for (const Statement &s : t.body) {
      uint32_t at = kNone;
      switch (s.kind) {
      case StmtKind::Nop:
        break;
      case StmtKind::SyncDevice:
      case StmtKind::SyncProcess:
      case StmtKind::MapMemory:
      case StmtKind::Free:
      case StmtKind::LoadKernel:
        at = form.sync();
        form.items[at].location = place(s.loc);
        // An allocation or drain waits for the device as a sync does; it is
        // flagged as a hazard on top.
        if (s.kind == StmtKind::MapMemory || s.kind == StmtKind::Free ||
            s.kind == StmtKind::LoadKernel) {
          Item hazard;
          hazard.kind = Item::Kind::Hazard;
          hazard.location = place(s.loc);
          problem.names.push_back(p.describe(s));
          hazard.name = uint32_t(problem.names.size()) - 1;
          form.items.push_back(hazard);
        }
        break;
      case StmtKind::SyncStream: {
        at = form.sync(s.stream);
        // What the stream waited for by events is complete as well.
        if (auto it = streamWaits.find(s.stream);
            it != streamWaits.end() && !it->second.empty())
          at = form.waitFor(it->second);
        form.items[at].location = place(s.loc);
        break;
      }
      case StmtKind::HostCollective:
        at = form.hostCollective(
            s.domain,
            hashSignature(s.label + "(" + toString(s.compared) + ")"));
        form.items[at].location = place(s.loc);
        problem.names.push_back(p.describe(s));
        form.items[at].name = uint32_t(problem.names.size()) - 1;
        break;
      case StmtKind::Issue: {
        const Operation &o = p.ops[s.op];
        if (o.kind == OpKind::Kernel)
          break;
        if (o.kind == OpKind::Record) {
          // The record completes after what its stream had before it.
          std::vector<uint32_t> before = streamWaits[o.stream];
          if (auto it = lastInStream.find(o.stream); it != lastInStream.end())
            before.push_back(it->second);
          auto &list = recorded[o.name];
          list.insert(list.end(), before.begin(), before.end());
          break;
        }
        if (o.kind == OpKind::Wait) {
          auto &list = streamWaits[o.stream];
          const auto &add = recorded[o.name];
          list.insert(list.end(), add.begin(), add.end());
          std::sort(list.begin(), list.end());
          list.erase(std::unique(list.begin(), list.end()), list.end());
          break;
        }
        if (!isCommunication(o.kind)) {
          why = "flags and spinning kernels";
          return false;
        }
        std::vector<uint32_t> waits = std::move(streamWaits[o.stream]);
        streamWaits[o.stream].clear();
        if (isCollective(o.kind)) {
          const Part &part = o.parts.front();
          at = form.collective(part.domain, o.stream,
                               hashSignature(std::string(mnemonic(o.kind)) +
                                             "(" + toString(part.compared) +
                                             ")"),
                               waits);
        } else {
          std::vector<ItemTransfer> list;
          uint32_t domain = o.parts.front().domain;
          for (const Part &part : o.parts) {
            if (part.domain != domain) {
              why = "a group over several domains";
              return false;
            }
            uint64_t signature = hashSignature(toString(part.compared));
            if (part.peer == self) {
              why = "a transfer to itself";
              return false;
            }
            if (part.kind == OpKind::Send)
              list.push_back({self, part.peer, false, signature});
            else
              list.push_back({part.peer, self, true, signature});
          }
          at = form.transfer(domain, o.stream, list, waits);
        }
        Item &item = form.items[at];
        item.need = uint16_t(std::min<uint32_t>(o.need, 65535));
        item.location = place(o.loc);
        problem.names.push_back(p.describe(o));
        item.name = uint32_t(problem.names.size()) - 1;
        lastInStream[o.stream] = at;
        break;
      }
      default:
        why = "locks, flags or stalls";
        return false;
      }
    }
    problem.programs.push_back(std::move(form));
  }
  return true;
}

} // namespace concord::order

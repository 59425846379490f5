//===- Expansion.cpp - C4 and C5 of the certificate -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numbers the instances of all ranks, checks that every member issues every
// instance with equal properties (C5), forms the matched sets of grouped
// transfers (C4), and lists per block what each rank issues.
//
//===----------------------------------------------------------------------===//

#include "StableSort.h"
#include "Verifier.h"

#include <algorithm>
#include <map>
#include <set>

namespace concord::order {

namespace {

constexpr size_t kMaxFaults = 32;

std::string rankName(Rank r) { return "r" + std::to_string(r); }

std::string rankList(const std::vector<Rank> &ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8 && ranks.size() > 9)
      return out + " and " + std::to_string(ranks.size() - 8) + " more";
    out += (i ? ", " : "") + rankName(ranks[i]);
  }
  return out;
}

} // namespace

Expansion::Expansion(const OrderProblem &p, Certificate &certificate)
    : problem(p), out(certificate) {
  if (!buildNodes() || !number())
    return;
  collect();
}

void Expansion::fault(Finding::Kind kind, std::string id, std::string title,
                      std::string cause, std::string cure,
                      std::vector<Rank> culprits,
                      std::vector<std::string> details) {
  if (out.faults.size() >= kMaxFaults)
    return;
  Finding f;
  f.kind = kind;
  f.id = std::move(id);
  f.title = std::move(title);
  f.cause = std::move(cause);
  f.cure = std::move(cure);
  f.culprits = std::move(culprits);
  f.details = std::move(details);
  out.faults.push_back(std::move(f));
}

std::string Expansion::itemText(uint32_t program, uint32_t item) const {
  const Item &i = problem.programs[program].items[item];
  if (i.name != kNone && i.name < problem.names.size())
    return problem.names[i.name];
  std::string domain =
      i.domain < problem.domains.size() ? problem.domains[i.domain].name : "?";
  switch (i.kind) {
  case Item::Kind::HostCollective:
    return "host collective(" + domain + ")";
  case Item::Kind::Transfer:
    return "transfer(" + domain + ")";
  case Item::Kind::Collective:
    return "collective(" + domain + ")";
  default:
    return "host statement";
  }
}

Location Expansion::itemLocation(uint32_t program, uint32_t item) const {
  const Item &i = problem.programs[program].items[item];
  Location loc;
  if (i.location != kNone && i.location < problem.locations.size())
    loc.file = problem.locations[i.location];
  else
    loc.file = problem.programs[program].name + " item " + std::to_string(item);
  return loc;
}

std::string Expansion::setText(const Occurrence &o,
                               const IssueList &list) const {
  return itemText(list.program, o.item) + "#" + std::to_string(indexOf(o.set)) +
         "@" + rankName(list.rank);
}

ChainEdge::End Expansion::end(const Occurrence &o,
                              const IssueList &list) const {
  const Item &i = problem.programs[list.program].items[o.item];
  ChainEdge::End e;
  e.text = setText(o, list);
  e.rank = list.rank;
  if (i.kind != Item::Kind::HostCollective)
    e.stream = std::to_string(i.stream);
  e.domain = problem.domains[i.domain].name;
  e.instance = int64_t(indexOf(o.set));
  e.loc = itemLocation(list.program, o.item);
  return e;
}

template <typename F>
void Expansion::visit(Rank rank, const ProgramForm &p, const Item &item,
                      F f) const {
  auto group = [&](uint32_t domain) {
    return rank >= 0 && size_t(rank) < groupOfRank[domain].size()
               ? groupOfRank[domain][size_t(rank)]
               : -1;
  };
  switch (item.kind) {
  case Item::Kind::Collective:
  case Item::Kind::HostCollective: {
    int32_t g = group(item.domain);
    if (g < 0)
      return;
    const auto &nodes =
        item.kind == Item::Kind::Collective ? collectiveNode : hostNode;
    uint32_t node = nodes[item.domain][size_t(g)];
    if (node != kNone)
      f(node, item.signature);
    return;
  }
  case Item::Kind::Transfer: {
    auto begin = p.transfers.begin() + std::ptrdiff_t(item.transferBegin);
    auto end = begin + std::ptrdiff_t(item.transferCount);
    for (auto at = std::lower_bound(
             begin, end, rank,
             [](const ItemTransfer &t, Rank r) { return t.self() < r; });
         at != end && at->self() == rank; ++at) {
      const ItemTransfer &t = *at;
      uint64_t key =
          (uint64_t(item.domain) * problem.world + uint64_t(t.source)) *
              problem.world +
          uint64_t(t.destination);
      auto it = transferNode.find(key);
      if (it != transferNode.end())
        f(it->second, t.signature);
    }
    return;
  }
  default:
    return;
  }
}

/// Nodes in use, and calls by ranks that are no members.
bool Expansion::buildNodes() {
  RankGroupGraph &g = out.graph;
  for (const OrderDomain &d : problem.domains) {
    std::vector<int32_t> of(problem.world, -1);
    for (size_t k = 0; k < d.groups.size(); ++k)
      for (Rank r : d.groups[k]) {
        if (r < 0 || size_t(r) >= of.size() || of[size_t(r)] >= 0) {
          fault(Finding::Kind::Mismatch, "malformed-domain",
                "domain " + d.name + " lists rank " + std::to_string(r) +
                    " wrongly",
                "a rank outside the world, or in two groups of one domain",
                "make the groups a partition", {r});
          return false;
        }
        of[size_t(r)] = int32_t(k);
      }
    groupOfRank.push_back(std::move(of));
  }
  for (const OrderDomain &d : problem.domains) {
    collectiveNode.emplace_back(d.groups.size(), kNone);
    hostNode.emplace_back(d.groups.size(), kNone);
  }
  auto node = [&](uint32_t &id, GraphNode::Kind kind, uint32_t domain,
                  uint32_t group, Rank source, Rank destination) {
    if (id != kNone)
      return;
    id = uint32_t(g.nodes.size());
    GraphNode n;
    n.kind = kind;
    n.domain = domain;
    n.group = group;
    n.source = source;
    n.destination = destination;
    n.members = kind == GraphNode::Kind::Transfer
                    ? std::vector<Rank>{source, destination}
                    : problem.domains[domain].groups[group];
    g.nodes.push_back(std::move(n));
  };
  for (uint32_t p = 0; p < problem.programs.size(); ++p) {
    const ProgramForm &program = problem.programs[p];
    for (Rank r : program.ranks)
      if (r < 0 || uint32_t(r) >= problem.world) {
        fault(Finding::Kind::Mismatch, "malformed-program",
              "program " + program.name + " runs on rank " + std::to_string(r) +
                  " of a world of " + std::to_string(problem.world),
              "the rank list is wrong", "compile the program again", {r});
        return false;
      }
    std::vector<bool> seenDomain(problem.domains.size() * 2, false);
    for (uint32_t i = 0; i < program.items.size(); ++i) {
      const Item &item = program.items[i];
      bool communicates = item.kind == Item::Kind::Collective ||
                          item.kind == Item::Kind::HostCollective ||
                          item.kind == Item::Kind::Transfer;
      if (!communicates)
        continue;
      if (item.domain >= problem.domains.size() ||
          uint64_t(item.transferBegin) + item.transferCount >
              program.transfers.size() ||
          uint64_t(item.waitBegin) + item.waitCount > program.waits.size()) {
        fault(Finding::Kind::Mismatch, "malformed-program",
              "item " + std::to_string(i) + " of " + program.name +
                  " names what does not exist",
              "the compact form is not well formed", "build it again", {});
        return false;
      }
      if (item.kind == Item::Kind::Transfer) {
        for (uint32_t k = 0; k < item.transferCount; ++k) {
          const ItemTransfer &t = program.transfers[item.transferBegin + k];
          bool inside = t.source >= 0 && t.destination >= 0 &&
                        uint32_t(t.source) < problem.world &&
                        uint32_t(t.destination) < problem.world &&
                        groupOfRank[item.domain][size_t(t.source)] >= 0 &&
                        groupOfRank[item.domain][size_t(t.source)] ==
                            groupOfRank[item.domain][size_t(t.destination)];
          if (!inside) {
            fault(Finding::Kind::Mismatch, "not-a-member",
                  itemText(p, i) + ": ranks " + std::to_string(t.source) +
                      " and " + std::to_string(t.destination) +
                      " are not in one group of " +
                      problem.domains[item.domain].name,
                  "a transfer needs both ends in the domain",
                  "use a domain that holds both", {t.source},
                  {"at " + itemLocation(p, i).str()});
            continue;
          }
          uint64_t key =
              (uint64_t(item.domain) * problem.world + uint64_t(t.source)) *
                  problem.world +
              uint64_t(t.destination);
          uint32_t &id = transferNode.try_emplace(key, kNone).first->second;
          node(id, GraphNode::Kind::Transfer, item.domain,
               uint32_t(groupOfRank[item.domain][size_t(t.source)]), t.source,
               t.destination);
        }
        continue;
      }
      bool host = item.kind == Item::Kind::HostCollective;
      if (seenDomain[item.domain * 2 + host])
        continue;
      seenDomain[item.domain * 2 + host] = true;
      for (Rank r : program.ranks) {
        int32_t group = groupOfRank[item.domain][size_t(r)];
        if (group < 0) {
          fault(Finding::Kind::Mismatch, "not-a-member",
                rankName(r) + " calls " + itemText(p, i) +
                    " but is no member of " + problem.domains[item.domain].name,
                "the caller is not in the domain", "issue it on members only",
                {r}, {"at " + itemLocation(p, i).str()});
          continue;
        }
        node((host ? hostNode : collectiveNode)[item.domain][size_t(group)],
             host ? GraphNode::Kind::Host : GraphNode::Kind::Collective,
             item.domain, uint32_t(group), -1, -1);
      }
    }
  }
  computeBlocks(g);
  return out.faults.empty();
}

uint32_t Expansion::find(uint32_t i) const {
  if (setParent.empty())
    return i;
  while (setParent[i] != i)
    i = setParent[i] = setParent[setParent[i]];
  return i;
}

void Expansion::unite(uint32_t a, uint32_t b) {
  a = find(a);
  b = find(b);
  if (a != b)
    setParent[std::max(a, b)] = std::min(a, b);
}

/// C5: counts and signatures, member by member.
bool Expansion::number() {
  RankGroupGraph &g = out.graph;
  std::vector<std::vector<uint64_t>> counts(g.nodes.size());
  std::vector<std::vector<uint32_t>> programOf(g.nodes.size());
  for (uint32_t n = 0; n < g.nodes.size(); ++n) {
    counts[n].assign(g.nodes[n].members.size(), 0);
    programOf[n].assign(g.nodes[n].members.size(), kNone);
  }
  nodesOf.assign(problem.world, {});
  for (uint32_t n = 0; n < g.nodes.size(); ++n)
    for (uint32_t k = 0; k < g.nodes[n].members.size(); ++k) {
      auto &list = nodesOf[size_t(g.nodes[n].members[k])];
      if (list.empty() || list.back().first != n)
        list.emplace_back(n, k);
    }
  std::vector<uint32_t> local(g.nodes.size(), 0);
  bool twoIssuers = false;
  for (uint32_t p = 0; p < problem.programs.size(); ++p) {
    const ProgramForm &program = problem.programs[p];
    for (Rank r : program.ranks) {
      reset(local, r);
      for (const Item &item : program.items)
        visit(r, program, item, [&](uint32_t node, uint64_t) {
          ++local[node];
          ++out.issues;
        });
      // The two ends of a transfer are different members of the node.
      for (auto [n, k] : nodesOf[size_t(r)]) {
        if (!local[n])
          continue;
        if (programOf[n][k] != kNone) {
          twoIssuers = true;
          fault(Finding::Kind::Mismatch, "two-issuers-one-domain",
                "programs " + problem.programs[programOf[n][k]].name + " and " +
                    program.name + " both issue on " +
                    g.describe(problem.domains, n) + " on " + rankName(r),
                "the instance numbers of one domain would depend on the "
                "interleaving",
                "give each issuer a domain of its own", {r});
        }
        programOf[n][k] = p;
        counts[n][k] = local[n];
      }
    }
  }
  if (twoIssuers)
    return false;
  nodeBase.assign(g.nodes.size() + 1, 0);
  for (uint32_t n = 0; n < g.nodes.size(); ++n) {
    uint64_t most = *std::max_element(counts[n].begin(), counts[n].end());
    nodeBase[n + 1] = nodeBase[n] + most;
  }
  out.instances = nodeBase.back();
  if (out.instances >= kNone) {
    fault(Finding::Kind::Warning, "too-large", "more than 4294967294 instances",
          "", "", {});
    return false;
  }
  instanceNode.resize(out.instances);
  for (uint32_t n = 0; n < g.nodes.size(); ++n)
    std::fill(instanceNode.begin() + long(nodeBase[n]),
              instanceNode.begin() + long(nodeBase[n + 1]), n);

  std::vector<uint64_t> signature(out.instances, 0);
  std::vector<bool> known(out.instances, false);
  std::map<uint32_t, uint64_t> diverging; // node -> earliest index
  for (const ProgramForm &program : problem.programs)
    for (Rank r : program.ranks) {
      reset(local, r);
      for (const Item &item : program.items)
        visit(r, program, item, [&](uint32_t node, uint64_t s) {
          uint64_t at = nodeBase[node] + local[node]++;
          if (!known[at]) {
            known[at] = true;
            signature[at] = s;
          } else if (signature[at] != s) {
            uint64_t index = at - nodeBase[node];
            auto [it, fresh] = diverging.try_emplace(node, index);
            if (!fresh)
              it->second = std::min(it->second, index);
          }
        });
    }
  // The earliest divergence of every node first, then the missing ones: a hang
  // is often only the consequence of a divergence.
  for (auto [node, index] : diverging)
    reportDivergence(node, index);
  for (uint32_t n = 0; n < g.nodes.size(); ++n) {
    uint64_t most = nodeBase[n + 1] - nodeBase[n];
    std::vector<Rank> missing;
    uint64_t earliest = most;
    for (size_t k = 0; k < counts[n].size(); ++k)
      if (counts[n][k] < most) {
        missing.push_back(g.nodes[n].members[k]);
        earliest = std::min(earliest, counts[n][k]);
      }
    if (!missing.empty())
      fault(Finding::Kind::Missing, "missing-participant",
            "instance #" + std::to_string(earliest) + " of " +
                g.describe(problem.domains, n) + " is never issued on " +
                rankList(missing),
            "a member does not issue every instance (" + std::to_string(most) +
                " on the others)",
            "let every member issue every instance", missing);
  }
  return out.faults.empty();
}

void Expansion::reportDivergence(uint32_t node, uint64_t index) {
  struct Who {
    Rank rank;
    uint32_t program, item;
  };
  std::map<uint64_t, std::vector<Who>> camps;
  for (uint32_t p = 0; p < problem.programs.size(); ++p)
    for (Rank r : problem.programs[p].ranks) {
      uint64_t k = 0;
      const auto &items = problem.programs[p].items;
      for (uint32_t i = 0; i < items.size() && k <= index; ++i)
        visit(r, problem.programs[p], items[i], [&](uint32_t n, uint64_t s) {
          if (n == node && k++ == index)
            camps[s].push_back({r, p, i});
        });
    }
  std::vector<std::vector<Who>> sorted;
  for (auto &[_, camp] : camps)
    sorted.push_back(std::move(camp));
  stableSort(sorted,
             [](const auto &a, const auto &b) { return a.size() > b.size(); });
  std::string title = "instance " + std::to_string(index) + " of " +
                      out.graph.describe(problem.domains, node) + " differs: ";
  std::vector<Rank> odd;
  std::vector<std::string> details;
  for (size_t c = 0; c < sorted.size(); ++c) {
    std::vector<Rank> ranks;
    for (const Who &w : sorted[c]) {
      ranks.push_back(w.rank);
      if (c > 0)
        odd.push_back(w.rank);
    }
    const Who &w = sorted[c].front();
    title += (c ? ", " : "") + itemText(w.program, w.item) + " on " +
             rankList(ranks);
    details.push_back(itemText(w.program, w.item) + " of " + rankName(w.rank) +
                      " at " + itemLocation(w.program, w.item).str());
  }
  fault(Finding::Kind::Mismatch, "mismatch", title,
        "the members disagree on kind, count, dtype, reduction, root or loop",
        "issue the same sequence on every member", odd, details);
}

/// C4 and the lists of the blocks that need an order.
void Expansion::collect() {
  RankGroupGraph &g = out.graph;
  // Matched sets: grouped transfers tie their instances together.
  bool grouped = false;
  for (const ProgramForm &program : problem.programs)
    for (const Item &item : program.items)
      grouped = grouped ||
                (item.kind == Item::Kind::Transfer && item.transferCount > 1);
  std::vector<uint32_t> local(g.nodes.size(), 0);
  if (grouped) {
    setParent.resize(out.instances);
    for (uint32_t i = 0; i < setParent.size(); ++i)
      setParent[i] = i;
    for (const ProgramForm &program : problem.programs)
      for (Rank r : program.ranks) {
        reset(local, r);
        for (const Item &item : program.items) {
          uint32_t first = kNone;
          visit(r, program, item, [&](uint32_t node, uint64_t) {
            uint32_t at = uint32_t(nodeBase[node]) + local[node]++;
            if (first == kNone)
              first = at;
            else
              unite(first, at);
          });
        }
      }
  }
  // Blocks that a set spans become one: its parts start and end together.
  std::vector<uint32_t> blockParent(g.blocks), blockSize = g.blockEdges;
  for (uint32_t b = 0; b < g.blocks; ++b)
    blockParent[b] = b;
  auto blockOf = [&](uint32_t b) {
    while (blockParent[b] != b)
      b = blockParent[b] = blockParent[blockParent[b]];
    return b;
  };
  if (grouped) {
    std::unordered_map<uint32_t, uint32_t> firstNode; // set -> a node of it
    for (uint32_t i = 0; i < out.instances; ++i) {
      uint32_t root = find(i), n = instanceNode[i];
      auto [it, fresh] = firstNode.try_emplace(root, n);
      if (fresh || it->second == n)
        continue;
      for (uint32_t m : {it->second, n})
        for (uint32_t b : g.edgeBlock[m]) {
          uint32_t x = blockOf(g.edgeBlock[it->second].front()), y = blockOf(b);
          if (x == y)
            continue;
          blockParent[std::max(x, y)] = std::min(x, y);
          blockSize[std::min(x, y)] += blockSize[std::max(x, y)];
        }
    }
    for (auto &edges : g.edgeBlock)
      for (uint32_t &b : edges)
        b = blockOf(b);
    for (uint32_t b = 0; b < g.blocks; ++b)
      g.blockEdges[b] = blockOf(b) == b ? blockSize[b] : 0;
  }
  collectivesOnly.assign(g.blocks, true);
  severalIssuers.assign(g.blocks, false);
  for (uint32_t n = 0; n < g.nodes.size(); ++n)
    for (uint32_t b : g.edgeBlock[n])
      if (g.nodes[n].kind != GraphNode::Kind::Collective)
        collectivesOnly[b] = false;
  listsOfBlock.assign(g.blocks, {});

  // An item is transient where it may be absent.
  transient.resize(problem.programs.size());
  std::vector<uint32_t> programsOfRank(problem.world, 0);
  for (uint32_t p = 0; p < problem.programs.size(); ++p) {
    const ProgramForm &program = problem.programs[p];
    transient[p].assign(program.items.size(), false);
    for (Rank r : program.ranks)
      ++programsOfRank[size_t(r)];
    for (uint32_t i = 0; i < program.items.size(); ++i) {
      const Item &item = program.items[i];
      transient[p][i] = item.optional;
      if (item.kind != Item::Kind::Transfer || program.ranks.size() == 1)
        continue;
      std::set<Rank> part;
      for (uint32_t k = 0; k < item.transferCount; ++k)
        part.insert(program.transfers[item.transferBegin + k].self());
      for (Rank r : program.ranks)
        if (!part.count(r))
          transient[p][i] = true;
    }
  }

  std::vector<std::vector<uint32_t>>
      listing; // groups with several transfers, as instance lists
  std::vector<uint32_t> memberBlock(g.nodes.size());
  std::unordered_map<uint32_t, uint32_t> listOfBlock;
  for (uint32_t p = 0; p < problem.programs.size(); ++p) {
    const ProgramForm &program = problem.programs[p];
    for (Rank r : program.ranks) {
      listOfBlock.clear();
      reset(local, r);
      for (auto [n, k] : nodesOf[size_t(r)])
        memberBlock[n] = g.edgeBlock[n][k];
      for (uint32_t i = 0; i < program.items.size(); ++i) {
        const Item &item = program.items[i];
        out.maxNeed = std::max<uint32_t>(out.maxNeed, item.need);
        std::vector<uint32_t> instances;
        uint32_t first = kNone, node = kNone;
        visit(r, program, item, [&](uint32_t n, uint64_t) {
          uint32_t at = uint32_t(nodeBase[n]) + local[n]++;
          if (item.transferCount > 1)
            instances.push_back(at);
          if (first == kNone) {
            first = at;
            node = n;
          }
        });
        if (first == kNone)
          continue;
        if (instances.size() > 1)
          listing.push_back(std::move(instances));
        uint32_t b = memberBlock[node];
        if (g.blockEdges[b] <= 1)
          continue;
        auto [it, fresh] = listOfBlock.try_emplace(b, uint32_t(lists.size()));
        if (fresh) {
          listsOfBlock[b].push_back(uint32_t(lists.size()));
          lists.push_back({r, p, b, {}});
          if (programsOfRank[size_t(r)] > 1)
            severalIssuers[b] = true;
        }
        lists[it->second].entries.push_back({find(first), i});
      }
    }
  }
  // C4: at most one operation of a rank in a set, and one common listing order.
  if (grouped) {
    std::unordered_map<uint64_t, uint32_t> seen; // (rank, set) -> item
    for (const ProgramForm &program : problem.programs)
      for (Rank r : program.ranks) {
        reset(local, r);
        for (uint32_t i = 0; i < program.items.size(); ++i) {
          uint32_t set = kNone;
          visit(r, program, program.items[i], [&](uint32_t n, uint64_t) {
            set = find(uint32_t(nodeBase[n]) + local[n]++);
          });
          if (set == kNone || program.items[i].kind != Item::Kind::Transfer)
            continue;
          auto [it, fresh] =
              seen.try_emplace(uint64_t(uint32_t(r)) << 32 | set, i);
          if (!fresh && it->second != i) {
            uint32_t p = uint32_t(&program - problem.programs.data());
            fault(Finding::Kind::Cycle, "unclosed-group",
                  rankName(r) +
                      " has two operations in one set of grouped transfers: " +
                      itemText(p, it->second) + " and " + itemText(p, i),
                  "a group is tied to other transfers through its partners, "
                  "and this rank would "
                  "have to pass the same set twice (a library that completes "
                  "groups as a whole "
                  "sticks here)",
                  "group transfers alike on both sides, in closed groups", {r},
                  {"at " + itemLocation(p, it->second).str() + " and " +
                   itemLocation(p, i).str()});
          }
        }
      }
    // Common listing order: neighbours of every group, one graph, no cycle.
    std::unordered_map<uint32_t, std::vector<uint32_t>> after;
    std::unordered_map<uint32_t, uint32_t> waiting;
    for (const auto &list : listing)
      for (size_t k = 0; k + 1 < list.size(); ++k) {
        after[list[k]].push_back(list[k + 1]);
        ++waiting[list[k + 1]];
        waiting.try_emplace(list[k], 0);
      }
    std::vector<uint32_t> ready;
    for (auto &[i, n] : waiting)
      if (n == 0)
        ready.push_back(i);
    size_t ordered = 0;
    while (!ready.empty()) {
      uint32_t i = ready.back();
      ready.pop_back();
      ++ordered;
      for (uint32_t j : after[i])
        if (--waiting[j] == 0)
          ready.push_back(j);
    }
    if (ordered != waiting.size())
      fault(Finding::Kind::Cycle, "group-listing-order",
            "groups list their transfers in orders that form a cycle",
            "a library that replays groups in listed order sticks",
            "list the transfers of every group in one common order", {});
  }
  consistent = out.faults.empty();
}

} // namespace concord::order

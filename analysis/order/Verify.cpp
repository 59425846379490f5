//===- Verify.cpp - The certificate check ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// C4 and C5 are checked by Expansion. Here, per block that is no bridge: C1 (a
// common order of the issues) and C2 (that order forced on the device), or W
// instead. C3 follows from C1 on processes with one thread and one device
// (docs/rationale-order.md); the compact form has no others.
//
//===----------------------------------------------------------------------===//

#include "Verifier.h"
#include "concord/plan.h"

#include <algorithm>
#include <set>

namespace concord::order {

std::string Certificate::str() const {
  std::string out;
  if (!valid)
    return "no certificate: " +
           (faults.empty() ? std::string("not checked") : faults.front().title);
  uint32_t byOrder = 0, byWalk = 0;
  for (const BlockCertificate &b : blocks) {
    byOrder += b.by == BlockCertificate::By::Order;
    byWalk += b.by == BlockCertificate::By::Walk;
  }
  if (byOrder + byWalk == 0)
    out = "forest: no order is needed";
  else
    out = std::to_string(byOrder + byWalk) +
          " block(s) need an order: " + std::to_string(byOrder) +
          " by=order, " + std::to_string(byWalk) + " by=walk";
  out += "; issues=" + std::to_string(issues) +
         " instances=" + std::to_string(instances) + " assumes=";
  for (size_t i = 0; i < assumes.size(); ++i)
    out += (i ? "," : "") + assumes[i];
  return out + " digest=" + digest;
}

namespace {

/// Pairs of one list that C2 needs and that nothing forces.
struct Unordered {
  uint32_t list = kNone, before = 0, after = 0; // entries
};

/// SHA-256 over a stream of integers, in canonical little-endian form.
class DigestBuilder {
public:
  void add(uint64_t v) {
    for (int i = 0; i < 8; ++i)
      bytes.push_back(std::byte(uint8_t(v >> (8 * i))));
    if (bytes.size() >= (1u << 16))
      fold();
  }
  void add(std::string_view text) {
    add(uint64_t(text.size()));
    for (char c : text)
      bytes.push_back(std::byte(uint8_t(c)));
  }
  std::string hex() {
    fold();
    return plan::toHex(chain);
  }

private:
  std::vector<std::byte> bytes;
  plan::Digest chain{};
  void fold() {
    for (uint8_t b : chain)
      bytes.push_back(std::byte(b));
    chain = plan::sha256(bytes);
    bytes.clear();
  }
};

void hazards(const OrderProblem &problem, const Expansion &x,
             Certificate &out) {
  for (uint32_t p = 0; p < problem.programs.size(); ++p) {
    const ProgramForm &program = problem.programs[p];
    size_t first = program.items.size(), last = 0;
    for (size_t i = 0; i < program.items.size(); ++i)
      if (program.items[i].kind == Item::Kind::Collective ||
          program.items[i].kind == Item::Kind::Transfer) {
        first = std::min(first, i);
        last = i;
      }
    std::vector<int> captured(problem.domains.size(), -1);
    for (size_t i = 0; i < program.items.size(); ++i) {
      const Item &item = program.items[i];
      bool inside = i > first && i < last;
      if (item.kind == Item::Kind::Hazard && inside &&
          out.warnings.size() < 64) {
        Finding f;
        f.kind = Finding::Kind::Warning;
        f.id = "hazard-inside-region";
        f.title = x.itemText(p, uint32_t(i)) +
                  " between the first and the last issue of " + program.name +
                  " (" + x.itemLocation(p, uint32_t(i)).str() + ")";
        f.cause =
            "an allocation, a free or a lazy load may wait for the device";
        f.cure =
            "reserve the arena and load every kernel before the first issue";
        out.warnings.push_back(std::move(f));
      }
      if (item.kind == Item::Kind::HostCollective && inside &&
          out.warnings.size() < 64) {
        Finding f;
        f.kind = Finding::Kind::Warning;
        f.id = "host-collective-inside-region";
        f.title = x.itemText(p, uint32_t(i)) + " between the issues of " +
                  program.name + " (" + x.itemLocation(p, uint32_t(i)).str() +
                  ")";
        f.cause = "it blocks the issuing thread on every member";
        f.cure = "create domains before the first issue";
        out.warnings.push_back(std::move(f));
      }
      if (item.kind != Item::Kind::Collective &&
          item.kind != Item::Kind::Transfer)
        continue;
      int &c = captured[item.domain];
      if (c >= 0 && c != int(item.captured) && out.warnings.size() < 64) {
        Finding f;
        f.kind = Finding::Kind::Warning;
        f.id = "captured-and-single";
        f.title = "domain " + problem.domains[item.domain].name + " of " +
                  program.name + " mixes captured and single issues (" +
                  x.itemLocation(p, uint32_t(i)).str() + ")";
        f.cause =
            "whether an operation is captured is a property of the collective";
        f.cure = "capture all operations of a domain or none";
        out.warnings.push_back(std::move(f));
        c = -2;
      }
      if (c == -1)
        c = item.captured;
    }
  }
}

} // namespace

Certificate verify(const OrderProblem &problem, const VerifyOptions &options) {
  Certificate out;
  Expansion x(problem, out);
  if (!x.consistent)
    return out;
  hazards(problem, x, out);

  // C2: neighbours on the device, per list. One Completion at a time.
  std::vector<Unordered> firstUnordered(out.graph.blocks);
  std::vector<uint32_t> listsByProgram(x.lists.size());
  for (uint32_t l = 0; l < x.lists.size(); ++l)
    listsByProgram[l] = l;
  std::sort(listsByProgram.begin(), listsByProgram.end(),
            [&](uint32_t a, uint32_t b) {
              return x.lists[a].program != x.lists[b].program
                         ? x.lists[a].program < x.lists[b].program
                         : a < b;
            });
  for (size_t i = 0; i < listsByProgram.size();) {
    uint32_t p = x.lists[listsByProgram[i]].program;
    Completion done(problem.programs[p], x.transient[p]);
    for (uint32_t k = 0; k < problem.programs[p].items.size(); ++k)
      done.append(k);
    for (; i < listsByProgram.size() && x.lists[listsByProgram[i]].program == p;
         ++i) {
      const IssueList &list = x.lists[listsByProgram[i]];
      if (firstUnordered[list.block].list != kNone ||
          x.severalIssuers[list.block])
        continue;
      // Entries back to and including the last one that is always there.
      std::vector<uint32_t> recent;
      for (uint32_t e = 0; e < list.entries.size(); ++e) {
        const Item &item = problem.programs[p].items[list.entries[e].item];
        if (item.kind == Item::Kind::HostCollective)
          continue; // not started on a device; C1 and the thread order it
        for (uint32_t before : recent)
          if (!done.forced(list.entries[before].item, list.entries[e].item)) {
            firstUnordered[list.block] = {listsByProgram[i], before, e};
            break;
          }
        if (!x.transient[p][list.entries[e].item])
          recent.clear();
        recent.push_back(e);
        if (recent.size() > 4096) { // a bound on the pairs: rather refuse
          firstUnordered[list.block] = {listsByProgram[i], recent.front(), e};
          break;
        }
      }
    }
  }

  bool hold = false, byWalk = false;
  std::vector<std::vector<uint32_t>> orders(out.graph.blocks);
  std::vector<std::vector<uint32_t>> blockNodes(out.graph.blocks);
  for (uint32_t n = 0; n < out.graph.nodes.size(); ++n) {
    std::set<uint32_t> blocks(out.graph.edgeBlock[n].begin(),
                              out.graph.edgeBlock[n].end());
    for (uint32_t b : blocks)
      blockNodes[b].push_back(n);
  }
  for (uint32_t b = 0; b < out.graph.blocks; ++b) {
    if (out.graph.blockEdges[b] == 0)
      continue; // merged into another one
    BlockCertificate cert;
    cert.block = b;
    cert.nodes = blockNodes[b];
    for (uint32_t n : cert.nodes)
      cert.instances += x.nodeBase[n + 1] - x.nodeBase[n];
    if (out.graph.blockEdges[b] == 1) {
      out.blocks.push_back(std::move(cert));
      continue;
    }
    std::vector<ChainEdge> cycle;
    bool c1 = orderBlock(x, b, orders[b], cycle);
    bool c2 = firstUnordered[b].list == kNone;
    if (c1 && c2) {
      cert.by = BlockCertificate::By::Order;
      hold = hold || x.severalIssuers[b];
      out.blocks.push_back(std::move(cert));
      continue;
    }
    int walked = -2;
    std::vector<ChainEdge> walk;
    if (options.allowWalk && !problem.loops && x.collectivesOnly[b] &&
        !x.severalIssuers[b] && out.maxNeed == 1 && options.slots == 1) {
      // Completions of the programs of this block.
      std::unordered_map<uint32_t, Completion> done;
      uint64_t cells = 0;
      for (uint32_t l : x.listsOfBlock[b]) {
        uint32_t p = x.lists[l].program;
        if (done.count(p) || cells > options.maxWalkEdges * 8)
          continue;
        Completion c(problem.programs[p], x.transient[p]);
        for (uint32_t k = 0; k < problem.programs[p].items.size(); ++k)
          c.append(k);
        cells += problem.programs[p].items.size();
        done.emplace(p, std::move(c));
      }
      walked =
          cells > options.maxWalkEdges * 8
              ? -1
              : walkTest(
                    x, b,
                    [&](uint32_t l, uint32_t a, uint32_t y) {
                      const IssueList &list = x.lists[l];
                      const Occurrence &oa = list.entries[a],
                                       &oy = list.entries[y];
                      if (x.instanceNode[oa.set] == x.instanceNode[oy.set])
                        return false;
                      return !(oa.item < oy.item &&
                               done.at(list.program).forced(oa.item, oy.item));
                    },
                    options.maxWalkEdges, &walk);
    }
    if (walked == 1) {
      cert.by = BlockCertificate::By::Walk;
      byWalk = true;
      out.blocks.push_back(std::move(cert));
      continue;
    }
    Finding f;
    if (!c1 && !cycle.empty() && walked != 0) {
      f.kind = Finding::Kind::Cycle;
      f.id = "order-cycle";
      f.title = "the ranks issue " + std::to_string(cycle.size()) +
                " operations in orders that form a cycle";
      f.chain = std::move(cycle);
      f.cause = "the issue order differs between ranks across domains";
      f.cure = "one order over all domains on every rank (comm-order)";
    } else if (walked == 0) {
      f.kind = Finding::Kind::Cycle;
      f.id = "closed-walk";
      f.title = "a schedule exists in which " +
                std::to_string(walk.size() / 2) +
                " collectives hold each other's slots";
      f.chain = std::move(walk);
      f.cause =
          c1 ? "the issue order agrees, but nothing carries it to the streams"
             : "the issue order differs between ranks across domains";
      f.cure = "wait for the earlier one before the later one starts, on every "
               "rank of the chain";
    } else {
      const Unordered &u = firstUnordered[b];
      const IssueList &list =
          x.lists[u.list == kNone ? x.listsOfBlock[b].front() : u.list];
      f.kind = Finding::Kind::Cycle;
      f.id = "unordered-starts";
      ChainEdge e;
      e.from = x.end(list.entries[u.after], list);
      e.to = x.end(list.entries[u.before], list);
      e.reason = ChainEdge::Reason::Slot;
      e.why = "on r" + std::to_string(list.rank) + " nothing makes " +
              e.from.text + " start after " + e.to.text +
              (e.to.loc.file.empty() ? "" : " (" + e.to.loc.str() + ")");
      f.title = e.why;
      f.chain.push_back(std::move(e));
      f.cause =
          "both are in one block of the rank-group graph, and their streams "
          "are not ordered" +
          std::string(walked == -1 ? " (the walk test is too large here)" : "");
      f.cure = "an event from the earlier to the later one";
    }
    for (const ChainEdge &e : f.chain)
      if (std::find(f.culprits.begin(), f.culprits.end(), e.from.rank) ==
          f.culprits.end())
        f.culprits.push_back(e.from.rank);
    out.faults.push_back(std::move(f));
  }
  out.valid = out.faults.empty();

  std::set<std::string> assumes(problem.assumptions.begin(),
                                problem.assumptions.end());
  assumes.insert("one-device-per-process");
  assumes.insert("samecomm=serial");
  if (hold) {
    assumes.insert("gate=hold");
    assumes.insert("order=launch");
  }
  if (byWalk)
    assumes.insert("K=1");
  else
    assumes.insert("K>=" + std::to_string(out.maxNeed));
  if (!hold)
    assumes.insert("one-issue-thread-per-rank");
  out.assumes.assign(assumes.begin(), assumes.end());

  if (out.valid) {
    DigestBuilder d;
    d.add(uint64_t(out.version));
    d.add(uint64_t(problem.world));
    for (const std::string &a : out.assumes)
      d.add(a);
    for (const GraphNode &n : out.graph.nodes) {
      d.add(uint64_t(n.kind));
      d.add(problem.domains[n.domain].name);
      for (Rank r : n.members)
        d.add(uint64_t(int64_t(r)));
    }
    for (const IssueList &list : x.lists) {
      d.add(uint64_t(int64_t(list.rank)));
      d.add(uint64_t(list.block));
      for (const Occurrence &o : list.entries)
        d.add(uint64_t(o.set));
    }
    for (const ProgramForm &p : problem.programs)
      for (const Item &i : p.items) {
        d.add(uint64_t(i.kind) | uint64_t(i.domain) << 8);
        d.add(i.signature);
      }
    out.digest = d.hex();
  }
  return out;
}

} // namespace concord::order

//===- Solve.cpp - Choosing one order and the edges it needs --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two steps. A global order: list scheduling of the matched sets over the union
// of all ranks' dependences, longest remaining path first, then domain
// priority, then name; a cycle in that union is a contradiction of the program
// and is reported. Then, per program, a wait edge wherever two neighbours of a
// block are not forced already; in small blocks of collectives, edges that no
// walk needs are dropped again, one after another.
//
//===----------------------------------------------------------------------===//

#include "Verifier.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

namespace concord::order {

namespace {

bool communicates(const Item &item) {
  return item.kind == Item::Kind::Collective ||
         item.kind == Item::Kind::HostCollective ||
         item.kind == Item::Kind::Transfer;
}

/// Every item as a vertex of one dependence graph; the members of a matched set
/// share a vertex.
class Scheduler {
public:
  Scheduler(const OrderProblem &problem, const SolveOptions &options,
            OrderSolution &out)
      : problem(problem), options(options), out(out) {}

  bool run() {
    if (!vertices())
      return false;
    depend();
    return schedule();
  }

private:
  const OrderProblem &problem;
  const SolveOptions &options;
  OrderSolution &out;
  // vertexOf[p][k][i]: of item i on the k-th rank of program p. Items that no
  // other rank takes part in get a vertex per program (shared by its ranks).
  std::vector<std::vector<std::vector<uint32_t>>> vertexOf;
  struct Vertex {
    uint32_t program = 0, item = 0;
    Rank rank = 0;
    double seconds = 0;
    int32_t priority = 0;
  };
  std::vector<Vertex> all;
  std::vector<std::vector<uint32_t>> after;
  std::vector<uint32_t> waiting;

  bool vertices() {
    // Instances by (node kind, domain, group or pair, index), as in Expansion,
    // but without requiring that counts agree: that is verify()'s business.
    std::vector<std::vector<int32_t>> groupOfRank;
    for (const OrderDomain &d : problem.domains) {
      std::vector<int32_t> of(problem.world, -1);
      for (size_t g = 0; g < d.groups.size(); ++g)
        for (Rank r : d.groups[g])
          if (r >= 0 && uint32_t(r) < problem.world)
            of[size_t(r)] = int32_t(g);
      groupOfRank.push_back(std::move(of));
    }
    std::map<std::tuple<uint32_t, uint32_t, Rank, Rank, uint32_t>, uint32_t>
        instances;
    std::vector<uint32_t> parent; // sets: union-find over vertices
    auto find = [&](uint32_t v) {
      while (parent[v] != v)
        v = parent[v] = parent[parent[v]];
      return v;
    };
    auto fresh = [&](uint32_t p, uint32_t i, Rank r) {
      const Item &item = problem.programs[p].items[i];
      Vertex v{p, i, r, 0, 0};
      if (p < options.seconds.size() && i < options.seconds[p].size())
        v.seconds = std::max(0.0, options.seconds[p][i]);
      if (communicates(item) && item.domain < problem.domains.size())
        v.priority = problem.domains[item.domain].priority;
      all.push_back(v);
      parent.push_back(uint32_t(parent.size()));
      return uint32_t(all.size()) - 1;
    };
    vertexOf.resize(problem.programs.size());
    for (uint32_t p = 0; p < problem.programs.size(); ++p) {
      const ProgramForm &program = problem.programs[p];
      std::vector<uint32_t> shared(program.items.size(), kNone);
      vertexOf[p].resize(program.ranks.size());
      for (size_t k = 0; k < program.ranks.size(); ++k) {
        Rank r = program.ranks[k];
        std::map<std::tuple<uint32_t, uint32_t, Rank, Rank>, uint32_t> counters;
        auto &row = vertexOf[p][k];
        row.resize(program.items.size());
        for (uint32_t i = 0; i < program.items.size(); ++i) {
          const Item &item = program.items[i];
          uint32_t v = kNone;
          auto take = [&](uint32_t kind, Rank a, Rank b) {
            uint32_t index = counters[{kind, item.domain, a, b}]++;
            auto [it, isNew] =
                instances.try_emplace({kind, item.domain, a, b, index}, 0);
            if (isNew)
              it->second = fresh(p, i, r);
            if (v == kNone)
              v = it->second;
            else
              parent[find(it->second)] = find(v);
          };
          if (communicates(item)) {
            if (item.domain >= problem.domains.size() || r < 0 ||
                uint32_t(r) >= problem.world)
              return false;
            if (item.kind == Item::Kind::Transfer) {
              for (uint32_t t = 0; t < item.transferCount; ++t) {
                const ItemTransfer &x =
                    program.transfers[item.transferBegin + t];
                if (x.self() == r)
                  take(2, x.source, x.destination);
              }
            } else
              take(item.kind == Item::Kind::HostCollective,
                   groupOfRank[item.domain][size_t(r)], -1);
          }
          if (v == kNone) {
            if (shared[i] == kNone)
              shared[i] = fresh(p, i, r);
            v = shared[i];
          }
          row[i] = v;
        }
      }
    }
    for (auto &program : vertexOf)
      for (auto &row : program)
        for (uint32_t &v : row)
          v = find(v);
    return true;
  }

  void depend() {
    after.assign(all.size(), {});
    auto edge = [&](uint32_t a, uint32_t b) {
      if (a != b)
        after[a].push_back(b);
    };
    for (uint32_t p = 0; p < problem.programs.size(); ++p) {
      const ProgramForm &program = problem.programs[p];
      for (const auto &row : vertexOf[p]) {
        std::map<uint32_t, uint32_t> lastOfDomain;
        uint32_t barrier = kNone;
        std::vector<uint32_t> sinceBarrier;
        for (uint32_t i = 0; i < program.items.size(); ++i) {
          const Item &item = program.items[i];
          for (uint32_t k = 0; k < item.waitCount; ++k)
            if (program.waits[item.waitBegin + k] < i)
              edge(row[program.waits[item.waitBegin + k]], row[i]);
          if (options.keepProgramOrder) {
            if (i > 0)
              edge(row[i - 1], row[i]);
            continue;
          }
          // What blocks the host keeps its place against everything.
          bool blocks = item.kind != Item::Kind::Collective &&
                        item.kind != Item::Kind::Transfer;
          blocks = blocks || item.synchronous;
          if (blocks) {
            for (uint32_t j : sinceBarrier)
              edge(row[j], row[i]);
            sinceBarrier.clear();
          }
          if (barrier != kNone)
            edge(row[barrier], row[i]);
          if (communicates(item)) {
            auto [it, isNew] = lastOfDomain.try_emplace(item.domain, i);
            if (!isNew)
              edge(row[it->second], row[i]);
            it->second = i;
          }
          if (blocks)
            barrier = i;
          else
            sinceBarrier.push_back(i);
        }
      }
    }
    for (auto &list : after) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
  }

  bool schedule() {
    uint32_t n = uint32_t(all.size());
    std::vector<bool> used(n, false);
    for (const auto &program : vertexOf)
      for (const auto &row : program)
        for (uint32_t v : row)
          used[v] = true;
    waiting.assign(n, 0);
    for (uint32_t v = 0; v < n; ++v)
      for (uint32_t w : after[v])
        ++waiting[w];
    // Longest remaining path, backwards over a topological order.
    std::vector<uint32_t> topological, count = waiting;
    for (uint32_t v = 0; v < n; ++v)
      if (used[v] && count[v] == 0)
        topological.push_back(v);
    for (size_t i = 0; i < topological.size(); ++i)
      for (uint32_t w : after[topological[i]])
        if (--count[w] == 0)
          topological.push_back(w);
    uint32_t total = uint32_t(std::count(used.begin(), used.end(), true));
    if (topological.size() != total) {
      contradiction(count);
      return false;
    }
    std::vector<double> path(n, 0);
    for (size_t i = topological.size(); i-- > 0;) {
      uint32_t v = topological[i];
      for (uint32_t w : after[v])
        path[v] = std::max(path[v], path[w]);
      path[v] += all[v].seconds;
    }
    auto later = [&](uint32_t a, uint32_t b) { // true: a comes after b
      if (path[a] != path[b])
        return path[a] < path[b];
      if (all[a].priority != all[b].priority)
        return all[a].priority < all[b].priority;
      if (all[a].item != all[b].item)
        return all[a].item > all[b].item;
      if (all[a].program != all[b].program)
        return all[a].program > all[b].program;
      return a > b;
    };
    std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(later)> ready(
        later);
    count = waiting;
    for (uint32_t v = 0; v < n; ++v)
      if (used[v] && count[v] == 0)
        ready.push(v);
    std::vector<uint32_t> rankOf(n, 0);
    uint32_t next = 0;
    while (!ready.empty()) {
      uint32_t v = ready.top();
      ready.pop();
      rankOf[v] = next++;
      for (uint32_t w : after[v])
        if (--count[w] == 0)
          ready.push(w);
    }
    out.order.resize(problem.programs.size());
    for (uint32_t p = 0; p < problem.programs.size(); ++p) {
      auto &order = out.order[p];
      order.resize(problem.programs[p].items.size());
      for (uint32_t i = 0; i < order.size(); ++i)
        order[i] = i;
      if (options.keepProgramOrder || vertexOf[p].empty())
        continue;
      // All ranks of a program share one issue order: that of its first rank.
      // (Group instances of one item are scheduled alike up to ties, which the
      // item index breaks equally.)
      const auto &row = vertexOf[p].front();
      std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return rankOf[row[a]] != rankOf[row[b]]
                   ? rankOf[row[a]] < rankOf[row[b]]
                   : a < b;
      });
    }
    return true;
  }

  void contradiction(const std::vector<uint32_t> &count) {
    // Among the vertices that never became ready, walk back along predecessors.
    uint32_t n = uint32_t(all.size());
    std::vector<uint32_t> before(n, kNone);
    for (uint32_t v = 0; v < n; ++v)
      if (count[v])
        for (uint32_t w : after[v])
          if (count[w])
            before[w] = v;
    uint32_t v = 0;
    while (v < n && (!count[v] || before[v] == kNone))
      ++v;
    if (v == n)
      return;
    for (uint32_t i = 0; i < n; ++i)
      v = before[v] == kNone ? v : before[v];
    std::vector<uint32_t> cycle{v};
    for (uint32_t w = before[v]; w != v && w != kNone; w = before[w])
      cycle.push_back(w);
    std::reverse(cycle.begin(), cycle.end());
    Finding f;
    f.kind = Finding::Kind::Cycle;
    f.id = "contradicting-dependences";
    f.title = "the ranks' dependences contradict each other in a cycle of " +
              std::to_string(cycle.size()) + " operations";
    auto end = [&](uint32_t u) {
      const Item &item = problem.programs[all[u].program].items[all[u].item];
      ChainEdge::End e;
      e.rank = all[u].rank;
      e.text = item.name != kNone && item.name < problem.names.size()
                   ? problem.names[item.name]
                   : problem.programs[all[u].program].name + " item " +
                         std::to_string(all[u].item);
      if (item.location != kNone && item.location < problem.locations.size())
        e.loc.file = problem.locations[item.location];
      if (item.domain < problem.domains.size())
        e.domain = problem.domains[item.domain].name;
      return e;
    };
    for (size_t i = 0; i < cycle.size(); ++i) {
      ChainEdge e;
      e.from = end(cycle[(i + 1) % cycle.size()]);
      e.to = end(cycle[i]);
      e.reason = ChainEdge::Reason::Stream;
      e.why = e.from.text + " has to come after " + e.to.text;
      if (std::find(f.culprits.begin(), f.culprits.end(), e.from.rank) ==
          f.culprits.end())
        f.culprits.push_back(e.from.rank);
      f.chain.push_back(std::move(e));
    }
    f.cause = "no order of the operations satisfies every rank";
    f.cure = "change the program: one of these dependences has to go";
    out.faults.push_back(std::move(f));
  }
};

/// Ranks of a program for which the blocks look alike get the same edges.
std::vector<uint32_t> shapes(const Expansion &x, uint32_t program,
                             const std::vector<uint32_t> &lists) {
  std::map<std::vector<std::vector<uint32_t>>, uint32_t> seen;
  std::map<Rank, std::vector<uint32_t>> byRank;
  for (uint32_t l : lists)
    byRank[x.lists[l].rank].push_back(l);
  std::vector<uint32_t> out;
  for (auto &[rank, own] : byRank) {
    (void)rank;
    std::vector<std::vector<uint32_t>> shape;
    for (uint32_t l : own) {
      std::vector<uint32_t> items;
      items.reserve(x.lists[l].entries.size());
      for (const Occurrence &o : x.lists[l].entries)
        items.push_back(o.item);
      shape.push_back(std::move(items));
    }
    std::sort(shape.begin(), shape.end());
    if (seen.try_emplace(std::move(shape), 0).second)
      out.insert(out.end(), own.begin(), own.end());
  }
  (void)program;
  return out;
}

} // namespace

OrderProblem apply(const OrderProblem &problem, const OrderSolution &solution) {
  OrderProblem out = problem;
  for (uint32_t p = 0; p < out.programs.size(); ++p) {
    ProgramForm &program = out.programs[p];
    const ProgramForm &source = problem.programs[p];
    std::vector<std::vector<uint32_t>> extra(source.items.size());
    for (const OrderEdge &e : solution.edges)
      if (e.program == p)
        extra[e.to].push_back(e.from);
    std::vector<uint32_t> place(source.items.size());
    for (uint32_t i = 0; i < source.items.size(); ++i)
      place[solution.order[p][i]] = i;
    program.items.clear();
    program.waits.clear();
    for (uint32_t i : solution.order[p]) {
      Item item = source.items[i];
      uint32_t begin = uint32_t(program.waits.size());
      for (uint32_t k = 0; k < item.waitCount; ++k)
        program.waits.push_back(place[source.waits[item.waitBegin + k]]);
      for (uint32_t w : extra[i])
        program.waits.push_back(place[w]);
      item.waitBegin = begin;
      item.waitCount = uint32_t(program.waits.size()) - begin;
      program.items.push_back(item);
    }
  }
  return out;
}

OrderSolution solve(const OrderProblem &problem, const SolveOptions &options) {
  OrderSolution out;
  bool oneProgram = problem.programs.size() == 1;
  if (options.keepProgramOrder) {
    for (const ProgramForm &p : problem.programs) {
      out.order.emplace_back(p.items.size());
      for (uint32_t i = 0; i < p.items.size(); ++i)
        out.order.back()[i] = i;
    }
    // One program cannot contradict itself; several are checked by verify().
    (void)oneProgram;
  } else {
    Scheduler scheduler(problem, options, out);
    if (!scheduler.run())
      return out;
  }
  // In the new order, without edges yet.
  OrderProblem ordered = apply(problem, out);
  Certificate scratch;
  Expansion x(ordered, scratch);
  if (!x.consistent) {
    out.faults = scratch.faults;
    out.certificate = std::move(scratch);
    return out;
  }
  struct Added {
    OrderEdge edge; ///< in `ordered`
    uint32_t block;
    bool dropped = false;
  };
  std::vector<Added> added;
  std::vector<std::vector<uint32_t>> listsOfProgram(problem.programs.size());
  for (uint32_t l = 0; l < x.lists.size(); ++l)
    if (!x.severalIssuers[x.lists[l].block])
      listsOfProgram[x.lists[l].program].push_back(l);
  for (uint32_t p = 0; p < problem.programs.size(); ++p) {
    const ProgramForm &program = ordered.programs[p];
    std::vector<uint32_t> lists = shapes(x, p, listsOfProgram[p]);
    // For every item: what has to be before it, over all shapes.
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> wanted(
        program.items.size());
    for (uint32_t l : lists) {
      std::vector<uint32_t> recent;
      for (const Occurrence &o : x.lists[l].entries) {
        if (program.items[o.item].kind == Item::Kind::HostCollective)
          continue;
        for (uint32_t before : recent)
          wanted[o.item].push_back({before, x.lists[l].block});
        if (!x.transient[p][o.item])
          recent.clear();
        recent.push_back(o.item);
        if (recent.size() > 4096)
          recent.erase(recent.begin());
      }
    }
    Completion done(program, x.transient[p]);
    for (uint32_t i = 0; i < program.items.size(); ++i) {
      done.append(i);
      for (auto [w, block] : wanted[i])
        if (!done.forced(w, i)) {
          added.push_back({{p, w, i}, block, false});
          done.addWaits(i, {w});
        }
    }
  }

  auto emit = [&] {
    out.edges.clear();
    for (const Added &a : added)
      if (!a.dropped)
        out.edges.push_back({a.edge.program,
                             out.order[a.edge.program][a.edge.from],
                             out.order[a.edge.program][a.edge.to]});
  };
  emit();
  if (options.dropByWalk && !problem.loops && !added.empty() &&
      added.size() <= 256) {
    VerifyOptions verifyOptions;
    verifyOptions.maxWalkEdges = options.maxWalkEdges;
    uint64_t budget = options.maxWalkEdges;
    for (Added &a : added) {
      if (!x.collectivesOnly[a.block])
        continue;
      uint64_t cost = 1;
      for (uint32_t l : x.listsOfBlock[a.block])
        cost += uint64_t(x.lists[l].entries.size()) * x.lists[l].entries.size();
      if (cost > budget)
        break;
      budget -= cost;
      a.dropped = true;
      emit();
      if (verify(apply(problem, out), verifyOptions).valid)
        ++out.droppedByWalk;
      else
        a.dropped = false;
    }
    emit();
  }
  VerifyOptions final;
  final.maxWalkEdges = std::max<uint64_t>(options.maxWalkEdges, 1);
  out.certificate = verify(apply(problem, out), final);
  out.faults = out.certificate.faults;
  out.valid = out.certificate.valid;
  return out;
}

} // namespace concord::order

//===- Rounds.cpp - The order of several issuers in a round ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One order over the matched sets of all cyclic blocks together, and not one
// per block: an issuer that waits for its turn in one block holds up what it
// issues later in another one, so per-block orders that are fine alone can
// contradict each other through two issuers of one rank. Parts that lie in no
// cyclic block get no turn, because nothing has to order them.
//
// The vertices are matched sets. What a program does in one part of its body (a
// loop, say) is one vertex on ranks with several issuers, since another issuer
// cannot come in between.
//
//===----------------------------------------------------------------------===//

#include "Rounds.h"
#include "Verifier.h"
#include "concord/plan.h"

#include <algorithm>
#include <map>
#include <set>

namespace concord::order {

namespace {

/// What one program issues on one rank, over all cyclic blocks.
struct Issuing {
  Rank rank = 0;
  uint32_t program = 0;
  struct Entry {
    uint32_t set = 0, item = 0, unit = 0;
    const IssueList *list = nullptr; ///< for texts
    uint32_t index = 0;              ///< in that list
  };
  std::vector<Entry> entries; ///< in issue order
};

class Rounds {
public:
  Rounds(const OrderProblem &problem, const Expansion &x)
      : problem(problem), x(x) {
    std::map<std::pair<Rank, uint32_t>, Issuing> byThread;
    for (const IssueList &list : x.lists) {
      Issuing &thread = byThread[{list.rank, list.program}];
      thread.rank = list.rank;
      thread.program = list.program;
      for (uint32_t i = 0; i < list.entries.size(); ++i) {
        const Occurrence &o = list.entries[i];
        thread.entries.push_back({o.set, o.item,
                                  problem.programs[list.program].units[o.item],
                                  &list, i});
      }
    }
    for (auto &[key, thread] : byThread) {
      (void)key;
      std::sort(thread.entries.begin(), thread.entries.end(),
                [](const Issuing::Entry &a, const Issuing::Entry &b) {
                  return a.item < b.item;
                });
      threads.push_back(std::move(thread));
    }
    for (const ProgramForm &program : problem.programs)
      for (Rank rank : program.ranks)
        ++programsOf[rank];
    parent.resize(x.instanceNode.size());
    for (uint32_t i = 0; i < parent.size(); ++i)
      parent[i] = i;
    for (const Issuing &thread : threads)
      if (shared(thread.rank))
        for (size_t i = 1; i < thread.entries.size(); ++i)
          if (thread.entries[i].unit == thread.entries[i - 1].unit)
            unite(thread.entries[i].set, thread.entries[i - 1].set);
  }

  /// Several programs run on the rank.
  bool shared(Rank rank) const {
    auto it = programsOf.find(rank);
    return it != programsOf.end() && it->second > 1;
  }
  bool decides(const Issuing &thread, const Issuing::Entry &e) const {
    return problem.programs[thread.program].items[e.item].kind ==
           Item::Kind::HostCollective;
  }

  void before(const Issuing &a, const Issuing::Entry &first, const Issuing &b,
              const Issuing::Entry &second) {
    uint32_t u = find(first.set), v = find(second.set);
    if (u != v && after[u].try_emplace(v, Edge{&a, &first, &b, &second}).second)
      ++waiting[v];
  }

  /// Program order, and decisions before what other programs do.
  void programOrder() {
    for (const Issuing &thread : threads) {
      for (size_t i = 0; i < thread.entries.size(); ++i) {
        const Issuing::Entry &e = thread.entries[i];
        vertices.insert(find(e.set));
        if (i > 0)
          before(thread, thread.entries[i - 1], thread, e);
        if (shared(thread.rank) && decides(thread, e))
          for (const Issuing &other : threads)
            if (other.rank == thread.rank && &other != &thread &&
                !other.entries.empty())
              before(thread, e, other, other.entries.front());
      }
    }
  }

  /// A common order of all vertices; false leaves the cycle in `cycle`.
  bool run(std::vector<uint32_t> &order, std::vector<ChainEdge> &cycle) {
    // The first in the order of ties: a decision, a high priority, program
    // order.
    using Key = std::tuple<int, int32_t, uint32_t, uint32_t, uint32_t>;
    std::map<uint32_t, Key> keys;
    for (const Issuing &thread : threads)
      for (const Issuing::Entry &e : thread.entries) {
        const Item &item = problem.programs[thread.program].items[e.item];
        uint32_t v = find(e.set);
        Key key{decides(thread, e) ? 0 : 1,
                -problem.domains[item.domain].priority, thread.program, e.unit,
                v};
        auto [it, fresh] = keys.try_emplace(v, key);
        if (!fresh)
          it->second = std::min(it->second, key);
      }
    std::set<Key> ready;
    auto left = waiting;
    for (uint32_t v : vertices)
      if (!left[v])
        ready.insert(keys[v]);
    order.clear();
    while (!ready.empty()) {
      uint32_t v = std::get<4>(*ready.begin());
      ready.erase(ready.begin());
      order.push_back(v);
      for (auto &[w, edge] : after[v]) {
        (void)edge;
        if (--left[w] == 0)
          ready.insert(keys[w]);
      }
    }
    if (order.size() == vertices.size())
      return true;
    // Every vertex that is left has one before it that is left: walk back.
    std::map<uint32_t, std::pair<uint32_t, const Edge *>> back;
    std::set<uint32_t> done(order.begin(), order.end());
    for (uint32_t v : vertices)
      if (!done.count(v))
        for (auto &[w, edge] : after[v])
          if (!done.count(w))
            back[w] = {v, &edge};
    uint32_t v = back.begin()->first;
    for (size_t i = 0; i < vertices.size(); ++i)
      v = back[v].first;
    uint32_t start = v;
    do {
      auto [u, edge] = back[v];
      ChainEdge e;
      e.from = x.end(edge->second->list->entries[edge->second->index],
                     *edge->second->list);
      e.to = x.end(edge->first->list->entries[edge->first->index],
                   *edge->first->list);
      e.reason = ChainEdge::Reason::NotIssued;
      e.why = "on r" + std::to_string(edge->b->rank) + ", " + e.from.text +
              " of " + problem.programs[edge->b->program].name +
              " comes after " + e.to.text +
              (edge->a->program == edge->b->program
                   ? std::string()
                   : " of " + problem.programs[edge->a->program].name);
      cycle.push_back(std::move(e));
      v = u;
    } while (v != start);
    return false;
  }

  /// The turns of a rank in an order of the vertices.
  std::vector<plan::Turn> turnsOf(Rank rank,
                                  const std::vector<uint32_t> &order) const {
    std::map<uint32_t, uint32_t> place;
    for (uint32_t i = 0; i < order.size(); ++i)
      place[order[i]] = i;
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> turns;
    for (const Issuing &thread : threads)
      if (thread.rank == rank)
        for (const Issuing::Entry &e : thread.entries)
          turns.insert({place[find(e.set)], thread.program, e.unit});
    std::vector<plan::Turn> out;
    for (auto [at, program, unit] : turns) {
      (void)at;
      out.push_back({program, unit});
    }
    return out;
  }

  const std::vector<Issuing> &all() const { return threads; }
  const std::map<Rank, uint32_t> &ranks() const { return programsOf; }

  Finding finding(std::vector<ChainEdge> cycle) const {
    Finding f;
    f.kind = Finding::Kind::Cycle;
    f.id = "contradicting-issuers";
    f.title = "the issuers' own orders contradict each other in a cycle of " +
              std::to_string(cycle.size()) + " issues";
    for (const ChainEdge &e : cycle)
      if (std::find(f.culprits.begin(), f.culprits.end(), e.from.rank) ==
          f.culprits.end())
        f.culprits.push_back(e.from.rank);
    f.chain = std::move(cycle);
    f.cause = "no order of a round keeps what every issuer does in its own "
              "order";
    f.cure = "reorder one issuer's program, or split the part (a loop is one "
             "part) that another issuer would have to come into";
    return f;
  }

private:
  struct Edge {
    const Issuing *a;
    const Issuing::Entry *first;
    const Issuing *b;
    const Issuing::Entry *second;
  };
  const OrderProblem &problem;
  const Expansion &x;
  std::vector<Issuing> threads;
  std::map<Rank, uint32_t> programsOf;
  mutable std::vector<uint32_t> parent;
  std::set<uint32_t> vertices;
  std::map<uint32_t, std::map<uint32_t, Edge>> after;
  std::map<uint32_t, uint32_t> waiting;

  uint32_t find(uint32_t v) const {
    while (parent[v] != v)
      v = parent[v] = parent[parent[v]];
    return v;
  }
  void unite(uint32_t a, uint32_t b) {
    a = find(a);
    b = find(b);
    if (a != b)
      parent[std::max(a, b)] = std::min(a, b);
  }
};

bool severalIssuers(const OrderProblem &problem) {
  std::set<Rank> seen;
  for (const ProgramForm &program : problem.programs)
    for (Rank rank : program.ranks)
      if (!seen.insert(rank).second)
        return true;
  return false;
}

} // namespace

bool orderRounds(plan::Plan &plan, std::vector<Finding> &faults) {
  plan.rounds.clear();
  OrderProblem problem;
  std::string error;
  if (!fromPlan(plan, problem, error)) {
    Finding f;
    f.kind = Finding::Kind::Mismatch;
    f.id = "malformed-plan";
    f.title = error;
    faults.push_back(std::move(f));
    return false;
  }
  if (!severalIssuers(problem))
    return true;
  Certificate scratch;
  Expansion x(problem, scratch);
  if (!x.consistent) {
    faults = std::move(scratch.faults);
    return false;
  }
  Rounds rounds(problem, x);
  rounds.programOrder();
  std::vector<uint32_t> order;
  std::vector<ChainEdge> cycle;
  if (!rounds.run(order, cycle)) {
    faults.push_back(rounds.finding(std::move(cycle)));
    return false;
  }
  for (auto [rank, programs] : rounds.ranks()) {
    if (programs < 2)
      continue;
    std::vector<plan::Turn> turns = rounds.turnsOf(rank, order);
    if (turns.empty())
      continue;
    auto same = std::find_if(
        plan.rounds.begin(), plan.rounds.end(), [&](const plan::Round &round) {
          return std::equal(round.turns.begin(), round.turns.end(),
                            turns.begin(), turns.end(),
                            [](const plan::Turn &a, const plan::Turn &b) {
                              return a.program == b.program && a.unit == b.unit;
                            });
        });
    if (same == plan.rounds.end())
      same = plan.rounds.insert(plan.rounds.end(), {{}, std::move(turns)});
    same->ranks.push_back(rank);
  }
  return true;
}

bool checkRounds(const plan::Plan &plan, const OrderProblem &problem,
                 std::vector<Finding> &faults) {
  Certificate scratch;
  Expansion x(problem, scratch);
  if (!x.consistent)
    return false; // verify() has said why
  Rounds rounds(problem, x);
  auto refuse = [&](const std::string &title, Rank rank) {
    Finding f;
    f.kind = Finding::Kind::Mismatch;
    f.id = "malformed-round";
    f.title = "r" + std::to_string(rank) + ": " + title;
    f.cause = "the order of the rounds was not made for these programs";
    f.cure = "run comm-order again";
    f.culprits = {rank};
    faults.push_back(std::move(f));
    return false;
  };
  for (auto [rank, programs] : rounds.ranks()) {
    if (programs < 2)
      continue;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> place;
    std::map<uint32_t, int64_t> last;
    for (const plan::Round &round : plan.rounds) {
      if (std::find(round.ranks.begin(), round.ranks.end(), rank) ==
          round.ranks.end())
        continue;
      if (!place.empty())
        return refuse("follows two rounds", rank);
      for (const plan::Turn &turn : round.turns) {
        auto [it, fresh] = last.try_emplace(turn.program, -1);
        (void)fresh;
        if (int64_t(turn.unit) <= it->second)
          return refuse("the round does not keep the order of program " +
                            plan.programs[turn.program].name,
                        rank);
        it->second = turn.unit;
        place[{turn.program, turn.unit}] = uint32_t(place.size());
      }
    }
    // What needs a turn, in the order of the turns.
    std::vector<
        std::tuple<uint32_t, uint32_t, const Issuing *, const Issuing::Entry *>>
        merged;
    for (const Issuing &thread : rounds.all())
      if (thread.rank == rank)
        for (const Issuing::Entry &e : thread.entries) {
          auto it = place.find({thread.program, e.unit});
          if (it == place.end())
            return refuse(
                "part " + std::to_string(e.unit) + " of program " +
                    plan.programs[thread.program].name +
                    " lies in a cyclic block and has no turn in the round",
                rank);
          merged.push_back({it->second, e.item, &thread, &e});
        }
    std::sort(merged.begin(), merged.end(), [](const auto &a, const auto &b) {
      return std::get<0>(a) != std::get<0>(b) ? std::get<0>(a) < std::get<0>(b)
                                              : std::get<1>(a) < std::get<1>(b);
    });
    for (size_t i = 1; i < merged.size(); ++i)
      rounds.before(*std::get<2>(merged[i - 1]), *std::get<3>(merged[i - 1]),
                    *std::get<2>(merged[i]), *std::get<3>(merged[i]));
  }
  rounds.programOrder();
  std::vector<uint32_t> order;
  std::vector<ChainEdge> cycle;
  if (rounds.run(order, cycle))
    return true;
  faults.push_back(rounds.finding(std::move(cycle)));
  return false;
}

} // namespace concord::order

//===- BlockOrder.cpp - The order of a block, and the walk test -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// orderBlock: the lists of a block have a common linear extension iff running
// them against each other, a set passing when it stands first in every list
// that has it, gets to the end. Linear in the entries. What is left otherwise
// holds a cycle, found by following "not first on r, because y is".
//
// walkTest: Theorem C of docs/rationale-order.md, by searching a cycle in the
// graph whose vertices are (instance, member reached).
//
//===----------------------------------------------------------------------===//

#include "Verifier.h"

#include <algorithm>

namespace concord::order {

namespace {
std::string rankName(Rank r) { return "r" + std::to_string(r); }
} // namespace

bool orderBlock(const Expansion &x, uint32_t block,
                std::vector<uint32_t> &order, std::vector<ChainEdge> &cycle) {
  const auto &lists = x.listsOfBlock[block];
  // A list stands at one set at a time, so the lists that stand at a set are a
  // chain through `nextList`; `standing` holds its head + 1.
  std::vector<uint32_t> &wanted = x.wanted, &arrived = x.arrived,
                        &standing = x.standing;
  wanted.resize(x.instanceNode.size(), 0);
  arrived.resize(x.instanceNode.size(), 0);
  standing.resize(x.instanceNode.size(), 0);
  size_t sets = 0;
  for (uint32_t l : lists)
    for (const Occurrence &o : x.lists[l].entries)
      sets += wanted[o.set]++ == 0;
  std::vector<size_t> at(lists.size(), 0);
  std::vector<uint32_t> ready, nextList(lists.size(), 0);
  order.clear();
  auto arrive = [&](uint32_t k) {
    const auto &entries = x.lists[lists[k]].entries;
    if (at[k] >= entries.size())
      return;
    uint32_t set = entries[at[k]].set;
    nextList[k] = standing[set];
    standing[set] = k + 1;
    if (++arrived[set] == wanted[set])
      ready.push_back(set);
  };
  for (uint32_t k = 0; k < lists.size(); ++k)
    arrive(k);
  while (!ready.empty()) {
    uint32_t set = ready.back();
    ready.pop_back();
    order.push_back(set);
    for (uint32_t k = standing[set]; k != 0;) {
      uint32_t list = k - 1;
      k = nextList[list];
      ++at[list];
      arrive(list);
    }
  }
  for (uint32_t l : lists)
    for (const Occurrence &o : x.lists[l].entries)
      wanted[o.set] = arrived[o.set] = standing[o.set] = 0;
  if (order.size() == sets)
    return true;

  // Follow the blocking: set -> a list where it stands behind another one.
  struct Place {
    uint32_t k;
    size_t index;
  };
  std::unordered_map<uint32_t, std::vector<Place>> behind;
  for (uint32_t k = 0; k < lists.size(); ++k)
    for (size_t i = at[k] + 1; i < x.lists[lists[k]].entries.size(); ++i)
      behind[x.lists[lists[k]].entries[i].set].push_back({k, i});
  uint32_t current = kNone;
  for (uint32_t k = 0; k < lists.size() && current == kNone; ++k)
    if (at[k] < x.lists[lists[k]].entries.size())
      current = x.lists[lists[k]].entries[at[k]].set;
  std::vector<std::pair<uint32_t, Place>> trail;
  std::unordered_map<uint32_t, size_t> seen;
  while (current != kNone && !seen.count(current)) {
    auto it = behind.find(current);
    if (it == behind.end() || it->second.empty())
      return false; // cannot happen: it would be ready
    seen[current] = trail.size();
    Place p = it->second.front();
    trail.push_back({current, p});
    current = x.lists[lists[p.k]].entries[at[p.k]].set;
  }
  if (current == kNone)
    return false;
  for (size_t i = seen[current]; i < trail.size(); ++i) {
    Place p = trail[i].second;
    const IssueList &list = x.lists[lists[p.k]];
    ChainEdge e;
    e.from = x.end(list.entries[p.index], list);
    e.to = x.end(list.entries[at[p.k]], list);
    e.reason = ChainEdge::Reason::Stream;
    e.why = "on " + rankName(list.rank) + ", " + e.from.text +
            " is issued after " + e.to.text +
            (e.to.loc.file.empty() ? "" : " (" + e.to.loc.str() + ")") +
            ", which another member issues later";
    cycle.push_back(std::move(e));
  }
  return false;
}

int walkTest(const Expansion &x, uint32_t block,
             const std::function<bool(uint32_t, uint32_t, uint32_t)> &mayHoldUp,
             uint64_t maxEdges, std::vector<ChainEdge> *walk) {
  const auto &lists = x.listsOfBlock[block];
  uint64_t edges = 0;
  for (uint32_t l : lists) {
    uint64_t m = x.lists[l].entries.size();
    edges += m * m;
    if (edges > maxEdges)
      return -1;
  }
  // Where a set stands: (list, entry).
  std::unordered_map<uint32_t, std::vector<std::pair<uint32_t, uint32_t>>>
      places;
  std::vector<uint32_t> base(lists.size() + 1, 0);
  for (uint32_t k = 0; k < lists.size(); ++k) {
    const auto &entries = x.lists[lists[k]].entries;
    base[k + 1] = base[k] + uint32_t(entries.size());
    for (uint32_t i = 0; i < entries.size(); ++i)
      places[entries[i].set].emplace_back(k, i);
  }
  for (auto &[_, list] : places) {
    edges += uint64_t(list.size()) * list.size();
    if (edges > maxEdges)
      return -1;
  }
  // Vertex base[k] + i: entry i of list k, "set reached at this member". From
  // it to every other member of the set, and there to what may hold it up.
  uint32_t n = base.back();
  std::vector<std::vector<uint32_t>> holders(n); // entry -> entries of its list
  for (uint32_t k = 0; k < lists.size(); ++k) {
    uint32_t m = base[k + 1] - base[k];
    for (uint32_t i = 0; i < m; ++i)
      for (uint32_t j = 0; j < m; ++j)
        if (i != j && mayHoldUp(lists[k], i, j))
          holders[base[k] + i].push_back(base[k] + j);
  }
  std::vector<uint32_t> listOf(n);
  for (uint32_t k = 0; k < lists.size(); ++k)
    for (uint32_t v = base[k]; v < base[k + 1]; ++v)
      listOf[v] = k;
  auto setOf = [&](uint32_t v) {
    return x.lists[lists[listOf[v]]].entries[v - base[listOf[v]]].set;
  };
  // Iterative depth-first search; position = (member, holder) counters.
  enum : uint8_t { White, Grey, Black };
  std::vector<uint8_t> colour(n, White);
  struct Frame {
    uint32_t vertex, member, holder,
        via; // via: the entry at which it was held up
  };
  std::vector<Frame> stack;
  for (uint32_t root = 0; root < n; ++root) {
    if (colour[root] != White)
      continue;
    colour[root] = Grey;
    stack.push_back({root, 0, 0, kNone});
    while (!stack.empty()) {
      Frame &f = stack.back();
      const auto &where = places[setOf(f.vertex)];
      uint32_t nextVertex = kNone;
      while (f.member < where.size()) {
        auto [k, i] = where[f.member];
        uint32_t entry = base[k] + i;
        if (entry == f.vertex || f.holder >= holders[entry].size()) {
          ++f.member;
          f.holder = 0;
          continue;
        }
        nextVertex = holders[entry][f.holder++];
        f.via = entry;
        break;
      }
      if (nextVertex == kNone) {
        colour[f.vertex] = Black;
        stack.pop_back();
        continue;
      }
      if (colour[nextVertex] == Grey) {
        if (!walk)
          return 0;
        size_t from = 0;
        while (stack[from].vertex != nextVertex)
          ++from;
        for (size_t i = from; i < stack.size(); ++i) {
          uint32_t v = stack[i].vertex, held = stack[i].via;
          uint32_t next =
              i + 1 < stack.size() ? stack[i + 1].vertex : nextVertex;
          const IssueList &a = x.lists[lists[listOf[v]]];
          const IssueList &b = x.lists[lists[listOf[held]]];
          ChainEdge first, second;
          first.from = x.end(a.entries[v - base[listOf[v]]], a);
          first.to = x.end(b.entries[held - base[listOf[held]]], b);
          first.reason = ChainEdge::Reason::Partner;
          first.why =
              first.from.text + " holds its slot and needs " + first.to.text;
          second.from = first.to;
          second.to = x.end(b.entries[next - base[listOf[next]]], b);
          second.reason = ChainEdge::Reason::Slot;
          second.why = second.from.text + " can be held up on " +
                       rankName(b.rank) + " by " + second.to.text +
                       ", which nothing orders after it";
          walk->push_back(std::move(first));
          walk->push_back(std::move(second));
        }
        return 0;
      }
      if (colour[nextVertex] == White) {
        colour[nextVertex] = Grey;
        stack.push_back({nextVertex, 0, 0, kNone});
      }
    }
  }
  return 1;
}

} // namespace concord::order

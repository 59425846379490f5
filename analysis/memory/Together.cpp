//===- Together.cpp - Equal offsets in several arenas ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sets with common buffers are one class, which has a lifetime in each of its
// arenas and meets what it meets in any of them. Classes and all that is placed
// beside them are put in orders, as in one arena; a class that is in the way
// too often is given up, and tried again with what is left.
//
//===----------------------------------------------------------------------===//

#include "concord/memory/Together.h"

#include "Orders.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace concord::memory {
namespace {

/// What one attempt takes at most, with arenas that do not grow and with those
/// that may.
constexpr int64_t kStrictWork = 2'000'000, kLooseWork = 6'000'000;

class Together {
public:
  Together(const std::vector<std::vector<Buffer>> &arenas,
           const std::vector<std::vector<Member>> &sets, double growth,
           std::optional<int64_t> most, int64_t work);
  JointPlacement run();

private:
  using Class = std::vector<Member>;

  void join(size_t set);
  bool meetThemselves(Class &members) const;
  std::vector<std::vector<uint32_t>> groupsOf(const std::vector<uint32_t> &of);
  Apart solve(const std::vector<uint32_t> &group, std::vector<uint32_t> &worst);

  const std::vector<std::vector<Buffer>> &arenas;
  const std::vector<std::vector<Member>> &sets;
  int64_t work;
  JointPlacement result;
  std::vector<int64_t> limits;               ///< by arena
  std::vector<std::vector<uint32_t>> pieces; ///< by arena and buffer
  uint32_t numPieces = 0;
  std::vector<Class> classes;
  std::vector<Apart> apart;                   ///< by class
  std::vector<std::vector<uint32_t>> classOf; ///< by arena and buffer
  std::vector<uint32_t> classOfSet;
  static constexpr uint32_t kNone = ~0u;
};

/// One class, or one buffer of one arena.
struct Item {
  std::vector<Member> members;
  int64_t bytes = 0, limit = INT64_MAX;
  int64_t before = 0; ///< offset when each arena was placed by itself
  double area = 0;
  uint32_t inClass = ~0u;
};

} // namespace

Together::Together(const std::vector<std::vector<Buffer>> &arenas,
                   const std::vector<std::vector<Member>> &sets, double growth,
                   std::optional<int64_t> most, int64_t work)
    : arenas(arenas), sets(sets), work(work) {
  for (const std::vector<Buffer> &buffers : arenas) {
    Placement alone = place(buffers, work);
    auto limit =
        static_cast<int64_t>(growth * static_cast<double>(alone.bound));
    if (most)
      limit = std::min(limit, *most);
    limits.push_back(std::max(alone.bytes, limit));
    result.arenas.push_back(std::move(alone));
    classOf.emplace_back(buffers.size(), kNone);
    // Parts that nothing live connects, as in place().
    std::vector<uint32_t> order(buffers.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return buffers[a].first < buffers[b].first;
    });
    pieces.emplace_back(buffers.size(), 0);
    int64_t last = -1;
    for (uint32_t i : order) {
      if (buffers[i].first > last)
        ++numPieces;
      last = std::max(last, buffers[i].last);
      pieces.back()[i] = numPieces - 1;
    }
  }
}

/// Whether two buffers of one arena among them are live together.
bool Together::meetThemselves(Class &members) const {
  std::sort(
      members.begin(), members.end(), [&](const Member &a, const Member &b) {
        if (a.arena != b.arena)
          return a.arena < b.arena;
        const Buffer &x = arenas[a.arena][a.buffer];
        const Buffer &y = arenas[b.arena][b.buffer];
        return x.first != y.first ? x.first < y.first : a.buffer < b.buffer;
      });
  members.erase(std::unique(members.begin(), members.end()), members.end());
  int64_t last = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    const Buffer &buffer = arenas[members[i].arena][members[i].buffer];
    if (i && members[i].arena == members[i - 1].arena && buffer.first <= last)
      return true;
    last = !i || members[i].arena != members[i - 1].arena
               ? buffer.last
               : std::max(last, buffer.last);
  }
  return false;
}

/// Makes the members of a set, and all that has an offset with one of them
/// already, one class.
void Together::join(size_t set) {
  Class whole = sets[set];
  for (const Member &member : sets[set])
    if (uint32_t old = classOf[member.arena][member.buffer]; old != kNone)
      whole.insert(whole.end(), classes[old].begin(), classes[old].end());
  if (meetThemselves(whole)) {
    result.sets[set] = Apart::LiveTogether;
    return;
  }
  auto number = static_cast<uint32_t>(classes.size());
  std::vector<uint32_t> gone;
  for (const Member &member : whole) {
    uint32_t &of = classOf[member.arena][member.buffer];
    if (of != kNone && std::find(gone.begin(), gone.end(), of) == gone.end())
      gone.push_back(of);
    of = number;
  }
  for (uint32_t &of : classOfSet)
    if (std::find(gone.begin(), gone.end(), of) != gone.end())
      of = number;
  for (uint32_t old : gone)
    classes[old].clear();
  classes.push_back(std::move(whole));
  classOfSet[set] = number;
}

/// Classes that have to be placed in one go: something lives with both.
std::vector<std::vector<uint32_t>>
Together::groupsOf(const std::vector<uint32_t> &of) {
  std::vector<uint32_t> parent(of.size());
  std::iota(parent.begin(), parent.end(), 0);
  auto find = [&](uint32_t i) {
    while (parent[i] != i)
      i = parent[i] = parent[parent[i]];
    return i;
  };
  std::map<uint32_t, uint32_t> first; // piece -> one that is in it
  for (uint32_t i = 0; i < of.size(); ++i)
    for (const Member &member : classes[of[i]]) {
      auto [at, fresh] =
          first.try_emplace(pieces[member.arena][member.buffer], i);
      if (!fresh) {
        uint32_t a = find(at->second), b = find(i);
        parent[std::max(a, b)] = std::min(a, b);
      }
    }
  std::map<uint32_t, std::vector<uint32_t>> groups;
  for (uint32_t i = 0; i < of.size(); ++i)
    groups[find(i)].push_back(of[i]);
  std::vector<std::vector<uint32_t>> list;
  for (auto &[root, group] : groups)
    list.push_back(std::move(group));
  return list;
}

/// Places the classes of a group and all that lies beside them; or says why
/// not, and which are most in the way.
Apart Together::solve(const std::vector<uint32_t> &group,
                      std::vector<uint32_t> &worst) {
  std::vector<char> inside(numPieces), taken(classes.size());
  for (uint32_t c : group) {
    taken[c] = true;
    for (const Member &member : classes[c])
      inside[pieces[member.arena][member.buffer]] = true;
  }
  std::vector<Item> items;
  auto add = [&](const std::vector<Member> &members, uint32_t inClass) {
    Item item;
    item.members = members;
    item.inClass = inClass;
    for (const Member &member : members) {
      const Buffer &buffer = arenas[member.arena][member.buffer];
      item.bytes = std::max(item.bytes, buffer.bytes);
      item.limit = std::min(item.limit, limits[member.arena]);
      item.before = std::max(
          item.before, result.arenas[member.arena].offsets[member.buffer]);
      item.area += static_cast<double>(buffer.bytes) *
                   static_cast<double>(buffer.last - buffer.first + 1);
    }
    if (item.bytes)
      items.push_back(std::move(item));
  };
  for (uint32_t c : group)
    add(classes[c], c);
  for (uint32_t a = 0; a < arenas.size(); ++a)
    for (uint32_t b = 0; b < arenas[a].size(); ++b)
      if (inside[pieces[a][b]] &&
          (classOf[a][b] == kNone || !taken[classOf[a][b]]))
        add({{a, b}}, kNone);

  // Who meets whom, arena by arena.
  std::vector<std::vector<std::pair<Buffer, Index>>> lives(arenas.size());
  for (Index i = 0; i < items.size(); ++i)
    for (const Member &member : items[i].members)
      lives[member.arena].emplace_back(arenas[member.arena][member.buffer], i);
  for (auto &list : lives)
    std::stable_sort(list.begin(), list.end(), [](auto &a, auto &b) {
      return a.first.first < b.first.first;
    });
  std::vector<const std::pair<Buffer, Index> *> active;
  auto each = [&](auto act) {
    for (const auto &list : lives) {
      active.clear();
      for (const auto &one : list) {
        std::erase_if(active, [&](auto *other) {
          return !other->first.meets(one.first);
        });
        for (auto *other : active)
          act(one.second, other->second);
        active.push_back(&one);
      }
    }
  };
  int64_t pairs = 0;
  each([&](Index, Index) { ++pairs; });
  if (pairs > kMaxListed)
    return Apart::TooMany;
  Meetings meetings;
  int64_t unit = 0;
  for (const Item &item : items) {
    meetings.bytes.push_back(item.bytes);
    unit = std::gcd(unit, item.bytes);
  }
  meetings.list(each);

  std::vector<std::vector<Index>> orders;
  auto order = [&](auto before) {
    std::vector<Index> one(items.size());
    std::iota(one.begin(), one.end(), 0);
    std::stable_sort(one.begin(), one.end(), [&](Index a, Index b) {
      return before(items[a], items[b]);
    });
    orders.push_back(std::move(one));
  };
  // Without classes the first one gives each arena as it was, or smaller.
  order([](const Item &a, const Item &b) { return a.before < b.before; });
  order([](const Item &a, const Item &b) { return a.bytes > b.bytes; });
  order([](const Item &a, const Item &b) { return a.area > b.area; });
  order([](const Item &a, const Item &b) {
    bool one = a.inClass != kNone, other = b.inClass != kNone;
    return one != other ? one : a.bytes > b.bytes;
  });
  std::vector<int64_t> blame(items.size());
  auto blamed = [&](Index failed) {
    blame[failed] += 1;
    for (uint64_t i = meetings.from[failed]; i < meetings.from[failed + 1]; ++i)
      blame[meetings.meets[i]] += 1;
  };
  OrderSearch search(meetings, std::max<int64_t>(unit, 1));
  auto patience = kPatience * static_cast<int64_t>(items.size());
  auto attempt = [&](auto limit, int64_t share) {
    share = std::min(share, work);
    work -= share;
    bool found = false;
    // Each as it is, then changed.
    for (int64_t tries : {int64_t(0), patience})
      for (const std::vector<Index> &one : orders) {
        if (found || share <= 0)
          break;
        search.start(one);
        found = search.fit(limit, tries, share, blamed);
      }
    work += std::max<int64_t>(share, 0);
    return found;
  };
  auto alone = [&](Index i) {
    int64_t limit = INT64_MAX;
    for (const Member &member : items[i].members)
      limit = std::min(limit, result.arenas[member.arena].bytes);
    return limit;
  };
  if (attempt(alone, kStrictWork) ||
      attempt([&](Index i) { return items[i].limit; }, kLooseWork)) {
    for (Index i = 0; i < items.size(); ++i)
      for (const Member &member : items[i].members)
        result.arenas[member.arena].offsets[member.buffer] = search.at[i];
    return Apart::No;
  }
  std::vector<Index> byBlame;
  for (Index i = 0; i < items.size(); ++i)
    if (items[i].inClass != kNone)
      byBlame.push_back(i);
  std::stable_sort(byBlame.begin(), byBlame.end(),
                   [&](Index a, Index b) { return blame[a] > blame[b]; });
  // A few at once where there are many.
  size_t some = byBlame.size() / 16 + 1;
  for (size_t i = 0; i < std::min(some, byBlame.size()); ++i)
    worst.push_back(items[byBlame[i]].inClass);
  return Apart::LargerArena;
}

JointPlacement Together::run() {
  result.sets.assign(sets.size(), Apart::No);
  classOfSet.assign(sets.size(), kNone);
  for (size_t set = 0; set < sets.size(); ++set)
    join(set);
  apart.assign(classes.size(), Apart::No);
  std::vector<uint32_t> all;
  for (uint32_t c = 0; c < classes.size(); ++c)
    if (!classes[c].empty())
      all.push_back(c);
  std::vector<std::vector<uint32_t>> left = groupsOf(all);
  while (!left.empty()) {
    std::vector<uint32_t> group = std::move(left.back()), worst;
    left.pop_back();
    Apart why = work > 0 ? solve(group, worst) : Apart::LargerArena;
    if (why == Apart::No)
      continue;
    if (worst.empty())
      worst = group;
    for (uint32_t c : worst)
      apart[c] = why;
    std::erase_if(group, [&](uint32_t c) { return apart[c] != Apart::No; });
    for (std::vector<uint32_t> &rest : groupsOf(group))
      left.push_back(std::move(rest));
  }
  // One that was given up may fit beside what is left.
  for (uint32_t c : all) {
    if (apart[c] != Apart::LargerArena || work <= 0)
      continue;
    std::vector<uint32_t> kept, worst;
    for (uint32_t other : all)
      if (other == c || apart[other] == Apart::No)
        kept.push_back(other);
    for (const std::vector<uint32_t> &group : groupsOf(kept))
      if (std::find(group.begin(), group.end(), c) != group.end())
        apart[c] = solve(group, worst);
  }
  for (size_t set = 0; set < sets.size(); ++set)
    if (classOfSet[set] != kNone)
      result.sets[set] = apart[classOfSet[set]];
  for (size_t a = 0; a < arenas.size(); ++a) {
    Placement &arena = result.arenas[a];
    int64_t bytes = 0;
    bool moved = false;
    for (size_t b = 0; b < arenas[a].size(); ++b) {
      bytes = std::max(bytes, arena.offsets[b] + arenas[a][b].bytes);
      moved |= classOf[a][b] != kNone && apart[classOf[a][b]] == Apart::No;
    }
    if (!moved)
      continue;
    arena.rule = "equal-offsets";
    arena.optimal = arena.optimal && bytes <= arena.bytes;
    arena.bytes = bytes;
  }
  return std::move(result);
}

JointPlacement placeTogether(const std::vector<std::vector<Buffer>> &arenas,
                             const std::vector<std::vector<Member>> &sets,
                             double growth, std::optional<int64_t> most,
                             int64_t work) {
  return Together(arenas, sets, growth, most, work).run();
}

std::string verify(const std::vector<std::vector<Buffer>> &arenas,
                   const std::vector<std::vector<Member>> &sets,
                   const JointPlacement &placement) {
  if (placement.arenas.size() != arenas.size() ||
      placement.sets.size() != sets.size())
    return "not one placement for each arena and one answer for each set";
  for (size_t a = 0; a < arenas.size(); ++a)
    if (std::string wrong = verify(arenas[a], placement.arenas[a]);
        !wrong.empty())
      return "arena " + std::to_string(a) + ": " + wrong;
  for (size_t s = 0; s < sets.size(); ++s) {
    if (placement.sets[s] != Apart::No)
      continue;
    for (const Member &member : sets[s]) {
      const Member &first = sets[s].front();
      if (placement.arenas[member.arena].offsets[member.buffer] !=
          placement.arenas[first.arena].offsets[first.buffer])
        return "the members of set " + std::to_string(s) + " are apart";
    }
  }
  return "";
}

} // namespace concord::memory

//===- Place.cpp - Where buffers lie in one arena -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Buffers fall into parts that nothing live connects; each is placed by itself,
// the one with the largest live set first, and only as well as the arena that
// the others need already. The orders are those of Pisarchyk and Lee
// ("Efficient Memory Management for Deep Neural Net Inference", 2020: largest
// first) and variants. The local search (Orders.h) goes on from there, and the
// exhaustive one places buffers by rising offsets, with the dominance rule of
// Moffitt ("MiniMalloc", ASPLOS 2023).
//
//===----------------------------------------------------------------------===//

#include "concord/memory/Place.h"

#include "Orders.h"

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>

namespace concord::memory {
namespace {

/// Pairs of buffers of one part that meet, up to which an order is tried at
/// all.
constexpr int64_t kMaxPairs = 100'000'000;
/// Buffers of a part for which all placements may be tried.
constexpr size_t kMaxExact = 400;
/// What the local search takes before all placements are tried: most have found
/// the best one by then.
constexpr int64_t kFirstWork = 1'000'000;

/// As memory is given out and taken back while the program runs: the smallest
/// hole that fits, else the end. `byFirst` holds the buffers by
/// beginning, `byLast` by end. Linear in buffers times holes.
int64_t placeInTime(const std::vector<Buffer> &buffers,
                    const std::vector<Index> &byFirst,
                    const std::vector<Index> &byLast,
                    std::vector<int64_t> &offsets) {
  std::map<int64_t, int64_t> holes = {{0, INT64_MAX}}; // begin -> end
  int64_t size = 0;
  size_t ended = 0;
  for (Index index : byFirst) {
    const Buffer &buffer = buffers[index];
    for (; ended < byLast.size() && buffers[byLast[ended]].last < buffer.first;
         ++ended) {
      int64_t begin = offsets[byLast[ended]];
      int64_t end = begin + buffers[byLast[ended]].bytes;
      auto next = holes.lower_bound(begin);
      if (next != holes.end() && next->first == end) {
        end = next->second;
        next = holes.erase(next);
      }
      if (next != holes.begin()) {
        auto previous = std::prev(next);
        if (previous->second == begin) {
          begin = previous->first;
          holes.erase(previous);
        }
      }
      holes[begin] = end;
    }
    auto best = holes.end();
    for (auto hole = holes.begin(); hole != holes.end(); ++hole)
      if (hole->second - hole->first >= buffer.bytes &&
          (best == holes.end() ||
           hole->second - hole->first < best->second - best->first))
        best = hole;
    auto [begin, end] = *best;
    holes.erase(best);
    offsets[index] = begin;
    if (begin + buffer.bytes < end)
      holes[begin + buffer.bytes] = end;
    size = std::max(size, begin + buffer.bytes);
  }
  return size;
}

/// Intervals of time by number; finds those that meet another one. A segment
/// tree: what covers a node's whole span is kept there, and with every node all
/// that begins or ends inside of it.
class Timeline {
public:
  explicit Timeline(int64_t times) {
    while (leaves < times)
      leaves *= 2;
    covering.resize(2 * leaves);
    inside.resize(2 * leaves);
  }
  void insert(const Buffer &buffer, Index id) {
    visit(buffer, 1, 0, leaves, [&](size_t node, bool whole) {
      (whole ? covering : inside)[node].push_back(id);
    });
  }
  /// Calls `found` for each interval that meets `buffer`, some more than once.
  template <typename Found>
  void find(const Buffer &buffer, const Found &found) const {
    visit(buffer, 1, 0, leaves, [&](size_t node, bool whole) {
      for (Index id : covering[node])
        found(id);
      if (!whole)
        return;
      // All that lies below, too.
      for (Index id : inside[node])
        found(id);
    });
  }

private:
  template <typename Act>
  void visit(const Buffer &buffer, size_t node, int64_t begin, int64_t end,
             const Act &act) const {
    if (buffer.last < begin || buffer.first >= end)
      return;
    bool whole = buffer.first <= begin && end - 1 <= buffer.last;
    act(node, whole);
    if (whole)
      return;
    int64_t middle = begin + (end - begin) / 2;
    visit(buffer, 2 * node, begin, middle, act);
    visit(buffer, 2 * node + 1, middle, end, act);
  }

  int64_t leaves = 1;
  std::vector<std::vector<Index>> covering, inside;
};

/// One part: its buffers in order of their beginning, times numbered densely.
class Part {
public:
  Part(std::vector<Buffer> given, int64_t bound);
  void solve(int64_t target, int64_t &work);

  int64_t bound, size = 0;
  bool optimal = false;
  const char *rule = "";
  std::vector<int64_t> offsets; ///< of the best placement

private:
  void keep(int64_t found, const std::vector<int64_t> &at, const char *name) {
    if (!offsets.empty() && found >= size)
      return;
    size = found;
    offsets = at;
    rule = name;
  }
  void inTime(bool backwards, const char *name);
  template <typename Time>
  std::vector<Index> byTime(const std::vector<Buffer> &list,
                            const Time &timeOf) const;
  int64_t countPairs() const;
  void listPairs();
  template <typename Before> void inOrder(const char *name, Before before);
  bool listed() const { return !meetings.from.empty(); }
  int64_t heightOf(const std::vector<int64_t> &at) const;
  struct Search;
  struct Exhaustion;

  std::vector<Buffer> buffers;
  int64_t times = 0;
  Meetings meetings; ///< listed where there are not too many
  /// Orders of the rules that were tried, for the local search.
  std::vector<std::vector<Index>> orders;
  int64_t unit = 1; ///< that all sizes, so all offsets, are made of
};

} // namespace

Part::Part(std::vector<Buffer> given, int64_t bound)
    : bound(bound), buffers(std::move(given)) {
  // Two buffers meet where one begins: other times need not be told apart.
  std::vector<int64_t> begins;
  for (const Buffer &buffer : buffers)
    if (begins.empty() || begins.back() != buffer.first)
      begins.push_back(buffer.first);
  for (Buffer &buffer : buffers) {
    buffer.first =
        std::lower_bound(begins.begin(), begins.end(), buffer.first) -
        begins.begin();
    buffer.last = std::upper_bound(begins.begin(), begins.end(), buffer.last) -
                  begins.begin() - 1;
  }
  times = static_cast<int64_t>(begins.size());
  unit = 0;
  for (const Buffer &buffer : buffers)
    unit = std::gcd(unit, buffer.bytes);
}

/// All buffers by a time of theirs, those of one time in their order.
template <typename Time>
std::vector<Index> Part::byTime(const std::vector<Buffer> &list,
                                const Time &timeOf) const {
  std::vector<size_t> next(static_cast<size_t>(times) + 1, 0);
  for (const Buffer &buffer : list)
    ++next[static_cast<size_t>(timeOf(buffer)) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<Index> order(list.size());
  for (Index i = 0; i < list.size(); ++i)
    order[next[static_cast<size_t>(timeOf(list[i]))]++] = i;
  return order;
}

void Part::inTime(bool backwards, const char *name) {
  std::vector<Buffer> seen = buffers;
  if (backwards)
    for (Buffer &buffer : seen)
      buffer = {times - 1 - buffer.last, times - 1 - buffer.first,
                buffer.bytes};
  std::vector<Index> byFirst =
      byTime(seen, [](const Buffer &b) { return b.first; });
  // The larger ones first among those that begin together.
  for (auto begin = byFirst.begin(), end = begin; begin != byFirst.end();
       begin = end) {
    while (end != byFirst.end() && seen[*end].first == seen[*begin].first)
      ++end;
    std::stable_sort(begin, end, [&](Index a, Index b) {
      return seen[a].bytes > seen[b].bytes;
    });
  }
  std::vector<Index> byLast =
      byTime(seen, [](const Buffer &b) { return b.last; });
  std::vector<int64_t> at(seen.size());
  keep(placeInTime(seen, byFirst, byLast, at), at, name);
}

int64_t Part::countPairs() const {
  std::vector<int64_t> begun(times + 1), over(times + 1);
  for (const Buffer &buffer : buffers) {
    ++begun[buffer.first];
    ++over[buffer.last + 1];
  }
  int64_t live = 0, pairs = 0;
  for (int64_t t = 0; t < times; ++t) {
    live -= over[t];
    pairs += begun[t] * live + begun[t] * (begun[t] - 1) / 2;
    live += begun[t];
  }
  return pairs;
}

void Part::listPairs() {
  for (const Buffer &buffer : buffers)
    meetings.bytes.push_back(buffer.bytes);
  std::vector<Index> active;
  meetings.list([&](auto act) {
    active.clear();
    for (Index i = 0; i < buffers.size(); ++i) {
      std::erase_if(
          active, [&](Index j) { return buffers[j].last < buffers[i].first; });
      for (Index j : active)
        act(i, j);
      active.push_back(i);
    }
  });
}

int64_t Part::heightOf(const std::vector<int64_t> &at) const {
  int64_t most = 0;
  for (Index i = 0; i < at.size(); ++i)
    most = std::max(most, at[i] + buffers[i].bytes);
  return most;
}

template <typename Before> void Part::inOrder(const char *name, Before before) {
  std::vector<Index> order(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return before(buffers[a], buffers[b]);
  });
  if (listed()) {
    OrderSearch given(meetings, unit);
    given.start(order);
    int64_t enough = INT64_MAX;
    given.fit([](Index) { return INT64_MAX; }, 0, enough, [](Index) {});
    keep(heightOf(given.at), given.at, name);
    orders.push_back(std::move(order));
    return;
  }
  std::vector<int64_t> at(buffers.size());
  Timeline timeline(times);
  std::vector<Index> stamp(buffers.size(), ~0u);
  Gaps gaps;
  gaps.unit = unit;
  for (Index index : order) {
    const Buffer &buffer = buffers[index];
    gaps.taken.clear();
    timeline.find(buffer, [&](Index other) {
      if (stamp[other] == index || !buffers[other].meets(buffer))
        return;
      stamp[other] = index;
      gaps.taken.emplace_back(at[other], at[other] + buffers[other].bytes);
    });
    at[index] = gaps.lowest(buffer.bytes);
    timeline.insert(buffer, index);
  }
  keep(heightOf(at), at, name);
}

/// Orders of which each gives a placement under `target` or a buffer that does
/// not fit; that one is moved before one that it meets.
struct Part::Search {
  explicit Search(Part &part) : part(part), orders(part.meetings, part.unit) {
    restart();
  }

  void restart() { orders.start(part.orders[starts++ % part.orders.size()]); }

  /// Goes on with as much of `work` as `most`.
  void run(int64_t target, int64_t most, int64_t &work) {
    int64_t left = std::min(most, work);
    work -= left;
    // Under what is asked for, half of what is too much by turns; less and less
    // while nothing is found.
    while (left > 0 && part.size > target) {
      int64_t limit =
          std::min(part.size - 1, part.size - (part.size - target) / step);
      if (orders.fit([&](Index) { return limit; },
                     kPatience * static_cast<int64_t>(part.buffers.size()),
                     left, [](Index) {})) {
        part.keep(part.heightOf(orders.at), orders.at, "local-search");
        step = 2;
        orders.again();
      } else if (step < 64) {
        step *= 2;
      } else {
        step = 2;
        restart();
      }
    }
    work += left;
  }

  Part &part;
  OrderSearch orders;
  size_t starts = 0;
  int64_t step = 2;
};

/// All placements up to the target by rising offsets, as far as `work` goes. In
/// one whose offsets have the least sum each buffer lies right above one of
/// those before it. What follows depends on who is placed, on how high it is
/// where somebody is not, and on the last one placed: such a state is looked at
/// once.
struct Part::Exhaustion {
  Exhaustion(Part &part, int64_t target, int64_t &work)
      : part(part), target(target), work(work), height(part.times),
        open(part.times), lowest(part.times), at(part.buffers.size()),
        floor(part.buffers.size()), placed(part.buffers.size()) {
    for (const Buffer &buffer : part.buffers)
      for (int64_t t = buffer.first; t <= buffer.last; ++t)
        open[t] += buffer.bytes;
  }

  /// False: given up, or there is one. True: there is none.
  bool descend(size_t left, int64_t level, Index previous) {
    if (!left) {
      part.keep(part.heightOf(at), at, "exhaustive");
      return false;
    }
    work -= part.times + 8 * static_cast<int64_t>(left);
    if (work <= 0)
      return false;
    lowest.assign(part.times, INT64_MAX);
    int64_t lid = INT64_MAX;
    for (Index i = 0; i < part.buffers.size(); ++i) {
      if (placed[i])
        continue;
      const Buffer &buffer = part.buffers[i];
      work -= 2 * (buffer.last - buffer.first + 1);
      floor[i] = *std::max_element(height.begin() + buffer.first,
                                   height.begin() + buffer.last + 1);
      lid = std::min(lid, floor[i] + buffer.bytes);
      for (int64_t t = buffer.first; t <= buffer.last; ++t)
        lowest[t] = std::min(lowest[t], floor[i]);
    }
    // What is left at each time lies above the lowest place for any of it, and
    // above the level.
    for (int64_t t = 0; t < part.times; ++t)
      if (open[t] && std::max(lowest[t], level) + open[t] > target)
        return true;
    if (!seen.insert(stateOf(level, previous)).second)
      return true;
    std::vector<std::pair<int64_t, Index>> next;
    for (Index i = 0; i < part.buffers.size(); ++i)
      // Equals at one level come in order.
      if (!placed[i] &&
          (floor[i] > level || (floor[i] == level && i >= previous)))
        next.emplace_back(floor[i], i);
    auto area = [&](Index i) {
      const Buffer &buffer = part.buffers[i];
      return static_cast<double>(buffer.bytes) *
             static_cast<double>(buffer.last - buffer.first + 1);
    };
    std::sort(next.begin(), next.end(), [&](auto &a, auto &b) {
      return a.first != b.first ? a.first < b.first
                                : area(a.second) > area(b.second);
    });
    for (auto [bottom, i] : next) {
      const Buffer &buffer = part.buffers[i];
      // Another one fits below this and all that would follow: it lies there.
      if (bottom >= lid)
        break;
      if (bottom + buffer.bytes > target)
        continue;
      std::vector<int64_t> saved(height.begin() + buffer.first,
                                 height.begin() + buffer.last + 1);
      for (int64_t t = buffer.first; t <= buffer.last; ++t) {
        height[t] = bottom + buffer.bytes;
        open[t] -= buffer.bytes;
      }
      placed[i] = true;
      at[i] = bottom;
      bool on = descend(left - 1, bottom, i);
      placed[i] = false;
      std::copy(saved.begin(), saved.end(), height.begin() + buffer.first);
      for (int64_t t = buffer.first; t <= buffer.last; ++t)
        open[t] += buffer.bytes;
      if (!on)
        return false;
    }
    return true;
  }

  /// 128 bits of hash.
  std::pair<uint64_t, uint64_t> stateOf(int64_t level, Index previous) const {
    uint64_t a = 0x9e3779b97f4a7c15, b = 0xd1b54a32d192ed03;
    auto add = [&](uint64_t value) {
      a = (a ^ value) * 0xff51afd7ed558ccd;
      a ^= a >> 32;
      b = (b + value) * 0xc4ceb9fe1a85ec53;
      b ^= b >> 29;
    };
    add(static_cast<uint64_t>(level));
    add(previous);
    for (Index i = 0; i < placed.size(); ++i)
      if (!placed[i])
        add(i);
    for (int64_t t = 0; t < part.times; ++t)
      if (open[t])
        add(static_cast<uint64_t>(height[t]));
    return {a, b};
  }

  struct First {
    size_t operator()(const std::pair<uint64_t, uint64_t> &state) const {
      return state.first;
    }
  };

  Part &part;
  int64_t target;
  int64_t &work;
  std::vector<int64_t> height, open; ///< by time: taken, and still to be placed
  std::vector<int64_t> lowest;    ///< by time: where one that is left could lie
  std::vector<int64_t> at, floor; ///< by buffer
  std::vector<char> placed;
  std::unordered_set<std::pair<uint64_t, uint64_t>, First> seen;
};

void Part::solve(int64_t target, int64_t &work) {
  target = std::max(target, bound);
  inTime(false, "best-fit-in-time");
  if (size > target)
    inTime(true, "best-fit-backwards");
  int64_t pairs = size > target && work > 0 ? countPairs() : 0;
  if (size > target && work > 0 && pairs <= kMaxPairs) {
    if (pairs <= kMaxListed)
      listPairs();
    auto length = [](const Buffer &b) { return b.last - b.first + 1; };
    auto area = [&](const Buffer &b) {
      return static_cast<double>(b.bytes) * static_cast<double>(length(b));
    };
    inOrder("greedy-by-size",
            [](const Buffer &a, const Buffer &b) { return a.bytes > b.bytes; });
    if (size > target)
      inOrder("greedy-by-area", [&](const Buffer &a, const Buffer &b) {
        return area(a) > area(b);
      });
    if (size > target && listed())
      inOrder("greedy-by-lifetime", [&](const Buffer &a, const Buffer &b) {
        return length(a) > length(b);
      });
    std::optional<Search> search;
    if (size > target && listed()) {
      search.emplace(*this);
      search->run(target, kFirstWork, work);
    }
    if (size > target && buffers.size() <= kMaxExact) {
      int64_t share = work / 4, given = share;
      // There is none up to the target: then perhaps one a little larger.
      int64_t least = bound;
      while (size > target &&
             Exhaustion(*this, target, share).descend(buffers.size(), 0, 0))
        target = least = (target / unit + 1) * unit;
      optimal = size == least;
      work -= given - std::max<int64_t>(0, share);
    }
    if (size > target && !optimal && search)
      search->run(target, work, work);
  }
  optimal |= size == bound;
}

int64_t largestLiveSet(const std::vector<Buffer> &buffers) {
  int64_t end = 0, live = 0, most = 0;
  for (const Buffer &buffer : buffers)
    end = std::max(end, buffer.last + 1);
  // Times are mostly numbered densely: no need to sort.
  if (end < 4 * static_cast<int64_t>(buffers.size())) {
    std::vector<int64_t> change(static_cast<size_t>(end) + 1);
    for (const Buffer &buffer : buffers) {
      change[static_cast<size_t>(buffer.first)] += buffer.bytes;
      change[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
    }
    for (int64_t bytes : change)
      most = std::max(most, live += bytes);
    return most;
  }
  std::vector<std::pair<int64_t, int64_t>> changes;
  changes.reserve(2 * buffers.size());
  for (const Buffer &buffer : buffers) {
    changes.emplace_back(buffer.first, buffer.bytes);
    changes.emplace_back(buffer.last + 1, -buffer.bytes);
  }
  // What ends goes before what begins.
  std::sort(changes.begin(), changes.end());
  for (auto [time, bytes] : changes)
    most = std::max(most, live += bytes);
  return most;
}

Placement place(const std::vector<Buffer> &buffers, int64_t work,
                int64_t enough) {
  Placement result;
  result.offsets.assign(buffers.size(), 0);
  result.rule = "best-fit-in-time";
  result.bound = largestLiveSet(buffers);
  result.optimal = true;
  if (enough && enough < result.bound)
    work = 0;
  std::vector<Index> order;
  for (Index i = 0; i < buffers.size(); ++i)
    if (buffers[i].bytes)
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return buffers[a].first < buffers[b].first;
  });
  struct Piece {
    size_t begin, end;
    int64_t bound;
  };
  std::vector<Piece> pieces;
  std::vector<Buffer> list;
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    int64_t last = -1;
    list.clear();
    for (end = begin; end < order.size(); ++end) {
      const Buffer &buffer = buffers[order[end]];
      if (end > begin && buffer.first > last)
        break;
      last = std::max(last, buffer.last);
      list.push_back(buffer);
    }
    pieces.push_back({begin, end, largestLiveSet(list)});
  }
  std::stable_sort(
      pieces.begin(), pieces.end(),
      [](const Piece &a, const Piece &b) { return a.bound > b.bound; });
  for (const Piece &piece : pieces) {
    list.clear();
    for (size_t i = piece.begin; i < piece.end; ++i)
      list.push_back(buffers[order[i]]);
    Part part(std::move(list), piece.bound);
    part.solve(std::max({result.bytes, result.bound, enough}), work);
    for (size_t i = piece.begin; i < piece.end; ++i)
      result.offsets[order[i]] = part.offsets[i - piece.begin];
    if (part.size <= result.bytes)
      continue;
    result.bytes = part.size;
    result.rule = part.rule;
    result.optimal = part.optimal;
  }
  return result;
}

std::optional<std::pair<size_t, size_t>>
findOverlap(const std::vector<Buffer> &buffers,
            const std::vector<int64_t> &offsets) {
  // In the order of their beginning: up to the first overlap what is live lies
  // side by side, so that only the neighbours of a new buffer need a look.
  std::vector<size_t> born;
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].bytes && buffers[i].first <= buffers[i].last)
      born.push_back(i);
  std::vector<size_t> dying = born;
  std::stable_sort(born.begin(), born.end(), [&](size_t a, size_t b) {
    return buffers[a].first < buffers[b].first;
  });
  std::stable_sort(dying.begin(), dying.end(), [&](size_t a, size_t b) {
    return buffers[a].last < buffers[b].last;
  });
  std::map<int64_t, size_t> live; // by offset
  auto dead = dying.begin();
  for (size_t i : born) {
    for (; buffers[*dead].last < buffers[i].first; ++dead)
      live.erase(offsets[*dead]);
    auto after = live.lower_bound(offsets[i]);
    if (after != live.end() && after->first < offsets[i] + buffers[i].bytes)
      return std::minmax(i, size_t(after->second));
    if (after != live.begin())
      if (size_t before = std::prev(after)->second;
          offsets[before] + buffers[before].bytes > offsets[i])
        return std::minmax(i, size_t(before));
    live.emplace_hint(after, offsets[i], i);
  }
  return std::nullopt;
}

std::string verify(const std::vector<Buffer> &buffers,
                   const Placement &placement) {
  if (placement.offsets.size() != buffers.size())
    return "not one offset for each buffer";
  for (size_t i = 0; i < buffers.size(); ++i)
    if (placement.offsets[i] < 0 ||
        placement.offsets[i] + buffers[i].bytes > placement.bytes)
      return "buffer " + std::to_string(i) + " leaves the arena";
  if (auto pair = findOverlap(buffers, placement.offsets))
    return "buffers " + std::to_string(pair->first) + " and " +
           std::to_string(pair->second) + " overlap";
  return "";
}

} // namespace concord::memory

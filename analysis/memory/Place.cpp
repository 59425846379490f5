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
// first) and variants. The exhaustive search places buffers by rising offsets,
// with the dominance rule of Moffitt ("MiniMalloc", ASPLOS 2023). The local
// search moves a buffer that did not fit under the target before one that was
// in its way, and goes on from there.
//
//===----------------------------------------------------------------------===//

#include "concord/memory/Place.h"

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

namespace concord::memory {
namespace {

/// Pairs of buffers of one part that meet: up to which they are listed, and up
/// to which an order is tried at all.
constexpr int64_t kMaxListed = 8'000'000, kMaxPairs = 100'000'000;
/// Buffers of a part for which all placements may be tried.
constexpr size_t kMaxExact = 400;
/// Steps of the local search without a better arena, per buffer.
constexpr int64_t kPatience = 20;
/// What one step costs beside the neighbours that it looks at.
constexpr int64_t kStep = 32;
/// Sorting takes longer than looks at this many places for each that is sorted.
constexpr int64_t kDense = 4;

using Index = uint32_t;

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
  int64_t gap(int64_t bytes);
  int64_t lowest(Index buffer, const std::vector<Index> &place,
                 const std::vector<int64_t> &at);
  void search(int64_t target, int64_t &work);
  struct Exhaustion;

  std::vector<Buffer> buffers;
  int64_t times = 0;
  std::vector<uint64_t> from; ///< of each buffer's list in `meets`
  std::vector<Index> meets;   ///< who is live with whom
  /// Orders of the rules that were tried, for the local search.
  std::vector<std::vector<Index>> orders;
  std::vector<std::pair<int64_t, int64_t>> taken;
  std::vector<int32_t> covered; ///< of gap(): where something begins or ends
  int64_t unit = 1;             ///< that all sizes, so all offsets, are made of
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

/// Who is live together with whom.
void Part::listPairs() {
  from.assign(buffers.size() + 1, 0);
  std::vector<Index> active;
  auto each = [&](auto act) {
    active.clear();
    for (Index i = 0; i < buffers.size(); ++i) {
      std::erase_if(
          active, [&](Index j) { return buffers[j].last < buffers[i].first; });
      for (Index j : active)
        act(i, j);
      active.push_back(i);
    }
  };
  each([&](Index i, Index j) {
    ++from[i + 1];
    ++from[j + 1];
  });
  std::partial_sum(from.begin(), from.end(), from.begin());
  meets.resize(from.back());
  std::vector<uint64_t> next(from.begin(), from.end() - 1);
  each([&](Index i, Index j) {
    meets[next[i]++] = j;
    meets[next[j]++] = i;
  });
}

/// The lowest place for `bytes` beside what is `taken`.
int64_t Part::gap(int64_t bytes) {
  int64_t top = 0;
  for (auto [begin, end] : taken)
    top = std::max(top, end);
  int64_t places = top / unit;
  if (places < kDense * static_cast<int64_t>(taken.size())) {
    covered.assign(static_cast<size_t>(places) + 1, 0);
    for (auto [begin, end] : taken) {
      ++covered[static_cast<size_t>(begin / unit)];
      --covered[static_cast<size_t>(end / unit)];
    }
    int64_t wanted = bytes / unit, free = 0;
    int32_t cover = 0;
    for (int64_t at = 0; at < places; ++at) {
      cover += covered[static_cast<size_t>(at)];
      free = cover ? 0 : free + 1;
      if (free == wanted)
        return (at + 1 - wanted) * unit;
    }
    return top - free * unit;
  }
  std::sort(taken.begin(), taken.end());
  int64_t offset = 0;
  for (auto [begin, end] : taken) {
    if (offset + bytes <= begin)
      break;
    offset = std::max(offset, end);
  }
  return offset;
}

/// The lowest place for `buffer` beside those that come before it by `place`.
int64_t Part::lowest(Index buffer, const std::vector<Index> &place,
                     const std::vector<int64_t> &at) {
  taken.clear();
  for (uint64_t i = from[buffer]; i < from[buffer + 1]; ++i)
    if (Index other = meets[i]; place[other] < place[buffer])
      taken.emplace_back(at[other], at[other] + buffers[other].bytes);
  return gap(buffers[buffer].bytes);
}

template <typename Before> void Part::inOrder(const char *name, Before before) {
  std::vector<Index> order(buffers.size()), place(buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return before(buffers[a], buffers[b]);
  });
  for (Index i = 0; i < order.size(); ++i)
    place[order[i]] = i;
  std::vector<int64_t> at(buffers.size());
  int64_t found = 0;
  std::optional<Timeline> timeline;
  std::vector<Index> stamp;
  if (from.empty()) {
    timeline.emplace(times);
    stamp.assign(buffers.size(), ~0u);
  }
  for (Index index : order) {
    if (timeline) {
      const Buffer &buffer = buffers[index];
      taken.clear();
      timeline->find(buffer, [&](Index other) {
        if (stamp[other] == index || !buffers[other].meets(buffer))
          return;
        stamp[other] = index;
        taken.emplace_back(at[other], at[other] + buffers[other].bytes);
      });
      at[index] = gap(buffer.bytes);
      timeline->insert(buffer, index);
    } else {
      at[index] = lowest(index, place, at);
    }
    found = std::max(found, at[index] + buffers[index].bytes);
  }
  orders.push_back(std::move(order));
  keep(found, at, name);
}

/// Orders of which each gives a placement under `target` or a buffer that does
/// not fit; that one is moved before one that it meets.
void Part::search(int64_t target, int64_t &work) {
  std::vector<Index> order, place(buffers.size());
  size_t starts = 0;
  auto restart = [&] {
    order = orders[starts++ % orders.size()];
    for (Index i = 0; i < order.size(); ++i)
      place[order[i]] = i;
  };
  restart();
  std::vector<int64_t> at(buffers.size());
  uint64_t state = 0x9e3779b97f4a7c15;
  auto random = [&](uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  };
  // Under what is asked for, half of what is too much by turns; less and less
  // while nothing is found.
  int64_t step = 2, tries = 0;
  auto wanted = [&] {
    return std::min(size - 1, size - (size - target) / step);
  };
  int64_t limit = wanted();
  // Orders are kept up to the first buffer that does not fit.
  size_t index = 0;
  std::vector<Index> before;
  while (work > 0 && size > target) {
    for (; index < order.size(); ++index) {
      Index buffer = order[index];
      work -= static_cast<int64_t>(from[buffer + 1] - from[buffer]) + kStep;
      at[buffer] = lowest(buffer, place, at);
      if (at[buffer] + buffers[buffer].bytes > limit)
        break;
    }
    if (index == order.size()) {
      int64_t found = 0;
      for (Index i = 0; i < order.size(); ++i)
        found = std::max(found, at[i] + buffers[i].bytes);
      keep(found, at, "local-search");
      tries = 0;
      step = 2;
      limit = wanted();
      index = 0;
      continue;
    }
    Index buffer = order[index];
    before.clear();
    for (uint64_t i = from[buffer]; i < from[buffer + 1]; ++i)
      if (place[meets[i]] < index)
        before.push_back(place[meets[i]]);
    Index to = before[random(before.size())];
    std::rotate(order.begin() + to, order.begin() + static_cast<int64_t>(index),
                order.begin() + static_cast<int64_t>(index) + 1);
    for (size_t i = to; i <= index; ++i)
      place[order[i]] = static_cast<Index>(i);
    index = to;
    if (++tries > kPatience * static_cast<int64_t>(order.size())) {
      if (step < 64) {
        step *= 2;
      } else {
        step = 2;
        restart();
        index = 0;
      }
      limit = wanted();
      tries = 0;
    }
  }
}

/// All placements by rising offsets, as far as `work` goes. In one whose
/// offsets have the least sum each buffer lies right above one of those before
/// it.
struct Part::Exhaustion {
  Exhaustion(Part &part, int64_t target, int64_t &work)
      : part(part), target(target), work(work), height(part.times),
        open(part.times), at(part.buffers.size()), placed(part.buffers.size()) {
    for (const Buffer &buffer : part.buffers)
      for (int64_t t = buffer.first; t <= buffer.last; ++t)
        open[t] += buffer.bytes;
  }

  /// False: given up, or the target is reached.
  bool descend(size_t left, int64_t level, Index previous) {
    if (!left) {
      part.keep(heightOf(at), at, "exhaustive");
      return part.size > target;
    }
    // What is left at each time lies above what is there, and above the level.
    work -= part.times + 8 * static_cast<int64_t>(left);
    for (int64_t t = 0; t < part.times; ++t)
      if (open[t] && std::max(height[t], level) + open[t] >= part.size)
        return true;
    std::vector<std::pair<int64_t, Index>> next;
    int64_t lid = INT64_MAX;
    for (Index i = 0; i < part.buffers.size(); ++i) {
      if (placed[i])
        continue;
      const Buffer &buffer = part.buffers[i];
      work -= buffer.last - buffer.first + 1;
      int64_t floor = *std::max_element(height.begin() + buffer.first,
                                        height.begin() + buffer.last + 1);
      lid = std::min(lid, floor + buffer.bytes);
      // Equals at one level come in order.
      if (floor > level || (floor == level && i >= previous))
        next.emplace_back(floor, i);
    }
    if (work <= 0)
      return false;
    auto area = [&](Index i) {
      const Buffer &buffer = part.buffers[i];
      return static_cast<double>(buffer.bytes) *
             static_cast<double>(buffer.last - buffer.first + 1);
    };
    std::sort(next.begin(), next.end(), [&](auto &a, auto &b) {
      return a.first != b.first ? a.first < b.first
                                : area(a.second) > area(b.second);
    });
    for (auto [floor, i] : next) {
      const Buffer &buffer = part.buffers[i];
      // Another one fits below this and all that would follow: it lies there.
      if (floor >= lid)
        break;
      if (floor + buffer.bytes >= part.size)
        continue;
      std::vector<int64_t> saved(height.begin() + buffer.first,
                                 height.begin() + buffer.last + 1);
      for (int64_t t = buffer.first; t <= buffer.last; ++t) {
        height[t] = floor + buffer.bytes;
        open[t] -= buffer.bytes;
      }
      placed[i] = true;
      at[i] = floor;
      bool on = descend(left - 1, floor, i);
      placed[i] = false;
      std::copy(saved.begin(), saved.end(), height.begin() + buffer.first);
      for (int64_t t = buffer.first; t <= buffer.last; ++t)
        open[t] += buffer.bytes;
      if (!on)
        return false;
    }
    return true;
  }

  int64_t heightOf(const std::vector<int64_t> &offsets) const {
    int64_t most = 0;
    for (Index i = 0; i < offsets.size(); ++i)
      most = std::max(most, offsets[i] + part.buffers[i].bytes);
    return most;
  }

  Part &part;
  int64_t target;
  int64_t &work;
  std::vector<int64_t> height, open; ///< by time: taken, and still to be placed
  std::vector<int64_t> at;           ///< by buffer
  std::vector<char> placed;
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
    if (size > target && !from.empty())
      inOrder("greedy-by-lifetime", [&](const Buffer &a, const Buffer &b) {
        return length(a) > length(b);
      });
    if (size > target && buffers.size() <= kMaxExact) {
      int64_t share = work / 4, given = share;
      Exhaustion all(*this, target, share);
      optimal = all.descend(buffers.size(), 0, 0);
      work -= given - std::max<int64_t>(0, share);
    }
    if (size > target && !optimal && !from.empty())
      search(target, work);
  }
  optimal |= size == bound;
}

int64_t largestLiveSet(const std::vector<Buffer> &buffers) {
  int64_t end = 0, live = 0, most = 0;
  for (const Buffer &buffer : buffers)
    end = std::max(end, buffer.last + 1);
  // Times are mostly numbered densely.
  if (end < kDense * static_cast<int64_t>(buffers.size())) {
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

Placement place(const std::vector<Buffer> &buffers, int64_t work) {
  Placement result;
  result.offsets.assign(buffers.size(), 0);
  result.rule = "best-fit-in-time";
  result.bound = largestLiveSet(buffers);
  result.optimal = true;
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
    part.solve(std::max(result.bytes, result.bound), work);
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

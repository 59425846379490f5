//===- Schedule.cpp - The choice among legal orders -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The blocks are machines that do one thing at a time, tasks may need several,
// and the makespan is the longest path through dependences and the neighbours
// on each machine. Rules first (never wait while something is ready, longest
// remaining path first: Jackson 1955, Schrage 1971), then exchanges on the
// critical path, then branch and bound.
//
//===----------------------------------------------------------------------===//

#include "concord/order/Schedule.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <queue>
#include <span>

namespace concord::order {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
/// Branch and bound keeps sets of tasks in a word.
constexpr size_t kMostExact = 24;
/// Shares of the effort: rules that compare all that is ready, exchanges.
constexpr uint64_t kRuleShare = 4, kSearchShare = 2;
/// Exchanges below which none is tried.
constexpr uint64_t kFewestExchanges = 64;

using Tasks = std::vector<ScheduleTask>;
using Order = std::vector<uint32_t>;

/// Times of one order.
struct Times {
  std::vector<int64_t> end;
  std::vector<uint32_t> because; ///< what the start waited for; ~0: nothing
  int64_t makespan = kNever;
};

class Chooser {
public:
  Chooser(const Tasks &tasks, const ScheduleOptions &options)
      : tasks(tasks), effort(options.effort) {
    for (uint32_t t = 0; t < tasks.size(); ++t)
      if (tasks[t].blocks)
        issues.push_back(t);
    firstSuccessor.assign(tasks.size() + 1, 0);
    for (const ScheduleTask &task : tasks)
      for (uint32_t before : task.after)
        ++firstSuccessor[before + 1];
    for (uint32_t t = 0; t < tasks.size(); ++t)
      firstSuccessor[t + 1] += firstSuccessor[t];
    allSuccessors.resize(firstSuccessor.back());
    std::vector<size_t> place(firstSuccessor.begin(), firstSuccessor.end() - 1);
    for (uint32_t t = 0; t < tasks.size(); ++t)
      for (uint32_t before : tasks[t].after)
        allSuccessors[place[before]++] = t;
    // Longest path from the start of a task to the end of all.
    tail.assign(tasks.size(), 0);
    for (uint32_t t = uint32_t(tasks.size()); t-- > 0;) {
      for (uint32_t next : successors(t))
        tail[t] = std::max(tail[t], tail[next]);
      tail[t] += tasks[t].picoseconds;
    }
  }

  Schedule run();
  void time(const Order &order, Times &times) {
    time(order, times, [&](uint32_t t) { return tasks[t].blocks; });
  }
  /// With `blocksOf` each task in place of its own.
  template <typename Blocks>
  void time(const Order &order, Times &times, const Blocks &blocksOf);

private:
  void consider(const Order &order);
  int64_t tardiness(const Times &times) const;
  Order readyRule() const;
  Order tailRule() const;
  void exchange();
  void exact();
  void branch(uint32_t last, uint32_t left);

  const Tasks &tasks;
  uint64_t effort;
  Order issues;
  std::span<const uint32_t> successors(uint32_t t) const {
    return {allSuccessors.data() + firstSuccessor[t],
            firstSuccessor[t + 1] - firstSuccessor[t]};
  }
  std::vector<size_t> firstSuccessor;
  Order allSuccessors;
  std::vector<int64_t> tail;

  // Of time(), kept from call to call.
  std::vector<uint32_t> waiting;
  std::vector<int64_t> start;
  std::vector<size_t> firstNext; ///< into `next`: as many as a task has blocks
  Order next, ready;

  Order best;
  int64_t bestMakespan = kNever, bestTardiness = 0;
  bool optimal = false;

  // Branch and bound.
  std::vector<bool> done;
  std::vector<int64_t> started; ///< by task, for what is done
  std::array<int64_t, 64> machine{};
  Order current;
  uint64_t nodes = 0, mostNodes = 0;
  int64_t floor = 0;
};

template <typename Blocks>
void Chooser::time(const Order &order, Times &times, const Blocks &blocksOf) {
  size_t n = tasks.size();
  firstNext.resize(n + 1);
  firstNext[0] = 0;
  for (uint32_t t = 0; t < n; ++t)
    firstNext[t + 1] = firstNext[t] + size_t(std::popcount(blocksOf(t)));
  times.end.assign(n, 0);
  times.because.assign(n, ~0u);
  times.makespan = 0;
  waiting.assign(n, 0);
  start.assign(n, 0);
  ready.clear();
  // The next task on each machine of a task: at most one edge per block.
  next.assign(firstNext[n], ~0u);
  std::array<uint32_t, 64> last;
  last.fill(~0u);
  for (uint32_t t : order)
    for (uint64_t rest = blocksOf(t); rest; rest &= rest - 1) {
      uint32_t &before = last[size_t(std::countr_zero(rest))];
      if (before != ~0u) {
        size_t at = firstNext[before];
        while (next[at] != ~0u && next[at] != t)
          ++at;
        waiting[t] += next[at] != t;
        next[at] = t;
      }
      before = t;
    }
  for (uint32_t t = 0; t < n; ++t) {
    waiting[t] += uint32_t(tasks[t].after.size());
    if (!waiting[t])
      ready.push_back(t);
  }
  size_t seen = 0;
  while (!ready.empty()) {
    uint32_t t = ready.back();
    ready.pop_back();
    ++seen;
    times.end[t] = start[t] + tasks[t].picoseconds;
    times.makespan = std::max(times.makespan, times.end[t]);
    auto release = [&](uint32_t follower) {
      if (times.end[t] > start[follower] ||
          (times.end[t] == start[follower] && times.because[follower] == ~0u)) {
        start[follower] = times.end[t];
        times.because[follower] = t;
      }
      if (--waiting[follower] == 0)
        ready.push_back(follower);
    };
    for (uint32_t follower : successors(t))
      release(follower);
    for (size_t at = firstNext[t]; at < firstNext[t + 1] && next[at] != ~0u;
         ++at)
      release(next[at]);
  }
  if (seen != n)
    times.makespan = kNever; // the order contradicts the dependences
}

/// By how much operations of domains with a priority end late.
int64_t Chooser::tardiness(const Times &times) const {
  int64_t sum = 0;
  for (uint32_t t : issues)
    sum += times.end[t] / 1000 * tasks[t].priority;
  return sum;
}

void Chooser::consider(const Order &order) {
  Times times;
  time(order, times);
  if (times.makespan == kNever)
    return;
  int64_t late = tardiness(times);
  if (times.makespan < bestMakespan ||
      (times.makespan == bestMakespan && late < bestTardiness)) {
    best = order;
    bestMakespan = times.makespan;
    bestTardiness = late;
  }
}

/// Whatever can start first; among those, the longest way to go.
Order Chooser::readyRule() const {
  Order order, candidates;
  std::vector<uint32_t> waiting(tasks.size());
  std::vector<int64_t> ready(tasks.size(), 0);
  std::array<int64_t, 64> free{};
  // A task has ended: so has, in time, every computation that only waited for
  // it.
  auto finish = [&](uint32_t task, int64_t end) {
    Order work = {task};
    std::vector<int64_t> ends = {end};
    while (!work.empty()) {
      uint32_t t = work.back();
      int64_t at = ends.back();
      work.pop_back();
      ends.pop_back();
      for (uint32_t next : successors(t)) {
        ready[next] = std::max(ready[next], at);
        if (--waiting[next])
          continue;
        if (tasks[next].blocks) {
          candidates.push_back(next);
        } else {
          work.push_back(next);
          ends.push_back(ready[next] + tasks[next].picoseconds);
        }
      }
    }
  };
  for (uint32_t t = 0; t < tasks.size(); ++t)
    waiting[t] = uint32_t(tasks[t].after.size());
  for (uint32_t t = 0; t < tasks.size(); ++t) {
    if (!tasks[t].after.empty())
      continue;
    if (tasks[t].blocks)
      candidates.push_back(t);
    else
      finish(t, tasks[t].picoseconds);
  }
  auto earliest = [&](uint32_t t) {
    int64_t at = ready[t];
    for (uint64_t rest = tasks[t].blocks; rest; rest &= rest - 1)
      at = std::max(at, free[size_t(std::countr_zero(rest))]);
    return at;
  };
  while (!candidates.empty()) {
    size_t chosen = 0;
    int64_t first = kNever;
    for (size_t c = 0; c < candidates.size(); ++c) {
      uint32_t t = candidates[c], other = candidates[chosen];
      int64_t at = earliest(t);
      auto key = [&](uint32_t x) {
        return std::array<int64_t, 3>{-tail[x], -tasks[x].priority, x};
      };
      if (at < first || (at == first && key(t) < key(other))) {
        first = at;
        chosen = c;
      }
    }
    uint32_t t = candidates[chosen];
    candidates[chosen] = candidates.back();
    candidates.pop_back();
    order.push_back(t);
    int64_t end = first + tasks[t].picoseconds;
    for (uint64_t rest = tasks[t].blocks; rest; rest &= rest - 1)
      free[size_t(std::countr_zero(rest))] = end;
    finish(t, end);
  }
  return order;
}

/// The longest way to go, whether it can start yet or not.
Order Chooser::tailRule() const {
  auto later = [&](uint32_t a, uint32_t b) {
    if (tail[a] != tail[b])
      return tail[a] < tail[b];
    if (tasks[a].priority != tasks[b].priority)
      return tasks[a].priority < tasks[b].priority;
    return a > b;
  };
  std::priority_queue<uint32_t, Order, decltype(later)> ready(later);
  std::vector<uint32_t> waiting(tasks.size());
  for (uint32_t t = 0; t < tasks.size(); ++t) {
    waiting[t] = uint32_t(tasks[t].after.size());
    if (!waiting[t])
      ready.push(t);
  }
  Order order;
  while (!ready.empty()) {
    uint32_t t = ready.top();
    ready.pop();
    if (tasks[t].blocks)
      order.push_back(t);
    for (uint32_t next : successors(t))
      if (--waiting[next] == 0)
        ready.push(next);
  }
  return order;
}

/// Moves neighbours on the critical path past each other while that helps.
void Chooser::exchange() {
  uint64_t budget = effort / kSearchShare / std::max<size_t>(1, tasks.size());
  // A few of tens of thousands of pairs change nothing that counts.
  if (budget < kFewestExchanges)
    return;
  Times times, other;
  std::vector<size_t> place(tasks.size(), 0);
  while (budget > 0) {
    time(best, times);
    for (size_t i = 0; i < best.size(); ++i)
      place[best[i]] = i;
    auto last = std::max_element(times.end.begin(), times.end.end());
    if (last == times.end.end())
      return;
    // Pairs of the path that only a block orders.
    std::vector<std::pair<uint32_t, uint32_t>> pairs;
    for (auto t = uint32_t(last - times.end.begin()); times.because[t] != ~0u;
         t = times.because[t]) {
      uint32_t before = times.because[t];
      const auto &after = tasks[t].after;
      if ((tasks[t].blocks & tasks[before].blocks) &&
          std::find(after.begin(), after.end(), before) == after.end())
        pairs.push_back({before, t});
    }
    Order found;
    int64_t least = bestMakespan;
    for (auto [a, b] : pairs)
      for (bool forward : {true, false}) {
        if (budget == 0)
          break;
        --budget;
        Order trial = best;
        // b to right before a, or a to right behind b.
        if (forward)
          std::rotate(trial.begin() + std::ptrdiff_t(place[a]),
                      trial.begin() + std::ptrdiff_t(place[b]),
                      trial.begin() + std::ptrdiff_t(place[b]) + 1);
        else
          std::rotate(trial.begin() + std::ptrdiff_t(place[a]),
                      trial.begin() + std::ptrdiff_t(place[a]) + 1,
                      trial.begin() + std::ptrdiff_t(place[b]) + 1);
        time(trial, other);
        if (other.makespan < least) {
          least = other.makespan;
          found = std::move(trial);
        }
      }
    if (found.empty())
      return;
    consider(found);
  }
}

void Chooser::branch(uint32_t last, uint32_t left) {
  if (bestMakespan <= floor || nodes >= mostNodes)
    return;
  ++nodes;
  // Earliest ends, given what has been placed.
  std::vector<int64_t> end(tasks.size(), 0), start(tasks.size(), 0);
  int64_t bound = 0;
  std::array<int64_t, 64> work{}, first, after;
  first.fill(kNever);
  after.fill(kNever);
  for (uint32_t t = 0; t < tasks.size(); ++t) {
    for (uint32_t before : tasks[t].after)
      start[t] = std::max(start[t], end[before]);
    if (tasks[t].blocks && done[t])
      start[t] = started[t];
    else
      for (uint64_t rest = tasks[t].blocks; rest; rest &= rest - 1)
        start[t] = std::max(start[t], machine[size_t(std::countr_zero(rest))]);
    end[t] = start[t] + tasks[t].picoseconds;
    bound = std::max(bound, start[t] + tail[t]);
    if (!done[t])
      for (uint64_t rest = tasks[t].blocks; rest; rest &= rest - 1) {
        auto m = size_t(std::countr_zero(rest));
        work[m] += tasks[t].picoseconds;
        first[m] = std::min(first[m], start[t]);
        after[m] = std::min(after[m], tail[t] - tasks[t].picoseconds);
      }
  }
  for (size_t m = 0; m < 64; ++m)
    if (first[m] != kNever)
      bound = std::max(bound, first[m] + work[m] + after[m]);
  if (bound >= bestMakespan)
    return;
  if (left == 0) {
    consider(current);
    return;
  }
  Order open;
  for (uint32_t t : issues) {
    if (done[t])
      continue;
    // What it depends on, through computations, has to be placed.
    Order stack = {t};
    bool can = true;
    std::vector<bool> seen(tasks.size(), false);
    while (can && !stack.empty()) {
      uint32_t at = stack.back();
      stack.pop_back();
      for (uint32_t before : tasks[at].after) {
        if (seen[before] || done[before])
          continue;
        seen[before] = true;
        if (tasks[before].blocks)
          can = false;
        stack.push_back(before);
      }
    }
    // Two that share no block, one right after the other, are taken in one
    // order only.
    if (can && last != ~0u && !(tasks[t].blocks & tasks[last].blocks) &&
        t < last && start[t] <= started[last]) {
      bool depends =
          std::any_of(tasks[t].after.begin(), tasks[t].after.end(),
                      [&](uint32_t before) { return before >= last; });
      can = depends;
    }
    if (can)
      open.push_back(t);
  }
  std::sort(open.begin(), open.end(), [&](uint32_t a, uint32_t b) {
    if (start[a] != start[b])
      return start[a] < start[b];
    if (tail[a] != tail[b])
      return tail[a] > tail[b];
    return a < b;
  });
  for (uint32_t t : open) {
    std::array<int64_t, 64> saved = machine;
    for (uint64_t rest = tasks[t].blocks; rest; rest &= rest - 1)
      machine[size_t(std::countr_zero(rest))] = end[t];
    started[t] = start[t];
    done[t] = true;
    current.push_back(t);
    branch(t, left - 1);
    current.pop_back();
    done[t] = false;
    machine = saved;
  }
}

void Chooser::exact() {
  if (issues.size() > kMostExact || bestMakespan <= floor) {
    optimal = bestMakespan <= floor;
    return;
  }
  done.assign(tasks.size(), false);
  started.assign(tasks.size(), 0);
  nodes = 0;
  mostNodes = effort / std::max<size_t>(1, tasks.size()) /
              std::max<size_t>(1, issues.size() / 2);
  branch(~0u, uint32_t(issues.size()));
  optimal = nodes < mostNodes || bestMakespan <= floor;
}

Schedule Chooser::run() {
  Schedule result;
  Times times;
  time({}, times);
  result.unordered = floor = times.makespan;
  consider(issues);
  result.programOrder = bestMakespan;
  // Everything that communicates, one by one.
  auto sequenced = [&](uint32_t t) {
    return uint64_t(tasks[t].communicates || tasks[t].blocks);
  };
  Order all;
  for (uint32_t t = 0; t < tasks.size(); ++t)
    if (sequenced(t))
      all.push_back(t);
  time(all, times, sequenced);
  result.sequenced = times.makespan;
  if (bestMakespan > floor && issues.size() > 1) {
    consider(tailRule());
    if (issues.size() * issues.size() <= effort / kRuleShare)
      consider(readyRule());
    exchange();
    exact();
  } else {
    optimal = true;
  }
  result.order = best;
  result.picoseconds = bestMakespan;
  result.optimal = optimal;
  return result;
}

} // namespace

int64_t predict(const std::vector<ScheduleTask> &tasks,
                const std::vector<uint32_t> &order) {
  Times times;
  Chooser(tasks, {}).time(order, times);
  return times.makespan;
}

Schedule chooseOrder(const std::vector<ScheduleTask> &tasks,
                     const ScheduleOptions &options) {
  return Chooser(tasks, options).run();
}

} // namespace concord::order

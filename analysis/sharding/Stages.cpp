//===- Stages.cpp - Cutting a graph into pipeline stages ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cuts are taken from a list of candidates: all places in a small program, the
// ones that the fewest bytes cross in a large one. Cost tables over pairs of
// candidates, then three searches by dynamic programming, each under the bounds
// that the one before has found.
//
//===----------------------------------------------------------------------===//

#include "concord/sharding/Stages.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

namespace concord::sharding {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// More places than this are not looked at; with several stages and a looped
/// end, the search is cubic in them.
constexpr size_t kMostCandidates = 512, kMostLooped = 96;
/// What fewer bytes on the wire may cost in time.
constexpr double kTimeSlack = 1.02;

template <typename T> class Table {
public:
  Table(size_t n, T value) : n(n), cells(n * n, value) {}
  T &operator()(size_t i, size_t j) { return cells[i * n + j]; }
  const T &operator()(size_t i, size_t j) const { return cells[i * n + j]; }

private:
  size_t n;
  std::vector<T> cells;
};

class Cutter {
public:
  explicit Cutter(const StageProblem &problem)
      : problem(problem), ops(int32_t(problem.seconds.size())) {}
  StageSolution run();

private:
  using Pair = std::function<double(size_t, size_t, int64_t)>;
  struct Best {
    double cost = kInfinity;
    std::vector<size_t> cuts; ///< candidate indices, first and last included
  };

  void crossings();
  void candidates(size_t most);
  void tables();
  Best search(bool looped, bool sum, const Pair &cost) const;
  Best plan(bool looped, double &limit) const;
  StageSolution solution(const Best &best, bool looped) const;
  bool fits(size_t i, size_t j, int64_t stage) const {
    return fixedLow(i, j) > fixedHigh(i, j) ||
           (fixedLow(i, j) == stage && fixedHigh(i, j) == stage);
  }
  double time(size_t i, size_t j) const {
    return prefix[places[j]] - prefix[places[i]] + transfer[places[i]] +
           transfer[places[j]];
  }

  const StageProblem &problem;
  int32_t ops;
  std::vector<int64_t> crossing; ///< bytes, by place
  std::vector<double> transfer;  ///< seconds, by place
  std::vector<double> prefix;    ///< seconds before a place
  std::vector<int32_t> places;   ///< candidates: 0, ..., ops
  Table<int64_t> stored{0, 0}, shared{0, 0};
  Table<int32_t> fixedLow{0, 0}, fixedHigh{0, 0};
};

void Cutter::crossings() {
  std::vector<int64_t> change(size_t(ops) + 2), count(size_t(ops) + 2);
  for (const StageProblem::Value &value : problem.values) {
    if (value.uses.empty())
      continue;
    int32_t last = *std::max_element(value.uses.begin(), value.uses.end());
    change[size_t(value.definition) + 1] += value.bytes;
    change[size_t(last) + 1] -= value.bytes;
    ++count[size_t(value.definition) + 1];
    --count[size_t(last) + 1];
  }
  crossing.assign(size_t(ops) + 1, 0);
  transfer.assign(size_t(ops) + 1, 0);
  prefix.assign(size_t(ops) + 1, 0);
  int64_t bytes = 0, values = 0;
  for (size_t at = 0; at <= size_t(ops); ++at) {
    bytes += change[at];
    values += count[at];
    crossing[at] = bytes;
    transfer[at] = double(values) * problem.cost.latencySeconds +
                   double(bytes) / problem.cost.linkBytesPerSecond;
    if (at > 0)
      prefix[at] = prefix[at - 1] + problem.seconds[at - 1];
  }
}

void Cutter::candidates(size_t most) {
  std::vector<int32_t> inner(size_t(ops) - 1);
  std::iota(inner.begin(), inner.end(), 1);
  if (inner.size() > most) {
    std::stable_sort(inner.begin(), inner.end(), [&](int32_t a, int32_t b) {
      return crossing[size_t(a)] < crossing[size_t(b)];
    });
    inner.resize(most);
  }
  // Where an operation of another stage begins, there has to be a cut.
  for (int32_t op = 1; op < ops; ++op)
    if (!problem.fixed.empty() && problem.fixed[size_t(op)] >= 0)
      inner.push_back(op);
  inner.push_back(0);
  inner.push_back(ops);
  std::sort(inner.begin(), inner.end());
  inner.erase(std::unique(inner.begin(), inner.end()), inner.end());
  places = std::move(inner);
}

void Cutter::tables() {
  size_t n = places.size();
  // Per operation: the parameters it uses and their next use behind it.
  std::vector<std::vector<std::pair<int64_t, int32_t>>> uses(size_t(ops) + 1);
  for (const StageProblem::Parameter &parameter : problem.parameters)
    for (size_t k = 0; k < parameter.uses.size(); ++k)
      uses[size_t(parameter.uses[k])].push_back(
          {parameter.bytes, k + 1 < parameter.uses.size()
                                ? parameter.uses[k + 1]
                                : std::numeric_limits<int32_t>::max()});
  stored = Table<int64_t>(n, 0);
  fixedLow = Table<int32_t>(n, 0);
  fixedHigh = Table<int32_t>(n, 0);
  for (size_t j = 1; j < n; ++j) {
    int64_t bytes = 0;
    int32_t low = std::numeric_limits<int32_t>::max(), high = -1;
    int32_t op = places[j];
    for (size_t i = j; i-- > 0;) {
      while (op > places[i]) {
        --op;
        for (auto [size, next] : uses[size_t(op)])
          if (next >= places[j])
            bytes += size;
        int32_t stage = problem.fixed.empty() ? -1 : problem.fixed[size_t(op)];
        if (stage >= 0) {
          low = std::min(low, stage);
          high = std::max(high, stage);
        }
      }
      stored(i, j) = bytes;
      fixedLow(i, j) = low;
      fixedHigh(i, j) = high;
    }
  }
  // Bytes of parameters used before place a and from place b on.
  shared = Table<int64_t>(n, 0);
  for (const StageProblem::Parameter &parameter : problem.parameters) {
    if (parameter.uses.empty())
      continue;
    auto a = size_t(
        std::upper_bound(places.begin(), places.end(), parameter.uses.front()) -
        places.begin());
    auto b = size_t(std::upper_bound(places.begin(), places.end(),
                                     parameter.uses.back()) -
                    places.begin()) -
             1;
    shared(a, b) += parameter.bytes;
  }
  for (size_t a = 0; a < n; ++a)
    for (size_t b = n; b-- > 0;) {
      if (a > 0)
        shared(a, b) += shared(a - 1, b);
      if (b + 1 < n)
        shared(a, b) += shared(a, b + 1);
      if (a > 0 && b + 1 < n)
        shared(a, b) -= shared(a - 1, b + 1);
    }
}

/// The cheapest cuts; `cost` of a segment, combined by sum or by maximum. For a
/// looped program the cost of both ends together is asked for as (a, b, -1).
Cutter::Best Cutter::search(bool looped, bool sum, const Pair &cost) const {
  size_t n = places.size(), last = n - 1;
  int64_t inner = problem.stages - (looped ? 1 : 0);
  auto join = [&](double x, double y) { return sum ? x + y : std::max(x, y); };
  Best best;
  // From `start`, `inner` segments; ends at the last place, or anywhere.
  auto from = [&](size_t start) {
    int64_t firstStage = looped ? 1 : 0;
    std::vector<std::vector<double>> value(size_t(inner) + 1,
                                           std::vector<double>(n, kInfinity));
    std::vector<std::vector<size_t>> before(size_t(inner) + 1,
                                            std::vector<size_t>(n, 0));
    value[0][start] = sum ? 0 : -kInfinity;
    for (size_t k = 0; k < size_t(inner); ++k)
      for (size_t i = start; i < n; ++i) {
        if (value[k][i] == kInfinity)
          continue;
        for (size_t j = i + 1; j < n; ++j) {
          double c = cost(i, j, int64_t(k) + firstStage);
          if (c == kInfinity)
            continue;
          c = join(value[k][i], c);
          if (c < value[k + 1][j]) {
            value[k + 1][j] = c;
            before[k + 1][j] = i;
          }
        }
      }
    for (size_t end = looped ? start + 1 : last;
         end < (looped ? last : last + 1); ++end) {
      double c = value[size_t(inner)][end];
      if (c == kInfinity)
        continue;
      if (looped) {
        double ends = cost(start, end, -1);
        if (ends == kInfinity)
          continue;
        c = join(c, ends);
      }
      if (c >= best.cost)
        continue;
      best.cost = c;
      best.cuts.clear();
      if (looped)
        best.cuts.push_back(last);
      best.cuts.push_back(end);
      for (size_t k = size_t(inner), at = end; k > 0; --k)
        best.cuts.push_back(at = before[k][at]);
      if (looped)
        best.cuts.push_back(0);
      std::reverse(best.cuts.begin(), best.cuts.end());
    }
  };
  if (!looped)
    from(0);
  else
    for (size_t start = 1; start + 1 < n; ++start)
      from(start);
  return best;
}

Cutter::Best Cutter::plan(bool looped, double &limit) const {
  size_t last = places.size() - 1;
  auto bytes = [&](size_t i, size_t j, int64_t stage) {
    if (stage < 0)
      return double(stored(0, i) + stored(j, last) - shared(i, j));
    return fits(i, j, stage) ? double(stored(i, j)) : kInfinity;
  };
  auto seconds = [&](size_t i, size_t j, int64_t stage) {
    return stage < 0 ? time(0, i) + time(j, last) : time(i, j);
  };
  limit =
      std::max(double(problem.mostBytes), search(looped, false, bytes).cost);
  if (limit == kInfinity)
    return {};
  auto bounded = [&](size_t i, size_t j, int64_t stage) {
    return bytes(i, j, stage) <= limit ? seconds(i, j, stage) : kInfinity;
  };
  double slowest = search(looped, false, bounded).cost * kTimeSlack;
  return search(looped, true, [&](size_t i, size_t j, int64_t stage) {
    if (bounded(i, j, stage) > slowest)
      return kInfinity;
    double sent = double(crossing[size_t(places[i])]);
    return stage < 0 ? double(crossing[size_t(places[j])]) : sent;
  });
}

StageSolution Cutter::solution(const Best &best, bool looped) const {
  StageSolution result;
  result.segments = int32_t(best.cuts.size()) - 1;
  size_t last = places.size() - 1;
  for (int32_t s = 0; s < result.segments; ++s) {
    size_t i = best.cuts[size_t(s)], j = best.cuts[size_t(s) + 1];
    result.segment.insert(result.segment.end(), size_t(places[j] - places[i]),
                          s);
    result.stage.push_back(looped && s + 1 == result.segments ? 0 : s);
    if (s > 0)
      result.crossingBytes += crossing[size_t(places[i])];
    if (looped && result.stage.back() == 0)
      continue;
    result.parameterBytes = std::max(result.parameterBytes, stored(i, j));
    result.seconds = std::max(result.seconds, time(i, j));
  }
  if (looped) {
    size_t a = best.cuts[1], b = best.cuts[best.cuts.size() - 2];
    result.parameterBytes = std::max(
        result.parameterBytes, stored(0, a) + stored(b, last) - shared(a, b));
    result.seconds = std::max(result.seconds, time(0, a) + time(b, last));
  }
  return result;
}

StageSolution Cutter::run() {
  if (problem.stages < 1)
    throw std::invalid_argument("a pipeline has at least one stage");
  if (ops < problem.stages)
    throw std::invalid_argument("there are " + std::to_string(ops) +
                                " operations to divide over " +
                                std::to_string(problem.stages) + " stages");
  crossings();
  candidates(kMostCandidates);
  tables();
  double limit = 0, loopedLimit = 0;
  Best contiguous = plan(false, limit);
  bool free = std::all_of(problem.fixed.begin(), problem.fixed.end(),
                          [](int32_t stage) { return stage < 0; });
  if (contiguous.cuts.empty())
    throw std::invalid_argument(
        "no contiguous cut puts every operation on the stage that the model "
        "asks for");
  StageSolution result = solution(contiguous, false);
  if (!free || problem.stages < 2 || ops <= problem.stages ||
      limit <= double(problem.mostBytes))
    return result;
  if (problem.stages > 2 && places.size() > kMostLooped) {
    candidates(kMostLooped);
    tables();
  }
  Best looped = plan(true, loopedLimit);
  if (looped.cuts.empty() || loopedLimit >= limit)
    return result;
  return solution(looped, true);
}

} // namespace

StageSolution cutStages(const StageProblem &problem) {
  return Cutter(problem).run();
}

} // namespace concord::sharding

//===- OptimalityTest.cpp - The solver against exhaustive search ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Tries every choice of every op of small random graphs, every source of every
// reshard and every detour over the whole tensor, and compares the best total
// with the solver's. Shares only the step table and its prices with it.
//
//===----------------------------------------------------------------------===//

#include "Builders.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace concord::sharding::test {
namespace {

struct Total {
  int64_t excess = INT64_MAX;
  int64_t time = INT64_MAX;
  auto operator<=>(const Total &) const = default;
};

class Exhaustive {
public:
  explicit Exhaustive(const Problem &problem)
      : p(problem), sets(problem.tensors.size()) {
    for (const TensorInfo &info : p.tensors)
      bytes.push_back(wholeBytes(info));
  }

  Total run() {
    op(0, 0);
    return best;
  }

private:
  using Set = std::vector<Layout>;

  static bool has(const Set &set, const Layout &layout) {
    return std::ranges::find(set, layout) != set.end();
  }
  static int64_t wholeBytes(const TensorInfo &info) {
    int64_t n = info.elementBytes;
    for (int64_t size : info.shape)
      n *= size;
    return n;
  }
  bool matrix(int32_t t) const {
    return p.tensors[t].kind == TensorKind::Weight &&
           p.tensors[t].shape.size() > 1;
  }
  int64_t stepTime(int32_t t, const Step &step) const {
    return stepObjective(step.kind, static_cast<double>(bytes[t]), p.ranks,
                         p.cost);
  }

  /// Calls `next(time)` with every way to have `tensor` as `want`.
  template <typename Next>
  void obtain(int32_t tensor, const Layout &want, int64_t time, Next next) {
    Set &set = sets[tensor];
    bool source = p.tensors[tensor].kind != TensorKind::Value;
    bool fixed = p.tensors[tensor].mustReplicate &&
                 p.tensors[tensor].kind == TensorKind::Input;
    if (fixed && set.empty())
      set.push_back(Layout::replicated());
    if (has(set, want))
      return next(time);
    Set saved = set;
    if (source && !fixed) {
      bool partial = want.kind == Layout::Partial;
      if (!partial || (p.partialWeights && !matrix(tensor) &&
                       p.tensors[tensor].kind != TensorKind::Input)) {
        set.push_back(want);
        next(time);
        set = saved;
      }
      return;
    }
    for (bool detour : {false, true}) {
      if (detour &&
          (has(saved, Layout::replicated()) || want.kind == Layout::Replicated))
        continue;
      for (const Layout &from : saved) {
        auto steps = planReshard(from, detour ? Layout::replicated() : want,
                                 p.tensors[tensor].shape, p.ranks,
                                 p.mayExchange(tensor));
        if (!steps)
          continue;
        if (detour) {
          auto rest = planReshard(Layout::replicated(), want,
                                  p.tensors[tensor].shape, p.ranks);
          if (!rest)
            continue;
          steps->insert(steps->end(), rest->begin(), rest->end());
        }
        int64_t spent = time;
        for (const Step &step : *steps) {
          spent += stepTime(tensor, step);
          if (!has(set, step.to))
            set.push_back(step.to);
        }
        next(spent);
        set = saved;
      }
    }
  }

  void operands(size_t index, size_t k, const std::vector<Layout> &want,
                const std::vector<Layout> &make, int64_t time) {
    if (time > best.time && best.excess == 0)
      return;
    const OpInfo &info = p.ops[index];
    if (k == info.operands.size()) {
      std::vector<Set> saved;
      for (size_t r = 0; r < info.results.size(); ++r) {
        saved.push_back(sets[info.results[r]]);
        sets[info.results[r]] = {make[r]};
      }
      op(index + 1, time);
      for (size_t r = 0; r < info.results.size(); ++r)
        sets[info.results[r]] = saved[r];
      return;
    }
    if (info.operands[k] < 0)
      return operands(index, k + 1, want, make, time);
    obtain(info.operands[k], want[k], time,
           [&](int64_t spent) { operands(index, k + 1, want, make, spent); });
  }

  void op(size_t index, int64_t time) {
    if (index == p.ops.size())
      return leaf(time);
    const OpInfo &info = p.ops[index];
    double t = static_cast<double>(p.ranks);
    auto price = [&](double flops, double memory) {
      return time + toPicoseconds(std::max(flops / p.cost.flopsPerSecond,
                                           memory / p.cost.bytesPerSecond) +
                                  p.cost.opSeconds);
    };
    std::vector<Layout> want(info.operands.size()), make(info.results.size());
    for (const Factor &factor : info.rule.factors)
      for (int64_t outer = 1; outer <= factor.size; ++outer) {
        if (factor.size % outer || (factor.size / outer) % p.ranks ||
            (factor.lookup && outer > 1))
          continue;
        for (size_t k = 0; k < want.size(); ++k) {
          DimRef ref = factor.operands[k];
          want[k] = ref.dim < 0 ? Layout()
                                : Layout::split(ref.dim, ref.outer * outer);
        }
        for (int32_t k : factor.addends)
          want[k] = Layout::partial();
        for (size_t k = 0; k < make.size(); ++k)
          make[k] = factor.reduction != Reduction::None
                        ? Layout::partial(factor.reduction)
                        : Layout::split(factor.results[k].dim,
                                        factor.results[k].outer * outer);
        operands(index, 0, want, make, price(info.flops / t, info.bytes / t));
      }
    std::ranges::fill(want, Layout());
    std::ranges::fill(make, Layout());
    operands(index, 0, want, make, price(info.flops, info.bytes));
    for (const LinearSet &set : info.rule.linear) {
      std::ranges::fill(want, Layout());
      std::ranges::fill(make, Layout::partial());
      bool value = false;
      for (int32_t k : set) {
        want[k] = Layout::partial();
        value |= p.tensors[info.operands[k]].kind == TensorKind::Value;
      }
      if (value)
        operands(index, 0, want, make, price(info.flops, info.bytes / t));
    }
  }

  void leaf(int64_t time) {
    Total total{0, time};
    for (size_t i = 0; i < p.tensors.size(); ++i) {
      int32_t t = static_cast<int32_t>(i);
      const TensorInfo &info = p.tensors[t];
      const Set &set = sets[t];
      int64_t count = static_cast<int64_t>(set.size());
      bool whole = has(set, Layout::replicated());
      if (info.kind == TensorKind::Value && info.isOutput) {
        int64_t cheapest = INT64_MAX;
        for (int32_t d = -1; d < static_cast<int32_t>(info.shape.size()); ++d) {
          if (d >= 0 && info.mustReplicate)
            break;
          Layout to = d < 0 ? Layout() : Layout::split(d);
          for (const Layout &from : set)
            if (auto steps = planReshard(from, to, info.shape, p.ranks)) {
              int64_t spent = 0;
              for (const Step &step : *steps)
                spent += stepTime(t, step);
              cheapest = std::min(cheapest, spent);
            }
        }
        total.time += cheapest;
      } else if (info.kind == TensorKind::Input && !info.mustReplicate &&
                 count > 1) {
        whole = true;
      } else if (matrix(t) && count > 0) {
        whole |= count > p.ranks;
        int64_t part = bytes[t] / p.ranks;
        total.excess += whole ? bytes[t] - part : (count - 1) * part;
      } else {
        continue;
      }
      if (whole && info.kind != TensorKind::Value)
        for (const Layout &layout : set)
          if (layout.kind == Layout::Split)
            total.time += stepTime(t, {StepKind::Slice, {}, layout});
    }
    best = std::min(best, total);
  }

  const Problem &p;
  std::vector<int64_t> bytes;
  std::vector<Set> sets;
  Total best;
};

TEST(Optimality, MatchesExhaustiveSearch) {
  int partials = 0, gathers = 0, scatters = 0, slices = 0;
  for (uint32_t seed = 0; seed < 250; ++seed) {
    Net net = randomNet(seed, seed % 3 ? 2 : 4, 2 + static_cast<int>(seed % 4));
    net.problem.beamWidth = 1 << 20;
    net.problem.allToAll = seed % 2;
    for (size_t t = 0; t < net.problem.tensors.size(); ++t)
      net.problem.tensors[t].allToAll = (seed + t) % 4 == 0;
    Solution solution = solve(net.problem);
    ASSERT_EQ(verify(net.problem, solution), std::nullopt)
        << "seed " << seed << "\n"
        << dump(net.problem, solution);
    EXPECT_TRUE(solution.exact);
    Total best = Exhaustive(net.problem).run();
    ASSERT_EQ(best.excess, solution.excessBytes) << "seed " << seed;
    ASSERT_EQ(best.time, solution.objective) << "seed " << seed << "\n"
                                             << dump(net.problem, solution);
    Traffic moved = traffic(net.problem, solution);
    partials += moved.allReduce;
    gathers += moved.allGather;
    scatters += moved.reduceScatter;
    slices += moved.slice;
  }
  // The comparison means something only if all kinds of steps are ever best.
  EXPECT_GT(partials, 0);
  EXPECT_GT(gathers, 0);
  EXPECT_GT(scatters, 0);
  EXPECT_GT(slices, 0);
}

/// A narrow beam may cost more, but never gives a wrong solution.
TEST(Optimality, NarrowBeamIsValidAndNoBetter) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    Net net = randomNet(seed, 2, 12);
    Solution exact = solve(net.problem);
    net.problem.beamWidth = 1;
    Solution greedy = solve(net.problem);
    EXPECT_EQ(verify(net.problem, greedy), std::nullopt) << "seed " << seed;
    EXPECT_GE(std::make_pair(greedy.excessBytes, greedy.objective),
              std::make_pair(exact.excessBytes, exact.objective))
        << "seed " << seed;
  }
}

} // namespace
} // namespace concord::sharding::test

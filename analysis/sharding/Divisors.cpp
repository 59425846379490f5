//===- Divisors.cpp - Which axis sizes suit a model -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A dimension of 768 that a projection produces divides by 8, but if a reshape
// then sees it as 12 heads of 64, no head-wise split over 8 ranks exists. Such
// cuts are found from the rules alone: a factor that covers an operand's
// dimension only in its outer part, where the dimension can be followed back to
// a weight matrix, and forward to a product that is made per block. (Pixels
// that a last projection makes per patch are blocks, too, but nothing is lost
// where a rank holds that projection whole.) Where not even the 768 divides,
// the axis is refused as well: every rank would hold and compute the whole
// projection.
//
//===----------------------------------------------------------------------===//

#include "Model.h"

#include <algorithm>
#include <map>
#include <set>

namespace concord::sharding {

namespace {

constexpr int64_t maxAxis = 64;

/// Where an op cuts a dimension of an operand into blocks.
struct Cut {
  size_t op;
  size_t operand;
  int32_t dim;
  std::vector<int64_t> blocks;   ///< trip counts of all but the innermost part
  std::vector<int64_t> products; ///< blocks of the products made of them
};

class Tracer {
public:
  explicit Tracer(const Problem &problem)
      : problem(problem), producer(problem.tensors.size(), -1),
        users(problem.tensors.size()) {
    for (size_t op = 0; op < problem.ops.size(); ++op) {
      for (int32_t tensor : problem.ops[op].results)
        if (tensor >= 0)
          producer[tensor] = static_cast<int32_t>(op);
      for (size_t k = 0; k < problem.ops[op].operands.size(); ++k)
        if (int32_t tensor = problem.ops[op].operands[k]; tensor >= 0)
          users[tensor].emplace_back(op, k);
    }
  }

  /// A part of a dimension: `size` blocks, repeated in each of `outer` blocks.
  struct Part {
    int32_t tensor;
    int32_t dim;
    int64_t outer, size;
    auto operator<=>(const Part &) const = default;
  };

  /// Whether a part of a dimension runs over a dimension of a matrix weight,
  /// seen through the ops that keep it. Of a dimension that a reshape made of
  /// batch and heads, only the part that holds the heads does.
  bool fromWeight(Part start) {
    std::set<Part> seen;
    std::vector<Part> work{start};
    while (!work.empty()) {
      Part part = work.back();
      work.pop_back();
      if (!seen.insert(part).second)
        continue;
      const int32_t t = part.tensor;
      const TensorInfo &info = problem.tensors[t];
      if (detail::isMatrix(problem, info))
        return true;
      if (producer[t] < 0)
        continue;
      const OpInfo &op = problem.ops[producer[t]];
      for (const Factor &factor : op.rule.factors) {
        // What the factor and the part have in common, counted in blocks from
        // the outside.
        int64_t begin = 0, end = 0, origin = 0;
        for (size_t k = 0; k < op.results.size(); ++k) {
          const DimRef &ref = factor.results[k];
          if (op.results[k] != t || ref.dim != part.dim)
            continue;
          begin = std::max(ref.outer, part.outer);
          end = std::min(ref.outer * factor.size, part.outer * part.size);
          origin = ref.outer;
        }
        if (begin >= end)
          continue;
        int carriers = 0;
        for (size_t k = 0; k < op.operands.size(); ++k)
          carriers += op.operands[k] >= 0 && factor.operands[k].dim >= 0;
        for (size_t k = 0; k < op.operands.size(); ++k) {
          if (op.operands[k] < 0 || factor.operands[k].dim < 0)
            continue;
          // A weight that has its own piece for each block (of a batched
          // product) does not make the blocks.
          if (carriers > 1 &&
              detail::isMatrix(problem, problem.tensors[op.operands[k]]))
            continue;
          work.push_back({op.operands[k], factor.operands[k].dim,
                          factor.operands[k].outer * begin / origin,
                          std::max<int64_t>(end / begin, 2)});
        }
      }
    }
    return false;
  }

  /// What becomes of the blocks that a factor runs over.
  struct Fate {
    bool picked = false; ///< some are picked out by number, as q, k and v are
                         ///< from [3, heads * width]: no heads
    /// The products that are made for each, as of heads, by their blocks: more
    /// than were cut where heads of keys and values serve several of queries.
    std::vector<int64_t> products;
  };
  Fate fateOf(const OpInfo &op, const Factor &factor) {
    std::set<Part> seen;
    std::vector<Part> work;
    Fate fate;
    auto follow = [&](const OpInfo &info, const Factor &by) {
      for (size_t k = 0; k < info.results.size(); ++k)
        if (info.results[k] >= 0 && by.results[k].dim >= 0)
          work.push_back({info.results[k], by.results[k].dim,
                          by.results[k].outer, by.size});
    };
    auto meet = [&](const OpInfo &info, const Factor &by) {
      if (multiplies(info, by))
        fate.products.push_back(by.size);
    };
    // Of an operation that cuts and multiplies at once, as Attention does.
    meet(op, factor);
    follow(op, factor);
    while (!work.empty()) {
      Part part = work.back();
      work.pop_back();
      if (!seen.insert(part).second)
        continue;
      for (auto [user, k] : users[part.tensor]) {
        const OpInfo &info = problem.ops[user];
        bool kept = false;
        for (const Factor &next : info.rule.factors) {
          const DimRef &ref = next.operands[k];
          if (next.lookup || ref.dim != part.dim ||
              std::max(ref.outer, part.outer) >=
                  std::min(ref.outer * next.size, part.outer * part.size))
            continue;
          kept = true;
          meet(info, next);
          follow(info, next);
        }
        if (!kept && !info.rule.factors.empty() && shrinks(info, k))
          fate.picked = true;
      }
    }
    return fate;
  }

  std::vector<Cut> cuts() {
    std::vector<Cut> found;
    for (size_t op = 0; op < problem.ops.size(); ++op) {
      const OpInfo &info = problem.ops[op];
      for (size_t k = 0; k < info.operands.size(); ++k) {
        int32_t tensor = info.operands[k];
        if (tensor < 0 || problem.tensors[tensor].kind != TensorKind::Value)
          continue;
        std::map<int32_t, std::vector<int64_t>> blocks;
        std::map<int32_t, bool> ofWeight;
        std::map<int32_t, std::vector<int64_t>> products;
        for (const Factor &factor : info.rule.factors) {
          DimRef ref = factor.operands[k];
          if (ref.dim < 0 || factor.size < 2)
            continue;
          if (ref.outer * factor.size >= problem.tensors[tensor].shape[ref.dim])
            continue;
          blocks[ref.dim].push_back(factor.size);
          if (!fromWeight({tensor, ref.dim, ref.outer, factor.size}))
            continue;
          Fate fate = fateOf(info, factor);
          if (fate.products.empty() || fate.picked)
            continue;
          ofWeight[ref.dim] = true;
          products[ref.dim].insert(products[ref.dim].end(),
                                   fate.products.begin(), fate.products.end());
        }
        for (auto &[dim, sizes] : blocks) {
          if (!ofWeight[dim])
            continue;
          std::ranges::sort(sizes);
          sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
          found.push_back({op, k, dim, std::move(sizes), products[dim]});
        }
      }
    }
    return found;
  }

private:
  /// A product that is made for each block of a factor: several operands have
  /// the blocks, and some of them a dimension that the results do not have. (Of
  /// a concatenation the result has it, as long as all together.)
  bool multiplies(const OpInfo &op, const Factor &by) const {
    std::vector<size_t> carriers;
    for (size_t k = 0; k < op.operands.size(); ++k)
      if (op.operands[k] >= 0 && by.operands[k].dim >= 0)
        carriers.push_back(k);
    auto inResults = [](const Factor &factor) {
      return std::ranges::any_of(
          factor.results, [](const DimRef &ref) { return ref.dim >= 0; });
    };
    if (carriers.size() < 2 || !inResults(by))
      return false;
    auto extent = [&](int32_t tensor, size_t dim) {
      const std::vector<int64_t> &shape = problem.tensors[tensor].shape;
      return dim < shape.size() ? shape[dim] : 0;
    };
    for (size_t k : carriers)
      for (size_t dim = 0; dim < problem.tensors[op.operands[k]].shape.size();
           ++dim) {
        if (extent(op.operands[k], dim) < 2 ||
            std::ranges::any_of(op.rule.factors, [&](const Factor &factor) {
              return factor.operands[k].dim == static_cast<int32_t>(dim) &&
                     inResults(factor);
            }))
          continue;
        int64_t together = 0;
        for (size_t other : carriers)
          together += extent(op.operands[other], dim);
        if (op.results.size() != 1 || extent(op.results[0], dim) != together)
          return true;
      }
    return false;
  }

  bool shrinks(const OpInfo &op, size_t operand) const {
    const auto count = [&](int32_t tensor) {
      int64_t product = 1;
      for (int64_t extent : problem.tensors[tensor].shape)
        product *= extent;
      return product;
    };
    return std::ranges::all_of(op.results, [&](int32_t result) {
      return result < 0 || count(result) < count(op.operands[operand]);
    });
  }

  const Problem &problem;
  std::vector<int32_t> producer;
  std::vector<std::vector<std::pair<size_t, size_t>>> users;
};

bool dividesOne(int64_t ranks, const std::vector<int64_t> &sizes) {
  return std::ranges::any_of(sizes,
                             [&](int64_t size) { return size % ranks == 0; });
}

/// Ranks divide the blocks; or the products that are made of them, each block
/// being there on every rank that needs it (heads of keys and values).
bool suits(int64_t ranks, const Cut &cut) {
  return dividesOne(ranks, cut.blocks) ||
         std::ranges::all_of(
             cut.products, [&](int64_t blocks) { return blocks % ranks == 0; });
}

template <typename Predicate>
std::vector<int64_t> divisorsOf(Predicate predicate) {
  std::vector<int64_t> divisors;
  for (int64_t ranks = 1; ranks <= maxAxis; ++ranks)
    if (predicate(ranks))
      divisors.push_back(ranks);
  return divisors;
}

std::string orList(const std::vector<int64_t> &values) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0)
      text += i + 1 == values.size() ? " or " : ", ";
    text += std::to_string(values[i]);
  }
  return text;
}

} // namespace

std::optional<Refusal> checkMesh(const Problem &problem,
                                 const std::string &axis) {
  detail::checkProblem(problem);
  if (problem.ranks <= 1 || !problem.splitWeights)
    return std::nullopt;
  std::vector<Cut> cuts = Tracer(problem).cuts();
  auto bad = std::ranges::find_if(
      cuts, [&](const Cut &cut) { return !suits(problem.ranks, cut); });
  if (bad == cuts.end())
    return std::nullopt;

  Refusal refusal;
  refusal.op = static_cast<int32_t>(bad->op);
  refusal.tensor = problem.ops[bad->op].operands[bad->operand];
  refusal.size = bad->blocks.back();
  refusal.allowed = divisorsOf([&](int64_t ranks) {
    return std::ranges::all_of(
        cuts, [&](const Cut &cut) { return suits(ranks, cut); });
  });
  refusal.message = "mesh axis " + axis + "=" + std::to_string(problem.ranks) +
                    " does not divide the " + std::to_string(refusal.size) +
                    " heads of node " + problem.ops[bad->op].name + "; use " +
                    orList(refusal.allowed);
  return refusal;
}

std::vector<DivisorEntry> divisorsReport(const Problem &problem) {
  detail::checkProblem(problem);
  std::vector<DivisorEntry> report;
  for (const Cut &cut : Tracer(problem).cuts())
    report.push_back(
        {static_cast<int32_t>(cut.op),
         problem.ops[cut.op].operands[cut.operand], cut.blocks,
         divisorsOf([&](int64_t ranks) { return suits(ranks, cut); })});
  std::map<int32_t, std::set<int64_t>> weights;
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (detail::isMatrix(problem, problem.tensors[t]))
      weights[static_cast<int32_t>(t)];
  for (const OpInfo &op : problem.ops)
    for (size_t k = 0; k < op.operands.size(); ++k)
      if (auto it = weights.find(op.operands[k]); it != weights.end())
        for (const Factor &factor : op.rule.factors)
          if (factor.operands[k].dim >= 0)
            it->second.insert(factor.size);
  for (const auto &[tensor, sizes] : weights) {
    std::vector<int64_t> list(sizes.begin(), sizes.end());
    report.push_back({-1, tensor, list, divisorsOf([&](int64_t ranks) {
                        return dividesOne(ranks, list);
                      })});
  }
  return report;
}

} // namespace concord::sharding

//===- Verify.cpp - Check a solution against its problem ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks a solution the way the partitioning pass does, op by op with the set of
// available layouts per tensor, and checks each choice against its rule. Shares
// no search code with the solver, so that an error in the one does not hide in
// the other.
//
//===----------------------------------------------------------------------===//

#include "Model.h"

#include <algorithm>
#include <cmath>

namespace concord::sharding {

namespace {

using Available = std::vector<std::vector<Layout>>;

bool contains(const std::vector<Layout> &set, const Layout &layout) {
  return std::ranges::find(set, layout) != set.end();
}

class Verifier {
public:
  Verifier(const Problem &problem, const Solution &solution)
      : problem(problem), solution(solution),
        available(problem.tensors.size()) {}

  std::optional<std::string> run(bool checkTotals);

private:
  std::string tensorLabel(int32_t tensor) const {
    return "tensor " + std::to_string(tensor);
  }
  std::optional<std::string> sources();
  std::optional<std::string> steps(const std::vector<Reshard> &list);
  std::optional<std::string> execute(size_t op);
  std::optional<std::string> outputs();
  std::optional<std::string> totals() const;

  const Problem &problem;
  const Solution &solution;
  Available available;
  int64_t time = 0;
  int64_t objective = 0;
};

std::optional<std::string> Verifier::sources() {
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const TensorInfo &info = problem.tensors[t];
    const std::vector<Layout> &stored = solution.sources[t];
    std::string label = tensorLabel(static_cast<int32_t>(t));
    if (info.kind == TensorKind::Value) {
      if (!stored.empty())
        return label + ": a value is not stored";
      continue;
    }
    if (stored.empty() || (info.kind == TensorKind::Input && stored.size() > 1))
      return label + ": stored in " + std::to_string(stored.size()) +
             " layouts";
    for (const Layout &layout : stored) {
      bool vector =
          info.kind == TensorKind::Constant ||
          (info.kind == TensorKind::Weight && !detail::isMatrix(problem, info));
      if (layout.kind == Layout::Partial && !(problem.partialWeights && vector))
        return label + ": may not be stored partial";
      if (layout.kind == Layout::Split &&
          (!canSplit(info.shape, layout.dim, problem.ranks) ||
           (info.kind == TensorKind::Input && info.mustReplicate) ||
           (info.kind == TensorKind::Weight && !problem.splitWeights &&
            !info.fixed)))
        return label + ": may not be stored as " + toString(layout);
      if (info.fixed && layout != info.fixedLayout)
        return label + ": not stored in its fixed layout";
    }
    available[t] = stored;
  }
  return std::nullopt;
}

std::optional<std::string> Verifier::steps(const std::vector<Reshard> &list) {
  for (const auto &[tensor, step] : list) {
    if (tensor < 0 || tensor >= static_cast<int32_t>(problem.tensors.size()))
      return "a step on no tensor";
    std::string label = tensorLabel(tensor) + ": " + toString(step.kind) + " " +
                        toString(step.from) + " -> " + toString(step.to);
    auto plan = planReshard(step.from, step.to, problem.tensors[tensor].shape,
                            problem.ranks, problem.mayExchange(tensor));
    if (!plan || plan->size() != 1 || plan->front() != step)
      return label + " is no primitive step";
    if (!contains(available[tensor], step.from))
      return label + ": what it starts from is not available";
    if (contains(available[tensor], step.to))
      return label + ": is available already";
    available[tensor].push_back(step.to);
    double bytes =
        static_cast<double>(detail::wholeBytes(problem.tensors[tensor]));
    time += stepPicoseconds(step.kind, bytes, problem.ranks, problem.cost);
    objective += stepObjective(step.kind, bytes, problem.ranks, problem.cost);
  }
  return std::nullopt;
}

std::optional<std::string> Verifier::execute(size_t op) {
  const OpInfo &info = problem.ops[op];
  const OpChoice &choice = solution.ops[op];
  std::vector<Layout> operands(info.operands.size());
  std::vector<Layout> results(info.results.size());
  if (choice.operands.size() != operands.size() ||
      choice.results.size() != results.size())
    return "wrong number of layouts";
  if (choice.factor >= 0 && choice.linear >= 0)
    return "both a factor and a linear set";
  if (choice.factor >= 0) {
    if (static_cast<size_t>(choice.factor) >= info.rule.factors.size())
      return "no such factor";
    const Factor &factor = info.rule.factors[choice.factor];
    if (choice.refine < 1 || factor.size % choice.refine != 0 ||
        (factor.size / choice.refine) % problem.ranks != 0 ||
        (factor.lookup && choice.refine != 1))
      return "the factor does not divide";
    for (size_t k = 0; k < operands.size(); ++k)
      if (factor.operands[k].dim >= 0)
        operands[k] = Layout::split(factor.operands[k].dim,
                                    factor.operands[k].outer * choice.refine);
    for (int32_t k : factor.addends)
      operands[k] = Layout::partial();
    for (size_t k = 0; k < results.size(); ++k) {
      if (factor.reduction != Reduction::None)
        results[k] = Layout::partial(factor.reduction);
      else if (factor.results[k].dim >= 0)
        results[k] = Layout::split(factor.results[k].dim,
                                   factor.results[k].outer * choice.refine);
      else if (info.results[k] >= 0)
        return "a result neither carries the factor nor is reduced over it";
    }
  } else if (choice.linear >= 0) {
    if (static_cast<size_t>(choice.linear) >= info.rule.linear.size())
      return "no such linear set";
    for (int32_t k : info.rule.linear[choice.linear])
      operands[k] = Layout::partial();
    std::ranges::fill(results, Layout::partial());
  }
  for (size_t k = 0; k < operands.size(); ++k) {
    if (info.operands[k] < 0)
      continue;
    if (choice.operands[k] != operands[k])
      return "operand " + std::to_string(k) + " is consumed as " +
             toString(choice.operands[k]) + ", its rule says " +
             toString(operands[k]);
    if (!contains(available[info.operands[k]], operands[k]))
      return "operand " + std::to_string(k) + " is not available as " +
             toString(operands[k]);
  }
  for (size_t k = 0; k < results.size(); ++k) {
    if (info.results[k] < 0)
      continue;
    if (choice.results[k] != results[k])
      return "result " + std::to_string(k) + " is produced as " +
             toString(choice.results[k]) + ", its rule says " +
             toString(results[k]);
    available[info.results[k]] = {results[k]};
  }
  int64_t spent = detail::opPicoseconds(problem, info, detail::wayOf(choice));
  time += spent;
  objective += spent;
  if (auto error = steps(choice.after))
    return error;
  for (int32_t tensor : info.results) {
    if (tensor < 0 || !problem.tensors[tensor].fixed)
      continue;
    if (!contains(available[tensor], problem.tensors[tensor].fixedLayout))
      return tensorLabel(tensor) + ": not brought to its fixed layout";
    available[tensor] = {problem.tensors[tensor].fixedLayout};
  }
  return std::nullopt;
}

std::optional<std::string> Verifier::outputs() {
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const TensorInfo &info = problem.tensors[t];
    if (!info.isOutput)
      continue;
    const Layout &layout = solution.outputs[t];
    bool fits = layout.kind == Layout::Replicated ||
                (layout.kind == Layout::Split && layout.dim.outer == 1 &&
                 !info.mustReplicate);
    if (!fits || (info.fixed && layout != info.fixedLayout))
      return tensorLabel(static_cast<int32_t>(t)) + ": leaves the model as " +
             toString(layout);
    if (!contains(available[t], layout))
      return tensorLabel(static_cast<int32_t>(t)) +
             ": the layout it leaves in is not available";
  }
  return std::nullopt;
}

std::optional<std::string> Verifier::totals() const {
  std::vector<bool> used(problem.tensors.size());
  for (const OpInfo &op : problem.ops)
    for (int32_t tensor : op.operands)
      if (tensor >= 0)
        used[tensor] = true;
  int64_t excess = 0;
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const TensorInfo &info = problem.tensors[t];
    if (!problem.splitWeights || info.fixed || !used[t] ||
        !detail::isMatrix(problem, info))
      continue;
    int64_t whole = detail::wholeBytes(info);
    excess -= whole / problem.ranks;
    for (const Layout &layout : solution.sources[t])
      excess += layout.kind == Layout::Split ? whole / problem.ranks : whole;
  }
  if (excess != solution.excessBytes)
    return "excess weight bytes are " + std::to_string(excess) + ", not " +
           std::to_string(solution.excessBytes);
  if (std::abs(static_cast<double>(time) * 1e-12 - solution.seconds) > 1e-12)
    return "predicted time is " + std::to_string(time) + " ps, not " +
           std::to_string(solution.seconds * 1e12);
  if (objective != solution.objective)
    return "the objective is " + std::to_string(objective) + ", not " +
           std::to_string(solution.objective);
  return std::nullopt;
}

std::optional<std::string> Verifier::run(bool checkTotals) {
  if (solution.ops.size() != problem.ops.size() ||
      solution.sources.size() != problem.tensors.size() ||
      solution.outputs.size() != problem.tensors.size())
    return "sizes differ from the problem's";
  if (auto error = sources())
    return error;
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    auto error = steps(solution.ops[op].before);
    if (!error)
      error = execute(op);
    if (error)
      return detail::opLabel(problem, op) + ": " + *error;
  }
  if (auto error = steps(solution.finish))
    return error;
  if (auto error = outputs())
    return error;
  return checkTotals ? totals() : std::nullopt;
}

} // namespace

std::optional<std::string> verify(const Problem &problem,
                                  const Solution &solution, bool totals) {
  detail::checkProblem(problem);
  return Verifier(problem, solution).run(totals);
}

int64_t storedWeightBytes(const Problem &problem, const Solution &solution) {
  int64_t bytes = 0;
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    if (problem.tensors[t].kind != TensorKind::Weight)
      continue;
    int64_t whole = detail::wholeBytes(problem.tensors[t]);
    for (const Layout &layout : solution.sources[t])
      bytes += layout.kind == Layout::Split ? whole / problem.ranks : whole;
  }
  return bytes;
}

} // namespace concord::sharding

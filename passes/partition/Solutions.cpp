//===- Solutions.cpp - Sharding solutions as numbers ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One description of the structure serves writing and reading.
//
//===----------------------------------------------------------------------===//

#include "partition/Solutions.h"

#include <type_traits>

using namespace concord;
using namespace concord::sharding;

namespace {

class Writer {
public:
  std::vector<int64_t> numbers;
  bool good = true;
  template <typename T> void number(T &value) {
    numbers.push_back(static_cast<int64_t>(value));
  }
  template <typename T> void resize(std::vector<T> &list) {
    numbers.push_back(static_cast<int64_t>(list.size()));
  }
};

class Reader {
public:
  explicit Reader(std::span<const int64_t> numbers) : numbers(numbers) {}
  std::span<const int64_t> numbers;
  size_t at = 0;
  bool good = true;
  template <typename T> void number(T &value) {
    int64_t next = take();
    if constexpr (!std::is_same_v<T, int64_t>)
      good &= next >= -(int64_t(1) << 31) && next < int64_t(1) << 31;
    value = static_cast<T>(next);
  }
  template <typename T> void resize(std::vector<T> &list) {
    int64_t size = take();
    good &= size >= 0 && static_cast<size_t>(size) <= numbers.size();
    list.resize(good ? static_cast<size_t>(size) : 0);
  }

private:
  int64_t take() {
    good &= at < numbers.size();
    return good ? numbers[at++] : 0;
  }
};

/// Visits the numbers of a solution to change counts of blocks.
class Blocks {
public:
  Blocks(std::span<const int64_t> from, std::span<const int64_t> to,
         int64_t divisor)
      : from(from), to(to), divisor(divisor) {}
  template <typename T> void number(T &) {}
  template <typename T> void resize(std::vector<T> &) {}
  void blocks(int64_t &count) const {
    for (size_t i = 0; i < from.size() && i < to.size(); ++i)
      for (int64_t cut : {int64_t(1), divisor}) {
        if (from[i] % cut != 0 || to[i] % cut != 0 || from[i] / cut < 2 ||
            count % (from[i] / cut) != 0)
          continue;
        count = count / (from[i] / cut) * (to[i] / cut);
        break;
      }
  }

private:
  std::span<const int64_t> from, to;
  int64_t divisor;
};

template <typename A> void blocks(A &archive, int64_t &count) {
  if constexpr (requires { archive.blocks(count); })
    archive.blocks(count);
  else
    archive.number(count);
}

template <typename A> void visit(A &archive, Layout &layout) {
  archive.number(layout.kind);
  archive.number(layout.dim.dim);
  blocks(archive, layout.dim.outer);
  archive.number(layout.reduction);
}

template <typename A> void visit(A &archive, Reshard &reshard) {
  archive.number(reshard.tensor);
  archive.number(reshard.step.kind);
  visit(archive, reshard.step.from);
  visit(archive, reshard.step.to);
}

template <typename A, typename T> void visit(A &archive, std::vector<T> &list) {
  archive.resize(list);
  for (T &each : list)
    visit(archive, each);
}

template <typename A> void visit(A &archive, OpChoice &choice) {
  archive.number(choice.factor);
  archive.number(choice.linear);
  blocks(archive, choice.refine);
  visit(archive, choice.operands);
  visit(archive, choice.results);
  visit(archive, choice.before);
  visit(archive, choice.after);
}

template <typename A> void visit(A &archive, Solution &solution) {
  visit(archive, solution.ops);
  visit(archive, solution.sources);
  visit(archive, solution.outputs);
  visit(archive, solution.finish);
}

/// Whether a solution speaks of the problem's operations and tensors, and cuts
/// them into equal parts.
bool fits(const Solution &solution, const Problem &problem) {
  auto layout = [&](int32_t tensor, const Layout &layout) {
    if (tensor < 0)
      return true;
    return static_cast<size_t>(tensor) < problem.tensors.size() &&
           (layout.kind != Layout::Split ||
            canSplit(problem.tensors[tensor].shape, layout.dim, problem.ranks));
  };
  auto reshards = [&](const std::vector<Reshard> &list) {
    for (const Reshard &each : list)
      if (each.tensor < 0 || !layout(each.tensor, each.step.from) ||
          !layout(each.tensor, each.step.to))
        return false;
    return true;
  };
  if (solution.ops.size() != problem.ops.size() ||
      solution.sources.size() != problem.tensors.size() ||
      solution.outputs.size() != problem.tensors.size() ||
      !reshards(solution.finish))
    return false;
  for (size_t i = 0; i < solution.ops.size(); ++i) {
    const OpChoice &choice = solution.ops[i];
    const OpInfo &op = problem.ops[i];
    if (choice.operands.size() != op.operands.size() ||
        choice.results.size() != op.results.size() ||
        choice.factor >= static_cast<int32_t>(op.rule.factors.size()) ||
        choice.linear >= static_cast<int32_t>(op.rule.linear.size()) ||
        !reshards(choice.before) || !reshards(choice.after))
      return false;
    for (size_t k = 0; k < op.operands.size(); ++k)
      if (!layout(op.operands[k], choice.operands[k]))
        return false;
    for (size_t k = 0; k < op.results.size(); ++k)
      if (!layout(op.results[k], choice.results[k]))
        return false;
  }
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    if (problem.tensors[t].kind != TensorKind::Value &&
        solution.sources[t].empty())
      return false;
    for (const Layout &each : solution.sources[t])
      if (!layout(static_cast<int32_t>(t), each))
        return false;
  }
  return true;
}

} // namespace

bool concord::partition::solves(const Solution &solution,
                                const Problem &problem) {
  return fits(solution, problem) &&
         !verify(problem, solution, /*totals=*/false);
}

std::vector<int64_t>
concord::partition::encodeSolution(const Solution &solution) {
  Writer writer;
  Solution copy = solution;
  visit(writer, copy);
  return std::move(writer.numbers);
}

Solution concord::partition::atOtherSizes(Solution solution,
                                          std::span<const int64_t> from,
                                          std::span<const int64_t> to,
                                          int64_t divisor) {
  Blocks archive(from, to, divisor);
  visit(archive, solution);
  return solution;
}

std::optional<Solution>
concord::partition::decodeSolution(std::span<const int64_t> numbers) {
  Reader reader(numbers);
  Solution solution;
  visit(reader, solution);
  if (!reader.good || reader.at != numbers.size())
    return std::nullopt;
  return solution;
}

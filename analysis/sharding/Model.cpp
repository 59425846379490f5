//===- Model.cpp - A problem prepared for the solver ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Validation, the closure of layouts under the rules, and the price tables; see
// Model.h.
//
// Layouts are closed under *refinement*: when one op wants a dimension split in
// a view with more outer blocks than a neighbour's factor has (the three parts
// of a fused QKV projection; batch x sequence merged to one dimension), the
// neighbour's factor is offered in that view too, and so on through the graph
// until nothing new appears.
//
//===----------------------------------------------------------------------===//

#include "Model.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace concord::sharding::detail {

namespace {

/// Splits per tensor that refinement may reach; the rest of maxLayouts is for
/// the whole and the partial layouts.
constexpr size_t maxSplits = 27;
constexpr size_t maxRefinements = 8;

Layout factorLayout(DimRef ref, int64_t refine) {
  return Layout::split(ref.dim, ref.outer * refine);
}

[[noreturn]] void fail(const Problem &problem, size_t op,
                       const std::string &what) {
  throw std::invalid_argument(opLabel(problem, op) + ": " + what);
}

void checkRef(const Problem &problem, size_t op, size_t factorIndex,
              int32_t tensor, DimRef ref) {
  const Factor &factor = problem.ops[op].rule.factors[factorIndex];
  if (tensor < 0 || ref.dim < 0)
    return;
  const std::vector<int64_t> &shape = problem.tensors[tensor].shape;
  std::string label = "sharding rule, factor " + std::to_string(factorIndex);
  if (static_cast<size_t>(ref.dim) >= shape.size())
    fail(problem, op,
         label + ": dimension " + std::to_string(ref.dim) +
             " of a tensor of rank " + std::to_string(shape.size()));
  int64_t size = shape[ref.dim];
  if (ref.outer < 1 || size % ref.outer != 0 ||
      (size / ref.outer) % factor.size != 0)
    fail(problem, op,
         label + " of size " + std::to_string(factor.size) + " with " +
             std::to_string(ref.outer) +
             " outer blocks does not fit dimension " + std::to_string(ref.dim) +
             " of size " + std::to_string(size));
}

void checkOp(const Problem &problem, size_t index,
             std::vector<int32_t> &producer) {
  const OpInfo &op = problem.ops[index];
  auto inRange = [&](int32_t tensor) {
    if (tensor < -1 || tensor >= static_cast<int32_t>(problem.tensors.size()))
      fail(problem, index, "tensor index out of range");
    return tensor >= 0;
  };
  for (int32_t tensor : op.operands)
    if (inRange(tensor) && problem.tensors[tensor].kind == TensorKind::Value &&
        producer[tensor] < 0)
      fail(problem, index, "an operand is not produced by an earlier op");
  for (int32_t tensor : op.results) {
    if (!inRange(tensor))
      continue;
    if (problem.tensors[tensor].kind != TensorKind::Value)
      fail(problem, index, "a result is not a Value");
    if (producer[tensor] >= 0)
      fail(problem, index, "a result is produced twice");
    producer[tensor] = static_cast<int32_t>(index);
  }
  for (size_t f = 0; f < op.rule.factors.size(); ++f) {
    const Factor &factor = op.rule.factors[f];
    if (factor.size < 1 || factor.operands.size() != op.operands.size() ||
        factor.results.size() != op.results.size())
      fail(problem, index,
           "sharding rule, factor " + std::to_string(f) +
               ": needs a size, and one entry per operand and result");
    for (size_t k = 0; k < op.operands.size(); ++k)
      checkRef(problem, index, f, op.operands[k], factor.operands[k]);
    for (size_t k = 0; k < op.results.size(); ++k)
      checkRef(problem, index, f, op.results[k], factor.results[k]);
    for (int32_t addend : factor.addends)
      if (addend < 0 || addend >= static_cast<int32_t>(op.operands.size()) ||
          factor.operands[addend].dim >= 0 ||
          factor.reduction != Reduction::Sum)
        fail(problem, index,
             "sharding rule, factor " + std::to_string(f) +
                 ": an addend must be an unsplit operand of a factor reduced "
                 "by sum");
  }
  for (const LinearSet &set : op.rule.linear)
    for (int32_t operand : set)
      if (operand < 0 || operand >= static_cast<int32_t>(op.operands.size()))
        fail(problem, index, "linear set: operand out of range");
}

} // namespace

std::string opLabel(const Problem &problem, size_t op) {
  return "op " + std::to_string(op) + " '" + problem.ops[op].name + "'";
}

int64_t wholeBytes(const TensorInfo &tensor) {
  int64_t bytes = std::max<int64_t>(tensor.elementBytes, 0);
  for (int64_t size : tensor.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > (1LL << 50))
      return 1LL << 50;
  return bytes;
}

bool isMatrix(const Problem &problem, const TensorInfo &tensor) {
  return tensor.kind == TensorKind::Weight &&
         wholeBytes(tensor) > problem.smallWeightBytes &&
         std::ranges::count_if(tensor.shape,
                               [](int64_t size) { return size > 1; }) >= 2;
}

int64_t opPicoseconds(const Problem &problem, const OpInfo &op, Way way) {
  const CostModel &cost = problem.cost;
  double ranks = static_cast<double>(problem.ranks);
  double compute = op.flops / cost.flopsPerSecond;
  double memory = op.bytes / cost.bytesPerSecond;
  if (way == Way::Split)
    compute /= ranks;
  if (way != Way::Whole)
    memory /= ranks;
  return toPicoseconds(std::max(compute, memory) + cost.opSeconds);
}

void checkProblem(const Problem &problem) {
  if (problem.ranks < 1)
    throw std::invalid_argument("an axis needs at least one rank");
  if (problem.tensors.size() > INT32_MAX || problem.ops.size() > INT32_MAX)
    throw std::invalid_argument("too many tensors or operations");
  std::vector<int32_t> producer(problem.tensors.size(), -1);
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const TensorInfo &tensor = problem.tensors[t];
    std::string label = "tensor " + std::to_string(t);
    for (int64_t size : tensor.shape)
      if (size < 0)
        throw std::invalid_argument(label + ": negative dimension; bind "
                                            "symbolic dimensions first");
    if (!tensor.fixed)
      continue;
    if (tensor.fixedLayout.kind == Layout::Split &&
        !canSplit(tensor.shape, tensor.fixedLayout.dim, problem.ranks))
      throw std::invalid_argument(
          label + ": its fixed layout " + toString(tensor.fixedLayout) +
          " does not divide over " + std::to_string(problem.ranks) + " ranks");
    bool source = tensor.kind != TensorKind::Value;
    if (tensor.fixedLayout.kind == Layout::Partial &&
        (source || tensor.isOutput))
      throw std::invalid_argument(
          label + ": only a value inside the model can be fixed as partial");
    if (tensor.isOutput && (tensor.fixedLayout.dim.outer != 1 ||
                            (tensor.mustReplicate &&
                             tensor.fixedLayout.kind != Layout::Replicated)))
      throw std::invalid_argument(label + ": its fixed layout " +
                                  toString(tensor.fixedLayout) +
                                  " is not one an output can have");
  }
  for (size_t op = 0; op < problem.ops.size(); ++op)
    checkOp(problem, op, producer);
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].isOutput &&
        problem.tensors[t].kind == TensorKind::Value && producer[t] < 0)
      throw std::invalid_argument("tensor " + std::to_string(t) +
                                  ": an output that no op produces");
}

int32_t TensorModel::find(const Layout &layout) const {
  auto it = std::ranges::find(layouts, layout);
  return it == layouts.end() ? -1 : static_cast<int32_t>(it - layouts.begin());
}

int32_t TensorModel::add(const Layout &layout) {
  if (int32_t id = find(layout); id >= 0)
    return id;
  if (layouts.size() >= maxLayouts)
    return -1;
  layouts.push_back(layout);
  return static_cast<int32_t>(layouts.size()) - 1;
}

std::pair<int64_t, int32_t> TensorModel::reach(Mask from, int32_t want) const {
  int64_t best = impossible;
  int32_t source = -1;
  for (Mask rest = from; rest; rest &= rest - 1) {
    int32_t id = std::countr_zero(rest);
    int64_t cost = path[id * layouts.size() + want];
    if (cost < best) {
      best = cost;
      source = id;
    }
  }
  return {best, source};
}

Model::Model(const Problem &problem) : problem(problem) {
  checkProblem(problem);
  describeTensors();
  collectLayouts();
  priceLayouts();
  buildOptions();
  assignSlots();
}

void Model::describeTensors() {
  tensors.resize(problem.tensors.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    const TensorInfo &info = problem.tensors[t];
    tensors[t].layouts.push_back(Layout::replicated());
    tensors[t].bytes = wholeBytes(info);
    tensors[t].later = info.kind == TensorKind::Value;
  }
  for (const OpInfo &op : problem.ops)
    for (int32_t tensor : op.operands)
      if (tensor >= 0)
        ++tensors[tensor].uses;

  for (size_t t = 0; t < tensors.size(); ++t) {
    const TensorInfo &info = problem.tensors[t];
    TensorModel &model = tensors[t];
    bool whole = info.mustReplicate && info.kind == TensorKind::Input;
    bool wholeWeight = info.kind == TensorKind::Weight && !problem.splitWeights;
    if (info.fixed)
      model.fixedId = model.add(info.fixedLayout);
    else if (whole || wholeWeight)
      model.fixedId = 0;
    bool priced = problem.splitWeights && isMatrix(problem, info);
    if (model.later || model.fixedId >= 0) {
      model.role = Role::Value;
    } else if (info.kind == TensorKind::Input) {
      model.role = Role::Stored;
    } else {
      model.matrix = priced;
      bool shared = model.uses + (info.isOutput ? 1 : 0) > 1;
      model.role = priced && shared ? Role::Stored : Role::Free;
    }
  }
}

bool Model::refineFactor(size_t op, size_t factorIndex, int64_t refine) {
  const OpInfo &info = problem.ops[op];
  const Factor &factor = info.rule.factors[factorIndex];
  std::vector<int64_t> &known = refinements[op][factorIndex];
  if (std::ranges::find(known, refine) != known.end() ||
      factor.size % refine != 0 || (factor.size / refine) % problem.ranks != 0)
    return false;
  if (refine != 1 && (factor.lookup || known.size() >= maxRefinements))
    return false;
  auto visit = [&](auto &&each) {
    for (size_t k = 0; k < info.operands.size(); ++k)
      if (info.operands[k] >= 0 && factor.operands[k].dim >= 0)
        if (!each(info.operands[k], factor.operands[k]))
          return false;
    for (size_t k = 0; k < info.results.size(); ++k)
      if (info.results[k] >= 0 && factor.results[k].dim >= 0)
        if (!each(info.results[k], factor.results[k]))
          return false;
    return true;
  };
  bool fits = visit([&](int32_t tensor, DimRef ref) {
    const TensorModel &model = tensors[tensor];
    return model.find(factorLayout(ref, refine)) >= 0 ||
           model.size() < maxSplits;
  });
  if (!fits)
    return false;
  visit([&](int32_t tensor, DimRef ref) {
    tensors[tensor].add(factorLayout(ref, refine));
    return true;
  });
  known.push_back(refine);
  return true;
}

void Model::collectLayouts() {
  refinements.resize(problem.ops.size());
  for (size_t op = 0; op < problem.ops.size(); ++op)
    refinements[op].resize(problem.ops[op].rule.factors.size());
  for (size_t op = 0; problem.ranks > 1 && op < problem.ops.size(); ++op) {
    const OpInfo &info = problem.ops[op];
    for (size_t f = 0; f < info.rule.factors.size(); ++f) {
      const Factor &factor = info.rule.factors[f];
      // A result that neither carries the factor nor is reduced over it would
      // be computed from a part of the data: such a rule cannot be used.
      bool sound = true;
      for (size_t k = 0; k < info.results.size(); ++k)
        sound &= info.results[k] < 0 || factor.results[k].dim >= 0 ||
                 factor.reduction != Reduction::None;
      if (sound)
        refineFactor(op, f, 1);
    }
  }

  // Sweep both ways until no factor gains a view. The views of a dimension form
  // chains of divisors, so this ends; the bound is for hostile input.
  auto sweep = [&](size_t op) {
    const OpInfo &info = problem.ops[op];
    bool changed = false;
    for (size_t f = 0; f < info.rule.factors.size(); ++f) {
      const Factor &factor = info.rule.factors[f];
      if (refinements[op][f].empty())
        continue;
      auto match = [&](int32_t tensor, DimRef ref) {
        if (tensor < 0 || ref.dim < 0)
          return;
        for (size_t id = 1; id < tensors[tensor].size(); ++id) {
          Layout layout = tensors[tensor].layouts[id];
          if (layout.kind == Layout::Split && layout.dim.dim == ref.dim &&
              layout.dim.outer > ref.outer && layout.dim.outer % ref.outer == 0)
            changed |= refineFactor(op, f, layout.dim.outer / ref.outer);
        }
      };
      for (size_t k = 0; k < info.results.size(); ++k)
        match(info.results[k], factor.results[k]);
      for (size_t k = 0; k < info.operands.size(); ++k)
        match(info.operands[k], factor.operands[k]);
    }
    return changed;
  };
  bool changed = true;
  for (int round = 0; changed && round < 64; ++round) {
    changed = false;
    for (size_t op = problem.ops.size(); op-- > 0;)
      changed |= sweep(op);
    for (size_t op = 0; op < problem.ops.size(); ++op)
      changed |= sweep(op);
  }

  // Partial layouts flow forward only: nothing whole becomes partial.
  auto mayBePartial = [&](int32_t tensor) {
    const TensorModel &model = tensors[tensor];
    if (model.role == Role::Value)
      return model.find(Layout::partial()) >= 0;
    return problem.partialWeights && model.role == Role::Free && !model.matrix;
  };
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    const OpInfo &info = problem.ops[op];
    auto produce = [&](Reduction reduction) {
      for (int32_t tensor : info.results)
        if (tensor >= 0)
          tensors[tensor].add(Layout::partial(reduction));
    };
    for (size_t f = 0; f < info.rule.factors.size(); ++f) {
      const Factor &factor = info.rule.factors[f];
      bool usable =
          !refinements[op][f].empty() && factor.reduction != Reduction::None;
      for (int32_t addend : factor.addends)
        usable = usable && (info.operands[addend] < 0 ||
                            mayBePartial(info.operands[addend]));
      if (!usable)
        continue;
      for (int32_t addend : factor.addends)
        if (info.operands[addend] >= 0)
          tensors[info.operands[addend]].add(Layout::partial());
      produce(factor.reduction);
    }
    for (const LinearSet &set : info.rule.linear) {
      bool usable = !set.empty();
      bool anyValue = false;
      for (int32_t k : set) {
        int32_t tensor = info.operands[k];
        usable = usable && tensor >= 0 && mayBePartial(tensor);
        anyValue |= usable && tensors[tensor].role == Role::Value;
      }
      if (!usable || !anyValue)
        continue;
      for (int32_t k : set)
        tensors[info.operands[k]].add(Layout::partial());
      produce(Reduction::Sum);
    }
  }

  for (size_t t = 0; t < tensors.size(); ++t) {
    const TensorInfo &info = problem.tensors[t];
    TensorModel &model = tensors[t];
    if (!info.isOutput || model.role != Role::Value)
      continue;
    // A partial output can leave by a reduce-scatter, at half the price of an
    // all-reduce, if some dimension divides.
    bool partial = std::ranges::any_of(model.layouts, [](const Layout &layout) {
      return layout.kind == Layout::Partial;
    });
    for (size_t dim = 0; partial && dim < info.shape.size(); ++dim) {
      Layout layout = Layout::split(static_cast<int32_t>(dim));
      if (!canSplit(info.shape, layout.dim, problem.ranks))
        continue;
      model.add(layout);
      break;
    }
    for (size_t id = 0; id < model.size(); ++id) {
      const Layout &layout = model.layouts[id];
      if (layout.kind == Layout::Replicated ||
          (layout.kind == Layout::Split && layout.dim.outer == 1 &&
           !info.mustReplicate))
        model.outputMask |= Mask(1) << id;
    }
    if (info.fixed)
      model.outputMask = Mask(1) << model.fixedId;
  }
}

void Model::priceLayouts() {
  for (size_t t = 0; t < tensors.size(); ++t) {
    TensorModel &model = tensors[t];
    size_t n = model.size();
    model.path.assign(n * n, impossible);
    model.adds.assign(n * n, 0);
    for (size_t from = 0; from < n; ++from)
      for (size_t to = 0; to < n; ++to) {
        auto steps = planReshard(model.layouts[from], model.layouts[to],
                                 problem.tensors[t].shape, problem.ranks,
                                 problem.mayExchange(static_cast<int32_t>(t)));
        if (!steps)
          continue;
        int64_t time = 0;
        Mask adds = Mask(1) << to;
        for (const Step &step : *steps) {
          time += stepObjective(step.kind, static_cast<double>(model.bytes),
                                problem.ranks, problem.cost);
          adds |= Mask(1) << model.find(step.to);
        }
        model.path[from * n + to] = time;
        model.adds[from * n + to] = adds;
      }
  }
}

void Model::buildOptions() {
  ops.resize(problem.ops.size());
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    const OpInfo &info = problem.ops[op];
    auto finish = [&](Option option) {
      for (size_t k = 0; k < info.operands.size(); ++k) {
        int32_t tensor = info.operands[k];
        if (tensor >= 0 && option.operands[k] == 0 &&
            tensors[tensor].role == Role::Free && tensors[tensor].matrix)
          option.cost.excess +=
              tensors[tensor].bytes - tensors[tensor].bytes / problem.ranks;
      }
      for (size_t k = 0; k < info.results.size(); ++k) {
        if (info.results[k] < 0)
          continue;
        const TensorModel &model = tensors[info.results[k]];
        if (model.fixedId < 0)
          continue;
        int64_t time =
            model.path[option.results[k] * model.size() + model.fixedId];
        if (time == impossible)
          return;
        option.cost.time += time;
      }
      ops[op].options.push_back(std::move(option));
    };
    auto blank = [&](Way way) {
      Option option;
      option.cost.time = opPicoseconds(problem, info, way);
      for (int32_t tensor : info.operands)
        option.operands.push_back(tensor < 0 ? -1 : 0);
      for (int32_t tensor : info.results)
        option.results.push_back(tensor < 0 ? -1 : 0);
      return option;
    };

    finish(blank(Way::Whole));
    for (size_t f = 0; f < info.rule.factors.size(); ++f) {
      const Factor &factor = info.rule.factors[f];
      std::vector<int64_t> &known = refinements[op][f];
      std::ranges::sort(known);
      for (int64_t refine : known) {
        Option option = blank(Way::Split);
        option.factor = static_cast<int32_t>(f);
        option.refine = refine;
        bool usable = true;
        for (size_t k = 0; k < info.operands.size(); ++k)
          if (info.operands[k] >= 0 && factor.operands[k].dim >= 0)
            option.operands[k] = tensors[info.operands[k]].find(
                factorLayout(factor.operands[k], refine));
        for (int32_t k : factor.addends)
          if (info.operands[k] >= 0) {
            option.operands[k] =
                tensors[info.operands[k]].find(Layout::partial());
            usable &= option.operands[k] >= 0;
          }
        for (size_t k = 0; k < info.results.size(); ++k)
          if (info.results[k] >= 0)
            option.results[k] = tensors[info.results[k]].find(
                factor.reduction != Reduction::None
                    ? Layout::partial(factor.reduction)
                    : factorLayout(factor.results[k], refine));
        for (size_t k = 0; k < info.results.size(); ++k)
          usable &= info.results[k] < 0 || option.results[k] >= 0;
        if (usable)
          finish(std::move(option));
      }
    }
    for (size_t l = 0; l < info.rule.linear.size(); ++l) {
      const LinearSet &set = info.rule.linear[l];
      Option option = blank(Way::Linear);
      option.linear = static_cast<int32_t>(l);
      bool usable = !set.empty();
      bool anyValue = false;
      for (int32_t k : set) {
        int32_t tensor = info.operands[k];
        int32_t id = tensor < 0 ? -1 : tensors[tensor].find(Layout::partial());
        usable &= id >= 0;
        anyValue |= id >= 0 && tensors[tensor].role == Role::Value;
        option.operands[k] = id;
      }
      for (size_t k = 0; k < info.results.size(); ++k)
        if (info.results[k] >= 0) {
          option.results[k] = tensors[info.results[k]].find(Layout::partial());
          usable &= option.results[k] >= 0;
        }
      if (usable && anyValue)
        finish(std::move(option));
    }
    if (ops[op].options.empty())
      fail(problem, op,
           "no way to execute it gives its result the fixed layout");
  }
}

void Model::assignSlots() {
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    auto touch = [&](int32_t tensor) {
      if (tensor < 0 || tensors[tensor].role == Role::Free)
        return;
      if (tensors[tensor].first < 0)
        tensors[tensor].first = static_cast<int32_t>(op);
      tensors[tensor].last = static_cast<int32_t>(op);
    };
    std::ranges::for_each(problem.ops[op].operands, touch);
    std::ranges::for_each(problem.ops[op].results, touch);
  }
  std::vector<int32_t> spare;
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    auto begin = [&](int32_t tensor) {
      if (tensor < 0 || tensors[tensor].first != static_cast<int32_t>(op) ||
          tensors[tensor].slot >= 0)
        return;
      if (spare.empty()) {
        tensors[tensor].slot = slots++;
      } else {
        tensors[tensor].slot = spare.back();
        spare.pop_back();
      }
    };
    std::ranges::for_each(problem.ops[op].operands, begin);
    std::ranges::for_each(problem.ops[op].results, begin);
    auto end = [&](int32_t tensor) {
      std::vector<int32_t> &dying = ops[op].dying;
      if (tensor < 0 || tensors[tensor].role == Role::Free ||
          tensors[tensor].last != static_cast<int32_t>(op) ||
          std::ranges::find(dying, tensor) != dying.end())
        return;
      dying.push_back(tensor);
      spare.push_back(tensors[tensor].slot);
    };
    std::ranges::for_each(problem.ops[op].operands, end);
    std::ranges::for_each(problem.ops[op].results, end);
  }
}

Cost Model::storage(int32_t tensor, Mask set) const {
  const TensorModel &model = tensors[tensor];
  Cost cost;
  int64_t count = std::popcount(set);
  if (count == 0)
    return cost;
  bool whole = (set & 1) != 0;
  if (model.matrix) {
    // More parts than ranks would take more room than the whole.
    whole |= count > problem.ranks;
    int64_t part = model.bytes / problem.ranks;
    cost.excess = whole ? model.bytes - part : (count - 1) * part;
  } else {
    // A model input has one layout; what it is not bound in is cut from it.
    whole |= count > 1;
  }
  if (whole)
    for (Mask rest = set & ~Mask(1); rest; rest &= rest - 1)
      cost.time += model.path[std::countr_zero(rest)];
  return cost;
}

} // namespace concord::sharding::detail

//===- Solve.cpp - Choose the layout of every tensor ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The search. Ops are taken in order; a state is one word per live tensor: the
// set of layouts it can be had in without further communication (for values),
// or is stored in (for inputs and shared weights). Two ways that lead to the
// same state are told apart by cost alone, so only the cheaper is kept.
//
// A state S is also dropped when a cheaper state B could make up what it lacks:
// cost(B) + the price of adding to B every layout that only S has <= cost(S).
// Whatever S does next, B can do for no more: prices obey the triangle
// inequality, so paying for a layout when it is needed costs at most what was
// reckoned. This keeps the frontier of a transformer to a few tens of states,
// and the answer exact; the beam only guards against wide graphs.
//
//===----------------------------------------------------------------------===//

#include "Model.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>

namespace concord::sharding {
namespace detail {
namespace {

/// Operands of one op for which the detour over the whole tensor is tried.
constexpr int maxDetours = 3;
/// Cheapest states against which the others are tested for imitation: of those
/// that store shared weights alike, and of the others.
constexpr size_t maxRivals = 24;
constexpr size_t maxStrangers = 4;
/// Ways of storing shared weights that are told apart.
constexpr size_t maxGroups = 16;

struct Back {
  int32_t parent = 0;
  uint16_t option = 0;
  uint16_t detours = 0;
};

/// What a transition does to one Value operand, for the emission.
struct Move {
  int32_t tensor;
  int32_t from;
  int32_t want;
};

/// Hash set of states that keeps the cheapest way to each.
class Frontier {
public:
  void reset(size_t newWidth) {
    width = newWidth;
    rows.clear();
    costs.clear();
    backs.clear();
    table.assign(256, -1);
  }
  size_t size() const { return costs.size(); }
  const Mask *row(size_t i) const { return rows.data() + i * width; }

  void insert(const Mask *state, Cost cost, Back back) {
    if ((size() + 1) * 2 > table.size())
      grow();
    size_t at = hash(state) & (table.size() - 1);
    for (; table[at] >= 0; at = (at + 1) & (table.size() - 1)) {
      size_t i = table[at];
      if (!std::equal(state, state + width, row(i)))
        continue;
      // Between equals the first stays, so that insertion order decides.
      if (cost < costs[i]) {
        costs[i] = cost;
        backs[i] = back;
      }
      return;
    }
    table[at] = static_cast<int32_t>(size());
    rows.insert(rows.end(), state, state + width);
    costs.push_back(cost);
    backs.push_back(back);
  }

  std::vector<Cost> costs;
  std::vector<Back> backs;

private:
  size_t hash(const Mask *state) const {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < width; ++i) {
      h = (h ^ state[i]) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
  void grow() {
    table.assign(table.size() * 2, -1);
    for (size_t i = 0; i < size(); ++i) {
      size_t at = hash(row(i)) & (table.size() - 1);
      while (table[at] >= 0)
        at = (at + 1) & (table.size() - 1);
      table[at] = static_cast<int32_t>(i);
    }
  }

  size_t width = 0;
  std::vector<Mask> rows;
  std::vector<int32_t> table;
};

class Search {
public:
  explicit Search(const Model &model) : model(model) {
    slotTensor.assign(model.slots, -1);
  }

  Solution run();

private:
  /// Executes an op in a state; adds its cost. Returns the number of detours
  /// that were possible (bit i of `detours` takes the i-th), or -1 if the op
  /// cannot be executed so.
  int apply(size_t op, const Option &option, uint32_t detours, Mask *row,
            Cost &cost, std::vector<Move> *moves) const;
  /// Picks the layout in which a value leaves the model.
  std::pair<int64_t, int32_t> leave(int32_t tensor, Mask available) const;
  void expand(size_t op);
  void select();
  /// Whether a state of the frontier can do all that `state` can at no more
  /// than `cost` and `tolerance` picoseconds.
  bool imitates(int32_t rivalState, const Mask *state, Cost cost,
                int64_t tolerance) const;
  void thin(std::vector<std::pair<int32_t, int32_t>> &alive, size_t width);
  /// Numbers the states by how shared weights are stored.
  int32_t groupOf(const Mask *state,
                  std::vector<std::vector<Mask>> &groups) const;
  Solution emit(const std::vector<Back> &path, Cost total) const;
  void storeSources(Solution &solution, std::vector<Mask> &stored) const;
  std::string wholeReason(int32_t tensor) const;
  double predictedSeconds(const Solution &solution) const;
  std::vector<Step> steps(int32_t tensor, int32_t from, int32_t to) const {
    const TensorModel &info = model.tensors[tensor];
    return *planReshard(info.layouts[from], info.layouts[to],
                        model.problem.tensors[tensor].shape,
                        model.problem.ranks, model.problem.mayExchange(tensor));
  }

  const Model &model;
  std::vector<int32_t> slotTensor; ///< which tensor a slot holds now
  std::vector<Mask> rows;          ///< current states, cheapest first
  std::vector<Cost> costs;
  Frontier frontier;
  std::vector<std::vector<Back>> history;
  bool exact = true;
  int64_t tolerance = 0; ///< last one that thin() needed
};

std::pair<int64_t, int32_t> Search::leave(int32_t tensor,
                                          Mask available) const {
  const TensorModel &info = model.tensors[tensor];
  if (Mask ready = available & info.outputMask)
    return {0, std::countr_zero(ready)};
  int64_t best = impossible;
  int32_t layout = -1;
  for (Mask rest = info.outputMask; rest; rest &= rest - 1) {
    int32_t id = std::countr_zero(rest);
    if (int64_t cost = info.reach(available, id).first; cost < best) {
      best = cost;
      layout = id;
    }
  }
  return {best, layout};
}

int Search::apply(size_t op, const Option &option, uint32_t detours, Mask *row,
                  Cost &cost, std::vector<Move> *moves) const {
  const OpInfo &info = model.problem.ops[op];
  int possible = 0;
  cost += option.cost;
  for (size_t k = 0; k < info.operands.size(); ++k) {
    int32_t tensor = info.operands[k];
    if (tensor < 0)
      continue;
    const TensorModel &t = model.tensors[tensor];
    if (t.role == Role::Free)
      continue;
    int32_t want = option.operands[k];
    Mask bit = Mask(1) << want;
    Mask &mask = row[t.slot];
    if (t.role == Role::Stored) {
      if (mask & bit)
        continue;
      Cost before = model.storage(tensor, mask);
      Cost after = model.storage(tensor, mask | bit);
      cost.excess += after.excess - before.excess;
      cost.time += after.time - before.time;
      mask |= bit;
      continue;
    }
    if (mask == 0)
      mask = Mask(1) << t.fixedId;
    if (mask & bit)
      continue;
    auto [price, from] = t.reach(mask, want);
    if (price == impossible)
      return -1;
    Mask adds = t.adds[from * t.size() + want];
    // Making the whole tensor on the way costs more now and less later, which
    // only matters if there is a later.
    bool again = t.last > static_cast<int32_t>(op) ||
                 model.problem.tensors[tensor].isOutput ||
                 std::find(info.operands.begin() + k + 1, info.operands.end(),
                           tensor) != info.operands.end();
    if (again && !((mask | adds) & 1) && possible < maxDetours) {
      auto [toWhole, source] = t.reach(mask, 0);
      if (toWhole != impossible && (detours >> possible++ & 1)) {
        if (moves) {
          moves->push_back({tensor, source, 0});
          moves->push_back({tensor, 0, want});
        }
        cost.time += toWhole + t.path[want];
        mask |= 1 | bit;
        continue;
      }
    }
    if (moves)
      moves->push_back({tensor, from, want});
    cost.time += price;
    mask |= adds;
  }
  for (size_t k = 0; k < info.results.size(); ++k)
    if (int32_t tensor = info.results[k]; tensor >= 0) {
      const TensorModel &t = model.tensors[tensor];
      row[t.slot] = Mask(1) << (t.fixedId >= 0 ? t.fixedId : option.results[k]);
    }
  for (int32_t tensor : model.ops[op].dying) {
    const TensorModel &t = model.tensors[tensor];
    Mask &mask = row[t.slot];
    if (model.problem.tensors[tensor].isOutput) {
      if (t.role == Role::Stored) {
        Cost before = model.storage(tensor, mask);
        Cost after = model.storage(tensor, mask | 1);
        cost.excess += after.excess - before.excess;
        cost.time += after.time - before.time;
      } else {
        int64_t price = leave(tensor, mask).first;
        if (price == impossible)
          return -1;
        cost.time += price;
      }
    }
    mask = 0;
  }
  return possible;
}

void Search::expand(size_t op) {
  frontier.reset(model.slots);
  std::vector<Mask> scratch(model.slots);
  const std::vector<Option> &options = model.ops[op].options;
  for (size_t s = 0; s < costs.size(); ++s)
    for (size_t o = 0; o < options.size(); ++o) {
      int detourCount = 0;
      for (uint32_t bits = 0; bits < 1u << detourCount || bits == 0; ++bits) {
        std::copy_n(rows.data() + s * model.slots, model.slots, scratch.data());
        Cost cost = costs[s];
        int possible =
            apply(op, options[o], bits, scratch.data(), cost, nullptr);
        if (possible < 0)
          break;
        if (bits == 0)
          detourCount = possible;
        frontier.insert(scratch.data(), cost,
                        {static_cast<int32_t>(s), static_cast<uint16_t>(o),
                         static_cast<uint16_t>(bits)});
      }
    }
}

bool Search::imitates(int32_t rivalState, const Mask *state, Cost cost,
                      int64_t tolerance) const {
  cost.time += tolerance;
  const Mask *rival = frontier.row(rivalState);
  Cost price = frontier.costs[rivalState];
  for (int32_t slot = 0; slot < model.slots && price <= cost; ++slot) {
    Mask lacking = state[slot] & ~rival[slot];
    if (!lacking)
      continue;
    int32_t tensor = slotTensor[slot];
    const TensorModel &t = model.tensors[tensor];
    if (t.role == Role::Stored) {
      Cost before = model.storage(tensor, rival[slot]);
      Cost after = model.storage(tensor, rival[slot] | lacking);
      price.excess += after.excess - before.excess;
      price.time += after.time - before.time;
      continue;
    }
    for (; lacking && price <= cost; lacking &= lacking - 1) {
      int64_t step = t.reach(rival[slot], std::countr_zero(lacking)).first;
      if (step == impossible)
        return false;
      price.time += step;
    }
  }
  return price <= cost;
}

int32_t Search::groupOf(const Mask *state,
                        std::vector<std::vector<Mask>> &groups) const {
  std::vector<Mask> key;
  for (int32_t slot = 0; slot < model.slots; ++slot)
    if (slotTensor[slot] >= 0 && model.tensors[slotTensor[slot]].matrix)
      key.push_back(state[slot]);
  auto it = std::ranges::find(groups, key);
  size_t group = it - groups.begin();
  if (it == groups.end()) {
    if (groups.size() == maxGroups)
      return maxGroups - 1;
    groups.push_back(std::move(key));
  }
  return static_cast<int32_t>(group);
}

/// Too many states that none can imitate for nothing: drop those that one can
/// imitate for little. Small side chains (masks, positions) otherwise fill the
/// beam with combinations that differ by nanoseconds, and push out the ones
/// that save a collective later. The states that can do most are kept first.
void Search::thin(std::vector<std::pair<int32_t, int32_t>> &alive,
                  size_t width) {
  std::vector<std::pair<Cost, size_t>> potential(frontier.size());
  for (size_t k = 0; k < alive.size(); ++k) {
    int32_t i = alive[k].first;
    potential[i] = {frontier.costs[i], k};
    Cost &sum = potential[i].first;
    for (int32_t slot = 0; slot < model.slots; ++slot)
      if (Mask mask = frontier.row(i)[slot];
          mask && !(mask & 1) &&
          model.tensors[slotTensor[slot]].role == Role::Value)
        sum.time += model.tensors[slotTensor[slot]].reach(mask, 0).first;
  }
  std::vector<std::pair<int32_t, int32_t>> order = alive;
  std::ranges::sort(order, [&](const auto &a, const auto &b) {
    return potential[a.first] < potential[b.first];
  });
  // Well below the price of any collective, so that none is taken for nothing.
  const CostModel &cost = model.problem.cost;
  int64_t most = toPicoseconds(cost.latencySeconds * cost.collectiveWeight / 8);
  tolerance = std::max<int64_t>(tolerance / 8, most / 64);
  for (; alive.size() > width && tolerance <= most;
       tolerance = 4 * tolerance + 1) {
    std::vector<bool> keep(frontier.size());
    std::vector<std::vector<int32_t>> members(maxGroups);
    for (auto [i, group] : order) {
      std::vector<int32_t> &own = members[group];
      size_t rivals = std::min(own.size(), 2 * maxRivals);
      keep[i] =
          !std::any_of(own.begin(), own.begin() + rivals, [&](int32_t rival) {
            return imitates(rival, frontier.row(i), frontier.costs[i],
                            tolerance);
          });
      if (keep[i])
        own.push_back(i);
    }
    auto dropped = [&](const auto &entry) { return !keep[entry.first]; };
    std::erase_if(alive, dropped);
    std::erase_if(order, dropped);
  }
}

void Search::select() {
  std::vector<int32_t> order(frontier.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int32_t a, int32_t b) {
    if (frontier.costs[a] != frontier.costs[b])
      return frontier.costs[a] < frontier.costs[b];
    return std::lexicographical_compare(
        frontier.row(a), frontier.row(a) + model.slots, frontier.row(b),
        frontier.row(b) + model.slots);
  });

  std::vector<std::vector<Mask>> groups;
  std::vector<std::vector<int32_t>> members(maxGroups);
  std::vector<std::pair<int32_t, int32_t>> alive; // state, group
  for (int32_t i : order) {
    const Mask *state = frontier.row(i);
    auto beats = [&](int32_t rival) {
      return imitates(rival, state, frontier.costs[i], 0);
    };
    int32_t group = groupOf(state, groups);
    std::vector<int32_t> &own = members[group];
    if (std::any_of(own.begin(), own.begin() + std::min(own.size(), maxRivals),
                    beats))
      continue;
    bool beaten = false;
    for (size_t k = 0; k < std::min(alive.size(), maxStrangers) && !beaten; ++k)
      beaten = alive[k].second != group && beats(alive[k].first);
    if (beaten)
      continue;
    alive.emplace_back(i, group);
    own.push_back(i);
  }

  // How a shared weight is stored is often decided at one end of the model and
  // pays at the other, so every such choice gets its share of the beam.
  size_t width = std::max<uint32_t>(model.problem.beamWidth, 1);
  if (alive.size() > width) {
    exact = false;
    thin(alive, width);
  }
  if (alive.size() > width) {
    size_t share = std::max<size_t>(width / groups.size(), 1);
    std::vector<bool> keep(alive.size());
    std::vector<size_t> taken(maxGroups, 0);
    size_t left = width;
    for (size_t k = 0; k < alive.size() && left > 0; ++k)
      if (taken[alive[k].second] < share) {
        ++taken[alive[k].second];
        keep[k] = true;
        --left;
      }
    for (size_t k = 0; k < alive.size() && left > 0; ++k)
      if (!keep[k]) {
        keep[k] = true;
        --left;
      }
    size_t at = 0;
    std::erase_if(alive, [&](const auto &) { return !keep[at++]; });
  }

  rows.clear();
  costs.clear();
  std::vector<Back> kept;
  for (auto [i, group] : alive) {
    rows.insert(rows.end(), frontier.row(i), frontier.row(i) + model.slots);
    costs.push_back(frontier.costs[i]);
    kept.push_back(frontier.backs[i]);
  }
  history.push_back(std::move(kept));
}

Solution Search::run() {
  rows.assign(model.slots, 0);
  costs.assign(1, {});
  for (size_t op = 0; op < model.problem.ops.size(); ++op) {
    expand(op);
    auto name = [&](int32_t tensor) {
      if (tensor >= 0 && model.tensors[tensor].slot >= 0)
        slotTensor[model.tensors[tensor].slot] = tensor;
    };
    std::ranges::for_each(model.problem.ops[op].operands, name);
    std::ranges::for_each(model.problem.ops[op].results, name);
    if (frontier.size() == 0)
      throw std::invalid_argument(
          opLabel(model.problem, op) +
          ": its operands cannot be brought to a layout in which it can be "
          "executed, because of fixed layouts");
    select();
  }
  std::vector<Back> path(model.problem.ops.size());
  int32_t state = 0;
  for (size_t op = path.size(); op-- > 0;) {
    path[op] = history[op][state];
    state = path[op].parent;
  }
  return emit(path, costs[0]);
}

void Search::storeSources(Solution &solution, std::vector<Mask> &stored) const {
  const Problem &problem = model.problem;
  solution.sources.resize(problem.tensors.size());
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const TensorModel &info = model.tensors[t];
    if (problem.tensors[t].kind == TensorKind::Value)
      continue;
    Mask &set = stored[t];
    if (info.fixedId >= 0)
      set = Mask(1) << info.fixedId;
    else if (problem.tensors[t].isOutput)
      set |= 1;
    if (set == 0)
      set = 1;
    // What storage() calls whole is stored whole only, and cut when used.
    int count = std::popcount(set);
    bool whole = info.matrix ? (set & 1) != 0 || count > problem.ranks
                             : info.role == Role::Stored && count > 1;
    if (whole)
      set = 1;
    for (Mask rest = set; rest; rest &= rest - 1)
      solution.sources[t].push_back(info.layouts[std::countr_zero(rest)]);
    if (problem.splitWeights && problem.ranks > 1 && (set & 1) &&
        isMatrix(problem, problem.tensors[t]))
      solution.wholeWeights.emplace_back(static_cast<int32_t>(t),
                                         wholeReason(static_cast<int32_t>(t)));
  }
}

std::string Search::wholeReason(int32_t tensor) const {
  const Problem &problem = model.problem;
  if (problem.tensors[tensor].fixed)
    return "its layout is fixed by an annotation";
  if (model.tensors[tensor].uses == 0)
    return "no operation uses it";
  std::vector<int64_t> sizes;
  std::string needs;
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    const OpInfo &info = problem.ops[op];
    for (size_t k = 0; k < info.operands.size(); ++k) {
      if (info.operands[k] != tensor)
        continue;
      bool divides = false;
      for (const Factor &factor : info.rule.factors)
        if (factor.operands[k].dim >= 0) {
          sizes.push_back(factor.size);
          divides |= factor.size % problem.ranks == 0;
        }
      if (!divides && needs.empty())
        needs = opLabel(problem, op);
    }
  }
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (sizes.empty())
    return needs + " cannot be split along any of its dimensions";
  std::string list;
  for (int64_t size : sizes)
    list += (list.empty() ? "" : ", ") + std::to_string(size);
  if (needs.empty())
    return "its users have no layout in common in which it is split";
  return needs + " needs it whole: over " + std::to_string(problem.ranks) +
         " ranks no dimension it could be split along divides (its users split "
         "sizes " +
         list + ")";
}

double Search::predictedSeconds(const Solution &solution) const {
  const Problem &problem = model.problem;
  int64_t time = 0;
  auto add = [&](const std::vector<Reshard> &list) {
    for (const auto &[tensor, step] : list)
      time += stepPicoseconds(step.kind,
                              static_cast<double>(model.tensors[tensor].bytes),
                              problem.ranks, problem.cost);
  };
  for (size_t op = 0; op < problem.ops.size(); ++op) {
    const OpChoice &choice = solution.ops[op];
    time += opPicoseconds(problem, problem.ops[op], wayOf(choice));
    add(choice.before);
    add(choice.after);
  }
  add(solution.finish);
  return static_cast<double>(time) * 1e-12;
}

Solution Search::emit(const std::vector<Back> &path, Cost total) const {
  const Problem &problem = model.problem;
  Solution solution;
  solution.exact = exact;
  solution.excessBytes = total.excess;
  solution.ops.resize(path.size());
  solution.outputs.resize(problem.tensors.size());

  std::vector<Mask> wanted(problem.tensors.size(), 0);
  for (size_t op = 0; op < path.size(); ++op) {
    const Option &option = model.ops[op].options[path[op].option];
    for (size_t k = 0; k < option.operands.size(); ++k)
      if (option.operands[k] >= 0)
        wanted[problem.ops[op].operands[k]] |= Mask(1) << option.operands[k];
  }
  storeSources(solution, wanted);

  // Now `wanted` is what sources are stored in. Replay the path.
  std::vector<Mask> &cut = wanted;
  std::vector<Mask> row(model.slots, 0);
  Cost replayed;
  for (size_t op = 0; op < path.size(); ++op) {
    const OpInfo &info = problem.ops[op];
    const Option &option = model.ops[op].options[path[op].option];
    OpChoice &choice = solution.ops[op];
    choice.factor = option.factor;
    choice.linear = option.linear;
    choice.refine = option.refine;
    for (size_t k = 0; k < info.operands.size(); ++k) {
      int32_t tensor = info.operands[k];
      choice.operands.push_back(
          tensor < 0 ? Layout()
                     : model.tensors[tensor].layouts[option.operands[k]]);
      if (tensor < 0 || model.tensors[tensor].role != Role::Stored ||
          (cut[tensor] >> option.operands[k] & 1))
        continue;
      for (const Step &step : steps(tensor, 0, option.operands[k]))
        choice.before.push_back({tensor, step});
      cut[tensor] |= Mask(1) << option.operands[k];
    }
    std::vector<Move> moves;
    std::vector<Mask> alive = row;
    apply(op, option, path[op].detours, row.data(), replayed, &moves);
    for (const Move &move : moves)
      for (const Step &step : steps(move.tensor, move.from, move.want))
        choice.before.push_back({move.tensor, step});
    for (size_t k = 0; k < info.results.size(); ++k) {
      int32_t tensor = info.results[k];
      if (tensor < 0) {
        choice.results.emplace_back();
        continue;
      }
      const TensorModel &t = model.tensors[tensor];
      choice.results.push_back(t.layouts[option.results[k]]);
      if (t.fixedId >= 0)
        for (const Step &step : steps(tensor, option.results[k], t.fixedId))
          choice.after.push_back({tensor, step});
    }
    // Outputs leave in what is available after their last use.
    for (int32_t tensor : model.ops[op].dying) {
      const TensorModel &t = model.tensors[tensor];
      if (!problem.tensors[tensor].isOutput || t.role != Role::Value)
        continue;
      Mask mask = alive[t.slot];
      if (t.first == static_cast<int32_t>(op))
        mask = 0;
      for (size_t k = 0; k < info.results.size(); ++k)
        if (info.results[k] == tensor)
          mask = Mask(1) << (t.fixedId >= 0 ? t.fixedId : option.results[k]);
      if (mask == 0)
        mask = Mask(1) << t.fixedId;
      for (const Move &move : moves)
        if (move.tensor == tensor)
          mask |= t.adds[move.from * t.size() + move.want];
      int32_t layout = leave(tensor, mask).second;
      solution.outputs[tensor] = t.layouts[layout];
      if (!(mask >> layout & 1))
        for (const Step &step :
             steps(tensor, t.reach(mask, layout).second, layout))
          solution.finish.push_back({tensor, step});
    }
  }
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].isOutput &&
        problem.tensors[t].kind != TensorKind::Value &&
        model.tensors[t].first < 0 && model.tensors[t].fixedId >= 0)
      solution.outputs[t] = model.tensors[t].layouts[model.tensors[t].fixedId];
  solution.objective = total.time;
  solution.seconds = predictedSeconds(solution);
  return solution;
}

} // namespace
} // namespace detail

Solution solve(const Problem &problem) {
  detail::Model model(problem);
  return detail::Search(model).run();
}

} // namespace concord::sharding

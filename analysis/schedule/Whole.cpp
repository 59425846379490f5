//===- Whole.cpp - What hides less than it costs --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Goes through actions again, and knows nothing of how they were found.
//
//===----------------------------------------------------------------------===//

#include "Scheduler.h"

#include <algorithm>

namespace concord::schedule {

Outcome outcome(const Problem &problem, const std::vector<Action> &actions) {
  size_t count = problem.nodes.size();
  Outcome result;
  result.hidden.assign(count, 0);
  std::vector<double> begins(count, 0), ends(count, 0), laneFree;
  std::vector<uint32_t> flying;
  std::vector<size_t> uses(problem.bytes.size(), 0);
  for (const Node &node : problem.nodes)
    for (uint32_t b : node.reads)
      ++uses[b];
  double now = 0, live = 0;
  std::vector<bool> born(problem.bytes.size(), false);
  auto release = [&](uint32_t b) {
    bool outlives = b < problem.outlives.size() && problem.outlives[b];
    if (uses[b] == 0 && born[b] && !outlives)
      live -= problem.bytes[b];
  };
  for (auto [kind, n] : actions) {
    const Node &node = problem.nodes[n];
    bool onCore = kind == Action::Kind::Start && node.onCore;
    if (kind != Action::Kind::Wait) {
      for (uint32_t b : node.writes) {
        born[b] = true;
        live += problem.bytes[b];
      }
      result.bytes = std::max(result.bytes, live);
    }
    if (kind == Action::Kind::Start && !onCore) {
      laneFree.resize(std::max<size_t>(laneFree.size(), node.lane + 1), 0);
      begins[n] = std::max(now, laneFree[node.lane]);
      ends[n] = laneFree[node.lane] = begins[n] + node.seconds;
      flying.push_back(n);
      continue;
    }
    if (kind == Action::Kind::Run)
      for (uint32_t other : flying)
        result.hidden[other] +=
            std::max(0.0, std::min(ends[other], now + node.seconds) -
                              std::max(begins[other], now));
    if (kind == Action::Kind::Run || onCore) {
      now += node.seconds;
    } else if (!node.onCore) {
      now = std::max(now, ends[n]);
      std::erase(flying, n);
    }
    if (onCore)
      continue; // its wait follows
    for (uint32_t b : node.reads)
      if (--uses[b] == 0)
        release(b);
    for (uint32_t b : node.writes)
      release(b);
  }
  result.seconds = now;
  return result;
}

/// Collectives that hide less than a start and a wait cost are waited for where
/// they start, if what they held up by that costs no more than it saves.
void Scheduler::keepWhole() {
  const std::vector<Action> &actions = result.actions;
  std::vector<bool> apart(count, false), alone(count, false);
  // Alone: nothing else of its lane is under way, and only computation between.
  std::vector<uint32_t> under(laneFree.size(), 0);
  size_t since = 0; // the last action that was no computation
  std::vector<size_t> startedAt(count, 0);
  for (size_t i = 0; i < actions.size(); ++i) {
    auto [kind, n] = actions[i];
    if (kind == Action::Kind::Run &&
        problem.nodes[n].kind == Node::Kind::Compute)
      continue;
    if (kind == Action::Kind::Start) {
      startedAt[n] = i;
      alone[n] = under[problem.nodes[n].lane]++ == 0;
    } else if (kind == Action::Kind::Wait) {
      --under[problem.nodes[n].lane];
      apart[n] = startedAt[n] + 1 < i;
      alone[n] = alone[n] && startedAt[n] == since;
    }
    since = i;
  }
  for (bool all : {true, false}) {
    std::vector<bool> whole(count, false);
    size_t number = 0;
    for (uint32_t n = 0; n < count; ++n) {
      whole[n] = apart[n] && hiddenCompute[n] < problem.startSeconds &&
                 (all || alone[n]);
      number += whole[n];
    }
    if (!number)
      return;
    std::vector<Action> changed;
    changed.reserve(actions.size());
    for (Action action : actions) {
      if (action.kind == Action::Kind::Wait && whole[action.node])
        continue;
      changed.push_back(action);
      if (action.kind == Action::Kind::Start && whole[action.node])
        changed.push_back({Action::Kind::Wait, action.node});
    }
    Outcome now = outcome(problem, changed);
    if (now.seconds > result.secondsAfter +
                          static_cast<double>(number) * problem.startSeconds)
      continue;
    result.actions = std::move(changed);
    result.secondsAfter = now.seconds;
    result.bytesAfter = now.bytes;
    hiddenCompute = std::move(now.hidden);
    keptWhole = std::move(whole);
    return;
  }
}

} // namespace concord::schedule

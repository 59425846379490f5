//===- Verify.cpp - Whether a schedule is right ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// By itself: nothing here is shared with what makes schedules.
//
//===----------------------------------------------------------------------===//

#include "concord/schedule/Overlap.h"

#include <algorithm>
#include <set>

namespace concord::schedule {

std::string verify(const Problem &problem, const Schedule &schedule) {
  size_t count = problem.nodes.size();
  auto name = [](uint32_t n) { return "node " + std::to_string(n); };
  std::vector<int> begun(count, 0), ended(count, 0);
  std::vector<size_t> issue(count, 0);
  double live = 0, peak = 0;
  std::vector<size_t> uses(problem.bytes.size(), 0);
  std::vector<bool> born(problem.bytes.size(), false);
  for (const Node &node : problem.nodes)
    for (uint32_t b : std::set<uint32_t>(node.reads.begin(), node.reads.end()))
      ++uses[b];
  auto outlives = [&](uint32_t b) {
    return b < problem.outlives.size() && problem.outlives[b];
  };
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    auto [kind, n] = schedule.actions[i];
    if (n >= count)
      return "an action names " + name(n);
    const Node &node = problem.nodes[n];
    bool collective = node.kind == Node::Kind::Collective;
    if (collective == (kind == Action::Kind::Run))
      return name(n) + " is run in the wrong way";
    if (kind != Action::Kind::Wait) {
      if (begun[n]++)
        return name(n) + " is run twice";
      issue[n] = i;
      for (uint32_t before : node.needs)
        if (!ended[before])
          return name(n) + " comes before " + name(before);
      for (uint32_t before : node.after)
        if (!begun[before])
          return name(n) + " is issued before " + name(before);
      for (uint32_t b : node.writes) {
        live += problem.bytes[b];
        born[b] = true;
      }
      peak = std::max(peak, live);
    }
    if (kind == Action::Kind::Start)
      continue;
    if (kind == Action::Kind::Wait && !begun[n])
      return name(n) + " is waited for before it starts";
    if (ended[n]++)
      return name(n) + " ends twice";
    for (uint32_t b : std::set<uint32_t>(node.reads.begin(), node.reads.end()))
      if (--uses[b] == 0 && !outlives(b) && born[b])
        live -= problem.bytes[b];
    for (uint32_t b : node.writes)
      if (uses[b] == 0 && !outlives(b))
        live -= problem.bytes[b];
  }
  for (uint32_t n = 0; n < count; ++n)
    if (!begun[n] || !ended[n])
      return name(n) + " is missing";
  constexpr uint32_t none = ~0u;
  uint32_t lastBarrier = none, lastCollective = none;
  std::vector<uint32_t> since;
  for (uint32_t n = 0; n < count; ++n) {
    Node::Kind kind = problem.nodes[n].kind;
    if (kind == Node::Kind::Compute)
      continue;
    if (lastBarrier != none && issue[lastBarrier] > issue[n])
      return name(n) + " was moved across " + name(lastBarrier);
    if (kind == Node::Kind::Barrier) {
      for (uint32_t before : since)
        if (issue[before] > issue[n])
          return name(before) + " was moved across " + name(n);
      since.clear();
      lastBarrier = n;
      continue;
    }
    since.push_back(n);
    if (problem.keepIssueOrder && lastCollective != none &&
        issue[lastCollective] > issue[n])
      return name(n) + " overtakes " + name(lastCollective);
    lastCollective = n;
  }
  if (peak > schedule.limit * (1 + 1e-9) + 1e-6)
    return "holds " + std::to_string(peak) + " bytes, limit " +
           std::to_string(schedule.limit);
  return "";
}

} // namespace concord::schedule

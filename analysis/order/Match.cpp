//===- Match.cpp - Issues of several programs that are one operation ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/order/Certificate.h"
#include "concord/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace concord::order {

bool matchPrograms(const plan::Plan &plan,
                   std::vector<std::vector<ProgramSite>> &sets) {
  sets.clear();
  if (plan.programs.size() < 2)
    return true;
  OrderProblem problem;
  std::string error;
  if (!verifyPlan(plan).valid || !fromPlan(plan, problem, error))
    return false;

  std::vector<uint32_t> base;
  uint32_t sites = 0;
  for (const plan::Program &program : plan.programs) {
    base.push_back(sites);
    sites += uint32_t(program.issues.size());
  }
  std::vector<uint32_t> parent(sites);
  std::iota(parent.begin(), parent.end(), 0);
  auto find = [&](uint32_t i) {
    while (parent[i] != i)
      i = parent[i] = parent[parent[i]];
    return i;
  };

  for (uint32_t d = 0; d < plan.domains.size(); ++d) {
    // What each program issues of the domain, loops twice.
    std::vector<std::vector<uint32_t>> issued(plan.programs.size());
    std::vector<std::vector<uint32_t>> programsOf(plan.world);
    for (uint32_t p = 0; p < problem.programs.size(); ++p) {
      const ProgramForm &form = problem.programs[p];
      for (uint32_t i = 0; i < form.items.size(); ++i)
        if (form.items[i].kind == Item::Kind::Collective &&
            form.items[i].domain == d)
          issued[p].push_back(base[p] + form.sites[i]);
      if (!issued[p].empty())
        for (Rank r : form.ranks)
          programsOf[size_t(r)].push_back(p);
    }
    std::set<std::pair<uint32_t, uint32_t>> done;
    for (const auto &group : plan.domains[d].groups) {
      uint32_t first = kNone;
      for (int32_t rank : group)
        for (uint32_t p : programsOf[size_t(rank)]) {
          if (first == kNone)
            first = p;
          if (p == first || !done.insert({first, p}).second)
            continue;
          size_t count = std::min(issued[first].size(), issued[p].size());
          for (size_t k = 0; k < count; ++k) {
            uint32_t a = find(issued[first][k]), b = find(issued[p][k]);
            parent[std::max(a, b)] = std::min(a, b);
          }
        }
    }
  }

  std::map<uint32_t, std::vector<ProgramSite>> byRoot;
  for (uint32_t p = 0; p < plan.programs.size(); ++p)
    for (uint32_t s = 0; s < plan.programs[p].issues.size(); ++s)
      byRoot[find(base[p] + s)].push_back({p, s});
  for (auto &[root, set] : byRoot)
    if (set.front().program != set.back().program)
      sets.push_back(std::move(set));
  return true;
}

} // namespace concord::order

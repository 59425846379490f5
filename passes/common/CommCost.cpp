//===- CommCost.cpp - What a collective costs, for the rewrites -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/CommCost.h"

#include <algorithm>

using namespace mlir;

namespace concord {

FailureOr<CommCost> CommCost::create(ModuleOp module, StringRef machine) {
  FailureOr<CostModel> model = CostModel::create(module, machine);
  if (failed(model))
    return failure();
  CommCost cost;
  cost.figures = model->machine();
  cost.model = std::move(*model);
  return cost;
}

static cost::Placement placeGroups(const cost::Machine &machine,
                                   CommCost::Groups groups) {
  std::vector<std::vector<int32_t>> list;
  for (ArrayRef<int64_t> group : groups)
    list.emplace_back(group.begin(), group.end());
  return cost::place(machine, list);
}

const cost::Placement &CommCost::placement(comm::DomainOp domain) {
  auto [entry, isNew] = placements.try_emplace(domain.getGroups());
  if (isNew)
    entry->second = placeGroups(figures, domain.getGroupRanks());
  return entry->second;
}

double CommCost::seconds(comm::CollectiveKind kind, double bytes,
                         comm::DomainOp domain) {
  return cost::collective(figures, static_cast<plan::Kind>(kind), bytes,
                          placement(domain))
      .seconds;
}

double CommCost::seconds(comm::CollectiveKind kind, double bytes,
                         Groups groups) const {
  return cost::collective(figures, static_cast<plan::Kind>(kind), bytes,
                          placeGroups(figures, groups))
      .seconds;
}

double CommCost::flatSeconds(comm::CollectiveKind kind, double bytes,
                             comm::DomainOp domain) {
  double best = std::numeric_limits<double>::infinity();
  for (cost::Algorithm algorithm :
       {cost::Algorithm::Direct, cost::Algorithm::Ring, cost::Algorithm::Tree})
    best =
        std::min(best, cost::collective(figures, static_cast<plan::Kind>(kind),
                                        bytes, placement(domain), algorithm)
                           .seconds);
  return best;
}

double CommCost::copySeconds(double bytes) const {
  return cost::compute(figures, 0, 2 * bytes);
}

} // namespace concord

//===- Reshard.cpp - From one layout to another, step by step -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table of steps and their prices; see Reshard.h.
//
//===----------------------------------------------------------------------===//

#include "concord/sharding/Reshard.h"

#include <algorithm>
#include <cmath>

namespace concord::sharding {

bool canSplit(std::span<const int64_t> shape, DimRef dim, int64_t ranks) {
  if (dim.dim < 0 || static_cast<size_t>(dim.dim) >= shape.size() ||
      dim.outer < 1 || ranks < 1)
    return false;
  int64_t size = shape[dim.dim];
  return size > 0 && size % dim.outer == 0 && (size / dim.outer) % ranks == 0;
}

std::vector<int64_t> localShape(std::span<const int64_t> shape,
                                const Layout &layout, int64_t ranks) {
  std::vector<int64_t> local(shape.begin(), shape.end());
  if (layout.kind == Layout::Split)
    local[layout.dim.dim] /= ranks;
  return local;
}

std::string toString(const Layout &layout) {
  switch (layout.kind) {
  case Layout::Replicated:
    return "R";
  case Layout::Split: {
    std::string text = "S" + std::to_string(layout.dim.dim);
    if (layout.dim.outer != 1)
      text += "/" + std::to_string(layout.dim.outer);
    return text;
  }
  case Layout::Partial:
    break;
  }
  static const char *const names[] = {"none", "sum", "max", "min", "prod"};
  return std::string("P(") + names[static_cast<int>(layout.reduction)] + ")";
}

bool isCollective(StepKind kind) { return kind != StepKind::Slice; }

const char *toString(StepKind kind) {
  switch (kind) {
  case StepKind::Slice:
    return "slice";
  case StepKind::AllGather:
    return "all_gather";
  case StepKind::AllReduce:
    return "all_reduce";
  case StepKind::ReduceScatter:
    return "reduce_scatter";
  case StepKind::AllToAll:
    return "all_to_all";
  }
  return "";
}

std::optional<std::vector<Step>> planReshard(const Layout &from,
                                             const Layout &to,
                                             std::span<const int64_t> shape,
                                             int64_t ranks, bool allToAll) {
  if ((from.kind == Layout::Split && !canSplit(shape, from.dim, ranks)) ||
      (to.kind == Layout::Split && !canSplit(shape, to.dim, ranks)))
    return std::nullopt;
  std::vector<Step> steps;
  if (from == to)
    return steps;
  if (to.kind == Layout::Partial)
    return std::nullopt;
  const Layout whole = Layout::replicated();
  switch (from.kind) {
  case Layout::Replicated:
    steps.push_back({StepKind::Slice, from, to});
    return steps;
  case Layout::Partial:
    steps.push_back({to.kind == Layout::Replicated ? StepKind::AllReduce
                                                   : StepKind::ReduceScatter,
                     from, to});
    return steps;
  case Layout::Split:
    break;
  }
  if (to.kind == Layout::Replicated) {
    steps.push_back({StepKind::AllGather, from, to});
  } else if (allToAll && from.dim.dim != to.dim.dim && from.dim.outer == 1 &&
             to.dim.outer == 1) {
    steps.push_back({StepKind::AllToAll, from, to});
  } else {
    // Blocks of two different views of one dimension do not line up in general;
    // going through the whole tensor is right for all of them.
    steps.push_back({StepKind::AllGather, from, whole});
    steps.push_back({StepKind::Slice, whole, to});
  }
  return steps;
}

std::optional<std::vector<Step>>
planReshard(std::span<const Layout> available, const Layout &wanted,
            std::span<const int64_t> shape, int64_t elementBytes, int64_t ranks,
            const CostModel &cost, bool allToAll) {
  double bytes = static_cast<double>(elementBytes);
  for (int64_t size : shape)
    bytes *= static_cast<double>(size);
  std::optional<std::vector<Step>> best;
  int64_t bestTime = 0;
  for (const Layout &from : available) {
    auto steps = planReshard(from, wanted, shape, ranks, allToAll);
    if (!steps)
      continue;
    int64_t time = 0;
    for (const Step &step : *steps)
      time += stepObjective(step.kind, bytes, ranks, cost);
    if (!best || time < bestTime) {
      bestTime = time;
      best = std::move(steps);
    }
  }
  return best;
}

double linkBytes(StepKind kind, double bytes, int64_t ranks) {
  double t = static_cast<double>(ranks);
  switch (kind) {
  case StepKind::Slice:
    return 0;
  case StepKind::AllGather:
  case StepKind::ReduceScatter:
    return (t - 1) / t * bytes;
  case StepKind::AllReduce:
    return 2 * (t - 1) / t * bytes;
  case StepKind::AllToAll:
    return (t - 1) / t / t * bytes;
  }
  return 0;
}

static int64_t price(StepKind kind, double bytes, int64_t ranks,
                     const CostModel &cost, double weight) {
  if (kind == StepKind::Slice)
    return toPicoseconds(bytes / static_cast<double>(ranks) /
                         cost.bytesPerSecond);
  double time = cost.latencySeconds +
                linkBytes(kind, bytes, ranks) / cost.linkBytesPerSecond;
  return toPicoseconds(weight * time);
}

int64_t stepPicoseconds(StepKind kind, double bytes, int64_t ranks,
                        const CostModel &cost) {
  return price(kind, bytes, ranks, cost, 1);
}

int64_t stepObjective(StepKind kind, double bytes, int64_t ranks,
                      const CostModel &cost) {
  // A product whose result is gathered and one whose input was gathered before
  // often cost the same to the last digit. One picosecond makes the solver take
  // the form with the fewer gathers: partial sums meet in a reduce-scatter or
  // all-reduce, which later passes fuse with the product.
  return price(kind, bytes, ranks, cost, cost.collectiveWeight) +
         (kind == StepKind::AllGather ? 1 : 0);
}

int64_t toPicoseconds(double seconds) {
  if (!(seconds > 0))
    return 0;
  return std::llround(std::min(seconds, 100.0) * 1e12);
}

} // namespace concord::sharding

//===- Cost.cpp - Predicted time of computation and collectives -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// docs/cost-model.md states every formula. S is the whole array, p the ranks of
// a group, and m its members in one block of a level.
//
//===----------------------------------------------------------------------===//

#include "concord/cost/Cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>

namespace concord::cost {

using plan::Kind;

const char *toString(Algorithm algorithm) {
  switch (algorithm) {
  case Algorithm::Auto:
    return "auto";
  case Algorithm::Direct:
    return "direct";
  case Algorithm::Ring:
    return "ring";
  case Algorithm::Tree:
    return "tree";
  case Algorithm::Recursive:
    return "recursive";
  case Algorithm::Hierarchical:
    return "hierarchical";
  case Algorithm::Measured:
    return "measured";
  }
  return "";
}

int Placement::top() const {
  for (int level = static_cast<int>(levels.size()) - 1; level >= 0; --level)
    if (levels[level].blocks > 1)
      return level;
  return -1;
}

Placement place(const Machine &machine,
                std::span<const std::vector<int32_t>> groups) {
  Placement result;
  result.levels.resize(machine.levels.size());
  for (const auto &group : groups)
    result.ranks = std::max(result.ranks, static_cast<int64_t>(group.size()));
  for (size_t l = 0; l < machine.levels.size(); ++l) {
    Placement::Span &span = result.levels[l];
    // Groups that leave each block below, to find the busiest boundary.
    std::unordered_map<int64_t, std::pair<int64_t, int64_t>> leaving;
    std::unordered_map<int64_t, int64_t> inBlock;
    double bandwidth = machine.levels[l].bandwidth;
    auto ports = static_cast<double>(machine.levels[l].ports);
    for (const auto &group : groups) {
      inBlock.clear();
      if (l == 0)
        inBlock.reserve(group.size());
      for (int32_t rank : group)
        ++inBlock[l == 0 ? rank : machine.levels[l - 1].blockOf(rank)];
      span.blocks = std::max(span.blocks, static_cast<int64_t>(inBlock.size()));
      for (auto [block, members] : inBlock) {
        span.members = std::max(span.members, members);
        if (inBlock.size() > 1) {
          auto &[count, most] = leaving[block];
          ++count;
          most = std::max(most, members);
        }
      }
    }
    span.share = bandwidth * ports;
    for (auto &[block, entry] : leaving) {
      auto [count, members] = entry;
      // A group cannot use more ports than it has members behind them.
      double most = bandwidth * std::min(ports, static_cast<double>(members));
      span.share = std::min(
          {span.share, bandwidth * ports / static_cast<double>(count), most});
    }
  }
  std::unordered_map<int64_t, int64_t> onHost;
  std::unordered_map<int64_t, int64_t> seen;
  for (size_t g = 0; g < groups.size(); ++g)
    for (int32_t rank : groups[g]) {
      int64_t host = machine.levels[0].blockOf(rank);
      auto [at, fresh] = seen.try_emplace(host, -1);
      if (at->second != static_cast<int64_t>(g)) {
        at->second = static_cast<int64_t>(g);
        result.groupsPerHost = std::max(result.groupsPerHost, ++onHost[host]);
      }
    }
  return result;
}

Placement place(const Machine &machine, int64_t ranks) {
  std::vector<std::vector<int32_t>> groups(1);
  for (int64_t rank = 0; rank < ranks; ++rank)
    groups[0].push_back(static_cast<int32_t>(rank));
  return place(machine, groups);
}

double memoryBandwidth(const Machine &machine, double footprint,
                       int64_t active) {
  const Bandwidth &bandwidth =
      footprint <= static_cast<double>(machine.cacheBytes) ? machine.cache
                                                           : machine.dram;
  return std::min(bandwidth.core, bandwidth.node / std::max<double>(1, active));
}

double exchange(const Machine &machine, const Traffic &traffic,
                double footprint, int64_t active) {
  double bandwidth = memoryBandwidth(machine, footprint, active);
  if (footprint > static_cast<double>(machine.cacheBytes))
    return traffic.bytes() / bandwidth;
  // From another core's cache, about half as fast as from the own one.
  double seconds = (traffic.local + 2 * traffic.taken) / bandwidth;
  // What has left the core's own cache is shared no more.
  constexpr double kOwnCache = 2 << 20;
  if (machine.contended > 0)
    seconds += std::min(traffic.contended, kOwnCache) / machine.contended;
  return seconds;
}

namespace {

/// Ranks move the bytes themselves: what each loads and stores, by the table of
/// docs/cost-model.md, and the flag rounds. What a collective leaves behind in
/// the caches counts, too: its inputs' producer and its results' consumer pay
/// for it in the same step.
CollectiveCost throughMemory(const Machine &machine, Kind kind, double bytes,
                             int64_t ranks, int64_t groups) {
  auto p = static_cast<double>(ranks);
  double own = bytes / p, others = bytes - own;
  Traffic traffic;
  double node = 0; // of all members
  switch (kind) {
  case Kind::AllReduce:
    traffic = {2 * own, 2 * others, 2 * others};
    node = p * traffic.bytes();
    break;
  case Kind::AllToAll:
    traffic = {own + bytes, others, others};
    node = p * traffic.bytes();
    break;
  case Kind::AllGather:
  case Kind::ReduceScatter:
    traffic = {2 * own, others, others};
    node = p * traffic.bytes();
    break;
  case Kind::Broadcast:
    traffic = {bytes, bytes, bytes};
    node = (p - 1) * traffic.bytes();
    break;
  case Kind::Reduce:
    traffic = {2 * own, others + bytes - own, others};
    node = (p + 2) * bytes;
    break;
  case Kind::Gather:
  case Kind::Scatter:
    traffic = {own, own, own};
    node = 2 * bytes;
    break;
  case Kind::Permute:
  case Kind::Send:
  case Kind::Recv:
    traffic = {bytes, bytes, bytes};
    node = p * traffic.bytes();
    break;
  default:
    break;
  }
  CollectiveCost cost;
  cost.algorithm = Algorithm::Direct;
  // Small payloads travel beside their flag: one round, else two.
  bool inlined = bytes <= static_cast<double>(machine.inlineBytes);
  double rounds = inlined ? 1 : 2;
  // Members beyond the first two are seen one after the other.
  double flags = machine.flagSeconds * (1 + 0.25 * std::max(0.0, p - 2));
  cost.latency = machine.issueSeconds + rounds * flags;
  // What travels beside a flag is paid with it.
  if (inlined)
    traffic.contended = 0;
  cost.seconds = cost.latency + exchange(machine, traffic,
                                         node * static_cast<double>(groups),
                                         ranks * groups);
  cost.coreSeconds = cost.seconds;
  cost.levelBytes = {traffic.bytes()};
  return cost;
}

/// Bytes that one group takes out of a block with m of its p members, once in
/// the direction that is the busier one.
double leavingBytes(Kind kind, Algorithm algorithm, double bytes, double p,
                    double m, double blocks) {
  bool hierarchical =
      algorithm == Algorithm::Recursive || algorithm == Algorithm::Hierarchical;
  // A ring leaves a block once, with nearly everything; by levels, the blocks
  // exchange only what they do not have.
  double part = hierarchical ? (blocks - 1) / blocks : (p - 1) / p;
  switch (kind) {
  case Kind::AllReduce:
    return algorithm == Algorithm::Tree ? 2 * bytes : 2 * part * bytes;
  case Kind::AllGather:
  case Kind::ReduceScatter:
    return part * bytes;
  case Kind::AllToAll:
    return m * (p - m) / p * bytes;
  case Kind::Broadcast:
  case Kind::Reduce:
    return bytes;
  case Kind::Gather:
  case Kind::Scatter:
    return (p - m) / p * bytes;
  case Kind::Permute:
  case Kind::Send:
  case Kind::Recv:
    return m * bytes;
  default:
    return 0;
  }
}

bool isReducing(Kind kind) {
  return kind == Kind::AllReduce || kind == Kind::ReduceScatter ||
         kind == Kind::Reduce;
}

CollectiveCost overLevels(const Machine &machine, Kind kind, double bytes,
                          const Placement &placement, Algorithm algorithm) {
  CollectiveCost cost;
  cost.algorithm = algorithm;
  cost.levelBytes.assign(machine.levels.size(), 0);
  auto p = static_cast<double>(placement.ranks);
  int top = placement.top();
  double far = machine.levels[top].latency + machine.messageSeconds;
  bool twice = kind == Kind::AllReduce;
  double steps = 0; // of the farthest latency each
  double latency = 0;
  switch (algorithm) {
  case Algorithm::Direct:
    latency = far + (p - 2) * machine.messageSeconds;
    break;
  case Algorithm::Ring:
    steps = twice ? 2 * (p - 1) : p - 1;
    if (kind == Kind::Permute || kind == Kind::Send || kind == Kind::Recv)
      steps = 1;
    break;
  default: {
    // log2 steps at each level, of that level's latency.
    for (int l = 0; l <= top; ++l) {
      double blocks = static_cast<double>(placement.levels[l].blocks);
      if (l < top)
        blocks = std::max(
            1.0,
            std::ceil(static_cast<double>(placement.levels[l].blocks) /
                      static_cast<double>(placement.levels[l + 1].blocks)));
      latency += std::ceil(std::log2(std::max(1.0, blocks))) *
                 (machine.levels[l].latency + machine.messageSeconds);
    }
    if (twice || kind == Kind::Barrier)
      latency *= 2;
    break;
  }
  }
  latency += steps * far;

  bool sums =
      algorithm == Algorithm::Hierarchical || algorithm == Algorithm::Recursive;
  double longest = 0, sum = 0, core = 0;
  for (int l = 0; l <= top; ++l) {
    const Level &level = machine.levels[l];
    const Placement::Span &span = placement.levels[l];
    if (span.blocks <= 1 && l < top)
      continue;
    double blocks = static_cast<double>(span.blocks);
    auto m = static_cast<double>(span.members);
    if (l < top) // inside one block of this level only
      blocks = std::max(
          1.0, static_cast<double>(placement.levels[l + 1].members) / m);
    double out = leavingBytes(kind, algorithm, bytes, p, m, blocks);
    double seconds;
    if (level.memory) {
      // The members inside move it through memory, before or after what goes
      // further.
      CollectiveCost inner = throughMemory(
          machine, kind, bytes, static_cast<int64_t>(std::llround(m * blocks)),
          placement.groupsPerHost);
      out = inner.levelBytes[0];
      seconds = inner.seconds;
      sum += longest; // memory and links do not pipeline: cores drive both
      longest = 0;
      sum += seconds;
    } else {
      seconds = out / span.share;
      if (sums)
        sum += seconds;
      else
        longest = std::max(longest, seconds);
    }
    core += seconds * level.coreShare;
    cost.levelBytes[l] = out;
  }
  double bandwidth = sum + longest;
  // Adding up what arrives takes a core or a device through its memory.
  if (isReducing(kind))
    bandwidth += bytes / memoryBandwidth(machine, 2 * bytes) *
                 (algorithm == Algorithm::Tree ? 1 : 1 / p);
  cost.latency = machine.issueSeconds + latency;
  cost.seconds = cost.latency + bandwidth;
  cost.coreSeconds = machine.issueSeconds + core;
  return cost;
}

const Curve *findCurve(const Machine &machine, Kind kind,
                       const std::string &level, int64_t ranks) {
  const Curve *best = nullptr;
  for (const Curve &curve : machine.curves) {
    if (curve.kind != kind || curve.level != level)
      continue;
    // The nearest number of ranks, by ratio.
    auto distance = [&](const Curve &c) {
      return std::abs(
          std::log(static_cast<double>(c.ranks) / static_cast<double>(ranks)));
    };
    if (!best || distance(curve) < distance(*best))
      best = &curve;
  }
  return best;
}

/// A group like the one that a curve was measured on: its ranks spread over
/// what the level joins, as many in each block.
Placement placeCurve(const Machine &machine, const Curve &curve, int top) {
  if (top <= 0 || machine.ranks <= 0)
    return place(machine, curve.ranks);
  const Level &below = machine.levels[static_cast<size_t>(top) - 1];
  std::vector<std::vector<int32_t>> blocks;
  int64_t last = -1;
  for (int64_t rank = 0; rank < machine.ranks; ++rank) {
    if (int64_t block = below.blockOf(rank); block != last) {
      last = block;
      blocks.emplace_back();
    }
    blocks.back().push_back(static_cast<int32_t>(rank));
  }
  std::vector<std::vector<int32_t>> group(1);
  auto wanted = static_cast<size_t>(curve.ranks);
  for (size_t i = 0; group[0].size() < wanted; ++i) {
    size_t before = group[0].size();
    for (const auto &block : blocks)
      if (i < block.size() && group[0].size() < wanted)
        group[0].push_back(block[i]);
    if (group[0].size() == before) // more than the machine has
      return place(machine, curve.ranks);
  }
  return place(machine, group);
}

double evaluate(const Curve &curve, double bytes, double &alpha) {
  for (const Segment &segment : curve.segments)
    if (bytes <= static_cast<double>(segment.upTo)) {
      alpha = segment.alpha;
      return segment.alpha + bytes * segment.beta;
    }
  return 0;
}

CollectiveCost analytic(const Machine &machine, Kind kind, double bytes,
                        const Placement &placement, Algorithm algorithm) {
  int top = placement.top();
  if (machine.levels[0].memory && top == 0)
    return throughMemory(machine, kind, bytes, placement.ranks,
                         placement.groupsPerHost);
  if (algorithm != Algorithm::Auto)
    return overLevels(machine, kind, bytes, placement, algorithm);
  std::vector<Algorithm> candidates = {Algorithm::Ring};
  switch (kind) {
  case Kind::AllReduce:
    candidates = {Algorithm::Ring, Algorithm::Tree, Algorithm::Recursive};
    break;
  case Kind::AllGather:
  case Kind::ReduceScatter:
    candidates = {Algorithm::Ring, Algorithm::Recursive};
    break;
  case Kind::AllToAll:
  case Kind::Gather:
  case Kind::Scatter:
    candidates = {Algorithm::Direct, Algorithm::Ring};
    break;
  case Kind::Broadcast:
  case Kind::Reduce:
    candidates = {Algorithm::Tree, Algorithm::Ring};
    break;
  case Kind::Barrier:
    candidates = {Algorithm::Tree};
    break;
  default:
    break;
  }
  if (top > 0)
    std::replace(candidates.begin(), candidates.end(), Algorithm::Recursive,
                 Algorithm::Hierarchical);
  CollectiveCost best;
  for (Algorithm candidate : candidates) {
    CollectiveCost cost =
        overLevels(machine, kind, bytes, placement, candidate);
    if (best.algorithm == Algorithm::Auto || cost.seconds < best.seconds)
      best = std::move(cost);
  }
  return best;
}

} // namespace

double secondsOf(const Curve &curve, uint64_t bytes) {
  double alpha;
  return evaluate(curve, static_cast<double>(bytes), alpha);
}

CollectiveCost collective(const Machine &machine, Kind kind, double bytes,
                          const Placement &placement, Algorithm algorithm) {
  int top = placement.top();
  if (top < 0 || placement.ranks < 2) {
    CollectiveCost cost;
    cost.algorithm = Algorithm::Direct;
    cost.latency = cost.seconds = cost.coreSeconds = machine.issueSeconds;
    cost.levelBytes.assign(machine.levels.size(), 0);
    return cost;
  }
  CollectiveCost cost = analytic(machine, kind, bytes, placement, algorithm);
  cost.levelBytes.resize(machine.levels.size(), 0);
  if (algorithm != Algorithm::Auto)
    return cost;
  // Measured times stand for what the formulas say of the same group; another
  // number of ranks, or a host full of groups, is scaled by the formulas.
  const Curve *curve =
      findCurve(machine, kind, machine.levels[top].name, placement.ranks);
  if (!curve)
    return cost;
  double alpha = 0;
  double measured = evaluate(*curve, bytes, alpha);
  CollectiveCost like = analytic(
      machine, kind, bytes, placeCurve(machine, *curve, top), Algorithm::Auto);
  double ratio = like.seconds > 0 ? cost.seconds / like.seconds : 1;
  if (curve->ranks == placement.ranks && placement.groupsPerHost == 1)
    ratio = 1;
  double core = cost.seconds > 0 ? cost.coreSeconds / cost.seconds : 0;
  cost.algorithm = Algorithm::Measured;
  cost.seconds = measured * ratio;
  cost.latency = std::min(alpha * ratio, cost.seconds);
  cost.coreSeconds = cost.seconds * core;
  return cost;
}

double compute(const Machine &machine, double flops, double bytes,
               DType dtype) {
  auto peak = machine.flops.find(dtype);
  if (peak == machine.flops.end())
    peak = machine.flops.find(DType::F32);
  double arithmetic = peak != machine.flops.end() ? flops / peak->second : 0;
  int64_t active = machine.ranksPerHost
                       ? std::min(machine.ranksPerHost,
                                  std::max<int64_t>(1, machine.coresPerHost))
                       : 1;
  double memory = bytes / memoryBandwidth(machine, bytes, active);
  return std::max(arithmetic, memory) + machine.opSeconds;
}

double wholeBytes(const plan::Issue &issue, int64_t groupSize) {
  double size = static_cast<double>(dtypeSize(issue.dtype));
  double count = static_cast<double>(issue.count);
  switch (issue.kind) {
  case Kind::AllGather:
  case Kind::ReduceScatter:
  case Kind::Gather:
  case Kind::Scatter:
    return count * size * static_cast<double>(groupSize);
  case Kind::AllToAll: {
    if (issue.sendCounts.empty())
      return count * size * static_cast<double>(groupSize);
    double sum = 0;
    for (uint64_t part : issue.sendCounts)
      sum += static_cast<double>(part);
    return sum * size;
  }
  default:
    return count * size;
  }
}

} // namespace concord::cost

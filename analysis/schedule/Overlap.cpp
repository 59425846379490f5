//===- Overlap.cpp - Schedules tried, and the arena -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Up to three schedules are tried; and less memory, as long as the arena of the
// best one exceeds the limit.
//
//===----------------------------------------------------------------------===//

#include "concord/schedule/Overlap.h"

#include "Scheduler.h"

#include "concord/memory/Place.h"

#include <algorithm>
#include <cmath>

namespace concord::schedule {

/// Of what fills a gap, in gaps, before longer work is tried.
static constexpr double kFewGaps = 4;
/// Schedules tried under less memory where the arena exceeds the limit.
static constexpr unsigned kArenaAttempts = 4;

const char *toString(Reason reason) {
  switch (reason) {
  case Reason::Hidden:
    return "hidden";
  case Reason::PartlyHidden:
    return "consumer-too-soon";
  case Reason::ConsumerNext:
    return "nothing-independent";
  case Reason::MovedByCore:
    return "cores-move-the-bytes";
  case Reason::MemoryLimit:
    return "memory-limit";
  case Reason::NoGain:
    return "no-gain";
  case Reason::StartCost:
    return "start-costs-more";
  }
  return "";
}

static Schedule best(const Problem &problem) {
  constexpr double kAnyLength = 1e300;
  Schedule best = Scheduler(problem, /*reaches=*/false, kFewGaps).run();
  // While something is exposed. What is reached for takes memory and the link
  // from others, and what fills a short gap may hold up what comes after it, so
  // neither is always better.
  auto attempt = [&](bool reaches, double longest) {
    if (!best.possible ||
        best.secondsAfter <= best.computeSeconds * (1 + kLeastGain))
      return;
    Schedule other = Scheduler(problem, reaches, longest).run();
    if (other.secondsAfter < best.secondsAfter * (1 - kLeastGain))
      best = std::move(other);
  };
  attempt(true, kFewGaps);
  attempt(true, kAnyLength);
  return best;
}

std::vector<Action> givenActions(const Problem &problem) {
  std::vector<Action> actions;
  for (uint32_t n = 0; n < problem.nodes.size(); ++n) {
    if (problem.nodes[n].kind != Node::Kind::Collective) {
      actions.push_back({Action::Kind::Run, n});
      continue;
    }
    actions.push_back({Action::Kind::Start, n});
    actions.push_back({Action::Kind::Wait, n});
  }
  return actions;
}

static std::vector<memory::Buffer> buffersOf(const Problem &problem,
                                             const Schedule &schedule) {
  std::vector<memory::Buffer> buffers(problem.bytes.size());
  auto at = [](size_t i) { return static_cast<int64_t>(i); };
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const Node &node = problem.nodes[schedule.actions[i].node];
    // What is in flight reads and writes until it ends.
    for (uint32_t b : node.reads)
      buffers[b].last = at(i);
    for (uint32_t b : node.writes) {
      if (schedule.actions[i].kind != Action::Kind::Wait) {
        buffers[b].first = at(i);
        auto bytes = static_cast<int64_t>(std::ceil(problem.bytes[b]));
        buffers[b].bytes =
            (bytes + problem.align - 1) / problem.align * problem.align;
      }
      buffers[b].last = at(i);
    }
  }
  for (size_t b = 0; b < buffers.size(); ++b)
    if (b < problem.outlives.size() && problem.outlives[b])
      buffers[b].last = at(schedule.actions.size());
  return buffers;
}

double arenaBytes(const Problem &problem, const Schedule &schedule,
                  double enough) {
  return static_cast<double>(memory::place(buffersOf(problem, schedule),
                                           memory::kPlaceWork,
                                           static_cast<int64_t>(enough))
                                 .bytes);
}

Schedule overlap(const Problem &problem) {
  Schedule solution = best(problem);
  if (!solution.possible)
    return solution;
  Schedule given;
  given.actions = givenActions(problem);
  bool kept = solution.actions == given.actions;
  // The given order's is the limit where it is over it, and found as well as
  // can be then.
  double most =
      static_cast<double>(memory::largestLiveSet(buffersOf(problem, given)));
  solution.arenaBefore =
      arenaBytes(problem, given, std::max(solution.limit, most));
  double limit = std::max(solution.limit, solution.arenaBefore);
  auto exceeds = [&](Schedule &schedule) {
    schedule.arenaAfter = arenaBytes(problem, schedule, limit);
    return schedule.arenaAfter > limit;
  };
  solution.arenaAfter = solution.arenaBefore;
  if (kept || !exceeds(solution))
    return solution;
  // Less is held at once; at the least what the given order holds.
  Problem tighter = problem;
  double live = solution.limit;
  for (unsigned attempt = 0; attempt < kArenaAttempts; ++attempt) {
    live = std::max(solution.bytesBefore, std::min(live, solution.bytesAfter) *
                                              limit / solution.arenaAfter);
    tighter.limit = live;
    Schedule next = best(tighter);
    next.limit = solution.limit;
    next.arenaBefore = solution.arenaBefore;
    // Less held is often the same schedule again, or the given one.
    if (next.actions == solution.actions) {
      next.arenaAfter = solution.arenaAfter;
    } else if (next.actions == given.actions) {
      next.arenaAfter = solution.arenaBefore;
      return next;
    } else if (!exceeds(next)) {
      return next;
    }
    solution = std::move(next);
  }
  // As it was given.
  tighter.limit = solution.bytesBefore;
  tighter.keepAsGiven = true;
  Schedule last = best(tighter);
  last.limit = solution.limit;
  last.arenaBefore = last.arenaAfter = solution.arenaBefore;
  for (Decision &decision : last.decisions)
    decision.reason = Reason::MemoryLimit;
  return last;
}

} // namespace concord::schedule

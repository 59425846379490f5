//===- Overlap.cpp - Schedules tried, and the arena -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Several schedules are tried; and less memory, as long as the arena of the
// best one exceeds the limit.
//
//===----------------------------------------------------------------------===//

#include "concord/schedule/Overlap.h"

#include "Scheduler.h"

#include "concord/memory/Place.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace concord::schedule {

/// Of what fills a gap, in gaps, before longer work is tried.
static constexpr double kFewGaps = 4;
/// How much longer computations may take than predicted; and how much longer a
/// schedule may be predicted to take to be preferred for what it takes then.
static constexpr double kSlower = 2, kAsGood = 1.01;
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

/// `scaled` with computations that take `factor` times as long.
static Problem withCompute(Problem scaled, double factor) {
  for (Node &node : scaled.nodes)
    if (node.kind != Node::Kind::Collective)
      node.seconds *= factor;
  return scaled;
}

/// What `schedule`, made for a problem with other times, is for this one.
static void judge(const Problem &problem, Schedule &schedule,
                  const Schedule &plain) {
  Outcome found = outcome(problem, schedule.actions);
  schedule.secondsBefore = plain.secondsBefore;
  schedule.secondsAfter = found.seconds;
  schedule.computeSeconds = plain.computeSeconds;
  for (Decision &decision : schedule.decisions) {
    decision.seconds = problem.nodes[decision.node].seconds;
    decision.hidden = std::min(found.hidden[decision.node], decision.seconds);
    Reason now = howFar(decision.hidden, decision.seconds);
    bool held = decision.reason == Reason::MemoryLimit && now != Reason::Hidden;
    if (!held && decision.reason != Reason::MovedByCore &&
        decision.reason != Reason::StartCost &&
        decision.reason != Reason::NoGain)
      decision.reason = now;
  }
}

/// The best one of several list schedules. What is reached for takes memory and
/// the link from others, and what fills a short gap may hold up what comes
/// after it, so no rule is always better. Nor are times known well: where the
/// link is the bottleneck many orders take as long, but not if computation
/// takes longer than predicted.
static Schedule best(const Problem &problem) {
  constexpr double kAnyLength = 1e300;
  std::vector<Schedule> tried;
  tried.push_back(Scheduler(problem, /*reaches=*/false, kFewGaps).run());
  double least = tried.front().secondsAfter;
  // While something is exposed.
  auto done = [&] {
    return least <= tried.front().computeSeconds * (1 + kLeastGain);
  };
  if (!tried.front().possible || problem.keepAsGiven || done())
    return std::move(tried.front());
  auto attempt = [&](const Problem &given, double longest) {
    if (done())
      return;
    Schedule other = Scheduler(given, /*reaches=*/true, longest).run();
    if (&given != &problem)
      judge(problem, other, tried.front());
    least = std::min(least, other.secondsAfter);
    tried.push_back(std::move(other));
  };
  attempt(problem, kFewGaps);
  attempt(problem, kAnyLength);
  // Who believes in slower computation interleaves more finely.
  const Problem slower = withCompute(problem, kSlower);
  for (double factor : {kSlower, 2 * kSlower}) {
    if (done())
      break;
    attempt(withCompute(problem, factor), kAnyLength);
  }
  // Of those between which the model cannot tell, the one that stands its
  // errors best.
  size_t chosen = tried.size();
  std::pair<double, double> times;
  for (size_t i = 0; i < tried.size(); ++i) {
    if (tried[i].secondsAfter > least * kAsGood)
      continue;
    std::pair<double, double> now = {outcome(slower, tried[i].actions).seconds,
                                     tried[i].secondsAfter};
    bool better = now.first < times.first * (1 - kLeastGain) ||
                  (now.first <= times.first * (1 + kLeastGain) &&
                   now.second < times.second * (1 - kLeastGain));
    if (chosen == tried.size() || better) {
      chosen = i;
      times = now;
    }
  }
  return std::move(tried[chosen]);
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

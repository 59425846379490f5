//===- Ahead.cpp - What comes before its turn -----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Computations that fill a gap, collectives that start early enough to be
// hidden, or are held back for more urgent ones; and, in the second schedule
// that is tried (`reaches`), collectives that are started from behind the
// cursor so that what follows from them can fill a gap.
//
//===----------------------------------------------------------------------===//

#include "Scheduler.h"

#include <algorithm>
#include <array>
#include <set>

namespace concord::schedule {

/// Candidates looked at to fill one gap, and nodes moved up with a collective.
static constexpr unsigned kCandidates = 64, kClosure = 24, kAttempts = 6,
                          kNearby = 8;

/// Runs something ready before `until`; false when nothing is. What is ready
/// now goes first, else what is ready soonest.
bool Scheduler::fill(double until) {
  unsigned looked = 0;
  uint32_t last =
      static_cast<uint32_t>(std::min<size_t>(count, cursor + problem.window));
  uint32_t soonest = kNone;
  double soon = until;
  for (uint32_t n = readyAhead.next(cursor, last); n < last;
       n = readyAhead.next(n + 1, last)) {
    if (++looked > kCandidates)
      break;
    const Node &node = problem.nodes[n];
    double when = whenReady(n);
    if (when >= soon)
      continue;
    // Something much longer than the gap may only move the loss elsewhere.
    if (node.seconds > longest * (until - when))
      continue;
    if (!fits(n, false)) {
      for (uint32_t other : flying)
        memoryHeld[other] = true;
      continue;
    }
    soonest = n;
    soon = when;
    if (when <= now)
      break;
  }
  if (soonest == kNone)
    return false;
  runNode(soonest);
  return true;
}

/// Where a link is idle: starts a collective that only a little computation
/// keeps from it, before the host turns to its own.
bool Scheduler::nearby() {
  if (!reaches)
    return false;
  if (reach(now))
    return true;
  uint32_t last =
      static_cast<uint32_t>(std::min<size_t>(count, cursor + problem.window));
  std::array<uint32_t, kNearby> first{};
  size_t looked = 0;
  for (uint32_t n = readyAhead.next(cursor, last); n < last && looked < kNearby;
       n = readyAhead.next(n + 1, last))
    first[looked++] = n;
  // An attempt may run some of them, and be given up.
  for (size_t i = 0; i < looked; ++i) {
    uint32_t n = first[i], next = nextComm[n];
    if (next == kNone || next >= last || state[n] != State::Waiting ||
        state[next] != State::Waiting ||
        laneFree[problem.nodes[next].lane] > now || whenReady(n) > now ||
        mayHoldBack(next))
      continue;
    // Or much less than what the host has before it on the way to its next one.
    if (bringForward(next, 0.5 * std::max(problem.nodes[next].seconds,
                                          distance[cursor])))
      return true;
  }
  return false;
}

/// Starts a collective that is ready, so that its users can fill the next gap.
/// It begins before `until`, when the host has its own work again: a longer
/// queue would hold up what that work starts.
bool Scheduler::reach(double until) {
  unsigned looked = 0;
  uint32_t last =
      static_cast<uint32_t>(std::min<size_t>(count, cursor + problem.window));
  for (uint32_t n = readyComms.next(cursor, last); n < last;
       n = readyComms.next(n + 1, last)) {
    if (++looked > kCandidates)
      return false;
    if (laneFree[problem.nodes[n].lane] > until || whenReady(n) > now ||
        mayHoldBack(n))
      continue;
    if (!fits(n, true)) {
      for (uint32_t other : flying)
        memoryHeld[other] = true;
      continue;
    }
    start(n);
    return true;
  }
  return false;
}

/// Starts `n`, which lies behind the cursor, after the few computations that
/// it still needs, if they take `most` seconds or less.
bool Scheduler::bringForward(uint32_t n, double most) {
  std::vector<uint32_t> closure, stack = {n};
  std::set<uint32_t> seen = {n};
  double seconds = 0;
  while (!stack.empty()) {
    uint32_t at = stack.back();
    stack.pop_back();
    const Node &node = problem.nodes[at];
    if (at != n) {
      if (node.kind != Node::Kind::Compute || held[at])
        return false;
      seconds += node.seconds;
      closure.push_back(at);
    }
    for (uint32_t before : node.needs) {
      if (state[before] == State::Flying && ends[before] > now)
        return false;
      if (state[before] == State::Waiting && seen.insert(before).second) {
        if (seen.size() > kClosure)
          return false;
        stack.push_back(before);
      }
    }
  }
  if (held[n] || seconds > most)
    return false;
  std::sort(closure.begin(), closure.end());
  for (uint32_t before : closure) {
    if (before == cursor)
      return false; // the main loop is about to run it
    if (!fits(before, false)) {
      memoryHeld[n] = true;
      return false;
    }
    runNode(before);
  }
  if (!fits(n, true)) {
    memoryHeld[n] = true;
    return false;
  }
  start(n);
  return true;
}

void Scheduler::startEarly(double nextSeconds) {
  while (!triggers.empty() && triggers.top().at <= busy + nextSeconds) {
    Trigger trigger = triggers.top();
    triggers.pop();
    uint32_t n = trigger.node;
    if (state[n] != State::Waiting || n <= cursor)
      continue;
    if (n > cursor + problem.window ||
        !bringForward(n, 0.5 * problem.nodes[n].seconds)) {
      // Later, when more has been computed or freed.
      double again =
          std::max(problem.nodes[n].seconds / 4, (busyAt[n] - busy) / 4);
      if (++trigger.attempts < kAttempts && again > 0) {
        trigger.at = busy + nextSeconds + again;
        triggers.push(trigger);
      }
    }
  }
}

/// Whether a collective that is due had better stay behind: a more urgent one
/// on its lane will come before it could end, and it is not needed before.
bool Scheduler::mayHoldBack(uint32_t n) {
  const Node &node = problem.nodes[n];
  double from = busyAt[cursor];
  double need = busyAt[std::min<size_t>(firstUser(n), count - 1)];
  bool used = false;
  for (uint32_t user : users[n])
    used |= state[user] == State::Waiting;
  if (!used)
    need = busyAt.back();
  for (size_t priority = 0; priority < urgentAt.size(); ++priority) {
    const auto &list = urgentAt[priority];
    if (list.empty() || problem.nodes[list.front()].priority <= node.priority)
      continue;
    auto next = std::lower_bound(list.begin(), list.end(),
                                 static_cast<uint32_t>(cursor));
    while (next != list.end() && state[*next] != State::Waiting)
      ++next;
    if (next == list.end() || problem.nodes[*next].lane != node.lane)
      continue;
    double comes = busyAt[*next];
    if (comes - from < node.seconds &&
        need - comes > node.seconds + problem.nodes[*next].seconds)
      return true;
  }
  return false;
}

void Scheduler::startDelayed(size_t index) {
  uint32_t n = delayed[index];
  delayed.erase(delayed.begin() + static_cast<int64_t>(index));
  // Its inputs were kept for it, and are held by its own flight now.
  uint32_t end = static_cast<uint32_t>(latest[n]) - 1;
  start(n);
  for (uint32_t b : problem.nodes[n].reads) {
    auto &pins = buffers[b].pins;
    pins.erase(std::find(pins.begin(), pins.end(), end));
    settle(b);
  }
}

} // namespace concord::schedule

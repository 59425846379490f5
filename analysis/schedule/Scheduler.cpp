//===- Scheduler.cpp - List scheduling under a memory limit ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The order as it is given, followed by a cursor. What is taken from behind the
// cursor is in Ahead.cpp.
//
//===----------------------------------------------------------------------===//

#include "Scheduler.h"

#include <algorithm>

namespace concord::schedule {

/// A start that is brought forward has this much more time than it needs.
static constexpr double kSlack = 1.0;
/// A wait that nothing asks for comes when this much more time has passed than
/// the collective takes; its input is free again from there on.
static constexpr double kPatience = 1.25;

Scheduler::Scheduler(const Problem &problem, bool reaches, double longest)
    : problem(problem), reaches(reaches), longest(longest),
      count(problem.nodes.size()), missing(count, 0), held(count, 0),
      state(count, State::Waiting), issuedNode(count, false),
      memoryHeld(count, false), keptWhole(count, false), begins(count, 0),
      ends(count, 0), hiddenCompute(count, 0), buffers(problem.bytes.size()),
      profile(count), readyAhead(count), readyComms(count) {
  uint32_t lanes = 1;
  uint32_t lastBarrier = kNone, lastCollective = kNone;
  std::vector<uint32_t> sinceBarrier, needs;
  std::vector<std::pair<uint32_t, uint32_t>> used, ordered, read;
  used.reserve(2 * count);
  read.reserve(2 * count);
  std::vector<uint32_t> reader(buffers.size(), kNone); // the last one
  auto order = [&](uint32_t before, uint32_t n) {
    ordered.emplace_back(before, n);
    ++held[n];
  };
  for (uint32_t n = 0; n < count; ++n) {
    const Node &node = problem.nodes[n];
    lanes = std::max(lanes, node.lane + 1);
    needs.assign(node.needs.begin(), node.needs.end());
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    for (uint32_t before : needs)
      used.emplace_back(before, n);
    missing[n] = static_cast<uint32_t>(needs.size());
    if (node.kind == Node::Kind::Collective) {
      for (uint32_t before : node.after)
        order(before, n);
      if (lastBarrier != kNone)
        order(lastBarrier, n);
      if (problem.keepIssueOrder && lastCollective != kNone)
        order(lastCollective, n);
      lastCollective = n;
      sinceBarrier.push_back(n);
    } else if (node.kind == Node::Kind::Barrier) {
      if (lastBarrier != kNone)
        order(lastBarrier, n);
      for (uint32_t before : sinceBarrier)
        order(before, n);
      sinceBarrier.clear();
      lastBarrier = n;
    }
    for (uint32_t buffer : node.writes)
      buffers[buffer].producer = n;
    for (uint32_t buffer : node.reads)
      if (std::exchange(reader[buffer], n) != n)
        read.emplace_back(buffer, n);
  }
  users = Lists(count, used);
  successors = Lists(count, ordered);
  bufferUsers = Lists(buffers.size(), read);
  laneFree.assign(lanes, 0);
  nextComm.assign(count, kNone);
  distance.assign(count, 0);
  for (uint32_t n = static_cast<uint32_t>(count); n-- > 0;)
    for (uint32_t user : users[n]) {
      const Node &node = problem.nodes[user];
      bool flies = node.kind == Node::Kind::Collective && !node.onCore;
      uint32_t next = flies                              ? user
                      : node.kind == Node::Kind::Compute ? nextComm[user]
                                                         : kNone;
      if (next >= nextComm[n])
        continue;
      nextComm[n] = next;
      distance[n] = problem.nodes[n].seconds + (flies ? 0 : distance[user]);
    }
  std::vector<double> change(count + 1, 0);
  for (size_t b = 0; b < buffers.size(); ++b) {
    Buffer &buffer = buffers[b];
    buffer.users = bufferUsers[b];
    buffer.outlives = b < problem.outlives.size() && problem.outlives[b];
    if (buffer.producer == kNone)
      continue;
    buffer.last = lastUse(buffer);
    change[buffer.producer] += problem.bytes[b];
    change[static_cast<size_t>(buffer.last) + 1] -= problem.bytes[b];
  }
  profile.set(change);
}

int64_t Scheduler::lastUse(const Buffer &buffer) const {
  if (buffer.outlives)
    return static_cast<int64_t>(count) - 1;
  int64_t last = buffer.producer;
  if (!buffer.users.empty())
    last = std::max<int64_t>(last, buffer.users.back());
  for (uint32_t pin : buffer.pins)
    last = std::max<int64_t>(last, pin);
  return last;
}

/// The profile follows where a buffer ends now.
void Scheduler::settle(uint32_t b) {
  Buffer &buffer = buffers[b];
  if (buffer.producer == kNone || !buffer.born)
    return;
  while (!buffer.users.empty() && state[buffer.users.back()] != State::Waiting)
    buffer.users = buffer.users.first(buffer.users.size() - 1);
  // What nothing will use any more is gone at once.
  bool used = buffer.outlives || !buffer.users.empty() || !buffer.pins.empty();
  int64_t last = used ? lastUse(buffer) : static_cast<int64_t>(cursor) - 1;
  int64_t from = std::max<int64_t>(static_cast<int64_t>(cursor), 0);
  double bytes = problem.bytes[b];
  if (last > buffer.last)
    profile.change(
        static_cast<size_t>(std::max<int64_t>(buffer.last + 1, from)),
        static_cast<size_t>(last), bytes);
  else if (last < buffer.last)
    profile.change(static_cast<size_t>(std::max<int64_t>(last + 1, from)),
                   static_cast<size_t>(buffer.last), -bytes);
  buffer.last = last;
  if (!used && buffer.born && buffer.producer != kNone) {
    live -= bytes;
    buffer.producer = kNone; // dead: never settled again
  }
}

/// What `n` allocates lives from now on.
void Scheduler::birth(uint32_t n) {
  for (uint32_t b : problem.nodes[n].writes) {
    Buffer &buffer = buffers[b];
    buffer.born = true;
    live += problem.bytes[b];
    if (n > cursor)
      profile.change(cursor, n - 1, problem.bytes[b]);
  }
  peak = std::max(peak, live);
}

uint32_t Scheduler::firstUser(uint32_t n) const {
  for (uint32_t user : users[n])
    if (state[user] == State::Waiting)
      return user;
  return static_cast<uint32_t>(count); // the end
}

/// Where the wait of `n` comes at the latest, were it started now: before its
/// first user, or where it will long have ended.
uint32_t Scheduler::endPosition(uint32_t n) const {
  const Node &node = problem.nodes[n];
  double ends = std::max(now, laneFree[node.lane]) + node.seconds;
  double target = busyAt[cursor] + (ends - now) * kPatience;
  auto at = std::lower_bound(busyAt.begin() + static_cast<int64_t>(cursor) + 1,
                             busyAt.end(), target);
  auto position = static_cast<uint32_t>(at - busyAt.begin());
  return std::max(1u, std::min(firstUser(n), position));
}

/// Whether running, or starting, `n` now keeps the limit for ever.
bool Scheduler::fits(uint32_t n, bool starting) {
  const Node &node = problem.nodes[n];
  double born = 0;
  for (uint32_t b : node.writes)
    born += problem.bytes[b];
  if (live + born > limit)
    return false;
  // Between here and its own position its results live in addition.
  if (n > cursor && profile.maximum(cursor, n - 1) + born > limit)
    return false;
  if (!starting)
    return true;
  // Its inputs live until its first user waits for it.
  int64_t end = static_cast<int64_t>(endPosition(n)) - 1;
  double pinned = 0;
  int64_t least = end + 1;
  auto held = [&](uint32_t b) {
    if (buffers[b].producer != kNone && buffers[b].last < end) {
      pinned += problem.bytes[b];
      least = std::min(least, buffers[b].last + 1);
    }
  };
  for (uint32_t b : node.reads)
    held(b);
  for (uint32_t b : node.writes)
    held(b);
  least = std::max<int64_t>(least, static_cast<int64_t>(cursor));
  if (pinned <= 0 || least > end)
    return true;
  // Both together, where they meet.
  double extra = n > cursor && least < static_cast<int64_t>(n) ? born : 0;
  return profile.maximum(static_cast<size_t>(least), static_cast<size_t>(end)) +
             pinned + extra <=
         limit;
}

void Scheduler::finish(uint32_t n) {
  for (uint32_t user : users[n])
    if (--missing[user] == 0)
      noteReady(user);
}

void Scheduler::issued(uint32_t n) {
  if (issuedNode[n])
    return;
  issuedNode[n] = true;
  for (uint32_t next : successors[n])
    if (--held[next] == 0)
      noteReady(next);
}

/// Keeps what could run before its turn.
void Scheduler::noteReady(uint32_t n) {
  if (!ready(n) || n <= cursor || state[n] != State::Waiting)
    return;
  const Node &node = problem.nodes[n];
  if (node.kind == Node::Kind::Compute)
    readyAhead.insert(n);
  else if (reaches && node.kind == Node::Kind::Collective && !node.onCore)
    readyComms.insert(n);
}

double Scheduler::whenReady(uint32_t n) const {
  double when = now;
  for (uint32_t before : problem.nodes[n].needs)
    if (state[before] == State::Flying)
      when = std::max(when, ends[before]);
  return when;
}

void Scheduler::waitFor(uint32_t n) {
  result.actions.push_back({Action::Kind::Wait, n});
  now = std::max(now, ends[n]);
  state[n] = State::Done;
  flying.erase(std::find(flying.begin(), flying.end(), n));
  unpin(n, true);
}

/// What a flight holds, its inputs and its outputs, lives to where it ends.
void Scheduler::pin(uint32_t n, bool outputs) {
  auto end = static_cast<uint32_t>(latest[n]) - 1;
  for (uint32_t b : problem.nodes[n].reads) {
    buffers[b].pins.push_back(end);
    settle(b);
  }
  if (outputs)
    for (uint32_t b : problem.nodes[n].writes) {
      buffers[b].pins.push_back(end);
      settle(b);
    }
}

void Scheduler::unpin(uint32_t n, bool outputs) {
  auto end = static_cast<uint32_t>(latest[n]) - 1;
  auto release = [&](uint32_t b) {
    auto &pins = buffers[b].pins;
    pins.erase(std::find(pins.begin(), pins.end(), end));
    settle(b);
  };
  for (uint32_t b : problem.nodes[n].reads)
    release(b);
  if (outputs)
    for (uint32_t b : problem.nodes[n].writes)
      release(b);
}

void Scheduler::waitForNeeds(uint32_t n) {
  // In the order in which they end.
  std::vector<uint32_t> list;
  for (uint32_t before : problem.nodes[n].needs)
    if (state[before] == State::Flying)
      list.push_back(before);
  std::sort(list.begin(), list.end(), [&](uint32_t a, uint32_t b) {
    return ends[a] != ends[b] ? ends[a] < ends[b] : a < b;
  });
  list.erase(std::unique(list.begin(), list.end()), list.end());
  for (uint32_t before : list)
    waitFor(before);
}

void Scheduler::runNode(uint32_t n) {
  const Node &node = problem.nodes[n];
  waitForNeeds(n);
  if (node.kind == Node::Kind::Barrier)
    while (!flying.empty())
      waitFor(flying.front());
  result.actions.push_back({Action::Kind::Run, n});
  birth(n);
  // What flies meanwhile is hidden behind it.
  for (uint32_t other : flying) {
    double overlap = std::min(ends[other], now + node.seconds) -
                     std::max(begins[other], now);
    hiddenCompute[other] += std::max(0.0, overlap);
  }
  readyAhead.erase(n);
  complete(n);
}

void Scheduler::complete(uint32_t n) {
  const Node &node = problem.nodes[n];
  now += node.seconds;
  busy += node.seconds;
  state[n] = State::Done;
  issued(n);
  finish(n);
  for (uint32_t b : node.reads)
    settle(b);
  for (uint32_t b : node.writes)
    settle(b);
}

void Scheduler::start(uint32_t n) {
  const Node &node = problem.nodes[n];
  waitForNeeds(n);
  uint32_t end = endPosition(n);
  result.actions.push_back({Action::Kind::Start, n});
  birth(n);
  begins[n] = std::max(now, laneFree[node.lane]);
  ends[n] = begins[n] + node.seconds;
  laneFree[node.lane] = ends[n];
  latest[n] = end; // from here on: the position of its wait
  state[n] = State::Flying;
  readyComms.erase(n);
  flying.push_back(n);
  pin(n, true);
  issued(n);
  // Its users may be scheduled; they wait for it first.
  finish(n);
}
/// Time and memory of the given order, every collective in place.
void Scheduler::measureGiven() {
  busyAt.assign(count + 1, 0);
  for (uint32_t n = 0; n < count; ++n) {
    const Node &node = problem.nodes[n];
    bool comm = node.kind == Node::Kind::Collective;
    (comm ? result.commSeconds : result.computeSeconds) += node.seconds;
    busyAt[n + 1] = busyAt[n] + (comm && !node.onCore ? 0 : node.seconds);
  }
  result.secondsBefore = result.commSeconds + result.computeSeconds;
  result.bytesBefore = count ? std::max(0.0, profile.maximum(0, count - 1)) : 0;
}

/// When each collective has to start to be there when it is needed, if the
/// host never waited: backwards over those of a lane, by when they are needed.
void Scheduler::latestStarts() {
  latest.assign(count, 0);
  std::vector<uint32_t> list;
  for (uint32_t n = 0; n < count; ++n)
    if (problem.nodes[n].kind == Node::Kind::Collective &&
        !problem.nodes[n].onCore)
      list.push_back(n);
  auto need = [&](uint32_t n) {
    return users[n].empty() ? busyAt[count] : busyAt[users[n].front()];
  };
  std::stable_sort(list.begin(), list.end(),
                   [&](uint32_t a, uint32_t b) { return need(a) > need(b); });
  std::vector<double> free(laneFree.size(), 1e300);
  for (uint32_t n : list) {
    const Node &node = problem.nodes[n];
    double end = std::min(need(n), free[node.lane]);
    latest[n] = end - node.seconds;
    free[node.lane] = latest[n];
    triggers.push({latest[n] - kSlack * node.seconds, n, 0});
  }
}

Schedule Scheduler::run() {
  measureGiven();
  limit =
      problem.limit >= 0 ? problem.limit : result.bytesBefore * problem.growth;
  // Sums of doubles in another order may differ in the last bits.
  limit *= 1 + 1e-12;
  result.limit = limit;
  if (result.bytesBefore > limit) {
    result.possible = false;
    return std::move(result);
  }
  latestStarts();
  {
    std::vector<std::pair<int32_t, uint32_t>> byPriority;
    for (uint32_t n = 0; n < count; ++n)
      if (problem.nodes[n].kind == Node::Kind::Collective)
        byPriority.emplace_back(problem.nodes[n].priority, n);
    std::sort(byPriority.begin(), byPriority.end());
    for (auto [priority, n] : byPriority) {
      if (urgentAt.empty() ||
          problem.nodes[urgentAt.back().front()].priority != priority)
        urgentAt.emplace_back();
      urgentAt.back().push_back(n);
    }
  }
  for (uint32_t n = 0; n < count; ++n)
    noteReady(n);
  result.actions.reserve(2 * count);

  while (cursor < count) {
    auto n = static_cast<uint32_t>(cursor);
    readyAhead.erase(n);
    readyComms.erase(n);
    if (state[n] != State::Waiting) {
      ++cursor;
      continue;
    }
    const Node &node = problem.nodes[n];
    bool collective = node.kind == Node::Kind::Collective;
    // Where a wait was promised, it is.
    for (size_t i = 0; i < flying.size();) {
      uint32_t other = flying[i];
      bool needed = std::find(node.needs.begin(), node.needs.end(), other) !=
                    node.needs.end();
      if (latest[other] < n || (latest[other] == n && !needed))
        waitFor(other);
      else
        ++i;
    }
    for (size_t i = 0; i < delayed.size();) {
      uint32_t other = delayed[i];
      bool due = latest[other] <= static_cast<double>(n) ||
                 std::find(node.needs.begin(), node.needs.end(), other) !=
                     node.needs.end();
      if (due || !mayHoldBack(other))
        startDelayed(i);
      else
        ++i;
    }
    startEarly(collective ? 0 : node.seconds);
    if (state[n] != State::Waiting)
      continue;
    // Wait for what it needs, filling the time.
    double when = whenReady(n);
    if (when > now) {
      if (nearby() || fill(when) || reach(when))
        continue;
      startEarly(when - now);
      if (state[n] != State::Waiting)
        continue;
    }
    // A held one comes before what must come after it.
    if (held[n] && !delayed.empty()) {
      startDelayed(0);
      continue;
    }
    if (!collective) {
      if (node.seconds > 0 && nearby())
        continue;
      runNode(n);
      ++cursor;
      continue;
    }
    if (node.onCore) {
      waitForNeeds(n);
      result.actions.push_back({Action::Kind::Start, n});
      result.actions.push_back({Action::Kind::Wait, n});
      birth(n);
      complete(n);
      ++cursor;
      continue;
    }
    bool flies = fits(n, true);
    // Its inputs have to be kept until it starts, and then until it ends.
    if (flies && !problem.keepIssueOrder && mayHoldBack(n)) {
      uint32_t end = std::min(firstUser(n), static_cast<uint32_t>(count - 1));
      double kept = 0;
      for (uint32_t b : node.reads)
        kept += buffers[b].producer != kNone ? problem.bytes[b] : 0;
      // What nobody uses would live where nothing was planned for it.
      bool used =
          std::none_of(node.writes.begin(), node.writes.end(), [&](uint32_t b) {
            return buffers[b].users.empty() && !buffers[b].outlives;
          });
      if (used && end > n + 1 && profile.maximum(n + 1, end) + kept <= limit) {
        latest[n] = end;
        delayed.push_back(n);
        pin(n, false);
        ++cursor;
        continue;
      }
    }
    start(n);
    if (!flies) {
      memoryHeld[n] = true;
      waitFor(n);
    }
    ++cursor;
  }
  while (!delayed.empty())
    startDelayed(0);
  while (!flying.empty())
    waitFor(flying.front());
  result.secondsAfter = now;
  result.bytesAfter = peak;
  if (problem.startSeconds > 0)
    keepWhole();

  bool gain =
      !problem.keepAsGiven &&
      result.secondsAfter < result.secondsBefore * (1 - kLeastGain) - 1e-12;
  for (uint32_t n = 0; n < count; ++n) {
    const Node &node = problem.nodes[n];
    if (node.kind != Node::Kind::Collective)
      continue;
    Decision decision;
    decision.node = n;
    decision.seconds = node.seconds;
    decision.hidden = gain ? std::min(hiddenCompute[n], node.seconds) : 0;
    decision.earlier = false;
    if (node.onCore)
      decision.reason = Reason::MovedByCore;
    else if (!gain)
      decision.reason = memoryHeld[n] ? Reason::MemoryLimit : Reason::NoGain;
    else if (keptWhole[n])
      decision.reason = Reason::StartCost;
    else if (node.seconds <= 0) // a group of one: there is nothing to hide
      decision.reason = Reason::NoGain;
    else
      decision.reason = howFar(decision.hidden, node.seconds);
    if (memoryHeld[n] && (decision.reason == Reason::PartlyHidden ||
                          decision.reason == Reason::ConsumerNext))
      decision.reason = Reason::MemoryLimit;
    result.decisions.push_back(decision);
  }
  if (!gain) {
    result.actions = givenActions(problem);
    result.secondsAfter = result.secondsBefore;
    result.bytesAfter = result.bytesBefore;
  } else {
    // Brought forward: it starts before some computation that was before it.
    std::vector<size_t> at(count, 0);
    for (size_t i = 0; i < result.actions.size(); ++i)
      if (result.actions[i].kind != Action::Kind::Wait)
        at[result.actions[i].node] = i;
    size_t latestBefore = 0;
    std::vector<bool> earlier(count, false);
    for (uint32_t n = 0; n < count; ++n) {
      earlier[n] = at[n] < latestBefore;
      latestBefore = std::max(latestBefore, at[n]);
    }
    for (Decision &decision : result.decisions)
      decision.earlier = earlier[decision.node];
  }
  return std::move(result);
}

} // namespace concord::schedule

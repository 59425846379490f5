//===- Overlap.cpp - List scheduling under a memory limit -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The limit is kept by an invariant: a segment tree holds, for every position
// of the given order that is still to come, what would live there if the rest
// were run in that order from now on. A move is made only when the tree stays
// under the limit everywhere, so there is always a way to finish.
//
//===----------------------------------------------------------------------===//

#include "concord/schedule/Overlap.h"

#include "concord/memory/Place.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <set>

namespace concord::schedule {

static std::vector<Action> givenActions(const Problem &problem);

namespace {

constexpr uint32_t kNone = ~0u;
/// Candidates looked at to fill one gap, and nodes moved up with a collective.
constexpr unsigned kCandidates = 64, kClosure = 24, kAttempts = 6, kNearby = 8;
/// A start that is brought forward has this much more time than it needs.
constexpr double kSlack = 1.0;
/// A wait that nothing asks for comes when this much more time has passed than
/// the collective takes; its input is free again from there on.
constexpr double kPatience = 1.25;
/// Schedules tried under less memory where the arena exceeds the limit.
constexpr unsigned kArenaAttempts = 4;
/// Less than this part of the step is no gain.
constexpr double kLeastGain = 1e-4;

/// Range add, range maximum.
class Profile {
public:
  explicit Profile(size_t count) : count(std::max<size_t>(1, count)) {
    size_t size = 1;
    while (size < this->count)
      size *= 2;
    leaves = size;
    most.assign(2 * size, 0);
    add.assign(2 * size, 0);
  }
  void change(size_t first, size_t last, double value) {
    if (first <= last && value != 0)
      change(1, 0, leaves - 1, first, std::min(last, count - 1), value);
  }
  double maximum(size_t first, size_t last) const {
    return first > last
               ? 0
               : maximum(1, 0, leaves - 1, first, std::min(last, count - 1));
  }

private:
  void change(size_t node, size_t low, size_t high, size_t first, size_t last,
              double value) {
    if (first > high || last < low)
      return;
    if (first <= low && high <= last) {
      most[node] += value;
      add[node] += value;
      return;
    }
    size_t middle = (low + high) / 2;
    change(2 * node, low, middle, first, last, value);
    change(2 * node + 1, middle + 1, high, first, last, value);
    most[node] = add[node] + std::max(most[2 * node], most[2 * node + 1]);
  }
  double maximum(size_t node, size_t low, size_t high, size_t first,
                 size_t last) const {
    if (first > high || last < low)
      return -1e300;
    if (first <= low && high <= last)
      return most[node];
    size_t middle = (low + high) / 2;
    return add[node] +
           std::max(maximum(2 * node, low, middle, first, last),
                    maximum(2 * node + 1, middle + 1, high, first, last));
  }

  size_t count, leaves;
  std::vector<double> most, add;
};

class Scheduler {
public:
  /// `reaches`: where the host would stand still, collectives from behind the
  /// cursor are started, so that what follows from them can fill the time.
  Scheduler(const Problem &problem, bool reaches);
  Schedule run();

private:
  enum class State : uint8_t { Waiting, Flying, Done };
  struct Buffer {
    uint32_t producer = kNone;
    std::vector<uint32_t> users; ///< positions, ascending; popped when done
    std::vector<uint32_t> pins;  ///< where flights that read it will end
    int64_t last = -1;           ///< position to which it lives
    bool born = false, outlives = false;
  };

  bool ready(uint32_t n) const { return missing[n] == 0 && held[n] == 0; }
  void finish(uint32_t n); ///< results exist
  void issued(uint32_t n); ///< others may be issued now
  void noteReady(uint32_t n);
  void runNode(uint32_t n);
  void start(uint32_t n);
  void waitFor(uint32_t n);
  void pin(uint32_t n, bool outputs);
  void unpin(uint32_t n, bool outputs);
  void waitForNeeds(uint32_t n);
  double whenReady(uint32_t n) const;
  bool fits(uint32_t n, bool starting);
  void birth(uint32_t n);
  void settle(uint32_t buffer);
  int64_t lastUse(const Buffer &buffer) const;
  uint32_t firstUser(uint32_t n) const;
  uint32_t endPosition(uint32_t n) const;
  void startDelayed(size_t index);
  bool fill(double until);
  bool reach(double until);
  bool nearby();
  void startEarly(double nextSeconds);
  bool bringForward(uint32_t n, double most);
  bool mayHoldBack(uint32_t n);
  void measureGiven();
  void latestStarts();

  const Problem &problem;
  bool reaches;
  size_t count;
  std::vector<std::vector<uint32_t>> users, successors;
  std::vector<uint32_t> missing, held;
  std::vector<State> state;
  std::vector<bool> issuedNode, memoryHeld;
  std::vector<double> begins, ends, hiddenCompute;
  std::vector<Buffer> buffers;
  Profile profile;
  size_t cursor = 0;
  double now = 0, busy = 0, live = 0, peak = 0, limit = 0;
  std::vector<double> laneFree;
  std::set<uint32_t> readyAhead; ///< computations behind the cursor
  std::set<uint32_t> readyComms; ///< collectives behind the cursor
  /// The first collective that a computation leads to without another between.
  std::vector<uint32_t> nextComm;
  std::vector<double> distance; ///< seconds of computation on the way there
  std::vector<double> latest, busyAt;
  struct Trigger {
    double at;
    uint32_t node, attempts;
    bool operator>(const Trigger &other) const {
      return at != other.at ? at > other.at : node > other.node;
    }
  };
  std::priority_queue<Trigger, std::vector<Trigger>, std::greater<>> triggers;
  std::vector<uint32_t> flying;
  std::vector<std::vector<uint32_t>> urgentAt; ///< collectives by priority
  std::vector<uint32_t> delayed; ///< held back for more urgent ones
  Schedule result;
};

} // namespace

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
  }
  return "";
}

Scheduler::Scheduler(const Problem &problem, bool reaches)
    : problem(problem), reaches(reaches), count(problem.nodes.size()),
      users(count), successors(count), missing(count, 0), held(count, 0),
      state(count, State::Waiting), issuedNode(count, false),
      memoryHeld(count, false), begins(count, 0), ends(count, 0),
      hiddenCompute(count, 0), buffers(problem.bytes.size()), profile(count) {
  uint32_t lanes = 1;
  uint32_t lastBarrier = kNone, lastCollective = kNone;
  std::vector<uint32_t> sinceBarrier;
  auto order = [&](uint32_t before, uint32_t n) {
    successors[before].push_back(n);
    ++held[n];
  };
  for (uint32_t n = 0; n < count; ++n) {
    const Node &node = problem.nodes[n];
    lanes = std::max(lanes, node.lane + 1);
    std::vector<uint32_t> needs = node.needs;
    std::sort(needs.begin(), needs.end());
    needs.erase(std::unique(needs.begin(), needs.end()), needs.end());
    for (uint32_t before : needs) {
      users[before].push_back(n);
      ++missing[n];
    }
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
      if (buffers[buffer].users.empty() || buffers[buffer].users.back() != n)
        buffers[buffer].users.push_back(n);
  }
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
  for (size_t b = 0; b < buffers.size(); ++b) {
    Buffer &buffer = buffers[b];
    buffer.outlives = b < problem.outlives.size() && problem.outlives[b];
    if (buffer.producer == kNone)
      continue;
    buffer.last = lastUse(buffer);
    profile.change(buffer.producer, static_cast<size_t>(buffer.last),
                   problem.bytes[b]);
  }
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
    buffer.users.pop_back();
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
  now += node.seconds;
  busy += node.seconds;
  state[n] = State::Done;
  readyAhead.erase(n);
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

/// Runs something ready before `until`; false when nothing is. What is ready
/// now goes first, else what is ready soonest.
bool Scheduler::fill(double until) {
  unsigned looked = 0;
  uint32_t last =
      static_cast<uint32_t>(std::min<size_t>(count, cursor + problem.window));
  uint32_t soonest = kNone;
  double soon = until;
  for (uint32_t n : readyAhead) {
    if (n >= last || ++looked > kCandidates)
      break;
    const Node &node = problem.nodes[n];
    double when = whenReady(n);
    if (when >= soon)
      continue;
    // Something much longer than the gap would only move the loss elsewhere.
    if (node.seconds > 4 * (until - when))
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
  for (uint32_t n : readyAhead) {
    if (n >= last || looked == kNearby)
      break;
    first[looked++] = n;
  }
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
  for (uint32_t n : readyComms) {
    if (n >= last || ++looked > kCandidates)
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
      now += node.seconds;
      busy += node.seconds;
      state[n] = State::Done;
      issued(n);
      finish(n);
      for (uint32_t b : node.reads)
        settle(b);
      for (uint32_t b : node.writes)
        settle(b);
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
    else if (node.seconds <= 0) // a group of one: there is nothing to hide
      decision.reason = Reason::NoGain;
    else if (decision.hidden >= node.seconds * (1 - 1e-6))
      decision.reason = Reason::Hidden;
    else if (memoryHeld[n])
      decision.reason = Reason::MemoryLimit;
    else if (decision.hidden > 0)
      decision.reason = Reason::PartlyHidden;
    else
      decision.reason = Reason::ConsumerNext;
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

static Schedule best(const Problem &problem) {
  Schedule best = Scheduler(problem, /*reaches=*/false).run();
  // Something is exposed still. What is reached for takes memory and the link
  // from others, so it is not always better.
  if (best.possible &&
      best.secondsAfter > best.computeSeconds * (1 + kLeastGain)) {
    Schedule other = Scheduler(problem, /*reaches=*/true).run();
    if (other.secondsAfter < best.secondsAfter * (1 - kLeastGain))
      return other;
  }
  return best;
}

/// The order as it is given, every collective in place.
static std::vector<Action> givenActions(const Problem &problem) {
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

double arenaBytes(const Problem &problem, const Schedule &schedule,
                  bool quick) {
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
  return static_cast<double>(
      memory::place(buffers, quick ? 0 : memory::kPlaceWork).bytes);
}

Schedule overlap(const Problem &problem) {
  Schedule solution = best(problem);
  Schedule given;
  given.actions = givenActions(problem);
  bool kept = solution.actions == given.actions;
  // The near-linear rules are enough where they keep the limit.
  double limit = solution.limit;
  auto exceeds = [&](const Schedule &schedule, double &bytes) {
    bytes = arenaBytes(problem, schedule, /*quick=*/true);
    if (bytes > limit)
      bytes = arenaBytes(problem, schedule, /*quick=*/false);
    return bytes > limit;
  };
  bool over = exceeds(given, solution.arenaBefore);
  if (problem.hard && over)
    solution.possible = false;
  if (!solution.possible)
    return solution;
  if (over)
    limit = solution.arenaBefore;
  solution.arenaAfter = solution.arenaBefore;
  if (kept || !exceeds(solution, solution.arenaAfter))
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
    if (!exceeds(next, next.arenaAfter))
      return next;
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
  uint32_t lastBarrier = kNone, lastCollective = kNone;
  std::vector<uint32_t> since;
  for (uint32_t n = 0; n < count; ++n) {
    Node::Kind kind = problem.nodes[n].kind;
    if (kind == Node::Kind::Compute)
      continue;
    if (lastBarrier != kNone && issue[lastBarrier] > issue[n])
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
    if (problem.keepIssueOrder && lastCollective != kNone &&
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

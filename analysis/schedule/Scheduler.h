//===- Scheduler.h - One list scheduling ------------------------*- C++ -*-===//
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

#ifndef CONCORD_ANALYSIS_SCHEDULE_SCHEDULER_H
#define CONCORD_ANALYSIS_SCHEDULE_SCHEDULER_H

#include "Profile.h"

#include "concord/schedule/Overlap.h"

#include <bit>
#include <functional>
#include <queue>
#include <span>
#include <utility>

namespace concord::schedule {

inline constexpr uint32_t kNone = ~0u;
/// Less than this part of the step is no gain.
inline constexpr double kLeastGain = 1e-4;

/// How much of a collective that takes `seconds` is hidden, in a word.
inline Reason howFar(double hidden, double seconds) {
  return hidden >= seconds * (1 - 1e-6) ? Reason::Hidden
         : hidden > 0                   ? Reason::PartlyHidden
                                        : Reason::ConsumerNext;
}

/// The order as it is given, every collective in place.
std::vector<Action> givenActions(const Problem &problem);

/// Lists of numbers, all in one piece of memory.
class Lists {
public:
  Lists() = default;
  /// `count` lists; `pairs` are of a list and what it holds, in its order.
  Lists(size_t count, const std::vector<std::pair<uint32_t, uint32_t>> &pairs)
      : begins(count + 1, 0), values(pairs.size()) {
    for (auto [list, value] : pairs)
      ++begins[list + 1];
    for (size_t i = 0; i < count; ++i)
      begins[i + 1] += begins[i];
    std::vector<uint32_t> next(begins.begin(), begins.end() - 1);
    for (auto [list, value] : pairs)
      values[next[list]++] = value;
  }
  std::span<const uint32_t> operator[](size_t list) const {
    return {values.data() + begins[list], begins[list + 1] - begins[list]};
  }

private:
  std::vector<uint32_t> begins, values;
};

/// A set of positions.
class Positions {
public:
  explicit Positions(size_t count) : words(count / 64 + 1, 0) {}
  void insert(uint32_t n) { words[n / 64] |= uint64_t(1) << n % 64; }
  void erase(uint32_t n) { words[n / 64] &= ~(uint64_t(1) << n % 64); }
  /// The first one from `from` on and before `end`; `end`: none.
  uint32_t next(size_t from, uint32_t end) const {
    for (size_t at = from; at < end; at = (at / 64 + 1) * 64)
      if (uint64_t rest = words[at / 64] >> at % 64)
        return std::min(end, static_cast<uint32_t>(at) +
                                 static_cast<uint32_t>(std::countr_zero(rest)));
    return end;
  }

private:
  std::vector<uint64_t> words;
};

class Scheduler {
public:
  /// `reaches`: where the host would stand still, collectives from behind the
  /// cursor are started, so that what follows from them can fill the time.
  /// `longest`: of what fills a gap, in gaps.
  Scheduler(const Problem &problem, bool reaches, double longest);
  Schedule run();

private:
  enum class State : uint8_t { Waiting, Flying, Done };
  struct Buffer {
    uint32_t producer = kNone;
    std::span<const uint32_t> users; ///< positions, ascending; less when done
    std::vector<uint32_t> pins;      ///< where flights that read it will end
    int64_t last = -1;               ///< position to which it lives
    bool born = false, outlives = false;
  };

  bool ready(uint32_t n) const { return missing[n] == 0 && held[n] == 0; }
  void finish(uint32_t n);   ///< results exist
  void complete(uint32_t n); ///< the core has done it
  void issued(uint32_t n);   ///< others may be issued now
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
  void keepWhole();

  const Problem &problem;
  bool reaches;
  double longest;
  size_t count;
  Lists users, successors, bufferUsers;
  std::vector<uint32_t> missing, held;
  std::vector<State> state;
  std::vector<bool> issuedNode, memoryHeld, keptWhole;
  std::vector<double> begins, ends, hiddenCompute;
  std::vector<Buffer> buffers;
  Profile profile;
  size_t cursor = 0;
  double now = 0, busy = 0, live = 0, peak = 0, limit = 0;
  std::vector<double> laneFree;
  Positions readyAhead; ///< computations behind the cursor
  Positions readyComms; ///< collectives behind the cursor
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

} // namespace concord::schedule

#endif // CONCORD_ANALYSIS_SCHEDULE_SCHEDULER_H

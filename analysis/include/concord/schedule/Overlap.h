//===- Overlap.h - Which operation goes where ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The scheduling problem of comm-overlap, without MLIR: operations of one
// block in a valid order, what they need, what they allocate, and how long they
// take; and its solution, an order of computations, starts and waits that keeps
// every dependence and never holds more than the limit.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SCHEDULE_OVERLAP_H
#define CONCORD_SCHEDULE_OVERLAP_H

#include <cstdint>
#include <string>
#include <vector>

namespace concord::schedule {

struct Node {
  enum class Kind : uint8_t {
    Compute,
    Collective, ///< may be split into a start and a wait
    Barrier,    ///< nothing that communicates is moved across
  } kind = Kind::Compute;
  double seconds = 0; ///< of computation, or on the link
  /// The cores move the bytes: it takes the host's time, started or not.
  bool onCore = false;
  int32_t priority = 0; ///< of the domain; higher goes first
  uint32_t lane = 0;    ///< operations of one lane run one after the other
  std::vector<uint32_t> needs; ///< earlier nodes whose results it takes
  /// Collective: earlier collectives that must be issued before it.
  std::vector<uint32_t> after;
  std::vector<uint32_t> reads;  ///< buffers
  std::vector<uint32_t> writes; ///< buffers that begin their life here
};

struct Problem {
  std::vector<Node> nodes;    ///< in a valid order
  std::vector<double> bytes;  ///< of each buffer
  std::vector<bool> outlives; ///< buffers that live to the end
  int64_t align = 1;          ///< of buffers in the arena
  /// Bytes that may live at once, and that their arena may have unless that of
  /// the given order has more; < 0: growth decides.
  double limit = -1;
  double growth = 1.1; ///< without a limit: times the given order's
  /// What a start and a wait cost: a collective that hides less stays whole.
  double startSeconds = 0;
  bool keepIssueOrder = false; ///< collectives keep their relative order
  bool keepAsGiven = false;    ///< the given order is the solution
  uint32_t window = 4096;      ///< how far ahead an operation may come from
};

struct Action {
  enum class Kind : uint8_t { Run, Start, Wait } kind;
  uint32_t node;
  bool operator==(const Action &) const = default;
};

/// Why a collective is not hidden, or how far it is.
enum class Reason : uint8_t {
  Hidden,       ///< all of it
  PartlyHidden, ///< its consumers come before it ends
  ConsumerNext, ///< nothing independent lies between it and its consumer
  MovedByCore,  ///< the cores that would compute move its bytes
  MemoryLimit,  ///< starting it earlier, or something in between, did not fit
  NoGain,       ///< the order found is not better than the given one
  StartCost,    ///< a start and a wait cost more than what they would hide
};
const char *toString(Reason reason);

struct Decision {
  uint32_t node = 0;
  Reason reason = Reason::ConsumerNext;
  double seconds = 0;   ///< on the link
  double hidden = 0;    ///< of that, behind computation
  bool earlier = false; ///< it starts before something that was before it
};

struct Schedule {
  bool possible = true;        ///< false: the given order is over the limit
  std::vector<Action> actions; ///< Start and Wait side by side: keep it whole
  std::vector<Decision> decisions; ///< one per collective, in the given order
  double secondsBefore = 0, secondsAfter = 0; ///< predicted
  double computeSeconds = 0, commSeconds = 0;
  double bytesBefore = 0, bytesAfter = 0; ///< most that live at once
  double limit = 0;                       ///< that was kept
  double arenaBefore = 0, arenaAfter = 0; ///< bytes that their buffers take
};

/// What actions take that are a valid schedule.
struct Outcome {
  double seconds = 0;         ///< predicted
  double bytes = 0;           ///< most that live at once
  std::vector<double> hidden; ///< of each node, behind computation
};
Outcome outcome(const Problem &problem, const std::vector<Action> &actions);

/// Bytes of an arena for the buffers of `schedule`, as memory::place() finds
/// it; it stops at `enough`.
double arenaBytes(const Problem &problem, const Schedule &schedule,
                  double enough);

/// List scheduling along the given order: a gap before an operation that waits
/// is filled with later ones that are ready, and collectives that are ready
/// long before they are needed start as late as hides them. Where holes between
/// buffers make the arena exceed the limit, less is held at once until it does
/// not. Near-linear.
Schedule overlap(const Problem &problem);

/// Checks a schedule independently: every node once, dependences, issue order,
/// barriers, memory. Returns what is wrong, or "".
std::string verify(const Problem &problem, const Schedule &schedule);

} // namespace concord::schedule

#endif // CONCORD_SCHEDULE_OVERLAP_H

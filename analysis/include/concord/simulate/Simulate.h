//===- Simulate.h - Predicted time of a step --------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A discrete-event model of a job: every rank computes, issues and waits in the
// order of its program; operations of one lane run one after the other; a
// collective begins when all members have started it and takes the time that
// the cost model says, longer where it shares a link or a core. Ranks that
// cannot be told apart are simulated once (docs/simulate.md).
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SIMULATE_SIMULATE_H
#define CONCORD_SIMULATE_SIMULATE_H

#include "concord/cost/Cost.h"

namespace concord::simulate {

struct Issue {
  plan::Kind kind = plan::Kind::AllReduce;
  uint32_t domain = 0;
  uint32_t lane = 0;
  bool synchronous = true;
  double bytes = 0; ///< of the whole array, as cost::collective takes them
  /// Transfers: (source, target) group ranks; a member that is in no pair
  /// passes by.
  std::vector<std::array<int32_t, 2>> pairs;
  std::string name;
};

struct Step {
  enum class Type : uint8_t { Compute, Issue, Wait } type = Type::Compute;
  uint32_t index = 0; ///< Issue, Wait: into Program::issues; else into names
  double seconds = 0; ///< Compute
};

struct Program {
  std::string name;
  std::vector<int32_t> ranks;
  std::vector<Issue> issues;
  std::vector<std::string> names; ///< of computations
  std::vector<Step> steps;        ///< loops unrolled
};

struct Job {
  uint32_t world = 1;
  std::vector<plan::Domain> domains;
  std::vector<Program> programs;
  /// What the prediction leaves out, for the output.
  std::vector<std::string> notes;
};

/// Ranks that behave alike.
struct RankClass {
  uint32_t program = 0;
  std::vector<int32_t> ranks;
  double seconds = 0; ///< when they finish
  double compute = 0; ///< for which they compute
};

/// Something that took time on a class of ranks.
struct Span {
  enum class Kind : uint8_t {
    Compute,
    Wait,  ///< the host is held up by a collective
    Queue, ///< a collective waits for its lane or for other members
    Transfer,
  } kind = Kind::Compute;
  bool critical = false;
  uint32_t rankClass = 0;
  uint32_t lane = 0;  ///< Queue, Transfer
  uint32_t index = 0; ///< Compute: into names; else into issues
  double begin = 0, end = 0;
};

struct DomainLoad {
  uint64_t issues = 0;     ///< of one rank, the busiest
  double busy = 0;         ///< seconds for which transfers run on one rank
  double exposed = 0;      ///< of the longest class: the host waits for them
  double exposedQueue = 0; ///< of that: before the transfer began
};

struct LinkLoad {
  std::string level;
  int64_t blocks = 0;     ///< that have links into this level
  double capacity = 0;    ///< bytes/s of one block's links in one direction
  double busiest = 0;     ///< bytes out of the busiest block
  double mean = 0;        ///< bytes out of a block on average
  double utilisation = 0; ///< of the busiest one over the step
};

struct Result {
  double seconds = 0;
  std::vector<RankClass> classes;
  std::vector<DomainLoad> domains;
  std::vector<LinkLoad> links;
  std::vector<Span> spans;    ///< empty unless asked for
  double criticalCompute = 0; ///< of the critical path: computation,
  double criticalComm = 0;    ///< and transfers; the rest is latency to issue
  bool timedWait = false;     ///< ranks outnumber cores: see docs/simulate.md
};

struct Options {
  bool spans = false;
};

/// False, with the reason, when the job does not finish (a member never issues)
/// or does not fit the machine.
bool simulate(const Job &job, const cost::Machine &machine,
              const Options &options, Result &result, std::string &error);

/// For outputs: where predictions by such figures were compared with
/// measurements, or "nowhere". What a calibration says of itself is not it.
std::string validatedRange(const cost::Machine &machine);

} // namespace concord::simulate

#endif // CONCORD_SIMULATE_SIMULATE_H

//===- Judge.h - Verdict and explanation of a program -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Explores a program, gives its verdict under the stated assumptions, and
// explains a fault as a chain of waits. Precedence: a reachable mismatch, else
// a reachable stuck state, else unordered conflicting accesses, else clean.
// Beyond a bound the answer is "not proven", never "clean".
//
// Thread-safe: no state is shared between calls.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ORDER_JUDGE_H
#define CONCORD_ORDER_JUDGE_H

#include "concord/order/Case.h"
#include "concord/order/Program.h"

#include <string>
#include <vector>

namespace concord::order {

struct Bounds {
  uint64_t states = 2000000;
  double seconds = 60;
  uint64_t bytes = 2ull << 30; ///< of stored states
};

struct ExploreOptions {
  Bounds bounds;
  bool persistentSets = true;
  bool sleepSets = true;
  bool stopAtMismatch = true;
};

struct ExploreStats {
  uint64_t states = 0; ///< distinct closed states
  uint64_t transitions = 0;
  uint64_t terminals = 0; ///< distinct ones
  double seconds = 0;
  bool complete = false; ///< every reachable terminal state was seen
  std::string bound;     ///< which bound ended it, "" if complete
};

/// One edge of a wait-for chain: what waits, for what, and why.
struct ChainEdge {
  struct End {
    std::string text; ///< "host of r0", "AR(W)#0@r1"
    Rank rank = -1;
    std::vector<Rank> ranks; ///< all of them, where several are meant
    std::string stream, domain;
    int64_t instance = -1; ///< -1: none
    Location loc;
  };
  enum class Reason : uint8_t {
    HostSync,
    HostDrain,
    HostMap,
    HostCollective,
    HostLock,
    HostMemoryLock,
    HostDrainLock,
    HostQueue,
    HostFlag,
    HostStall,
    Stream,
    Domain,
    Slot,
    LaunchOrder,
    SerialOrder,
    Event,
    Flag,
    Partner,
    GroupCursor,
    GroupSet,
    NotIssued,
    NeverIssued,
  };
  End from, to;
  Reason reason = Reason::Partner;
  std::string why; ///< one sentence naming both ends
};
std::string_view toString(ChainEdge::Reason reason);

struct Finding {
  enum class Kind : uint8_t {
    Mismatch,
    Cycle,
    Missing,
    Blocked,
    Race,
    Divergence,
    Warning
  };
  Kind kind = Kind::Cycle;
  std::string id;    ///< stable: "cross-domain-cycle", "missing-participant", …
  std::string title; ///< one sentence
  std::vector<ChainEdge> chain;
  std::vector<std::string> details;
  std::vector<Rank> culprits; ///< most suspicious first
  std::string cause, cure;
};

/// Control characters and broken UTF-8 replaced, so that a log cannot drive a
/// terminal.
std::string printable(std::string_view text);
std::string_view kindName(Finding::Kind kind);
/// The chain, one wait a line, and the words below it, indented.
std::string findingText(const Finding &finding, const std::string &indent);

struct Judgement {
  Verdict verdict = Verdict::NotProven;
  Config assumed;
  ExploreStats stats;
  std::vector<Finding> findings; ///< the decisive one first
  std::vector<std::string> warnings;
};

/// Explore and explain under the program's own configuration.
Judgement judge(const Program &program, const ExploreOptions &options = {});

/// `judge`, then what a person has to be told beside it: the portable verdict
/// where it differs and the assumption that hides the fault, host syncs behind
/// outstanding collectives, operations of one domain on unordered streams.
Judgement judgeWithWarnings(const Program &program,
                            const ExploreOptions &options = {});

} // namespace concord::order

#endif // CONCORD_ORDER_JUDGE_H

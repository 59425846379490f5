//===- Score.h - Which form an operation takes ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// CONCORD_ALGORITHM, in the manner of UCC's score strings: for a kind and a
// range of sizes, the form to use instead of the one that the runtime would
// choose. "all_reduce:0-4k:flat;4k-inf:direct": a part without a kind goes on
// with the former one.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ALGORITHMS_SCORE_H
#define CONCORD_RUNTIME_ALGORITHMS_SCORE_H

#include "concord/plan.h"

#include <string>
#include <vector>

namespace concord::rt {

#define CONCORD_FORMS(X)                                                       \
  X(Automatic, "auto", "as the runtime would choose")                          \
  X(Flat, "flat", "inputs are copied into the slots; one round of flags")      \
  X(Direct, "direct", "peers' buffers are read and written where they lie")    \
  X(Claimed, "claimed", "whoever runs takes the next piece of the work")       \
  X(Staged, "staged", "operands outside the heap go through staging memory")   \
  X(SingleCopy, "single_copy",                                                 \
    "operands outside the heap are copied from process to process")            \
  X(Pairwise, "pairwise", "between hosts: each sends each other its part")     \
  X(Ring, "ring", "between hosts: parts go round from one to the next")        \
  X(Recursive, "recursive", "between hosts: recursive doubling")               \
  X(Halving, "halving", "between hosts: recursive halving, then doubling")     \
  X(Tree, "tree", "between hosts: a binomial tree")

enum class Form : uint8_t {
#define X(name, text, meaning) name,
  CONCORD_FORMS(X)
#undef X
};

const char *formText(Form form);
const char *formMeaning(Form form);

/// The forms of communicators that span hosts (algorithms/Rounds.h).
constexpr bool betweenHosts(Form form) { return form >= Form::Pairwise; }
/// False for a form between hosts that the kind does not have.
bool formExists(Form form, plan::Kind kind);

/// Bytes of payload that a slot can carry at most.
constexpr uint64_t kFlatMost = 6144;

struct Score {
  plan::Kind kind;
  uint64_t from, to; ///< bytes of this member's input, [from, to)
  Form form;
  int ranks = 0;         ///< members of the communicator; 0: any number
  bool measured = false; ///< by a calibration, not asked for
};

/// Throws Error that names the part that cannot be understood, or asks for what
/// there is not: forms between hosts need `severalHosts`.
std::vector<Score> parseScores(const std::string &text, bool severalHosts);

/// The forms that cost least by the calibration at `path` for "latency" or
/// "throughput", up to what a slot carries; none when it has no forms. Throws
/// Error when it cannot be read.
std::vector<Score> measuredScores(const std::string &path,
                                  const std::string &objective);

inline Form chooseForm(const std::vector<Score> &scores, plan::Kind kind,
                       int ranks, uint64_t bytes) {
  for (const Score &score : scores)
    if (score.kind == kind && bytes >= score.from && bytes < score.to &&
        (score.ranks == 0 || score.ranks == ranks))
      return score.form;
  return Form::Automatic;
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ALGORITHMS_SCORE_H

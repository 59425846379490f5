//===- Explorer.h - All terminal states of a program ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Depth-first search over closed states with persistent sets and sleep sets
// (Godefroid, "Partial-Order Methods for the Verification of Concurrent
// Systems", 1996: algorithms for persistent sets, and sleep sets with state
// matching). Runs are finite (invariant I3 of Machine), so both preserve every
// terminal state. All verdicts depend on terminal states alone: stuck and
// finished are terminal, and what has been issued stays issued, so a mismatch
// that is reachable anywhere is visible in some terminal state.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_EXPLORER_H
#define CONCORD_ANALYSIS_ORDER_EXPLORER_H

#include "Machine.h"
#include "concord/order/Judge.h"

#include <functional>

namespace concord::order {

/// Called once per distinct terminal state; false ends the search (the stats
/// then say `complete == false`, bound "stopped").
using TerminalFn = std::function<bool(const Machine::State &, bool finished)>;

ExploreStats explore(const Machine &machine, const ExploreOptions &options,
                     const TerminalFn &onTerminal);

} // namespace concord::order

#endif // CONCORD_ANALYSIS_ORDER_EXPLORER_H

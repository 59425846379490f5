//===- Names.h - How JSON spells a plan's enumerators -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Shared by the writer and the reader, so that they cannot drift. Indexed by
// the enumerators of concord/plan.h.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_PLAN_NAMES_H
#define CONCORD_RUNTIME_PLAN_NAMES_H

namespace concord::plan {

inline constexpr const char *kKinds[] = {
    "",           "all_reduce", "all_gather",    "reduce_scatter",
    "all_to_all", "broadcast",  "reduce",        "gather",
    "scatter",    "permute",    "send",          "recv",
    "barrier",    "group",      "round_decision"};
inline constexpr const char *kReductions[] = {"none", "sum", "prod", "min",
                                              "max",  "avg", "and",  "or"};
inline constexpr const char *kSpaces[] = {"arena", "input", "output",
                                          "parameter", "foreign"};
inline constexpr const char *kNodes[] = {"seq",   "loop", "branch",
                                         "issue", "wait", "compute"};

} // namespace concord::plan

#endif // CONCORD_RUNTIME_PLAN_NAMES_H

//===- Solutions.h - Sharding solutions as numbers --------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program with bounded dimensions is split in one way at all sizes: its first
// member is solved for, and the others take that solution.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_PARTITION_SOLUTIONS_H
#define CONCORD_PASSES_PARTITION_SOLUTIONS_H

#include "concord/sharding/Solver.h"

#include <optional>
#include <span>
#include <vector>

namespace concord::partition {

/// On members: how the first one was split, by axis. comm-partition leaves it
/// there and takes it.
inline constexpr char kSolutions[] = "comm.solutions";

std::vector<int64_t> encodeSolution(const sharding::Solution &solution);

/// A solution of a problem of the same form, possibly of other sizes. None when
/// the numbers are no solution's, do not fit the problem, or split a dimension
/// that the ranks do not divide.
std::optional<sharding::Solution>
decodeSolution(std::span<const int64_t> numbers,
               const sharding::Problem &problem);

} // namespace concord::partition

#endif // CONCORD_PASSES_PARTITION_SOLUTIONS_H

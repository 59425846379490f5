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

/// The solution that the numbers say; none when they say none.
std::optional<sharding::Solution>
decodeSolution(std::span<const int64_t> numbers);

/// Whether a solution, perhaps of another problem, is one of this one: speaks
/// of its operations and tensors, cuts them into equal parts, and is verified.
bool solves(const sharding::Solution &solution,
            const sharding::Problem &problem);

/// The sizes of the bounded dimensions at which a member was read; the key
/// under which `kSolutions` has those of the first one.
inline constexpr char kPoint[] = "comm.point";

/// The solution with every count of blocks that follows a bounded dimension at
/// `from` as it is at `to`. (Heads in a dimension of batch and heads lie in as
/// many blocks as there are sequences.) `divisor`: by how much the batch was
/// cut before. The caller asks `solves`.
sharding::Solution atOtherSizes(sharding::Solution solution,
                                std::span<const int64_t> from,
                                std::span<const int64_t> to, int64_t divisor);

} // namespace concord::partition

#endif // CONCORD_PASSES_PARTITION_SOLUTIONS_H

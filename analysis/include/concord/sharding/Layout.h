//===- Layout.h - How one tensor lies over the ranks of an axis -*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The three layouts a tensor can have over T ranks, and which of them a shape
// allows. Everything that speaks about layouts (rules, solver, reshards, the
// partitioning pass) shares these few functions, so that it agrees on who holds
// which element.
//
// Split {dim, outer} views the dimension as [outer, size / outer] and gives
// rank r the r-th of T equal parts of the second: of each of the `outer` blocks
// it holds one contiguous run.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SHARDING_LAYOUT_H
#define CONCORD_SHARDING_LAYOUT_H

#include "concord/sharding/Rule.h"

#include <span>
#include <string>

namespace concord::sharding {

/// How one tensor lies over the ranks of the axis.
struct Layout {
  enum Kind : uint8_t { Replicated, Split, Partial } kind = Replicated;
  DimRef dim;                            ///< for Split
  Reduction reduction = Reduction::None; ///< for Partial
  bool operator==(const Layout &) const = default;

  static Layout replicated() { return {}; }
  static Layout split(int32_t dim, int64_t outer = 1) {
    return {Split, DimRef{dim, outer}, Reduction::None};
  }
  static Layout partial(Reduction reduction = Reduction::Sum) {
    return {Partial, DimRef{}, reduction};
  }
};

/// Whether a tensor of this (whole) shape can be split so over `ranks` ranks:
/// the dimension exists, `outer` divides it, and `ranks` divides the rest.
bool canSplit(std::span<const int64_t> shape, DimRef dim, int64_t ranks);

/// The shape one rank holds of a tensor of the whole shape `shape`.
std::vector<int64_t> localShape(std::span<const int64_t> shape,
                                const Layout &layout, int64_t ranks);

/// For messages and tests: "R", "S1", "S1/3" (dimension 1, outer 3), "P(sum)".
std::string toString(const Layout &layout);

} // namespace concord::sharding

#endif // CONCORD_SHARDING_LAYOUT_H

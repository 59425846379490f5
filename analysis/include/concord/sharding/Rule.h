//===- Rule.h - How an operation may be split over ranks --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A factor-based sharding rule. An operation is seen as a loop nest; a *factor*
// is one loop that may be distributed: it says which dimension of each operand
// and result it runs over, and whether it is reduced. MatMul [m,k]x[k,n]->[m,n]
// has the factors m (operand 0 dim 0, result dim 0), n (operand 1 dim 1, result
// dim 1) and k (operand 0 dim 1, operand 1 dim 0, reduced by sum).
//
// A factor need not be a whole dimension. Where a reshape splits 768 into
// [12,64], the factor 12 is the outer part of the 768 and the factor 64 the
// inner part. `DimRef::outer` counts how many equal blocks lie outside: the
// dimension is viewed as [outer, size/outer], and the second part is what is
// split. outer = 1 is the plain contiguous split. (A fused QKV weight of
// [768, 3*768] split by heads has outer = 3.)
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_SHARDING_RULE_H
#define CONCORD_SHARDING_RULE_H

#include <cstdint>
#include <vector>

namespace concord::sharding {

enum class Reduction : uint8_t { None, Sum, Max, Min, Prod };

struct DimRef {
  int32_t dim = -1;  ///< dimension of the tensor, or -1: it has no such factor
  int64_t outer = 1; ///< blocks outside the factor; see above
  bool operator==(const DimRef &) const = default;
};

struct Factor {
  /// Trip count: how far the factor can be divided. T ranks need size % T == 0.
  int64_t size = 0;
  std::vector<DimRef> operands; ///< one per operand of the node
  std::vector<DimRef> results;  ///< one per result
  /// For a reduced factor: every result is partial under this reduction.
  Reduction reduction = Reduction::None;
  /// Vocabulary-style lookup: operand 0 is split along the looked-up dimension
  /// and each rank contributes zeros for indices it does not hold (Gather on
  /// its axis); the result is partial(sum). Only with a Gather node.
  bool lookup = false;
  /// For a factor reduced by sum: operands that are added to the result once
  /// and so must not be whole on every rank (the bias of a Gemm when its inner
  /// dimension is split). They are consumed as Partial(sum).
  std::vector<int32_t> addends;
};

/// The operation is linear in this set of operands together: if exactly these
/// are partial(sum) and all others are whole, all results are partial(sum).
/// (Add in {0,1}; Mul by something whole in {0} or {1}; Reshape in {0}.)
using LinearSet = std::vector<int32_t>;

struct Rule {
  std::vector<Factor> factors;
  std::vector<LinearSet> linear;
};

} // namespace concord::sharding

#endif // CONCORD_SHARDING_RULE_H

//===- UpdateHot.h - Elementwise programs of one CPU class ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The sum of the members' parts, then a straight program over it and other
// operands, strip by strip: a strip of every live value lies in L1, so that an
// operation costs about what its arithmetic does, and memory is gone through
// once. Plain data only: compiled for every CPU class.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_UPDATEHOT_H
#define CONCORD_KERNELS_UPDATEHOT_H

#include "GemmHot.h"
#include "RowsHot.h"

namespace concord::kernels {

/// Elements of a strip; values in it are f32.
constexpr int64_t kUpdateStrip = 256;
constexpr int kUpdateOperands = 16;

enum class UpdateCode : uint8_t {
  Sum,    ///< to = the members' parts
  Load,   ///< to = operand
  Single, ///< to = the operand's one element
  Constant,
  Add,
  Sub,
  Mul,
  Div,
  Neg,
  Abs,
  Sqrt,
  Max, ///< NaN if either is, +0 over -0
  Min,
  Round, ///< to = a as `type` holds it
  Store, ///< operand = a
  Spread ///< every target = a
};

struct UpdateStep {
  UpdateCode code = UpdateCode::Constant;
  GemmType type = GemmType::F32; ///< in memory: Sum, Load, Single, Round, Store
  uint16_t to = 0, a = 0, b = 0; ///< strips
  uint16_t operand = 0;          ///< of Load, Single, Store
  float value = 0;
};

struct UpdateShape {
  int64_t count = 0; ///< elements of the block
  const UpdateStep *steps = nullptr;
  int numSteps = 0;
  int members = 1, me = 0, targets = 1;
  bool stream = false, take = false; ///< CombineShape
};

/// Addresses of the block's first element (of the element, for Single).
struct UpdateOperands {
  void *parts[kMostMembers] = {};
  void *targets[kMostMembers] = {};
  void *operands[kUpdateOperands] = {};
};

struct UpdateTable {
  /// Workspace: a strip for every value that is live at once, and one more.
  void (*run)(const UpdateShape &, const UpdateOperands &, void *workspace,
              Poller &);
};

extern const UpdateTable updateTable_v2, updateTable_v3, updateTable_v4,
    updateTable_generic;

} // namespace concord::kernels

#endif // CONCORD_KERNELS_UPDATEHOT_H

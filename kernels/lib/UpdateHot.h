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
constexpr int kMostStrips = 1024;

enum class UpdateCode : uint8_t {
  Sum,      ///< to = the members' parts
  Load,     ///< to = operand
  Single,   ///< to = the operand's one element; once for all strips
  Constant, ///< to = value; once for all strips
  Chain,    ///< to = then(first(a, b), c)
  Neg,
  Abs,
  Max, ///< NaN if either is, +0 over -0
  Min,
  Round, ///< to = a as `type` holds it
  Store, ///< operand = a
  Spread ///< every target = a
};

/// Two operations with one strip loaded and stored between them less. Nothing
/// is contracted: both round.
enum class UpdateFirst : uint8_t { Add, Sub, Mul, Div, Sqrt };
enum class UpdateThen : uint8_t {
  Nothing,
  Add,
  Sub,
  SubFrom, ///< c - it
  Mul,
  Div,
  DivInto ///< c / it
};
constexpr int kUpdateFirsts = 5, kUpdateThens = 7;

struct UpdateStep {
  UpdateCode code = UpdateCode::Constant;
  GemmType type = GemmType::F32; ///< in memory: Sum, Load, Single, Round, Store
  UpdateFirst first = UpdateFirst::Add;
  UpdateThen then = UpdateThen::Nothing;
  uint16_t to = 0, a = 0, b = 0, c = 0; ///< strips
  uint16_t operand = 0;                 ///< of Load, Single, Store
  /// Of what is stored as it is, f32, the operand (else 0): it is computed
  /// where it belongs.
  uint16_t direct = 0;
  float value = 0;
};

struct UpdateShape {
  int64_t count = 0; ///< elements of the block
  const UpdateStep *steps = nullptr;
  int numSteps = 0, once = 0; ///< the first `once` steps are done once
  int members = 1, me = 0, targets = 1;
  bool stream = false, take = false; ///< CombineShape
  /// An output lies over an input, whose old elements may be needed after the
  /// new ones are there.
  bool inPlace = false;
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

//===- Choices.h - One decision for all sizes -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The members of a program with bounded dimensions (common/Family.h) must stay
// the same but for numbers, so what a pass decides by a size is decided once:
// for the first member, whose sizes are nearest to the greatest, and read from
// its list by the others. Their passes ask the same questions in the same
// order, since up to there they did the same.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_CHOICES_H
#define CONCORD_PASSES_COMMON_CHOICES_H

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace concord {

/// On the first member what was decided, one [pass, numbers] for each pass in
/// order; on the others, while they are compiled, what is left of it.
inline constexpr llvm::StringLiteral kChoices = "comm.choices";
/// Marks the members that do as the first one did.
inline constexpr llvm::StringLiteral kFollows = "comm.follows";

/// The decisions of one run of `pass` over `module`. A module of fixed sizes
/// decides for itself.
class Choices {
public:
  Choices(mlir::ModuleOp module, llvm::StringRef pass);

  /// Whether sizes are known within bounds only.
  bool bounded() const { return role != Role::Alone; }
  /// What is to be done, where this module's own sizes ask for `mine`.
  int64_t operator()(int64_t mine);
  bool operator()(bool mine) { return (*this)(int64_t(mine)) != 0; }
  /// What was decided cannot be done here.
  void mismatch() { bad = true; }
  /// To be called when the pass is done. Emits an error when this member does
  /// not fit to what was decided.
  mlir::LogicalResult finish();

private:
  enum class Role { Alone, First, Follower };

  mlir::ModuleOp module;
  std::string pass;
  Role role = Role::Alone;
  std::vector<int64_t> numbers; ///< decided so far, or by the first member
  size_t next = 0;
  bool bad = false;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_CHOICES_H

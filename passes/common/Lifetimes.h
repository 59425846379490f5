//===- Lifetimes.h - How long a buffer is in use ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_LIFETIMES_H
#define CONCORD_PASSES_COMMON_LIFETIMES_H

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace concord {

/// First and last operation, by number, that uses a buffer or anything that may
/// alias it. Both ends are included.
struct Lifetime {
  int64_t first = 0, last = -1;
  bool overlaps(const Lifetime &other) const {
    return first <= other.last && other.first <= last;
  }
};

/// Lifetimes of buffers in one function. Operations are numbered in program
/// order, those in loops and branches too, so that the arms of a branch are
/// apart and a buffer that one round of a loop makes and drops is live within
/// the round. What a loop uses and does not make itself, it uses throughout.
class Lifetimes {
public:
  explicit Lifetimes(mlir::Block &block);

  /// Follows views, casts, and results and block arguments of region
  /// operations. Does not count the operation that defines `buffer`, unless
  /// nothing uses it.
  Lifetime of(mlir::Value buffer) const;

  /// The number of `op`, or of the operation around it that has one; -1: none.
  int64_t position(mlir::Operation *op) const;
  /// How many numbers there are.
  int64_t events() const { return next; }
  /// The last number within `op`.
  int64_t end(mlir::Operation *op) const;

private:
  void number(mlir::Block &block);
  /// When `user` uses something that was made in `home`.
  Lifetime span(mlir::Operation *user, mlir::Block *home) const;

  mlir::Block &block;
  int64_t next = 0;
  llvm::DenseMap<mlir::Operation *, std::pair<int64_t, int64_t>> spans;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_LIFETIMES_H

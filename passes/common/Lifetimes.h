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

/// First and last top-level operation, by position in the block, that uses a
/// buffer or anything that may alias it. Both ends are included.
struct Lifetime {
  int64_t first = 0, last = -1;
  bool overlaps(const Lifetime &other) const {
    return first <= other.last && other.first <= last;
  }
};

/// Lifetimes of buffers over the operations of one block. An operation with
/// regions counts as one point: what is used anywhere inside is used
/// throughout.
class Lifetimes {
public:
  explicit Lifetimes(mlir::Block &block);

  /// Follows views, casts, and results and block arguments of region
  /// operations. Does not count the operation that defines `buffer`, unless
  /// nothing uses it.
  Lifetime of(mlir::Value buffer) const;

  int64_t position(mlir::Operation *op) const;

private:
  mlir::Block &block;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_LIFETIMES_H

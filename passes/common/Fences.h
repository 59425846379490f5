//===- Fences.h - What communication may not be moved across ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operations that may communicate without being collectives (opaque compute
// that touches domains, calls, whatever has unknown effects) stand where they
// stand: no collective is moved from one side of them to the other.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_FENCES_H
#define CONCORD_PASSES_COMMON_FENCES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace concord {

/// Whether nothing tells what an operation does: it may communicate on every
/// domain.
bool isUnknown(mlir::Operation &op);

/// Numbers the operations of a function, and the fences before each. Both stay
/// as they were when operations are added or taken away.
class Fences {
public:
  void run(mlir::func::FuncOp function);

  /// Whether two operations of one block have no fence between them.
  bool areNear(mlir::Operation *a, mlir::Operation *b) const;
  /// Whether `op` is a fence, or holds one.
  bool hasFence(mlir::Operation *op) const { return fenced.contains(op); }
  /// Position in the whole function, in program order.
  int64_t position(mlir::Operation *op) const;
  /// A new operation beside an old one.
  void like(mlir::Operation *op, mlir::Operation *old);
  void forget(mlir::Operation *op) {
    places.erase(op);
    fenced.erase(op);
  }

private:
  bool visit(mlir::Block &block);

  struct Place {
    int64_t position = 0, epoch = 0;
  };
  llvm::DenseMap<mlir::Operation *, Place> places;
  llvm::DenseSet<mlir::Operation *> fenced;
  int64_t next = 0, epoch = 0;
};

} // namespace concord

#endif // CONCORD_PASSES_COMMON_FENCES_H

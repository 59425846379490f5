//===- Neighbours.h - What lies around a collective -------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reading kernel calls, and following values through reshapes.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_FUSE_NEIGHBOURS_H
#define CONCORD_PASSES_FUSE_NEIGHBOURS_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinTypes.h"

#include <initializer_list>
#include <map>
#include <string>

namespace concord::fuse {

using llvm::SmallVector;
using llvm::StringRef;
using mlir::Operation;
using mlir::OpOperand;
using mlir::RankedTensorType;
using mlir::Value;

/// `NAME key=value ...` of a kernel call; lists and quoted strings stay text.
struct KernelText {
  std::string name;
  std::map<std::string, std::string> keys;

  explicit KernelText(StringRef text) {
    auto [head, rest] = text.split(' ');
    name = head.str();
    while (!rest.empty()) {
      auto [item, next] = rest.split(' ');
      auto [key, value] = item.split('=');
      keys[key.str()] = value.str();
      rest = next;
    }
  }
  int64_t number(const std::string &key, int64_t fallback) const {
    auto it = keys.find(key);
    int64_t value = fallback;
    if (it != keys.end())
      (void)StringRef(it->second).getAsInteger(10, value);
    return value;
  }
  /// Whether there are no keys but these.
  bool only(std::initializer_list<StringRef> known) const {
    return llvm::all_of(keys, [&](auto &entry) {
      return llvm::is_contained(known, entry.first);
    });
  }
};

inline int64_t elements(Value value) {
  return mlir::cast<RankedTensorType>(value.getType()).getNumElements();
}

/// Whether the operation only gives a tensor another shape, or another type of
/// the same shape.
inline bool onlyReshapes(Operation *op) {
  return mlir::isa<mlir::tensor::CastOp, mlir::tensor::ExpandShapeOp,
                   mlir::tensor::CollapseShapeOp, mlir::tensor::ReshapeOp>(op);
}

/// What a value is, apart from its shape.
inline Value strip(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!onlyReshapes(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// The uses of a value, those of its reshaped forms instead of the reshapes.
inline SmallVector<OpOperand *> usesOf(Value value) {
  SmallVector<OpOperand *> result;
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Value next = worklist.pop_back_val();
    for (OpOperand &use : next.getUses()) {
      if (onlyReshapes(use.getOwner()) && use.getOperandNumber() == 0)
        worklist.push_back(use.getOwner()->getResult(0));
      else
        result.push_back(&use);
    }
  }
  return result;
}

} // namespace concord::fuse

#endif // CONCORD_PASSES_FUSE_NEIGHBOURS_H

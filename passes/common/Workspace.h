//===- Workspace.h - How large an arena may be ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_WORKSPACE_H
#define CONCORD_PASSES_COMMON_WORKSPACE_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"

#include <optional>

namespace concord {

/// On a module: bytes that the arena of each of its programs may have.
inline constexpr llvm::StringLiteral kMemoryLimit = "comm.memory_limit";

/// The limit that `module` carries.
inline std::optional<int64_t> memoryLimit(mlir::ModuleOp module) {
  auto limit = module->getAttrOfType<mlir::IntegerAttr>(kMemoryLimit);
  return limit ? std::optional(limit.getInt()) : std::nullopt;
}

inline void setMemoryLimit(mlir::ModuleOp module, int64_t bytes) {
  module->setAttr(kMemoryLimit,
                  mlir::IntegerAttr::get(
                      mlir::IntegerType::get(module.getContext(), 64), bytes));
}

} // namespace concord

#endif // CONCORD_PASSES_COMMON_WORKSPACE_H

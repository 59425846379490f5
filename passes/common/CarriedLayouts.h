//===- CarriedLayouts.h - Layouts of what loops hand on ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_CARRIEDLAYOUTS_H
#define CONCORD_PASSES_COMMON_CARRIEDLAYOUTS_H

#include "mlir/IR/BuiltinOps.h"

namespace concord {

/// Where every buffer that scf.for or scf.while carries, or scf.if or
/// arith.select yields, is dense, its type says so. One-shot bufferization
/// gives such values a layout that is only known at run time when loops are
/// nested: it types the inner one before it knows the outer one's.
void settleCarriedLayouts(mlir::ModuleOp module);

/// `buffer`, or what it is a cast of.
mlir::Value stripCasts(mlir::Value buffer);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_CARRIEDLAYOUTS_H

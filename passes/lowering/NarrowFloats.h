//===- NarrowFloats.h - Conversions of narrow floats ------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_LOWERING_NARROWFLOATS_H
#define CONCORD_PASSES_LOWERING_NARROWFLOATS_H

#include "mlir/IR/BuiltinOps.h"

namespace concord {

/// Takes conversions that LLVM has no instructions for, only library calls, by
/// way of f32: integers to bfloat16, and half precision to and from f64. Each
/// float is rounded once. An operation that computes with floats of 8 bits is
/// an error: they can only be moved.
mlir::LogicalResult narrowFloatsThroughF32(mlir::ModuleOp module);

} // namespace concord

#endif // CONCORD_PASSES_LOWERING_NARROWFLOATS_H

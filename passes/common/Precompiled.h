//===- Precompiled.h - What most passes include, parsed once ----*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// MLIR's headers are most of the time that a pass takes to compile. No file
// is to rely on this one: each includes what it uses, which a build with
// -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON shows.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_PRECOMPILED_H
#define CONCORD_PASSES_COMMON_PRECOMPILED_H

#include "comm/Comm.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#endif // CONCORD_PASSES_COMMON_PRECOMPILED_H

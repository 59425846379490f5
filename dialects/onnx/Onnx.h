//===- Onnx.h - The onnx dialect --------------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_DIALECTS_ONNX_ONNX_H
#define CONCORD_DIALECTS_ONNX_ONNX_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "onnx/OnnxDialect.h.inc"
#define GET_OP_CLASSES
#include "onnx/OnnxOps.h.inc"

#endif // CONCORD_DIALECTS_ONNX_ONNX_H

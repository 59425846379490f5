//===- OnnxDialect.cpp - The onnx dialect ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Registers the dialect and verifies the bookkeeping of absent operands.
//
//===----------------------------------------------------------------------===//

#include "onnx/Onnx.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace concord::onnxir;

#include "onnx/OnnxDialect.cpp.inc"

void OnnxDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "onnx/OnnxOps.cpp.inc"
      >();
}

static LogicalResult verifyPositions(Operation *op, StringRef what,
                                     std::optional<ArrayRef<int32_t>> positions,
                                     size_t count) {
  if (!positions)
    return success();
  if (positions->size() != count)
    return op->emitOpError() << what << "_positions has " << positions->size()
                             << " entries for " << count << " " << what << "s";
  // Far above any operator: readers make room for every position.
  constexpr int32_t kMaxPosition = 65535;
  int32_t last = -1;
  for (int32_t position : *positions) {
    if (position <= last)
      return op->emitOpError() << what << "_positions must increase";
    if (position > kMaxPosition)
      return op->emitOpError() << what << "_positions end at " << kMaxPosition;
    last = position;
  }
  return success();
}

LogicalResult NodeOp::verify() {
  if (getOpset() < 1)
    return emitOpError("opset must be positive");
  if (failed(verifyPositions(*this, "operand", getOperandPositions(),
                             getOperands().size())))
    return failure();
  return verifyPositions(*this, "result", getResultPositions(),
                         getResults().size());
}

#define GET_OP_CLASSES
#include "onnx/OnnxOps.cpp.inc"

//===- NodeBridge.h - Between onnx.node and the operator registry -*- C++ -*-=//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_COMMON_NODEBRIDGE_H
#define CONCORD_PASSES_COMMON_NODEBRIDGE_H

#include "concord/onnx/OpRegistry.h"
#include "onnx/Onnx.h"

#include "mlir/IR/Builders.h"

#include <deque>

namespace concord {

/// An `onnx.node` as the registry's functions see it, with what it refers to.
struct BoundNode {
  onnx::Node node;
  onnx::NodeView view;
  std::deque<onnx::Tensor> constants; ///< stable addresses for view.constants
  const onnx::OpDef *def = nullptr;
};

/// Element types, both ways. Signed and logical integers are signless, unsigned
/// ones `ui`; bool is i1. A null type or DType::Invalid: not representable.
mlir::Type toMlirType(mlir::MLIRContext *context, DType type);
DType fromMlirType(mlir::Type type);
mlir::RankedTensorType toMlirType(mlir::MLIRContext *context,
                                  const onnx::TensorType &type);
onnx::TensorType fromMlirTensor(mlir::Type type);

/// The data of a value that an arith.constant or a comm.weight defines; a
/// weight only when `weights` is set and it is stored whole and unpacked.
std::optional<onnx::Tensor> constantData(mlir::Value value, bool weights);

/// Fills `bound` from `op`. Results take their types from `op`.
void bindNode(onnxir::NodeOp op, BoundNode &bound);

/// ONNX attributes as an MLIR dictionary and back. Subgraphs are not carried.
mlir::DictionaryAttr toMlirAttributes(mlir::OpBuilder &builder,
                                      const onnx::Node &node);

/// The model's own name of what is at `loc`, or "".
llvm::StringRef nodeName(mlir::Location loc);

} // namespace concord

#endif // CONCORD_PASSES_COMMON_NODEBRIDGE_H

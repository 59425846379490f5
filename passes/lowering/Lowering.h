//===- Lowering.h - Lowering of ONNX nodes ----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The families of lowerings that comm-decompose tries in turn. Each returns the
// results, an empty vector when the node is not its business, or failure after
// a diagnostic.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_LOWERING_LOWERING_H
#define CONCORD_PASSES_LOWERING_LOWERING_H

#include "common/NodeBridge.h"

#include "mlir/IR/PatternMatch.h"

namespace concord::lowering {

using Results = mlir::FailureOr<mlir::SmallVector<mlir::Value>>;

/// What a lowering sees of one node.
struct Context {
  mlir::RewriterBase &rewriter;
  mutable onnxir::NodeOp op; ///< a handle; its accessors are not const
  BoundNode &bound;

  mlir::Location loc() const { return op.getLoc(); }
  const std::string &name() const { return bound.node.opType; }
  /// Operand at an ONNX position; null when absent.
  mlir::Value operand(size_t position) const;
  mlir::RankedTensorType resultType(unsigned i = 0) const {
    return mlir::cast<mlir::RankedTensorType>(op.getResult(i).getType());
  }
  DType dtype(size_t position = 0) const {
    return position < bound.view.inputs.size()
               ? bound.view.inputs[position].dtype
               : DType::Invalid;
  }
  mlir::Value empty(mlir::RankedTensorType type) const;
};

/// Arithmetic, comparison, logic, selection, conversion: one linalg.generic.
Results lowerElementwise(Context &context);

/// Reshapes, slices, splits, concatenations, expansion: views and copies.
Results lowerDataMovement(Context &context);

/// Matrix products, normalisations, softmax, convolution, transposes: the fast
/// kernels.
Results lowerFastKernel(Context &context);

/// Any operator through the generic kernel that its registry entry describes.
Results lowerGenericKernel(Context &context);

/// A kernel call with its workspace. `inputs` and `outputs` have null entries
/// for absent pointers. Emits an error naming the node when the kernel refuses.
Results makeKernel(Context &context, const std::string &description,
                   llvm::ArrayRef<mlir::Value> inputs,
                   llvm::ArrayRef<mlir::RankedTensorType> outputs);

/// Matrix products of linalg that start at zero become kernel calls.
void contractionsToKernels(mlir::RewriterBase &rewriter, mlir::ModuleOp module);

/// Reinterprets a dense tensor under another shape of the same size.
mlir::Value reshape(mlir::OpBuilder &builder, mlir::Location loc,
                    mlir::Value value, llvm::ArrayRef<int64_t> shape);

/// `value` packed for the kernel of `description`, when it is a parameter that
/// a comm.weight defines; else null.
mlir::Value packWeight(mlir::OpBuilder &builder, mlir::Value value,
                       const std::string &description, uint64_t bytes);

} // namespace concord::lowering

#endif // CONCORD_PASSES_LOWERING_LOWERING_H

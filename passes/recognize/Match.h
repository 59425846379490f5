//===- Match.h - Matching onnx.node graphs ----------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the patterns of comm-recognize share: looking at a node and its constant
// operands, which operations a match covers, and making the node that replaces
// them. A match may only be replaced when nothing outside of it uses a value
// inside (Cover::closed).
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_PASSES_RECOGNIZE_MATCH_H
#define CONCORD_PASSES_RECOGNIZE_MATCH_H

#include "common/NodeBridge.h"
#include "onnx/Onnx.h"

#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace concord::recognize {

using onnxir::NodeOp;

/// The node of ONNX's own domain and of that name that defines `value`, or
/// null.
NodeOp definedBy(mlir::Value value, llvm::StringRef name);
bool isNode(NodeOp op, llvm::StringRef name);

mlir::RankedTensorType typeOf(mlir::Value value);
bool isFloat(mlir::Type elementType); ///< f32, f64, f16, bf16
/// Operand at an ONNX position; null when absent.
mlir::Value operandAt(NodeOp op, int64_t position);

int64_t intAttr(NodeOp op, llvm::StringRef name, int64_t otherwise);
double realAttr(NodeOp op, llvm::StringRef name, double otherwise);
llvm::StringRef stringAttr(NodeOp op, llvm::StringRef name,
                           llvm::StringRef otherwise);
/// An attribute of integers, or nullopt when it is not there.
std::optional<llvm::SmallVector<int64_t>> intsAttr(NodeOp op,
                                                   llvm::StringRef name);

/// The value of a floating constant of one element.
std::optional<double> scalarOf(mlir::Value value);
/// The data of an integer constant.
std::optional<llvm::SmallVector<int64_t>> intsOf(mlir::Value value);

/// A binary node of which one operand is a scalar constant, the other having
/// the result's type.
struct WithScalar {
  mlir::Value value;
  double scalar = 0;
  bool scalarFirst = false;
};
std::optional<WithScalar> withScalar(NodeOp op);

/// Equal up to the rounding of a constant in `type`.
bool near(double a, double b, mlir::Type elementType);

/// The operations that a match covers.
class Cover {
public:
  void add(mlir::Operation *op) { ops.insert(op); }
  void add(const Cover &other) { ops.insert_range(other.ops); }
  bool contains(mlir::Operation *op) const { return ops.contains(op); }
  /// Whether only operations of the cover use what it computes, `root` aside.
  bool closed(mlir::Operation *root) const;
  size_t size() const { return ops.size(); }

private:
  llvm::SmallSetVector<mlir::Operation *, 16> ops;
};

/// A product taken apart: coefficient times factors, all of one type.
struct Factors {
  double coefficient = 1;
  llvm::SmallVector<mlir::Value> values;
};
/// Takes the Mul, Div and Pow nodes below `value` apart; only `top` may have
/// more than one use.
Factors factorise(mlir::Value value, Cover &cover, bool top = true);

/// Makes nodes at the place of the operation that they replace, and erases what
/// became unused.
class Rewrite {
public:
  explicit Rewrite(mlir::MLIRContext *context) : builder(context) {}

  /// Whether `op` was erased by an earlier replacement.
  bool erased(mlir::Operation *op) const { return gone.contains(op); }

  /// `operands` has null entries for absent ones; they must dominate `root`.
  NodeOp make(mlir::Operation *root, llvm::StringRef name,
              llvm::StringRef domain, int64_t opset,
              llvm::ArrayRef<mlir::Value> operands,
              llvm::ArrayRef<mlir::NamedAttribute> attributes,
              llvm::ArrayRef<mlir::Type> types);

  /// Replaces the one result of `root`.
  void replace(mlir::Operation *root, mlir::Value with);

  mlir::NamedAttribute attr(llvm::StringRef name, int64_t value) {
    return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
  }
  mlir::NamedAttribute attr(llvm::StringRef name, double value) {
    return builder.getNamedAttr(name, builder.getF64FloatAttr(value));
  }
  mlir::NamedAttribute attr(llvm::StringRef name, llvm::StringRef value) {
    return builder.getNamedAttr(name, builder.getStringAttr(value));
  }
  mlir::NamedAttribute attr(llvm::StringRef name,
                            llvm::ArrayRef<int64_t> value) {
    return builder.getNamedAttr(name, builder.getDenseI64ArrayAttr(value));
  }

  mlir::OpBuilder builder;
  int64_t serial = 0; ///< tells parameters apart that are made here

private:
  void eraseUnused(mlir::Operation *op);
  llvm::SmallPtrSet<mlir::Operation *, 32> gone;
};

/// The patterns. Each tries `root` as the last node of its pattern and returns
/// whether it replaced it.
bool recognizeNorm(Rewrite &rewrite, NodeOp root);
bool recognizeActivation(Rewrite &rewrite, NodeOp root);
bool recognizeRotary(Rewrite &rewrite, NodeOp root);
bool recognizeAttention(Rewrite &rewrite, NodeOp root);
/// `root` is the first node of these two; the number of nodes folded into it.
unsigned recognizeProduct(Rewrite &rewrite, NodeOp root);
unsigned recognizeConvolution(Rewrite &rewrite, NodeOp root);

/// The kernels' name for an activation node, or "".
llvm::StringRef activationName(NodeOp op);

} // namespace concord::recognize

#endif // CONCORD_PASSES_RECOGNIZE_MATCH_H

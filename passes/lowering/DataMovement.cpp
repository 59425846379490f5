//===- DataMovement.cpp - Nodes that only move data -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reshapes become views, slices and splits become extract_slice, concatenations
// insert_slice into one destination, expansion a broadcasting copy. Shapes come
// from the result types (after partitioning, an operand that holds a shape
// still holds the unpartitioned one).
//
//===----------------------------------------------------------------------===//

#include "lowering/Lowering.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace concord::lowering {

Value Context::operand(size_t position) const {
  onnxir::NodeOp node = op;
  for (int64_t i = 0, e = node.getOperands().size(); i < e; ++i)
    if (node.operandPosition(i) == static_cast<int64_t>(position))
      return node.getOperands()[i];
  return {};
}

Value Context::empty(RankedTensorType type) const {
  return tensor::EmptyOp::create(rewriter, op.getLoc(), type.getShape(),
                                 type.getElementType());
}

Value reshape(OpBuilder &builder, Location loc, Value value,
              ArrayRef<int64_t> shape) {
  auto from = cast<RankedTensorType>(value.getType());
  auto to = RankedTensorType::get(shape, from.getElementType());
  if (from == to)
    return value;
  // One step where dimensions group; else through the flat form, which always
  // does. Both are views of dense memory.
  if (from.getRank() > to.getRank()) {
    if (auto groups = getReassociationIndicesForReshape(from, to))
      return tensor::CollapseShapeOp::create(builder, loc, to, value, *groups);
  } else if (from.getRank() < to.getRank()) {
    if (auto groups = getReassociationIndicesForReshape(from, to))
      return tensor::ExpandShapeOp::create(builder, loc, to, value, *groups);
  }
  Value flat = value;
  if (from.getRank() != 1) {
    SmallVector<ReassociationIndices> all;
    if (from.getRank() > 0)
      all.push_back(llvm::to_vector(llvm::seq<int64_t>(0, from.getRank())));
    auto flatType =
        RankedTensorType::get({from.getNumElements()}, from.getElementType());
    if (from.getRank() == 0)
      flat = tensor::ExpandShapeOp::create(builder, loc, flatType, value,
                                           ArrayRef<ReassociationIndices>());
    else
      flat =
          tensor::CollapseShapeOp::create(builder, loc, flatType, value, all);
  }
  if (to.getRank() == 1)
    return flat;
  SmallVector<ReassociationIndices> all;
  if (to.getRank() > 0)
    all.push_back(llvm::to_vector(llvm::seq<int64_t>(0, to.getRank())));
  if (to.getRank() == 0)
    return tensor::CollapseShapeOp::create(builder, loc, to, flat,
                                           ArrayRef<ReassociationIndices>());
  return tensor::ExpandShapeOp::create(builder, loc, to, flat, all);
}

static SmallVector<OpFoldResult> indices(OpBuilder &builder,
                                         ArrayRef<int64_t> values) {
  return getAsIndexOpFoldResult(builder.getContext(), values);
}

static Value extract(Context &context, Value source, ArrayRef<int64_t> offsets,
                     RankedTensorType type, ArrayRef<int64_t> strides) {
  return tensor::ExtractSliceOp::create(
      context.rewriter, context.loc(), type, source,
      indices(context.rewriter, offsets),
      indices(context.rewriter, type.getShape()),
      indices(context.rewriter, strides));
}

static int64_t normalise(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

/// Starts and steps per dimension of a Slice whose bounds are known; nullopt
/// when they are not or a step is negative.
static Results lowerSlice(Context &context) {
  auto &view = context.bound.view;
  int64_t rank = view.inputs[0].shape.size();
  std::vector<int64_t> starts, axes, steps;
  if (view.inputs.size() == 1) {
    starts = context.bound.node.intsAttr("starts");
    axes = context.bound.node.intsAttr("axes");
  } else {
    if (!view.constants[1])
      return SmallVector<Value>();
    starts = view.constants[1]->ints();
    if (view.hasInput(3)) {
      if (!view.constants[3])
        return SmallVector<Value>();
      axes = view.constants[3]->ints();
    }
    if (view.hasInput(4)) {
      if (!view.constants[4])
        return SmallVector<Value>();
      steps = view.constants[4]->ints();
    }
  }
  SmallVector<int64_t> offsets(rank, 0), strides(rank, 1);
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t axis = normalise(axes.empty() ? i : axes[i], rank);
    int64_t extent = view.inputs[0].shape[axis];
    int64_t step = steps.empty() ? 1 : steps[i];
    if (step < 1)
      return SmallVector<Value>();
    int64_t start = starts[i] < 0 ? starts[i] + extent : starts[i];
    offsets[axis] = std::clamp<int64_t>(start, 0, extent);
    strides[axis] = step;
  }
  return SmallVector<Value>{extract(context, context.operand(0), offsets,
                                    context.resultType(), strides)};
}

static Results lowerSplit(Context &context) {
  int64_t rank = context.bound.view.inputs[0].shape.size();
  int64_t axis = normalise(context.bound.node.intAttr("axis", 0), rank);
  SmallVector<Value> results;
  SmallVector<int64_t> offsets(rank, 0), ones(rank, 1);
  // Outputs that nobody takes still occupy their part.
  unsigned next = 0;
  for (size_t i = 0; i < context.bound.view.outputs.size(); ++i) {
    if (context.bound.node.outputs[i] == onnx::kNoValue)
      return SmallVector<Value>();
    RankedTensorType type = context.resultType(next++);
    results.push_back(
        extract(context, context.operand(0), offsets, type, ones));
    offsets[axis] += type.getDimSize(axis);
  }
  return results;
}

static Results lowerConcat(Context &context) {
  RankedTensorType type = context.resultType();
  int64_t axis =
      normalise(context.bound.node.intAttr("axis", 1), type.getRank());
  Value result = context.empty(type);
  SmallVector<int64_t> offsets(type.getRank(), 0), ones(type.getRank(), 1);
  for (Value operand : context.op.getOperands()) {
    auto part = cast<RankedTensorType>(operand.getType());
    if (part.getNumElements() == 0)
      continue;
    result = tensor::InsertSliceOp::create(
        context.rewriter, context.loc(), operand, result,
        indices(context.rewriter, offsets),
        indices(context.rewriter, part.getShape()),
        indices(context.rewriter, ones));
    offsets[axis] += part.getDimSize(axis);
  }
  return SmallVector<Value>{result};
}

static Results lowerExpand(Context &context) {
  OpBuilder &builder = context.rewriter;
  RankedTensorType type = context.resultType();
  Value source = context.operand(0);
  auto from = cast<RankedTensorType>(source.getType());
  int64_t rank = type.getRank();
  SmallVector<AffineExpr> exprs;
  for (int64_t i = 0; i < from.getRank(); ++i)
    exprs.push_back(from.getDimSize(i) == 1
                        ? builder.getAffineConstantExpr(0)
                        : builder.getAffineDimExpr(rank - from.getRank() + i));
  SmallVector<AffineMap> maps = {
      AffineMap::get(rank, 0, exprs, builder.getContext()),
      builder.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, context.loc(), type, source, context.empty(type), maps,
      iterators, [](OpBuilder &inner, Location loc, ValueRange args) {
        linalg::YieldOp::create(inner, loc, args[0]);
      });
  return SmallVector<Value>{generic.getResult(0)};
}

Results lowerDataMovement(Context &context) {
  static const llvm::StringSet<> views = {"Reshape", "Squeeze", "Unsqueeze",
                                          "Flatten", "Identity"};
  if (!context.bound.node.domain.empty() &&
      context.bound.node.domain != "ai.onnx")
    return SmallVector<Value>();
  const std::string &name = context.name();
  if (views.contains(name))
    return SmallVector<Value>{reshape(context.rewriter, context.loc(),
                                      context.operand(0),
                                      context.resultType().getShape())};
  for (unsigned i = 0; i < context.op.getNumResults(); ++i)
    if (context.resultType(i).getNumElements() == 0)
      return SmallVector<Value>();
  if (name == "Slice")
    return lowerSlice(context);
  if (name == "Split")
    return lowerSplit(context);
  if (name == "Concat")
    return lowerConcat(context);
  if (name == "Expand")
    return lowerExpand(context);
  return SmallVector<Value>();
}

} // namespace concord::lowering

//===- Rows.cpp - Normalisation, softmax and copies by kernels ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What works on rows of contiguous elements. Nodes in a form that the kernels
// do not take (softmax over an inner axis, a scale that broadcasts) are left to
// the generic kernels.
//
//===----------------------------------------------------------------------===//

#include "lowering/Describe.h"

using namespace mlir;

namespace concord::lowering {

static int64_t product(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  return count;
}

Results lowerSoftmax(Context &context) {
  const onnx::Node &node = context.bound.node;
  RankedTensorType type = context.resultType();
  ArrayRef<int64_t> shape = type.getShape();
  int64_t rank = type.getRank();
  if (rank == 0 || type.getNumElements() == 0)
    return SmallVector<Value>();
  // Before opset 13 the axis flattened the tensor to a matrix.
  bool flattens = node.opset < 13;
  int64_t axis = node.intAttr("axis", flattens ? 1 : -1);
  axis += axis < 0 ? rank : 0;
  if (axis < 0 || axis >= rank)
    return SmallVector<Value>();
  int64_t inner = product(shape.drop_front(axis + 1));
  if (!flattens && inner != 1)
    return SmallVector<Value>();
  Describe describe("softmax");
  describe.set("rows", product(shape.take_front(axis)))
      .set("cols", product(shape.drop_front(axis)))
      .set("dtype", lower(context.dtype()));
  if (context.name() == "LogSoftmax")
    describe.set("log", 1);
  return makeKernel(context, describe.str(), {context.operand(0)}, type);
}

Results lowerNorm(Context &context) {
  const onnx::Node &node = context.bound.node;
  bool rms = context.name() == "RMSNormalization";
  RankedTensorType type = context.resultType();
  int64_t rank = type.getRank();
  int64_t axis = node.intAttr("axis", -1);
  axis += axis < 0 ? rank : 0;
  if (context.op.getNumResults() != 1 ||
      context.bound.view.outputs.size() != 1 || axis < 0 || axis >= rank ||
      type.getNumElements() == 0)
    return SmallVector<Value>();
  ArrayRef<int64_t> inner = type.getShape().drop_front(axis);
  Value gamma = context.operand(1), beta = rms ? Value() : context.operand(2);
  for (Value affine : {gamma, beta}) {
    if (!affine)
      continue;
    auto own = cast<RankedTensorType>(affine.getType());
    if (own.getElementType() != type.getElementType() ||
        own.getNumElements() != product(inner) ||
        own.getShape().take_back(inner.size()) != inner)
      return SmallVector<Value>();
  }
  Describe describe(rms ? "rmsnorm" : "layernorm");
  describe.set("rows", product(type.getShape().take_front(axis)))
      .set("cols", product(inner))
      .set("dtype", lower(context.dtype()))
      .set("gamma", gamma ? 1 : 0)
      .set("beta", beta ? 1 : 0)
      .real("eps", node.floatAttr("epsilon", 1e-5));
  SmallVector<Value> inputs = {context.operand(0)};
  if (gamma)
    inputs.push_back(gamma);
  if (beta)
    inputs.push_back(beta);
  return makeKernel(context, describe.str(), inputs, type);
}

Results lowerTranspose(Context &context) {
  RankedTensorType type = context.resultType();
  Value x = context.operand(0);
  ArrayRef<int64_t> shape = cast<RankedTensorType>(x.getType()).getShape();
  int64_t rank = shape.size();
  SmallVector<int64_t> perm;
  if (context.bound.node.attribute("perm")) {
    for (int64_t p : context.bound.node.intsAttr("perm"))
      perm.push_back(p);
  } else {
    for (int64_t i = rank; i-- > 0;)
      perm.push_back(i);
  }
  if (static_cast<int64_t>(perm.size()) != rank || type.getNumElements() == 0)
    return SmallVector<Value>();
  for (int64_t p : perm)
    if (p < 0 || p >= rank)
      return SmallVector<Value>();
  // Only dimensions of one element change their place: a reshape.
  int64_t last = -1;
  bool moves = false;
  for (int64_t p : perm)
    if (shape[p] != 1) {
      moves |= p < last;
      last = p;
    }
  if (!moves)
    return SmallVector<Value>{
        reshape(context.rewriter, context.loc(), x, type.getShape())};
  if (rank > 12)
    return SmallVector<Value>();
  Describe describe("transpose");
  describe.set("dtype", lower(context.dtype()))
      .list("shape", shape)
      .list("perm", perm);
  return makeKernel(context, describe.str(), {x}, type);
}

Results lowerGatherRows(Context &context) {
  RankedTensorType type = context.resultType();
  Value table = context.operand(0), indices = context.operand(1);
  ArrayRef<int64_t> shape = cast<RankedTensorType>(table.getType()).getShape();
  DType itype = context.dtype(1);
  if (context.bound.node.intAttr("axis", 0) != 0 || shape.empty() ||
      type.getNumElements() == 0 ||
      (itype != DType::I64 && itype != DType::I32))
    return SmallVector<Value>();
  Describe describe("gather_rows");
  describe.set("rows", shape[0])
      .set("cols", product(shape.drop_front()))
      .set("n", cast<RankedTensorType>(indices.getType()).getNumElements())
      .set("dtype", lower(context.dtype()))
      .set("itype", lower(itype));
  return makeKernel(context, describe.str(), {table, indices}, type);
}

} // namespace concord::lowering

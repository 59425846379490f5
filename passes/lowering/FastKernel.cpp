//===- FastKernel.cpp - Nodes that have a fast kernel ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which node goes to which family of fast kernels, and matrix products with
// their epilogues. docs/kernels.md lists the keys of the descriptions.
//
//===----------------------------------------------------------------------===//

#include "lowering/Describe.h"
#include "lowering/Lowering.h"

#include "comm/Comm.h"
#include "concord/kernel.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace concord::lowering {
namespace {

/// A product as the kernel sees it: batch dimensions with strides, and m, n, k.
struct Product {
  Value a, b;
  int64_t m, n, k;
  bool transA = false, transB = false;
  SmallVector<int64_t> batch, aStrides, bStrides, cStrides;
  double alpha = 1.0, beta = 1.0;
  std::string bias = "none", act = "none";
  Value biasValue, residual;
};

/// Strides of the batch dimensions of `shape` within the broadcast `batch`.
SmallVector<int64_t> batchStrides(ArrayRef<int64_t> shape,
                                  ArrayRef<int64_t> batch, int64_t matrix) {
  SmallVector<int64_t> strides(batch.size(), 0);
  int64_t stride = matrix;
  int64_t rank = shape.size() - 2;
  for (int64_t i = rank - 1, j = batch.size() - 1; i >= 0; --i, --j) {
    strides[j] = shape[i] == 1 ? 0 : stride;
    stride *= shape[i];
  }
  return strides;
}

Results emitProduct(Context &context, Product &p, RankedTensorType resultType) {
  DType type = fromMlirType(resultType.getElementType());
  Describe describe("gemm");
  describe.set("m", p.m).set("n", p.n).set("k", p.k).set("dtype", lower(type));
  if (!p.batch.empty())
    describe.list("batch", p.batch)
        .list("astrides", p.aStrides)
        .list("bstrides", p.bStrides)
        .list("cstrides", p.cStrides);
  if (p.transA)
    describe.set("transa", 1);
  if (p.transB)
    describe.set("transb", 1);
  if (p.alpha != 1.0)
    describe.real("alpha", p.alpha);
  if (p.beta != 1.0)
    describe.real("beta", p.beta);
  if (p.bias != "none")
    describe.set("bias", p.bias);
  if (p.residual)
    describe.set("residual", 1);
  if (p.act != "none")
    describe.set("act", p.act);

  Value b = p.b;
  if (isFloating(type))
    b = packed(context, describe, b);
  SmallVector<Value> inputs = {p.a, b};
  if (p.biasValue)
    inputs.push_back(p.biasValue);
  if (p.residual)
    inputs.push_back(p.residual);
  return makeKernel(context, describe.str(), inputs, resultType);
}

/// MatMul's shapes, with one-dimensional operands as rows or columns.
bool matmulShapes(Context &context, Product &p) {
  SmallVector<int64_t> a(context.bound.view.inputs[0].shape.begin(),
                         context.bound.view.inputs[0].shape.end());
  SmallVector<int64_t> b(context.bound.view.inputs[1].shape.begin(),
                         context.bound.view.inputs[1].shape.end());
  if (a.empty() || b.empty())
    return false;
  if (a.size() == 1)
    a.insert(a.begin(), 1);
  if (b.size() == 1)
    b.push_back(1);
  if (p.transB)
    std::swap(b[b.size() - 2], b.back());
  p.m = a[a.size() - 2];
  p.k = a.back();
  p.n = b.back();
  int64_t batchRank = std::max(a.size(), b.size()) - 2;
  if (b.size() == 2) {
    // The batch of A is more rows.
    for (size_t i = 0; i + 2 < a.size(); ++i)
      p.m *= a[i];
    return true;
  }
  p.batch.assign(batchRank, 1);
  for (int64_t i = 0; i < batchRank; ++i) {
    int64_t fromA = static_cast<int64_t>(a.size()) - 2 - batchRank + i;
    int64_t fromB = static_cast<int64_t>(b.size()) - 2 - batchRank + i;
    p.batch[i] = std::max(fromA >= 0 ? a[fromA] : 1, fromB >= 0 ? b[fromB] : 1);
  }
  p.aStrides = batchStrides(a, p.batch, p.m * p.k);
  p.bStrides = batchStrides(b, p.batch, p.k * p.n);
  int64_t stride = p.m * p.n;
  p.cStrides.assign(batchRank, 0);
  for (int64_t i = batchRank - 1; i >= 0; --i) {
    p.cStrides[i] = stride;
    stride *= p.batch[i];
  }
  return true;
}

Results lowerMatMul(Context &context) {
  RankedTensorType type = context.resultType();
  Product p;
  p.a = context.operand(0);
  p.b = context.operand(1);
  p.transB = context.bound.node.intAttr("transB", 0);
  if (type.getNumElements() == 0 || !matmulShapes(context, p) || p.k == 0)
    return SmallVector<Value>();
  if (context.name() == "FusedMatMul") {
    p.act = context.bound.node.stringAttr("act", "none");
    p.alpha = context.bound.node.floatAttr("alpha", 1.0);
    if ((p.biasValue = context.operand(2)))
      p.bias = "row";
    p.residual = context.operand(3);
  }
  return emitProduct(context, p, type);
}

Results lowerGemm(Context &context) {
  auto &view = context.bound.view;
  RankedTensorType type = context.resultType();
  if (type.getNumElements() == 0)
    return SmallVector<Value>();
  Product p;
  p.a = context.operand(0);
  p.b = context.operand(1);
  p.transA = context.bound.node.intAttr("transA", 0);
  p.transB = context.bound.node.intAttr("transB", 0);
  p.alpha = context.bound.node.floatAttr("alpha", 1.0);
  p.m = type.getDimSize(0);
  p.n = type.getDimSize(1);
  p.k = view.inputs[0].shape[p.transA ? 0 : 1];
  if (p.k == 0)
    return SmallVector<Value>();
  if (view.hasInput(2)) {
    p.beta = context.bound.node.floatAttr("beta", 1.0);
    p.biasValue = context.operand(2);
    const onnx::Shape &shape = view.inputs[2].shape;
    int64_t count = view.inputs[2].numElements();
    if (count == p.n && shape.back() == p.n)
      p.bias = "row";
    else if (count == p.m && shape.size() == 2 && shape[0] == p.m)
      p.bias = "col";
    else if (count == p.m * p.n)
      p.bias = "full";
    else
      return SmallVector<Value>();
  }
  return emitProduct(context, p, type);
}

} // namespace

Value packed(Context &context, Describe &describe, Value weight) {
  auto parameter = weight.getDefiningOp<comm::WeightOp>();
  if (!parameter || parameter.getPack())
    return weight;
  Describe attempt = describe;
  attempt.set("packed", 1);
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  info.struct_size = sizeof(info);
  if (concord_kernel_create(attempt.str().c_str(), &kernel, &info) != 0)
    return weight;
  concord_kernel_destroy(kernel);
  Value value = packWeight(context.rewriter, weight, attempt.str(),
                           info.packed_weight_bytes);
  if (!value)
    return weight;
  describe = attempt;
  return value;
}

Results lowerFastKernel(Context &context) {
  const std::string &name = context.name();
  const std::string &domain = context.bound.node.domain;
  const bool standard = domain.empty() || domain == "ai.onnx";
  if (!standard && domain != "concord")
    return SmallVector<Value>();
  // Copies take any element type.
  if (standard && name == "Transpose")
    return lowerTranspose(context);
  if (standard && name == "Gather")
    return lowerGatherRows(context);
  if (!isFloating(context.dtype()))
    return SmallVector<Value>();
  using Lowering = Results (*)(Context &);
  static const llvm::StringMap<Lowering> fused = {
      {"FusedMatMul", &lowerMatMul},
      {"FusedConv", &lowerConv},
      {"FusedAttention", &lowerAttention},
      {"FusedRotary", &lowerRotary}};
  static const llvm::StringMap<Lowering> standards = {
      {"MatMul", &lowerMatMul},
      {"Gemm", &lowerGemm},
      {"Softmax", &lowerSoftmax},
      {"LogSoftmax", &lowerSoftmax},
      {"LayerNormalization", &lowerNorm},
      {"RMSNormalization", &lowerNorm},
      {"Conv", &lowerConv},
      {"MaxPool", &lowerPool},
      {"AveragePool", &lowerPool},
      {"GlobalAveragePool", &lowerPool},
      {"GlobalMaxPool", &lowerPool},
      {"ReduceMean", &lowerReduction},
      {"ReduceMax", &lowerReduction},
      {"Pow", &lowerPower}};
  const auto &table = standard ? standards : fused;
  auto it = table.find(name);
  if (it != table.end())
    return it->second(context);
  return standard ? lowerFunction(context) : SmallVector<Value>();
}

} // namespace concord::lowering

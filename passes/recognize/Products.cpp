//===- Products.cpp - Epilogues of matrix products and convolutions -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Follows the only user of a product as long as the kernel can do its work too:
// act(alpha A B + bias + residual), in this order. A reshape on the way changes
// nothing, since rows stay whole. With collectives between (tensor parallelism)
// there is no further user here, and the chain ends by itself.
//
//===----------------------------------------------------------------------===//

#include "recognize/Match.h"

#include "comm/Comm.h"

#include <cmath>

using namespace mlir;

namespace concord::recognize {
namespace {

/// The operations after a product, as far as its kernel takes them over.
struct Epilogue {
  Operation *last; ///< whose result the kernel writes
  Value bias, residual;
  StringRef act = "none";
  double alpha = 1;
  unsigned folded = 0;

  explicit Epilogue(Operation *root) : last(root) {}
  Value value() const { return last->getResult(0); }
  RankedTensorType type() const { return typeOf(value()); }
  NodeOp user() const {
    return value().hasOneUse() ? dyn_cast<NodeOp>(*value().user_begin())
                               : NodeOp();
  }
  void take(Operation *op) {
    last = op;
    ++folded;
  }
  /// A sum of this value and `other`, of this value's type.
  bool isSum(NodeOp op, Value &other) const {
    if (!isNode(op, "Add") || op.getResult(0).getType() != value().getType())
      return false;
    other = operandAt(op, operandAt(op, 0) == value() ? 1 : 0);
    return typeOf(other).getElementType() == type().getElementType();
  }
  bool takeResidual(NodeOp op) {
    Value other;
    if (residual || !isSum(op, other) || other.getType() != value().getType())
      return false;
    residual = other;
    take(op);
    return true;
  }
  bool takeActivation(NodeOp op) {
    StringRef name = activationName(op);
    if (name.empty())
      return false;
    act = name;
    take(op);
    return true;
  }
};

/// A vector over the last dimension: [n], or [1, ..., 1, n].
bool isRow(Value value, int64_t n) {
  RankedTensorType type = typeOf(value);
  return type.getRank() >= 1 && type.getNumElements() == n &&
         type.getShape().back() == n;
}

void followProduct(Epilogue &e, int64_t n, bool mayReshape) {
  while (NodeOp user = e.user()) {
    Value other;
    if (mayReshape && isNode(user, "Reshape") &&
        operandAt(user, 0) == e.value() &&
        typeOf(user.getResult(0)).getRank() >= 1 &&
        typeOf(user.getResult(0)).getShape().back() == n) {
      e.last = user;
      continue;
    }
    if (!e.bias && !e.residual && isNode(user, "Mul")) {
      auto scalar = withScalar(user);
      if (!scalar)
        return;
      e.alpha *= scalar->scalar;
      e.take(user);
      continue;
    }
    if (!e.bias && e.isSum(user, other) && isRow(other, n) &&
        (n != 1 || other.getType() != e.type())) {
      e.bias = other;
      e.take(user);
      continue;
    }
    if (e.takeResidual(user))
      continue;
    e.takeActivation(user);
    return;
  }
}

} // namespace

unsigned recognizeProduct(Rewrite &rewrite, NodeOp root) {
  bool matmul = isNode(root, "MatMul"), gemm = isNode(root, "Gemm");
  if (!matmul && !gemm)
    return 0;
  Value a = operandAt(root, 0), b = operandAt(root, 1);
  RankedTensorType type = typeOf(root.getResult(0));
  // Activations in f64 have no kernel of that precision.
  if (!isFloat(type.getElementType()) || type.getElementType().isF64() ||
      typeOf(a).getRank() < 2 || typeOf(b).getRank() < 2 ||
      type.getNumElements() == 0 || typeOf(a).getShape().back() == 0)
    return 0;
  int64_t n = type.getShape().back();
  Epilogue e(root);
  bool transB = gemm && intAttr(root, "transB", 0);
  ArrayRef<int64_t> last = typeOf(b).getShape().take_back(2);
  if (n != last[transB ? 0 : 1] ||
      typeOf(a).getShape().back() != last[transB ? 1 : 0])
    return 0;
  if (gemm) {
    if (intAttr(root, "transA", 0) || realAttr(root, "beta", 1.0) != 1.0)
      return 0;
    e.alpha = realAttr(root, "alpha", 1.0);
    if (Value c = operandAt(root, 2)) {
      if (!isRow(c, n))
        return 0;
      e.bias = c;
    }
  }
  unsigned before = 0;
  if (NodeOp transpose = definedBy(b, "Transpose"); transpose && !transB) {
    // A transpose of the last two dimensions is read in place.
    auto perm = intsAttr(transpose, "perm");
    int64_t rank = typeOf(b).getRank();
    bool swaps = perm ? static_cast<int64_t>(perm->size()) == rank : rank == 2;
    for (int64_t i = 0; swaps && perm && i < rank; ++i)
      swaps = (*perm)[i] == (i < rank - 2 ? i : 2 * rank - 3 - i);
    if (swaps) {
      b = operandAt(transpose, 0);
      transB = true;
      ++before;
    }
  }
  // With batches of B, a row of the result is still a row, but only in place.
  followProduct(e, n, typeOf(b).getRank() == 2);
  if (e.folded + before == 0)
    return 0;
  NodeOp made = rewrite.make(
      e.last, "FusedMatMul", "concord", 1, {a, b, e.bias, e.residual},
      {rewrite.attr("act", e.act), rewrite.attr("alpha", e.alpha),
       rewrite.attr("transB", int64_t(transB))},
      {e.type()});
  rewrite.replace(e.last, made.getResult(0));
  return e.folded + before;
}

//===----------------------------------------------------------------------===//
// Convolutions
//===----------------------------------------------------------------------===//

namespace {

/// All of a parameter's data, with the type of the stored tensor.
std::optional<onnx::Tensor> wholeData(Value value) {
  auto weight = value.getDefiningOp<comm::WeightOp>();
  if (!weight)
    return constantData(value, false);
  if (weight.getPack())
    return std::nullopt;
  auto *dialect = value.getContext()->getLoadedDialect<comm::CommDialect>();
  std::string error;
  auto section = dialect->getWeightStore().lookup(
      weight.getFile().str(), weight.getSection().str(), error);
  if (!section)
    return std::nullopt;
  onnx::Tensor tensor;
  tensor.type = fromMlirTensor(value.getType());
  if (auto global = weight.getGlobal())
    tensor.type.shape.assign(global->begin(), global->end());
  if (section->bytes.size() != tensor.type.numBytes())
    return std::nullopt;
  tensor.bytes = section->bytes;
  tensor.owner = section->owner;
  return tensor;
}

ArrayAttr splitsOf(Value value) {
  auto weight = value.getDefiningOp<comm::WeightOp>();
  ArrayAttr splits = weight ? weight.getSplitsAttr() : ArrayAttr();
  return splits && !splits.empty() ? splits : ArrayAttr();
}

/// A parameter computed from `like`'s: its file, splits and part, other data.
Value makeWeight(Rewrite &rewrite, comm::WeightOp like, const std::string &name,
                 onnx::Tensor data, RankedTensorType type) {
  auto *dialect = like.getContext()->getLoadedDialect<comm::CommDialect>();
  dialect->getWeightStore().add(like.getFile().str(), name,
                                {data.bytes, data.owner});
  OpBuilder &b = rewrite.builder;
  b.setInsertionPoint(like);
  DenseI64ArrayAttr global;
  if (like.getGlobalAttr())
    global = b.getDenseI64ArrayAttr(data.type.shape);
  return comm::WeightOp::create(b, like.getLoc(), type, b.getStringAttr(name),
                                like.getFileAttr(), global,
                                like.getSplitsAttr(), StringAttr(), TypeAttr());
}

/// Folds a batch normalisation of known parameters into weight and bias of the
/// convolution before it.
bool foldBatchNorm(Rewrite &rewrite, NodeOp norm, Value &weight, Value &bias) {
  auto w = weight.getDefiningOp<comm::WeightOp>();
  RankedTensorType type = typeOf(weight);
  if (!w || bias || !type.getElementType().isF32() ||
      intAttr(norm, "training_mode", 0) != 0 || norm.getOperands().size() != 5)
    return false;
  ArrayAttr splits = splitsOf(weight);
  if (splits)
    for (auto split : splits.getAsRange<comm::SplitAttr>())
      if (split.getDim() != 0)
        return false;
  auto data = wholeData(weight);
  if (!data || data->type.shape.empty())
    return false;
  int64_t m = data->type.shape[0],
          inner = data->type.numElements() / std::max<int64_t>(m, 1);
  std::optional<onnx::Tensor> parts[4]; // scale, shift, mean, variance
  for (int i = 0; i < 4; ++i) {
    Value operand = operandAt(norm, i + 1);
    parts[i] = wholeData(operand);
    if (!parts[i] || parts[i]->type.dtype != DType::F32 ||
        parts[i]->type.shape != onnx::Shape{m} || splitsOf(operand) != splits)
      return false;
  }
  double epsilon = realAttr(norm, "epsilon", 1e-5);
  onnx::Tensor folded = onnx::Tensor::allocate(data->type);
  onnx::Tensor shift = onnx::Tensor::allocate({DType::F32, {m}});
  auto *to = reinterpret_cast<float *>(folded.mutableBytes().data());
  auto *shiftTo = reinterpret_cast<float *>(shift.mutableBytes().data());
  for (int64_t i = 0; i < m; ++i) {
    double scale =
        parts[0]->floatAt(i) / std::sqrt(parts[3]->floatAt(i) + epsilon);
    for (int64_t j = 0; j < inner; ++j)
      to[i * inner + j] =
          static_cast<float>(data->floatAt(i * inner + j) * scale);
    shiftTo[i] =
        static_cast<float>(parts[1]->floatAt(i) - parts[2]->floatAt(i) * scale);
  }
  // The same weight may go into another convolution with another norm.
  std::string name = w.getSection().str() + "*" +
                     nodeName(norm.getLoc()).str() + "*" +
                     std::to_string(rewrite.serial++);
  bias = makeWeight(
      rewrite, w, name + ".bias", shift,
      RankedTensorType::get({type.getDimSize(0)}, type.getElementType()));
  weight = makeWeight(rewrite, w, name, folded, type);
  return true;
}

} // namespace

unsigned recognizeConvolution(Rewrite &rewrite, NodeOp root) {
  RankedTensorType type = typeOf(root.getResult(0));
  if (!isNode(root, "Conv") || !isFloat(type.getElementType()) ||
      type.getElementType().isF64() || type.getRank() > 5 ||
      type.getNumElements() == 0)
    return 0;
  Value x = operandAt(root, 0), weight = operandAt(root, 1);
  Epilogue e(root);
  e.bias = operandAt(root, 2);
  if (NodeOp user = e.user(); isNode(user, "BatchNormalization") &&
                              user.getResult(0).getType() == type &&
                              operandAt(user, 0) == e.value() &&
                              foldBatchNorm(rewrite, user, weight, e.bias))
    e.take(user);
  if (NodeOp user = e.user())
    e.takeResidual(user);
  if (NodeOp user = e.user())
    e.takeActivation(user);
  if (!e.folded)
    return 0;
  SmallVector<NamedAttribute> attributes(root.getAttrs().begin(),
                                         root.getAttrs().end());
  attributes.push_back(rewrite.attr("act", e.act));
  NodeOp made =
      rewrite.make(e.last, "FusedConv", "concord", 1,
                   {x, weight, e.bias, e.residual}, attributes, {e.type()});
  rewrite.replace(e.last, made.getResult(0));
  return e.folded;
}

} // namespace concord::recognize

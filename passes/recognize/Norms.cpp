//===- Norms.cpp - Normalisations that exporters spell out ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layer normalisation as exporters before opset 17 write it, RMS normalisation
// as those before opset 23 do.
//
//===----------------------------------------------------------------------===//

#include "recognize/Match.h"

using namespace mlir;

namespace concord::recognize {
namespace {

/// A mean over trailing dimensions that keeps them; their number, or 0.
int64_t trailingMean(NodeOp op, Value &input) {
  if (!isNode(op, "ReduceMean") || intAttr(op, "keepdims", 1) != 1)
    return 0;
  input = operandAt(op, 0);
  int64_t rank = typeOf(input).getRank();
  auto axes = intsAttr(op, "axes");
  if (Value operand = operandAt(op, 1))
    axes = intsOf(operand);
  if (!axes || axes->empty())
    return 0;
  for (int64_t &axis : *axes)
    axis += axis < 0 ? rank : 0;
  llvm::sort(*axes);
  int64_t count = axes->size();
  for (int64_t i = 0; i < count; ++i)
    if ((*axes)[i] != rank - count + i)
      return 0;
  return count;
}

/// x, when `value` is x squared.
Value squareOf(Value value, Cover &cover) {
  Factors factors = factorise(value, cover);
  if (factors.coefficient != 1 || factors.values.size() != 2 ||
      factors.values[0] != factors.values[1])
    return {};
  return factors.values[0];
}

/// sqrt(mean(s^2) + epsilon): s, or null.
struct Deviation {
  Value of;
  double epsilon = 0;
  int64_t axes = 0;
};
std::optional<Deviation> deviation(Value value, Cover &cover) {
  NodeOp root = definedBy(value, "Sqrt");
  if (NodeOp pow = definedBy(value, "Pow")) {
    auto scalar = withScalar(pow);
    if (scalar && !scalar->scalarFirst && scalar->scalar == 0.5)
      root = pow;
  }
  if (!root)
    return std::nullopt;
  NodeOp add = definedBy(operandAt(root, 0), "Add");
  auto scalar = withScalar(add);
  if (!scalar || scalar->scalar < 0)
    return std::nullopt;
  auto mean = scalar->value.getDefiningOp<NodeOp>();
  Value squared;
  Deviation result;
  if (!mean || !(result.axes = trailingMean(mean, squared)))
    return std::nullopt;
  if (!(result.of = squareOf(squared, cover)))
    return std::nullopt;
  result.epsilon = scalar->scalar;
  cover.add(root);
  cover.add(add);
  cover.add(mean);
  return result;
}

/// numerator / deviation in any of the ways to write it.
std::optional<Deviation> normalised(Value value, Value &numerator,
                                    Cover &cover) {
  if (NodeOp div = definedBy(value, "Div")) {
    numerator = operandAt(div, 0);
    cover.add(div);
    return deviation(operandAt(div, 1), cover);
  }
  NodeOp mul = definedBy(value, "Mul");
  if (!mul)
    return std::nullopt;
  for (int64_t i : {0, 1}) {
    Value inverse = operandAt(mul, i);
    Cover inner = cover;
    Value root;
    if (NodeOp reciprocal = definedBy(inverse, "Reciprocal")) {
      root = operandAt(reciprocal, 0);
      inner.add(reciprocal);
    } else if (NodeOp div = definedBy(inverse, "Div")) {
      auto scalar = withScalar(div);
      if (!scalar || !scalar->scalarFirst || scalar->scalar != 1)
        continue;
      root = scalar->value;
      inner.add(div);
    } else {
      continue;
    }
    auto result = deviation(root, inner);
    if (!result)
      continue;
    inner.add(mul);
    cover = inner;
    numerator = operandAt(mul, 1 - i);
    return result;
  }
  return std::nullopt;
}

/// Whether `value` has exactly the last `axes` dimensions of `type`.
bool isAffine(Value value, RankedTensorType type, int64_t axes) {
  RankedTensorType own = typeOf(value);
  return own.getElementType() == type.getElementType() &&
         own.getShape() == type.getShape().take_back(axes);
}

bool layerNorm(Rewrite &rewrite, NodeOp root, Value scaled, Value beta,
               Cover cover) {
  NodeOp mul = definedBy(scaled, "Mul");
  if (!mul)
    return false;
  cover.add(mul);
  RankedTensorType type = typeOf(root.getResult(0));
  for (int64_t i : {0, 1}) {
    Value gamma = operandAt(mul, i), centred, x, again;
    Cover inner = cover;
    auto norm = normalised(operandAt(mul, 1 - i), centred, inner);
    if (!norm || centred.getType() != type ||
        !isAffine(gamma, type, norm->axes) ||
        (beta && !isAffine(beta, type, norm->axes)))
      continue;
    // Some exporters subtract the mean twice, once for each use.
    NodeOp sub = definedBy(centred, "Sub");
    NodeOp other = definedBy(norm->of, "Sub");
    if (!sub || !other || operandAt(sub, 0) != operandAt(other, 0))
      continue;
    x = operandAt(sub, 0);
    auto mean = operandAt(sub, 1).getDefiningOp<NodeOp>();
    auto otherMean = operandAt(other, 1).getDefiningOp<NodeOp>();
    if (!mean || !otherMean || x.getType() != type ||
        trailingMean(mean, again) != norm->axes || again != x ||
        trailingMean(otherMean, again) != norm->axes || again != x)
      continue;
    for (NodeOp op : {sub, other, mean, otherMean})
      inner.add(op);
    if (!inner.closed(root))
      continue;
    NodeOp made =
        rewrite.make(root, "LayerNormalization", "", 17, {x, gamma, beta},
                     {rewrite.attr("axis", -norm->axes),
                      rewrite.attr("epsilon", norm->epsilon)},
                     {type});
    rewrite.replace(root, made.getResult(0));
    return true;
  }
  return false;
}

bool rmsNorm(Rewrite &rewrite, NodeOp root) {
  RankedTensorType type = typeOf(root.getResult(0));
  for (int64_t i : {0, 1}) {
    Value gamma = operandAt(root, i), x;
    Cover cover;
    cover.add(root);
    auto norm = normalised(operandAt(root, 1 - i), x, cover);
    if (!norm || norm->of != x || x.getType() != type ||
        !isAffine(gamma, type, norm->axes) || !cover.closed(root))
      continue;
    NodeOp made = rewrite.make(root, "RMSNormalization", "", 23, {x, gamma},
                               {rewrite.attr("axis", -norm->axes),
                                rewrite.attr("epsilon", norm->epsilon)},
                               {type});
    rewrite.replace(root, made.getResult(0));
    return true;
  }
  return false;
}

} // namespace

bool recognizeNorm(Rewrite &rewrite, NodeOp root) {
  if (root.getNumResults() != 1 ||
      !isFloat(typeOf(root.getResult(0)).getElementType()))
    return false;
  Cover cover;
  cover.add(root);
  if (isNode(root, "Add")) {
    for (int64_t i : {0, 1})
      if (layerNorm(rewrite, root, operandAt(root, 1 - i), operandAt(root, i),
                    cover))
        return true;
    return false;
  }
  if (!isNode(root, "Mul"))
    return false;
  return layerNorm(rewrite, root, root.getResult(0), Value(), cover) ||
         rmsNorm(rewrite, root);
}

} // namespace concord::recognize

//===- InferElementwise.cpp - Shapes of elementwise operators
//---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators whose result has the shape of their operands, broadcast.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

namespace concord::onnx::detail {

namespace {

void unary(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  out(v, 0, x.dtype, x.shape);
}

void unaryFloat(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  if (!isFloat(x.dtype))
    fail("takes floating-point data and gets " + text(x) + "; insert a Cast");
  out(v, 0, x.dtype, x.shape);
}

/// Softmax and its kin: the axis must exist.
void alongAxis(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  const int64_t otherwise = opset(v) >= 13 ? -1 : 1;
  // Up to opset 12 the axis may be the rank: everything in one row.
  const int64_t axis = v.node->intAttr("axis", otherwise);
  if (!(opset(v) < 13 && axis == static_cast<int64_t>(x.shape.size())) &&
      !x.shape.empty())
    axisOf(axis, x.shape.size());
  unaryFloat(v);
}

void lpNormalization(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  axisOf(v.node->intAttr("axis", -1), x.shape.size());
  unaryFloat(v);
}

void toBool(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  out(v, 0, DType::BOOL, x.shape);
}

void logicalNot(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  if (x.dtype != DType::BOOL)
    fail("takes bool and gets " + text(x) + "; insert a Cast");
  out(v, 0, x.dtype, x.shape);
}

Shape binaryShape(const NodeView &v) {
  const TensorType &a = in(v, 0, "A");
  const TensorType &b = in(v, 1, "B");
  return broadcast(a.shape, b.shape);
}

void binary(NodeView &v) {
  Shape shape = binaryShape(v);
  sameDtype(v, 0, 1);
  out(v, 0, v.inputs[0].dtype, std::move(shape));
}

void compare(NodeView &v) {
  Shape shape = binaryShape(v);
  sameDtype(v, 0, 1);
  out(v, 0, DType::BOOL, std::move(shape));
}

void logical(NodeView &v) {
  Shape shape = binaryShape(v);
  for (int i : {0, 1})
    if (v.inputs[i].dtype != DType::BOOL)
      fail("takes bool and gets " + text(v.inputs[i]) + "; insert a Cast");
  out(v, 0, DType::BOOL, std::move(shape));
}

void power(NodeView &v) {
  Shape shape = binaryShape(v);
  if (opset(v) < 12)
    sameDtype(v, 0, 1);
  out(v, 0, v.inputs[0].dtype, std::move(shape));
}

void variadic(NodeView &v) {
  Shape shape = in(v, 0, "data_0").shape;
  for (size_t i = 1; i < v.inputs.size(); ++i) {
    shape = broadcast(shape, in(v, i, "data").shape);
    sameDtype(v, 0, i);
  }
  out(v, 0, v.inputs[0].dtype, std::move(shape));
}

void where(NodeView &v) {
  const TensorType &condition = in(v, 0, "condition");
  const TensorType &x = in(v, 1, "X");
  const TensorType &y = in(v, 2, "Y");
  if (condition.dtype != DType::BOOL)
    fail("the condition is " + text(condition) + " and should be bool");
  sameDtype(v, 1, 2);
  out(v, 0, x.dtype, broadcast(condition.shape, broadcast(x.shape, y.shape)));
}

void prelu(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  const TensorType &slope = in(v, 1, "slope");
  sameDtype(v, 0, 1);
  if (broadcast(x.shape, slope.shape) != x.shape)
    fail("the slope " + text(slope) + " does not broadcast to " + text(x));
  out(v, 0, x.dtype, x.shape);
}

void clip(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  for (size_t i : {1, 2})
    if (v.hasInput(i)) {
      sameDtype(v, 0, i);
      if (v.inputs[i].numElements() != 1)
        fail("a bound is " + text(v.inputs[i]) + " and should be one number");
    }
  out(v, 0, x.dtype, x.shape);
}

void cast(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  if (!v.node->attribute("to"))
    fail("attribute 'to' is missing");
  out(v, 0, dtypeAttr(v, "to", DType::Invalid), x.shape);
}

void castLike(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  out(v, 0, in(v, 1, "target_type").dtype, x.shape);
}

void bitCast(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const DType to = dtypeAttr(v, "to", x.dtype);
  if (dtypeSize(to) != dtypeSize(x.dtype))
    fail("a cast of bits from " + text(x) + " to " +
         std::string(dtypeName(to)) + " changes the size of an element");
  out(v, 0, to, x.shape);
}

void dropout(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  if (v.hasInput(2)) {
    const bool ratioIsZero =
        v.hasInput(1) && v.constants[1] && v.constants[1]->floatAt(0) == 0;
    const Tensor *training = v.constants[2];
    if (!ratioIsZero && (!training || training->intAt(0)))
      fail("dropout in training mode is not supported; export the model for "
           "inference");
  }
  out(v, 0, x.dtype, x.shape);
  out(v, 1, opset(v) >= 10 ? DType::BOOL : x.dtype, x.shape);
}

void isInf(NodeView &v) { toBool(v); }

void bitShift(NodeView &v) {
  const std::string direction = v.node->stringAttr("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    fail("attribute 'direction' is '" + direction +
         "' and should be LEFT or RIGHT");
  binary(v);
}

void quantize(NodeView &v) {
  const TensorType &x = in(v, 0, "x");
  in(v, 1, "y_scale");
  DType dtype = dtypeAttr(v, "output_dtype", DType::U8);
  if (v.hasInput(2))
    dtype = v.inputs[2].dtype;
  out(v, 0, dtype, x.shape);
}

void dequantize(NodeView &v) {
  const TensorType &x = in(v, 0, "x");
  const TensorType &scale = in(v, 1, "x_scale");
  out(v, 0, dtypeAttr(v, "output_dtype", scale.dtype), x.shape);
}

void dynamicQuantize(NodeView &v) {
  const TensorType &x = in(v, 0, "x");
  out(v, 0, DType::U8, x.shape);
  out(v, 1, DType::F32, {});
  out(v, 2, DType::U8, {});
}

constexpr InferEntry kTable[] = {
    {"Abs", 1, unary},
    {"Acos", 7, unaryFloat},
    {"Acosh", 9, unaryFloat},
    {"Add", 7, binary},
    {"And", 7, logical},
    {"Asin", 7, unaryFloat},
    {"Asinh", 9, unaryFloat},
    {"Atan", 7, unaryFloat},
    {"Atanh", 9, unaryFloat},
    {"BitCast", 26, bitCast},
    {"BitShift", 11, bitShift},
    {"BitwiseAnd", 18, binary},
    {"BitwiseNot", 18, unary},
    {"BitwiseOr", 18, binary},
    {"BitwiseXor", 18, binary},
    {"Cast", 6, cast},
    {"CastLike", 15, castLike},
    {"Ceil", 6, unaryFloat},
    {"Celu", 12, unaryFloat},
    {"Clip", 6, clip},
    {"Cos", 7, unaryFloat},
    {"Cosh", 9, unaryFloat},
    {"DequantizeLinear", 10, dequantize},
    {"Div", 7, binary},
    {"Dropout", 7, dropout},
    {"DynamicQuantizeLinear", 11, dynamicQuantize},
    {"Elu", 6, unaryFloat},
    {"Equal", 7, compare},
    {"Erf", 9, unary},
    {"Exp", 6, unaryFloat},
    {"Floor", 6, unaryFloat},
    {"Gelu", 20, unaryFloat},
    {"Greater", 7, compare},
    {"GreaterOrEqual", 12, compare},
    {"HardSigmoid", 6, unaryFloat},
    {"HardSwish", 14, unaryFloat},
    {"Hardmax", 1, alongAxis},
    {"Identity", 1, unary},
    {"IsInf", 10, isInf},
    {"IsNaN", 9, toBool},
    {"LeakyRelu", 6, unaryFloat},
    {"Less", 7, compare},
    {"LessOrEqual", 12, compare},
    {"Log", 6, unaryFloat},
    {"LogSoftmax", 1, alongAxis},
    {"LpNormalization", 1, lpNormalization},
    {"Max", 6, variadic},
    {"Mean", 6, variadic},
    {"MeanVarianceNormalization", 9, unaryFloat},
    {"Min", 6, variadic},
    {"Mish", 18, unaryFloat},
    {"Mod", 10, binary},
    {"Mul", 7, binary},
    {"Neg", 6, unary},
    {"Not", 1, logicalNot},
    {"Or", 7, logical},
    {"PRelu", 7, prelu},
    {"Pow", 7, power},
    {"QuantizeLinear", 10, quantize},
    {"Reciprocal", 6, unaryFloat},
    {"Relu", 6, unary},
    {"Round", 11, unaryFloat},
    {"Selu", 6, unaryFloat},
    {"Shrink", 9, unary},
    {"Sigmoid", 6, unaryFloat},
    {"Sign", 9, unary},
    {"Sin", 7, unaryFloat},
    {"Sinh", 9, unaryFloat},
    {"Softmax", 1, alongAxis},
    {"Softplus", 1, unaryFloat},
    {"Softsign", 1, unaryFloat},
    {"Sqrt", 6, unaryFloat},
    {"Sub", 7, binary},
    {"Sum", 6, variadic},
    {"Swish", 24, unaryFloat},
    {"Tan", 7, unaryFloat},
    {"Tanh", 6, unaryFloat},
    {"ThresholdedRelu", 10, unaryFloat},
    {"Where", 9, where},
    {"Xor", 7, logical},
};

} // namespace

std::span<const InferEntry> elementwiseOps() { return kTable; }

} // namespace concord::onnx::detail

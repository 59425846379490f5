//===- Activations.cpp - GELU and SiLU that exporters spell out -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The product is taken apart into factors first, so that the order of
// multiplications, and whether a constant is multiplied with or divided by, do
// not matter.
//
//===----------------------------------------------------------------------===//

#include "recognize/Match.h"

#include <cmath>

using namespace mlir;

namespace concord::recognize {
namespace {

/// sqrt(2 / pi) (y + 0.044715 y^3), or the same with y taken out.
bool isTanhArgument(Value value, Value y, Cover &cover) {
  Type type = typeOf(value).getElementType();
  Factors outer = factorise(value, cover);
  if (!near(outer.coefficient, std::sqrt(2 / M_PI), type))
    return false;
  bool takenOut = outer.values.size() == 2;
  if (takenOut && outer.values[0] != y)
    std::swap(outer.values[0], outer.values[1]);
  if (takenOut ? outer.values[0] != y : outer.values.size() != 1)
    return false;
  NodeOp add = definedBy(outer.values.back(), "Add");
  if (!add)
    return false;
  cover.add(add);
  Value power;
  if (takenOut) {
    auto scalar = withScalar(add);
    if (!scalar || scalar->scalar != 1)
      return false;
    power = scalar->value;
  } else {
    if (operandAt(add, 0) != y && operandAt(add, 1) != y)
      return false;
    power = operandAt(add, operandAt(add, 0) == y ? 1 : 0);
  }
  Factors cube = factorise(power, cover);
  return near(cube.coefficient, 0.044715, type) &&
         cube.values.size() == (takenOut ? 2 : 3) &&
         llvm::all_of(cube.values, [&](Value v) { return v == y; });
}

/// 1 + erf(y / sqrt 2) or 1 + tanh(...): the value of `approximate`, or "".
StringRef geluGate(Value value, Value y, Cover &cover) {
  NodeOp add = definedBy(value, "Add");
  auto scalar = withScalar(add);
  if (!scalar || scalar->scalar != 1)
    return "";
  cover.add(add);
  if (NodeOp erf = definedBy(scalar->value, "Erf")) {
    cover.add(erf);
    Factors inner = factorise(operandAt(erf, 0), cover);
    return inner.values.size() == 1 && inner.values[0] == y &&
                   near(inner.coefficient, std::sqrt(0.5),
                        typeOf(y).getElementType())
               ? "none"
               : "";
  }
  NodeOp tanh = definedBy(scalar->value, "Tanh");
  if (!tanh)
    return "";
  cover.add(tanh);
  return isTanhArgument(operandAt(tanh, 0), y, cover) ? "tanh" : "";
}

} // namespace

bool recognizeActivation(Rewrite &rewrite, NodeOp root) {
  if (!isNode(root, "Mul") ||
      !isFloat(typeOf(root.getResult(0)).getElementType()))
    return false;
  RankedTensorType type = typeOf(root.getResult(0));
  Cover cover;
  Factors factors = factorise(root.getResult(0), cover);
  if (factors.values.size() != 2 || factors.values[0] == factors.values[1])
    return false;
  for (int i : {0, 1}) {
    Value y = factors.values[i], gate = factors.values[1 - i];
    Cover inner = cover;
    StringRef approximate = geluGate(gate, y, inner);
    if (!approximate.empty() && factors.coefficient == 0.5 &&
        inner.closed(root)) {
      NodeOp made =
          rewrite.make(root, "Gelu", "", 20, {y},
                       {rewrite.attr("approximate", approximate)}, {type});
      rewrite.replace(root, made.getResult(0));
      return true;
    }
    inner = cover;
    NodeOp sigmoid = definedBy(gate, "Sigmoid");
    if (!sigmoid || factors.coefficient != 1)
      continue;
    inner.add(sigmoid);
    Factors argument = factorise(operandAt(sigmoid, 0), inner);
    if (argument.values.size() != 1 || argument.values[0] != y ||
        !inner.closed(root))
      continue;
    NodeOp made =
        rewrite.make(root, "Swish", "", 24, {y},
                     {rewrite.attr("alpha", argument.coefficient)}, {type});
    rewrite.replace(root, made.getResult(0));
    return true;
  }
  return false;
}

StringRef activationName(NodeOp op) {
  if (isNode(op, "Relu"))
    return "relu";
  if (isNode(op, "Tanh"))
    return "tanh";
  if (isNode(op, "Sigmoid"))
    return "sigmoid";
  if (isNode(op, "Swish") && realAttr(op, "alpha", 1.0) == 1.0)
    return "silu";
  if (isNode(op, "Gelu"))
    return stringAttr(op, "approximate", "none") == "tanh" ? "gelu_tanh"
                                                           : "gelu_erf";
  return "";
}

} // namespace concord::recognize

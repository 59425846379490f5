//===- Math.cpp - Elementwise functions by kernels ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Functions that have no vector form as arithmetic (lowering/Elementwise.cpp):
// in f64 all transcendental ones, in the other types those that nobody
// expanded.
//
//===----------------------------------------------------------------------===//

#include "lowering/Describe.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;

namespace concord::lowering {

Results lowerFunction(Context &context) {
  static const llvm::StringMap<const char *> words = {
      {"Acos", "acos"},   {"Acosh", "acosh"}, {"Asin", "asin"},
      {"Asinh", "asinh"}, {"Atan", "atan"},   {"Atanh", "atanh"},
      {"Cos", "cos"},     {"Cosh", "cosh"},   {"Erf", "erf"},
      {"Exp", "exp"},     {"Log", "log"},     {"Sigmoid", "sigmoid"},
      {"Sin", "sin"},     {"Sinh", "sinh"},   {"Softplus", "softplus"},
      {"Tan", "tan"},     {"Tanh", "tanh"}};
  RankedTensorType type = context.resultType();
  Value x = context.operand(0);
  if (type.getNumElements() == 0 || x.getType() != type)
    return SmallVector<Value>();
  const char *word = words.lookup(context.name());
  if (context.name() == "Gelu")
    word = context.bound.node.stringAttr("approximate", "none") == "tanh"
               ? "gelu_tanh"
               : "gelu_erf";
  if (!word)
    return SmallVector<Value>();
  Describe describe("unary");
  describe.set("dtype", lower(context.dtype()))
      .set("n", type.getNumElements())
      .set("op", std::string(word));
  return makeKernel(context, describe.str(), {x}, type);
}

Results lowerPower(Context &context) {
  RankedTensorType type = context.resultType();
  Value x = context.operand(0), y = context.operand(1);
  auto exponent = cast<RankedTensorType>(y.getType());
  bool scalar = exponent.getNumElements() == 1;
  if (type.getNumElements() == 0 || x.getType() != type ||
      exponent.getElementType() != type.getElementType() ||
      (!scalar && exponent != type))
    return SmallVector<Value>();
  Describe describe("binary");
  describe.set("dtype", lower(context.dtype()))
      .set("n", type.getNumElements())
      .set("op", std::string("pow"));
  if (scalar)
    describe.set("yscalar", 1);
  return makeKernel(context, describe.str(), {x, y}, type);
}

} // namespace concord::lowering

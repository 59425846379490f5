//===- Attention.cpp - Attention and rotary positions by kernels ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The nodes that comm-recognize makes already carry the strides; what is left
// is the mask's.
//
//===----------------------------------------------------------------------===//

#include "lowering/Describe.h"

using namespace mlir;

namespace concord::lowering {

Results lowerAttention(Context &context) {
  const onnx::Node &node = context.bound.node;
  Describe describe("attention");
  const int64_t full[4] = {node.intAttr("b", 0), node.intAttr("h", 0),
                           node.intAttr("sq", 0), node.intAttr("sk", 0)};
  for (const char *key : {"b", "d", "dv", "h", "hkv", "sk", "sq"})
    describe.set(key, node.intAttr(key, 0));
  for (const char *key : {"qstrides", "kstrides", "vstrides", "ostrides"})
    describe.list(key, node.intsAttr(key));
  describe.set("dtype", lower(context.dtype()))
      .real("scale", node.floatAttr("scale", 1.0));
  if (node.intAttr("causal", 0))
    describe.set("causal", 1).set("offset", node.intAttr("offset", 0));
  SmallVector<Value> inputs = {context.operand(0), context.operand(1),
                               context.operand(2)};
  if (Value mask = context.operand(3)) {
    auto type = cast<RankedTensorType>(mask.getType());
    SmallVector<int64_t> strides(4, 0);
    int64_t stride = 1, shift = 4 - type.getRank();
    for (int64_t i = type.getRank(); i-- > 0;) {
      if (type.getDimSize(i) != 1 && type.getDimSize(i) != full[shift + i])
        return emitError(context.loc())
               << "node '" << node.name << "': a mask of dimension "
               << type.getDimSize(i) << " where attention has "
               << full[shift + i];
      strides[shift + i] = type.getDimSize(i) == 1 ? 0 : stride;
      stride *= type.getDimSize(i);
    }
    describe.set("mask", lower(context.dtype(3))).list("maskstrides", strides);
    inputs.push_back(mask);
  }
  return makeKernel(context, describe.str(), inputs, context.resultType());
}

Results lowerRotary(Context &context) {
  const onnx::Node &node = context.bound.node;
  Describe describe("rope");
  for (const char *key : {"b", "d", "h", "interleaved", "rotary", "s"})
    describe.set(key, node.intAttr(key, 0));
  for (const char *key : {"tablestrides", "xstrides", "ystrides"})
    describe.list(key, node.intsAttr(key));
  describe.set("dtype", lower(context.dtype()));
  SmallVector<Value> inputs = {context.operand(0), context.operand(1),
                               context.operand(2)};
  if (Value positions = context.operand(3)) {
    describe.set("positions", 1).set("tablerows", node.intAttr("tablerows", 0));
    inputs.push_back(positions);
  }
  return makeKernel(context, describe.str(), inputs, context.resultType());
}

} // namespace concord::lowering

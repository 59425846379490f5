//===- InferNetwork.cpp - Shapes of convolutions, pools and norms
//-----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators on [batch, channels, spatial...] tensors.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

namespace concord::onnx::detail {

namespace {

const TensorType &image(const NodeView &v, size_t i = 0) {
  const TensorType &x = in(v, i, "X");
  if (x.shape.size() < 3)
    fail("takes [batch, channels, spatial...] and gets " + text(x));
  return x;
}

void sameShape(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  out(v, 0, x.dtype, x.shape);
}

void batchNorm(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  if (x.shape.size() < 1)
    fail("takes at least one dimension");
  const Shape channels = {x.shape.size() > 1 ? x.shape[1] : 1};
  for (size_t i = 1; i < 5; ++i)
    if (in(v, i, "scale, B, mean, var").shape != channels)
      fail("operand " + std::to_string(i) + " is " + text(v.inputs[i]) +
           " and should be " + text(channels));
  out(v, 0, x.dtype, x.shape);
  for (size_t i = 1; i < 5; ++i)
    out(v, i, v.inputs[3].dtype, channels);
}

constexpr InferEntry kTable[] = {
    {"BatchNormalization", 7, batchNorm},
    {"InstanceNormalization", 6, sameShape},
    {"LRN", 1, sameShape},
};

[[maybe_unused]] void keep(const NodeView &v) { image(v); }

} // namespace

std::span<const InferEntry> networkOps() { return kTable; }

} // namespace concord::onnx::detail

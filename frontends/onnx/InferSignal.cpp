//===- InferSignal.cpp - Shapes of transforms and windows
//-------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fourier transforms, windows, and the state-space operators of opset 27.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

namespace concord::onnx::detail {

namespace {

void window(NodeView &v) {
  const int64_t size = constantInt(v, 0, "size");
  out(v, 0, dtypeAttr(v, "output_datatype", DType::F32), {size});
}

constexpr InferEntry kTable[] = {
    {"BlackmanWindow", 17, window},
    {"HammingWindow", 17, window},
    {"HannWindow", 17, window},
};

} // namespace

std::span<const InferEntry> signalOps() { return kTable; }

} // namespace concord::onnx::detail

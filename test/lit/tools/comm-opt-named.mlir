// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An error that says the node itself is not given it once more.
//
// RUN: not comm-opt %s --comm-decompose 2>&1 | FileCheck %s
// CHECK: comm-opt: error: {{[^']*}}comm-opt-named.mlir: node '/encoder/magic' (Relu, opset 17): no lowering for this operator

func.func @named(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = onnx.node "Relu"(%x) {} opset(17) domain("com.example") : (tensor<4xf32>) -> tensor<4xf32> loc("/encoder/magic")
  return %0 : tensor<4xf32>
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Nodes have no side effects: equal ones merge, unused ones go.
//
// RUN: comm-opt %s --cse --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = onnx.node "Relu"
// CHECK-NOT: onnx.node
// CHECK: return %[[A]], %[[A]]
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = onnx.node "Relu"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "Relu"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = onnx.node "Neg"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

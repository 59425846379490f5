// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operators that nothing lowers, and nodes that no reader would let pass.
//
// RUN: comm-opt %s --comm-decompose -split-input-file -verify-diagnostics

func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{(Frobnicate, opset 17): no lowering for this operator}}
  %0 = onnx.node "Frobnicate"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// The error carries the model's own name of the node.
func.func @named(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @unknown {{node '/encoder/magic' (Relu, opset 17): no lowering for this operator of domain com.example}}
  %0 = onnx.node "Relu"(%x) {} opset(17) domain("com.example") : (tensor<4xf32>) -> tensor<4xf32> loc("/encoder/magic")
  return %0 : tensor<4xf32>
}

// -----

func.func @attribute(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  // expected-error @below {{attribute 'perm' should be a list of integers}}
  %0 = onnx.node "Transpose"(%x) {perm = "turned"} opset(17) : (tensor<4x8xf32>) -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

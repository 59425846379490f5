// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mixtures of experts whose tokens stay where they are, and why; and a way to split
// them that nobody knows.
//
// RUN: comm-opt %s --split-input-file --comm-partition --explain 2>%t.explain | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t.explain
// RUN: not comm-opt %s --split-input-file --comm-partition="experts=gather" 2>&1 | FileCheck %s --check-prefix=OPTION

// OPTION: error: comm-partition: experts=gather is none of send, reduce, cost
// WHY: explain: comm-partition keep-tokens {{.*}} reason=does-not-divide axis=ep experts=3
// WHY: explain: comm-partition keep-tokens {{.*}} reason=does-not-divide axis=ep tokens=7
// WHY-NOT: send-tokens

// CHECK-LABEL: func.func @experts
// CHECK-NOT: comm.all_to_all
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @experts(%x: tensor<1x8x64xf32>, %share: tensor<3x8x1xf32>) -> tensor<8x64xf32> {
    %w = comm.weight "w" from "m.weights" : tensor<3x64x64xf32>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "MatMul"(%x, %w) {} opset(17) : (tensor<1x8x64xf32>, tensor<3x64x64xf32>) -> tensor<3x8x64xf32>
    %1 = onnx.node "Mul"(%0, %share) {} opset(17) : (tensor<3x8x64xf32>, tensor<3x8x1xf32>) -> tensor<3x8x64xf32>
    %2 = onnx.node "ReduceSum"(%1, %zero) {keepdims = 0 : i64} opset(17) : (tensor<3x8x64xf32>, tensor<1xi64>) -> tensor<8x64xf32>
    return %2 : tensor<8x64xf32>
  }
}

// -----

// CHECK-LABEL: func.func @tokens
// CHECK-NOT: comm.all_to_all
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @tokens(%x: tensor<1x7x64xf32>, %share: tensor<4x7x1xf32>) -> tensor<7x64xf32> {
    %w = comm.weight "w" from "m.weights" : tensor<4x64x64xf32>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "MatMul"(%x, %w) {} opset(17) : (tensor<1x7x64xf32>, tensor<4x64x64xf32>) -> tensor<4x7x64xf32>
    %1 = onnx.node "Mul"(%0, %share) {} opset(17) : (tensor<4x7x64xf32>, tensor<4x7x1xf32>) -> tensor<4x7x64xf32>
    %2 = onnx.node "ReduceSum"(%1, %zero) {keepdims = 0 : i64} opset(17) : (tensor<4x7x64xf32>, tensor<1xi64>) -> tensor<7x64xf32>
    return %2 : tensor<7x64xf32>
  }
}

// -----

// Tokens are mixed: what one without a share is replaced with would be seen.
// CHECK-LABEL: func.func @mixed
// CHECK-NOT: comm.all_to_all
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @mixed(%x: tensor<1x8x64xf32>, %share: tensor<4x8x1xf32>) -> tensor<8x64xf32> {
    %w = comm.weight "w" from "m.weights" : tensor<4x64x64xf32>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "MatMul"(%x, %w) {} opset(17) : (tensor<1x8x64xf32>, tensor<4x64x64xf32>) -> tensor<4x8x64xf32>
    %1 = onnx.node "Softmax"(%0) {axis = 1 : i64} opset(17) : (tensor<4x8x64xf32>) -> tensor<4x8x64xf32>
    %2 = onnx.node "Mul"(%1, %share) {} opset(17) : (tensor<4x8x64xf32>, tensor<4x8x1xf32>) -> tensor<4x8x64xf32>
    %3 = onnx.node "ReduceSum"(%2, %zero) {keepdims = 0 : i64} opset(17) : (tensor<4x8x64xf32>, tensor<1xi64>) -> tensor<8x64xf32>
    return %3 : tensor<8x64xf32>
  }
}

// -----

// What the experts make is an output as well.
// CHECK-LABEL: func.func @seen
// CHECK-NOT: comm.all_to_all
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @seen(%x: tensor<1x8x64xf32>, %share: tensor<4x8x1xf32>) -> (tensor<8x64xf32>, tensor<4x8x64xf32>) {
    %w = comm.weight "w" from "m.weights" : tensor<4x64x64xf32>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "MatMul"(%x, %w) {} opset(17) : (tensor<1x8x64xf32>, tensor<4x64x64xf32>) -> tensor<4x8x64xf32>
    %1 = onnx.node "Mul"(%0, %share) {} opset(17) : (tensor<4x8x64xf32>, tensor<4x8x1xf32>) -> tensor<4x8x64xf32>
    %2 = onnx.node "ReduceSum"(%1, %zero) {keepdims = 0 : i64} opset(17) : (tensor<4x8x64xf32>, tensor<1xi64>) -> tensor<8x64xf32>
    return %2, %0 : tensor<8x64xf32>, tensor<4x8x64xf32>
  }
}

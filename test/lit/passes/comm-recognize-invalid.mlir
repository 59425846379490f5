// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What looks like a pattern of comm-recognize and must not be replaced.
//
// RUN: comm-opt %s --comm-recognize | FileCheck %s

// The gate is used elsewhere too.
// CHECK-LABEL: func.func @used_elsewhere
// CHECK: onnx.node "Sigmoid"
// CHECK-NOT: Swish
// CHECK: return
func.func @used_elsewhere(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = onnx.node "Sigmoid"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "Mul"(%x, %0) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// Another constant than that of GELU.
// CHECK-LABEL: func.func @other_constant
// CHECK: onnx.node "Erf"
// CHECK-NOT: Gelu
// CHECK: return
func.func @other_constant(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = arith.constant dense<1.4> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %0 = onnx.node "Div"(%x, %root) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = onnx.node "Erf"(%0) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = onnx.node "Add"(%1, %one) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = onnx.node "Mul"(%x, %2) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = onnx.node "Mul"(%3, %half) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// The mean is not over the last dimension, so rows are not normalised.
// CHECK-LABEL: func.func @inner_axis
// CHECK: onnx.node "Sqrt"
// CHECK-NOT: RMSNormalization
// CHECK: return
func.func @inner_axis(%x: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %eps = arith.constant dense<1.0e-3> : tensor<f32>
  %0 = onnx.node "Mul"(%x, %x) {} opset(17) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = onnx.node "ReduceMean"(%0) {axes = array<i64: 0>} opset(17) : (tensor<4x8xf32>) -> tensor<1x8xf32>
  %2 = onnx.node "Add"(%1, %eps) {} opset(17) : (tensor<1x8xf32>, tensor<f32>) -> tensor<1x8xf32>
  %3 = onnx.node "Sqrt"(%2) {} opset(17) : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %4 = onnx.node "Div"(%x, %3) {} opset(17) : (tensor<4x8xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
  %5 = onnx.node "Mul"(%4, %g) {} opset(17) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %5 : tensor<4x8xf32>
}

// A partial product may not take the bias: it is added once, after the sum.
// CHECK-LABEL: func.func @across_a_collective
// CHECK: onnx.node "MatMul"
// CHECK: comm.all_reduce
// CHECK: onnx.node "Add"
// CHECK-NOT: FusedMatMul
// CHECK: return
comm.domain @tp groups([[0, 1]])
func.func @across_a_collective(%a: tensor<6x8xf32>, %w: tensor<8x4xf32>, %b: tensor<4xf32>) -> tensor<6x4xf32> {
  %e = tensor.empty() : tensor<6x4xf32>
  %0 = onnx.node "MatMul"(%a, %w) {} opset(17) : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %1 = comm.all_reduce @tp sum ins(%0 : tensor<6x4xf32>) outs(%e : tensor<6x4xf32>) -> tensor<6x4xf32>
  %2 = onnx.node "Add"(%1, %b) {} opset(17) : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6x4xf32>
  return %2 : tensor<6x4xf32>
}

// A mask that is scaled after it was added, and one that hides a whole row.
// CHECK-LABEL: func.func @not_attention
// CHECK-NOT: FusedAttention
// CHECK: return
func.func @not_attention(%q: tensor<1x1x2x8xf32>, %k: tensor<1x1x8x2xf32>, %v: tensor<1x1x2x8xf32>, %m: tensor<1x1x2x2xf32>) -> (tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>) {
  %two = arith.constant dense<2.0> : tensor<f32>
  %low = arith.constant dense<-1.0e+9> : tensor<f32>
  %see = arith.constant dense<[[[[false, false], [true, false]]]]> : tensor<1x1x2x2xi1>
  %0 = onnx.node "MatMul"(%q, %k) {} opset(17) : (tensor<1x1x2x8xf32>, tensor<1x1x8x2xf32>) -> tensor<1x1x2x2xf32>
  %1 = onnx.node "Add"(%0, %m) {} opset(17) : (tensor<1x1x2x2xf32>, tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  %2 = onnx.node "Div"(%1, %two) {} opset(17) : (tensor<1x1x2x2xf32>, tensor<f32>) -> tensor<1x1x2x2xf32>
  %3 = onnx.node "Softmax"(%2) {axis = -1 : i64} opset(17) : (tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  %4 = onnx.node "MatMul"(%3, %v) {} opset(17) : (tensor<1x1x2x2xf32>, tensor<1x1x2x8xf32>) -> tensor<1x1x2x8xf32>
  %5 = onnx.node "MatMul"(%q, %k) {} opset(17) : (tensor<1x1x2x8xf32>, tensor<1x1x8x2xf32>) -> tensor<1x1x2x2xf32>
  %6 = onnx.node "Where"(%see, %5, %low) {} opset(17) : (tensor<1x1x2x2xi1>, tensor<1x1x2x2xf32>, tensor<f32>) -> tensor<1x1x2x2xf32>
  %7 = onnx.node "Softmax"(%6) {axis = -1 : i64} opset(17) : (tensor<1x1x2x2xf32>) -> tensor<1x1x2x2xf32>
  %8 = onnx.node "MatMul"(%7, %v) {} opset(17) : (tensor<1x1x2x2xf32>, tensor<1x1x2x8xf32>) -> tensor<1x1x2x8xf32>
  return %4, %8 : tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>
}

// Nodes that no reader would let pass are left for others to refuse.
// CHECK-LABEL: func.func @malformed
// CHECK: onnx.node "Add"(%{{.*}}) {}
// CHECK: onnx.node "Mul"() {}
// CHECK: onnx.node "Transpose"(%{{.*}}) {perm = array<i64: 7, 0>}
// CHECK: onnx.node "MatMul"
func.func @malformed(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>) {
  %0 = onnx.node "Add"(%x) {} opset(17) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = onnx.node "Mul"() {} opset(17) : () -> tensor<4x8xf32>
  %2 = onnx.node "Transpose"(%x) {perm = array<i64: 7, 0>} opset(17) : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %3 = onnx.node "MatMul"(%x, %2) {} opset(17) : (tensor<4x8xf32>, tensor<8x4xf32>) -> tensor<4x4xf32>
  return %0, %1, %3 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>
}

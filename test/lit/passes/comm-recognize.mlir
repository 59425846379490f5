// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// RUN: comm-opt %s --comm-recognize | FileCheck %s

// Layer normalisation as it was exported before opset 17.
// CHECK-LABEL: func.func @layer_norm
// CHECK-SAME: (%[[X:.*]]: tensor<2x4x8xf32>, %[[G:.*]]: tensor<8xf32>, %[[B:.*]]: tensor<8xf32>)
// CHECK-NEXT: %[[Y:.*]] = onnx.node "LayerNormalization"(%[[X]], %[[G]], %[[B]]) {axis = -1 : i64, epsilon = 0.0010000000474974513 : f64} opset(17)
// CHECK-NEXT: return %[[Y]]
func.func @layer_norm(%x: tensor<2x4x8xf32>, %g: tensor<8xf32>, %b: tensor<8xf32>) -> tensor<2x4x8xf32> {
  %two = arith.constant dense<2.0> : tensor<f32>
  %eps = arith.constant dense<1.0e-3> : tensor<f32>
  %0 = onnx.node "ReduceMean"(%x) {axes = array<i64: -1>, keepdims = 1 : i64} opset(13) : (tensor<2x4x8xf32>) -> tensor<2x4x1xf32>
  %1 = onnx.node "Sub"(%x, %0) {} opset(13) : (tensor<2x4x8xf32>, tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
  %2 = onnx.node "Pow"(%1, %two) {} opset(13) : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4x8xf32>
  %3 = onnx.node "ReduceMean"(%2) {axes = array<i64: -1>, keepdims = 1 : i64} opset(13) : (tensor<2x4x8xf32>) -> tensor<2x4x1xf32>
  %4 = onnx.node "Add"(%3, %eps) {} opset(13) : (tensor<2x4x1xf32>, tensor<f32>) -> tensor<2x4x1xf32>
  %5 = onnx.node "Sqrt"(%4) {} opset(13) : (tensor<2x4x1xf32>) -> tensor<2x4x1xf32>
  %6 = onnx.node "Div"(%1, %5) {} opset(13) : (tensor<2x4x8xf32>, tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
  %7 = onnx.node "Mul"(%6, %g) {} opset(13) : (tensor<2x4x8xf32>, tensor<8xf32>) -> tensor<2x4x8xf32>
  %8 = onnx.node "Add"(%7, %b) {} opset(13) : (tensor<2x4x8xf32>, tensor<8xf32>) -> tensor<2x4x8xf32>
  return %8 : tensor<2x4x8xf32>
}

// The square by Mul, the mean's axes as an operand, no shift.
// CHECK-LABEL: func.func @layer_norm_no_shift
// CHECK: onnx.node "LayerNormalization"(%{{.*}}, %{{.*}}) {axis = -2 : i64
// CHECK-NOT: onnx.node
func.func @layer_norm_no_shift(%x: tensor<2x4x8xf32>, %g: tensor<4x8xf32>) -> tensor<2x4x8xf32> {
  %axes = arith.constant dense<[2, 1]> : tensor<2xi64>
  %eps = arith.constant dense<1.0e-3> : tensor<1xf32>
  %0 = onnx.node "ReduceMean"(%x, %axes) {} opset(18) : (tensor<2x4x8xf32>, tensor<2xi64>) -> tensor<2x1x1xf32>
  %1 = onnx.node "Sub"(%x, %0) {} opset(18) : (tensor<2x4x8xf32>, tensor<2x1x1xf32>) -> tensor<2x4x8xf32>
  %2 = onnx.node "Mul"(%1, %1) {} opset(18) : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %3 = onnx.node "ReduceMean"(%2, %axes) {} opset(18) : (tensor<2x4x8xf32>, tensor<2xi64>) -> tensor<2x1x1xf32>
  %4 = onnx.node "Add"(%3, %eps) {} opset(18) : (tensor<2x1x1xf32>, tensor<1xf32>) -> tensor<2x1x1xf32>
  %5 = onnx.node "Sqrt"(%4) {} opset(18) : (tensor<2x1x1xf32>) -> tensor<2x1x1xf32>
  %6 = onnx.node "Div"(%1, %5) {} opset(18) : (tensor<2x4x8xf32>, tensor<2x1x1xf32>) -> tensor<2x4x8xf32>
  %7 = onnx.node "Mul"(%g, %6) {} opset(18) : (tensor<4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  return %7 : tensor<2x4x8xf32>
}

// CHECK-LABEL: func.func @rms_norm
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32>, %[[G:.*]]: tensor<8xf32>)
// CHECK-NEXT: %[[Y:.*]] = onnx.node "RMSNormalization"(%[[X]], %[[G]]) {axis = -1 : i64, epsilon = 0.0010000000474974513 : f64} opset(23)
// CHECK-NEXT: return %[[Y]]
func.func @rms_norm(%x: tensor<4x8xf32>, %g: tensor<8xf32>) -> tensor<4x8xf32> {
  %two = arith.constant dense<2.0> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %eps = arith.constant dense<1.0e-3> : tensor<f32>
  %0 = onnx.node "Pow"(%x, %two) {} opset(17) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %1 = onnx.node "ReduceMean"(%0) {axes = array<i64: -1>} opset(17) : (tensor<4x8xf32>) -> tensor<4x1xf32>
  %2 = onnx.node "Add"(%1, %eps) {} opset(17) : (tensor<4x1xf32>, tensor<f32>) -> tensor<4x1xf32>
  %3 = onnx.node "Sqrt"(%2) {} opset(17) : (tensor<4x1xf32>) -> tensor<4x1xf32>
  %4 = onnx.node "Div"(%one, %3) {} opset(17) : (tensor<f32>, tensor<4x1xf32>) -> tensor<4x1xf32>
  %5 = onnx.node "Mul"(%x, %4) {} opset(17) : (tensor<4x8xf32>, tensor<4x1xf32>) -> tensor<4x8xf32>
  %6 = onnx.node "Mul"(%g, %5) {} opset(17) : (tensor<8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %6 : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @gelu_erf
// CHECK-SAME: (%[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT: %[[Y:.*]] = onnx.node "Gelu"(%[[X]]) {approximate = "none"} opset(20)
// CHECK-NEXT: return %[[Y]]
func.func @gelu_erf(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = arith.constant dense<1.41421354> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %0 = onnx.node "Div"(%x, %root) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = onnx.node "Erf"(%0) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = onnx.node "Add"(%1, %one) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = onnx.node "Mul"(%x, %2) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = onnx.node "Mul"(%3, %half) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// The half taken first, and a product instead of the division.
// CHECK-LABEL: func.func @gelu_erf_other_order
// CHECK: onnx.node "Gelu"
// CHECK-NOT: onnx.node
func.func @gelu_erf_other_order(%x: tensor<4xf32>) -> tensor<4xf32> {
  %root = arith.constant dense<0.707106769> : tensor<1xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %0 = onnx.node "Mul"(%root, %x) {} opset(17) : (tensor<1xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "Erf"(%0) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = onnx.node "Add"(%one, %1) {} opset(17) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %3 = onnx.node "Mul"(%half, %x) {} opset(17) : (tensor<f32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = onnx.node "Mul"(%3, %2) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// CHECK-LABEL: func.func @gelu_tanh
// CHECK: onnx.node "Gelu"(%{{.*}}) {approximate = "tanh"} opset(20)
// CHECK-NOT: onnx.node
func.func @gelu_tanh(%x: tensor<4xf32>) -> tensor<4xf32> {
  %three = arith.constant dense<3.0> : tensor<f32>
  %c = arith.constant dense<4.471500e-02> : tensor<f32>
  %s = arith.constant dense<0.797884583> : tensor<f32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %half = arith.constant dense<0.5> : tensor<f32>
  %0 = onnx.node "Mul"(%x, %half) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = onnx.node "Pow"(%x, %three) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = onnx.node "Mul"(%1, %c) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = onnx.node "Add"(%x, %2) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %4 = onnx.node "Mul"(%3, %s) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = onnx.node "Tanh"(%4) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %6 = onnx.node "Add"(%5, %one) {} opset(17) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %7 = onnx.node "Mul"(%0, %6) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %7 : tensor<4xf32>
}

// CHECK-LABEL: func.func @swish
// CHECK: onnx.node "Swish"(%{{.*}}) {alpha = 1.000000e+00 : f64} opset(24)
// CHECK-NOT: onnx.node
func.func @swish(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = onnx.node "Sigmoid"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = onnx.node "Mul"(%x, %0) {} opset(17) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// Bias, residual and activation in the order in which the kernel applies them,
// past a reshape.
// CHECK-LABEL: func.func @epilogue
// CHECK-SAME: (%[[A:.*]]: tensor<6x8xf32>, %[[W:.*]]: tensor<8x4xf32>, %[[B:.*]]: tensor<4xf32>, %[[R:.*]]: tensor<2x3x4xf32>)
// CHECK: onnx.node "FusedMatMul"(%[[A]], %[[W]], %[[B]], %[[R]]) {act = "relu", alpha = 1.000000e+00 : f64, transB = 0 : i64} opset(1) domain("concord")
// CHECK-SAME: -> tensor<2x3x4xf32>
// CHECK-NOT: onnx.node
func.func @epilogue(%a: tensor<6x8xf32>, %w: tensor<8x4xf32>, %b: tensor<4xf32>, %r: tensor<2x3x4xf32>) -> tensor<2x3x4xf32> {
  %shape = arith.constant dense<[2, 3, 4]> : tensor<3xi64>
  %0 = onnx.node "MatMul"(%a, %w) {} opset(17) : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %1 = onnx.node "Add"(%b, %0) {} opset(17) : (tensor<4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  %2 = onnx.node "Reshape"(%1, %shape) {} opset(17) : (tensor<6x4xf32>, tensor<3xi64>) -> tensor<2x3x4xf32>
  %3 = onnx.node "Add"(%2, %r) {} opset(17) : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %4 = onnx.node "Relu"(%3) {} opset(17) : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  return %4 : tensor<2x3x4xf32>
}

// An activation before the residual stays the last thing that is folded.
// CHECK-LABEL: func.func @activation_then_residual
// CHECK: %[[M:.*]] = onnx.node "FusedMatMul"(%{{.*}}, %{{.*}}) {act = "tanh"
// CHECK: onnx.node "Add"(%[[M]], %{{.*}})
func.func @activation_then_residual(%a: tensor<6x8xf32>, %w: tensor<8x4xf32>, %r: tensor<6x4xf32>) -> tensor<6x4xf32> {
  %0 = onnx.node "MatMul"(%a, %w) {} opset(17) : (tensor<6x8xf32>, tensor<8x4xf32>) -> tensor<6x4xf32>
  %1 = onnx.node "Tanh"(%0) {} opset(17) : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %2 = onnx.node "Add"(%1, %r) {} opset(17) : (tensor<6x4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  return %2 : tensor<6x4xf32>
}

// Gemm with a transposed weight; a transposed operand of MatMul.
// CHECK-LABEL: func.func @gemm
// CHECK: onnx.node "FusedMatMul"(%{{.*}}, %{{.*}}, %{{.*}}) {act = "gelu_tanh", alpha = 2.000000e+00 : f64, transB = 1 : i64}
// CHECK: onnx.node "FusedMatMul"(%{{.*}}, %{{.*}}) {act = "none", alpha = 1.000000e+00 : f64, transB = 1 : i64}
// CHECK-NOT: onnx.node
func.func @gemm(%a: tensor<6x8xf32>, %w: tensor<4x8xf32>, %b: tensor<1x4xf32>, %v: tensor<16x4xf32>) -> tensor<6x16xf32> {
  %0 = onnx.node "Gemm"(%a, %w, %b) {alpha = 2.0 : f64, transB = 1 : i64} opset(17) : (tensor<6x8xf32>, tensor<4x8xf32>, tensor<1x4xf32>) -> tensor<6x4xf32>
  %1 = onnx.node "Gelu"(%0) {approximate = "tanh"} opset(20) : (tensor<6x4xf32>) -> tensor<6x4xf32>
  %2 = onnx.node "Transpose"(%v) {perm = array<i64: 1, 0>} opset(17) : (tensor<16x4xf32>) -> tensor<4x16xf32>
  %3 = onnx.node "MatMul"(%1, %2) {} opset(17) : (tensor<6x4xf32>, tensor<4x16xf32>) -> tensor<6x16xf32>
  return %3 : tensor<6x16xf32>
}

// Attention reads and writes [batch, positions, heads, width] in place.
// CHECK-LABEL: func.func @attention
// CHECK-SAME: (%[[Q:.*]]: tensor<2x3x32xf32>, %[[K:.*]]: tensor<2x5x32xf32>, %[[V:.*]]: tensor<2x5x32xf32>, %[[M:.*]]: tensor<2x1x1x5xf32>)
// CHECK: %[[Y:.*]] = onnx.node "FusedAttention"(%[[Q]], %[[K]], %[[V]], %[[M]])
// CHECK-SAME: b = 2 : i64, causal = 0 : i64, d = 8 : i64, dv = 8 : i64, h = 4 : i64, hkv = 4 : i64, kstrides = array<i64: 160, 8, 32>, offset = 0 : i64, ostrides = array<i64: 96, 8, 32>, qstrides = array<i64: 96, 8, 32>, scale = 5.000000e-01 : f64, sk = 5 : i64, sq = 3 : i64, vstrides = array<i64: 160, 8, 32>
// CHECK-SAME: -> tensor<2x3x4x8xf32>
// CHECK-NEXT: onnx.node "Reshape"(%[[Y]]
// CHECK-NEXT: return
func.func @attention(%q: tensor<2x3x32xf32>, %k: tensor<2x5x32xf32>, %v: tensor<2x5x32xf32>, %m: tensor<2x1x1x5xf32>) -> tensor<2x3x32xf32> {
  %s3 = arith.constant dense<[2, 3, 4, 8]> : tensor<4xi64>
  %s5 = arith.constant dense<[2, 5, 4, 8]> : tensor<4xi64>
  %so = arith.constant dense<[2, 3, 32]> : tensor<3xi64>
  %two = arith.constant dense<2.0> : tensor<f32>
  %0 = onnx.node "Reshape"(%q, %s3) {} opset(17) : (tensor<2x3x32xf32>, tensor<4xi64>) -> tensor<2x3x4x8xf32>
  %1 = onnx.node "Transpose"(%0) {perm = array<i64: 0, 2, 1, 3>} opset(17) : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %2 = onnx.node "Reshape"(%k, %s5) {} opset(17) : (tensor<2x5x32xf32>, tensor<4xi64>) -> tensor<2x5x4x8xf32>
  %3 = onnx.node "Transpose"(%2) {perm = array<i64: 0, 2, 3, 1>} opset(17) : (tensor<2x5x4x8xf32>) -> tensor<2x4x8x5xf32>
  %4 = onnx.node "Reshape"(%v, %s5) {} opset(17) : (tensor<2x5x32xf32>, tensor<4xi64>) -> tensor<2x5x4x8xf32>
  %5 = onnx.node "Transpose"(%4) {perm = array<i64: 0, 2, 1, 3>} opset(17) : (tensor<2x5x4x8xf32>) -> tensor<2x4x5x8xf32>
  %6 = onnx.node "MatMul"(%1, %3) {} opset(17) : (tensor<2x4x3x8xf32>, tensor<2x4x8x5xf32>) -> tensor<2x4x3x5xf32>
  %7 = onnx.node "Div"(%6, %two) {} opset(17) : (tensor<2x4x3x5xf32>, tensor<f32>) -> tensor<2x4x3x5xf32>
  %8 = onnx.node "Add"(%7, %m) {} opset(17) : (tensor<2x4x3x5xf32>, tensor<2x1x1x5xf32>) -> tensor<2x4x3x5xf32>
  %9 = onnx.node "Softmax"(%8) {axis = -1 : i64} opset(17) : (tensor<2x4x3x5xf32>) -> tensor<2x4x3x5xf32>
  %10 = onnx.node "MatMul"(%9, %5) {} opset(17) : (tensor<2x4x3x5xf32>, tensor<2x4x5x8xf32>) -> tensor<2x4x3x8xf32>
  %11 = onnx.node "Transpose"(%10) {perm = array<i64: 0, 2, 1, 3>} opset(17) : (tensor<2x4x3x8xf32>) -> tensor<2x3x4x8xf32>
  %12 = onnx.node "Reshape"(%11, %so) {} opset(17) : (tensor<2x3x4x8xf32>, tensor<3xi64>) -> tensor<2x3x32xf32>
  return %12 : tensor<2x3x32xf32>
}

// Keys and values that are repeated for several heads are read once; a constant
// lower triangle is the kernel's causal form; constant factors of both sides of
// the product become its scale.
// CHECK-LABEL: func.func @grouped_causal
// CHECK-SAME: (%[[Q:.*]]: tensor<1x4x3x8xf32>, %[[K:.*]]: tensor<1x2x3x8xf32>, %[[V:.*]]: tensor<1x2x3x8xf32>)
// CHECK: onnx.node "FusedAttention"(%[[Q]], %[[K]], %[[V]])
// CHECK-SAME: causal = 1 : i64, {{.*}}h = 4 : i64, hkv = 2 : i64, kstrides = array<i64: 0, 24, 8>, offset = 0 : i64, ostrides = array<i64: 96, 24, 8>, qstrides = array<i64: 0, 24, 8>, scale = 2.500000e-01 : f64
// CHECK-NOT: onnx.node
func.func @grouped_causal(%q: tensor<1x4x3x8xf32>, %k: tensor<1x2x3x8xf32>, %v: tensor<1x2x3x8xf32>) -> tensor<1x4x3x8xf32> {
  %half = arith.constant dense<0.5> : tensor<f32>
  %low = arith.constant dense<-3.40282347e+38> : tensor<f32>
  %see = arith.constant dense<[[[[true, false, false], [true, true, false], [true, true, true]]]]> : tensor<1x1x3x3xi1>
  %s5 = arith.constant dense<[1, 2, 2, 3, 8]> : tensor<5xi64>
  %s4 = arith.constant dense<[1, 4, 3, 8]> : tensor<4xi64>
  %one = arith.constant dense<2> : tensor<1xi64>
  %0 = onnx.node "Unsqueeze"(%k, %one) {} opset(17) : (tensor<1x2x3x8xf32>, tensor<1xi64>) -> tensor<1x2x1x3x8xf32>
  %1 = onnx.node "Expand"(%0, %s5) {} opset(17) : (tensor<1x2x1x3x8xf32>, tensor<5xi64>) -> tensor<1x2x2x3x8xf32>
  %2 = onnx.node "Reshape"(%1, %s4) {} opset(17) : (tensor<1x2x2x3x8xf32>, tensor<4xi64>) -> tensor<1x4x3x8xf32>
  %3 = onnx.node "Unsqueeze"(%v, %one) {} opset(17) : (tensor<1x2x3x8xf32>, tensor<1xi64>) -> tensor<1x2x1x3x8xf32>
  %4 = onnx.node "Expand"(%3, %s5) {} opset(17) : (tensor<1x2x1x3x8xf32>, tensor<5xi64>) -> tensor<1x2x2x3x8xf32>
  %5 = onnx.node "Reshape"(%4, %s4) {} opset(17) : (tensor<1x2x2x3x8xf32>, tensor<4xi64>) -> tensor<1x4x3x8xf32>
  %6 = onnx.node "Transpose"(%2) {perm = array<i64: 0, 1, 3, 2>} opset(17) : (tensor<1x4x3x8xf32>) -> tensor<1x4x8x3xf32>
  %7 = onnx.node "Mul"(%q, %half) {} opset(17) : (tensor<1x4x3x8xf32>, tensor<f32>) -> tensor<1x4x3x8xf32>
  %8 = onnx.node "Mul"(%6, %half) {} opset(17) : (tensor<1x4x8x3xf32>, tensor<f32>) -> tensor<1x4x8x3xf32>
  %9 = onnx.node "MatMul"(%7, %8) {} opset(17) : (tensor<1x4x3x8xf32>, tensor<1x4x8x3xf32>) -> tensor<1x4x3x3xf32>
  %10 = onnx.node "Where"(%see, %9, %low) {} opset(17) : (tensor<1x1x3x3xi1>, tensor<1x4x3x3xf32>, tensor<f32>) -> tensor<1x4x3x3xf32>
  %11 = onnx.node "Softmax"(%10) {axis = 3 : i64} opset(17) : (tensor<1x4x3x3xf32>) -> tensor<1x4x3x3xf32>
  %12 = onnx.node "MatMul"(%11, %5) {} opset(17) : (tensor<1x4x3x3xf32>, tensor<1x4x3x8xf32>) -> tensor<1x4x3x8xf32>
  return %12 : tensor<1x4x3x8xf32>
}

// Rotary positions, read from before the transpose.
// CHECK-LABEL: func.func @rotary
// CHECK-SAME: (%[[X:.*]]: tensor<2x3x4x8xf32>, %[[A:.*]]: tensor<2x3x4xf32>)
// CHECK-DAG: %[[COS:.*]] = onnx.node "Cos"
// CHECK-DAG: %[[SIN:.*]] = onnx.node "Sin"
// CHECK: %[[Y:.*]] = onnx.node "FusedRotary"(%[[X]], %[[COS]], %[[SIN]])
// CHECK-SAME: b = 2 : i64, d = 8 : i64, h = 4 : i64, interleaved = 0 : i64, rotary = 8 : i64, s = 3 : i64, tablerows = 0 : i64, tablestrides = array<i64: 24, 8>, xstrides = array<i64: 96, 32, 8>, ystrides = array<i64: 96, 8, 24>
// CHECK-NEXT: return %[[Y]]
func.func @rotary(%x: tensor<2x3x4x8xf32>, %a: tensor<2x3x4xf32>) -> tensor<2x4x3x8xf32> {
  %one = arith.constant dense<1> : tensor<1xi64>
  %zero = arith.constant dense<0> : tensor<1xi64>
  %half = arith.constant dense<4> : tensor<1xi64>
  %end = arith.constant dense<9223372036854775807> : tensor<1xi64>
  %axis = arith.constant dense<3> : tensor<1xi64>
  %0 = onnx.node "Concat"(%a, %a) {axis = -1 : i64} opset(17) : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x3x8xf32>
  %1 = onnx.node "Cos"(%0) {} opset(17) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %2 = onnx.node "Sin"(%0) {} opset(17) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %3 = onnx.node "Unsqueeze"(%1, %one) {} opset(17) : (tensor<2x3x8xf32>, tensor<1xi64>) -> tensor<2x1x3x8xf32>
  %4 = onnx.node "Unsqueeze"(%2, %one) {} opset(17) : (tensor<2x3x8xf32>, tensor<1xi64>) -> tensor<2x1x3x8xf32>
  %5 = onnx.node "Transpose"(%x) {perm = array<i64: 0, 2, 1, 3>} opset(17) : (tensor<2x3x4x8xf32>) -> tensor<2x4x3x8xf32>
  %6 = onnx.node "Slice"(%5, %zero, %half, %axis, %one) {} opset(17) : (tensor<2x4x3x8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x4x3x4xf32>
  %7 = onnx.node "Slice"(%5, %half, %end, %axis, %one) {} opset(17) : (tensor<2x4x3x8xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x4x3x4xf32>
  %8 = onnx.node "Neg"(%7) {} opset(17) : (tensor<2x4x3x4xf32>) -> tensor<2x4x3x4xf32>
  %9 = onnx.node "Concat"(%8, %6) {axis = -1 : i64} opset(17) : (tensor<2x4x3x4xf32>, tensor<2x4x3x4xf32>) -> tensor<2x4x3x8xf32>
  %10 = onnx.node "Mul"(%5, %3) {} opset(17) : (tensor<2x4x3x8xf32>, tensor<2x1x3x8xf32>) -> tensor<2x4x3x8xf32>
  %11 = onnx.node "Mul"(%9, %4) {} opset(17) : (tensor<2x4x3x8xf32>, tensor<2x1x3x8xf32>) -> tensor<2x4x3x8xf32>
  %12 = onnx.node "Add"(%10, %11) {} opset(17) : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x4x3x8xf32>
  return %12 : tensor<2x4x3x8xf32>
}

// CHECK-LABEL: func.func @convolution
// CHECK: onnx.node "FusedConv"(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) {act = "relu", pads = array<i64: 1, 1, 1, 1>} opset(1) domain("concord")
// CHECK-NOT: onnx.node
func.func @convolution(%x: tensor<1x4x8x8xf32>, %w: tensor<4x4x3x3xf32>, %b: tensor<4xf32>) -> tensor<1x4x8x8xf32> {
  %0 = onnx.node "Conv"(%x, %w, %b) {pads = array<i64: 1, 1, 1, 1>} opset(17) : (tensor<1x4x8x8xf32>, tensor<4x4x3x3xf32>, tensor<4xf32>) -> tensor<1x4x8x8xf32>
  %1 = onnx.node "Add"(%0, %x) {} opset(17) : (tensor<1x4x8x8xf32>, tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %2 = onnx.node "Relu"(%1) {} opset(17) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  return %2 : tensor<1x4x8x8xf32>
}

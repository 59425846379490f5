// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which nodes become calls of which fast kernel.
//
// RUN: comm-opt %s --comm-decompose | FileCheck %s

// CHECK-LABEL: func.func @products
// CHECK: comm.kernel "gemm act=relu alpha=0.5 bias=row dtype=f32 k=8 m=6 n=4 residual=1 transb=1"
// CHECK: comm.kernel "gemm astrides=[48] batch=[2] bstrides=[32] cstrides=[24] dtype=f32 k=8 m=6 n=4 transb=1"
// CHECK: comm.kernel "gemm beta=2 bias=col dtype=f32 k=8 m=6 n=4 transa=1"
func.func @products(%a: tensor<6x8xf32>, %w: tensor<4x8xf32>, %b: tensor<4xf32>, %r: tensor<6x4xf32>, %c: tensor<2x6x8xf32>, %d: tensor<2x4x8xf32>, %e: tensor<8x6xf32>, %f: tensor<8x4xf32>, %g: tensor<6x1xf32>) -> (tensor<6x4xf32>, tensor<2x6x4xf32>, tensor<6x4xf32>) {
  %0 = onnx.node "FusedMatMul"(%a, %w, %b, %r) {act = "relu", alpha = 0.5 : f64, transB = 1 : i64} opset(1) domain("concord") : (tensor<6x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<6x4xf32>) -> tensor<6x4xf32>
  %1 = onnx.node "FusedMatMul"(%c, %d) {act = "none", alpha = 1.0 : f64, transB = 1 : i64} opset(1) domain("concord") : (tensor<2x6x8xf32>, tensor<2x4x8xf32>) -> tensor<2x6x4xf32>
  %2 = onnx.node "Gemm"(%e, %f, %g) {beta = 2.0 : f64, transA = 1 : i64} opset(17) : (tensor<8x6xf32>, tensor<8x4xf32>, tensor<6x1xf32>) -> tensor<6x4xf32>
  return %0, %1, %2 : tensor<6x4xf32>, tensor<2x6x4xf32>, tensor<6x4xf32>
}

// Before opset 13, softmax flattened the tensor at its axis.
// CHECK-LABEL: func.func @rows
// CHECK: comm.kernel "softmax cols=8 dtype=f32 rows=6"
// CHECK: comm.kernel "softmax cols=24 dtype=f32 log=1 rows=2"
// CHECK: comm.kernel "onnx.softmax
// CHECK: comm.kernel "layernorm beta=1 cols=24 dtype=f32 eps={{[^ ]+}} gamma=1 rows=2"
// CHECK: comm.kernel "rmsnorm beta=0 cols=8 dtype=f32 eps={{[^ ]+}} gamma=1 rows=6"
func.func @rows(%x: tensor<2x3x8xf32>, %g: tensor<3x8xf32>, %h: tensor<8xf32>) -> (tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>) {
  %0 = onnx.node "Softmax"(%x) {} opset(17) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %1 = onnx.node "LogSoftmax"(%x) {} opset(11) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %2 = onnx.node "Softmax"(%x) {axis = 1 : i64} opset(17) : (tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %3 = onnx.node "LayerNormalization"(%x, %g, %g) {axis = -2 : i64} opset(17) : (tensor<2x3x8xf32>, tensor<3x8xf32>, tensor<3x8xf32>) -> tensor<2x3x8xf32>
  %4 = onnx.node "RMSNormalization"(%x, %h) {epsilon = 0.0010000000474974513 : f64} opset(23) : (tensor<2x3x8xf32>, tensor<8xf32>) -> tensor<2x3x8xf32>
  return %0, %1, %2, %3, %4 : tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>, tensor<2x3x8xf32>
}

// A transpose that moves only dimensions of one element is a view.
// CHECK-LABEL: func.func @copies
// CHECK: comm.kernel "transpose dtype=i8 perm=[1,0] shape=[4,8]"
// CHECK-NOT: comm.kernel "transpose
// CHECK: tensor.expand_shape
// CHECK: comm.kernel "gather_rows cols=6 dtype=f32 itype=i64 n=5 rows=10"
func.func @copies(%x: tensor<4x8xi8>, %y: tensor<8x1x4xf32>, %t: tensor<10x2x3xf32>, %i: tensor<5xi64>) -> (tensor<8x4xi8>, tensor<1x8x4xf32>, tensor<5x2x3xf32>) {
  %0 = onnx.node "Transpose"(%x) {} opset(17) : (tensor<4x8xi8>) -> tensor<8x4xi8>
  %1 = onnx.node "Transpose"(%y) {perm = array<i64: 1, 0, 2>} opset(17) : (tensor<8x1x4xf32>) -> tensor<1x8x4xf32>
  %2 = onnx.node "Gather"(%t, %i) {} opset(17) : (tensor<10x2x3xf32>, tensor<5xi64>) -> tensor<5x2x3xf32>
  return %0, %1, %2 : tensor<8x4xi8>, tensor<1x8x4xf32>, tensor<5x2x3xf32>
}

// Automatic padding is resolved; rounding up goes to the general kernel.
// CHECK-LABEL: func.func @windows
// CHECK: comm.kernel "conv act=relu bias=1 dilations=[1,1] dtype=f32 group=1 kernel=[3,3] m=2 pads=[0,0,1,1] residual=1 strides=[2,2] x=[1,4,8,8]"
// CHECK: comm.kernel "pool dilations=[1,1] dtype=f32 kernel=[2,2] op=max pads=[0,0,0,0] strides=[2,2] x=[1,4,8,8]"
// CHECK: comm.kernel "pool dilations=[1,1] dtype=f32 kernel=[3,3] op=average_with_pad pads=[1,1,1,1] strides=[1,1] x=[1,4,8,8]"
// CHECK: comm.kernel "pool dilations=[1,1] dtype=f32 kernel=[8,8] op=average pads=[0,0,0,0] strides=[1,1] x=[1,4,8,8]"
// CHECK: comm.kernel "onnx.maxpool
func.func @windows(%x: tensor<1x4x8x8xf32>, %w: tensor<2x4x3x3xf32>, %b: tensor<2xf32>, %r: tensor<1x2x4x4xf32>) -> (tensor<1x2x4x4xf32>, tensor<1x4x4x4xf32>, tensor<1x4x8x8xf32>, tensor<1x4x1x1xf32>, tensor<1x4x3x3xf32>) {
  %0 = onnx.node "FusedConv"(%x, %w, %b, %r) {act = "relu", auto_pad = "SAME_UPPER", strides = array<i64: 2, 2>} opset(1) domain("concord") : (tensor<1x4x8x8xf32>, tensor<2x4x3x3xf32>, tensor<2xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
  %1 = onnx.node "MaxPool"(%x) {kernel_shape = array<i64: 2, 2>, strides = array<i64: 2, 2>} opset(17) : (tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32>
  %2 = onnx.node "AveragePool"(%x) {kernel_shape = array<i64: 3, 3>, pads = array<i64: 1, 1, 1, 1>, count_include_pad = 1 : i64} opset(17) : (tensor<1x4x8x8xf32>) -> tensor<1x4x8x8xf32>
  %3 = onnx.node "GlobalAveragePool"(%x) {} opset(17) : (tensor<1x4x8x8xf32>) -> tensor<1x4x1x1xf32>
  %4 = onnx.node "MaxPool"(%x) {kernel_shape = array<i64: 3, 3>, strides = array<i64: 3, 3>, ceil_mode = 1 : i64} opset(17) : (tensor<1x4x8x8xf32>) -> tensor<1x4x3x3xf32>
  return %0, %1, %2, %3, %4 : tensor<1x2x4x4xf32>, tensor<1x4x4x4xf32>, tensor<1x4x8x8xf32>, tensor<1x4x1x1xf32>, tensor<1x4x3x3xf32>
}

// CHECK-LABEL: func.func @functions
// CHECK: comm.kernel "unary dtype=f32 n=12 op=cos"
// CHECK: comm.kernel "unary dtype=f64 n=3 op=exp"
// CHECK: comm.kernel "binary dtype=f32 n=12 op=pow yscalar=1"
func.func @functions(%x: tensor<3x4xf32>, %y: tensor<3xf64>, %e: tensor<f32>) -> (tensor<3x4xf32>, tensor<3xf64>, tensor<3x4xf32>) {
  %0 = onnx.node "Cos"(%x) {} opset(17) : (tensor<3x4xf32>) -> tensor<3x4xf32>
  %1 = onnx.node "Exp"(%y) {} opset(17) : (tensor<3xf64>) -> tensor<3xf64>
  %2 = onnx.node "Pow"(%x, %e) {} opset(17) : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
  return %0, %1, %2 : tensor<3x4xf32>, tensor<3xf64>, tensor<3x4xf32>
}

// A mean over whole rows is pooling; over another dimension it is not.
// CHECK-LABEL: func.func @means
// CHECK: comm.kernel "pool dtype=f32 kernel=[8] op=average x=[1,6,8]"
// CHECK: comm.kernel "onnx.reducemean
func.func @means(%x: tensor<2x3x8xf32>) -> (tensor<2x3x1xf32>, tensor<2x1x8xf32>) {
  %0 = onnx.node "ReduceMean"(%x) {axes = array<i64: -1>} opset(17) : (tensor<2x3x8xf32>) -> tensor<2x3x1xf32>
  %1 = onnx.node "ReduceMean"(%x) {axes = array<i64: 1>} opset(17) : (tensor<2x3x8xf32>) -> tensor<2x1x8xf32>
  return %0, %1 : tensor<2x3x1xf32>, tensor<2x1x8xf32>
}

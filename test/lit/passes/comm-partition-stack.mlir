// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Experts that were exported one by one become one computation over the axis ep, if
// they compute alike: a new first dimension, on parameters one behind the other.
//
// RUN: comm-opt %s --split-input-file --comm-partition --explain 2>%t.explain | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t.explain

// WHY: explain: comm-partition stack-experts {{.*}} reason=same-computation axis=ep experts=2
// WHY-NOT: stack-experts

// CHECK-LABEL: func.func @alike
// CHECK-DAG: arith.constant dense<"0x{{(0000803F)+(00000040)+}}"> : tensor<2x64x32xf32>
// CHECK-DAG: arith.constant dense<{{\[\[\[1\..*2\..*\]\]\]}}> : tensor<2x1x32xf32>
// CHECK-DAG: arith.constant dense<"0x{{(0000803F)+(00000040)+}}"> : tensor<2x32x64xf32>
// CHECK: comm.all_to_all @ep split(0) concat(1) ins(%{{.*}} : tensor<2x1x4x64xf32>)
// CHECK: onnx.node "MatMul"{{.*}} (tensor<1x8x64xf32>, tensor<1x64x32xf32>) -> tensor<1x8x32xf32>
// CHECK: onnx.node "Add"{{.*}} (tensor<1x8x32xf32>, tensor<1x1x32xf32>) -> tensor<1x8x32xf32>
// CHECK: onnx.node "Relu"{{.*}} -> tensor<1x8x32xf32>
// CHECK: onnx.node "MatMul"{{.*}} -> tensor<1x8x64xf32>
// CHECK: comm.all_to_all @ep split(1) concat(0)
// CHECK: onnx.node "ReduceSum"
// CHECK: onnx.node "Add"(%{{.*}}, %{{.*}}) {} opset(13)
// CHECK-NOT: onnx.node "Gemm"
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @alike(%x: tensor<8x64xf32>, %s0: tensor<8x1xf32>, %s1: tensor<8x1xf32>) -> tensor<8x64xf32> {
    %w0 = arith.constant dense<1.0> : tensor<32x64xf32>
    %b0 = arith.constant dense<1.0> : tensor<32xf32>
    %v0 = arith.constant dense<1.0> : tensor<32x64xf32>
    %h0 = onnx.node "Gemm"(%x, %w0, %b0) {transB = 1 : i64} opset(17) : (tensor<8x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<8x32xf32>
    %a0 = onnx.node "Relu"(%h0) {} opset(17) : (tensor<8x32xf32>) -> tensor<8x32xf32>
    %y0 = onnx.node "MatMul"(%a0, %v0) {} opset(17) : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
    %m0 = onnx.node "Mul"(%y0, %s0) {} opset(17) : (tensor<8x64xf32>, tensor<8x1xf32>) -> tensor<8x64xf32>
    %w1 = arith.constant dense<2.0> : tensor<32x64xf32>
    %b1 = arith.constant dense<2.0> : tensor<32xf32>
    %v1 = arith.constant dense<2.0> : tensor<32x64xf32>
    %h1 = onnx.node "Gemm"(%x, %w1, %b1) {transB = 1 : i64} opset(17) : (tensor<8x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<8x32xf32>
    %a1 = onnx.node "Relu"(%h1) {} opset(17) : (tensor<8x32xf32>) -> tensor<8x32xf32>
    %y1 = onnx.node "MatMul"(%a1, %v1) {} opset(17) : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
    %m1 = onnx.node "Mul"(%y1, %s1) {} opset(17) : (tensor<8x64xf32>, tensor<8x1xf32>) -> tensor<8x64xf32>
    %r0 = onnx.node "Add"(%x, %m0) {} opset(17) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    %r1 = onnx.node "Add"(%r0, %m1) {} opset(17) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    return %r1 : tensor<8x64xf32>
  }
}

// -----

// CHECK-LABEL: func.func @different
// CHECK-NOT: comm.all_to_all
// CHECK: onnx.node "Gemm"
// CHECK: onnx.node "Gemm"
// CHECK: return
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @different(%x: tensor<8x64xf32>, %s0: tensor<8x1xf32>, %s1: tensor<8x1xf32>) -> tensor<8x64xf32> {
    %w0 = arith.constant dense<1.0> : tensor<32x64xf32>
    %b0 = arith.constant dense<1.0> : tensor<32xf32>
    %v0 = arith.constant dense<1.0> : tensor<32x64xf32>
    %h0 = onnx.node "Gemm"(%x, %w0, %b0) {transB = 1 : i64} opset(17) : (tensor<8x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<8x32xf32>
    %a0 = onnx.node "Relu"(%h0) {} opset(17) : (tensor<8x32xf32>) -> tensor<8x32xf32>
    %y0 = onnx.node "MatMul"(%a0, %v0) {} opset(17) : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
    %m0 = onnx.node "Mul"(%y0, %s0) {} opset(17) : (tensor<8x64xf32>, tensor<8x1xf32>) -> tensor<8x64xf32>
    %w1 = arith.constant dense<2.0> : tensor<32x64xf32>
    %b1 = arith.constant dense<2.0> : tensor<32xf32>
    %v1 = arith.constant dense<2.0> : tensor<32x64xf32>
    %h1 = onnx.node "Gemm"(%x, %w1, %b1) {transB = 1 : i64} opset(17) : (tensor<8x64xf32>, tensor<32x64xf32>, tensor<32xf32>) -> tensor<8x32xf32>
    %a1 = onnx.node "Tanh"(%h1) {} opset(17) : (tensor<8x32xf32>) -> tensor<8x32xf32>
    %y1 = onnx.node "MatMul"(%a1, %v1) {} opset(17) : (tensor<8x32xf32>, tensor<32x64xf32>) -> tensor<8x64xf32>
    %m1 = onnx.node "Mul"(%y1, %s1) {} opset(17) : (tensor<8x64xf32>, tensor<8x1xf32>) -> tensor<8x64xf32>
    %r0 = onnx.node "Add"(%x, %m0) {} opset(17) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    %r1 = onnx.node "Add"(%r0, %m1) {} opset(17) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    return %r1 : tensor<8x64xf32>
  }
}

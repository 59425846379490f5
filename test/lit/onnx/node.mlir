// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// onnx.node: attributes, domains, absent operands and results; it is Pure.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

// CHECK-LABEL: func.func @main
func.func @main(%table: tensor<256x64xf32>, %ids: tensor<1x8xi64>, %x: tensor<4x?xf32>) {
  // CHECK: onnx.node "Gather"(%{{.*}}, %{{.*}}) {axis = 0 : i64} opset(17) : (tensor<256x64xf32>, tensor<1x8xi64>) -> tensor<1x8x64xf32>
  %0 = onnx.node "Gather"(%table, %ids) {axis = 0 : i64} opset(17)
       : (tensor<256x64xf32>, tensor<1x8xi64>) -> tensor<1x8x64xf32>
  // CHECK: onnx.node "Gelu"(%{{.*}}) {} opset(1) domain("com.microsoft") : (tensor<4x?xf32>) -> tensor<4x?xf32>
  %1 = onnx.node "Gelu"(%x) {} opset(1) domain("com.microsoft") : (tensor<4x?xf32>) -> tensor<4x?xf32>
  // The minimum of Clip is absent: the second operand given is the third of ONNX.
  // CHECK: onnx.node "Clip"(%{{.*}}, %{{.*}}) {} opset(17) {num_operands = 3 : i32, operand_positions = array<i32: 0, 2>} : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  %max = arith.constant dense<6.0> : tensor<f32>
  %2 = onnx.node "Clip"(%x, %max) {} opset(17)
       {num_operands = 3 : i32, operand_positions = array<i32: 0, 2>}
       : (tensor<4x?xf32>, tensor<f32>) -> tensor<4x?xf32>
  // CHECK: onnx.node "LayerNormalization"({{.*}}) {axis = -1 : i64} opset(17) {result_positions = array<i32: 0, 2>} : (tensor<4x?xf32>) -> (tensor<4x?xf32>, tensor<4x1xf32>)
  %3:2 = onnx.node "LayerNormalization"(%x) {axis = -1 : i64} opset(17)
         {result_positions = array<i32: 0, 2>}
         : (tensor<4x?xf32>) -> (tensor<4x?xf32>, tensor<4x1xf32>)
  // CHECK: onnx.node "Constant"() {value_float = 1.000000e+00 : f32} opset(17) : () -> tensor<f32>
  %4 = onnx.node "Constant"() {value_float = 1.0 : f32} opset(17) : () -> tensor<f32>
  return
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A few operators of each family: elementwise to linalg, movement to nothing or to
// slices, products to packed kernels, the rest to kernels.
//
// RUN: comm-opt %s --comm-decompose --canonicalize --cse | FileCheck %s

// CHECK: comm.phase = "decomposed"

// CHECK-LABEL: func.func @relu
// CHECK: linalg.generic
// CHECK: arith.{{maximumf|select}}
func.func @relu(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = onnx.node "Relu"(%x) {} opset(17) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Broadcasting is in the maps: nothing is expanded.
// CHECK-LABEL: func.func @broadcast
// CHECK: linalg.generic {{.*}}ins(%{{.*}}, %{{.*}} : tensor<4x8xf32>, tensor<8xf32>)
// CHECK: arith.addf
func.func @broadcast(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %0 = onnx.node "Add"(%x, %b) {} opset(17) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// A reshape is a view.
// CHECK-LABEL: func.func @reshape
// CHECK-NOT: comm.kernel
// CHECK-NOT: linalg
// CHECK: return %{{.*}} : tensor<2x2x8xf32>
func.func @reshape(%x: tensor<4x8xf32>) -> tensor<2x2x8xf32> {
  %s = arith.constant dense<[2, 2, 8]> : tensor<3xi64>
  %0 = onnx.node "Reshape"(%x, %s) {} opset(17) : (tensor<4x8xf32>, tensor<3xi64>) -> tensor<2x2x8xf32>
  return %0 : tensor<2x2x8xf32>
}

// A product with a parameter: the parameter is packed when the artefact is made.
// CHECK-LABEL: func.func @product
// CHECK: %[[W:.*]] = comm.weight "w" from "m.weights" {pack = "[[D:gemm [^"]*k=8 m=4 n=16 packed=1]]", part = tensor<8x16xf32>} : tensor<{{[0-9]+}}xi8>
// CHECK: comm.kernel "[[D]]" ins(%{{.*}}, %[[W]] :
func.func @product(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %w = comm.weight "w" from "m.weights" : tensor<8x16xf32>
  %0 = onnx.node "MatMul"(%x, %w) {} opset(17) : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// CHECK-LABEL: func.func @softmax
// CHECK: comm.kernel "softmax {{.*}}cols=8 {{.*}}rows=4
func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = onnx.node "Softmax"(%x) {axis = -1 : i64} opset(17) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// Communication passes through.
comm.domain @tp groups([[0, 1]])
// CHECK-LABEL: func.func @collective
// CHECK: comm.all_reduce @tp sum
func.func @collective(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

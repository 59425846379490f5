// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two axes, row-major with the last fastest: ranks of one tp group are neighbours.
//
// RUN: comm-opt %s --comm-partition | FileCheck %s

// CHECK: comm.domain @dp groups({{\[}}[0, 2], [1, 3]])
// CHECK: comm.domain @tp groups({{\[}}[0, 1], [2, 3]])
// CHECK: func.func @main(%{{.*}}: tensor<2x8xf32> {comm.global = array<i64: 4, 8>, comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @dp>]})
// CHECK: comm.weight "w1" {{.*}}domain = @tp>]} : tensor<8x8xf32>
// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<2x8xf32>)
module attributes {comm.mesh = [["dp", 2], ["tp", 2]], comm.phase = "imported", comm.world = 4 : i64} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %w1 = comm.weight "w1" from "m.weights" : tensor<8x16xf32>
    %b1 = comm.weight "b1" from "m.weights" : tensor<16xf32>
    %w2 = comm.weight "w2" from "m.weights" : tensor<16x8xf32>
    %b2 = comm.weight "b2" from "m.weights" : tensor<8xf32>
    %0 = onnx.node "MatMul"(%x, %w1) {} opset(17) : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %1 = onnx.node "Add"(%0, %b1) {} opset(17) : (tensor<4x16xf32>, tensor<16xf32>) -> tensor<4x16xf32>
    %2 = onnx.node "Relu"(%1) {} opset(17) : (tensor<4x16xf32>) -> tensor<4x16xf32>
    %3 = onnx.node "MatMul"(%2, %w2) {} opset(17) : (tensor<4x16xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
    %4 = onnx.node "Add"(%3, %b2) {} opset(17) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %4 : tensor<4x8xf32>
  }
}

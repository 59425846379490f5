// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Data parallel: the batch is split, no parameter is, and nothing communicates;
// replicate-inputs and replicate-outputs keep the caller's tensors whole.
//
// RUN: comm-opt %s --comm-partition | FileCheck %s
// RUN: comm-opt %s --comm-partition="replicate-inputs replicate-outputs" | FileCheck %s --check-prefix=WHOLE

// CHECK: comm.domain @dp groups({{\[}}[0, 1]])
// CHECK: func.func @main(%{{.*}}: tensor<2x8xf32> {comm.global = array<i64: 4, 8>, comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @dp>]})
// CHECK-SAME: -> (tensor<2x8xf32> {comm.global = array<i64: 4, 8>, comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @dp>]})
// CHECK-NOT: splits
// CHECK-NOT: comm.all

// WHOLE: func.func @main({{.*}}) -> tensor<4x8xf32> {
// WHOLE-NOT: splits
// WHOLE: comm.all_gather @dp dim(0) ins(%{{.*}} : tensor<2x8xf32>)
module attributes {comm.mesh = [["dp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
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

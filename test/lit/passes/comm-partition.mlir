// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A two-layer perceptron over two ranks: the first product split by columns, the
// second by rows, one all_reduce; the second bias is added by one rank only.
//
// RUN: comm-opt %s --comm-partition | FileCheck %s

// CHECK: module attributes {{.*}}comm.phase = "partitioned"
// CHECK: comm.domain @tp groups({{\[}}[0, 1]])
// CHECK: func.func @main(%[[X:.*]]: tensor<4x8xf32>) -> tensor<4x8xf32>
// CHECK-DAG: %[[W1:.*]] = comm.weight "w1" {{.*}}global = array<i64: 8, 16>, splits = [#comm.split<dim = 1, outer = 1, domain = @tp>]} : tensor<8x8xf32>
// CHECK-DAG: %[[B1:.*]] = comm.weight "b1" {{.*}}global = array<i64: 16>, splits = [#comm.split<dim = 0, outer = 1, domain = @tp>]} : tensor<8xf32>
// CHECK-DAG: %[[W2:.*]] = comm.weight "w2" {{.*}}global = array<i64: 16, 8>, splits = [#comm.split<dim = 0, outer = 1, domain = @tp>]} : tensor<8x8xf32>
// CHECK: %[[RANK:.*]] = comm.rank @tp
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[RANK]]
// CHECK: %[[B2:.*]] = linalg.generic
// CHECK: arith.select %[[FIRST]]
// CHECK: %[[A:.*]] = onnx.node "MatMul"(%[[X]], %[[W1]])
// CHECK: %[[B:.*]] = onnx.node "Add"(%[[A]], %[[B1]])
// CHECK: %[[C:.*]] = onnx.node "Relu"(%[[B]])
// CHECK: %[[D:.*]] = onnx.node "MatMul"(%[[C]], %[[W2]])
// CHECK: %[[E:.*]] = onnx.node "Add"(%[[D]], %[[B2]])
// CHECK: %[[R:.*]] = comm.all_reduce @tp sum ins(%[[E]] : tensor<4x8xf32>)
// CHECK-NOT: comm.all
// CHECK: return %[[R]]
module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
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

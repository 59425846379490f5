// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A mixture of experts over the axis ep: tokens go to the owners of their experts
// by an all_to_all and back by another, and no value is made whole in between.
// `experts=reduce` keeps the tokens where they are and reduces partial sums.
//
// RUN: comm-opt %s --split-input-file --comm-partition --explain 2>%t.explain | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t.explain
// RUN: comm-opt %s --split-input-file --comm-partition="experts=reduce" | FileCheck %s --check-prefix=REDUCE
// RUN: comm-opt %s --split-input-file --comm-partition="experts=cost" --explain 2>%t.cost | FileCheck %s --check-prefix=REDUCE
// RUN: FileCheck %s --check-prefix=COST < %t.cost

// WHY: explain: comm-partition send-tokens {{.*}} reason=experts-split axis=ep sent_seconds={{[0-9.]+}} kept_seconds={{[0-9.]+}}
// WHY: explain: comm-partition insert-all_to_all {{.*}}reason=split-elsewhere axis=ep bytes=
// COST: explain: comm-partition keep-tokens {{.*}} reason=least-predicted-time axis=ep sent_seconds={{[0-9.]+}} kept_seconds={{[0-9.]+}}

// CHECK-LABEL: func.func @main
// A slot for each rank: zeros where none of its experts has a share in the token.
// CHECK-DAG: %[[W1:.*]] = comm.weight "w1" {{.*}}domain = @ep>]} : tensor<2x64x32xf32>
// CHECK-DAG: %[[W2:.*]] = comm.weight "w2" {{.*}}domain = @ep>]} : tensor<2x32x64xf32>
// CHECK-DAG: comm.weight "gate" from "m.weights" : tensor<64x4xf32>
// CHECK: %[[SENT:.*]] = onnx.node "Where"({{.*}}tensor<2x1x4x64xf32>
// CHECK: %[[GOT:.*]] = comm.all_to_all @ep split(0) concat(1) ins(%[[SENT]] : tensor<2x1x4x64xf32>) {{.*}} -> tensor<1x2x4x64xf32>
// The product reads one tensor for all experts of the rank.
// CHECK: %[[ROWS:.*]] = onnx.node "Reshape"(%{{.*}}tensor<1x8x64xf32>
// CHECK: onnx.node "MatMul"(%[[ROWS]], %[[W1]]) {{.*}} (tensor<1x8x64xf32>, tensor<2x64x32xf32>) -> tensor<2x8x32xf32>
// CHECK: %[[Y:.*]] = onnx.node "MatMul"(%{{.*}}, %[[W2]])
// CHECK: %[[OWN:.*]] = onnx.node "ReduceSum"{{.*}}tensor<1x8x64xf32>
// CHECK: comm.all_to_all @ep split(1) concat(0) ins(%{{.*}} : tensor<1x2x4x64xf32>) {{.*}} -> tensor<2x1x4x64xf32>
// CHECK: onnx.node "ReduceSum"{{.*}} -> tensor<1x4x64xf32>
// CHECK-NOT: comm.all_reduce

// REDUCE-LABEL: func.func @main
// REDUCE-NOT: comm.all_to_all
// REDUCE: comm.{{all_reduce|reduce_scatter}} @ep
// REDUCE-NOT: comm.all_to_all
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<8x64xf32>) -> tensor<8x64xf32> {
    %gate = comm.weight "gate" from "m.weights" : tensor<64x4xf32>
    %w1 = comm.weight "w1" from "m.weights" : tensor<4x64x32xf32>
    %w2 = comm.weight "w2" from "m.weights" : tensor<4x32x64xf32>
    %many = arith.constant dense<[1, 8, 64]> : tensor<3xi64>
    %thin = arith.constant dense<[4, 8, 1]> : tensor<3xi64>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "MatMul"(%x, %gate) {} opset(17) : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
    %1 = onnx.node "Softmax"(%0) {axis = -1 : i64} opset(17) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    %2 = onnx.node "Transpose"(%1) {perm = array<i64: 1, 0>} opset(17) : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %3 = onnx.node "Reshape"(%2, %thin) {} opset(17) : (tensor<4x8xf32>, tensor<3xi64>) -> tensor<4x8x1xf32>
    %4 = onnx.node "Reshape"(%x, %many) {} opset(17) : (tensor<8x64xf32>, tensor<3xi64>) -> tensor<1x8x64xf32>
    %5 = onnx.node "MatMul"(%4, %w1) {} opset(17) : (tensor<1x8x64xf32>, tensor<4x64x32xf32>) -> tensor<4x8x32xf32>
    %6 = onnx.node "Relu"(%5) {} opset(17) : (tensor<4x8x32xf32>) -> tensor<4x8x32xf32>
    %7 = onnx.node "MatMul"(%6, %w2) {} opset(17) : (tensor<4x8x32xf32>, tensor<4x32x64xf32>) -> tensor<4x8x64xf32>
    %8 = onnx.node "Mul"(%7, %3) {} opset(17) : (tensor<4x8x64xf32>, tensor<4x8x1xf32>) -> tensor<4x8x64xf32>
    %9 = onnx.node "ReduceSum"(%8, %zero) {keepdims = 0 : i64} opset(17) : (tensor<4x8x64xf32>, tensor<1xi64>) -> tensor<8x64xf32>
    return %9 : tensor<8x64xf32>
  }
}

// -----

// As torch writes it: copies of the tokens for a batched product, gate and up in one
// parameter, a bias for each expert, rows seen as batch and sequence behind them.
// CHECK-LABEL: func.func @copies
// CHECK: %[[GOT:.*]] = comm.all_to_all @ep split(0) concat(1) ins(%{{.*}} : tensor<2x1x4x64xf32>)
// CHECK: %[[ROWS:.*]] = onnx.node "Reshape"(%{{.*}}tensor<1x8x64xf32>
// CHECK: onnx.node "MatMul"(%[[ROWS]], %{{.*}} (tensor<1x8x64xf32>, tensor<1x64x32xf32>) -> tensor<1x8x32xf32>
// CHECK: onnx.node "Add"{{.*}} (tensor<1x8x32xf32>, tensor<1x1x32xf32>)
// CHECK: comm.all_to_all @ep split(1) concat(0)
// CHECK: onnx.node "ReduceSum"{{.*}} -> tensor<1x4x64xf32>
// CHECK-NOT: comm.all_reduce
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @copies(%x: tensor<8x64xf32>, %share: tensor<2x2x4xf32>) -> tensor<2x4x64xf32> {
    %w1 = comm.weight "w1" from "m.weights" : tensor<2x64x32xf32>
    %b1 = comm.weight "b1" from "m.weights" : tensor<2x1x32xf32>
    %w2 = comm.weight "w2" from "m.weights" : tensor<2x16x64xf32>
    %times = arith.constant dense<[2, 1]> : tensor<2xi64>
    %many = arith.constant dense<[2, 8, 64]> : tensor<3xi64>
    %deep = arith.constant dense<[2, 2, 4, 64]> : tensor<4xi64>
    %thin = arith.constant dense<[2, 2, 4, 1]> : tensor<4xi64>
    %halves = arith.constant dense<[16, 16]> : tensor<2xi64>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "Tile"(%x, %times) {} opset(17) : (tensor<8x64xf32>, tensor<2xi64>) -> tensor<16x64xf32>
    %1 = onnx.node "Reshape"(%0, %many) {} opset(17) : (tensor<16x64xf32>, tensor<3xi64>) -> tensor<2x8x64xf32>
    %2 = onnx.node "MatMul"(%1, %w1) {} opset(17) : (tensor<2x8x64xf32>, tensor<2x64x32xf32>) -> tensor<2x8x32xf32>
    %3 = onnx.node "Add"(%2, %b1) {} opset(17) : (tensor<2x8x32xf32>, tensor<2x1x32xf32>) -> tensor<2x8x32xf32>
    %4:2 = onnx.node "Split"(%3, %halves) {axis = 2 : i64} opset(17) : (tensor<2x8x32xf32>, tensor<2xi64>) -> (tensor<2x8x16xf32>, tensor<2x8x16xf32>)
    %5 = onnx.node "Sigmoid"(%4#0) {} opset(17) : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
    %6 = onnx.node "Mul"(%5, %4#1) {} opset(17) : (tensor<2x8x16xf32>, tensor<2x8x16xf32>) -> tensor<2x8x16xf32>
    %7 = onnx.node "MatMul"(%6, %w2) {} opset(17) : (tensor<2x8x16xf32>, tensor<2x16x64xf32>) -> tensor<2x8x64xf32>
    %8 = onnx.node "Reshape"(%7, %deep) {} opset(17) : (tensor<2x8x64xf32>, tensor<4xi64>) -> tensor<2x2x4x64xf32>
    %9 = onnx.node "Reshape"(%share, %thin) {} opset(17) : (tensor<2x2x4xf32>, tensor<4xi64>) -> tensor<2x2x4x1xf32>
    %10 = onnx.node "Mul"(%9, %8) {} opset(17) : (tensor<2x2x4x1xf32>, tensor<2x2x4x64xf32>) -> tensor<2x2x4x64xf32>
    %11 = onnx.node "ReduceSum"(%10, %zero) {keepdims = 0 : i64} opset(17) : (tensor<2x2x4x64xf32>, tensor<1xi64>) -> tensor<2x4x64xf32>
    return %11 : tensor<2x4x64xf32>
  }
}

// -----

// The product is an Einsum as exporters write it; its tokens get the experts' label.
// CHECK-LABEL: func.func @einsum
// CHECK: comm.all_to_all @ep split(0) concat(1) {{.*}} -> tensor<1x2x4x64xf32>
// CHECK: onnx.node "Einsum"({{.*}}) {equation = "etd,edf->etf"} {{.*}} -> tensor<2x8x32xf32>
// CHECK: comm.all_to_all @ep split(1) concat(0) {{.*}} -> tensor<2x1x4x64xf32>
// REDUCE-LABEL: func.func @einsum
// REDUCE: equation = "td, edf -> etf"
module attributes {comm.mesh = [["ep", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @einsum(%x: tensor<8x64xf32>, %share: tensor<4x8x1xf32>) -> tensor<8x64xf32> {
    %w1 = comm.weight "w1" from "m.weights" : tensor<4x64x32xf32>
    %w2 = comm.weight "w2" from "m.weights" : tensor<4x32x64xf32>
    %zero = arith.constant dense<0> : tensor<1xi64>
    %0 = onnx.node "Einsum"(%x, %w1) {equation = "td, edf -> etf"} opset(17) : (tensor<8x64xf32>, tensor<4x64x32xf32>) -> tensor<4x8x32xf32>
    %1 = onnx.node "Relu"(%0) {} opset(17) : (tensor<4x8x32xf32>) -> tensor<4x8x32xf32>
    %2 = onnx.node "Einsum"(%1, %w2) {equation = "etf,efd->etd"} opset(17) : (tensor<4x8x32xf32>, tensor<4x32x64xf32>) -> tensor<4x8x64xf32>
    %3 = onnx.node "Mul"(%2, %share) {} opset(17) : (tensor<4x8x64xf32>, tensor<4x8x1xf32>) -> tensor<4x8x64xf32>
    %4 = onnx.node "ReduceSum"(%3, %zero) {keepdims = 0 : i64} opset(17) : (tensor<4x8x64xf32>, tensor<1xi64>) -> tensor<8x64xf32>
    return %4 : tensor<8x64xf32>
  }
}

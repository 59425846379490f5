// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pipeline stages: one program per stage, sends that are started, receives that are
// waited for; with micro-batches, one stage computes the first while the other
// computes the second. A cheap value of the inputs is computed on both sides.
//
// RUN: comm-opt %s --comm-partition | FileCheck %s
// RUN: comm-opt %s --micro-batches=2 --comm-partition | FileCheck %s --check-prefix=MICRO
// RUN: comm-opt %s --comm-pipeline=to=ordered | FileCheck %s --check-prefix=ORDER
// RUN: comm-opt %s --micro-batches=2 --comm-pipeline | FileCheck %s --check-prefix=PLAN

// CHECK: comm.domain @pp groups({{\[}}[0, 1]])
// CHECK: comm.program @stage0 entry(@main_stage0) ranks([0])
// CHECK: func.func @main_stage0(%[[X:.*]]: tensor<4x8xf32> {comm.name = "x", comm.position = 0 : i64}) {
// CHECK-NOT: "Sqrt"
// CHECK: %[[H:.*]] = onnx.node "MatMul"
// CHECK: %[[F:.*]] = comm.start send @pp ins(%[[H]] : tensor<4x512xf32>) {peer = 1 : i64}
// CHECK: comm.wait %[[F]] ins(%[[H]] : tensor<4x512xf32>)
// CHECK-NEXT: return
// CHECK: comm.program @stage1 entry(@main_stage1) ranks([1])
// CHECK: func.func @main_stage1(%{{.*}}: tensor<8xf32> {comm.name = "scale", comm.position = 1 : i64}) -> (tensor<4x8xf32> {comm.name = "y", comm.position = 0 : i64}) {
// CHECK-DAG: %[[R:.*]] = comm.recv @pp from(0) outs(%{{.*}} : tensor<4x512xf32>) -> tensor<4x512xf32>
// CHECK-DAG: "Sqrt"
// CHECK-DAG: onnx.node "MatMul"(%[[R]]
// CHECK: return

// MICRO: func.func @main_stage0(%[[X:.*]]: tensor<4x8xf32>
// MICRO: %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0] [2, 8] [1, 1]
// MICRO: %[[H0:.*]] = onnx.node "MatMul"(%[[X0]]
// MICRO: comm.start send @pp ins(%[[H0]] : tensor<2x512xf32>)
// MICRO: %[[X1:.*]] = tensor.extract_slice %[[X]][2, 0] [2, 8] [1, 1]
// MICRO: onnx.node "MatMul"(%[[X1]]
// MICRO: comm.start send @pp
// MICRO: func.func @main_stage1(
// MICRO: comm.recv @pp from(0)
// MICRO: onnx.node "MatMul"
// MICRO: comm.recv @pp from(0)
// MICRO: onnx.node "MatMul"
// MICRO: tensor.insert_slice {{.*}}[0, 0] [2, 8]
// MICRO: tensor.insert_slice {{.*}}[2, 0] [2, 8]

// The graph of ranks and directions is a forest: no order is needed.
// ORDER: comm.order @main_stage0 [0]
// ORDER: comm.order @main_stage1 [0]
// ORDER: comm.certificate version(1) by("forest") {{.*}}assumes(["gate=check"

// PLAN: comm.arena @main_stage0
// PLAN: comm.arena @main_stage1
module attributes {comm.mesh = [["pp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<4x8xf32> {comm.name = "x"}, %scale: tensor<8xf32> {comm.name = "scale"}) -> (tensor<4x8xf32> {comm.name = "y"}) {
    %root = onnx.node "Sqrt"(%scale) {} opset(17) : (tensor<8xf32>) -> tensor<8xf32>
    %w1 = comm.weight "w1" from "m.weights" : tensor<8x512xf32>
    %w2 = comm.weight "w2" from "m.weights" : tensor<512x8xf32>
    %0 = onnx.node "MatMul"(%x, %w1) {} opset(17) : (tensor<4x8xf32>, tensor<8x512xf32>) -> tensor<4x512xf32>
    %1 = onnx.node "MatMul"(%0, %w2) {} opset(17) : (tensor<4x512xf32>, tensor<512x8xf32>) -> tensor<4x8xf32>
    %2 = onnx.node "Mul"(%1, %root) {} opset(17) : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
}

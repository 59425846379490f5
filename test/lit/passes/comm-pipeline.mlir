// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each phase can be stopped after, and taken up again from what was printed there;
// phases that a module is past are skipped.
//
// RUN: comm-opt %s --comm-pipeline=to=partitioned | FileCheck %s --check-prefix=PARTITIONED
// RUN: comm-opt %s --comm-pipeline=to=decomposed | FileCheck %s --check-prefix=DECOMPOSED
// RUN: comm-opt %s --comm-pipeline=to=ordered | FileCheck %s --check-prefix=ORDERED
// RUN: comm-opt %s --comm-pipeline=to=planned | FileCheck %s --check-prefix=PLANNED
// RUN: comm-opt %s --comm-pipeline | FileCheck %s --check-prefix=PLANNED
// RUN: comm-opt %s --comm-pipeline=to=lowered | FileCheck %s --check-prefix=LOWERED
// RUN: comm-opt %s --comm-pipeline=to=partitioned | comm-opt --comm-pipeline=to=decomposed | comm-opt --comm-pipeline=to=ordered | comm-opt --comm-pipeline | FileCheck %s --check-prefix=PLANNED
// RUN: comm-opt %s --comm-pipeline | comm-opt --comm-pipeline=to=partitioned | FileCheck %s --check-prefix=PLANNED
// RUN: comm-opt %s --comm-pipeline="to=decomposed recognize=false" | FileCheck %s --check-prefix=PLAIN
// RUN: comm-opt %s --comm-pipeline="to=decomposed recognize=false fuse-elementwise=false" | FileCheck %s --check-prefix=UNFUSED
// RUN: not comm-opt %s --comm-pipeline=to=moon 2>&1 | FileCheck %s --check-prefix=BAD

// PARTITIONED: comm.phase = "partitioned"
// PARTITIONED: comm.domain @tp
// PARTITIONED: onnx.node "MatMul"
// PARTITIONED: comm.all_reduce @tp sum ins(%{{.*}}) outs(%{{.*}} : tensor<4x8xf32>) -> tensor<4x8xf32>

// DECOMPOSED: comm.phase = "decomposed"
// DECOMPOSED-NOT: onnx.node
// DECOMPOSED: comm.kernel "gemm act=relu bias=row {{.*}}packed=1"
// DECOMPOSED: comm.all_reduce
// DECOMPOSED-NOT: comm.order

// ORDERED: comm.phase = "ordered"
// ORDERED: comm.all_reduce {{.*}}site = 0
// ORDERED: comm.order @main [0]
// ORDERED: comm.certificate version(1)
// ORDERED-NOT: comm.arena

// PLANNED: comm.phase = "planned"
// PLANNED: func.func @main(%{{.*}}: memref<{{[0-9]+}}xi8> {comm.arena}, %{{.*}}: memref<4x8xf32> {comm.input = 0 : i64}, %{{.*}}: memref<4x8xf32> {comm.output = 0 : i64})
// PLANNED-NOT: memref.alloc
// PLANNED: comm.all_reduce @tp sum ins(%{{.*}} : memref<4x8xf32>)
// PLANNED: comm.arena @main
// PLANNED: comm.order @main [0]
// PLANNED: comm.certificate

// LOWERED: comm.phase = "lowered"
// LOWERED: llvm.call @concord_issue
// LOWERED-NOT: func.func

// Without recognition the bias and the activation stay outside the product, in one
// loop, or, without fusion, in two.
// PLAIN: comm.kernel "gemm
// PLAIN-NOT: act=relu
// PLAIN: linalg.generic
// PLAIN: arith.addf
// PLAIN-NEXT: arith.{{maximumf|cmpf}}
// UNFUSED: linalg.generic
// UNFUSED: arith.addf
// UNFUSED-NEXT: linalg.yield
// UNFUSED: linalg.generic
// UNFUSED: arith.{{maximumf|cmpf}}

// BAD: comm-pipeline: to=moon is none of partitioned, decomposed, ordered, planned, lowered
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

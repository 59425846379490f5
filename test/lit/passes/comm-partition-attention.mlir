// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lookup, projections, reshape into heads and back: the table is split by columns,
// the heads over the ranks, and no reshape communicates.
//
// RUN: comm-opt %s --comm-partition=replicate-outputs | FileCheck %s

// CHECK: func.func @heads(%{{.*}}: tensor<1x128xi64>) -> tensor<1x128x64xf32>
// CHECK: comm.weight "embedding" {{.*}}dim = 1{{.*}} : tensor<512x32xf32>
// CHECK: comm.weight "wq" {{.*}}dim = 1{{.*}} : tensor<64x32xf32>
// CHECK: comm.weight "wk" {{.*}}dim = 1{{.*}} : tensor<64x32xf32>
// CHECK: comm.weight "wo" {{.*}}dim = 0{{.*}} : tensor<32x64xf32>
// CHECK: onnx.node "Gather"{{.*}} -> tensor<1x128x32xf32>
// CHECK: comm.all_gather @tp dim(2)
// CHECK: onnx.node "Reshape"{{.*}} -> tensor<1x128x2x16xf32>
// CHECK-NOT: comm.all
// CHECK: onnx.node "Softmax"{{.*}} -> tensor<1x2x128x128xf32>
// CHECK: onnx.node "Reshape"{{.*}} -> tensor<1x128x32xf32>
// CHECK: onnx.node "MatMul"{{.*}} -> tensor<1x128x64xf32>
// CHECK: %[[R:.*]] = comm.all_reduce @tp sum ins(%{{.*}} : tensor<1x128x64xf32>)
// CHECK: return %[[R]]
module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @heads(%ids: tensor<1x128xi64>) -> tensor<1x128x64xf32> {
    %e = comm.weight "embedding" from "m.weights" : tensor<512x64xf32>
    %wq = comm.weight "wq" from "m.weights" : tensor<64x64xf32>
    %wk = comm.weight "wk" from "m.weights" : tensor<64x64xf32>
    %wo = comm.weight "wo" from "m.weights" : tensor<64x64xf32>
    %split = arith.constant dense<[1, 128, 4, 16]> : tensor<4xi64>
    %merge = arith.constant dense<[1, 128, 64]> : tensor<3xi64>
    %x = onnx.node "Gather"(%e, %ids) {axis = 0 : i64} opset(17) : (tensor<512x64xf32>, tensor<1x128xi64>) -> tensor<1x128x64xf32>
    %q0 = onnx.node "MatMul"(%x, %wq) {} opset(17) : (tensor<1x128x64xf32>, tensor<64x64xf32>) -> tensor<1x128x64xf32>
    %q1 = onnx.node "Reshape"(%q0, %split) {} opset(17) : (tensor<1x128x64xf32>, tensor<4xi64>) -> tensor<1x128x4x16xf32>
    %q2 = onnx.node "Transpose"(%q1) {perm = array<i64: 0, 2, 1, 3>} opset(17) : (tensor<1x128x4x16xf32>) -> tensor<1x4x128x16xf32>
    %k0 = onnx.node "MatMul"(%x, %wk) {} opset(17) : (tensor<1x128x64xf32>, tensor<64x64xf32>) -> tensor<1x128x64xf32>
    %k1 = onnx.node "Reshape"(%k0, %split) {} opset(17) : (tensor<1x128x64xf32>, tensor<4xi64>) -> tensor<1x128x4x16xf32>
    %k2 = onnx.node "Transpose"(%k1) {perm = array<i64: 0, 2, 3, 1>} opset(17) : (tensor<1x128x4x16xf32>) -> tensor<1x4x16x128xf32>
    %s0 = onnx.node "MatMul"(%q2, %k2) {} opset(17) : (tensor<1x4x128x16xf32>, tensor<1x4x16x128xf32>) -> tensor<1x4x128x128xf32>
    %s1 = onnx.node "Softmax"(%s0) {axis = -1 : i64} opset(17) : (tensor<1x4x128x128xf32>) -> tensor<1x4x128x128xf32>
    %a0 = onnx.node "MatMul"(%s1, %q2) {} opset(17) : (tensor<1x4x128x128xf32>, tensor<1x4x128x16xf32>) -> tensor<1x4x128x16xf32>
    %a1 = onnx.node "Transpose"(%a0) {perm = array<i64: 0, 2, 1, 3>} opset(17) : (tensor<1x4x128x16xf32>) -> tensor<1x128x4x16xf32>
    %a2 = onnx.node "Reshape"(%a1, %merge) {} opset(17) : (tensor<1x128x4x16xf32>, tensor<3xi64>) -> tensor<1x128x64xf32>
    %o = onnx.node "MatMul"(%a2, %wo) {} opset(17) : (tensor<1x128x64xf32>, tensor<64x64xf32>) -> tensor<1x128x64xf32>
    return %o : tensor<1x128x64xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.kernel: tensors and buffers, absent pointers, workspace.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

// CHECK-LABEL: func.func @tensor
// CHECK: comm.kernel "softmax cols=8 dtype=f32 rows=4" ins(%{{.*}} : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @tensor(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = comm.kernel "softmax cols=8 dtype=f32 rows=4" ins(%x : tensor<4x8xf32>)
         outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @workspace
// CHECK: comm.kernel "k" ins(%{{.*}}, %{{.*}} : memref<4xf32>, memref<4xi8>) outs(%{{.*}}, %{{.*}} : memref<4xf32>, memref<64xi8>) {absent = array<i1: false, true, false, false>, workspace}
func.func @workspace(%x: memref<4xf32>, %w: memref<4xi8>, %y: memref<4xf32>, %s: memref<64xi8>) {
  comm.kernel "k" ins(%x, %w : memref<4xf32>, memref<4xi8>)
    outs(%y, %s : memref<4xf32>, memref<64xi8>)
    {absent = array<i1: false, true, false, false>, workspace}
  return
}

// CHECK-LABEL: func.func @source
// CHECK: comm.kernel "fill" outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
func.func @source(%y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.kernel "fill" outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

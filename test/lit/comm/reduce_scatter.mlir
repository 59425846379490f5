// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.reduce_scatter in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.reduce_scatter @tp sum dim(0) ins(%{{.*}} : tensor<4x8xf32>) outs(%{{.*}} : tensor<2x8xf32>) -> tensor<2x8xf32>
func.func @tensor(%x: tensor<4x8xf32>, %y: tensor<2x8xf32>) -> tensor<2x8xf32> {
  %r = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<4x8xf32>) outs(%y : tensor<2x8xf32>) -> tensor<2x8xf32>
  return %r : tensor<2x8xf32>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.reduce_scatter @tp sum dim(0) ins(%{{.*}} : tensor<?x?xf32>) outs(%{{.*}} : tensor<?x?xf32>) {site = 3 : i64} -> tensor<?x?xf32>
func.func @dynamic(%x: tensor<?x?xf32>, %y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<?x?xf32>) outs(%y : tensor<?x?xf32>) {site = 3 : i64} -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.reduce_scatter @tp sum dim(0) ins(%{{.*}} : memref<4x8xf32>) outs(%{{.*}} : memref<2x8xf32>){{$}}
func.func @buffer(%x: memref<4x8xf32>, %y: memref<2x8xf32>) {
  comm.reduce_scatter @tp sum dim(0) ins(%x : memref<4x8xf32>) outs(%y : memref<2x8xf32>)
  return
}

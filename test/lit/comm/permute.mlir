// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.permute in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.permute @tp pairs({{\[}}[0, 1], [1, 0]]) ins(%{{.*}} : tensor<4x8xf64>) outs(%{{.*}} : tensor<4x8xf64>) -> tensor<4x8xf64>
func.func @tensor(%x: tensor<4x8xf64>, %y: tensor<4x8xf64>) -> tensor<4x8xf64> {
  %r = comm.permute @tp pairs([[0, 1], [1, 0]]) ins(%x : tensor<4x8xf64>) outs(%y : tensor<4x8xf64>) -> tensor<4x8xf64>
  return %r : tensor<4x8xf64>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.permute @tp pairs({{\[}}[0, 1], [1, 0]]) ins(%{{.*}} : tensor<?x?xf64>) outs(%{{.*}} : tensor<?x?xf64>) {site = 3 : i64} -> tensor<?x?xf64>
func.func @dynamic(%x: tensor<?x?xf64>, %y: tensor<?x?xf64>) -> tensor<?x?xf64> {
  %r = comm.permute @tp pairs([[0, 1], [1, 0]]) ins(%x : tensor<?x?xf64>) outs(%y : tensor<?x?xf64>) {site = 3 : i64} -> tensor<?x?xf64>
  return %r : tensor<?x?xf64>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.permute @tp pairs({{\[}}[0, 1], [1, 0]]) ins(%{{.*}} : memref<4x8xf64>) outs(%{{.*}} : memref<4x8xf64>){{$}}
func.func @buffer(%x: memref<4x8xf64>, %y: memref<4x8xf64>) {
  comm.permute @tp pairs([[0, 1], [1, 0]]) ins(%x : memref<4x8xf64>) outs(%y : memref<4x8xf64>)
  return
}

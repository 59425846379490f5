// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.send and comm.recv on tensors and buffers.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.send @tp to(1) ins(%{{.*}} : tensor<4xf32>)
// CHECK: comm.recv @tp from(0) outs(%{{.*}} : tensor<?xf32>) -> tensor<?xf32>
func.func @tensor(%x: tensor<4xf32>, %y: tensor<?xf32>) -> tensor<?xf32> {
  comm.send @tp to(1) ins(%x : tensor<4xf32>)
  %r = comm.recv @tp from(0) outs(%y : tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.send @tp to(1) ins(%{{.*}} : memref<4xf32>) {site = 0 : i64}
// CHECK: comm.recv @tp from(0) outs(%{{.*}} : memref<4xf32>){{$}}
func.func @buffer(%x: memref<4xf32>, %y: memref<4xf32>) {
  comm.send @tp to(1) ins(%x : memref<4xf32>) {site = 0 : i64}
  comm.recv @tp from(0) outs(%y : memref<4xf32>)
  return
}

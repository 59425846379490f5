// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.broadcast in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.broadcast @tp root(1) ins(%{{.*}} : tensor<4x8xi64>) outs(%{{.*}} : tensor<4x8xi64>) -> tensor<4x8xi64>
func.func @tensor(%x: tensor<4x8xi64>, %y: tensor<4x8xi64>) -> tensor<4x8xi64> {
  %r = comm.broadcast @tp root(1) ins(%x : tensor<4x8xi64>) outs(%y : tensor<4x8xi64>) -> tensor<4x8xi64>
  return %r : tensor<4x8xi64>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.broadcast @tp root(1) ins(%{{.*}} : tensor<?x?xi64>) outs(%{{.*}} : tensor<?x?xi64>) {site = 3 : i64} -> tensor<?x?xi64>
func.func @dynamic(%x: tensor<?x?xi64>, %y: tensor<?x?xi64>) -> tensor<?x?xi64> {
  %r = comm.broadcast @tp root(1) ins(%x : tensor<?x?xi64>) outs(%y : tensor<?x?xi64>) {site = 3 : i64} -> tensor<?x?xi64>
  return %r : tensor<?x?xi64>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.broadcast @tp root(1) ins(%{{.*}} : memref<4x8xi64>) outs(%{{.*}} : memref<4x8xi64>){{$}}
func.func @buffer(%x: memref<4x8xi64>, %y: memref<4x8xi64>) {
  comm.broadcast @tp root(1) ins(%x : memref<4x8xi64>) outs(%y : memref<4x8xi64>)
  return
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.gather in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.gather @tp dim(0) root(1) ins(%{{.*}} : tensor<4x8xi1>) outs(%{{.*}} : tensor<8x8xi1>) -> tensor<8x8xi1>
func.func @tensor(%x: tensor<4x8xi1>, %y: tensor<8x8xi1>) -> tensor<8x8xi1> {
  %r = comm.gather @tp dim(0) root(1) ins(%x : tensor<4x8xi1>) outs(%y : tensor<8x8xi1>) -> tensor<8x8xi1>
  return %r : tensor<8x8xi1>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.gather @tp dim(0) root(1) ins(%{{.*}} : tensor<?x?xi1>) outs(%{{.*}} : tensor<?x?xi1>) {site = 3 : i64} -> tensor<?x?xi1>
func.func @dynamic(%x: tensor<?x?xi1>, %y: tensor<?x?xi1>) -> tensor<?x?xi1> {
  %r = comm.gather @tp dim(0) root(1) ins(%x : tensor<?x?xi1>) outs(%y : tensor<?x?xi1>) {site = 3 : i64} -> tensor<?x?xi1>
  return %r : tensor<?x?xi1>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.gather @tp dim(0) root(1) ins(%{{.*}} : memref<4x8xi1>) outs(%{{.*}} : memref<8x8xi1>){{$}}
func.func @buffer(%x: memref<4x8xi1>, %y: memref<8x8xi1>) {
  comm.gather @tp dim(0) root(1) ins(%x : memref<4x8xi1>) outs(%y : memref<8x8xi1>)
  return
}

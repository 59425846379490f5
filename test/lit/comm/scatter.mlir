// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.scatter in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.scatter @tp dim(0) root(0) ins(%{{.*}} : tensor<8x8xf16>) outs(%{{.*}} : tensor<4x8xf16>) -> tensor<4x8xf16>
func.func @tensor(%x: tensor<8x8xf16>, %y: tensor<4x8xf16>) -> tensor<4x8xf16> {
  %r = comm.scatter @tp dim(0) root(0) ins(%x : tensor<8x8xf16>) outs(%y : tensor<4x8xf16>) -> tensor<4x8xf16>
  return %r : tensor<4x8xf16>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.scatter @tp dim(0) root(0) ins(%{{.*}} : tensor<?x?xf16>) outs(%{{.*}} : tensor<?x?xf16>) {site = 3 : i64} -> tensor<?x?xf16>
func.func @dynamic(%x: tensor<?x?xf16>, %y: tensor<?x?xf16>) -> tensor<?x?xf16> {
  %r = comm.scatter @tp dim(0) root(0) ins(%x : tensor<?x?xf16>) outs(%y : tensor<?x?xf16>) {site = 3 : i64} -> tensor<?x?xf16>
  return %r : tensor<?x?xf16>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.scatter @tp dim(0) root(0) ins(%{{.*}} : memref<8x8xf16>) outs(%{{.*}} : memref<4x8xf16>){{$}}
func.func @buffer(%x: memref<8x8xf16>, %y: memref<4x8xf16>) {
  comm.scatter @tp dim(0) root(0) ins(%x : memref<8x8xf16>) outs(%y : memref<4x8xf16>)
  return
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.all_to_all with even blocks, in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @tensor
// CHECK: comm.all_to_all @tp split(0) concat(1) ins(%{{.*}} : tensor<4x8xbf16>) outs(%{{.*}} : tensor<2x16xbf16>) -> tensor<2x16xbf16>
func.func @tensor(%x: tensor<4x8xbf16>, %y: tensor<2x16xbf16>) -> tensor<2x16xbf16> {
  %r = comm.all_to_all @tp split(0) concat(1) ins(%x : tensor<4x8xbf16>) outs(%y : tensor<2x16xbf16>) -> tensor<2x16xbf16>
  return %r : tensor<2x16xbf16>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.all_to_all @tp split(0) concat(1) ins(%{{.*}} : tensor<?x?xbf16>) outs(%{{.*}} : tensor<?x?xbf16>) {site = 3 : i64} -> tensor<?x?xbf16>
func.func @dynamic(%x: tensor<?x?xbf16>, %y: tensor<?x?xbf16>) -> tensor<?x?xbf16> {
  %r = comm.all_to_all @tp split(0) concat(1) ins(%x : tensor<?x?xbf16>) outs(%y : tensor<?x?xbf16>) {site = 3 : i64} -> tensor<?x?xbf16>
  return %r : tensor<?x?xbf16>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.all_to_all @tp split(0) concat(1) ins(%{{.*}} : memref<4x8xbf16>) outs(%{{.*}} : memref<2x16xbf16>){{$}}
func.func @buffer(%x: memref<4x8xbf16>, %y: memref<2x16xbf16>) {
  comm.all_to_all @tp split(0) concat(1) ins(%x : memref<4x8xbf16>) outs(%y : memref<2x16xbf16>)
  return
}

// CHECK-LABEL: func.func @uneven
// CHECK: comm.all_to_all @tp split(0) concat(0) sizes([1, 3] to [2, 2]) ins(%{{.*}} : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @uneven(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = comm.all_to_all @tp split(0) concat(0) sizes([1, 3] to [2, 2])
         ins(%x : tensor<4x8xf32>) outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

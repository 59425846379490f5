// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.all_reduce with every reduction, in each form.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @sum
// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @sum(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = comm.all_reduce @tp sum ins(%x : tensor<4x8xf32>) outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @prod
// CHECK: comm.all_reduce @tp prod ins(%{{.*}} : tensor<4x8xf64>) outs(%{{.*}} : tensor<4x8xf64>) -> tensor<4x8xf64>
func.func @prod(%x: tensor<4x8xf64>, %y: tensor<4x8xf64>) -> tensor<4x8xf64> {
  %r = comm.all_reduce @tp prod ins(%x : tensor<4x8xf64>) outs(%y : tensor<4x8xf64>) -> tensor<4x8xf64>
  return %r : tensor<4x8xf64>
}

// CHECK-LABEL: func.func @min
// CHECK: comm.all_reduce @tp min ins(%{{.*}} : tensor<4x8xbf16>) outs(%{{.*}} : tensor<4x8xbf16>) -> tensor<4x8xbf16>
func.func @min(%x: tensor<4x8xbf16>, %y: tensor<4x8xbf16>) -> tensor<4x8xbf16> {
  %r = comm.all_reduce @tp min ins(%x : tensor<4x8xbf16>) outs(%y : tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return %r : tensor<4x8xbf16>
}

// CHECK-LABEL: func.func @max
// CHECK: comm.all_reduce @tp max ins(%{{.*}} : tensor<4x8xf16>) outs(%{{.*}} : tensor<4x8xf16>) -> tensor<4x8xf16>
func.func @max(%x: tensor<4x8xf16>, %y: tensor<4x8xf16>) -> tensor<4x8xf16> {
  %r = comm.all_reduce @tp max ins(%x : tensor<4x8xf16>) outs(%y : tensor<4x8xf16>) -> tensor<4x8xf16>
  return %r : tensor<4x8xf16>
}

// CHECK-LABEL: func.func @avg
// CHECK: comm.all_reduce @tp avg ins(%{{.*}} : tensor<4x8xf32>) outs(%{{.*}} : tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @avg(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = comm.all_reduce @tp avg ins(%x : tensor<4x8xf32>) outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// CHECK-LABEL: func.func @and
// CHECK: comm.all_reduce @tp and ins(%{{.*}} : tensor<4x8xi8>) outs(%{{.*}} : tensor<4x8xi8>) -> tensor<4x8xi8>
func.func @and(%x: tensor<4x8xi8>, %y: tensor<4x8xi8>) -> tensor<4x8xi8> {
  %r = comm.all_reduce @tp and ins(%x : tensor<4x8xi8>) outs(%y : tensor<4x8xi8>) -> tensor<4x8xi8>
  return %r : tensor<4x8xi8>
}

// CHECK-LABEL: func.func @or
// CHECK: comm.all_reduce @tp or ins(%{{.*}} : tensor<4x8xi1>) outs(%{{.*}} : tensor<4x8xi1>) -> tensor<4x8xi1>
func.func @or(%x: tensor<4x8xi1>, %y: tensor<4x8xi1>) -> tensor<4x8xi1> {
  %r = comm.all_reduce @tp or ins(%x : tensor<4x8xi1>) outs(%y : tensor<4x8xi1>) -> tensor<4x8xi1>
  return %r : tensor<4x8xi1>
}

// CHECK-LABEL: func.func @dynamic
// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<?x8xf32>) outs(%{{.*}} : tensor<4x8xf32>) {lane = 1 : i64, site = 3 : i64, slot = "optional"} -> tensor<4x8xf32>
func.func @dynamic(%x: tensor<?x8xf32>, %y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %r = comm.all_reduce @tp sum ins(%x : tensor<?x8xf32>) outs(%y : tensor<4x8xf32>)
         {lane = 1 : i64, site = 3 : i64, slot = "optional"} -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}

// A scalar, and nothing at all, can be combined too.
// CHECK-LABEL: func.func @small
// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<f32>)
// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<0x4xf32>)
func.func @small(%x: tensor<f32>, %z: tensor<0x4xf32>) -> (tensor<f32>, tensor<0x4xf32>) {
  %r = comm.all_reduce @tp sum ins(%x : tensor<f32>) outs(%x : tensor<f32>) -> tensor<f32>
  %q = comm.all_reduce @tp sum ins(%z : tensor<0x4xf32>) outs(%z : tensor<0x4xf32>) -> tensor<0x4xf32>
  return %r, %q : tensor<f32>, tensor<0x4xf32>
}

// CHECK-LABEL: func.func @buffer
// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : memref<4x8xf32>) outs(%{{.*}} : memref<4x8xf32>){{$}}
func.func @buffer(%x: memref<4x8xf32>) {
  comm.all_reduce @tp sum ins(%x : memref<4x8xf32>) outs(%x : memref<4x8xf32>)
  return
}

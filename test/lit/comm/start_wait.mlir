// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.start and comm.wait for every kind.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @all_reduce0
// CHECK: %[[F:.*]] = comm.start all_reduce @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) {reduction = 1 : i32}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
func.func @all_reduce0(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
         {reduction = 1 : i32}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @all_gather1
// CHECK: %[[F:.*]] = comm.start all_gather @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<8xf32>) {dim = 0 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<8xf32>) -> tensor<8xf32>
func.func @all_gather1(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %f = comm.start all_gather @tp ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>)
         {dim = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @reduce_scatter2
// CHECK: %[[F:.*]] = comm.start reduce_scatter @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<2xf32>) {dim = 0 : i64, reduction = 4 : i32}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<2xf32>) -> tensor<2xf32>
func.func @reduce_scatter2(%x: tensor<4xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %f = comm.start reduce_scatter @tp ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>)
         {dim = 0 : i64, reduction = 4 : i32}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}

// CHECK-LABEL: func.func @all_to_all3
// CHECK: %[[F:.*]] = comm.start all_to_all @tp ins(%{{.*}} : tensor<4x2xf32>) outs(%{{.*}} : tensor<2x4xf32>) {concat_dim = 1 : i64, split_dim = 0 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4x2xf32>) outs(%{{.*}} : tensor<2x4xf32>) -> tensor<2x4xf32>
func.func @all_to_all3(%x: tensor<4x2xf32>, %y: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %f = comm.start all_to_all @tp ins(%x : tensor<4x2xf32>) outs(%y : tensor<2x4xf32>)
         {concat_dim = 1 : i64, split_dim = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4x2xf32>) outs(%y : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %r : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @all_to_all4
// CHECK: %[[F:.*]] = comm.start all_to_all @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) {concat_dim = 0 : i64, recv_sizes = array<i64: 2, 2>, send_sizes = array<i64: 1, 3>, split_dim = 0 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
func.func @all_to_all4(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.start all_to_all @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
         {concat_dim = 0 : i64, recv_sizes = array<i64: 2, 2>, send_sizes = array<i64: 1, 3>, split_dim = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @broadcast5
// CHECK: %[[F:.*]] = comm.start broadcast @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) {root = 1 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
func.func @broadcast5(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.start broadcast @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
         {root = 1 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @reduce6
// CHECK: %[[F:.*]] = comm.start reduce @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) {reduction = 1 : i32, root = 0 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
func.func @reduce6(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.start reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
         {reduction = 1 : i32, root = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @gather7
// CHECK: %[[F:.*]] = comm.start gather @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<8xf32>) {dim = 0 : i64, root = 0 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<8xf32>) -> tensor<8xf32>
func.func @gather7(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %f = comm.start gather @tp ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>)
         {dim = 0 : i64, root = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @scatter8
// CHECK: %[[F:.*]] = comm.start scatter @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<2xf32>) {dim = 0 : i64, root = 0 : i64}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<2xf32>) -> tensor<2xf32>
func.func @scatter8(%x: tensor<4xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %f = comm.start scatter @tp ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>)
         {dim = 0 : i64, root = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}

// CHECK-LABEL: func.func @permute9
// CHECK: %[[F:.*]] = comm.start permute @tp ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) {pairs = [array<i64: 0, 1>]}
// CHECK: comm.wait %[[F]] ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<4xf32>) -> tensor<4xf32>
func.func @permute9(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %f = comm.start permute @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
         {pairs = [array<i64: 0, 1>]}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @one_sided
// CHECK: %[[S:.*]] = comm.start send @tp ins(%{{.*}} : memref<4xf32>) {peer = 1 : i64}
// CHECK: %[[R:.*]] = comm.start recv @tp outs(%{{.*}} : memref<4xf32>) {peer = 1 : i64}
// CHECK: %[[B:.*]] = comm.start barrier @tp{{$}}
// CHECK: comm.wait %[[S]] ins(%{{.*}} : memref<4xf32>)
// CHECK: comm.wait %[[R]] outs(%{{.*}} : memref<4xf32>)
// CHECK: comm.wait %[[B]]{{$}}
func.func @one_sided(%x: memref<4xf32>, %y: memref<4xf32>) {
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 1 : i64}
  %b = comm.start barrier @tp
  comm.wait %s ins(%x : memref<4xf32>)
  comm.wait %r outs(%y : memref<4xf32>)
  comm.wait %b
  return
}

// Between blocks, as after lowering to branches.
// CHECK-LABEL: func.func @branches
// CHECK: ^bb1:
// CHECK: comm.wait
func.func @branches(%x: memref<4xf32>, %y: memref<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
         {reduction = 1 : i32}
  cf.br ^bb1
^bb1:
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

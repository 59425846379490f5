// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One-shot bufferisation of synchronous communication.
//
// RUN: comm-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// Into a buffer that nobody else needs: in place, without a copy.
// CHECK-LABEL: func.func @all_reduce
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.all_reduce @tp sum ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @all_reduce(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {site = 2 : i64} -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @all_gather
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<8xf32>)
// CHECK-NEXT: comm.all_gather @tp dim(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<8xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @all_gather(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %r = comm.all_gather @tp dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) {site = 2 : i64} -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @reduce_scatter
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<2xf32>)
// CHECK-NEXT: comm.reduce_scatter @tp sum dim(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<2xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @reduce_scatter(%x: tensor<4xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %r = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) {site = 2 : i64} -> tensor<2xf32>
  return %r : tensor<2xf32>
}

// CHECK-LABEL: func.func @all_to_all
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.all_to_all @tp split(0) concat(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @all_to_all(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.all_to_all @tp split(0) concat(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {site = 2 : i64} -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @broadcast
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.broadcast @tp root(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @broadcast(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.broadcast @tp root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {site = 2 : i64} -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @reduce
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.reduce @tp sum root(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @reduce(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.reduce @tp sum root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {site = 2 : i64} -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @gather
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<8xf32>)
// CHECK-NEXT: comm.gather @tp dim(0) root(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<8xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @gather(%x: tensor<4xf32>, %y: tensor<8xf32>) -> tensor<8xf32> {
  %r = comm.gather @tp dim(0) root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) {site = 2 : i64} -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CHECK-LABEL: func.func @scatter
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<2xf32>)
// CHECK-NEXT: comm.scatter @tp dim(0) root(0) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<2xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @scatter(%x: tensor<4xf32>, %y: tensor<2xf32>) -> tensor<2xf32> {
  %r = comm.scatter @tp dim(0) root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) {site = 2 : i64} -> tensor<2xf32>
  return %r : tensor<2xf32>
}

// CHECK-LABEL: func.func @permute
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.permute @tp pairs({{\[}}[0, 1]]) ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) {site = 2 : i64}
// CHECK-NEXT: return %[[Y]]
func.func @permute(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.permute @tp pairs([[0, 1]]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {site = 2 : i64} -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @transfer
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.send @tp to(1) ins(%[[X]] : memref<4xf32>)
// CHECK-NEXT: comm.recv @tp from(1) outs(%[[Y]] : memref<4xf32>)
// CHECK-NEXT: comm.barrier @tp
// CHECK-NEXT: return %[[Y]]
func.func @transfer(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  comm.send @tp to(1) ins(%x : tensor<4xf32>)
  %r = comm.recv @tp from(1) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  comm.barrier @tp
  return %r : tensor<4xf32>
}

// One value as input and outs: the analysis cannot know that a member may overwrite
// what it still sends, and takes a second buffer.
// CHECK-LABEL: func.func @same_buffer
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>)
// CHECK-NEXT: %[[N:.*]] = memref.alloc()
// CHECK-NEXT: comm.all_reduce @tp sum ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK-NEXT: return %[[N]]
func.func @same_buffer(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// The old value of outs is used later: the collective gets a buffer of its own,
// and nothing is copied into it, because all_reduce does not read its outs.
// CHECK-LABEL: func.func @outs_needed
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK-NOT: memref.copy
// CHECK: comm.all_reduce @tp sum ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK: return %[[N]], %[[Y]]
func.func @outs_needed(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r, %y : tensor<4xf32>, tensor<4xf32>
}

// Outside the root a reduce leaves outs as they are: here the copy carries them.
// CHECK-LABEL: func.func @outs_kept
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: memref.copy %[[Y]], %[[N]]
// CHECK: comm.reduce @tp sum root(0) ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
func.func @outs_kept(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %r = comm.reduce @tp sum root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r, %y : tensor<4xf32>, tensor<4xf32>
}

// A parameter is mapped read-only: nothing writes it.
// CHECK-LABEL: func.func @weight
// CHECK: %[[W:.*]] = comm.weight "w" from "m.weights" : memref<4xf32>
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: linalg.exp {{.*}}outs(%[[N]]
// CHECK: comm.all_reduce @tp sum ins(%[[W]] : memref<4xf32>)
func.func @weight(%y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %w = comm.weight "w" from "m.weights" : tensor<4xf32>
  %s = linalg.exp ins(%w : tensor<4xf32>) outs(%w : tensor<4xf32>) -> tensor<4xf32>
  %r = comm.all_reduce @tp sum ins(%w : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}

// A kernel reads its inputs and writes its outs.
// CHECK-LABEL: func.func @kernel
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK-NEXT: comm.kernel "k" ins(%[[X]] : memref<4xf32>) outs(%[[Y]] : memref<4xf32>) {absent = array<i1: false, false>}
// CHECK-NEXT: return %[[Y]]
func.func @kernel(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = comm.kernel "k" ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
         {absent = array<i1: false, false>} -> tensor<4xf32>
  return %r : tensor<4xf32>
}

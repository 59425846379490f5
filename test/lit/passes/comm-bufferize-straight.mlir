// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Straight lines are bufferised without one-shot analysis, to the same program: what
// nothing uses later is written over in place, results are computed where they go.
//
// RUN: comm-opt %s -split-input-file --comm-bufferize | FileCheck %s

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  // In place twice, and the last one in the result's own buffer; nothing is left over.
  // CHECK-LABEL: func.func @in_place
  // CHECK-SAME: %[[X:[^:]*]]: memref<16xf32> {comm.input = 0 : i64}, %[[OUT:[^:]*]]: memref<16xf32> {comm.output = 0 : i64}
  // CHECK-NEXT: comm.all_reduce @tp sum ins(%[[X]] : memref<16xf32>) outs(%[[OUT]] : memref<16xf32>)
  // CHECK-NEXT: linalg.exp ins(%[[OUT]] : memref<16xf32>) outs(%[[OUT]] : memref<16xf32>)
  // CHECK-NEXT: return
  func.func @in_place(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e = tensor.empty() : tensor<16xf32>
    %r = comm.all_reduce @tp sum ins(%x : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %s = linalg.exp ins(%r : tensor<16xf32>) outs(%r : tensor<16xf32>) -> tensor<16xf32>
    return %s : tensor<16xf32>
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  // %r is read after the write: one-shot analysis makes the copy.
  // CHECK-LABEL: func.func @later_use
  // CHECK-SAME: %[[OUT:[^:]*]]: memref<16xf32> {comm.output = 0 : i64}
  // CHECK: comm.all_reduce {{.*}} outs(%[[OUT]] : memref<16xf32>)
  // CHECK: %[[S:.*]] = memref.alloc() : memref<16xf32>
  // CHECK: linalg.exp ins(%[[OUT]] : memref<16xf32>) outs(%[[S]] : memref<16xf32>)
  // CHECK: linalg.add ins(%[[OUT]], %[[S]] : memref<16xf32>, memref<16xf32>)
  func.func @later_use(%x: tensor<16xf32>) -> tensor<16xf32> {
    %e = tensor.empty() : tensor<16xf32>
    %r = comm.all_reduce @tp sum ins(%x : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %s = linalg.exp ins(%r : tensor<16xf32>) outs(%r : tensor<16xf32>) -> tensor<16xf32>
    %t = linalg.add ins(%r, %s : tensor<16xf32>, tensor<16xf32>) outs(%s : tensor<16xf32>) -> tensor<16xf32>
    return %t : tensor<16xf32>
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  // In flight: %a is read until the wait, so the write between gets a buffer of its
  // own.
  // CHECK-LABEL: func.func @in_flight
  // CHECK: linalg.exp ins(%{{.*}}) outs(%[[A:.*]] : memref<16xf32>)
  // CHECK: %[[F:.*]] = comm.start all_reduce @tp ins(%[[A]] : memref<16xf32>)
  // CHECK-NOT: outs(%[[A]]
  // CHECK: comm.wait %[[F]] ins(%[[A]] : memref<16xf32>)
  func.func @in_flight(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
    %e = tensor.empty() : tensor<16xf32>
    %a = linalg.exp ins(%x : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %e2 = tensor.empty() : tensor<16xf32>
    %f = comm.start all_reduce @tp ins(%a : tensor<16xf32>) outs(%e2 : tensor<16xf32>) {reduction = 1 : i32}
    %b = linalg.exp ins(%x : tensor<16xf32>) outs(%a : tensor<16xf32>) -> tensor<16xf32>
    %r = comm.wait %f ins(%a : tensor<16xf32>) outs(%e2 : tensor<16xf32>) -> tensor<16xf32>
    return %b, %r : tensor<16xf32>, tensor<16xf32>
  }
}

// -----

// Inputs and constants are not written, even where nothing uses them later.
// CHECK-LABEL: func.func @inputs
// CHECK-SAME: %[[X:[^:]*]]: memref<16xf32>
// CHECK-NOT: outs(%[[X]]
// CHECK: return
func.func @inputs(%x: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %c = arith.constant dense<1.0> : tensor<16xf32>
  %a = linalg.exp ins(%x : tensor<16xf32>) outs(%x : tensor<16xf32>) -> tensor<16xf32>
  %b = linalg.exp ins(%c : tensor<16xf32>) outs(%c : tensor<16xf32>) -> tensor<16xf32>
  return %a, %b : tensor<16xf32>, tensor<16xf32>
}

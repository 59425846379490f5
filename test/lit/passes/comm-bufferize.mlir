// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results become destination arguments; inputs are never written; what a collective
// or kernel takes is dense.
//
// RUN: comm-opt %s -split-input-file --comm-bufferize --canonicalize | FileCheck %s

// The last operation writes where the caller wants the result; nothing is copied.
// CHECK-LABEL: func.func @results
// CHECK-SAME: (%[[X:.*]]: memref<4xf32> {comm.input = 0 : i64}, %[[R:.*]]: memref<4xf32> {comm.output = 0 : i64}, %[[S:.*]]: memref<4xf32> {comm.output = 1 : i64})
// CHECK-NOT: memref.copy
// CHECK: comm.kernel "k" ins(%[[X]] : memref<4xf32>) outs(%[[R]] : memref<4xf32>)
// CHECK: comm.kernel "l" ins(%[[X]] : memref<4xf32>) outs(%[[S]] : memref<4xf32>)
// CHECK-NOT: memref.copy
// CHECK: return
func.func @results(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %0 = comm.kernel "k" ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %1 = comm.kernel "l" ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @input
// CHECK-SAME: (%[[X:.*]]: memref<4xf32> {comm.input = 0 : i64}, %[[R:.*]]: memref<4xf32> {comm.output = 0 : i64})
// CHECK: linalg.exp ins(%[[X]] : memref<4xf32>) outs(%[[B:.*]] :
// CHECK-NOT: outs(%[[X]]
// CHECK: return
func.func @input(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

comm.domain @tp groups([[0, 1]])
// A strided input is copied before; a strided output is copied back.
// CHECK-LABEL: func.func @strided
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4x8xf32>
// CHECK-DAG: %[[V:.*]] = memref.subview %[[X]][0, 0] [4, 4] [1, 1]
// CHECK: memref.copy %[[V]], %[[B:.*]] : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
// CHECK: comm.all_reduce @tp sum ins(%[[B]] : memref<4x4xf32>) outs(%[[O:.*]] : memref<4x4xf32>)
func.func @strided(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %s = tensor.extract_slice %x[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %r = comm.all_reduce @tp sum ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = tensor.insert_slice %r into %x[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<4x8xf32>
  return %d : tensor<4x8xf32>
}

// -----

comm.domain @tp groups([[0, 1]])
// The same of a collective in flight: its wait has the dense buffers too, and the
// copy back is behind it.
// CHECK-LABEL: func.func @strided_in_flight
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4x8xf32>
// CHECK: %[[F:.*]] = comm.start all_reduce @tp ins(%[[B:.*]] : memref<4x4xf32>) outs(%[[O:.*]] : memref<4x4xf32>)
// CHECK-NOT: memref.copy
// CHECK: comm.wait %[[F]] ins(%[[B]] : memref<4x4xf32>) outs(%[[O]] : memref<4x4xf32>)
// CHECK: memref.copy %[[O]], %{{.*}} : memref<4x4xf32> to memref<4x4xf32, strided<[8, 1]>>
func.func @strided_in_flight(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %s = tensor.extract_slice %x[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %e = tensor.empty() : tensor<4x4xf32>
  %f = comm.start all_reduce @tp ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) {reduction = 1 : i32}
  %r = comm.wait %f ins(%s : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
  %d = tensor.insert_slice %r into %x[0, 0] [4, 4] [1, 1] : tensor<4x4xf32> into tensor<4x8xf32>
  return %d : tensor<4x8xf32>
}

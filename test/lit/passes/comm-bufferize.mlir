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

// -----

comm.domain @tp groups([[0, 1]])
// Parts of a bucket are written where it lies: at places that were given, and by
// whoever would have allocated. What has another user is copied in, so that it can
// be written over while the bucket is in flight.
// CHECK-LABEL: func.func @bucket
// CHECK-SAME: (%[[X:.*]]: memref<4xf32> {comm.input = 0 : i64}, %[[OUT:[^:]*]]: memref<12xf32>
// CHECK: %[[B:.*]] = memref.alloc() : memref<12xf32>
// CHECK-DAG: %[[P0:.*]] = memref.subview %[[B]][0] [4] [1]
// CHECK-DAG: %[[P1:.*]] = memref.subview %[[B]][4] [4] [1]
// CHECK-DAG: %[[P2:.*]] = memref.subview %[[B]][8] [4] [1]
// CHECK: linalg.exp ins(%[[X]] : memref<4xf32>) outs(%[[P0]]
// CHECK: linalg.log ins(%[[X]] : memref<4xf32>) outs(%[[P1]]
// CHECK: linalg.abs ins(%[[X]] : memref<4xf32>) outs(%[[T:.*]] : memref<4xf32>)
// CHECK-NOT: memref.copy
// CHECK: memref.copy %[[T]], %[[P2]]
// CHECK-NOT: memref.copy
// CHECK: comm.start all_reduce @tp ins(%[[B]] : memref<12xf32>)
// CHECK: linalg.floor ins(%[[T]] : memref<4xf32>) outs(%[[T]] : memref<4xf32>)
// CHECK: comm.wait
func.func @bucket(%x: tensor<4xf32>) -> (tensor<12xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %b = tensor.empty() : tensor<12xf32>
  %r = tensor.empty() : tensor<12xf32>
  %place = tensor.extract_slice %b[0] [4] [1] : tensor<12xf32> to tensor<4xf32>
  %0 = linalg.exp ins(%x : tensor<4xf32>) outs(%place : tensor<4xf32>) -> tensor<4xf32>
  %1 = linalg.log ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %2 = linalg.abs ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %i0 = tensor.insert_slice %0 into %b[0] [4] [1] : tensor<4xf32> into tensor<12xf32>
  %i1 = tensor.insert_slice %1 into %i0[4] [4] [1] : tensor<4xf32> into tensor<12xf32>
  %i2 = tensor.insert_slice %2 into %i1[8] [4] [1] : tensor<4xf32> into tensor<12xf32>
  %f = comm.start all_reduce @tp ins(%i2 : tensor<12xf32>) outs(%r : tensor<12xf32>) {reduction = 1 : i32}
  %3 = linalg.floor ins(%2 : tensor<4xf32>) outs(%2 : tensor<4xf32>) -> tensor<4xf32>
  %4 = linalg.ceil ins(%3 : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %w = comm.wait %f ins(%i2 : tensor<12xf32>) outs(%r : tensor<12xf32>) -> tensor<12xf32>
  return %w, %4 : tensor<12xf32>, tensor<4xf32>
}

// -----

// Parts that overlap are written in their order.
// CHECK-LABEL: func.func @overlapping
// CHECK: memref.copy
// CHECK: memref.copy
func.func @overlapping(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<6xf32> {
  %b = tensor.empty() : tensor<6xf32>
  %i0 = tensor.insert_slice %x into %b[0] [4] [1] : tensor<4xf32> into tensor<6xf32>
  %i1 = tensor.insert_slice %y into %i0[2] [4] [1] : tensor<4xf32> into tensor<6xf32>
  return %i1 : tensor<6xf32>
}

// -----

// A value that another one is computed from is not computed where that one's result
// belongs, when it is read afterwards.
// CHECK-LABEL: func.func @read_later
// CHECK-SAME: %[[P:[^:]*]]: memref<2xf32>
// CHECK-SAME: %[[Y0:[^:]*]]: memref<3xf32> {comm.output = 0 : i64}
// CHECK-SAME: %[[Y1:[^:]*]]: memref<3xf32> {comm.output = 1 : i64}
// CHECK: comm.broadcast @tp root(1) ins(%{{.*}}) outs(%[[B:.*]] : memref<3xf32>)
// CHECK: memref.copy %[[P]]
// CHECK: memref.copy %{{.*}}, %[[Y0]]
// CHECK: memref.copy %[[B]], %[[Y1]]
comm.domain @tp groups([[0, 1]])
func.func @read_later(%p: tensor<2xf32>, %x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
  %e = tensor.empty() : tensor<3xf32>
  %b = comm.broadcast @tp root(1) ins(%x : tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  %i = tensor.insert_slice %p into %b[1] [2] [1] : tensor<2xf32> into tensor<3xf32>
  return %i, %b : tensor<3xf32>, tensor<3xf32>
}

// -----

// A slice that a loop begins with is made dense: the loop hands on buffers.
// CHECK-LABEL: func.func @carried
// CHECK: memref.subview
// CHECK: %[[INIT:.*]] = memref.alloc() : memref<3xf32>
// CHECK: memref.copy %{{.*}}, %[[INIT]]
// CHECK: scf.for {{.*}} iter_args(%{{.*}} = %[[INIT]]) -> (memref<3xf32>)
comm.domain @tp groups([[0, 1]])
func.func @carried(%x: tensor<6xf32>, %n: index) -> tensor<3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = comm.rank @tp
  %at = arith.muli %r, %c3 : index
  %s = tensor.extract_slice %x[%at] [3] [1] : tensor<6xf32> to tensor<3xf32>
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%t = %s) -> (tensor<3xf32>) {
    %e = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp max ins(%t : tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
    scf.yield %a : tensor<3xf32>
  }
  return %y : tensor<3xf32>
}

// -----

// The loop inside begins with what the one around it carries: dense, both.
// CHECK-LABEL: func.func @nested
// CHECK: scf.for {{.*}} -> (memref<8xi32>)
// CHECK-NEXT: scf.for {{.*}} -> (memref<8xi32>)
// CHECK-NOT: strided
// CHECK: return
comm.domain @tp groups([[0, 1]])
func.func @nested(%x: tensor<8xi32>, %n: index) -> tensor<8xi32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%t = %x) -> (tensor<8xi32>) {
    %z = scf.for %j = %c0 to %n step %c1 iter_args(%u = %t) -> (tensor<8xi32>) {
      %e = tensor.empty() : tensor<8xi32>
      %f = comm.all_reduce @tp max ins(%u : tensor<8xi32>) outs(%e : tensor<8xi32>) -> tensor<8xi32>
      scf.yield %f : tensor<8xi32>
    }
    scf.yield %z : tensor<8xi32>
  }
  return %y : tensor<8xi32>
}

// -----

// Read where it was written, after a branch handed it on to what is written over it.
// CHECK-LABEL: func.func @through_branch
// CHECK-SAME: %[[Y0:[^:]*]]: memref<6xi32> {comm.output = 0 : i64}
// CHECK-SAME: %[[Y1:[^:]*]]: memref<6xi32> {comm.output = 1 : i64}
// CHECK: linalg.add {{.*}} outs(%[[SUM:[^ ]*]] : memref<6xi32>)
// CHECK: memref.copy %{{.*}}, %[[Y0]]
// CHECK: memref.copy %[[SUM]], %[[Y1]]
func.func @through_branch(%p: tensor<5xi32>, %x: tensor<6xi32>, %c: i1) -> (tensor<6xi32>, tensor<6xi32>) {
  %e = tensor.empty() : tensor<6xi32>
  %s = linalg.add ins(%x, %x : tensor<6xi32>, tensor<6xi32>) outs(%e : tensor<6xi32>) -> tensor<6xi32>
  %b = scf.if %c -> (tensor<6xi32>) {
    scf.yield %s : tensor<6xi32>
  } else {
    scf.yield %x : tensor<6xi32>
  }
  %i = tensor.insert_slice %p into %b[1] [5] [1] : tensor<5xi32> into tensor<6xi32>
  return %i, %s : tensor<6xi32>, tensor<6xi32>
}

// -----

// The result is one of two values; the other result is the second of them.
// CHECK-LABEL: func.func @one_of_two
// CHECK-SAME: %[[Y0:[^:]*]]: memref<6xi32> {comm.output = 0 : i64}
// CHECK-SAME: %[[Y1:[^:]*]]: memref<6xi32> {comm.output = 1 : i64}
// CHECK: linalg.add {{.*}} outs(%[[SUM:[^ ]*]] :
// CHECK: memref.copy %{{.*}}, %[[Y0]]
// CHECK: memref.copy %[[SUM]], %[[Y1]]
func.func @one_of_two(%x: tensor<6xi32>, %c: i1) -> (tensor<6xi32>, tensor<6xi32>) {
  %e = tensor.empty() : tensor<6xi32>
  %s = linalg.add ins(%x, %x : tensor<6xi32>, tensor<6xi32>) outs(%e : tensor<6xi32>) -> tensor<6xi32>
  %b = scf.if %c -> (tensor<6xi32>) {
    scf.yield %x : tensor<6xi32>
  } else {
    scf.yield %s : tensor<6xi32>
  }
  return %b, %s : tensor<6xi32>, tensor<6xi32>
}

// -----

// A branch that became a selection.
// CHECK-LABEL: func.func @selected
// CHECK: scf.for {{.*}} -> (memref<3xf32>)
// CHECK-NOT: -> (memref<3xf32, strided
// CHECK: return
comm.domain @tp groups([[0, 1]])
func.func @selected(%x: tensor<6xf32>, %s: tensor<3xf32>, %n: index, %c: i1) -> tensor<3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %r = comm.rank @tp
  %at = arith.muli %r, %c3 : index
  %p = tensor.extract_slice %x[%at] [3] [1] : tensor<6xf32> to tensor<3xf32>
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%t = %s) -> (tensor<3xf32>) {
    %b = arith.select %c, %p, %t : tensor<3xf32>
    scf.yield %b : tensor<3xf32>
  }
  return %y : tensor<3xf32>
}

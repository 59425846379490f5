// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Between comm.start and comm.wait nothing may be written in place into a buffer in
// flight. The verifier of comm.wait checks the result once more.
//
// RUN: comm-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize | FileCheck %s
// RUN: comm-opt %s --comm-bufferize --canonicalize | FileCheck %s --check-prefix=OURS

comm.domain @tp groups([[0, 1], [2, 3]])

// Without a write in between there is no copy.
// CHECK-LABEL: func.func @quiet
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>)
// CHECK: %[[E:.*]] = memref.alloc()
// CHECK: %[[F:.*]] = comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
// CHECK-NEXT: comm.wait %[[F]] ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
// CHECK-NEXT: return %[[E]]
// The result is computed where the caller wants it: both see the destination.
// OURS-LABEL: func.func @quiet
// OURS-SAME: (%[[X:.*]]: memref<4xf32> {{.*}}, %[[OUT:.*]]: memref<4xf32> {{.*}})
// OURS-NEXT: %[[F:.*]] = comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[OUT]] : memref<4xf32>)
// OURS-NEXT: comm.wait %[[F]] ins(%[[X]] : memref<4xf32>) outs(%[[OUT]] : memref<4xf32>)
// OURS-NEXT: return
func.func @quiet(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// A fill of the input goes elsewhere.
// CHECK-LABEL: func.func @fill
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: linalg.fill ins(%{{.*}} : f32) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>)
func.func @fill(%x: tensor<4xf32>, %c: f32) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %n = linalg.fill ins(%c : f32) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %n : tensor<4xf32>, tensor<4xf32>
}

// So does a slice that is inserted into it.
// CHECK-LABEL: func.func @insert_slice
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>, %[[S:[a-z0-9]*]]: memref<2xf32>
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: memref.copy %[[X]], %[[N]]
// CHECK: %[[V:.*]] = memref.subview %[[N]][1] [2] [1]
// CHECK: memref.copy %[[S]], %[[V]]
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>)
func.func @insert_slice(%x: tensor<4xf32>, %s: tensor<2xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %n = tensor.insert_slice %s into %x[1] [2] [1] : tensor<2xf32> into tensor<4xf32>
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %n : tensor<4xf32>, tensor<4xf32>
}

// A write to outs in between does not reach the buffer in flight either.
// CHECK-LABEL: func.func @fill_outs
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>, %[[E:[a-z0-9]*]]: memref<4xf32>
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: linalg.fill ins(%{{.*}} : f32) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
func.func @fill_outs(%x: tensor<4xf32>, %e: tensor<4xf32>, %c: f32) -> (tensor<4xf32>, tensor<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %n = linalg.fill ins(%c : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %n : tensor<4xf32>, tensor<4xf32>
}

// One arm of a branch writes.
// CHECK-LABEL: func.func @branch
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>)
// CHECK: scf.if
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: linalg.fill ins(%{{.*}} : f32) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>)
func.func @branch(%x: tensor<4xf32>, %c: f32, %p: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %n = scf.if %p -> tensor<4xf32> {
    %q = linalg.fill ins(%c : f32) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %q : tensor<4xf32>
  } else {
    scf.yield %x : tensor<4xf32>
  }
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %n : tensor<4xf32>, tensor<4xf32>
}

// A loop in between carries the input and writes it.
// CHECK-LABEL: func.func @loop_between
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: memref.copy %[[X]], %[[N]]
// CHECK: scf.for
// CHECK: linalg.exp ins(%[[N]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>)
func.func @loop_between(%x: tensor<4xf32>, %n: index) -> (tensor<4xf32>, tensor<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %l = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %q = linalg.exp ins(%a : tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %q : tensor<4xf32>
  }
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %l : tensor<4xf32>, tensor<4xf32>
}

// Start and wait in a loop: the carried buffer is overwritten behind the wait only.
// CHECK-LABEL: func.func @loop_carried
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>
// CHECK: scf.for
// CHECK: %[[E:.*]] = memref.alloc()
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: linalg.exp ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
// CHECK: linalg.add ins(%[[N]], %[[E]] : memref<4xf32>, memref<4xf32>) outs(%[[X]] : memref<4xf32>)
func.func @loop_carried(%x0: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %l = scf.for %i = %c0 to %n step %c1 iter_args(%x = %x0) -> tensor<4xf32> {
    %e = tensor.empty() : tensor<4xf32>
    %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
    %q = linalg.exp ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %s = linalg.add ins(%q, %r : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  return %l : tensor<4xf32>
}

// Two collectives in flight that were given one value to write to get a buffer
// each, and each start has the buffer of its wait.
// CHECK-LABEL: func.func @shared_outs
// CHECK: %[[F:.*]] = comm.start all_reduce @tp {{.*}} outs(%[[A:.*]] : memref<4xf32>)
// CHECK: %[[G:.*]] = comm.start all_reduce @tp {{.*}} outs(%[[B:.*]] : memref<4xf32>)
// CHECK: comm.wait %[[F]] {{.*}} outs(%[[A]] : memref<4xf32>)
// CHECK: comm.wait %[[G]] {{.*}} outs(%[[B]] : memref<4xf32>)
// CHECK: return %[[A]], %[[B]]
func.func @shared_outs(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %g = comm.start all_reduce @tp ins(%y : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %s = comm.wait %g ins(%y : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %s : tensor<4xf32>, tensor<4xf32>
}

// The old value of outs is used behind the wait: the collective writes elsewhere.
// CHECK-LABEL: func.func @outs_needed
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[E:.*]]: memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK-NOT: memref.copy
// CHECK: %[[F:.*]] = comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %[[F]] ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK: return %[[N]], %[[E]]
func.func @outs_needed(%x: tensor<4xf32>, %e: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %e : tensor<4xf32>, tensor<4xf32>
}

// As above, of a kind that keeps outs on some members: they are copied before the
// start.
// CHECK-LABEL: func.func @outs_kept
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[E:.*]]: memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: memref.copy %[[E]], %[[N]]
// CHECK: comm.start reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>) outs(%[[N]] : memref<4xf32>)
func.func @outs_kept(%x: tensor<4xf32>, %e: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %f = comm.start reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32, root = 0 : i64}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %e : tensor<4xf32>, tensor<4xf32>
}

// A wait in a branch.
// CHECK-LABEL: func.func @wait_in_branch
// CHECK-SAME: (%[[X:[a-z0-9]*]]: memref<4xf32>
// CHECK: comm.start all_reduce @tp ins(%[[X]] : memref<4xf32>) outs(%[[E:.*]] : memref<4xf32>)
// CHECK: %[[N:.*]] = memref.alloc()
// CHECK: linalg.fill ins(%{{.*}} : f32) outs(%[[N]] : memref<4xf32>)
// CHECK: scf.if
// CHECK: comm.wait %{{.*}} ins(%[[X]] : memref<4xf32>) outs(%[[E]] : memref<4xf32>)
func.func @wait_in_branch(%x: tensor<4xf32>, %c: f32, %p: i1) -> (tensor<4xf32>, tensor<4xf32>) {
  %e = tensor.empty() : tensor<4xf32>
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  %n = linalg.fill ins(%c : f32) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %z = scf.if %p -> tensor<4xf32> {
    %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %r : tensor<4xf32>
  } else {
    scf.yield %n : tensor<4xf32>
  }
  return %z, %n : tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: func.func @one_sided
// CHECK-SAME: (%[[X:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4xf32>)
// CHECK: %[[S:.*]] = comm.start send @tp ins(%[[X]] : memref<4xf32>)
// CHECK: %[[R:.*]] = comm.start recv @tp outs(%[[Y]] : memref<4xf32>)
// CHECK: comm.group %[[S]], %[[R]]
// CHECK: comm.wait %[[S]] ins(%[[X]] : memref<4xf32>)
// CHECK: comm.wait %[[R]] outs(%[[Y]] : memref<4xf32>)
func.func @one_sided(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %s = comm.start send @tp ins(%x : tensor<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : tensor<4xf32>) {peer = 1 : i64}
  comm.group %s, %r : !comm.future, !comm.future
  comm.wait %s ins(%x : tensor<4xf32>)
  %z = comm.wait %r outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives are moved across the iterations of loops.
//
// RUN: comm-opt %s -split-input-file --comm-overlap="growth=3" --canonicalize | FileCheck %s
// RUN: comm-opt %s -split-input-file --comm-overlap="growth=3" --comm-verify-uniform --comm-order --comm-verify-order -o /dev/null
// RUN: comm-opt %s -split-input-file --comm-overlap="memory=45000000" --canonicalize | FileCheck %s --check-prefix=MEMORY
// RUN: comm-opt %s -split-input-file --comm-overlap="pipeline=false" | FileCheck %s --check-prefix=OFF

// One gather before the loop, one ahead in each iteration but the last.
// CHECK-LABEL: func.func @ahead
// CHECK: %[[FIRST:.*]] = comm.all_gather @dp
// CHECK: scf.for %{{.*}} = %c0 to %c3 step %c1 iter_args(%{{.*}} = %{{.*}}, %[[G:.*]] = %[[FIRST]])
// CHECK: comm.start all_gather @dp
// CHECK: comm.compute "layer"(%{{.*}}, %[[G]])
// CHECK: comm.wait
// CHECK: scf.yield
// CHECK: comm.compute "layer"
// CHECK-NOT: all_gather
// The second copy of a gradient, and of what it is put into, is over the limit.
// MEMORY-LABEL: func.func @late
// MEMORY: scf.for %{{.*}} = %c0 to %c4 step
// MEMORY-LABEL: func.func @stays
// OFF-LABEL: func.func @ahead
// OFF: scf.for
// OFF: comm.all_gather
// OFF-NOT: comm.start
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @ahead(%x: tensor<1000000xf32>, %w: tensor<4x500000xf32>) -> tensor<1000000xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> tensor<1000000xf32> {
      %s = tensor.extract_slice %w[%i, 0] [1, 500000] [1, 1] : tensor<4x500000xf32> to tensor<500000xf32>
      %e = tensor.empty() : tensor<1000000xf32>
      %g = comm.all_gather @dp dim(0) ins(%s : tensor<500000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
      %n = comm.compute "layer"(%h, %g) {flops = 10000000000 : i64} : (tensor<1000000xf32>, tensor<1000000xf32>) -> tensor<1000000xf32>
      scf.yield %n : tensor<1000000xf32>
    }
    return %r : tensor<1000000xf32>
  }
}

// -----

// A gradient is reduced during the iteration after its own.
// CHECK-LABEL: func.func @late
// CHECK: comm.compute "backward"
// CHECK: scf.for
// CHECK: comm.start all_reduce @dp
// CHECK: comm.compute "backward"
// CHECK: comm.wait
// CHECK: tensor.insert_slice
// CHECK: scf.yield
// CHECK: comm.all_reduce @dp
// CHECK: tensor.insert_slice
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @late(%x: tensor<1000000xf32>, %acc: tensor<4x1000000xf32>) -> tensor<4x1000000xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %r:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x, %a = %acc) -> (tensor<1000000xf32>, tensor<4x1000000xf32>) {
      %g = comm.compute "backward"(%h) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
      %e = tensor.empty() : tensor<1000000xf32>
      %s = comm.all_reduce @dp sum ins(%g : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
      %b = tensor.insert_slice %s into %a[%i, 0] [1, 1000000] [1, 1] : tensor<1000000xf32> into tensor<4x1000000xf32>
      scf.yield %g, %b : tensor<1000000xf32>, tensor<4x1000000xf32>
    }
    return %r#1 : tensor<4x1000000xf32>
  }
}

// -----

// Used in its own iteration; a trip count that is not known.
// CHECK-LABEL: func.func @stays
// CHECK: scf.for
// CHECK: comm.all_reduce
// CHECK: comm.compute "use"
// CHECK: scf.for
// CHECK-NOT: comm.start
// CHECK: return
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @stays(%x: tensor<1000xf32>, %n: index) -> (tensor<1000xf32>, tensor<2000xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<1000xf32>
    %d = tensor.empty() : tensor<2000xf32>
    %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> tensor<1000xf32> {
      %s = comm.all_reduce @dp sum ins(%h : tensor<1000xf32>) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
      %u = comm.compute "use"(%s) {flops = 10000000000 : i64} : (tensor<1000xf32>) -> tensor<1000xf32>
      scf.yield %u : tensor<1000xf32>
    }
    %q = scf.for %i = %c0 to %n step %c1 iter_args(%h = %d) -> tensor<2000xf32> {
      %s = comm.all_gather @dp dim(0) ins(%x : tensor<1000xf32>) outs(%d : tensor<2000xf32>) -> tensor<2000xf32>
      %u = comm.compute "use"(%s) {flops = 10000000000 : i64} : (tensor<2000xf32>) -> tensor<2000xf32>
      scf.yield %u : tensor<2000xf32>
    }
    return %r, %q : tensor<1000xf32>, tensor<2000xf32>
  }
}

// -----

// A barrier holds what communicates in its iteration.
// CHECK-LABEL: func.func @held
// CHECK-NOT: all_gather
// CHECK: scf.for %{{.*}} = %c0 to %c4 step
// CHECK: comm.barrier
// CHECK: comm.all_gather
// CHECK-NOT: all_gather
// CHECK: return
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @held(%x: tensor<1000000xf32>, %w: tensor<4x500000xf32>) -> tensor<1000000xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%h = %x) -> tensor<1000000xf32> {
      comm.barrier @dp
      %s = tensor.extract_slice %w[%i, 0] [1, 500000] [1, 1] : tensor<4x500000xf32> to tensor<500000xf32>
      %e = tensor.empty() : tensor<1000000xf32>
      %g = comm.all_gather @dp dim(0) ins(%s : tensor<500000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
      %n = comm.compute "layer"(%h, %g) {flops = 10000000000 : i64} : (tensor<1000000xf32>, tensor<1000000xf32>) -> tensor<1000000xf32>
      scf.yield %n : tensor<1000000xf32>
    }
    return %r : tensor<1000000xf32>
  }
}

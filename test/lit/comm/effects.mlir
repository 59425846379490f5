// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// No pass of MLIR merges, drops, hoists or swaps communication: a collective that
// is gone on one rank only is a hang.
//
// RUN: comm-opt %s --cse --canonicalize --loop-invariant-code-motion --symbol-dce | FileCheck %s
// RUN: comm-opt %s --loop-invariant-code-motion --control-flow-sink --remove-dead-values --sccp --cse --canonicalize | FileCheck %s

comm.domain @tp groups([[0, 1]])

// Two equal all_reduces stay two, in their order with the barrier.
// CHECK-LABEL: func.func @twice
// CHECK: %[[A:.*]] = comm.all_reduce @tp sum
// CHECK-NEXT: comm.barrier @tp
// CHECK-NEXT: %[[B:.*]] = comm.all_reduce @tp sum
// CHECK-NEXT: return %[[A]], %[[B]]
func.func @twice(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  comm.barrier @tp
  %b = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// What nobody uses is still issued.
// CHECK-LABEL: func.func @unused
// CHECK: comm.all_reduce
// CHECK: comm.all_gather
// CHECK: comm.reduce_scatter
// CHECK: comm.all_to_all
// CHECK: comm.broadcast
// CHECK: comm.reduce @tp
// CHECK: comm.gather
// CHECK: comm.scatter
// CHECK: comm.permute
// CHECK: comm.send
// CHECK: comm.recv
// CHECK: comm.barrier
// CHECK: comm.start broadcast
// CHECK: comm.start send
// CHECK: comm.group
// CHECK: comm.wait
// CHECK: comm.wait
// CHECK: comm.compute "custom"
// CHECK: comm.compute "unknown"
func.func @unused(%x: tensor<4xf32>, %h: tensor<2xf32>, %d: tensor<8xf32>) {
  %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %1 = comm.all_gather @tp dim(0) ins(%x : tensor<4xf32>) outs(%d : tensor<8xf32>) -> tensor<8xf32>
  %2 = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<4xf32>) outs(%h : tensor<2xf32>) -> tensor<2xf32>
  %3 = comm.all_to_all @tp split(0) concat(0) ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %4 = comm.broadcast @tp root(0) ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %5 = comm.reduce @tp sum root(0) ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %6 = comm.gather @tp dim(0) root(0) ins(%x : tensor<4xf32>) outs(%d : tensor<8xf32>) -> tensor<8xf32>
  %7 = comm.scatter @tp dim(0) root(0) ins(%x : tensor<4xf32>) outs(%h : tensor<2xf32>) -> tensor<2xf32>
  %8 = comm.permute @tp pairs([[0, 1]]) ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  comm.send @tp to(1) ins(%x : tensor<4xf32>)
  %9 = comm.recv @tp from(1) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  comm.barrier @tp
  %f = comm.start broadcast @tp ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) {root = 0 : i64}
  %g = comm.start send @tp ins(%x : tensor<4xf32>) {peer = 1 : i64}
  comm.group %g : !comm.future
  %10 = comm.wait %f ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  comm.wait %g ins(%x : tensor<4xf32>)
  %11 = comm.compute "custom"(%x) {touches = [@tp]} : (tensor<4xf32>) -> tensor<4xf32>
  %12 = comm.compute "unknown"(%x) {touches_all} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// A collective with invariant operands stays in its loop.
// CHECK-LABEL: func.func @loop
// CHECK: scf.for
// CHECK-NEXT: comm.all_reduce
// CHECK-NEXT: comm.start
// CHECK-NEXT: comm.wait
// CHECK-NEXT: }
func.func @loop(%x: tensor<4xf32>, %y: tensor<4xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.for %i = %c0 to %n step %c1 {
    %a = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
    %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {reduction = 1 : i32}
    %b = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  }
  return
}

// It is neither sunk into the one branch that uses it, nor taken out of one.
// CHECK-LABEL: func.func @branch
// CHECK: %[[A:.*]] = comm.all_reduce
// CHECK: scf.if
// CHECK-NEXT: comm.barrier
// CHECK: else
// CHECK-NEXT: comm.barrier
func.func @branch(%p: i1, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %a = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  %r = scf.if %p -> tensor<4xf32> {
    comm.barrier @tp
    scf.yield %a : tensor<4xf32>
  } else {
    comm.barrier @tp
    scf.yield %x : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// What does not communicate is Pure, or as good as that.
// CHECK-LABEL: func.func @pure
// CHECK-NOT: comm.size
// CHECK-NOT: comm.weight
// CHECK-COUNT-1: comm.rank
// CHECK-NOT: comm.rank
// CHECK-COUNT-1: comm.kernel
// CHECK-NOT: comm.kernel
// CHECK-COUNT-1: comm.compute
// CHECK-NOT: comm.compute
// CHECK: return
func.func @pure(%x: tensor<4xf32>) -> (index, index, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %n = comm.size @tp
  %w = comm.weight "w" from "m.weights" : tensor<4xf32>
  %0 = comm.rank @tp
  %1 = comm.rank @tp
  %2 = comm.kernel "k" ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %3 = comm.kernel "k" ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %4 = comm.compute "c"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = comm.compute "c"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2, %3, %4, %5 : index, index, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers that change places from round to round, that a while loop hands on, that are
// in flight in a loop of a branch of a loop, or one of two by a condition.
//
// RUN: comm-opt %s -split-input-file --comm-plan-workspace --comm-verify-workspace | FileCheck %s

// Each round writes where the other one read: both stay where the loop has them, and
// what is handed on goes aside first.
// CHECK-LABEL: func.func @swap
// CHECK: scf.for {{.*}} iter_args(%[[U:.*]] = %[[A:.*]], %[[V:.*]] = %[[B:.*]]) -> (memref<16xf32>, memref<16xf32>) {
// CHECK: comm.all_reduce @tp sum ins(%[[U]] : memref<16xf32>) outs(%[[V]] : memref<16xf32>)
// CHECK: memref.copy %[[V]], %[[S:.*]] :
// CHECK: memref.copy %[[U]], %[[T:.*]] :
// CHECK: memref.copy %[[S]], %[[A]] :
// CHECK: memref.copy %[[T]], %[[B]] :
// CHECK: scf.yield %[[A]], %[[B]]
// CHECK: comm.arena @swap size(256) align(64) lower_bound(256)
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @swap(%x: memref<16xf32>, %n: index, %out: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %a = memref.alloc() : memref<16xf32>
    memref.copy %x, %a : memref<16xf32> to memref<16xf32>
    %b = memref.alloc() : memref<16xf32>
    memref.copy %x, %b : memref<16xf32> to memref<16xf32>
    %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%u = %a, %v = %b) -> (memref<16xf32>, memref<16xf32>) {
      comm.all_reduce @tp sum ins(%u : memref<16xf32>) outs(%v : memref<16xf32>)
      scf.yield %v, %u : memref<16xf32>, memref<16xf32>
    }
    memref.copy %r#0, %out : memref<16xf32> to memref<16xf32>
    return
  }
}

// -----

// CHECK-LABEL: func.func @handed_on
// CHECK: scf.while ({{.*}}, %{{.*}} = %[[STAYS:[a-z0-9_]+]])
// CHECK: comm.all_reduce @tp sum ins(%{{.*}}) outs(%[[NEW:.*]] : memref<16xf32>)
// CHECK: memref.copy %[[NEW]], %[[STAYS]] :
// CHECK: scf.yield %{{.*}}, %[[STAYS]]
// CHECK: comm.arena @handed_on size(128)
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @handed_on(%x: memref<16xf32>, %n: index, %out: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %a = memref.alloc() : memref<16xf32>
    memref.copy %x, %a : memref<16xf32> to memref<16xf32>
    %r:2 = scf.while (%i = %c0, %b = %a) : (index, memref<16xf32>) -> (index, memref<16xf32>) {
      %more = arith.cmpi slt, %i, %n : index
      scf.condition(%more) %i, %b : index, memref<16xf32>
    } do {
    ^bb0(%i: index, %b: memref<16xf32>):
      %t = memref.alloc() : memref<16xf32>
      comm.all_reduce @tp sum ins(%b : memref<16xf32>) outs(%t : memref<16xf32>)
      %next = arith.addi %i, %c1 : index
      scf.yield %next, %t : index, memref<16xf32>
    }
    memref.copy %r#1, %out : memref<16xf32> to memref<16xf32>
    return
  }
}

// -----

// Four at one time, because %s may be %keep and the inner loop uses %a in each round.
// CHECK-LABEL: func.func @in_flight_inside
// CHECK: comm.arena @in_flight_inside size(256) align(64) lower_bound(256) offsets([0, 64, 128, 192])
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @in_flight_inside(%x: memref<16xf32>, %p: i1, %q: i1, %out: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %keep = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%keep : memref<16xf32>)
    %s = arith.select %p, %keep, %x : memref<16xf32>
    scf.for %i = %c0 to %c4 step %c1 {
      scf.if %q {
        %a = memref.alloc() : memref<16xf32>
        comm.kernel "k" ins(%s : memref<16xf32>) outs(%a : memref<16xf32>)
        scf.for %j = %c0 to %c4 step %c1 {
          %b = memref.alloc() : memref<16xf32>
          %f = comm.start all_reduce @tp ins(%a : memref<16xf32>) outs(%b : memref<16xf32>) {reduction = 1 : i32}
          %c = memref.alloc() : memref<16xf32>
          comm.kernel "k" ins(%s : memref<16xf32>) outs(%c : memref<16xf32>)
          comm.wait %f ins(%a : memref<16xf32>) outs(%b : memref<16xf32>)
          comm.kernel "m" ins(%b, %c : memref<16xf32>, memref<16xf32>) outs(%out : memref<16xf32>)
        }
      }
    }
    return
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Nests that differ only in where their buffers lie are calls of one function;
// what communicates stays; what is told of aliasing is true.
//
// RUN: comm-opt %s -split-input-file --comm-outline | FileCheck %s

// Two layers: the same function on two pairs of buffers, which are disjoint. The
// third nest multiplies by another constant.
// CHECK-LABEL: func.func @layers
// CHECK-SAME: %[[ARENA:[^:]*]]: memref<1024xi8>
// CHECK: %[[A:.*]] = memref.view %[[ARENA]][%c0]
// CHECK: %[[B:.*]] = memref.view %[[ARENA]][%c64]
// CHECK: %[[C:.*]] = memref.view %[[ARENA]][%c128]
// CHECK: call @[[DOUBLE:[^(]*]](%[[A]], %[[B]])
// CHECK-NEXT: comm.barrier
// CHECK-NEXT: call @[[DOUBLE]](%[[B]], %[[C]])
// CHECK-NEXT: call @[[TRIPLE:[^(]*]](%[[B]], %[[C]])
// CHECK-NOT: scf.for
// CHECK: func.func private @[[DOUBLE]](%[[X:.*]]: memref<16xf32> {llvm.noalias, llvm.readonly}, %[[Y:.*]]: memref<16xf32> {llvm.noalias})
// CHECK-SAME: llvm.linkage = #llvm.linkage<internal>
// CHECK-SAME: passthrough = ["noinline"]
// CHECK-DAG: arith.constant 16 : index
// CHECK-DAG: arith.constant 2.0
// CHECK: scf.for
// CHECK: memref.load %[[X]]
// CHECK: memref.store %{{.*}}, %[[Y]]
// CHECK: func.func private @[[TRIPLE]]
// CHECK: arith.constant 3.0
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @layers(%arena: memref<1024xi8> {comm.arena}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %c128 = arith.constant 128 : index
    %two = arith.constant 2.0 : f32
    %three = arith.constant 3.0 : f32
    %a = memref.view %arena[%c0][] : memref<1024xi8> to memref<16xf32>
    %b = memref.view %arena[%c64][] : memref<1024xi8> to memref<16xf32>
    %c = memref.view %arena[%c128][] : memref<1024xi8> to memref<16xf32>
    scf.for %i = %c0 to %c16 step %c1 {
      %x = memref.load %a[%i] : memref<16xf32>
      %y = arith.mulf %x, %two : f32
      memref.store %y, %b[%i] : memref<16xf32>
    }
    comm.barrier @tp
    scf.for %i = %c0 to %c16 step %c1 {
      %x = memref.load %b[%i] : memref<16xf32>
      %y = arith.mulf %x, %two : f32
      memref.store %y, %c[%i] : memref<16xf32>
    }
    scf.for %i = %c0 to %c16 step %c1 {
      %x = memref.load %b[%i] : memref<16xf32>
      %y = arith.mulf %x, %three : f32
      memref.store %y, %c[%i] : memref<16xf32>
    }
    return
  }
}

// -----

// Buffers that share bytes are one argument; the distance between them is known
// in the function. The third is apart from both.
// CHECK-LABEL: func.func @overlapping
// CHECK-SAME: %[[ARENA:[^:]*]]: memref<1024xi8>
// CHECK: %[[C:.*]] = memref.view %[[ARENA]][%c256]{{.*}} to memref<16xf32>
// CHECK: %[[BOTH:.*]] = memref.view %[[ARENA]]{{.*}} to memref<96xi8>
// CHECK: call @{{.*}}(%[[C]], %[[BOTH]])
// CHECK: func.func private @{{.*}}(%{{.*}}: memref<16xf32> {llvm.noalias, llvm.readonly}, %[[BYTES:.*]]: memref<96xi8> {llvm.noalias})
// CHECK-DAG: memref.view %[[BYTES]][%c0{{.*}}] : memref<96xi8> to memref<16xf32>
// CHECK-DAG: memref.view %[[BYTES]][%c32{{.*}}] : memref<96xi8> to memref<32xbf16>
func.func @overlapping(%arena: memref<1024xi8> {comm.arena}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %c96 = arith.constant 96 : index
  %c256 = arith.constant 256 : index
  %a = memref.view %arena[%c64][] : memref<1024xi8> to memref<16xf32>
  %b = memref.view %arena[%c96][] : memref<1024xi8> to memref<32xbf16>
  %c = memref.view %arena[%c256][] : memref<1024xi8> to memref<16xf32>
  scf.for %i = %c0 to %c16 step %c1 {
    %z = memref.load %c[%i] : memref<16xf32>
    %x = memref.load %a[%i] : memref<16xf32>
    %y = arith.addf %x, %z : f32
    %n = arith.truncf %y : f32 to bf16
    memref.store %n, %b[%i] : memref<32xbf16>
  }
  return
}

// -----

// A loop around a collective stays, those within it go; what is known only at
// run time is an argument. Of a buffer that may be one of two nothing is said.
// CHECK-LABEL: func.func @around
// CHECK: %[[EITHER:.*]] = arith.select
// CHECK: scf.for %[[I:[^ ]*]] = %c0 to %c4
// CHECK-NEXT: call @{{.*}}(%[[EITHER]], %[[I]], %{{.*}})
// CHECK-NEXT: comm.barrier
// CHECK: func.func private @{{.*}}(%{{.*}}: memref<4x16xf32> {llvm.readonly}, %{{.*}}: index, %{{.*}}: memref<16xf32>)
// CHECK-NOT: noalias
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @around(%arena: memref<1024xi8> {comm.arena}, %p: i1) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c16 = arith.constant 16 : index
    %c256 = arith.constant 256 : index
    %c512 = arith.constant 512 : index
    %a = memref.view %arena[%c0][] : memref<1024xi8> to memref<4x16xf32>
    %b = memref.view %arena[%c256][] : memref<1024xi8> to memref<4x16xf32>
    %c = memref.view %arena[%c512][] : memref<1024xi8> to memref<16xf32>
    %either = arith.select %p, %a, %b : memref<4x16xf32>
    scf.for %i = %c0 to %c4 step %c1 {
      scf.for %j = %c0 to %c16 step %c1 {
        %x = memref.load %either[%i, %j] : memref<4x16xf32>
        memref.store %x, %c[%j] : memref<16xf32>
      }
      comm.barrier @tp
    }
    return
  }
}

// -----

// Strides are taken along: the function sees the same buffer through the same
// view. A nest with a result stays where it is.
// CHECK-LABEL: func.func @strided
// CHECK: call @[[COPY:[^(]*]](%{{.*}}, %{{.*}}) {
// CHECK: %[[SUM:.*]] = scf.for
// CHECK: memref.store %[[SUM]]
// CHECK: func.func private @[[COPY]](%[[X:.*]]: memref<4x16xf32> {llvm.noalias, llvm.readonly}, %{{.*}}: memref<4xf32> {llvm.noalias})
// CHECK: %[[COLUMN:.*]] = memref.reinterpret_cast %[[X]] to offset: [3], sizes: [4], strides: [16]
// CHECK: memref.load %[[COLUMN]]
func.func @strided(%arena: memref<1024xi8> {comm.arena}, %x: memref<4x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %b = memref.view %arena[%c0][] : memref<1024xi8> to memref<4xf32>
  %column = memref.reinterpret_cast %x to offset: [3], sizes: [4], strides: [16] : memref<4x16xf32> to memref<4xf32, strided<[16], offset: 3>>
  scf.for %i = %c0 to %c4 step %c1 {
    %v = memref.load %column[%i] : memref<4xf32, strided<[16], offset: 3>>
    memref.store %v, %b[%i] : memref<4xf32>
  }
  %sum = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %zero) -> f32 {
    %v = memref.load %b[%i] : memref<4xf32>
    %n = arith.addf %s, %v : f32
    scf.yield %n : f32
  }
  memref.store %sum, %b[%c0] : memref<4xf32>
  return
}

// -----

// A view of the arena inside of a nest goes before it: the function is handed the
// buffer, not everything that lies beside it, such as what is in flight.
// CHECK-LABEL: func.func @view_inside
// CHECK: comm.start
// CHECK: %[[V:.*]] = memref.view %{{.*}}[%c64
// CHECK: call @concord_nest(%{{.*}}, %[[V]]) {arg_attrs = [{llvm.noalias, llvm.readonly}, {llvm.noalias}]}
// CHECK: comm.wait
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @view_inside(%arena: memref<128xi8> {comm.arena}, %x: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c16 = arith.constant 16 : index
    %c64 = arith.constant 64 : index
    %a = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
    %f = comm.start all_reduce @tp ins(%x : memref<16xf32>) outs(%a : memref<16xf32>) {reduction = 1 : i32}
    scf.for %j = %c0 to %c16 step %c1 {
      %b = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
      scf.for %i = %c0 to %c16 step %c1 {
        %v = memref.load %x[%i] : memref<16xf32>
        memref.store %v, %b[%i] : memref<16xf32>
      }
    }
    comm.wait %f ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    return
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.group.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{needs at least one future}}
  "comm.group"() : () -> ()
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{groups started sends and recvs only}}
  comm.group %f : !comm.future
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%f: !comm.future) {
  // expected-error @below {{groups started sends and recvs only}}
  comm.group %f : !comm.future
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  comm.barrier @tp
  %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 1 : i64}
  // expected-error @below {{has another issue between its starts and itself}}
  comm.group %s, %r : !comm.future, !comm.future
  comm.wait %s ins(%x : memref<4xf32>)
  comm.wait %r outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 1 : i64}
  comm.barrier @tp
  // expected-error @below {{has another issue between its starts and itself}}
  comm.group %s, %r : !comm.future, !comm.future
  comm.wait %s ins(%x : memref<4xf32>)
  comm.wait %r outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 1 : i64}
  // expected-error @below {{lists its starts in another order than they have}}
  comm.group %r, %s : !comm.future, !comm.future
  comm.wait %s ins(%x : memref<4xf32>)
  comm.wait %r outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 1 : i64}
  // expected-error @below {{lists its starts in another order than they have}}
  comm.group %s, %s : !comm.future, !comm.future
  comm.wait %s ins(%x : memref<4xf32>)
  comm.wait %r outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %p: i1) {
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 1 : i64}
  scf.if %p {
    // expected-error @below {{is in another block than its starts}}
    comm.group %s, %r : !comm.future, !comm.future
  }
  comm.wait %s ins(%x : memref<4xf32>)
  comm.wait %r outs(%y : memref<4xf32>)
  return
}

// -----

// A grouped start is still waited for.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{is never waited for}}
  %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
  comm.group %s : !comm.future
  return
}

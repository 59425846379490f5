// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is said of the buffers of collectives of several programs, and does not hold.
//
// RUN: comm-opt %s --comm-verify-workspace -split-input-file -verify-diagnostics

// A plan with one offset changed by hand.
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%arena: memref<128xi8> {comm.arena}) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
    // expected-note @below {{the same operation in program 'p0'}}
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
  func.func @second(%arena: memref<128xi8> {comm.arena}) {
    %c64 = arith.constant 64 : index
    %a = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
    // expected-error @below {{buffer 0 is symmetric and lies at byte 64 in program 'p1' and at byte 0 in program 'p0'}}
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%arena: memref<64xi8> {comm.arena}) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    // expected-note @below {{the same operation in program 'p0'}}
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
  func.func @second(%arena: memref<64xi8> {comm.arena}) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    // expected-error @below {{buffer 1 is said to be symmetric in program 'p0' and not in program 'p1'}}
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, false>}
    return
  }
}

// -----

// In no arena.
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32> {comm.input = 0 : i64}) {
    // expected-error @below {{buffer 0 is symmetric and does not lie in the arena of program 'p0'}}
    comm.all_reduce @all sum ins(%x : memref<16xf32>) outs(%x : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
  func.func @second(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32> {comm.input = 0 : i64}) {
    comm.all_reduce @all sum ins(%x : memref<16xf32>) outs(%x : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32> {comm.input = 0 : i64}) {
    // expected-error @below {{symmetric has 1 entries for 2 buffers}}
    comm.all_reduce @all sum ins(%x : memref<16xf32>) outs(%x : memref<16xf32>) {symmetric = array<i1: false>}
    return
  }
  func.func @second(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32> {comm.input = 0 : i64}) {
    comm.all_reduce @all sum ins(%x : memref<16xf32>) outs(%x : memref<16xf32>)
    return
  }
}

// -----

// Which of two it is, the program decides while it runs.
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%arena: memref<128xi8> {comm.arena}, %c: i1) {
    %c0 = arith.constant 0 : index
    %c64 = arith.constant 64 : index
    %a = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
    %b = memref.view %arena[%c64][] : memref<128xi8> to memref<16xf32>
    %s = scf.if %c -> memref<16xf32> {
      scf.yield %a : memref<16xf32>
    } else {
      scf.yield %b : memref<16xf32>
    }
    // expected-error @below {{buffer 0 of program 'p0' has a place that is only known at run time, and other programs take part: the plan table cannot say where it lies}}
    comm.all_reduce @all sum ins(%s : memref<16xf32>) outs(%s : memref<16xf32>)
    return
  }
  func.func @second(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32> {comm.input = 0 : i64}) {
    comm.all_reduce @all sum ins(%x : memref<16xf32>) outs(%x : memref<16xf32>)
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%arena: memref<64xi8> {comm.arena}) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    // expected-error @below {{is said to have symmetric buffers, and the order of issues is not proven: which operations belong together is not known (comm-verify-order says why)}}
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
  func.func @second(%arena: memref<64xi8> {comm.arena}) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    comm.all_reduce @all max ins(%a : memref<16xf32>) outs(%a : memref<16xf32>) {symmetric = array<i1: true, true>}
    return
  }
}

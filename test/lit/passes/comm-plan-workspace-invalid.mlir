// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What cannot be planned.
//
// RUN: comm-opt %s -split-input-file --comm-plan-workspace -verify-diagnostics

func.func @dynamic(%n: index) {
  // expected-error @below {{cannot be planned: its shape is only known at run time; fix the dimension with --dim}}
  %a = memref.alloc(%n) : memref<?xf32>
  comm.kernel "k" outs(%a : memref<?xf32>)
  return
}

// -----

func.func @strided() {
  // expected-error @below {{cannot be planned}}
  %a = memref.alloc() : memref<4xf32, strided<[2]>>
  comm.kernel "k" outs(%a : memref<4xf32, strided<[2]>>)
  return
}

// -----

// expected-error @below {{has branches between blocks; only structured control flow (scf) can be planned}}
func.func @branches() {
  cf.br ^bb1
^bb1:
  %a = memref.alloc() : memref<16xf32>
  comm.kernel "k" outs(%a : memref<16xf32>)
  return
}

// -----

// Rounds at one time would share one place.
func.func @parallel(%x: memref<16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  scf.parallel (%i) = (%c0) to (%n) step (%c1) {
    // expected-error @below {{cannot be planned: rounds of the parallel loop around it may run at one time}}
    %a = memref.alloc() : memref<16xf32>
    comm.kernel "k" outs(%a : memref<16xf32>)
    scf.reduce
  }
  return
}

// -----

func.func @space() {
  // expected-error @below {{cannot be planned: it is in a memory space of its own, the arena is in the default one}}
  %a = memref.alloc() : memref<16xf32, 1>
  memref.dealloc %a : memref<16xf32, 1>
  return
}

// -----

func.func @grows() {
  %a = memref.alloc() : memref<16xf32>
  // expected-error @below {{cannot be planned: what it grows may move at run time; allocate the final size at once}}
  %b = memref.realloc %a : memref<16xf32> to memref<32xf32>
  comm.kernel "k" outs(%b : memref<32xf32>)
  return
}

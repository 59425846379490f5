// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans that do not hold. comm.arena is not looked at: the views are.
//
// RUN: comm-opt %s --allow-unregistered-dialect --comm-verify-workspace -split-input-file -verify-diagnostics

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @overlap(%arena: memref<128xi8> {comm.arena}, %x: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %c32 = arith.constant 32 : index
    // expected-note @below {{the other one has bytes 0 to 64}}
    %a = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
    // expected-error @below {{overlaps a buffer that is live at the same time (bytes 32 to 96)}}
    %b = memref.view %arena[%c32][] : memref<128xi8> to memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.kernel "k" ins(%a, %b : memref<16xf32>, memref<16xf32>) outs(%x : memref<16xf32>)
    return
  }
  comm.arena @overlap size(128) align(64) lower_bound(128) offsets([0, 64]) sizes([64, 64]) first([0, 0]) last([9, 9])
}

// -----

// In flight until the wait, although nothing names the buffer in between.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @in_flight(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32>, %y: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    // expected-error @below {{overlaps a buffer that is live at the same time}}
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    %f = comm.start all_reduce @tp ins(%a : memref<16xf32>) outs(%y : memref<16xf32>) {reduction = 1 : i32}
    // expected-note @below {{the other one has bytes 0 to 64}}
    %b = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.wait %f ins(%a : memref<16xf32>) outs(%y : memref<16xf32>)
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @allocation(%x: memref<16xf32>) {
    comm.barrier @tp
    // expected-error @below {{between communication issues: an allocation or free there may synchronise the device and hang the job}}
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @tp sum ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @free(%x: memref<16xf32>) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @tp sum ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    // expected-error @below {{between communication issues}}
    memref.dealloc %a : memref<16xf32>
    comm.barrier @tp
    return
  }
}

// -----

func.func @leaves(%arena: memref<64xi8> {comm.arena}) {
  %c32 = arith.constant 32 : index
  // expected-error @below {{leaves the arena of 64 bytes}}
  %a = memref.view %arena[%c32][] : memref<64xi8> to memref<16xf32>
  return
}

// -----

func.func @no_place(%arena: memref<64xi8> {comm.arena}, %n: index) {
  // expected-error @below {{has no static place in the arena}}
  %a = memref.view %arena[%n][] : memref<64xi8> to memref<8xf32>
  return
}

// -----

func.func @other_use(%arena: memref<64xi8> {comm.arena}, %x: memref<64xi8>) {
  // expected-error @below {{uses the arena other than by memref.view}}
  memref.copy %arena, %x : memref<64xi8> to memref<64xi8>
  return
}

// -----

// Workspace that is declared and not given comes from the system.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @workspace(%x: memref<16xf32>) {
    comm.barrier @tp
    // expected-error @below {{between communication issues declares workspace and is given none}}
    comm.compute "opaque"(%x) {workspace_bytes = 64 : i64} : (memref<16xf32>) -> ()
    comm.barrier @tp
    return
  }
}

// -----

// Nobody knows what a function outside does; in a loop, what follows the issue of
// one round precedes that of the next.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func private @load()
  func.func @unknown(%n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %i = %c0 to %n step %c1 {
      comm.barrier @tp
      // expected-error @below {{between communication issues has unknown effects: what it calls may allocate, free, load lazily or synchronise; where its body is known, inline it (--inline) before comm-plan-workspace}}
      func.call @load() : () -> ()
    }
    return
  }
}

// -----

// Operations of others that declare nothing.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @vendor(%x: memref<16xf32>) {
    comm.barrier @tp
    // expected-error @below {{between communication issues has unknown effects: it may allocate, free, load lazily or synchronise}}
    "vendor.opaque"(%x) {workspace_bytes = 4096 : i64} : (memref<16xf32>) -> ()
    comm.barrier @tp
    return
  }
}

// -----

module attributes {comm.memory_limit = 63 : i64} {
  // expected-error @below {{its arena of 64 bytes is over the limit of 63 (comm.memory_limit)}}
  func.func @over(%arena: memref<64xi8> {comm.arena}) {
    return
  }
}

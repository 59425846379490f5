// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans that hold: disjoint lifetimes in one place, disjoint places at one time,
// allocation before the first issue.
//
// RUN: comm-opt %s --comm-verify-workspace -split-input-file -verify-diagnostics

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @shared_place(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    comm.all_reduce @tp sum ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    %b = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    comm.all_reduce @tp sum ins(%x : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.kernel "k" ins(%b : memref<16xf32>) outs(%x : memref<16xf32>)
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @before_and_behind(%x: memref<16xf32>) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @tp sum ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.barrier @tp
    memref.dealloc %a : memref<16xf32>
    return
  }
}

// -----

// What nobody uses is never live, wherever it lies.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @unused(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32>) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<64xi8> to memref<16xf32>
    %unused = memref.view %arena[%c0][] : memref<64xi8> to memref<8xf32>
    comm.all_reduce @tp sum ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%x : memref<16xf32>)
    return
  }
}

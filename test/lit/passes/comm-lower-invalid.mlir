// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What cannot be lowered yet.
//
// RUN: comm-opt %s -split-input-file --comm-lower -verify-diagnostics

// expected-error @below {{has no planned arena; run comm-plan-workspace first}}
func.func @main(%x: memref<16xf32>) {
  return
}

// -----

// expected-error @below {{has 2 programs; code is generated for one program that every rank runs}}
module {
  func.func @f(%arena: memref<64xi8> {comm.arena}) { return }
  func.func @g(%arena: memref<64xi8> {comm.arena}) { return }
}

// -----

// expected-error @below {{has 0 programs}}
module {
}

// -----

// expected-error @below {{takes 'index'; inputs and outputs have a static shape}}
func.func @scalar(%arena: memref<64xi8> {comm.arena}, %n: index) {
  return
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @group(%arena: memref<64xi8> {comm.arena}, %x: memref<4xf32>, %y: memref<4xf32>) {
    %s = comm.start send @tp ins(%x : memref<4xf32>) {peer = 1 : i64}
    %r = comm.start recv @tp outs(%y : memref<4xf32>) {peer = 0 : i64}
    // expected-error @below {{is verified but not lowered yet}}
    comm.group %s, %r : !comm.future, !comm.future
    comm.wait %s ins(%x : memref<4xf32>)
    comm.wait %r outs(%y : memref<4xf32>)
    return
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What cannot be lowered yet.
//
// RUN: comm-opt %s -split-input-file --comm-lower -verify-diagnostics
// RUN: sed 's/comm.machine = "cpu"/comm.machine = "nothing"/' %S/comm-lower.mlir | not comm-opt --comm-lower 2>&1 | FileCheck %s
// CHECK: cost model: {{.*}}nothing

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
  comm.program @p0 entry(@both) ranks([0])
  comm.program @p1 entry(@both) ranks([1])
  // expected-error @below {{is the entry of two programs; give each a function of its own}}
  func.func @both(%arena: memref<64xi8> {comm.arena}) { return }
}

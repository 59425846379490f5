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

// -----

// Floats of 8 bits are moved by collectives and copies, and converted by kernels.
module attributes {comm.world = 1 : i64} {
  func.func @main(%arena: memref<64xi8> {comm.arena}, %x: memref<16xf32>, %y: memref<16xf8E5M2>) {
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%x : memref<16xf32>) outs(%y : memref<16xf8E5M2>) {
    ^bb0(%a: f32, %o: f8E5M2):
      // expected-error @below {{computes with 'f8E5M2'; floats of 8 bits can only be moved. Convert with an ONNX Cast, or keep it in 16 bits}}
      %r = arith.truncf %a : f32 to f8E5M2
      linalg.yield %r : f8E5M2
    }
    return
  }
}

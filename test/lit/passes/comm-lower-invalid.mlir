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

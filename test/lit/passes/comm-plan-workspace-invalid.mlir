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

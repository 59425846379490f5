// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.rank and comm.size.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{'comm.rank' op domain @gone is not defined}}
  %r = comm.rank @gone
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{'comm.size' op domain @gone is not defined}}
  %r = comm.size @gone
  return
}

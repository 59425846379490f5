// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where there is nothing to check, or no room for a check.
//
// RUN: comm-opt %s --comm-health --split-input-file --verify-diagnostics

// expected-error @+1 {{one rank has nobody to check}}
module attributes {comm.world = 1 : i64} {
  func.func @step() {
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  // expected-error @+1 {{the name '@health' is taken}}
  comm.domain @health groups([[0, 1]])
  func.func @step() {
    comm.barrier @health
    return
  }
}

// -----

// expected-error @+1 {{no function to check beside}}
module attributes {comm.world = 2 : i64} {
}

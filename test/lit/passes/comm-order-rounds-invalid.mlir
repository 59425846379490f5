// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Slots and decisions that say nothing; two issuers whose own orders contradict
// each other through the peers.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics --comm-order --comm-verify-order

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  func.func @main() {
    // expected-error @+1 {{slot "sometimes" is none of "always", "optional" and "optional:NAME"}}
    comm.barrier @a {slot = "sometimes"}
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  func.func @main() {
    // expected-error @+1 {{lets group rank 2 decide, which is outside a group of 2}}
    comm.barrier @a {decides = 2 : i64}
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  func.func @main(%x: tensor<4xf32>) {
    // expected-error @+1 {{has "decides", which only a comm.barrier takes}}
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) {decides = 0 : i64} -> tensor<4xf32>
    return
  }
}

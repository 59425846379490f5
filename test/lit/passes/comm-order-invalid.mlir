// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Issues that no order can be found for.
//
// RUN: comm-opt %s -split-input-file --comm-order -verify-diagnostics

module {
  comm.domain @a groups([[0, 1]])
  func.func @main(%x: tensor<?xf32>) {
    // expected-error @below {{has no static shape; fix the dimension with --dim}}
    %0 = comm.all_reduce @a sum ins(%x : tensor<?xf32>) outs(%x : tensor<?xf32>) -> tensor<?xf32>
    return
  }
}

// -----

module {
  func.func @main(%f: !comm.future) {
    // expected-error @below {{waits for a future whose comm.start is not known}}
    comm.wait %f
    return
  }
}

// -----

module {
  func.func private @declared()
  // expected-error @below {{is the entry of a program and has no body}}
  func.func private @outside()
  comm.program @p entry(@outside) ranks([0])
}

// -----

module {
  llvm.func @low() { llvm.return }
  // expected-error @below {{entry @low is not a func.func}}
  comm.program @p entry(@low) ranks([0])
}

// -----

// Data on the two ranks ask for opposite orders: there is none for both.
// expected-note @below {{cure: change the program: one of these dependences has to go}}
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @below {{the ranks' dependences contradict each other in a cycle of 2 operations}}
    // expected-note @below {{all_reduce(a,sum,n=4,F32) has to come after all_reduce(b,sum,n=4,F32)}}
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    // expected-note @below {{all_reduce(b,sum,n=4,F32) has to come after all_reduce(a,sum,n=4,F32)}}
    %1 = comm.all_reduce @b sum ins(%0 : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func @second(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @a sum ins(%0 : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

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

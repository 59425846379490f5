// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What cannot be partitioned, and what stays whole.
//
// RUN: comm-opt %s --comm-partition -split-input-file -verify-diagnostics

// expected-error @below {{comm.mesh is a list of [name, size]}}
module attributes {comm.mesh = [["tp"]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main() { return }
}

// -----

// expected-error @below {{comm.mesh is a list of [name, size]}}
module attributes {comm.mesh = ["tp", 2], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main() { return }
}

// -----

// expected-error @below {{comm.mesh is a list of [name, size]}}
module attributes {comm.mesh = [["tp", 0]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main() { return }
}

// -----

module attributes {comm.mesh = [["pp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  // expected-error @below {{mesh axis pp: pipeline stages are not supported yet; use dp, tp or ep}}
  func.func @main() { return }
}

// -----

// An attribute of another kind than the operator has: no reader would let it pass.
module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
    // expected-error @below {{Transpose: attribute 'perm' should be a list of integers}}
    %0 = onnx.node "Transpose"(%x) {perm = "turned"} opset(17) : (tensor<4x8xf32>) -> tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}

// -----

// A dimension that does not divide: the matrix stays whole, and the reason is said.
module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<4x7xf32>) -> tensor<4x5xf32> {
    // expected-warning @below {{parameter 'w' stays whole on every rank of tp}}
    %w = comm.weight "w" from "m.weights" : tensor<7x5xf32>
    %0 = onnx.node "MatMul"(%x, %w) {} opset(17) : (tensor<4x7xf32>, tensor<7x5xf32>) -> tensor<4x5xf32>
    return %0 : tensor<4x5xf32>
  }
}

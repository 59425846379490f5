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
  // expected-error @below {{mesh axis pp=2: there are 0 operations to divide over 2 stages}}
  func.func @main() { return }
}

// -----

// Stages are made from one program, not from several.
// expected-error @below {{pipeline stages and micro-batches are made from one program that every rank runs}}
module attributes {comm.mesh = [["pp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @f() { return }
  func.func @g() { return }
}

// -----

// expected-error @below {{micro-batches: a number from 1 to 1024, not 0}}
module attributes {comm.mesh = [["pp", 2]], comm.micro_batches = 0 : i64, comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main() { return }
}

// -----

module attributes {comm.mesh = [["pp", 2]], comm.micro_batches = 3 : i64, comm.phase = "imported", comm.world = 2 : i64} {
  // expected-error @below {{--micro-batches=3 does not divide the batch of 4 (input '?')}}
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %0 = onnx.node "Relu"(%x) {} opset(17) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %0 : tensor<4x8xf32>
  }
}

// -----

// A mean over the batch cannot be had from parts of it.
module attributes {comm.mesh = [["pp", 2]], comm.micro_batches = 2 : i64, comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %axes = arith.constant dense<0> : tensor<1xi64>
    %w = comm.weight "w" from "m.weights" : tensor<8x8xf32>
    %0 = onnx.node "MatMul"(%x, %w) {} opset(18) : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    // expected-error @below {{micro-batches: this needs values of the whole batch; compile without --micro-batches}}
    %1 = onnx.node "ReduceMean"(%0, %axes) {keepdims = 1} opset(18) : (tensor<4x8xf32>, tensor<1xi64>) -> tensor<1x8xf32>
    %2 = onnx.node "Sub"(%0, %1) {} opset(18) : (tensor<4x8xf32>, tensor<1x8xf32>) -> tensor<4x8xf32>
    return %2 : tensor<4x8xf32>
  }
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

// -----

module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  // expected-error @below {{input 1 is of type 'i1'; mesh axis tp can split programs of tensors of static shape only}}
  func.func @main(%x: tensor<8xf32>, %p: i1) -> tensor<8xf32> {
    return %x : tensor<8xf32>
  }
}

// -----

module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<8xf32>) -> tensor<?xf32> {
    // expected-error @below {{is of type 'tensor<?xf32>'; mesh axis tp can split programs of tensors of static shape only}}
    %0 = tensor.cast %x : tensor<8xf32> to tensor<?xf32>
    return %0 : tensor<?xf32>
  }
}

// -----

// Operations that are no ONNX nodes stay whole, on every rank; that is said.
module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  // expected-warning @below {{mesh axis tp=2 splits nothing here, and every rank will compute the whole}}
  func.func @main(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %e = tensor.empty() : tensor<8x8xf32>
    %0 = linalg.add ins(%x, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    return %0 : tensor<8x8xf32>
  }
}

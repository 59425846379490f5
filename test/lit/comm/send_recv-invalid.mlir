// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.send, comm.recv and comm.barrier.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{root 2 is outside a group of 2}}
  comm.send @tp to(2) ins(%x : tensor<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{root -1 is outside a group of 2}}
  %r = comm.recv @tp from(-1) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{on tensors has one result}}
  comm.recv @tp from(0) outs(%x : tensor<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{result type 'tensor<5xf32>' differs from outs type 'tensor<4xf32>'}}
  %r = comm.recv @tp from(0) outs(%x : tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>) {
  // expected-error @below {{domain @gone is not defined}}
  comm.send @gone to(0) ins(%x : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{domain @gone is not defined}}
  comm.barrier @gone
  return
}

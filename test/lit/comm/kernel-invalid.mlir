// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.kernel.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{needs a description}}
  %r = comm.kernel "" outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{needs at least one out}}
  "comm.kernel"(%x) <{description = "k", operandSegmentSizes = array<i32: 1, 0>}> : (tensor<4xf32>) -> ()
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{mixes tensors and memrefs in outs}}
  %r = comm.kernel "k" outs(%y, %m : tensor<4xf32>, memref<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{on memrefs has no results}}
  %r = comm.kernel "k" outs(%m : memref<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{has 0 results for 1 outs}}
  comm.kernel "k" outs(%y : tensor<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{result type 'tensor<5xf32>' differs from outs type 'tensor<4xf32>'}}
  %r = comm.kernel "k" outs(%y : tensor<4xf32>) -> tensor<5xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>, %m: memref<4xf32>) {
  // expected-error @below {{marks 1 pointers as present but has 2}}
  %r = comm.kernel "k" ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {absent = array<i1: true, false>} -> tensor<4xf32>
  return
}

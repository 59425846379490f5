// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.permute.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{pairs are two group ranks below 2}}
  %r = comm.permute @tp pairs([[0, 2]]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{pairs are two group ranks below 2}}
  %r = comm.permute @tp pairs([[0, 1, 0]]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{group rank 0 sends twice}}
  %r = comm.permute @tp pairs([[0, 1], [0, 0]]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{group rank 1 receives twice}}
  %r = comm.permute @tp pairs([[0, 1], [1, 1]]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Pairs must be in every group, not only in the first.
comm.domain @late groups([[0, 1], [2]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{pairs are two group ranks below 1}}
  %r = comm.permute @late pairs([[0, 1]]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{dimension 0: input has 4, output 5}}
  %r = comm.permute @tp pairs([[0, 1]]) ins(%x : tensor<4xf32>) outs(%y : tensor<5xf32>) -> tensor<5xf32>
  return
}

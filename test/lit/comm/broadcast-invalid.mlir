// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.broadcast.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{root 2 is outside a group of 2}}
  %r = comm.broadcast @tp root(2) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{root -1 is outside a group of 2}}
  %r = comm.broadcast @tp root(-1) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// A root must be in every group: the smaller one has no rank 1.
comm.domain @uneven groups([[0], [1, 2]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{root 1 is outside a group of 1}}
  %r = comm.broadcast @uneven root(1) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{dimension 0: input has 4, output 5}}
  %r = comm.broadcast @tp root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<5xf32>) -> tensor<5xf32>
  return
}

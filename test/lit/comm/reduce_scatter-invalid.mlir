// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.reduce_scatter.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  // expected-error @below {{dimension must not be negative}}
  %r = comm.reduce_scatter @tp sum dim(-1) ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  // expected-error @below {{needs a reduction}}
  %r = comm.reduce_scatter @tp none dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  // expected-error @below {{dimension 2 is outside a rank-1 tensor}}
  %r = comm.reduce_scatter @tp sum dim(2) ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) -> tensor<2xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{dimension 0: input has 4, output 4, which do not fit the group size}}
  %r = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @uneven groups([[0], [1, 2]])
func.func @f(%x: tensor<4xf32>, %y: tensor<2xf32>) {
  // expected-error @below {{whose groups differ in size}}
  %r = comm.reduce_scatter @uneven sum dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<2xf32>) -> tensor<2xf32>
  return
}

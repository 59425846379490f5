// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.reduce.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{needs a reduction}}
  %r = comm.reduce @tp none root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{root 2 is outside a group of 2}}
  %r = comm.reduce @tp sum root(2) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf64>, %y: tensor<4xf64>) {
  // expected-error @below {{or needs integers, not 'f64'}}
  %r = comm.reduce @tp or root(0) ins(%x : tensor<4xf64>) outs(%y : tensor<4xf64>) -> tensor<4xf64>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<5xf32>) {
  // expected-error @below {{dimension 0: input has 4, output 5}}
  %r = comm.reduce @tp sum root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<5xf32>) -> tensor<5xf32>
  return
}

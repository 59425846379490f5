// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.gather.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{root 2 is outside a group of 2}}
  %r = comm.gather @tp dim(0) root(2) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{dimension must not be negative}}
  %r = comm.gather @tp dim(-1) root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{dimension 0: input has 4, output 4, which do not fit the group size}}
  %r = comm.gather @tp dim(0) root(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

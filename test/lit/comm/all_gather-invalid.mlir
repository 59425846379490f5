// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.all_gather.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{dimension must not be negative}}
  %r = comm.all_gather @tp dim(-1) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{dimension 1 is outside a rank-1 tensor}}
  %r = comm.all_gather @tp dim(1) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<6xf32>) {
  // expected-error @below {{dimension 0: input has 4, output 6, which do not fit the group size}}
  %r = comm.all_gather @tp dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4x2xf32>, %y: tensor<8x3xf32>) {
  // expected-error @below {{dimension 1: input has 2, output 3}}
  %r = comm.all_gather @tp dim(0) ins(%x : tensor<4x2xf32>) outs(%y : tensor<8x3xf32>) -> tensor<8x3xf32>
  return
}

// -----

comm.domain @uneven groups([[0], [1, 2]])
func.func @f(%x: tensor<4xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{runs on @uneven, whose groups differ in size}}
  %r = comm.all_gather @uneven dim(0) ins(%x : tensor<4xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

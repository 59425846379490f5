// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.all_to_all, even and with block sizes.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf16>) {
  // expected-error @below {{input and output differ in rank or element type}}
  %r = comm.all_to_all @tp split(0) concat(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf16>) -> tensor<4xf16>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{dimension is outside a rank-1 tensor}}
  %r = comm.all_to_all @tp split(0) concat(1) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{dimension is outside a rank-1 tensor}}
  %r = comm.all_to_all @tp split(-1) concat(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4x8xf32>, %y: tensor<2x8xf32>) {
  // expected-error @below {{dimension 1: input has 8, output 8, which do not fit the group size}}
  %r = comm.all_to_all @tp split(0) concat(1) ins(%x : tensor<4x8xf32>) outs(%y : tensor<2x8xf32>) -> tensor<2x8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>) {
  // expected-error @below {{uneven blocks need dimension 0 on both sides}}
  %r = comm.all_to_all @tp split(0) concat(1) sizes([1, 3] to [2, 2]) ins(%x : tensor<4x8xf32>) outs(%y : tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{a block size is negative or too large}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([-1, 5] to [2, 2]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{a block size is negative or too large}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([9223372036854775807, 9223372036854775807] to [2, 2]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{has 3 block sizes of the input for a group of 2}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([1, 2, 1] to [2, 2]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{block sizes add up to 3, the input has 4}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([1, 2] to [2, 2]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// What arrives is judged like what is sent.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{has 1 block sizes of the output for a group of 2}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([1, 3] to [2]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{block sizes add up to 9, the output has 4}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([1, 3] to [2, 7]) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x9xf32>) {
  // expected-error @below {{dimension 1: input has 8, output 9}}
  %r = comm.all_to_all @tp split(0) concat(0) sizes([1, 3] to [2, 2]) ins(%x : tensor<4x8xf32>) outs(%y : tensor<4x9xf32>) -> tensor<4x9xf32>
  return
}

// -----

comm.domain @uneven groups([[0], [1, 2]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{whose groups differ in size}}
  %r = comm.all_to_all @uneven split(0) concat(0) ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every error of comm.all_reduce, and those that all collectives share.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{domain @nowhere is not defined}}
  %r = comm.all_reduce @nowhere sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @tp() { return }
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{domain @tp is not defined}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{mixes a tensor and a memref}}
  comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{on tensors has one result}}
  comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>) {
  // expected-error @below {{on memrefs has no result}}
  %r = comm.all_reduce @tp sum ins(%x : memref<4xf32>) outs(%x : memref<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{result type 'tensor<?xf32>' differs from outs type 'tensor<4xf32>'}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<?xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{needs a reduction}}
  %r = comm.all_reduce @tp none ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{and needs integers, not 'f32'}}
  %r = comm.all_reduce @tp and ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf8E4M3FN>, %y: tensor<4xf8E4M3FN>) {
  // expected-error @below {{cannot reduce 'f8E4M3FN'; it can only be moved}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf8E4M3FN>) outs(%y : tensor<4xf8E4M3FN>) -> tensor<4xf8E4M3FN>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xindex>, %y: tensor<4xindex>) {
  // expected-error @below {{cannot move elements of type 'index'}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xindex>) outs(%y : tensor<4xindex>) -> tensor<4xindex>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf16>) {
  // expected-error @below {{input has element type 'f32', output 'f16'}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4xf16>) -> tensor<4xf16>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4x1xf32>) {
  // expected-error @below {{input and output differ in rank}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%y : tensor<4x1xf32>) -> tensor<4x1xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4x8xf32>, %y: tensor<4x9xf32>) {
  // expected-error @below {{dimension 1: input has 8, output 9}}
  %r = comm.all_reduce @tp sum ins(%x : tensor<4x8xf32>) outs(%y : tensor<4x9xf32>) -> tensor<4x9xf32>
  return
}

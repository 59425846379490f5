// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.fused.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{domain @tp is not defined}}
  %r = comm.fused all_reduce @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {reduction = 1 : i32, shared = 0 : i64, written = array<i64: 1>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{runs on @tp, whose groups differ in size}}
  %r = comm.fused all_reduce @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {reduction = 1 : i32, shared = 0 : i64, written = array<i64: 1>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{cannot be a broadcast; it is an all_reduce, reduce_scatter, all_gather or all_to_all}}
  %r = comm.fused broadcast @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {shared = 0 : i64, written = array<i64>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{needs the reduction sum}}
  %r = comm.fused all_reduce @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {shared = 0 : i64, written = array<i64: 1>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{takes no reduction}}
  %r = comm.fused all_gather @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {reduction = 1 : i32, shared = 0 : i64, written = array<i64>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{shared 2 is no operand}}
  %r = comm.fused all_gather @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {shared = 2 : i64, written = array<i64>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{written 0 is no output}}
  %r = comm.fused all_reduce @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {reduction = 1 : i32, shared = 0 : i64, written = array<i64: 0>} -> tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: memref<8xf32>) {
  // expected-error @below {{mixes a tensor and a memref}}
  comm.fused all_gather @tp "k" ins(%x : tensor<8xf32>) outs(%y : memref<8xf32>) {shared = 0 : i64, written = array<i64>}
  return
}

// -----

comm.domain @tp groups([[0, 1]])
func.func @f(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  // expected-error @below {{has 0 results for 1 outs}}
  comm.fused all_gather @tp "k" ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) {shared = 0 : i64, written = array<i64>}
  return
}

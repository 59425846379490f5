// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What has no buffer form.
//
// RUN: comm-opt %s -split-input-file --comm-bufferize -verify-diagnostics

// expected-error @below {{is an entry function: it returns ranked tensors, from one block}}
func.func @scalar(%n: index) -> index {
  return %n : index
}

// -----

// expected-error @below {{is an entry function: it returns ranked tensors, from one block}}
func.func @branches(%p: i1, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  cf.cond_br %p, ^bb1, ^bb2
^bb1:
  return %x : tensor<4xf32>
^bb2:
  return %y : tensor<4xf32>
}

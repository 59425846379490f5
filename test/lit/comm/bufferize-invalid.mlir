// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// On tensors a read of outs between start and wait means the old value, which the
// buffer no longer holds: refused, and not compiled into a race.
//
// RUN: comm-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])

func.func @read_outs(%x: tensor<4xf32>, %e: tensor<4xf32>, %i: index) -> (tensor<4xf32>, f32) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{reads a buffer that a started all_reduce still writes}}
  %v = tensor.extract %e[%i] : tensor<4xf32>
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %r, %v : tensor<4xf32>, f32
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.group launches sends and receives together.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @exchange
// CHECK: %[[S:.*]] = comm.start send @tp
// CHECK: %[[R:.*]] = comm.start recv @tp
// CHECK: comm.group %[[S]], %[[R]] : !comm.future, !comm.future
// CHECK: comm.wait %[[S]]
// CHECK: comm.wait %[[R]]
func.func @exchange(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %s = comm.start send @tp ins(%x : tensor<4xf32>) {peer = 1 : i64}
  %r = comm.start recv @tp outs(%y : tensor<4xf32>) {peer = 1 : i64}
  comm.group %s, %r : !comm.future, !comm.future
  comm.wait %s ins(%x : tensor<4xf32>)
  %z = comm.wait %r outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A member that is another program than the first one cannot do as that did.
//
// RUN: not comm-opt %s --comm-bucket=machine=accelerator 2>&1 | FileCheck %s
// CHECK: error: comm-bucket: another size of a bounded dimension cannot be compiled in the same way; compile with --comm-pipeline="opt=0", or fix the dimension with --dim NAME=N

module attributes {comm.dims = [["n", 1, 64]]} {
module @member0 attributes {comm.dims = [["n", 1, 64]], comm.point = array<i64: 61>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<61x4xf32>, %y: tensor<3xf32>) -> (tensor<61x4xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<61x4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<61x4xf32>) outs(%e : tensor<61x4xf32>) -> tensor<61x4xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %a, %b : tensor<61x4xf32>, tensor<3xf32>
  }
}
module @member1 attributes {comm.dims = [["n", 1, 64]], comm.point = array<i64: 59>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<59x4xf32>, %y: tensor<3xf32>) -> (tensor<59x4xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<59x4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<59x4xf32>) outs(%e : tensor<59x4xf32>) -> tensor<59x4xf32>
    return %a, %y : tensor<59x4xf32>, tensor<3xf32>
  }
}
module @member2 attributes {comm.dims = [["n", 1, 64]], comm.point = array<i64: 53>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<53x4xf32>, %y: tensor<3xf32>) -> (tensor<53x4xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<53x4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<53x4xf32>) outs(%e : tensor<53x4xf32>) -> tensor<53x4xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %a, %b : tensor<53x4xf32>, tensor<3xf32>
  }
}
}

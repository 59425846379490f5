// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A collective of groups of one takes no time: it is kept for want of a gain, not
// because it is hidden.
//
// RUN: comm-opt %s --explain --comm-overlap=machine=accelerator -o /dev/null 2>&1 | FileCheck %s

// CHECK-DAG: explain: comm-overlap keep {{.*}} reason=no-gain kind=all_reduce domain=one seconds=0
// CHECK-DAG: explain: comm-overlap start{{.*}} reason=hidden kind=all_gather domain=dp
// CHECK-NOT: comm-overlap keep {{.*}} reason=hidden
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  comm.domain @one groups([[0], [1]])
  func.func @main(%x: tensor<8x8xf32>, %w: tensor<4x8xf32>) -> tensor<8x8xf32> {
    %e = tensor.empty() : tensor<8x8xf32>
    %o = comm.all_reduce @one sum ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    %g = comm.all_gather @dp dim(0) ins(%w : tensor<4x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    %a = comm.compute "attention"(%o) {flops = 2000000000 : i64} : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %y = comm.compute "dot"(%a, %g) {flops = 2000000000 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %y : tensor<8x8xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A large all_reduce over two hosts in three steps; a small one in one.
//
// RUN: comm-opt %s --explain --comm-simplify=machine=%S/Inputs/two_hosts.json -o - 2>&1 | FileCheck %s
// RUN: comm-opt %s --explain "--comm-simplify=exact=true machine=%S/Inputs/two_hosts.json" -o - 2>&1 | FileCheck %s --check-prefix=EXACT

// CHECK-DAG: explain: comm-simplify split-all_reduce {{.*}} reason=two-levels domain=@all bytes=67108864 saved_ns={{[0-9]+}} rounding=differs
// CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=cost domain=@all bytes=16
// CHECK-DAG: comm.domain @all_host groups({{\[}}[0, 1, 2, 3], [4, 5, 6, 7]])
// CHECK-DAG: comm.domain @all_hosts groups({{\[}}[0, 4], [1, 5], [2, 6], [3, 7]])
// CHECK: func.func @main
// CHECK: %[[F:.*]] = tensor.collapse_shape
// CHECK: %[[S:.*]] = comm.reduce_scatter @all_host sum dim(0) ins(%[[F]] : tensor<16777216xf32>) outs(%{{.*}} : tensor<4194304xf32>)
// CHECK: %[[R:.*]] = comm.all_reduce @all_hosts sum ins(%[[S]] : tensor<4194304xf32>)
// CHECK: %[[G:.*]] = comm.all_gather @all_host dim(0) ins(%[[R]] : tensor<4194304xf32>)
// CHECK: tensor.expand_shape %[[G]]
// CHECK: comm.all_reduce @all sum ins(%{{.*}} : tensor<4xf32>)

// EXACT-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=exact domain=@all bytes=67108864
// EXACT-NOT: comm.domain @all_host
module attributes {comm.world = 8 : i64} {
  comm.domain @all groups([[0, 1, 2, 3, 4, 5, 6, 7]])
  func.func @main(%x: tensor<4096x4096xf32>, %y: tensor<4xf32>) -> (tensor<4096x4096xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4096x4096xf32>
    %f = tensor.empty() : tensor<4xf32>
    %0 = comm.all_reduce @all sum ins(%x : tensor<4096x4096xf32>) outs(%e : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %1 = comm.all_reduce @all sum ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4096x4096xf32>, tensor<4xf32>
  }
}

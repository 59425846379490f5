// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What hides less than a start and a wait cost stays whole: the first all_reduce has
// 0.1 us of computation beside it, which is less than two issues of 0.3 us, the second
// one 200 us.
//
// RUN: comm-opt %s --comm-overlap="machine=%S/Inputs/slow_link.json growth=2" --explain 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t

// CHECK-NOT: comm.start
// CHECK: comm.all_reduce @dp
// CHECK: comm.start all_reduce @dp
// CHECK: ns=200000
// CHECK: comm.wait
// WHY: comm-overlap keep {{.*}} reason=start-costs-more kind=all_reduce domain=dp
// WHY: comm-overlap start
module attributes {comm.world = 2 : i64, comm.phase = "decomposed"} {
  comm.domain @dp groups([[0, 1]])
  func.func @main(%a: tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) {
    %e = tensor.empty() : tensor<1024xf32>
    %r = comm.all_reduce @dp sum ins(%a : tensor<1024xf32>) outs(%e : tensor<1024xf32>) -> tensor<1024xf32>
    %e0 = tensor.empty() : tensor<1024xf32>
    %t = comm.kernel "busy bytes=4096 ns=100" ins(%a : tensor<1024xf32>) outs(%e0 : tensor<1024xf32>) -> tensor<1024xf32>
    %e1 = tensor.empty() : tensor<1024xf32>
    %x = comm.kernel "busy bytes=4096 ns=1000" ins(%r : tensor<1024xf32>) outs(%e1 : tensor<1024xf32>) -> tensor<1024xf32>
    %e2 = tensor.empty() : tensor<1024xf32>
    %s = comm.all_reduce @dp sum ins(%x : tensor<1024xf32>) outs(%e2 : tensor<1024xf32>) -> tensor<1024xf32>
    %e3 = tensor.empty() : tensor<1024xf32>
    %i = comm.kernel "busy bytes=4096 ns=200000" ins(%x : tensor<1024xf32>) outs(%e3 : tensor<1024xf32>) -> tensor<1024xf32>
    return %s, %i, %t : tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>
  }
}

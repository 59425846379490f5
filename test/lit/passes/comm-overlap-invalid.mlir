// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Refusals, and the decisions with their reasons.
//
// RUN: not comm-opt %s --comm-overlap="memory=100000" --comm-plan-workspace 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: comm-opt %s --comm-overlap="memory=16000032" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=KEPT
// RUN: comm-opt %s --comm-overlap="machine=cpu" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=CORES
// RUN: not comm-opt %s --comm-overlap="machine=/no/such/file" 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: not comm-opt %s --comm-overlap="growth=0.5" 2>&1 | FileCheck %s --check-prefix=GROWTH
// RUN: not comm-opt %s --comm-chunk="bytes=0" 2>&1 | FileCheck %s --check-prefix=BYTES

// LIMIT: error: comm-plan-workspace: the arena of main takes 8000000 bytes, over the limit of 100000
// KEPT: explain: comm-overlap cost {{.*}} reason=built-in machine=accelerator
// KEPT: explain: comm-overlap {{.*}} domain=dp seconds={{.*}} hidden_seconds=
// KEPT: limit_bytes=16000032
// CORES: explain: comm-overlap keep {{.*}} reason=cores-move-the-bytes kind=all_reduce domain=dp
// CORES: explain: comm-overlap schedule {{.*}} reason=given-order
// FILE: error: cost model: cannot read '/no/such/file': No such file or directory
// GROWTH: error: comm-overlap: growth is less than 1
// BYTES: error: comm-chunk: bytes is 0
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @main(%a: tensor<1000000xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %x = comm.compute "produce"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    %e = tensor.empty() : tensor<1000000xf32>
    %r = comm.all_reduce @dp sum ins(%x : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    %y = comm.compute "consume"(%r) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
    %i = comm.compute "independent"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
    return %y, %i : tensor<8xf32>, tensor<8xf32>
  }
}

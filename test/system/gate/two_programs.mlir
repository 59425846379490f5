// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks, two issuers, compiled: serving computes and reduces in every round,
// placement exchanges an expert in the rounds that rank 0 decides. Names and
// shapes of the two programs have nothing to do with each other.

module attributes {comm.world = 2 : i64} {
  comm.domain @ctl groups([[0, 1]]) priority(9)
  comm.domain @domain1 groups([[0, 1]]) priority(5)
  comm.domain @domain2 groups([[0, 1]]) priority(-1)
  comm.program @placement entry(@move) ranks([0, 1]) issuer("placement")
  comm.program @serving entry(@step) ranks([0, 1]) issuer("serving")
  func.func @step(%x: tensor<512xf32>, %part: tensor<256xf32>) -> tensor<256xf32> {
    comm.barrier @ctl {decides = 0 : i64}
    %0 = comm.reduce_scatter @domain1 sum dim(0) ins(%x : tensor<512xf32>)
           outs(%part : tensor<256xf32>) -> tensor<256xf32>
    %e = tensor.empty() : tensor<256xf32>
    %1 = linalg.add ins(%0, %0 : tensor<256xf32>, tensor<256xf32>)
           outs(%e : tensor<256xf32>) -> tensor<256xf32>
    return %1 : tensor<256xf32>
  }
  func.func @move(%x: tensor<4096xf32>, %y: tensor<4096xf32>) -> tensor<4096xf32> {
    %0 = comm.all_reduce @domain2 sum ins(%x : tensor<4096xf32>)
           outs(%y : tensor<4096xf32>) {slot = "optional"} -> tensor<4096xf32>
    return %0 : tensor<4096xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two ranks, two issuers: serving in every round, placement in the rounds that
// rank 0 decides.

module attributes {comm.world = 2 : i64} {
  comm.domain @ctl groups([[0, 1]]) priority(9)
  comm.domain @domain1 groups([[0, 1]]) priority(5)
  comm.domain @domain2 groups([[0, 1]]) priority(-1)
  comm.program @serving entry(@step) ranks([0, 1]) issuer("serving")
  comm.program @placement entry(@move) ranks([0, 1]) issuer("placement")
  func.func @step(%x: tensor<512xf32>, %part: tensor<256xf32>) -> tensor<256xf32> {
    comm.barrier @ctl {decides = 0 : i64}
    %0 = comm.reduce_scatter @domain1 sum dim(0) ins(%x : tensor<512xf32>)
           outs(%part : tensor<256xf32>) -> tensor<256xf32>
    return %0 : tensor<256xf32>
  }
  func.func @move(%x: tensor<4096xf32>, %y: tensor<4096xf32>) {
    %0 = comm.all_reduce @domain2 sum ins(%x : tensor<4096xf32>)
           outs(%y : tensor<4096xf32>) {slot = "optional"} -> tensor<4096xf32>
    return
  }
}

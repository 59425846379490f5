// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One round of two issuers on sixteen ranks, after the field report: a serving
// framework that reduces and scatters in every step, and a placement module that
// now and then moves an expert from one rank to another. Which moves a round has
// is decided once, by rank 0, and carried to all by the round's decision.

module attributes {comm.world = 16 : i64} {
  comm.domain @ctl groups([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]) priority(9)
  comm.domain @domain1 groups([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]) priority(5)
  comm.domain @domain2 groups([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]])

  comm.program @serving entry(@step)
    ranks([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]) issuer("serving")
  comm.program @placement entry(@move)
    ranks([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]) issuer("placement")

  func.func @step(%x: tensor<4096xf32>, %part: tensor<256xf32>) -> tensor<256xf32> {
    comm.barrier @ctl {decides = 0 : i64}
    %0 = comm.reduce_scatter @domain1 sum dim(0) ins(%x : tensor<4096xf32>)
           outs(%part : tensor<256xf32>) -> tensor<256xf32>
    return %0 : tensor<256xf32>
  }

  func.func @move(%expert: tensor<16384xf32>, %into: tensor<16384xf32>) {
    // Slot 0: 2 to 5. Slot 1: 7 to 8. Slot 2: 11 to 14.
    comm.send @domain2 to(5) ins(%expert : tensor<16384xf32>) {pairs = [array<i64: 2, 5>], slot = "optional:2-5"}
    %0 = comm.recv @domain2 from(2) outs(%into : tensor<16384xf32>) {pairs = [array<i64: 2, 5>], slot = "optional:2-5"} -> tensor<16384xf32>
    comm.send @domain2 to(8) ins(%expert : tensor<16384xf32>) {pairs = [array<i64: 7, 8>], slot = "optional:7-8"}
    %1 = comm.recv @domain2 from(7) outs(%into : tensor<16384xf32>) {pairs = [array<i64: 7, 8>], slot = "optional:7-8"} -> tensor<16384xf32>
    comm.send @domain2 to(14) ins(%expert : tensor<16384xf32>) {pairs = [array<i64: 11, 14>], slot = "optional:11-14"}
    %2 = comm.recv @domain2 from(11) outs(%into : tensor<16384xf32>) {pairs = [array<i64: 11, 14>], slot = "optional:11-14"} -> tensor<16384xf32>
    return
  }
}

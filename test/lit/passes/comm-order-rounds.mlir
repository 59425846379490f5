// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Several issuers of a rank: one order of their parts per round, decision first,
// in the plan and beside comm.order; slots and their bits.
//
// RUN: comm-opt %s --comm-order --comm-verify-order | FileCheck %s
// RUN: comm-opt %s --comm-order --comm-verify-order --emit=plan | FileCheck %s --check-prefix=PLAN

// CHECK: comm.order @serve [0, 1, 2] {{.*}}round = array<i64: 0, 1, 4>
// CHECK: comm.order @place [0, 1] {{.*}}round = array<i64: 2, 3>
// CHECK: assumes(["gate=hold"

// PLAN: "rounds":[
// PLAN-NEXT: {"ranks":[0,1],"turns":[{"program":0,"unit":0},{"program":0,"unit":1},{"program":1,"unit":0},{"program":1,"unit":1},{"program":0,"unit":2}]}]
// PLAN: "position":0,"program":"serving","issuer":"serving"{{.*}}"kind":"round_decision"{{.*}}"slot":"always","bit":-1
// PLAN: "position":2,"program":"placement","issuer":"placement"{{.*}}"kind":"all_reduce"{{.*}}"slot":"optional","bit":0
// PLAN: "position":3{{.*}}"slot":"optional","bit":0
module attributes {comm.world = 2 : i64} {
  comm.domain @ctl groups([[0, 1]]) priority(9)
  comm.domain @a groups([[0, 1]]) priority(5)
  comm.domain @b groups([[0, 1]]) priority(3)
  comm.domain @c groups([[0, 1]])
  comm.program @serving entry(@serve) ranks([0, 1]) issuer("serving")
  comm.program @placement entry(@place) ranks([0, 1]) issuer("placement")
  func.func @serve(%x: tensor<4xf32>) {
    comm.barrier @ctl {decides = 1 : i64}
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @c sum ins(%0 : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @place(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) {slot = "optional:move"} -> tensor<4xf32>
    %1 = comm.all_reduce @b sum ins(%0 : tensor<4xf32>) outs(%x : tensor<4xf32>) {slot = "optional:move"} -> tensor<4xf32>
    return
  }
}

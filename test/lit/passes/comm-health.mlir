// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A health check is an issuer with an optional slot: ordered and certified with
// the program, in every phase.
//
// RUN: comm-opt %s --comm-health=elements=64 | FileCheck %s
// RUN: comm-opt %s --comm-health --comm-order --comm-verify-order --emit=plan | FileCheck %s --check-prefix=PLAN
// RUN: comm-opt %s --comm-pipeline="health=true" | FileCheck %s --check-prefix=PLANNED
// RUN: comm-opt %s --comm-pipeline | FileCheck %s --check-prefix=NONE

// CHECK-DAG: comm.domain @health_turn groups({{\[\[}}0, 1]]) priority(9)
// CHECK-DAG: comm.domain @health groups({{\[\[}}0, 1]])
// CHECK-DAG: comm.program @step_program entry(@step) ranks([0, 1]) issuer("main")
// CHECK-DAG: comm.program @health_program entry(@health_check) ranks([0, 1]) issuer("health")
// CHECK: func.func @step
// CHECK-NEXT: comm.barrier @health_turn {decides = 0 : i64}
// CHECK: func.func @health_check() {
// CHECK: comm.barrier @health {slot = "optional:health"}
// CHECK: comm.all_reduce @health sum {{.*}}tensor<2xf32>{{.*}}slot = "optional:health"
// CHECK: comm.all_reduce @health sum {{.*}}tensor<64xf32>{{.*}}slot = "optional:health"
// CHECK-NOT: health_decides

// Three sites of the round are skipped together where nobody asks.
// PLAN-DAG: "kind":"round_decision"{{.*}}"slot":"always"
// PLAN-DAG: "issuer":"health"{{.*}}"kind":"barrier"{{.*}}"slot":"optional","bit":0
// PLAN-DAG: "issuer":"health"{{.*}}"kind":"all_reduce","count":1048576{{.*}}"slot":"optional","bit":0

// PLANNED: comm.certificate
// PLANNED-SAME: gate=hold
// NONE-NOT: @health
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @step(%x: tensor<4xf32>, %o: tensor<4xf32>) -> tensor<4xf32> {
    %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%o : tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

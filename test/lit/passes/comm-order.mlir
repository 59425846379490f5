// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sites number the issues in program order, over all domains; an earlier solution is
// replaced; two issuers need the gate.
//
// RUN: comm-opt %s -split-input-file --comm-order | FileCheck %s
// RUN: comm-opt %s -split-input-file --comm-order --comm-order | FileCheck %s

// CHECK: comm.phase = "ordered"
// CHECK-LABEL: func.func @main
// CHECK: comm.all_reduce @a {{.*}} {site = 0 : i64}
// CHECK: comm.barrier @b {site = 1 : i64}
// CHECK: comm.start broadcast @b {{.*}} {root = 0 : i64, site = 2 : i64}
// CHECK: scf.for
// CHECK: comm.all_reduce @a {{.*}} {site = 3 : i64}
// CHECK-NOT: comm.order @stale
// CHECK: comm.order @main [0, 1, 2, 3]
// CHECK-NEXT: comm.certificate version(1) by("order") digest("{{[0-9a-f]+}}") assumes(["gate=check"
// CHECK-NOT: comm.order
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  comm.order @stale [7]
  func.func @main(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    comm.barrier @b
    %f = comm.start broadcast @b ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) {root = 0 : i64, site = 9 : i64}
    scf.for %i = %c0 to %n step %c1 {
      %1 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    }
    %2 = comm.wait %f ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}

// -----

// CHECK: comm.order @serve [0]
// CHECK: comm.order @place [0]
// CHECK: assumes(["gate=hold"
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  comm.program @serving entry(@serve) ranks([0, 1]) issuer("serving")
  comm.program @placement entry(@place) ranks([0, 1]) issuer("placement")
  func.func @serve() {
    comm.barrier @a
    return
  }
  func.func @place() {
    comm.barrier @b
    return
  }
}

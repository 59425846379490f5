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
// CHECK-NEXT: comm.certificate version(1) by("order") digest("{{[0-9a-f]+}}") assumes(["gate=check", "K>=1", "one-device-per-process", "one-issue-thread-per-rank", "samecomm=serial", "uniform-trip-counts"])
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
// CHECK: assumes(["gate=hold", "K>=1", "one-device-per-process", "order=launch", "samecomm=serial"])
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

// -----

// A long computation waits for the second collective: it goes first. Of equals, the
// domain of higher priority does.
// CHECK-LABEL: func.func @choice
// CHECK: comm.all_reduce @b {{.*}} {site = 0 : i64}
// CHECK: comm.all_reduce @a {{.*}} {site = 1 : i64}
// CHECK: comm.order @choice [0, 1] {domain_path_ns = {a = array<i64: {{[0-9]+}}, {{[0-9]+}}>, b = {{.*}}}, edges = array<i64: 0, 1>, path_ns = {{[0-9]+}} : i64, unordered_path_ns = {{[0-9]+}} : i64}
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  func.func @choice(%x: tensor<1024xf32>, %y: tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>) {
    %0 = comm.all_reduce @a sum ins(%x : tensor<1024xf32>) outs(%x : tensor<1024xf32>) -> tensor<1024xf32>
    %1 = comm.all_reduce @b sum ins(%y : tensor<1024xf32>) outs(%y : tensor<1024xf32>) -> tensor<1024xf32>
    %2 = comm.compute "dot"(%1) {flops = 1000000000000 : i64} : (tensor<1024xf32>) -> tensor<1024xf32>
    return %0, %2 : tensor<1024xf32>, tensor<1024xf32>
  }
}

// -----

// Four groups in a ring of four ranks, one block: of the edges, those that the walk test
// needs are left.
// CHECK-LABEL: func.func @ring_pairs
// CHECK: comm.order @ring_pairs [0, 1] {edges = array<i64: 0, 1>}
module attributes {comm.world = 4 : i64} {
  comm.domain @rows groups([[0, 1], [2, 3]])
  comm.domain @columns groups([[0, 2], [1, 3]])
  func.func @ring_pairs(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = comm.all_reduce @rows sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @columns sum ins(%y : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// A forest: no edges, and a lane for each domain.
// CHECK-LABEL: func.func @forest
// CHECK: comm.all_reduce @left {{.*}} {site = 0 : i64}
// CHECK: comm.all_reduce @right {{.*}} {lane = 1 : i64, site = 1 : i64}
// CHECK: comm.order @forest [0, 1]{{$}}
// CHECK: by("forest")
module attributes {comm.world = 3 : i64} {
  comm.domain @left groups([[0, 1], [2]])
  comm.domain @right groups([[0], [1, 2]])
  func.func @forest(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = comm.all_reduce @left sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @right sum ins(%y : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// Two programs that disagree without need are put in one order.
// CHECK-LABEL: func.func @first
// CHECK: @a {{.*}} {site = 0 : i64}
// CHECK: @b {{.*}} {site = 1 : i64}
// CHECK-LABEL: func.func @second
// CHECK: @a {{.*}} {site = 0 : i64}
// CHECK: @b {{.*}} {site = 1 : i64}
// CHECK: comm.certificate version(1) by("order")
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
  func.func @second(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %1 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

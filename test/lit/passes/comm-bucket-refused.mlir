// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The mistakes of other bucketers (shared/cases O43 to O46), and what else stays
// as it is. Nothing in this file goes into a bucket.
//
// RUN: comm-opt %s --explain --comm-bucket=machine=accelerator -o %t.mlir 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=KEPT < %t.mlir

// CHECK-NOT: comm-bucket bucket-
module attributes {comm.world = 4 : i64} {
  comm.domain @tp groups([[0, 1], [2, 3]])
  comm.domain @dp groups([[0, 2], [1, 3]])

  // O43: a reduce_scatter and an all_reduce of one group, type and reduction are
  // two kinds; nor do domains, reductions and types (O44) mix.
  // KEPT-LABEL: func.func @kinds
  // KEPT: comm.reduce_scatter @tp sum dim(0) ins(%{{.*}} : tensor<4xf32>)
  // KEPT: comm.all_reduce @tp sum ins(%{{.*}} : tensor<4xf32>)
  // KEPT: comm.all_reduce @tp max
  // KEPT: comm.all_reduce @dp sum
  // KEPT: comm.all_reduce @tp sum ins(%{{.*}} : tensor<4xbf16>)
  func.func @kinds(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xbf16>)
      -> (tensor<2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xbf16>) {
    %e = tensor.empty() : tensor<2xf32>
    %f = tensor.empty() : tensor<4xf32>
    %g = tensor.empty() : tensor<4xbf16>
    %a = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<4xf32>) outs(%e : tensor<2xf32>) -> tensor<2xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    %c = comm.all_reduce @tp max ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    %d = comm.all_reduce @dp sum ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) -> tensor<4xf32>
    %h = comm.all_reduce @tp sum ins(%z : tensor<4xbf16>) outs(%g : tensor<4xbf16>) -> tensor<4xbf16>
    return %a, %b, %c, %d, %h : tensor<2xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xbf16>
  }

  // O43, second finding: one would depend on itself, here through a conversion and
  // through a collective of another domain.
  // CHECK-DAG: explain: comm-bucket keep-all_reduce {{.*}} reason=dependence domain=@tp bytes=20
  // KEPT-LABEL: func.func @itself
  // KEPT-COUNT-2: comm.all_reduce @tp
  func.func @itself(%x: tensor<5xf32>) -> tensor<5xf32> {
    %e = tensor.empty() : tensor<5xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<5xf32>) outs(%e : tensor<5xf32>) -> tensor<5xf32>
    %h = arith.truncf %a : tensor<5xf32> to tensor<5xbf16>
    %w = arith.extf %h : tensor<5xbf16> to tensor<5xf32>
    %b = comm.all_reduce @tp sum ins(%w : tensor<5xf32>) outs(%e : tensor<5xf32>) -> tensor<5xf32>
    return %b : tensor<5xf32>
  }
  // KEPT-LABEL: func.func @through_another
  // KEPT: comm.all_reduce @tp
  // KEPT: comm.all_reduce @dp
  // KEPT: comm.all_reduce @tp
  // KEPT: comm.all_reduce @dp
  func.func @through_another(%x: tensor<6xf32>, %y: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
    %e = tensor.empty() : tensor<6xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    %b = comm.all_reduce @dp sum ins(%a : tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    %c = comm.all_reduce @tp sum ins(%b : tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    %d = comm.all_reduce @dp sum ins(%c : tensor<6xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    return %b, %d : tensor<6xf32>, tensor<6xf32>
  }

  // A custom call between them may wait for one of them.
  // CHECK-DAG: explain: comm-bucket keep-all_reduce {{.*}} reason=fence domain=@tp bytes=28
  // KEPT-LABEL: func.func @fence
  // KEPT: comm.all_reduce
  // KEPT: comm.compute
  // KEPT: comm.all_reduce
  func.func @fence(%x: tensor<7xf32>, %y: tensor<7xf32>) -> (tensor<7xf32>, tensor<7xf32>) {
    %e = tensor.empty() : tensor<7xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<7xf32>) outs(%e : tensor<7xf32>) -> tensor<7xf32>
    comm.compute "custom"() {touches_all} : () -> ()
    %b = comm.all_reduce @tp sum ins(%y : tensor<7xf32>) outs(%e : tensor<7xf32>) -> tensor<7xf32>
    return %a, %b : tensor<7xf32>, tensor<7xf32>
  }

  // Latency is no part worth naming of 256 MiB; blocks along an inner dimension
  // would have to be taken apart.
  // CHECK-DAG: explain: comm-bucket keep-all_reduce {{.*}} reason=large domain=@tp bytes=268435456
  // CHECK-DAG: explain: comm-bucket keep-all_gather {{.*}} reason=not-outermost domain=@tp bytes=64
  // KEPT-LABEL: func.func @large
  // KEPT-COUNT-2: comm.all_reduce
  // KEPT-COUNT-2: comm.all_gather
  func.func @large(%x: tensor<67108864xf32>, %y: tensor<67108864xf32>, %u: tensor<4x2xf32>, %v: tensor<4x2xf32>)
      -> (tensor<67108864xf32>, tensor<67108864xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
    %e = tensor.empty() : tensor<67108864xf32>
    %f = tensor.empty() : tensor<4x4xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<67108864xf32>) outs(%e : tensor<67108864xf32>) -> tensor<67108864xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<67108864xf32>) outs(%e : tensor<67108864xf32>) -> tensor<67108864xf32>
    %c = comm.all_gather @tp dim(1) ins(%u : tensor<4x2xf32>) outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>
    %d = comm.all_gather @tp dim(1) ins(%v : tensor<4x2xf32>) outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>
    return %a, %b, %c, %d : tensor<67108864xf32>, tensor<67108864xf32>, tensor<4x4xf32>, tensor<4x4xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An all_reduce that everybody narrows afterwards is taken apart.
//
// RUN: comm-opt %s --explain --comm-simplify=machine=accelerator -o - 2>&1 | FileCheck %s

// CHECK: explain: comm-simplify split-all_reduce {{.*}} reason=narrowed-after domain=@tp bytes=16777216 saved_ns=
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])

  // CHECK-LABEL: func.func @narrowed
  // CHECK: %[[S:.*]] = comm.reduce_scatter @tp sum dim(0) ins(%{{.*}} : tensor<4194304xf32>)
  // CHECK: %[[C:.*]] = linalg.generic {{.*}} ins(%[[S]] : tensor<2097152xf32>) outs(%{{.*}} : tensor<2097152xbf16>)
  // CHECK: %[[G:.*]] = comm.all_gather @tp dim(0) ins(%[[C]] : tensor<2097152xbf16>)
  // CHECK: return %[[G]]
  func.func @narrowed(%x: tensor<4194304xf32> {comm.sharding = []}) -> tensor<4194304xbf16> {
    %e = tensor.empty() : tensor<4194304xf32>
    %f = tensor.empty() : tensor<4194304xbf16>
    %s = comm.all_reduce @tp sum ins(%x : tensor<4194304xf32>) outs(%e : tensor<4194304xf32>) -> tensor<4194304xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
         ins(%s : tensor<4194304xf32>) outs(%f : tensor<4194304xbf16>) {
    ^bb0(%a: f32, %b: bf16):
      %t = arith.truncf %a : f32 to bf16
      linalg.yield %t : bf16
    } -> tensor<4194304xbf16>
    return %y : tensor<4194304xbf16>
  }
}

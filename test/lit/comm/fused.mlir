// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.fused on tensors and on buffers; it is in the plan, as a collective with a
// kernel, and is called like one.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --comm-order --comm-verify-order | FileCheck %s --check-prefix=ORDER
// RUN: comm-opt %s --comm-pipeline | FileCheck %s --check-prefix=PLANNED
// RUN: comm-opt %s --comm-pipeline --emit=plan | FileCheck %s --check-prefix=PLAN
// RUN: comm-opt %s --comm-pipeline=to=lowered | FileCheck %s --check-prefix=LOWERED

module attributes {comm.world = 2 : i64, comm.phase = "decomposed"} {
  comm.domain @tp groups([[0, 1]])

  // CHECK: %{{.*}}:2 = comm.fused all_reduce @tp "fused_reduce cols=64 {{.*}}" ins(%{{.*}}, %{{.*}} : tensor<8x64xf32>, tensor<8x64xf32>) outs(%{{.*}}, %{{.*}} : tensor<8x64xf32>, tensor<512xi8>) {reduction = 1 : i32, shared = 0 : i64, workspace, written = array<i64: 2>} -> tensor<8x64xf32>, tensor<512xi8>
  // ORDER: comm.fused {{.*}}site = 0
  // ORDER: comm.order @main [0]
  // PLANNED: comm.fused all_reduce @tp {{.*}} ins(%{{.*}}, %{{.*}} : memref<8x64xf32>, memref<8x64xf32>) outs(%{{.*}}, %{{.*}} : memref<8x64xf32>, memref<512xi8>)
  // PLAN: "kind":"all_reduce","reduction":"sum","dtype":"F32"
  // PLAN-SAME: "count":512
  // PLAN-SAME: "fused":"fused_reduce cols=64
  // LOWERED: llvm.call @concord_issue
  func.func @main(%x: tensor<8x64xf32>, %res: tensor<8x64xf32>) -> tensor<8x64xf32> {
    %y = tensor.empty() : tensor<8x64xf32>
    %w = tensor.empty() : tensor<512xi8>
    %r:2 = comm.fused all_reduce @tp "fused_reduce cols=64 dtype=f32 members=2 norm=rmsnorm residual=1 rows=8" ins(%x, %res : tensor<8x64xf32>, tensor<8x64xf32>) outs(%y, %w : tensor<8x64xf32>, tensor<512xi8>) {reduction = 1 : i32, shared = 0 : i64, workspace, written = array<i64: 2>} -> tensor<8x64xf32>, tensor<512xi8>
    return %r#0 : tensor<8x64xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What reads the input of a collective in flight is lowered beside it; buffers
// without elements lie in one place.
//
// RUN: comm-opt %s --split-input-file --comm-pipeline="opt=0 to=lowered" | FileCheck %s

// CHECK-LABEL: llvm.func {{.*}}@concord_body
// CHECK: llvm.call @concord_issue
// CHECK: llvm.call @concord_nest
// CHECK: llvm.call @concord_site_wait
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<8xf32>) -> (tensor<16xf32>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<16xf32>
    %f = comm.start all_gather @tp ins(%x : tensor<8xf32>) outs(%e : tensor<16xf32>) {dim = 0 : i64}
    %d = tensor.empty() : tensor<8xf32>
    %z = linalg.add ins(%x, %x : tensor<8xf32>, tensor<8xf32>) outs(%d : tensor<8xf32>) -> tensor<8xf32>
    %y = comm.wait %f ins(%x : tensor<8xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    return %y, %z : tensor<16xf32>, tensor<8xf32>
  }
}

// -----

// CHECK-LABEL: llvm.func {{.*}}@concord_body
// CHECK-COUNT-2: llvm.call @concord_issue
// CHECK-COUNT-2: llvm.call @concord_site_wait
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<0x4xf32>, %y: tensor<0x4xf32>) -> tensor<0x4xf32> {
    %e = tensor.empty() : tensor<0x4xf32>
    %f = comm.start all_reduce @tp ins(%x : tensor<0x4xf32>) outs(%e : tensor<0x4xf32>) {reduction = 1 : i32}
    %d = tensor.empty() : tensor<0x4xf32>
    %g = comm.start all_reduce @tp ins(%y : tensor<0x4xf32>) outs(%d : tensor<0x4xf32>) {reduction = 1 : i32}
    %a = comm.wait %f ins(%x : tensor<0x4xf32>) outs(%e : tensor<0x4xf32>) -> tensor<0x4xf32>
    %b = comm.wait %g ins(%y : tensor<0x4xf32>) outs(%d : tensor<0x4xf32>) -> tensor<0x4xf32>
    %c = linalg.add ins(%a, %b : tensor<0x4xf32>, tensor<0x4xf32>) outs(%d : tensor<0x4xf32>) -> tensor<0x4xf32>
    return %c : tensor<0x4xf32>
  }
}

// -----

// Workspace that is the whole arena, and a buffer without elements in it.
// CHECK-LABEL: llvm.func {{.*}}@concord_body
// CHECK: llvm.call @concord_issue
// CHECK: llvm.call @concord_kernel_run
// CHECK: llvm.call @concord_site_wait
module attributes {comm.world = 2 : i64, comm.phase = "decomposed"} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<0x2xf32>, %a: tensor<2x1xf32>, %b: tensor<1x1xf32>) -> (tensor<2x1xf32>, tensor<0x2xf32>) {
    %e = tensor.empty() : tensor<0x2xf32>
    %f = comm.start all_reduce @tp ins(%x : tensor<0x2xf32>) outs(%e : tensor<0x2xf32>) {reduction = 1 : i32}
    %d = tensor.empty() : tensor<2x1xf32>
    %w = tensor.empty() : tensor<4096xi8>
    %k:2 = comm.kernel "gemm dtype=f32 k=1 m=2 n=1" ins(%a, %b : tensor<2x1xf32>, tensor<1x1xf32>)
        outs(%d, %w : tensor<2x1xf32>, tensor<4096xi8>) {workspace} -> tensor<2x1xf32>, tensor<4096xi8>
    %y = comm.wait %f ins(%x : tensor<0x2xf32>) outs(%e : tensor<0x2xf32>) -> tensor<0x2xf32>
    %i = tensor.empty() : tensor<0x2xf32>
    %s = linalg.add ins(%y, %y : tensor<0x2xf32>, tensor<0x2xf32>) outs(%i : tensor<0x2xf32>) -> tensor<0x2xf32>
    return %k#0, %s : tensor<2x1xf32>, tensor<0x2xf32>
  }
}

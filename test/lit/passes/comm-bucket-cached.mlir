// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// O46: a program that is taken up again from where it was saved, so that the pass
// is skipped, has its buckets' memory all the same: it is part of the plan.
//
// RUN: comm-opt %s --comm-bucket=machine=accelerator --comm-pipeline=to=ordered -o %t.mlir
// RUN: comm-opt %t.mlir --comm-pipeline --emit=plan -o %t.again
// RUN: comm-opt %s --comm-bucket=machine=accelerator --comm-pipeline --emit=plan -o %t.once
// RUN: diff %t.again %t.once
// RUN: FileCheck %s < %t.mlir

// CHECK: comm.all_reduce @tp sum ins(%{{.*}} : tensor<8xf32>)
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @tp sum ins(%y : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

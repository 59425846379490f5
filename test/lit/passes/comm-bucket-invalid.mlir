// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options that make no sense; and O45: a layout that members would not agree on.
// Programs of different ranks have different texts, so nothing is joined there.
//
// RUN: not comm-opt %s --comm-bucket=max-bytes=-1 2>&1 | FileCheck %s --check-prefix=LIMIT
// RUN: comm-opt %s --explain --comm-bucket=machine=accelerator -o - 2>&1 | FileCheck %s

// LIMIT: comm-bucket: limits are not negative

// CHECK-COUNT-2: explain: comm-bucket keep-all_reduce {{.*}} reason=several-programs domain=@pp bytes=16
// CHECK: func.func @a
// CHECK-COUNT-2: comm.all_reduce @pp
module attributes {comm.world = 2 : i64} {
  comm.domain @pp groups([[0, 1]])
  comm.program @first entry(@a) ranks([0])
  comm.program @second entry(@b) ranks([1])
  func.func @a(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %0 = comm.all_reduce @pp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @pp sum ins(%y : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
  func.func @b(%x: tensor<4xf32>) -> tensor<4xf32> {
    %e = tensor.empty() : tensor<4xf32>
    %0 = comm.all_reduce @pp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %n = linalg.exp ins(%0 : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @pp sum ins(%n : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine that is none. And collectives of programs that only some members run:
// taking one away there would leave the others waiting.
//
// RUN: not comm-opt %s --comm-simplify=machine=/nonexistent 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: comm-opt %s --explain --comm-simplify=machine=cpu -o - 2>&1 | FileCheck %s

// MACHINE: cost model:{{.*}}/nonexistent

// CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=several-programs domain=@pp bytes=16
// CHECK-DAG: explain: comm-simplify remove-all_reduce {{.*}} reason=dead domain=@tp bytes=16
module attributes {comm.world = 4 : i64} {
  comm.domain @tp groups([[0, 1], [2, 3]])
  comm.domain @pp groups([[0, 2], [1, 3]])
  comm.program @first entry(@a) ranks([0, 1])
  comm.program @second entry(@b) ranks([2, 3])
  // CHECK: func.func @a
  // CHECK-NOT: comm.all_reduce @tp
  // CHECK: comm.all_reduce @pp
  func.func @a(%x: tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @pp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @b(%x: tensor<4xf32>) -> tensor<4xf32> {
    %e = tensor.empty() : tensor<4xf32>
    %1 = comm.all_reduce @pp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

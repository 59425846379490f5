// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pieces along a dimension that the collective leaves alone; what has none stays
// whole, with the reason.
//
// RUN: comm-opt %s --comm-chunk="bytes=64" | FileCheck %s
// RUN: comm-opt %s --comm-chunk="bytes=64" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: comm-opt %s --comm-chunk="bytes=64" --comm-order --comm-verify-order -o /dev/null

// WHY: explain: comm-chunk chunk {{.*}} reason=chunk-bytes bytes=128 pieces=2
// WHY: explain: comm-chunk chunk {{.*}} reason=chunk-bytes bytes=256 pieces=4
// WHY: explain: comm-chunk keep-whole {{.*}} reason=no-free-dimension bytes=128 pieces=1
// WHY: explain: comm-chunk keep-whole {{.*}} reason=uneven-blocks
// WHY: explain: comm-chunk chunk {{.*}} reason=chunk-bytes bytes=84 pieces=2
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  // CHECK-LABEL: func.func @main
  // CHECK: %[[X0:.*]] = tensor.extract_slice %arg0[0, 0] [4, 4] [1, 1]
  // CHECK: %[[R0:.*]] = comm.all_reduce @dp sum ins(%[[X0]] : tensor<4x4xf32>) outs(%{{.*}} : tensor<4x4xf32>) -> tensor<4x4xf32>
  // CHECK: %[[X1:.*]] = tensor.extract_slice %arg0[4, 0] [4, 4] [1, 1]
  // CHECK: %[[R1:.*]] = comm.all_reduce @dp sum ins(%[[X1]]
  // CHECK: %[[P:.*]] = tensor.insert_slice %[[R0]] into %{{.*}}[0, 0] [4, 4] [1, 1]
  // CHECK: tensor.insert_slice %[[R1]] into %[[P]][4, 0] [4, 4] [1, 1]
  // A gather along dimension 0 is cut along dimension 1.
  // CHECK: tensor.extract_slice %arg0[0, 0] [8, 1] [1, 1]
  // CHECK: comm.all_gather @dp dim(0) ins(%{{.*}} : tensor<8x1xf32>) outs(%{{.*}} : tensor<16x1xf32>)
  // CHECK-COUNT-3: comm.all_gather @dp
  // CHECK: comm.all_gather @dp dim(0) ins(%{{.*}} : tensor<16xf32>)
  // CHECK: comm.all_to_all
  // The last piece is smaller; where the outs are data, each piece takes its own.
  // CHECK: comm.reduce @dp sum root(0) ins(%{{.*}} : tensor<4x3xf32>) outs(%{{.*}} : tensor<4x3xf32>)
  // CHECK: comm.reduce @dp sum root(0) ins(%{{.*}} : tensor<3x3xf32>) outs(%{{.*}} : tensor<3x3xf32>)
  func.func @main(%x: tensor<8x4xf32>, %v: tensor<16xf32>, %u: tensor<30x2xf32>, %k: tensor<7x3xf32>, %o: tensor<7x3xf32>)
      -> (tensor<8x4xf32>, tensor<16x4xf32>, tensor<32xf32>, tensor<30x2xf32>, tensor<7x3xf32>) {
    %e0 = tensor.empty() : tensor<8x4xf32>
    %0 = comm.all_reduce @dp sum ins(%x : tensor<8x4xf32>) outs(%e0 : tensor<8x4xf32>) -> tensor<8x4xf32>
    %e1 = tensor.empty() : tensor<16x4xf32>
    %1 = comm.all_gather @dp dim(0) ins(%x : tensor<8x4xf32>) outs(%e1 : tensor<16x4xf32>) -> tensor<16x4xf32>
    %e2 = tensor.empty() : tensor<32xf32>
    %2 = comm.all_gather @dp dim(0) ins(%v : tensor<16xf32>) outs(%e2 : tensor<32xf32>) -> tensor<32xf32>
    %e3 = tensor.empty() : tensor<30x2xf32>
    %3 = comm.all_to_all @dp split(0) concat(0) sizes([10, 20] to [15, 15]) ins(%u : tensor<30x2xf32>) outs(%e3 : tensor<30x2xf32>) -> tensor<30x2xf32>
    %4 = comm.reduce @dp sum root(0) ins(%k : tensor<7x3xf32>) outs(%o : tensor<7x3xf32>) -> tensor<7x3xf32>
    return %0, %1, %2, %3, %4 : tensor<8x4xf32>, tensor<16x4xf32>, tensor<32xf32>, tensor<30x2xf32>, tensor<7x3xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A gradient of gigabytes is cut, and stays behind the small reductions that
// computation waits for. Rows and columns of a mesh make a cycle, so there is one
// lane; a forest gives each priority its own.
//
// RUN: comm-opt %s -split-input-file --comm-overlap="growth=4" | FileCheck %s
// RUN: comm-opt %s -split-input-file --comm-overlap="growth=4" --comm-order --comm-verify-order -o /dev/null

// CHECK-LABEL: func.func @mesh
// CHECK-NOT: lane
// CHECK-COUNT-8: tensor.extract_slice
// CHECK: return
module attributes {comm.world = 4 : i64} {
  comm.domain @tp groups([[0, 1], [2, 3]]) priority(1)
  comm.domain @dp groups([[0, 2], [1, 3]])
  func.func @mesh(%g: tensor<16x4000000xf32>, %x: tensor<1000xf32>) -> (tensor<16x4000000xf32>, tensor<1000xf32>) {
    %e = tensor.empty() : tensor<16x4000000xf32>
    %d = tensor.empty() : tensor<1000xf32>
    %0 = comm.all_reduce @dp sum ins(%g : tensor<16x4000000xf32>) outs(%e : tensor<16x4000000xf32>) -> tensor<16x4000000xf32>
    %1 = comm.compute "a"(%x) {flops = 10000000000 : i64} : (tensor<1000xf32>) -> tensor<1000xf32>
    %2 = comm.all_reduce @tp sum ins(%1 : tensor<1000xf32>) outs(%d : tensor<1000xf32>) -> tensor<1000xf32>
    %3 = comm.compute "b"(%2) {flops = 10000000000000 : i64} : (tensor<1000xf32>) -> tensor<1000xf32>
    return %0, %3 : tensor<16x4000000xf32>, tensor<1000xf32>
  }
}

// -----

// CHECK-LABEL: func.func @forest
// CHECK: all_reduce @tp {{.*}}lane = 1
// CHECK: return
module attributes {comm.world = 4 : i64} {
  comm.domain @tp groups([[0, 1], [2, 3]]) priority(1)
  comm.domain @dp groups([[0, 2], [1], [3]])
  func.func @forest(%g: tensor<4000000xf32>, %x: tensor<1000xf32>) -> (tensor<4000000xf32>, tensor<1000xf32>) {
    %e = tensor.empty() : tensor<4000000xf32>
    %d = tensor.empty() : tensor<1000xf32>
    %0 = comm.all_reduce @dp sum ins(%g : tensor<4000000xf32>) outs(%e : tensor<4000000xf32>) -> tensor<4000000xf32>
    %1 = comm.compute "a"(%x) {flops = 10000000000 : i64} : (tensor<1000xf32>) -> tensor<1000xf32>
    %2 = comm.all_reduce @tp sum ins(%1 : tensor<1000xf32>) outs(%d : tensor<1000xf32>) -> tensor<1000xf32>
    %3 = comm.compute "b"(%2) {flops = 10000000000 : i64} : (tensor<1000xf32>) -> tensor<1000xf32>
    return %0, %3 : tensor<4000000xf32>, tensor<1000xf32>
  }
}

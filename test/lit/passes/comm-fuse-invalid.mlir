// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine that nobody knows is an error; and what does not pay is kept.
//
// RUN: not comm-opt %s --comm-fuse=machine=/nowhere/machine.json 2>&1 | FileCheck %s --check-prefix=MACHINE
// RUN: comm-opt %s --comm-fuse="machine=cpu min-gain-percent=99" --explain 2>&1 | FileCheck %s

// MACHINE: error: comm-fuse: {{.*}}/nowhere/machine.json
// CHECK: explain: comm-fuse keep {{.*}} reason=no-gain collective=all_reduce pair=gemm+all_reduce bytes=196608 product_us={{[0-9.]+}} predicted_unfused_us=
// CHECK: comm.all_reduce
module {
comm.domain @tp groups([[0, 1]])
func.func @gemm(%x: tensor<256x32xf32>, %w: tensor<32x192xf32>) -> tensor<256x192xf32> {
  %e = tensor.empty() : tensor<256x192xf32>
  %c = comm.kernel "gemm dtype=f32 k=32 m=256 n=192" ins(%x, %w : tensor<256x32xf32>, tensor<32x192xf32>) outs(%e : tensor<256x192xf32>) -> tensor<256x192xf32>
  %a = comm.all_reduce @tp sum ins(%c : tensor<256x192xf32>) outs(%e : tensor<256x192xf32>) -> tensor<256x192xf32>
  return %a : tensor<256x192xf32>
}
}

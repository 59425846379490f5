// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the cost model takes and what it refuses, on the built-in figures.
//
// RUN: comm-opt %s --split-input-file --comm-fuse=machine=cpu --explain -o /dev/null 2>&1 | FileCheck %s

// In the caches of close cores a large sum takes as long as apart.
// CHECK: explain: comm-fuse keep {{.*}} reason=no-gain collective=all_reduce pair=gemm+all_reduce bytes=4194304
module {
comm.domain @tp groups([[0, 1]])
func.func @large(%x: tensor<1024x64xf32>, %w: tensor<64x1024xf32>) -> tensor<1024x1024xf32> {
  %e = tensor.empty() : tensor<1024x1024xf32>
  %c = comm.kernel "gemm dtype=f32 k=64 m=1024 n=1024" ins(%x, %w : tensor<1024x64xf32>, tensor<64x1024xf32>) outs(%e : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %a = comm.all_reduce @tp sum ins(%c : tensor<1024x1024xf32>) outs(%e : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  return %a : tensor<1024x1024xf32>
}
}

// -----

// Few rows: the others' parts arrive while the own one is computed.
// CHECK: explain: comm-fuse fuse {{.*}} reason=fewer-bytes collective=all_reduce pair=gemm+all_reduce bytes=262144
module {
comm.domain @tp groups([[0, 1]])
func.func @few_rows(%x: tensor<16x64xf32>, %w: tensor<64x4096xf32>) -> tensor<16x4096xf32> {
  %e = tensor.empty() : tensor<16x4096xf32>
  %c = comm.kernel "gemm dtype=f32 k=64 m=16 n=4096" ins(%x, %w : tensor<16x64xf32>, tensor<64x4096xf32>) outs(%e : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %a = comm.all_reduce @tp sum ins(%c : tensor<16x4096xf32>) outs(%e : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  return %a : tensor<16x4096xf32>
}
}

// -----

// The same with so long a product that the sum hardly counts.
// CHECK: explain: comm-fuse keep {{.*}} reason=small-share collective=all_reduce pair=gemm+all_reduce bytes=262144
module {
comm.domain @tp groups([[0, 1]])
func.func @long_product(%x: tensor<16x1024xf32>, %w: tensor<1024x4096xf32>) -> tensor<16x4096xf32> {
  %e = tensor.empty() : tensor<16x4096xf32>
  %c = comm.kernel "gemm dtype=f32 k=1024 m=16 n=4096" ins(%x, %w : tensor<16x1024xf32>, tensor<1024x4096xf32>) outs(%e : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  %a = comm.all_reduce @tp sum ins(%c : tensor<16x4096xf32>) outs(%e : tensor<16x4096xf32>) -> tensor<16x4096xf32>
  return %a : tensor<16x4096xf32>
}
}

// -----

// A gather saves a copy of what the product reads anyway.
// CHECK: explain: comm-fuse fuse {{.*}} reason=fewer-bytes collective=all_gather pair=all_gather+gemm
module {
comm.domain @tp groups([[0, 1]])
func.func @gather(%x: tensor<512x1024xf32>, %w: tensor<1024x64xf32>) -> tensor<1024x64xf32> {
  %e = tensor.empty() : tensor<1024x1024xf32>
  %f = tensor.empty() : tensor<1024x64xf32>
  %a = comm.all_gather @tp dim(0) ins(%x : tensor<512x1024xf32>) outs(%e : tensor<1024x1024xf32>) -> tensor<1024x1024xf32>
  %c = comm.kernel "gemm dtype=f32 k=1024 m=1024 n=64" ins(%a, %w : tensor<1024x1024xf32>, tensor<1024x64xf32>) outs(%f : tensor<1024x64xf32>) -> tensor<1024x64xf32>
  return %c : tensor<1024x64xf32>
}
}

// -----

// One row: the product takes as long as reading its weight.
// CHECK: explain: comm-fuse keep {{.*}} reason=small-share collective=all_reduce pair=gemm+all_reduce bytes=16384 product_us=152.5
module {
  comm.domain @tp groups([[0, 1]])
  func.func @one_row(%x: tensor<1x1024xf32>, %w: tensor<1024x4096xf32>) -> tensor<1x4096xf32> {
    %e = tensor.empty() : tensor<1x4096xf32>
    %c = comm.kernel "gemm dtype=f32 k=1024 m=1 n=4096" ins(%x, %w : tensor<1x1024xf32>, tensor<1024x4096xf32>) outs(%e : tensor<1x4096xf32>) -> tensor<1x4096xf32>
    %r = comm.all_reduce @tp sum ins(%c : tensor<1x4096xf32>) outs(%e : tensor<1x4096xf32>) -> tensor<1x4096xf32>
    return %r : tensor<1x4096xf32>
  }
}

// -----

// A dispatch before so long a product that its gain is within the error of the
// prediction.
// CHECK: explain: comm-fuse keep {{.*}} reason=small-gain collective=all_to_all pair=all_to_all+gemm
module {
comm.domain @ep groups([[0, 1]])
func.func @dispatch_long_product(%x: tensor<32x4096xf32>, %w: tensor<4096x2048xf32>) -> tensor<32x2048xf32> {
  %e = tensor.empty() : tensor<32x4096xf32>
  %f = tensor.empty() : tensor<32x2048xf32>
  %a = comm.all_to_all @ep split(0) concat(0) ins(%x : tensor<32x4096xf32>) outs(%e : tensor<32x4096xf32>) -> tensor<32x4096xf32>
  %c = comm.kernel "gemm dtype=f32 k=4096 m=32 n=2048" ins(%a, %w : tensor<32x4096xf32>, tensor<4096x2048xf32>) outs(%f : tensor<32x2048xf32>) -> tensor<32x2048xf32>
  return %c : tensor<32x2048xf32>
}
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of linalg become kernel calls, which comm-fuse then sees; a sum
// may be a named operation.
//
// RUN: comm-opt %s --comm-decompose | FileCheck %s
// RUN: comm-opt %s --comm-decompose --comm-fuse=force | FileCheck %s --check-prefix=FUSED

#mk = affine_map<(m, n, k) -> (m, k)>
#km = affine_map<(m, n, k) -> (k, m)>
#nk = affine_map<(m, n, k) -> (n, k)>
#mn = affine_map<(m, n, k) -> (m, n)>
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])

  // CHECK-LABEL: func.func @row_parallel
  // CHECK: comm.kernel "gemm dtype=f32 k=32 m=64 n=128"
  // CHECK: comm.all_reduce
  // FUSED-LABEL: func.func @row_parallel
  // FUSED: comm.fused all_reduce @tp "fused_reduce {{.*}}residual=1
  // FUSED-NOT: linalg.add
  func.func @row_parallel(%x: tensor<64x32xf32>, %w: tensor<32x128xf32>, %r: tensor<64x128xf32>) -> tensor<64x128xf32> {
    %z = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<64x128xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
    %p = linalg.matmul ins(%x, %w : tensor<64x32xf32>, tensor<32x128xf32>) outs(%f : tensor<64x128xf32>) -> tensor<64x128xf32>
    %a = comm.all_reduce @tp sum ins(%p : tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
    %s = linalg.add ins(%r, %a : tensor<64x128xf32>, tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
    return %s : tensor<64x128xf32>
  }

  // CHECK-LABEL: func.func @transposed
  // CHECK: comm.kernel "gemm dtype=bf16 k=8 m=4 n=16 transa=1 transb=1"
  func.func @transposed(%x: tensor<8x4xbf16>, %w: tensor<16x8xbf16>) -> tensor<4x16xbf16> {
    %z = arith.constant 0.0 : bf16
    %e = tensor.empty() : tensor<4x16xbf16>
    %f = linalg.fill ins(%z : bf16) outs(%e : tensor<4x16xbf16>) -> tensor<4x16xbf16>
    %p = linalg.generic {indexing_maps = [#km, #nk, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%x, %w : tensor<8x4xbf16>, tensor<16x8xbf16>) outs(%f : tensor<4x16xbf16>) {
    ^bb0(%a: bf16, %b: bf16, %c: bf16):
      %0 = arith.mulf %a, %b : bf16
      %1 = arith.addf %c, %0 : bf16
      linalg.yield %1 : bf16
    } -> tensor<4x16xbf16>
    return %p : tensor<4x16xbf16>
  }

  // Added to something, of integers, or none at all: these stay.
  // CHECK-LABEL: func.func @stay
  // CHECK-NOT: comm.kernel
  // CHECK: return
  func.func @stay(%x: tensor<4x8xf32>, %w: tensor<8x4xf32>, %c: tensor<4x4xf32>, %i: tensor<4x4xi32>, %v: tensor<4x0xf32>, %u: tensor<0x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xi32>, tensor<4x4xf32>) {
    %z = arith.constant 0.0 : f32
    %zi = arith.constant 0 : i32
    %ei = tensor.empty() : tensor<4x4xi32>
    %fi = linalg.fill ins(%zi : i32) outs(%ei : tensor<4x4xi32>) -> tensor<4x4xi32>
    %e = tensor.empty() : tensor<4x4xf32>
    %f = linalg.fill ins(%z : f32) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
    %0 = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x4xf32>) outs(%c : tensor<4x4xf32>) -> tensor<4x4xf32>
    %1 = linalg.matmul ins(%i, %i : tensor<4x4xi32>, tensor<4x4xi32>) outs(%fi : tensor<4x4xi32>) -> tensor<4x4xi32>
    %2 = linalg.matmul ins(%v, %u : tensor<4x0xf32>, tensor<0x4xf32>) outs(%f : tensor<4x4xf32>) -> tensor<4x4xf32>
    return %0, %1, %2 : tensor<4x4xf32>, tensor<4x4xi32>, tensor<4x4xf32>
  }
}

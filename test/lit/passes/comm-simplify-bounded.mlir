// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With bounded dimensions: what is right at all sizes is rewritten in all members,
// what costs decide is decided once, and what has to divide stays.
//
// RUN: comm-opt %s --explain --comm-simplify=machine=accelerator 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t

// CHECK-LABEL: module @member0
// CHECK: func.func @own_shard
// CHECK: comm.reduce_scatter @tp sum dim(1) {{.*}} -> tensor<4093x4xf32>
// CHECK: func.func @one_block
// CHECK: comm.all_gather
// CHECK: func.func @narrowed
// CHECK: comm.all_reduce
// CHECK-LABEL: module @member1
// CHECK: func.func @own_shard
// CHECK: comm.reduce_scatter @tp sum dim(1) {{.*}} -> tensor<2x4xf32>
// CHECK: func.func @one_block
// CHECK: comm.all_gather
// CHECK: func.func @narrowed
// CHECK: comm.all_reduce
// CHECK-LABEL: module @member2
// CHECK: func.func @own_shard
// CHECK: comm.reduce_scatter @tp sum dim(1) {{.*}} -> tensor<3x4xf32>

// WHY: comm-simplify make-reduce_scatter
// WHY: comm-simplify keep-all_reduce {{.*}} reason=bounded-sizes
module attributes {comm.dims = [["n", 1, 4093]]} {
module @member0 attributes {comm.dims = [["n", 1, 4093]], comm.point = array<i64: 4093>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @own_shard(%x: tensor<4093x8xf32>) -> tensor<4093x4xf32> {
    %e = tensor.empty() : tensor<4093x8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<4093x8xf32>) outs(%e : tensor<4093x8xf32>) -> tensor<4093x8xf32>
    %r = comm.rank @tp
    %c4 = arith.constant 4 : index
    %o = arith.muli %r, %c4 : index
    %s = tensor.extract_slice %a[0, %o] [4093, 4] [1, 1] : tensor<4093x8xf32> to tensor<4093x4xf32>
    return %s : tensor<4093x4xf32>
  }
  func.func @one_block(%x: tensor<4093x2048xf32>) -> tensor<4093x2048xf32> {
    %e = tensor.empty() : tensor<8186x2048xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<4093x2048xf32>) outs(%e : tensor<8186x2048xf32>) -> tensor<8186x2048xf32>
    %s = tensor.extract_slice %g[4093, 0] [4093, 2048] [1, 1] : tensor<8186x2048xf32> to tensor<4093x2048xf32>
    return %s : tensor<4093x2048xf32>
  }
  func.func @narrowed(%x: tensor<4093x2048xf32>) -> tensor<4093x2048xf16> {
    %e = tensor.empty() : tensor<4093x2048xf32>
    %f = tensor.empty() : tensor<4093x2048xf16>
    %a = comm.all_reduce @tp sum ins(%x : tensor<4093x2048xf32>) outs(%e : tensor<4093x2048xf32>) -> tensor<4093x2048xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4093x2048xf32>) outs(%f : tensor<4093x2048xf16>) {
    ^bb0(%i: f32, %o: f16):
      %t = arith.truncf %i : f32 to f16
      linalg.yield %t : f16
    } -> tensor<4093x2048xf16>
    return %c : tensor<4093x2048xf16>
  }
}
module @member1 attributes {comm.dims = [["n", 1, 4093]], comm.point = array<i64: 2>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @own_shard(%x: tensor<2x8xf32>) -> tensor<2x4xf32> {
    %e = tensor.empty() : tensor<2x8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<2x8xf32>) outs(%e : tensor<2x8xf32>) -> tensor<2x8xf32>
    %r = comm.rank @tp
    %c4 = arith.constant 4 : index
    %o = arith.muli %r, %c4 : index
    %s = tensor.extract_slice %a[0, %o] [2, 4] [1, 1] : tensor<2x8xf32> to tensor<2x4xf32>
    return %s : tensor<2x4xf32>
  }
  func.func @one_block(%x: tensor<2x2048xf32>) -> tensor<2x2048xf32> {
    %e = tensor.empty() : tensor<4x2048xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<2x2048xf32>) outs(%e : tensor<4x2048xf32>) -> tensor<4x2048xf32>
    %s = tensor.extract_slice %g[2, 0] [2, 2048] [1, 1] : tensor<4x2048xf32> to tensor<2x2048xf32>
    return %s : tensor<2x2048xf32>
  }
  func.func @narrowed(%x: tensor<2x2048xf32>) -> tensor<2x2048xf16> {
    %e = tensor.empty() : tensor<2x2048xf32>
    %f = tensor.empty() : tensor<2x2048xf16>
    %a = comm.all_reduce @tp sum ins(%x : tensor<2x2048xf32>) outs(%e : tensor<2x2048xf32>) -> tensor<2x2048xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<2x2048xf32>) outs(%f : tensor<2x2048xf16>) {
    ^bb0(%i: f32, %o: f16):
      %t = arith.truncf %i : f32 to f16
      linalg.yield %t : f16
    } -> tensor<2x2048xf16>
    return %c : tensor<2x2048xf16>
  }
}
module @member2 attributes {comm.dims = [["n", 1, 4093]], comm.point = array<i64: 3>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @own_shard(%x: tensor<3x8xf32>) -> tensor<3x4xf32> {
    %e = tensor.empty() : tensor<3x8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<3x8xf32>) outs(%e : tensor<3x8xf32>) -> tensor<3x8xf32>
    %r = comm.rank @tp
    %c4 = arith.constant 4 : index
    %o = arith.muli %r, %c4 : index
    %s = tensor.extract_slice %a[0, %o] [3, 4] [1, 1] : tensor<3x8xf32> to tensor<3x4xf32>
    return %s : tensor<3x4xf32>
  }
  func.func @one_block(%x: tensor<3x2048xf32>) -> tensor<3x2048xf32> {
    %e = tensor.empty() : tensor<6x2048xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<3x2048xf32>) outs(%e : tensor<6x2048xf32>) -> tensor<6x2048xf32>
    %s = tensor.extract_slice %g[3, 0] [3, 2048] [1, 1] : tensor<6x2048xf32> to tensor<3x2048xf32>
    return %s : tensor<3x2048xf32>
  }
  func.func @narrowed(%x: tensor<3x2048xf32>) -> tensor<3x2048xf16> {
    %e = tensor.empty() : tensor<3x2048xf32>
    %f = tensor.empty() : tensor<3x2048xf16>
    %a = comm.all_reduce @tp sum ins(%x : tensor<3x2048xf32>) outs(%e : tensor<3x2048xf32>) -> tensor<3x2048xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<3x2048xf32>) outs(%f : tensor<3x2048xf16>) {
    ^bb0(%i: f32, %o: f16):
      %t = arith.truncf %i : f32 to f16
      linalg.yield %t : f16
    } -> tensor<3x2048xf16>
    return %c : tensor<3x2048xf16>
  }
}
}

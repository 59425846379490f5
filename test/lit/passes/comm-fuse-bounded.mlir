// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With bounded dimensions all members are fused alike, be their rows many or few.
// Each has the kernel of its own rows; workspace has one size until the most that
// any size needs is known; whatever another size writes at its peers is said.
//
// RUN: comm-opt %s --explain --comm-fuse="machine=cpu force" 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t

// CHECK-LABEL: module @member0
// CHECK: comm.fused all_reduce @tp "fused_reduce cols=128 dtype=f32 eps=1e-05 [[$EVERY:(every=1 )?]]gamma=1 members=2 norm=rmsnorm residual=1 rows=509"
// CHECK-SAME: tensor<64xi8>
// CHECK: comm.fused all_reduce @tp "fused_reduce cols=192 dtype=f32 members=2 product=\22gemm dtype=f32 k=32 m=509 n=192\22 rows=509"
// CHECK-SAME: tensor<64xi8>
// CHECK-SAME: written = array<i64: 2, 3>
// CHECK: comm.all_to_all
// CHECK-LABEL: module @member1
// CHECK: comm.fused all_reduce @tp "fused_reduce cols=128 dtype=f32 eps=1e-05 [[$EVERY]]gamma=1 members=2 norm=rmsnorm residual=1 rows=2"
// CHECK: comm.fused all_reduce @tp "fused_reduce cols=192 dtype=f32 members=2 product=\22gemm dtype=f32 k=32 m=2 n=192\22 rows=2"
// CHECK-SAME: written = array<i64: 2, 3>
// CHECK-LABEL: module @member2
// CHECK: comm.fused {{.*}} rows=3"
// CHECK: comm.fused {{.*}} rows=3"

// WHY: comm-fuse keep {{.*}} reason=bounded-sizes collective=all_to_all

#id = affine_map<(i, j) -> (i, j)>
module attributes {comm.dims = [["n", 1, 509]]} {
module @member0 attributes {comm.dims = [["n", 1, 509]], comm.point = array<i64: 509>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @norm(%x: tensor<509x128xf32>, %r: tensor<509x128xf32>, %g: tensor<128xf32>) -> tensor<509x128xf32> {
    %e = tensor.empty() : tensor<509x128xf32>
    %w = tensor.empty() : tensor<64xi8>
    %a = comm.all_reduce @tp sum ins(%x : tensor<509x128xf32>) outs(%e : tensor<509x128xf32>) -> tensor<509x128xf32>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %r : tensor<509x128xf32>, tensor<509x128xf32>) outs(%e : tensor<509x128xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.addf %p, %q : f32
      linalg.yield %0 : f32
    } -> tensor<509x128xf32>
    %n:2 = comm.kernel "rmsnorm beta=0 cols=128 dtype=f32 eps=1e-05 gamma=1 rows=509" ins(%s, %g : tensor<509x128xf32>, tensor<128xf32>) outs(%e, %w : tensor<509x128xf32>, tensor<64xi8>) {workspace} -> tensor<509x128xf32>, tensor<64xi8>
    return %n#0 : tensor<509x128xf32>
  }
  func.func @gemm(%x: tensor<509x32xf32>, %w: tensor<32x192xf32>) -> tensor<509x192xf32> {
    %e = tensor.empty() : tensor<509x192xf32>
    %s = tensor.empty() : tensor<64xi8>
    %c:2 = comm.kernel "gemm dtype=f32 k=32 m=509 n=192" ins(%x, %w : tensor<509x32xf32>, tensor<32x192xf32>) outs(%e, %s : tensor<509x192xf32>, tensor<64xi8>) {workspace} -> tensor<509x192xf32>, tensor<64xi8>
    %a = comm.all_reduce @tp sum ins(%c#0 : tensor<509x192xf32>) outs(%e : tensor<509x192xf32>) -> tensor<509x192xf32>
    return %a : tensor<509x192xf32>
  }
  func.func @exchange(%x: tensor<1018x32xf32>, %w: tensor<32x16xf32>) -> tensor<1018x16xf32> {
    %e = tensor.empty() : tensor<1018x32xf32>
    %f = tensor.empty() : tensor<1018x16xf32>
    %s = tensor.empty() : tensor<64xi8>
    %t = comm.all_to_all @tp split(0) concat(0) ins(%x : tensor<1018x32xf32>) outs(%e : tensor<1018x32xf32>) -> tensor<1018x32xf32>
    %c:2 = comm.kernel "gemm dtype=f32 k=32 m=1018 n=16" ins(%t, %w : tensor<1018x32xf32>, tensor<32x16xf32>) outs(%f, %s : tensor<1018x16xf32>, tensor<64xi8>) {workspace} -> tensor<1018x16xf32>, tensor<64xi8>
    return %c#0 : tensor<1018x16xf32>
  }
}
module @member1 attributes {comm.dims = [["n", 1, 509]], comm.point = array<i64: 2>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @norm(%x: tensor<2x128xf32>, %r: tensor<2x128xf32>, %g: tensor<128xf32>) -> tensor<2x128xf32> {
    %e = tensor.empty() : tensor<2x128xf32>
    %w = tensor.empty() : tensor<64xi8>
    %a = comm.all_reduce @tp sum ins(%x : tensor<2x128xf32>) outs(%e : tensor<2x128xf32>) -> tensor<2x128xf32>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %r : tensor<2x128xf32>, tensor<2x128xf32>) outs(%e : tensor<2x128xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.addf %p, %q : f32
      linalg.yield %0 : f32
    } -> tensor<2x128xf32>
    %n:2 = comm.kernel "rmsnorm beta=0 cols=128 dtype=f32 eps=1e-05 gamma=1 rows=2" ins(%s, %g : tensor<2x128xf32>, tensor<128xf32>) outs(%e, %w : tensor<2x128xf32>, tensor<64xi8>) {workspace} -> tensor<2x128xf32>, tensor<64xi8>
    return %n#0 : tensor<2x128xf32>
  }
  func.func @gemm(%x: tensor<2x32xf32>, %w: tensor<32x192xf32>) -> tensor<2x192xf32> {
    %e = tensor.empty() : tensor<2x192xf32>
    %s = tensor.empty() : tensor<64xi8>
    %c:2 = comm.kernel "gemm dtype=f32 k=32 m=2 n=192" ins(%x, %w : tensor<2x32xf32>, tensor<32x192xf32>) outs(%e, %s : tensor<2x192xf32>, tensor<64xi8>) {workspace} -> tensor<2x192xf32>, tensor<64xi8>
    %a = comm.all_reduce @tp sum ins(%c#0 : tensor<2x192xf32>) outs(%e : tensor<2x192xf32>) -> tensor<2x192xf32>
    return %a : tensor<2x192xf32>
  }
  func.func @exchange(%x: tensor<4x32xf32>, %w: tensor<32x16xf32>) -> tensor<4x16xf32> {
    %e = tensor.empty() : tensor<4x32xf32>
    %f = tensor.empty() : tensor<4x16xf32>
    %s = tensor.empty() : tensor<64xi8>
    %t = comm.all_to_all @tp split(0) concat(0) ins(%x : tensor<4x32xf32>) outs(%e : tensor<4x32xf32>) -> tensor<4x32xf32>
    %c:2 = comm.kernel "gemm dtype=f32 k=32 m=4 n=16" ins(%t, %w : tensor<4x32xf32>, tensor<32x16xf32>) outs(%f, %s : tensor<4x16xf32>, tensor<64xi8>) {workspace} -> tensor<4x16xf32>, tensor<64xi8>
    return %c#0 : tensor<4x16xf32>
  }
}
module @member2 attributes {comm.dims = [["n", 1, 509]], comm.point = array<i64: 3>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @norm(%x: tensor<3x128xf32>, %r: tensor<3x128xf32>, %g: tensor<128xf32>) -> tensor<3x128xf32> {
    %e = tensor.empty() : tensor<3x128xf32>
    %w = tensor.empty() : tensor<64xi8>
    %a = comm.all_reduce @tp sum ins(%x : tensor<3x128xf32>) outs(%e : tensor<3x128xf32>) -> tensor<3x128xf32>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%a, %r : tensor<3x128xf32>, tensor<3x128xf32>) outs(%e : tensor<3x128xf32>) {
    ^bb0(%p: f32, %q: f32, %o: f32):
      %0 = arith.addf %p, %q : f32
      linalg.yield %0 : f32
    } -> tensor<3x128xf32>
    %n:2 = comm.kernel "rmsnorm beta=0 cols=128 dtype=f32 eps=1e-05 gamma=1 rows=3" ins(%s, %g : tensor<3x128xf32>, tensor<128xf32>) outs(%e, %w : tensor<3x128xf32>, tensor<64xi8>) {workspace} -> tensor<3x128xf32>, tensor<64xi8>
    return %n#0 : tensor<3x128xf32>
  }
  func.func @gemm(%x: tensor<3x32xf32>, %w: tensor<32x192xf32>) -> tensor<3x192xf32> {
    %e = tensor.empty() : tensor<3x192xf32>
    %s = tensor.empty() : tensor<64xi8>
    %c:2 = comm.kernel "gemm dtype=f32 k=32 m=3 n=192" ins(%x, %w : tensor<3x32xf32>, tensor<32x192xf32>) outs(%e, %s : tensor<3x192xf32>, tensor<64xi8>) {workspace} -> tensor<3x192xf32>, tensor<64xi8>
    %a = comm.all_reduce @tp sum ins(%c#0 : tensor<3x192xf32>) outs(%e : tensor<3x192xf32>) -> tensor<3x192xf32>
    return %a : tensor<3x192xf32>
  }
  func.func @exchange(%x: tensor<6x32xf32>, %w: tensor<32x16xf32>) -> tensor<6x16xf32> {
    %e = tensor.empty() : tensor<6x32xf32>
    %f = tensor.empty() : tensor<6x16xf32>
    %s = tensor.empty() : tensor<64xi8>
    %t = comm.all_to_all @tp split(0) concat(0) ins(%x : tensor<6x32xf32>) outs(%e : tensor<6x32xf32>) -> tensor<6x32xf32>
    %c:2 = comm.kernel "gemm dtype=f32 k=32 m=6 n=16" ins(%t, %w : tensor<6x32xf32>, tensor<32x16xf32>) outs(%f, %s : tensor<6x16xf32>, tensor<64xi8>) {workspace} -> tensor<6x16xf32>, tensor<64xi8>
    return %c#0 : tensor<6x16xf32>
  }
}
}

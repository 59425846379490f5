// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is fused, in either order of operands and through reshapes, what is kept, and
// what is said about it.
//
// RUN: comm-opt %s --split-input-file --comm-fuse=force | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-fuse="machine=cpu force" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>

// all_reduce + bias + residual + norm, where the sum is the next layer's residual.
// CHECK-LABEL: func.func @norm
// CHECK-SAME: (%[[X:.*]]: tensor<64x128xf32>, %[[R:.*]]: tensor<64x128xf32>, %[[B:.*]]: tensor<128xf32>, %[[G:.*]]: tensor<128xf32>)
// CHECK: %[[F:.*]]:3 = comm.fused all_reduce @tp "fused_reduce bias=1 cols=128 dtype=f32 eps=1e-05 {{(every=1 )?}}gamma=1 members=2 norm=rmsnorm residual=1 rows=64 sum=1" ins(%[[X]], %[[B]], %[[R]], %[[G]] :
// CHECK-SAME: reduction = 1 : i32, shared = 0 : i64, workspace
// CHECK-NOT: comm.all_reduce
// CHECK-NOT: linalg.generic
// CHECK-NOT: comm.kernel
// CHECK: return %[[F]]#0, %[[F]]#1
// WHY: explain: comm-fuse fuse {{.*}} reason={{fewer-bytes|every-rank-whole}} collective=all_reduce pair=all_reduce+bias+residual+rmsnorm bytes=32768 product_us=0.0 predicted_unfused_us={{[0-9.]+}} predicted_fused_us={{[0-9.]+}}
module {
comm.domain @tp groups([[0, 1]])
func.func @norm(%x: tensor<64x128xf32>, %r: tensor<64x128xf32>, %b: tensor<128xf32>, %g: tensor<128xf32>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %e = tensor.empty() : tensor<64x128xf32>
  %w = tensor.empty() : tensor<512xi8>
  %a = comm.all_reduce @tp sum ins(%x : tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) -> tensor<64x128xf32>
  %s = linalg.generic {indexing_maps = [#row, #id, #id, #id], iterator_types = ["parallel", "parallel"]} ins(%b, %r, %a : tensor<128xf32>, tensor<64x128xf32>, tensor<64x128xf32>) outs(%e : tensor<64x128xf32>) {
  ^bb0(%p: f32, %q: f32, %t: f32, %o: f32):
    %0 = arith.addf %p, %t : f32
    %1 = arith.addf %q, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<64x128xf32>
  %n:2 = comm.kernel "rmsnorm beta=0 cols=128 dtype=f32 eps=1e-05 gamma=1 rows=64" ins(%s, %g : tensor<64x128xf32>, tensor<128xf32>) outs(%e, %w : tensor<64x128xf32>, tensor<512xi8>) {workspace} -> tensor<64x128xf32>, tensor<512xi8>
  return %n#0, %s : tensor<64x128xf32>, tensor<64x128xf32>
}
}

// -----

// gemm + all_reduce, through reshapes on both sides.
// CHECK-LABEL: func.func @gemm
// CHECK: comm.fused all_reduce @tp "fused_reduce cols=192 dtype=f32 members=2 product=\22gemm dtype=f32 k=32 m=256 n=192\22 rows=256"
// CHECK-SAME: shared = 3 : i64
// CHECK-SAME: written = array<i64: 3>
// CHECK-NOT: comm.kernel
// CHECK-NOT: comm.all_reduce
// CHECK: return
// WHY: explain: comm-fuse fuse {{.*}} pair=gemm+all_reduce
module {
comm.domain @tp groups([[0, 1]])
func.func @gemm(%x: tensor<256x32xf32>, %w: tensor<32x192xf32>) -> tensor<4x64x192xf32> {
  %e = tensor.empty() : tensor<256x192xf32>
  %f = tensor.empty() : tensor<4x64x192xf32>
  %c = comm.kernel "gemm dtype=f32 k=32 m=256 n=192" ins(%x, %w : tensor<256x32xf32>, tensor<32x192xf32>) outs(%e : tensor<256x192xf32>) -> tensor<256x192xf32>
  %d = tensor.expand_shape %c [[0, 1], [2]] output_shape [4, 64, 192] : tensor<256x192xf32> into tensor<4x64x192xf32>
  %a = comm.all_reduce @tp sum ins(%d : tensor<4x64x192xf32>) outs(%f : tensor<4x64x192xf32>) -> tensor<4x64x192xf32>
  return %a : tensor<4x64x192xf32>
}
}

// -----

// gemm + reduce_scatter of rows.
// CHECK-LABEL: func.func @scatter
// CHECK: comm.fused reduce_scatter @tp "fused_reduce cols=64 dtype=bf16 members=2 product={{.*}} rows=256 scatter=1"
// CHECK-SAME: written = array<i64>
// WHY: explain: comm-fuse fuse {{.*}} pair=gemm+reduce_scatter
module {
comm.domain @tp groups([[0, 1]])
func.func @scatter(%x: tensor<256x32xbf16>, %w: tensor<32x64xbf16>) -> tensor<128x64xbf16> {
  %e = tensor.empty() : tensor<256x64xbf16>
  %f = tensor.empty() : tensor<128x64xbf16>
  %c = comm.kernel "gemm dtype=bf16 k=32 m=256 n=64" ins(%x, %w : tensor<256x32xbf16>, tensor<32x64xbf16>) outs(%e : tensor<256x64xbf16>) -> tensor<256x64xbf16>
  %a = comm.reduce_scatter @tp sum dim(0) ins(%c : tensor<256x64xbf16>) outs(%f : tensor<128x64xbf16>) -> tensor<128x64xbf16>
  return %a : tensor<128x64xbf16>
}
}

// -----

// all_gather of rows + gemm.
// CHECK-LABEL: func.func @gather
// CHECK-SAME: (%[[X:.*]]: tensor<128x32xf32>, %[[W:.*]]: tensor<32x64xf32>)
// CHECK: comm.fused all_gather @tp "fused_gather dtype=f32 members=2 product=\22gemm dtype=f32 k=32 m=256 n=64\22" ins(%[[X]], %[[W]] :
// CHECK-SAME: shared = 0 : i64
// CHECK-NOT: comm.all_gather
// WHY: explain: comm-fuse fuse {{.*}} pair=all_gather+gemm
module {
comm.domain @tp groups([[0, 1]])
func.func @gather(%x: tensor<128x32xf32>, %w: tensor<32x64xf32>) -> tensor<256x64xf32> {
  %e = tensor.empty() : tensor<256x64xf32>
  %f = tensor.empty() : tensor<256x32xf32>
  %a = comm.all_gather @tp dim(0) ins(%x : tensor<128x32xf32>) outs(%f : tensor<256x32xf32>) -> tensor<256x32xf32>
  %c = comm.kernel "gemm dtype=f32 k=32 m=256 n=64" ins(%a, %w : tensor<256x32xf32>, tensor<32x64xf32>) outs(%e : tensor<256x64xf32>) -> tensor<256x64xf32>
  return %c : tensor<256x64xf32>
}
}

// -----

// Kept: nothing around; another reduction; integers; a payload that travels with its
// flag; a product whose partial sums somebody else reads; parts inside rows.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: comm.fused
// CHECK: return
// WHY: explain: comm-fuse keep {{.*}} reason=no-neighbour collective=all_reduce
// WHY: explain: comm-fuse keep {{.*}} reason=not-a-sum collective=all_reduce
// WHY: explain: comm-fuse keep {{.*}} reason=dtype collective=all_reduce
// WHY: explain: comm-fuse keep {{.*}} reason=inline collective=all_reduce pair=gemm+all_reduce
// WHY: explain: comm-fuse keep {{.*}} reason=no-neighbour collective=all_reduce
// WHY: explain: comm-fuse keep {{.*}} reason=split-inside-rows collective=reduce_scatter
// WHY: explain: comm-fuse keep {{.*}} reason=gathers-inside-rows collective=all_gather
module {
comm.domain @tp groups([[0, 1]])
func.func @kept(%x: tensor<64x64xf32>, %i: tensor<64x64xi32>, %s: tensor<4x16xf32>, %w: tensor<16x16xf32>, %v: tensor<64x64xf32>, %h: tensor<64x32xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xi32>, tensor<4x16xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x64xf32>) {
  %e = tensor.empty() : tensor<64x64xf32>
  %ei = tensor.empty() : tensor<64x64xi32>
  %es = tensor.empty() : tensor<4x16xf32>
  %eh = tensor.empty() : tensor<64x32xf32>
  %0 = comm.all_reduce @tp sum ins(%x : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = comm.kernel "gemm dtype=f32 k=64 m=64 n=64" ins(%x, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = comm.all_reduce @tp max ins(%c : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = comm.all_reduce @tp sum ins(%i : tensor<64x64xi32>) outs(%ei : tensor<64x64xi32>) -> tensor<64x64xi32>
  %p = comm.kernel "gemm dtype=f32 k=16 m=4 n=16" ins(%s, %w : tensor<4x16xf32>, tensor<16x16xf32>) outs(%es : tensor<4x16xf32>) -> tensor<4x16xf32>
  %3 = comm.all_reduce @tp sum ins(%p : tensor<4x16xf32>) outs(%es : tensor<4x16xf32>) -> tensor<4x16xf32>
  %d = comm.kernel "gemm dtype=f32 k=64 m=64 n=64" ins(%1, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %4 = comm.all_reduce @tp sum ins(%d : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %5 = comm.reduce_scatter @tp sum dim(1) ins(%4 : tensor<64x64xf32>) outs(%eh : tensor<64x32xf32>) -> tensor<64x32xf32>
  %6 = comm.all_gather @tp dim(1) ins(%h : tensor<64x32xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %7 = comm.kernel "gemm dtype=f32 k=64 m=64 n=64" ins(%6, %v : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %0, %1, %2, %3, %d, %4, %5, %7 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x64xi32>, tensor<4x16xf32>, tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x64xf32>
}
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All-to-alls of a mixture of experts: what is fused with the products of the
// experts, what is kept, and what is said about it.
//
// RUN: comm-opt %s --split-input-file --comm-fuse=force | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-fuse="machine=cpu force" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY
// RUN: comm-opt %s --split-input-file --comm-fuse="machine=cpu min-gain-percent=99" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=GAIN
// RUN: comm-opt %s --split-input-file --comm-fuse="machine=cpu force exact" --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=EXACT

#id = affine_map<(g, i, j) -> (g, i, j)>
#row = affine_map<(g, i, j) -> (g, i, 0)>

// Rows for two experts, each with two products that take them; through reshapes,
// and behind another operation that the second product's bias comes from.
// CHECK-LABEL: func.func @dispatch
// CHECK-SAME: (%[[X:.*]]: tensor<2x1x32x64xf32>, %[[W:.*]]: tensor<2x64x48xf32>, %[[V:.*]]: tensor<2x64x48xf32>, %[[B:.*]]: tensor<48xf32>)
// CHECK: %[[F:.*]]:{{[0-9]}} = comm.fused all_to_all @ep "fused_dispatch dtype=f32 groups=2 members=2 product=\22gemm act=silu dtype=f32 k=64 m=64 n=48\22 product1=\22gemm bias=row dtype=f32 k=64 m=64 n=48\22" ins(%[[X]], %[[W]], %[[V]], %[[B]] :
// CHECK-SAME: outs({{.*}} : tensor<2x64x48xf32>, tensor<2x64x48xf32>
// CHECK-SAME: shared = 0 : i64
// CHECK-SAME: written = array<i64>
// CHECK-NOT: comm.all_to_all
// CHECK-NOT: comm.kernel
// CHECK: return %[[F]]#0, %[[F]]#1
// WHY: explain: comm-fuse fuse {{.*}} reason=fewer-bytes collective=all_to_all pair=all_to_all+grouped_gemm bytes=16384 product_us={{[0-9.]+}} predicted_unfused_us={{[0-9.]+}} predicted_fused_us={{[0-9.]+}}
// GAIN: explain: comm-fuse keep {{.*}} reason=no-gain collective=all_to_all pair=all_to_all+grouped_gemm
module {
comm.domain @ep groups([[0, 1]])
func.func @dispatch(%x: tensor<2x1x32x64xf32>, %w: tensor<2x64x48xf32>, %v: tensor<2x64x48xf32>, %b: tensor<48xf32>) -> (tensor<2x64x48xf32>, tensor<2x64x48xf32>) {
  %e = tensor.empty() : tensor<1x2x32x64xf32>
  %o = tensor.empty() : tensor<2x64x48xf32>
  %a = comm.all_to_all @ep split(0) concat(1) ins(%x : tensor<2x1x32x64xf32>) outs(%e : tensor<1x2x32x64xf32>) -> tensor<1x2x32x64xf32>
  %r = tensor.collapse_shape %a [[0], [1, 2], [3]] : tensor<1x2x32x64xf32> into tensor<1x64x64xf32>
  %0 = comm.kernel "gemm act=silu astrides=[0] batch=[2] bstrides=[3072] cstrides=[3072] dtype=f32 k=64 m=64 n=48" ins(%r, %w : tensor<1x64x64xf32>, tensor<2x64x48xf32>) outs(%o : tensor<2x64x48xf32>) -> tensor<2x64x48xf32>
  %1 = comm.kernel "gemm astrides=[0] batch=[2] bias=row bstrides=[3072] cstrides=[3072] dtype=f32 k=64 m=64 n=48" ins(%r, %v, %b : tensor<1x64x64xf32>, tensor<2x64x48xf32>, tensor<48xf32>) outs(%o : tensor<2x64x48xf32>) -> tensor<2x64x48xf32>
  return %0, %1 : tensor<2x64x48xf32>, tensor<2x64x48xf32>
}
}

// -----

#id = affine_map<(g, i, j) -> (g, i, j)>
#row = affine_map<(g, i, j) -> (g, i, 0)>

// Each expert's rows times the tokens' shares, added up and returned.
// CHECK-LABEL: func.func @combine
// CHECK-SAME: (%[[H:.*]]: tensor<2x64x48xf32>, %[[W:.*]]: tensor<2x48x64xf32>, %[[S:.*]]: tensor<2x64x1xf32>)
// CHECK: %[[F:.*]]:{{[0-9]}} = comm.fused all_to_all @ep "fused_combine dtype=f32 groups=2 members=2 product=\22gemm dtype=f32 k=48 m=64 n=64\22 weighed=1" ins(%[[H]], %[[W]], %[[S]] :
// CHECK-SAME: outs(%{{.*}}, %{{.*}} : tensor<2x1x32x64xf32>, tensor<{{[0-9]+}}xi8>)
// CHECK-SAME: shared = 3 : i64, workspace, written = array<i64: 3>
// CHECK-NOT: comm.all_to_all
// CHECK-NOT: comm.kernel
// CHECK-NOT: linalg.generic
// CHECK: return %[[F]]#0
// WHY: explain: comm-fuse fuse {{.*}} reason=fewer-bytes collective=all_to_all pair=grouped_gemm+all_to_all
// GAIN: explain: comm-fuse keep {{.*}} reason=no-gain collective=all_to_all pair=grouped_gemm+all_to_all
// EXACT: explain: comm-fuse keep {{.*}} reason=exact collective=all_to_all pair=grouped_gemm+all_to_all
module {
comm.domain @ep groups([[0, 1]])
func.func @combine(%h: tensor<2x64x48xf32>, %w: tensor<2x48x64xf32>, %s: tensor<2x64x1xf32>) -> tensor<2x1x32x64xf32> {
  %axis = arith.constant dense<0> : tensor<1xi64>
  %e = tensor.empty() : tensor<2x64x64xf32>
  %f = tensor.empty() : tensor<64x64xf32>
  %g = tensor.empty() : tensor<2x1x32x64xf32>
  %ws = tensor.empty() : tensor<8192xi8>
  %0 = comm.kernel "gemm astrides=[3072] batch=[2] bstrides=[3072] cstrides=[4096] dtype=f32 k=48 m=64 n=64" ins(%h, %w : tensor<2x64x48xf32>, tensor<2x48x64xf32>) outs(%e : tensor<2x64x64xf32>) -> tensor<2x64x64xf32>
  %1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel", "parallel"]} ins(%0, %s : tensor<2x64x64xf32>, tensor<2x64x1xf32>) outs(%e : tensor<2x64x64xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %q, %p : f32
    linalg.yield %m : f32
  } -> tensor<2x64x64xf32>
  %2:2 = comm.kernel "onnx.reducesum attr.keepdims=0 in=[[f32,2,64,64],[i64,1]] opset=17 out=[[f32,64,64]]" ins(%1, %axis : tensor<2x64x64xf32>, tensor<1xi64>) outs(%f, %ws : tensor<64x64xf32>, tensor<8192xi8>) {workspace} -> tensor<64x64xf32>, tensor<8192xi8>
  %3 = tensor.expand_shape %2#0 [[0, 1, 2], [3]] output_shape [1, 2, 32, 64] : tensor<64x64xf32> into tensor<1x2x32x64xf32>
  %4 = comm.all_to_all @ep split(1) concat(0) ins(%3 : tensor<1x2x32x64xf32>) outs(%g : tensor<2x1x32x64xf32>) -> tensor<2x1x32x64xf32>
  return %4 : tensor<2x1x32x64xf32>
}
}

// -----

// One expert, not weighed: stored at the owner as it is made.
// CHECK-LABEL: func.func @plain
// CHECK: comm.fused all_to_all @ep "fused_combine dtype=f32 groups=1 members=2 product=\22gemm dtype=f32 k=48 m=64 n=64\22"
// CHECK-NOT: comm.all_to_all
// CHECK: return
// WHY: explain: comm-fuse fuse {{.*}} pair=gemm+all_to_all
module {
comm.domain @ep groups([[0, 1]])
func.func @plain(%h: tensor<64x48xf32>, %w: tensor<48x64xf32>) -> tensor<64x64xf32> {
  %e = tensor.empty() : tensor<64x64xf32>
  %0 = comm.kernel "gemm dtype=f32 k=48 m=64 n=64" ins(%h, %w : tensor<64x48xf32>, tensor<48x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = comm.all_to_all @ep split(0) concat(0) ins(%0 : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
}

// -----

// Kept: blocks of different sizes; rows that are wanted otherwise, too; blocks that
// are pieces of rows; and what has no product beside it.
// CHECK-LABEL: func.func @kept
// CHECK-COUNT-5: comm.all_to_all
// WHY: explain: comm-fuse keep {{.*}} reason=uneven-blocks collective=all_to_all pair=all_to_all+gemm
// WHY: explain: comm-fuse keep {{.*}} reason=other-uses collective=all_to_all
// WHY: explain: comm-fuse keep {{.*}} reason=not-whole-blocks collective=all_to_all pair=all_to_all+gemm
// WHY: explain: comm-fuse keep {{.*}} reason=no-neighbour collective=all_to_all
// WHY: explain: comm-fuse keep {{.*}} reason=dtype collective=all_to_all
module {
comm.domain @ep groups([[0, 1]])
func.func @kept(%x: tensor<64x48xf32>, %w: tensor<48x64xf32>, %y: tensor<64x96xf32>, %z: tensor<64x48xi32>) -> (tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x48xf32>, tensor<128x64xf32>, tensor<64x48xf32>, tensor<64x48xi32>) {
  %e = tensor.empty() : tensor<64x48xf32>
  %o = tensor.empty() : tensor<64x64xf32>
  %0 = comm.all_to_all @ep split(0) concat(0) sizes([24, 40] to [24, 40]) ins(%x : tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %1 = comm.kernel "gemm dtype=f32 k=48 m=64 n=64" ins(%0, %w : tensor<64x48xf32>, tensor<48x64xf32>) outs(%o : tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = comm.all_to_all @ep split(0) concat(0) ins(%x : tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %3 = comm.kernel "gemm dtype=f32 k=48 m=64 n=64" ins(%2, %w : tensor<64x48xf32>, tensor<48x64xf32>) outs(%o : tensor<64x64xf32>) -> tensor<64x64xf32>
  %f = tensor.empty() : tensor<128x48xf32>
  %p = tensor.empty() : tensor<128x64xf32>
  %4 = comm.all_to_all @ep split(1) concat(0) ins(%y : tensor<64x96xf32>) outs(%f : tensor<128x48xf32>) -> tensor<128x48xf32>
  %5 = comm.kernel "gemm dtype=f32 k=48 m=128 n=64" ins(%4, %w : tensor<128x48xf32>, tensor<48x64xf32>) outs(%p : tensor<128x64xf32>) -> tensor<128x64xf32>
  %6 = comm.all_to_all @ep split(0) concat(0) ins(%x : tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %g = tensor.empty() : tensor<64x48xi32>
  %7 = comm.all_to_all @ep split(0) concat(0) ins(%z : tensor<64x48xi32>) outs(%g : tensor<64x48xi32>) -> tensor<64x48xi32>
  return %1, %3, %2, %5, %6, %7 : tensor<64x64xf32>, tensor<64x64xf32>, tensor<64x48xf32>, tensor<128x64xf32>, tensor<64x48xf32>, tensor<64x48xi32>
}
}

// -----

// The other member runs another program: it would wait for another issue.
// WHY: explain: comm-fuse keep {{.*}} reason=several-programs collective=all_to_all
module attributes {comm.world = 2 : i64} {
comm.domain @ep groups([[0, 1]])
comm.program @first entry(@a) ranks([0])
comm.program @second entry(@b) ranks([1])
func.func @a(%x: tensor<64x48xf32>, %w: tensor<48x64xf32>) -> tensor<64x64xf32> {
  %e = tensor.empty() : tensor<64x48xf32>
  %o = tensor.empty() : tensor<64x64xf32>
  %0 = comm.all_to_all @ep split(0) concat(0) ins(%x : tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  %1 = comm.kernel "gemm dtype=f32 k=48 m=64 n=64" ins(%0, %w : tensor<64x48xf32>, tensor<48x64xf32>) outs(%o : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}
func.func @b(%x: tensor<64x48xf32>) -> tensor<64x48xf32> {
  %e = tensor.empty() : tensor<64x48xf32>
  %0 = comm.all_to_all @ep split(0) concat(0) ins(%x : tensor<64x48xf32>) outs(%e : tensor<64x48xf32>) -> tensor<64x48xf32>
  return %0 : tensor<64x48xf32>
}
}

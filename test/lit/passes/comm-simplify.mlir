// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every rewrite of comm-simplify, with its reason.
//
// RUN: comm-opt %s --comm-simplify=machine=cpu | FileCheck %s
// RUN: comm-opt %s --explain --comm-simplify=machine=cpu -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

module attributes {comm.world = 4 : i64, comm.mesh = [["dp", 2], ["tp", 2]]} {
  comm.domain @tp groups([[0, 1], [2, 3]])
  comm.domain @dp groups([[0, 2], [1, 3]])
  comm.domain @all groups([[0, 1, 2, 3]])

  // Each member takes its own shard.
  // CHECK-LABEL: func.func @own_shard
  // CHECK-NOT: all_reduce
  // CHECK: %[[R:.*]] = comm.reduce_scatter @tp sum dim(0) ins(%{{.*}} : tensor<8x4xf32>) outs(%{{.*}} : tensor<4x4xf32>) -> tensor<4x4xf32>
  // CHECK-NOT: extract_slice
  // CHECK: return %[[R]]
  // WHY-DAG: explain: comm-simplify make-reduce_scatter {{.*}} reason=own-shard domain=@tp bytes=128 dim=0
  func.func @own_shard(%x: tensor<8x4xf32> {comm.sharding = []}) -> tensor<4x4xf32> {
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<8x4xf32>
    %s = comm.all_reduce @tp sum ins(%x : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c4 : index
    %y = tensor.extract_slice %s[%o, 0] [4, 4] [1, 1] : tensor<8x4xf32> to tensor<4x4xf32>
    return %y : tensor<4x4xf32>
  }

  // Through a reshape, the shard found by a table, of a started collective.
  // CHECK-LABEL: func.func @own_shard_started
  // CHECK: %[[V:.*]] = tensor.expand_shape %{{.*}} tensor<8xf32> into tensor<2x4xf32>
  // CHECK: %[[F:.*]] = comm.start reduce_scatter @tp ins(%[[V]] : tensor<2x4xf32>) outs(%{{.*}} : tensor<2x2xf32>) {dim = 1 : i64, reduction = 1 : i32}
  // CHECK: comm.kernel
  // CHECK: %[[R:.*]] = comm.wait %[[F]]
  // CHECK: return %{{.*}}, %[[R]]
  func.func @own_shard_started(%x: tensor<8xf32> {comm.sharding = []}) -> (tensor<4xf32>, tensor<2x2xf32>) {
    %table = arith.constant dense<[0, 2, 0, 2]> : tensor<4xindex>
    %e = tensor.empty() : tensor<8xf32>
    %k = tensor.empty() : tensor<4xf32>
    %f = comm.start all_reduce @tp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {reduction = 1 : i32}
    %b = comm.kernel "busy" outs(%k : tensor<4xf32>) -> tensor<4xf32>
    %s = comm.wait %f ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %v = tensor.expand_shape %s [[0, 1]] output_shape [2, 4] : tensor<8xf32> into tensor<2x4xf32>
    %r = comm.rank @all
    %o = tensor.extract %table[%r] : tensor<4xindex>
    %y = tensor.extract_slice %v[0, %o] [2, 2] [1, 1] : tensor<2x4xf32> to tensor<2x2xf32>
    return %b, %y : tensor<4xf32>, tensor<2x2xf32>
  }

  // CHECK-LABEL: func.func @gather_of_scatter
  // CHECK-NOT: reduce_scatter
  // CHECK: %[[R:.*]] = comm.all_reduce @tp sum ins(%{{.*}} : tensor<8xf32>)
  // CHECK-NOT: all_gather
  // CHECK: return %[[R]]
  // WHY-DAG: explain: comm-simplify make-all_reduce {{.*}} reason=scatter-and-gather domain=@tp bytes=32
  func.func @gather_of_scatter(%x: tensor<8xf32> {comm.sharding = []}) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<8xf32>
    %s = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<8xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %y = comm.all_gather @tp dim(0) ins(%s : tensor<4xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }

  // The own shard of what was gathered is what was there.
  // CHECK-LABEL: func.func @shard_of_gather
  // CHECK-SAME: (%[[X:.*]]: tensor<4xf32>
  // CHECK-NOT: comm.all_gather
  // CHECK: return %[[X]]
  // WHY-DAG: explain: comm-simplify drop-slice {{.*}} reason=own-shard domain=@tp bytes=32 dim=0
  // WHY-DAG: explain: comm-simplify remove-all_gather {{.*}} reason=dead domain=@tp bytes=32
  func.func @shard_of_gather(%x: tensor<4xf32> {comm.sharding = []}) -> tensor<4xf32> {
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<8xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<4xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c4 : index
    %y = tensor.extract_slice %g[%o] [4] [1] : tensor<8xf32> to tensor<4xf32>
    return %y : tensor<4xf32>
  }

  // One member's block is all that is taken.
  // CHECK-LABEL: func.func @one_block
  // CHECK: comm.broadcast @tp root(1) ins(%{{.*}} : tensor<4096xf32>)
  // CHECK-NOT: all_gather
  // WHY-DAG: explain: comm-simplify make-broadcast {{.*}} reason=one-block domain=@tp bytes=32768 root=1
  func.func @one_block(%x: tensor<4096xf32> {comm.sharding = []}) -> tensor<4096xf32> {
    %e = tensor.empty() : tensor<8192xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<4096xf32>) outs(%e : tensor<8192xf32>) -> tensor<8192xf32>
    %y = tensor.extract_slice %g[4096] [4096] [1] : tensor<8192xf32> to tensor<4096xf32>
    return %y : tensor<4096xf32>
  }

  // A part along another dimension is taken before.
  // CHECK-LABEL: func.func @part
  // CHECK: %[[P:.*]] = tensor.extract_slice %{{.*}}[0, 2] [4, 3] [1, 1] : tensor<4x8xf32> to tensor<4x3xf32>
  // CHECK: comm.all_gather @tp dim(0) ins(%[[P]] : tensor<4x3xf32>) outs(%{{.*}} : tensor<8x3xf32>)
  // WHY-DAG: explain: comm-simplify narrow-all_gather {{.*}} reason=part-taken domain=@tp bytes=256 saved_bytes=160
  func.func @part(%x: tensor<4x8xf32> {comm.sharding = []}) -> tensor<8x3xf32> {
    %e = tensor.empty() : tensor<8x8xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<4x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
    %y = tensor.extract_slice %g[0, 2] [8, 3] [1, 1] : tensor<8x8xf32> to tensor<8x3xf32>
    return %y : tensor<8x3xf32>
  }

  // A whole argument is the same on all members.
  // CHECK-LABEL: func.func @gather_of_own
  // CHECK-SAME: (%[[X:.*]]: tensor<8xf32>)
  // CHECK-NOT: comm.all_gather
  // CHECK: return %[[X]]
  // WHY-DAG: explain: comm-simplify remove-all_gather {{.*}} reason=own-shard-of-equal
  func.func @gather_of_own(%x: tensor<8xf32>) -> tensor<8xf32> {
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<8xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c4 : index
    %s = tensor.extract_slice %x[%o] [4] [1] : tensor<8xf32> to tensor<4xf32>
    %g = comm.all_gather @tp dim(0) ins(%s : tensor<4xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %g : tensor<8xf32>
  }

  // CHECK-LABEL: func.func @sum_of_two
  // CHECK-SAME: (%[[X:.*]]: tensor<8xf32> {{.*}}, %[[Y:.*]]: tensor<8xf32>
  // CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[Y]] : tensor<8xf32>, tensor<8xf32>)
  // CHECK: comm.all_reduce @tp sum ins(%[[S]] : tensor<8xf32>)
  // CHECK-NOT: all_reduce
  // WHY-DAG: explain: comm-simplify merge-all_reduce {{.*}} reason=add-of-two domain=@tp bytes=32 rounding=differs
  func.func @sum_of_two(%x: tensor<8xf32> {comm.sharding = []}, %y: tensor<8xf32> {comm.sharding = []}) -> tensor<8xf32> {
    %e = tensor.empty() : tensor<8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.add ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %s : tensor<8xf32>
  }

  // Of two reduce_scatters the larger arrays are added; integers keep their bits.
  // CHECK-LABEL: func.func @sum_of_scatters
  // CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<8xi32>, tensor<8xi32>)
  // CHECK: comm.reduce_scatter @tp sum dim(0) ins(%[[S]] : tensor<8xi32>)
  // CHECK-NOT: comm.reduce_scatter
  // WHY-DAG: explain: comm-simplify merge-reduce_scatter {{.*}} reason=add-of-two domain=@tp bytes=32 rounding=same
  func.func @sum_of_scatters(%x: tensor<8xi32> {comm.sharding = []}, %y: tensor<8xi32> {comm.sharding = []}) -> tensor<4xi32> {
    %e = tensor.empty() : tensor<4xi32>
    %a = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<8xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    %b = comm.reduce_scatter @tp sum dim(0) ins(%y : tensor<8xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    %s = linalg.add ins(%a, %b : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    return %s : tensor<4xi32>
  }

  // CHECK-LABEL: func.func @duplicate
  // CHECK: %[[A:.*]] = comm.all_reduce @tp
  // CHECK-NOT: all_reduce
  // CHECK: return %[[A]], %[[A]]
  // WHY-DAG: explain: comm-simplify remove-all_reduce {{.*}} reason=duplicate
  func.func @duplicate(%x: tensor<8xf32> {comm.sharding = []}) -> (tensor<8xf32>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<8xf32>
    %f = tensor.empty() : tensor<8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %b = comm.all_reduce @tp sum ins(%x : tensor<8xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
    return %a, %b : tensor<8xf32>, tensor<8xf32>
  }

  // What only a dead collective needed goes with it.
  // CHECK-LABEL: func.func @dead
  // CHECK-NEXT: return
  func.func @dead(%x: tensor<8xf32> {comm.sharding = []}) {
    %e = tensor.empty() : tensor<8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %n = linalg.exp ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %f = comm.start all_reduce @tp ins(%n : tensor<8xf32>) outs(%e : tensor<8xf32>) {reduction = 1 : i32}
    %b = comm.wait %f ins(%n : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return
  }

  // CHECK-LABEL: func.func @invariant
  // CHECK: comm.all_reduce @tp
  // CHECK: scf.for
  // CHECK-NOT: comm.all_reduce
  // CHECK: return
  // WHY-DAG: explain: comm-simplify hoist-all_reduce {{.*}} reason=loop-invariant
  func.func @invariant(%x: tensor<8xf32> {comm.sharding = []}, %y: tensor<8xf32>) -> tensor<8xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %z = scf.for %i = %c0 to %c3 step %c1 iter_args(%t = %y) -> tensor<8xf32> {
      %e = tensor.empty() : tensor<8xf32>
      %n = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %a = comm.all_reduce @tp sum ins(%n : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      %s = linalg.add ins(%a, %t : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
      scf.yield %s : tensor<8xf32>
    }
    return %z : tensor<8xf32>
  }

  // Already equal: a sum is the group size times, a maximum the value itself. The
  // second reduction's input is equal because the first one's result is.
  // CHECK-LABEL: func.func @equal
  // CHECK: %[[M:.*]] = comm.all_reduce @all max
  // CHECK-NOT: comm.all_reduce
  // CHECK: %[[TWO:.*]] = arith.constant 2.0{{.*}} : f32
  // CHECK: arith.mulf %{{.*}}, %[[TWO]]
  // CHECK-NOT: comm.
  // CHECK: return %{{.*}}, %[[M]]
  // WHY-DAG: explain: comm-simplify multiply-all_reduce {{.*}} reason=equal-on-members domain=@tp bytes=32 rounding=same
  // WHY-DAG: explain: comm-simplify remove-all_reduce {{.*}} reason=equal-on-members domain=@dp bytes=32
  // WHY-DAG: explain: comm-simplify remove-broadcast {{.*}} reason=equal-on-members domain=@tp bytes=32
  func.func @equal(%x: tensor<8xf32> {comm.sharding = []}) -> (tensor<8xf32>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<8xf32>
    %a = comm.all_reduce @all max ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %b = comm.all_reduce @tp sum ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %c = comm.all_reduce @dp min ins(%a : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %d = comm.broadcast @tp root(1) ins(%c : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %b, %d : tensor<8xf32>, tensor<8xf32>
  }

  // A narrowing conversion goes before, a widening one behind.
  // CHECK-LABEL: func.func @conversions
  // CHECK: comm.all_gather @tp dim(0) ins(%{{.*}} : tensor<4xbf16>) outs(%{{.*}} : tensor<8xbf16>)
  // CHECK: comm.all_to_all @tp split(0) concat(0) ins(%{{.*}} : tensor<8xbf16>)
  // CHECK: arith.extf
  // WHY-DAG: explain: comm-simplify narrow-all_gather {{.*}} reason=converted-after domain=@tp bytes=32 saved_bytes=16
  // WHY-DAG: explain: comm-simplify narrow-all_to_all {{.*}} reason=converted-before domain=@tp bytes=32 saved_bytes=16
  func.func @conversions(%x: tensor<4xf32> {comm.sharding = []}, %y: tensor<8xbf16> {comm.sharding = []}) -> (tensor<8xbf16>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<8xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<4xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %n = arith.truncf %g : tensor<8xf32> to tensor<8xbf16>
    %w = arith.extf %y : tensor<8xbf16> to tensor<8xf32>
    %a = comm.all_to_all @tp split(0) concat(0) ins(%w : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %n, %a : tensor<8xbf16>, tensor<8xf32>
  }

  // CHECK-LABEL: func.func @constants
  // CHECK-DAG: arith.constant dense<[1, 2, 1, 2]> : tensor<4xi32>
  // CHECK-DAG: arith.constant dense<3> : tensor<8x2xi32>
  // CHECK-NOT: comm.all_gather
  // WHY-DAG: explain: comm-simplify fold-all_gather {{.*}} reason=constant
  func.func @constants() -> (tensor<4xi32>, tensor<8x2xi32>) {
    %a = arith.constant dense<[1, 2]> : tensor<2xi32>
    %b = arith.constant dense<3> : tensor<4x2xi32>
    %e = tensor.empty() : tensor<4xi32>
    %f = tensor.empty() : tensor<8x2xi32>
    %g = comm.all_gather @tp dim(0) ins(%a : tensor<2xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    %h = comm.all_gather @tp dim(0) ins(%b : tensor<4x2xi32>) outs(%f : tensor<8x2xi32>) -> tensor<8x2xi32>
    return %g, %h : tensor<4xi32>, tensor<8x2xi32>
  }

  // Rows, then columns: everybody.
  // CHECK-LABEL: func.func @two_levels
  // CHECK: comm.all_reduce @all sum
  // CHECK-NOT: comm.all_reduce
  // WHY-DAG: explain: comm-simplify join-all_reduce {{.*}} reason=two-levels domain=@dp bytes=4 with=@tp over=@all rounding=differs
  func.func @two_levels(%x: tensor<f32> {comm.sharding = []}) -> tensor<f32> {
    %e = tensor.empty() : tensor<f32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<f32>) outs(%e : tensor<f32>) -> tensor<f32>
    %b = comm.all_reduce @dp sum ins(%a : tensor<f32>) outs(%e : tensor<f32>) -> tensor<f32>
    return %b : tensor<f32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What comm-simplify leaves alone, and why. Nothing in this file is rewritten.
//
// RUN: comm-opt %s --explain "--comm-simplify=machine=cpu exact=true" -o %t.mlir 2>&1 | FileCheck %s
// RUN: FileCheck %s --check-prefix=KEPT < %t.mlir

module attributes {comm.world = 4 : i64, comm.mesh = [["dp", 2], ["tp", 2]]} {
  comm.domain @tp groups([[0, 1], [2, 3]])
  comm.domain @dp groups([[0, 2], [1, 3]])
  comm.domain @all groups([[0, 1, 2, 3]])

  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=used-whole domain=@tp bytes=32
  // KEPT-LABEL: func.func @used_whole
  // KEPT: comm.all_reduce @tp sum
  func.func @used_whole(%x: tensor<8xf32> {comm.sharding = []}) -> (tensor<4xf32>, tensor<8xf32>) {
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<8xf32>
    %s = comm.all_reduce @tp sum ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c4 : index
    %y = tensor.extract_slice %s[%o] [4] [1] : tensor<8xf32> to tensor<4xf32>
    return %y, %s : tensor<4xf32>, tensor<8xf32>
  }

  // The other member's shard; and the shard of another domain's rank.
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=not-own-shard domain=@tp bytes=64
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=not-own-shard domain=@tp bytes=128
  // KEPT-LABEL: func.func @other_shard
  // KEPT-COUNT-2: comm.all_reduce @tp sum
  func.func @other_shard(%x: tensor<16xf32> {comm.sharding = []}, %y: tensor<32xf32> {comm.sharding = []}) -> (tensor<8xf32>, tensor<16xf32>) {
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %c16 = arith.constant 16 : index
    %e = tensor.empty() : tensor<16xf32>
    %f = tensor.empty() : tensor<32xf32>
    %s = comm.all_reduce @tp sum ins(%x : tensor<16xf32>) outs(%e : tensor<16xf32>) -> tensor<16xf32>
    %t = comm.all_reduce @tp sum ins(%y : tensor<32xf32>) outs(%f : tensor<32xf32>) -> tensor<32xf32>
    %r = comm.rank @tp
    %q = arith.subi %c1, %r : index
    %o = arith.muli %q, %c8 : index
    %d = comm.rank @dp
    %p = arith.muli %d, %c16 : index
    %u = tensor.extract_slice %s[%o] [8] [1] : tensor<16xf32> to tensor<8xf32>
    %v = tensor.extract_slice %t[%p] [16] [1] : tensor<32xf32> to tensor<16xf32>
    return %u, %v : tensor<8xf32>, tensor<16xf32>
  }

  // CHECK-DAG: explain: comm-simplify keep-reduce_scatter {{.*}} reason=part-used domain=@tp bytes=32
  // KEPT-LABEL: func.func @part_used
  // KEPT: comm.reduce_scatter
  // KEPT: comm.all_gather
  func.func @part_used(%x: tensor<8xf32> {comm.sharding = []}) -> (tensor<4xf32>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %f = tensor.empty() : tensor<8xf32>
    %s = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<8xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %y = comm.all_gather @tp dim(0) ins(%s : tensor<4xf32>) outs(%f : tensor<8xf32>) -> tensor<8xf32>
    return %s, %y : tensor<4xf32>, tensor<8xf32>
  }

  // Custom calls that may communicate stay where they are.
  // CHECK-DAG: explain: comm-simplify keep-reduce_scatter {{.*}} reason=fence domain=@tp bytes=48
  // KEPT-LABEL: func.func @fence
  // KEPT: comm.reduce_scatter
  // KEPT: comm.all_gather
  func.func @fence(%x: tensor<12xf32> {comm.sharding = []}) -> tensor<12xf32> {
    %e = tensor.empty() : tensor<6xf32>
    %f = tensor.empty() : tensor<12xf32>
    %s = comm.reduce_scatter @tp sum dim(0) ins(%x : tensor<12xf32>) outs(%e : tensor<6xf32>) -> tensor<6xf32>
    comm.compute "custom"() {touches_all} : () -> ()
    %y = comm.all_gather @tp dim(0) ins(%s : tensor<6xf32>) outs(%f : tensor<12xf32>) -> tensor<12xf32>
    return %y : tensor<12xf32>
  }

  // CHECK-DAG: explain: comm-simplify keep-all_gather {{.*}} reason=differs-between-members domain=@tp bytes=32
  // KEPT-LABEL: func.func @differs
  // KEPT: comm.all_gather
  func.func @differs(%x: tensor<8xf32> {comm.sharding = []}) -> tensor<8xf32> {
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<8xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c4 : index
    %s = tensor.extract_slice %x[%o] [4] [1] : tensor<8xf32> to tensor<4xf32>
    %g = comm.all_gather @tp dim(0) ins(%s : tensor<4xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %g : tensor<8xf32>
  }

  // Sums of floats would round otherwise.
  // CHECK-DAG: explain: comm-simplify keep-add {{.*}} reason=exact domain=@tp bytes=32
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=exact domain=@all bytes=32
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=exact domain=@dp bytes=32
  // KEPT-LABEL: func.func @exact
  // KEPT-COUNT-5: comm.all_reduce
  func.func @exact(%x: tensor<8xf32> {comm.sharding = []}, %y: tensor<8xf32> {comm.sharding = []}, %z: tensor<8xf32>)
      -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<8xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %s = linalg.add ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %t = comm.all_reduce @all sum ins(%z : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %n = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %u = comm.all_reduce @tp sum ins(%n : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    %v = comm.all_reduce @dp sum ins(%u : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
    return %s, %t, %v : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }

  // CHECK-DAG: explain: comm-simplify keep-add {{.*}} reason=used-apart domain=@tp bytes=16
  // CHECK-DAG: explain: comm-simplify keep-add {{.*}} reason=other-form domain=@{{tp|dp}} bytes=24
  // KEPT-LABEL: func.func @sums
  // KEPT-COUNT-4: comm.all_reduce
  func.func @sums(%x: tensor<4xi32> {comm.sharding = []}, %y: tensor<4xi32> {comm.sharding = []}, %z: tensor<6xi32> {comm.sharding = []})
      -> (tensor<4xi32>, tensor<4xi32>, tensor<6xi32>) {
    %e = tensor.empty() : tensor<4xi32>
    %g = tensor.empty() : tensor<6xi32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<4xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<4xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    %s = linalg.add ins(%a, %b : tensor<4xi32>, tensor<4xi32>) outs(%e : tensor<4xi32>) -> tensor<4xi32>
    %c = comm.all_reduce @tp sum ins(%z : tensor<6xi32>) outs(%g : tensor<6xi32>) -> tensor<6xi32>
    %d = comm.all_reduce @dp sum ins(%z : tensor<6xi32>) outs(%g : tensor<6xi32>) -> tensor<6xi32>
    %t = linalg.add ins(%c, %d : tensor<6xi32>, tensor<6xi32>) outs(%g : tensor<6xi32>) -> tensor<6xi32>
    return %s, %a, %t : tensor<4xi32>, tensor<4xi32>, tensor<6xi32>
  }

  // A collective under a condition that members may not agree on is a hang; it is
  // not taken away here, so that comm-verify-uniform can say so.
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=differing-condition domain=@tp bytes=40
  // KEPT-LABEL: func.func @condition
  // KEPT: comm.all_reduce
  func.func @condition(%x: tensor<10xf32> {comm.sharding = []}) {
    %c0 = arith.constant 0 : index
    %e = tensor.empty() : tensor<10xf32>
    %r = comm.rank @tp
    %p = arith.cmpi eq, %r, %c0 : index
    scf.if %p {
      %a = comm.all_reduce @tp sum ins(%x : tensor<10xf32>) outs(%e : tensor<10xf32>) -> tensor<10xf32>
    }
    return
  }

  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=may-run-zero-times domain=@tp bytes=56
  // KEPT-LABEL: func.func @zero_times
  // KEPT: scf.for
  // KEPT: comm.all_reduce
  func.func @zero_times(%x: tensor<14xf32> {comm.sharding = []}, %n: index, %y: tensor<14xf32>) -> tensor<14xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %e = tensor.empty() : tensor<14xf32>
    %z = scf.for %i = %c0 to %n step %c1 iter_args(%t = %y) -> tensor<14xf32> {
      %a = comm.all_reduce @tp sum ins(%x : tensor<14xf32>) outs(%e : tensor<14xf32>) -> tensor<14xf32>
      %s = linalg.add ins(%a, %t : tensor<14xf32>, tensor<14xf32>) outs(%e : tensor<14xf32>) -> tensor<14xf32>
      scf.yield %s : tensor<14xf32>
    }
    return %z : tensor<14xf32>
  }

  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=product domain=@tp bytes=60
  // KEPT-LABEL: func.func @product
  // KEPT: comm.all_reduce @tp prod
  func.func @product(%x: tensor<15xf32>) -> tensor<15xf32> {
    %e = tensor.empty() : tensor<15xf32>
    %a = comm.all_reduce @tp prod ins(%x : tensor<15xf32>) outs(%e : tensor<15xf32>) -> tensor<15xf32>
    return %a : tensor<15xf32>
  }

  // CHECK-DAG: explain: comm-simplify keep-all_gather {{.*}} reason=used-wide domain=@tp bytes=72
  // KEPT-LABEL: func.func @used_wide
  // KEPT: comm.all_gather @tp dim(0) ins(%{{.*}} : tensor<9xf32>)
  func.func @used_wide(%x: tensor<9xf32> {comm.sharding = []}) -> (tensor<18xf32>, tensor<18xbf16>) {
    %e = tensor.empty() : tensor<18xf32>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<9xf32>) outs(%e : tensor<18xf32>) -> tensor<18xf32>
    %n = arith.truncf %g : tensor<18xf32> to tensor<18xbf16>
    return %g, %n : tensor<18xf32>, tensor<18xbf16>
  }

  // Small: the latency of two steps is more than the bytes saved.
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=cost domain=@tp bytes=80
  // KEPT-LABEL: func.func @cost
  // KEPT: comm.all_reduce @tp sum ins(%{{.*}} : tensor<20xf32>)
  func.func @cost(%x: tensor<20xf32> {comm.sharding = []}) -> tensor<20xbf16> {
    %e = tensor.empty() : tensor<20xf32>
    %g = comm.all_reduce @tp sum ins(%x : tensor<20xf32>) outs(%e : tensor<20xf32>) -> tensor<20xf32>
    %n = arith.truncf %g : tensor<20xf32> to tensor<20xbf16>
    return %n : tensor<20xbf16>
  }

  // A send pairs with a receive elsewhere, and a barrier is there to wait.
  // KEPT-LABEL: func.func @never
  // KEPT: comm.send
  // KEPT: comm.barrier
  // KEPT: comm.recv
  func.func @never(%x: tensor<4xf32> {comm.sharding = []}) {
    %e = tensor.empty() : tensor<4xf32>
    comm.send @tp to(1) ins(%x : tensor<4xf32>)
    comm.barrier @tp
    %r = comm.recv @tp from(0) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return
  }

  // Whether a round uses a slot is found out when it runs; one with a name is
  // no different.
  // CHECK-DAG: explain: comm-simplify keep-all_reduce {{.*}} reason=optional-slot domain=@tp bytes=44
  // KEPT-LABEL: func.func @named_slot
  // KEPT-COUNT-2: comm.all_reduce @tp sum
  func.func @named_slot(%x: tensor<11xf32> {comm.sharding = []}) -> (tensor<11xf32>, tensor<11xf32>) {
    %e = tensor.empty() : tensor<11xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<11xf32>) outs(%e : tensor<11xf32>) {slot = "optional:check"} -> tensor<11xf32>
    %b = comm.all_reduce @tp sum ins(%x : tensor<11xf32>) outs(%e : tensor<11xf32>) -> tensor<11xf32>
    return %a, %b : tensor<11xf32>, tensor<11xf32>
  }

  // What a fused kernel leaves is not what a collective of its kind does: nothing
  // is known of it, whatever goes in.
  // KEPT-LABEL: func.func @fused
  // KEPT: comm.fused all_reduce @tp
  // KEPT: comm.all_reduce @tp max
  func.func @fused(%x: tensor<8x64xf32> {comm.replicated}, %g: tensor<64xf32>) -> tensor<8x64xf32> {
    %y = tensor.empty() : tensor<8x64xf32>
    %w = tensor.empty() : tensor<1024xi8>
    %r:2 = comm.fused all_reduce @tp
        "fused_reduce cols=64 dtype=f32 gamma=1 members=2 norm=rmsnorm rows=8"
        ins(%x, %g : tensor<8x64xf32>, tensor<64xf32>)
        outs(%y, %w : tensor<8x64xf32>, tensor<1024xi8>)
        {reduction = 1 : i32, shared = 0 : i64, workspace, written = array<i64: 2>}
        -> tensor<8x64xf32>, tensor<1024xi8>
    %e = tensor.empty() : tensor<8x64xf32>
    %m = comm.all_reduce @tp max ins(%r#0 : tensor<8x64xf32>) outs(%e : tensor<8x64xf32>) -> tensor<8x64xf32>
    return %m : tensor<8x64xf32>
  }

  // Nothing is gathered.
  // KEPT-LABEL: func.func @empty
  // KEPT: comm.all_gather
  func.func @empty() -> tensor<4x0xi8> {
    %x = arith.constant dense<> : tensor<2x0xi8>
    %e = tensor.empty() : tensor<4x0xi8>
    %g = comm.all_gather @tp dim(0) ins(%x : tensor<2x0xi8>) outs(%e : tensor<4x0xi8>) -> tensor<4x0xi8>
    return %g : tensor<4x0xi8>
  }

  // A reshape that nobody uses is a use all the same.
  // KEPT-LABEL: func.func @dead_reshape
  // KEPT: comm.all_reduce
  func.func @dead_reshape(%x: tensor<6x2xf32> {comm.sharding = []}) -> tensor<3x2xf32> {
    %c3 = arith.constant 3 : index
    %e = tensor.empty() : tensor<6x2xf32>
    %s = comm.all_reduce @tp sum ins(%x : tensor<6x2xf32>) outs(%e : tensor<6x2xf32>) -> tensor<6x2xf32>
    %d = tensor.collapse_shape %s [[0, 1]] : tensor<6x2xf32> into tensor<12xf32>
    %r = comm.rank @tp
    %o = arith.muli %r, %c3 : index
    %y = tensor.extract_slice %s[%o, 0] [3, 2] [1, 1] : tensor<6x2xf32> to tensor<3x2xf32>
    return %y : tensor<3x2xf32>
  }
}

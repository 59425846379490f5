// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sharded optimiser's step becomes one with the collectives around it; what keeps
// it from that is said.
//
// RUN: comm-opt %s --split-input-file --comm-fuse=force | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-fuse=force --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

#id = affine_map<(i) -> (i)>
#one = affine_map<(i) -> ()>

// Momentum in two operations, the rate as a tensor, states and the shard kept.
// CHECK-LABEL: func.func @momentum
// CHECK-SAME: (%[[G:.*]]: tensor<64xf32>, %[[P:.*]]: tensor<32xf32>, %[[M:.*]]: tensor<32xf32>, %[[LR:.*]]: tensor<f32>)
// CHECK: %[[F:.*]]:4 = comm.fused all_reduce @dp "fused_update count=32 dtype=f32 inputs=[f32,f32,f32] members=2 outputs=[f32,f32] program=\22const 3f666666;mul 4 1;add 5 0;mul 2 6;sub 3 7\22 results=[8,6,8] single=[1]"
// CHECK-SAME: ins(%[[G]], %[[M]], %[[LR]], %[[P]] :
// CHECK-SAME: {reduction = 1 : i32, shared = 0 : i64, workspace, written = array<i64: 4>}
// CHECK-NOT: linalg.generic
// CHECK-NOT: comm.all_gather
// CHECK: return %[[F]]#0, %[[F]]#2, %[[F]]#1
// WHY: explain: comm-fuse fuse {{.*}} reason=fewer-bytes collective=reduce_scatter pair=reduce_scatter+update+all_gather bytes=256 operations=2
module {
comm.domain @dp groups([[0, 1]])
func.func @momentum(%g: tensor<64xf32>, %p: tensor<32xf32>, %m: tensor<32xf32>, %lr: tensor<f32>) -> (tensor<64xf32>, tensor<32xf32>, tensor<32xf32>) {
  %beta = arith.constant 0.9 : f32
  %e = tensor.empty() : tensor<32xf32>
  %w = tensor.empty() : tensor<64xf32>
  %r = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<64xf32>) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %n = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%m, %r : tensor<32xf32>, tensor<32xf32>) outs(%e : tensor<32xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %beta, %a : f32
    %1 = arith.addf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<32xf32>
  %q = linalg.generic {indexing_maps = [#one, #id, #id, #id], iterator_types = ["parallel"]} ins(%lr, %n, %p : tensor<f32>, tensor<32xf32>, tensor<32xf32>) outs(%e : tensor<32xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.subf %c, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<32xf32>
  %t = comm.all_gather @dp dim(0) ins(%q : tensor<32xf32>) outs(%w : tensor<64xf32>) -> tensor<64xf32>
  return %t, %q, %n : tensor<64xf32>, tensor<32xf32>, tensor<32xf32>
}
}

// -----

#id = affine_map<(i) -> (i)>

// Gradients and gathered parameters in bf16, the state in f32; the moment is made
// behind the gather.
// CHECK-LABEL: func.func @narrow
// CHECK: comm.fused all_reduce @dp "fused_update count=32 dtype=bf16 inputs=[f32] members=2 outputs=[f32] program=\22sub 1 0;round bf16 2;neg 0\22 results=[3,4]"
// CHECK-NOT: linalg.generic
module {
comm.domain @dp groups([[0, 1]])
func.func @narrow(%g: tensor<64xbf16>, %p: tensor<32xf32>) -> (tensor<64xbf16>, tensor<32xf32>) {
  %e = tensor.empty() : tensor<32xbf16>
  %f = tensor.empty() : tensor<32xf32>
  %w = tensor.empty() : tensor<64xbf16>
  %r = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<64xbf16>) outs(%e : tensor<32xbf16>) -> tensor<32xbf16>
  %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%p, %r : tensor<32xf32>, tensor<32xbf16>) outs(%e : tensor<32xbf16>) {
  ^bb0(%a: f32, %b: bf16, %o: bf16):
    %0 = arith.extf %b : bf16 to f32
    %1 = arith.subf %a, %0 : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<32xbf16>
  %t = comm.all_gather @dp dim(0) ins(%q : tensor<32xbf16>) outs(%w : tensor<64xbf16>) -> tensor<64xbf16>
  %m = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<32xbf16>) outs(%f : tensor<32xf32>) {
  ^bb0(%b: bf16, %o: f32):
    %0 = arith.extf %b : bf16 to f32
    %1 = arith.negf %0 : f32
    linalg.yield %1 : f32
  } -> tensor<32xf32>
  return %t, %m : tensor<64xbf16>, tensor<32xf32>
}
}

// -----

#id = affine_map<(i) -> (i)>

// An operation that the kernel does not have.
// CHECK-LABEL: func.func @stranger
// CHECK: comm.reduce_scatter
// CHECK: comm.all_gather
// WHY: explain: comm-fuse keep {{.*}} reason=update collective=reduce_scatter pair=reduce_scatter+update+all_gather operation=math.tanh
module {
comm.domain @dp groups([[0, 1]])
func.func @stranger(%g: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<32xf32>
  %w = tensor.empty() : tensor<64xf32>
  %r = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<64xf32>) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<32xf32>) outs(%e : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  %t = comm.all_gather @dp dim(0) ins(%q : tensor<32xf32>) outs(%w : tensor<64xf32>) -> tensor<64xf32>
  return %t : tensor<64xf32>
}
}

// -----

#id = affine_map<(i) -> (i)>

// What nobody can see stands between, and may communicate.
// CHECK-LABEL: func.func @fence
// CHECK: comm.all_gather
// WHY: explain: comm-fuse keep {{.*}} reason=fence collective=reduce_scatter pair=reduce_scatter+update+all_gather
module {
comm.domain @dp groups([[0, 1]])
func.func private @unknown()
func.func @fence(%g: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<32xf32>
  %w = tensor.empty() : tensor<64xf32>
  %r = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<64xf32>) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<32xf32>) outs(%e : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  func.call @unknown() : () -> ()
  %t = comm.all_gather @dp dim(0) ins(%q : tensor<32xf32>) outs(%w : tensor<64xf32>) -> tensor<64xf32>
  return %t : tensor<64xf32>
}
}

// -----

#id = affine_map<(i) -> (i)>

// A result is needed before the parameters are gathered.
// CHECK-LABEL: func.func @early
// CHECK: comm.all_gather
// WHY: explain: comm-fuse keep {{.*}} reason=order-of-uses collective=reduce_scatter pair=reduce_scatter+update+all_gather
module {
comm.domain @dp groups([[0, 1]])
func.func @early(%g: tensor<64xf32>) -> (tensor<64xf32>, tensor<32xf32>) {
  %e = tensor.empty() : tensor<32xf32>
  %w = tensor.empty() : tensor<64xf32>
  %r = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<64xf32>) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %q = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%r : tensor<32xf32>) outs(%e : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  %k = comm.kernel "softmax axis=0 dtype=f32 shape=[32]" ins(%q : tensor<32xf32>) outs(%e : tensor<32xf32>) -> tensor<32xf32>
  %t = comm.all_gather @dp dim(0) ins(%q : tensor<32xf32>) outs(%w : tensor<64xf32>) -> tensor<64xf32>
  return %t, %k : tensor<64xf32>, tensor<32xf32>
}
}

// -----

// What an instruction costs is the machine's: a calibration decides.
// RUN: echo '{"concord_calibration": 1, "update_instruction_ns": 100}' > %t.slow.json
// RUN: comm-opt %s --split-input-file --comm-fuse=machine=cpu --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=FAST
// RUN: comm-opt %s --split-input-file --comm-fuse=machine=%t.slow.json --explain -o /dev/null 2>&1 | FileCheck %s --check-prefix=SLOW
// FAST: comm-fuse fuse {{.*}}pair=reduce_scatter+update+all_gather bytes=33554432
// SLOW: comm-fuse keep {{.*}}reason=no-gain {{.*}}pair=reduce_scatter+update+all_gather bytes=33554432
#id = affine_map<(i) -> (i)>
module {
comm.domain @dp groups([[0, 1]])
func.func @priced(%g: tensor<8388608xf32>, %p: tensor<4194304xf32>) -> tensor<8388608xf32> {
  %e = tensor.empty() : tensor<4194304xf32>
  %w = tensor.empty() : tensor<8388608xf32>
  %r = comm.reduce_scatter @dp sum dim(0) ins(%g : tensor<8388608xf32>) outs(%e : tensor<4194304xf32>) -> tensor<4194304xf32>
  %q = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%p, %r : tensor<4194304xf32>, tensor<4194304xf32>) outs(%e : tensor<4194304xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4194304xf32>
  %t = comm.all_gather @dp dim(0) ins(%q : tensor<4194304xf32>) outs(%w : tensor<8388608xf32>) -> tensor<8388608xf32>
  return %t : tensor<8388608xf32>
}
}

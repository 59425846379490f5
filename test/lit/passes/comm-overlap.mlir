// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts early, waits late, and what keeps a collective where it is.
//
// RUN: comm-opt %s -split-input-file --comm-overlap | FileCheck %s
// RUN: comm-opt %s -split-input-file --comm-overlap --comm-order --comm-verify-order -o /dev/null

// The gap before a consumer is filled with what is independent.
// CHECK-LABEL: func.func @fill
// CHECK: %[[X:.*]] = comm.compute "produce"
// CHECK: %[[F:.*]] = comm.start all_reduce @dp ins(%[[X]] {{.*}} {reduction = 1 : i32}
// CHECK-NEXT: %[[I:.*]] = comm.compute "independent"
// CHECK-NEXT: %[[R:.*]] = comm.wait %[[F]] ins(%[[X]]
// CHECK-NEXT: comm.compute "consume"(%[[R]])
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @fill(%a: tensor<1000000xf32>) -> (tensor<1000000xf32>, tensor<8xf32>) {
    %x = comm.compute "produce"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    %e = tensor.empty() : tensor<1000000xf32>
    %r = comm.all_reduce @dp sum ins(%x : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    %y = comm.compute "consume"(%r) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    %i = comm.compute "independent"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
    return %y, %i : tensor<1000000xf32>, tensor<8xf32>
  }
}

// -----

// A weight is gathered while the layer before computes, not at the very begin.
// CHECK-LABEL: func.func @prefetch
// CHECK: comm.compute "layer0"
// CHECK: comm.start all_gather @dp {{.*}} {dim = 0 : i64}
// CHECK-NEXT: comm.compute "layer1"
// CHECK: comm.wait
// CHECK: comm.compute "layer2"
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @prefetch(%x: tensor<1000000xf32>, %w: tensor<500000xf32>) -> tensor<1000000xf32> {
    %0 = comm.compute "layer0"(%x) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    %1 = comm.compute "layer1"(%0) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    %big = comm.compute "more"(%1) {flops = 1 : i64} : (tensor<1000000xf32>) -> tensor<4000000xf32>
    %e = tensor.empty() : tensor<1000000xf32>
    %g = comm.all_gather @dp dim(0) ins(%w : tensor<500000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    %2 = comm.compute "layer2"(%big, %g) {flops = 10000000000 : i64} : (tensor<4000000xf32>, tensor<1000000xf32>) -> tensor<1000000xf32>
    return %2 : tensor<1000000xf32>
  }
}

// -----

// A chain has nothing to hide behind, and stays as it is.
// CHECK-LABEL: func.func @chain
// CHECK-NOT: comm.start
// CHECK: comm.all_reduce
// CHECK: comm.all_reduce
// CHECK-NOT: comm.start
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @chain(%a: tensor<1000xf32>) -> tensor<1000xf32> {
    %e = tensor.empty() : tensor<1000xf32>
    %0 = comm.all_reduce @dp sum ins(%a : tensor<1000xf32>) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
    %1 = comm.compute "f"(%0) {flops = 1000000000 : i64} : (tensor<1000xf32>) -> tensor<1000xf32>
    %2 = comm.all_reduce @dp sum ins(%1 : tensor<1000xf32>) outs(%e : tensor<1000xf32>) -> tensor<1000xf32>
    return %2 : tensor<1000xf32>
  }
}

// -----

// Transfers, barriers and opaque calls hold collectives in place.
// CHECK-LABEL: func.func @barriers
// CHECK: comm.compute "custom"
// CHECK: comm.{{(start )?}}all_gather
// CHECK: comm.barrier
// CHECK: comm.{{(start )?}}all_gather
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @barriers(%x: tensor<1000000xf32>, %w: tensor<500000xf32>) -> (tensor<1000000xf32>, tensor<1000000xf32>) {
    %0 = comm.compute "long"(%x) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    comm.compute "custom"(%x) {touches_all} : (tensor<1000000xf32>) -> ()
    %e = tensor.empty() : tensor<1000000xf32>
    %g = comm.all_gather @dp dim(0) ins(%w : tensor<500000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    %1 = comm.compute "use"(%0, %g) {flops = 10000000000 : i64} : (tensor<1000000xf32>, tensor<1000000xf32>) -> tensor<1000000xf32>
    comm.barrier @dp
    %h = comm.all_gather @dp dim(0) ins(%w : tensor<500000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    return %1, %h : tensor<1000000xf32>, tensor<1000000xf32>
  }
}

// -----

// A pair that is given is moved like any other; outs that two started
// operations share become their own.
// CHECK-LABEL: func.func @given
// CHECK: %[[F:.*]] = comm.start all_reduce
// CHECK: comm.compute "independent"
// CHECK: comm.wait %[[F]]
// CHECK: comm.compute "consume"
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @given(%a: tensor<1000000xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %e = tensor.empty() : tensor<1000000xf32>
    %f = comm.start all_reduce @dp ins(%a : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) {reduction = 1 : i32}
    %r = comm.wait %f ins(%a : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    %y = comm.compute "consume"(%r) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
    %i = comm.compute "independent"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
    return %y, %i : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// What stands in a branch is scheduled there.
// CHECK-LABEL: func.func @branch
// CHECK: scf.if
// CHECK: comm.start all_reduce
// CHECK: comm.compute "independent"
// CHECK: comm.wait
module attributes {comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @branch(%c: i1, %a: tensor<1000000xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %0:2 = scf.if %c -> (tensor<8xf32>, tensor<8xf32>) {
      %e = tensor.empty() : tensor<1000000xf32>
      %p = comm.compute "produce"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
      %r = comm.all_reduce @dp sum ins(%p : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
      %y = comm.compute "consume"(%r) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
      %i = comm.compute "independent"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
      scf.yield %y, %i : tensor<8xf32>, tensor<8xf32>
    } else {
      %y = comm.compute "other"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
      scf.yield %y, %y : tensor<8xf32>, tensor<8xf32>
    }
    return %0#0, %0#1 : tensor<8xf32>, tensor<8xf32>
  }
}

// -----

// Two programs keep the order of their issues.
// CHECK-LABEL: func.func @p
// CHECK: all_gather @a
// CHECK: all_gather @b
// CHECK-LABEL: func.func @q
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]]) priority(1)
  comm.program @first entry(@p) ranks([0])
  comm.program @second entry(@q) ranks([1])
  func.func @p(%x: tensor<4000000xf32>, %w: tensor<2xf32>) -> (tensor<8000000xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<8000000xf32>
    %d = tensor.empty() : tensor<4xf32>
    %0 = comm.all_gather @a dim(0) ins(%x : tensor<4000000xf32>) outs(%e : tensor<8000000xf32>) -> tensor<8000000xf32>
    %1 = comm.all_gather @b dim(0) ins(%w : tensor<2xf32>) outs(%d : tensor<4xf32>) -> tensor<4xf32>
    %2 = comm.compute "f"(%1) {flops = 100000000000 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    return %0, %2 : tensor<8000000xf32>, tensor<4xf32>
  }
  func.func @q(%x: tensor<4000000xf32>, %w: tensor<2xf32>) -> (tensor<8000000xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<8000000xf32>
    %d = tensor.empty() : tensor<4xf32>
    %0 = comm.all_gather @a dim(0) ins(%x : tensor<4000000xf32>) outs(%e : tensor<8000000xf32>) -> tensor<8000000xf32>
    %1 = comm.all_gather @b dim(0) ins(%w : tensor<2xf32>) outs(%d : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<8000000xf32>, tensor<4xf32>
  }
}

// -----

// A fused collective computes itself and is not started, whatever the links.
// CHECK-LABEL: func.func @fused
// CHECK-NOT: comm.start
// CHECK: comm.fused all_reduce @tp
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @fused(%x: tensor<8x64xf32>, %g: tensor<64xf32>, %u: tensor<8x64xf32>) -> tensor<8x64xf32> {
    %y = tensor.empty() : tensor<8x64xf32>
    %w = tensor.empty() : tensor<1024xi8>
    %r:2 = comm.fused all_reduce @tp
        "fused_reduce cols=64 dtype=f32 gamma=1 members=2 norm=rmsnorm rows=8"
        ins(%x, %g : tensor<8x64xf32>, tensor<64xf32>)
        outs(%y, %w : tensor<8x64xf32>, tensor<1024xi8>)
        {reduction = 1 : i32, shared = 0 : i64, workspace, written = array<i64: 2>}
        -> tensor<8x64xf32>, tensor<1024xi8>
    %a = comm.compute "dot"(%u) {flops = 2000000000000 : i64} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    %b = comm.compute "add"(%a, %r#0) : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    return %b : tensor<8x64xf32>
  }
}

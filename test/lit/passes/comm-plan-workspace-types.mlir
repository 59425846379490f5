// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers of any element type have a place: opaque compute has more types than
// collectives do. And a bucket in a loop, whose parts the loop hands on.
//
// RUN: comm-opt %s --split-input-file --comm-plan-workspace --comm-verify-workspace | FileCheck %s
// RUN: comm-opt %s --split-input-file --comm-bucket --comm-plan-workspace --comm-verify-workspace | FileCheck %s --check-prefix=BUCKET

// Indices have 8 bytes, complex numbers and vectors those of their parts, and
// smaller ones a byte each.
// CHECK: comm.arena @main size(896) align(64)
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: memref<64xf32>, %out: memref<64xf32>) {
    %i = memref.alloc() : memref<8xindex>
    %c = memref.alloc() : memref<32xcomplex<f64>>
    %v = memref.alloc() : memref<16xvector<4xf32>>
    %n = memref.alloc() : memref<8xi4>
    %z = memref.alloc() : memref<0xf32>
    comm.compute "make"(%i, %c, %v, %n, %z) {destinations = 5 : i64} : (memref<8xindex>, memref<32xcomplex<f64>>, memref<16xvector<4xf32>>, memref<8xi4>, memref<0xf32>) -> ()
    comm.all_reduce @tp sum ins(%x : memref<64xf32>) outs(%out : memref<64xf32>)
    comm.compute "use"(%i, %c, %v, %n, %z, %out) {destinations = 1 : i64} : (memref<8xindex>, memref<32xcomplex<f64>>, memref<16xvector<4xf32>>, memref<8xi4>, memref<0xf32>, memref<64xf32>) -> ()
    return
  }
}

// -----

// BUCKET-LABEL: func.func @ring
// BUCKET: scf.while
// BUCKET: comm.permute {{.*}} outs(%{{.*}} : memref<32xf32>)
// BUCKET-NOT: comm.permute
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @ring(%k: tensor<4x4xf32>, %v: tensor<4x4xf32>) -> tensor<4x4xf32> {
    %zero = arith.constant 0 : i32
    %one = arith.constant 1 : i32
    %two = arith.constant 2 : i32
    %r:3 = scf.while (%i = %zero, %a = %k, %b = %v) : (i32, tensor<4x4xf32>, tensor<4x4xf32>) -> (i32, tensor<4x4xf32>, tensor<4x4xf32>) {
      %more = arith.cmpi slt, %i, %two : i32
      scf.condition(%more) %i, %a, %b : i32, tensor<4x4xf32>, tensor<4x4xf32>
    } do {
    ^bb0(%i: i32, %a: tensor<4x4xf32>, %b: tensor<4x4xf32>):
      %e = tensor.empty() : tensor<4x4xf32>
      %an = comm.permute @tp pairs([[0, 1], [1, 0]]) ins(%a : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
      %bn = comm.permute @tp pairs([[0, 1], [1, 0]]) ins(%b : tensor<4x4xf32>) outs(%e : tensor<4x4xf32>) -> tensor<4x4xf32>
      %n = arith.addi %i, %one : i32
      scf.yield %n, %an, %bn : i32, tensor<4x4xf32>, tensor<4x4xf32>
    }
    %s = comm.compute "add"(%r#1, %r#2) : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %s : tensor<4x4xf32>
  }
}

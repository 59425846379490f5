// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With bounded dimensions all members do what the first one decides. What is small
// at 2 rows is joined there alone, and is not where it is large at 4093.
//
// RUN: comm-opt %s --explain --comm-bucket=machine=accelerator 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t
// RUN: sed -e 's/comm.point = [^,]*, //' -e 's/^module attributes.*/module {/' %s | comm-opt --pass-pipeline='builtin.module(builtin.module(comm-bucket{machine=accelerator}))' | FileCheck %s --check-prefix=ALONE

// CHECK-LABEL: module @member0
// CHECK: func.func @small
// CHECK: comm.all_reduce {{.*}} tensor<16375xf32>
// CHECK-NOT: comm.all_reduce
// CHECK: func.func @large
// CHECK-COUNT-2: comm.all_reduce
// CHECK-LABEL: module @member1
// CHECK: func.func @small
// CHECK: comm.all_reduce {{.*}} tensor<11xf32>
// CHECK-NOT: comm.all_reduce
// CHECK: func.func @large
// CHECK-COUNT-2: comm.all_reduce
// CHECK-LABEL: module @member2
// CHECK: func.func @small
// CHECK: comm.all_reduce {{.*}} tensor<15xf32>
// CHECK: func.func @large
// CHECK-COUNT-2: comm.all_reduce
// CHECK-NOT: comm.choices
// CHECK-NOT: comm.follows

// What is said of one is said of all.
// WHY-COUNT-1: comm-bucket bucket-all_reduce {{.*}} bytes=65500
// WHY-NOT: bucket-all_reduce
// WHY: keep-all_reduce {{.*}} reason=large

// A module of its own decides for itself.
// ALONE-LABEL: module @member1
// ALONE: func.func @large
// ALONE: comm.all_reduce {{.*}} tensor<8192xf32>
// ALONE-NOT: comm.all_reduce
// ALONE-LABEL: module @member2
module attributes {comm.dims = [["n", 1, 4093]]} {
module @member0 attributes {comm.dims = [["n", 1, 4093]], comm.point = array<i64: 4093>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @small(%x: tensor<4093x4xf32>, %y: tensor<3xf32>) -> (tensor<4093x4xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<4093x4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<4093x4xf32>) outs(%e : tensor<4093x4xf32>) -> tensor<4093x4xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %a, %b : tensor<4093x4xf32>, tensor<3xf32>
  }
  func.func @large(%x: tensor<4093x2048xf32>, %y: tensor<4093x2048xf32>) -> (tensor<4093x2048xf32>, tensor<4093x2048xf32>) {
    %e = tensor.empty() : tensor<4093x2048xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<4093x2048xf32>) outs(%e : tensor<4093x2048xf32>) -> tensor<4093x2048xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<4093x2048xf32>) outs(%e : tensor<4093x2048xf32>) -> tensor<4093x2048xf32>
    return %a, %b : tensor<4093x2048xf32>, tensor<4093x2048xf32>
  }
}
module @member1 attributes {comm.dims = [["n", 1, 4093]], comm.point = array<i64: 2>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @small(%x: tensor<2x4xf32>, %y: tensor<3xf32>) -> (tensor<2x4xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<2x4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<2x4xf32>) outs(%e : tensor<2x4xf32>) -> tensor<2x4xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %a, %b : tensor<2x4xf32>, tensor<3xf32>
  }
  func.func @large(%x: tensor<2x2048xf32>, %y: tensor<2x2048xf32>) -> (tensor<2x2048xf32>, tensor<2x2048xf32>) {
    %e = tensor.empty() : tensor<2x2048xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<2x2048xf32>) outs(%e : tensor<2x2048xf32>) -> tensor<2x2048xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<2x2048xf32>) outs(%e : tensor<2x2048xf32>) -> tensor<2x2048xf32>
    return %a, %b : tensor<2x2048xf32>, tensor<2x2048xf32>
  }
}
module @member2 attributes {comm.dims = [["n", 1, 4093]], comm.point = array<i64: 3>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @small(%x: tensor<3x4xf32>, %y: tensor<3xf32>) -> (tensor<3x4xf32>, tensor<3xf32>) {
    %e = tensor.empty() : tensor<3x4xf32>
    %f = tensor.empty() : tensor<3xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<3x4xf32>) outs(%e : tensor<3x4xf32>) -> tensor<3x4xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3xf32>) outs(%f : tensor<3xf32>) -> tensor<3xf32>
    return %a, %b : tensor<3x4xf32>, tensor<3xf32>
  }
  func.func @large(%x: tensor<3x2048xf32>, %y: tensor<3x2048xf32>) -> (tensor<3x2048xf32>, tensor<3x2048xf32>) {
    %e = tensor.empty() : tensor<3x2048xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<3x2048xf32>) outs(%e : tensor<3x2048xf32>) -> tensor<3x2048xf32>
    %b = comm.all_reduce @tp sum ins(%y : tensor<3x2048xf32>) outs(%e : tensor<3x2048xf32>) -> tensor<3x2048xf32>
    return %a, %b : tensor<3x2048xf32>, tensor<3x2048xf32>
  }
}
}

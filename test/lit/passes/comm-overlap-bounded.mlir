// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// With bounded dimensions one schedule is made, and is that of all members: at 2 rows
// alone there would be nothing to hide behind. What is cut into pieces for one size
// would be cut otherwise for another, so nothing is.
//
// RUN: comm-opt %s --explain "--comm-overlap=machine=accelerator chunk-bytes=4096" 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t

// CHECK-LABEL: module @member0
// CHECK: comm.start all_reduce
// CHECK-NEXT: comm.compute "independent"
// CHECK-NEXT: comm.wait
// CHECK-LABEL: module @member1
// CHECK: comm.start all_reduce
// CHECK-NEXT: comm.compute "independent"
// CHECK-NEXT: comm.wait
// CHECK-LABEL: module @member2
// CHECK: comm.start all_reduce
// CHECK-NEXT: comm.compute "independent"
// CHECK-NEXT: comm.wait

// WHY: comm-overlap keep-whole {{.*}} reason=bounded-sizes
module attributes {comm.dims = [["n", 1, 1021]]} {
module @member0 attributes {comm.dims = [["n", 1, 1021]], comm.point = array<i64: 1021>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @fill(%a: tensor<1021x1024xf32>) -> (tensor<1021x1024xf32>, tensor<8xf32>) {
    %x = comm.compute "produce"(%a) {flops = 10210000000 : i64} : (tensor<1021x1024xf32>) -> tensor<1021x1024xf32>
    %e = tensor.empty() : tensor<1021x1024xf32>
    %r = comm.all_reduce @dp sum ins(%x : tensor<1021x1024xf32>) outs(%e : tensor<1021x1024xf32>) -> tensor<1021x1024xf32>
    %y = comm.compute "consume"(%r) {flops = 10210000000 : i64} : (tensor<1021x1024xf32>) -> tensor<1021x1024xf32>
    %i = comm.compute "independent"(%a) {flops = 10190000000 : i64} : (tensor<1021x1024xf32>) -> tensor<8xf32>
    return %y, %i : tensor<1021x1024xf32>, tensor<8xf32>
  }
}
module @member1 attributes {comm.dims = [["n", 1, 1021]], comm.point = array<i64: 2>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @fill(%a: tensor<2x1024xf32>) -> (tensor<2x1024xf32>, tensor<8xf32>) {
    %x = comm.compute "produce"(%a) {flops = 20000000 : i64} : (tensor<2x1024xf32>) -> tensor<2x1024xf32>
    %e = tensor.empty() : tensor<2x1024xf32>
    %r = comm.all_reduce @dp sum ins(%x : tensor<2x1024xf32>) outs(%e : tensor<2x1024xf32>) -> tensor<2x1024xf32>
    %y = comm.compute "consume"(%r) {flops = 20000000 : i64} : (tensor<2x1024xf32>) -> tensor<2x1024xf32>
    %i = comm.compute "independent"(%a) {flops = 0 : i64} : (tensor<2x1024xf32>) -> tensor<8xf32>
    return %y, %i : tensor<2x1024xf32>, tensor<8xf32>
  }
}
module @member2 attributes {comm.dims = [["n", 1, 1021]], comm.point = array<i64: 3>, comm.sizes_pending, comm.world = 2 : i64} {
  comm.domain @dp groups([[0, 1]])
  func.func @fill(%a: tensor<3x1024xf32>) -> (tensor<3x1024xf32>, tensor<8xf32>) {
    %x = comm.compute "produce"(%a) {flops = 30000000 : i64} : (tensor<3x1024xf32>) -> tensor<3x1024xf32>
    %e = tensor.empty() : tensor<3x1024xf32>
    %r = comm.all_reduce @dp sum ins(%x : tensor<3x1024xf32>) outs(%e : tensor<3x1024xf32>) -> tensor<3x1024xf32>
    %y = comm.compute "consume"(%r) {flops = 30000000 : i64} : (tensor<3x1024xf32>) -> tensor<3x1024xf32>
    %i = comm.compute "independent"(%a) {flops = 10000000 : i64} : (tensor<3x1024xf32>) -> tensor<8xf32>
    return %y, %i : tensor<3x1024xf32>, tensor<8xf32>
  }
}
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An allocation in a loop or a branch is planned for as long as the loop or branch;
// views count as their buffer.
//
// RUN: comm-opt %s --comm-plan-workspace --comm-verify-workspace | FileCheck %s

// CHECK: func.func @main(%[[ARENA:.*]]: memref<128xi8> {comm.arena}
// CHECK-NOT: memref.alloc
// CHECK: scf.for
// CHECK-NOT: memref.alloc
// CHECK: comm.arena @main size(128) align(64) lower_bound(128) offsets([0, 64]) sizes([64, 64])
func.func @main(%x: memref<16xf32>, %n: index, %out: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = memref.alloc() : memref<16xf32>
  comm.kernel "k" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
  %v = memref.expand_shape %a [[0, 1]] output_shape [4, 4] : memref<16xf32> into memref<4x4xf32>
  scf.for %i = %c0 to %n step %c1 {
    %b = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.kernel "l" ins(%b : memref<16xf32>) outs(%out : memref<8xf32>)
    memref.dealloc %b : memref<16xf32>
  }
  comm.kernel "l" ins(%v : memref<4x4xf32>) outs(%out : memref<8xf32>)
  memref.dealloc %a : memref<16xf32>
  return
}

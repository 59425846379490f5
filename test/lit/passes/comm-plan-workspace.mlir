// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Buffers that are not live together share bytes; a collective in flight holds its
// buffers until the wait; planning again changes nothing.
//
// RUN: comm-opt %s --comm-plan-workspace --comm-verify-workspace | FileCheck %s
// RUN: comm-opt %s --comm-plan-workspace --comm-plan-workspace --comm-verify-workspace | FileCheck %s
// RUN: comm-opt %s --comm-plan-workspace=align=256 --comm-verify-workspace | FileCheck %s --check-prefix=WIDE

// CHECK: comm.phase = "planned"
// CHECK: func.func @main(%[[ARENA:.*]]: memref<192xi8> {comm.arena}, %{{.*}}: memref<16xf32> {comm.input = 0 : i64}, %{{.*}}: memref<16xf32> {comm.output = 0 : i64})
// CHECK-NOT: memref.alloc
// CHECK: %[[A:.*]] = memref.view %[[ARENA]]
// CHECK: comm.start all_reduce @tp ins(%[[A]] : memref<16xf32>)
// CHECK: comm.arena @main size(192) align(64) lower_bound(192) offsets([0, 64, 128, 0]) sizes([64, 64, 64, 64]) first([1, 3, 5, 9]) last([7, 9, 6, 10])
// CHECK-NOT: comm.arena

// WIDE: memref<768xi8> {comm.arena}
// WIDE: comm.arena @main size(768) align(256) lower_bound(768) offsets([0, 256, 512, 0])
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: memref<16xf32> {comm.input = 0 : i64}, %out: memref<16xf32> {comm.output = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    %b = memref.alloc() : memref<16xf32>
    %f = comm.start all_reduce @tp ins(%a : memref<16xf32>) outs(%b : memref<16xf32>) {reduction = 1 : i32}
    // Needed while the collective is in flight: shares nothing with %a and %b.
    %c = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%c : memref<16xf32>)
    comm.kernel "l" ins(%c : memref<16xf32>) outs(%out : memref<16xf32>)
    comm.wait %f ins(%a : memref<16xf32>) outs(%b : memref<16xf32>)
    // May lie where %a or %c lay.
    %d = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%b : memref<16xf32>) outs(%d : memref<16xf32>)
    comm.all_reduce @tp sum ins(%d : memref<16xf32>) outs(%out : memref<16xf32>)
    return
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Given IR that takes memory between collectives: in loops, in branches, in nested
// loops, as a buffer that a loop hands on, and as the declared workspace of opaque
// compute. As it stands it is refused; planned, it takes nothing.
//
// RUN: not comm-opt %s --comm-verify-workspace 2>&1 | FileCheck %s --check-prefix=AS-IS
// RUN: comm-opt %s --comm-plan-workspace --comm-verify-workspace --comm-order --comm-verify-order | FileCheck %s
// RUN: comm-opt %s --explain --comm-plan-workspace -o /dev/null 2>&1 | FileCheck %s --check-prefix=WHY

// AS-IS: between communication issues

// The arms of the branch share their bytes, and so do the rounds of the loops.
// CHECK: func.func @main(%[[ARENA:.*]]: memref<[[SIZE:[0-9]+]]xi8> {comm.arena}
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.dealloc
// CHECK: comm.compute "opaque"({{.*}}) {destinations = 1 : i64, workspace, workspace_bytes = 4096 : i64}
// CHECK-NOT: memref.alloc
// CHECK: comm.arena @main size([[SIZE]]) align(64) lower_bound([[SIZE]])

// WHY: explain: comm-plan-workspace place {{.*}} reason={{.*}} bytes={{[0-9]+}} lower_bound_bytes={{[0-9]+}} buffers=9 gap_bytes=0 gap_reason=none
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: memref<1024xf32>, %p: i1, %out: memref<1024xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    comm.all_reduce @tp sum ins(%x : memref<1024xf32>) outs(%out : memref<1024xf32>)
    // A loop that makes and drops its buffers, with one of its own inside.
    scf.for %i = %c0 to %c4 step %c1 {
      %a = memref.alloc() : memref<1024xf32>
      comm.kernel "k" ins(%out : memref<1024xf32>) outs(%a : memref<1024xf32>)
      scf.for %j = %c0 to %c4 step %c1 {
        %b = memref.alloc() : memref<1024xf32>
        comm.all_reduce @tp sum ins(%a : memref<1024xf32>) outs(%b : memref<1024xf32>)
        comm.kernel "l" ins(%b : memref<1024xf32>) outs(%a : memref<1024xf32>)
        memref.dealloc %b : memref<1024xf32>
      }
      memref.copy %a, %out : memref<1024xf32> to memref<1024xf32>
      memref.dealloc %a : memref<1024xf32>
    }
    // A branch: one arm at a time; its result outlives it.
    %r = scf.if %p -> memref<1024xf32> {
      %t = memref.alloc() : memref<1024xf32>
      %u = memref.alloc() : memref<1024xf32>
      comm.kernel "k" ins(%out : memref<1024xf32>) outs(%t : memref<1024xf32>)
      comm.all_reduce @tp sum ins(%t : memref<1024xf32>) outs(%u : memref<1024xf32>)
      memref.dealloc %t : memref<1024xf32>
      scf.yield %u : memref<1024xf32>
    } else {
      %v = memref.alloc() : memref<1024xf32>
      comm.all_reduce @tp max ins(%out : memref<1024xf32>) outs(%v : memref<1024xf32>)
      scf.yield %v : memref<1024xf32>
    }
    // A loop that hands on a buffer that each round makes anew.
    %s = scf.for %i = %c0 to %c4 step %c1 iter_args(%old = %r) -> memref<1024xf32> {
      %new = memref.alloc() : memref<1024xf32>
      comm.all_reduce @tp sum ins(%old : memref<1024xf32>) outs(%new : memref<1024xf32>)
      scf.yield %new : memref<1024xf32>
    }
    // Opaque compute that says how much scratch memory it wants.
    %w = memref.alloc() : memref<1024xf32>
    comm.compute "opaque"(%s, %w) {workspace_bytes = 4096 : i64, destinations = 1 : i64} : (memref<1024xf32>, memref<1024xf32>) -> ()
    comm.all_reduce @tp sum ins(%w : memref<1024xf32>) outs(%out : memref<1024xf32>)
    memref.dealloc %w : memref<1024xf32>
    return
  }
}

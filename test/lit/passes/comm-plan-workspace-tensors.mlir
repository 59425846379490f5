// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A module in tensors is bufferised first; opaque compute gets what it writes.
//
// RUN: comm-opt %s --comm-plan-workspace --comm-verify-workspace | FileCheck %s
// RUN: not comm-opt %s --comm-bufferize --comm-verify-workspace 2>&1 | FileCheck %s --check-prefix=WITHOUT

// WITHOUT: between communication issues: an allocation or free

// CHECK: func.func @main(%[[ARENA:.*]]: memref<{{.*}}xi8> {comm.arena}, %[[X:.*]]: memref<256xf32> {{.*}}, %[[Y:.*]]: memref<256xf32> {{.*}})
// CHECK: scf.for
// CHECK: %[[B:.*]] = memref.view %[[ARENA]]
// CHECK: %[[W:.*]] = memref.view %[[ARENA]]
// CHECK: comm.compute "dot"(%{{.*}}, %[[B]], %[[W]]) {destinations = 1 : i64, workspace, workspace_bytes = 64 : i64} : (memref<256xf32{{.*}}>, memref<256xf32>, memref<64xi8>) -> ()
// CHECK: comm.all_reduce @tp sum ins(%[[B]] : memref<256xf32>)
// CHECK: comm.arena @main
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<256xf32>) -> tensor<256xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %e = tensor.empty() : tensor<256xf32>
    %a = comm.all_reduce @tp sum ins(%x : tensor<256xf32>) outs(%e : tensor<256xf32>) -> tensor<256xf32>
    %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%t = %a) -> tensor<256xf32> {
      %d = comm.compute "dot"(%t) {workspace_bytes = 64 : i64} : (tensor<256xf32>) -> tensor<256xf32>
      %f = tensor.empty() : tensor<256xf32>
      %s = comm.all_reduce @tp sum ins(%d : tensor<256xf32>) outs(%f : tensor<256xf32>) -> tensor<256xf32>
      scf.yield %s : tensor<256xf32>
    }
    return %r : tensor<256xf32>
  }
}

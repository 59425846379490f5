// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// memory= is kept for the arena. The loop hands on its buffers crosswise, which takes
// copies that comm-overlap does not see: its schedule has 20,000,000 bytes by its own
// count, and 24,000,000 as buffers.
//
// RUN: comm-opt %s --comm-pipeline="memory=24000000 machine=accelerator" --explain 2>%t | FileCheck %s --check-prefix=FITS
// RUN: FileCheck %s --check-prefix=FITS-WHY < %t
// RUN: comm-opt %s --comm-pipeline="memory=22000000 machine=accelerator" --explain 2>%t | FileCheck %s --check-prefix=LESS
// RUN: FileCheck %s --check-prefix=LESS-WHY < %t
// RUN: comm-opt %s --comm-pipeline="memory=22000000 machine=accelerator" | FileCheck %s --check-prefix=LESS
//
// Passes one by one: nobody goes back, so it is an error.
// RUN: not comm-opt %s --comm-overlap="memory=22000000 machine=accelerator" --comm-plan-workspace 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: comm-opt %s --comm-pipeline="memory=22000000 machine=accelerator to=ordered" -o %t.mlir
// RUN: not comm-opt %t.mlir --comm-pipeline 2>&1 | FileCheck %s --check-prefix=ALONE
// RUN: not comm-opt %s --comm-pipeline="memory=19999999 machine=accelerator" 2>&1 | FileCheck %s --check-prefix=NEVER
// RUN: not comm-opt %s --comm-pipeline="memory=19999999 machine=accelerator opt=0" 2>&1 | FileCheck %s --check-prefix=NEVER
// RUN: not comm-opt %s --comm-plan-workspace="memory=19999999" 2>&1 | FileCheck %s --check-prefix=NEVER

// FITS: comm.memory_limit = 24000000 : i64
// FITS: comm.start all_reduce
// FITS: comm.arena @main size(24000000)
// FITS-WHY-NOT: tighter
// LESS: comm.memory_limit = 22000000 : i64
// LESS-NOT: comm.start
// LESS: comm.arena @main size(20000000)
// What was given up is not explained.
// LESS-WHY: comm-overlap tighter {{.*}} reason=memory-limit arena_bytes=24000000 limit_bytes=22000000
// LESS-WHY-NOT: reason=hidden
// LESS-WHY: comm-overlap keep {{.*}} reason=memory-limit
// LESS-WHY: comm-plan-workspace place {{.*}} bytes=20000000
// ALONE: error: comm-plan-workspace: the arena of main takes 24000000 bytes, over the limit of 22000000; 24000000 are live at one time, in 6 buffers. Raise memory=, or split the program
// ALONE: note: 4000000 bytes, 'memref<1000000xf32>'
// NEVER: error: comm-plan-workspace: the arena of main takes 20000000 bytes, over the limit of 19999999
module attributes {comm.world = 2 : i64, comm.phase = "decomposed"} {
  comm.domain @dp groups([[0, 1]])
  func.func @main(%a: tensor<1000000xf32>, %b: tensor<1000000xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %x = comm.compute "produce"(%a) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
    %e = tensor.empty() : tensor<1000000xf32>
    %r = comm.all_reduce @dp sum ins(%x : tensor<1000000xf32>) outs(%e : tensor<1000000xf32>) -> tensor<1000000xf32>
    %s:2 = scf.for %i = %c0 to %c4 step %c1 iter_args(%l = %a, %m = %b) -> (tensor<1000000xf32>, tensor<1000000xf32>) {
      %n = comm.compute "mix"(%l) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<1000000xf32>
      scf.yield %m, %n : tensor<1000000xf32>, tensor<1000000xf32>
    }
    %y = comm.compute "consume"(%r) {flops = 10000000000 : i64} : (tensor<1000000xf32>) -> tensor<8xf32>
    %z = comm.compute "both"(%s#0, %s#1) {flops = 10000000000 : i64} : (tensor<1000000xf32>, tensor<1000000xf32>) -> tensor<8xf32>
    return %y, %z : tensor<8xf32>, tensor<8xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.compute: cost, domains touched, the key back to the foreign graph.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @main
func.func @main(%a: tensor<8x8xf32>, %t: !llvm.ptr) -> tensor<8x8xf32> {
  // CHECK: comm.compute "dot"(%{{.*}}, %{{.*}}) {bytes_read = 512 : i64, bytes_written = 256 : i64, flops = 4096 : i64, key = "%dot.3", workspace_bytes = 64 : i64} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %0 = comm.compute "dot"(%a, %a) {bytes_read = 512 : i64, bytes_written = 256 : i64,
         flops = 4096 : i64, key = "%dot.3", workspace_bytes = 64 : i64}
         : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  // CHECK: comm.compute "custom"() {touches = [@tp]} : () -> ()
  comm.compute "custom"() {touches = [@tp]} : () -> ()
  // CHECK: comm.compute "unknown"(%{{.*}}) {touches_all} : (!llvm.ptr) -> ()
  comm.compute "unknown"(%t) {touches_all} : (!llvm.ptr) -> ()
  return %0 : tensor<8x8xf32>
}

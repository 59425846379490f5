// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Issues and waits become calls with their site, kernels calls with their entry, a
// failure leaves the step at once, and the plan is a constant of its own section.
//
// RUN: comm-opt %s --comm-lower | FileCheck %s
// RUN: comm-opt %s --comm-lower | FileCheck %s --check-prefix=META

// CHECK: comm.phase = "lowered"
// CHECK-DAG: llvm.func @concord_issue(!llvm.ptr, i32, !llvm.ptr, i32) -> i32
// CHECK-DAG: llvm.func @concord_kernel_run(!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
// CHECK-LABEL: llvm.func internal @concord_body
// CHECK: llvm.call @concord_kernel_run
// CHECK: llvm.icmp
// CHECK: llvm.cond_br
// CHECK: %[[S0:.*]] = llvm.mlir.constant(0 : i32)
// CHECK: llvm.call @concord_issue(%{{.*}}, %[[S0]],
// CHECK: llvm.cond_br
// CHECK: llvm.call @concord_site_wait
// CHECK: llvm.cond_br
// CHECK-DAG: section = ".concord.plan"
// CHECK-DAG: section = ".concord.meta"
// CHECK-DAG: section = ".concord.kernels"
// META: \22predicted\22:{\22machine\22:\22cpu\22,\22programs\22:[{\22compute_us\22:{{[0-9.]+}}
// META-SAME: \22sites\22:{{[[][[]}}1,{{[0-9.]+}},{{[0-9.]+}},{{[0-9.]+}}]]
// META-SAME: \22validated\22
// CHECK-NOT: comm.start
// CHECK-NOT: comm.kernel
// CHECK-NOT: memref
module attributes {comm.world = 2 : i64, comm.name = "x", comm.machine = "cpu"} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%arena: memref<128xi8> {comm.arena}, %x: memref<16xf32> {comm.input = 0 : i64}, %out: memref<16xf32> {comm.output = 0 : i64}) {
    %c0 = arith.constant 0 : index
    %a = memref.view %arena[%c0][] : memref<128xi8> to memref<16xf32>
    comm.kernel "softmax cols=16 dtype=f32 rows=1" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    %f = comm.start all_reduce @tp ins(%a : memref<16xf32>) outs(%out : memref<16xf32>) {reduction = 1 : i32, site = 0 : i64}
    comm.wait %f ins(%a : memref<16xf32>) outs(%out : memref<16xf32>)
    return
  }
}

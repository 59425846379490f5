// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Two programs in one artefact: a step for each, found by the plan's order; one list of
// entries in the model's order, with the ranks that have them; a parameter of both is
// stored once. Grouped transfers are one call with the buffers of all, in their order,
// under the number behind those of all issues.
//
// RUN: comm-opt %s --comm-lower | FileCheck %s

// CHECK: comm.parameters = [
// CHECK-SAME: ranks = array<i64: 0, 1>
// CHECK-SAME: section = "both"
// CHECK-LABEL: llvm.func internal @concord_body.0
// CHECK: %[[SITE:.*]] = llvm.mlir.constant(2 : i32)
// CHECK: %[[COUNT:.*]] = llvm.mlir.constant(2 : i32)
// CHECK: llvm.call @concord_issue(
// CHECK-NOT: llvm.call @concord_issue(
// CHECK: llvm.call @concord_site_wait
// CHECK: llvm.call @concord_site_wait
// CHECK-LABEL: llvm.func internal @concord_body.1
// CHECK: llvm.call @concord_issue(
// CHECK-NOT: llvm.call @concord_issue(
// CHECK-LABEL: llvm.func internal @concord_step.0
// CHECK: llvm.call @concord_body.0
// CHECK-LABEL: llvm.func internal @concord_step.1
// CHECK: llvm.call @concord_body.1
// CHECK: llvm.mlir.global internal constant @concord.meta
// CHECK-SAME: \22inputs\22:[{{.*}}\22name\22:\22x\22,\22ranks\22:[0]
// CHECK-SAME: \22outputs\22:[{{.*}}\22name\22:\22y\22,\22ranks\22:[1]
// CHECK-SAME: \22programs\22:[{\22arena_bytes\22:64,\22inputs\22:[0],\22issuer\22:\22\22,\22kernels\22:[],\22name\22:\22p0\22,\22outputs\22:[],\22parameters\22:[0],\22ranks\22:[0]}
// CHECK-SAME: \22name\22:\22p1\22
// CHECK: llvm.mlir.global internal @concord.steps()
// CHECK: llvm.mlir.addressof @concord_step.0
// CHECK: llvm.mlir.addressof @concord_step.1
module attributes {comm.world = 2 : i64, comm.mesh = [["pp", 2]], comm.name = "m"} {
  comm.domain @pp groups([[0, 1]])
  comm.program @p0 entry(@f0) ranks([0])
  comm.program @p1 entry(@f1) ranks([1])
  func.func @f0(%arena: memref<64xi8> {comm.arena}, %x: memref<4xf32> {comm.input = 0 : i64, comm.name = "x", comm.position = 0 : i64}) {
    %w = comm.weight "both" from "m.weights" : memref<4xf32>
    %s = comm.start send @pp ins(%x : memref<4xf32>) {peer = 1 : i64}
    %t = comm.start send @pp ins(%w : memref<4xf32>) {peer = 1 : i64}
    comm.group %s, %t : !comm.future, !comm.future
    comm.wait %s ins(%x : memref<4xf32>)
    comm.wait %t ins(%w : memref<4xf32>)
    return
  }
  func.func @f1(%arena: memref<64xi8> {comm.arena}, %y: memref<4xf32> {comm.output = 0 : i64, comm.name = "y", comm.position = 0 : i64}, %z: memref<4xf32> {comm.output = 1 : i64, comm.name = "z", comm.position = 1 : i64}) {
    %w = comm.weight "both" from "m.weights" : memref<4xf32>
    memref.copy %w, %y : memref<4xf32> to memref<4xf32>
    %s = comm.start recv @pp outs(%y : memref<4xf32>) {peer = 0 : i64}
    %t = comm.start recv @pp outs(%z : memref<4xf32>) {peer = 0 : i64}
    comm.group %s, %t : !comm.future, !comm.future
    comm.wait %s outs(%y : memref<4xf32>)
    comm.wait %t outs(%z : memref<4xf32>)
    return
  }
}

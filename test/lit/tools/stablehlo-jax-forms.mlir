// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Forms that JAX writes: a sum whose reduction is sharded too (a computation that is
// manual over one axis of two), a ragged exchange as a custom call, results behind an
// arrow without parentheses before it, a constraint in place of a reshard, and a branch
// by the place along the other axis, which the members of a group have in common.
//
// RUN: comm-opt %s --comm-verify-uniform --comm-order --comm-verify-order -o - 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=NOTE < %t.err
//
// CHECK-DAG: comm.all_reduce @x4 sum
// CHECK-DAG: scf.index_switch
// CHECK-DAG: comm.all_reduce @x4 max
// CHECK-DAG: comm.compute "pack"
// CHECK-DAG: comm.all_to_all @world
// CHECK-DAG: comm.compute "chlo.top_k"
// NOTE: note: {{.*}}stablehlo-jax-forms.mlir: 2 operations lie outside sdy.manual_computation
module @m attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["dp"=2, "tp"=4]>
  func.func public @main(%arg0: tensor<16x32xf32>, %arg1: tensor<64x4xf32>, %arg2: tensor<64xi32>) -> (tensor<16x8xf32>, tensor<64x4xf32>, tensor<16x4xf32>, tensor<16x4xi32>) {
    %0 = sdy.manual_computation(%arg0) in_shardings=[<@mesh, [{?}, {"tp", ?}]>] out_shardings=[<@mesh, [{?}, {?}]>] manual_axes={"tp"} (%arg3: tensor<16x8xf32>) {
      %3 = "stablehlo.all_reduce"(%arg3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %4 = stablehlo.add %a, %b : tensor<f32>
        %5 = sdy.sharding_constraint %4 <@mesh, []> : tensor<f32>
        stablehlo.return %5 : tensor<f32>
      }) : (tensor<16x8xf32>) -> tensor<16x8xf32>
      %c = stablehlo.constant dense<4> : tensor<ui32>
      %c2 = stablehlo.constant dense<2> : tensor<ui32>
      %7 = stablehlo.partition_id : tensor<ui32>
      %8 = stablehlo.divide %7, %c : tensor<ui32>
      %9 = stablehlo.remainder %8, %c2 : tensor<ui32>
      %10 = stablehlo.convert %9 : (tensor<ui32>) -> tensor<i32>
      %11 = "stablehlo.case"(%10) ({
        stablehlo.return %3 : tensor<16x8xf32>
      }, {
        %12 = "stablehlo.all_reduce"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %13 = stablehlo.maximum %a, %b : tensor<f32>
          stablehlo.return %13 : tensor<f32>
        }) : (tensor<16x8xf32>) -> tensor<16x8xf32>
        stablehlo.return %12 : tensor<16x8xf32>
      }) : (tensor<i32>) -> tensor<16x8xf32>
      sdy.return %11 : tensor<16x8xf32>
    } : (tensor<16x32xf32>) -> tensor<16x8xf32>
    %1 = sdy.manual_computation(%arg1, %arg2) in_shardings=[<@mesh, [{"dp", "tp"}, {}]>, <@mesh, [{"dp", "tp"}]>] out_shardings=[<@mesh, [{"dp", "tp"}, {}]>] manual_axes={"dp", "tp"} (%arg4: tensor<8x4xf32>, %arg5: tensor<8xi32>) {
      %6 = stablehlo.custom_call @ragged_all_to_all(%arg4, %arg4, %arg5, %arg5, %arg5, %arg5) {api_version = 4 : i32, backend_config = {channel_id = 1 : i64, replica_groups = dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>}} : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8xi32>, tensor<8xi32>, tensor<8xi32>, tensor<8xi32>) -> tensor<8x4xf32>
      sdy.return %6 : tensor<8x4xf32>
    } : (tensor<64x4xf32>, tensor<64xi32>) -> tensor<64x4xf32>
    %2 = sdy.sharding_constraint %arg0 <@mesh, [{"tp"}, {"dp"}]> : tensor<16x32xf32>
    %values, %indices = chlo.top_k(%2, k = 4) : tensor<16x32xf32> -> (tensor<16x4xf32>, tensor<16x4xi32>)
    return %0, %1, %values, %indices : tensor<16x8xf32>, tensor<64x4xf32>, tensor<16x4xf32>, tensor<16x4xi32>
  }
}

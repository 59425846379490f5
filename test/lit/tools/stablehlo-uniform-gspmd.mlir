// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The same as GSPMD writes it: from SPMDFullToShardShape on, devices hold the parts
// that the sharding of its operand gives them.
//
// RUN: not comm-opt %s --import=stablehlo --comm-verify-uniform -o /dev/null 2>&1 | FileCheck %s
//
// CHECK: :[[@LINE+34]]:{{.*}} error: 'comm.all_reduce' op on @x2s2 is under a condition that may differ
// CHECK-NOT: error:
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32> {mhlo.sharding = "{devices=[4]<=[4]}"}, %arg1: tensor<2xi32>, %arg2: tensor<i32> {mhlo.sharding = "{replicated}"}) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @Sharding(%arg0) {backend_config = "", mhlo.sharding = "{devices=[4]<=[4]}"} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<1xf32>
    %2 = stablehlo.custom_call @Sharding(%arg1) {backend_config = "", mhlo.sharding = "{devices=[2,2]<=[4] last_tile_dim_replicate}"} : (tensor<2xi32>) -> tensor<2xi32>
    %3 = stablehlo.custom_call @SPMDFullToShardShape(%2) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<2xi32>) -> tensor<1xi32>
    %4 = stablehlo.custom_call @Sharding(%arg2) {backend_config = "", mhlo.sharding = "{replicated}"} : (tensor<i32>) -> tensor<i32>
    %5 = stablehlo.custom_call @SPMDFullToShardShape(%4) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<i32>) -> tensor<i32>
    %6 = call @body(%1, %3, %5) : (tensor<1xf32>, tensor<1xi32>, tensor<i32>) -> tensor<1xf32>
    %7 = stablehlo.custom_call @Sharding(%6) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<1xf32>) -> tensor<1xf32>
    %8 = stablehlo.custom_call @SPMDShardToFullShape(%7) {backend_config = "", mhlo.sharding = "{devices=[4]<=[4]}"} : (tensor<1xf32>) -> tensor<4xf32>
    return %8 : tensor<4xf32>
  }
  func.func private @body(%arg0: tensor<1xf32>, %arg1: tensor<1xi32>, %arg2: tensor<i32>) -> tensor<1xf32> {
    %0 = stablehlo.reshape %arg1 : (tensor<1xi32>) -> tensor<i32>
    // All of a row have it.
    %1 = "stablehlo.case"(%0) ({
      stablehlo.return %arg0 : tensor<1xf32>
    }, {
      // JAX says of the sum too how it is sharded.
      %9 = "stablehlo.all_reduce"(%arg0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %10 = stablehlo.add %a, %b : tensor<f32>
        %11 = stablehlo.custom_call @Sharding(%10) {backend_config = "", mhlo.sharding = "{manual}"} : (tensor<f32>) -> tensor<f32>
        stablehlo.return %11 : tensor<f32>
      }) : (tensor<1xf32>) -> tensor<1xf32>
      stablehlo.return %9 : tensor<1xf32>
    }) : (tensor<i32>) -> tensor<1xf32>
    // Not all of a column; all devices have the index of the second.
    %2 = "stablehlo.case"(%0) ({
      stablehlo.return %1 : tensor<1xf32>
    }, {
      %9 = "stablehlo.all_reduce"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %10 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %10 : tensor<f32>
      }) : (tensor<1xf32>) -> tensor<1xf32>
      stablehlo.return %9 : tensor<1xf32>
    }) : (tensor<i32>) -> tensor<1xf32>
    %3 = "stablehlo.case"(%arg2) ({
      stablehlo.return %2 : tensor<1xf32>
    }, {
      %9 = "stablehlo.all_reduce"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %10 = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %10 : tensor<f32>
      }) : (tensor<1xf32>) -> tensor<1xf32>
      stablehlo.return %9 : tensor<1xf32>
    }) : (tensor<i32>) -> tensor<1xf32>
    return %3 : tensor<1xf32>
  }
}

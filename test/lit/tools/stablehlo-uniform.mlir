// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In a manual computation an operand is each device's own part, unless its sharding
// names no axis: a collective under what is computed from the former may be called
// by some devices only.
//
// RUN: not comm-opt %s --import=stablehlo --comm-verify-uniform -o /dev/null 2>&1 | FileCheck %s
//
// CHECK-COUNT-3: error: 'comm.all_reduce' op on @world is under a condition that may differ
// CHECK-NOT: error:
module @m attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<i32>) -> tensor<4xf32> {
    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"x"}]>, <@mesh, []>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%arg2: tensor<2xf32>, %arg3: tensor<i32>) {
      // The same index everywhere.
      %1 = "stablehlo.case"(%arg3) ({
        stablehlo.return %arg2 : tensor<2xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%arg2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<2xf32>) -> tensor<2xf32>
        stablehlo.return %9 : tensor<2xf32>
      }) : (tensor<i32>) -> tensor<2xf32>
      // An index from each device's part.
      %2 = stablehlo.slice %arg2 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
      %3 = stablehlo.reshape %2 : (tensor<1xf32>) -> tensor<f32>
      %4 = stablehlo.convert %3 : (tensor<f32>) -> tensor<i32>
      %5 = "stablehlo.case"(%4) ({
        stablehlo.return %1 : tensor<2xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%1) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<2xf32>) -> tensor<2xf32>
        stablehlo.return %9 : tensor<2xf32>
      }) : (tensor<i32>) -> tensor<2xf32>
      // An index that is the device's own place in the group.
      %15 = stablehlo.partition_id : tensor<ui32>
      %16 = stablehlo.convert %15 : (tensor<ui32>) -> tensor<i32>
      %17 = "stablehlo.case"(%16) ({
        stablehlo.return %5 : tensor<2xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<2xf32>) -> tensor<2xf32>
        stablehlo.return %9 : tensor<2xf32>
      }) : (tensor<i32>) -> tensor<2xf32>
      sdy.return %17 : tensor<2xf32>
    } : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
    // The generic form says the same.
    %6 = "sdy.manual_computation"(%0, %arg1) <{in_shardings = #sdy.sharding_per_value<[<@mesh, [{"x"}]>, <@mesh, []>]>, manual_axes = #sdy<manual_axes{"x"}>, out_shardings = #sdy.sharding_per_value<[<@mesh, [{"x"}]>]>}> ({
    ^bb0(%arg4: tensor<2xf32>, %arg5: tensor<i32>):
      %12 = "stablehlo.slice"(%arg4) <{limit_indices = array<i64: 1>, start_indices = array<i64: 0>, strides = array<i64: 1>}> : (tensor<2xf32>) -> tensor<1xf32>
      %13 = "stablehlo.reshape"(%12) : (tensor<1xf32>) -> tensor<f32>
      %14 = "stablehlo.convert"(%13) : (tensor<f32>) -> tensor<i32>
      %7 = "stablehlo.case"(%14) ({
        "stablehlo.return"(%arg4) : (tensor<2xf32>) -> ()
      }, {
        %9 = "stablehlo.all_reduce"(%arg4) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          "stablehlo.return"(%10) : (tensor<f32>) -> ()
        }) : (tensor<2xf32>) -> tensor<2xf32>
        "stablehlo.return"(%9) : (tensor<2xf32>) -> ()
      }) : (tensor<i32>) -> tensor<2xf32>
      %8 = "stablehlo.case"(%arg5) ({
        "stablehlo.return"(%7) : (tensor<2xf32>) -> ()
      }, {
        %9 = "stablehlo.all_reduce"(%7) <{channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          "stablehlo.return"(%10) : (tensor<f32>) -> ()
        }) : (tensor<2xf32>) -> tensor<2xf32>
        "stablehlo.return"(%9) : (tensor<2xf32>) -> ()
      }) : (tensor<i32>) -> tensor<2xf32>
      "sdy.return"(%8) : (tensor<2xf32>) -> ()
    }) : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
    return %6 : tensor<4xf32>
  }
}

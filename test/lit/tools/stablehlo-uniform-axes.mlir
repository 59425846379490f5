// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a sharding gives all devices of a group is one value to them. At the view of
// the whole program a value is one everywhere, whatever its sharding. A computation
// within another one divides further. A loop's count is as uniform as its condition.
//
// RUN: not comm-opt %s --import=stablehlo --comm-verify-uniform -o /dev/null 2>&1 | FileCheck %s
//
// CHECK: :[[@LINE+24]]:{{.*}} error: 'comm.all_reduce' op on @x2s2 is under a condition that may differ
// CHECK: :[[@LINE+44]]:{{.*}} error: 'comm.all_reduce' op on @x2s2 is under a condition that may differ
// CHECK: :[[@LINE+65]]:{{.*}} error: 'comm.all_reduce' op on @x2 is under a condition that may differ
// CHECK-NOT: error:
module @m attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=2]>
  func.func public @main(%arg0: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x", "y"}]>}, %arg1: tensor<2xi32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}) -> tensor<4xf32> {
    %0 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"x", "y"}]>, <@mesh, [{"x"}], replicated={"y"}>] out_shardings=[<@mesh, [{"x", "y"}]>] manual_axes={"x", "y"} (%arg2: tensor<1xf32>, %arg3: tensor<1xi32>) {
      %1 = stablehlo.reshape %arg3 : (tensor<1xi32>) -> tensor<i32>
      // All of a row have it.
      %2 = "stablehlo.case"(%1) ({
        stablehlo.return %arg2 : tensor<1xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%arg2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<1xf32>) -> tensor<1xf32>
        stablehlo.return %9 : tensor<1xf32>
      }) : (tensor<i32>) -> tensor<1xf32>
      // Not all of a column.
      %3 = "stablehlo.case"(%1) ({
        stablehlo.return %2 : tensor<1xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 2, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<1xf32>) -> tensor<1xf32>
        stablehlo.return %9 : tensor<1xf32>
      }) : (tensor<i32>) -> tensor<1xf32>
      // How often a loop of each row's own runs.
      %c0 = stablehlo.constant dense<0> : tensor<i32>
      %c1 = stablehlo.constant dense<1> : tensor<i32>
      %4:2 = stablehlo.while(%i = %c0, %n = %1) : tensor<i32>, tensor<i32>
      cond {
        %11 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %11 : tensor<i1>
      } do {
        %12 = stablehlo.add %i, %c1 : tensor<i32>
        stablehlo.return %12, %n : tensor<i32>, tensor<i32>
      }
      %5 = "stablehlo.case"(%4#0) ({
        stablehlo.return %3 : tensor<1xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 3, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<1xf32>) -> tensor<1xf32>
        stablehlo.return %9 : tensor<1xf32>
      }) : (tensor<i32>) -> tensor<1xf32>
      sdy.return %5 : tensor<1xf32>
    } : (tensor<4xf32>, tensor<2xi32>) -> tensor<4xf32>
    // Rows divided first, and in them the columns.
    %6 = sdy.manual_computation(%0, %arg1) in_shardings=[<@mesh, [{"x"}]>, <@mesh, [{}]>] out_shardings=[<@mesh, [{"x"}]>] manual_axes={"x"} (%arg2: tensor<2xf32>, %arg3: tensor<2xi32>) {
      %7 = sdy.manual_computation(%arg2, %arg3) in_shardings=[<@mesh, [{"y"}]>, <@mesh, [{"y"}]>] out_shardings=[<@mesh, [{"y"}]>] manual_axes={"y"} (%arg4: tensor<1xf32>, %arg5: tensor<1xi32>) {
        %1 = stablehlo.reshape %arg5 : (tensor<1xi32>) -> tensor<i32>
        // All of a column have it, not all of a row.
        %8 = "stablehlo.case"(%1) ({
          %9 = "stablehlo.all_reduce"(%arg4) <{channel_handle = #stablehlo.channel_handle<handle = 4, type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %10 = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %10 : tensor<f32>
          }) : (tensor<1xf32>) -> tensor<1xf32>
          stablehlo.return %9 : tensor<1xf32>
        }, {
          %9 = "stablehlo.all_reduce"(%arg4) <{channel_handle = #stablehlo.channel_handle<handle = 5, type = 1>, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %10 = stablehlo.add %a, %b : tensor<f32>
            stablehlo.return %10 : tensor<f32>
          }) : (tensor<1xf32>) -> tensor<1xf32>
          stablehlo.return %9 : tensor<1xf32>
        }) : (tensor<i32>) -> tensor<1xf32>
        sdy.return %8 : tensor<1xf32>
      } : (tensor<2xf32>, tensor<2xi32>) -> tensor<2xf32>
      sdy.return %7 : tensor<2xf32>
    } : (tensor<4xf32>, tensor<2xi32>) -> tensor<4xf32>
    // A loop of the whole program, on its data.
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %13 = stablehlo.while(%v = %6) : tensor<4xf32>
    cond {
      %14 = stablehlo.reduce(%v init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
      %15 = stablehlo.compare GT, %14, %one, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %15 : tensor<i1>
    } do {
      %16 = sdy.manual_computation(%v) in_shardings=[<@mesh, [{"x", "y"}]>] out_shardings=[<@mesh, [{"x", "y"}]>] manual_axes={"x", "y"} (%arg2: tensor<1xf32>) {
        %9 = "stablehlo.all_reduce"(%arg2) <{channel_handle = #stablehlo.channel_handle<handle = 6, type = 1>, replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
        ^bb0(%a: tensor<f32>, %b: tensor<f32>):
          %10 = stablehlo.add %a, %b : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<1xf32>) -> tensor<1xf32>
        sdy.return %9 : tensor<1xf32>
      } : (tensor<4xf32>) -> tensor<4xf32>
      stablehlo.return %16 : tensor<4xf32>
    }
    return %13 : tensor<4xf32>
  }
}

// RUN: comm-opt %s -o - 2>%t.err | FileCheck %s
// RUN: FileCheck %s --check-prefix=NOTE < %t.err
// RUN: comm-opt %s --comm-verify-uniform --comm-order --comm-verify-order --comm-summary -o %t.mlir 2>&1 | FileCheck %s --check-prefix=SUMMARY
// RUN: comm-opt %t.mlir --comm-verify-order -o /dev/null
// RUN: not comm-opt %s --emit=hlo -o - 2>&1 | FileCheck %s --check-prefix=HLO

// As JAX prints a shard_map: a mesh, a manual computation, a loop that calls a
// function, collectives in generic form, a branch that every device takes alike.

// CHECK-DAG: comm.domain @x4 groups({{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]])
// CHECK-DAG: comm.domain @x2s4 groups({{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]])
// CHECK-DAG: comm.world = 8
// CHECK-LABEL: func.func @main
// CHECK: comm.compute "sdy.global_to_local"
// CHECK: scf.while
// CHECK: comm.compute "dot"{{.*}}flops = 65536
// CHECK: comm.all_reduce @x4 sum
// CHECK: comm.all_gather @x2s4
// CHECK: comm.reduce_scatter @x2s4 sum
// CHECK: comm.all_to_all @x4{{.*}}
// CHECK: comm.permute
// CHECK: scf.index_switch
// CHECK: comm.all_reduce @x2s4 max
// CHECK: comm.all_reduce @x2s4 min
// CHECK: comm.compute "sdy.local_to_global"

// NOTE: note: {{.*}}stablehlo.mlir: 1 operations lie outside sdy.manual_computation

// SUMMARY: x2s4
// SUMMARY: x4

// HLO: error: --emit=hlo needs a module that was imported from HLO text

module @jit_step attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["dp"=2, "tp"=4]> {stablehlo.mesh = {axes = [{name = "dp", size = 2 : i64}, {name = "tp", size = 4 : i64}]}}
  func.func public @main(%arg0: tensor<16x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>}, %arg1: tensor<64x256xf32>, %arg2: tensor<i32>) -> (tensor<16x64xf32> {jax.result_info = "result"}) {
    %0 = sdy.manual_computation(%arg0, %arg1, %arg2) in_shardings=[<@mesh, [{"dp"}, {}]>, <@mesh, [{}, {"tp"}]>, <@mesh, []>] out_shardings=[<@mesh, [{"dp"}, {}]>] manual_axes={"dp", "tp"} (%arg3: tensor<8x64xf32>, %arg4: tensor<64x64xf32>, %arg5: tensor<i32>) {
      %c = stablehlo.constant dense<0> : tensor<i32>
      %1:3 = stablehlo.while(%iterArg = %arg4, %iterArg_1 = %c, %iterArg_2 = %arg3) : tensor<64x64xf32>, tensor<i32>, tensor<8x64xf32>
      cond {
        %c_3 = stablehlo.constant dense<3> : tensor<i32>
        %9 = stablehlo.compare LT, %iterArg_1, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %9 : tensor<i1>
      } do {
        %9 = func.call @layer(%iterArg, %iterArg_2) : (tensor<64x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
        %c_3 = stablehlo.constant dense<1> : tensor<i32>
        %10 = stablehlo.add %iterArg_1, %c_3 : tensor<i32>
        stablehlo.return %iterArg, %10, %9 : tensor<64x64xf32>, tensor<i32>, tensor<8x64xf32>
      }
      %2 = "stablehlo.all_gather"(%1#2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "dp">]>, use_global_device_ids}> : (tensor<8x64xf32>) -> tensor<16x64xf32>
      %3 = "stablehlo.reduce_scatter"(%2) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
        %9 = stablehlo.add %arg6, %arg7 : tensor<f32>
        stablehlo.return %9 : tensor<f32>
      }) : (tensor<16x64xf32>) -> tensor<8x64xf32>
      %4 = "stablehlo.all_to_all"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, concat_dimension = 0 : i64, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, split_count = 4 : i64, split_dimension = 1 : i64}> : (tensor<8x64xf32>) -> tensor<32x16xf32>
      %5 = "stablehlo.collective_permute"(%4) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, source_target_pairs = dense<[[0, 1], [1, 2], [2, 3], [3, 0], [4, 5], [5, 6], [6, 7], [7, 4]]> : tensor<8x2xi64>}> : (tensor<32x16xf32>) -> tensor<32x16xf32>
      %6 = "stablehlo.case"(%arg5) ({
        %9 = "stablehlo.all_reduce"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, use_global_device_ids}> ({
        ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
          %10 = stablehlo.maximum %arg6, %arg7 : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<32x16xf32>) -> tensor<32x16xf32>
        stablehlo.return %9 : tensor<32x16xf32>
      }, {
        %9 = "stablehlo.all_reduce"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>, use_global_device_ids}> ({
        ^bb0(%arg6: tensor<f32>, %arg7: tensor<f32>):
          %10 = stablehlo.minimum %arg6, %arg7 : tensor<f32>
          stablehlo.return %10 : tensor<f32>
        }) : (tensor<32x16xf32>) -> tensor<32x16xf32>
        stablehlo.return %9 : tensor<32x16xf32>
      }) : (tensor<i32>) -> tensor<32x16xf32>
      %7 = stablehlo.reshape %6 : (tensor<32x16xf32>) -> tensor<8x64xf32>
      sdy.return %7 : tensor<8x64xf32>
    } : (tensor<16x64xf32>, tensor<64x256xf32>, tensor<i32>) -> tensor<16x64xf32>
    %8 = stablehlo.negate %0 : tensor<16x64xf32>
    return %8 : tensor<16x64xf32>
  }
  func.func private @layer(%arg0: tensor<64x64xf32>, %arg1: tensor<8x64xf32>) -> tensor<8x64xf32> {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %1 = "stablehlo.all_reduce"(%0) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>, use_global_device_ids}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %3 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }) : (tensor<8x64xf32>) -> tensor<8x64xf32>
    %2 = stablehlo.add %arg1, %1 : tensor<8x64xf32>
    return %2 : tensor<8x64xf32>
  }
}

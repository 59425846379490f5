// RUN: comm-opt %s --comm-import-shard | FileCheck %s

// CHECK: module attributes {{.*}}comm.phase = "partitioned", comm.world = 8 : i64
// CHECK-DAG: comm.domain @g_1 groups({{\[\[}}0, 1, 2, 3], [4, 5, 6, 7]])
// CHECK-DAG: comm.domain @g_0 groups({{\[\[}}0, 4], [1, 5], [2, 6], [3, 7]])
// Members follow the order in which the axes are listed.
// CHECK-DAG: comm.domain @g_1_0 groups({{\[\[}}0, 4, 1, 5, 2, 6, 3, 7]])
// CHECK-NOT: shard.
shard.grid @g(shape = 2x4)

// CHECK-LABEL: @reductions
// CHECK: comm.all_reduce @g_1 sum ins(%arg0
// CHECK: comm.all_reduce @g_1_0 max
// CHECK: comm.reduce_scatter @g_1 avg dim(0) {{.*}} -> tensor<2x8xf32>
// CHECK: comm.reduce @g_1_0 prod root(5)
func.func @reductions(%x: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<8x8xf32>) {
  %0 = shard.all_reduce %x on @g grid_axes = [1] : tensor<8x8xf32> -> tensor<8x8xf32>
  %1 = shard.all_reduce %0 on @g grid_axes = [1, 0] reduction = max : tensor<8x8xf32> -> tensor<8x8xf32>
  %2 = shard.reduce_scatter %1 on @g grid_axes = [1] reduction = average scatter_axis = 0 : tensor<8x8xf32> -> tensor<2x8xf32>
  %3 = shard.reduce %1 on @g grid_axes = [1, 0] reduction = product root = [2, 1] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %2, %3 : tensor<2x8xf32>, tensor<8x8xf32>
}

// CHECK-LABEL: @moves
// CHECK: comm.all_gather @g_0 dim(1)
// CHECK: comm.gather @g_1 dim(0) root(2)
// CHECK: comm.scatter @g_1 dim(0) root(1)
// CHECK: comm.broadcast @g_0 root(1)
// CHECK: comm.all_to_all @g_1 split(0) concat(1)
// CHECK: %[[RANK:.*]] = comm.rank @g_1
// CHECK: %[[AT:.*]] = arith.muli %[[RANK]],
// CHECK: tensor.extract_slice %{{.*}}[%[[AT]], 0] [2, 8] [1, 1]
func.func @moves(%x: tensor<8x8xf32>) -> (tensor<8x16xf32>, tensor<32x8xf32>, tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x32xf32>, tensor<2x8xf32>) {
  %0 = shard.all_gather %x on @g grid_axes = [0] gather_axis = 1 : tensor<8x8xf32> -> tensor<8x16xf32>
  %1 = shard.gather %x on @g grid_axes = [1] gather_axis = 0 root = [2] : (tensor<8x8xf32>) -> tensor<32x8xf32>
  %2 = shard.scatter %x on @g grid_axes = [1] scatter_axis = 0 root = [1] : (tensor<8x8xf32>) -> tensor<2x8xf32>
  %3 = shard.broadcast %x on @g grid_axes = [0] root = [1] : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %4 = shard.all_to_all %x on @g grid_axes = [1] split_axis = 0 concat_axis = 1 : tensor<8x8xf32> -> tensor<2x32xf32>
  %5 = shard.all_slice %x on @g grid_axes = [1] slice_axis = 0 : tensor<8x8xf32> -> tensor<2x8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<8x16xf32>, tensor<32x8xf32>, tensor<2x8xf32>, tensor<8x8xf32>, tensor<2x32xf32>, tensor<2x8xf32>
}

// A positive offset reads from further along the axis, as upstream draws it.
// CHECK-LABEL: @neighbours
// CHECK: comm.permute @g_1 pairs({{\[\[}}0, 2], [1, 3], [2, 0], [3, 1]])
// CHECK: comm.permute @g_1 pairs({{\[\[}}1, 0], [2, 1], [3, 2]])
// CHECK: comm.send @g_0 to(1)
// CHECK: comm.recv @g_0 from(1)
func.func @neighbours(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = shard.shift %x on @g grid_axes = [1] shift_axis = 1 offset = 2 rotate : tensor<4xf32> -> tensor<4xf32>
  %1 = shard.shift %0 on @g grid_axes = [1] shift_axis = 1 offset = 1 : tensor<4xf32> -> tensor<4xf32>
  %2 = shard.send %x on @g grid_axes = [0] destination = [1] : (tensor<4xf32>) -> tensor<4xf32>
  %3 = shard.recv %2 on @g grid_axes = [0] source = [1] : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// CHECK-LABEL: @halo
// CHECK: %[[R:.*]] = comm.rank @g_1
// CHECK: %[[LAST:.*]] = tensor.extract_slice %arg0[6, 0] [1, 4]
// CHECK: %[[OLD:.*]] = tensor.extract_slice %arg0[0, 0] [1, 4]
// CHECK: %[[GOT:.*]] = comm.permute @g_1 pairs({{\[\[}}0, 1], [1, 2], [2, 3]]) ins(%[[LAST]]
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[R]], %c0
// CHECK: arith.select %[[FIRST]], %[[OLD]], %[[GOT]]
// CHECK: tensor.insert_slice {{.*}}[0, 0] [1, 4]
// CHECK: tensor.extract_slice {{.*}}[1, 0] [2, 4]
// CHECK: comm.permute @g_1 pairs({{\[\[}}1, 0], [2, 1], [3, 2]])
// CHECK: tensor.insert_slice {{.*}}[7, 0] [2, 4]
func.func @halo(%x: tensor<9x4xf32>) -> tensor<9x4xf32> {
  %0 = shard.update_halo %x on @g split_axes = [[1]] halo_sizes = [1, 2] : tensor<9x4xf32>
  return %0 : tensor<9x4xf32>
}

// CHECK-LABEL: @queries
// CHECK: comm.rank @g_0_1
// CHECK: comm.rank @g_0
// CHECK: comm.rank @g_1
func.func @queries() -> (index, index, index, index, index) {
  %0 = shard.process_linear_index on @g : index
  %1:2 = shard.process_multi_index on @g : index, index
  %2:2 = shard.neighbors_linear_indices on @g[%1#0, %1#1] split_axes = [1] : index, index
  return %0, %1#0, %1#1, %2#0, %2#1 : index, index, index, index, index
}

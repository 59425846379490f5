// RUN: comm-opt %s --comm-import-shard --split-input-file --verify-diagnostics

// expected-error @below {{has an axis of unknown size; ranks must be known}}
shard.grid @g(shape = 2x?)

// -----

shard.grid @g(shape = 2x4)
// expected-error @below {{has 4 devices, another grid 8; one program runs on one set of ranks}}
shard.grid @h(shape = 4)

// -----

shard.grid @g(shape = 4)
func.func @f(%x: tensor<4xi32>, %r: index) {
  // expected-error @below {{reduces by bitwise_xor; supported are sum, max}}
  %0 = shard.all_reduce %x on @g grid_axes = [0] reduction = bitwise_xor : tensor<4xi32> -> tensor<4xi32>
  // expected-error @below {{has a root that is only known at run time, which is not supported}}
  %1 = shard.broadcast %x on @g grid_axes = [0] root = [%r] : (tensor<4xi32>, index) -> tensor<4xi32>
  // expected-error @below {{has no source: an order that all ranks agree on needs to know it}}
  %2 = shard.recv %x on @g grid_axes = [0] : (tensor<4xi32>) -> tensor<4xi32>
  // expected-error @below {{changes the element type; convert before it}}
  %3 = shard.all_reduce %x on @g grid_axes = [0] : tensor<4xi32> -> tensor<4xi64>
  return
}

// -----

shard.grid @g(shape = 4)
func.func @f(%x: tensor<4xf32>, %y: tensor<?xf32>) {
  // expected-error @below {{is a sharding, not a collective: run sharding-propagation and shard-partition first}}
  %s = shard.sharding @g split_axes = [[0]] : !shard.sharding
  // expected-error @below {{moves 'tensor<?xf32>'; only tensors of static shape are supported}}
  %0 = shard.all_reduce %y on @g grid_axes = [0] : tensor<?xf32> -> tensor<?xf32>
  // expected-error @below {{has a halo wider than its core in dimension 0}}
  %1 = shard.update_halo %x on @g split_axes = [[0]] halo_sizes = [1, 2] : tensor<4xf32>
  return
}

// Tests that sharding annotations decide where the solver alone would decide
// otherwise: without them the first weight is split by columns (dim 1) and the
// second by rows; these ask for the opposite of both.
// RUN: comm-opt %s --comm-partition | FileCheck %s
// RUN: sed 's/ {shardings = .*}\] *}//' %s | comm-opt --comm-partition | FileCheck %s --check-prefix=ALONE

// RUN: comm-opt %models/mlp_annotated.onnx --dim batch=2 | FileCheck %s --check-prefix=IMPORT

// CHECK-DAG: comm.weight "w1" {{.*}}dim = 0, outer = 1, domain = @tp
// CHECK-DAG: comm.weight "w2" {{.*}}dim = 1, outer = 1, domain = @tp
// ALONE-DAG: comm.weight "w1" {{.*}}dim = 1, outer = 1, domain = @tp
// ALONE-DAG: comm.weight "w2" {{.*}}dim = 0, outer = 1, domain = @tp

module attributes {comm.mesh = [["tp", 2]], comm.phase = "imported", comm.world = 2 : i64} {
  func.func @main(%x: tensor<4x64xf32> {comm.name = "x"}) -> (tensor<4x64xf32> {comm.name = "y"}) {
    %w1 = comm.weight "w1" from "m.weights" : tensor<64x128xf32>
    %w2 = comm.weight "w2" from "m.weights" : tensor<128x64xf32>
    %h = onnx.node "MatMul"(%x, %w1) {} opset(17) {shardings = [{operand = 1 : i64, axis = 0 : i64, shards = 2 : i64}]} : (tensor<4x64xf32>, tensor<64x128xf32>) -> tensor<4x128xf32>
    %y = onnx.node "MatMul"(%h, %w2) {} opset(17) {shardings = [{operand = 1 : i64, axis = -1 : i64, shards = 2 : i64}]} : (tensor<4x128xf32>, tensor<128x64xf32>) -> tensor<4x64xf32>
    return %y : tensor<4x64xf32>
  }
}

// The importer carries the annotations of a model.
// IMPORT: onnx.node "MatMul"{{.*}}shardings = [{axis = 1 : i64, operand = 1 : i64, shards = 2 : i64}

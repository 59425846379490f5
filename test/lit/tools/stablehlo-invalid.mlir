// RUN: not comm-opt %s -o /dev/null 2>&1 | FileCheck %s
// RUN: not comm-opt %s --import=tosa -o /dev/null 2>&1 | FileCheck %s --check-prefix=IMPORT

// CHECK: comm-opt: error: {{.*}}stablehlo-invalid.mlir:9:10: stablehlo.collective_reduce: is not supported; use all_reduce
// IMPORT: --import takes onnx, hlo, stablehlo or mlir, not 'tosa'

module {
  func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
         %0 = "stablehlo.collective_reduce"(%arg0) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
         ^bb0(%a: tensor<f32>, %b: tensor<f32>):
           %1 = stablehlo.add %a, %b : tensor<f32>
           stablehlo.return %1 : tensor<f32>
         }) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Half precision becomes f64 by way of f32, and f64 half precision in one rounding:
// the f32 between is odd where it is not exact. LLVM would call a library.
//
// RUN: comm-opt %s --comm-pipeline=to=lowered | FileCheck %s
// RUN: comm-opt %s --comm-pipeline --emit=so -o %t.so && llvm-nm -D --undefined-only %t.so | FileCheck %s --check-prefix=NEEDS --allow-empty

// CHECK-DAG: llvm.fptrunc %{{.*}} : f64 to f32
// CHECK-DAG: llvm.fptrunc %{{.*}} : f32 to f16
// CHECK-DAG: llvm.fpext %{{.*}} : f32 to f64
// CHECK-NOT: llvm.fptrunc %{{.*}} : f64 to f16
// CHECK-NOT: llvm.fpext %{{.*}} : bf16 to f64
// NEEDS-NOT: __trunc
// NEEDS-NOT: __extend
#id = affine_map<(i) -> (i)>
module attributes {comm.world = 1 : i64, comm.phase = "decomposed"} {
  func.func @main(%x: tensor<32xbf16>, %y: tensor<32xf64>) -> (tensor<32xf64>, tensor<32xf16>, tensor<32xbf16>) {
    %e = tensor.empty() : tensor<32xf64>
    %h = tensor.empty() : tensor<32xf16>
    %b = tensor.empty() : tensor<32xbf16>
    %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%x : tensor<32xbf16>) outs(%e : tensor<32xf64>) {
    ^bb0(%p: bf16, %o: f64):
      %v = arith.extf %p : bf16 to f64
      linalg.yield %v : f64
    } -> tensor<32xf64>
    %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<32xf64>) outs(%h : tensor<32xf16>) {
    ^bb0(%p: f64, %o: f16):
      %v = arith.truncf %p : f64 to f16
      linalg.yield %v : f16
    } -> tensor<32xf16>
    %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]} ins(%y : tensor<32xf64>) outs(%b : tensor<32xbf16>) {
    ^bb0(%p: f64, %o: bf16):
      %v = arith.truncf %p : f64 to bf16
      linalg.yield %v : bf16
    } -> tensor<32xbf16>
    return %0, %1, %2 : tensor<32xf64>, tensor<32xf16>, tensor<32xbf16>
  }
}

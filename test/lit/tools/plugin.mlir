// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dialects and passes in a stock mlir-opt.
//
// RUN: %mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --pass-pipeline='builtin.module(comm-verify-order)' %s | FileCheck %s
// RUN: %mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --pass-pipeline='builtin.module(comm-verify-uniform,comm-order,comm-verify-order,comm-bufferize,canonicalize,comm-plan-workspace,comm-verify-workspace)' %s | FileCheck %s --check-prefix=PLANNED
// RUN: %mlir-opt --load-dialect-plugin=%plugin %s --cse --one-shot-bufferize=bufferize-function-boundaries | FileCheck %s --check-prefix=STOCK
// RUN: not %mlir-opt --load-dialect-plugin=%plugin --load-pass-plugin=%plugin --pass-pipeline='builtin.module(comm-pipeline{to=moon})' %s 2>&1 | FileCheck %s --check-prefix=BAD
// RUN: llvm-nm -D --defined-only %plugin | FileCheck %s --check-prefix=SYMBOLS

// CHECK: comm.all_reduce @tp sum

// PLANNED: comm.phase = "planned"
// PLANNED: {comm.arena}
// PLANNED: comm.arena @main
// PLANNED: comm.order @main [0, 1]

// Stock passes know the effects and the bufferisation too.
// STOCK: comm.all_reduce @tp sum ins(%{{.*}} : memref<
// STOCK: comm.all_reduce @tp sum ins(%{{.*}} : memref<

// BAD: comm-pipeline: to=moon is none of

// Nothing of MLIR is there a second time.
// SYMBOLS-NOT: T _ZN4mlir
// SYMBOLS: {{[TW]}} mlirGetDialectPluginInfo
// SYMBOLS-NOT: T _ZN4mlir
// SYMBOLS: {{[TW]}} mlirGetPassPluginInfo
// SYMBOLS-NOT: T _ZN4mlir
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

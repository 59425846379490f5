// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An operation that nobody can see into stays between the issues around it, and the
// certificate says so.
//
// RUN: comm-opt %s -allow-unregistered-dialect --comm-order --comm-verify-order | FileCheck %s
// RUN: comm-opt %s -allow-unregistered-dialect --comm-order --comm-verify-order --comm-summary -o /dev/null 2>&1 | FileCheck %s --check-prefix=SAY

// CHECK: comm.all_reduce @a
// CHECK: "x.unknown"()
// CHECK: comm.all_reduce @b
// CHECK: comm.certificate {{.*}}"2 unknown operations as if of every domain, the first x.unknown at {{.*}}comm-order-unknown.mlir:21"
// SAY: [2 unknown operations as if of every domain, the first x.unknown at
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %e = tensor.empty() : tensor<4xf32>
    %r = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    "x.unknown"() : () -> ()
    %s = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    "x.other"(%s) : (tensor<4xf32>) -> ()
    return %r, %s : tensor<4xf32>, tensor<4xf32>
  }
}

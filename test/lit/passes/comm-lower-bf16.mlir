// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Arithmetic on bfloat16 goes through f32: not every CPU has instructions for it, and
// what LLVM would call instead (__truncsfbf2) is in no library of ours.
//
// RUN: comm-opt %s --comm-pipeline=to=lowered | FileCheck %s
// RUN: comm-opt %s --comm-pipeline --emit=so -o %t.so && llvm-nm -D --undefined-only %t.so | FileCheck %s --check-prefix=NEEDS --allow-empty

// CHECK: llvm.fadd {{.*}} : f32
// CHECK-NOT: llvm.fadd {{.*}} : bf16
// NEEDS-NOT: __trunc
// NEEDS-NOT: __extend
#id = affine_map<(i) -> (i)>
module attributes {comm.world = 1 : i64, comm.phase = "decomposed"} {
  func.func @main(%x: tensor<32xbf16>, %y: tensor<32xbf16>) -> tensor<32xbf16> {
    %e = tensor.empty() : tensor<32xbf16>
    %s = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%x, %y : tensor<32xbf16>, tensor<32xbf16>) outs(%e : tensor<32xbf16>) {
    ^bb0(%p: bf16, %q: bf16, %o: bf16):
      %0 = arith.addf %p, %q : bf16
      linalg.yield %0 : bf16
    } -> tensor<32xbf16>
    return %s : tensor<32xbf16>
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.order, comm.certificate and comm.arena: solutions are operations.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

// CHECK: comm.order @main [2, 0, 1]
comm.order @main [2, 0, 1]
// CHECK: comm.order @empty []
comm.order @empty []
// CHECK: comm.certificate version(1) by("order") digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef") assumes(["gate=check", "one-issue-thread-per-rank"])
comm.certificate version(1) by("order")
  digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
  assumes(["gate=check", "one-issue-thread-per-rank"])
// Two buffers share bytes because one dies before the other is born.
// CHECK: comm.arena @main size(4096) align(64) lower_bound(4096) offsets([0, 2048, 0]) sizes([2048, 2048, 1024]) first([0, 1, 2]) last([1, 3, 4])
comm.arena @main size(4096) align(64) lower_bound(4096) offsets([0, 2048, 0])
  sizes([2048, 2048, 1024]) first([0, 1, 2]) last([1, 3, 4])
func.func @main() { return }
func.func @empty() { return }

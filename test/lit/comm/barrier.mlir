// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.barrier.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])

// CHECK-LABEL: func.func @main
// CHECK: comm.barrier @tp{{$}}
// CHECK: comm.barrier @tp {site = 1 : i64}
func.func @main() {
  comm.barrier @tp
  comm.barrier @tp {site = 1 : i64}
  return
}

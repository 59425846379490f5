// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.program with and without an issuer.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

// CHECK: comm.program @stage0 entry(@forward0) ranks([0, 1]) issuer("serving"){{$}}
comm.program @stage0 entry(@forward0) ranks([0, 1]) issuer("serving")
// CHECK: comm.program @stage1 entry(@forward1) ranks([2, 3]){{$}}
comm.program @stage1 entry(@forward1) ranks([2, 3])
func.func @forward0() { return }
func.func @forward1() { return }

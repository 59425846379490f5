// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The type !comm.future, as argument and result of a function.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

// CHECK: func.func private @carry(!comm.future) -> !comm.future
func.func private @carry(!comm.future) -> !comm.future

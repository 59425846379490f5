// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An alignment that is none.
//
// RUN: not comm-opt %s --comm-plan-workspace=align=48 2>&1 | FileCheck %s
// RUN: not comm-opt %s --comm-plan-workspace=align=0 2>&1 | FileCheck %s

// CHECK: comm-plan-workspace: align is a power of two up to 4096
func.func @main() { return }

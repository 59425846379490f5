// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.domain: groups, priority, group order, uneven groups.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

module attributes {comm.world = 4 : i64} {
  // CHECK: comm.domain @plain groups({{\[}}[0, 1], [2, 3]]){{$}}
  comm.domain @plain groups([[0, 1], [2, 3]])
  // CHECK: comm.domain @high groups({{\[}}[0, 2], [1, 3]]) priority(2){{$}}
  comm.domain @high groups([[0, 2], [1, 3]]) priority(2)
  // The order of ranks is kept: group rank 0 is world rank 3.
  // CHECK: comm.domain @turned groups({{\[}}[3, 1, 0]]){{$}}
  comm.domain @turned groups([[3, 1, 0]])
  // CHECK: comm.domain @uneven groups({{\[}}[0], [1, 2, 3]]) priority(-1){{$}}
  comm.domain @uneven groups([[0], [1, 2, 3]]) priority(-1)
}

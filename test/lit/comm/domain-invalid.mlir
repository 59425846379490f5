// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.domain.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{needs at least one group}}
comm.domain @d groups([])

// -----

// expected-error @below {{each group must be a non-empty list of world ranks}}
comm.domain @d groups([[0], []])

// -----

// expected-error @below {{each group must be a non-empty list of world ranks}}
"comm.domain"() <{sym_name = "d", groups = ["tp"]}> : () -> ()

// -----

// expected-error @below {{rank 1 is listed twice}}
comm.domain @d groups([[0, 1], [1, 2]])

// -----

// expected-error @below {{rank -1 is outside the world}}
comm.domain @d groups([[-1]])

// -----

module attributes {comm.world = 2 : i64} {
  // expected-error @below {{rank 2 is outside the world of 2 ranks}}
  comm.domain @d groups([[0, 2]])
}

// -----

module attributes {comm.world = 9223372036854775807 : i64} {
  // expected-error @below {{comm.world is 9223372036854775807, not 1 to 1048576}}
  comm.domain @d groups([[0, 1]])
}

// -----

module attributes {comm.world = -1 : i64} {
  // expected-error @below {{comm.world is -1, not 1 to 1048576}}
  comm.domain @d groups([[0, 1]])
}

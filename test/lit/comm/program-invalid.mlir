// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.program.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

func.func @f() { return }
// expected-error @below {{needs at least one rank}}
comm.program @p entry(@f) ranks([])

// -----

func.func @f() { return }
// expected-error @below {{rank -1 is negative}}
comm.program @p entry(@f) ranks([-1])

// -----

func.func @f() { return }
// expected-error @below {{rank 1 is listed twice}}
comm.program @p entry(@f) ranks([1, 0, 1])

// -----

module attributes {comm.world = 2 : i64} {
  func.func @f() { return }
  // expected-error @below {{rank 2 is outside the world}}
  comm.program @p entry(@f) ranks([0, 2])
}

// -----

// expected-error @below {{entry @f is not defined}}
comm.program @p entry(@f) ranks([0])

// -----

comm.domain @tp groups([[0, 1]])
// expected-error @below {{entry @tp is not a function}}
comm.program @p entry(@tp) ranks([0])

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.order, comm.certificate and comm.arena.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{site -1 is negative}}
comm.order @main [-1]

// -----

// expected-error @below {{site 1 is listed twice}}
comm.order @main [1, 0, 1]

// -----

// expected-error @below {{version 2 is not known; this build knows version 1}}
comm.certificate version(2) by("order") digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef") assumes([])

// -----

// expected-error @below {{by("luck") is none of forest, order, walk}}
comm.certificate version(1) by("luck") digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef") assumes([])

// -----

// expected-error @below {{digest must be 64 hexadecimal digits}}
comm.certificate version(1) by("walk") digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde") assumes([])

// -----

// expected-error @below {{digest must be 64 hexadecimal digits}}
comm.certificate version(1) by("walk") digest("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdeg") assumes([])

// -----

// expected-error @below {{needs as many sizes, first and last as offsets}}
comm.arena @main size(64) align(64) lower_bound(64) offsets([0]) sizes([64, 64]) first([0]) last([1])

// -----

// expected-error @below {{align 48 is not a power of two}}
comm.arena @main size(64) align(48) lower_bound(64) offsets([0]) sizes([64]) first([0]) last([1])

// -----

// expected-error @below {{align 0 is not a power of two}}
comm.arena @main size(64) align(0) lower_bound(64) offsets([0]) sizes([64]) first([0]) last([1])

// -----

// expected-error @below {{lower_bound is above the size}}
comm.arena @main size(64) align(64) lower_bound(65) offsets([0]) sizes([64]) first([0]) last([1])

// -----

// expected-error @below {{buffer 0 leaves the arena}}
comm.arena @main size(64) align(64) lower_bound(64) offsets([64]) sizes([64]) first([0]) last([1])

// -----

// expected-error @below {{buffer 0 leaves the arena}}
comm.arena @main size(64) align(64) lower_bound(64) offsets([-64]) sizes([64]) first([0]) last([1])

// -----

// expected-error @below {{buffer 1 leaves the arena}}
comm.arena @main size(64) align(64) lower_bound(64) offsets([0, 64]) sizes([64, 9223372036854775807]) first([0, 2]) last([1, 3])

// -----

// expected-error @below {{buffer 0 is not aligned}}
comm.arena @main size(128) align(64) lower_bound(64) offsets([32]) sizes([64]) first([0]) last([1])

// -----

// expected-error @below {{buffer 0 dies before it is born}}
comm.arena @main size(64) align(64) lower_bound(64) offsets([0]) sizes([64]) first([2]) last([1])

// -----

// expected-error @below {{buffers 0 and 1 are live together and overlap}}
comm.arena @main size(128) align(64) lower_bound(128) offsets([0, 64]) sizes([128, 64]) first([0, 2]) last([2, 3])

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is in order, and may wait for the wrong thing all the same.
//
// RUN: comm-opt %s -split-input-file --comm-verify-order -verify-diagnostics -o /dev/null

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  func.func private @cudaDeviceSynchronize()
  func.func private @cudaMalloc()
  func.func private @aclrtFree()
  func.func private @cuModuleLoad()
  func.func private @ncclCommInitRank()
  func.func private @cut()
  func.func @main(%x: tensor<4xf32>) {
    // Before the first and after the last issue nothing is at stake.
    call @cudaMalloc() : () -> ()
    comm.barrier @a
    // expected-warning @below {{'cudaDeviceSynchronize' between communication issues waits for what was issued}}
    call @cudaDeviceSynchronize() : () -> ()
    // expected-warning @below {{'cudaMalloc' between communication issues may wait for the device}}
    call @cudaMalloc() : () -> ()
    // expected-warning @below {{'aclrtFree' between communication issues may wait for the device}}
    call @aclrtFree() : () -> ()
    // expected-warning @below {{'cuModuleLoad' between communication issues loads code}}
    call @cuModuleLoad() : () -> ()
    // expected-warning @below {{'ncclCommInitRank' between communication issues creates or ends a communicator}}
    call @ncclCommInitRank() : () -> ()
    call @cut() : () -> ()
    comm.barrier @a
    call @cudaDeviceSynchronize() : () -> ()
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  func.func @main(%x: tensor<4xf32>) {
    // expected-note @below {{captured here}}
    comm.barrier @a {captured}
    comm.barrier @b
    // expected-warning @below {{domain @a mixes captured and single issues}}
    comm.barrier @a
    comm.barrier @a {captured}
    comm.barrier @b
    return
  }
}

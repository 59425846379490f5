// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conditions and trip counts that all members agree on.
//
// RUN: comm-opt %s --comm-verify-uniform -verify-diagnostics

module attributes {comm.world = 4 : i64} {
  comm.domain @all groups([[0, 1, 2, 3]])
  comm.domain @tp groups([[0, 1], [2, 3]])

  // A whole argument of the entry function, and constants.
  func.func @argument(%p: i1, %n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.if %p {
      comm.barrier @all
    }
    scf.for %i = %c0 to %n step %c1 {
      comm.barrier @tp
    }
    return
  }

  // A value that was made equal on all ranks is equal on the members of tp.
  func.func @agreed(%x: tensor<1xf32> {comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @all>]}) {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %s = comm.all_reduce @all max ins(%x : tensor<1xf32>) outs(%x : tensor<1xf32>) -> tensor<1xf32>
    %v = tensor.extract %s[%c0] : tensor<1xf32>
    %p = arith.cmpf ogt, %v, %zero : f32
    scf.if %p {
      comm.barrier @tp
    }
    return
  }

  // So is one from an asynchronous collective.
  func.func @waited(%x: tensor<1xf32> {comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @all>]}) {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %f = comm.start all_reduce @all ins(%x : tensor<1xf32>) outs(%x : tensor<1xf32>) {reduction = 4 : i32}
    %s = comm.wait %f ins(%x : tensor<1xf32>) outs(%x : tensor<1xf32>) -> tensor<1xf32>
    %v = tensor.extract %s[%c0] : tensor<1xf32>
    %p = arith.cmpf ogt, %v, %zero : f32
    scf.if %p {
      comm.barrier @tp
    }
    return
  }

  // What a loop merely carries may differ.
  func.func @carried(%n: index) -> index {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %r = comm.rank @all
    %s = scf.for %i = %c0 to %n step %c1 iter_args(%a = %r) -> index {
      comm.barrier @all
      %b = arith.addi %a, %c1 : index
      scf.yield %b : index
    }
    return %s : index
  }

  func.func @while(%n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %s = scf.while (%i = %c0) : (index) -> index {
      %p = arith.cmpi ult, %i, %n : index
      scf.condition(%p) %i : index
    } do {
    ^bb0(%i: index):
      comm.barrier @all
      %j = arith.addi %i, %c1 : index
      scf.yield %j : index
    }
    return
  }
}

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

  // What follows from the rank alone is followed for every rank: here a place along
  // the other axis, through shifts, masks, comparisons and choices.
  func.func @place() {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %rank = comm.rank @all
    %row = arith.shrui %rank, %c1 : index
    %low = arith.andi %row, %c1 : index
    %first = arith.cmpi eq, %low, %c0 : index
    scf.if %first {
      comm.barrier @tp
    }
    %in = arith.cmpi ult, %rank, %c2 : index
    %out = arith.cmpi uge, %rank, %c2 : index
    %n = arith.select %in, %c1, %c2 : index
    scf.for %i = %c0 to %n step %c1 {
      comm.barrier @tp
    }
    %either = arith.ori %in, %out : i1
    scf.if %either {
      comm.barrier @all
    }
    return
  }

  // Both of a row were given the same.
  func.func @parts(%x: tensor<1xi1> {comm.sharding = [], comm.parts = array<i64: 0, 0, 1, 1>}) {
    %c0 = arith.constant 0 : index
    %p = tensor.extract %x[%c0] : tensor<1xi1>
    scf.if %p {
      comm.barrier @tp
    }
    return
  }

  // Summed over rows, then columns: equal everywhere.
  comm.domain @dp groups([[0, 2], [1, 3]])
  func.func @twice(%x: tensor<1xf32> {comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @all>]}) {
    %c0 = arith.constant 0 : index
    %zero = arith.constant 0.0 : f32
    %r = comm.all_reduce @tp sum ins(%x : tensor<1xf32>) outs(%x : tensor<1xf32>) -> tensor<1xf32>
    %s = comm.all_reduce @dp sum ins(%r : tensor<1xf32>) outs(%r : tensor<1xf32>) -> tensor<1xf32>
    %v = tensor.extract %s[%c0] : tensor<1xf32>
    %p = arith.cmpf ogt, %v, %zero : f32
    scf.if %p {
      comm.barrier @all
    }
    return
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conditions and trip counts that may differ between members.
//
// RUN: comm-opt %s -split-input-file --comm-verify-uniform -verify-diagnostics

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @rank() {
    %c0 = arith.constant 0 : index
    // expected-note @below {{the value comes from here}}
    %r = comm.rank @tp
    %p = arith.cmpi eq, %r, %c0 : index
    // expected-note @below {{and decides here}}
    scf.if %p {
      // expected-error @below {{on @tp is under a condition that may differ between the members of its group}}
      comm.barrier @tp
    }
    return
  }
}

// -----

// Nested: the inner condition is uniform, the outer one is not.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  // expected-note @below {{the value comes from here}}
  func.func @sharded(%q: i1, %x: tensor<2xi1> {comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @tp>]}) {
    %c0 = arith.constant 0 : index
    %p = tensor.extract %x[%c0] : tensor<2xi1>
    // expected-note @below {{and decides here}}
    scf.if %p {
      scf.if %q {
        // expected-error @below {{on @tp is under a condition that may differ between the members of its group}}
        comm.barrier @tp
      }
    }
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @trip_count() {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    // expected-note @below {{the value comes from here}}
    %r = comm.rank @tp
    // expected-note @below {{and decides here}}
    scf.for %i = %c0 to %r step %c1 {
      // expected-error @below {{on @tp is under a loop that may differ between the members of its group}}
      comm.barrier @tp
    }
    return
  }
}

// -----

// The condition of a while loop is computed inside it.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @while() {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    // expected-note @below {{and decides here}}
    %s = scf.while (%i = %c0) : (index) -> index {
      // expected-note @below {{the value comes from here}}
      %r = comm.rank @tp
      %p = arith.cmpi ult, %i, %r : index
      scf.condition(%p) %i : index
    } do {
    ^bb0(%i: index):
      // expected-error @below {{on @tp is under a loop that may differ between the members of its group}}
      comm.barrier @tp
      %j = arith.addi %i, %c1 : index
      scf.yield %j : index
    }
    return
  }
}

// -----

// Equal within the groups of tp is not equal over all.
module attributes {comm.world = 4 : i64} {
  comm.domain @all groups([[0, 1, 2, 3]])
  comm.domain @tp groups([[0, 1], [2, 3]])
  func.func @narrow(%x: tensor<1xi1> {comm.sharding = [#comm.split<dim = 0, outer = 1, domain = @all>]}) {
    %c0 = arith.constant 0 : index
    // expected-note @below {{the value comes from here}}
    %s = comm.all_reduce @tp or ins(%x : tensor<1xi1>) outs(%x : tensor<1xi1>) -> tensor<1xi1>
    %p = tensor.extract %s[%c0] : tensor<1xi1>
    // expected-note @below {{and decides here}}
    scf.if %p {
      // expected-error @below {{on @all is under a condition that may differ between the members of its group}}
      comm.barrier @all
    }
    return
  }
}

// -----

// A reduce leaves its result on the root only.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @root_only(%x: tensor<1xi1>) {
    %c0 = arith.constant 0 : index
    // expected-note @below {{the value comes from here}}
    %s = comm.reduce @tp or root(0) ins(%x : tensor<1xi1>) outs(%x : tensor<1xi1>) -> tensor<1xi1>
    %p = tensor.extract %s[%c0] : tensor<1xi1>
    // expected-note @below {{and decides here}}
    scf.if %p {
      // expected-error @below {{on @tp is under a condition that may differ between the members of its group}}
      comm.barrier @tp
    }
    return
  }
}

// -----

// What a loop counts depends on how often it ran.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  // expected-note @below {{the value comes from here}}
  func.func @count(%x: tensor<1xindex> {comm.sharding = []}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %limit = tensor.extract %x[%c0] : tensor<1xindex>
    %n = scf.while (%i = %c0) : (index) -> index {
      %more = arith.cmpi ult, %i, %limit : index
      scf.condition(%more) %i : index
    } do {
    ^bb0(%i: index):
      %next = arith.addi %i, %c1 : index
      scf.yield %next : index
    }
    // expected-note @below {{and decides here}}
    scf.for %i = %c0 to %n step %c1 {
      // expected-error @below {{on @tp is under a loop that may differ between the members of its group}}
      comm.barrier @tp
    }
    return
  }
}

// -----

// HLO's plain generator draws on every device anew.
module attributes {comm.world = 2 : i64} {
  comm.domain @tp groups([[0, 1]])
  func.func @drawn() {
    // expected-note @below {{the value comes from here}}
    %x = comm.compute "rng"() : () -> tensor<i1>
    %p = tensor.extract %x[] : tensor<i1>
    // expected-note @below {{and decides here}}
    scf.if %p {
      // expected-error @below {{on @tp is under a condition that may differ between the members of its group}}
      comm.barrier @tp
    }
    return
  }
}

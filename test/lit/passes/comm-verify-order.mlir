// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs that cannot deadlock: one program; two programs, one per rank, that issue
// on two domains in one order; ranks in only one of the domains.
//
// RUN: comm-opt %s -split-input-file --comm-verify-order -verify-diagnostics

module attributes {comm.world = 4 : i64} {
  comm.domain @tp groups([[0, 1], [2, 3]])
  comm.domain @dp groups([[0, 2], [1, 3]])
  func.func @main(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @dp sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %2 = comm.all_reduce @tp sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  comm.program @first entry(@f0) ranks([0])
  comm.program @second entry(@f1) ranks([1])
  func.func @f0(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// A chain of domains that share one rank each.
module attributes {comm.world = 3 : i64} {
  comm.domain @left groups([[0, 1]])
  comm.domain @right groups([[1, 2]])
  comm.program @p0 entry(@f0) ranks([0])
  comm.program @p1 entry(@f1) ranks([1])
  comm.program @p2 entry(@f2) ranks([2])
  func.func @f0(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @left sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @right sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    %1 = comm.all_reduce @left sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f2(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @right sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// A pipeline: each stage receives before it sends.
module attributes {comm.world = 2 : i64} {
  comm.domain @pp groups([[0, 1]])
  comm.program @stage0 entry(@f0) ranks([0])
  comm.program @stage1 entry(@f1) ranks([1])
  func.func @f0(%x: tensor<4xf32>) {
    comm.send @pp to(1) ins(%x : tensor<4xf32>)
    %0 = comm.recv @pp from(1) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    %0 = comm.recv @pp from(0) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    comm.send @pp to(0) ins(%x : tensor<4xf32>)
    return
  }
}

// -----

// One program for both sides: a member that is its own peer passes by.
module attributes {comm.world = 2 : i64} {
  comm.domain @pp groups([[0, 1]])
  func.func @main(%x: tensor<4xf32>) {
    comm.send @pp to(1) ins(%x : tensor<4xf32>)
    %0 = comm.recv @pp from(0) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// A ring whose transfers are launched together, listed in one order: 0 to 1, 1 to
// 2, 2 to 0.
module attributes {comm.world = 3 : i64} {
  comm.domain @ring groups([[0, 1, 2]])
  comm.program @p0 entry(@f0) ranks([0])
  comm.program @p1 entry(@f1) ranks([1])
  comm.program @p2 entry(@f2) ranks([2])
  func.func @f0(%x: tensor<4xf32>) {
    %s = comm.start send @ring ins(%x : tensor<4xf32>) {peer = 1 : i64}
    %r = comm.start recv @ring outs(%x : tensor<4xf32>) {peer = 2 : i64}
    comm.group %s, %r : !comm.future, !comm.future
    comm.wait %s ins(%x : tensor<4xf32>)
    %0 = comm.wait %r outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    %r = comm.start recv @ring outs(%x : tensor<4xf32>) {peer = 0 : i64}
    %s = comm.start send @ring ins(%x : tensor<4xf32>) {peer = 2 : i64}
    comm.group %r, %s : !comm.future, !comm.future
    comm.wait %s ins(%x : tensor<4xf32>)
    %0 = comm.wait %r outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f2(%x: tensor<4xf32>) {
    %r = comm.start recv @ring outs(%x : tensor<4xf32>) {peer = 1 : i64}
    %s = comm.start send @ring ins(%x : tensor<4xf32>) {peer = 0 : i64}
    comm.group %r, %s : !comm.future, !comm.future
    comm.wait %s ins(%x : tensor<4xf32>)
    %0 = comm.wait %r outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

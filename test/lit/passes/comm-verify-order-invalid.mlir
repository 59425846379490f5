// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs that can deadlock: the chain of waits is in the notes, one edge each.
//
// RUN: comm-opt %s -split-input-file --comm-verify-order -verify-diagnostics

// Two domains over the same ranks, issued in opposite orders.
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.domain @b groups([[0, 1]])
  comm.program @first entry(@f0) ranks([0])
  comm.program @second entry(@f1) ranks([1])
  func.func @f0(%x: tensor<4xf32>) {
    // expected-error @below {{a schedule exists in which 2 collectives hold each other's slots}}
    // expected-note @below {{all_reduce(a,sum,n=4,F32)#0@r0 waits for all_reduce(a,sum,n=4,F32)#0@r1}}
    // expected-note @below {{cure: wait for the earlier one before the later one starts, on every rank of the chain}}
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    // expected-note @below {{all_reduce(b,sum,n=4,F32)#0@r0 waits for all_reduce(a,sum,n=4,F32)#0@r0}}
    %1 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    // expected-note @below {{all_reduce(b,sum,n=4,F32)#0@r1 waits for all_reduce(b,sum,n=4,F32)#0@r0}}
    %0 = comm.all_reduce @b sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    // expected-note @below {{all_reduce(a,sum,n=4,F32)#0@r1 waits for all_reduce(b,sum,n=4,F32)#0@r1}}
    %1 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// One domain, different reductions.
// expected-error @below {{instance 0 of a differs: all_reduce(a,sum,n=4,F32) on r0, all_reduce(a,max,n=4,F32) on r1}}
// expected-note @below {{all_reduce(a,sum,n=4,F32) of r0 at}}
// expected-note @below {{all_reduce(a,max,n=4,F32) of r1 at}}
// expected-note @below {{cure: issue the same sequence on every member}}
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.program @first entry(@f0) ranks([0])
  comm.program @second entry(@f1) ranks([1])
  func.func @f0(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @a sum ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    %0 = comm.all_reduce @a max ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// A collective that one member never reaches.
// expected-error @below {{instance #1 of a is never issued on r0}}
// expected-note @below {{cure: let every member issue every instance}}
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  comm.program @first entry(@f0) ranks([0])
  comm.program @second entry(@f1) ranks([1])
  func.func @f0(%x: tensor<4xf32>) {
    comm.barrier @a
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    comm.barrier @a
    comm.barrier @a
    return
  }
}

// -----

// Communication that the plan would not show is refused, not passed over.
module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  func.func private @inner() {
    comm.barrier @a
    return
  }
  func.func private @middle() {
    call @inner() : () -> ()
    return
  }
  func.func @main() {
    // expected-error @below {{reaches communication in @inner; inline it first}}
    call @middle() : () -> ()
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  // expected-error @below {{communicates under branches between blocks}}
  func.func @main(%p: i1) {
    cf.cond_br %p, ^bb1, ^bb2
  ^bb1:
    comm.barrier @a
    cf.br ^bb2
  ^bb2:
    return
  }
}

// -----

module attributes {comm.world = 2 : i64} {
  comm.domain @a groups([[0, 1]])
  func.func @main(%n: index) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    // expected-error @below {{communicates in an order that its region does not fix}}
    scf.parallel (%i) = (%c0) to (%n) step (%c1) {
      comm.barrier @a
    }
    return
  }
}

// -----

// Launched together, but every rank lists its send first: a library that works through
// a group in order never gets to a receive.
// expected-error @below {{groups list their transfers in orders that form a cycle}}
// expected-note @below {{cure: list the transfers of every group in one common order}}
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
    %s = comm.start send @ring ins(%x : tensor<4xf32>) {peer = 2 : i64}
    %r = comm.start recv @ring outs(%x : tensor<4xf32>) {peer = 0 : i64}
    comm.group %s, %r : !comm.future, !comm.future
    comm.wait %s ins(%x : tensor<4xf32>)
    %0 = comm.wait %r outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f2(%x: tensor<4xf32>) {
    %s = comm.start send @ring ins(%x : tensor<4xf32>) {peer = 0 : i64}
    %r = comm.start recv @ring outs(%x : tensor<4xf32>) {peer = 1 : i64}
    comm.group %s, %r : !comm.future, !comm.future
    comm.wait %s ins(%x : tensor<4xf32>)
    %0 = comm.wait %r outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// The same ring, each rank sending before it receives: nobody receives.
module attributes {comm.world = 3 : i64} {
  comm.domain @ring groups([[0, 1, 2]])
  comm.program @p0 entry(@f0) ranks([0])
  comm.program @p1 entry(@f1) ranks([1])
  comm.program @p2 entry(@f2) ranks([2])
  func.func @f0(%x: tensor<4xf32>) {
    comm.send @ring to(1) ins(%x : tensor<4xf32>)
    // expected-note @below {{recv(ring,n=4,F32,root=2)#0@r0 waits for send(ring,n=4,F32,root=1)#0@r0}}
    %0 = comm.recv @ring from(2) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f1(%x: tensor<4xf32>) {
    comm.send @ring to(2) ins(%x : tensor<4xf32>)
    // expected-error @below {{the ranks issue 3 operations in orders that form a cycle}}
    // expected-note @below {{recv(ring,n=4,F32,root=0)#0@r1 waits for send(ring,n=4,F32,root=2)#0@r1}}
    // expected-note @below {{cure: one order over all domains on every rank (comm-order)}}
    %0 = comm.recv @ring from(0) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
  func.func @f2(%x: tensor<4xf32>) {
    comm.send @ring to(0) ins(%x : tensor<4xf32>)
    // expected-note @below {{recv(ring,n=4,F32,root=1)#0@r2 waits for send(ring,n=4,F32,root=0)#0@r2}}
    %0 = comm.recv @ring from(1) outs(%x : tensor<4xf32>) -> tensor<4xf32>
    return
  }
}

// -----

// expected-error @below {{comm.world is 9223372036854775807, not 1 to 1048576}}
module attributes {comm.world = 9223372036854775807 : i64} {
  func.func @main() {
    return
  }
}

// -----

// Upstream's collectives are imported first; else nothing would be judged.
shard.grid @g(shape = 2x2)
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  // expected-error @below {{'shard.all_reduce' op communicates, but only operations of comm are judged; run --comm-import-shard first}}
  %0 = shard.all_reduce %x on @g grid_axes = [1] : tensor<8xf32> -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

module attributes {comm.world = 2 : i64} {
  func.func @main(%x: memref<4xf32>, %peer: i32) {
    %comm = mpi.comm_world : !mpi.comm
    // expected-error @below {{'mpi.send' op communicates, but only operations of comm are judged, and there are none}}
    mpi.send(%x, %peer, %peer, %comm) : memref<4xf32>, i32, i32
    return
  }
}

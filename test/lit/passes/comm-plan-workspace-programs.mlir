// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Members of a collective that run several programs have its buffers at one offset of
// their arenas, or the plan says that they have not, and why.
//
// RUN: comm-opt %s -split-input-file --comm-plan-workspace --comm-verify-workspace --explain 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=WHY < %t

// Each by itself would put what it communicates elsewhere. The k-th operation of the
// domain in one is the k-th in the other one.
// CHECK-LABEL: func.func @grow
// CHECK-DAG: %[[C256:.*]] = arith.constant 256 : index
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK: memref.view %{{.*}}[%[[C256]]][] : memref<512xi8> to memref<64xf32>
// CHECK: %[[A:.*]] = memref.view %{{.*}}[%[[C0]]][] : memref<512xi8> to memref<64xf32>
// CHECK: comm.all_reduce @all sum ins(%[[A]] : memref<64xf32>) outs(%[[A]] : memref<64xf32>) {symmetric = array<i1: true, true>}
// A domain whose groups run one program each says nothing, nor does a send.
// CHECK: comm.all_reduce @alone sum ins(%[[A]] : memref<64xf32>) outs(%[[A]] : memref<64xf32>){{$}}
// CHECK: comm.send {{.*}}{{$}}
// CHECK-LABEL: func.func @shrink
// CHECK: %[[C0:.*]] = arith.constant 0 : index
// CHECK: %[[B:.*]] = memref.view %{{.*}}[%[[C0]]][] : memref<256xi8> to memref<64xf32>
// CHECK: comm.all_reduce @all sum ins(%[[B]] : memref<64xf32>) outs(%[[B]] : memref<64xf32>) {symmetric = array<i1: true, true>}
// CHECK: comm.recv
// WHY: comm-plan-workspace place {{.*}} reason=equal-offsets bytes=512 lower_bound_bytes=512
// WHY: comm-plan-workspace place {{.*}} reason=equal-offsets bytes=256 lower_bound_bytes=256
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.domain @alone groups([[0], [1]])
  comm.program @p0 entry(@grow) ranks([0])
  comm.program @p1 entry(@shrink) ranks([1])
  func.func @grow(%x: memref<64xf32> {comm.input = 0 : i64}, %z: memref<64xf32> {comm.output = 0 : i64}) {
    %t = memref.alloc() : memref<64xf32>
    comm.kernel "k" ins(%x : memref<64xf32>) outs(%t : memref<64xf32>)
    %a = memref.alloc() : memref<64xf32>
    comm.kernel "k" ins(%t : memref<64xf32>) outs(%a : memref<64xf32>)
    comm.all_reduce @all sum ins(%a : memref<64xf32>) outs(%a : memref<64xf32>)
    comm.all_reduce @alone sum ins(%a : memref<64xf32>) outs(%a : memref<64xf32>)
    comm.kernel "k" ins(%a, %t : memref<64xf32>, memref<64xf32>) outs(%z : memref<64xf32>)
    comm.send @all to(1) ins(%a : memref<64xf32>)
    return
  }
  func.func @shrink(%y: memref<64xf32> {comm.input = 0 : i64}, %z: memref<64xf32> {comm.output = 0 : i64}) {
    %b = memref.alloc() : memref<64xf32>
    comm.kernel "k" ins(%y : memref<64xf32>) outs(%b : memref<64xf32>)
    comm.all_reduce @all sum ins(%b : memref<64xf32>) outs(%b : memref<64xf32>)
    comm.recv @all from(0) outs(%b : memref<64xf32>)
    comm.kernel "k" ins(%b : memref<64xf32>) outs(%z : memref<64xf32>)
    return
  }
}

// -----

// What cannot be equal: an input; parts of different sizes; in place here and from one
// buffer to another there, both live; an arena that would grow.
// CHECK-LABEL: func.func @first
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: false, false>}
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: true, false>}
// CHECK-LABEL: func.func @second
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: false, false>}
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: true, false>}
// WHY: comm-plan-workspace per-rank {{.*}} reason=not-in-arena domain=all buffer=0 programs=p0,p1
// WHY-NEXT: comm-plan-workspace per-rank {{.*}} reason=not-in-arena domain=all buffer=1 programs=p0,p1
// WHY-NEXT: comm-plan-workspace per-rank {{.*}} reason=live-together domain=all buffer=1 programs=p0,p1
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@first) ranks([0])
  comm.program @p1 entry(@second) ranks([1])
  func.func @first(%x: memref<16xf32> {comm.input = 0 : i64}, %z: memref<16xf32> {comm.output = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
  func.func @second(%x: memref<16xf32> {comm.input = 0 : i64}, %z: memref<16xf32> {comm.output = 0 : i64}) {
    %b = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%z : memref<16xf32>)
    %c = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%c : memref<16xf32>)
    comm.kernel "k" ins(%b, %c : memref<16xf32>, memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
}

// -----

// Two that live one after the other in one program and at once in the other: they would
// double the arena of the first.
// CHECK-LABEL: func.func @small(%{{.*}}: memref<64xi8> {comm.arena}
// CHECK-LABEL: func.func @large(%{{.*}}: memref<128xi8> {comm.arena}
// WHY: comm-plan-workspace per-rank {{.*}} reason=larger-arena domain=all
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@small) ranks([0])
  comm.program @p1 entry(@large) ranks([1])
  func.func @small(%z: memref<16xf32> {comm.output = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%z : memref<16xf32>)
    %b = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.kernel "k" ins(%b : memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
  func.func @large(%z: memref<16xf32> {comm.output = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    %b = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%b : memref<16xf32>)
    comm.kernel "k" ins(%a, %b : memref<16xf32>, memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
}

// -----

// In a loop, where each round hands on the buffer that it got, and through a branch whose
// arms give the same one.
// CHECK-LABEL: func.func @rounds
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: true, true>}
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: true, true>}
// CHECK-LABEL: func.func @also
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@rounds) ranks([0])
  comm.program @p1 entry(@also) ranks([1])
  func.func @rounds(%x: memref<16xf32> {comm.input = 0 : i64}, %z: memref<16xf32> {comm.output = 0 : i64}, %c: i1) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %a = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%b = %a) -> memref<16xf32> {
      comm.all_reduce @all sum ins(%b : memref<16xf32>) outs(%b : memref<16xf32>)
      scf.yield %b : memref<16xf32>
    }
    %s = scf.if %c -> memref<16xf32> {
      scf.yield %a : memref<16xf32>
    } else {
      scf.yield %r : memref<16xf32>
    }
    comm.all_reduce @all sum ins(%s : memref<16xf32>) outs(%s : memref<16xf32>)
    comm.kernel "k" ins(%r : memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
  func.func @also(%x: memref<16xf32> {comm.input = 0 : i64}, %z: memref<16xf32> {comm.output = 0 : i64}) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %a = memref.alloc() : memref<16xf32>
    comm.kernel "k" ins(%x : memref<16xf32>) outs(%a : memref<16xf32>)
    scf.for %i = %c0 to %c4 step %c1 {
      comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    }
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
}

// -----

// Members disagree: nothing is matched, and nothing is claimed.
// CHECK-LABEL: func.func @one
// CHECK: comm.all_reduce {{.*}} {symmetric = array<i1: false, false>}
// WHY: comm-plan-workspace per-rank {{.*}} reason=order-not-proven domain=all buffer=0 programs=p0
module attributes {comm.world = 2 : i64} {
  comm.domain @all groups([[0, 1]])
  comm.program @p0 entry(@one) ranks([0])
  comm.program @p1 entry(@two) ranks([1])
  func.func @one(%z: memref<16xf32> {comm.output = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all sum ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
  func.func @two(%z: memref<16xf32> {comm.output = 0 : i64}) {
    %a = memref.alloc() : memref<16xf32>
    comm.all_reduce @all max ins(%a : memref<16xf32>) outs(%a : memref<16xf32>)
    comm.kernel "k" ins(%a : memref<16xf32>) outs(%z : memref<16xf32>)
    return
  }
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.start and comm.wait: operands, attributes, pairing, and buffers
// in flight.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{needs an input}}
  %f = comm.start all_reduce @tp outs(%y : memref<4xf32>) {reduction = 1 : i32}
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{takes no input}}
  %f = comm.start recv @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {peer = 0 : i64}
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{needs outs}}
  %f = comm.start broadcast @tp ins(%x : memref<4xf32>) {root = 0 : i64}
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{takes no outs}}
  %f = comm.start barrier @tp outs(%y : memref<4xf32>)
  return
}

// -----

// The attributes are those of the synchronous operation.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{needs a reduction}}
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{takes no reduction}}
  %f = comm.start broadcast @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {root = 0 : i64, reduction = 1 : i32}
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{root -1 is outside a group of 2}}
  %f = comm.start broadcast @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{dimension must not be negative}}
  %f = comm.start all_gather @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{dimension is outside a rank-1 tensor}}
  %f = comm.start all_to_all @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{pairs are two group ranks below 2}}
  %f = comm.start permute @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {pairs = [1 : i64]}
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{domain @gone is not defined}}
  %f = comm.start barrier @gone
  return
}

// -----

// Every start has one wait.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{is never waited for}}
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}

  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  // expected-error @below {{is waited for more than once}}
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{must take the operands of its comm.start}}
  %r = comm.wait %f ins(%y : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{must take the operands of its comm.start}}
  comm.wait %f
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{on tensors has one result}}
  comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{result and outs differ in type}}
  %r = comm.wait %f ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>) -> tensor<?xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{on memrefs has no result}}
  %r = comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) -> tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%f: !comm.future) {
  // expected-error @below {{without outs has no result}}
  %r = comm.wait %f -> tensor<4xf32>
  return
}

// -----

// Nothing writes the input of a collective in flight.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %c: f32, %i: index) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still reads; move it behind the comm.wait}}
  memref.store %c, %x[%i] : memref<4xf32>
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Nothing reads its output.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %i: index) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{reads a buffer that a started all_reduce still writes; move it behind the comm.wait}}
  %v = memref.load %y[%i] : memref<4xf32>
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Nothing writes its output.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %c: f32) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still writes}}
  linalg.fill ins(%c : f32) outs(%y : memref<4xf32>)
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Not through a view of the buffer.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %c: f32) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  %v = memref.subview %x[0] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1]>>
  // expected-error @below {{writes a buffer that a started all_reduce still reads}}
  linalg.fill ins(%c : f32) outs(%v : memref<2xf32, strided<[1]>>)
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Nor to the buffer when a view of it is in flight.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%b: memref<8xf32>, %y: memref<4xf32>, %c: f32) {
  %x = memref.subview %b[2] [4] [1] : memref<8xf32> to memref<4xf32, strided<[1], offset: 2>>
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32, strided<[1], offset: 2>>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still reads}}
  linalg.fill ins(%c : f32) outs(%b : memref<8xf32>)
  comm.wait %f ins(%x : memref<4xf32, strided<[1], offset: 2>>) outs(%y : memref<4xf32>)
  return
}

// -----

// Freeing is writing.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%y: memref<4xf32>) {
  %x = memref.alloc() : memref<4xf32>
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still reads}}
  memref.dealloc %x : memref<4xf32>
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Not under a condition either.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %c: f32, %p: i1) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  scf.if %p {
    // expected-error @below {{writes a buffer that a started all_reduce still reads}}
    linalg.fill ins(%c : f32) outs(%x : memref<4xf32>)
  }
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Nor by a function that nobody looked into.
func.func private @g(memref<4xf32>)
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still reads}}
  call @g(%x) : (memref<4xf32>) -> ()
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// Another collective is a write too.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %z: memref<4xf32>) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still reads}}
  comm.broadcast @tp root(0) ins(%z : memref<4xf32>) outs(%x : memref<4xf32>)
  comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  return
}

// -----

// A wait inside a region ends what is before it, there and outside.
comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %c: f32, %p: i1) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  // expected-error @below {{writes a buffer that a started all_reduce still reads}}
  linalg.fill ins(%c : f32) outs(%x : memref<4xf32>)
  scf.if %p {
    comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  }
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %c: f32, %p: i1) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  scf.if %p {
    // expected-error @below {{writes a buffer that a started all_reduce still reads}}
    linalg.fill ins(%c : f32) outs(%x : memref<4xf32>)
    comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  }
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f(%x: memref<4xf32>, %y: memref<4xf32>, %lo: index, %hi: index) {
  %f = comm.start all_reduce @tp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) {reduction = 1 : i32}
  scf.for %i = %lo to %hi step %lo {
    // expected-error @below {{is in a loop that its comm.start is not in}}
    comm.wait %f ins(%x : memref<4xf32>) outs(%y : memref<4xf32>)
  }
  return
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of comm.weight.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{needs a section name}}
  %w = comm.weight "" from "m.weights" : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{has a static shape}}
  %w = comm.weight "w" from "m.weights" : tensor<?xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{that is packed yields bytes: a 1-D i8 tensor}}
  %w = comm.weight "w" from "m.weights" {pack = "gemm", part = tensor<4xf32>} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{that is packed says with `part` what is packed}}
  %w = comm.weight "w" from "m.weights" {pack = "gemm"} : tensor<64xi8>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{`part` must be a static tensor type}}
  %w = comm.weight "w" from "m.weights" {pack = "gemm", part = f32} : tensor<64xi8>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{`part` must be a static tensor type}}
  %w = comm.weight "w" from "m.weights" {pack = "gemm", part = tensor<?xf32>} : tensor<64xi8>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{with splits needs the `global` shape}}
  %w = comm.weight "w" from "m.weights" {splits = [#comm.split<dim = 0, outer = 1, domain = @tp>]} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{splits over unknown domain @gone}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, splits = [#comm.split<dim = 0, outer = 1, domain = @gone>]} : tensor<4xf32>
  return
}

// -----

comm.domain @uneven groups([[0], [1, 2]])
func.func @f() {
  // expected-error @below {{splits over @uneven, whose groups differ in size}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, splits = [#comm.split<dim = 0, outer = 1, domain = @uneven>]} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{splits dimension 1 of a rank-1 tensor}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, splits = [#comm.split<dim = 1, outer = 1, domain = @tp>]} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{dimension 0 of size 9 does not split into 1 blocks of 2 parts}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 9>, splits = [#comm.split<dim = 0, outer = 1, domain = @tp>]} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{dimension 0 of size 8 does not split into 0 blocks of 2 parts}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, splits = [#comm.split<dim = 0, outer = 0, domain = @tp>]} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{does not split into 9223372036854775807 blocks}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, splits = [#comm.split<dim = 0, outer = 9223372036854775807, domain = @tp>]} : tensor<4xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{splits leave [4], not the declared [8]}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, splits = [#comm.split<dim = 0, outer = 1, domain = @tp>]} : tensor<8xf32>
  return
}

// -----

comm.domain @tp groups([[0, 1], [2, 3]])
func.func @f() {
  // expected-error @below {{splits leave [8], not the declared [4]}}
  %w = comm.weight "w" from "m.weights" {global = array<i64: 8>, pack = "gemm", part = tensor<4xf32>} : tensor<64xi8>
  return
}

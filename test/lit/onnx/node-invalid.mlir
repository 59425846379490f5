// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors of onnx.node.
//
// RUN: comm-opt %s -split-input-file -verify-diagnostics

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{opset must be positive}}
  %0 = onnx.node "Relu"(%x) {} opset(0) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{operand_positions has 2 entries for 1 operands}}
  %0 = onnx.node "Relu"(%x) {} opset(17) {operand_positions = array<i32: 0, 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{operand_positions must increase}}
  %0 = onnx.node "Add"(%x, %x) {} opset(17) {operand_positions = array<i32: 1, 1>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{operand_positions must increase}}
  %0 = onnx.node "Relu"(%x) {} opset(17) {operand_positions = array<i32: -1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// Readers make room for every position.
func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{operand_positions end at 65535}}
  %0 = onnx.node "Relu"(%x) {} opset(17) {operand_positions = array<i32: 2147483647>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @below {{result_positions has 2 entries for 1 results}}
  %0 = onnx.node "Relu"(%x) {} opset(17) {result_positions = array<i32: 0, 1>} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// comm.weight: whole, split, split twice, packed; and #comm.split.
//
// RUN: comm-opt %s | comm-opt | FileCheck %s
// RUN: comm-opt %s --mlir-print-op-generic | comm-opt | FileCheck %s

comm.domain @tp groups([[0, 1], [2, 3]])
comm.domain @ep groups([[0, 2], [1, 3]])

// CHECK-LABEL: func.func @main
func.func @main() {
  // CHECK: comm.weight "w" from "m.weights" : tensor<64x64xf32>
  %0 = comm.weight "w" from "m.weights" : tensor<64x64xf32>
  // CHECK: comm.weight "w" from "m.weights" {global = array<i64: 64, 128>, splits = [#comm.split<dim = 1, outer = 1, domain = @tp>]} : tensor<64x64xf32>
  %1 = comm.weight "w" from "m.weights"
         {global = array<i64: 64, 128>,
          splits = [#comm.split<dim = 1, outer = 1, domain = @tp>]} : tensor<64x64xf32>
  // A query, key and value matrix in one: three blocks, each split over the heads.
  // CHECK: splits = [#comm.split<dim = 1, outer = 3, domain = @tp>, #comm.split<dim = 0, outer = 1, domain = @ep>]
  %2 = comm.weight "qkv" from "m.weights"
         {global = array<i64: 64, 192>,
          splits = [#comm.split<dim = 1, outer = 3, domain = @tp>,
                    #comm.split<dim = 0, outer = 1, domain = @ep>]} : tensor<32x96xf32>
  // CHECK: comm.weight "w" from "m.weights" {pack = "gemm", part = tensor<64x64xf32>} : tensor<16640xi8>
  %3 = comm.weight "w" from "m.weights"
         {pack = "gemm", part = tensor<64x64xf32>} : tensor<16640xi8>
  // CHECK: comm.weight "w" from "m.weights" : memref<4xi4>
  %4 = comm.weight "w" from "m.weights" : memref<4xi4>
  return
}

//===- Target.h - Which instruction set the kernels use ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chosen once from cpuid. CONCORD_KERNEL_TARGET=x86-64-v4 (or -v3, -v2) lowers
// it, never raises it, so that every variant can be tested on one machine.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_TARGET_H
#define CONCORD_KERNELS_TARGET_H

namespace concord::kernels {

/// Each includes those before it. V4Bf16 is V4 with AVX512_BF16, which only
/// products of bfloat16 use.
enum class Target { Generic, V2, V3, V4, V4Bf16 };

Target target();
const char *targetName(Target);

} // namespace concord::kernels

#endif // CONCORD_KERNELS_TARGET_H

//===- Target.h - Which instruction set the kernels use ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chosen once from cpuid. CONCORD_KERNEL_TARGET=x86-64-v3 (or -v2) lowers it,
// never raises it, so that every variant can be tested on one machine.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_TARGET_H
#define CONCORD_KERNELS_TARGET_H

namespace concord::kernels {

enum class Target { Generic, V2, V3, V4 };

Target target();
const char *targetName(Target);

} // namespace concord::kernels

#endif // CONCORD_KERNELS_TARGET_H

//===- CpuClass.h - The CPU class that programs are compiled for -*- C++
//-*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The same answer as concord_kernel_target(), for tools that run no kernel and
// should not link them all.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TOOLS_COMMON_CPUCLASS_H
#define CONCORD_TOOLS_COMMON_CPUCLASS_H

namespace concord::tools {

/// "x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64-v2" or "aarch64".
const char *cpuClass();

} // namespace concord::tools

#endif // CONCORD_TOOLS_COMMON_CPUCLASS_H

//===- CpuClass.cpp - The CPU class that programs are compiled for --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Built together with the kernels' own detection, which has no dependencies.
//
//===----------------------------------------------------------------------===//

#include "common/CpuClass.h"

#include "Target.h"

namespace concord::tools {

const char *cpuClass() { return kernels::targetName(kernels::target()); }

} // namespace concord::tools

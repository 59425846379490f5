//===- ReduceAvx2.cpp - Reductions for one processor class -*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reductions for x86-64-v3 (AVX2, F16C).
//
//===----------------------------------------------------------------------===//

#include "algorithms/Reduce.h"

namespace concord::rt::avx2 {
#include "algorithms/ReduceBody.inc"
} // namespace concord::rt::avx2

//===- ReduceAvx512.cpp - Reductions for one processor class -*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reductions for x86-64-v4 (AVX-512).
//
//===----------------------------------------------------------------------===//

#include "algorithms/Reduce.h"

namespace concord::rt::avx512 {
#include "algorithms/ReduceBody.inc"
} // namespace concord::rt::avx512

//===- Reduce.cpp - Choice of the reductions for this machine -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Looks at the processor and hands out the widest variant that it can run. All
// variants give the same bits: elements are independent and sources are taken
// in order.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Reduce.h"

using namespace concord::rt;

const Arithmetic &concord::rt::arithmetic() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return avx512::kArithmetic;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    return avx2::kArithmetic;
#endif
  return base::kArithmetic;
}

//===- Target.cpp - CPU class detection -----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// x86-64-v3 here is AVX2, FMA, BMI2 and F16C; v4 adds AVX-512 F, BW, DQ, VL,
// CD.
//
//===----------------------------------------------------------------------===//

#include "Target.h"

#include <cstdlib>
#include <string_view>

namespace concord::kernels {

namespace {
Target detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  Target best = Target::V2;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c"))
    best = Target::V3;
  if (best == Target::V3 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"))
    best = __builtin_cpu_supports("avx512bf16") ? Target::V4Bf16 : Target::V4;
  if (const char *wanted = getenv("CONCORD_KERNEL_TARGET"))
    for (Target lower : {Target::V2, Target::V3, Target::V4, Target::V4Bf16})
      if (std::string_view(wanted) == targetName(lower) && lower < best)
        best = lower;
  return best;
#else
  return Target::Generic;
#endif
}
} // namespace

Target target() {
  static const Target chosen = detect();
  return chosen;
}

const char *targetName(Target target) {
  switch (target) {
  case Target::V2:
    return "x86-64-v2";
  case Target::V3:
    return "x86-64-v3";
  case Target::V4:
    return "x86-64-v4";
  case Target::V4Bf16:
    return "x86-64-v4-bf16";
  case Target::Generic:
    break;
  }
  return "aarch64";
}

} // namespace concord::kernels

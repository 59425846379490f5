//===- Select.h - Choosing a table by CPU class -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// CONCORD_SELECT(gemmTable) is the table that suits this machine.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_SELECT_H
#define CONCORD_KERNELS_SELECT_H

#include "GemmHot.h"
#include "Kernel.h"
#include "Target.h"

#if defined(__x86_64__)
#define CONCORD_SELECT(name)                                                   \
  (target() >= Target::V4   ? name##_v4                                        \
   : target() == Target::V3 ? name##_v3                                        \
                            : name##_v2)
#else
#define CONCORD_SELECT(name) name##_generic
#endif

namespace concord::kernels {

/// The value of key `dtype`, which must be f32, f64, f16 or bf16.
inline GemmType floatType(const Description &d, const char *key = "dtype") {
  switch (d.dtype(key)) {
  case DType::F32:
    return GemmType::F32;
  case DType::F64:
    return GemmType::F64;
  case DType::F16:
    return GemmType::F16;
  case DType::BF16:
    return GemmType::BF16;
  default:
    d.unsupported(key, "must be f32, f64, f16 or bf16");
  }
}

inline int64_t sizeOf(GemmType type) {
  return type == GemmType::F64 ? 8 : type == GemmType::F32 ? 4 : 2;
}

/// Size of what sums are kept in.
inline int64_t sumSizeOf(GemmType type) {
  return type == GemmType::F64 ? 8 : 4;
}

} // namespace concord::kernels

#endif // CONCORD_KERNELS_SELECT_H

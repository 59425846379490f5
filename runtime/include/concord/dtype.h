//===- dtype.h - Element types of Concord's data ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one list of element types, shared by the C ABI, the readers, the kernels
// and the compiler. The numbers are part of the ABI and never change; new types
// are appended.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_DTYPE_H
#define CONCORD_DTYPE_H

#include <stddef.h>
#include <stdint.h>

/* X(enumerator, number, bytes, name as printed and as in safetensors) */
#define CONCORD_DTYPES(X)                                                      \
  X(F32, 1, 4, "F32")                                                          \
  X(F64, 2, 8, "F64")                                                          \
  X(F16, 3, 2, "F16")                                                          \
  X(BF16, 4, 2, "BF16")                                                        \
  X(I8, 5, 1, "I8")                                                            \
  X(I16, 6, 2, "I16")                                                          \
  X(I32, 7, 4, "I32")                                                          \
  X(I64, 8, 8, "I64")                                                          \
  X(U8, 9, 1, "U8")                                                            \
  X(U16, 10, 2, "U16")                                                         \
  X(U32, 11, 4, "U32")                                                         \
  X(U64, 12, 8, "U64")                                                         \
  X(BOOL, 13, 1, "BOOL")                                                       \
  X(F8E4M3, 14, 1, "F8_E4M3")                                                  \
  X(F8E5M2, 15, 1, "F8_E5M2")

typedef enum concord_dtype {
#define X(name, number, bytes, text) CONCORD_DTYPE_##name = number,
  CONCORD_DTYPES(X)
#undef X
} concord_dtype;

#ifdef __cplusplus
#include <string_view>

namespace concord {

/// The C++ spelling of `concord_dtype`; same numbers.
enum class DType : uint8_t {
  Invalid = 0,
#define X(name, number, bytes, text) name = number,
  CONCORD_DTYPES(X)
#undef X
};

/// Size of one element in bytes; 0 for Invalid.
constexpr size_t dtypeSize(DType type) {
  switch (type) {
#define X(name, number, bytes, text)                                           \
  case DType::name:                                                            \
    return bytes;
    CONCORD_DTYPES(X)
#undef X
  case DType::Invalid:
    break;
  }
  return 0;
}

constexpr std::string_view dtypeName(DType type) {
  switch (type) {
#define X(name, number, bytes, text)                                           \
  case DType::name:                                                            \
    return text;
    CONCORD_DTYPES(X)
#undef X
  case DType::Invalid:
    break;
  }
  return "INVALID";
}

constexpr DType dtypeFromName(std::string_view name) {
#define X(enumerator, number, bytes, text)                                     \
  if (name == text)                                                            \
    return DType::enumerator;
  CONCORD_DTYPES(X)
#undef X
  return DType::Invalid;
}

} // namespace concord
#endif /* __cplusplus */

#endif /* CONCORD_DTYPE_H */

//===- MathHot.h - Elementwise functions of one CPU class -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The list of functions, and the loops over f32, f16 and bf16. Plain data only.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_MATHHOT_H
#define CONCORD_KERNELS_MATHHOT_H

#include "GemmHot.h"

/// X(enumerator, word of the description)
#define CONCORD_UNARY_OPS(X)                                                   \
  X(Acos, "acos")                                                              \
  X(Acosh, "acosh")                                                            \
  X(Asin, "asin")                                                              \
  X(Asinh, "asinh")                                                            \
  X(Atan, "atan")                                                              \
  X(Atanh, "atanh")                                                            \
  X(Cos, "cos")                                                                \
  X(Cosh, "cosh")                                                              \
  X(Erf, "erf")                                                                \
  X(Exp, "exp")                                                                \
  X(Exp2, "exp2")                                                              \
  X(Expm1, "expm1")                                                            \
  X(GeluErf, "gelu_erf")                                                       \
  X(GeluTanh, "gelu_tanh")                                                     \
  X(Log, "log")                                                                \
  X(Log10, "log10")                                                            \
  X(Log1p, "log1p")                                                            \
  X(Log2, "log2")                                                              \
  X(Relu, "relu")                                                              \
  X(Rsqrt, "rsqrt")                                                            \
  X(Sigmoid, "sigmoid")                                                        \
  X(Silu, "silu")                                                              \
  X(Sin, "sin")                                                                \
  X(Sinh, "sinh")                                                              \
  X(Softplus, "softplus")                                                      \
  X(Sqrt, "sqrt")                                                              \
  X(Tan, "tan")                                                                \
  X(Tanh, "tanh")

namespace concord::kernels {

enum class UnaryOp : int8_t {
#define X(name, word) name,
  CONCORD_UNARY_OPS(X)
#undef X
};

struct MathTable {
  void (*unary)(GemmType, UnaryOp, int64_t n, const void *x, void *y, Poller &);
  /// x^y; `yStep` is 0 when y is one element.
  void (*pow)(GemmType, int64_t n, const void *x, const void *y, int64_t yStep,
              void *z, Poller &);
};

extern const MathTable mathTable_v2, mathTable_v3, mathTable_v4,
    mathTable_generic;

} // namespace concord::kernels

#endif // CONCORD_KERNELS_MATHHOT_H

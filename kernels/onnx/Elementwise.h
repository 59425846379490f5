//===- Elementwise.h - Frame of the elementwise operators -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An elementwise operator is a stateless functor (T, T, params) -> T. The frame
// walks the broadcast nest and feeds it contiguous chunks of the type of
// computation; an operand that already has that type is not copied.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_ELEMENTWISE_H
#define CONCORD_KERNELS_ONNX_ELEMENTWISE_H

#include "Plan.h"
#include "Strided.h"

#include <array>

namespace concord::kernels::onnx {

constexpr size_t kMaxParams = 4;
using Params = std::array<double, kMaxParams>;

/// in[k]: n contiguous values of the type of computation; out likewise.
using ChunkFn = void (*)(const void *const *in, void *out, int64_t n,
                         const double *params);

/// The instances of one functor, by type of computation; null if undefined.
struct ChunkFns {
  ChunkFn f32 = nullptr, f64 = nullptr, i64 = nullptr, u64 = nullptr,
          b8 = nullptr;
  bool boolResult = false; ///< out is uint8_t whatever the operands are
};

template <class F, class T, class R>
void unaryChunk(const void *const *in, void *out, int64_t n,
                const double *params) {
  const T *x = static_cast<const T *>(in[0]);
  R *y = static_cast<R *>(out);
  F f;
  for (int64_t i = 0; i < n; ++i)
    y[i] = static_cast<R>(f(x[i], params));
}

template <class F, class T, class R>
void binaryChunk(const void *const *in, void *out, int64_t n,
                 const double *params) {
  const T *x = static_cast<const T *>(in[0]);
  const T *y = static_cast<const T *>(in[1]);
  R *z = static_cast<R *>(out);
  F f;
  for (int64_t i = 0; i < n; ++i)
    z[i] = static_cast<R>(f(x[i], y[i], params));
}

template <class F> ChunkFns unaryFloat(F) {
  return {.f32 = unaryChunk<F, float, float>,
          .f64 = unaryChunk<F, double, double>};
}
template <class F> ChunkFns unaryNumeric(F) {
  return {.f32 = unaryChunk<F, float, float>,
          .f64 = unaryChunk<F, double, double>,
          .i64 = unaryChunk<F, int64_t, int64_t>,
          .u64 = unaryChunk<F, uint64_t, uint64_t>};
}
template <class F> ChunkFns unaryFloatToBool(F) {
  return {.f32 = unaryChunk<F, float, uint8_t>,
          .f64 = unaryChunk<F, double, uint8_t>,
          .boolResult = true};
}
template <class F> ChunkFns binaryNumeric(F) {
  return {.f32 = binaryChunk<F, float, float>,
          .f64 = binaryChunk<F, double, double>,
          .i64 = binaryChunk<F, int64_t, int64_t>,
          .u64 = binaryChunk<F, uint64_t, uint64_t>};
}
template <class F> ChunkFns binaryInt(F) {
  return {.i64 = binaryChunk<F, int64_t, int64_t>,
          .u64 = binaryChunk<F, uint64_t, uint64_t>};
}
template <class F> ChunkFns compareNumeric(F) {
  return {.f32 = binaryChunk<F, float, uint8_t>,
          .f64 = binaryChunk<F, double, uint8_t>,
          .i64 = binaryChunk<F, int64_t, uint8_t>,
          .u64 = binaryChunk<F, uint64_t, uint8_t>,
          .b8 = binaryChunk<F, uint8_t, uint8_t>,
          .boolResult = true};
}

/// Builds the body for inputs `operands` (numbers of inputs), computing in
/// `compute` into output 0. `shapes` replaces the operands' own shapes.
Body elementwiseBody(Plan &plan, const ChunkFns &fns, Compute compute,
                     const std::vector<int> &operands, const Params &params,
                     std::vector<std::vector<int64_t>> shapes = {});

/// Same, in the type of computation of input 0.
Body elementwiseBody(Plan &plan, const ChunkFns &fns, size_t numOperands,
                     const Params &params = {});

/// The unary operators (Unary.cpp); part of addElementwise.
void addUnary(OpTable &ops);

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_ELEMENTWISE_H

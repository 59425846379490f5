//===- MatMul.h - Strided matrix product ------------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one matrix product of this room. It is meant to be right rather than
// fast: f32 products are summed in double, so that the result can serve as an
// oracle for the fast kernels.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ONNX_MATMUL_H
#define CONCORD_KERNELS_ONNX_MATMUL_H

#include <cstdint>

namespace concord::kernels::onnx {

/// A matrix view; strides in elements.
template <class T> struct Matrix {
  T *data;
  int64_t rowStride, colStride;
};

/// c[m,n] = alpha * sum_k a[m,k] b[k,n] + (add ? c[m,n] : 0). T is float,
/// double, int64_t or uint64_t; integers wrap.
template <class T>
void matmul(int64_t m, int64_t n, int64_t k, Matrix<const T> a,
            Matrix<const T> b, Matrix<T> c, T alpha = T(1), bool add = false);

extern template void matmul<float>(int64_t, int64_t, int64_t,
                                   Matrix<const float>, Matrix<const float>,
                                   Matrix<float>, float, bool);
extern template void matmul<double>(int64_t, int64_t, int64_t,
                                    Matrix<const double>, Matrix<const double>,
                                    Matrix<double>, double, bool);
extern template void matmul<int64_t>(int64_t, int64_t, int64_t,
                                     Matrix<const int64_t>,
                                     Matrix<const int64_t>, Matrix<int64_t>,
                                     int64_t, bool);
extern template void matmul<uint64_t>(int64_t, int64_t, int64_t,
                                      Matrix<const uint64_t>,
                                      Matrix<const uint64_t>, Matrix<uint64_t>,
                                      uint64_t, bool);

} // namespace concord::kernels::onnx

#endif // CONCORD_KERNELS_ONNX_MATMUL_H

//===- MatMul.cpp - MatMul, Gemm, Det
//---------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Dense linear algebra.
//
//===----------------------------------------------------------------------===//

#include "MatMul.h"
#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

template <class T>
void onnx::matmul(int64_t m, int64_t n, int64_t k, Matrix<const T> a,
                  Matrix<const T> b, Matrix<T> c, T alpha, bool add) {
  // Unsigned sums wrap; float sums are kept in double.
  using Acc = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
  constexpr int64_t kBlock = 64;
  for (int64_t j0 = 0; j0 < n; j0 += kBlock) {
    int64_t width = std::min(kBlock, n - j0);
    for (int64_t i = 0; i < m; ++i) {
      Acc acc[kBlock];
      std::fill_n(acc, kBlock, Acc(0));
      const T *row = a.data + i * a.rowStride;
      if (b.colStride == 1) {
        for (int64_t p = 0; p < k; ++p) {
          Acc x = static_cast<Acc>(row[p * a.colStride]);
          const T *y = b.data + p * b.rowStride + j0;
          for (int64_t j = 0; j < width; ++j)
            acc[j] += x * static_cast<Acc>(y[j]);
        }
      } else {
        for (int64_t j = 0; j < width; ++j) {
          const T *y = b.data + (j0 + j) * b.colStride;
          // Four partial sums, since one would wait for itself.
          Acc part[4] = {};
          int64_t p = 0;
          for (; p + 4 <= k; p += 4)
            for (int64_t q = 0; q < 4; ++q)
              part[q] += static_cast<Acc>(row[(p + q) * a.colStride]) *
                         static_cast<Acc>(y[(p + q) * b.rowStride]);
          for (; p < k; ++p)
            part[0] += static_cast<Acc>(row[p * a.colStride]) *
                       static_cast<Acc>(y[p * b.rowStride]);
          Acc sum = (part[0] + part[1]) + (part[2] + part[3]);
          acc[j] = sum;
        }
      }
      for (int64_t j = 0; j < width; ++j) {
        T &dst = c.data[i * c.rowStride + (j0 + j) * c.colStride];
        Acc value = acc[j] * static_cast<Acc>(alpha);
        dst = static_cast<T>(add ? static_cast<Acc>(dst) + value : value);
      }
    }
  }
}

template void onnx::matmul<float>(int64_t, int64_t, int64_t,
                                  Matrix<const float>, Matrix<const float>,
                                  Matrix<float>, float, bool);
template void onnx::matmul<double>(int64_t, int64_t, int64_t,
                                   Matrix<const double>, Matrix<const double>,
                                   Matrix<double>, double, bool);
template void onnx::matmul<int64_t>(int64_t, int64_t, int64_t,
                                    Matrix<const int64_t>,
                                    Matrix<const int64_t>, Matrix<int64_t>,
                                    int64_t, bool);
template void onnx::matmul<uint64_t>(int64_t, int64_t, int64_t,
                                     Matrix<const uint64_t>,
                                     Matrix<const uint64_t>, Matrix<uint64_t>,
                                     uint64_t, bool);

namespace {

/// MatMul as NumPy's matmul: 1-d operands are a row or a column, leading
/// dimensions broadcast.
Body buildMatMul(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &a = node.input(0), &b = node.input(1), &y = node.output(0);
  require(a.rank() >= 1 && b.rank() >= 1, "scalars cannot be multiplied");
  std::vector<int64_t> ad = a.dims, bd = b.dims, yd = y.dims;
  if (b.rank() == 1) {
    bd.push_back(1);
    yd.push_back(1);
  }
  if (a.rank() == 1) {
    require(!yd.empty(), "the result has another rank");
    ad.insert(ad.begin(), 1);
    yd.insert(yd.end() - 1, 1);
  }
  require(yd.size() >= 2, "the result has another rank");
  int64_t m = ad[ad.size() - 2], k = ad.back(), n = bd.back();
  require(bd[bd.size() - 2] == k, "the inner dimensions differ");
  require(yd[yd.size() - 2] == m && yd.back() == n,
          "the result has another shape");
  std::vector<int64_t> batch(yd.begin(), yd.end() - 2),
      aBatch(ad.begin(), ad.end() - 2), bBatch(bd.begin(), bd.end() - 2);
  Broadcast nest(batch, {aBatch, bBatch});
  return forNumbers(y.dtype, [&]<class T>() -> Body {
    In<T> aIn = plan.read<T>(0), bIn = plan.read<T>(1);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int64_t inner = nest.innerSize(), aStep = nest.innerStride(0),
              bStep = nest.innerStride(1);
      nest.forEach([&](const int64_t *offsets, int64_t at) {
        for (int64_t i = 0; i < inner; ++i)
          matmul<T>(m, n, k, {r(aIn) + (offsets[0] + i * aStep) * m * k, k, 1},
                    {r(bIn) + (offsets[1] + i * bStep) * k * n, n, 1},
                    {r(out) + (at + i) * m * n, n, 1});
      });
    };
  });
}

Body buildGemm(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &a = node.input(0), &b = node.input(1), &y = node.output(0);
  require(a.rank() == 2 && b.rank() == 2 && y.rank() == 2,
          "matrices are needed");
  bool ta = node.intAttr("transA", 0) != 0, tb = node.intAttr("transB", 0) != 0;
  int64_t m = a.dims[ta ? 1 : 0], k = a.dims[ta ? 0 : 1],
          n = b.dims[tb ? 0 : 1];
  require(b.dims[tb ? 1 : 0] == k, "the inner dimensions differ");
  require(y.dims[0] == m && y.dims[1] == n, "the result has another shape");
  double alpha = node.floatAttr("alpha", 1), beta = node.floatAttr("beta", 1);
  std::vector<Broadcast> nest;
  if (node.hasIn(2))
    nest.emplace_back(y.dims,
                      std::vector<std::vector<int64_t>>{node.in[2].dims});
  return forNumbers(y.dtype, [&]<class T>() -> Body {
    using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    In<T> aIn = plan.read<T>(0), bIn = plan.read<T>(1), cIn = plan.readIf<T>(2);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      T *dst = r(out);
      if (cIn)
        nest[0].forEach([&](const int64_t *offsets, int64_t at) {
          int64_t inner = nest[0].innerSize(), step = nest[0].innerStride(0);
          for (int64_t i = 0; i < inner; ++i)
            dst[at + i] =
                static_cast<T>(static_cast<U>(saturateTo<T>(beta)) *
                               static_cast<U>(r(cIn)[offsets[0] + i * step]));
        });
      matmul<T>(m, n, k, {r(aIn), ta ? 1 : k, ta ? m : 1},
                {r(bIn), tb ? 1 : n, tb ? k : 1}, {dst, n, 1},
                saturateTo<T>(alpha), bool(cIn));
    };
  });
}

/// Det of the innermost matrices, by elimination with partial pivoting.
Body buildDet(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  require(x.rank() >= 2 && x.dim(-1) == x.dim(-2),
          "square matrices are needed");
  int64_t n = x.dim(-1), batch = product(x.dims, 0, x.rank() - 2);
  require(node.output(0).count == batch, "the result has another size");
  In<double> in = plan.read<double>(0);
  Out<double> out = plan.write<double>(0);
  Scratch<double> work = plan.scratch<double>(n * n);
  return [=](const Run &r) {
    for (int64_t b = 0; b < batch; ++b) {
      double *w = r(work);
      std::copy_n(r(in) + b * n * n, n * n, w);
      double det = 1;
      for (int64_t c = 0; c < n && det != 0; ++c) {
        int64_t pivot = c;
        for (int64_t i = c + 1; i < n; ++i)
          if (std::fabs(w[i * n + c]) > std::fabs(w[pivot * n + c]))
            pivot = i;
        if (pivot != c) {
          std::swap_ranges(w + c * n, w + c * n + n, w + pivot * n);
          det = -det;
        }
        det *= w[c * n + c];
        if (w[c * n + c] == 0)
          break;
        for (int64_t i = c + 1; i < n; ++i) {
          double factor = w[i * n + c] / w[c * n + c];
          for (int64_t j = c; j < n; ++j)
            w[i * n + j] -= factor * w[c * n + j];
        }
      }
      r(out)[b] = det;
    }
  };
}

} // namespace

void onnx::addMatMul(OpTable &ops) {
  ops["matmul"] = buildMatMul;
  ops["gemm"] = buildGemm;
  ops["det"] = buildDet;
}

//===- Norm.cpp - Normalisations
//--------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Statistics are taken in double, in two passes, whatever `stash_type` says:
// the result is at least as good as the one asked for.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cmath>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

struct Moments {
  double mean, variance;
};

template <class T> Moments momentsOf(const T *x, int64_t n) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += x[i];
  double mean = sum / double(n);
  for (int64_t i = 0; i < n; ++i)
    squares += (x[i] - mean) * (x[i] - mean);
  return {mean, squares / double(n)};
}

/// Strides of an operand that broadcasts to `dims`, one per dimension of it.
std::vector<int64_t> broadcastStrides(const TensorInfo &operand,
                                      const std::vector<int64_t> &dims) {
  std::vector<int64_t> result(dims.size(), 0),
      dense = denseStrides(operand.dims);
  size_t pad = dims.size() - operand.dims.size();
  require(operand.dims.size() <= dims.size(), "an operand's rank is too high");
  for (size_t i = 0; i < operand.dims.size(); ++i) {
    if (operand.dims[i] == 1)
      continue;
    require(operand.dims[i] == dims[pad + i], "an operand does not broadcast");
    result[pad + i] = dense[i];
  }
  return result;
}

/// LayerNormalization and RMSNormalization over the dimensions from `axis`.
Body buildLayerNorm(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  int axis = node.axisAttr("axis", -1, x.rank());
  double epsilon = node.floatAttr("epsilon", 1e-5);
  bool rms = node.name == "rmsnormalization";
  int64_t rows = product(x.dims, 0, axis), n = product(x.dims, axis, x.rank());
  std::vector<int64_t> dims = x.dims,
                       scaleStrides = broadcastStrides(node.input(1), dims);
  bool hasBias = !rms && node.hasIn(2);
  std::vector<int64_t> biasStrides(dims.size(), 0);
  if (hasBias)
    biasStrides = broadcastStrides(node.in[2], dims);
  for (size_t k = 1; k < 3; ++k)
    require(!node.hasOut(k) || node.out[k].count == rows,
            "saved statistics have another size");
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), scale = plan.read<T>(1),
          bias = hasBias ? plan.readIf<T>(2) : In<T>{};
    Out<T> out = plan.write<T>(0);
    Out<double> meanOut = rms ? Out<double>{} : plan.writeIf<double>(1),
                invOut = rms ? Out<double>{} : plan.writeIf<double>(2);
    return [=](const Run &r) {
      Odometer at(int(dims.size()), dims.data(), scaleStrides.data(),
                  biasStrides.data());
      const T *gain = r(scale), *shift = r(bias);
      for (int64_t row = 0; row < rows && n > 0; ++row) {
        const T *src = r(in) + row * n;
        T *dst = r(out) + row * n;
        Moments m{};
        if (rms) {
          double squares = 0;
          for (int64_t i = 0; i < n; ++i)
            squares += double(src[i]) * src[i];
          m.variance = squares / double(n);
        } else {
          m = momentsOf(src, n);
        }
        double inverse = 1 / std::sqrt(m.variance + epsilon);
        for (int64_t i = 0; i < n; ++i, at.next()) {
          double value = (src[i] - m.mean) * inverse * gain[at.a];
          dst[i] = static_cast<T>(shift ? value + shift[at.b] : value);
        }
        if (meanOut)
          r(meanOut)[row] = m.mean;
        if (invOut)
          r(invOut)[row] = inverse;
      }
    };
  });
}

/// GroupNormalization (scale and bias per group in opset 18, per channel since
/// 21) and InstanceNormalization (a group per channel).
Body buildGroupNorm(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  require(x.rank() >= 2, "operands must be [N, C, ...]");
  int64_t channels = x.dims[1], batch = x.dims[0],
          size = product(x.dims, 2, x.rank());
  bool instance = node.name == "instancenormalization";
  int64_t groups = instance ? channels : node.intAttr("num_groups", 0);
  require(groups > 0 && channels % groups == 0,
          "num_groups does not divide the channels");
  double epsilon = node.floatAttr("epsilon", 1e-5);
  int64_t parameters = node.input(1).count;
  require(node.input(2).count == parameters &&
              (parameters == channels || parameters == groups),
          "scale and bias must be per channel or per group");
  int64_t perGroup = channels / groups;
  bool perChannel = parameters == channels;
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), scale = plan.read<T>(1), bias = plan.read<T>(2);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t g = 0; g < batch * groups; ++g) {
        int64_t n = perGroup * size;
        const T *src = r(in) + g * n;
        T *dst = r(out) + g * n;
        Moments m = momentsOf(src, n);
        double inverse = 1 / std::sqrt(m.variance + epsilon);
        for (int64_t i = 0; i < n; ++i) {
          int64_t p =
              perChannel ? g % groups * perGroup + i / size : g % groups;
          dst[i] = static_cast<T>((src[i] - m.mean) * inverse * r(scale)[p] +
                                  r(bias)[p]);
        }
      }
    };
  });
}

Body buildBatchNorm(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  int64_t channels = x.rank() > 1 ? x.dims[1] : 1,
          batch = x.rank() > 0 ? x.dims[0] : 1,
          size = product(x.dims, std::min(2, x.rank()), x.rank());
  for (size_t k = 1; k < 5; ++k)
    require(node.input(k).count == channels,
            "parameters must have one value per channel");
  bool training = node.intAttr("training_mode", 0) != 0;
  double epsilon = node.floatAttr("epsilon", 1e-5),
         momentum = node.floatAttr("momentum", 0.9);
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    In<double> scale = plan.read<double>(1), bias = plan.read<double>(2),
               mean = plan.read<double>(3), variance = plan.read<double>(4);
    Out<T> out = plan.write<T>(0);
    Out<double> meanOut = plan.writeIf<double>(1),
                varianceOut = plan.writeIf<double>(2);
    return [=](const Run &r) {
      for (int64_t c = 0; c < channels; ++c) {
        double mu = r(mean)[c], var = r(variance)[c];
        if (training) {
          double sum = 0, squares = 0, n = double(batch * size);
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t i = 0; i < size; ++i)
              sum += r(in)[(b * channels + c) * size + i];
          mu = sum / n;
          for (int64_t b = 0; b < batch; ++b)
            for (int64_t i = 0; i < size; ++i) {
              double d = r(in)[(b * channels + c) * size + i] - mu;
              squares += d * d;
            }
          var = squares / n;
        }
        if (meanOut)
          r(meanOut)[c] =
              training ? r(mean)[c] * momentum + mu * (1 - momentum) : mu;
        if (varianceOut)
          r(varianceOut)[c] =
              training ? r(variance)[c] * momentum + var * (1 - momentum) : var;
        double gain = r(scale)[c] / std::sqrt(var + epsilon);
        double shift = r(bias)[c] - mu * gain;
        for (int64_t b = 0; b < batch; ++b) {
          const T *src = r(in) + (b * channels + c) * size;
          T *dst = r(out) + (b * channels + c) * size;
          for (int64_t i = 0; i < size; ++i)
            dst[i] = static_cast<T>(src[i] * gain + shift);
        }
      }
    };
  });
}

Body buildLpNorm(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  int axis = node.axisAttr("axis", -1, x.rank());
  int64_t p = node.intAttr("p", 2);
  require(p == 1 || p == 2, "p must be 1 or 2");
  int64_t outer = product(x.dims, 0, axis), n = x.dims[axis],
          inner = product(x.dims, axis + 1, x.rank());
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const T *src = r(in) + o * n * inner + i;
          T *dst = r(out) + o * n * inner + i;
          double norm = 0;
          for (int64_t k = 0; k < n; ++k) {
            double v = src[k * inner];
            norm += p == 1 ? std::fabs(v) : v * v;
          }
          if (p == 2)
            norm = std::sqrt(norm);
          for (int64_t k = 0; k < n; ++k)
            dst[k * inner] =
                norm == 0 ? T(0) : static_cast<T>(src[k * inner] / norm);
        }
    };
  });
}

/// MeanVarianceNormalization over `axes`; the deviation has 1e-9 added.
Body buildMeanVariance(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  std::vector<int64_t> axes = node.intsAttr("axes");
  if (!node.has("axes"))
    axes = {0, 2, 3};
  std::vector<bool> reduced(size_t(x.rank()), false);
  for (int64_t axis : axes)
    reduced[normalizeAxis(axis, x.rank())] = true;
  std::vector<int64_t> outerDims, outerStrides, innerDims, innerStrides,
      dense = denseStrides(x.dims);
  for (int d = 0; d < x.rank(); ++d) {
    (reduced[d] ? innerDims : outerDims).push_back(x.dims[d]);
    (reduced[d] ? innerStrides : outerStrides).push_back(dense[d]);
  }
  int64_t count = 1, total = x.count;
  for (int64_t d : innerDims)
    count *= d;
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      if (!total)
        return;
      Odometer outer(int(outerDims.size()), outerDims.data(),
                     outerStrides.data());
      do {
        auto visit = [&](auto f) {
          Odometer inner(int(innerDims.size()), innerDims.data(),
                         innerStrides.data());
          do
            f(outer.a + inner.a);
          while (inner.next());
        };
        double sum = 0, squares = 0;
        visit([&](int64_t i) { sum += r(in)[i]; });
        double mean = sum / double(count);
        visit([&](int64_t i) {
          squares += (r(in)[i] - mean) * (r(in)[i] - mean);
        });
        double deviation = std::sqrt(squares / double(count)) + 1e-9;
        visit([&](int64_t i) {
          r(out)[i] = static_cast<T>((r(in)[i] - mean) / deviation);
        });
      } while (outer.next());
    };
  });
}

Body buildLRN(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  require(x.rank() >= 2, "operands must be [N, C, ...]");
  int64_t size = node.intAttr("size", 0);
  require(size > 0, "size must be positive");
  double alpha = node.floatAttr("alpha", 1e-4) / double(size),
         beta = node.floatAttr("beta", 0.75), bias = node.floatAttr("bias", 1);
  int64_t batch = x.dims[0], channels = x.dims[1],
          plane = product(x.dims, 2, x.rank());
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t c = 0; c < channels; ++c) {
          int64_t lo = std::max<int64_t>(0, c - (size - 1) / 2),
                  hi = std::min(channels - 1, c + size / 2);
          for (int64_t i = 0; i < plane; ++i) {
            const T *src = r(in) + b * channels * plane + i;
            double squares = 0;
            for (int64_t k = lo; k <= hi; ++k)
              squares += double(src[k * plane]) * src[k * plane];
            r(out)[(b * channels + c) * plane + i] = static_cast<T>(
                src[c * plane] / std::pow(bias + alpha * squares, beta));
          }
        }
    };
  });
}

} // namespace

void onnx::addNorm(OpTable &ops) {
  ops["layernormalization"] = buildLayerNorm;
  ops["rmsnormalization"] = buildLayerNorm;
  ops["groupnormalization"] = buildGroupNorm;
  ops["instancenormalization"] = buildGroupNorm;
  ops["batchnormalization"] = buildBatchNorm;
  ops["lpnormalization"] = buildLpNorm;
  ops["meanvariancenormalization"] = buildMeanVariance;
  ops["lrn"] = buildLRN;
}

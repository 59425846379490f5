//===- Quant.cpp - Quantised operators
//--------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Integer sums are exact (64 bits); rounding is to nearest even and saturates
// at the limits of the result's dtype.
//
//===----------------------------------------------------------------------===//

#include "MatMul.h"
#include "Window.h"

#include <cmath>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// Where the scale of an element is: per tensor, per axis, or per block.
struct Granularity {
  int64_t outer = 1, n = 1, inner = 1; ///< the tensor around the axis
  int64_t block = 0;                   ///< elements per scale along the axis
  int64_t scales = 1;                  ///< scales along the axis

  Granularity(const NodeInfo &node, const TensorInfo &x,
              const TensorInfo &scale) {
    if (scale.count == 1 && scale.rank() <= 1) {
      inner = x.count;
      block = 1;
      return;
    }
    int axis = node.axisAttr("axis", 1, x.rank());
    outer = product(x.dims, 0, axis);
    n = x.dims[axis];
    inner = product(x.dims, axis + 1, x.rank());
    if (scale.rank() == 1 && x.rank() != 1) {
      require(scale.count == n, "one scale per entry of the axis is needed");
      block = 1;
      scales = n;
      return;
    }
    block = node.intAttr("block_size", 0);
    if (block == 0 && scale.rank() == 1 && scale.count == n)
      block = 1;
    require(scale.rank() == x.rank() && block > 0 &&
                block < (int64_t(1) << 31) &&
                scale.dims[axis] == (n + block - 1) / block,
            "the scale's shape does not fit the blocks");
    for (int d = 0; d < x.rank(); ++d)
      require(d == axis || scale.dims[d] == x.dims[d],
              "the scale's shape does not fit the blocks");
    scales = scale.dims[axis];
    blocked = true;
  }

  /// Calls f(element, scale index) for all elements in order.
  template <class F> void forEach(F f) const {
    int64_t at = 0;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < n; ++k) {
        int64_t s = scales == 1 && !blocked ? 0 : k / block;
        for (int64_t i = 0; i < inner; ++i, ++at)
          f(at, blocked ? (o * scales + s) * inner + i : s);
      }
  }

private:
  bool blocked = false;
};

struct Limits {
  double low, high;
};

Limits limitsOf(DType dtype) {
  Compute compute = computeOf(dtype);
  int bits = int(dtypeSize(dtype)) * 8;
  if (bits > 32 || (compute != Compute::Int && compute != Compute::Uint))
    throw UnsupportedError("quantisation to this dtype");
  if (compute == Compute::Uint)
    return {0, std::ldexp(1.0, bits) - 1};
  return {-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1};
}

int64_t quantize(double value, double zero, Limits limits) {
  zero = std::clamp(zero, -4294967296.0, 4294967296.0);
  value = std::nearbyint(value) + zero;
  if (!(value >= limits.low))
    value = limits.low;
  return int64_t(std::min(value, limits.high));
}

Body buildQuantize(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &scale = node.input(1),
                   &y = node.output(0);
  require(x.count == y.count, "the result has another size");
  require(!node.hasIn(2) || node.in[2].count == scale.count,
          "scale and zero point differ in size");
  Granularity granularity(node, x, scale);
  bool toFloat = isFloat(y.dtype);
  Limits limits{};
  if (!toFloat)
    limits = limitsOf(y.dtype);
  bool saturate = node.intAttr("saturate", 1) != 0;
  // The division is done in the scale's dtype unless `precision` says another.
  DType precision = dtypeFromOnnx(node.intAttr("precision", 0));
  if (precision == DType::Invalid)
    precision = scale.dtype;
  In<double> in = plan.read<double>(0), scaleIn = plan.read<double>(1),
             zeroIn = plan.readIf<double>(2);
  DType out = y.dtype;
  return [=](const Run &r) {
    char *dst = r.out(0);
    granularity.forEach([&](int64_t at, int64_t s) {
      double ratio = r(in)[at] / r(scaleIn)[s];
      double zero = zeroIn ? r(zeroIn)[s] : 0;
      if (precision == DType::F32) {
        ratio = static_cast<float>(ratio);
      } else if (precision != DType::F64) {
        alignas(8) char rounded[8];
        storeOne(ratio, precision, rounded, 0);
        ratio = loadOne<double>(precision, rounded, 0);
      }
      if (toFloat) {
        float value = static_cast<float>(ratio + zero);
        storeAs(&value, 1, out, dst + at * int64_t(dtypeSize(out)), saturate);
      } else {
        storeOne(quantize(ratio, zero, limits), out, dst, at);
      }
    });
  };
}

Body buildDequantize(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &scale = node.input(1),
                   &y = node.output(0);
  require(x.count == y.count, "the result has another size");
  require(!node.hasIn(2) || node.in[2].count == scale.count,
          "scale and zero point differ in size");
  Granularity granularity(node, x, scale);
  return forFloats(y.dtype, [&]<class T>() -> Body {
    In<double> in = plan.read<double>(0), scaleIn = plan.read<double>(1),
               zeroIn = plan.readIf<double>(2);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      granularity.forEach([&](int64_t at, int64_t s) {
        double zero = zeroIn ? r(zeroIn)[s] : 0;
        r(out)[at] = static_cast<T>((r(in)[at] - zero) * r(scaleIn)[s]);
      });
    };
  });
}

/// DynamicQuantizeLinear: u8 over the range of the data, which includes zero.
Body buildDynamicQuantize(Plan &plan) {
  const NodeInfo &node = plan.node;
  int64_t count = node.input(0).count;
  require(node.output(0).count == count && node.output(1).count == 1 &&
              node.output(2).count == 1,
          "the results have other sizes");
  require(node.output(0).dtype == DType::U8 &&
              node.output(2).dtype == DType::U8,
          "the results must be u8");
  In<float> in = plan.read<float>(0);
  Out<float> scaleOut = plan.write<float>(1);
  return [=](const Run &r) {
    const float *x = r(in);
    float low = 0, high = 0;
    for (int64_t i = 0; i < count; ++i) {
      low = std::min(low, x[i]);
      high = std::max(high, x[i]);
    }
    float scale = (high - low) / 255.0f;
    float zero = 0;
    if (scale != 0)
      zero = std::nearbyint(std::clamp(0.0f - low / scale, 0.0f, 255.0f));
    uint8_t *y = reinterpret_cast<uint8_t *>(r.out(0));
    for (int64_t i = 0; i < count; ++i)
      y[i] = scale == 0 ? uint8_t(0)
                        : uint8_t(quantize(x[i] / scale, zero, {0, 255}));
    *r(scaleOut) = scale;
    *reinterpret_cast<uint8_t *>(r.out(2)) = uint8_t(indexFrom(zero));
  };
}

//===----------------------------------------------------------------------===//
// Integer products
//===----------------------------------------------------------------------===//

/// A quantisation parameter of a matrix: one value, one per row (or column), or
/// one per row (or column) of every matrix of the batch.
struct Spread {
  In<double> values;
  int64_t count = 0, lines = 1;

  /// A zero point.
  int64_t zeroAt(const Run &r, int64_t batch, int64_t line) const {
    return indexFrom(at(r, batch, line));
  }
  double at(const Run &r, int64_t batch, int64_t line) const {
    if (!values)
      return 0;
    if (count == 1)
      return r(values)[0];
    return r(values)[count == lines ? line : batch * lines + line];
  }
};

Spread spread(Plan &plan, size_t input, int64_t lines, int64_t batches) {
  Spread result;
  result.values = plan.readIf<double>(input);
  result.lines = lines;
  if (result.values) {
    result.count = plan.node.in[input].count;
    require(result.count == 1 || result.count == lines ||
                result.count == lines * batches,
            "a quantisation parameter has another size");
  }
  return result;
}

/// MatMulInteger and QLinearMatMul.
Body buildIntegerMatMul(Plan &plan) {
  const NodeInfo &node = plan.node;
  bool linear = node.name == "qlinearmatmul";
  size_t bIndex = linear ? 3 : 1;
  const TensorInfo &a = node.input(0), &b = node.input(bIndex),
                   &y = node.output(0);
  std::vector<int64_t> ad = a.dims, bd = b.dims, yd = y.dims;
  require(a.elementSize() == 1 && b.elementSize() == 1,
          "the operands must have 8 bits");
  require(!ad.empty() && !bd.empty(), "scalars cannot be multiplied");
  if (bd.size() == 1) {
    bd.push_back(1);
    yd.push_back(1);
  }
  if (ad.size() == 1) {
    require(!yd.empty(), "the result has another rank");
    ad.insert(ad.begin(), 1);
    yd.insert(yd.end() - 1, 1);
  }
  require(yd.size() >= 2, "the result has another rank");
  int64_t m = ad[ad.size() - 2], k = ad.back(), n = bd.back();
  require(bd[bd.size() - 2] == k && yd[yd.size() - 2] == m && yd.back() == n,
          "the shapes do not fit");
  Broadcast nest({yd.begin(), yd.end() - 2},
                 {{ad.begin(), ad.end() - 2}, {bd.begin(), bd.end() - 2}});
  int64_t aBatches = m * k ? a.count / (m * k) : 0,
          bBatches = n * k ? b.count / (n * k) : 0;
  Spread aZero = spread(plan, 2, m, aBatches),
         bZero = spread(plan, linear ? 5 : 3, n, bBatches), aScale, bScale;
  In<double> yScale, yZero;
  Limits limits{};
  if (linear) {
    aScale = spread(plan, 1, m, aBatches);
    bScale = spread(plan, 4, n, bBatches);
    yScale = plan.read<double>(6);
    yZero = plan.read<double>(7);
    require(node.in[6].count == 1 && node.in[7].count == 1,
            "the result's scale must be a scalar");
    limits = limitsOf(y.dtype);
  }
  Scratch<int64_t> aWork = plan.scratch<int64_t>(m * k),
                   bWork = plan.scratch<int64_t>(k * n),
                   cWork = plan.scratch<int64_t>(m * n);
  DType aType = a.dtype, bType = b.dtype, yType = y.dtype;
  return [=](const Run &r) {
    int64_t *x = r(aWork), *w = r(bWork), *c = r(cWork);
    int64_t inner = nest.innerSize();
    nest.forEach([&](const int64_t *offsets, int64_t to) {
      for (int64_t i = 0; i < inner; ++i) {
        int64_t ab = offsets[0] + i * nest.innerStride(0),
                bb = offsets[1] + i * nest.innerStride(1);
        loadAs(aType, r.in(0) + ab * m * k * int64_t(dtypeSize(aType)), m * k,
               x);
        loadAs(bType, r.in(bIndex) + bb * k * n * int64_t(dtypeSize(bType)),
               k * n, w);
        for (int64_t row = 0; row < m; ++row)
          for (int64_t p = 0; p < k; ++p)
            x[row * k + p] -= aZero.zeroAt(r, ab, row);
        for (int64_t p = 0; p < k; ++p)
          for (int64_t col = 0; col < n; ++col)
            w[p * n + col] -= bZero.zeroAt(r, bb, col);
        matmul<int64_t>(m, n, k, {x, k, 1}, {w, n, 1}, {c, n, 1});
        if (linear)
          for (int64_t row = 0; row < m; ++row)
            for (int64_t col = 0; col < n; ++col) {
              double scale =
                  aScale.at(r, ab, row) * bScale.at(r, bb, col) / *r(yScale);
              int64_t &v = c[row * n + col];
              v = quantize(double(v) * scale, *r(yZero), limits);
            }
        storeAs(c, m * n, yType,
                r.out(0) + (to + i) * m * n * int64_t(dtypeSize(yType)));
      }
    });
  };
}

/// ConvInteger and QLinearConv.
Body buildIntegerConv(Plan &plan) {
  const NodeInfo &node = plan.node;
  bool linear = node.name == "qlinearconv";
  size_t wIndex = linear ? 3 : 1;
  const TensorInfo &x = node.input(0), &weights = node.input(wIndex),
                   &y = node.output(0);
  require(x.rank() >= 3 && weights.rank() == x.rank() && y.rank() == x.rank(),
          "operands must be [N, C, spatial...]");
  require(x.elementSize() == 1 && weights.elementSize() == 1,
          "the operands must have 8 bits");
  int64_t batch = x.dims[0], channels = x.dims[1], filters = weights.dims[0],
          groups = node.intAttr("group", 1);
  require(groups > 0 && channels % groups == 0 && filters % groups == 0 &&
              weights.dims[1] == channels / groups && y.dims[0] == batch &&
              y.dims[1] == filters,
          "channels, filters and group do not fit");
  Window w(node, x, y, {weights.dims.begin() + 2, weights.dims.end()});
  Spread xZero = spread(plan, 2, 1, 1),
         wZero = spread(plan, linear ? 5 : 3, filters, 1), xScale, wScale;
  In<double> yScale, yZero;
  In<int64_t> bias;
  Limits limits{};
  if (linear) {
    xScale = spread(plan, 1, 1, 1);
    wScale = spread(plan, 4, filters, 1);
    yScale = plan.read<double>(6);
    yZero = plan.read<double>(7);
    bias = plan.readIf<int64_t>(8);
    require(node.in[6].count == 1 && node.in[7].count == 1 &&
                (!bias || node.in[8].count == filters),
            "a quantisation parameter has another size");
    limits = limitsOf(y.dtype);
  }
  Scratch<int64_t> xWork = plan.scratch<int64_t>(x.count),
                   wWork = plan.scratch<int64_t>(weights.count),
                   plane = plan.scratch<int64_t>(w.outSize);
  DType xType = x.dtype, wType = weights.dtype, yType = y.dtype;
  int64_t xCount = x.count, wCount = weights.count,
          perFilter = filters ? weights.count / filters : 0;
  return [=](const Run &r) {
    int64_t *xs = r(xWork), *ws = r(wWork);
    loadAs(xType, r.in(0), xCount, xs);
    loadAs(wType, r.in(wIndex), wCount, ws);
    for (int64_t i = 0; i < xCount; ++i)
      xs[i] -= xZero.zeroAt(r, 0, 0);
    for (int64_t i = 0; i < wCount; ++i)
      ws[i] -= wZero.zeroAt(r, 0, i / perFilter);
    convolve(w, batch, channels, filters, groups, xs, ws, r(plane),
             [&](int64_t n, int64_t m, int64_t *acc) {
               if (linear) {
                 double scale =
                     xScale.at(r, 0, 0) * wScale.at(r, 0, m) / *r(yScale);
                 int64_t b = bias ? r(bias)[m] : 0;
                 for (int64_t i = 0; i < w.outSize; ++i)
                   acc[i] = quantize((double(acc[i]) + double(b)) * scale,
                                     *r(yZero), limits);
               }
               storeAs(acc, w.outSize, yType,
                       r.out(0) + (n * filters + m) * w.outSize *
                                      int64_t(dtypeSize(yType)));
             });
  };
}

} // namespace

void onnx::addQuant(OpTable &ops) {
  ops["quantizelinear"] = buildQuantize;
  ops["dequantizelinear"] = buildDequantize;
  ops["dynamicquantizelinear"] = buildDynamicQuantize;
  ops["matmulinteger"] = buildIntegerMatMul;
  ops["qlinearmatmul"] = buildIntegerMatMul;
  ops["convinteger"] = buildIntegerConv;
  ops["qlinearconv"] = buildIntegerConv;
}

//===- Signal.cpp - Fourier transforms and windows
//--------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Transforms by definition, with one table of the unit circle: any length, and
// double precision throughout.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

struct Complex {
  double re, im;
};

/// table[i] = exp(2 pi j i / n)
void unitCircle(int64_t n, Complex *table) {
  for (int64_t i = 0; i < n; ++i) {
    double angle = 2 * std::numbers::pi * double(i) / double(n);
    table[i] = {std::cos(angle), std::sin(angle)};
  }
}

/// sum_i get(i) exp(sign 2 pi j i k / n)
template <class Get>
Complex transformAt(int64_t k, int64_t n, bool inverse, const Complex *table,
                    Get get) {
  Complex sum{0, 0};
  int64_t at = 0; // i * k mod n
  for (int64_t i = 0; i < n; ++i) {
    Complex x = get(i), w = table[at];
    if (!inverse)
      w.im = -w.im;
    sum.re += x.re * w.re - x.im * w.im;
    sum.im += x.re * w.im + x.im * w.re;
    at += k;
    if (at >= n)
      at -= n;
  }
  return sum;
}

/// DFT: `axis` is an attribute (default 1) before opset 20, input 2 (default
/// -2) since.
Body buildDFT(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.rank() >= 2 && x.rank() == y.rank(), "ranks do not fit");
  bool inverse = node.intAttr("inverse", 0) != 0,
       onesided = node.intAttr("onesided", 0) != 0;
  int64_t parts = x.dims.back(), outParts = y.dims.back();
  require((parts == 1 || parts == 2) && (outParts == 1 || outParts == 2),
          "the last dimension must be 1 or 2");
  bool axisAttr = node.opset < 20 && node.opset > 0;
  int64_t axisValue = node.intAttr("axis", axisAttr ? 1 : -2);
  In<int64_t> lengthIn = plan.readIf<int64_t>(1),
              axisIn = axisAttr ? In<int64_t>{} : plan.readIf<int64_t>(2);
  std::vector<int64_t> xd = x.dims, yd = y.dims;
  int64_t most = 2;
  for (int64_t d : yd)
    most = std::max(most, 2 * d + 1);
  Scratch<Complex> table = plan.scratch<Complex>(most);
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int rank = int(xd.size());
      int axis = normalizeAxis(axisIn ? *r(axisIn) : axisValue, rank);
      require(axis < rank - 1, "axis must not be the last dimension");
      int64_t size = xd[axis], outSize = yd[axis];
      bool fromHalf = onesided && inverse;
      int64_t n = lengthIn ? *r(lengthIn) : fromHalf ? 2 * (size - 1) : size;
      int64_t bins = onesided && !inverse ? n / 2 + 1 : n;
      require(n > 0 && n <= most && bins == outSize,
              "the length and the result's shape disagree");
      for (int d = 0; d < rank - 1; ++d)
        require(d == axis || xd[d] == yd[d], "the result has another shape");
      unitCircle(n, r(table));
      int64_t outer = product(xd, 0, axis),
              inner = product(xd, axis + 1, rank - 1);
      double scale = inverse ? 1 / double(n) : 1;
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const T *src = r(in) + (o * size * inner + i) * parts;
          T *dst = r(out) + (o * outSize * inner + i) * outParts;
          auto value = [&](int64_t p) -> Complex {
            if (p >= size)
              return {0, 0};
            const T *v = src + p * inner * parts;
            return {double(v[0]), parts == 2 ? double(v[1]) : 0.0};
          };
          for (int64_t k = 0; k < bins; ++k) {
            Complex sum =
                transformAt(k, n, inverse, r(table), [&](int64_t p) -> Complex {
                  if (!fromHalf || p <= n / 2)
                    return value(p);
                  // The other half of a real signal's spectrum.
                  Complex v = value(n - p);
                  return {v.re, -v.im};
                });
            T *at = dst + k * inner * outParts;
            at[0] = static_cast<T>(sum.re * scale);
            if (outParts == 2)
              at[1] = static_cast<T>(sum.im * scale);
          }
        }
    };
  });
}

Body buildSTFT(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require((x.rank() == 3 || x.rank() == 2) && y.rank() == 4 && y.dims[3] == 2 &&
              x.dims[0] == y.dims[0],
          "the signal must be [B,L,1|2] and the result [B,frames,bins,2]");
  int64_t batch = x.dims[0], length = x.dims[1],
          parts = x.rank() == 3 ? x.dims[2] : 1, frames = y.dims[1],
          bins = y.dims[2];
  require(parts == 1 || parts == 2, "the last dimension must be 1 or 2");
  bool onesided = node.intAttr("onesided", 1) != 0;
  In<int64_t> stepIn = plan.read<int64_t>(1),
              lengthIn = plan.readIf<int64_t>(3);
  int64_t windowSize = node.hasIn(2) ? node.in[2].count : 0;
  Scratch<Complex> table = plan.scratch<Complex>(2 * bins + 2);
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), windowIn = plan.readIf<T>(2);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int64_t step = *r(stepIn);
      int64_t n = lengthIn ? *r(lengthIn) : windowIn ? windowSize : length;
      require(n > 0 && (onesided ? n / 2 + 1 : n) == bins,
              "the frame length and the result's shape disagree");
      require(step > 0 && n <= length && frames >= 0 &&
                  (frames == 0 || (frames - 1) <= (length - n) / step),
              "the frames do not fit the signal");
      require(!windowIn || windowSize <= n, "the window is too long");
      unitCircle(n, r(table));
      int64_t margin = windowIn ? (n - windowSize) / 2 : 0;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t f = 0; f < frames; ++f)
          for (int64_t k = 0; k < bins; ++k) {
            Complex sum =
                transformAt(k, n, false, r(table), [&](int64_t i) -> Complex {
                  const T *v = r(in) + (b * length + f * step + i) * parts;
                  double gain = 1;
                  if (windowIn) {
                    int64_t at = i - margin;
                    gain = at >= 0 && at < windowSize ? double(r(windowIn)[at])
                                                      : 0.0;
                  }
                  return {gain * v[0], parts == 2 ? gain * v[1] : 0.0};
                });
            T *dst = r(out) + ((b * frames + f) * bins + k) * 2;
            dst[0] = static_cast<T>(sum.re);
            dst[1] = static_cast<T>(sum.im);
          }
    };
  });
}

/// Hann, Hamming and Blackman windows: sums of cosines.
Body buildWindow(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &y = node.output(0);
  require(node.input(0).count == 1, "the size must be a scalar");
  int64_t n = y.count;
  // The result's size is the value of the input, so it is not read again.
  double span = double(node.intAttr("periodic", 1) != 0 ? n : n - 1);
  double c[3] = {0.5, 0.5, 0};
  if (node.name == "hammingwindow") {
    c[0] = 25.0 / 46;
    c[1] = 1 - c[0];
  } else if (node.name == "blackmanwindow") {
    c[0] = 0.42;
    c[1] = 0.5;
    c[2] = 0.08;
  }
  double c0 = c[0], c1 = c[1], c2 = c[2];
  Out<double> out = plan.write<double>(0);
  return [=](const Run &r) {
    for (int64_t i = 0; i < n; ++i) {
      double angle = span > 0 ? 2 * std::numbers::pi * double(i) / span : 0;
      r(out)[i] =
          span > 0 ? c0 - c1 * std::cos(angle) + c2 * std::cos(2 * angle) : 1.0;
    }
  };
}

Body buildMelWeightMatrix(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &y = node.output(0);
  require(y.rank() == 2, "the result must be a matrix");
  for (size_t k = 0; k < 5; ++k)
    require(node.input(k).count == 1, "the parameters are scalars");
  int64_t bins = y.dims[0], mels = y.dims[1];
  In<int64_t> lengthIn = plan.read<int64_t>(1), rateIn = plan.read<int64_t>(2);
  In<double> lowIn = plan.read<double>(3), highIn = plan.read<double>(4);
  Out<double> out = plan.write<double>(0);
  return [=](const Run &r) {
    int64_t length = *r(lengthIn), rate = *r(rateIn);
    require(length / 2 + 1 == bins && rate > 0,
            "dft_length and the result's shape disagree");
    auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
    double low = mel(*r(lowIn)),
           step = (mel(*r(highIn)) - low) / double(mels + 2);
    auto edge = [&](int64_t i) {
      double hertz = 700 * (std::pow(10, (low + double(i) * step) / 2595) - 1);
      double bin = std::floor(double(length + 1) * hertz / double(rate));
      return std::clamp<int64_t>(int64_t(std::clamp(bin, -1e9, 1e9)), 0,
                                 bins - 1);
    };
    double *dst = r(out);
    std::fill_n(dst, bins * mels, 0.0);
    for (int64_t m = 0; m < mels; ++m) {
      int64_t left = edge(m), center = edge(m + 1), right = edge(m + 2);
      if (center == left)
        dst[center * mels + m] = 1;
      for (int64_t j = left; j <= center && center > left; ++j)
        dst[j * mels + m] = double(j - left) / double(center - left);
      for (int64_t j = center; j < right; ++j)
        dst[j * mels + m] = double(right - j) / double(right - center);
    }
  };
}

} // namespace

void onnx::addSignal(OpTable &ops) {
  ops["dft"] = buildDFT;
  ops["stft"] = buildSTFT;
  ops["hannwindow"] = buildWindow;
  ops["hammingwindow"] = buildWindow;
  ops["blackmanwindow"] = buildWindow;
  ops["melweightmatrix"] = buildMelWeightMatrix;
}

//===- Conv.cpp - Convolutions
//----------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Direct convolutions of any spatial rank, one output plane at a time, summed
// in double. Fast ones for common cases are elsewhere (lib/Conv.cpp).
//
//===----------------------------------------------------------------------===//

#include "Window.h"

#include <cmath>
#include <cstring>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

Window::Window(const NodeInfo &node, const TensorInfo &x, const TensorInfo &y,
               std::vector<int64_t> kernelDims) {
  rank = x.rank() - 2;
  require(rank >= 1 && y.rank() == x.rank(),
          "operands must be [N, C, spatial...] with a spatial dimension");
  if (kernelDims.empty())
    kernelDims = node.intsAttr("kernel_shape");
  std::vector<int64_t> strides = node.intsAttr("strides"),
                       dilations = node.intsAttr("dilations"),
                       pads = node.intsAttr("pads");
  std::string mode = node.strAttr("auto_pad", "NOTSET");
  auto sized = [&](const std::vector<int64_t> &v, int n) {
    return v.empty() || int(v.size()) == n;
  };
  require(int(kernelDims.size()) == rank && sized(strides, rank) &&
              sized(dilations, rank) && sized(pads, 2 * rank),
          "kernel_shape, strides, dilations or pads have a wrong length");
  constexpr int64_t kMost = int64_t(1) << 31;
  for (int d = 0; d < rank; ++d) {
    in[d] = x.dims[d + 2];
    out[d] = y.dims[d + 2];
    kernel[d] = kernelDims[d];
    stride[d] = strides.empty() ? 1 : strides[d];
    dilation[d] = dilations.empty() ? 1 : dilations[d];
    require(kernel[d] >= 0 && kernel[d] < kMost && stride[d] > 0 &&
                stride[d] < kMost && dilation[d] > 0 && dilation[d] < kMost &&
                in[d] < kMost && out[d] < kMost,
            "a window parameter is out of range");
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      int64_t span = (kernel[d] - 1) * dilation[d] + 1;
      int64_t total =
          std::max<int64_t>((out[d] - 1) * stride[d] + span - in[d], 0);
      padBegin[d] = mode == "SAME_UPPER" ? total / 2 : (total + 1) / 2;
      padEnd[d] = total - padBegin[d];
    } else if (mode == "NOTSET" && !pads.empty()) {
      padBegin[d] = pads[d];
      padEnd[d] = pads[d + rank];
      require(padBegin[d] > -kMost && padBegin[d] < kMost &&
                  padEnd[d] > -kMost && padEnd[d] < kMost,
              "a pad is out of range");
    } else {
      require(mode == "NOTSET" || mode == "VALID", "unknown auto_pad");
    }
    inSize *= in[d];
    outSize *= out[d];
    taps *= kernel[d];
    require(taps < kMost, "the window is too large");
  }
}

namespace {

struct ConvShape {
  int64_t batch, channels, filters, groups;
};

ConvShape checkConv(const NodeInfo &node) {
  const TensorInfo &x = node.input(0), &w = node.input(1), &y = node.output(0);
  require(x.rank() >= 3 && w.rank() == x.rank() && y.rank() == x.rank(),
          "operands must be [N, C, spatial...]");
  ConvShape s{x.dims[0], x.dims[1], w.dims[0], node.intAttr("group", 1)};
  require(s.groups > 0 && s.channels % s.groups == 0 &&
              s.filters % s.groups == 0 && w.dims[1] == s.channels / s.groups,
          "channels, filters and group do not fit");
  require(y.dims[0] == s.batch && y.dims[1] == s.filters,
          "the result has another shape");
  return s;
}

std::vector<int64_t> spatial(const TensorInfo &w) {
  return {w.dims.begin() + 2, w.dims.end()};
}

Body buildConv(Plan &plan) {
  const NodeInfo &node = plan.node;
  ConvShape s = checkConv(node);
  Window w(node, node.input(0), node.output(0), spatial(node.input(1)));
  require(!node.hasIn(2) || node.in[2].count == s.filters,
          "the bias has another size");
  return forFloats(node.input(0).dtype, [&]<class T>() -> Body {
    In<T> x = plan.read<T>(0), weights = plan.read<T>(1),
          bias = plan.readIf<T>(2);
    Out<T> y = plan.write<T>(0);
    Scratch<double> plane = plan.scratch<double>(w.outSize);
    return [=](const Run &r) {
      convolve(w, s.batch, s.channels, s.filters, s.groups, r(x), r(weights),
               r(plane), [&](int64_t n, int64_t m, const double *acc) {
                 T *dst = r(y) + (n * s.filters + m) * w.outSize;
                 double b = bias ? double(r(bias)[m]) : 0.0;
                 for (int64_t i = 0; i < w.outSize; ++i)
                   dst[i] = static_cast<T>(acc[i] + b);
               });
    };
  });
}

/// ConvTranspose. The geometry is that of the convolution whose gradient it is:
/// the result takes the part of the window's input.
Body buildConvTranspose(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &weights = node.input(1),
                   &y = node.output(0);
  require(x.rank() >= 3 && weights.rank() == x.rank() && y.rank() == x.rank(),
          "operands must be [N, C, spatial...]");
  int64_t groups = node.intAttr("group", 1), batch = x.dims[0],
          channels = x.dims[1];
  require(groups > 0 && channels % groups == 0 && weights.dims[0] == channels,
          "channels and group do not fit");
  int64_t perGroup = channels / groups, filtersPerGroup = weights.dims[1],
          filters = filtersPerGroup * groups;
  require(y.dims[0] == batch && y.dims[1] == filters,
          "the result has another shape");
  require(!node.hasIn(2) || node.in[2].count == filters,
          "the bias has another size");
  Window w(node, y, x, spatial(weights));
  std::string mode = node.strAttr("auto_pad", "NOTSET");
  if (node.has("output_shape") || mode.starts_with("SAME")) {
    std::vector<int64_t> extra = node.intsAttr("output_padding");
    for (int d = 0; d < w.rank; ++d) {
      // w.out is this operator's input.
      require(extra.empty() || (int(extra.size()) == w.rank && extra[d] >= 0 &&
                                extra[d] < (int64_t(1) << 31)),
              "output_padding is out of range");
      int64_t total = w.stride[d] * (w.out[d] - 1) +
                      (extra.empty() ? 0 : extra[d]) +
                      (w.kernel[d] - 1) * w.dilation[d] + 1 - w.in[d];
      total = std::max<int64_t>(total, 0);
      w.padBegin[d] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
    }
  }
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> xIn = plan.read<T>(0), wIn = plan.read<T>(1),
          bias = plan.readIf<T>(2);
    Out<T> out = plan.write<T>(0);
    Scratch<double> plane = plan.scratch<double>(w.inSize);
    return [=](const Run &r) {
      double *acc = r(plane);
      for (int64_t n = 0; n < batch; ++n)
        for (int64_t m = 0; m < filters; ++m) {
          int64_t group = m / filtersPerGroup;
          std::fill_n(acc, w.inSize, bias ? double(r(bias)[m]) : 0.0);
          for (int64_t c = 0; c < perGroup; ++c) {
            int64_t channel = group * perGroup + c;
            const T *src = r(xIn) + (n * channels + channel) * w.outSize;
            const T *filter =
                r(wIn) +
                (channel * filtersPerGroup + m % filtersPerGroup) * w.taps;
            forEachIndex(w.kernel.data(), w.rank, [&](const int64_t *tap) {
              double weight = *filter++;
              int64_t lo[kMaxTensorRank], span[kMaxTensorRank];
              for (int d = 0; d < w.rank; ++d) {
                int64_t hi;
                w.validRange(d, tap[d], lo[d], hi);
                span[d] = hi - lo[d];
              }
              forEachIndex(span, w.rank, [&](const int64_t *at) {
                int64_t from = 0, to = 0;
                for (int d = 0; d < w.rank; ++d) {
                  int64_t i = lo[d] + at[d];
                  from = from * w.out[d] + i;
                  to = to * w.in[d] + i * w.stride[d] + tap[d] * w.dilation[d] -
                       w.padBegin[d];
                }
                acc[to] += weight * src[from];
              });
            });
          }
          T *dst = r(out) + (n * filters + m) * w.inSize;
          for (int64_t i = 0; i < w.inSize; ++i)
            dst[i] = static_cast<T>(acc[i]);
        }
    };
  });
}

/// Bilinear sample of a plane, zero outside.
template <class T>
double sampleZero(const T *plane, int64_t h, int64_t w, double y, double x) {
  if (!(y > -1 && y < double(h) && x > -1 && x < double(w)))
    return 0;
  int64_t y0 = int64_t(std::floor(y)), x0 = int64_t(std::floor(x));
  double fy = y - double(y0), fx = x - double(x0), sum = 0;
  for (int64_t dy = 0; dy < 2; ++dy)
    for (int64_t dx = 0; dx < 2; ++dx) {
      int64_t yy = y0 + dy, xx = x0 + dx;
      if (yy < 0 || yy >= h || xx < 0 || xx >= w)
        continue;
      sum += (dy ? fy : 1 - fy) * (dx ? fx : 1 - fx) * plane[yy * w + xx];
    }
  return sum;
}

/// DeformConv (2-d): every tap is displaced by an offset that is an input.
Body buildDeformConv(Plan &plan) {
  const NodeInfo &node = plan.node;
  ConvShape s = checkConv(node);
  const TensorInfo &x = node.input(0), &offset = node.input(2),
                   &y = node.output(0);
  if (x.rank() != 4)
    throw UnsupportedError("only two spatial dimensions");
  Window w(node, x, y, spatial(node.input(1)));
  int64_t offsetGroups = node.intAttr("offset_group", 1);
  require(offsetGroups > 0 && s.channels % offsetGroups == 0,
          "channels and offset_group do not fit");
  require(offset.count == s.batch * offsetGroups * w.taps * 2 * w.outSize,
          "the offsets have another size");
  require(!node.hasIn(3) || node.in[3].count == s.filters,
          "the bias has another size");
  require(!node.hasIn(4) ||
              node.in[4].count == s.batch * offsetGroups * w.taps * w.outSize,
          "the mask has another size");
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> xIn = plan.read<T>(0), wIn = plan.read<T>(1), oIn = plan.read<T>(2),
          bias = plan.readIf<T>(3), maskIn = plan.readIf<T>(4);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int64_t perGroup = s.channels / s.groups,
              filtersPerGroup = s.filters / s.groups,
              perOffset = s.channels / offsetGroups;
      for (int64_t n = 0; n < s.batch; ++n)
        for (int64_t m = 0; m < s.filters; ++m)
          for (int64_t oy = 0; oy < w.out[0]; ++oy)
            for (int64_t ox = 0; ox < w.out[1]; ++ox) {
              int64_t at = oy * w.out[1] + ox;
              double sum = bias ? double(r(bias)[m]) : 0.0;
              for (int64_t c = 0; c < perGroup; ++c) {
                int64_t channel = m / filtersPerGroup * perGroup + c;
                int64_t g = channel / perOffset;
                const T *plane = r(xIn) + (n * s.channels + channel) * w.inSize;
                for (int64_t t = 0; t < w.taps; ++t) {
                  int64_t k = (n * offsetGroups + g) * w.taps + t;
                  const T *o = r(oIn) + k * 2 * w.outSize + at;
                  double py = double(oy * w.stride[0] - w.padBegin[0] +
                                     t / w.kernel[1] * w.dilation[0]) +
                              o[0];
                  double px = double(ox * w.stride[1] - w.padBegin[1] +
                                     t % w.kernel[1] * w.dilation[1]) +
                              o[w.outSize];
                  double value = sampleZero(plane, w.in[0], w.in[1], py, px);
                  if (maskIn)
                    value *= r(maskIn)[k * w.outSize + at];
                  sum += value * r(wIn)[(m * perGroup + c) * w.taps + t];
                }
              }
              r(out)[(n * s.filters + m) * w.outSize + at] =
                  static_cast<T>(sum);
            }
    };
  });
}

/// Col2Im: columns of blocks are added back into an image.
Body buildCol2Im(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  int rank = y.rank() - 2;
  require(x.rank() == 3 && rank >= 1 && node.input(2).count == rank,
          "input must be [N, C x block, L] and the result an image");
  int64_t batch = x.dims[0], columns = x.dims[2], channels = y.dims[1];
  require(y.dims[0] == batch, "the result has another batch size");
  std::vector<int64_t> strides = node.intsAttr("strides"),
                       dilations = node.intsAttr("dilations"),
                       pads = node.intsAttr("pads");
  strides.resize(rank, 1);
  dilations.resize(rank, 1);
  pads.resize(2 * rank, 0);
  constexpr int64_t kFar = int64_t(1) << 31;
  for (int d = 0; d < rank; ++d)
    require(strides[d] > 0 && strides[d] < kFar && dilations[d] > 0 &&
                dilations[d] < kFar && pads[d] > -kFar && pads[d] < kFar &&
                pads[d + rank] > -kFar && pads[d + rank] < kFar,
            "a window parameter is out of range");
  int64_t plane = product(y.dims, 2, y.rank());
  std::vector<int64_t> image(y.dims.begin() + 2, y.dims.end());
  int64_t rows = x.dims[1];
  In<int64_t> blockIn = plan.read<int64_t>(2);
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int64_t block[kMaxTensorRank], blocks[kMaxTensorRank], taps = 1,
                                                             count = 1;
      for (int d = 0; d < rank; ++d) {
        block[d] = r(blockIn)[d];
        require(block[d] > 0 && block[d] <= rows && block[d] < kFar,
                "a block size is wrong");
        blocks[d] = (image[d] + pads[d] + pads[d + rank] -
                     dilations[d] * (block[d] - 1) - 1) /
                        strides[d] +
                    1;
        require(blocks[d] > 0 && blocks[d] <= columns, "blocks do not fit");
        taps *= block[d];
        count *= blocks[d];
        require(taps <= rows && count <= columns, "blocks do not fit");
      }
      require(taps * channels == rows && count == columns,
              "input and block shape disagree");
      T *dst = r(out);
      std::fill_n(dst, batch * channels * plane, T(0));
      const T *src = r(in);
      for (int64_t nc = 0; nc < batch * channels; ++nc, dst += plane)
        forEachIndex(block, rank, [&](const int64_t *tap) {
          forEachIndex(blocks, rank, [&](const int64_t *b) {
            T value = *src++;
            int64_t to = 0;
            for (int d = 0; d < rank; ++d) {
              int64_t i = b[d] * strides[d] + tap[d] * dilations[d] - pads[d];
              if (i < 0 || i >= image[d])
                return;
              to = to * image[d] + i;
            }
            dst[to] = static_cast<T>(U(dst[to]) + U(value));
          });
        });
    };
  });
}

} // namespace

void onnx::addConv(OpTable &ops) {
  ops["conv"] = buildConv;
  ops["convtranspose"] = buildConvTranspose;
  ops["deformconv"] = buildDeformConv;
  ops["col2im"] = buildCol2Im;
}

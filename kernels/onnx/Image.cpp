//===- Image.cpp - Sampling at computed positions
//---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// GridSample for any number of spatial dimensions, AffineGrid, RoiAlign.
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

enum class Padding { Zeros, Border, Reflection };

/// Mirrors x at low and high until it lies between them.
double reflect(double x, double low, double high) {
  double range = high - low;
  if (!(range > 0))
    return low;
  double distance = x < low ? low - x : x > high ? x - high : 0;
  if (distance == 0)
    return x;
  double turns = std::floor(distance / range);
  double rest = distance - turns * range;
  bool even = std::fmod(turns, 2) == 0;
  if (x < low)
    return even ? low + rest : high - rest;
  return even ? high - rest : low + rest;
}

/// One spatial dimension of GridSample.
struct SampleAxis {
  int64_t size;
  double low, high; ///< the border, in element positions

  /// Index of the element to read for position `i`, or -1 for zero.
  int64_t pixel(Padding padding, int64_t i) const {
    if (i >= 0 && i < size)
      return i;
    switch (padding) {
    case Padding::Zeros:
      return -1;
    case Padding::Border:
      return std::clamp<int64_t>(i, 0, size - 1);
    case Padding::Reflection:
      return std::clamp<int64_t>(int64_t(reflect(double(i), low, high)), 0,
                                 size - 1);
    }
    return -1;
  }
};

double keysWeight(double d) {
  constexpr double a = -0.75;
  d = std::fabs(d);
  if (d <= 1)
    return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Body buildGridSample(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &grid = node.input(1),
                   &y = node.output(0);
  int rank = x.rank() - 2;
  require(rank >= 1 && rank <= 4 && grid.rank() == x.rank() &&
              y.rank() == x.rank() && grid.dims.back() == rank &&
              grid.dims[0] == x.dims[0] && y.dims[0] == x.dims[0] &&
              y.dims[1] == x.dims[1],
          "operands must be [N,C,in...], [N,out...,r] and [N,C,out...]");
  for (int d = 0; d < rank; ++d)
    require(y.dims[d + 2] == grid.dims[d + 1], "the result has another shape");
  std::string modeName = node.strAttr("mode", "linear");
  enum { Nearest, Linear, Cubic } mode;
  if (modeName == "nearest")
    mode = Nearest;
  else if (modeName == "linear" || modeName == "bilinear")
    mode = Linear;
  else if (modeName == "cubic" || modeName == "bicubic")
    mode = Cubic;
  else
    throw UnsupportedError("mode '" + modeName + "'");
  std::string paddingName = node.strAttr("padding_mode", "zeros");
  Padding padding = paddingName == "zeros"    ? Padding::Zeros
                    : paddingName == "border" ? Padding::Border
                                              : Padding::Reflection;
  require(padding != Padding::Reflection || paddingName == "reflection",
          "unknown padding_mode");
  bool align = node.intAttr("align_corners", 0) != 0;
  std::array<SampleAxis, 4> axes{};
  int64_t plane = 1;
  for (int d = 0; d < rank; ++d) {
    int64_t size = x.dims[d + 2];
    axes[d] = {size, align ? 0.0 : -0.5,
               align ? double(size) - 1 : double(size) - 0.5};
    plane *= size;
  }
  int64_t batch = x.dims[0], channels = x.dims[1],
          points = product(grid.dims, 1, rank + 1);
  require(plane > 0 || y.count == 0, "an empty image cannot be sampled");
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    In<double> gridIn = plan.read<double>(1);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      int reach = mode == Nearest ? 1 : mode == Linear ? 2 : 4;
      for (int64_t b = 0; b < batch; ++b)
        for (int64_t p = 0; p < points; ++p) {
          const double *at = r(gridIn) + (b * points + p) * rank;
          int64_t tap[4][4];
          double weight[4][4];
          for (int d = 0; d < rank; ++d) {
            // The grid's last dimension runs from the innermost axis out.
            double size = double(axes[d].size);
            double v = at[rank - 1 - d];
            double pos =
                align ? (v + 1) / 2 * (size - 1) : ((v + 1) * size - 1) / 2;
            if (!(std::fabs(pos) < 1e9))
              pos = std::isnan(pos) ? -1e9 : std::copysign(1e9, pos);
            if (mode == Nearest)
              pos = std::nearbyint(pos);
            if (pos < axes[d].low || pos > axes[d].high) {
              if (padding == Padding::Border)
                pos = std::clamp(pos, 0.0, size - 1);
              else if (padding == Padding::Reflection)
                pos = reflect(pos, axes[d].low, axes[d].high);
            }
            int64_t base = int64_t(mode == Nearest ? std::nearbyint(pos)
                                                   : std::floor(pos)) -
                           (mode == Cubic ? 1 : 0);
            for (int k = 0; k < reach; ++k) {
              tap[d][k] = axes[d].pixel(padding, base + k);
              double distance = pos - double(base + k);
              weight[d][k] = mode == Nearest  ? 1
                             : mode == Linear ? 1 - std::fabs(distance)
                                              : keysWeight(distance);
            }
          }
          std::array<int64_t, 4> reachDims{reach, reach, reach, reach};
          for (int64_t c = 0; c < channels; ++c) {
            const T *src = r(in) + (b * channels + c) * plane;
            double sum = 0;
            forEachIndex(reachDims.data(), rank, [&](const int64_t *k) {
              double w = 1;
              int64_t from = 0;
              for (int d = 0; d < rank; ++d) {
                int64_t i = tap[d][k[d]];
                if (i < 0)
                  return;
                w *= weight[d][k[d]];
                from = from * axes[d].size + i;
              }
              if (w != 0)
                sum += w * double(src[from]);
            });
            r(out)[(b * channels + c) * points + p] = saturateTo<T>(sum);
          }
        }
    };
  });
}

Body buildAffineGrid(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &theta = node.input(0), &y = node.output(0);
  int rank = y.rank() - 2;
  require((rank == 2 || rank == 3) && theta.rank() == 3 &&
              theta.dims[1] == rank && theta.dims[2] == rank + 1 &&
              y.dims[0] == theta.dims[0] && y.dims.back() == rank,
          "theta must be [N,r,r+1] and the result [N,out...,r]");
  bool align = node.intAttr("align_corners", 0) != 0;
  std::vector<int64_t> dims(y.dims.begin() + 1, y.dims.end() - 1);
  int64_t batch = y.dims[0];
  return forFloats(y.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      T *dst = r(out);
      for (int64_t b = 0; b < batch; ++b) {
        const T *m = r(in) + b * rank * (rank + 1);
        forEachIndex(dims.data(), rank, [&](const int64_t *index) {
          double position[3];
          for (int d = 0; d < rank; ++d) {
            double i = double(index[rank - 1 - d]),
                   n = double(dims[rank - 1 - d]);
            position[d] =
                align ? (n > 1 ? 2 * i / (n - 1) - 1 : 0) : (2 * i + 1) / n - 1;
          }
          for (int row = 0; row < rank; ++row) {
            double sum = m[row * (rank + 1) + rank];
            for (int d = 0; d < rank; ++d)
              sum += m[row * (rank + 1) + d] * position[d];
            *dst++ = static_cast<T>(sum);
          }
        });
      }
    };
  });
}

/// Corners and weights of a bilinear sample that RoiAlign takes; false outside.
bool bilinear(double y, double x, int64_t h, int64_t w, int64_t *at,
              double *weight) {
  if (!(y >= -1 && y <= double(h) && x >= -1 && x <= double(w)))
    return false;
  y = std::max(y, 0.0);
  x = std::max(x, 0.0);
  int64_t y0 = std::min(int64_t(y), h - 1), x0 = std::min(int64_t(x), w - 1);
  int64_t y1 = std::min(y0 + 1, h - 1), x1 = std::min(x0 + 1, w - 1);
  double fy = y0 == h - 1 ? 0 : y - double(y0),
         fx = x0 == w - 1 ? 0 : x - double(x0);
  at[0] = y0 * w + x0;
  at[1] = y0 * w + x1;
  at[2] = y1 * w + x0;
  at[3] = y1 * w + x1;
  weight[0] = (1 - fy) * (1 - fx);
  weight[1] = (1 - fy) * fx;
  weight[2] = fy * (1 - fx);
  weight[3] = fy * fx;
  return true;
}

Body buildRoiAlign(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &rois = node.input(1),
                   &y = node.output(0);
  require(x.rank() == 4 && rois.rank() == 2 && rois.dims[1] == 4 &&
              y.rank() == 4 && y.dims[0] == rois.dims[0] &&
              y.dims[1] == x.dims[1] && node.input(2).count == rois.dims[0],
          "operands must be [N,C,H,W], [R,4], [R] and [R,C,ph,pw]");
  std::string mode = node.strAttr("mode", "avg");
  require(mode == "avg" || mode == "max", "mode must be avg or max");
  bool max = mode == "max";
  // Before opset 16 there was no half-pixel shift.
  bool half = node.strAttr("coordinate_transformation_mode",
                           node.opset < 16 ? "output_half_pixel"
                                           : "half_pixel") == "half_pixel";
  int64_t sampling = node.intAttr("sampling_ratio", 0);
  require(sampling >= 0 && sampling < 4096, "sampling_ratio is out of range");
  double scale = node.floatAttr("spatial_scale", 1);
  int64_t batch = x.dims[0], channels = x.dims[1], h = x.dims[2], w = x.dims[3],
          count = rois.dims[0], ph = y.dims[2], pw = y.dims[3];
  require(h > 0 && w > 0, "the image is empty");
  In<int64_t> images = plan.read<int64_t>(2);
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), roiIn = plan.read<T>(1);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t k = 0; k < count; ++k) {
        int64_t image = r(images)[k];
        require(image >= 0 && image < batch, "a batch index is out of range");
        const T *roi = r(roiIn) + k * 4;
        double shift = half ? 0.5 : 0;
        double x1 = roi[0] * scale - shift, y1 = roi[1] * scale - shift,
               width = roi[2] * scale - shift - x1,
               height = roi[3] * scale - shift - y1;
        require(std::fabs(width) < 1e6 && std::fabs(height) < 1e6,
                "a region is too large");
        if (!half) {
          width = std::max(width, 1.0);
          height = std::max(height, 1.0);
        }
        double binH = height / double(ph), binW = width / double(pw);
        int64_t gridH = sampling ? sampling : int64_t(std::ceil(binH)),
                gridW = sampling ? sampling : int64_t(std::ceil(binW));
        for (int64_t c = 0; c < channels; ++c) {
          const T *src = r(in) + (image * channels + c) * h * w;
          for (int64_t i = 0; i < ph; ++i)
            for (int64_t j = 0; j < pw; ++j) {
              double sum = 0;
              bool any = false;
              for (int64_t gy = 0; gy < gridH; ++gy)
                for (int64_t gx = 0; gx < gridW; ++gx) {
                  double py =
                      y1 +
                      (double(i) + (double(gy) + 0.5) / double(gridH)) * binH;
                  double px =
                      x1 +
                      (double(j) + (double(gx) + 0.5) / double(gridW)) * binW;
                  int64_t at[4];
                  double weight[4], value = 0;
                  if (bilinear(py, px, h, w, at, weight)) {
                    // The maximum is defined over the weighted corners.
                    value = weight[0] * src[at[0]];
                    for (int q = 1; q < 4; ++q) {
                      double corner = weight[q] * src[at[q]];
                      value = max ? std::max(value, corner) : value + corner;
                    }
                  }
                  if (!max)
                    sum += value;
                  else if (!any || value > sum)
                    sum = value;
                  any = true;
                }
              if (!max)
                sum /= double(std::max<int64_t>(gridH * gridW, 1));
              r(out)[((k * channels + c) * ph + i) * pw + j] =
                  static_cast<T>(sum);
            }
        }
      }
    };
  });
}

} // namespace

void onnx::addImage(OpTable &ops) {
  ops["gridsample"] = buildGridSample;
  ops["affinegrid"] = buildAffineGrid;
  ops["roialign"] = buildRoiAlign;
}

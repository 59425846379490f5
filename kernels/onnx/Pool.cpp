//===- Pool.cpp - Pooling
//---------------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Max, average and Lp pools of any spatial rank, their global forms, and the
// inverse and region-of-interest forms of the maximum.
//
//===----------------------------------------------------------------------===//

#include "Window.h"

#include <cmath>
#include <limits>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// Calls f(position in the plane) for every tap of the window at `o` that lies
/// inside; returns how many taps lie in the padded input.
template <class F> int64_t visitWindow(const Window &w, const int64_t *o, F f) {
  int64_t padded = 1, count[kMaxTensorRank], first[kMaxTensorRank];
  for (int d = 0; d < w.rank; ++d) {
    int64_t start = o[d] * w.stride[d] - w.padBegin[d];
    // The first tap at or behind `limit`.
    auto tapAt = [&](int64_t limit) {
      int64_t distance = limit - start;
      int64_t tap =
          distance <= 0 ? 0 : (distance + w.dilation[d] - 1) / w.dilation[d];
      return std::min(tap, w.kernel[d]);
    };
    int64_t lo = tapAt(0), hi = tapAt(w.in[d]);
    count[d] = hi - lo;
    first[d] = start + lo * w.dilation[d];
    padded *= tapAt(w.in[d] + w.padEnd[d]);
  }
  forEachIndex(count, w.rank, [&](const int64_t *tap) {
    int64_t at = 0;
    for (int d = 0; d < w.rank; ++d)
      at = at * w.in[d] + first[d] + tap[d] * w.dilation[d];
    f(at);
  });
  return padded;
}

void checkPlanes(const TensorInfo &x, const TensorInfo &y) {
  require(x.rank() >= 3 && x.rank() == y.rank() && x.dims[0] == y.dims[0] &&
              x.dims[1] == y.dims[1],
          "operands must be [N, C, spatial...]");
}

Body buildMaxPool(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  checkPlanes(x, y);
  Window w(node, x, y, {});
  require(!node.hasOut(1) || node.out[1].count == y.count,
          "indices have another size");
  bool columnMajor = node.intAttr("storage_order", 0) != 0;
  int64_t planes = x.dims[0] * x.dims[1];
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    Out<int64_t> indices = plan.writeIf<int64_t>(1);
    return [=](const Run &r) {
      T lowest = std::is_floating_point_v<T>
                     ? -std::numeric_limits<T>::infinity()
                     : std::numeric_limits<T>::lowest();
      int64_t to = 0;
      for (int64_t p = 0; p < planes; ++p) {
        const T *src = r(in) + p * w.inSize;
        forEachIndex(w.out.data(), w.rank, [&](const int64_t *o) {
          int64_t best = -1;
          visitWindow(w, o, [&](int64_t at) {
            if (best < 0 || src[at] > src[best])
              best = at;
          });
          r(out)[to] = best < 0 ? lowest : src[best];
          if (indices) {
            int64_t index = std::max<int64_t>(best, 0);
            if (columnMajor && best >= 0) {
              int64_t rest = index, turned = 0, scale = w.inSize;
              for (int d = w.rank - 1; d >= 0; --d) {
                scale /= w.in[d];
                turned += rest % w.in[d] * scale;
                rest /= w.in[d];
              }
              index = turned;
            }
            r(indices)[to] = p * w.inSize + index;
          }
          ++to;
        });
      }
    };
  });
}

/// AveragePool and LpPool.
Body buildSumPool(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  checkPlanes(x, y);
  Window w(node, x, y, {});
  bool lp = node.name == "lppool";
  bool includePad = node.intAttr("count_include_pad", 0) != 0;
  double power = node.floatAttr("p", 2);
  int64_t planes = x.dims[0] * x.dims[1];
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      T *dst = r(out);
      for (int64_t p = 0; p < planes; ++p) {
        const T *src = r(in) + p * w.inSize;
        forEachIndex(w.out.data(), w.rank, [&](const int64_t *o) {
          double sum = 0;
          int64_t count = 0;
          int64_t padded = visitWindow(w, o, [&](int64_t at) {
            double v = src[at];
            sum += lp ? std::pow(std::fabs(v), power) : v;
            ++count;
          });
          if (lp)
            sum = std::pow(sum, 1 / power);
          else
            sum /= double(includePad ? padded : count);
          *dst++ = static_cast<T>(sum);
        });
      }
    };
  });
}

Body buildGlobalPool(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  checkPlanes(x, y);
  int64_t planes = x.dims[0] * x.dims[1], size = product(x.dims, 2, x.rank());
  require(y.count == planes, "the result has another size");
  require(size > 0, "the spatial dimensions are empty");
  enum {
    Average,
    Max,
    Lp
  } kind = node.name == "globalaveragepool" ? Average
           : node.name == "globalmaxpool"   ? Max
                                            : Lp;
  double power = node.floatAttr("p", 2);
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      for (int64_t p = 0; p < planes; ++p) {
        const T *src = r(in) + p * size;
        double value = kind == Max ? double(src[0]) : 0.0;
        for (int64_t i = 0; i < size; ++i) {
          double v = src[i];
          if (kind == Max)
            value = v > value || v != v ? v : value;
          else
            value += kind == Lp ? std::pow(std::fabs(v), power) : v;
        }
        if (kind == Average)
          value /= double(size);
        else if (kind == Lp)
          value = std::pow(value, 1 / power);
        r(out)[p] = static_cast<T>(value);
      }
    };
  });
}

/// MaxUnpool: the indices count in the shape that the pool had as input, which
/// `output_shape` may exceed.
Body buildMaxUnpool(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  checkPlanes(x, y);
  require(node.input(1).count == x.count, "indices have another size");
  int rank = x.rank() - 2;
  std::vector<int64_t> kernel = node.intsAttr("kernel_shape"),
                       strides = node.intsAttr("strides"),
                       pads = node.intsAttr("pads");
  strides.resize(rank, 1);
  pads.resize(2 * rank, 0);
  require(int(kernel.size()) == rank, "kernel_shape has a wrong length");
  std::vector<int64_t> virtualDims = {x.dims[0], x.dims[1]};
  for (int d = 0; d < rank; ++d) {
    constexpr int64_t kFar = int64_t(1) << 20;
    auto small = [](int64_t v) { return v > -kFar && v < kFar; };
    require(small(strides[d]) && small(pads[d]) && small(pads[d + rank]) &&
                small(kernel[d]) && x.dims[d + 2] < (int64_t(1) << 40),
            "a window parameter is out of range");
    int64_t size =
        (x.dims[d + 2] - 1) * strides[d] - pads[d] - pads[d + rank] + kernel[d];
    require(size > 0 && size < (int64_t(1) << 40), "the window is too large");
    virtualDims.push_back(size);
  }
  std::vector<int64_t> dims = y.dims, dense = denseStrides(y.dims);
  int64_t count = x.count, outCount = y.count;
  In<int64_t> indices = plan.read<int64_t>(1);
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      std::fill_n(r(out), outCount, T(0));
      for (int64_t i = 0; i < count; ++i) {
        int64_t rest = r(indices)[i], to = 0;
        require(rest >= 0, "an index is negative");
        for (int d = int(dims.size()) - 1; d >= 0; --d) {
          int64_t at = rest % virtualDims[d];
          rest /= virtualDims[d];
          require(at < dims[d], "an index is out of range");
          to += at * dense[d];
        }
        require(rest == 0, "an index is out of range");
        r(out)[to] = r(in)[i];
      }
    };
  });
}

/// MaxRoiPool: rois are [batch index, x1, y1, x2, y2].
Body buildMaxRoiPool(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &rois = node.input(1),
                   &y = node.output(0);
  require(x.rank() == 4 && rois.rank() == 2 && rois.dims[1] == 5 &&
              y.rank() == 4 && y.dims[0] == rois.dims[0] &&
              y.dims[1] == x.dims[1],
          "operands must be [N,C,H,W], [R,5] and [R,C,ph,pw]");
  double scale = node.floatAttr("spatial_scale", 1);
  int64_t batch = x.dims[0], channels = x.dims[1], h = x.dims[2], w = x.dims[3],
          count = rois.dims[0], ph = y.dims[2], pw = y.dims[3];
  return forFloats(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0), roiIn = plan.read<T>(1);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      T *dst = r(out);
      for (int64_t k = 0; k < count; ++k) {
        const T *roi = r(roiIn) + k * 5;
        require(roi[0] >= 0 && double(roi[0]) < double(batch),
                "a batch index is out of range");
        auto coordinate = [&](int i) {
          double v = std::round(double(roi[i]) * scale);
          require(std::fabs(v) < 1e9, "a region is out of range");
          return int64_t(v);
        };
        int64_t x1 = coordinate(1), y1 = coordinate(2), x2 = coordinate(3),
                y2 = coordinate(4);
        double binH = double(std::max<int64_t>(y2 - y1 + 1, 1)) / double(ph);
        double binW = double(std::max<int64_t>(x2 - x1 + 1, 1)) / double(pw);
        for (int64_t c = 0; c < channels; ++c) {
          const T *plane = r(in) + (int64_t(roi[0]) * channels + c) * h * w;
          for (int64_t i = 0; i < ph; ++i)
            for (int64_t j = 0; j < pw; ++j) {
              auto bound = [](double v, int64_t origin, int64_t size) {
                return std::clamp<int64_t>(int64_t(v) + origin, 0, size);
              };
              int64_t top = bound(std::floor(double(i) * binH), y1, h),
                      bottom = bound(std::ceil(double(i + 1) * binH), y1, h),
                      left = bound(std::floor(double(j) * binW), x1, w),
                      right = bound(std::ceil(double(j + 1) * binW), x1, w);
              bool any = false;
              T best = 0;
              for (int64_t a = top; a < bottom; ++a)
                for (int64_t b = left; b < right; ++b) {
                  T v = plane[a * w + b];
                  if (!any || v > best)
                    best = v;
                  any = true;
                }
              *dst++ = best;
            }
        }
      }
    };
  });
}

} // namespace

void onnx::addPool(OpTable &ops) {
  ops["maxpool"] = buildMaxPool;
  ops["averagepool"] = buildSumPool;
  ops["lppool"] = buildSumPool;
  ops["globalaveragepool"] = buildGlobalPool;
  ops["globalmaxpool"] = buildGlobalPool;
  ops["globallppool"] = buildGlobalPool;
  ops["maxunpool"] = buildMaxUnpool;
  ops["maxroipool"] = buildMaxRoiPool;
}

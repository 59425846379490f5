//===- Resize.cpp - Resize and Upsample
//-------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Interpolation is separable: one dimension after another, each result element
// a weighted sum of a few neighbours along that dimension. Nearest-neighbour
// moves bytes.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

enum class Mode { Nearest, Linear, Cubic };
enum class Coordinate {
  HalfPixel,
  PytorchHalfPixel,
  AlignCorners,
  Asymmetric,
  TfCropAndResize,
  HalfPixelSymmetric,
  TfHalfPixelForNearest
};
enum class Nearest { PreferFloor, PreferCeil, Floor, Ceil };
enum class Policy { Stretch, NotLarger, NotSmaller };

/// Looks a word up in a list of names; throws when it is none of them.
template <class E>
E choose(const std::string &word,
         std::initializer_list<std::pair<const char *, E>> names) {
  for (const auto &[name, value] : names)
    if (word == name)
      return value;
  throw UnsupportedError("'" + word + "'");
}

struct Settings {
  Mode mode;
  Coordinate coordinate;
  Nearest nearest;
  Policy policy;
  double cubicA, extrapolation;
  bool excludeOutside, antialias;
};

/// One dimension: what is needed to find the source of a result position.
struct Axis {
  int64_t in, out;
  double scale = 1, roiStart = 0, roiEnd = 1;

  double source(const Settings &s, int64_t i) const {
    double x = double(i), length = double(in), resized = scale * length;
    switch (s.coordinate) {
    case Coordinate::HalfPixel:
      return (x + 0.5) / scale - 0.5;
    case Coordinate::PytorchHalfPixel:
      return resized > 1 ? (x + 0.5) / scale - 0.5 : 0;
    case Coordinate::AlignCorners:
      return resized == 1 ? 0 : x * (length - 1) / (resized - 1);
    case Coordinate::Asymmetric:
      return x / scale;
    case Coordinate::TfHalfPixelForNearest:
      return (x + 0.5) / scale;
    case Coordinate::TfCropAndResize:
      return resized > 1
                 ? roiStart * (length - 1) +
                       x * (roiEnd - roiStart) * (length - 1) / (resized - 1)
                 : 0.5 * (roiStart + roiEnd) * (length - 1);
    case Coordinate::HalfPixelSymmetric: {
      double offset = length / 2 * (1 - double(out) / resized);
      return offset + (x + 0.5) / scale - 0.5;
    }
    }
    return 0;
  }
};

double cubicWeight(double distance, double a) {
  double d = std::fabs(distance);
  if (d <= 1)
    return ((a + 2) * d - (a + 3)) * d * d + 1;
  if (d < 2)
    return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
  return 0;
}

/// Reads scales or sizes (input values) into `axes`.
void readScales(const int64_t *which, int64_t count, const float *scales,
                const int64_t *sizes, const float *roi, Policy policy,
                std::array<Axis, kMaxTensorRank> &axes, int rank) {
  double common = 0;
  if (sizes && policy != Policy::Stretch)
    for (int64_t i = 0; i < count; ++i) {
      int d = normalizeAxis(which[i], rank);
      double ratio = double(sizes[i]) / double(axes[d].in);
      if (i == 0)
        common = ratio;
      else
        common = policy == Policy::NotLarger ? std::min(common, ratio)
                                             : std::max(common, ratio);
    }
  for (int64_t i = 0; i < count; ++i) {
    int d = normalizeAxis(which[i], rank);
    if (scales)
      axes[d].scale = scales[i];
    else if (common > 0)
      axes[d].scale = common;
    else
      axes[d].scale = double(sizes[i]) / double(axes[d].in);
    if (!(axes[d].scale > 0))
      throw InvalidError("a scale is not positive");
    if (roi) {
      axes[d].roiStart = roi[i];
      axes[d].roiEnd = roi[count + i];
    }
  }
}

/// Distance of the farthest tap from the position.
double radiusOf(const Settings &s, double scale) {
  double radius = s.mode == Mode::Cubic ? 2 : 1;
  return s.antialias && scale < 1 ? radius / scale : radius;
}

/// dst[o][i][n] = sum over taps of weight * src[o][tap][n] along one axis.
void resizeAxis(const Settings &s, const Axis &axis, int64_t outer,
                int64_t inner, const double *src, double *dst) {
  double shrink = s.antialias && axis.scale < 1 ? axis.scale : 1;
  double radius = radiusOf(s, axis.scale);
  for (int64_t i = 0; i < axis.out; ++i) {
    double x = axis.source(s, i);
    int64_t first = indexFrom(std::ceil(x - radius)),
            last = indexFrom(std::floor(x + radius));
    auto weightOf = [&](int64_t tap) {
      if (s.excludeOutside && (tap < 0 || tap >= axis.in))
        return 0.0;
      double d = (double(tap) - x) * shrink;
      return s.mode == Mode::Cubic ? cubicWeight(d, s.cubicA)
                                   : std::max(0.0, 1 - std::fabs(d));
    };
    double total = 0;
    for (int64_t tap = first; tap <= last; ++tap)
      total += weightOf(tap);
    bool normalize = s.excludeOutside || shrink < 1;
    for (int64_t o = 0; o < outer; ++o) {
      double *row = dst + (o * axis.out + i) * inner;
      std::fill_n(row, inner, 0.0);
      for (int64_t tap = first; tap <= last; ++tap) {
        double weight = weightOf(tap);
        if (weight == 0)
          continue;
        if (normalize)
          weight /= total;
        const double *from =
            src +
            (o * axis.in + std::clamp<int64_t>(tap, 0, axis.in - 1)) * inner;
        for (int64_t n = 0; n < inner; ++n)
          row[n] += weight * from[n];
      }
    }
  }
}

int64_t nearestIndex(Nearest mode, double x) {
  switch (mode) {
  case Nearest::PreferFloor:
    return indexFrom(std::ceil(x - 0.5));
  case Nearest::PreferCeil:
    return indexFrom(std::floor(x + 0.5));
  case Nearest::Floor:
    return indexFrom(std::floor(x));
  case Nearest::Ceil:
    return indexFrom(std::ceil(x));
  }
  return 0;
}

/// True when a cropped position lies outside the input.
bool outside(const Settings &s, const Axis &axis, int64_t i) {
  if (s.coordinate != Coordinate::TfCropAndResize)
    return false;
  double x = axis.source(s, i);
  return x < 0 || x > double(axis.in - 1);
}

Settings settingsOf(const NodeInfo &node) {
  Settings s{};
  bool old = node.name == "upsample" || node.opset < 11;
  s.mode =
      choose<Mode>(node.strAttr("mode", "nearest"), {{"nearest", Mode::Nearest},
                                                     {"linear", Mode::Linear},
                                                     {"bilinear", Mode::Linear},
                                                     {"cubic", Mode::Cubic}});
  s.coordinate = choose<Coordinate>(
      node.strAttr("coordinate_transformation_mode",
                   old ? "asymmetric" : "half_pixel"),
      {{"half_pixel", Coordinate::HalfPixel},
       {"pytorch_half_pixel", Coordinate::PytorchHalfPixel},
       {"align_corners", Coordinate::AlignCorners},
       {"asymmetric", Coordinate::Asymmetric},
       {"tf_crop_and_resize", Coordinate::TfCropAndResize},
       {"half_pixel_symmetric", Coordinate::HalfPixelSymmetric},
       {"tf_half_pixel_for_nn", Coordinate::TfHalfPixelForNearest}});
  s.nearest = choose<Nearest>(
      node.strAttr("nearest_mode", old ? "floor" : "round_prefer_floor"),
      {{"round_prefer_floor", Nearest::PreferFloor},
       {"round_prefer_ceil", Nearest::PreferCeil},
       {"floor", Nearest::Floor},
       {"ceil", Nearest::Ceil}});
  s.policy = choose<Policy>(node.strAttr("keep_aspect_ratio_policy", "stretch"),
                            {{"stretch", Policy::Stretch},
                             {"not_larger", Policy::NotLarger},
                             {"not_smaller", Policy::NotSmaller}});
  s.cubicA = node.floatAttr("cubic_coeff_a", -0.75);
  s.extrapolation = node.floatAttr("extrapolation_value", 0);
  s.excludeOutside = node.intAttr("exclude_outside", 0) != 0;
  s.antialias = node.intAttr("antialias", 0) != 0;
  return s;
}

Body buildResize(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.rank() == y.rank() && x.dtype == y.dtype,
          "input and result differ in rank or dtype");
  int rank = x.rank();
  Settings settings = settingsOf(node);
  bool twoInputs = node.name == "upsample" || node.opset < 11;
  size_t scalesAt = twoInputs ? 1 : 2;
  bool scalesAttr = node.has("scales");
  std::vector<double> attr = node.floatsAttr("scales");
  std::vector<float> attrScales(attr.begin(), attr.end());
  bool hasSizes = !twoInputs && node.hasIn(3) && node.in[3].count > 0;
  bool hasScales =
      !hasSizes && node.hasIn(scalesAt) && node.in[scalesAt].count > 0;
  require(hasSizes || hasScales || scalesAttr, "scales or sizes are needed");
  std::vector<int64_t> which = node.intsAttr("axes");
  if (!node.has("axes"))
    for (int d = 0; d < rank; ++d)
      which.push_back(d);
  int64_t count = int64_t(which.size());
  require((hasSizes    ? node.in[3].count
           : hasScales ? node.in[scalesAt].count
                       : int64_t(attrScales.size())) == count,
          "scales, sizes and axes differ in length");
  In<float> scalesIn = hasScales ? plan.readIf<float>(scalesAt) : In<float>{};
  In<int64_t> sizesIn = hasSizes ? plan.readIf<int64_t>(3) : In<int64_t>{};
  bool crop = settings.coordinate == Coordinate::TfCropAndResize;
  In<float> roiIn = crop ? plan.read<float>(1) : In<float>{};
  require(!crop || node.in[1].count == 2 * count, "roi has another size");
  std::vector<int64_t> xd = x.dims, yd = y.dims;
  DType dtype = x.dtype;
  int64_t entries = 0, outCount = y.count, inCount = x.count;
  for (int64_t d : yd)
    entries += d;
  require(inCount > 0 || outCount == 0, "an empty input cannot be resized");
  // The largest intermediate, when dimensions are resized one after another.
  int64_t largest = std::max(inCount, outCount);
  for (int d = 0; d < rank; ++d)
    largest = std::max(largest, product(yd, 0, d) * product(xd, d, rank));
  bool nearest = settings.mode == Mode::Nearest;
  Scratch<int64_t> tables = plan.scratch<int64_t>(nearest ? entries : 0);
  Scratch<double> first = plan.scratch<double>(nearest ? 0 : largest),
                  second = plan.scratch<double>(nearest ? 0 : largest);
  return [=](const Run &r) {
    if (!outCount)
      return;
    std::array<Axis, kMaxTensorRank> axes;
    for (int d = 0; d < rank; ++d) {
      axes[d].in = xd[d];
      axes[d].out = yd[d];
    }
    const float *scales = hasScales    ? r(scalesIn)
                          : scalesAttr ? attrScales.data()
                                       : nullptr;
    readScales(which.data(), count, hasSizes ? nullptr : scales, r(sizesIn),
               r(roiIn), settings.policy, axes, rank);
    if (nearest) {
      const int64_t *rows[kMaxTensorRank];
      int64_t *table = r(tables);
      int64_t stride = inCount;
      for (int d = 0; d < rank; ++d) {
        stride /= xd[d];
        rows[d] = table;
        for (int64_t i = 0; i < yd[d]; ++i)
          *table++ = outside(settings, axes[d], i)
                         ? -1
                         : std::clamp<int64_t>(
                               nearestIndex(settings.nearest,
                                            axes[d].source(settings, i)),
                               0, xd[d] - 1) *
                               stride;
      }
      alignas(8) char fill[8] = {};
      storeOne(settings.extrapolation, dtype, fill, 0);
      gatherSeparable(rank, yd.data(), rows, dtypeSize(dtype), r.in(0),
                      r.out(0), fill);
      return;
    }
    double *src = r(first), *dst = r(second);
    loadAs(dtype, r.in(0), inCount, src);
    for (int d = 0; d < rank; ++d) {
      if (axes[d].scale == 1 && xd[d] == yd[d] && !crop)
        continue;
      // Bounds the work per element, which a tiny scale would blow up.
      require(radiusOf(settings, axes[d].scale) <= 4 * double(xd[d] + 8),
              "a scale is too small for antialiasing");
      resizeAxis(settings, axes[d], product(yd, 0, d), product(xd, d + 1, rank),
                 src, dst);
      std::swap(src, dst);
    }
    if (crop) {
      int64_t at = 0;
      forEachIndex(yd.data(), rank, [&](const int64_t *index) {
        bool out = false;
        for (int d = 0; d < rank; ++d)
          out |= outside(settings, axes[d], index[d]);
        if (out)
          src[at] = settings.extrapolation;
        ++at;
      });
    }
    storeAs(src, outCount, dtype, r.out(0));
  };
}

} // namespace

void onnx::addResize(OpTable &ops) {
  ops["resize"] = buildResize;
  ops["upsample"] = buildResize;
}

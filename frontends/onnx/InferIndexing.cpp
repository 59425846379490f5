//===- InferIndexing.cpp - Shapes of gathers, scatters and searches
//---------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operators that address elements by index, and those whose result's size is a
// property of the data (NonZero, Compress, Unique, NonMaxSuppression), which
// are only possible on constants.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

namespace concord::onnx::detail {

namespace {

void indexDtype(const NodeView &v, size_t i) {
  const DType dtype = v.inputs[i].dtype;
  if (dtype != DType::I32 && dtype != DType::I64)
    fail("indices are " + text(v.inputs[i]) + " and should be I32 or I64");
}

void gather(NodeView &v) {
  const TensorType &data = in(v, 0, "data");
  const TensorType &indices = in(v, 1, "indices");
  indexDtype(v, 1);
  const int64_t axis = axisOf(v.node->intAttr("axis", 0), data.shape.size());
  Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + axis + 1, data.shape.end());
  out(v, 0, data.dtype, std::move(shape));
}

void gatherElements(NodeView &v) {
  const TensorType &data = in(v, 0, "data");
  const TensorType &indices = in(v, 1, "indices");
  indexDtype(v, 1);
  axisOf(v.node->intAttr("axis", 0), data.shape.size());
  if (data.shape.size() != indices.shape.size())
    fail("data " + text(data) + " and indices " + text(indices) +
         " have different ranks");
  out(v, 0, data.dtype, indices.shape);
}

void gatherND(NodeView &v) {
  const TensorType &data = in(v, 0, "data");
  const TensorType &indices = in(v, 1, "indices");
  const int64_t batch = v.node->intAttr("batch_dims", 0);
  const auto rank = static_cast<int64_t>(data.shape.size());
  if (indices.shape.empty() || batch < 0 || batch >= rank ||
      batch >= static_cast<int64_t>(indices.shape.size()) ||
      indices.shape.back() > rank - batch)
    fail("indices " + text(indices) + " do not fit data " + text(data));
  Shape shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.insert(shape.end(), data.shape.begin() + batch + indices.shape.back(),
               data.shape.end());
  out(v, 0, data.dtype, std::move(shape));
}

void scatterElements(NodeView &v) {
  const TensorType &data = in(v, 0, "data");
  const TensorType &indices = in(v, 1, "indices");
  const TensorType &updates = in(v, 2, "updates");
  indexDtype(v, 1);
  sameDtype(v, 0, 2);
  axisOf(v.node->intAttr("axis", 0), data.shape.size());
  if (indices.shape != updates.shape ||
      indices.shape.size() != data.shape.size())
    fail("data " + text(data) + ", indices " + text(indices) + " and updates " +
         text(updates) + " do not fit");
  out(v, 0, data.dtype, data.shape);
}

void scatterND(NodeView &v) {
  const TensorType &data = in(v, 0, "data");
  const TensorType &indices = in(v, 1, "indices");
  const TensorType &updates = in(v, 2, "updates");
  sameDtype(v, 0, 2);
  if (indices.shape.empty() ||
      indices.shape.back() > static_cast<int64_t>(data.shape.size()))
    fail("indices " + text(indices) + " do not fit data " + text(data));
  Shape expected(indices.shape.begin(), indices.shape.end() - 1);
  expected.insert(expected.end(), data.shape.begin() + indices.shape.back(),
                  data.shape.end());
  if (updates.shape != expected)
    fail("updates " + text(updates) + " should have shape " + text(expected));
  out(v, 0, data.dtype, data.shape);
}

void tensorScatter(NodeView &v) {
  const TensorType &past = in(v, 0, "past_cache");
  const TensorType &update = in(v, 1, "update");
  sameDtype(v, 0, 1);
  if (past.shape.size() != update.shape.size())
    fail("cache " + text(past) + " and update " + text(update) +
         " have different ranks");
  axisOf(v.node->intAttr("axis", -2), past.shape.size());
  out(v, 0, past.dtype, past.shape);
}

void oneHot(NodeView &v) {
  const TensorType &indices = in(v, 0, "indices");
  const Tensor &depthData = constant(v, 1, "depth");
  if (depthData.type.numElements() != 1)
    fail("depth is " + text(depthData.type) + " and should be one number");
  const double depth = depthData.floatAt(0);
  const TensorType &values = in(v, 2, "values");
  if (values.shape != Shape{2})
    fail("values are " + text(values) + " and should be two: off and on");
  if (!(depth >= 0 && depth < 9.0e15))
    fail("depth is " + std::to_string(depth));
  const int64_t axis =
      axisOf(v.node->intAttr("axis", -1), indices.shape.size() + 1);
  Shape shape = indices.shape;
  shape.insert(shape.begin() + axis, static_cast<int64_t>(depth));
  out(v, 0, values.dtype, std::move(shape));
}

void topK(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  const int64_t k =
      opset(v) < 10 ? v.node->intAttr("k", -1) : constantInt(v, 1, "K");
  const int64_t axis = axisOf(v.node->intAttr("axis", -1), x.shape.size());
  if (k < 0 || k > x.shape[axis])
    fail("k is " + std::to_string(k) + " and dimension " +
         std::to_string(axis) + " of " + text(x) + " is " +
         std::to_string(x.shape[axis]));
  Shape shape = x.shape;
  shape[axis] = k;
  out(v, 0, x.dtype, shape);
  out(v, 1, DType::I64, shape);
}

bool isNonZero(const Tensor &x, size_t i) {
  return isFloat(x.type.dtype) ? x.floatAt(i) != 0 : x.intAt(i) != 0;
}

void nonZero(NodeView &v) {
  const Tensor &x = constant(v, 0, "X");
  const auto total = static_cast<size_t>(x.type.numElements());
  int64_t count = 0;
  for (size_t i = 0; i < total; ++i)
    count += isNonZero(x, i);
  const auto rank = static_cast<int64_t>(x.type.shape.size());
  out(v, 0, DType::I64, {rank, count});
}

void compress(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const Tensor &condition = constant(v, 1, "condition");
  if (condition.type.dtype != DType::BOOL || condition.type.shape.size() != 1)
    fail("the condition is " + text(condition.type) +
         " and should be a list of bools");
  Shape shape;
  int64_t length = x.numElements();
  int64_t axis = 0;
  if (v.node->attribute("axis")) {
    axis = axisOf(v.node->intAttr("axis", 0), x.shape.size());
    length = x.shape[axis];
    shape = x.shape;
  } else {
    shape = {0};
  }
  int64_t count = 0;
  const int64_t n = std::min(length, condition.type.shape[0]);
  for (int64_t i = 0; i < n; ++i)
    count += condition.intAt(i) != 0;
  shape[axis] = count;
  out(v, 0, x.dtype, std::move(shape));
}

void unique(NodeView &v) {
  const Tensor &x = constant(v, 0, "X");
  Shape shape = {x.type.numElements()};
  int64_t axis = 0;
  if (v.node->attribute("axis")) {
    axis = axisOf(v.node->intAttr("axis", 0), x.type.shape.size());
    shape = x.type.shape;
  }
  // Count slices that differ, an element being its value (0.0 equals -0.0).
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
    if (i != axis)
      (i < axis ? outer : inner) *= shape[i];
  const int64_t length = shape[axis];
  std::set<std::string> seen;
  for (int64_t s = 0; s < length; ++s) {
    std::string key;
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const auto at = static_cast<size_t>((o * length + s) * inner + i);
        const size_t size = dtypeSize(x.type.dtype);
        if (isFloat(x.type.dtype) && x.floatAt(at) == 0)
          key.append(size, '\0');
        else
          key.append(reinterpret_cast<const char *>(x.bytes.data()) + at * size,
                     size);
      }
    seen.insert(std::move(key));
  }
  const auto count = static_cast<int64_t>(seen.size());
  shape[axis] = count;
  out(v, 0, x.type.dtype, std::move(shape));
  out(v, 1, DType::I64, {count});
  out(v, 2, DType::I64, {length});
  out(v, 3, DType::I64, {count});
}

/// Greedy selection per batch and class in order of falling score, as the
/// operator's specification has it.
void nonMaxSuppression(NodeView &v) {
  const Tensor &boxes = constant(v, 0, "boxes");
  const Tensor &scores = constant(v, 1, "scores");
  const Shape &b = boxes.type.shape, &s = scores.type.shape;
  if (b.size() != 3 || s.size() != 3 || b[2] != 4 || b[0] != s[0] ||
      b[1] != s[2])
    fail("boxes " + text(boxes.type) + " and scores " + text(scores.type) +
         " do not fit");
  const int64_t perClass =
      v.hasInput(2) ? constantInt(v, 2, "max_output_boxes") : 0;
  const double iouLimit =
      v.hasInput(3) ? constant(v, 3, "iou_threshold").floatAt(0) : 0;
  const bool hasScoreLimit = v.hasInput(4);
  const double scoreLimit =
      hasScoreLimit ? constant(v, 4, "score_threshold").floatAt(0) : 0;
  const bool center = v.node->intAttr("center_point_box", 0) != 0;
  struct Box {
    double y0, x0, y1, x1;
  };
  auto box = [&](int64_t batch, int64_t i) {
    double c[4];
    for (int64_t k = 0; k < 4; ++k)
      c[k] = boxes.floatAt(static_cast<size_t>((batch * b[1] + i) * 4 + k));
    if (center)
      return Box{c[1] - c[3] / 2, c[0] - c[2] / 2, c[1] + c[3] / 2,
                 c[0] + c[2] / 2};
    return Box{std::min(c[0], c[2]), std::min(c[1], c[3]), std::max(c[0], c[2]),
               std::max(c[1], c[3])};
  };
  auto area = [](const Box &x) { return (x.y1 - x.y0) * (x.x1 - x.x0); };
  int64_t count = 0;
  for (int64_t batch = 0; batch < s[0]; ++batch)
    for (int64_t cls = 0; cls < s[1]; ++cls) {
      auto score = [&](int64_t i) {
        return scores.floatAt(
            static_cast<size_t>((batch * s[1] + cls) * s[2] + i));
      };
      std::vector<int64_t> order;
      for (int64_t i = 0; i < s[2]; ++i)
        if (!hasScoreLimit || score(i) > scoreLimit)
          order.push_back(i);
      std::sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
        return score(i) != score(j) ? score(i) > score(j) : i < j;
      });
      std::vector<Box> chosen;
      for (int64_t i : order) {
        if (static_cast<int64_t>(chosen.size()) >= perClass)
          break;
        const Box x = box(batch, i);
        const bool overlaps =
            std::any_of(chosen.begin(), chosen.end(), [&](const Box &y) {
              const double h = std::min(x.y1, y.y1) - std::max(x.y0, y.y0);
              const double w = std::min(x.x1, y.x1) - std::max(x.x0, y.x0);
              if (h <= 0 || w <= 0)
                return false;
              return h * w / (area(x) + area(y) - h * w) > iouLimit;
            });
        if (!overlaps)
          chosen.push_back(x);
      }
      count += static_cast<int64_t>(chosen.size());
    }
  out(v, 0, DType::I64, {count, 3});
}

void cumulative(NodeView &v) {
  const TensorType &x = in(v, 0, "x");
  const TensorType &axis = in(v, 1, "axis");
  if (axis.numElements() != 1)
    fail("the axis is " + text(axis) + " and should be one number");
  if (v.constants[1])
    axisOf(v.constants[1]->intAt(0), x.shape.size());
  out(v, 0, x.dtype, x.shape);
}

constexpr InferEntry kTable[] = {
    {"Compress", 9, compress},
    {"CumProd", 26, cumulative},
    {"CumSum", 11, cumulative},
    {"Gather", 1, gather},
    {"GatherElements", 11, gatherElements},
    {"GatherND", 11, gatherND},
    {"NonMaxSuppression", 10, nonMaxSuppression},
    {"NonZero", 9, nonZero},
    {"OneHot", 9, oneHot},
    {"Scatter", 9, scatterElements},
    {"ScatterElements", 11, scatterElements},
    {"ScatterND", 11, scatterND},
    {"TensorScatter", 24, tensorScatter},
    {"TopK", 1, topK},
    {"Unique", 11, unique},
};

} // namespace

std::span<const InferEntry> indexingOps() { return kTable; }

} // namespace concord::onnx::detail

//===- Select.cpp - Operators that generate or select elements
//--------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Constants, ranges, OneHot, TopK, and the operators whose result size depends
// on data (NonZero, Compress, Unique, NonMaxSuppression): the description gives
// the size, and a run that finds another one fails.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

constexpr const char *kWrongCount =
    "the number of selected elements is not the result's size";

/// Element `i` of a `[dtype,v...]` or plain attribute as bytes of `dtype`.
void storeItem(const AttrValue::Item &item, DType dtype, char *dst) {
  if (item.isText)
    throw InvalidError("attribute value is no number");
  if (isFloat(dtype))
    storeOne(item.f, dtype, dst, 0);
  else
    storeOne(item.i, dtype, dst, 0);
}

Body buildConstantOfShape(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &y = node.output(0);
  std::array<char, 8> value{};
  if (const AttrValue *attr = node.rawAttr("value")) {
    require(!attr->items.empty(), "value is empty");
    storeItem(attr->items.back(), y.dtype, value.data());
  }
  size_t size = y.elementSize();
  int64_t count = y.count;
  return
      [=](const Run &r) { fillElements(size, value.data(), count, r.out(0)); };
}

Body buildConstant(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &y = node.output(0);
  const AttrValue *attr = nullptr;
  size_t first = 0;
  for (const char *key :
       {"value", "value_float", "value_floats", "value_int", "value_ints"})
    if ((attr = node.rawAttr(key))) {
      first = std::string_view(key) == "value" ? 1 : 0;
      break;
    }
  require(attr != nullptr, "a numeric value attribute is needed");
  require(int64_t(attr->items.size()) == y.count + int64_t(first),
          "the value has another size than the result");
  size_t size = y.elementSize();
  std::vector<char> bytes(size_t(y.count) * size);
  for (int64_t i = 0; i < y.count; ++i)
    storeItem(attr->items[i + first], y.dtype, bytes.data() + i * size);
  return [=](const Run &r) {
    if (!bytes.empty())
      std::memcpy(r.out(0), bytes.data(), bytes.size());
  };
}

Body buildRange(Plan &plan) {
  const NodeInfo &node = plan.node;
  for (size_t k = 0; k < 3; ++k)
    require(node.input(k).count == 1, "start, limit, delta are scalars");
  int64_t count = node.output(0).count;
  return forNumbers(node.output(0).dtype, [&]<class T>() -> Body {
    using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
    In<T> start = plan.read<T>(0), limit = plan.read<T>(1),
          delta = plan.read<T>(2);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      T s = *r(start), d = *r(delta);
      require(d != T(0), "delta is zero");
      double steps = std::ceil((double(*r(limit)) - double(s)) / double(d));
      // Off by one is forgiven: the count may have been rounded in f32.
      require(std::fabs(std::max(steps, 0.0) - double(count)) <= 1,
              kWrongCount);
      for (int64_t i = 0; i < count; ++i)
        r(out)[i] = static_cast<T>(U(s) + static_cast<U>(i) * U(d));
    };
  });
}

Body buildEyeLike(Plan &plan) {
  const TensorInfo &y = plan.node.output(0);
  require(y.rank() == 2, "a matrix is needed");
  int64_t k = plan.node.intAttr("k", 0), rows = y.dims[0], cols = y.dims[1];
  DType dtype = y.dtype;
  size_t bytes = size_t(y.bytes());
  k = std::clamp<int64_t>(k, -rows - 1, cols + 1);
  return [=](const Run &r) {
    if (bytes)
      std::memset(r.out(0), 0, bytes);
    for (int64_t i = 0; i < rows; ++i)
      if (i + k >= 0 && i + k < cols)
        storeOne(1.0f, dtype, r.out(0), i * cols + i + k);
  };
}

Body buildOneHot(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &indices = node.input(0), &y = node.output(0);
  int axis = node.axisAttr("axis", -1, y.rank());
  require(y.rank() == indices.rank() + 1, "the result has another rank");
  require(node.input(2).count == 2 && node.input(2).dtype == y.dtype,
          "values must be [off, on] of the result's dtype");
  int64_t outer = product(y.dims, 0, axis), depth = y.dims[axis],
          inner = product(y.dims, axis + 1, y.rank());
  require(indices.count == outer * inner, "the result has another shape");
  In<int64_t> in = plan.read<int64_t>(0);
  In<int64_t> depthIn = plan.read<int64_t>(1);
  require(node.in[1].count == 1, "depth must have one element");
  size_t size = y.elementSize();
  int64_t count = y.count;
  return [=](const Run &r) {
    require(*r(depthIn) == depth, "depth is not the result's size");
    fillElements(size, r.in(2), count, r.out(0));
    const int64_t *index = r(in);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        int64_t at = index[o * inner + i];
        if (at < 0)
          at += depth;
        if (at >= 0 && at < depth)
          std::memcpy(r.out(0) + ((o * depth + at) * inner + i) * int64_t(size),
                      r.in(2) + size, size);
      }
  };
}

/// TopK; equal values come in the order of their indices, NaN is the largest.
Body buildTopK(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &values = node.output(0);
  require(x.rank() >= 1 && values.rank() == x.rank(), "ranks differ");
  int axis = node.axisAttr("axis", -1, x.rank());
  bool largest = node.intAttr("largest", 1) != 0;
  int64_t outer = product(x.dims, 0, axis), n = x.dims[axis],
          inner = product(x.dims, axis + 1, x.rank()), k = values.dims[axis];
  require(k <= n && values.count == outer * k * inner,
          "k is larger than the axis");
  Scratch<int64_t> order = plan.scratch<int64_t>(n);
  bool hasIndices = node.hasOut(1);
  require(!hasIndices || node.out[1].count == values.count,
          "values and indices differ in size");
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    Out<int64_t> indices = plan.writeIf<int64_t>(1);
    return [=](const Run &r) {
      int64_t *idx = r(order);
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t i = 0; i < inner; ++i) {
          const T *v = r(in) + o * n * inner + i;
          std::iota(idx, idx + n, int64_t(0));
          std::partial_sort(idx, idx + k, idx + n, [&](int64_t a, int64_t b) {
            T x = v[a * inner], y = v[b * inner];
            bool xNan = x != x, yNan = y != y;
            if (xNan != yNan)
              return largest ? xNan : yNan;
            if (!xNan && x != y)
              return largest ? x > y : x < y;
            return a < b;
          });
          for (int64_t j = 0; j < k; ++j) {
            int64_t to = (o * k + j) * inner + i;
            r(out)[to] = v[idx[j] * inner];
            if (hasIndices)
              r(indices)[to] = idx[j];
          }
        }
    };
  });
}

Body buildNonZero(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  int rank = std::max(x.rank(), 1);
  require(y.rank() == 2 && y.dims[0] == rank, "the result must be [rank, n]");
  int64_t most = y.dims[1];
  std::vector<int64_t> dims = x.dims;
  if (dims.empty())
    dims = {1};
  Out<int64_t> out = plan.write<int64_t>(0);
  DType dtype = x.dtype;
  return [=](const Run &r) {
    int64_t found = 0, at = 0;
    int64_t *dst = r(out);
    forEachIndex(dims.data(), rank, [&](const int64_t *index) {
      bool set = isFloat(dtype) ? loadOne<double>(dtype, r.in(0), at) != 0
                                : loadOne<int64_t>(dtype, r.in(0), at) != 0;
      ++at;
      if (!set)
        return;
      require(found < most, kWrongCount);
      for (int d = 0; d < rank; ++d)
        dst[d * most + found] = index[d];
      ++found;
    });
    require(found == most, kWrongCount);
  };
}

Body buildCompress(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.dtype == y.dtype, "input and result have different dtypes");
  int64_t outer = 1, n = x.count, inner = 1;
  if (node.has("axis")) {
    int axis = node.axisAttr("axis", 0, x.rank());
    outer = product(x.dims, 0, axis);
    n = x.dims[axis];
    inner = product(x.dims, axis + 1, x.rank());
  }
  int64_t conditions = std::min(node.input(1).count, n);
  int64_t per = outer * inner, most = per ? y.count / per : 0;
  require(y.count == most * per, "the result has another size");
  In<uint8_t> condition = plan.read<uint8_t>(1);
  int64_t row = inner * int64_t(x.elementSize());
  return [=](const Run &r) {
    int64_t found = 0;
    for (int64_t i = 0; i < conditions; ++i) {
      if (!r(condition)[i])
        continue;
      require(found < most || !per, kWrongCount);
      for (int64_t o = 0; o < outer && row; ++o)
        std::memcpy(r.out(0) + (o * most + found) * row,
                    r.in(0) + (o * n + i) * row, size_t(row));
      ++found;
    }
    require(found == most || !per, kWrongCount);
  };
}

/// Unique of elements, or of slices along `axis`. Results: values, first
/// indices, inverse, counts.
Body buildUnique(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &y = node.output(0);
  bool sorted = node.intAttr("sorted", 1) != 0;
  int64_t outer = 1, n = x.count, inner = 1, most = y.count;
  if (node.has("axis")) {
    int axis = node.axisAttr("axis", 0, x.rank());
    outer = product(x.dims, 0, axis);
    n = x.dims[axis];
    inner = product(x.dims, axis + 1, x.rank());
    require(y.rank() == x.rank(), "the result has another rank");
    most = y.dims[axis];
  }
  require(y.count == outer * most * inner, "the result has another size");
  require(!node.hasOut(1) || node.out[1].count == most, kWrongCount);
  require(!node.hasOut(2) || node.out[2].count == n, kWrongCount);
  require(!node.hasOut(3) || node.out[3].count == most, kWrongCount);
  Scratch<int64_t> order = plan.scratch<int64_t>(n),
                   group = plan.scratch<int64_t>(n),
                   firsts = plan.scratch<int64_t>(n),
                   ranks = plan.scratch<int64_t>(n),
                   sizes = plan.scratch<int64_t>(n);
  return forNumbers(x.dtype, [&]<class T>() -> Body {
    In<T> in = plan.read<T>(0);
    Out<T> out = plan.write<T>(0);
    Out<int64_t> indices = plan.writeIf<int64_t>(1),
                 inverse = plan.writeIf<int64_t>(2),
                 counts = plan.writeIf<int64_t>(3);
    return [=](const Run &r) {
      const T *v = r(in);
      auto compare = [&](int64_t a, int64_t b) {
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i) {
            T p = v[(o * n + a) * inner + i], q = v[(o * n + b) * inner + i];
            if (p < q)
              return -1;
            if (q < p)
              return 1;
          }
        return 0;
      };
      int64_t *idx = r(order), *of = r(group), *first = r(firsts),
              *rank = r(ranks), *size = r(sizes);
      std::iota(idx, idx + n, int64_t(0));
      std::sort(idx, idx + n, [&](int64_t a, int64_t b) {
        int c = compare(a, b);
        return c ? c < 0 : a < b;
      });
      // Equal slices are neighbours now, the earliest first.
      int64_t groups = 0;
      for (int64_t i = 0; i < n; ++i) {
        if (i == 0 || compare(idx[i - 1], idx[i]) != 0) {
          first[groups] = idx[i];
          size[groups++] = 0;
        }
        of[idx[i]] = groups - 1;
        ++size[groups - 1];
      }
      require(groups == most, kWrongCount);
      // rank[g]: the place of group g in the result.
      int64_t *places = idx; // the sorted order is no longer needed
      std::iota(places, places + groups, int64_t(0));
      if (!sorted)
        std::sort(places, places + groups,
                  [&](int64_t a, int64_t b) { return first[a] < first[b]; });
      for (int64_t g = 0; g < groups; ++g) {
        int64_t from = places[g];
        rank[from] = g;
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i)
            r(out)[(o * most + g) * inner + i] =
                v[(o * n + first[from]) * inner + i];
        if (indices)
          r(indices)[g] = first[from];
        if (counts)
          r(counts)[g] = size[from];
      }
      if (inverse)
        for (int64_t i = 0; i < n; ++i)
          r(inverse)[i] = rank[of[i]];
    };
  });
}

struct Box {
  float y1, x1, y2, x2;
};

/// NonMaxSuppression: greedy by score, per batch entry and class.
Body buildNonMaxSuppression(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &boxes = node.input(0), &scores = node.input(1),
                   &y = node.output(0);
  require(boxes.rank() == 3 && boxes.dims[2] == 4 && scores.rank() == 3 &&
              scores.dims[0] == boxes.dims[0] &&
              scores.dims[2] == boxes.dims[1],
          "boxes must be [b,n,4] and scores [b,c,n]");
  require(y.rank() == 2 && y.dims[1] == 3, "the result must be [n,3]");
  for (size_t k = 2; k < 5; ++k)
    require(!node.hasIn(k) || node.in[k].count == 1, "a limit is no scalar");
  int64_t batches = boxes.dims[0], n = boxes.dims[1], classes = scores.dims[1],
          most = y.dims[0];
  bool center = node.intAttr("center_point_box", 0) != 0;
  In<float> boxIn = plan.read<float>(0), scoreIn = plan.read<float>(1),
            iouIn = plan.readIf<float>(3), leastIn = plan.readIf<float>(4);
  In<int64_t> limitIn = plan.readIf<int64_t>(2);
  Scratch<int64_t> order = plan.scratch<int64_t>(n),
                   kept = plan.scratch<int64_t>(n);
  Out<int64_t> out = plan.write<int64_t>(0);
  return [=](const Run &r) {
    int64_t limit = limitIn ? *r(limitIn) : 0;
    float iouLimit = iouIn ? *r(iouIn) : 0;
    int64_t found = 0;
    for (int64_t b = 0; b < batches && limit > 0; ++b) {
      auto box = [&](int64_t i) {
        const float *p = r(boxIn) + (b * n + i) * 4;
        if (center)
          return Box{p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2,
                     p[0] + p[2] / 2};
        return Box{std::min(p[0], p[2]), std::min(p[1], p[3]),
                   std::max(p[0], p[2]), std::max(p[1], p[3])};
      };
      auto iou = [&](int64_t i, int64_t j) {
        Box p = box(i), q = box(j);
        float h = std::min(p.y2, q.y2) - std::max(p.y1, q.y1);
        float w = std::min(p.x2, q.x2) - std::max(p.x1, q.x1);
        if (h <= 0 || w <= 0)
          return 0.0f;
        float common = h * w;
        float all = (p.y2 - p.y1) * (p.x2 - p.x1) +
                    (q.y2 - q.y1) * (q.x2 - q.x1) - common;
        return all > 0 ? common / all : 0.0f;
      };
      for (int64_t c = 0; c < classes; ++c) {
        const float *score = r(scoreIn) + (b * classes + c) * n;
        int64_t *idx = r(order), *keep = r(kept);
        int64_t candidates = 0, numKept = 0;
        for (int64_t i = 0; i < n; ++i)
          if (score[i] == score[i] && (!leastIn || score[i] > *r(leastIn)))
            idx[candidates++] = i;
        std::sort(idx, idx + candidates, [&](int64_t i, int64_t j) {
          return score[i] != score[j] ? score[i] > score[j] : i < j;
        });
        for (int64_t i = 0; i < candidates && numKept < limit; ++i) {
          bool suppressed = false;
          for (int64_t j = 0; j < numKept && !suppressed; ++j)
            suppressed = iou(idx[i], keep[j]) > iouLimit;
          if (suppressed)
            continue;
          keep[numKept++] = idx[i];
          require(found < most, kWrongCount);
          int64_t *dst = r(out) + found++ * 3;
          dst[0] = b;
          dst[1] = c;
          dst[2] = idx[i];
        }
      }
    }
    require(found == most, kWrongCount);
  };
}

} // namespace

void onnx::addSelect(OpTable &ops) {
  ops["constant"] = buildConstant;
  ops["constantofshape"] = buildConstantOfShape;
  ops["range"] = buildRange;
  ops["eyelike"] = buildEyeLike;
  ops["onehot"] = buildOneHot;
  ops["topk"] = buildTopK;
  ops["nonzero"] = buildNonZero;
  ops["compress"] = buildCompress;
  ops["unique"] = buildUnique;
  ops["nonmaxsuppression"] = buildNonMaxSuppression;
}

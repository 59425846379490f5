//===- Shape.cpp - Operators that only move data
//----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reshape and its kin are one copy; Transpose, Slice, Concat, Split, Expand,
// Tile and the depth/space pair are one strided copy each; Pad and
// CenterCropPad are separable gathers. Parameters that are inputs are read at
// run time and checked against the result's shape, which bounds every access.
//
//===----------------------------------------------------------------------===//

#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cstring>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

void requireSameType(const Plan &plan) {
  require(plan.node.input(0).dtype == plan.node.output(0).dtype,
          "input and result have different dtypes");
}

/// Reshape, Flatten, Squeeze, Unsqueeze, Identity: the bytes are the same.
Body buildCopy(Plan &plan) {
  requireSameType(plan);
  require(plan.node.input(0).count == plan.node.output(0).count,
          "the result has another size");
  size_t bytes = size_t(plan.node.input(0).bytes());
  return [=](const Run &r) {
    if (bytes)
      std::memmove(r.out(0), r.in(0), bytes);
  };
}

/// Dropout at inference: a copy, and a mask of ones (bool since opset 10).
Body buildDropout(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  require(node.input(0).count == node.output(0).count,
          "the result has another size");
  size_t bytes = size_t(node.input(0).bytes());
  bool mask = node.hasOut(1);
  DType maskType = mask ? node.out[1].dtype : DType::Invalid;
  int64_t maskCount = mask ? node.out[1].count : 0;
  In<uint8_t> training = plan.readIf<uint8_t>(2);
  In<double> ratio = plan.readIf<double>(1);
  double ratioAttr = 0.5;
  return [=](const Run &r) {
    double p = ratio ? *r(ratio) : ratioAttr;
    if (training && *r(training) && p != 0)
      throw UnsupportedError("dropout in training mode");
    if (bytes)
      std::memmove(r.out(0), r.in(0), bytes);
    for (int64_t i = 0; i < maskCount; ++i)
      storeOne(1.0f, maskType, r.out(1), i);
  };
}

Body buildTranspose(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  const TensorInfo &x = node.input(0), &y = node.output(0);
  std::vector<int64_t> perm = node.intsAttr("perm");
  int rank = x.rank();
  if (!node.has("perm"))
    for (int d = rank - 1; d >= 0; --d)
      perm.push_back(d);
  require(int(perm.size()) == rank && y.rank() == rank,
          "perm has another length than the rank");
  std::vector<int64_t> src = denseStrides(x.dims), dst = denseStrides(y.dims);
  StridedCopy copy;
  std::vector<bool> seen(rank);
  for (int d = 0; d < rank; ++d) {
    int from = normalizeAxis(perm[d], rank);
    require(!seen[from], "perm names an axis twice");
    seen[from] = true;
    require(x.dims[from] == y.dims[d], "the result has another shape");
    copy.add(y.dims[d], src[from], dst[d]);
  }
  size_t size = x.elementSize();
  return [=](const Run &r) { copy.run(size, r.in(0), r.out(0)); };
}

Body buildConcat(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &y = node.output(0);
  int axis = node.axisAttr("axis", 1, y.rank());
  int64_t outer = product(y.dims, 0, axis),
          inner = product(y.dims, axis + 1, y.rank());
  size_t size = y.elementSize();
  std::vector<int64_t> rows;
  int64_t total = 0;
  for (size_t k = 0; k < node.in.size(); ++k) {
    const TensorInfo &x = node.input(k);
    require(x.dtype == y.dtype && x.rank() == y.rank(),
            "operands and result differ in dtype or rank");
    for (int d = 0; d < x.rank(); ++d)
      require(d == axis || x.dims[d] == y.dims[d],
              "operands and result differ off the axis");
    rows.push_back(x.dims[axis] * inner * int64_t(size));
    total += x.dims[axis];
  }
  require(total == y.dims[axis], "the result has another size along the axis");
  int64_t stride = y.dims[axis] * inner * int64_t(size);
  return [=](const Run &r) {
    int64_t at = 0;
    for (size_t k = 0; k < rows.size(); ++k) {
      if (rows[k])
        for (int64_t o = 0; o < outer; ++o)
          std::memcpy(r.out(0) + o * stride + at, r.in(k) + o * rows[k],
                      size_t(rows[k]));
      at += rows[k];
    }
  };
}

/// The sizes are taken from the results, whatever form the node gave them in.
Body buildSplit(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  int axis = node.axisAttr("axis", 0, x.rank());
  int64_t outer = product(x.dims, 0, axis),
          inner = product(x.dims, axis + 1, x.rank());
  size_t size = x.elementSize();
  std::vector<int64_t> rows;
  int64_t total = 0;
  for (size_t k = 0; k < node.out.size(); ++k) {
    const TensorInfo &y = node.output(k);
    require(x.dtype == y.dtype && x.rank() == y.rank(),
            "operand and results differ in dtype or rank");
    for (int d = 0; d < x.rank(); ++d)
      require(d == axis || x.dims[d] == y.dims[d],
              "operand and results differ off the axis");
    rows.push_back(y.dims[axis] * inner * int64_t(size));
    total += y.dims[axis];
  }
  require(total == x.dims[axis], "the results do not add up along the axis");
  int64_t stride = x.dims[axis] * inner * int64_t(size);
  return [=](const Run &r) {
    int64_t at = 0;
    for (size_t k = 0; k < rows.size(); ++k) {
      if (rows[k])
        for (int64_t o = 0; o < outer; ++o)
          std::memcpy(r.out(k) + o * rows[k], r.in(0) + o * stride + at,
                      size_t(rows[k]));
      at += rows[k];
    }
  };
}

/// Expand and the broadcasting of Tile's special case: zero strides.
Body buildExpand(Plan &plan) {
  requireSameType(plan);
  const TensorInfo &x = plan.node.input(0), &y = plan.node.output(0);
  require(x.rank() <= y.rank(), "the result has a lower rank");
  std::vector<int64_t> src = denseStrides(x.dims), dst = denseStrides(y.dims);
  StridedCopy copy;
  int pad = y.rank() - x.rank();
  for (int d = 0; d < y.rank(); ++d) {
    int64_t stride = 0;
    if (d >= pad && x.dims[d - pad] != 1) {
      require(x.dims[d - pad] == y.dims[d], "the shapes do not broadcast");
      stride = src[d - pad];
    }
    copy.add(y.dims[d], stride, dst[d]);
  }
  size_t size = x.elementSize();
  return [=](const Run &r) { copy.run(size, r.in(0), r.out(0)); };
}

/// Tile: every dimension of the result is repeats x size.
Body buildTile(Plan &plan) {
  requireSameType(plan);
  const TensorInfo &x = plan.node.input(0), &y = plan.node.output(0);
  require(x.rank() == y.rank(), "the result has another rank");
  std::vector<int64_t> src = denseStrides(x.dims), dst = denseStrides(y.dims);
  StridedCopy copy;
  for (int d = 0; d < y.rank(); ++d) {
    if (x.dims[d] == 0) {
      copy.add(0, 0, 0);
      continue;
    }
    require(y.dims[d] % x.dims[d] == 0, "the result is no multiple");
    copy.add(y.dims[d] / x.dims[d], 0, dst[d] * x.dims[d]);
    copy.add(x.dims[d], src[d], dst[d]);
  }
  size_t size = x.elementSize();
  return [=](const Run &r) { copy.run(size, r.in(0), r.out(0)); };
}

/// Slice: starts, ends, axes are attributes before opset 10, inputs since.
/// Ends are implied by the result's shape.
Body buildSlice(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.rank() == y.rank(), "the result has another rank");
  bool attrs = node.has("starts");
  std::vector<int64_t> startsAttr = node.intsAttr("starts"),
                       axesAttr = node.intsAttr("axes");
  In<int64_t> startsIn, axesIn, stepsIn;
  int64_t count = int64_t(startsAttr.size());
  bool axesGiven = attrs && node.has("axes");
  if (!attrs) {
    startsIn = plan.read<int64_t>(1);
    axesIn = plan.readIf<int64_t>(3);
    stepsIn = plan.readIf<int64_t>(4);
    count = node.in[1].count;
    require(!axesIn || node.in[3].count == count,
            "starts and axes differ in length");
    require(!stepsIn || node.in[4].count == count,
            "starts and steps differ in length");
  }
  require(!axesGiven || int64_t(axesAttr.size()) == count,
          "starts and axes differ in length");
  require(count <= x.rank(), "more starts than dimensions");
  std::vector<int64_t> xd = x.dims, yd = y.dims, src = denseStrides(xd),
                       dst = denseStrides(yd);
  size_t size = x.elementSize();
  return [=](const Run &r) {
    int rank = int(xd.size());
    int64_t start[kMaxTensorRank] = {}, step[kMaxTensorRank];
    std::fill_n(step, rank, 1);
    for (int64_t i = 0; i < count; ++i) {
      int64_t axisValue = axesGiven ? axesAttr[i] : axesIn ? r(axesIn)[i] : i;
      int axis = normalizeAxis(axisValue, rank);
      int64_t s = attrs ? startsAttr[i] : r(startsIn)[i];
      int64_t n = xd[axis];
      step[axis] = stepsIn ? r(stepsIn)[i] : 1;
      require(step[axis] != 0, "a step is zero");
      if (s < 0)
        s += n;
      start[axis] =
          step[axis] > 0
              ? std::clamp<int64_t>(s, 0, n)
              : std::clamp<int64_t>(s, -1, std::max<int64_t>(n - 1, 0));
    }
    StridedCopy copy;
    int64_t base = 0;
    bool empty = false;
    for (int d = 0; d < rank; ++d)
      empty |= yd[d] == 0;
    if (empty)
      return;
    for (int d = 0; d < rank; ++d) {
      // yd - 1 steps must stay inside; divide, so that nothing overflows.
      int64_t room = step[d] > 0 ? xd[d] - 1 - start[d] : start[d];
      int64_t pace = step[d] > 0            ? step[d]
                     : step[d] == INT64_MIN ? INT64_MAX
                                            : -step[d];
      require(start[d] >= 0 && start[d] < xd[d] && (yd[d] - 1) <= room / pace,
              "the slice is larger than the input");
      base += start[d] * src[d];
      copy.add(yd[d], yd[d] == 1 ? 0 : src[d] * step[d], dst[d]);
    }
    copy.run(size, r.in(0) + base * int64_t(size), r.out(0));
  };
}

/// DepthToSpace and SpaceToDepth on [N, C, H, W].
Body buildDepthSpace(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  bool toSpace = node.name == "depthtospace";
  // Both are the same pairing of a deep and a wide tensor, one way or the
  // other.
  const TensorInfo &deep = toSpace ? node.input(0) : node.output(0);
  const TensorInfo &wide = toSpace ? node.output(0) : node.input(0);
  require(deep.rank() == 4 && wide.rank() == 4, "a 4-d tensor is needed");
  int64_t b = node.intAttr("blocksize", 0);
  require(b > 0 && b < (1 << 20), "blocksize must be positive");
  bool crd = node.strAttr("mode", "DCR") == "CRD";
  int64_t n = wide.dims[0], c = wide.dims[1], h = deep.dims[2],
          w = deep.dims[3];
  require(deep.dims == std::vector<int64_t>({n, c * b * b, h, w}) &&
              wide.dims == std::vector<int64_t>({n, c, h * b, w * b}),
          "the result has another shape");
  int64_t hw = h * w, plane = hw * b * b;
  StridedCopy copy;
  auto add = [&](int64_t dim, int64_t deepStride, int64_t wideStride) {
    copy.add(dim, toSpace ? deepStride : wideStride,
             toSpace ? wideStride : deepStride);
  };
  // deep channel: DCR (bh, bw, c), CRD (c, bh, bw).
  add(n, c * b * b * hw, c * plane);
  add(c, crd ? b * b * hw : hw, plane);
  add(h, w, b * w * b);
  add(b, crd ? b * hw : b * c * hw, w * b);
  add(w, 1, b);
  add(b, crd ? hw : c * hw, 1);
  size_t size = deep.elementSize();
  return [=](const Run &r) { copy.run(size, r.in(0), r.out(0)); };
}

/// Pad: pads are an attribute before opset 11, input 1 since; `axes` (opset 18)
/// selects dimensions. Reads per dimension come from a table.
Body buildPad(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.rank() == y.rank(), "the result has another rank");
  std::string modeName = node.strAttr("mode", "constant");
  enum { Constant, Edge, Reflect, Wrap } mode;
  if (modeName == "constant")
    mode = Constant;
  else if (modeName == "edge")
    mode = Edge;
  else if (modeName == "reflect")
    mode = Reflect;
  else if (modeName == "wrap")
    mode = Wrap;
  else
    throw UnsupportedError("mode '" + modeName + "'");
  std::vector<int64_t> padsAttr = node.intsAttr("pads");
  if (padsAttr.empty())
    padsAttr = node.intsAttr("paddings");
  bool attrs = node.has("pads") || node.has("paddings");
  In<int64_t> padsIn, axesIn = plan.readIf<int64_t>(3);
  if (!attrs)
    padsIn = plan.read<int64_t>(1);
  int64_t numAxes = axesIn ? node.in[3].count : x.rank();
  require((attrs ? int64_t(padsAttr.size()) : node.in[1].count) == 2 * numAxes,
          "pads must have two entries per axis");
  bool fillIn = !attrs && node.hasIn(2) && node.in[2].count == 1;
  require(!fillIn || node.in[2].dtype == x.dtype,
          "the constant has another dtype");
  double fillAttr = node.floatAttr("value", 0);
  std::vector<int64_t> xd = x.dims, yd = y.dims, src = denseStrides(xd);
  int64_t entries = 0;
  for (int64_t d : yd)
    entries += d;
  Scratch<int64_t> tables = plan.scratch<int64_t>(entries);
  DType dtype = x.dtype;
  int64_t inCount = x.count, outCount = y.count;
  return [=](const Run &r) {
    int rank = int(xd.size());
    int64_t begin[kMaxTensorRank] = {}, end[kMaxTensorRank] = {};
    const int64_t *pads = attrs ? padsAttr.data() : r(padsIn);
    for (int64_t i = 0; i < numAxes; ++i) {
      int axis = axesIn ? normalizeAxis(r(axesIn)[i], rank) : int(i);
      begin[axis] = pads[i];
      end[axis] = pads[numAxes + i];
    }
    alignas(8) char fill[8] = {};
    if (fillIn)
      std::memcpy(fill, r.in(2), dtypeSize(dtype));
    else
      storeOne(fillAttr, dtype, fill, 0);
    const int64_t *rows[kMaxTensorRank];
    int64_t *table = r(tables);
    for (int d = 0; d < rank; ++d) {
      int64_t n = xd[d];
      require(begin[d] > -(int64_t(1) << 48) && begin[d] < (int64_t(1) << 48) &&
                  end[d] > -(int64_t(1) << 48) && end[d] < (int64_t(1) << 48) &&
                  n + begin[d] + end[d] == yd[d],
              "pads and the result's shape disagree");
      rows[d] = table;
      for (int64_t i = 0; i < yd[d]; ++i) {
        int64_t at = i - begin[d];
        if (at < 0 || at >= n) {
          if (mode == Constant || n == 0)
            at = -1;
          else if (mode == Edge)
            at = at < 0 ? 0 : n - 1;
          else if (mode == Wrap)
            at = ((at % n) + n) % n;
          else if (n == 1)
            at = 0;
          else {
            int64_t period = 2 * (n - 1);
            at = ((at % period) + period) % period;
            at = at < n ? at : period - at;
          }
        }
        *table++ = at < 0 ? -1 : at * src[d];
      }
    }
    if (outCount == 0)
      return;
    if (inCount == 0 && rank > 0) {
      fillElements(dtypeSize(dtype), fill, outCount, r.out(0));
      return;
    }
    gatherSeparable(rank, yd.data(), rows, dtypeSize(dtype), r.in(0), r.out(0),
                    fill);
  };
}

/// CenterCropPad: the centre of each listed axis is kept or padded with zeros.
Body buildCenterCropPad(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  const TensorInfo &x = node.input(0), &y = node.output(0);
  require(x.rank() == y.rank(), "the result has another rank");
  StridedCopy copy;
  std::vector<int64_t> src = denseStrides(x.dims), dst = denseStrides(y.dims);
  int64_t from = 0, to = 0;
  for (int d = 0; d < x.rank(); ++d) {
    int64_t n = x.dims[d], m = y.dims[d];
    if (m < n)
      from += (n - m) / 2 * src[d];
    else
      to += (m - n) / 2 * dst[d];
    copy.add(std::min(n, m), src[d], dst[d]);
  }
  int64_t size = int64_t(x.elementSize());
  size_t bytes = size_t(y.bytes());
  return [=](const Run &r) {
    if (bytes)
      std::memset(r.out(0), 0, bytes);
    copy.run(size_t(size), r.in(0) + from * size, r.out(0) + to * size);
  };
}

/// Trilu: one triangle is kept, the other becomes zero.
Body buildTrilu(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  require(x.rank() >= 2, "a matrix is needed");
  bool upper = node.intAttr("upper", 1) != 0;
  In<int64_t> kIn = plan.readIf<int64_t>(1);
  int64_t rows = x.dim(-2), cols = x.dim(-1),
          batch = product(x.dims, 0, x.rank() - 2);
  size_t size = x.elementSize();
  return [=](const Run &r) {
    int64_t k = kIn ? *r(kIn) : 0;
    k = std::clamp<int64_t>(k, -rows, cols);
    const char *src = r.in(0);
    char *dst = r.out(0);
    for (int64_t b = 0; b < batch * rows; ++b) {
      int64_t row = b % rows;
      int64_t split = std::clamp<int64_t>(row + k + (upper ? 0 : 1), 0, cols);
      size_t left = size_t(split) * size, right = size_t(cols - split) * size;
      if (upper) {
        std::memset(dst, 0, left);
        std::memcpy(dst + left, src + left, right);
      } else {
        std::memcpy(dst, src, left);
        std::memset(dst + left, 0, right);
      }
      src += left + right;
      dst += left + right;
    }
  };
}

/// Shape (with start and end) and Size: known from the description alone.
Body buildShape(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0);
  std::vector<int64_t> values;
  if (node.name == "size") {
    values = {x.count};
  } else {
    int64_t rank = x.rank();
    auto bound = [&](int64_t v) {
      return std::clamp<int64_t>(v < 0 ? v + rank : v, 0, rank);
    };
    int64_t start = bound(node.intAttr("start", 0));
    int64_t end = bound(node.intAttr("end", rank));
    for (int64_t i = start; i < end; ++i)
      values.push_back(x.dims[i]);
  }
  require(node.output(0).count == int64_t(values.size()),
          "the result has another size");
  Out<int64_t> out = plan.write<int64_t>(0);
  return [=](const Run &r) { std::copy(values.begin(), values.end(), r(out)); };
}

/// ReverseSequence: the first lens[b] entries of the time axis are reversed.
Body buildReverseSequence(Plan &plan) {
  const NodeInfo &node = plan.node;
  requireSameType(plan);
  const TensorInfo &x = node.input(0);
  requireSameDims(x, node.output(0), "the result has another shape");
  int64_t batchAxis = node.intAttr("batch_axis", 1),
          timeAxis = node.intAttr("time_axis", 0);
  require(x.rank() >= 2 && ((batchAxis == 0 && timeAxis == 1) ||
                            (batchAxis == 1 && timeAxis == 0)),
          "batch_axis and time_axis must be 0 and 1");
  int64_t d0 = x.dims[0], d1 = x.dims[1];
  int64_t batches = batchAxis == 0 ? d0 : d1, times = batchAxis == 0 ? d1 : d0;
  require(node.input(1).count == batches, "sequence_lens has another length");
  In<int64_t> lens = plan.read<int64_t>(1);
  int64_t row = product(x.dims, 2, x.rank()) * int64_t(x.elementSize());
  int64_t batchStride = (batchAxis == 0 ? d1 : 1) * row,
          timeStride = (batchAxis == 0 ? 1 : d1) * row;
  return [=](const Run &r) {
    for (int64_t b = 0; b < batches; ++b) {
      int64_t n = r(lens)[b];
      require(n >= 0 && n <= times, "a sequence length is out of range");
      for (int64_t t = 0; t < times; ++t) {
        int64_t from = t < n ? n - 1 - t : t;
        std::memcpy(r.out(0) + b * batchStride + t * timeStride,
                    r.in(0) + b * batchStride + from * timeStride, size_t(row));
      }
    }
  };
}

} // namespace

void onnx::addShape(OpTable &ops) {
  ops["identity"] = buildCopy;
  ops["reshape"] = buildCopy;
  ops["flatten"] = buildCopy;
  ops["squeeze"] = buildCopy;
  ops["unsqueeze"] = buildCopy;
  ops["dropout"] = buildDropout;
  ops["transpose"] = buildTranspose;
  ops["concat"] = buildConcat;
  ops["split"] = buildSplit;
  ops["expand"] = buildExpand;
  ops["tile"] = buildTile;
  ops["slice"] = buildSlice;
  ops["depthtospace"] = buildDepthSpace;
  ops["spacetodepth"] = buildDepthSpace;
  ops["pad"] = buildPad;
  ops["centercroppad"] = buildCenterCropPad;
  ops["trilu"] = buildTrilu;
  ops["shape"] = buildShape;
  ops["size"] = buildShape;
  ops["reversesequence"] = buildReverseSequence;
}

//===- Indexing.cpp - Gathers and scatters
//----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every index is checked; a bad one makes the run fail with a message instead
// of touching foreign memory. Negative indices count from the back.
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

int64_t checkIndex(int64_t index, int64_t size) {
  int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size)
    throw InvalidError("index " + std::to_string(index) +
                       " is out of range for a dimension of " +
                       std::to_string(size));
  return at;
}

/// Gather: whole rows behind `axis`.
Body buildGather(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &indices = node.input(1),
                   &y = node.output(0);
  require(x.dtype == y.dtype, "input and result have different dtypes");
  int axis = node.axisAttr("axis", 0, x.rank());
  int64_t outer = product(x.dims, 0, axis), n = x.dims[axis],
          count = indices.count,
          row = product(x.dims, axis + 1, x.rank()) * int64_t(x.elementSize());
  require(y.bytes() == outer * count * row, "the result has another size");
  In<int64_t> in = plan.read<int64_t>(1);
  return [=](const Run &r) {
    const int64_t *index = r(in);
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = checkIndex(index[i], n);
      if (row)
        for (int64_t o = 0; o < outer; ++o)
          std::memcpy(r.out(0) + (o * count + i) * row,
                      r.in(0) + (o * n + at) * row, size_t(row));
    }
  };
}

/// GatherElements: out[i][j][k] = x[index[i][j][k]][j][k] for axis 0.
Body buildGatherElements(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &indices = node.input(1),
                   &y = node.output(0);
  require(x.dtype == y.dtype, "input and result have different dtypes");
  require(x.rank() == indices.rank() && y.dims == indices.dims,
          "indices and result must have one shape, of the input's rank");
  int axis = node.axisAttr("axis", 0, x.rank());
  for (int d = 0; d < x.rank(); ++d)
    require(d == axis || indices.dims[d] <= x.dims[d],
            "indices are larger than the input off the axis");
  std::vector<int64_t> dims = y.dims, strides = denseStrides(x.dims);
  int64_t n = x.dims[axis], axisStride = strides[axis];
  strides[axis] = 0;
  In<int64_t> in = plan.read<int64_t>(1);
  size_t size = x.elementSize();
  int64_t count = y.count;
  return [=](const Run &r) {
    if (!count)
      return;
    forSize(size, [&]<class U>() {
      const U *src = reinterpret_cast<const U *>(r.in(0));
      U *dst = reinterpret_cast<U *>(r.out(0));
      const int64_t *index = r(in);
      Odometer odometer(int(dims.size()), dims.data(), strides.data());
      for (int64_t i = 0; i < count; ++i) {
        dst[i] = src[odometer.a + checkIndex(index[i], n) * axisStride];
        odometer.next();
      }
    });
  };
}

/// GatherND with batch_dims.
Body buildGatherND(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &indices = node.input(1),
                   &y = node.output(0);
  require(x.dtype == y.dtype, "input and result have different dtypes");
  int64_t b = node.intAttr("batch_dims", 0);
  require(indices.rank() >= 1 && b >= 0 && b < x.rank() && b < indices.rank(),
          "batch_dims is out of range");
  int64_t depth = indices.dims.back();
  require(depth >= 0 && depth + b <= x.rank(), "indices are too deep");
  for (int d = 0; d < b; ++d)
    require(x.dims[d] == indices.dims[d], "batch dimensions differ");
  int64_t batches = product(x.dims, 0, int(b)),
          tuples = product(indices.dims, int(b), indices.rank() - 1),
          slice = product(x.dims, int(b + depth), x.rank()),
          perBatch = product(x.dims, int(b), x.rank());
  require(y.count == batches * tuples * slice, "the result has another size");
  std::vector<int64_t> dims(x.dims.begin() + b, x.dims.begin() + b + depth);
  std::vector<int64_t> strides(depth);
  int64_t stride = slice;
  for (int64_t d = depth; d-- > 0;) {
    strides[d] = stride;
    stride *= dims[d];
  }
  In<int64_t> in = plan.read<int64_t>(1);
  int64_t size = int64_t(x.elementSize());
  return [=](const Run &r) {
    const int64_t *index = r(in);
    for (int64_t t = 0; t < batches * tuples; ++t) {
      int64_t at = t / tuples * perBatch;
      for (int64_t d = 0; d < depth; ++d)
        at += checkIndex(*index++, dims[d]) * strides[d];
      std::memcpy(r.out(0) + t * slice * size, r.in(0) + at * size,
                  size_t(slice * size));
    }
  };
}

enum class Reduction { None, Add, Mul, Max, Min };

Reduction reductionOf(const NodeInfo &node) {
  std::string name = node.strAttr("reduction", "none");
  if (name == "none")
    return Reduction::None;
  if (name == "add")
    return Reduction::Add;
  if (name == "mul")
    return Reduction::Mul;
  if (name == "max")
    return Reduction::Max;
  if (name == "min")
    return Reduction::Min;
  throw UnsupportedError("reduction '" + name + "'");
}

template <class T> T combine(Reduction reduction, T old, T update) {
  using U = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  switch (reduction) {
  case Reduction::Add:
    return static_cast<T>(U(old) + U(update));
  case Reduction::Mul:
    return static_cast<T>(U(old) * U(update));
  case Reduction::Max:
    return old != old || old > update ? old : update;
  case Reduction::Min:
    return old != old || old < update ? old : update;
  case Reduction::None:
    break;
  }
  return update;
}

/// dst[at .. at+n) = combine(dst, src[from .. from+n)).
void combineRun(DType dtype, Reduction reduction, char *dst, int64_t at,
                const char *src, int64_t from, int64_t n) {
  int64_t size = int64_t(dtypeSize(dtype));
  if (reduction == Reduction::None) {
    std::memcpy(dst + at * size, src + from * size, size_t(n * size));
    return;
  }
  forNumbers(dtype, [&]<class T>() {
    for (int64_t i = 0; i < n; ++i)
      storeOne(combine(reduction, loadOne<T>(dtype, dst, at + i),
                       loadOne<T>(dtype, src, from + i)),
               dtype, dst, at + i);
  });
}

/// ScatterElements and its deprecated alias Scatter.
Body buildScatterElements(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &indices = node.input(1),
                   &updates = node.input(2);
  requireSameDims(x, node.output(0), "the result has another shape");
  requireSameDims(indices, updates, "indices and updates differ in shape");
  require(x.dtype == updates.dtype && x.dtype == node.output(0).dtype,
          "operands and result must have one dtype");
  require(x.rank() == indices.rank(), "indices must have the input's rank");
  int axis = node.axisAttr("axis", 0, x.rank());
  for (int d = 0; d < x.rank(); ++d)
    require(d == axis || indices.dims[d] <= x.dims[d],
            "indices are larger than the input off the axis");
  Reduction reduction = reductionOf(node);
  std::vector<int64_t> dims = indices.dims, strides = denseStrides(x.dims);
  int64_t n = x.dims[axis], axisStride = strides[axis];
  strides[axis] = 0;
  In<int64_t> in = plan.read<int64_t>(1);
  DType dtype = x.dtype;
  size_t bytes = size_t(x.bytes());
  int64_t count = indices.count;
  return [=](const Run &r) {
    if (bytes)
      std::memmove(r.out(0), r.in(0), bytes);
    if (!count)
      return;
    const int64_t *index = r(in);
    Odometer odometer(int(dims.size()), dims.data(), strides.data());
    for (int64_t i = 0; i < count; ++i) {
      combineRun(dtype, reduction, r.out(0),
                 odometer.a + checkIndex(index[i], n) * axisStride, r.in(2), i,
                 1);
      odometer.next();
    }
  };
}

Body buildScatterND(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &indices = node.input(1),
                   &updates = node.input(2);
  requireSameDims(x, node.output(0), "the result has another shape");
  require(x.dtype == updates.dtype && x.dtype == node.output(0).dtype,
          "operands and result must have one dtype");
  require(indices.rank() >= 1, "indices must have a rank of at least 1");
  int64_t depth = indices.dims.back();
  require(depth <= x.rank(), "indices are too deep");
  int64_t tuples = product(indices.dims, 0, indices.rank() - 1),
          slice = product(x.dims, int(depth), x.rank());
  require(updates.count == tuples * slice, "updates have another size");
  Reduction reduction = reductionOf(node);
  std::vector<int64_t> dims = x.dims, strides = denseStrides(x.dims);
  In<int64_t> in = plan.read<int64_t>(1);
  DType dtype = x.dtype;
  size_t bytes = size_t(x.bytes());
  return [=](const Run &r) {
    if (bytes)
      std::memmove(r.out(0), r.in(0), bytes);
    const int64_t *index = r(in);
    for (int64_t t = 0; t < tuples; ++t) {
      int64_t at = 0;
      for (int64_t d = 0; d < depth; ++d)
        at += checkIndex(*index++, dims[d]) * strides[d];
      combineRun(dtype, reduction, r.out(0), at, r.in(2), t * slice, slice);
    }
  };
}

/// TensorScatter: a cache with `update` written along `axis` at a position per
/// batch entry.
Body buildTensorScatter(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &update = node.input(1);
  requireSameDims(x, node.output(0), "the result has another shape");
  require(x.dtype == update.dtype && x.dtype == node.output(0).dtype,
          "operands and result must have one dtype");
  int axis = node.axisAttr("axis", -2, x.rank());
  require(axis > 0 && update.rank() == x.rank(), "axis must not be the batch");
  for (int d = 0; d < x.rank(); ++d)
    require(d == axis ? update.dims[d] <= x.dims[d]
                      : update.dims[d] == x.dims[d],
            "update does not fit the cache");
  bool circular = node.strAttr("mode", "linear") == "circular";
  int64_t batches = x.dims[0], prefix = product(x.dims, 1, axis),
          most = x.dims[axis], count = update.dims[axis],
          row = product(x.dims, axis + 1, x.rank()) * int64_t(x.elementSize());
  In<int64_t> writeIn = plan.readIf<int64_t>(2);
  require(!writeIn || node.in[2].count == batches,
          "write_indices must have one entry per batch");
  size_t bytes = size_t(x.bytes());
  return [=](const Run &r) {
    if (bytes)
      std::memmove(r.out(0), r.in(0), bytes);
    for (int64_t b = 0; b < batches; ++b) {
      int64_t start = writeIn ? r(writeIn)[b] : 0;
      require(start >= 0 && (circular || start <= most - count),
              "a write index is out of range");
      for (int64_t p = 0; p < prefix; ++p)
        for (int64_t s = 0; s < count; ++s) {
          int64_t to = circular ? (start % most + s) % most : start + s;
          std::memcpy(r.out(0) + ((b * prefix + p) * most + to) * row,
                      r.in(1) + ((b * prefix + p) * count + s) * row,
                      size_t(row));
        }
    }
  };
}

/// ai.onnx.ml ArrayFeatureExtractor: columns by index.
Body buildArrayFeatureExtractor(Plan &plan) {
  const NodeInfo &node = plan.node;
  const TensorInfo &x = node.input(0), &indices = node.input(1);
  require(x.rank() >= 1 && x.dtype == node.output(0).dtype,
          "a vector or matrix is needed");
  int64_t n = x.dims.back(), rows = product(x.dims, 0, x.rank() - 1),
          count = indices.count, size = int64_t(x.elementSize());
  require(node.output(0).count == rows * count, "the result has another size");
  In<int64_t> in = plan.read<int64_t>(1);
  return [=](const Run &r) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < count; ++k)
        std::memcpy(r.out(0) + (i * count + k) * size,
                    r.in(0) + (i * n + checkIndex(r(in)[k], n)) * size,
                    size_t(size));
  };
}

} // namespace

void onnx::addIndexing(OpTable &ops) {
  ops["gather"] = buildGather;
  ops["gatherelements"] = buildGatherElements;
  ops["gathernd"] = buildGatherND;
  ops["scatter"] = buildScatterElements;
  ops["scatterelements"] = buildScatterElements;
  ops["scatternd"] = buildScatterND;
  ops["tensorscatter"] = buildTensorScatter;
  ops["ai.onnx.ml.arrayfeatureextractor"] = buildArrayFeatureExtractor;
}

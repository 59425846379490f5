//===- Layout.cpp - `transpose`, `gather_rows`, `rope` --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Data movement. `transpose` takes strides on both sides, so it also is slice,
// concatenation and expansion. docs/kernels.md lists the keys.
//
//===----------------------------------------------------------------------===//

#include "LayoutHot.h"
#include "Select.h"

#include <algorithm>
#include <cstring>

namespace concord::kernels {
namespace {

void checkStride(const Description &d, const char *key, int64_t stride) {
  if (stride < 0 || stride > int64_t(1) << 40)
    d.fail(key, "stride " + std::to_string(stride) + " is out of range");
}

std::vector<int64_t> denseStrides(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size());
  int64_t next = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

class Transpose final : public Kernel {
public:
  explicit Transpose(const Description &d)
      : table(CONCORD_SELECT(layoutTable)) {
    numInputs = 1;
    plan.elementSize = int64_t(dtypeSize(d.dtype("dtype")));
    std::vector<int64_t> shape = d.list("shape");
    if (shape.size() > size_t(kCopyDims))
      d.unsupported("shape", "over 12 dimensions");
    elementCount(shape, size_t(plan.elementSize));
    std::vector<int64_t> perm = d.list("perm");
    std::vector<char> seen(shape.size(), 0);
    if (perm.size() != shape.size())
      d.fail("perm", "must have one entry for each dimension");
    for (int64_t p : perm) {
      if (p < 0 || p >= int64_t(shape.size()) || seen[size_t(p)])
        d.fail("perm", "is not a permutation");
      seen[size_t(p)] = 1;
    }
    std::vector<int64_t> outShape;
    for (int64_t p : perm)
      outShape.push_back(shape[size_t(p)]);
    std::vector<int64_t> xs = d.list("xstrides", denseStrides(shape));
    std::vector<int64_t> ys = d.list("ystrides", denseStrides(outShape));
    if (xs.size() != shape.size())
      d.fail("xstrides", "must have one stride for each dimension");
    if (ys.size() != shape.size())
      d.fail("ystrides", "must have one stride for each dimension");
    for (int64_t stride : xs)
      checkStride(d, "xstrides", stride);
    for (int64_t stride : ys)
      checkStride(d, "ystrides", stride);

    std::vector<Dim> dims;
    for (size_t i = 0; i < perm.size(); ++i) {
      Dim dim{outShape[i], xs[size_t(perm[i])], ys[i]};
      if (dim.size == 1)
        continue;
      if (!dims.empty() && dims.back().xs == dim.xs * dim.size &&
          dims.back().ys == dim.ys * dim.size)
        dims.back() = {dims.back().size * dim.size, dim.xs, dim.ys};
      else
        dims.push_back(dim);
    }
    choose(dims);
  }

  int32_t run(void *const *pointers, void *) const override {
    Poller poller;
    table.copy(plan, pointers[0], pointers[1], poller);
    return kOk;
  }

private:
  struct Dim {
    int64_t size, xs, ys;
  };

  void choose(std::vector<Dim> dims) {
    auto take = [&](size_t i) {
      Dim dim = dims[i];
      dims.erase(dims.begin() + i);
      return dim;
    };
    size_t in = dims.size(), out = dims.size();
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].ys == 1)
        out = i;
      if (dims[i].xs == 1)
        in = i;
    }
    if (dims.empty()) {
      plan.kind = CopyPlan::Runs;
    } else if (out < dims.size() && in == out) {
      plan.kind = CopyPlan::Runs;
      plan.rows = take(out).size;
    } else if (out < dims.size() && in < dims.size()) {
      plan.kind = CopyPlan::Turned;
      plan.rows = dims[out].size;
      plan.rowStride = dims[out].xs;
      plan.cols = dims[in].size;
      plan.colStride = dims[in].ys;
      take(std::max(in, out));
      take(std::min(in, out));
    } else {
      plan.kind = CopyPlan::Scattered;
      Dim last = take(dims.size() - 1);
      plan.rows = last.size;
      plan.rowStride = last.xs;
      plan.colStride = last.ys;
    }
    plan.dims = int(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      plan.size[i] = dims[i].size;
      plan.xs[i] = dims[i].xs;
      plan.ys[i] = dims[i].ys;
    }
  }

  CopyPlan plan;
  const LayoutTable &table;
};

/// Rows of a table by index: an embedding. With a table split over ranks, each
/// holds rows [offset, offset + rows); others come out as zeros, to be summed.
class GatherRows final : public Kernel {
public:
  explicit GatherRows(const Description &d) {
    numInputs = 2;
    rows = d.size("rows");
    count = d.size("n");
    size_t elementSize = dtypeSize(d.dtype("dtype"));
    int64_t cols = d.size("cols");
    elementCount({rows, cols}, elementSize);
    elementCount({count, cols}, elementSize);
    bytes = cols * int64_t(elementSize);
    switch (d.dtype("itype", DType::I64)) {
    case DType::I64:
      wide = true;
      break;
    case DType::I32:
      wide = false;
      break;
    default:
      d.unsupported("itype", "must be i32 or i64");
    }
    offset = d.i64("offset", 0);
    total = d.i64("total", rows);
    if (offset < 0 || total < 0 || offset > (int64_t(1) << 40) ||
        total > (int64_t(1) << 40) || offset + rows > total)
      d.fail("offset", "offset + rows must lie within total");
    yStride = d.i64("ystride", cols);
    checkStride(d, "ystride", yStride);
    yStride *= int64_t(elementSize);
  }

  int32_t run(void *const *pointers, void *) const override {
    Poller poller;
    const char *from = static_cast<const char *>(pointers[0]);
    char *to = static_cast<char *>(pointers[2]);
    for (int64_t i = 0; i < count; ++i, to += yStride) {
      int64_t index = wide ? static_cast<const int64_t *>(pointers[1])[i]
                           : static_cast<const int32_t *>(pointers[1])[i];
      if (index < -total || index >= total)
        return setLastError(kInvalidArgument,
                            "gather_rows: index %lld at position %lld is "
                            "outside a table of %lld rows",
                            static_cast<long long>(index),
                            static_cast<long long>(i),
                            static_cast<long long>(total));
      index += index < 0 ? total : 0;
      index -= offset;
      if (index < 0 || index >= rows)
        memset(to, 0, size_t(bytes));
      else
        memcpy(to, from + index * bytes, size_t(bytes));
      poller.work(bytes / 8 + 5);
    }
    return kOk;
  }

private:
  int64_t rows, count, bytes, offset, total, yStride;
  bool wide;
};

class Rope final : public Kernel {
public:
  explicit Rope(const Description &d)
      : type(floatType(d)), table(CONCORD_SELECT(layoutTable)) {
    r.b = d.size("b");
    r.s = d.size("s");
    r.h = d.size("h");
    r.d = d.size("d");
    elementCount({r.b, r.s, r.h, r.d}, 8);
    r.rotary = d.i64("rotary", r.d);
    if (r.rotary < 0 || r.rotary > r.d || r.rotary % 2)
      d.fail("rotary", "must be even and at most d");
    r.interleaved = d.flag("interleaved", false);
    r.positions = d.flag("positions", false);
    std::vector<int64_t> dense = {r.s * r.h * r.d, r.h * r.d, r.d};
    take(d, "xstrides", dense, r.xs, 3);
    take(d, "ystrides", dense, r.ys, 3);
    take(d, "tablestrides",
         {r.positions ? 0 : r.s * (r.rotary / 2), r.rotary / 2}, r.tableStrides,
         2);
    if (r.positions)
      r.tableRows = d.size("tablerows");
    numInputs = 3 + r.positions;
  }

  int32_t run(void *const *pointers, void *) const override {
    Poller poller;
    const int64_t *positions =
        r.positions ? static_cast<const int64_t *>(pointers[3]) : nullptr;
    if (!table.rope(type, r, pointers[0], pointers[1], pointers[2], positions,
                    pointers[numInputs], poller))
      return setLastError(kInvalidArgument,
                          "rope: a position lies outside the tables");
    return kOk;
  }

private:
  static void take(const Description &d, const char *key,
                   const std::vector<int64_t> &fallback, int64_t *to,
                   size_t n) {
    std::vector<int64_t> value = d.list(key, fallback);
    if (value.size() != n)
      d.fail(key, "must have " + std::to_string(n) + " strides");
    for (size_t i = 0; i < n; ++i) {
      checkStride(d, key, value[i]);
      to[i] = value[i];
    }
  }
  GemmType type;
  const LayoutTable &table;
  RopeShape r;
};

} // namespace

void registerLayout(Registry &registry) {
  registry.add("transpose", make<Transpose>);
  registry.add("gather_rows", make<GatherRows>);
  registry.add("rope", make<Rope>);
}

} // namespace concord::kernels

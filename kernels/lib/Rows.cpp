//===- Rows.cpp - The `softmax`, `layernorm` and `rmsnorm` kernels --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptions to shapes; the loops are in hot/Rows.cpp. docs/kernels.md lists
// the keys.
//
//===----------------------------------------------------------------------===//

#include "RowsHot.h"
#include "Select.h"

#include <algorithm>

namespace concord::kernels {
namespace {

int64_t rowStride(const Description &d, const char *key, int64_t cols) {
  int64_t stride = d.i64(key, cols);
  if (stride < 0 || stride > int64_t(1) << 40)
    d.fail(key, "stride " + std::to_string(stride) + " is out of range");
  return stride;
}

/// A row of sums, padded to whole vectors of any class.
uint64_t rowBytes(int64_t cols, GemmType type) {
  return uint64_t((cols + 15) / 16 * 16 * sumSizeOf(type));
}

class Softmax final : public Kernel {
public:
  explicit Softmax(const Description &d)
      : type(floatType(d)), table(CONCORD_SELECT(rowsTable)) {
    s.rows = d.size("rows");
    s.cols = d.size("cols");
    elementCount({s.rows, s.cols}, 8);
    s.xStride = rowStride(d, "xstride", s.cols);
    s.yStride = rowStride(d, "ystride", s.cols);
    s.scale = d.f64("scale", 1);
    s.log = d.flag("log", false);
    s.causal = d.flag("causal", false);
    if (s.causal) {
      s.causalRows = d.size("sq", 1);
      s.causalOffset = d.i64("offset", 0);
      if (s.causalOffset < -(int64_t(1) << 40) || s.causalOffset > int64_t(1)
                                                                       << 40)
        d.fail("offset", "is out of range");
    }
    s.mask = d.has("maskstrides");
    numInputs = 1 + s.mask;
    if (s.mask) {
      std::vector<int64_t> shape = d.list("maskshape");
      std::vector<int64_t> strides = d.list("maskstrides");
      if (shape.empty() || shape.size() > size_t(kMaskDims) ||
          strides.size() != shape.size())
        d.fail("maskstrides", "must match maskshape, of 1 to 8 dimensions");
      s.maskColumnStride = strides.back();
      if (s.maskColumnStride != 0 && s.maskColumnStride != 1)
        d.unsupported("maskstrides", "the last stride must be 0 or 1");
      if (shape.back() != s.cols)
        d.fail("maskshape", "the last dimension must be cols");
      shape.pop_back();
      if (elementCount(shape) != s.rows)
        d.fail("maskshape", "the leading dimensions must multiply to rows");
      s.maskDims = int(shape.size());
      for (int i = 0; i < s.maskDims; ++i) {
        if (strides[i] < 0 || strides[i] > int64_t(1) << 40)
          d.fail("maskstrides", "stride out of range");
        s.maskShape[i] = shape[i];
        s.maskStrides[i] = strides[i];
      }
    }
    workspaceBytes = rowBytes(s.cols, type);
  }

  int32_t run(void *const *pointers, void *workspace) const override {
    Poller poller;
    table.softmax(type, s, pointers[0], s.mask ? pointers[1] : nullptr,
                  pointers[numInputs], workspace, poller);
    return kOk;
  }

private:
  GemmType type;
  const RowsTable &table;
  SoftmaxShape s;
};

class Norm : public Kernel {
public:
  Norm(const Description &d, bool rms)
      : type(floatType(d)), table(CONCORD_SELECT(rowsTable)) {
    s.rows = d.size("rows");
    s.cols = d.size("cols", 1);
    elementCount({s.rows, s.cols}, 8);
    s.rms = rms;
    s.eps = d.f64("eps", 1e-5);
    s.xStride = rowStride(d, "xstride", s.cols);
    s.yStride = rowStride(d, "ystride", s.cols);
    gamma = d.flag("gamma", true);
    beta = d.flag("beta", false);
    residual = d.flag("residual", false);
    sum = d.flag("sum", false);
    if (sum && !residual)
      d.fail("sum", "needs residual=1");
    if (residual)
      s.residualStride = rowStride(d, "rstride", s.cols);
    if (sum)
      s.sumStride = rowStride(d, "sumstride", s.cols);
    numInputs = 1 + gamma + beta + residual;
    numOutputs = 1 + sum;
    workspaceBytes = rowBytes(s.cols, type);
  }

  int32_t run(void *const *pointers, void *workspace) const override {
    NormOperands o;
    uint32_t next = 0;
    o.x = pointers[next++];
    o.gamma = gamma ? pointers[next++] : nullptr;
    o.beta = beta ? pointers[next++] : nullptr;
    o.residual = residual ? pointers[next++] : nullptr;
    o.y = pointers[next++];
    o.sum = sum ? pointers[next] : nullptr;
    Poller poller;
    table.norm(type, s, o, workspace, poller);
    return kOk;
  }

private:
  GemmType type;
  const RowsTable &table;
  NormShape s;
  bool gamma, beta, residual, sum;
};

struct LayerNorm final : Norm {
  explicit LayerNorm(const Description &d) : Norm(d, false) {}
};
struct RmsNorm final : Norm {
  explicit RmsNorm(const Description &d) : Norm(d, true) {}
};

} // namespace

void registerRows(Registry &registry) {
  registry.add("softmax", make<Softmax>);
  registry.add("layernorm", make<LayerNorm>);
  registry.add("rmsnorm", make<RmsNorm>);
}

} // namespace concord::kernels

//===- Conv.cpp - The `conv` and `pool` kernels ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptions to shapes, and the order of work: weights are the left operand
// of a product whose right operand, the patches, is written block by block as
// GEMM panels. A 1 x 1 convolution is the product itself. docs/kernels.md lists
// keys.
//
//===----------------------------------------------------------------------===//

#include "ConvHot.h"
#include "Select.h"

#include <algorithm>
#include <cstring>

namespace concord::kernels {
namespace {

/// Reads x, kernel, strides, dilations and pads of rank 1 to 3.
struct Geometry {
  Window w;
  int64_t n, c;

  explicit Geometry(const Description &d, bool pool) {
    std::vector<int64_t> x = d.list("x");
    if (x.size() < 3 || x.size() > 5)
      d.unsupported("x", "must be [n, c, 1 to 3 spatial dimensions]");
    elementCount(x, 8);
    size_t rank = x.size() - 2;
    n = x[0];
    c = x[1];
    std::vector<int64_t> kernel = get(d, "kernel", rank, 0);
    std::vector<int64_t> strides = get(d, "strides", rank, 1);
    std::vector<int64_t> dilations = get(d, "dilations", rank, 1);
    std::vector<int64_t> pads =
        d.list("pads", std::vector<int64_t>(2 * rank, 0));
    if (pads.size() != 2 * rank)
      d.fail("pads", "must have begin and end for each spatial dimension");
    bool ceil = pool && d.flag("ceil", false);
    for (size_t i = 0; i < rank; ++i) {
      size_t to = 3 - rank + i;
      w.in[to] = x[2 + i];
      w.kernel[to] = kernel[i];
      w.stride[to] = strides[i];
      w.dilation[to] = dilations[i];
      w.begin[to] = pads[i];
      w.end[to] = pads[rank + i];
      if (pads[i] < 0 || pads[rank + i] < 0 || pads[i] > 1 << 20 ||
          pads[rank + i] > 1 << 20)
        d.unsupported("pads", "must lie in [0, 2^20]");
      int64_t reach = (kernel[i] - 1) * dilations[i] + 1;
      int64_t room = w.in[to] + w.begin[to] + w.end[to] - reach;
      if (room < 0)
        d.fail("kernel", "is larger than the padded input");
      w.out[to] = room / strides[i] + 1;
      if (ceil && room % strides[i] != 0 &&
          // No window starts in the padding at the end.
          w.out[to] * strides[i] < w.in[to] + w.begin[to])
        ++w.out[to];
    }
    elementCount({n, c, w.outSize()}, 8);
  }

private:
  static std::vector<int64_t> get(const Description &d, const char *key,
                                  size_t rank, int64_t fallback) {
    std::vector<int64_t> value =
        fallback ? d.list(key, std::vector<int64_t>(rank, fallback))
                 : d.list(key);
    if (value.size() != rank)
      d.fail(key, "must have one number for each spatial dimension");
    for (int64_t v : value)
      if (v < 1 || v > 1 << 20)
        d.fail(key, std::to_string(v) + " is outside [1, 2^20]");
    return value;
  }
};

class Conv final : public Kernel {
public:
  explicit Conv(const Description &d)
      : type(floatType(d)), g(d, false), gemm(CONCORD_SELECT(gemmTable)),
        table(CONCORD_SELECT(convTable)), size(sizeOf(type)) {
    m = d.size("m", 1, 1 << 24);
    groups = d.i64("group", 1);
    if (groups < 1 || g.c % groups || m % groups)
      d.fail("group", "must divide the channels on both sides");
    bias = d.flag("bias", false);
    residual = d.flag("residual", false);
    packed = d.flag("packed", false);
    Act act = Act(d.choice(
        "act",
        {"none", "relu", "gelu_erf", "gelu_tanh", "silu", "tanh", "sigmoid"},
        0));
    elementCount({g.n, m, g.w.outSize()}, 8);
    numInputs = 2 + bias + residual;
    const Window &w = g.w;
    k = g.c / groups * w.kernelSize();
    elementCount({m, k + 16}, 8);
    depthwise = g.c / groups == 1 && !residual && w.kernelSize() > 1;
    plain = w.kernelSize() == 1;
    for (int i = 0; i < 3; ++i)
      plain = plain && w.stride[i] == 1 && w.begin[i] == 0 && w.end[i] == 0;

    shape.m = m / groups;
    shape.k = k;
    shape.ldc = w.outSize();
    shape.bias = bias ? Bias::Col : Bias::None;
    shape.residual = residual;
    shape.act = act;
    // Rows of the packed weight are padded where their stride would put the
    // rows of a tile into the same cache sets.
    shape.lda = packed && !depthwise && k * size % 2048 == 0 ? k + 16 : k;
    if (packed) {
      packedInput = 1;
      packedWeightBytes =
          std::max<uint64_t>(64, uint64_t(m * shape.lda * size));
    }
    if (depthwise) {
      workspaceBytes = uint64_t(depthwiseSums(w) * sumSizeOf(type));
      return;
    }
    if (plain) {
      shape.n = shape.ldb = w.outSize();
      workspaceBytes = gemm.workspace(type, shape);
      return;
    }
    shape.packed = true;
    int64_t panel = table.panel(type);
    // Patches of a block stay in L2.
    block = std::max<int64_t>(1, (int64_t(512) << 10) /
                                     std::max<int64_t>(1, k * size * panel)) *
            panel;
    block = std::min(block, (w.outSize() + panel - 1) / panel * panel);
    shape.n = shape.ldb = block;
    // A run of a row is written at full width.
    panelBytes = uint64_t(
        (gemm.packedElements(type, k, block) * size + panel * size + 63) / 64 *
        64);
    int64_t padded = paddedElements(w, g.c / groups, panel);
    elementCount({padded}, 8);
    paddedBytes = uint64_t((padded * size + 63) / 64 * 64);
    uint64_t most = gemm.workspace(type, shape);
    shape.n = shape.ldb = std::max<int64_t>(1, w.outSize() % block);
    most = std::max(most, gemm.workspace(type, shape));
    workspaceBytes = paddedBytes + panelBytes + most;
  }

  int32_t pack(const void *weight, void *to) const override {
    if (!packed)
      return Kernel::pack(weight, to);
    for (int64_t i = 0; i < m; ++i)
      memcpy(static_cast<char *>(to) + i * shape.lda * size,
             static_cast<const char *>(weight) + i * k * size,
             size_t(k * size));
    return kOk;
  }

  int32_t run(void *const *pointers, void *workspace) const override {
    const Window &w = g.w;
    Poller poller;
    const char *x = static_cast<const char *>(pointers[0]);
    const char *weight = static_cast<const char *>(pointers[1]);
    const char *biasAt =
        bias ? static_cast<const char *>(pointers[2]) : nullptr;
    const char *residualAt =
        residual ? static_cast<const char *>(pointers[2 + bias]) : nullptr;
    char *y = static_cast<char *>(pointers[numInputs]);
    const int64_t inSize = w.inSize(), outSize = w.outSize();
    const int64_t perGroup = m / groups, channels = g.c / groups;
    for (int64_t image = 0; image < g.n; ++image)
      for (int64_t group = 0; group < groups; ++group) {
        const char *from = x + (image * g.c + group * channels) * inSize * size;
        int64_t outAt = (image * m + group * perGroup) * outSize * size;
        const char *weights = weight + group * perGroup * shape.lda * size;
        if (depthwise) {
          for (int64_t i = 0; i < perGroup; ++i) {
            int64_t channel = group * perGroup + i;
            table.depthwise(type, w, from, weights + i * k * size,
                            bias ? table.element(type, biasAt, channel) : 0,
                            shape.act, y + outAt + i * outSize * size,
                            workspace, poller);
          }
          continue;
        }
        GemmOperands o;
        o.a = weights;
        o.bias = bias ? biasAt + group * perGroup * size : nullptr;
        if (plain) {
          o.b = from;
          o.residual = residual ? residualAt + outAt : nullptr;
          o.c = y + outAt;
          gemm.run(type, shape, o, workspace, poller);
          continue;
        }
        char *panels = static_cast<char *>(workspace) + paddedBytes;
        table.pad(type, w, channels, from, workspace, poller);
        for (int64_t p = 0; p < outSize; p += block) {
          GemmShape part = shape;
          part.n = part.ldb = std::min(block, outSize - p);
          table.patches(type, w, channels, workspace, p, part.n, panels,
                        poller);
          o.b = panels;
          o.residual = residual ? residualAt + outAt + p * size : nullptr;
          o.c = y + outAt + p * size;
          gemm.run(type, part, o, panels + panelBytes, poller);
        }
      }
    return kOk;
  }

private:
  GemmType type;
  Geometry g;
  const GemmTable &gemm; ///< panels are of single elements: not of pairs
  const ConvTable &table;
  int64_t size, m, groups, k;
  int64_t block = 0;
  uint64_t panelBytes = 0, paddedBytes = 0;
  bool bias, residual, packed, depthwise, plain;
  GemmShape shape;
};

class Pool final : public Kernel {
public:
  explicit Pool(const Description &d)
      : type(floatType(d)), g(d, true), table(CONCORD_SELECT(convTable)) {
    numInputs = 1;
    kind = PoolKind(d.choice("op", {"max", "average", "average_with_pad"}));
    workspaceBytes = uint64_t((g.w.in[2] + 16) * sumSizeOf(type));
  }
  int32_t run(void *const *pointers, void *workspace) const override {
    Poller poller;
    table.pool(type, g.w, kind, g.n * g.c, pointers[0], pointers[1], workspace,
               poller);
    return kOk;
  }

private:
  GemmType type;
  Geometry g;
  const ConvTable &table;
  PoolKind kind;
};

} // namespace

void registerConv(Registry &registry) {
  registry.add("conv", make<Conv>);
  registry.add("pool", make<Pool>);
}

} // namespace concord::kernels

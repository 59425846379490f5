//===- Attention.cpp - The `attention` kernel -----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Descriptions to shapes; the loops are in hot/Attention.cpp. docs/kernels.md
// lists the keys.
//
//===----------------------------------------------------------------------===//

#include "AttentionHot.h"
#include "Select.h"

#include <cmath>

namespace concord::kernels {
namespace {

class Attention final : public Kernel {
public:
  explicit Attention(const Description &d)
      : type(floatType(d)), table(CONCORD_SELECT(attentionTable)) {
    if (type == GemmType::F64)
      d.unsupported("dtype", "must be f32, f16 or bf16");
    s.b = d.size("b");
    s.h = d.size("h");
    s.hkv = d.i64("hkv", s.h);
    s.sq = d.size("sq");
    s.sk = d.size("sk");
    s.d = d.size("d", 1, 1 << 16);
    s.dv = d.i64("dv", s.d);
    if (s.dv < 0 || s.dv > 1 << 16)
      d.fail("dv", "is out of range");
    if (s.hkv < 0 || s.hkv > s.h || (s.hkv == 0) != (s.h == 0) ||
        (s.hkv && s.h % s.hkv))
      d.fail("hkv", "must divide h");
    elementCount({s.b, s.h, s.sq, std::max(s.d, s.dv)}, 4);
    elementCount({s.b, s.hkv, s.sk, std::max(s.d, s.dv)}, 4);
    // Dense [b, h, s, d] unless told otherwise.
    strides(d, "qstrides", {s.h * s.sq * s.d, s.sq * s.d, s.d}, s.q, 3);
    strides(d, "kstrides", {s.hkv * s.sk * s.d, s.sk * s.d, s.d}, s.k, 3);
    strides(d, "vstrides", {s.hkv * s.sk * s.dv, s.sk * s.dv, s.dv}, s.v, 3);
    strides(d, "ostrides", {s.h * s.sq * s.dv, s.sq * s.dv, s.dv}, s.o, 3);
    s.scale = d.f64("scale", 1 / std::sqrt(double(s.d)));
    s.softcap = d.f64("softcap", 0);
    s.causal = d.flag("causal", false);
    s.offset = d.i64("offset", 0);
    if (s.offset < -(int64_t(1) << 40) || s.offset > int64_t(1) << 40)
      d.fail("offset", "is out of range");
    s.lengths = d.flag("lengths", false);
    s.mask =
        MaskKind(d.choice("mask", {"none", "bool", "f32", "f16", "bf16"}, 0));
    if (s.mask != MaskKind::None) {
      strides(d, "maskstrides", {s.h * s.sq * s.sk, s.sq * s.sk, s.sk, 1},
              s.maskStrides, 4);
      if (s.maskStrides[3] > 1)
        d.unsupported("maskstrides", "the last stride must be 0 or 1");
    }
    numInputs = 3 + (s.mask != MaskKind::None) + s.lengths;
    workspaceBytes = table.workspace(s);
  }

  int32_t run(void *const *pointers, void *workspace) const override {
    AttentionOperands o;
    o.q = pointers[0];
    o.k = pointers[1];
    o.v = pointers[2];
    uint32_t next = 3;
    if (s.mask != MaskKind::None)
      o.mask = pointers[next++];
    if (s.lengths)
      o.lengths = static_cast<const int64_t *>(pointers[next++]);
    o.o = pointers[next];
    Poller poller;
    table.run(type, s, o, workspace, poller);
    return kOk;
  }

private:
  static void strides(const Description &d, const char *key,
                      const std::vector<int64_t> &fallback, int64_t *to,
                      size_t n) {
    std::vector<int64_t> value = d.list(key, fallback);
    if (value.size() != n)
      d.fail(key, "must have " + std::to_string(n) + " strides");
    for (size_t i = 0; i < n; ++i) {
      if (value[i] < 0 || value[i] > int64_t(1) << 40)
        d.fail(key, "stride " + std::to_string(value[i]) + " is out of range");
      to[i] = value[i];
    }
  }
  GemmType type;
  const AttentionTable &table;
  AttentionShape s;
};

} // namespace

void registerAttention(Registry &registry) {
  registry.add("attention", make<Attention>);
}

} // namespace concord::kernels

//===- AttentionHot.h - Fused attention of one CPU class --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plain data only: compiled for every CPU class.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_ATTENTIONHOT_H
#define CONCORD_KERNELS_ATTENTIONHOT_H

#include "GemmHot.h"

namespace concord::kernels {

enum class MaskKind : int8_t { None, Bool, F32, F16, BF16 };

struct AttentionShape {
  int64_t b = 0, h = 0, hkv = 0, sq = 0, sk = 0, d = 0, dv = 0;
  /// Elements over batch, head, position; the last dimension is contiguous.
  int64_t q[3], k[3], v[3], o[3];
  double scale = 1;
  double softcap = 0;  ///< 0: none
  bool causal = false; ///< key j counts for query i if j <= i + offset
  int64_t offset = 0;
  bool lengths = false; ///< an input of b i64: keys that exist, at most sk
  MaskKind mask = MaskKind::None;
  int64_t maskStrides[4] = {}; ///< over b, h, sq, sk; the last is 0 or 1
};

struct AttentionOperands {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr;
  const int64_t *lengths = nullptr;
  void *o = nullptr;
};

struct AttentionTable {
  uint64_t (*workspace)(const AttentionShape &);
  void (*run)(GemmType, const AttentionShape &, const AttentionOperands &,
              void *workspace, Poller &);
};

extern const AttentionTable attentionTable_v2, attentionTable_v3,
    attentionTable_v4, attentionTable_generic;

} // namespace concord::kernels

#endif // CONCORD_KERNELS_ATTENTIONHOT_H

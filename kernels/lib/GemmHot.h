//===- GemmHot.h - What the GEMM of one CPU class offers --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Plain data only: this header is compiled for every CPU class.
//
// One product, C = act(alpha * A x B + beta * bias + residual), row-major. B is
// read as panels of `nr` columns, element (k, j) of panel p at
// panel[k * nr + j]; the last panel is half as wide if half is enough, and is
// filled with zeros. Every element of C is one chain of fused multiply-adds
// over k in increasing order (of multiplications and additions on x86-64-v2),
// whatever m, n and the blocking are; so a row's bits depend neither on the
// other rows nor on how the columns are split over ranks.
//
// With AVX512_BF16 a panel of bfloat16 has pairs that follow each other in k
// where others have elements, and the chain takes the odd one of each first.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_GEMMHOT_H
#define CONCORD_KERNELS_GEMMHOT_H

#include "Poll.h"

#include <stdint.h>

namespace concord::kernels {

enum class Act : int8_t { None, Relu, GeluErf, GeluTanh, Silu, Tanh, Sigmoid };
enum class Bias : int8_t { None, Row, Col, Full };

/// Types that the blocked GEMM takes; also the index into GemmTable.
enum class GemmType : int8_t { F32, F64, F16, BF16 };

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0; ///< elements
  bool transA = false, transB = false;
  bool packed = false; ///< B is laid out by packB
  Bias bias = Bias::None;
  bool residual = false;
  Act act = Act::None;
  double alpha = 1, beta = 1;
};

struct GemmOperands {
  const void *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  void *c = nullptr;
  /// With members: C is the sum, in this order, of the products of all of them,
  /// of which only number `me` is taken here and parts[m] holds the others',
  /// laid out as C; bias, residual and act come after. The result is stored
  /// there, too: another core has just written those lines, and this way they
  /// are handed back (RowsHot.h says what else the next store to them costs).
  void *const *parts = nullptr;
  int members = 0, me = 0;
};

struct GemmTable {
  /// Bytes of workspace for one run of `shape`.
  uint64_t (*workspace)(GemmType, const GemmShape &shape);
  /// Elements of a packed B.
  int64_t (*packedElements)(GemmType, int64_t k, int64_t n);
  /// B dense or strided (ldb, transB) to panels.
  void (*packB)(GemmType, const GemmShape &shape, const void *b, void *packed);
  void (*run)(GemmType, const GemmShape &shape, const GemmOperands &operands,
              void *workspace, Poller &poller);
};

extern const GemmTable gemmTable_v2, gemmTable_v3, gemmTable_v4,
    gemmTable_generic;
/// Of BF16 only.
extern const GemmTable gemmTable_v4bf16;
/// The table of target().
const GemmTable &gemmTable(GemmType type);

} // namespace concord::kernels

#endif // CONCORD_KERNELS_GEMMHOT_H

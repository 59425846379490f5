//===- FusedKernel.h - What fused kernels have in common --------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The description of a kernel that is one with a collective: its operands, and
// the product inside.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_KERNELS_FUSEDKERNEL_H
#define CONCORD_KERNELS_FUSEDKERNEL_H

#include "RowsHot.h"
#include "Select.h"

#include <algorithm>
#include <memory>

namespace concord::kernels {

/// Rows of a product per part: enough to repay reading B once more, few enough
/// for the partial sums to stay in L2 until the owner reads them; whole tiles
/// of every CPU class but for v3's last.
constexpr int64_t kProductRows = 112;

inline int64_t roundTo(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

class FusedKernel : public Kernel {
public:
  const concord_fused_info *fused() const override { return &info; }
  int32_t run(void *const *, void *) const override {
    return setLastError(kInvalidArgument,
                        "a kernel that is one with a collective is issued, not "
                        "run");
  }
  int32_t pack(const void *weight, void *packed) const override {
    return inner ? inner->pack(weight, packed) : Kernel::pack(weight, packed);
  }

protected:
  void common(const Description &d) {
    info.struct_size = sizeof info;
    info.members = uint32_t(d.size("members", 1, kMostMembers));
    members = int(info.members);
    info.dtype = uint32_t(d.dtype("dtype"));
    type = floatType(d);
  }

  /// The kernel in key `product`.
  void readProduct(const Description &d) {
    Description text = Description::parse(d.string("product"));
    if (text.name() != "gemm")
      d.fail("product", "is not a gemm");
    inner = Registry::all().find("gemm")(text);
    text.requireAllRead();
    if (!inner->product(shape))
      d.unsupported("product", "has batch dimensions or is of integers");
    if (text.dtype("dtype") != DType(info.dtype))
      d.fail("product", "has another dtype");
    if (text.i64("ldc", shape.n) != shape.n)
      d.unsupported("product", "C is not dense");
  }

  uint32_t operand(uint64_t bytes) {
    if (info.num_operands == CONCORD_FUSED_MAX_OPERANDS)
      invalidArgument("a fused kernel with too many operands");
    info.operand_bytes[info.num_operands] = bytes;
    return info.num_operands++;
  }

  /// Operands of the product in front of C. A has `rows` rows.
  void productOperands(int64_t rows) {
    uint64_t es = shape.elementSize;
    operand(uint64_t(rows * shape.k) * es);
    operand(inner->packedWeightBytes ? inner->packedWeightBytes
                                     : uint64_t(shape.k * shape.n) * es);
    // Bias and residual of the product itself: their sizes are not looked at.
    for (uint32_t i = 2; i < inner->numInputs; ++i)
      operand(0);
    if (inner->packedInput != ~0u) {
      packedInput = inner->packedInput;
      packedWeightBytes = inner->packedWeightBytes;
    }
  }

  concord_fused_info info = {};
  int members = 1;
  GemmType type = GemmType::F32;
  std::unique_ptr<Kernel> inner;
  ProductShape shape;
};

/// `fused_dispatch` and `fused_combine` (FusedExchange.cpp).
void registerFusedExchanges(Registry &registry);

} // namespace concord::kernels

#endif // CONCORD_KERNELS_FUSEDKERNEL_H

//===- FusedExchange.cpp - All-to-alls with the products around them ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Mixtures of experts. `fused_dispatch`: an all_to_all of rows with the
// products that take them, one for each group (expert) of this member; a
// member's rows are multiplied where they lie, in the sender's slot for this
// one. `fused_combine`: products of groups, optionally weighed by row and added
// up, with the all_to_all that returns the rows; they are stored at once in the
// owner's result. The runtime calls the steps, one owner after the other
// (engine/Fused.cpp); docs/kernels.md lists the keys.
//
//===----------------------------------------------------------------------===//

#include "FusedKernel.h"

#include <algorithm>
#include <vector>

namespace concord::kernels {
namespace {

// Numbers of concord.h, which this room does not include.
constexpr uint32_t kAllToAll = 4;

/// One product of all groups: the kernel for a group's matrices, and where its
/// operands are.
struct Grouped {
  std::unique_ptr<Kernel> kernel;
  ProductShape shape;
  uint64_t matrixBytes = 0;  ///< of one group's B, packed or not
  uint32_t firstOperand = 0; ///< of B; a bias follows
  uint32_t result = 0;
};

class FusedExchange : public FusedKernel {
protected:
  explicit FusedExchange(const Description &d) {
    common(d);
    groups = d.has("groups") ? d.size("groups", 1) : 1;
    info.kind = kAllToAll;
    info.gathers = 1;
  }

  Grouped readGrouped(const Description &d, const char *key) const {
    Grouped made;
    Description text = Description::parse(d.string(key));
    if (text.name() != "gemm")
      d.fail(key, "is not a gemm");
    if (text.flag("residual", false))
      d.unsupported(key, "has a residual");
    if (text.choice("bias", {"none", "row", "col", "full"}, 0) > 1)
      d.unsupported(key, "has a bias that is no row");
    made.kernel = Registry::all().find("gemm")(text);
    text.requireAllRead();
    if (!made.kernel->product(made.shape))
      d.unsupported(key, "has batch dimensions or is of integers");
    if (text.dtype("dtype") != DType(info.dtype))
      d.fail(key, "has another dtype");
    if (text.i64("ldc", made.shape.n) != made.shape.n ||
        text.i64("lda", made.shape.k) != made.shape.k)
      d.unsupported(key, "A or C is not dense");
    if (made.shape.transA)
      d.unsupported(key, "A is given transposed");
    if (made.shape.m % members)
      d.fail(key, "the rows do not divide by the members");
    const bool packed = made.kernel->packedInput != ~0u;
    made.matrixBytes =
        packed ? made.kernel->packedWeightBytes
               : uint64_t(made.shape.k * made.shape.n) * made.shape.elementSize;
    elementCount({groups, made.shape.m, made.shape.n}, made.shape.elementSize);
    elementCount({groups, int64_t(made.matrixBytes)});
    return made;
  }

  /// B of all groups and the bias that they have in common.
  void operandsOf(Grouped &g) {
    g.firstOperand = operand(uint64_t(groups) * g.matrixBytes);
    if (g.kernel->numInputs > 2)
      operand(0);
  }

  /// The operands of group `index`; A and C are the caller's.
  static void point(const Grouped &g, int64_t index,
                    const concord_fused_step &s, void *a, void *c,
                    void **pointers) {
    pointers[0] = a;
    pointers[1] = static_cast<char *>(s.pointers[g.firstOperand]) +
                  uint64_t(index) * g.matrixBytes;
    uint32_t next = 2;
    if (g.kernel->numInputs > 2)
      pointers[next++] = s.pointers[g.firstOperand + 1];
    pointers[next] = c;
  }

  int64_t groups;
};

class FusedDispatch final : public FusedExchange {
public:
  explicit FusedDispatch(const Description &d) : FusedExchange(d) {
    for (const char *key : {"product", "product1", "product2"})
      if (products.empty() || d.has(key))
        products.push_back(readGrouped(d, key));
    const ProductShape &first = products.front().shape;
    for (const Grouped &g : products)
      if (g.shape.m != first.m || g.shape.k != first.k)
        d.fail("product1", "reads another A than product");
    rows = first.m / members;
    info.parts = 1;
    info.count = uint64_t(rows * first.k);
    info.shared = operand(uint64_t(first.m * first.k) * first.elementSize);
    for (Grouped &g : products)
      operandsOf(g);
    numInputs = info.num_operands;
    for (Grouped &g : products) {
      g.result = operand(uint64_t(groups * g.shape.m * g.shape.n) *
                         g.shape.elementSize);
      workspaceBytes =
          std::max(workspaceBytes, g.kernel->blockWorkspace(rows, g.shape.n));
    }
    numOutputs = info.num_operands - numInputs;
    info.workspace_bytes = workspaceBytes;
  }

  int32_t step(const concord_fused_step &s) const override {
    void *pointers[CONCORD_FUSED_MAX_OPERANDS];
    const int64_t row = int64_t(s.owner) * rows;
    for (const Grouped &g : products) {
      const int64_t es = int64_t(g.shape.elementSize);
      char *a = static_cast<char *>(s.peers[info.shared][s.owner]) +
                int64_t(s.me) * rows * g.shape.k * es;
      for (int64_t index = 0; index < groups; ++index) {
        char *c = static_cast<char *>(s.pointers[g.result]) +
                  index * g.shape.m * g.shape.n * es;
        point(g, index, s, a, c, pointers);
        g.kernel->runBlock({row, rows, 0, g.shape.n, row}, pointers,
                           s.workspace);
      }
    }
    return kOk;
  }

private:
  std::vector<Grouped> products;
  int64_t rows;
};

class FusedCombine final : public FusedExchange {
public:
  explicit FusedCombine(const Description &d)
      : FusedExchange(d), table(CONCORD_SELECT(rowsTable)),
        product(readGrouped(d, "product")) {
    const ProductShape &p = product.shape;
    const uint64_t es = p.elementSize;
    weighed = d.flag("weighed", false);
    if (groups != 1 && !weighed)
      d.fail("groups",
             "are not added up: with more than one, rows are weighed");
    rows = p.m / members;
    info.parts = uint32_t((rows + kProductRows - 1) / kProductRows);
    info.count = uint64_t(rows * p.n);
    a = operand(uint64_t(groups * p.m * p.k) * es);
    operandsOf(product);
    if (weighed)
      factors = operand(uint64_t(groups * p.m) * es);
    numInputs = info.num_operands;
    product.result = info.shared = operand(uint64_t(p.m * p.n) * es);
    info.written = 1u << product.result;
    numOutputs = 1;
    const int64_t most = std::min(rows, kProductRows);
    innerBytes = uint64_t(
        roundTo(int64_t(product.kernel->blockWorkspace(most, p.n)), 64));
    blockBytes =
        weighed ? uint64_t(roundTo(groups * most * p.n * int64_t(es), 64)) : 0;
    workspaceBytes = innerBytes + blockBytes;
    if (weighed)
      workspaceBytes += uint64_t(roundTo(p.n * int64_t(es), 64));
    info.workspace_bytes = workspaceBytes;
  }

  int32_t step(const concord_fused_step &s) const override {
    const ProductShape &p = product.shape;
    const int64_t es = int64_t(p.elementSize);
    // Rows of the owner: where they are here, and in its slot for this member.
    const int64_t begin = int64_t(s.part) * kProductRows;
    const int64_t count = std::min(kProductRows, rows - begin);
    const int64_t row = int64_t(s.owner) * rows + begin;
    char *scratch = static_cast<char *>(s.workspace);
    char *to = static_cast<char *>(s.peers[product.result][s.owner]) +
               (int64_t(s.me) * rows + begin) * p.n * es;
    char *block = scratch + innerBytes;
    void *pointers[CONCORD_FUSED_MAX_OPERANDS];
    for (int64_t index = 0; index < groups; ++index) {
      char *from =
          static_cast<char *>(s.pointers[a]) + (index * p.m + row) * p.k * es;
      char *c = weighed ? block + index * count * p.n * es : to;
      point(product, index, s, from, c, pointers);
      product.kernel->runBlock({0, count, 0, p.n, 0}, pointers, scratch);
    }
    if (!weighed)
      return kOk;
    MixShape shape;
    shape.rows = count;
    shape.cols = p.n;
    shape.groups = groups;
    shape.factorStride = p.m;
    shape.stream = s.stream != 0;
    Poller poller;
    table.mix(type, shape, block,
              static_cast<char *>(s.pointers[factors]) + row * es, to,
              block + blockBytes, poller);
    return kOk;
  }

private:
  const RowsTable &table;
  Grouped product;
  bool weighed;
  int64_t rows;
  uint32_t a = 0, factors = 0;
  uint64_t innerBytes = 0, blockBytes = 0;
};

} // namespace

void registerFusedExchanges(Registry &registry) {
  registry.add("fused_dispatch", make<FusedDispatch>);
  registry.add("fused_combine", make<FusedCombine>);
}

} // namespace concord::kernels

//===- Fused.cpp - Kernels that are one with a collective -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `fused_reduce`: an all_reduce or reduce_scatter with what comes before it (a
// matrix product) and after it (bias, residual, normalisation). `fused_gather`:
// an all_gather of the rows of A with the product that uses them. The runtime
// calls the steps (engine/Fused.cpp); docs/kernels.md lists the keys.
//
// The rows, or for few rows the columns, of the result are divided among the
// members; each finishes its own share from all members' partial results, in
// group order, so that the bits are those of the separate operations for f32
// and f64. With 16-bit types the sum stays in f32 up to the end: fewer
// roundings.
//
//===----------------------------------------------------------------------===//

#include "FusedKernel.h"

#include <algorithm>
#include <cstring>

namespace concord::kernels {
namespace {

// Numbers of concord.h, which this room does not include.
constexpr uint32_t kAllReduce = 1, kAllGather = 2, kReduceScatter = 3, kSum = 1;

/// Bytes of a part without a product: between two looks at other operations.
constexpr int64_t kPlainBytes = 128 << 10;
/// Partial sums of all members that lie in a cache: the result is exchanged
/// through them. Beyond, that would be another way through memory.
constexpr int64_t kExchangeBytes = 16 << 20;

class FusedReduce final : public FusedKernel {
public:
  explicit FusedReduce(const Description &d)
      : table(CONCORD_SELECT(rowsTable)) {
    common(d);
    rows = d.size("rows");
    cols = d.size("cols", 1);
    elementCount({rows, cols, members}, 8);
    const uint64_t es = uint64_t(sizeOf(type));
    norm = d.choice("norm", {"none", "layernorm", "rmsnorm"}, 0);
    eps = d.f64("eps", 1e-5);
    bool gamma = d.flag("gamma", false), beta = d.flag("beta", false);
    bool bias = d.flag("bias", false), residual = d.flag("residual", false);
    bool sum = d.flag("sum", false);
    scatter = d.flag("scatter", false);
    every = d.flag("every", false);
    bool product = d.has("product");
    if (!norm && (gamma || beta || sum))
      d.fail(gamma ? "gamma" : beta ? "beta" : "sum", "needs a norm");
    if (every && (scatter || product))
      d.fail("every", "goes with neither scatter nor product");
    if (scatter && rows % members)
      d.fail("scatter", "the rows do not divide by the members");
    if (product) {
      readProduct(d);
      if (shape.m != rows || shape.n != cols)
        d.fail("product", "is not of rows x cols");
    }
    shareRows = scatter ? rows / members : rows;

    uint64_t whole = uint64_t(rows * cols) * es;
    uint64_t result = uint64_t(shareRows * cols) * es;
    info.kind = scatter ? kReduceScatter : kAllReduce;
    info.reduction = kSum;
    info.count = uint64_t(shareRows * cols);
    if (product)
      productOperands(rows);
    else
      info.shared = operand(whole);
    auto optional = [&](bool present, uint64_t bytes) {
      return present ? int(operand(bytes)) : -1;
    };
    biasAt = optional(bias, uint64_t(cols) * es);
    residualAt = optional(residual, result);
    gammaAt = optional(gamma, uint64_t(cols) * es);
    betaAt = optional(beta, uint64_t(cols) * es);
    numInputs = info.num_operands;
    yAt = int(operand(result));
    sumAt = optional(sum, result);
    if (product)
      info.shared = operand(whole);
    numOutputs = info.num_operands - numInputs;
    info.produces = product && members > 1;
    exchange =
        info.produces && !scatter && int64_t(whole) * members <= kExchangeBytes;
    if (exchange) {
      info.collects = 1;
      info.written = 1u << info.shared;
    } else if (!every && !scatter) {
      info.written = 1u << yAt;
      if (sum)
        info.written |= 1u << sumAt;
    }
    // Whole rows where a row is needed; columns where rows are few.
    byColumns = product && !norm && !scatter &&
                rows < members * kProductRows / 4 &&
                cols >= members * kProductColumns;
    // With more rows, tiles of the others' parts lie so far apart that they
    // push each other out of the cache before they are added.
    ends = byColumns && exchange && shape.plain;
    int64_t share = every ? rows : (rows + members - 1) / members;
    if (byColumns) {
      info.parts = 1;
    } else if (product) {
      info.parts = uint32_t((share + kProductRows - 1) / kProductRows);
    } else {
      int64_t each = std::max<int64_t>(1, kPlainBytes / (cols * int64_t(es)));
      info.parts = uint32_t((share + each - 1) / each);
    }
    innerBytes = 0;
    if (product)
      for (int owner = 0; owner < members; ++owner)
        for (uint32_t part = 0; part < info.parts; ++part) {
          Block b = block(owner, part);
          innerBytes =
              std::max(innerBytes, inner->blockWorkspace(b.rows, b.cols));
        }
    innerBytes = uint64_t(roundTo(int64_t(innerBytes), 64));
    rowBytes = uint64_t(roundTo(roundTo(cols, 16) * sumSizeOf(type), 64));
    workspaceBytes = info.workspace_bytes =
        innerBytes + rowBytes + uint64_t(roundTo(cols * int64_t(es), 64));
  }

  int32_t step(const concord_fused_step &s) const override {
    if (s.what == CONCORD_STEP_COLLECT) {
      for (uint32_t part = 0; part < info.parts; ++part)
        collect(block(int(s.owner), part), s);
      return kOk;
    }
    Block b = block(s.what == CONCORD_STEP_PRODUCE ? int(s.owner) : int(s.me),
                    s.part);
    if (b.rows == 0 || b.cols == 0)
      return kOk;
    char *scratch = static_cast<char *>(s.workspace);
    if (s.what == CONCORD_STEP_COMBINE && ends && !s.stream) {
      end(b, s, scratch);
      return kOk;
    }
    if (inner)
      compute(b, s, scratch);
    if (s.what == CONCORD_STEP_PRODUCE)
      return kOk;
    combine(b, s, scratch + innerBytes);
    return kOk;
  }

private:
  struct Block {
    int64_t row, rows, col, cols;
  };

  /// Part `part` of the share of `owner`.
  Block block(int owner, int64_t part) const {
    auto cut = [](int64_t n, int64_t i, int64_t of) { return n * i / of; };
    if (byColumns) {
      int64_t units = (cols + kProductColumns - 1) / kProductColumns;
      int64_t c0 = cut(units, owner, members) * kProductColumns;
      int64_t c1 = cut(units, owner + 1, members) * kProductColumns;
      return {0, rows, c0, std::min(cols, c1) - c0};
    }
    int64_t begin = every ? 0 : cut(rows, owner, members);
    int64_t end = every ? rows : cut(rows, owner + 1, members);
    auto edge = [&](int64_t i) {
      // Whole tiles of the product: a last one of few rows costs as much.
      return inner ? std::min(begin + i * kProductRows, end)
                   : begin + cut(end - begin, i, info.parts);
    };
    return {edge(part), edge(part + 1) - edge(part), 0, cols};
  }

  /// This member's partial sums of a block, into its shared operand.
  void compute(const Block &b, const concord_fused_step &s,
               void *scratch) const {
    void *pointers[CONCORD_FUSED_MAX_OPERANDS];
    std::copy_n(s.pointers, inner->numInputs, pointers);
    pointers[inner->numInputs] = s.pointers[info.shared];
    inner->runBlock({b.row, b.rows, b.col, b.cols, 0}, pointers, scratch);
  }

  int64_t offsetOf(const Block &b) const {
    return (b.row * cols + b.col) * int64_t(sizeOf(type));
  }

  /// Product and sum of a block of the own share in one: the own part never
  /// leaves the registers, and the others' arrive while it is computed.
  void end(const Block &b, const concord_fused_step &s, void *scratch) const {
    const int64_t at = offsetOf(b);
    auto operand = [&](int index, int64_t offset) -> char * {
      return index < 0 ? nullptr
                       : static_cast<char *>(s.pointers[index]) + offset;
    };
    void *parts[kMostMembers];
    for (int m = 0; m < members; ++m)
      parts[m] = static_cast<char *>(s.peers[info.shared][m]) + at;
    ProductEnd e;
    e.c = operand(yAt, at);
    e.bias = operand(biasAt, b.col * int64_t(sizeOf(type)));
    e.residual = operand(residualAt, at);
    e.parts = parts;
    e.members = members;
    e.me = int(s.me);
    inner->runBlock({b.row, b.rows, b.col, b.cols, 0}, e, s.pointers, scratch);
  }

  void combine(const Block &b, const concord_fused_step &s,
               void *scratch) const {
    const int64_t es = sizeOf(type);
    const int64_t at = offsetOf(b);
    // Results of a reduce_scatter begin with the own share.
    const int64_t to =
        at - (scatter ? int64_t(s.me) * shareRows * cols * es : 0);
    CombineShape shape;
    shape.rows = b.rows;
    shape.cols = b.cols;
    shape.ld = cols;
    shape.members = members;
    shape.norm = norm != 0;
    shape.rms = norm == 2;
    shape.eps = eps;
    shape.stream = s.stream != 0;
    shape.me = int(s.me);
    // With `every` all read all parts at the same time; in an exchange the
    // result is stored there.
    shape.take = !shape.stream && !every && !exchange;
    shape.rounded = exchange && norm && sumAt >= 0;
    CombineOperands o;
    for (int m = 0; m < members; ++m)
      o.parts[m] = static_cast<char *>(s.peers[info.shared][m]) + at;
    auto input = [&](int index, int64_t offset) -> const void * {
      return index < 0 ? nullptr
                       : static_cast<const char *>(s.pointers[index]) + offset;
    };
    o.bias = input(biasAt, b.col * es);
    o.residual = input(residualAt, to);
    o.gamma = input(gammaAt, 0);
    o.beta = input(betaAt, 0);
    auto output = [&](int index, void **list, int &targets) {
      if (index < 0)
        return;
      bool all = info.written >> index & 1;
      targets = all ? members : 1;
      for (int t = 0; t < targets; ++t)
        // Begin with different targets at different members.
        list[t] =
            static_cast<char *>(all ? s.peers[index][(int(s.me) + t) % members]
                                    : s.pointers[index]) +
            to;
    };
    output(yAt, o.y, shape.yTargets);
    output(sumAt, o.sum, shape.sumTargets);
    if (exchange) {
      void **list = sumAt < 0 ? o.y : o.sum;
      int &targets = sumAt < 0 ? shape.yTargets : shape.sumTargets;
      for (int t = 1; t < members; ++t)
        list[targets++] = o.parts[(int(s.me) + t) % members];
    }
    Poller poller;
    table.combine(type, shape, o, scratch, poller);
  }

  /// Another member's share of the result, from the own partial sums. A norm of
  /// a sum that is wanted, too, is taken here: only one of them fits there.
  void collect(const Block &b, const concord_fused_step &s) const {
    if (b.rows == 0 || b.cols == 0)
      return;
    const int64_t es = sizeOf(type);
    const int64_t at = (b.row * cols + b.col) * es;
    Poller poller;
    char *from = static_cast<char *>(s.pointers[info.shared]) + at;
    char *to = static_cast<char *>(s.pointers[sumAt < 0 ? yAt : sumAt]) + at;
    auto copy = [&](int64_t offset, int64_t bytes) {
      if (s.stream)
        std::memcpy(to + offset, from + offset, size_t(bytes));
      else
        table.takeOver(to + offset, from + offset, bytes, poller);
    };
    if (b.cols == cols)
      copy(0, b.rows * cols * es);
    else
      for (int64_t r = 0; r < b.rows; ++r)
        copy(r * cols * es, b.cols * es);
    if (sumAt < 0)
      return;
    NormShape shape;
    shape.rows = b.rows;
    shape.cols = shape.xStride = shape.yStride = cols;
    shape.eps = eps;
    shape.rms = norm == 2;
    NormOperands o;
    o.x = to;
    o.gamma = gammaAt < 0 ? nullptr : s.pointers[gammaAt];
    o.beta = betaAt < 0 ? nullptr : s.pointers[betaAt];
    o.y = static_cast<char *>(s.pointers[yAt]) + at;
    table.norm(type, shape, o, static_cast<char *>(s.workspace) + innerBytes,
               poller);
  }

  const RowsTable &table;
  int64_t rows, cols, shareRows;
  int norm;
  double eps;
  bool scatter, every, byColumns;
  bool exchange; ///< results go through the partial sums
  bool ends;     ///< the product's last step adds the others' parts
  int biasAt, residualAt, gammaAt, betaAt, yAt, sumAt;
  uint64_t innerBytes, rowBytes;
};

class FusedGather final : public FusedKernel {
public:
  explicit FusedGather(const Description &d) {
    common(d);
    readProduct(d);
    if (shape.transA)
      d.unsupported("product", "A is given transposed");
    if (shape.m % members)
      d.fail("product", "the rows do not divide by the members");
    shareRows = shape.m / members;
    info.kind = kAllGather;
    info.gathers = 1;
    info.parts = 1;
    info.count = uint64_t(shareRows * shape.k);
    productOperands(shareRows);
    info.shared = 0;
    numInputs = info.num_operands;
    operand(uint64_t(shape.m * shape.n) * shape.elementSize);
    numOutputs = 1;
    workspaceBytes = info.workspace_bytes =
        inner->blockWorkspace(shareRows, shape.n);
  }

  int32_t step(const concord_fused_step &s) const override {
    void *pointers[CONCORD_FUSED_MAX_OPERANDS];
    std::copy_n(s.pointers, info.num_operands, pointers);
    pointers[0] = s.peers[0][s.owner];
    int64_t row = int64_t(s.owner) * shareRows;
    inner->runBlock({row, shareRows, 0, shape.n, row}, pointers, s.workspace);
    return kOk;
  }

private:
  int64_t shareRows;
};

} // namespace

void registerFused(Registry &registry) {
  registry.add("fused_reduce", make<FusedReduce>);
  registry.add("fused_gather", make<FusedGather>);
  registerFusedExchanges(registry);
}

} // namespace concord::kernels

//===- Gemm.cpp - The `gemm` kernel ---------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// C[b] = act(alpha * A[b] x B[b] + beta * bias + residual[b]) over a list of
// batch dimensions with element strides per operand; docs/kernels.md lists the
// keys. Floating types go to the blocked product of the CPU class (GemmHot.h),
// integers to plain loops here.
//
//===----------------------------------------------------------------------===//

#include "GemmHot.h"
#include "Select.h"

#include <algorithm>
#include <cstring>

namespace concord::kernels {

const GemmTable &gemmTable(GemmType type) {
#if defined(__x86_64__)
  switch (target()) {
  case Target::V4Bf16:
    return type == GemmType::BF16 ? gemmTable_v4bf16 : gemmTable_v4;
  case Target::V4:
    return gemmTable_v4;
  case Target::V3:
    return gemmTable_v3;
  default:
    return gemmTable_v2;
  }
#else
  return gemmTable_generic;
#endif
}

namespace {

constexpr size_t kMaxBatchDims = 8;

/// Batch dimensions and the strides of one operand over them.
struct Batch {
  std::vector<int64_t> dims;
  std::vector<int64_t> a, b, c, bias;
  int64_t count = 1;

  struct Offsets {
    int64_t a = 0, b = 0, c = 0, bias = 0, packed = 0;
  };
  std::vector<int64_t> packedIndex; ///< strides in matrices, when B is packed

  Offsets offsets(int64_t index) const {
    Offsets o;
    for (size_t d = dims.size(); d-- > 0;) {
      int64_t i = index % dims[d];
      index /= dims[d];
      o.a += i * a[d];
      o.b += i * b[d];
      o.c += i * c[d];
      o.bias += i * bias[d];
      if (!packedIndex.empty())
        o.packed += i * packedIndex[d];
    }
    return o;
  }
};

/// All that floating and integer products share.
struct Parsed {
  GemmShape shape;
  Batch batch;
  DType dtype, bType, outType;

  explicit Parsed(const Description &d) {
    shape.m = d.size("m");
    shape.n = d.size("n");
    shape.k = d.size("k");
    dtype = d.dtype("dtype");
    bType = d.dtype("bdtype", dtype);
    bool bytes = dtype == DType::I8 || dtype == DType::U8;
    outType = bytes ? DType::I32 : dtype;
    shape.transA = d.flag("transa", false);
    shape.transB = d.flag("transb", false);
    shape.packed = d.flag("packed", false);
    shape.lda = leading(d, "lda", shape.transA ? shape.m : shape.k);
    shape.ldb = leading(d, "ldb", shape.transB ? shape.k : shape.n);
    shape.ldc = leading(d, "ldc", shape.n);
    shape.bias = Bias(d.choice("bias", {"none", "row", "col", "full"}, 0));
    shape.residual = d.flag("residual", false);
    shape.act = Act(d.choice(
        "act",
        {"none", "relu", "gelu_erf", "gelu_tanh", "silu", "tanh", "sigmoid"},
        0));
    shape.alpha = d.f64("alpha", 1);
    shape.beta = d.f64("beta", 1);
    elementCount({shape.m, shape.lda}, 8);
    elementCount({shape.k, std::max(shape.ldb, shape.n)}, 8);
    elementCount({shape.n, std::max(shape.ldb, shape.k)}, 8);
    elementCount({shape.m, shape.ldc}, 8);

    batch.dims = d.list("batch", {});
    if (batch.dims.size() > kMaxBatchDims)
      d.unsupported("batch", "over 8 dimensions");
    batch.count = elementCount(batch.dims);
    batch.a = strides(d, "astrides");
    batch.b = strides(d, "bstrides");
    batch.c = strides(d, "cstrides");
    batch.bias = shape.bias == Bias::Full ? batch.c : strides(d, "biasstrides");
    mergeRows();
  }

private:
  static int64_t leading(const Description &d, const char *key, int64_t least) {
    int64_t value = d.i64(key, least);
    if (value < least || value > int64_t(1) << 40)
      d.fail(key, std::to_string(value) + " is less than a row of " +
                      std::to_string(least) + " elements, or absurd");
    return value;
  }

  std::vector<int64_t> strides(const Description &d, const char *key) const {
    std::vector<int64_t> zeros(batch.dims.size(), 0);
    std::vector<int64_t> value = d.list(key, zeros);
    if (value.size() != batch.dims.size())
      d.fail(key, "must have one stride for each of the " +
                      std::to_string(batch.dims.size()) + " batch dimensions");
    for (int64_t stride : value)
      if (stride < 0 || stride > int64_t(1) << 40)
        d.fail(key, "stride " + std::to_string(stride) + " is out of range");
    return value;
  }

  /// [b, m, k] x one [k, n] is one product of b * m rows.
  void mergeRows() {
    while (!batch.dims.empty() && !shape.transA) {
      int64_t count = batch.dims.back();
      if (batch.b.back() != 0 || batch.a.back() != shape.m * shape.lda ||
          batch.c.back() != shape.m * shape.ldc ||
          (shape.bias != Bias::None && shape.bias != Bias::Full &&
           (batch.bias.back() != 0 || shape.bias == Bias::Col)))
        return;
      shape.m *= count;
      batch.count = count ? batch.count / count : 0;
      if (!count)
        batch.count = 1;
      for (auto *list :
           {&batch.dims, &batch.a, &batch.b, &batch.c, &batch.bias})
        list->pop_back();
      if (!count) {
        batch.dims.clear();
        return;
      }
    }
  }
};

class FloatGemm final : public Kernel {
public:
  FloatGemm(const Description &d, const Parsed &parsed)
      : parsed(parsed), type(floatType(d)), table(gemmTable(type)) {
    const GemmShape &s = parsed.shape;
    if (parsed.bType != parsed.dtype)
      d.unsupported("bdtype", "must equal dtype for floating types");
    elementSize = dtypeSize(parsed.dtype);
    numInputs = 2 + (s.bias != Bias::None) + s.residual;
    workspaceBytes = table.workspace(type, s);
    if (s.packed) {
      packedInput = 1;
      Batch &batch = this->parsed.batch;
      batch.packedIndex.assign(batch.dims.size(), 0);
      matrices = 1;
      for (size_t i = batch.dims.size(); i-- > 0;)
        if (batch.b[i] != 0) {
          batch.packedIndex[i] = matrices;
          matrices *= batch.dims[i];
        }
      matrixElements = table.packedElements(type, s.k, s.n);
      packedWeightBytes =
          uint64_t(elementCount({matrices, matrixElements}, elementSize)) *
          elementSize;
      // A weight of no elements still has an address.
      packedWeightBytes = std::max<uint64_t>(packedWeightBytes, 64);
    }
  }

  int32_t pack(const void *weight, void *packed) const override {
    if (!parsed.shape.packed)
      return Kernel::pack(weight, packed);
    const Batch &batch = parsed.batch;
    for (int64_t index = 0; index < batch.count; ++index) {
      Batch::Offsets o = batch.offsets(index);
      // Broadcast dimensions reach the same matrix again: pack it once.
      bool first = true;
      int64_t rest = index;
      for (size_t d = batch.dims.size(); d-- > 0;) {
        first &= batch.b[d] != 0 || rest % batch.dims[d] == 0;
        rest /= batch.dims[d];
      }
      if (first)
        table.packB(type, parsed.shape,
                    static_cast<const char *>(weight) + o.b * elementSize,
                    static_cast<char *>(packed) +
                        o.packed * matrixElements * elementSize);
    }
    return kOk;
  }

  bool product(ProductShape &out) const override {
    const GemmShape &s = parsed.shape;
    if (parsed.batch.count != 1 || !parsed.batch.dims.empty())
      return false;
    out = {s.m, s.n, s.k, elementSize, s.transA};
    out.plain = s.bias == Bias::None && !s.residual && s.act == Act::None;
    return true;
  }

  uint64_t blockWorkspace(int64_t rows, int64_t columns) const override {
    GemmShape s = parsed.shape;
    s.m = rows;
    s.n = columns;
    return table.workspace(type, s);
  }

  void runBlock(const ProductBlock &b, void *const *pointers,
                void *workspace) const override {
    GemmShape s = blockShape(b);
    uint32_t next = 2;
    int64_t within = b.row * s.ldc + b.column;
    GemmOperands o = blockOperands(b, pointers);
    if (s.bias != Bias::None)
      o.bias = at(pointers[next++], s.bias == Bias::Row   ? b.column
                                    : s.bias == Bias::Col ? b.row
                                                          : within);
    if (s.residual)
      o.residual = at(pointers[next++], within);
    o.c = at(pointers[next], within);
    Poller poller;
    table.run(type, s, o, workspace, poller);
  }

  void runBlock(const ProductBlock &b, const ProductEnd &end,
                void *const *pointers, void *workspace) const override {
    GemmShape s = blockShape(b);
    s.bias = end.bias ? Bias::Row : Bias::None;
    s.beta = 1;
    s.residual = end.residual != nullptr;
    GemmOperands o = blockOperands(b, pointers);
    o.bias = end.bias;
    o.residual = end.residual;
    o.c = end.c;
    o.parts = end.parts;
    o.members = end.members;
    o.me = end.me;
    Poller poller;
    table.run(type, s, o, workspace, poller);
  }

  int32_t run(void *const *pointers, void *workspace) const override {
    const GemmShape &s = parsed.shape;
    uint32_t next = 2;
    auto base = [&](void *pointer, int64_t offset) {
      return static_cast<char *>(pointer) + offset * int64_t(elementSize);
    };
    void *bias = s.bias != Bias::None ? pointers[next++] : nullptr;
    void *residual = s.residual ? pointers[next++] : nullptr;
    void *c = pointers[next];
    Poller poller;
    for (int64_t index = 0; index < parsed.batch.count; ++index) {
      Batch::Offsets o = parsed.batch.offsets(index);
      GemmOperands operands;
      operands.a = base(pointers[0], o.a);
      operands.b =
          base(pointers[1], s.packed ? o.packed * matrixElements : o.b);
      operands.bias = bias ? base(bias, o.bias) : nullptr;
      operands.residual = residual ? base(residual, o.c) : nullptr;
      operands.c = base(c, o.c);
      table.run(type, s, operands, workspace, poller);
    }
    return kOk;
  }

private:
  char *at(void *pointer, int64_t offset) const {
    return static_cast<char *>(pointer) + offset * int64_t(elementSize);
  }
  GemmShape blockShape(const ProductBlock &b) const {
    GemmShape s = parsed.shape;
    s.m = b.rows;
    s.n = b.columns;
    return s;
  }
  /// A and B of a block.
  GemmOperands blockOperands(const ProductBlock &b,
                             void *const *pointers) const {
    const GemmShape &s = parsed.shape;
    GemmOperands o;
    int64_t aRow = b.row - b.firstRowOfA;
    o.a = at(pointers[0], s.transA ? aRow : aRow * s.lda);
    o.b = at(pointers[1], s.packed   ? table.packedElements(type, s.k, b.column)
                          : s.transB ? b.column * s.ldb
                                     : b.column);
    return o;
  }

  Parsed parsed;
  GemmType type;
  const GemmTable &table;
  size_t elementSize;
  int64_t matrices = 0, matrixElements = 0;
};

/// Integers wrap around, as ONNX and the hardware do.
template <class TA, class TB, class TC>
void integerProduct(const GemmShape &s, const TA *a, const TB *b,
                    const TC *bias, const TC *residual, TC *c, Poller &poller) {
  using U = std::make_unsigned_t<TC>;
  for (int64_t i = 0; i < s.m; ++i) {
    TC *row = c + i * s.ldc;
    for (int64_t j = 0; j < s.n; ++j)
      row[j] = 0;
    for (int64_t p = 0; p < s.k; ++p) {
      U x = U(TC(s.transA ? a[p * s.lda + i] : a[i * s.lda + p]));
      const TB *from = s.transB ? b + p : b + p * s.ldb;
      int64_t step = s.transB ? s.ldb : 1;
      for (int64_t j = 0; j < s.n; ++j)
        row[j] = TC(U(row[j]) + x * U(TC(from[j * step])));
      poller.work(s.n / 4);
    }
    for (int64_t j = 0; j < s.n; ++j) {
      U v = U(row[j]);
      if (s.bias == Bias::Row)
        v += U(bias[j]);
      else if (s.bias == Bias::Col)
        v += U(bias[i]);
      else if (s.bias == Bias::Full)
        v += U(bias[i * s.ldc + j]);
      if (s.residual)
        v += U(residual[i * s.ldc + j]);
      row[j] = s.act == Act::Relu && TC(v) < 0 ? TC(0) : TC(v);
    }
  }
}

class IntegerGemm final : public Kernel {
public:
  IntegerGemm(const Description &d, const Parsed &parsed) : parsed(parsed) {
    const GemmShape &s = parsed.shape;
    if (s.packed)
      d.unsupported("packed", "integers are not packed");
    if (s.alpha != 1 || s.beta != 1)
      d.unsupported("alpha", "integers are not scaled");
    if (s.act != Act::None && s.act != Act::Relu)
      d.unsupported("act", "only relu for integers");
    numInputs = 2 + (s.bias != Bias::None) + s.residual;
    auto pick = [&](DType a, DType b, Run fn) {
      if (parsed.dtype == a && parsed.bType == b)
        function = fn;
    };
    pick(DType::I32, DType::I32, &call<int32_t, int32_t, int32_t>);
    pick(DType::U32, DType::U32, &call<uint32_t, uint32_t, uint32_t>);
    pick(DType::I64, DType::I64, &call<int64_t, int64_t, int64_t>);
    pick(DType::U64, DType::U64, &call<uint64_t, uint64_t, uint64_t>);
    pick(DType::U8, DType::U8, &call<uint8_t, uint8_t, int32_t>);
    pick(DType::U8, DType::I8, &call<uint8_t, int8_t, int32_t>);
    pick(DType::I8, DType::U8, &call<int8_t, uint8_t, int32_t>);
    pick(DType::I8, DType::I8, &call<int8_t, int8_t, int32_t>);
    if (!function)
      d.unsupported("dtype", "no product of these element types");
  }

  int32_t run(void *const *pointers, void *) const override {
    Poller poller;
    for (int64_t index = 0; index < parsed.batch.count; ++index)
      function(parsed, pointers, parsed.batch.offsets(index), poller);
    return kOk;
  }

private:
  using Run = void (*)(const Parsed &, void *const *, const Batch::Offsets &,
                       Poller &);
  template <class TA, class TB, class TC>
  static void call(const Parsed &parsed, void *const *pointers,
                   const Batch::Offsets &o, Poller &poller) {
    const GemmShape &s = parsed.shape;
    uint32_t next = 2;
    const TC *bias = nullptr, *residual = nullptr;
    if (s.bias != Bias::None)
      bias = static_cast<const TC *>(pointers[next++]) + o.bias;
    if (s.residual)
      residual = static_cast<const TC *>(pointers[next++]) + o.c;
    integerProduct<TA, TB, TC>(s, static_cast<const TA *>(pointers[0]) + o.a,
                               static_cast<const TB *>(pointers[1]) + o.b, bias,
                               residual,
                               static_cast<TC *>(pointers[next]) + o.c, poller);
  }
  Parsed parsed;
  Run function = nullptr;
};

std::unique_ptr<Kernel> makeGemm(const Description &d) {
  Parsed parsed(d);
  switch (parsed.dtype) {
  case DType::F32:
  case DType::F64:
  case DType::F16:
  case DType::BF16:
    return std::make_unique<FloatGemm>(d, parsed);
  default:
    return std::make_unique<IntegerGemm>(d, parsed);
  }
}

} // namespace

void registerGemm(Registry &registry) { registry.add("gemm", makeGemm); }

} // namespace concord::kernels

//===- Fused.cpp - onnxruntime's fused operators --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model that onnxruntime has saved after its "extended" optimisations has
// nodes of its own: an activation, a bias or a scale joined to the operator
// before. They are taken apart again here, since partitioning, and fusion for
// what one rank computes, have rules for the standard operators. Meanings are
// those of onnxruntime's documentation (docs/ContribOperators.md).
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

#include <algorithm>
#include <numeric>

namespace concord::onnx::detail {

namespace {

/// An operand of a fused product as MatMul takes it: its first dimension moved
/// behind the batches if `batches`, then the last two exchanged if `matrix`.
std::string transposed(FunctionBuilder &b, size_t operand, bool batches,
                       bool matrix) {
  const size_t rank = b.view.inputs[operand].shape.size();
  if (rank < 2 || !(batches || matrix))
    return b.in(operand);
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (batches)
    std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (matrix)
    std::swap(perm[rank - 1], perm[rank - 2]);
  auto made = b.op("Transpose", {b.in(operand)});
  b.set(made, "perm", perm);
  return made.result;
}

std::optional<wire::Function> fusedMatMul(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  auto flag = [&](const char *name) { return node.intAttr(name, 0) != 0; };
  std::string x = transposed(b, 0, flag("transBatchA"), flag("transA"));
  std::string y = transposed(b, 1, flag("transBatchB"), flag("transB"));
  std::string product = b.op("MatMul", {x, y}).result;
  const double alpha = node.floatAttr("alpha", 1.0);
  if (alpha != 1)
    product = b.op("Mul", {product, b.scalar(alpha)}).result;
  return b.results({product});
}

std::optional<wire::Function> fusedGemm(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  std::vector<std::string> operands = {b.in(0), b.in(1)};
  if (b.has(2))
    operands.push_back(b.in(2));
  auto gemm = b.op("Gemm", operands);
  for (const char *name : {"alpha", "beta"})
    b.set(gemm, name, node.floatAttr(name, 1.0));
  for (const char *name : {"transA", "transB"})
    b.set(gemm, name, node.intAttr(name, 0));
  return b.results({b.activation(gemm.result)});
}

std::optional<wire::Function> fusedConv(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  std::vector<std::string> operands = {b.in(0), b.in(1)};
  if (b.has(2))
    operands.push_back(b.in(2));
  auto conv = b.op("Conv", operands);
  b.set(conv, "auto_pad", node.stringAttr("auto_pad", "NOTSET"));
  b.set(conv, "group", node.intAttr("group", 1));
  for (const char *name : {"dilations", "kernel_shape", "pads", "strides"})
    if (node.attribute(name))
      b.set(conv, name, node.intsAttr(name));
  std::string result = conv.result;
  if (b.has(3))
    result = b.add(result, b.in(3));
  return b.results({b.activation(result)});
}

/// The numbers of four bits in the bytes of `x`, lower half first, [rows, -1].
std::string halves(FunctionBuilder &b, const std::string &x, int64_t rows) {
  std::string low =
      b.op("BitwiseAnd", {x, b.cast(b.ints({15}), DType::U8)}).result;
  auto high = b.op("BitShift", {x, b.cast(b.ints({4}), DType::U8)});
  b.set(high, "direction", std::string("RIGHT"));
  auto both =
      b.op("Concat", {b.op("Unsqueeze", {low, b.ints({-1})}).result,
                      b.op("Unsqueeze", {high.result, b.ints({-1})}).result});
  b.set(both, "axis", int64_t{-1});
  return b.op("Reshape", {both.result, b.ints({rows, -1})}).result;
}

/// A product with a matrix [N, K] whose rows are quantised in blocks.
std::optional<wire::Function> matMulNBits(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  const int64_t k = node.intAttr("K", 0), n = node.intAttr("N", 0),
                bits = node.intAttr("bits", 4),
                block = node.intAttr("block_size", 0);
  constexpr int64_t most = int64_t(1) << 31;
  if (k < 1 || n < 1 || block < 1 || k > most || n > most || block > most)
    throw Error("attributes 'K', 'N' and 'block_size' are not numbers of rows, "
                "columns and elements");
  if (bits != 4 && bits != 8)
    throw Error("weights of " + std::to_string(bits) +
                " bits are not supported; 4 and 8 are");
  if (b.has(4))
    throw Error("operand 4, an order of the columns, is not supported");
  const int64_t blocks = (k + block - 1) / block;
  const DType type = b.view.inputs[0].dtype;
  auto numbers = [&](size_t operand) {
    return bits == 4 ? halves(b, b.in(operand), n)
                     : b.op("Reshape", {b.in(operand), b.ints({n, -1})}).result;
  };
  auto perBlock = [&](const std::string &x) {
    return b.op("Reshape", {x, b.ints({n, blocks, 1})}).result;
  };
  std::string weight =
      b.op("Reshape", {b.cast(numbers(1), type), b.ints({n, blocks, block})})
          .result;
  std::string zero = b.scalar(bits == 4 ? 8 : 128);
  if (b.has(3) && b.view.inputs[3].dtype == type) {
    zero = perBlock(b.in(3));
  } else if (b.has(3)) {
    // Rows begin at whole bytes.
    std::string all =
        b.op("Slice", {numbers(3), b.ints({0}), b.ints({blocks}), b.ints({1})})
            .result;
    zero = perBlock(b.cast(all, type));
  }
  weight = b.op("Sub", {weight, zero}).result;
  weight = b.op("Mul", {weight, b.cast(perBlock(b.in(2)), type)}).result;
  weight = b.op("Reshape", {weight, b.ints({n, blocks * block})}).result;
  if (blocks * block != k)
    weight =
        b.op("Slice", {weight, b.ints({0}), b.ints({k}), b.ints({1})}).result;
  auto transposed = b.op("Transpose", {weight});
  b.set(transposed, "perm", std::vector<int64_t>{1, 0});
  std::string product = b.op("MatMul", {b.in(0), transposed.result}).result;
  if (b.has(5))
    product = b.add(product, b.in(5));
  return b.results({product});
}

std::optional<wire::Function> gelu(FunctionBuilder &b, bool approximate) {
  std::string x = b.has(1) ? b.add(b.in(0), b.in(1)) : b.in(0);
  auto made = b.op("Gelu", {x});
  b.set(made, "approximate", std::string(approximate ? "tanh" : "none"));
  return b.results({made.result});
}

std::optional<wire::Function> quickGelu(FunctionBuilder &b) {
  const double alpha = b.view.node->floatAttr("alpha", 1.702);
  std::string x = b.in(0);
  if (alpha != 1)
    x = b.op("Mul", {x, b.scalar(alpha)}).result;
  x = b.op("Sigmoid", {x}).result;
  return b.results({b.op("Mul", {b.in(0), x}).result});
}

std::optional<wire::Function> rmsNorm(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  auto made = b.op("RMSNormalization", {b.in(0), b.in(1)});
  b.set(made, "axis", node.intAttr("axis", -1));
  b.set(made, "epsilon", node.floatAttr("epsilon", 1e-5));
  return b.results({made.result});
}

/// A sum of two or three, and a normalisation of it. The sum is a result too.
std::optional<wire::Function> skipNorm(FunctionBuilder &b, bool simplified) {
  const Node &node = *b.view.node;
  const size_t bias = simplified ? 3 : 4;
  std::string sum = b.add(b.in(0), b.in(1));
  if (b.has(bias))
    sum = b.add(sum, b.in(bias));
  std::vector<std::string> operands = {sum, b.in(2)};
  if (!simplified && b.has(3))
    operands.push_back(b.in(3));
  auto made =
      b.op(simplified ? "RMSNormalization" : "LayerNormalization", operands);
  b.set(made, "axis", int64_t{-1});
  b.set(made, "epsilon", node.floatAttr("epsilon", 1e-12));
  return b.results({made.result, "", "", sum});
}

} // namespace

bool isStandardFused(const std::string &op) {
  // The first one is onnxruntime's, written without a domain of its own.
  return op == "SimplifiedLayerNormalization" || op == "RNN" || op == "GRU" ||
         op == "LSTM";
}

std::optional<wire::Function> fusedFunction(const NodeView &view) {
  const std::string &op = view.node->opType;
  const bool own = view.node->domain == "com.microsoft";
  if (!own && !(view.node->domain.empty() && isStandardFused(op)))
    return std::nullopt;
  struct Entry {
    const char *name;
    size_t least; ///< operands
    std::optional<wire::Function> (*make)(FunctionBuilder &);
    unsigned optional = 0; ///< those of them that may be absent, as bits
  };
  static constexpr Entry entries[] = {
      {"Attention", 2, attention},
      {"BiasGelu", 2, [](FunctionBuilder &b) { return gelu(b, false); }},
      {"EmbedLayerNormalization", 7, embedLayerNorm, 1 << 1 | 1 << 4},
      {"FastGelu", 1, [](FunctionBuilder &b) { return gelu(b, true); }},
      {"FusedConv", 2, fusedConv},
      {"FusedGemm", 2, fusedGemm},
      {"FusedMatMul", 2, fusedMatMul},
      {"Gelu", 1, [](FunctionBuilder &b) { return gelu(b, false); }},
      {"GRU", 3, gatedRecurrentUnit},
      {"GroupQueryAttention", 1, groupQueryAttention},
      {"LSTM", 3, longShortTermMemory},
      {"MatMulNBits", 3, matMulNBits},
      {"MultiHeadAttention", 1, multiHeadAttention},
      {"QuickGelu", 1, quickGelu},
      {"RNN", 3, recurrentNetwork},
      {"RotaryEmbedding", 4, rotaryEmbedding},
      {"SimplifiedLayerNormalization", 2, rmsNorm},
      {"SkipLayerNormalization", 3,
       [](FunctionBuilder &b) { return skipNorm(b, false); }},
      {"SkipSimplifiedLayerNormalization", 3,
       [](FunctionBuilder &b) { return skipNorm(b, true); }},
  };
  for (const Entry &entry : entries) {
    if (op != entry.name)
      continue;
    for (size_t i = 0; i < entry.least; ++i)
      if (!view.hasInput(i) && !(entry.optional >> i & 1))
        throw Error("operand " + std::to_string(i) + " is missing");
    FunctionBuilder builder(view);
    return entry.make(builder);
  }
  return std::nullopt;
}

} // namespace concord::onnx::detail

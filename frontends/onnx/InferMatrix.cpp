//===- InferMatrix.cpp - Shapes of products, reductions and attention
//-------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Matrix products, reductions, the attention family, normalisation over the
// last dimensions, losses, and the collectives that models may already contain.
//
//===----------------------------------------------------------------------===//

#include "Infer.h"
#include "Registry.h"
#include "Wire.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace concord::onnx::detail {

namespace {

Shape matmulShape(const TensorType &a, const TensorType &b) {
  if (a.shape.empty() || b.shape.empty())
    fail("a matrix product of " + text(a) + " and " + text(b));
  Shape x = a.shape, y = b.shape;
  const bool rowVector = x.size() == 1, columnVector = y.size() == 1;
  if (rowVector)
    x.insert(x.begin(), 1);
  if (columnVector)
    y.push_back(1);
  if (x.back() != y[y.size() - 2])
    fail("a matrix product of " + text(a) + " and " + text(b) +
         ": the inner dimensions " + std::to_string(x.back()) + " and " +
         std::to_string(y[y.size() - 2]) + " differ");
  Shape shape =
      broadcast(Shape(x.begin(), x.end() - 2), Shape(y.begin(), y.end() - 2));
  if (!rowVector)
    shape.push_back(x[x.size() - 2]);
  if (!columnVector)
    shape.push_back(y.back());
  return shape;
}

void matmul(NodeView &v) {
  Shape shape = matmulShape(in(v, 0, "A"), in(v, 1, "B"));
  sameDtype(v, 0, 1);
  out(v, 0, v.inputs[0].dtype, std::move(shape));
}

void matmulInteger(NodeView &v) {
  out(v, 0, DType::I32, matmulShape(in(v, 0, "A"), in(v, 1, "B")));
}

void qlinearMatMul(NodeView &v) {
  out(v, 0, in(v, 7, "y_zero_point").dtype,
      matmulShape(in(v, 0, "a"), in(v, 3, "b")));
}

void gemm(NodeView &v) {
  const TensorType &a = in(v, 0, "A");
  const TensorType &b = in(v, 1, "B");
  if (a.shape.size() != 2 || b.shape.size() != 2)
    fail("takes matrices and gets " + text(a) + " and " + text(b));
  sameDtype(v, 0, 1);
  const bool transA = v.node->intAttr("transA", 0) != 0;
  const bool transB = v.node->intAttr("transB", 0) != 0;
  const int64_t m = a.shape[transA ? 1 : 0], k = a.shape[transA ? 0 : 1];
  const int64_t n = b.shape[transB ? 0 : 1];
  if (k != b.shape[transB ? 1 : 0])
    fail("the inner dimensions of " + text(a) + " and " + text(b) +
         " differ (transA " + std::to_string(transA) + ", transB " +
         std::to_string(transB) + ")");
  Shape shape = {m, n};
  if (v.hasInput(2)) {
    sameDtype(v, 0, 2);
    if (broadcast(shape, v.inputs[2].shape) != shape)
      fail("C " + text(v.inputs[2]) + " does not broadcast to " + text(shape));
  }
  out(v, 0, a.dtype, std::move(shape));
}

void einsum(NodeView &v) {
  std::string equation;
  for (char c : v.node->stringAttr("equation", ""))
    if (c != ' ')
      equation += c;
  const size_t arrow = equation.find("->");
  const std::string left = equation.substr(0, arrow);
  std::vector<std::string> terms(1);
  for (char c : left)
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  if (terms.size() != v.inputs.size())
    fail("equation '" + equation + "' has " + std::to_string(terms.size()) +
         " terms for " + std::to_string(v.inputs.size()) + " operands");
  std::map<char, int64_t> sizes;
  std::map<char, int> uses;
  Shape ellipsis;
  for (size_t t = 0; t < terms.size(); ++t) {
    const TensorType &x = in(v, t, "Inputs");
    const size_t dots = terms[t].find("...");
    const size_t letters =
        terms[t].size() - (dots == std::string::npos ? 0 : 3);
    if (dots == std::string::npos ? letters != x.shape.size()
                                  : letters > x.shape.size())
      fail("term '" + terms[t] + "' does not fit " + text(x));
    size_t dim = 0;
    for (size_t c = 0; c < terms[t].size(); ++c) {
      if (c == dots) {
        const size_t covered = x.shape.size() - letters;
        ellipsis = broadcast(ellipsis, Shape(x.shape.begin() + dim,
                                             x.shape.begin() + dim + covered));
        dim += covered;
        c += 2;
        continue;
      }
      const char letter = terms[t][c];
      if (!((letter >= 'a' && letter <= 'z') ||
            (letter >= 'A' && letter <= 'Z')))
        fail("equation '" + equation + "' has the character '" +
             std::string(1, letter) + "'");
      ++uses[letter];
      int64_t &size = sizes.emplace(letter, x.shape[dim]).first->second;
      if (size != x.shape[dim] && size != 1 && x.shape[dim] != 1)
        fail("'" + std::string(1, letter) + "' is " + std::to_string(size) +
             " and " + std::to_string(x.shape[dim]));
      size = std::max(size, x.shape[dim]);
      ++dim;
    }
  }
  std::string right;
  if (arrow != std::string::npos) {
    right = equation.substr(arrow + 2);
  } else {
    if (left.find("...") != std::string::npos)
      right = "...";
    for (const auto &[letter, count] : uses)
      if (count == 1)
        right += letter;
  }
  Shape shape;
  for (size_t c = 0; c < right.size(); ++c) {
    if (right.compare(c, 3, "...") == 0) {
      shape.insert(shape.end(), ellipsis.begin(), ellipsis.end());
      c += 2;
      continue;
    }
    auto it = sizes.find(right[c]);
    if (it == sizes.end())
      fail("equation '" + equation + "': '" + std::string(1, right[c]) +
           "' occurs only in the result");
    shape.push_back(it->second);
  }
  out(v, 0, v.inputs[0].dtype, std::move(shape));
}

Shape reducedShape(const NodeView &v, const TensorType &x,
                   std::vector<int64_t> axes) {
  axes = axesOf(std::move(axes), x.shape.size());
  const bool keep = v.node->intAttr("keepdims", 1) != 0;
  Shape shape;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i)))
      shape.push_back(x.shape[i]);
    else if (keep)
      shape.push_back(1);
  }
  return shape;
}

void reduce(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  std::vector<int64_t> axes =
      axesAttrOrInput(v, 1).value_or(std::vector<int64_t>{});
  if (axes.empty()) {
    if (v.node->intAttr("noop_with_empty_axes", 0) != 0)
      return out(v, 0, x.dtype, x.shape);
    axes.resize(x.shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  out(v, 0, x.dtype, reducedShape(v, x, std::move(axes)));
}

void argReduce(NodeView &v) {
  const TensorType &x = in(v, 0, "data");
  out(v, 0, DType::I64, reducedShape(v, x, {v.node->intAttr("axis", 0)}));
}

void layerNorm(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  in(v, 1, "Scale");
  const int64_t axis = axisOf(v.node->intAttr("axis", -1), x.shape.size());
  for (size_t i : {1, 2})
    if (v.hasInput(i)) {
      const Shape normalised(x.shape.begin() + axis, x.shape.end());
      if (broadcast(normalised, v.inputs[i].shape) != normalised)
        fail("operand " + std::to_string(i) + " " + text(v.inputs[i]) +
             " does not broadcast to the normalised dimensions " +
             text(normalised));
    }
  out(v, 0, v.inputs[1].dtype == x.dtype ? x.dtype : v.inputs[1].dtype,
      x.shape);
  if (v.node->outputs.size() > 1) {
    Shape shape = x.shape;
    std::fill(shape.begin() + axis, shape.end(), 1);
    const DType stash = dtypeAttr(v, "stash_type", DType::F32);
    out(v, 1, stash, shape);
    out(v, 2, stash, shape);
  }
}

void attention(NodeView &v) {
  const TensorType &q = in(v, 0, "Q"), &k = in(v, 1, "K"), &w = in(v, 2, "V");
  const size_t rank = q.shape.size();
  if ((rank != 3 && rank != 4) || k.shape.size() != rank ||
      w.shape.size() != rank)
    fail("Q " + text(q) + ", K " + text(k) + " and V " + text(w) +
         " should all have three or all four dimensions");
  int64_t qHeads, kvHeads, qLength, kvLength, vSize, kSize;
  if (rank == 4) {
    qHeads = q.shape[1], kvHeads = k.shape[1];
    qLength = q.shape[2], kvLength = k.shape[2];
    kSize = k.shape[3], vSize = w.shape[3];
    if (q.shape[3] != kSize)
      fail("Q " + text(q) + " and K " + text(k) + " have different head sizes");
  } else {
    qHeads = v.node->intAttr("q_num_heads", 0);
    kvHeads = v.node->intAttr("kv_num_heads", 0);
    if (qHeads < 1 || kvHeads < 1)
      fail("three-dimensional operands need the attributes q_num_heads and "
           "kv_num_heads");
    if (q.shape[2] % qHeads || k.shape[2] % kvHeads || w.shape[2] % kvHeads ||
        q.shape[2] / qHeads != k.shape[2] / kvHeads)
      fail("Q " + text(q) + ", K " + text(k) + " and V " + text(w) +
           " do not divide into " + std::to_string(qHeads) + " and " +
           std::to_string(kvHeads) + " heads");
    qLength = q.shape[1], kvLength = k.shape[1];
    kSize = k.shape[2] / kvHeads, vSize = w.shape[2] / kvHeads;
  }
  if (k.shape[0] != q.shape[0] || w.shape[0] != q.shape[0] || kvHeads == 0 ||
      qHeads % kvHeads != 0 || (rank == 4 && w.shape[1] != kvHeads) ||
      w.shape[rank == 4 ? 2 : 1] != kvLength)
    fail("Q " + text(q) + ", K " + text(k) + " and V " + text(w) +
         " do not fit each other");
  int64_t total = kvLength;
  if (v.hasInput(4)) {
    if (v.inputs[4].shape.size() != 4)
      fail("past_key is " + text(v.inputs[4]) +
           " and should have four dimensions");
    total += v.inputs[4].shape[2];
  }
  const int64_t batch = q.shape[0];
  if (v.hasInput(3)) {
    const Shape &mask = v.inputs[3].shape;
    const int64_t whole[] = {batch, qHeads, qLength, total};
    bool fits = mask.size() <= 4;
    for (size_t i = 0; fits && i < mask.size(); ++i) {
      const int64_t extent = mask[mask.size() - 1 - i], of = whole[3 - i];
      // Keys behind the end of a mask count for nothing, from opset 24 on.
      fits = extent == 1 || extent == of || (i == 0 && extent < of);
    }
    if (!fits)
      fail("attn_mask is " + text(v.inputs[3]) + " and should broadcast to " +
           text(TensorType{q.dtype, {batch, qHeads, qLength, total}}));
  }
  if (rank == 4)
    out(v, 0, q.dtype, {batch, qHeads, qLength, vSize});
  else
    out(v, 0, q.dtype, {batch, qLength, times(qHeads, vSize)});
  out(v, 1, k.dtype, {batch, kvHeads, total, kSize});
  out(v, 2, w.dtype, {batch, kvHeads, total, vSize});
  out(v, 3, q.dtype, {batch, qHeads, qLength, total});
}

void rotaryEmbedding(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  const TensorType &cosines = in(v, 1, "cos_cache");
  const TensorType &sines = in(v, 2, "sin_cache");
  if (cosines.shape != sines.shape)
    fail("cos_cache " + text(cosines) + " and sin_cache " + text(sines) +
         " differ");
  if (x.shape.size() != 4 &&
      !(x.shape.size() == 3 && v.node->intAttr("num_heads", 0) > 0))
    fail("X is " + text(x) +
         "; it should have four dimensions, or three and num_heads");
  out(v, 0, x.dtype, x.shape);
}

void nllLoss(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  const TensorType &target = in(v, 1, "target");
  if (x.shape.size() < 2 || target.shape.size() + 1 != x.shape.size())
    fail("input " + text(x) + " and target " + text(target) + " do not fit");
  out(v, 0, x.dtype,
      v.node->stringAttr("reduction", "mean") == "none" ? target.shape
                                                        : Shape{});
}

void crossEntropyLoss(NodeView &v) {
  nllLoss(v);
  out(v, 1, v.inputs[0].dtype, v.inputs[0].shape);
}

void det(NodeView &v) {
  const TensorType &x = in(v, 0, "X");
  if (x.shape.size() < 2 || x.shape.back() != x.shape[x.shape.size() - 2])
    fail("takes square matrices and gets " + text(x));
  out(v, 0, x.dtype, Shape(x.shape.begin(), x.shape.end() - 2));
}

// --- collectives; the reader supplies group_size where the model does not ----

int64_t groupSize(const NodeView &v) {
  const int64_t size = v.node->intAttr("group_size", 1);
  if (size < 1 || size > (1 << 16))
    fail("group_size is " + std::to_string(size));
  return size;
}

void allReduce(NodeView &v) {
  in(v, 0, "input");
  for (size_t i = 0; i < v.inputs.size(); ++i)
    out(v, i, v.inputs[i].dtype, v.inputs[i].shape);
}

void allGather(NodeView &v) {
  in(v, 0, "input");
  for (size_t i = 0; i < v.inputs.size(); ++i) {
    Shape shape = v.inputs[i].shape;
    // The schema and the shape function of the original disagree on the
    // default; what runs is 0.
    const int64_t axis = axisOf(v.node->intAttr("axis", 0), shape.size());
    shape[axis] *= groupSize(v);
    out(v, i, v.inputs[i].dtype, std::move(shape));
  }
}

void allToAll(NodeView &v) {
  const TensorType &x = in(v, 0, "input");
  if (x.shape.empty() || x.shape[0] % groupSize(v) != 0)
    fail("dimension 0 of " + text(x) + " does not divide into " +
         std::to_string(groupSize(v)) + " ranks");
  out(v, 0, x.dtype, x.shape);
}

void reduceScatter(NodeView &v) {
  in(v, 0, "input");
  for (size_t i = 0; i < v.inputs.size(); ++i) {
    Shape shape = v.inputs[i].shape;
    if (shape.empty() || shape[0] % groupSize(v) != 0)
      fail("dimension 0 of " + text(v.inputs[i]) + " does not divide into " +
           std::to_string(groupSize(v)) + " ranks");
    shape[0] /= groupSize(v);
    out(v, i, v.inputs[i].dtype, std::move(shape));
  }
}

constexpr std::string_view kMs = "com.microsoft";

constexpr InferEntry kTable[] = {
    {"ArgMax", 1, argReduce},
    {"ArgMin", 1, argReduce},
    {"Attention", 23, attention},
    {"Det", 11, det},
    {"Einsum", 12, einsum},
    {"Gemm", 7, gemm},
    {"LayerNormalization", 17, layerNorm},
    {"MatMul", 1, matmul},
    {"MatMulInteger", 10, matmulInteger},
    {"NegativeLogLikelihoodLoss", 12, nllLoss},
    {"QLinearMatMul", 10, qlinearMatMul},
    {"RMSNormalization", 23, layerNorm},
    {"ReduceL1", 1, reduce},
    {"ReduceL2", 1, reduce},
    {"ReduceLogSum", 1, reduce},
    {"ReduceLogSumExp", 1, reduce},
    {"ReduceMax", 1, reduce},
    {"ReduceMean", 1, reduce},
    {"ReduceMin", 1, reduce},
    {"ReduceProd", 1, reduce},
    {"ReduceSum", 1, reduce},
    {"ReduceSumSquare", 1, reduce},
    {"RotaryEmbedding", 23, rotaryEmbedding},
    {"SoftmaxCrossEntropyLoss", 12, crossEntropyLoss},
    {"AllGather", 1, allGather, kMs, false},
    {"AllReduce", 1, allReduce, kMs, false},
    {"AllToAll", 1, allToAll, kMs, false},
    {"NcclAllGather", 1, allGather, kMs, false},
    {"NcclAllReduce", 1, allReduce, kMs, false},
    {"NcclReduceScatter", 1, reduceScatter, kMs, false},
};

} // namespace

std::span<const InferEntry> matrixOps() { return kTable; }

} // namespace concord::onnx::detail

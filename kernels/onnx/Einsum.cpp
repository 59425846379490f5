//===- Einsum.cpp - Einsum
//--------------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The equation becomes one loop nest: the result's labels outside, the summed
// ones inside, and per operand the stride of every label. A nest of two
// operands is a batch of matrix products wherever strides allow it.
//
//===----------------------------------------------------------------------===//

#include "MatMul.h"
#include "Plan.h"
#include "Strided.h"

#include <algorithm>
#include <cctype>

using namespace concord;
using namespace concord::kernels;
using namespace concord::kernels::onnx;

namespace {

/// Labels of one term, outermost first. An ellipsis stands for labels 256 and
/// up, numbered from the innermost, so that terms of different rank line up.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;

Labels parseTerm(const std::string &term, int rank) {
  Labels labels;
  int letters = 0;
  for (char c : term)
    letters += std::isalpha(static_cast<unsigned char>(c)) ? 1 : 0;
  for (size_t i = 0; i < term.size(); ++i) {
    if (term[i] == '.') {
      require(term.compare(i, 3, "...") == 0, "malformed ellipsis");
      i += 2;
      int hidden = rank - letters;
      require(hidden >= 0, "a term has more labels than dimensions");
      for (int d = hidden - 1; d >= 0; --d)
        labels.push_back(kEllipsis + d);
    } else {
      require(std::isalpha(static_cast<unsigned char>(term[i])) != 0,
              "a label must be a letter");
      labels.push_back(static_cast<unsigned char>(term[i]));
    }
  }
  return labels;
}

struct Nest {
  int outRank = 0, sumRank = 0;
  std::vector<int64_t> outDims, sumDims;
  /// strides[operand][label]; labels of the result first, then summed ones
  std::vector<std::vector<int64_t>> strides;
};

Nest makeNest(const NodeInfo &node) {
  std::string text = node.strAttr("equation", "");
  std::erase(text, ' ');
  size_t arrow = text.find("->");
  std::string left = text.substr(0, arrow);
  std::vector<Labels> terms;
  size_t start = 0;
  for (size_t k = 0; k < node.in.size(); ++k) {
    size_t comma = left.find(',', start);
    require((comma == std::string::npos) == (k + 1 == node.in.size()),
            "the equation has another number of operands");
    terms.push_back(
        parseTerm(left.substr(start, comma - start), node.input(k).rank()));
    require(int(terms.back().size()) == node.input(k).rank(),
            "a term has another number of labels than dimensions");
    start = comma + 1;
  }
  std::map<int, int64_t> sizes;
  std::map<int, int> uses;
  for (size_t k = 0; k < terms.size(); ++k)
    for (size_t d = 0; d < terms[k].size(); ++d) {
      int64_t n = node.in[k].dims[d];
      auto [it, fresh] = sizes.emplace(terms[k][d], n);
      ++uses[terms[k][d]];
      if (fresh || it->second == n || n == 1)
        continue;
      require(it->second == 1, "a label has two sizes");
      it->second = n;
    }
  Labels result;
  if (arrow != std::string::npos) {
    // The ellipsis of the result is the widest of the operands'.
    std::string right = text.substr(arrow + 2);
    int letters = 0, hidden = 0;
    for (char c : right)
      letters += std::isalpha(static_cast<unsigned char>(c)) ? 1 : 0;
    for (auto [label, size] : sizes)
      hidden += label >= kEllipsis ? 1 : 0;
    result = parseTerm(right, letters + hidden);
  } else {
    for (auto it = sizes.rbegin(); it != sizes.rend(); ++it)
      if (it->first >= kEllipsis)
        result.push_back(it->first);
    for (auto [label, count] : uses)
      if (label < kEllipsis && count == 1)
        result.push_back(label);
  }
  Nest nest;
  Labels order = result;
  for (int label : result)
    require(sizes.contains(label), "the result has an unknown label");
  for (auto [label, size] : sizes)
    if (std::find(result.begin(), result.end(), label) == result.end())
      order.push_back(label);
  require(order.size() <= size_t(kMaxRank), "too many labels");
  nest.outRank = int(result.size());
  nest.sumRank = int(order.size() - result.size());
  for (size_t i = 0; i < order.size(); ++i)
    (i < result.size() ? nest.outDims : nest.sumDims)
        .push_back(sizes[order[i]]);
  require(nest.outDims == node.output(0).dims, "the result has another shape");
  for (size_t k = 0; k < terms.size(); ++k) {
    std::vector<int64_t> dense = denseStrides(node.in[k].dims);
    std::vector<int64_t> strides(order.size(), 0);
    for (size_t d = 0; d < terms[k].size(); ++d)
      if (node.in[k].dims[d] != 1) // a label used twice walks the diagonal
        strides[std::find(order.begin(), order.end(), terms[k][d]) -
                order.begin()] += dense[d];
    nest.strides.push_back(strides);
  }
  return nest;
}

/// One loop of a product: its size and its strides in both operands and the
/// result.
struct Loop {
  int64_t dim = 1, a = 0, b = 0, c = 0;

  /// Takes `inner` in as the faster part, if both are one run everywhere.
  bool merge(const Loop &inner) {
    if (dim != 1 && (a != inner.a * inner.dim || b != inner.b * inner.dim ||
                     c != inner.c * inner.dim))
      return false;
    *this = {dim * inner.dim, inner.a, inner.b, inner.c};
    return true;
  }
};

/// A nest of two operands as a batch of matrix products.
struct Product {
  std::vector<Loop> batch;
  Loop m, n, k;
};

/// False when the summed labels do not form one run, or one of them belongs to
/// a single operand.
bool asProduct(const Nest &nest, Product &product) {
  std::vector<int64_t> out = denseStrides(nest.outDims);
  for (int d = 0; d < nest.outRank; ++d) {
    Loop loop{nest.outDims[d], nest.strides[0][d], nest.strides[1][d], out[d]};
    if (loop.dim == 1)
      continue;
    Loop *matrix = loop.a && !loop.b   ? &product.m
                   : !loop.a && loop.b ? &product.n
                                       : nullptr;
    if (matrix && matrix->merge(loop))
      continue;
    if (matrix)
      std::swap(*matrix, loop); // the older one is the outer one
    product.batch.push_back(loop);
  }
  for (int d = 0; d < nest.sumRank; ++d) {
    int at = nest.outRank + d;
    Loop loop{nest.sumDims[d], nest.strides[0][at], nest.strides[1][at], 0};
    if (loop.dim == 1)
      continue;
    if (!loop.a || !loop.b || !product.k.merge(loop))
      return false;
  }
  return product.batch.size() <= size_t(kMaxRank);
}

Body buildProduct(Plan &plan, const Product &product) {
  std::vector<int64_t> dims, a, b, c;
  for (const Loop &loop : product.batch) {
    dims.push_back(loop.dim);
    a.push_back(loop.a);
    b.push_back(loop.b);
    c.push_back(loop.c);
  }
  Loop m = product.m, n = product.n, k = product.k;
  return forNumbers(plan.node.output(0).dtype, [&]<class T>() -> Body {
    In<T> x = plan.read<T>(0), y = plan.read<T>(1);
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      forEachIndex(dims.data(), int(dims.size()), [&](const int64_t *index) {
        int64_t atA = 0, atB = 0, atC = 0;
        for (size_t d = 0; d < dims.size(); ++d) {
          atA += index[d] * a[d];
          atB += index[d] * b[d];
          atC += index[d] * c[d];
        }
        matmul<T>(m.dim, n.dim, k.dim, {r(x) + atA, m.a, k.a},
                  {r(y) + atB, k.b, n.b}, {r(out) + atC, m.c, n.c});
      });
    };
  });
}

Body buildEinsum(Plan &plan) {
  const NodeInfo &node = plan.node;
  require(!node.in.empty() && node.in.size() <= Broadcast::kMaxOperands,
          "1 to 8 operands are supported");
  Nest nest = makeNest(node);
  size_t operands = node.in.size();
  Product product;
  if (operands == 2 && asProduct(nest, product))
    return buildProduct(plan, product);
  int64_t sumCount = 1;
  for (int64_t d : nest.sumDims)
    sumCount *= d;
  return forNumbers(node.output(0).dtype, [&]<class T>() -> Body {
    using Acc =
        std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;
    std::vector<In<T>> inputs;
    for (size_t k = 0; k < operands; ++k)
      inputs.push_back(plan.read<T>(k));
    Out<T> out = plan.write<T>(0);
    return [=](const Run &r) {
      T *dst = r(out);
      const T *base[Broadcast::kMaxOperands];
      for (size_t k = 0; k < operands; ++k)
        base[k] = r(inputs[k]);
      forEachIndex(nest.outDims.data(), nest.outRank, [&](const int64_t *o) {
        const T *at[Broadcast::kMaxOperands];
        for (size_t k = 0; k < operands; ++k) {
          at[k] = base[k];
          for (int d = 0; d < nest.outRank; ++d)
            at[k] += o[d] * nest.strides[k][d];
        }
        Acc sum = 0;
        std::array<int64_t, kMaxRank> index{};
        for (int64_t i = 0; i < sumCount; ++i) {
          Acc value = static_cast<Acc>(*at[0]);
          for (size_t k = 1; k < operands; ++k)
            value *= static_cast<Acc>(*at[k]);
          sum += value;
          for (int d = nest.sumRank - 1; d >= 0; --d) {
            bool more = ++index[d] < nest.sumDims[d];
            int64_t steps = more ? 1 : 1 - nest.sumDims[d];
            for (size_t k = 0; k < operands; ++k)
              at[k] += nest.strides[k][nest.outRank + d] * steps;
            if (more)
              break;
            index[d] = 0;
          }
        }
        *dst++ = static_cast<T>(sum);
      });
    };
  });
}

} // namespace

void onnx::addEinsum(OpTable &ops) { ops["einsum"] = buildEinsum; }

//===- Sharding.cpp - Which dimensions of an operator may be split
//----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The rules of elementwise operators, products, reductions, data movement and
// indexing. Every factor here is tested by running the operator on slices
// (test/unit/onnx/ShardingTest.cpp). What isn't listed is not split.
//
//===----------------------------------------------------------------------===//

#include "Sharding.h"
#include "Infer.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace concord::onnx::detail {

Factor &RuleBuilder::factor(int64_t size, const std::vector<At> &operands,
                            const std::vector<At> &results) {
  if (size <= 1) {
    scratch = {};
    return scratch;
  }
  Factor factor;
  factor.size = size;
  factor.operands.resize(view.inputs.size());
  factor.results.resize(view.outputs.size());
  for (const At &at : operands)
    if (at.tensor < factor.operands.size() && view.hasInput(at.tensor))
      factor.operands[at.tensor] = {static_cast<int32_t>(at.dim), at.outer};
  for (const At &at : results)
    if (hasOut(at.tensor))
      factor.results[at.tensor] = {static_cast<int32_t>(at.dim), at.outer};
  rule.factors.push_back(std::move(factor));
  return rule.factors.back();
}

void RuleBuilder::linear(std::initializer_list<int> operands) {
  rule.linear.emplace_back(operands.begin(), operands.end());
}

void RuleBuilder::linearInAll() {
  sharding::LinearSet all;
  for (size_t i = 0; i < view.inputs.size(); ++i)
    if (view.hasInput(i))
      all.push_back(static_cast<int32_t>(i));
  rule.linear.push_back(std::move(all));
}

int64_t axisIn(const RuleBuilder &b, int64_t axis) {
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  if (axis < 0)
    axis += rank;
  return axis >= 0 && axis < rank ? axis : rank;
}

void untouchedDims(RuleBuilder &b, const std::vector<int64_t> &touched) {
  for (size_t d = 0; d < b.rankIn(0); ++d) {
    if (std::find(touched.begin(), touched.end(), static_cast<int64_t>(d)) !=
        touched.end())
      continue;
    std::vector<At> results;
    for (size_t r = 0; r < b.view.outputs.size(); ++r)
      results.push_back({r, static_cast<int64_t>(d)});
    b.factor(b.in(0)[d], {{0, static_cast<int64_t>(d)}}, results);
  }
}

namespace {

// --- elementwise ------------------------------------------------------------

/// One factor per dimension of the result; an operand has it unless it is
/// broadcast there.
void broadcastDims(RuleBuilder &b, size_t operands) {
  const Shape &result = b.out(0);
  for (size_t d = 0; d < result.size(); ++d) {
    std::vector<At> at, results;
    for (size_t i = 0; i < operands; ++i) {
      if (!b.hasIn(i))
        continue;
      const auto shift = static_cast<int64_t>(result.size() - b.rankIn(i));
      const int64_t dim = static_cast<int64_t>(d) - shift;
      if (dim >= 0 && b.in(i)[dim] != 1)
        at.push_back({i, dim});
    }
    for (size_t r = 0; r < b.view.outputs.size(); ++r)
      results.push_back({r, static_cast<int64_t>(d)});
    b.factor(result[d], at, results);
  }
}

Rule elementwise(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, v.inputs.size());
  return b.take();
}

Rule additive(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, v.inputs.size());
  b.linearInAll();
  return b.take();
}

Rule linearUnary(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, v.inputs.size());
  b.linear({0});
  return b.take();
}

Rule multiply(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, 2);
  b.linear({0});
  b.linear({1});
  return b.take();
}

Rule divide(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, 2);
  if (isFloat(v.inputs[0].dtype)) // integer division rounds
    b.linear({0});
  return b.take();
}

Rule cast(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, 1);
  if (isFloat(v.inputs[0].dtype) && isFloat(v.outputs[0].dtype))
    b.linear({0});
  return b.take();
}

Rule castLike(const NodeView &v) {
  RuleBuilder b(v);
  untouchedDims(b, {});
  return b.take();
}

Rule where(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, 3);
  b.linear({1, 2});
  return b.take();
}

/// Bounds and ratios are scalars: only operand 0 has dimensions.
Rule firstOperandOnly(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, 1);
  return b.take();
}

Rule quantize(const NodeView &v) {
  RuleBuilder b(v);
  if (!b.in(1).empty() && v.inputs[1].numElements() != 1) {
    // One scale per index of the axis. Blocks (equal ranks) are not split.
    const int64_t axis = axisIn(b, v.node->intAttr("axis", 1));
    if (b.rankIn(1) != 1 || axis == static_cast<int64_t>(b.rankIn(0)))
      return {};
    untouchedDims(b, {axis});
    b.factor(b.in(0)[axis], {{0, axis}, {1, 0}, {2, 0}}, {{0, axis}});
    return b.take();
  }
  broadcastDims(b, 1);
  return b.take();
}

// --- along an axis ----------------------------------------------------------

Rule softmax(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  const bool rows =
      opset(v) < 13; // all dimensions from the axis on are one row
  const int64_t axis = axisIn(b, v.node->intAttr("axis", rows ? 1 : -1));
  std::vector<int64_t> touched;
  for (int64_t d = axis; d < rank && (rows || d == axis); ++d)
    touched.push_back(d);
  if (axis == rank && !rows)
    return {};
  untouchedDims(b, touched);
  return b.take();
}

Rule lpNormalization(const NodeView &v) {
  RuleBuilder b(v);
  untouchedDims(b, {axisIn(b, v.node->intAttr("axis", -1))});
  return b.take();
}

Rule cumulative(const NodeView &v) {
  RuleBuilder b(v);
  if (!v.constants[1])
    return {};
  untouchedDims(b, {axisIn(b, v.constants[1]->intAt(0))});
  if (v.node->opType == "CumSum")
    b.linear({0});
  return b.take();
}

Rule topK(const NodeView &v) {
  RuleBuilder b(v);
  untouchedDims(b, {axisIn(b, v.node->intAttr("axis", -1))});
  return b.take();
}

Rule dft(const NodeView &v) {
  RuleBuilder b(v);
  int64_t axis = -2;
  if (opset(v) < 20)
    axis = v.node->intAttr("axis", 1);
  else if (v.hasInput(2)) {
    if (!v.constants[2])
      return {};
    axis = v.constants[2]->intAt(0);
  }
  untouchedDims(b, {axisIn(b, axis), axisIn(b, -1)});
  b.linear({0});
  return b.take();
}

// --- products ---------------------------------------------------------------

void matmulFactors(RuleBuilder &b, size_t left, size_t right) {
  const Shape &x = b.in(left), &y = b.in(right), &r = b.out(0);
  const auto xRank = static_cast<int64_t>(x.size());
  const auto yRank = static_cast<int64_t>(y.size());
  const int64_t batches = std::max({xRank, yRank, int64_t{2}}) - 2;
  for (int64_t d = 0; d < batches; ++d) {
    std::vector<At> at;
    int64_t size = 1;
    const int64_t xDim = d - batches + xRank - 2;
    const int64_t yDim = d - batches + yRank - 2;
    if (xDim >= 0 && x[xDim] != 1) {
      at.push_back({left, xDim});
      size = x[xDim];
    }
    if (yDim >= 0 && y[yDim] != 1) {
      at.push_back({right, yDim});
      size = y[yDim];
    }
    b.factor(size, at, {{0, d}});
  }
  const auto rank = static_cast<int64_t>(r.size());
  if (xRank > 1)
    b.factor(x[xRank - 2], {{left, xRank - 2}},
             {{0, rank - (yRank > 1 ? 2 : 1)}});
  if (yRank > 1)
    b.factor(y[yRank - 1], {{right, yRank - 1}}, {{0, rank - 1}});
  b.factor(x[xRank - 1],
           {{left, xRank - 1}, {right, std::max<int64_t>(yRank - 2, 0)}}, {})
      .reduction = Reduction::Sum;
}

Rule matmul(const NodeView &v) {
  RuleBuilder b(v);
  matmulFactors(b, 0, 1);
  b.linear({0});
  b.linear({1});
  return b.take();
}

Rule matmulInteger(const NodeView &v) {
  RuleBuilder b(v);
  // Zero points per row or column are not split.
  for (size_t i : {2, 3})
    if (v.hasInput(i) && v.inputs[i].numElements() != 1)
      return {};
  matmulFactors(b, 0, 1);
  return b.take();
}

Rule gemm(const NodeView &v) {
  RuleBuilder b(v);
  const bool transA = v.node->intAttr("transA", 0) != 0;
  const bool transB = v.node->intAttr("transB", 0) != 0;
  const int64_t aM = transA ? 1 : 0, bN = transB ? 0 : 1;
  std::vector<At> m = {{0, aM}}, n = {{1, bN}};
  if (v.hasInput(2)) {
    const auto rank = static_cast<int64_t>(b.rankIn(2));
    if (rank == 2 && b.in(2)[0] != 1)
      m.push_back({2, 0});
    if (rank >= 1 && b.in(2)[rank - 1] != 1)
      n.push_back({2, rank - 1});
  }
  b.factor(b.in(0)[aM], m, {{0, 0}});
  b.factor(b.in(1)[bN], n, {{0, 1}});
  Factor &k = b.factor(b.in(0)[1 - aM], {{0, 1 - aM}, {1, 1 - bN}}, {});
  k.reduction = Reduction::Sum;
  if (v.hasInput(2)) {
    k.addends = {2}; // the bias must be counted once
    b.linear({0, 2});
    b.linear({1, 2});
  } else {
    b.linear({0});
    b.linear({1});
  }
  return b.take();
}

Rule einsum(const NodeView &v) {
  RuleBuilder b(v);
  std::string equation;
  for (char c : v.node->stringAttr("equation", ""))
    if (c != ' ')
      equation += c;
  if (equation.find('.') != std::string::npos)
    return {}; // an ellipsis hides dimensions
  const size_t arrow = equation.find("->");
  std::vector<std::string> terms(1);
  std::map<char, int> uses;
  for (char c : equation.substr(0, arrow)) {
    if (c == ',') {
      terms.emplace_back();
    } else {
      terms.back() += c;
      ++uses[c];
    }
  }
  std::string right;
  if (arrow != std::string::npos)
    right = equation.substr(arrow + 2);
  else
    for (const auto &[letter, count] : uses)
      if (count == 1)
        right += letter;
  for (const auto &entry : uses) {
    const char letter = entry.first;
    std::vector<At> at, result;
    int64_t size = 1;
    bool plain = true; // a diagonal or a broadcast is not split
    for (size_t t = 0; t < terms.size(); ++t) {
      const size_t dim = terms[t].find(letter);
      if (dim == std::string::npos)
        continue;
      plain &= terms[t].find(letter, dim + 1) == std::string::npos;
      plain &= size == 1 || size == b.in(t)[dim];
      size = std::max(size, b.in(t)[dim]);
      at.push_back({t, static_cast<int64_t>(dim)});
    }
    for (const At &a : at)
      plain &= b.in(a.tensor)[a.dim] == size;
    if (!plain)
      continue;
    const size_t dim = right.find(letter);
    if (dim != std::string::npos)
      result.push_back({0, static_cast<int64_t>(dim)});
    Factor &factor = b.factor(size, at, result);
    if (result.empty())
      factor.reduction = Reduction::Sum;
  }
  for (int i = 0; i < static_cast<int>(terms.size()); ++i)
    b.linear({i});
  return b.take();
}

// --- reductions -------------------------------------------------------------

Rule reduceDims(const NodeView &v, std::vector<int64_t> axes,
                Reduction reduction, bool isLinear) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  const bool keep = v.node->intAttr("keepdims", 1) != 0;
  for (int64_t &axis : axes)
    axis = axisIn(b, axis);
  int64_t result = 0;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) {
      b.factor(b.in(0)[d], {{0, d}}, {{0, result}});
      ++result;
      continue;
    }
    if (reduction != Reduction::None)
      b.factor(b.in(0)[d], {{0, d}}, {}).reduction = reduction;
    result += keep;
  }
  if (isLinear)
    b.linear({0});
  return b.take();
}

Rule reduce(const NodeView &v) {
  const std::string &op = v.node->opType;
  std::vector<int64_t> axes;
  if (v.node->attribute("axes"))
    axes = v.node->intsAttr("axes");
  else if (v.hasInput(1)) {
    if (!v.constants[1])
      return {};
    axes = v.constants[1]->ints();
  }
  if (axes.empty() && v.node->intAttr("noop_with_empty_axes", 0) == 0) {
    axes.resize(v.inputs[0].shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  // A mean over a part is not the whole's mean divided; nor are the others
  // sums.
  Reduction reduction = Reduction::None;
  if (op == "ReduceSum" || op == "ReduceL1" || op == "ReduceSumSquare")
    reduction = Reduction::Sum;
  else if (op == "ReduceMax")
    reduction = Reduction::Max;
  else if (op == "ReduceMin")
    reduction = Reduction::Min;
  else if (op == "ReduceProd")
    reduction = Reduction::Prod;
  const bool isLinear =
      op == "ReduceSum" || (op == "ReduceMean" && isFloat(v.inputs[0].dtype));
  return reduceDims(v, axes, reduction, isLinear);
}

Rule argReduce(const NodeView &v) {
  return reduceDims(v, {v.node->intAttr("axis", 0)}, Reduction::None, false);
}

// --- movement ---------------------------------------------------------------

/// Both shapes list the same elements in the same order. Walk them from the
/// outside: as long as both walks stand at the same place, the greatest common
/// divisor of what is left of the two current dimensions is a factor of both.
/// What is left when it is 1 is split differently by the two shapes and belongs
/// to no factor, nor does anything inside of it up to the next common boundary.
Rule reshape(const NodeView &v) {
  RuleBuilder b(v);
  b.linear({0});
  const Shape &x = b.in(0), &y = b.out(0);
  if (v.inputs[0].numElements() == 0)
    return b.take();
  size_t i = 0, j = 0;
  int64_t xLeft = 1, yLeft = 1;   // of the current dimensions
  int64_t xOuter = 1, yOuter = 1; // blocks outside within them
  int64_t xDim = -1, yDim = -1;
  while (true) {
    while (xLeft == 1 && i < x.size())
      xLeft = x[i], xDim = static_cast<int64_t>(i++), xOuter = 1;
    while (yLeft == 1 && j < y.size())
      yLeft = y[j], yDim = static_cast<int64_t>(j++), yOuter = 1;
    if (xLeft == 1 || yLeft == 1)
      break;
    const int64_t size = std::gcd(xLeft, yLeft);
    if (size > 1) {
      b.factor(size, {{0, xDim, xOuter}}, {{0, yDim, yOuter}});
      xLeft /= size, xOuter *= size;
      yLeft /= size, yOuter *= size;
      continue;
    }
    // Coprime remainders: go on behind the next boundary that both have.
    int64_t xBlock = xLeft, yBlock = yLeft;
    while (xBlock != yBlock) {
      if (xBlock < yBlock) {
        if (i == x.size())
          return b.take();
        xBlock *= x[i++];
      } else {
        if (j == y.size())
          return b.take();
        yBlock *= y[j++];
      }
    }
    xLeft = yLeft = 1;
  }
  return b.take();
}

Rule transpose(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  std::vector<int64_t> perm = v.node->intsAttr("perm");
  if (perm.empty())
    for (int64_t d = rank; d-- > 0;)
      perm.push_back(d);
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t from = axisIn(b, perm[d]);
    b.factor(b.in(0)[from], {{0, from}}, {{0, d}});
  }
  b.linear({0});
  return b.take();
}

Rule split(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t axis = axisIn(b, v.node->intAttr("axis", 0));
  untouchedDims(b, {axis});
  const auto parts = static_cast<int64_t>(v.outputs.size());
  bool equal = true;
  std::vector<At> results;
  for (int64_t r = 0; r < parts; ++r) {
    equal &= b.hasOut(r) && b.out(r)[axis] * parts == b.in(0)[axis];
    results.push_back({static_cast<size_t>(r), axis});
  }
  if (equal)
    b.factor(b.out(0)[axis], {{0, axis, parts}}, results);
  b.linear({0});
  return b.take();
}

Rule concat(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t axis = axisIn(b, v.node->intAttr("axis", 0));
  const auto parts = static_cast<int64_t>(v.inputs.size());
  for (size_t d = 0; d < b.rankIn(0); ++d) {
    std::vector<At> at;
    bool equal = true;
    for (size_t i = 0; i < v.inputs.size(); ++i) {
      at.push_back({i, static_cast<int64_t>(d)});
      equal &= b.in(i)[d] == b.in(0)[d];
    }
    if (!equal)
      continue;
    b.factor(b.in(0)[d], at,
             {{0, static_cast<int64_t>(d),
               static_cast<int64_t>(d) == axis ? parts : 1}});
  }
  b.linearInAll();
  return b.take();
}

Rule slice(const NodeView &v) {
  RuleBuilder b(v);
  std::vector<int64_t> starts, axes, steps;
  if (opset(v) < 10) {
    starts = v.node->intsAttr("starts");
    axes = v.node->intsAttr("axes");
  } else {
    if (!v.constants[1] || (v.hasInput(3) && !v.constants[3]) ||
        (v.hasInput(4) && !v.constants[4]))
      return {};
    starts = v.constants[1]->ints();
    if (v.hasInput(3))
      axes = v.constants[3]->ints();
    if (v.hasInput(4))
      steps = v.constants[4]->ints();
  }
  std::vector<int64_t> touched;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis =
        axisIn(b, axes.empty() ? static_cast<int64_t>(i) : axes[i]);
    // Whole and forwards: as if it were not listed, but only with an end that
    // still covers a part of the dimension.
    const bool whole = axis < static_cast<int64_t>(b.rankIn(0)) &&
                       starts[i] == 0 && (steps.empty() || steps[i] == 1) &&
                       b.out(0)[axis] == b.in(0)[axis];
    const bool endIsFixed =
        opset(v) < 10 ? v.node->intsAttr("ends")[i] >= 0
                      : v.constants[2] && v.constants[2]->ints()[i] >= 0;
    if (!whole || !endIsFixed)
      touched.push_back(axis);
  }
  untouchedDims(b, touched);
  b.linear({0});
  return b.take();
}

Rule expand(const NodeView &v) {
  RuleBuilder b(v);
  broadcastDims(b, 1);
  b.linear({0});
  return b.take();
}

Rule tile(const NodeView &v) {
  RuleBuilder b(v);
  for (size_t d = 0; d < b.rankIn(0); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (b.in(0)[d] > 0 && b.out(0)[d] > 0)
      b.factor(b.in(0)[d], {{0, dim}}, {{0, dim, b.out(0)[d] / b.in(0)[d]}});
  }
  b.linear({0});
  return b.take();
}

Rule pad(const NodeView &v) {
  RuleBuilder b(v);
  std::vector<int64_t> pads = v.node->intsAttr("pads");
  std::vector<int64_t> axes(b.rankIn(0));
  std::iota(axes.begin(), axes.end(), 0);
  if (!v.node->attribute("pads")) {
    if (!v.constants[1] || (v.hasInput(3) && !v.constants[3]))
      return {};
    pads = v.constants[1]->ints();
    if (v.hasInput(3))
      axes = v.constants[3]->ints();
  }
  std::vector<int64_t> touched;
  for (size_t i = 0; i < axes.size(); ++i)
    if (pads[i] != 0 || pads[i + axes.size()] != 0)
      touched.push_back(axisIn(b, axes[i]));
  untouchedDims(b, touched);
  return b.take();
}

Rule constantOfShape(const NodeView &v) {
  RuleBuilder b(v);
  for (size_t d = 0; d < b.out(0).size(); ++d)
    b.factor(b.out(0)[d], {}, {{0, static_cast<int64_t>(d)}});
  return b.take();
}

Rule trilu(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  untouchedDims(b, {rank - 2, rank - 1});
  b.linear({0});
  return b.take();
}

Rule batchOnly(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  std::vector<int64_t> touched;
  for (int64_t d = 1; d < rank; ++d)
    touched.push_back(d);
  untouchedDims(b, touched);
  b.linear({0});
  return b.take();
}

// --- indexing ---------------------------------------------------------------

Rule gather(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t axis = axisIn(b, v.node->intAttr("axis", 0));
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  const auto indexRank = static_cast<int64_t>(b.rankIn(1));
  if (axis == rank)
    return {};
  for (int64_t d = 0; d < rank; ++d)
    if (d != axis)
      b.factor(b.in(0)[d], {{0, d}}, {{0, d < axis ? d : d - 1 + indexRank}});
  for (int64_t d = 0; d < indexRank; ++d)
    b.factor(b.in(1)[d], {{1, d}}, {{0, axis + d}});
  if (axis == 0) {
    Factor &lookup = b.factor(b.in(0)[0], {{0, 0}}, {});
    lookup.reduction = Reduction::Sum;
    lookup.lookup = true;
  }
  b.linear({0});
  return b.take();
}

Rule gatherElements(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t axis = axisIn(b, v.node->intAttr("axis", 0));
  for (size_t d = 0; d < b.rankIn(0); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (dim != axis && b.in(0)[d] == b.in(1)[d])
      b.factor(b.in(0)[d], {{0, dim}, {1, dim}}, {{0, dim}});
    else if (dim == axis)
      b.factor(b.in(1)[d], {{1, dim}}, {{0, dim}});
  }
  b.linear({0});
  return b.take();
}

Rule gatherND(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t batch = v.node->intAttr("batch_dims", 0);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  const auto indexRank = static_cast<int64_t>(b.rankIn(1));
  const int64_t depth = b.in(1).back();
  for (int64_t d = 0; d < batch; ++d)
    b.factor(b.in(0)[d], {{0, d}, {1, d}}, {{0, d}});
  for (int64_t d = batch; d < indexRank - 1; ++d)
    b.factor(b.in(1)[d], {{1, d}}, {{0, d}});
  for (int64_t d = batch + depth; d < rank; ++d)
    b.factor(b.in(0)[d], {{0, d}}, {{0, d - batch - depth + indexRank - 1}});
  b.linear({0});
  return b.take();
}

bool scatterIsLinear(const NodeView &v) {
  const std::string how = v.node->stringAttr("reduction", "none");
  return how == "none" || how == "add";
}

Rule scatterElements(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t axis = axisIn(b, v.node->intAttr("axis", 0));
  for (size_t d = 0; d < b.rankIn(0); ++d) {
    const auto dim = static_cast<int64_t>(d);
    if (dim != axis && b.in(0)[d] == b.in(1)[d])
      b.factor(b.in(0)[d], {{0, dim}, {1, dim}, {2, dim}}, {{0, dim}});
  }
  if (scatterIsLinear(v))
    b.linear({0, 2});
  return b.take();
}

Rule scatterND(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  const auto indexRank = static_cast<int64_t>(b.rankIn(1));
  const int64_t depth = b.in(1).back();
  for (int64_t d = depth; d < rank; ++d)
    b.factor(b.in(0)[d], {{0, d}, {2, d - depth + indexRank - 1}}, {{0, d}});
  if (scatterIsLinear(v))
    b.linear({0, 2});
  return b.take();
}

Rule tensorScatter(const NodeView &v) {
  RuleBuilder b(v);
  const int64_t axis = axisIn(b, v.node->intAttr("axis", -2));
  for (int64_t d = 0; d < static_cast<int64_t>(b.rankIn(0)); ++d) {
    if (d == axis)
      continue;
    std::vector<At> at = {{0, d}, {1, d}};
    if (d == 0) // where each sequence of the batch stands
      at.push_back({2, 0});
    b.factor(b.in(0)[d], at, {{0, d}});
  }
  return b.take();
}

Rule oneHot(const NodeView &v) {
  RuleBuilder b(v);
  const auto rank = static_cast<int64_t>(b.rankIn(0));
  int64_t axis = v.node->intAttr("axis", -1);
  axis = axis < 0 ? axis + rank + 1 : axis;
  for (int64_t d = 0; d < rank; ++d)
    b.factor(b.in(0)[d], {{0, d}}, {{0, d < axis ? d : d + 1}});
  return b.take();
}

struct Entry {
  std::string_view name;
  ShardFn rule;
};

constexpr Entry kRules[] = {
    {"Add", additive},
    {"And", elementwise},
    {"ArgMax", argReduce},
    {"ArgMin", argReduce},
    {"BitShift", elementwise},
    {"BitwiseAnd", elementwise},
    {"BitwiseOr", elementwise},
    {"BitwiseXor", elementwise},
    {"Cast", cast},
    {"CastLike", castLike},
    {"Col2Im", batchOnly},
    {"Clip", firstOperandOnly},
    {"Concat", concat},
    {"ConstantOfShape", constantOfShape},
    {"CumProd", cumulative},
    {"CumSum", cumulative},
    {"DFT", dft},
    {"DepthToSpace", batchOnly},
    {"DequantizeLinear", quantize},
    {"Div", divide},
    {"Dropout", firstOperandOnly},
    {"Einsum", einsum},
    {"Equal", elementwise},
    {"Expand", expand},
    {"Flatten", reshape},
    {"Gather", gather},
    {"GatherElements", gatherElements},
    {"GatherND", gatherND},
    {"Gemm", gemm},
    {"Greater", elementwise},
    {"GreaterOrEqual", elementwise},
    {"Hardmax", softmax},
    {"Identity", linearUnary},
    {"Less", elementwise},
    {"LessOrEqual", elementwise},
    {"LogSoftmax", softmax},
    {"LpNormalization", lpNormalization},
    {"MatMul", matmul},
    {"MatMulInteger", matmulInteger},
    {"Max", elementwise},
    {"Mean", additive},
    {"Min", elementwise},
    {"Mod", elementwise},
    {"Mul", multiply},
    {"Neg", linearUnary},
    {"OneHot", oneHot},
    {"Or", elementwise},
    {"PRelu", elementwise},
    {"Pad", pad},
    {"Pow", elementwise},
    {"QuantizeLinear", quantize},
    {"ReduceL1", reduce},
    {"ReduceL2", reduce},
    {"ReduceLogSum", reduce},
    {"ReduceLogSumExp", reduce},
    {"ReduceMax", reduce},
    {"ReduceMean", reduce},
    {"ReduceMin", reduce},
    {"ReduceProd", reduce},
    {"ReduceSum", reduce},
    {"ReduceSumSquare", reduce},
    {"Reshape", reshape},
    {"Scatter", scatterElements},
    {"ScatterElements", scatterElements},
    {"ScatterND", scatterND},
    {"Slice", slice},
    {"Softmax", softmax},
    {"SpaceToDepth", batchOnly},
    {"Split", split},
    {"Squeeze", reshape},
    {"Sub", additive},
    {"Sum", additive},
    {"TensorScatter", tensorScatter},
    {"Tile", tile},
    {"TopK", topK},
    {"Transpose", transpose},
    {"Trilu", trilu},
    {"Unsqueeze", reshape},
    {"Where", where},
    {"Xor", elementwise},
};

/// Operators of one operand that treat each element alone.
constexpr std::string_view kUnary[] = {
    "Abs",         "Acos",      "Acosh",
    "Asin",        "Asinh",     "Atan",
    "Atanh",       "BitCast",   "BitwiseNot",
    "Ceil",        "Celu",      "Cos",
    "Cosh",        "Elu",       "Erf",
    "Exp",         "Floor",     "Gelu",
    "HardSigmoid", "HardSwish", "IsInf",
    "IsNaN",       "LeakyRelu", "Log",
    "Mish",        "Not",       "Reciprocal",
    "Relu",        "Round",     "Selu",
    "Shrink",      "Sigmoid",   "Sign",
    "Sin",         "Sinh",      "Softplus",
    "Softsign",    "Sqrt",      "Swish",
    "Tan",         "Tanh",      "ThresholdedRelu"};

} // namespace

ShardFn shardingOf(std::string_view domain, std::string_view name) {
  if (!domain.empty())
    return nullptr;
  for (const Entry &entry : kRules)
    if (entry.name == name)
      return entry.rule;
  for (std::string_view unary : kUnary)
    if (unary == name)
      return elementwise;
  return networkSharding(name);
}

} // namespace concord::onnx::detail

//===- Attention.cpp - Attention and rotary positions ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// softmax(scale Q K^T + mask) V, spelled out or as ONNX's own operator, becomes
// one node that reads and writes [batch, positions, heads, width] by strides,
// so that the transposes around it go away, as do the copies of grouped keys
// and values. Rotary positions likewise.
//
//===----------------------------------------------------------------------===//

#include "recognize/View.h"

#include <cmath>

using namespace mlir;

namespace concord::recognize {
namespace {

/// What stands between the product of queries and keys and the softmax.
struct Scores {
  Value q, k; ///< operands of the product
  Value mask;
  double scale = 1;
  bool causal = false;
  int64_t offset = 0; ///< of the diagonal
  Cover cover;
};

/// Whether `value` is constant and true exactly for column <= row + offset, in
/// every matrix, with at least one true in every row.
bool isCausal(Value value, bool inverted, int64_t rows, int64_t cols,
              int64_t &offset) {
  RankedTensorType type = typeOf(value);
  if (!type.getElementType().isInteger(1) || type.getRank() < 2 ||
      type.getNumElements() != rows * cols || type.getShape().back() != cols)
    return false;
  auto data = constantData(value, /*weights=*/true);
  if (!data)
    return false;
  auto at = [&](int64_t i, int64_t j) {
    return (data->bytes[i * cols + j] != std::byte(0)) != inverted;
  };
  int64_t first = 0;
  while (first < cols && at(0, first))
    ++first;
  offset = first - 1;
  if (offset < 0)
    return false;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      if (at(i, j) != (j <= i + offset))
        return false;
  return true;
}

bool parseScores(Value value, Scores &s) {
  auto op = value.getDefiningOp<NodeOp>();
  if (!op || !value.hasOneUse())
    return false;
  RankedTensorType type = typeOf(value);
  if (isNode(op, "MatMul")) {
    s.q = operandAt(op, 0);
    s.k = operandAt(op, 1);
    s.cover.add(op);
    return typeOf(s.q).getRank() == type.getRank() &&
           typeOf(s.k).getRank() == type.getRank();
  }
  if (isNode(op, "Where")) {
    // What is hidden is given a value that leaves it no weight.
    for (bool inverted : {false, true}) {
      Value visible = operandAt(op, inverted ? 2 : 1);
      auto fill = scalarOf(operandAt(op, inverted ? 1 : 2));
      if (!fill || *fill > -1e4 || s.causal || visible.getType() != type ||
          s.scale != 1)
        continue;
      if (!isCausal(operandAt(op, 0), inverted,
                    type.getShape()[type.getRank() - 2], type.getShape().back(),
                    s.offset))
        continue;
      s.causal = true;
      s.cover.add(op);
      return parseScores(visible, s);
    }
    return false;
  }
  if (auto scalar = withScalar(op)) {
    bool division =
        isNode(op, "Div") && !scalar->scalarFirst && scalar->scalar != 0;
    if (!division && !isNode(op, "Mul"))
      return false;
    s.scale *= division ? 1 / scalar->scalar : scalar->scalar;
    s.cover.add(op);
    return parseScores(scalar->value, s);
  }
  if (isNode(op, "Add") && !s.mask && s.scale == 1) {
    for (int64_t i : {0, 1}) {
      Value inner = operandAt(op, i);
      if (inner.getType() != type)
        continue;
      Scores attempt = s;
      attempt.mask = operandAt(op, 1 - i);
      attempt.cover.add(op);
      if (parseScores(inner, attempt)) {
        s = attempt;
        return true;
      }
    }
  }
  return false;
}

bool maskFits(Value mask, Type element, int64_t rank) {
  if (!mask)
    return true;
  RankedTensorType type = typeOf(mask);
  return type.getRank() <= rank && (type.getElementType() == element ||
                                    type.getElementType().isInteger(1));
}

bool takes(Type element) {
  return element.isF32() || element.isF16() || element.isBF16();
}

/// The attention to be made.
struct Block {
  int64_t b, h, sq, sk, d, dv;
  View q, k, v; ///< [b, h or fewer, positions, width]
  Value mask;
  double scale = 1;
  bool causal = false;
  int64_t offset = 0;
  SmallVector<int64_t> outStrides; ///< of a result that is not transposed
};

/// Makes the node, in place of `root` and of a transpose that follows it.
bool make(Rewrite &rewrite, NodeOp root, const Block &a, const Cover &cover) {
  auto q = headView(a.q), k = headView(a.k), v = headView(a.v);
  if (!q || !k || !v || k->heads != v->heads || a.h % k->heads)
    return false;
  if (q->heads != a.h)
    return false;
  Cover all = cover;
  for (auto *side : {&*q, &*k, &*v})
    all.add(side->cover);
  // A factor of V would have to be a factor of the result.
  if (v->scale != 1 || !all.closed(root))
    return false;
  Operation *last = root;
  SmallVector<int64_t> out = a.outStrides;
  Value result = root.getResult(0);
  if (typeOf(result).getRank() == 4 && result.hasOneUse())
    if (auto next = dyn_cast<NodeOp>(*result.user_begin());
        isNode(next, "Transpose") &&
        intsAttr(next, "perm") == SmallVector<int64_t>{0, 2, 1, 3}) {
      last = next;
      out = {a.sq * a.h * a.dv, a.dv, a.h * a.dv};
    }
  auto array = [](const HeadView &view) {
    return ArrayRef<int64_t>(view.strides);
  };
  NodeOp made = rewrite.make(
      last, "FusedAttention", "concord", 1, {q->base, k->base, v->base, a.mask},
      {rewrite.attr("b", a.b), rewrite.attr("causal", int64_t(a.causal)),
       rewrite.attr("d", a.d), rewrite.attr("dv", a.dv), rewrite.attr("h", a.h),
       rewrite.attr("hkv", k->heads), rewrite.attr("kstrides", array(*k)),
       rewrite.attr("offset", a.offset),
       rewrite.attr("ostrides", ArrayRef<int64_t>(out)),
       rewrite.attr("qstrides", array(*q)),
       rewrite.attr("scale", a.scale * q->scale * k->scale),
       rewrite.attr("sk", a.sk), rewrite.attr("sq", a.sq),
       rewrite.attr("vstrides", array(*v))},
      {last->getResult(0).getType()});
  rewrite.replace(last, made.getResult(0));
  return true;
}

/// [n, s, d] as [1, n, s, d]; four dimensions as they are, in this order.
View fourDims(Value value, bool transposed) {
  View view = View::of(value);
  if (view.dims.size() == 3)
    view.dims.insert(view.dims.begin(), ViewDim{{1, 0}});
  if (transposed)
    std::swap(view.dims[2], view.dims[3]);
  return view;
}

bool spelledOut(Rewrite &rewrite, NodeOp root) {
  RankedTensorType type = typeOf(root.getResult(0));
  int64_t rank = type.getRank();
  Value p = operandAt(root, 0), v = operandAt(root, 1);
  NodeOp softmax = definedBy(p, "Softmax");
  if ((rank != 3 && rank != 4) || !softmax || !takes(type.getElementType()) ||
      type.getNumElements() == 0 || typeOf(p).getNumElements() == 0 ||
      typeOf(p).getRank() != rank || typeOf(v).getRank() != rank ||
      !p.hasOneUse())
    return false;
  int64_t axis = intAttr(softmax, "axis", softmax.getOpset() < 13 ? 1 : -1);
  if (axis != -1 && axis != rank - 1)
    return false;
  Scores s;
  s.cover.add(root);
  s.cover.add(softmax);
  if (!parseScores(operandAt(softmax, 0), s) ||
      !maskFits(s.mask, type.getElementType(), rank) ||
      (s.mask && typeOf(s.mask).getElementType() != type.getElementType()))
    return false;
  ArrayRef<int64_t> shape = typeOf(p).getShape();
  Block a;
  a.b = rank == 4 ? shape[0] : 1;
  a.h = shape[rank - 3];
  a.sq = shape[rank - 2];
  a.sk = shape[rank - 1];
  a.d = typeOf(s.q).getShape().back();
  a.dv = type.getShape().back();
  // Products that broadcast one side's batch are left alone.
  auto batchIs = [&](Value value) {
    return typeOf(value).getShape().drop_back(2) == shape.drop_back(2);
  };
  if (a.d == 0 || !batchIs(s.q) || !batchIs(s.k) || !batchIs(v))
    return false;
  a.q = fourDims(s.q, false);
  a.k = fourDims(s.k, true);
  a.v = fourDims(v, false);
  a.mask = s.mask;
  a.scale = s.scale;
  a.causal = s.causal;
  a.offset = s.offset;
  a.outStrides = {a.h * a.sq * a.dv, a.sq * a.dv, a.dv};
  return make(rewrite, root, a, s.cover);
}

/// ONNX's Attention, without caches and with one result.
bool standard(Rewrite &rewrite, NodeOp root) {
  Value q = operandAt(root, 0), k = operandAt(root, 1), v = operandAt(root, 2);
  RankedTensorType type = typeOf(root.getResult(0));
  int64_t rank = type.getRank();
  if (!takes(type.getElementType()) || type.getNumElements() == 0 ||
      root.resultPosition(0) != 0 || operandAt(root, 4) || operandAt(root, 5) ||
      operandAt(root, 6) || realAttr(root, "softcap", 0) != 0 ||
      typeOf(q).getRank() != rank || typeOf(k).getRank() != rank ||
      typeOf(v).getRank() != rank)
    return false;
  Block a;
  if (rank == 4) {
    a.h = typeOf(q).getDimSize(1);
    a.q = View::of(q);
    a.k = View::of(k);
    a.v = View::of(v);
  } else if (rank == 3) {
    a.h = intAttr(root, "q_num_heads", 0);
    int64_t hkv = intAttr(root, "kv_num_heads", 0);
    auto split = [](Value value, int64_t heads, View &view) {
      ArrayRef<int64_t> shape = typeOf(value).getShape();
      if (heads < 1 || shape[2] % heads || shape[2] == 0)
        return false;
      int64_t width = shape[2] / heads;
      view = View::of(value);
      view.dims = {{{shape[0], shape[1] * shape[2]}},
                   {{heads, width}},
                   {{shape[1], shape[2]}},
                   {{width, 1}}};
      return true;
    };
    if (!split(q, a.h, a.q) || !split(k, hkv, a.k) || !split(v, hkv, a.v))
      return false;
  } else {
    return false;
  }
  a.b = typeOf(q).getDimSize(0);
  a.sq = a.q.dims[2][0].extent;
  a.sk = a.k.dims[2][0].extent;
  a.d = a.q.dims[3][0].extent;
  a.dv = a.v.dims[3][0].extent;
  a.mask = operandAt(root, 3);
  if (a.sk == 0 || a.d == 0 || !maskFits(a.mask, type.getElementType(), 4) ||
      (a.mask && typeOf(a.mask).getShape().back() != a.sk))
    return false;
  a.scale = realAttr(root, "scale", 1 / std::sqrt(double(a.d)));
  if (a.scale == 0)
    a.scale = 1 / std::sqrt(double(a.d));
  a.causal = intAttr(root, "is_causal", 0);
  a.outStrides =
      rank == 4 ? SmallVector<int64_t>{a.h * a.sq * a.dv, a.sq * a.dv, a.dv}
                : SmallVector<int64_t>{a.sq * a.h * a.dv, a.dv, a.h * a.dv};
  Cover cover;
  cover.add(root);
  return make(rewrite, root, a, cover);
}

//===----------------------------------------------------------------------===//
// Rotary positions
//===----------------------------------------------------------------------===//

/// Whether the second half of every row repeats the first.
bool repeatsHalves(Value value, unsigned depth = 0) {
  int64_t width =
      typeOf(value).getShape().empty() ? 0 : typeOf(value).getShape().back();
  if (width == 0 || width % 2 || depth > 8)
    return false;
  if (auto data = constantData(value, /*weights=*/true)) {
    size_t half =
        data->type.numBytes() / data->type.numElements() * (width / 2);
    for (size_t at = 0; at < data->bytes.size(); at += 2 * half)
      if (!std::equal(data->bytes.begin() + at, data->bytes.begin() + at + half,
                      data->bytes.begin() + at + half))
        return false;
    return true;
  }
  auto op = value.getDefiningOp<NodeOp>();
  for (StringRef name :
       {"Unsqueeze", "Reshape", "Squeeze", "Identity", "Cos", "Sin", "Cast"})
    if (isNode(op, name))
      return typeOf(operandAt(op, 0)).getRank() > 0 &&
             typeOf(operandAt(op, 0)).getShape().back() == width &&
             repeatsHalves(operandAt(op, 0), depth + 1);
  if (isNode(op, "Gather") && intAttr(op, "axis", 0) == 0 &&
      typeOf(operandAt(op, 0)).getRank() > 1)
    return repeatsHalves(operandAt(op, 0), depth + 1);
  if (isNode(op, "Mul"))
    if (auto scalar = withScalar(op))
      return repeatsHalves(scalar->value, depth + 1);
  int64_t last = typeOf(value).getRank() - 1;
  return isNode(op, "Concat") && op.getOperands().size() == 2 &&
         op.getOperands()[0] == op.getOperands()[1] &&
         (intAttr(op, "axis", 0) == -1 || intAttr(op, "axis", 0) == last);
}

/// x, when `value` is x[..., from:to] over the last dimension.
Value lastSlice(Value value, int64_t from, int64_t to, Cover &cover) {
  NodeOp op = definedBy(value, "Slice");
  if (!op)
    return {};
  Value x = operandAt(op, 0);
  int64_t rank = typeOf(x).getRank(), width = typeOf(x).getShape().back();
  auto starts = intsAttr(op, "starts"), ends = intsAttr(op, "ends"),
       axes = intsAttr(op, "axes");
  if (Value operand = operandAt(op, 1)) {
    starts = intsOf(operand);
    ends = intsOf(operandAt(op, 2));
    axes = operandAt(op, 3) ? intsOf(operandAt(op, 3)) : std::nullopt;
    if (Value steps = operandAt(op, 4);
        steps && intsOf(steps) != SmallVector<int64_t>{1})
      return {};
  }
  if (!starts || !ends || !axes || starts->size() != 1 || axes->size() != 1 ||
      ends->size() != 1 || ((*axes)[0] != -1 && (*axes)[0] != rank - 1))
    return {};
  auto clamp = [&](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + width : at, 0, width);
  };
  if (clamp((*starts)[0]) != from || clamp((*ends)[0]) != to)
    return {};
  cover.add(op);
  return x;
}

/// cos or sin as rows over batch and positions.
bool tableView(Value value, int64_t b, int64_t s, int64_t width,
               HeadView &out) {
  RankedTensorType type = typeOf(value);
  if (type.getRank() != 4 || type.getDimSize(1) != 1 ||
      type.getDimSize(2) != s || type.getDimSize(3) != width ||
      (type.getDimSize(0) != b && type.getDimSize(0) != 1))
    return false;
  auto view = headView(View::of(value));
  if (!view || view->scale != 1)
    return false;
  out = *view;
  return true;
}

bool makeRotary(Rewrite &rewrite, NodeOp root, Value cos, Value sin,
                Value positions, const HeadView &x, ArrayRef<int64_t> sizes,
                ArrayRef<int64_t> ys, ArrayRef<int64_t> tableStrides,
                int64_t tableRows, int64_t rotary, int64_t interleaved) {
  // The kernel's order of strides is batch, positions, heads.
  int64_t xs[3] = {x.strides[0], x.strides[2], x.strides[1]};
  NodeOp made = rewrite.make(
      root, "FusedRotary", "concord", 1, {x.base, cos, sin, positions},
      {rewrite.attr("b", sizes[0]), rewrite.attr("d", sizes[3]),
       rewrite.attr("h", sizes[1]), rewrite.attr("interleaved", interleaved),
       rewrite.attr("rotary", rotary), rewrite.attr("s", sizes[2]),
       rewrite.attr("tablerows", tableRows),
       rewrite.attr("tablestrides", tableStrides),
       rewrite.attr("xstrides", ArrayRef<int64_t>(xs)),
       rewrite.attr("ystrides", ys)},
      {root.getResult(0).getType()});
  rewrite.replace(root, made.getResult(0));
  return true;
}

bool spelledOutRotary(Rewrite &rewrite, NodeOp root) {
  RankedTensorType type = typeOf(root.getResult(0));
  if (type.getRank() != 4 || !takes(type.getElementType()) ||
      type.getNumElements() == 0 || type.getDimSize(3) % 2)
    return false;
  ArrayRef<int64_t> sizes = type.getShape();
  int64_t half = sizes[3] / 2;
  for (int64_t i : {0, 1}) {
    NodeOp straight = definedBy(operandAt(root, i), "Mul");
    NodeOp turned = definedBy(operandAt(root, 1 - i), "Mul");
    if (!straight || !turned)
      return false;
    for (int64_t j : {0, 1}) {
      NodeOp concat = definedBy(operandAt(turned, j), "Concat");
      if (!concat || concat.getOperands().size() != 2)
        continue;
      NodeOp negated = definedBy(concat.getOperands()[0], "Neg");
      if (!negated)
        continue;
      Cover cover;
      for (NodeOp op : {root, straight, turned, concat, negated})
        cover.add(op);
      Value x = lastSlice(operandAt(negated, 0), half, sizes[3], cover);
      if (!x || x.getType() != type ||
          lastSlice(concat.getOperands()[1], 0, half, cover) != x)
        continue;
      int64_t which = operandAt(straight, 0) == x ? 0 : 1;
      if (operandAt(straight, which) != x || !cover.closed(root))
        continue;
      Value cos = operandAt(straight, 1 - which),
            sin = operandAt(turned, 1 - j);
      HeadView c, s;
      auto from = headView(View::of(x));
      if (!from || from->scale != 1 || from->heads != sizes[1] ||
          !tableView(cos, sizes[0], sizes[2], sizes[3], c) ||
          !tableView(sin, sizes[0], sizes[2], sizes[3], s) ||
          c.strides[0] != s.strides[0] || c.strides[2] != s.strides[2] ||
          !repeatsHalves(cos) || !repeatsHalves(sin))
        continue;
      return makeRotary(
          rewrite, root, c.base, s.base, Value(), *from, sizes,
          {sizes[1] * sizes[2] * sizes[3], sizes[3], sizes[2] * sizes[3]},
          {c.strides[0], c.strides[2]}, 0, sizes[3], 0);
    }
  }
  return false;
}

/// ONNX's RotaryEmbedding.
bool standardRotary(Rewrite &rewrite, NodeOp root) {
  RankedTensorType type = typeOf(root.getResult(0));
  Value x = operandAt(root, 0), cos = operandAt(root, 1),
        sin = operandAt(root, 2), positions = operandAt(root, 3);
  int64_t rank = type.getRank();
  if (!takes(type.getElementType()) || type.getNumElements() == 0 ||
      (rank != 3 && rank != 4) || cos.getType() != sin.getType() ||
      typeOf(cos).getElementType() != type.getElementType())
    return false;
  View view = View::of(x);
  SmallVector<int64_t> sizes(type.getShape()), ys;
  if (rank == 4) {
    ys = {sizes[1] * sizes[2] * sizes[3], sizes[3], sizes[2] * sizes[3]};
  } else {
    int64_t heads = intAttr(root, "num_heads", 0);
    if (heads < 1 || sizes[2] % heads)
      return false;
    int64_t s = sizes[1], hidden = sizes[2], width = hidden / heads;
    view.dims = {{{sizes[0], s * hidden}},
                 {{heads, width}},
                 {{s, hidden}},
                 {{width, 1}}};
    sizes = {sizes[0], heads, s, width};
    ys = {s * hidden, hidden, width};
  }
  int64_t rotary = intAttr(root, "rotary_embedding_dim", 0);
  rotary = rotary ? rotary : sizes[3];
  ArrayRef<int64_t> table = typeOf(cos).getShape();
  if (rotary % 2 || rotary > sizes[3] || table.back() != rotary / 2)
    return false;
  if (positions ? (table.size() != 2 ||
                   !typeOf(positions).getElementType().isInteger(64) ||
                   typeOf(positions).getShape() !=
                       ArrayRef<int64_t>{sizes[0], sizes[2]})
                : table != ArrayRef<int64_t>{sizes[0], sizes[2], rotary / 2})
    return false;
  auto from = headView(view);
  if (!from || from->scale != 1 || from->heads != sizes[1])
    return false;
  return makeRotary(rewrite, root, cos, sin, positions, *from, sizes, ys,
                    {positions ? 0 : sizes[2] * rotary / 2, rotary / 2},
                    positions ? table[0] : 0, rotary,
                    intAttr(root, "interleaved", 0));
}

} // namespace

bool recognizeAttention(Rewrite &rewrite, NodeOp root) {
  if (isNode(root, "Attention"))
    return standard(rewrite, root);
  return isNode(root, "MatMul") && spelledOut(rewrite, root);
}

bool recognizeRotary(Rewrite &rewrite, NodeOp root) {
  if (isNode(root, "RotaryEmbedding"))
    return standardRotary(rewrite, root);
  return isNode(root, "Add") && spelledOutRotary(rewrite, root);
}

} // namespace concord::recognize

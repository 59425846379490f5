//===- Experts.cpp - Tokens go to the owners of their experts -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A mixture of experts with stacked parameters is, whatever the exporter made
// of it, a sum over experts of share[e, t] * f_e(tokens[t]). Which operations
// belong to f is read off their sharding rules: they carry the experts' and
// the tokens' dimensions unchanged from where the tokens meet the parameters
// down to the product with the shares.
//
// Over an axis of P ranks, experts and tokens are both cut in P parts, and the
// tokens of one part get a dimension for where they go: sent[to, from, t, h] is
// tokens[from, t, h] where an expert of part `to` has a share in the token, and
// zero elsewhere. Cut along `from` it is what each rank sends; cut along `to`,
// what each gets: an all_to_all lies between. The weighted sum over a rank's
// own experts is [of, to, t, h]; cut along `of` it is what each computed, cut
// along `to` what its tokens' owners add up: another one. A token that gets
// zeros in place of its values has no share in what they make, so the sum is
// the model's.
//
//===----------------------------------------------------------------------===//

#include "partition/Axis.h"

#include "common/Explain.h"
#include "common/NodeBridge.h"
#include "recognize/Match.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace concord::partition {
namespace {

using namespace recognize;
using sharding::DimRef;
using sharding::Factor;
using sharding::Layout;

struct Mixture {
  NodeOp sum;      ///< over the experts
  NodeOp weighing; ///< the product with `share`
  Value share;     ///< [experts, ..., 1]
  Value tokens;    ///< [..., width], as many rows as tokens
  int64_t experts = 0, rows = 0;
  /// What computes f, in program order.
  llvm::SetVector<Operation *> body;
  /// Operands that read the tokens without the experts' dimension.
  SmallVector<OpOperand *> operands;
  /// Values of the body that are the tokens, once for each expert.
  SmallVector<Value> copies;
};

/// Whether a value is known when the program starts.
bool isStored(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (isa<comm::WeightOp>(op) || op->hasTrait<OpTrait::ConstantLike>())
    return true;
  return isa<NodeOp>(op) && op->getNumOperands() > 0 &&
         llvm::all_of(op->getOperands(), isStored);
}

/// The equation of an Einsum whose operand `at` gets the dimension that comes
/// first in the result in front; empty where the equation does not say which.
std::string withLeadingLabel(StringRef equation, size_t at) {
  std::string all;
  for (char c : equation)
    if (c != ' ')
      all += c;
  auto [left, result] = StringRef(all).split("->");
  SmallVector<StringRef> terms;
  left.split(terms, ',');
  if (result.empty() || result.front() == '.' || at >= terms.size())
    return {};
  std::string made;
  for (size_t i = 0; i < terms.size(); ++i)
    made += (i ? "," : "") + (i == at ? result.take_front().str() : "") +
            terms[i].str();
  return made + "->" + result.str();
}

/// The tensor that `value` holds `times` copies of, one after another.
Value repeated(Value value, int64_t times) {
  while (NodeOp view = definedBy(value, "Reshape"))
    value = operandAt(view, 0);
  if (NodeOp tile = definedBy(value, "Tile")) {
    auto repeats = intsOf(operandAt(tile, 1));
    if (!repeats || repeats->empty() || repeats->front() != times)
      return {};
    for (int64_t other : ArrayRef(*repeats).drop_front())
      if (other != 1)
        return {};
    return operandAt(tile, 0);
  }
  NodeOp expand = definedBy(value, "Expand");
  if (!expand)
    return {};
  Value from = operandAt(expand, 0);
  ArrayRef<int64_t> to = typeOf(value).getShape();
  ArrayRef<int64_t> shape = typeOf(from).getShape();
  if (typeOf(from).getNumElements() * times != typeOf(value).getNumElements())
    return {};
  // Copies lie one after another only when nothing of the tensor lies outside.
  bool inside = false;
  for (size_t i = 0; i < to.size(); ++i) {
    size_t skip = to.size() - shape.size();
    int64_t own = i < skip ? 1 : shape[i - skip];
    if (inside && own != to[i])
      return {};
    inside |= own != 1;
  }
  return from;
}

class Finder {
public:
  std::optional<Mixture> find(NodeOp sum);

private:
  bool reach(Value value);
  bool isTokens(Value value);
  Mixture m;
};

/// Whether `value` is, or may become, the tensor of tokens: one row for each.
bool Finder::isTokens(Value value) {
  RankedTensorType type = typeOf(value);
  if (!type.hasStaticShape() || type.getRank() < 2 ||
      type.getShape().back() == 0 ||
      type.getNumElements() != m.rows * type.getShape().back() ||
      (m.tokens && m.tokens != value))
    return false;
  m.tokens = value;
  return true;
}

/// Follows [experts, tokens..., n] up to the tokens; false when something on
/// the way does more than apply an expert to a token.
bool Finder::reach(Value value) {
  auto op = value.getDefiningOp<NodeOp>();
  RankedTensorType type = typeOf(value);
  if (!op || op->getBlock() != m.sum->getBlock() || type.getRank() < 3 ||
      type.getDimSize(0) != m.experts)
    return false;
  if (m.body.contains(op))
    return true;
  if (Value from = repeated(value, m.experts)) {
    if (!isTokens(from))
      return false;
    m.body.insert(op);
    m.copies.push_back(value);
    return true;
  }
  BoundNode bound;
  bindNode(op, bound);
  if (!bound.def || !bound.def->shard)
    return false;
  sharding::Rule rule;
  // What the reader would have refused can stand in hand-written IR.
  try {
    rule = bound.def->shard(bound.view);
  } catch (const std::exception &) {
    return false;
  }
  int64_t result = 0;
  for (unsigned i = 0; i < op.getNumResults(); ++i)
    if (op.getResult(i) == value)
      result = op.resultPosition(i);
  // One loop for each dimension but the last, in which it may mix elements.
  SmallVector<const Factor *> loops;
  for (int64_t dim = 0; dim + 1 < type.getRank(); ++dim) {
    if (type.getDimSize(dim) == 1)
      continue;
    const Factor *loop = nullptr;
    for (const Factor &factor : rule.factors)
      if (factor.results[result] == DimRef{static_cast<int32_t>(dim), 1} &&
          factor.size == type.getDimSize(dim) &&
          factor.reduction == sharding::Reduction::None)
        loop = &factor;
    if (!loop)
      return false;
    loops.push_back(loop);
  }
  m.body.insert(op);
  for (OpOperand &operand : op->getOpOperands()) {
    int64_t position = op.operandPosition(operand.getOperandNumber());
    if (isStored(operand.get()))
      continue;
    // Rows of tokens must stay rows of tokens.
    for (const Factor *loop : ArrayRef(loops).drop_front())
      if (loop->operands[position].dim < 0)
        return false;
    DimRef experts = loops.front()->operands[position];
    if (experts.dim < 0) {
      if (!isTokens(operand.get()) ||
          (isNode(op, "Einsum") &&
           withLeadingLabel(stringAttr(op, "equation", ""), position).empty()))
        return false;
      m.operands.push_back(&operand);
      continue;
    }
    if (experts != DimRef{0, 1} || !reach(operand.get()))
      return false;
  }
  return true;
}

std::optional<Mixture> Finder::find(NodeOp sum) {
  if (!isNode(sum, "ReduceSum"))
    return std::nullopt;
  RankedTensorType type = typeOf(operandAt(sum, 0));
  auto axes =
      sum.getOpset() < 13 ? intsAttr(sum, "axes") : intsOf(operandAt(sum, 1));
  if (!axes || axes->size() != 1 || type.getRank() < 3 ||
      !type.hasStaticShape() ||
      (axes->front() != 0 && axes->front() != -type.getRank()) ||
      type.getDimSize(0) < 2 || type.getNumElements() == 0)
    return std::nullopt;
  m.sum = sum;
  m.experts = type.getDimSize(0);
  Value value = operandAt(sum, 0);
  while (value.hasOneUse()) {
    NodeOp view = definedBy(value, "Reshape");
    if (!view || typeOf(operandAt(view, 0)).getRank() < 3 ||
        typeOf(operandAt(view, 0)).getDimSize(0) != m.experts)
      break;
    value = operandAt(view, 0);
  }
  m.weighing = definedBy(value, "Mul");
  if (!m.weighing || !value.hasOneUse())
    return std::nullopt;
  type = typeOf(value);
  for (int64_t i : {0, 1}) {
    Value y = operandAt(m.weighing, 1 - i);
    m.share = operandAt(m.weighing, i);
    ArrayRef<int64_t> shape = typeOf(m.share).getShape();
    m.rows = type.getNumElements() / m.experts / type.getShape().back();
    if (y.getType() != type || !isFloat(type.getElementType()) ||
        shape.size() != size_t(type.getRank()) || shape.back() != 1 ||
        shape.drop_back() != type.getShape().drop_back())
      continue;
    m.tokens = {};
    m.body.clear();
    m.operands.clear();
    m.copies.clear();
    if (!reach(y) || !m.tokens ||
        typeOf(m.tokens).getElementType() != type.getElementType())
      continue;
    // Others would see what tokens without a share were replaced with.
    bool closed = true;
    for (Operation *op : m.body)
      for (Operation *user : op->getUsers())
        closed &= m.body.contains(user) || user == m.weighing;
    if (closed)
      return m;
  }
  return std::nullopt;
}

Value int64s(OpBuilder &builder, Location loc, ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())},
                                    builder.getI64Type());
  return arith::ConstantOp::create(builder, loc,
                                   DenseElementsAttr::get(type, values));
}

/// Makes nodes before one operation.
class Maker {
public:
  Maker(Rewrite &rewrite, Operation *root) : rewrite(rewrite), root(root) {}

  Value node(StringRef name, ArrayRef<Value> operands, ArrayRef<int64_t> shape,
             Type element, ArrayRef<NamedAttribute> attributes = {}) {
    Type type = RankedTensorType::get(shape, element);
    return rewrite.make(root, name, "", 13, operands, attributes, {type})
        .getResult(0);
  }
  Value shaped(StringRef name, Value value, ArrayRef<int64_t> shape) {
    return node(name, {value, list(shape)}, shape,
                typeOf(value).getElementType());
  }
  Value sum(Value value, int64_t axis) {
    SmallVector<int64_t> shape(typeOf(value).getShape());
    shape.erase(shape.begin() + axis);
    return node("ReduceSum", {value, list({axis})}, shape,
                typeOf(value).getElementType(),
                {rewrite.attr("keepdims", int64_t(0))});
  }
  Value zero(Type element) {
    rewrite.builder.setInsertionPoint(root);
    auto type = RankedTensorType::get({}, element);
    return arith::ConstantOp::create(
        rewrite.builder, root->getLoc(),
        DenseElementsAttr::get(type, rewrite.builder.getZeroAttr(element)));
  }

private:
  Value list(ArrayRef<int64_t> values) {
    rewrite.builder.setInsertionPoint(root);
    return int64s(rewrite.builder, root->getLoc(), values);
  }
  Rewrite &rewrite;
  Operation *root;
};

void exchange(Rewrite &rewrite, Mixture &m, int64_t parts,
              SmallVectorImpl<Exchange> &exchanges) {
  // What is sent depends on the shares, so the body goes behind them.
  SmallVector<Operation *> body(m.body.begin(), m.body.end());
  llvm::sort(body,
             [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : body)
    op->moveBefore(m.weighing);

  const int64_t own = m.experts / parts, rows = m.rows / parts;
  Type element = typeOf(m.tokens).getElementType();
  const int64_t width = typeOf(m.tokens).getShape().back();
  Maker at(rewrite, body.front());
  Value share = m.share;
  if (own > 1) {
    share = at.shaped("Reshape", share, {parts, own, m.rows});
    share = at.node("Abs", {share}, typeOf(share).getShape(), element);
    share = at.sum(share, 1);
  }
  share = at.shaped("Reshape", share, {parts, parts, rows, 1});
  Value zero = at.zero(element);
  Value idle = at.node("Equal", {share, zero}, typeOf(share).getShape(),
                       rewrite.builder.getI1Type());
  Value tokens = at.shaped("Reshape", m.tokens, {1, parts, rows, width});
  Value sent = at.node("Where", {idle, zero, tokens},
                       {parts, parts, rows, width}, element);
  exchanges.push_back({sent, Layout::split(1)});
  Value got = sent;
  if (own > 1) {
    got = at.shaped("Reshape", got, {parts, 1, m.rows, width});
    got = at.shaped("Expand", got, {parts, own, m.rows, width});
  }
  got = at.shaped("Reshape", got, {m.experts, m.rows, width});
  exchanges.push_back({got, Layout::split(0), /*moves=*/false});
  for (OpOperand *operand : m.operands) {
    // Between experts and width, rows may be seen as several dimensions.
    SmallVector<int64_t> shape(typeOf(operand->get()).getShape());
    auto user = cast<NodeOp>(operand->getOwner());
    if (isNode(user, "Einsum")) {
      NamedAttrList attributes(user.getAttrs());
      attributes.set("equation",
                     rewrite.builder.getStringAttr(withLeadingLabel(
                         stringAttr(user, "equation", ""),
                         user.operandPosition(operand->getOperandNumber()))));
      user.setAttrsAttr(attributes.getDictionary(user.getContext()));
      shape.insert(shape.begin(), 1);
    } else {
      size_t rank = typeOf(user.getResult(0)).getRank();
      shape.insert(shape.begin(), rank - std::min(rank, shape.size()), 1);
    }
    shape.front() = m.experts;
    operand->set(shape.size() == 3 ? got : at.shaped("Reshape", got, shape));
  }
  for (Value copy : m.copies) {
    Value with = got;
    if (copy.getType() != got.getType())
      with = at.shaped("Reshape", got, typeOf(copy).getShape());
    copy.replaceAllUsesWith(with);
  }

  exchanges.push_back({m.share, std::nullopt});

  Maker after(rewrite, m.sum);
  Value made = m.weighing.getResult(0);
  const int64_t n = typeOf(made).getShape().back();
  if (own > 1) {
    made = after.shaped("Reshape", made, {parts, own, m.rows, n});
    made = after.sum(made, 1);
  }
  made = after.shaped("Reshape", made, {parts, parts, rows, n});
  exchanges.push_back({made, Layout::split(1)});
  made = after.sum(made, 0);
  made = after.shaped("Reshape", made, typeOf(m.sum.getResult(0)).getShape());
  rewrite.replace(m.sum, made);
}

} // namespace

SmallVector<Exchange> prepareExperts(func::FuncOp function,
                                     const AxisOptions &options) {
  stackExperts(function, options);
  SmallVector<NodeOp> nodes;
  function.walk([&](NodeOp op) { nodes.push_back(op); });
  Rewrite rewrite(function.getContext());
  SmallVector<Exchange> exchanges;
  for (NodeOp op : nodes) {
    if (rewrite.erased(op))
      continue;
    auto mixture = Finder().find(op);
    if (!mixture)
      continue;
    if (mixture->experts % options.size != 0 ||
        mixture->rows % options.size != 0) {
      bool experts = mixture->experts % options.size != 0;
      explain(function, op.getLoc(), "comm-partition", "keep-tokens",
              "does-not-divide",
              "axis=" + Twine(options.name) +
                  (experts ? " experts=" + Twine(mixture->experts)
                           : " tokens=" + Twine(mixture->rows)));
      continue;
    }
    exchange(rewrite, *mixture, options.size, exchanges);
  }
  return exchanges;
}

void readBroadcastInPlace(func::FuncOp function) {
  function.walk([&](NodeOp product) {
    if (!isNode(product, "MatMul"))
      return;
    Value a = operandAt(product, 0);
    RankedTensorType type = typeOf(a);
    if (type.getRank() != 3 || typeOf(operandAt(product, 1)).getRank() != 3 ||
        typeOf(operandAt(product, 1)).getDimSize(0) != type.getDimSize(0))
      return;
    Value from = repeated(a, type.getDimSize(0));
    if (!from)
      return;
    Rewrite rewrite(function.getContext());
    Maker at(rewrite, product);
    ArrayRef<int64_t> shape = type.getShape();
    product->setOperand(0, at.shaped("Reshape", from, {1, shape[1], shape[2]}));
  });
}

} // namespace concord::partition

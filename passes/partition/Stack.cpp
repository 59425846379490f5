//===- Stack.cpp - Experts that were exported one by one ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A loop over experts leaves a sum of products share_e * f_e(tokens), in which
// the f_e are the same operations on parameters of their own. Split over ranks,
// all of them would have to run on every one. Here they become one computation
// with the experts as its first dimension, on parameters that are stored one
// behind the other: the form in which Experts.cpp sends tokens.
//
//===----------------------------------------------------------------------===//

#include "partition/Axis.h"

#include "common/Explain.h"
#include "common/NodeBridge.h"
#include "recognize/Match.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/StringSwitch.h"

#include <cstring>

using namespace mlir;

namespace concord::partition {
namespace {

using namespace recognize;

/// Operations deeper in an expert than this are not looked at.
constexpr int kMostDepth = 32;

/// How an operator treats a new first dimension.
enum class Form : uint8_t { Product, Pointwise, Other };

Form formOf(NodeOp op) {
  if (!op || op.getNumResults() != 1 || !isNode(op, op.getOp()))
    return Form::Other;
  return llvm::StringSwitch<Form>(op.getOp())
      .Cases({"MatMul", "Gemm"}, Form::Product)
      .Cases({"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"}, Form::Pointwise)
      .Cases({"Relu", "Sigmoid", "Tanh", "Gelu", "Erf", "Swish", "HardSwish"},
             Form::Pointwise)
      .Cases({"HardSigmoid", "Softplus", "Softsign", "Mish", "Elu", "Selu"},
             Form::Pointwise)
      .Cases({"LeakyRelu", "Exp", "Neg", "Abs", "Identity", "Cast"},
             Form::Pointwise)
      .Default(Form::Other);
}

bool isConstant(Value value) {
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<comm::WeightOp, arith::ConstantOp>(op);
}

/// A vector over the last dimension, or a single number.
bool isRow(Value value) {
  RankedTensorType type = typeOf(value);
  return type.hasStaticShape() &&
         (type.getNumElements() == 1 ||
          (type.getRank() > 0 &&
           type.getNumElements() == type.getShape().back()));
}

int64_t rowsOf(Value value) {
  RankedTensorType type = typeOf(value);
  return !type.hasStaticShape() || type.getRank() < 2 ||
                 type.getShape().back() == 0
             ? 0
             : type.getNumElements() / type.getShape().back();
}

class Stack {
public:
  Stack(Rewrite &rewrite, NodeOp root) : rewrite(rewrite), root(root) {}

  /// Finds the experts in the sum that ends in `root`; false when there are
  /// none for `ranks` ranks.
  bool find(int64_t ranks);
  int64_t experts() const { return terms.size(); }
  void build();

private:
  struct Term {
    Value sum, made, share;
  };
  void leaves(Value value, SmallVectorImpl<Value> &list);
  bool same(Value a, Value b, int depth);
  Value stacked(ArrayRef<Value> values);
  Value constants(ArrayRef<Value> values, bool matrix, bool transposed);
  Value node(StringRef name, ArrayRef<Value> operands, ArrayRef<int64_t> shape,
             Type element, ArrayRef<NamedAttribute> attributes = {},
             int64_t opset = 13) {
    Type type = RankedTensorType::get(shape, element);
    return rewrite.make(root, name, "", opset, operands, attributes, {type})
        .getResult(0);
  }
  Value list(ArrayRef<int64_t> values) {
    rewrite.builder.setInsertionPoint(root);
    auto type = RankedTensorType::get({static_cast<int64_t>(values.size())},
                                      rewrite.builder.getI64Type());
    return arith::ConstantOp::create(rewrite.builder, root->getLoc(),
                                     DenseElementsAttr::get(type, values));
  }
  Value reshaped(Value value, ArrayRef<int64_t> shape) {
    return node("Reshape", {value, list(shape)}, shape,
                typeOf(value).getElementType());
  }

  Rewrite &rewrite;
  NodeOp root;
  SmallVector<Term> terms;
  SmallVector<Value> rest; ///< other terms of the sum
  Value tokens;
  int64_t rows = 0;
  llvm::DenseMap<Value, Value> done; ///< by the first expert's value
};

void Stack::leaves(Value value, SmallVectorImpl<Value> &list) {
  auto add = definedBy(value, "Add");
  bool inner = add && value.getType() == root.getResult(0).getType() &&
               add->getBlock() == root->getBlock() &&
               (add == root || value.hasOneUse());
  if (!inner) {
    list.push_back(value);
    return;
  }
  for (int64_t i : {0, 1})
    leaves(operandAt(add, i), list);
}

/// Whether two experts compute these values alike, each from its own
/// parameters.
bool Stack::same(Value a, Value b, int depth) {
  if (a == b) {
    if (isConstant(a))
      return isRow(a);
    if (rowsOf(a) != rows || (tokens && tokens != a))
      return false;
    tokens = a;
    return true;
  }
  if (a.getType() != b.getType() || depth > kMostDepth)
    return false;
  auto x = a.getDefiningOp<NodeOp>(), y = b.getDefiningOp<NodeOp>();
  const Form form = formOf(x);
  if (form == Form::Other || formOf(y) != form || x.getOp() != y.getOp() ||
      x.getAttrs() != y.getAttrs() || x.getOpset() != y.getOpset() ||
      x.getOperands().size() != y.getOperands().size() || rowsOf(a) != rows)
    return false;
  for (auto [i, pair] :
       llvm::enumerate(llvm::zip(x.getOperands(), y.getOperands()))) {
    auto [p, q] = pair;
    if (x.operandPosition(i) != y.operandPosition(i) ||
        static_cast<size_t>(x.operandPosition(i)) != i)
      return false;
    if (!isConstant(p) || !isConstant(q)) {
      // What a product multiplies with is a parameter.
      if ((form == Form::Product && i != 0) || !same(p, q, depth + 1))
        return false;
      continue;
    }
    const bool matrix = form == Form::Product && i == 1;
    if (p.getType() != q.getType() || (form == Form::Product && i == 0) ||
        (matrix ? p == q || typeOf(p).getRank() != 2 : !isRow(p)) ||
        !constantData(p, /*weights=*/true) || !constantData(q, true))
      return false;
  }
  return x.getOp() != "Gemm" ||
         (!intAttr(x, "transA", 0) && realAttr(x, "alpha", 1) == 1 &&
          realAttr(x, "beta", 1) == 1);
}

bool Stack::find(int64_t ranks) {
  SmallVector<Value> all;
  leaves(root.getResult(0), all);
  for (Value leaf : all) {
    Term term;
    if (NodeOp mul = definedBy(leaf, "Mul"); mul && leaf.hasOneUse())
      for (int64_t i : {0, 1}) {
        Value share = operandAt(mul, i), made = operandAt(mul, 1 - i);
        ArrayRef<int64_t> shape = typeOf(share).getShape();
        if (!term.sum && made.getType() == leaf.getType() && !shape.empty() &&
            shape.back() == 1 &&
            shape.drop_back() == typeOf(leaf).getShape().drop_back())
          term = {leaf, made, share};
      }
    bool joins = bool(term.sum);
    if (joins && terms.empty()) {
      rows = rowsOf(term.made);
    } else if (joins) {
      Value before = tokens;
      joins = term.share.getType() == terms.front().share.getType() &&
              same(terms.front().made, term.made, 0) && tokens;
      if (!joins)
        tokens = before;
    }
    if (joins)
      terms.push_back(term);
    else
      rest.push_back(leaf);
  }
  return experts() > 1 && tokens && rows > 0 && rows % ranks == 0 &&
         experts() % ranks == 0 &&
         isFloat(typeOf(terms.front().sum).getElementType()) &&
         typeOf(tokens).getElementType() ==
             typeOf(terms.front().sum).getElementType();
}

/// Parameters of all experts, one behind the other: [experts, k, n], or for
/// rows [experts, 1, n].
Value Stack::constants(ArrayRef<Value> values, bool matrix, bool transposed) {
  RankedTensorType type = typeOf(values.front());
  SmallVector<int64_t> shape = {static_cast<int64_t>(values.size()), 1,
                                type.getNumElements()};
  if (matrix) {
    shape = {shape[0], type.getDimSize(0), type.getDimSize(1)};
    if (transposed)
      std::swap(shape[1], shape[2]);
  }
  onnx::TensorType whole = fromMlirTensor(type);
  whole.shape.assign(shape.begin(), shape.end());
  onnx::Tensor made = onnx::Tensor::allocate(whole);
  std::byte *to = made.mutableBytes().data();
  for (Value value : values) {
    onnx::Tensor data = *constantData(value, /*weights=*/true);
    if (!transposed) {
      std::memcpy(to, data.bytes.data(), data.bytes.size());
    } else {
      const int64_t k = shape[1], n = shape[2];
      const size_t unit = data.bytes.size() / static_cast<size_t>(k * n);
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < n; ++j)
          std::memcpy(to + (i * n + j) * unit,
                      data.bytes.data() + (j * k + i) * unit, unit);
    }
    to += data.bytes.size();
  }
  OpBuilder &builder = rewrite.builder;
  builder.setInsertionPoint(root);
  auto result = RankedTensorType::get(shape, type.getElementType());
  auto weight = values.front().getDefiningOp<comm::WeightOp>();
  if (!weight) {
    auto bytes = reinterpret_cast<const char *>(made.bytes.data());
    return arith::ConstantOp::create(
        builder, root->getLoc(),
        DenseElementsAttr::getFromRawBuffer(
            result, ArrayRef<char>(bytes, made.bytes.size())));
  }
  auto *dialect = builder.getContext()->getLoadedDialect<comm::CommDialect>();
  std::string section =
      (weight.getSection() + "@experts" + Twine(values.size())).str();
  dialect->getWeightStore().add(weight.getFile().str(), section,
                                {made.bytes, made.owner});
  // Parameters stand at the beginning, where the first expert's is.
  builder.setInsertionPoint(weight);
  return comm::WeightOp::create(builder, weight.getLoc(), result,
                                builder.getStringAttr(section),
                                weight.getFileAttr(), DenseI64ArrayAttr(),
                                ArrayAttr(), StringAttr(), TypeAttr());
}

/// [experts, rows, n] of what the experts compute each, or the tokens.
Value Stack::stacked(ArrayRef<Value> values) {
  Value first = values.front();
  if (Value known = done.lookup(first))
    return known;
  const int64_t width = typeOf(first).getShape().back();
  Type element = typeOf(first).getElementType();
  Value &result = done[first];
  if (first == tokens)
    return result = reshaped(first, {1, rows, width});
  auto op = first.getDefiningOp<NodeOp>();
  SmallVector<Value> operands;
  bool grown = false;
  for (int64_t i = 0, e = op.getOperands().size(); i < e; ++i) {
    SmallVector<Value> each;
    for (Value value : values)
      each.push_back(value.getDefiningOp<NodeOp>().getOperands()[i]);
    const bool product = formOf(op) == Form::Product;
    if (!isConstant(each.front())) {
      Value operand = stacked(each);
      grown |= typeOf(operand).getDimSize(0) != 1;
      operands.push_back(operand);
    } else if (product && i == 1) {
      operands.push_back(constants(each, true, intAttr(op, "transB", 0) != 0));
      grown = true;
    } else if (llvm::all_equal(each)) {
      operands.push_back(
          typeOf(each.front()).getRank() <= 1
              ? each.front()
              : reshaped(each.front(),
                         {typeOf(each.front()).getNumElements()}));
    } else {
      operands.push_back(constants(each, false, false));
      grown = true;
    }
  }
  SmallVector<int64_t> shape = {grown ? experts() : 1, rows, width};
  SmallVector<NamedAttribute> attributes(op.getAttrs().begin(),
                                         op.getAttrs().end());
  Value made;
  if (isNode(op, "Gemm")) {
    made = node("MatMul", {operands[0], operands[1]}, shape, element);
    if (operands.size() > 2)
      made = node("Add", {made, operands[2]}, shape, element);
  } else {
    made =
        node(op.getOp(), operands, shape, element, attributes, op.getOpset());
  }
  // The map may have grown meanwhile.
  return done[first] = made;
}

void Stack::build() {
  SmallVector<Value> made, shares;
  for (const Term &term : terms) {
    made.push_back(term.made);
    shares.push_back(term.share);
  }
  RankedTensorType type = typeOf(terms.front().sum);
  Type element = type.getElementType();
  const int64_t count = experts(), width = type.getShape().back();
  for (Value &share : shares)
    share = reshaped(share, {1, rows, 1});
  Value share = node("Concat", shares, {count, rows, 1}, element,
                     {rewrite.attr("axis", int64_t(0))});
  Value all =
      node("Mul", {stacked(made), share}, {count, rows, width}, element);
  Value sum = node("ReduceSum", {all, list({0})}, {rows, width}, element,
                   {rewrite.attr("keepdims", int64_t(0))});
  sum = reshaped(sum, type.getShape());
  for (Value other : rest)
    sum = node("Add", {sum, other}, type.getShape(), element);
  rewrite.replace(root, sum);
}

} // namespace

void stackExperts(func::FuncOp function, const AxisOptions &options) {
  SmallVector<NodeOp> sums;
  function.walk([&](NodeOp op) {
    if (!isNode(op, "Add"))
      return;
    // The end of a chain of sums.
    Value value = op.getResult(0);
    if (value.hasOneUse())
      if (auto user = dyn_cast<NodeOp>(*value.user_begin());
          isNode(user, "Add") && user.getResult(0).getType() == value.getType())
        return;
    sums.push_back(op);
  });
  Rewrite rewrite(function.getContext());
  for (NodeOp op : sums) {
    if (rewrite.erased(op))
      continue;
    Stack stack(rewrite, op);
    if (!stack.find(options.size))
      continue;
    explain(function, op.getLoc(), "comm-partition", "stack-experts",
            "same-computation",
            "axis=" + Twine(options.name) +
                " experts=" + Twine(stack.experts()));
    stack.build();
  }
}

} // namespace concord::partition

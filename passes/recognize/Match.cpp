//===- Match.cpp - Matching onnx.node graphs ------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The helpers of Match.h.
//
//===----------------------------------------------------------------------===//

#include "recognize/Match.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

using namespace mlir;

namespace concord::recognize {

/// Operands that every node of an operator has. IR may be written by hand, so
/// what the reader of models has checked need not hold here.
static int64_t leastOperands(StringRef name) {
  return llvm::StringSwitch<int64_t>(name)
      .Cases({"Add", "Sub", "Mul", "Div", "Pow", "MatMul", "Gemm", "Reshape",
              "Expand", "Gather", "Conv"},
             2)
      .Cases({"Where", "Attention", "RotaryEmbedding"}, 3)
      .Case("BatchNormalization", 5)
      .Default(1);
}

bool isNode(NodeOp op, StringRef name) {
  if (!op || op.getOp() != name || op.getNumResults() != 1 ||
      (op.getDomain() && !op.getDomain()->empty() &&
       *op.getDomain() != "ai.onnx"))
    return false;
  int64_t least = leastOperands(name);
  return static_cast<int64_t>(op.getOperands().size()) >= least &&
         op.operandPosition(least - 1) == least - 1;
}

NodeOp definedBy(Value value, StringRef name) {
  auto op = value ? value.getDefiningOp<NodeOp>() : NodeOp();
  return isNode(op, name) ? op : NodeOp();
}

RankedTensorType typeOf(Value value) {
  return cast<RankedTensorType>(value.getType());
}

bool isFloat(Type type) {
  return type.isF32() || type.isF64() || type.isF16() || type.isBF16();
}

Value operandAt(NodeOp op, int64_t position) {
  for (int64_t i = 0, e = op.getOperands().size(); i < e; ++i)
    if (op.operandPosition(i) == position)
      return op.getOperands()[i];
  return {};
}

int64_t intAttr(NodeOp op, StringRef name, int64_t otherwise) {
  auto attr = op.getAttrs().getAs<IntegerAttr>(name);
  return attr ? attr.getInt() : otherwise;
}

double realAttr(NodeOp op, StringRef name, double otherwise) {
  auto attr = op.getAttrs().getAs<FloatAttr>(name);
  return attr ? attr.getValueAsDouble() : otherwise;
}

StringRef stringAttr(NodeOp op, StringRef name, StringRef otherwise) {
  auto attr = op.getAttrs().getAs<StringAttr>(name);
  return attr ? attr.getValue() : otherwise;
}

std::optional<SmallVector<int64_t>> intsAttr(NodeOp op, StringRef name) {
  auto attr = op.getAttrs().getAs<DenseI64ArrayAttr>(name);
  if (!attr)
    return std::nullopt;
  return SmallVector<int64_t>(attr.asArrayRef());
}

std::optional<double> scalarOf(Value value) {
  if (!value || typeOf(value).getNumElements() != 1 ||
      !isFloat(typeOf(value).getElementType()))
    return std::nullopt;
  auto data = constantData(value, /*weights=*/true);
  if (!data)
    return std::nullopt;
  return data->floatAt(0);
}

std::optional<SmallVector<int64_t>> intsOf(Value value) {
  if (!value || !typeOf(value).getElementType().isInteger(64))
    return std::nullopt;
  auto data = constantData(value, /*weights=*/true);
  if (!data)
    return std::nullopt;
  std::vector<int64_t> ints = data->ints();
  return SmallVector<int64_t>(ints.begin(), ints.end());
}

std::optional<WithScalar> withScalar(NodeOp op) {
  if (!op || op.getOperands().size() != 2 || op.getNumResults() != 1 ||
      op.operandPosition(1) != 1)
    return std::nullopt;
  for (bool first : {false, true}) {
    Value other = op.getOperands()[first ? 1 : 0];
    if (other.getType() != op.getResult(0).getType())
      continue;
    if (auto scalar = scalarOf(op.getOperands()[first ? 0 : 1]))
      return WithScalar{other, *scalar, first};
  }
  return std::nullopt;
}

bool near(double a, double b, Type type) {
  double slack = type.isF16() || type.isBF16() ? 4e-3 : 1e-6;
  return std::abs(a - b) <= slack * std::abs(b);
}

bool Cover::closed(Operation *root) const {
  for (Operation *op : ops)
    if (op != root)
      for (Operation *user : op->getUsers())
        if (!ops.contains(user))
          return false;
  return true;
}

Factors factorise(Value value, Cover &cover, bool top) {
  Factors result;
  auto op = value.getDefiningOp<NodeOp>();
  auto take = [&](Value operand, unsigned times = 1) {
    Factors inner = factorise(operand, cover, false);
    for (unsigned i = 0; i < times; ++i) {
      result.coefficient *= inner.coefficient;
      result.values.append(inner.values);
    }
  };
  if (op && (top || value.hasOneUse())) {
    auto scalar = withScalar(op);
    if (isNode(op, "Mul")) {
      Value a = op.getOperands()[0], b = op.getOperands()[1];
      if (scalar) {
        cover.add(op);
        result.coefficient *= scalar->scalar;
        take(scalar->value);
        return result;
      }
      if (a.getType() == value.getType() && b.getType() == value.getType()) {
        cover.add(op);
        take(a);
        take(b);
        return result;
      }
    }
    if (isNode(op, "Div") && scalar && !scalar->scalarFirst &&
        scalar->scalar != 0) {
      cover.add(op);
      result.coefficient /= scalar->scalar;
      take(scalar->value);
      return result;
    }
    if (isNode(op, "Pow") && scalar && !scalar->scalarFirst &&
        (scalar->scalar == 2 || scalar->scalar == 3)) {
      cover.add(op);
      result.values.append(static_cast<size_t>(scalar->scalar), scalar->value);
      return result;
    }
  }
  result.values.push_back(value);
  return result;
}

NodeOp Rewrite::make(Operation *root, StringRef name, StringRef domain,
                     int64_t opset, ArrayRef<Value> operands,
                     ArrayRef<NamedAttribute> attributes,
                     ArrayRef<Type> types) {
  builder.setInsertionPoint(root);
  while (!operands.empty() && !operands.back())
    operands = operands.drop_back();
  SmallVector<Value> present;
  SmallVector<int32_t> positions;
  for (auto [i, operand] : llvm::enumerate(operands))
    if (operand) {
      present.push_back(operand);
      positions.push_back(static_cast<int32_t>(i));
    }
  bool absent = present.size() != operands.size();
  return NodeOp::create(
      builder, root->getLoc(), TypeRange(types), builder.getStringAttr(name),
      present, builder.getDictionaryAttr(attributes),
      builder.getI64IntegerAttr(opset),
      domain.empty() ? StringAttr() : builder.getStringAttr(domain),
      absent ? builder.getDenseI32ArrayAttr(positions) : DenseI32ArrayAttr(),
      DenseI32ArrayAttr(),
      absent ? builder.getI32IntegerAttr(static_cast<int32_t>(operands.size()))
             : IntegerAttr(),
      ArrayAttr());
}

void Rewrite::eraseUnused(Operation *op) {
  if (!op || !isOpTriviallyDead(op))
    return;
  SmallVector<Operation *> before;
  for (Value operand : op->getOperands())
    before.push_back(operand.getDefiningOp());
  gone.insert(op);
  op->erase();
  for (Operation *next : before)
    if (next && !gone.contains(next))
      eraseUnused(next);
}

void Rewrite::replace(Operation *root, Value with) {
  root->getResult(0).replaceAllUsesWith(with);
  eraseUnused(root);
}

} // namespace concord::recognize

//===- RankValues.cpp - Integers that each rank computes ------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/RankValues.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

#include <functional>

using namespace mlir;

namespace concord {

/// Longest chain of operations that is looked through.
static constexpr unsigned kMaxDepth = 64;

using Values = RankValues::Values;

const Values *RankValues::of(Value value) { return cached(value, 0); }

std::optional<Values> RankValues::of(OpFoldResult value) {
  if (auto attr = dyn_cast<Attribute>(value))
    return Values(world, cast<IntegerAttr>(attr).getInt());
  const Values *values = of(cast<Value>(value));
  return values ? std::optional<Values>(*values) : std::nullopt;
}

bool RankValues::isPlace(const Values &values, comm::DomainOp domain,
                         int64_t factor) {
  for (ArrayRef<int64_t> group : domain.getGroupRanks())
    for (auto [position, rank] : llvm::enumerate(group))
      if (rank >= world ||
          values[rank] != static_cast<int64_t>(position) * factor)
        return false;
  return true;
}

const Values *RankValues::cached(Value value, unsigned depth) {
  auto found = known.find(value);
  if (found == known.end()) {
    if (depth > kMaxDepth)
      return nullptr;
    std::optional<Values> values = compute(value, depth);
    found = known.insert({value, std::move(values)}).first;
  }
  return found->second ? &*found->second : nullptr;
}

static Values each(const Values &a, const Values &b,
                   llvm::function_ref<int64_t(int64_t, int64_t)> apply) {
  Values result(a.size(), RankValues::kUnknown);
  for (size_t rank = 0; rank < a.size(); ++rank)
    if (a[rank] != RankValues::kUnknown && b[rank] != RankValues::kUnknown)
      result[rank] = apply(a[rank], b[rank]);
  return result;
}

enum class Arithmetic {
  None,
  Add,
  Sub,
  Mul,
  Div,
  Rem,
  Min,
  Max,
  And,
  Or,
  Xor,
  ShiftLeft,
  ShiftRight, ///< zeros come in
  Equal,
  Unequal,
  Less,
  LessEqual,
  Greater,
  GreaterEqual
};

/// Bits of a type that numbers are computed in.
static unsigned widthOf(Type type) {
  auto integer = dyn_cast<IntegerType>(getElementTypeOrSelf(type));
  return integer ? std::min(64u, integer.getWidth()) : 64;
}

/// `type` is that of the operands. A number that is stored as negative is large
/// to an operation on unsigned ones (`asUnsigned`), and is not known there.
static std::optional<Values> apply(Arithmetic kind, const Values &a,
                                   const Values &b, Type type,
                                   bool asUnsigned) {
  constexpr int64_t unknown = RankValues::kUnknown;
  unsigned width = widthOf(type);
  return each(a, b, [&](int64_t x, int64_t y) -> int64_t {
    int64_t result = 0;
    bool negative = x < 0 || y < 0;
    switch (kind) {
    case Arithmetic::Add:
      return llvm::AddOverflow(x, y, result) ? unknown : result;
    case Arithmetic::Sub:
      return llvm::SubOverflow(x, y, result) ? unknown : result;
    case Arithmetic::Mul:
      return llvm::MulOverflow(x, y, result) ? unknown : result;
    case Arithmetic::Div:
      return y == 0 || (negative && asUnsigned) || (y == -1 && x == INT64_MIN)
                 ? unknown
                 : x / y;
    case Arithmetic::Rem:
      return y == 0 || (negative && asUnsigned) || y == -1 ? unknown : x % y;
    case Arithmetic::Min:
      return negative && asUnsigned ? unknown : std::min(x, y);
    case Arithmetic::Max:
      return negative && asUnsigned ? unknown : std::max(x, y);
    case Arithmetic::And:
      return x & y;
    case Arithmetic::Or:
      return x | y;
    case Arithmetic::Xor:
      return x ^ y;
    case Arithmetic::ShiftLeft:
      return negative || y >= 63 || x > (INT64_MAX >> y) ? unknown : x << y;
    case Arithmetic::ShiftRight:
      if (negative)
        return unknown;
      return y >= static_cast<int64_t>(width) ? 0 : x >> y;
    case Arithmetic::Equal:
      return x == y;
    case Arithmetic::Unequal:
      return x != y;
    case Arithmetic::Less:
      return negative && asUnsigned ? unknown : x < y;
    case Arithmetic::LessEqual:
      return negative && asUnsigned ? unknown : x <= y;
    case Arithmetic::Greater:
      return negative && asUnsigned ? unknown : x > y;
    case Arithmetic::GreaterEqual:
      return negative && asUnsigned ? unknown : x >= y;
    case Arithmetic::None:
      break;
    }
    return unknown;
  });
}

/// `then` where `condition` is 1, `otherwise` where it is 0.
static Values choose(const Values &condition, const Values &then,
                     const Values &otherwise) {
  Values result(condition.size(), RankValues::kUnknown);
  for (size_t rank = 0; rank < condition.size(); ++rank)
    if (condition[rank] != RankValues::kUnknown)
      result[rank] = condition[rank] ? then[rank] : otherwise[rank];
  return result;
}

/// Values that do not fit the type that they are computed in are not known.
static void clip(Values &values, Type type) {
  type = getElementTypeOrSelf(type);
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer || integer.getWidth() >= 64)
    return;
  // A truth value is 0 or 1, whatever its sign bit would say.
  bool isUnsigned = integer.isUnsigned() || integer.getWidth() == 1;
  int64_t limit = int64_t(1) << (integer.getWidth() - (isUnsigned ? 0 : 1));
  int64_t least = isUnsigned ? 0 : -limit;
  for (int64_t &value : values)
    if (value != RankValues::kUnknown && (value < least || value >= limit))
      value = RankValues::kUnknown;
}

/// The integers of a constant of rank 0 or 1.
static std::optional<Values> tableOf(Value value) {
  DenseIntElementsAttr elements;
  if (auto compute = value.getDefiningOp<comm::ComputeOp>()) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (compute.getName() == "iota" && type && type.getRank() == 1 &&
        type.hasStaticShape()) {
      Values numbers(type.getNumElements());
      for (size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = i;
      return numbers;
    }
    if (compute.getName() == "constant")
      elements = compute->getAttrOfType<DenseIntElementsAttr>("value");
  } else {
    (void)matchPattern(value, m_Constant(&elements));
  }
  if (!elements || elements.getType().getRank() > 1)
    return std::nullopt;
  Values table;
  for (const APInt &entry : elements.getValues<APInt>()) {
    // Indices and ranks; more than 63 bits are none.
    if (entry.getSignificantBits() > 63)
      return std::nullopt;
    bool isUnsigned = elements.getElementType().isUnsignedInteger() ||
                      elements.getElementType().isInteger(1);
    table.push_back(isUnsigned ? static_cast<int64_t>(entry.getZExtValue())
                               : entry.getSExtValue());
  }
  return table;
}

std::optional<Values> RankValues::lookUp(Value tableValue,
                                         const Values &index) {
  std::optional<Values> table = tableOf(tableValue);
  if (!table || table->empty())
    return std::nullopt;
  Values result(world, kUnknown);
  for (int64_t rank = 0; rank < world; ++rank)
    if (index[rank] != kUnknown)
      result[rank] = (*table)[std::clamp<int64_t>(
          index[rank], 0, static_cast<int64_t>(table->size()) - 1)];
  return result;
}

static std::pair<Arithmetic, bool> arithmeticOf(Operation *op) {
  using Kind = std::pair<Arithmetic, bool>;
  if (auto compare = dyn_cast<arith::CmpIOp>(op)) {
    switch (compare.getPredicate()) {
    case arith::CmpIPredicate::eq:
      return {Arithmetic::Equal, false};
    case arith::CmpIPredicate::ne:
      return {Arithmetic::Unequal, false};
    case arith::CmpIPredicate::slt:
      return {Arithmetic::Less, false};
    case arith::CmpIPredicate::sle:
      return {Arithmetic::LessEqual, false};
    case arith::CmpIPredicate::sgt:
      return {Arithmetic::Greater, false};
    case arith::CmpIPredicate::sge:
      return {Arithmetic::GreaterEqual, false};
    case arith::CmpIPredicate::ult:
      return {Arithmetic::Less, true};
    case arith::CmpIPredicate::ule:
      return {Arithmetic::LessEqual, true};
    case arith::CmpIPredicate::ugt:
      return {Arithmetic::Greater, true};
    case arith::CmpIPredicate::uge:
      return {Arithmetic::GreaterEqual, true};
    }
  }
  return llvm::TypeSwitch<Operation *, Kind>(op)
      .Case<arith::AddIOp>([](auto) { return Kind(Arithmetic::Add, false); })
      .Case<arith::SubIOp>([](auto) { return Kind(Arithmetic::Sub, false); })
      .Case<arith::MulIOp>([](auto) { return Kind(Arithmetic::Mul, false); })
      .Case<arith::DivSIOp>([](auto) { return Kind(Arithmetic::Div, false); })
      .Case<arith::DivUIOp>([](auto) { return Kind(Arithmetic::Div, true); })
      .Case<arith::RemSIOp>([](auto) { return Kind(Arithmetic::Rem, false); })
      .Case<arith::RemUIOp>([](auto) { return Kind(Arithmetic::Rem, true); })
      .Case<arith::MinSIOp>([](auto) { return Kind(Arithmetic::Min, false); })
      .Case<arith::MaxSIOp>([](auto) { return Kind(Arithmetic::Max, false); })
      .Case<arith::AndIOp>([](auto) { return Kind(Arithmetic::And, false); })
      .Case<arith::OrIOp>([](auto) { return Kind(Arithmetic::Or, false); })
      .Case<arith::XOrIOp>([](auto) { return Kind(Arithmetic::Xor, false); })
      .Case<arith::ShLIOp>(
          [](auto) { return Kind(Arithmetic::ShiftLeft, false); })
      .Case<arith::ShRUIOp>(
          [](auto) { return Kind(Arithmetic::ShiftRight, true); })
      .Default(Kind(Arithmetic::None, false));
}

std::optional<Values> RankValues::compute(Value value, unsigned depth) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto type = dyn_cast<ShapedType>(value.getType());
      type && (!type.hasStaticShape() || type.getNumElements() != 1))
    return std::nullopt;
  IntegerAttr integer;
  if (matchPattern(value, m_Constant(&integer)))
    return Values(world, integer.getType().isInteger(1)
                             ? integer.getValue().getZExtValue()
                             : integer.getInt());
  if (std::optional<Values> table = tableOf(value); table && table->size() == 1)
    return Values(world, table->front());
  if (auto rank = dyn_cast<comm::RankOp>(op)) {
    auto domain = module.lookupSymbol<comm::DomainOp>(rank.getDomain());
    if (!domain)
      return std::nullopt;
    Values result(world, kUnknown);
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      for (auto [position, member] : llvm::enumerate(group))
        if (member < world)
          result[member] = position;
    return result;
  }
  if (auto size = dyn_cast<comm::SizeOp>(op)) {
    auto domain = module.lookupSymbol<comm::DomainOp>(size.getDomain());
    if (!domain)
      return std::nullopt;
    Values result(world, kUnknown);
    for (ArrayRef<int64_t> group : domain.getGroupRanks())
      for (int64_t member : group)
        if (member < world)
          result[member] = group.size();
    return result;
  }
  if (auto compute = dyn_cast<comm::ComputeOp>(op))
    return computeOpaque(compute, depth);
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp,
          arith::ExtUIOp, arith::TruncIOp>(op)) {
    const Values *from = cached(op->getOperand(0), depth + 1);
    if (!from)
      return std::nullopt;
    Values result = *from;
    if (isa<arith::ExtUIOp, arith::IndexCastUIOp>(op))
      for (int64_t &entry : result)
        if (entry < 0)
          entry = kUnknown;
    // The one bit of a truth value is a sign to these.
    if (isa<arith::ExtSIOp, arith::IndexCastOp>(op) &&
        op->getOperand(0).getType().isInteger(1))
      for (int64_t &entry : result)
        if (entry != kUnknown)
          entry = -entry;
    clip(result, value.getType());
    return result;
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    Value source = extract.getTensor();
    auto type = cast<RankedTensorType>(source.getType());
    if (type.getRank() == 1 && extract.getIndices().size() == 1)
      if (const Values *index = cached(extract.getIndices()[0], depth + 1))
        if (auto found = lookUp(source, *index))
          return found;
    const Values *from = cached(source, depth + 1);
    return from ? std::optional<Values>(*from) : std::nullopt;
  }
  if (isa<tensor::FromElementsOp, tensor::CollapseShapeOp,
          tensor::ExpandShapeOp, tensor::CastOp>(op)) {
    const Values *from = cached(op->getOperand(0), depth + 1);
    return from ? std::optional<Values>(*from) : std::nullopt;
  }
  if (isa<ShapedType>(value.getType()))
    return std::nullopt;
  // All first: a later look-up may move what an earlier one points at.
  for (Value operand : op->getOperands())
    if (!cached(operand, depth + 1))
      return std::nullopt;
  auto operand = [&](unsigned i) -> const Values & {
    return *cached(op->getOperand(i), depth + 1);
  };
  if (isa<arith::SelectOp>(op))
    return choose(operand(0), operand(1), operand(2));
  auto [kind, asUnsigned] = arithmeticOf(op);
  // The one bit of a truth value would be a sign to the others.
  bool bitwise = kind == Arithmetic::And || kind == Arithmetic::Or ||
                 kind == Arithmetic::Xor || kind == Arithmetic::Equal ||
                 kind == Arithmetic::Unequal;
  if (kind == Arithmetic::None ||
      (op->getOperand(0).getType().isInteger(1) && !bitwise))
    return std::nullopt;
  auto result = apply(kind, operand(0), operand(1), op->getOperand(0).getType(),
                      asUnsigned);
  if (result)
    clip(*result, value.getType());
  return result;
}

std::optional<Values> RankValues::computeOpaque(comm::ComputeOp op,
                                                unsigned depth) {
  if (op.getNumResults() != 1 || op.getOperands().empty() ||
      !getElementTypeOrSelf(op.getResult(0).getType()).isIntOrIndex())
    return std::nullopt;
  StringRef name = op.getName();
  Value first = op.getOperands().front();
  if (name == "partition-id" || name == "replica-id") {
    // Ranks are numbered replica by replica; the importer says how many
    // partitions one has.
    auto partitions = op->getAttrOfType<IntegerAttr>("partitions");
    const Values *rank = cached(first, depth + 1);
    if (!partitions || partitions.getInt() < 1 || !rank)
      return std::nullopt;
    return apply(name == "replica-id" ? Arithmetic::Div : Arithmetic::Rem,
                 *rank, Values(world, partitions.getInt()), first.getType(),
                 /*asUnsigned=*/true);
  }
  if (name == "dynamic-slice" && op.getOperands().size() == 2) {
    const Values *index = cached(op.getOperands()[1], depth + 1);
    return index ? lookUp(first, *index) : std::nullopt;
  }
  if (op.getOperands().size() == 1 &&
      (name == "reshape" || name == "bitcast" || name == "copy" ||
       name == "convert" || name == "broadcast")) {
    if (!getElementTypeOrSelf(first.getType()).isIntOrIndex())
      return std::nullopt;
    const Values *from = cached(first, depth + 1);
    if (!from)
      return std::nullopt;
    Values result = *from;
    clip(result, op.getResult(0).getType());
    return result;
  }
  bool isUnsigned = getElementTypeOrSelf(first.getType()).isUnsignedInteger();
  StringRef direction;
  if (name == "compare")
    if (auto attr = op->getAttrOfType<StringAttr>("direction"))
      direction = attr.getValue();
  auto kind =
      llvm::StringSwitch<Arithmetic>(name == "compare" ? direction : name)
          .Case("add", Arithmetic::Add)
          .Case("subtract", Arithmetic::Sub)
          .Case("multiply", Arithmetic::Mul)
          .Case("divide", Arithmetic::Div)
          .Case("remainder", Arithmetic::Rem)
          .Case("minimum", Arithmetic::Min)
          .Case("maximum", Arithmetic::Max)
          .Case("and", Arithmetic::And)
          .Case("or", Arithmetic::Or)
          .Case("xor", Arithmetic::Xor)
          .Case("shift-left", Arithmetic::ShiftLeft)
          .Case("shift-right-logical", Arithmetic::ShiftRight)
          .Case("EQ", Arithmetic::Equal)
          .Case("NE", Arithmetic::Unequal)
          .Case("LT", Arithmetic::Less)
          .Case("LE", Arithmetic::LessEqual)
          .Case("GT", Arithmetic::Greater)
          .Case("GE", Arithmetic::GreaterEqual)
          .Default(Arithmetic::None);
  bool unary =
      name == "not" || name == "negate" || name == "abs" || name == "sign";
  bool ternary = name == "select" || name == "clamp";
  size_t expected = unary ? 1 : ternary ? 3 : 2;
  if ((kind == Arithmetic::None && !unary && !ternary) ||
      op.getOperands().size() != expected)
    return std::nullopt;
  // All first: a later look-up may move what an earlier one points at.
  for (Value value : op.getOperands())
    if (!cached(value, depth + 1))
      return std::nullopt;
  auto operand = [&](unsigned i) -> const Values & {
    return *cached(op.getOperands()[i], depth + 1);
  };
  if (name == "select")
    return choose(operand(0), operand(1), operand(2));
  std::optional<Values> result;
  if (name == "clamp") {
    // Least, value, greatest.
    result = apply(Arithmetic::Max, operand(0), operand(1), first.getType(),
                   isUnsigned);
    result = apply(Arithmetic::Min, *result, operand(2), first.getType(),
                   isUnsigned);
  } else if (unary) {
    result = operand(0);
    unsigned width = widthOf(first.getType());
    bool wraps = isUnsigned || width == 1;
    for (int64_t &entry : *result) {
      if (entry == kUnknown)
        continue;
      if (name == "not")
        entry = !wraps       ? ~entry
                : width < 63 ? entry ^ ((int64_t(1) << width) - 1)
                             : kUnknown;
      else if (name == "sign")
        entry = (entry > 0) - (entry < 0);
      else if (name == "abs")
        entry = std::abs(entry);
      else
        entry = wraps && entry ? kUnknown : -entry;
    }
  } else {
    result = apply(kind, operand(0), operand(1), first.getType(), isUnsigned);
  }
  if (result)
    clip(*result, op.getResult(0).getType());
  return result;
}

} // namespace concord

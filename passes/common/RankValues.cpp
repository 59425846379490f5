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

enum class Arithmetic { None, Add, Sub, Mul, Div, Rem, Min, Max };

static std::optional<Values> apply(Arithmetic kind, const Values &a,
                                   const Values &b) {
  constexpr int64_t unknown = RankValues::kUnknown;
  return each(a, b, [&](int64_t x, int64_t y) -> int64_t {
    int64_t result = 0;
    switch (kind) {
    case Arithmetic::Add:
      return llvm::AddOverflow(x, y, result) ? unknown : result;
    case Arithmetic::Sub:
      return llvm::SubOverflow(x, y, result) ? unknown : result;
    case Arithmetic::Mul:
      return llvm::MulOverflow(x, y, result) ? unknown : result;
    // Signed and unsigned agree on these.
    case Arithmetic::Div:
      return x >= 0 && y > 0 ? x / y : unknown;
    case Arithmetic::Rem:
      return x >= 0 && y > 0 ? x % y : unknown;
    case Arithmetic::Min:
      return std::min(x, y);
    case Arithmetic::Max:
      return std::max(x, y);
    case Arithmetic::None:
      break;
    }
    return unknown;
  });
}

/// Values that do not fit the type that they are computed in are not known.
static void clip(Values &values, Type type) {
  type = getElementTypeOrSelf(type);
  auto integer = dyn_cast<IntegerType>(type);
  if (!integer || integer.getWidth() >= 64)
    return;
  int64_t limit = int64_t(1)
                  << (integer.getWidth() - (integer.isUnsigned() ? 0 : 1));
  int64_t least = integer.isUnsigned() ? 0 : -limit;
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
    bool isUnsigned = elements.getElementType().isUnsignedInteger();
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

std::optional<Values> RankValues::compute(Value value, unsigned depth) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto type = dyn_cast<ShapedType>(value.getType());
      type && (!type.hasStaticShape() || type.getNumElements() != 1))
    return std::nullopt;
  IntegerAttr integer;
  if (matchPattern(value, m_Constant(&integer)))
    return Values(world, integer.getInt());
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
  Arithmetic kind =
      llvm::TypeSwitch<Operation *, Arithmetic>(op)
          .Case<arith::AddIOp>([](auto) { return Arithmetic::Add; })
          .Case<arith::SubIOp>([](auto) { return Arithmetic::Sub; })
          .Case<arith::MulIOp>([](auto) { return Arithmetic::Mul; })
          .Case<arith::DivSIOp, arith::DivUIOp>(
              [](auto) { return Arithmetic::Div; })
          .Case<arith::RemSIOp, arith::RemUIOp>(
              [](auto) { return Arithmetic::Rem; })
          .Case<arith::MinSIOp>([](auto) { return Arithmetic::Min; })
          .Case<arith::MaxSIOp>([](auto) { return Arithmetic::Max; })
          .Default(Arithmetic::None);
  if (kind == Arithmetic::None || isa<ShapedType>(value.getType()))
    return std::nullopt;
  // Both first: the second look-up may move what the first one points at.
  if (!cached(op->getOperand(0), depth + 1) ||
      !cached(op->getOperand(1), depth + 1))
    return std::nullopt;
  auto result = apply(kind, *cached(op->getOperand(0), depth + 1),
                      *cached(op->getOperand(1), depth + 1));
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
                 *rank, Values(world, partitions.getInt()));
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
  auto kind = llvm::StringSwitch<Arithmetic>(name)
                  .Case("add", Arithmetic::Add)
                  .Case("subtract", Arithmetic::Sub)
                  .Case("multiply", Arithmetic::Mul)
                  .Case("divide", Arithmetic::Div)
                  .Case("remainder", Arithmetic::Rem)
                  .Case("minimum", Arithmetic::Min)
                  .Case("maximum", Arithmetic::Max)
                  .Default(Arithmetic::None);
  if (kind == Arithmetic::None || op.getOperands().size() != 2 ||
      !cached(op.getOperands()[0], depth + 1) ||
      !cached(op.getOperands()[1], depth + 1))
    return std::nullopt;
  auto result = apply(kind, *cached(op.getOperands()[0], depth + 1),
                      *cached(op.getOperands()[1], depth + 1));
  if (result)
    clip(*result, op.getResult(0).getType());
  return result;
}

} // namespace concord

//===- Projections.cpp - Fused projections that can be split --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One matrix for queries, keys and values (or gate and up) is cut by a Split or
// by Slices behind the product. A Slice alone cannot be split along its axis:
// it does not know what the others take. So Slices that together cut the whole
// dimension become one Split, whose rule is that each rank has a share of every
// part.
//
// Parts of different size (fewer key heads than query heads) have no such rule:
// a layout is blocks of one size. Here the columns of the parameter are put in
// another order, so that the share of each rank in every part lies together:
// T groups, each with a T-th of q, of k, of v. The product is then [T, n / T]
// and its Split cuts the second dimension. Every element is computed as before.
//
//===----------------------------------------------------------------------===//

#include "partition/Axis.h"

#include "common/Explain.h"
#include "recognize/Match.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <cstring>

using namespace mlir;

namespace concord::partition {
namespace {

using namespace recognize;

/// What a node takes of the last dimension of its operand.
struct Part {
  int64_t begin = 0, size = 0;
  SmallVector<Value, 1> values; ///< the same part may be taken twice
};

/// The part that a Slice of the last dimension takes, other dimensions whole.
std::optional<Part> slicePart(NodeOp op) {
  if (!isNode(op, "Slice"))
    return std::nullopt;
  ArrayRef<int64_t> from = typeOf(operandAt(op, 0)).getShape(),
                    to = typeOf(op.getResult(0)).getShape();
  const int64_t rank = from.size();
  if (rank == 0 || to.drop_back() != from.drop_back())
    return std::nullopt;
  auto list = [&](int64_t position, StringRef name) {
    return op.getOpset() < 10 ? intsAttr(op, name)
                              : intsOf(operandAt(op, position));
  };
  auto starts = list(1, "starts"), axes = list(3, "axes"),
       steps = list(4, "steps");
  if (!starts)
    return std::nullopt;
  // Axes and steps that are there must be known.
  for (int64_t position : {3, 4})
    if (op.getOpset() >= 10 && operandAt(op, position) &&
        !(position == 3 ? axes : steps))
      return std::nullopt;
  Part part;
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t axis = axes ? (*axes)[i] : static_cast<int64_t>(i);
    int64_t step = steps ? (*steps)[i] : 1;
    if (step != 1)
      return std::nullopt;
    if (axis != -1 && axis != rank - 1)
      continue; // keeps all of it, by the shapes
    int64_t start = (*starts)[i];
    if (start < 0)
      start += from.back();
    part.begin = std::clamp<int64_t>(start, 0, from.back());
  }
  part.size = to.back();
  part.values.push_back(op.getResult(0));
  return part;
}

/// The parts that the users of `value` cut its last dimension into, in order;
/// empty when they do anything else with it or leave some of it out.
SmallVector<Part> partsOf(Value value) {
  SmallVector<Part> parts;
  const int64_t rank = typeOf(value).getRank();
  const int64_t extent = typeOf(value).getShape().back();
  for (Operation *user : value.getUsers()) {
    auto op = dyn_cast<NodeOp>(user);
    if (!op)
      return {};
    bool split = op.getOp() == "Split" && !op.getResultPositionsAttr() &&
                 (!op.getDomain() || op.getDomain()->empty());
    if (split) {
      int64_t axis = intAttr(op, "axis", 0);
      if (!value.hasOneUse() || (axis != -1 && axis != rank - 1))
        return {};
      int64_t begin = 0;
      for (Value result : op.getResults()) {
        int64_t size = typeOf(result).getShape().back();
        parts.push_back({begin, size, {result}});
        begin += size;
      }
      break;
    }
    auto part = slicePart(op);
    if (!part)
      return {};
    parts.push_back(*part);
  }
  llvm::stable_sort(
      parts, [](const Part &a, const Part &b) { return a.begin < b.begin; });
  SmallVector<Part> merged;
  int64_t begin = 0;
  for (const Part &part : parts) {
    if (!merged.empty() && merged.back().begin == part.begin &&
        merged.back().size == part.size) {
      merged.back().values.append(part.values);
      continue;
    }
    if (part.begin != begin || part.size == 0)
      return {};
    begin += part.size;
    merged.push_back(part);
  }
  if (begin != extent || merged.size() < 2)
    return {};
  return merged;
}

/// A product, with the bias that is added to it.
struct Projection {
  NodeOp product, sum; ///< the sum is null when there is none
  Value value() { return (sum ? sum : product)->getResult(0); }
};

bool isProduct(NodeOp op) { return isNode(op, "MatMul") || isNode(op, "Gemm"); }

std::optional<Projection> projectionOf(NodeOp op) {
  Projection found;
  if (isProduct(op)) {
    found.product = op;
  } else if (isNode(op, "Add")) {
    found.sum = op;
    for (int64_t i : {0, 1}) {
      Value operand = operandAt(op, i);
      auto product = operand.getDefiningOp<NodeOp>();
      if (isProduct(product) && operand.hasOneUse() &&
          operand.getType() == op.getResult(0).getType())
        found.product = product;
    }
  }
  if (!found.product || typeOf(found.value()).getRank() < 2)
    return std::nullopt;
  return found;
}

/// A parameter or constant seen as [rows, n * inner], whose n are reordered.
struct Reordered {
  OpOperand *use;
  int64_t rows, inner;
};

OpOperand *operandUse(NodeOp op, int64_t position) {
  for (int64_t i = 0, e = op.getOperands().size(); i < e; ++i)
    if (op.operandPosition(i) == position)
      return &op->getOpOperand(i);
  return nullptr;
}

/// Whether `use` reads a vector over n, or a scalar (not added to `all`).
bool addVector(OpOperand *use, int64_t n, SmallVectorImpl<Reordered> &all) {
  RankedTensorType type = typeOf(use->get());
  if (type.getNumElements() == 1)
    return true;
  if (type.getRank() == 0 || type.getShape().back() != n ||
      type.getNumElements() != n)
    return false;
  all.push_back({use, 1, 1});
  return true;
}

/// Everything of the projection that runs over its columns.
bool columnsOf(Projection &p, int64_t n, SmallVectorImpl<Reordered> &all) {
  const bool gemm = isNode(p.product, "Gemm");
  const bool transB = gemm && intAttr(p.product, "transB", 0);
  OpOperand *weight = operandUse(p.product, 1);
  RankedTensorType type = typeOf(weight->get());
  if (type.getRank() != 2 || type.getDimSize(transB ? 0 : 1) != n)
    return false;
  all.push_back({weight, transB ? 1 : type.getDimSize(0),
                 transB ? type.getDimSize(1) : 1});
  if (OpOperand *bias = operandUse(p.product, 2);
      bias && !addVector(bias, n, all))
    return false;
  if (p.sum) {
    bool productFirst = operandAt(p.sum, 0) == p.product.getResult(0);
    if (!addVector(operandUse(p.sum, productFirst ? 1 : 0), n, all))
      return false;
  }
  for (const Reordered &entry : all) {
    // Data that others read too would be stored twice.
    Value value = entry.use->get();
    auto constant = value.getDefiningOp<arith::ConstantOp>();
    auto stored = value.getDefiningOp<comm::WeightOp>();
    bool known = constant
                     ? isa<DenseElementsAttr>(constant.getValue())
                     : stored && value.hasOneUse() && !stored.getGlobalAttr();
    if (!known || !constantData(value, /*weights=*/true))
      return false;
  }
  return true;
}

/// [g][part][size / groups] instead of [part][size]; all in units of `inner`.
void reorder(OpBuilder &builder, const Reordered &entry, ArrayRef<Part> parts,
             int64_t groups) {
  Value value = entry.use->get();
  onnx::Tensor data = *constantData(value, /*weights=*/true);
  onnx::Tensor made = onnx::Tensor::allocate(data.type);
  const int64_t n = parts.back().begin + parts.back().size;
  const size_t unit = data.bytes.size() / (entry.rows * n);
  std::byte *to = made.mutableBytes().data();
  for (int64_t row = 0; row < entry.rows; ++row) {
    const std::byte *from = data.bytes.data() + row * n * unit;
    for (int64_t g = 0; g < groups; ++g)
      for (const Part &part : parts) {
        const int64_t share = part.size / groups;
        std::memcpy(to, from + (part.begin + g * share) * unit, share * unit);
        to += share * unit;
      }
  }
  builder.setInsertionPoint(value.getDefiningOp());
  if (auto constant = value.getDefiningOp<arith::ConstantOp>()) {
    auto type = cast<RankedTensorType>(constant.getType());
    auto bytes = reinterpret_cast<const char *>(made.bytes.data());
    entry.use->set(arith::ConstantOp::create(
        builder, constant.getLoc(),
        DenseElementsAttr::getFromRawBuffer(
            type, ArrayRef<char>(bytes, made.bytes.size()))));
    return;
  }
  auto weight = value.getDefiningOp<comm::WeightOp>();
  auto *dialect = builder.getContext()->getLoadedDialect<comm::CommDialect>();
  std::string section = (weight.getSection() + "@groups" + Twine(groups)).str();
  dialect->getWeightStore().add(weight.getFile().str(), section,
                                {made.bytes, made.owner});
  entry.use->set(comm::WeightOp::create(
      builder, weight.getLoc(), weight.getType(),
      builder.getStringAttr(section), weight.getFileAttr(), DenseI64ArrayAttr(),
      ArrayAttr(), StringAttr(), TypeAttr()));
  weight.erase();
}

Value int64s(OpBuilder &builder, Location loc, ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())},
                                    builder.getI64Type());
  return arith::ConstantOp::create(builder, loc,
                                   DenseElementsAttr::get(type, values));
}

Value reshape(Rewrite &rewrite, Operation *root, Value value,
              ArrayRef<int64_t> shape, ArrayRef<int64_t> target) {
  rewrite.builder.setInsertionPoint(root);
  Value sizes = int64s(rewrite.builder, root->getLoc(), target);
  auto type = RankedTensorType::get(shape, typeOf(value).getElementType());
  return rewrite.make(root, "Reshape", "", 13, {value, sizes}, {}, {Type(type)})
      .getResult(0);
}

/// One Split in place of the nodes that take the parts now. With `groups`, the
/// columns were reordered.
void cut(Rewrite &rewrite, Value value, ArrayRef<Part> parts, int64_t groups) {
  Operation *root = nullptr;
  for (Operation *user : value.getUsers())
    if (!root || user->isBeforeInBlock(root))
      root = user;
  SmallVector<Operation *> old(value.getUsers());
  SmallVector<int64_t> shape(typeOf(value).getShape());
  // 0 keeps the size: only the last dimension is spelled out.
  SmallVector<int64_t> target(shape.size() - 1, 0);
  Value whole = value;
  if (groups > 1) {
    SmallVector<int64_t> grouped(shape), to(target);
    grouped.back() = groups;
    grouped.push_back(shape.back() / groups);
    to.append({groups, shape.back() / groups});
    whole = reshape(rewrite, root, value, grouped, to);
    shape = grouped;
  }
  SmallVector<int64_t> sizes;
  SmallVector<Type> types;
  for (const Part &part : parts) {
    sizes.push_back(part.size / groups);
    shape.back() = sizes.back();
    types.push_back(
        RankedTensorType::get(shape, typeOf(value).getElementType()));
  }
  rewrite.builder.setInsertionPoint(root);
  Value list = int64s(rewrite.builder, root->getLoc(), sizes);
  NodeOp split = rewrite.make(
      root, "Split", "", 13, {whole, list},
      {rewrite.attr("axis", static_cast<int64_t>(shape.size()) - 1)}, types);
  for (auto [part, result] : llvm::zip(parts, split.getResults())) {
    Value with = result;
    if (groups > 1) {
      SmallVector<int64_t> to(target);
      to.push_back(part.size);
      with = reshape(rewrite, root, result,
                     typeOf(part.values.front()).getShape(), to);
    }
    for (Value taken : part.values)
      taken.replaceAllUsesWith(with);
  }
  for (Operation *op : old)
    if (op != whole.getDefiningOp() && op != split.getOperation())
      op->erase();
}

} // namespace

void prepareProjections(func::FuncOp function, const AxisOptions &options) {
  if (options.dataParallel)
    return;
  SmallVector<NodeOp> nodes;
  function.walk([&](NodeOp op) {
    if (op.getNumResults() == 1)
      nodes.push_back(op);
  });
  Rewrite rewrite(function.getContext());
  for (NodeOp op : nodes) {
    auto projection = projectionOf(op);
    if (!projection)
      continue;
    Value value = projection->value();
    SmallVector<Part> parts = partsOf(value);
    if (parts.empty())
      continue;
    const int64_t n = typeOf(value).getShape().back();
    bool equal = true, divides = true;
    for (const Part &part : parts) {
      equal &= part.size == parts.front().size;
      divides &= part.size % options.size == 0;
    }
    bool sliced = isNode(cast<NodeOp>(*value.user_begin()), "Slice");
    SmallVector<Reordered> columns;
    if (equal) {
      if (sliced)
        cut(rewrite, value, parts, 1);
      continue;
    }
    if (divides && columnsOf(*projection, n, columns)) {
      explain(function, op.getLoc(), "comm-partition", "reorder-columns",
              "unequal-parts",
              "axis=" + Twine(options.name) + " parts=" + Twine(parts.size()));
      for (const Reordered &entry : columns)
        reorder(rewrite.builder, entry, parts, options.size);
      cut(rewrite, value, parts, options.size);
    }
  }
}

} // namespace concord::partition

//===- Issues.cpp - Collectives in tensor form, taken apart ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "common/Issues.h"

#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace concord {

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

std::optional<IssueView> viewIssue(comm::CollectiveOpInterface op) {
  Value input = op.getCollectiveInput(), output = op.getCollectiveOutput();
  // A fused kernel makes something else of what is reduced or gathered.
  if (!input || !output || !op.getCollectiveKernel().empty())
    return std::nullopt;
  auto in = dyn_cast<RankedTensorType>(input.getType());
  auto out = dyn_cast<RankedTensorType>(output.getType());
  if (!in || !out || !in.hasStaticShape() || !out.hasStaticShape())
    return std::nullopt;
  if (!op.isAsync())
    return IssueView{op, {}, op->getResult(0)};
  auto start = cast<comm::StartOp>(op.getOperation());
  if (!start.getFuture().hasOneUse())
    return std::nullopt;
  auto wait = dyn_cast<comm::WaitOp>(*start.getFuture().user_begin());
  if (!wait || wait->getBlock() != start->getBlock())
    return std::nullopt;
  return IssueView{op, wait, wait.getResult()};
}

std::optional<IssueView> viewIssueOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return std::nullopt;
  if (auto wait = dyn_cast<comm::WaitOp>(op)) {
    comm::StartOp start = wait.getStart();
    if (!start)
      return std::nullopt;
    return viewIssue(cast<comm::CollectiveOpInterface>(start.getOperation()));
  }
  auto collective = dyn_cast<comm::CollectiveOpInterface>(op);
  return collective ? viewIssue(collective) : std::nullopt;
}

/// What a rewritten operation keeps: what neither its form nor its place says.
static void keepAttributes(Operation *from, Operation *to) {
  for (NamedAttribute attr : from->getDiscardableAttrs())
    if (attr.getName() != "site")
      to->setDiscardableAttr(attr.getName(), attr.getValue());
}

static IssueView finishStart(OpBuilder &builder, IssueView like,
                             comm::StartOp start) {
  builder.setInsertionPoint(like.wait);
  auto wait = comm::WaitOp::create(builder, like.wait.getLoc(),
                                   start.getInit().getType(), start.getFuture(),
                                   start.getInput(), start.getInit());
  return {cast<comm::CollectiveOpInterface>(start.getOperation()), wait,
          wait.getResult()};
}

IssueView buildIssue(IssueView like, const IssueForm &form, Value input,
                     RankedTensorType type) {
  Location loc = like.op->getLoc();
  OpBuilder builder(like.op);
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                       type.getElementType());
  bool dims = form.kind != comm::CollectiveKind::all_reduce &&
              form.kind != comm::CollectiveKind::broadcast;
  if (like.wait) {
    bool reduces = form.reduction != comm::ReductionKind::none;
    auto number = [&](bool given, int64_t value) {
      return given ? builder.getI64IntegerAttr(value) : IntegerAttr();
    };
    auto start = comm::StartOp::create(
        builder, loc, comm::FutureType::get(builder.getContext()),
        comm::CollectiveKindAttr::get(builder.getContext(), form.kind),
        form.domain,
        reduces
            ? comm::ReductionKindAttr::get(builder.getContext(), form.reduction)
            : nullptr,
        number(dims, form.dim), nullptr, nullptr,
        number(form.root >= 0, form.root), nullptr, nullptr, nullptr, nullptr,
        input, init);
    keepAttributes(like.op, start);
    return finishStart(builder, like, start);
  }
  Operation *made = nullptr;
  switch (form.kind) {
  case comm::CollectiveKind::all_reduce:
    made = comm::AllReduceOp::create(builder, loc, type, form.domain.getValue(),
                                     form.reduction, input, init);
    break;
  case comm::CollectiveKind::all_gather:
    made = comm::AllGatherOp::create(builder, loc, type, form.domain.getValue(),
                                     form.dim, input, init);
    break;
  case comm::CollectiveKind::reduce_scatter:
    made = comm::ReduceScatterOp::create(builder, loc, type,
                                         form.domain.getValue(), form.reduction,
                                         form.dim, input, init);
    break;
  case comm::CollectiveKind::broadcast:
    made = comm::BroadcastOp::create(builder, loc, type, form.domain.getValue(),
                                     form.root, input, init);
    break;
  default:
    llvm_unreachable("a form that no pass builds");
  }
  keepAttributes(like.op, made);
  return {cast<comm::CollectiveOpInterface>(made), {}, made->getResult(0)};
}

IssueView cloneIssue(IssueView like, Value input, RankedTensorType type) {
  Location loc = like.op->getLoc();
  OpBuilder builder(like.op);
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                       type.getElementType());
  Operation *made = like.op->clone();
  builder.insert(made);
  made->removeDiscardableAttr("site");
  for (OpOperand &operand : made->getOpOperands())
    operand.set(operand.get() == like.input() && operand.getOperandNumber() == 0
                    ? input
                    : init);
  if (auto start = dyn_cast<comm::StartOp>(made))
    return finishStart(builder, like, start);
  made->getResult(0).setType(type);
  return {cast<comm::CollectiveOpInterface>(made), {}, made->getResult(0)};
}

void eraseIssue(IssueView view) {
  if (view.wait)
    view.wait.erase();
  view.op.erase();
}

uint64_t tensorBytes(Type type) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (!shaped || !shaped.hasStaticShape())
    return 0;
  return shaped.getNumElements() * elementBytes(shaped.getElementType());
}

uint64_t wholeBytes(IssueView view) {
  return std::max(tensorBytes(view.inputType()), tensorBytes(view.type()));
}

bool isForeign(Value value) {
  if (value.getDefiningOp<comm::ComputeOp>())
    return true;
  return llvm::any_of(value.getUsers(), llvm::IsaPred<comm::ComputeOp>);
}

//===----------------------------------------------------------------------===//
// Elementwise operations
//===----------------------------------------------------------------------===//

/// linalg over whole operands in the same order: every element by itself.
static bool isPointwise(linalg::LinalgOp op, unsigned inputs) {
  return op && op.getNumDpsInputs() == inputs && op.getNumDpsInits() == 1 &&
         op->getNumResults() == 1 && op.hasPureTensorSemantics() &&
         op.getNumParallelLoops() == op.getNumLoops() &&
         llvm::all_of(op.getIndexingMapsArray(),
                      [](AffineMap map) { return map.isIdentity(); });
}

/// Looks through a widening of `value`.
static Value widened(Value value) {
  Operation *op = value.getDefiningOp();
  return op && isa<arith::ExtFOp>(op) ? op->getOperand(0) : value;
}

static Elementwise scalarKind(Operation *op) {
  return llvm::TypeSwitch<Operation *, Elementwise>(op)
      .Case<arith::AddFOp, arith::AddIOp>([](auto) { return Elementwise::Add; })
      .Case<arith::SubFOp, arith::SubIOp>([](auto) { return Elementwise::Sub; })
      .Case<arith::MulFOp, arith::MulIOp>([](auto) { return Elementwise::Mul; })
      .Case<arith::MaximumFOp, arith::MaxSIOp>(
          [](auto) { return Elementwise::Max; })
      .Case<arith::MinimumFOp, arith::MinSIOp>(
          [](auto) { return Elementwise::Min; })
      .Case<arith::AndIOp>([](auto) { return Elementwise::And; })
      .Case<arith::OrIOp>([](auto) { return Elementwise::Or; })
      .Default(Elementwise::None);
}

Elementwise matchBinary(Operation *op, Value &left, Value &right) {
  if (op->getNumResults() != 1 ||
      !isa<RankedTensorType>(op->getResult(0).getType()))
    return Elementwise::None;
  Type type = op->getResult(0).getType();
  auto both = [&](Value a, Value b) {
    left = a;
    right = b;
    return a.getType() == type && b.getType() == type;
  };
  if (auto compute = dyn_cast<comm::ComputeOp>(op)) {
    auto kind = llvm::StringSwitch<Elementwise>(compute.getName())
                    .Case("add", Elementwise::Add)
                    .Case("subtract", Elementwise::Sub)
                    .Case("multiply", Elementwise::Mul)
                    .Case("maximum", Elementwise::Max)
                    .Case("minimum", Elementwise::Min)
                    .Case("and", Elementwise::And)
                    .Case("or", Elementwise::Or)
                    .Default(Elementwise::None);
    if (compute.getOperands().size() != 2 ||
        !both(compute.getOperands()[0], compute.getOperands()[1]))
      return Elementwise::None;
    return kind;
  }
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    Elementwise kind = scalarKind(op);
    if (kind == Elementwise::None ||
        !both(op->getOperand(0), op->getOperand(1)))
      return Elementwise::None;
    return kind;
  }
  if (!isPointwise(linalgOp, 2) ||
      !both(linalgOp.getDpsInputs()[0], linalgOp.getDpsInputs()[1]))
    return Elementwise::None;
  Block *body = linalgOp.getBlock();
  Value yielded = body->getTerminator()->getOperand(0);
  Operation *inner = yielded.getDefiningOp();
  if (inner && isa<arith::TruncFOp>(inner))
    inner = inner->getOperand(0).getDefiningOp();
  if (!inner || inner->getNumOperands() != 2 || inner->getParentOp() != op)
    return Elementwise::None;
  Elementwise kind = scalarKind(inner);
  Value a = widened(inner->getOperand(0)), b = widened(inner->getOperand(1));
  if (a == body->getArgument(0) && b == body->getArgument(1))
    return kind;
  if (a == body->getArgument(1) && b == body->getArgument(0)) {
    // The operation itself is cloned, so the order of its inputs stays.
    return kind == Elementwise::Sub ? Elementwise::None : kind;
  }
  return Elementwise::None;
}

static bool isCast(Operation *op) {
  return isa<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp,
             arith::FPToSIOp, arith::FPToUIOp, arith::ExtSIOp, arith::ExtUIOp,
             arith::TruncIOp>(op);
}

Value matchConvert(Operation *op) {
  if (auto compute = dyn_cast<comm::ComputeOp>(op)) {
    if (compute.getName() != "convert" || compute.getOperands().size() != 1 ||
        compute.getNumResults() != 1)
      return {};
    Value from = compute.getOperands().front();
    auto in = dyn_cast<RankedTensorType>(from.getType());
    auto out = dyn_cast<RankedTensorType>(compute.getResult(0).getType());
    return in && out && in.getShape() == out.getShape() &&
                   in.getElementType().isIntOrFloat() &&
                   out.getElementType().isIntOrFloat()
               ? from
               : Value();
  }
  if (isCast(op) && isa<RankedTensorType>(op->getResult(0).getType()))
    return op->getOperand(0);
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp || !isPointwise(linalgOp, 1))
    return {};
  Block *body = linalgOp.getBlock();
  // Through f32 on the way, as half precision is converted, or directly.
  Value value = body->getTerminator()->getOperand(0);
  unsigned casts = 0;
  while (Operation *inner = value.getDefiningOp()) {
    if (!isCast(inner) || inner->getParentOp() != op)
      return {};
    value = inner->getOperand(0);
    ++casts;
  }
  return casts && value == body->getArgument(0) ? linalgOp.getDpsInputs()[0]
                                                : Value();
}

/// A figure that grows with the elements that are computed.
static void scale(comm::ComputeOp op, ArrayRef<StringRef> names,
                  double factor) {
  for (StringRef name : names)
    if (auto attr = op->getAttrOfType<IntegerAttr>(name))
      op->setAttr(
          name, IntegerAttr::get(attr.getType(),
                                 static_cast<int64_t>(attr.getInt() * factor)));
}

Value cloneElementwise(OpBuilder &builder, Operation *op, ValueRange operands,
                       ArrayRef<int64_t> shape) {
  auto before = cast<RankedTensorType>(op->getResult(0).getType());
  auto type = RankedTensorType::get(shape, before.getElementType());
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    Operation *made = op->clone();
    builder.insert(made);
    made->setOperands(operands);
    made->getResult(0).setType(type);
    if (auto compute = dyn_cast<comm::ComputeOp>(made);
        compute && before.getNumElements())
      scale(compute, {"flops", "bytes_read", "bytes_written"},
            static_cast<double>(type.getNumElements()) /
                static_cast<double>(before.getNumElements()));
    return made->getResult(0);
  }
  Location loc = op->getLoc();
  Value init =
      tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  SmallVector<AffineMap> maps(operands.size() + 1,
                              builder.getMultiDimIdentityMap(shape.size()));
  SmallVector<utils::IteratorType> iterators(shape.size(),
                                             utils::IteratorType::parallel);
  Block *body = linalgOp.getBlock();
  auto made = linalg::GenericOp::create(
      builder, loc, type, operands, init, maps, iterators,
      [&](OpBuilder &inner, Location, ValueRange arguments) {
        IRMapping mapping;
        mapping.map(body->getArguments(), arguments);
        for (Operation &scalar : *body)
          inner.clone(scalar, mapping);
      });
  return made.getResult(0);
}

/// `factor` in `type`, or null when the type has no such value.
static TypedAttr factorAttr(Type type, int64_t factor) {
  if (auto real = dyn_cast<FloatType>(type)) {
    llvm::APFloat value(static_cast<double>(factor));
    bool loses = false;
    value.convert(real.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven,
                  &loses);
    return loses || !value.isFinite() ? TypedAttr()
                                      : FloatAttr::get(real, value);
  }
  auto integer = dyn_cast<IntegerType>(type);
  // Sums wrap, and so does the product; of booleans there is no sum.
  if (!integer || integer.getWidth() < 8)
    return {};
  return IntegerAttr::get(
      integer, llvm::APInt(integer.getWidth(), static_cast<uint64_t>(factor),
                           /*isSigned=*/false, /*implicitTrunc=*/true));
}

Value multiply(OpBuilder &builder, Location loc, Value value, int64_t factor,
               bool opaque) {
  auto type = cast<RankedTensorType>(value.getType());
  TypedAttr scalar = factorAttr(type.getElementType(), factor);
  if (!scalar)
    return {};
  if (opaque) {
    auto made = comm::ComputeOp::create(
        builder, loc, TypeRange(type), builder.getStringAttr("multiply_by"),
        ValueRange(value), builder.getI64IntegerAttr(type.getNumElements()),
        builder.getI64IntegerAttr(tensorBytes(type)),
        builder.getI64IntegerAttr(tensorBytes(type)), nullptr, nullptr, nullptr,
        nullptr);
    made->setAttr("factor", builder.getI64IntegerAttr(factor));
    return made.getResult(0);
  }
  if (isa<IntegerType>(type.getElementType()) &&
      !type.getElementType().isSignlessInteger())
    return {}; // arith has signless integers only
  Value init = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                       type.getElementType());
  SmallVector<AffineMap> maps(2,
                              builder.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> iterators(type.getRank(),
                                             utils::IteratorType::parallel);
  bool half = isa<FloatType>(type.getElementType()) &&
              type.getElementType().getIntOrFloatBitWidth() < 32;
  auto made = linalg::GenericOp::create(
      builder, loc, type, value, init, maps, iterators,
      [&](OpBuilder &inner, Location l, ValueRange arguments) {
        Value element = arguments[0];
        Value product;
        if (half) {
          // As all half precision here: in f32, rounded once.
          Type wide = inner.getF32Type();
          Value by = arith::ConstantOp::create(
              inner, l, inner.getFloatAttr(wide, static_cast<double>(factor)));
          element = arith::ExtFOp::create(inner, l, wide, element);
          product = arith::MulFOp::create(inner, l, element, by);
          product =
              arith::TruncFOp::create(inner, l, type.getElementType(), product);
        } else {
          Value by = arith::ConstantOp::create(inner, l, scalar);
          if (isa<FloatType>(type.getElementType()))
            product = arith::MulFOp::create(inner, l, element, by);
          else
            product = arith::MulIOp::create(inner, l, element, by);
        }
        linalg::YieldOp::create(inner, l, product);
      });
  return made.getResult(0);
}

//===----------------------------------------------------------------------===//
// Slices and reshapes
//===----------------------------------------------------------------------===//

std::optional<SliceView> matchSlice(Operation *op) {
  SliceView slice;
  slice.op = op;
  if (auto extract = dyn_cast<tensor::ExtractSliceOp>(op)) {
    if (!extract.hasUnitStride() ||
        extract.getType().getRank() != extract.getSourceType().getRank())
      return std::nullopt;
    slice.source = extract.getSource();
    slice.offsets = extract.getMixedOffsets();
  } else if (auto compute = dyn_cast<comm::ComputeOp>(op)) {
    if (compute.getNumResults() != 1 || compute.getOperands().empty())
      return std::nullopt;
    slice.source = compute.getOperands().front();
    if (compute.getName() == "dynamic-slice") {
      for (Value offset : compute.getOperands().drop_front())
        slice.offsets.push_back(offset);
    } else if (auto starts = op->getAttrOfType<DenseI64ArrayAttr>("starts");
               starts && compute.getName() == "slice") {
      for (int64_t start : starts.asArrayRef())
        slice.offsets.push_back(
            IntegerAttr::get(IndexType::get(op->getContext()), start));
    } else {
      return std::nullopt;
    }
  } else {
    return std::nullopt;
  }
  slice.result = op->getResult(0);
  auto source = dyn_cast<RankedTensorType>(slice.source.getType());
  auto type = dyn_cast<RankedTensorType>(slice.result.getType());
  if (!source || !type || !source.hasStaticShape() || !type.hasStaticShape() ||
      source.getRank() != type.getRank() ||
      slice.offsets.size() != static_cast<size_t>(source.getRank()))
    return std::nullopt;
  slice.sizes = type.getShape();
  return slice;
}

/// The one dimension along which a slice is not whole, or -1.
static int64_t slicedDim(const SliceView &slice, int64_t blocks) {
  auto source = cast<RankedTensorType>(slice.source.getType());
  int64_t dim = -1;
  for (int64_t i = 0; i < source.getRank(); ++i) {
    if (slice.sizes[i] == source.getDimSize(i))
      continue; // its offset can only be 0
    if (dim >= 0 || slice.sizes[i] * blocks != source.getDimSize(i))
      return -1;
    dim = i;
  }
  return dim;
}

int64_t ownShardDim(const SliceView &slice, comm::DomainOp domain,
                    RankValues &values) {
  auto size = domain ? domain.getUniformGroupSize() : std::nullopt;
  if (!size || *size < 2)
    return -1;
  int64_t dim = slicedDim(slice, *size);
  if (dim < 0)
    return -1;
  auto offset = values.of(slice.offsets[dim]);
  return offset && values.isPlace(*offset, domain, slice.sizes[dim]) ? dim : -1;
}

std::optional<std::pair<int64_t, int64_t>>
fixedBlock(const SliceView &slice, int64_t blocks, RankValues &values) {
  int64_t dim = slicedDim(slice, blocks);
  if (dim < 0 || !slice.sizes[dim])
    return std::nullopt;
  auto offset = values.of(slice.offsets[dim]);
  if (!offset || offset->empty() || offset->front() < 0 ||
      offset->front() % slice.sizes[dim] ||
      llvm::any_of(*offset, [&](int64_t at) { return at != offset->front(); }))
    return std::nullopt;
  return std::make_pair(dim, offset->front() / slice.sizes[dim]);
}

bool isReshape(Operation *op) {
  if (isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
    return true;
  auto compute = dyn_cast<comm::ComputeOp>(op);
  return compute && compute.getName() == "reshape" &&
         compute.getOperands().size() == 1 && compute.getNumResults() == 1;
}

Value reshapeTo(OpBuilder &builder, Location loc, Value value,
                ArrayRef<int64_t> shape) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getShape() == shape)
    return value;
  if (type.getRank() > 1) {
    ReassociationIndices all =
        llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
    value = tensor::CollapseShapeOp::create(
        builder, loc, value, ArrayRef<ReassociationIndices>{all});
  } else if (type.getRank() == 0) {
    value = tensor::ExpandShapeOp::create(
        builder, loc, RankedTensorType::get({1}, type.getElementType()), value,
        ArrayRef<ReassociationIndices>{});
  }
  auto to = RankedTensorType::get(shape, type.getElementType());
  if (shape.size() == 1)
    return value;
  if (shape.empty())
    return tensor::CollapseShapeOp::create(builder, loc, to, value,
                                           ArrayRef<ReassociationIndices>{});
  ReassociationIndices all =
      llvm::to_vector(llvm::seq<int64_t>(0, shape.size()));
  return tensor::ExpandShapeOp::create(builder, loc, to, value,
                                       ArrayRef<ReassociationIndices>{all});
}

} // namespace concord

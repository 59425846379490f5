//===- ImportShard.cpp - comm-import-shard --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A grid's devices are world ranks, row-major. Each list of axes that a
// collective names becomes one domain; members of a group are row-major over
// the axes in the order listed, which is how upstream numbers them within a
// group.
//
//===----------------------------------------------------------------------===//

#include "Passes.h"

#include "comm/Comm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

namespace concord {
#define GEN_PASS_DEF_COMMIMPORTSHARD
#include "Passes.h.inc"
} // namespace concord

using namespace mlir;
using namespace concord;

namespace {

using Axes = std::vector<int64_t>;

struct ImportShard : public concord::impl::CommImportShardBase<ImportShard> {
  using CommImportShardBase::CommImportShardBase;

  /// The size of every axis of the grid that `op` runs on.
  ArrayRef<int64_t> shapeOf(Operation *op, StringRef grid) {
    auto found = grids.find(grid);
    if (found != grids.end())
      return found->second.getShape();
    op->emitOpError("is on the grid @") << grid << ", which is not defined";
    return {};
  }

  /// The groups along `axes`; no axes: all of them.
  std::vector<std::vector<int64_t>> groupsOf(ArrayRef<int64_t> shape,
                                             Axes axes) {
    Axes order;
    for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis)
      if (!llvm::is_contained(axes, axis))
        order.push_back(axis);
    llvm::append_range(order, axes);
    int64_t size = 1, total = 1;
    for (int64_t axis : axes)
      size *= shape[axis];
    for (int64_t extent : shape)
      total *= extent;
    std::vector<int64_t> stride(shape.size(), 1);
    for (size_t i = shape.size(); i-- > 1;)
      stride[i - 1] = stride[i] * shape[i];
    std::vector<std::vector<int64_t>> groups(total / size);
    std::vector<int64_t> index(order.size(), 0);
    for (int64_t i = 0; i < total; ++i) {
      int64_t rank = 0;
      for (auto [value, axis] : llvm::zip_equal(index, order))
        rank += value * stride[axis];
      groups[i / size].push_back(rank);
      for (size_t k = order.size(); k-- > 0;) {
        if (++index[k] < shape[order[k]])
          break;
        index[k] = 0;
      }
    }
    return groups;
  }

  static Axes allAxes(ArrayRef<int64_t> shape) {
    Axes axes(shape.size());
    for (auto [i, axis] : llvm::enumerate(axes))
      axis = i;
    return axes;
  }

  /// Axes as a list; upstream's empty list on collectives means a group of one.
  static Axes listed(ArrayRef<int16_t> axes) {
    return Axes(axes.begin(), axes.end());
  }

  StringAttr domainFor(Operation *op, StringRef grid, const Axes &axes) {
    StringAttr &known = domains[{grid.str(), axes}];
    if (known)
      return known;
    std::string name = grid.str();
    if (axes.empty())
      name += "_self";
    for (int64_t axis : axes)
      name += "_" + std::to_string(axis);
    std::string unique = name;
    for (unsigned i = 1; symbols->lookup(unique); ++i)
      unique = name + "_d" + std::to_string(i);
    OpBuilder builder(op->getContext());
    SmallVector<Attribute> groups;
    for (auto &group : groupsOf(grids[grid].getShape(), axes))
      groups.push_back(builder.getDenseI64ArrayAttr(group));
    builder.setInsertionPoint(grids[grid]);
    auto domain =
        comm::DomainOp::create(builder, grids[grid].getLoc(), unique,
                               builder.getArrayAttr(groups), 0, nullptr);
    symbols->insert(domain);
    ++numDomains;
    return known = domain.getSymNameAttr();
  }

  static int64_t sizeOf(ArrayRef<int64_t> shape, const Axes &axes) {
    int64_t size = 1;
    for (int64_t axis : axes)
      size *= shape[axis];
    return size;
  }

  FailureOr<comm::ReductionKind> reductionOf(Operation *op,
                                             shard::ReductionKind kind) {
    using R = shard::ReductionKind;
    switch (kind) {
    case R::Sum:
      return comm::ReductionKind::sum;
    case R::Max:
      return comm::ReductionKind::max;
    case R::Min:
      return comm::ReductionKind::min;
    case R::Product:
      return comm::ReductionKind::prod;
    case R::Average:
      return comm::ReductionKind::avg;
    case R::BitwiseAnd:
      return comm::ReductionKind::and_;
    case R::BitwiseOr:
      return comm::ReductionKind::or_;
    default:
      return op->emitOpError("reduces by ")
             << stringifyReductionKind(kind)
             << "; supported are sum, max, min, product, average, bitwise_and, "
                "bitwise_or";
    }
  }

  /// The group rank of a member given by its multi-index within the group.
  FailureOr<int64_t> memberOf(Operation *op, ArrayRef<int64_t> shape,
                              const Axes &axes, ArrayRef<int64_t> index,
                              StringRef what) {
    if (index.size() != axes.size())
      return op->emitOpError("has a ")
             << what << " of " << index.size() << " indices in a group of "
             << axes.size() << " axes";
    int64_t member = 0;
    for (auto [value, axis] : llvm::zip_equal(index, axes)) {
      if (ShapedType::isDynamic(value))
        return op->emitOpError("has a ")
               << what << " that is only known at run time, which is not "
               << "supported: every rank must know it";
      if (value < 0 || value >= shape[axis])
        return op->emitOpError("has a ")
               << what << " outside axis " << axis << " of its grid";
      member = member * shape[axis] + value;
    }
    return member;
  }

  /// A static tensor type, which all collectives need.
  FailureOr<RankedTensorType> tensorOf(Operation *op, Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape())
      return op->emitOpError("moves ")
             << type << "; only tensors of static shape are supported";
    return tensor;
  }

  Value empty(OpBuilder &builder, Location loc, RankedTensorType type) {
    return tensor::EmptyOp::create(builder, loc, type.getShape(),
                                   type.getElementType());
  }

  Value extract(OpBuilder &builder, Location loc, Value source, int64_t dim,
                OpFoldResult offset, int64_t size) {
    auto type = cast<RankedTensorType>(source.getType());
    SmallVector<OpFoldResult> offsets(type.getRank(), builder.getIndexAttr(0)),
        sizes, strides(type.getRank(), builder.getIndexAttr(1));
    for (int64_t extent : type.getShape())
      sizes.push_back(builder.getIndexAttr(extent));
    offsets[dim] = offset;
    sizes[dim] = builder.getIndexAttr(size);
    return tensor::ExtractSliceOp::create(builder, loc, source, offsets, sizes,
                                          strides);
  }

  Value insert(OpBuilder &builder, Location loc, Value part, Value whole,
               int64_t dim, int64_t offset) {
    auto type = cast<RankedTensorType>(part.getType());
    SmallVector<OpFoldResult> offsets(type.getRank(), builder.getIndexAttr(0)),
        sizes, strides(type.getRank(), builder.getIndexAttr(1));
    for (int64_t extent : type.getShape())
      sizes.push_back(builder.getIndexAttr(extent));
    offsets[dim] = builder.getIndexAttr(offset);
    return tensor::InsertSliceOp::create(builder, loc, part, whole, offsets,
                                         sizes, strides);
  }

  /// Pairs (source, target) of group ranks `offset` apart along one axis.
  ArrayAttr shifted(OpBuilder &builder, ArrayRef<int64_t> shape,
                    const Axes &axes, int64_t along, int64_t offset,
                    bool rotate) {
    int64_t inner = 1, total = sizeOf(shape, axes);
    for (size_t i = axes.size(); i-- > 0 && axes[i] != along;)
      inner *= shape[axes[i]];
    int64_t extent = shape[along];
    SmallVector<Attribute> pairs;
    for (int64_t member = 0; member < total; ++member) {
      int64_t at = member / inner % extent, to = at + offset;
      if (rotate)
        to = ((to % extent) + extent) % extent;
      else if (to < 0 || to >= extent)
        continue;
      pairs.push_back(
          builder.getDenseI64ArrayAttr({member, member + (to - at) * inner}));
    }
    return builder.getArrayAttr(pairs);
  }

  LogicalResult collective(Operation *op);
  LogicalResult halo(shard::UpdateHaloOp op);
  LogicalResult index(Operation *op);
  void runOnOperation() override;

  std::optional<SymbolTable> symbols;
  llvm::StringMap<shard::GridOp> grids;
  std::map<std::pair<std::string, Axes>, StringAttr> domains;
};

} // namespace

/// What all collectives but update_halo share: a grid, axes, input and result.
LogicalResult ImportShard::collective(Operation *op) {
  auto grid = op->getAttrOfType<FlatSymbolRefAttr>("grid").getValue();
  ArrayRef<int64_t> shape = shapeOf(op, grid);
  if (shape.empty())
    return failure();
  Axes axes;
  if (auto attr = op->getAttrOfType<DenseI16ArrayAttr>("grid_axes"))
    axes = listed(attr.asArrayRef());
  Value input = op->getOperand(0);
  auto from = tensorOf(op, input.getType());
  auto to = tensorOf(op, op->getResult(0).getType());
  if (failed(from) || failed(to))
    return failure();
  if (from->getElementType() != to->getElementType())
    return op->emitOpError("changes the element type; convert before it");
  StringAttr domain = domainFor(op, grid, axes);
  OpBuilder builder(op);
  Location loc = op->getLoc();
  Value init;
  auto out = [&] { return init ? init : init = empty(builder, loc, *to); };
  auto dim = [](const APInt &value) { return value.getSExtValue(); };

  FailureOr<Value> made =
      llvm::TypeSwitch<Operation *, FailureOr<Value>>(op)
          .Case<shard::AllReduceOp>([&](auto all) -> FailureOr<Value> {
            auto kind = reductionOf(op, all.getReduction());
            if (failed(kind))
              return failure();
            return comm::AllReduceOp::create(builder, loc, *to, domain, *kind,
                                             input, out())
                .getResult();
          })
          .Case<shard::ReduceScatterOp>([&](auto part) -> FailureOr<Value> {
            auto kind = reductionOf(op, part.getReduction());
            if (failed(kind))
              return failure();
            return comm::ReduceScatterOp::create(
                       builder, loc, *to, domain, *kind,
                       dim(part.getScatterAxis()), input, out())
                .getResult();
          })
          .Case<shard::ReduceOp>([&](auto reduce) -> FailureOr<Value> {
            auto kind = reductionOf(op, reduce.getReduction());
            auto root = memberOf(op, shape, axes, reduce.getRoot(), "root");
            if (failed(kind) || failed(root))
              return failure();
            return comm::ReduceOp::create(builder, loc, *to, domain, *kind,
                                          *root, input, out())
                .getResult();
          })
          .Case<shard::AllGatherOp>([&](auto gather) -> FailureOr<Value> {
            return comm::AllGatherOp::create(builder, loc, *to, domain,
                                             dim(gather.getGatherAxis()), input,
                                             out())
                .getResult();
          })
          .Case<shard::GatherOp>([&](auto gather) -> FailureOr<Value> {
            auto root = memberOf(op, shape, axes, gather.getRoot(), "root");
            if (failed(root))
              return failure();
            return comm::GatherOp::create(builder, loc, *to, domain,
                                          dim(gather.getGatherAxis()), *root,
                                          input, out())
                .getResult();
          })
          .Case<shard::ScatterOp>([&](auto scatter) -> FailureOr<Value> {
            auto root = memberOf(op, shape, axes, scatter.getRoot(), "root");
            if (failed(root))
              return failure();
            return comm::ScatterOp::create(builder, loc, *to, domain,
                                           dim(scatter.getScatterAxis()), *root,
                                           input, out())
                .getResult();
          })
          .Case<shard::BroadcastOp>([&](auto broadcast) -> FailureOr<Value> {
            auto root = memberOf(op, shape, axes, broadcast.getRoot(), "root");
            if (failed(root))
              return failure();
            return comm::BroadcastOp::create(builder, loc, *to, domain, *root,
                                             input, out())
                .getResult();
          })
          .Case<shard::AllToAllOp>([&](auto exchange) -> FailureOr<Value> {
            return comm::AllToAllOp::create(builder, loc, *to, domain,
                                            dim(exchange.getSplitAxis()),
                                            dim(exchange.getConcatAxis()),
                                            nullptr, nullptr, input, out())
                .getResult();
          })
          .Case<shard::ShiftOp>([&](auto shift) -> FailureOr<Value> {
            int64_t along = dim(shift.getShiftAxis());
            if (!llvm::is_contained(axes, along))
              return op->emitOpError("shifts along axis ")
                     << along << ", which is not among its grid_axes";
            // Upstream's picture: a positive offset reads from further along.
            ArrayAttr pairs = shifted(builder, shape, axes, along,
                                      -static_cast<int64_t>(shift.getOffset()),
                                      shift.getRotate());
            return comm::PermuteOp::create(builder, loc, *to, domain, pairs,
                                           input, out())
                .getResult();
          })
          .Case<shard::SendOp>([&](auto send) -> FailureOr<Value> {
            auto peer =
                memberOf(op, shape, axes, send.getDestination(), "destination");
            if (failed(peer))
              return failure();
            comm::SendOp::create(builder, loc, domain, *peer, input);
            return input;
          })
          .Case<shard::RecvOp>([&](auto recv) -> FailureOr<Value> {
            if (!recv.getSource())
              return op->emitOpError("has no source: an order that all ranks "
                                     "agree on needs to know "
                                     "it");
            auto peer = memberOf(op, shape, axes, *recv.getSource(), "source");
            if (failed(peer))
              return failure();
            return comm::RecvOp::create(builder, loc, *to, domain, *peer, out())
                .getResult();
          })
          .Case<shard::AllSliceOp>([&](auto slice) -> FailureOr<Value> {
            int64_t axis = dim(slice.getSliceAxis());
            int64_t size = to->getDimSize(axis);
            if (from->getDimSize(axis) != size * sizeOf(shape, axes))
              return op->emitOpError("does not cut dimension ")
                     << axis << " into one part per member";
            Value rank =
                comm::RankOp::create(builder, loc, builder.getIndexType(),
                                     FlatSymbolRefAttr::get(domain));
            Value extent = arith::ConstantIndexOp::create(builder, loc, size);
            Value offset = arith::MulIOp::create(builder, loc, rank, extent);
            return extract(builder, loc, input, axis, offset, size);
          })
          .Default([&](Operation *) -> FailureOr<Value> {
            return op->emitOpError("is not a collective that is known");
          });
  if (failed(made))
    return failure();
  op->getResult(0).replaceAllUsesWith(*made);
  op->erase();
  ++numCollectives;
  return success();
}

/// One exchange with each neighbour per split dimension, in turn, so that
/// corners arrive by way of the dimension before. The ends of the grid keep
/// their halos.
LogicalResult ImportShard::halo(shard::UpdateHaloOp op) {
  ArrayRef<int64_t> shape = shapeOf(op, op.getGrid());
  if (shape.empty())
    return failure();
  auto type = tensorOf(op, op.getResult().getType());
  if (failed(type))
    return failure();
  ArrayRef<int64_t> sizes = op.getStaticHaloSizes();
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value whole = op.getDestination();
  size_t next = 0;
  for (auto [dim, attr] : llvm::enumerate(op.getSplitAxes())) {
    Axes axes = listed(attr.asArrayRef());
    if (axes.empty())
      continue;
    if (axes.size() != 1)
      return op.emitOpError("splits dimension ")
             << dim << " over several grid axes, which is not supported";
    if (next + 2 > sizes.size())
      return op.emitOpError("has no halo sizes for dimension ") << dim;
    int64_t low = sizes[next], high = sizes[next + 1];
    next += 2;
    int64_t extent = type->getDimSize(dim), core = extent - low - high;
    if (ShapedType::isDynamic(low) || ShapedType::isDynamic(high) || low < 0 ||
        high < 0)
      return op.emitOpError("has halo sizes that are only known at run time");
    if (core < std::max(low, high))
      return op.emitOpError("has a halo wider than its core in dimension ")
             << dim;
    StringAttr domain = domainFor(op, op.getGrid(), axes);
    Value rank = comm::RankOp::create(builder, loc, builder.getIndexType(),
                                      FlatSymbolRefAttr::get(domain));
    auto exchange = [&](int64_t size, int64_t readAt, int64_t writeAt,
                        int64_t offset, int64_t end) {
      if (size == 0)
        return;
      Value part =
          extract(builder, loc, whole, dim, builder.getIndexAttr(readAt), size);
      Value kept = extract(builder, loc, whole, dim,
                           builder.getIndexAttr(writeAt), size);
      auto partType = cast<RankedTensorType>(part.getType());
      ArrayAttr pairs =
          shifted(builder, shape, axes, axes.front(), offset, /*rotate=*/false);
      Value got = comm::PermuteOp::create(builder, loc, partType, domain, pairs,
                                          part, empty(builder, loc, partType))
                      .getResult();
      Value last = arith::ConstantIndexOp::create(builder, loc, end);
      Value atEnd = arith::CmpIOp::create(builder, loc,
                                          arith::CmpIPredicate::eq, rank, last);
      Value chosen = arith::SelectOp::create(builder, loc, atEnd, kept, got);
      whole = insert(builder, loc, chosen, whole, dim, writeAt);
    };
    // My last rows are the next one's low halo; my first, the last one's high.
    exchange(low, extent - high - low, 0, +1, 0);
    exchange(high, low, extent - high, -1, shape[axes.front()] - 1);
  }
  op.getResult().replaceAllUsesWith(whole);
  op.erase();
  ++numCollectives;
  return success();
}

/// Queries of the grid.
LogicalResult ImportShard::index(Operation *op) {
  auto grid = op->getAttrOfType<FlatSymbolRefAttr>("grid").getValue();
  ArrayRef<int64_t> shape = shapeOf(op, grid);
  if (shape.empty())
    return failure();
  OpBuilder builder(op);
  Location loc = op->getLoc();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  auto rankAlong = [&](const Axes &axes) -> Value {
    return comm::RankOp::create(
        builder, loc, builder.getIndexType(),
        FlatSymbolRefAttr::get(domainFor(op, grid, axes)));
  };
  SmallVector<Value> results;
  if (isa<shard::ProcessLinearIndexOp>(op)) {
    results.push_back(rankAlong(allAxes(shape)));
  } else if (auto multi = dyn_cast<shard::ProcessMultiIndexOp>(op)) {
    Axes axes = listed(multi.getAxes());
    for (int64_t axis : axes.empty() ? allAxes(shape) : axes)
      results.push_back(rankAlong({axis}));
  } else if (auto extents = dyn_cast<shard::GridShapeOp>(op)) {
    Axes axes = listed(extents.getAxes());
    for (int64_t axis : axes.empty() ? allAxes(shape) : axes)
      results.push_back(constant(shape[axis]));
  } else {
    auto neighbors = cast<shard::NeighborsLinearIndicesOp>(op);
    Axes axes = listed(neighbors.getSplitAxes());
    if (axes.size() != 1 || neighbors.getDevice().size() != shape.size())
      return op->emitOpError("needs one split axis and an index per grid axis");
    int64_t axis = axes.front(), stride = 1;
    Value linear = constant(0);
    for (auto [i, value] : llvm::enumerate(neighbors.getDevice())) {
      linear = arith::MulIOp::create(builder, loc, linear, constant(shape[i]));
      linear = arith::AddIOp::create(builder, loc, linear, value);
      if (static_cast<int64_t>(i) > axis)
        stride *= shape[i];
    }
    Value at = neighbors.getDevice()[axis], none = constant(-1);
    auto neighbor = [&](int64_t offset, int64_t end) -> Value {
      Value isEnd = arith::CmpIOp::create(
          builder, loc, arith::CmpIPredicate::eq, at, constant(end));
      Value there = arith::AddIOp::create(builder, loc, linear,
                                          constant(offset * stride));
      return arith::SelectOp::create(builder, loc, isEnd, none, there);
    };
    results = {neighbor(-1, 0), neighbor(+1, shape[axis] - 1)};
  }
  op->replaceAllUsesWith(results);
  op->erase();
  return success();
}

void ImportShard::runOnOperation() {
  ModuleOp module = getOperation();
  symbols.emplace(module);
  int64_t world = 0;
  for (auto grid : module.getOps<shard::GridOp>()) {
    int64_t size = 1;
    for (int64_t extent : grid.getShape()) {
      if (ShapedType::isDynamic(extent)) {
        grid.emitOpError("has an axis of unknown size; ranks must be known");
        return signalPassFailure();
      }
      if (extent < 1 || size > (int64_t(1) << 20) / extent) {
        grid.emitOpError("has more than 1048576 devices, or none");
        return signalPassFailure();
      }
      size *= extent;
    }
    if (world && size != world) {
      grid.emitOpError("has ") << size << " devices, another grid " << world
                               << "; one program runs on one set of ranks";
      return signalPassFailure();
    }
    world = size;
    grids[grid.getSymName()] = grid;
  }
  if (grids.empty())
    return;
  bool failed = false;
  SmallVector<Operation *> found;
  module.walk([&](Operation *op) {
    if (op->getDialect() && isa<shard::ShardDialect>(op->getDialect()) &&
        !isa<shard::GridOp>(op))
      found.push_back(op);
  });
  for (Operation *op : found) {
    LogicalResult done =
        llvm::TypeSwitch<Operation *, LogicalResult>(op)
            .Case<shard::ShardingOp, shard::ShardOp, shard::GetShardingOp,
                  shard::ShardShapeOp>([](Operation *op) {
              return op->emitOpError("is a sharding, not a collective: run "
                                     "sharding-propagation and "
                                     "shard-partition first, or compile the "
                                     "ONNX model with --mesh");
            })
            .Case([&](shard::UpdateHaloOp op) { return halo(op); })
            .Case<shard::ProcessLinearIndexOp, shard::ProcessMultiIndexOp,
                  shard::GridShapeOp, shard::NeighborsLinearIndicesOp>(
                [&](Operation *op) { return index(op); })
            .Default([&](Operation *op) { return collective(op); });
    failed |= done.failed();
  }
  if (failed)
    return signalPassFailure();
  for (auto &grid : grids)
    grid.second.erase();
  Builder builder(&getContext());
  module->setAttr("comm.world", builder.getI64IntegerAttr(world));
  if (getPhase(module) < Phase::Partitioned)
    setPhase(module, Phase::Partitioned);
}

//===- Apply.cpp - From a sharding solution to one rank's function --------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Walks the operations in order, with every tensor in each of the layouts it
// has been made in so far, and emits the solver's steps where the solver put
// them.
//
//===----------------------------------------------------------------------===//

#include "partition/Axis.h"

#include "common/Explain.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace concord::sharding;

namespace concord::partition {
namespace {

class Applier {
public:
  Applier(func::FuncOp function, const AxisOptions &options,
          FlatSymbolRefAttr domain, const BoundProblem &bound,
          const Solution &solution)
      : function(function), options(options), domain(domain), bound(bound),
        solution(solution), builder(function.getContext()) {}

  LogicalResult run();

private:
  RankedTensorType localType(int32_t tensor, const Layout &layout) const;
  Value get(int32_t tensor, const Layout &layout);
  void set(int32_t tensor, const Layout &layout, Value value) {
    available[tensor].push_back({layout, value});
  }
  Value groupRank(Location loc) {
    return comm::RankOp::create(builder, loc, builder.getIndexType(), domain);
  }
  Value slice(Location loc, Value whole, DimRef dim);
  Value onFirstRank(Location loc, Value value);
  Value step(Location loc, int32_t tensor, const Step &step);
  void emit(Location loc, const std::vector<Reshard> &reshards);
  Value weight(comm::WeightOp op, int32_t tensor, const Layout &layout);
  LogicalResult sources();
  LogicalResult node(onnxir::NodeOp op, const OpInfo &info,
                     const OpChoice &choice);
  void lookup(onnxir::NodeOp op, const OpInfo &info, const OpChoice &choice);
  LogicalResult other(Operation *op, const OpInfo &info,
                      const OpChoice &choice);
  Value empty(Location loc, RankedTensorType type) {
    return tensor::EmptyOp::create(builder, loc, type.getShape(),
                                   type.getElementType());
  }

  func::FuncOp function;
  const AxisOptions &options;
  FlatSymbolRefAttr domain;
  const BoundProblem &bound;
  const Solution &solution;
  OpBuilder builder;
  llvm::DenseMap<int32_t, SmallVector<std::pair<Layout, Value>>> available;
};

} // namespace

RankedTensorType Applier::localType(int32_t tensor,
                                    const Layout &layout) const {
  auto type = cast<RankedTensorType>(bound.values[tensor].getType());
  std::vector<int64_t> shape(type.getShape().begin(), type.getShape().end());
  return RankedTensorType::get(localShape(shape, layout, options.size),
                               type.getElementType());
}

Value Applier::get(int32_t tensor, const Layout &layout) {
  for (auto &[have, value] : available[tensor])
    if (have == layout)
      return value;
  return {};
}

/// The shape with dimension `dim` seen as [outer, n / outer].
static SmallVector<int64_t> unrolled(ArrayRef<int64_t> shape, DimRef dim) {
  SmallVector<int64_t> result(shape);
  result[dim.dim] /= dim.outer;
  result.insert(result.begin() + dim.dim, dim.outer);
  return result;
}

Value Applier::slice(Location loc, Value whole, DimRef dim) {
  auto type = cast<RankedTensorType>(whole.getType());
  SmallVector<int64_t> shape(type.getShape());
  int64_t at = dim.dim;
  Value source = whole;
  // A slice of nothing is out of its bounds wherever it begins.
  if (type.getNumElements() == 0) {
    shape[at] /= options.size;
    return empty(loc, RankedTensorType::get(shape, type.getElementType()));
  }
  if (dim.outer != 1) {
    shape = unrolled(shape, dim);
    source = lowering::reshape(builder, loc, whole, shape);
    ++at;
  }
  int64_t part = shape[at] / options.size;
  Value size = arith::ConstantIndexOp::create(builder, loc, part);
  Value offset = arith::MulIOp::create(builder, loc, groupRank(loc), size);
  SmallVector<OpFoldResult> offsets(shape.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(shape.size(), builder.getIndexAttr(1));
  offsets[at] = offset;
  SmallVector<int64_t> localShape(shape);
  localShape[at] = part;
  SmallVector<OpFoldResult> sizes;
  for (int64_t extent : localShape)
    sizes.push_back(builder.getIndexAttr(extent));
  Value result = tensor::ExtractSliceOp::create(
      builder, loc, RankedTensorType::get(localShape, type.getElementType()),
      source, offsets, sizes, strides);
  if (dim.outer == 1)
    return result;
  SmallVector<int64_t> back(type.getShape());
  back[dim.dim] /= options.size;
  return lowering::reshape(builder, loc, result, back);
}

/// The value on the first rank of the group, zeros on the others: a whole
/// tensor as a partial sum.
Value Applier::onFirstRank(Location loc, Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
  Value first = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq,
                                      groupRank(loc), zero);
  AffineMap identity = builder.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> iterators(type.getRank(),
                                             utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, loc, type, value, empty(loc, type),
      ArrayRef<AffineMap>{identity, identity}, iterators,
      [&](OpBuilder &b, Location l, ValueRange args) {
        Value none = arith::ConstantOp::create(
            b, l, b.getZeroAttr(type.getElementType()));
        Value kept = arith::SelectOp::create(b, l, first, args[0], none);
        linalg::YieldOp::create(b, l, kept);
      });
  return generic.getResult(0);
}

static comm::ReductionKind toComm(Reduction reduction) {
  switch (reduction) {
  case Reduction::Max:
    return comm::ReductionKind::max;
  case Reduction::Min:
    return comm::ReductionKind::min;
  case Reduction::Prod:
    return comm::ReductionKind::prod;
  default:
    return comm::ReductionKind::sum;
  }
}

/// One primitive step; a split in blocks is done on the unrolled shape.
Value Applier::step(Location loc, int32_t tensor, const Step &step) {
  Value source = get(tensor, step.from);
  RankedTensorType target = localType(tensor, step.to);
  StringRef name = domain.getValue();
  switch (step.kind) {
  case StepKind::Slice:
    return slice(loc, source, step.to.dim);
  case StepKind::AllReduce:
    return comm::AllReduceOp::create(builder, loc, target, name,
                                     toComm(step.from.reduction), source,
                                     empty(loc, target))
        .getResult();
  case StepKind::AllGather: {
    DimRef dim = step.from.dim;
    int64_t at = dim.dim;
    Value input = source;
    RankedTensorType gathered = target;
    if (dim.outer != 1) {
      auto local = cast<RankedTensorType>(source.getType());
      input = lowering::reshape(builder, loc, source,
                                unrolled(local.getShape(), dim));
      gathered = RankedTensorType::get(unrolled(target.getShape(), dim),
                                       target.getElementType());
      ++at;
    }
    Value result = comm::AllGatherOp::create(builder, loc, gathered, name, at,
                                             input, empty(loc, gathered))
                       .getResult();
    return lowering::reshape(builder, loc, result, target.getShape());
  }
  case StepKind::ReduceScatter: {
    DimRef dim = step.to.dim;
    int64_t at = dim.dim;
    Value input = source;
    RankedTensorType scattered = target;
    if (dim.outer != 1) {
      auto whole = cast<RankedTensorType>(source.getType());
      input = lowering::reshape(builder, loc, source,
                                unrolled(whole.getShape(), dim));
      scattered = RankedTensorType::get(unrolled(target.getShape(), dim),
                                        target.getElementType());
      ++at;
    }
    Value result =
        comm::ReduceScatterOp::create(builder, loc, scattered, name,
                                      toComm(step.from.reduction), at, input,
                                      empty(loc, scattered))
            .getResult();
    return lowering::reshape(builder, loc, result, target.getShape());
  }
  case StepKind::AllToAll:
    return comm::AllToAllOp::create(builder, loc, target, name, step.to.dim.dim,
                                    step.from.dim.dim, nullptr, nullptr, source,
                                    empty(loc, target))
        .getResult();
  }
  return {};
}

static StringRef reasonOf(StepKind kind) {
  switch (kind) {
  case StepKind::AllGather:
    return "split-but-whole-needed";
  case StepKind::AllToAll:
    return "split-elsewhere";
  default:
    return "partial-sums";
  }
}

void Applier::emit(Location loc, const std::vector<Reshard> &reshards) {
  for (const Reshard &reshard : reshards) {
    static constexpr StringLiteral names[] = {
        "", "insert-all_gather", "insert-all_reduce", "insert-reduce_scatter",
        "insert-all_to_all"};
    if (isCollective(reshard.step.kind)) {
      auto type =
          cast<RankedTensorType>(bound.values[reshard.tensor].getType());
      explain(function, loc, "comm-partition",
              names[static_cast<int>(reshard.step.kind)],
              reasonOf(reshard.step.kind),
              "axis=" + Twine(options.name) + " bytes=" +
                  Twine(type.getNumElements() *
                        elementBytes(type.getElementType())));
    }
    set(reshard.tensor, reshard.step.to,
        step(loc, reshard.tensor, reshard.step));
  }
}

Value Applier::weight(comm::WeightOp op, int32_t tensor, const Layout &layout) {
  if (layout.kind == Layout::Replicated)
    return op.getResult();
  if (layout.kind == Layout::Partial)
    return onFirstRank(op.getLoc(), op.getResult());
  explain(function, op.getLoc(), "comm-partition", "split-weight",
          "owner-computes",
          "axis=" + Twine(options.name) + " dim=" + Twine(layout.dim.dim) +
              " outer=" + Twine(layout.dim.outer));
  SmallVector<Attribute> splits;
  if (auto list = op.getSplits())
    splits.append(list->begin(), list->end());
  splits.push_back(comm::SplitAttr::get(op.getContext(), layout.dim.dim,
                                        layout.dim.outer, domain));
  auto whole = cast<RankedTensorType>(op.getType());
  auto global = op.getGlobalAttr()
                    ? op.getGlobalAttr()
                    : builder.getDenseI64ArrayAttr(whole.getShape());
  return comm::WeightOp::create(builder, op.getLoc(), localType(tensor, layout),
                                op.getSectionAttr(), op.getFileAttr(), global,
                                builder.getArrayAttr(splits), nullptr, nullptr);
}

/// Inputs, parameters and constants in the layouts they are stored in.
LogicalResult Applier::sources() {
  Block &body = function.getBody().front();
  for (BlockArgument argument : body.getArguments()) {
    int32_t tensor = bound.tensors.lookup(argument);
    const Layout &layout = solution.sources[tensor].front();
    set(tensor, layout, argument);
    if (layout.kind != Layout::Split)
      continue;
    unsigned index = argument.getArgNumber();
    if (!function.getArgAttr(index, "comm.global"))
      function.setArgAttr(
          index, "comm.global",
          builder.getDenseI64ArrayAttr(
              cast<RankedTensorType>(argument.getType()).getShape()));
    SmallVector<Attribute> splits;
    if (auto list =
            function.getArgAttrOfType<ArrayAttr>(index, "comm.sharding"))
      splits.append(list.begin(), list.end());
    splits.push_back(comm::SplitAttr::get(function.getContext(), layout.dim.dim,
                                          layout.dim.outer, domain));
    function.setArgAttr(index, "comm.sharding", builder.getArrayAttr(splits));
  }
  for (Operation &op : llvm::make_early_inc_range(body)) {
    if (op.getNumResults() != 1)
      continue;
    auto it = bound.tensors.find(op.getResult(0));
    if (it == bound.tensors.end() ||
        bound.problem.tensors[it->second].kind == TensorKind::Value)
      continue;
    builder.setInsertionPointAfter(&op);
    for (const Layout &layout : solution.sources[it->second]) {
      if (auto stored = dyn_cast<comm::WeightOp>(op))
        set(it->second, layout, weight(stored, it->second, layout));
      else if (layout.kind == Layout::Split)
        set(it->second, layout,
            slice(op.getLoc(), op.getResult(0), layout.dim));
      else if (layout.kind == Layout::Partial)
        set(it->second, layout, onFirstRank(op.getLoc(), op.getResult(0)));
      else
        set(it->second, layout, op.getResult(0));
    }
  }
  return success();
}

/// A lookup in a table of which each rank holds some rows: a rank contributes
/// zeros where the index is not its own.
void Applier::lookup(onnxir::NodeOp op, const OpInfo &info,
                     const OpChoice &choice) {
  Location loc = op.getLoc();
  Value table = get(info.operands[0], choice.operands[0]);
  Value ids = get(info.operands[1], choice.operands[1]);
  auto tableType = cast<RankedTensorType>(table.getType());
  auto idsType = cast<RankedTensorType>(ids.getType());
  RankedTensorType type = localType(info.results[0], choice.results[0]);
  int64_t axis = 0;
  if (auto attr = op.getAttrs().getAs<IntegerAttr>("axis"))
    axis =
        attr.getInt() < 0 ? attr.getInt() + tableType.getRank() : attr.getInt();
  int64_t rows = tableType.getDimSize(axis);
  Value count = arith::ConstantIndexOp::create(builder, loc, rows);
  Value all = arith::ConstantIndexOp::create(builder, loc, rows * options.size);
  Value first = arith::MulIOp::create(builder, loc, groupRank(loc), count);
  int64_t rank = type.getRank(), idRank = idsType.getRank();
  SmallVector<AffineExpr> idExprs;
  for (int64_t i = 0; i < idRank; ++i)
    idExprs.push_back(builder.getAffineDimExpr(axis + i));
  SmallVector<AffineMap> maps = {
      AffineMap::get(rank, 0, idExprs, builder.getContext()),
      builder.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = linalg::GenericOp::create(
      builder, loc, type, ids, empty(loc, type), maps, iterators,
      [&](OpBuilder &b, Location l, ValueRange args) {
        Value zero = arith::ConstantIndexOp::create(b, l, 0);
        Value index =
            arith::IndexCastOp::create(b, l, b.getIndexType(), args[0]);
        Value negative =
            arith::CmpIOp::create(b, l, arith::CmpIPredicate::slt, index, zero);
        Value wrapped = arith::AddIOp::create(b, l, index, all);
        index = arith::SelectOp::create(b, l, negative, wrapped, index);
        Value local = arith::SubIOp::create(b, l, index, first);
        // Unsigned, so that what lies before is out of range too.
        Value mine = arith::CmpIOp::create(b, l, arith::CmpIPredicate::ult,
                                           local, count);
        Value row = arith::SelectOp::create(b, l, mine, local, zero);
        SmallVector<Value> at;
        for (int64_t i = 0; i < axis; ++i)
          at.push_back(linalg::IndexOp::create(b, l, i));
        at.push_back(row);
        for (int64_t i = axis + 1; i < tableType.getRank(); ++i)
          at.push_back(linalg::IndexOp::create(b, l, i - 1 + idRank));
        Value found = tensor::ExtractOp::create(b, l, table, at);
        Value none = arith::ConstantOp::create(
            b, l, b.getZeroAttr(type.getElementType()));
        linalg::YieldOp::create(
            b, l, arith::SelectOp::create(b, l, mine, found, none).getResult());
      });
  set(info.results[0], choice.results[0], generic.getResult(0));
}

LogicalResult Applier::node(onnxir::NodeOp op, const OpInfo &info,
                            const OpChoice &choice) {
  if (choice.factor >= 0 && info.rule.factors[choice.factor].lookup) {
    lookup(op, info, choice);
    return success();
  }
  BoundNode whole;
  bindNode(op, whole);
  std::vector<onnx::TensorType> localInputs = whole.view.inputs;
  SmallVector<Value> operands;
  for (auto [i, original] : llvm::enumerate(op.getOperands())) {
    int64_t position = op.operandPosition(i);
    Value value = get(info.operands[position], choice.operands[position]);
    if (!value)
      return op.emitOpError(
          "internal: operand is not in the layout chosen for it");
    // Not the value's own type: an argument keeps its whole one until the end.
    localInputs[position] = fromMlirTensor(
        localType(info.operands[position], choice.operands[position]));
    operands.push_back(value);
  }
  SmallVector<Type> types;
  for (unsigned i = 0; i < op.getNumResults(); ++i) {
    int64_t position = op.resultPosition(i);
    types.push_back(
        localType(info.results[position], choice.results[position]));
  }
  onnx::Node local = whole.node;
  local.attributes = onnx::localAttributes(whole.view, localInputs);
  auto made = onnxir::NodeOp::create(
      builder, op.getLoc(), types, op.getOpAttr(), operands,
      toMlirAttributes(builder, local), op.getOpsetAttr(), op.getDomainAttr(),
      op.getOperandPositionsAttr(), op.getResultPositionsAttr(),
      op.getNumOperandsAttr(),
      // Annotations speak of one set of devices: they are used up by the first
      // axis that looks at them.
      options.dataParallel ? op.getShardingsAttr() : ArrayAttr());
  made->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  for (unsigned i = 0; i < op.getNumResults(); ++i) {
    int64_t position = op.resultPosition(i);
    set(info.results[position], choice.results[position], made.getResult(i));
  }
  return success();
}

/// Operations of an axis that was split before: cloned on local operands.
LogicalResult Applier::other(Operation *op, const OpInfo &info,
                             const OpChoice &choice) {
  IRMapping mapping;
  for (auto [i, tensor] : llvm::enumerate(info.operands)) {
    if (tensor < 0)
      continue;
    Value value = get(tensor, choice.operands[i]);
    if (!value)
      return op->emitOpError(
          "internal: operand is not in the layout chosen for it");
    mapping.map(bound.values[tensor], value);
  }
  unsigned next = 0;
  SmallVector<RankedTensorType> types;
  for (Value result : op->getResults()) {
    if (!isa<RankedTensorType>(result.getType()))
      continue;
    types.push_back(localType(info.results[next], choice.results[next]));
    ++next;
  }
  if (auto dst = dyn_cast<DestinationStyleOpInterface>(op))
    for (auto [init, type] : llvm::zip(dst.getDpsInits(), types))
      if (init.getDefiningOp<tensor::EmptyOp>())
        mapping.map(init, empty(op->getLoc(), type));
  Operation *clone = builder.clone(*op, mapping);
  next = 0;
  for (auto [original, result] :
       llvm::zip(op->getResults(), clone->getResults())) {
    if (!isa<RankedTensorType>(result.getType())) {
      original.replaceAllUsesWith(result);
      continue;
    }
    result.setType(types[next]);
    set(info.results[next], choice.results[next], result);
    ++next;
  }
  return success();
}

LogicalResult Applier::run() {
  if (failed(sources()))
    return failure();
  Block &body = function.getBody().front();
  Operation *terminator = body.getTerminator();
  builder.setInsertionPoint(terminator);
  SmallVector<Operation *> old(bound.ops);
  for (auto [i, op] : llvm::enumerate(bound.ops)) {
    const OpInfo &info = bound.problem.ops[i];
    const OpChoice &choice = solution.ops[i];
    emit(op->getLoc(), choice.before);
    LogicalResult made = isa<onnxir::NodeOp>(op)
                             ? node(cast<onnxir::NodeOp>(op), info, choice)
                             : other(op, info, choice);
    if (failed(made))
      return failure();
    emit(op->getLoc(), choice.after);
  }
  emit(terminator->getLoc(), solution.finish);
  for (auto [i, operand] : llvm::enumerate(terminator->getOpOperands())) {
    int32_t tensor = bound.tensors.lookup(operand.get());
    const Layout &layout =
        bound.problem.tensors[tensor].kind == TensorKind::Value ||
                !get(tensor, Layout::replicated())
            ? solution.outputs[tensor]
            : Layout::replicated();
    Value value = get(tensor, layout);
    if (!value)
      return function.emitError("internal: an output is not in its layout");
    if (layout.kind == Layout::Split) {
      if (!function.getResultAttr(i, "comm.global"))
        function.setResultAttr(
            i, "comm.global",
            builder.getDenseI64ArrayAttr(
                cast<RankedTensorType>(operand.get().getType()).getShape()));
      SmallVector<Attribute> splits;
      if (auto list =
              function.getResultAttrOfType<ArrayAttr>(i, "comm.sharding"))
        splits.append(list.begin(), list.end());
      splits.push_back(comm::SplitAttr::get(
          function.getContext(), layout.dim.dim, layout.dim.outer, domain));
      function.setResultAttr(i, "comm.sharding", builder.getArrayAttr(splits));
    }
    operand.set(value);
  }
  for (Operation *op : llvm::reverse(old))
    op->erase();
  // Arguments take their local types now that nothing whole uses them.
  for (BlockArgument argument : body.getArguments()) {
    int32_t tensor = bound.tensors.lookup(argument);
    argument.setType(localType(tensor, solution.sources[tensor].front()));
  }
  SmallVector<Type> results(terminator->getOperandTypes());
  function.setType(builder.getFunctionType(body.getArgumentTypes(), results));
  return success();
}

LogicalResult applySolution(func::FuncOp function, const AxisOptions &options,
                            FlatSymbolRefAttr domain, const BoundProblem &bound,
                            const Solution &solution) {
  return Applier(function, options, domain, bound, solution).run();
}

} // namespace concord::partition

//===- Stages.cpp - Pipeline stages and micro-batches ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Takes the function of one micro-batch, on one rank of every other axis, and
// makes one function per stage of it that computes all micro-batches.
//
// Time is counted in slots: segment g of micro-batch m is computed in slot g+m.
// Between two slots, values go from where they were made to where the coming
// slot needs them, farther segments first. All ranks take from this one order
// of transfers and segments what concerns them, so their issue orders agree.
// Sends are started and waited for two slots later; a receive is waited for at
// once. What costs less to compute than to send (masks, positions) is computed
// wherever it is needed.
//
//===----------------------------------------------------------------------===//

#include "partition/Axis.h"

#include "common/Explain.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "concord/sharding/Stages.h"
#include "lowering/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;
using namespace concord::sharding;

namespace concord::partition {
namespace {

/// How many slots a send may be under way before it is waited for.
constexpr int32_t kSendSlots = 2;

/// A dimension that micro-batches cut, seen as [outer, n / outer].
struct MicroSplit {
  bool split = false;
  int64_t dim = 0, outer = 1;
};

/// One value on its way, in one direction.
struct Transfer {
  Value value;
  int32_t micro, from, to; ///< stages
};

class StageBuilder {
public:
  StageBuilder(func::FuncOp whole, const StageOptions &options)
      : whole(whole), module(whole->getParentOfType<ModuleOp>()),
        body(whole.getBody().front()), options(options),
        builder(whole.getContext()) {}

  LogicalResult run();

private:
  LogicalResult classify();
  LogicalResult cut();
  LogicalResult wishes(StageProblem &problem);
  void needs();
  void outputs();
  void schedule();
  FailureOr<MicroSplit> ofStage(NamedAttrList &attrs, int64_t index);
  LogicalResult entry(BlockArgument argument);
  LogicalResult build(int32_t stage);
  bool isSource(Operation *op) const;
  bool isHeavy(Operation *op) const { return segmentOf.count(op); }
  static SmallVector<Value> operandsOf(Operation *op);
  Value materialise(Value value, int32_t micro);
  void cloneOp(Operation *op, int32_t micro);
  Value part(Location loc, Value value, MicroSplit split, int32_t micro);
  Value assemble(Location loc, ArrayRef<Value> parts, RankedTensorType type,
                 MicroSplit split);
  FailureOr<MicroSplit> withoutMicro(Location loc, Attribute sharding,
                                     ArrayAttr &rest);
  void exchange(ArrayRef<Transfer> transfers, int32_t stage, int32_t slot);
  void settle(int32_t before);
  RankedTensorType widened(Type type, MicroSplit split) const {
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape(tensor.getShape());
    if (split.split)
      shape[split.dim] *= options.microBatches;
    return RankedTensorType::get(shape, tensor.getElementType());
  }

  func::FuncOp whole;
  ModuleOp module;
  Block &body;
  const StageOptions &options;
  OpBuilder builder;

  BoundProblem bound;
  DenseMap<Operation *, double> seconds;
  SmallVector<Operation *> heavy; ///< in program order
  DenseMap<Operation *, int32_t> segmentOf;
  StageSolution cuts;
  /// Per segment, values that come from other stages; in program order.
  SmallVector<SmallVector<Value>> incoming;
  SmallVector<int32_t> outputStage;
  SmallVector<SmallVector<Transfer>> boundaries; ///< before each slot

  // Of the stage that is being built.
  func::FuncOp function;
  SmallVector<IRMapping> maps; ///< per micro-batch
  DenseMap<Value, std::pair<Value, MicroSplit>> arguments;
  struct Pending {
    int32_t slot;
    Value future, input;
  };
  SmallVector<Pending> pending;
  bool broken = false; ///< an error has been reported
};

} // namespace

/// Operands, and what the regions capture.
SmallVector<Value> StageBuilder::operandsOf(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op->getRegions(), captured);
  values.append(captured.begin(), captured.end());
  return values;
}

/// What is made anew wherever it is used.
bool StageBuilder::isSource(Operation *op) const {
  return isa<comm::WeightOp, tensor::EmptyOp>(op) ||
         op->hasTrait<OpTrait::ConstantLike>();
}

/// Tells what is worth computing once from what is computed where it is needed.
LogicalResult StageBuilder::classify() {
  AxisOptions one;
  one.name = "pp";
  one.dataParallel = true;
  if (failed(bindProblem(whole, one, bound)))
    return failure();
  CostModel cost;
  auto bytesOf = [](Value value) -> double {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type ? static_cast<double>(type.getNumElements() *
                                      elementBytes(type.getElementType()))
                : 0;
  };
  for (auto [op, info] : llvm::zip(bound.ops, bound.problem.ops)) {
    // A lookup goes through the rows that it takes, not through the table.
    double bytes = info.bytes;
    auto node = dyn_cast<onnxir::NodeOp>(op);
    if (!node || node.getOp().starts_with("Gather")) {
      bytes = 0;
      for (Value value : op->getResults())
        bytes += 2 * bytesOf(value);
      if (!node)
        for (Value value : op->getOperands())
          bytes += bytesOf(value);
    }
    double time = std::max(info.flops / cost.flopsPerSecond,
                           bytes / cost.bytesPerSecond) +
                  cost.opSeconds;
    if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op))
      time = cost.latencySeconds +
             (collective.getCollectiveInput()
                  ? 2 * bytesOf(collective.getCollectiveInput()) /
                        cost.linkBytesPerSecond
                  : 0);
    seconds[op] = time;
  }
  // Light: depends on inputs and constants alone, and is cheaper than a
  // transfer.
  DenseMap<Operation *, double> light;
  auto isLight = [&](Operation *op, bool any) {
    if (!isMemoryEffectFree(op) || comm::isIssue(op))
      return false;
    double total = seconds.lookup(op), sent = cost.latencySeconds;
    for (Value value : operandsOf(op)) {
      Operation *definition = value.getDefiningOp();
      if (!definition || isa<tensor::EmptyOp>(definition))
        continue;
      if (auto weight = dyn_cast<comm::WeightOp>(definition)) {
        auto kind = bound.problem.tensors[bound.tensors.lookup(value)].kind;
        if (kind == TensorKind::Weight)
          return false;
        continue;
      }
      if (definition->hasTrait<OpTrait::ConstantLike>())
        continue;
      auto found = light.find(definition);
      if (found == light.end())
        return false;
      total += found->second;
    }
    bool tensors = false;
    for (Value result : op->getResults()) {
      sent += bytesOf(result) / cost.linkBytesPerSecond;
      tensors |= isa<RankedTensorType>(result.getType());
    }
    if (tensors && (!any || total > sent))
      return false;
    light[op] = total;
    return true;
  };
  for (bool any : {true, false}) {
    heavy.clear();
    light.clear();
    for (Operation &op : body.without_terminator())
      if (!isSource(&op) && !isLight(&op, any))
        heavy.push_back(&op);
    // A program of nothing but trifles is cut all the same.
    if (static_cast<int64_t>(heavy.size()) >= options.stages)
      break;
  }
  return success();
}

/// Stages that annotations ask for. The format cannot tell the first stage from
/// none, so only a model that names another one is taken to speak of them.
LogicalResult StageBuilder::wishes(StageProblem &problem) {
  bool speaks = false;
  for (Operation *op : heavy) {
    auto stage = op->getAttrOfType<IntegerAttr>(kPipelineStage);
    problem.fixed.push_back(stage ? static_cast<int32_t>(stage.getInt()) : -1);
    speaks |= stage && stage.getInt() > 0;
    if (stage && stage.getInt() >= options.stages && options.stages > 1)
      return op->emitOpError()
             << "is annotated for pipeline stage " << stage.getInt()
             << ", but the mesh has pp=" << options.stages;
  }
  if (!speaks || options.stages == 1)
    problem.fixed.clear();
  return success();
}

LogicalResult StageBuilder::cut() {
  if (failed(classify()))
    return failure();
  DenseMap<Operation *, int32_t> number;
  for (auto [i, op] : llvm::enumerate(heavy))
    number[op] = static_cast<int32_t>(i);
  StageProblem problem;
  problem.stages = options.stages;
  // One parameter, however many operations refer to it.
  llvm::MapVector<Attribute, StageProblem::Parameter> parameters;
  std::map<std::pair<StringRef, StringRef>, int64_t> sections;
  for (Operation &op : body) {
    auto weight = dyn_cast<comm::WeightOp>(op);
    if (!weight)
      continue;
    auto type = cast<ShapedType>(weight.getType());
    int64_t element = elementBytes(type.getElementType());
    int64_t elements = 1;
    for (int64_t extent :
         weight.getGlobal() ? *weight.getGlobal() : type.getShape())
      elements *= extent;
    sections[{weight.getFile(), weight.getSection()}] = elements * element;
    Attribute key = builder.getArrayAttr(
        {weight->getAttrDictionary(), TypeAttr::get(type)});
    StageProblem::Parameter &parameter = parameters[key];
    parameter.bytes = type.getNumElements() * element;
    for (Operation *user : weight->getUsers())
      if (auto found = number.find(body.findAncestorOpInBlock(*user));
          found != number.end())
        parameter.uses.push_back(found->second);
  }
  int64_t total = 0;
  for (auto &[key, bytes] : sections)
    total += bytes;
  int64_t shares = 1;
  for (auto &[name, size] : options.mesh)
    if (name != "dp")
      shares *= size;
  problem.mostBytes = total / shares + total / shares / 100 * 8 + (1 << 20);
  for (auto &[key, parameter] : parameters) {
    llvm::sort(parameter.uses);
    parameter.uses.erase(llvm::unique(parameter.uses), parameter.uses.end());
    problem.parameters.push_back(parameter);
  }
  for (Operation *op : heavy) {
    problem.seconds.push_back(seconds.lookup(op));
    for (Value result : op->getResults()) {
      StageProblem::Value value;
      value.definition = number[op];
      if (auto type = dyn_cast<RankedTensorType>(result.getType()))
        value.bytes =
            type.getNumElements() * elementBytes(type.getElementType());
      for (Operation *user : result.getUsers())
        if (auto found = number.find(body.findAncestorOpInBlock(*user));
            found != number.end())
          value.uses.push_back(found->second);
      problem.values.push_back(value);
    }
  }
  if (failed(wishes(problem)))
    return failure();
  try {
    cuts = cutStages(problem);
  } catch (const std::exception &error) {
    return whole.emitError()
           << "mesh axis pp=" << options.stages << ": " << error.what();
  }
  if (options.stages > 1 && cuts.parameterBytes > problem.mostBytes)
    whole.emitWarning() << "a stage of pp=" << options.stages << " stores "
                        << cuts.parameterBytes
                        << " bytes of parameters, more than its share of "
                        << total / shares
                        << ": no cut between operations divides them evenly";
  for (auto [op, segment] : llvm::zip(heavy, cuts.segment))
    segmentOf[op] = segment;
  for (auto [i, op] : llvm::enumerate(heavy))
    if (i > 0 && cuts.segment[i] != cuts.segment[i - 1])
      explain(whole, op->getLoc(), "comm-partition", "cut-stage",
              "least-slowest-stage",
              "stage=" + Twine(cuts.stage[cuts.segment[i]]) +
                  " seconds=" + std::to_string(cuts.seconds) +
                  " stored_bytes=" + Twine(cuts.parameterBytes) +
                  " sent_bytes=" + Twine(cuts.crossingBytes));
  return success();
}

/// What each segment needs from other stages; a stage gets a value once.
void StageBuilder::needs() {
  incoming.resize(cuts.segments);
  DenseMap<Value, SmallVector<int32_t>> delivered;
  for (Operation *op : heavy) {
    int32_t segment = segmentOf[op], stage = cuts.stage[segment];
    for (Value value : operandsOf(op)) {
      Operation *definition = value.getDefiningOp();
      if (!definition || !isHeavy(definition) ||
          cuts.stage[segmentOf[definition]] == stage)
        continue;
      SmallVector<int32_t> &stages = delivered[value];
      if (llvm::is_contained(stages, stage))
        continue;
      stages.push_back(stage);
      incoming[segment].push_back(value);
    }
  }
  for (SmallVector<Value> &values : incoming)
    llvm::stable_sort(values, [](Value a, Value b) {
      Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
      if (x != y)
        return x->isBeforeInBlock(y);
      return cast<OpResult>(a).getResultNumber() <
             cast<OpResult>(b).getResultNumber();
    });
}

void StageBuilder::outputs() {
  for (Value value : body.getTerminator()->getOperands()) {
    Operation *definition = value.getDefiningOp();
    outputStage.push_back(definition && isHeavy(definition)
                              ? cuts.stage[segmentOf[definition]]
                              : cuts.stage[cuts.segments - 1]);
  }
}

void StageBuilder::schedule() {
  int32_t slots =
      cuts.segments + static_cast<int32_t>(options.microBatches) - 1;
  boundaries.resize(slots);
  for (int32_t slot = 0; slot < slots; ++slot)
    for (int32_t segment = cuts.segments - 1; segment >= 0; --segment) {
      int32_t micro = slot - segment;
      if (micro < 0 || micro >= options.microBatches)
        continue;
      for (Value value : incoming[segment])
        boundaries[slot].push_back(
            {value, micro, cuts.stage[segmentOf[value.getDefiningOp()]],
             cuts.stage[segment]});
    }
}

/// Takes the micro-batches' part out of a list of splits. A later split of the
/// same dimension was one of a micro-batch: on the whole it is one in blocks.
FailureOr<MicroSplit>
StageBuilder::withoutMicro(Location loc, Attribute sharding, ArrayAttr &rest) {
  MicroSplit result;
  SmallVector<Attribute> kept;
  if (auto list = dyn_cast_or_null<ArrayAttr>(sharding))
    for (auto split : list.getAsRange<comm::SplitAttr>()) {
      if (split.getDomain() == options.microDomain) {
        result = {true, split.getDim(), split.getOuter()};
        continue;
      }
      int64_t outer = split.getOuter();
      if (result.split && result.dim == split.getDim()) {
        if (result.outer != 1)
          return emitError(loc)
                 << "micro-batches and axis " << split.getDomain().getValue()
                 << " both split dimension " << result.dim << " in blocks";
        outer *= options.microBatches;
      }
      kept.push_back(comm::SplitAttr::get(builder.getContext(), split.getDim(),
                                          outer, split.getDomain()));
    }
  rest = kept.empty() ? ArrayAttr() : builder.getArrayAttr(kept);
  return result;
}

static SmallVector<int64_t> inBlocks(ArrayRef<int64_t> shape, int64_t dim,
                                     int64_t outer) {
  SmallVector<int64_t> result(shape);
  result[dim] /= outer;
  result.insert(result.begin() + dim, outer);
  return result;
}

Value StageBuilder::part(Location loc, Value value, MicroSplit split,
                         int32_t micro) {
  if (!split.split)
    return value;
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape()), back(shape);
  back[split.dim] /= options.microBatches;
  int64_t at = split.dim;
  if (split.outer != 1) {
    shape = inBlocks(shape, split.dim, split.outer);
    value = lowering::reshape(builder, loc, value, shape);
    ++at;
  }
  int64_t extent = shape[at] / options.microBatches;
  shape[at] = extent;
  SmallVector<OpFoldResult> offsets(shape.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(shape.size(), builder.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes;
  offsets[at] = builder.getIndexAttr(micro * extent);
  for (int64_t size : shape)
    sizes.push_back(builder.getIndexAttr(size));
  Value result = tensor::ExtractSliceOp::create(
      builder, loc, RankedTensorType::get(shape, type.getElementType()), value,
      offsets, sizes, strides);
  return lowering::reshape(builder, loc, result, back);
}

Value StageBuilder::assemble(Location loc, ArrayRef<Value> parts,
                             RankedTensorType type, MicroSplit split) {
  SmallVector<int64_t> shape(type.getShape());
  int64_t at = split.dim;
  if (split.outer != 1) {
    shape = inBlocks(shape, split.dim, split.outer);
    ++at;
  }
  Value result =
      tensor::EmptyOp::create(builder, loc, shape, type.getElementType());
  SmallVector<int64_t> piece(shape);
  piece[at] /= options.microBatches;
  SmallVector<OpFoldResult> strides(shape.size(), builder.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes;
  for (int64_t size : piece)
    sizes.push_back(builder.getIndexAttr(size));
  for (auto [micro, value] : llvm::enumerate(parts)) {
    SmallVector<OpFoldResult> offsets(shape.size(), builder.getIndexAttr(0));
    offsets[at] = builder.getIndexAttr(micro * piece[at]);
    result = tensor::InsertSliceOp::create(
        builder, loc, lowering::reshape(builder, loc, value, piece), result,
        offsets, sizes, strides);
  }
  return lowering::reshape(builder, loc, result, type.getShape());
}

void StageBuilder::cloneOp(Operation *op, int32_t micro) {
  IRMapping &map = maps[micro];
  if (auto rank = dyn_cast<comm::RankOp>(op);
      rank && rank.getDomainAttr() == options.microDomain) {
    map.map(rank.getResult(),
            arith::ConstantIndexOp::create(builder, op->getLoc(), micro)
                .getResult());
    return;
  }
  for (Value value : operandsOf(op))
    materialise(value, micro);
  auto weight = dyn_cast<comm::WeightOp>(op);
  if (!weight || !weight.getSplits() || !options.microDomain) {
    builder.clone(*op, map);
    return;
  }
  // A constant over the batch is stored whole and cut here.
  ArrayAttr rest;
  FailureOr<MicroSplit> split =
      withoutMicro(op->getLoc(), weight.getSplitsAttr(), rest);
  if (failed(split)) {
    broken = true;
    split = MicroSplit();
  }
  auto whole = cast<comm::WeightOp>(builder.clone(*op, map));
  whole.getResult().setType(widened(weight.getType(), *split));
  whole.setSplitsAttr(rest);
  if (!rest)
    whole.removeGlobalAttr();
  map.map(weight.getResult(),
          part(op->getLoc(), whole.getResult(), *split, micro));
}

/// The value of one micro-batch here. Values that other stages compute have
/// been received by now.
Value StageBuilder::materialise(Value value, int32_t micro) {
  IRMapping &map = maps[micro];
  if (Value found = map.lookupOrNull(value))
    return found;
  if (isa<BlockArgument>(value)) {
    auto [argument, split] = arguments.lookup(value);
    Value result = part(argument.getLoc(), argument, split, micro);
    map.map(value, result);
    return result;
  }
  assert(!isHeavy(value.getDefiningOp()) && "used before it is there");
  cloneOp(value.getDefiningOp(), micro);
  return map.lookup(value);
}

/// Makes the attributes of the whole function's `index`th input or output those
/// of a stage's; returns how micro-batches split it.
FailureOr<MicroSplit> StageBuilder::ofStage(NamedAttrList &attrs,
                                            int64_t index) {
  ArrayAttr rest;
  FailureOr<MicroSplit> split =
      withoutMicro(whole.getLoc(), attrs.get("comm.sharding"), rest);
  if (failed(split))
    return failure();
  attrs.erase("comm.sharding");
  if (rest)
    attrs.set("comm.sharding", rest);
  else
    attrs.erase("comm.global");
  if (options.stages > 1)
    attrs.set("comm.position", builder.getI64IntegerAttr(index));
  return split;
}

/// Adds the argument for an input of the whole function.
LogicalResult StageBuilder::entry(BlockArgument argument) {
  unsigned index = argument.getArgNumber();
  NamedAttrList attrs(whole.getArgAttrDict(index));
  FailureOr<MicroSplit> split = ofStage(attrs, index);
  if (failed(split))
    return failure();
  (void)function.insertArgument(
      function.getNumArguments(), widened(argument.getType(), *split),
      attrs.getDictionary(builder.getContext()), argument.getLoc());
  arguments[argument] = {function.getArgument(function.getNumArguments() - 1),
                         *split};
  return success();
}

void StageBuilder::settle(int32_t before) {
  for (const Pending &send : pending)
    if (send.slot < before)
      comm::WaitOp::create(builder, send.input.getLoc(), TypeRange(),
                           send.future, send.input, Value());
  llvm::erase_if(pending,
                 [&](const Pending &send) { return send.slot < before; });
}

/// The transfers before a slot, as far as they concern this stage. Several
/// between the same two stages are one launch on both sides.
void StageBuilder::exchange(ArrayRef<Transfer> transfers, int32_t stage,
                            int32_t slot) {
  settle(slot - kSendSlots + 1);
  for (size_t i = 0; i < transfers.size();) {
    size_t end = i;
    while (end < transfers.size() && transfers[end].from == transfers[i].from &&
           transfers[end].to == transfers[i].to)
      ++end;
    ArrayRef<Transfer> launch = transfers.slice(i, end - i);
    i = end;
    bool sends = launch.front().from == stage;
    if (!sends && launch.front().to != stage)
      continue;
    int64_t peer = sends ? launch.front().to : launch.front().from;
    FlatSymbolRefAttr domain = options.stageDomain;
    bool group = launch.size() > 1;
    SmallVector<Value> data;
    for (const Transfer &transfer : launch) {
      auto type = cast<RankedTensorType>(transfer.value.getType());
      data.push_back(sends ? materialise(transfer.value, transfer.micro)
                           : tensor::EmptyOp::create(
                                 builder, transfer.value.getLoc(),
                                 type.getShape(), type.getElementType())
                                 .getResult());
    }
    if (!sends && !group) {
      const Transfer &transfer = launch.front();
      auto received = comm::RecvOp::create(
          builder, transfer.value.getLoc(), transfer.value.getType(), domain,
          builder.getI64IntegerAttr(peer), data.front());
      maps[transfer.micro].map(transfer.value, received.getResult());
      continue;
    }
    SmallVector<Value> futures;
    for (auto [transfer, value] : llvm::zip(launch, data)) {
      auto start = comm::StartOp::create(
          builder, transfer.value.getLoc(),
          comm::FutureType::get(builder.getContext()),
          comm::CollectiveKindAttr::get(builder.getContext(),
                                        sends ? comm::CollectiveKind::send
                                              : comm::CollectiveKind::recv),
          domain, /*reduction=*/nullptr, /*dim=*/nullptr, /*split_dim=*/nullptr,
          /*concat_dim=*/nullptr, /*root=*/nullptr,
          builder.getI64IntegerAttr(peer), /*pairs=*/nullptr,
          /*send_sizes=*/nullptr, /*recv_sizes=*/nullptr,
          sends ? value : Value(), sends ? Value() : value);
      futures.push_back(start.getFuture());
    }
    if (group)
      comm::GroupOp::create(builder, launch.front().value.getLoc(), futures);
    for (auto [transfer, future, value] : llvm::zip(launch, futures, data)) {
      if (sends) {
        pending.push_back({slot, future, value});
        continue;
      }
      auto wait = comm::WaitOp::create(builder, transfer.value.getLoc(),
                                       transfer.value.getType(), future,
                                       Value(), value);
      maps[transfer.micro].map(transfer.value, wait.getResult());
    }
  }
}

LogicalResult StageBuilder::build(int32_t stage) {
  builder.setInsertionPoint(whole);
  std::string name =
      (whole.getSymName() + "_stage" + std::to_string(stage)).str();
  function = func::FuncOp::create(builder, whole.getLoc(), name,
                                  builder.getFunctionType({}, {}));
  function->setDiscardableAttrs(whole->getDiscardableAttrDictionary());
  Block *block = function.addEntryBlock();
  maps.assign(options.microBatches, IRMapping());
  arguments.clear();
  pending.clear();

  // The inputs that this stage reads; one that nobody reads stays on the first.
  llvm::SetVector<Value> needed;
  SmallVector<Value> worklist;
  for (Operation *op : heavy)
    if (cuts.stage[segmentOf[op]] == stage)
      llvm::append_range(worklist, operandsOf(op));
  for (auto [value, owner] :
       llvm::zip(body.getTerminator()->getOperands(), outputStage))
    if (owner == stage)
      worklist.push_back(value);
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    Operation *definition = value.getDefiningOp();
    if (!needed.insert(value) || !definition || isHeavy(definition))
      continue;
    llvm::append_range(worklist, operandsOf(definition));
  }
  for (BlockArgument argument : body.getArguments())
    if ((needed.contains(argument) || (argument.use_empty() && stage == 0)) &&
        failed(entry(argument)))
      return failure();

  builder.setInsertionPointToEnd(block);
  for (auto [slot, transfers] : llvm::enumerate(boundaries)) {
    exchange(transfers, stage, static_cast<int32_t>(slot));
    for (int32_t segment = cuts.segments - 1; segment >= 0; --segment) {
      int32_t micro = static_cast<int32_t>(slot) - segment;
      if (cuts.stage[segment] != stage || micro < 0 ||
          micro >= options.microBatches)
        continue;
      for (Operation *op : heavy)
        if (segmentOf[op] == segment)
          cloneOp(op, micro);
    }
  }
  settle(std::numeric_limits<int32_t>::max());

  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttrs;
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    if (outputStage[i] != stage)
      continue;
    NamedAttrList attrs(whole.getResultAttrDict(i));
    FailureOr<MicroSplit> split = ofStage(attrs, i);
    if (failed(split))
      return failure();
    Location loc = value.getLoc();
    SmallVector<Value> parts;
    for (int32_t micro = 0; micro < (split->split ? options.microBatches : 1);
         ++micro)
      parts.push_back(materialise(value, micro));
    results.push_back(
        split->split
            ? assemble(loc, parts, widened(value.getType(), *split), *split)
            : parts.front());
    resultAttrs.push_back(attrs.getDictionary(builder.getContext()));
  }
  if (broken)
    return failure();
  func::ReturnOp::create(builder, body.getTerminator()->getLoc(), results);
  SmallVector<Type> types(ValueRange(results).getTypes());
  function.setType(builder.getFunctionType(function.getArgumentTypes(), types));
  for (auto [i, attrs] : llvm::enumerate(resultAttrs))
    function.setResultAttrs(i, attrs);
  if (options.stages > 1) {
    SmallVector<int64_t> ranks;
    for (const std::vector<int64_t> &group : meshGroups(options.mesh, {"pp"}))
      ranks.push_back(group[stage]);
    llvm::sort(ranks);
    builder.setInsertionPoint(function);
    comm::ProgramOp::create(
        builder, whole.getLoc(), builder.getStringAttr("stage" + Twine(stage)),
        FlatSymbolRefAttr::get(function), builder.getDenseI64ArrayAttr(ranks),
        builder.getStringAttr(""));
  }
  return success();
}

LogicalResult StageBuilder::run() {
  // A value that depends on the whole batch cannot be had in parts.
  WalkResult mixed = whole.walk([&](comm::CollectiveOpInterface op) {
    if (options.microDomain &&
        op.getCollectiveDomain() == options.microDomain) {
      emitError(op->getLoc())
          << "micro-batches: this needs values of the whole batch; compile "
             "without --micro-batches";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  if (mixed.wasInterrupted() || failed(cut()))
    return failure();
  needs();
  for (SmallVector<Value> &values : incoming)
    for (Value value : values)
      if (!isa<RankedTensorType>(value.getType()))
        return emitError(value.getLoc())
               << "a value of type " << value.getType()
               << " is used on another stage and cannot be sent there";
  outputs();
  schedule();
  for (int32_t stage = 0; stage < options.stages; ++stage)
    if (failed(build(stage)))
      return failure();
  StringAttr name = whole.getSymNameAttr();
  whole.erase();
  if (options.stages == 1)
    function.setSymNameAttr(name);
  return success();
}

LogicalResult buildStages(func::FuncOp function, const StageOptions &options) {
  return StageBuilder(function, options).run();
}

} // namespace concord::partition

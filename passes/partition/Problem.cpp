//===- Problem.cpp - From a function to a sharding problem ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each onnx.node brings its registry's rule; a collective of an axis that was
// split before can be split in every dimension that it does not itself cut;
// anything else is computed whole on every rank.
//
//===----------------------------------------------------------------------===//

#include "partition/Axis.h"

#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Transforms/RegionUtils.h"

#include <map>

using namespace mlir;

namespace concord::partition {

using namespace concord::sharding;

/// A collective of another axis: elementwise but for the dimensions it cuts.
static Rule collectiveRule(comm::CollectiveOpInterface op) {
  Rule rule;
  auto type = cast<ShapedType>(op.getCollectiveInput().getType());
  for (int64_t dim = 0; dim < type.getRank(); ++dim) {
    if (dim == op.getCollectiveSplitDim() || dim == op.getCollectiveConcatDim())
      continue;
    Factor factor;
    factor.size = type.getDimSize(dim);
    factor.operands = {DimRef{static_cast<int32_t>(dim), 1}};
    factor.results = {DimRef{static_cast<int32_t>(dim), 1}};
    rule.factors.push_back(factor);
  }
  // What every member of this axis has a part of can be added up behind an
  // exchange of the other axis, where it is less.
  if (op.getCollectiveKind() == comm::CollectiveKind::all_to_all)
    rule.linear.push_back({0});
  return rule;
}

static double flopsOf(const onnx::NodeView &view, double bytes) {
  if (view.outputs.empty() || view.outputs[0].dtype == DType::Invalid)
    return 0;
  double points = static_cast<double>(view.outputs[0].numElements());
  const std::string &op = view.node->opType;
  if ((op == "MatMul" || op == "Gemm") && !view.inputs[0].shape.empty()) {
    bool transposed = op == "Gemm" && view.node->intAttr("transA", 0);
    return 2 * points *
           static_cast<double>(
               view.inputs[0]
                   .shape[transposed ? 0 : view.inputs[0].shape.size() - 1]);
  }
  if (op == "Conv" && view.inputs.size() > 1 && view.inputs[1].shape.size() > 1)
    return 2 * points * static_cast<double>(view.inputs[1].numElements()) /
           static_cast<double>(view.inputs[1].shape[0]);
  (void)bytes;
  return points;
}

/// The batch: the leading extent that most inputs share; vectors only count
/// where there is nothing else.
static int64_t batchOf(func::FuncOp function) {
  std::map<int64_t, int> votes;
  for (int64_t leastRank : {2, 1}) {
    for (Type type : function.getArgumentTypes())
      if (auto tensor = dyn_cast<RankedTensorType>(type);
          tensor && tensor.getRank() >= leastRank)
        ++votes[tensor.getDimSize(0)];
    if (!votes.empty())
      break;
  }
  int64_t best = 0;
  for (auto [extent, count] : votes)
    if (!best || count > votes[best])
      best = extent;
  return best;
}

/// Whether a parameter is what splitting is for: a factor of a product, a
/// filter or a looked-up table. Masks and rotary tables are constants that
/// happen to be large; splitting them would only buy collectives.
static bool isParameter(comm::WeightOp weight) {
  SmallVector<Value> worklist = {weight.getResult()};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    for (OpOperand &use : value.getUses()) {
      auto node = dyn_cast<onnxir::NodeOp>(use.getOwner());
      if (!node)
        continue;
      StringRef op = node.getOp();
      int64_t position = node.operandPosition(use.getOperandNumber());
      if (op == "MatMul" || op == "Gemm" || op == "Conv" ||
          op == "ConvTranspose" || op == "MatMulInteger" || op == "Einsum" ||
          (op == "Gather" && position == 0))
        return true;
      if (op == "Transpose" || op == "Cast" || op == "Identity" ||
          op == "DequantizeLinear" || op == "Unsqueeze" || op == "Squeeze")
        worklist.push_back(node.getResult(0));
    }
  }
  return false;
}

/// Largest matrix that is a router by its form, [hidden, few]: it is not worth
/// a collective per layer, and next to no memory whole. 0 where there is none.
static int64_t routerBytes(func::FuncOp function) {
  int64_t largest = 0;
  function.walk([&](comm::WeightOp weight) {
    auto type = dyn_cast<RankedTensorType>(weight.getType());
    if (!type || type.getRank() != 2)
      return;
    int64_t few = std::min(type.getDimSize(0), type.getDimSize(1));
    int64_t many = std::max(type.getDimSize(0), type.getDimSize(1));
    if (few <= 64 && many >= 16 * few)
      largest = std::max<int64_t>(
          largest, type.getNumElements() * elementBytes(type.getElementType()));
  });
  return largest;
}

/// Layouts that IR 11 annotations ask for on an axis of this size.
static void applyAnnotations(onnxir::NodeOp node, int64_t ranks,
                             BoundProblem &bound) {
  auto shardings = node.getShardings();
  if (!shardings)
    return;
  for (auto spec : shardings->getAsRange<DictionaryAttr>()) {
    auto operand = spec.getAs<IntegerAttr>("operand");
    auto result = spec.getAs<IntegerAttr>("result");
    Value value = operand ? node.getOperands()[operand.getInt()]
                          : node.getResults()[result.getInt()];
    auto it = bound.tensors.find(value);
    if (it == bound.tensors.end())
      continue;
    TensorInfo &info = bound.problem.tensors[it->second];
    auto axis = spec.getAs<IntegerAttr>("axis");
    auto shards = spec.getAs<IntegerAttr>("shards");
    if (!axis || !shards) {
      info.fixed = true;
      info.fixedLayout = Layout::replicated();
      continue;
    }
    int64_t rank = info.shape.size();
    int64_t dim = axis.getInt() < 0 ? axis.getInt() + rank : axis.getInt();
    if (shards.getInt() != ranks ||
        !canSplit(info.shape, DimRef{static_cast<int32_t>(dim), 1}, ranks)) {
      node.emitWarning() << "a sharding annotation of " << shards.getInt()
                         << " shards on axis " << axis.getInt()
                         << " does not fit a mesh axis of " << ranks
                         << " and is not used";
      continue;
    }
    info.fixed = true;
    info.mustReplicate = false;
    info.fixedLayout = Layout::split(static_cast<int32_t>(dim));
  }
}

LogicalResult bindProblem(func::FuncOp function, const AxisOptions &options,
                          BoundProblem &bound) {
  Problem &problem = bound.problem;
  problem.ranks = options.size;
  problem.splitWeights = !options.dataParallel;
  // Lets the bias of a product whose inner dimension is split join the partial
  // sums.
  problem.partialWeights = true;
  problem.smallWeightBytes = routerBytes(function);
  auto add = [&](Value value, TensorKind kind) {
    auto type = cast<RankedTensorType>(value.getType());
    TensorInfo info;
    info.kind = kind;
    info.shape.assign(type.getShape().begin(), type.getShape().end());
    info.elementBytes = elementBytes(type.getElementType());
    bound.tensors[value] = problem.tensors.size();
    bound.values.push_back(value);
    problem.tensors.push_back(info);
  };
  auto isStatic = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.hasStaticShape();
  };
  Block &body = function.getBody().front();
  int64_t batch = options.dataParallel ? batchOf(function) : 0;
  for (BlockArgument argument : body.getArguments()) {
    if (!isStatic(argument.getType()))
      return emitError(function.getLoc())
             << "input " << argument.getArgNumber() << " is of type "
             << argument.getType() << "; mesh axis " << options.name
             << " can split programs of tensors of static shape only";
    add(argument, TensorKind::Input);
    TensorInfo &info = problem.tensors.back();
    // Split inputs save nothing but tempt the solver into gathers; a batch
    // split is asked for by name, and state (rank 3 and up: key-value caches)
    // is worth its memory.
    info.mustReplicate = options.replicateInputs ||
                         (!options.dataParallel && info.shape.size() < 3);
    if (options.dataParallel && !info.shape.empty() && info.shape[0] == batch) {
      if (batch % options.size != 0) {
        auto name = function.getArgAttrOfType<StringAttr>(
            argument.getArgNumber(), "comm.name");
        return function.emitError()
               << (options.name == "micro-batches" ? "--" : "mesh axis ")
               << options.name << "=" << options.size
               << " does not divide the batch of " << batch << " (input '"
               << (name ? name.getValue() : "?") << "')";
      }
      info.fixed = true;
      info.fixedLayout = Layout::split(0);
    }
  }
  for (Operation &op : body.without_terminator()) {
    if (isa<comm::WeightOp>(op)) {
      add(op.getResult(0), isParameter(cast<comm::WeightOp>(op))
                               ? TensorKind::Weight
                               : TensorKind::Constant);
      continue;
    }
    if (isa<arith::ConstantOp>(op) &&
        isa<RankedTensorType>(op.getResult(0).getType())) {
      add(op.getResult(0), TensorKind::Constant);
      continue;
    }
    // Destinations are made anew for the local shapes.
    if (isa<tensor::EmptyOp>(op))
      continue;
    OpInfo info;
    info.name = nodeName(op.getLoc()).str();
    for (Value result : op.getResults()) {
      if (!isa<RankedTensorType>(result.getType()))
        continue;
      if (!isStatic(result.getType()))
        return emitError(op.getLoc())
               << "is of type " << result.getType() << "; mesh axis "
               << options.name
               << " can split programs of tensors of static "
                  "shape only";
      add(result, TensorKind::Value);
    }
    auto tensorOf = [&](Value value) {
      auto it = bound.tensors.find(value);
      return it == bound.tensors.end() ? -1 : it->second;
    };
    for (Value result : op.getResults())
      if (isa<RankedTensorType>(result.getType()))
        info.results.push_back(tensorOf(result));
    if (auto node = dyn_cast<onnxir::NodeOp>(op)) {
      BoundNode view;
      bindNode(node, view);
      // By ONNX position, as the rules are.
      info.operands.assign(view.view.inputs.size(), -1);
      for (auto [i, operand] : llvm::enumerate(node.getOperands())) {
        info.operands[node.operandPosition(i)] = tensorOf(operand);
        info.bytes +=
            static_cast<double>(fromMlirTensor(operand.getType()).numBytes());
      }
      std::vector<int32_t> results(view.view.outputs.size(), -1);
      for (auto [i, result] : llvm::enumerate(node.getResults())) {
        results[node.resultPosition(i)] = tensorOf(result);
        info.bytes +=
            static_cast<double>(fromMlirTensor(result.getType()).numBytes());
      }
      info.results = results;
      // What the reader would have refused can stand in hand-written IR.
      try {
        info.flops = flopsOf(view.view, info.bytes);
        if (view.def && view.def->shard)
          info.rule = view.def->shard(view.view);
      } catch (const std::exception &error) {
        return node.emitOpError() << node.getOp() << ": " << error.what();
      }
    } else if (auto collective = dyn_cast<comm::CollectiveOpInterface>(op);
               collective && collective.getCollectiveInput()) {
      info.operands = {tensorOf(collective.getCollectiveInput())};
      info.rule = collectiveRule(collective);
    } else {
      for (Value operand : op.getOperands())
        info.operands.push_back(tensorOf(operand));
      // What the regions of a branch capture is consumed whole, like operands.
      llvm::SetVector<Value> captured;
      getUsedValuesDefinedAbove(op.getRegions(), captured);
      for (Value value : captured)
        if (int32_t tensor = tensorOf(value); tensor >= 0)
          info.operands.push_back(tensor);
    }
    bound.ops.push_back(&op);
    problem.ops.push_back(std::move(info));
  }
  for (Value value : body.getTerminator()->getOperands()) {
    auto it = bound.tensors.find(value);
    if (it == bound.tensors.end()) // no tensor, or one of no content
      continue;
    TensorInfo &info = problem.tensors[it->second];
    info.isOutput = true;
    info.mustReplicate |= options.replicateOutputs ||
                          (!options.dataParallel && info.shape.size() < 3);
  }
  for (const Exchange &exchange : options.exchanges) {
    TensorInfo &info = problem.tensors[bound.tensors.at(exchange.value)];
    info.allToAll = exchange.moves;
    if (!exchange.layout)
      continue;
    info.fixed = true;
    info.fixedLayout = *exchange.layout;
  }
  function.walk([&](onnxir::NodeOp node) {
    if (!options.dataParallel)
      applyAnnotations(node, options.size, bound);
  });
  return success();
}

} // namespace concord::partition

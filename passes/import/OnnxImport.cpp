//===- OnnxImport.cpp - From an ONNX model to a module --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every node becomes an onnx.node at the location of the model's own name; the
// collectives among ONNX operators become comm operations. Small constants
// become attributes, larger ones comm.weight.
//
//===----------------------------------------------------------------------===//

#include "import/OnnxImport.h"

#include "comm/Comm.h"
#include "common/NodeBridge.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <set>
#include <utility>

using namespace mlir;

namespace concord {

/// Constants up to this size are attributes: indices, scales, shapes.
static constexpr uint64_t kInlineBytes = 256;

std::vector<std::vector<int64_t>>
meshGroups(const Mesh &mesh, const std::vector<std::string> &axes) {
  int64_t world = 1;
  for (auto &axis : mesh)
    world *= axis.second;
  std::map<std::vector<int64_t>, std::vector<int64_t>> groups;
  for (int64_t rank = 0; rank < world; ++rank) {
    std::vector<int64_t> key;
    int64_t rest = rank;
    for (auto it = mesh.rbegin(); it != mesh.rend(); ++it) {
      int64_t coordinate = rest % it->second;
      rest /= it->second;
      if (std::find(axes.begin(), axes.end(), it->first) == axes.end())
        key.insert(key.begin(), coordinate);
    }
    groups[key].push_back(rank);
  }
  std::vector<std::vector<int64_t>> result;
  for (auto &entry : groups)
    result.push_back(entry.second);
  std::sort(result.begin(), result.end());
  return result;
}

namespace {

class Importer {
public:
  Importer(MLIRContext *context, const std::vector<onnx::Model> &models,
           const std::string &pattern, const ImportOptions &options)
      : context(context), models(models), model(models.front()),
        pattern(pattern), graph(&models.front().graph), options(options),
        builder(context) {}

  OwningOpRef<ModuleOp> run();

private:
  LogicalResult sameGraph(const onnx::Model &other, int64_t rank);
  Value constant(onnx::ValueId id, Location loc);
  Value use(onnx::ValueId id, Location loc);
  LogicalResult node(const onnx::Node &node);
  ArrayAttr annotations(const onnx::Node &node, ArrayRef<int32_t> operands,
                        ArrayRef<int32_t> results);
  LogicalResult branch(const onnx::Node &node, Location loc);
  LogicalResult arm(const onnx::Node &node, StringRef attribute, Region &region,
                    Location loc);
  LogicalResult collective(const onnx::Node &node, Location loc, bool &done);
  FlatSymbolRefAttr domain(const std::string &name,
                           const std::vector<std::vector<int64_t>> &groups);
  FailureOr<FlatSymbolRefAttr> domainOf(const onnx::Node &node, Location loc);

  MLIRContext *context;
  const std::vector<onnx::Model> &models;
  const onnx::Model &model; ///< rank 0's, or the only one
  const std::string &pattern;
  const onnx::Graph *graph; ///< the model's, or the branch that is being read
  const ImportOptions &options;
  OpBuilder builder;
  ModuleOp module;
  func::FuncOp function;
  std::map<onnx::ValueId, Value> values;
  std::set<std::string> sections; ///< of branches
  bool hasCollectives = false;
};

/// Whether rank `rank`'s model is rank 0's but for the data of constants.
LogicalResult Importer::sameGraph(const onnx::Model &other, int64_t rank) {
  auto differ = [&](const std::string &what) {
    return emitError(builder.getUnknownLoc())
           << other.path << ": differs from " << model.path << " in " << what
           << "; the ranks of one program run one graph and differ in the data "
              "of "
              "their parameters only";
  };
  const onnx::Graph &a = model.graph, &b = other.graph;
  if (a.nodes.size() != b.nodes.size() || a.values.size() != b.values.size() ||
      a.inputs != b.inputs || a.outputs != b.outputs)
    return differ("the number of nodes or values");
  for (auto [x, y] : llvm::zip(a.nodes, b.nodes))
    if (x.opType != y.opType || x.domain != y.domain || x.inputs != y.inputs ||
        x.outputs != y.outputs)
      return differ("node '" + y.name + "'");
  for (auto [x, y] : llvm::zip(a.values, b.values))
    if (x.type != y.type || x.constant.has_value() != y.constant.has_value())
      return differ("value '" + y.name + "'");
  return success();
}

Value Importer::constant(onnx::ValueId id, Location loc) {
  const onnx::Value &value = graph->values[id];
  const onnx::Tensor &data = *value.constant;
  RankedTensorType type = toMlirType(context, data.type);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  Location nameLoc = NameLoc::get(builder.getStringAttr(value.name));
  uint64_t bytes = data.type.numBytes();
  bool differs = false;
  // Branches are only imported where there is one model.
  for (const onnx::Model &other :
       ArrayRef<onnx::Model>(models).drop_front(models.size() > 1 ? 0 : 1))
    differs |= !std::equal(data.bytes.begin(), data.bytes.end(),
                           other.graph.values[id].constant->bytes.begin());
  if (!differs && bytes <= kInlineBytes) {
    DenseElementsAttr attr;
    if (data.type.dtype == DType::BOOL) {
      SmallVector<bool> bits;
      for (std::byte byte : data.bytes)
        bits.push_back(byte != std::byte(0));
      attr = DenseElementsAttr::get(type, bits);
    } else if (bytes == 0) {
      attr = DenseElementsAttr::get(type, ArrayRef<Attribute>());
    } else {
      attr = DenseElementsAttr::getFromRawBuffer(
          type,
          ArrayRef<char>(reinterpret_cast<const char *>(data.bytes.data()),
                         data.bytes.size()));
    }
    return arith::ConstantOp::create(builder, nameLoc, type, attr);
  }
  auto &store =
      context->getLoadedDialect<comm::CommDialect>()->getWeightStore();
  std::string file =
      llvm::sys::path::filename(differs ? pattern : model.path).str();
  // The graph of a branch may use a name again.
  std::string section =
      graph == &model.graph ? value.name : graph->name + "/" + value.name;
  while (graph != &model.graph && !sections.insert(section).second)
    section += "'";
  if (differs)
    for (auto [rank, other] : llvm::enumerate(models)) {
      const onnx::Tensor &tensor = *other.graph.values[id].constant;
      store.add(forRank(file, rank), section, {tensor.bytes, tensor.owner});
    }
  else
    store.add(file, section, {data.bytes, data.owner});
  return comm::WeightOp::create(
      builder, nameLoc, type, builder.getStringAttr(section),
      builder.getStringAttr(file), nullptr, nullptr, nullptr, nullptr);
}

Value Importer::use(onnx::ValueId id, Location loc) {
  auto it = values.find(id);
  if (it != values.end())
    return it->second;
  Value made = constant(id, loc);
  values[id] = made;
  return made;
}

FlatSymbolRefAttr
Importer::domain(const std::string &name,
                 const std::vector<std::vector<int64_t>> &groups) {
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(module.getBody());
    SmallVector<Attribute> list;
    for (auto &group : groups)
      list.push_back(builder.getDenseI64ArrayAttr(group));
    comm::DomainOp::create(builder, builder.getUnknownLoc(), name,
                           builder.getArrayAttr(list), 0, nullptr);
  }
  return FlatSymbolRefAttr::get(context, name);
}

/// The domain an ONNX collective runs on: the whole world for com.microsoft's,
/// the axes of its group_type for the Nccl ones.
FailureOr<FlatSymbolRefAttr> Importer::domainOf(const onnx::Node &node,
                                                Location loc) {
  if (node.opType.rfind("Nccl", 0) == 0) {
    int64_t type = node.intAttr("group_type", 0);
    auto it = options.groupTypes.find(type);
    if (it != options.groupTypes.end())
      return domain(it->second, meshGroups(options.mesh, {it->second}));
    if (type != 0)
      return emitError(loc) << model.path << ": node '" << node.name << "' ("
                            << node.opType << "): group_type " << type
                            << " is not mapped to a mesh axis; say which with "
                               "--group-type "
                            << type << "=AXIS";
  }
  std::vector<int64_t> all;
  for (int64_t rank = 0; rank < options.world; ++rank)
    all.push_back(rank);
  int64_t size = node.intAttr("group_size", 0);
  if (size > 1 && size != options.world)
    return emitError(loc) << model.path << ": node '" << node.name << "' ("
                          << node.opType << "): group_size " << size
                          << " differs from the world of " << options.world
                          << "; compile with --world " << size;
  return domain("world", {all});
}

LogicalResult Importer::collective(const onnx::Node &node, Location loc,
                                   bool &done) {
  static const std::map<std::string, comm::CollectiveKind> kinds = {
      {"AllReduce", comm::CollectiveKind::all_reduce},
      {"AllGather", comm::CollectiveKind::all_gather},
      {"AllToAll", comm::CollectiveKind::all_to_all},
      {"NcclAllReduce", comm::CollectiveKind::all_reduce},
      {"NcclAllGather", comm::CollectiveKind::all_gather},
      {"NcclReduceScatter", comm::CollectiveKind::reduce_scatter}};
  auto it = kinds.find(node.opType);
  done = it != kinds.end() && node.domain != "" && node.domain != "ai.onnx";
  if (!done)
    return success();
  hasCollectives = true;
  auto domainAttr = domainOf(node, loc);
  if (failed(domainAttr))
    return failure();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == onnx::kNoValue)
      continue;
    Value input = use(node.inputs[i], loc);
    RankedTensorType type =
        toMlirType(context, graph->values[node.outputs[i]].type);
    Value init = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                         type.getElementType());
    int64_t axis = node.intAttr("axis", 0);
    if (axis < 0)
      axis += type.getRank();
    Operation *op;
    switch (it->second) {
    case comm::CollectiveKind::all_reduce:
      op = comm::AllReduceOp::create(builder, loc, type, domainAttr->getValue(),
                                     comm::ReductionKind::sum, input, init);
      break;
    case comm::CollectiveKind::all_gather:
      op = comm::AllGatherOp::create(builder, loc, type, domainAttr->getValue(),
                                     axis, input, init);
      break;
    case comm::CollectiveKind::reduce_scatter:
      op = comm::ReduceScatterOp::create(
          builder, loc, type, domainAttr->getValue(), comm::ReductionKind::sum,
          axis, input, init);
      break;
    default:
      op = comm::AllToAllOp::create(builder, loc, type, domainAttr->getValue(),
                                    0, 0, nullptr, nullptr, input, init);
      break;
    }
    values[node.outputs[i]] = op->getResult(0);
  }
  return success();
}

/// One arm of an If: a graph of its own, whose inputs are the captured values.
LogicalResult Importer::arm(const onnx::Node &node, StringRef attribute,
                            Region &region, Location loc) {
  const auto *attr = node.attribute(attribute.str());
  const auto &inner = *std::get<std::shared_ptr<onnx::Graph>>(*attr);
  std::map<onnx::ValueId, Value> outside;
  for (auto [i, id] : llvm::enumerate(inner.inputs))
    outside[id] = use(node.inputs[1 + i], loc);
  std::swap(values, outside);
  const onnx::Graph *around = std::exchange(graph, &inner);
  OpBuilder::InsertionGuard guard(builder);
  builder.createBlock(&region);
  LogicalResult result = success();
  for (const onnx::Node &nested : inner.nodes)
    if (succeeded(result))
      result = this->node(nested);
  if (succeeded(result)) {
    SmallVector<Value> yielded;
    for (size_t i = 0; i < inner.outputs.size(); ++i)
      if (node.outputs[i] != onnx::kNoValue)
        yielded.push_back(use(inner.outputs[i], loc));
    scf::YieldOp::create(builder, loc, yielded);
  }
  graph = around;
  std::swap(values, outside);
  return result;
}

/// An If whose condition is only known at run time.
LogicalResult Importer::branch(const onnx::Node &node, Location loc) {
  if (models.size() > 1)
    return emitError(loc)
           << model.path << ": node '" << node.name
           << "' (If): a set of models per rank cannot branch at run "
              "time; make the condition a constant (--const NAME=FILE)";
  SmallVector<Type> results;
  for (onnx::ValueId id : node.outputs)
    if (id != onnx::kNoValue)
      results.push_back(toMlirType(context, graph->values[id].type));
  Value condition = use(node.inputs[0], loc);
  auto type = cast<RankedTensorType>(condition.getType());
  Value zero = type.getRank()
                   ? Value(arith::ConstantIndexOp::create(builder, loc, 0))
                   : Value();
  SmallVector<Value> at(type.getRank(), zero);
  Value chosen = tensor::ExtractOp::create(builder, loc, condition, at);
  auto op = scf::IfOp::create(builder, loc, results, chosen);
  if (failed(arm(node, "then_branch", op.getThenRegion(), loc)) ||
      failed(arm(node, "else_branch", op.getElseRegion(), loc)))
    return failure();
  unsigned next = 0;
  for (onnx::ValueId id : node.outputs)
    if (id != onnx::kNoValue)
      values[id] = op.getResult(next++);
  return success();
}

/// IR 11 annotations of a node: per operand or result, by its number in the
/// operation, one entry per sharded axis, or one without an axis for "whole".
ArrayAttr Importer::annotations(const onnx::Node &node,
                                ArrayRef<int32_t> operands,
                                ArrayRef<int32_t> results) {
  SmallVector<Attribute> list;
  for (const onnx::ShardingSpec &spec : node.shardings) {
    bool isOperand = spec.operand >= 0;
    ArrayRef<int32_t> positions = isOperand ? operands : results;
    const int32_t *at =
        llvm::find(positions, isOperand ? spec.operand : spec.result);
    if (at == positions.end())
      continue;
    NamedAttribute which =
        builder.getNamedAttr(isOperand ? "operand" : "result",
                             builder.getI64IntegerAttr(at - positions.begin()));
    if (spec.dims.empty())
      list.push_back(builder.getDictionaryAttr({which}));
    for (const onnx::ShardedDim &dim : spec.dims) {
      int64_t shards = 1;
      for (auto &part : dim.dims)
        shards *= part.second;
      list.push_back(builder.getDictionaryAttr(
          {which,
           builder.getNamedAttr("axis", builder.getI64IntegerAttr(dim.axis)),
           builder.getNamedAttr("shards", builder.getI64IntegerAttr(shards))}));
    }
  }
  return list.empty() ? ArrayAttr() : builder.getArrayAttr(list);
}

LogicalResult Importer::node(const onnx::Node &node) {
  Location loc = NameLoc::get(builder.getStringAttr(node.name));
  bool done = false;
  if (failed(collective(node, loc, done)))
    return failure();
  if (done)
    return success();
  if (node.opType == "If" && node.domain.empty())
    return branch(node, loc);
  SmallVector<Value> operands;
  SmallVector<int32_t> operandPositions, resultPositions;
  SmallVector<Type> results;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == onnx::kNoValue)
      continue;
    operands.push_back(use(node.inputs[i], loc));
    operandPositions.push_back(i);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == onnx::kNoValue)
      continue;
    results.push_back(toMlirType(context, graph->values[node.outputs[i]].type));
    resultPositions.push_back(i);
  }
  DenseI32ArrayAttr operandAttr, resultAttr;
  IntegerAttr countAttr;
  if (operandPositions.size() != node.inputs.size()) {
    operandAttr = builder.getDenseI32ArrayAttr(operandPositions);
    countAttr = builder.getI32IntegerAttr(node.inputs.size());
  }
  if (resultPositions.size() != node.outputs.size())
    resultAttr = builder.getDenseI32ArrayAttr(resultPositions);
  auto op = onnxir::NodeOp::create(
      builder, loc, results, builder.getStringAttr(node.opType), operands,
      toMlirAttributes(builder, node), builder.getI64IntegerAttr(node.opset),
      node.domain.empty() ? StringAttr() : builder.getStringAttr(node.domain),
      operandAttr, resultAttr, countAttr,
      annotations(node, operandPositions, resultPositions));
  if (node.pipelineStage >= 0)
    op->setAttr(kPipelineStage, builder.getI64IntegerAttr(node.pipelineStage));
  unsigned next = 0;
  for (onnx::ValueId id : node.outputs)
    if (id != onnx::kNoValue)
      values[id] = op.getResult(next++);
  return success();
}

OwningOpRef<ModuleOp> Importer::run() {
  for (auto [rank, other] : llvm::enumerate(models))
    if (failed(sameGraph(other, rank)))
      return {};
  OwningOpRef<ModuleOp> owner =
      ModuleOp::create(builder, builder.getUnknownLoc());
  module = *owner;
  builder.setInsertionPointToEnd(module.getBody());

  SmallVector<Type> inputTypes, outputTypes;
  for (onnx::ValueId id : model.graph.inputs)
    inputTypes.push_back(toMlirType(context, model.graph.values[id].type));
  for (onnx::ValueId id : model.graph.outputs)
    outputTypes.push_back(toMlirType(context, model.graph.values[id].type));
  function = func::FuncOp::create(
      builder, NameLoc::get(builder.getStringAttr(model.graph.name)), "main",
      builder.getFunctionType(inputTypes, outputTypes));
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  for (auto [i, id] : llvm::enumerate(model.graph.inputs)) {
    values[id] = entry->getArgument(i);
    function.setArgAttr(i, "comm.name",
                        builder.getStringAttr(model.graph.values[id].name));
  }
  for (const onnx::Node &node : model.graph.nodes)
    if (failed(this->node(node)))
      return {};
  SmallVector<Value> results;
  for (auto [i, id] : llvm::enumerate(model.graph.outputs)) {
    results.push_back(use(id, function.getLoc()));
    function.setResultAttr(i, "comm.name",
                           builder.getStringAttr(model.graph.values[id].name));
  }
  func::ReturnOp::create(builder, function.getLoc(), results);

  module->setAttr(
      "comm.phase",
      builder.getStringAttr(hasCollectives ? "partitioned" : "imported"));
  SmallVector<Attribute> mesh;
  for (auto &[name, size] : options.mesh)
    mesh.push_back(builder.getArrayAttr(
        {builder.getStringAttr(name), builder.getI64IntegerAttr(size)}));
  module->setAttr("comm.mesh", builder.getArrayAttr(mesh));
  module->setAttr("comm.world", builder.getI64IntegerAttr(options.world));
  return owner;
}

} // namespace

std::string forRank(const std::string &pattern, int64_t rank) {
  std::string name = pattern;
  size_t at = name.find("{rank}");
  if (at != std::string::npos)
    name.replace(at, 6, std::to_string(rank));
  return name;
}

OwningOpRef<ModuleOp> importOnnx(MLIRContext *context,
                                 const std::vector<onnx::Model> &models,
                                 const std::string &pattern,
                                 const ImportOptions &options) {
  context->loadDialect<arith::ArithDialect, comm::CommDialect,
                       func::FuncDialect, onnxir::OnnxDialect, scf::SCFDialect,
                       tensor::TensorDialect>();
  return Importer(context, models, pattern, options).run();
}

} // namespace concord

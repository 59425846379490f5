//===- OnnxImport.cpp - From an ONNX model to a module --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every node becomes an onnx.node at the location of the model's own name; the
// collectives among ONNX operators become comm operations. Small constants become
// attributes, larger ones comm.weight.
//
//===----------------------------------------------------------------------===//

#include "import/OnnxImport.h"

#include "comm/Comm.h"
#include "common/NodeBridge.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/Path.h"

#include <algorithm>

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
  Importer(MLIRContext *context, const onnx::Model &model,
           const ImportOptions &options)
      : context(context), model(model), options(options), builder(context) {}

  OwningOpRef<ModuleOp> run();

private:
  Value constant(onnx::ValueId id, Location loc);
  Value use(onnx::ValueId id, Location loc);
  LogicalResult node(const onnx::Node &node);
  LogicalResult collective(const onnx::Node &node, Location loc, bool &done);
  FlatSymbolRefAttr domain(const std::string &name,
                           const std::vector<std::vector<int64_t>> &groups);
  FailureOr<FlatSymbolRefAttr> domainOf(const onnx::Node &node, Location loc);

  MLIRContext *context;
  const onnx::Model &model;
  const ImportOptions &options;
  OpBuilder builder;
  ModuleOp module;
  func::FuncOp function;
  std::string file;
  std::map<onnx::ValueId, Value> values;
  bool hasCollectives = false;
};

Value Importer::constant(onnx::ValueId id, Location loc) {
  const onnx::Value &value = model.graph.values[id];
  const onnx::Tensor &data = *value.constant;
  RankedTensorType type = toMlirType(context, data.type);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  Location nameLoc = NameLoc::get(builder.getStringAttr(value.name));
  uint64_t bytes = data.type.numBytes();
  if (bytes <= kInlineBytes || bytes == 0) {
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
          type, ArrayRef<char>(reinterpret_cast<const char *>(data.bytes.data()),
                               data.bytes.size()));
    }
    return arith::ConstantOp::create(builder, nameLoc, type, attr);
  }
  auto *dialect = context->getLoadedDialect<comm::CommDialect>();
  dialect->getWeightStore().add(file, value.name, {data.bytes, data.owner});
  return comm::WeightOp::create(builder, nameLoc, type,
                                builder.getStringAttr(value.name),
                                builder.getStringAttr(file), nullptr, nullptr,
                                nullptr, nullptr);
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
        toMlirType(context, model.graph.values[node.outputs[i]].type);
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
      op = comm::ReduceScatterOp::create(builder, loc, type, domainAttr->getValue(),
                                         comm::ReductionKind::sum, axis, input,
                                         init);
      break;
    default:
      op = comm::AllToAllOp::create(builder, loc, type, domainAttr->getValue(), 0, 0,
                                    nullptr, nullptr, input, init);
      break;
    }
    values[node.outputs[i]] = op->getResult(0);
  }
  return success();
}

LogicalResult Importer::node(const onnx::Node &node) {
  Location loc = NameLoc::get(builder.getStringAttr(node.name));
  bool done = false;
  if (failed(collective(node, loc, done)))
    return failure();
  if (done)
    return success();
  for (auto &[name, attribute] : node.attributes)
    if (std::holds_alternative<std::shared_ptr<onnx::Graph>>(attribute))
      return emitError(loc)
             << model.path << ": node '" << node.name << "' (" << node.opType
             << ", opset " << node.opset
             << "): its branch is only chosen at run time, which is not "
                "supported; make the condition a constant (--const NAME=FILE)";
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
    results.push_back(
        toMlirType(context, model.graph.values[node.outputs[i]].type));
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
      operandAttr, resultAttr, countAttr, nullptr);
  unsigned next = 0;
  for (onnx::ValueId id : node.outputs)
    if (id != onnx::kNoValue)
      values[id] = op.getResult(next++);
  return success();
}

OwningOpRef<ModuleOp> Importer::run() {
  file = llvm::sys::path::filename(model.path).str();
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

  module->setAttr("comm.phase",
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

OwningOpRef<ModuleOp> importOnnx(MLIRContext *context, const onnx::Model &model,
                                 const ImportOptions &options) {
  context->loadDialect<arith::ArithDialect, comm::CommDialect, func::FuncDialect,
                       onnxir::OnnxDialect, tensor::TensorDialect>();
  return Importer(context, model, options).run();
}

} // namespace concord

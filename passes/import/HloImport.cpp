//===- HloImport.cpp - From HLO text to a module --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value of HLO is the list of its array leaves, so tuples cost nothing. The
// scalar computations of reductions, sorts and the like are part of the
// instruction that applies them; computations that hold collectives are inlined
// where they are called, so that the plan sees every issue.
//
//===----------------------------------------------------------------------===//

#include "import/HloImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace concord {

static constexpr unsigned kMaxDepth = 200;
static constexpr uint64_t kMaxOperations = 8000000;

namespace hloimport {

/// Marks the computations that hold collectives, and refuses recursion. Depth
/// first with an explicit stack: text may nest as it likes.
LogicalResult Importer::findCommunication() {
  communicates.assign(source.computations.size(), 0);
  std::vector<char> state(source.computations.size(), 0);
  for (uint32_t root = 0; root < source.computations.size(); ++root) {
    if (state[root])
      continue;
    // (computation, next instruction, next callee of it)
    std::vector<std::array<uint32_t, 3>> stack = {{root, 0, 0}};
    state[root] = 1;
    while (!stack.empty()) {
      auto [self, at, callee] = stack.back();
      const auto &list = source.computations[self].instructions;
      if (at == list.size()) {
        state[self] = 2;
        stack.pop_back();
        if (!stack.empty() && communicates[self])
          communicates[stack.back()[0]] = 1;
        continue;
      }
      const hlo::Instruction &op = list[at];
      if (callee == 0 && HloCollectives::isCommunication(op))
        communicates[self] = 1;
      if (callee == op.called.size()) {
        stack.back() = {self, at + 1, 0};
        continue;
      }
      stack.back()[2] = callee + 1;
      uint32_t next = op.called[callee];
      if (state[next] == 1)
        return fail(op) << "calls '" << ref(source.computations[next].name)
                        << "', which calls it";
      if (state[next] == 2) {
        communicates[self] |= communicates[next];
        continue;
      }
      state[next] = 1;
      stack.push_back({next, 0, 0});
    }
  }
  return success();
}

/// Where each element of a tuple begins among its leaves; one entry more.
const std::vector<uint32_t> &Importer::offsetsOf(const hlo::Shape &shape) {
  auto found = offsets.find(&shape);
  if (found != offsets.end())
    return found->second;
  std::vector<uint32_t> list = {0};
  for (const hlo::Shape &element : shape.elements) {
    uint32_t count = 1;
    if (element.kind == hlo::Shape::Kind::Tuple)
      count = offsetsOf(element).back();
    list.push_back(list.back() + count);
  }
  return offsets[&shape] = std::move(list);
}

void Importer::leafTypes(const hlo::Shape &shape,
                         SmallVectorImpl<Type> &types) {
  switch (shape.kind) {
  case hlo::Shape::Kind::Tuple:
    for (const hlo::Shape &element : shape.elements)
      leafTypes(element, types);
    return;
  case hlo::Shape::Kind::Token:
  case hlo::Shape::Kind::Opaque:
    types.push_back(builder.getNoneType());
    return;
  case hlo::Shape::Kind::Array:
    break;
  }
  Type &element = elementTypes[ref(shape.element)];
  if (!element)
    element = hloElementType(context, ref(shape.element));
  SmallVector<int64_t> dims(shape.dims.begin(), shape.dims.end());
  for (int64_t &extent : dims)
    if (extent < 0)
      extent = ShapedType::kDynamic;
  types.push_back(RankedTensorType::get(dims, element));
}

uint32_t Importer::calledBy(const hlo::Instruction &op, std::string_view key) {
  StringRef name = ref(op.attribute(key));
  name.consume_front("%");
  auto found = computations.find(name);
  return found == computations.end() ? hlo::kNone : found->second;
}

bool Importer::isPureCall(const hlo::Instruction &op) {
  StringRef target = ref(op.attribute("custom_call_target"));
  return pureCalls.contains(target.trim('"'));
}

static bool changesView(const hlo::Instruction &op) {
  StringRef target = ref(op.attribute("custom_call_target")).trim('"');
  return op.opcode == "sdy.global_to_local" ||
         op.opcode == "sdy.local_to_global" ||
         target == "SPMDFullToShardShape" || target == "SPMDShardToFullShape";
}

/// Where values become one device's own somewhere, they are the whole program's
/// before: what the entry's shardings split is one value still.
void Importer::findView() {
  for (const hlo::Computation &computation : source.computations)
    globalView |= llvm::any_of(computation.instructions, changesView);
}

/// Two numbers for each rank: which part it holds of what `op` yields, and
/// which copy of that part. Null when it is not known.
std::pair<DenseI64ArrayAttr, DenseI64ArrayAttr>
Importer::partsOf(const hlo::Instruction &op, StringRef sharding) {
  std::vector<std::vector<int64_t>> groups;
  try {
    std::string_view named = op.attribute("parts");
    groups = named.empty() ? hlo::sameParts({sharding.data(), sharding.size()})
                           : hlo::parseGroups(named);
  } catch (const hlo::Error &) {
    // A sharding only sharpens what is known.
    return {};
  }
  int64_t partitions = collectives.partitionCount();
  std::vector<int64_t> part(partitions, -1), copy(partitions, 0);
  int64_t covered = 0, copies = 1;
  for (auto [number, group] : llvm::enumerate(groups)) {
    copies = std::max<int64_t>(copies, group.size());
    for (auto [which, device] : llvm::enumerate(group)) {
      if (device >= partitions || part[device] >= 0)
        return {};
      part[device] = number;
      copy[device] = which;
      ++covered;
    }
  }
  if (covered != partitions)
    return {};
  // Replicas are given their own data.
  SmallVector<int64_t> partOfRank, copyOfRank;
  int64_t parts = groups.size();
  for (int64_t rank = 0; rank < collectives.world(); ++rank) {
    int64_t replica = rank / partitions, device = rank % partitions;
    partOfRank.push_back(replica * parts + part[device]);
    copyOfRank.push_back(replica * copies + copy[device]);
  }
  return {builder.getDenseI64ArrayAttr(partOfRank),
          builder.getDenseI64ArrayAttr(copyOfRank)};
}

/// Arithmetic on single integers, and look-ups in tables of them, that a
/// compiler fused: which branch a device takes, how often a loop runs. Taken
/// apart, it can be followed.
bool Importer::isScalarFusion(const Frame &frame, const hlo::Instruction &op) {
  auto isInteger = [&](const hlo::Shape &shape) {
    return shape.kind == hlo::Shape::Kind::Array && shape.numElements() == 1 &&
           hloElementType(context, ref(shape.element)).isInteger();
  };
  const auto &list = source.computations[frame.computation].instructions;
  auto isTable = [&](const hlo::Instruction &operand) {
    return operand.opcode == "constant" && operand.shape.dims.size() == 1;
  };
  return op.opcode == "fusion" && op.called.size() == 1 &&
         llvm::all_of(op.operands,
                      [&](uint32_t i) {
                        return isInteger(list[i].shape) || isTable(list[i]);
                      }) &&
         (op.shape.kind == hlo::Shape::Kind::Tuple
              ? llvm::all_of(op.shape.elements, isInteger)
              : isInteger(op.shape));
}

Value Importer::scalar(const hlo::Instruction &op, Value tensor) {
  return tensor::ExtractOp::create(builder, locOf(op), tensor, ValueRange());
}

Value Importer::opaque(Location loc, StringRef name, ValueRange operands,
                       Type type, StringAttr key) {
  return comm::ComputeOp::create(builder, loc, TypeRange(type),
                                 builder.getStringAttr(name), operands, nullptr,
                                 nullptr, nullptr, nullptr, nullptr, nullptr,
                                 key)
      .getResult(0);
}

LogicalResult Importer::operandLeaves(Frame &frame, const hlo::Instruction &op,
                                      SmallVectorImpl<Value> &leaves) {
  for (uint32_t operand : op.operands) {
    if (frame.pending.count(operand))
      return fail(op) << "uses '"
                      << ref(source.computations[frame.computation]
                                 .instructions[operand]
                                 .name)
                      << "' before its -done";
    llvm::append_range(leaves, frame.values[operand]);
  }
  return success();
}

LogicalResult Importer::compute(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  for (uint32_t callee : op.called)
    if (communicates[callee])
      return fail(op) << "applies '" << ref(source.computations[callee].name)
                      << "', which communicates; its order is not fixed";
  SmallVector<Value> operands;
  if (failed(operandLeaves(frame, op, operands)))
    return failure();
  Location loc = locOf(op);
  StringRef code = ref(op.opcode);
  SmallVector<Type> types;
  leafTypes(op.shape, types);
  // Taken as it is: a change of view says that devices hold different values.
  if (ref(op.attribute("custom_call_target")).trim('"') ==
          "SPMDFullToShardShape" &&
      op.operands.size() == 1 &&
      ref(source.computations[frame.computation]
              .instructions[op.operands.front()]
              .attribute("sharding"))
          .starts_with("{replicated") &&
      TypeRange(ValueRange(operands)) == TypeRange(types)) {
    frame.values[index].assign(operands.begin(), operands.end());
    return success();
  }
  if (code == "partition-id" || code == "replica-id")
    operands.push_back(comm::RankOp::create(
        builder, loc, builder.getIndexType(), collectives.worldDomain()));
  hlo::Cost cost = hlo::costOf(source, frame.computation, index);
  auto number = [&](uint64_t value) {
    return value ? builder.getI64IntegerAttr(static_cast<int64_t>(
                       std::min<uint64_t>(value, INT64_MAX)))
                 : IntegerAttr();
  };
  bool touches = code == "infeed" || code == "outfeed" || code == "send" ||
                 code == "recv" || code == "send-done" || code == "recv-done";
  if (code == "custom-call" && !isPureCall(op)) {
    touches = true;
    ++opaqueCalls;
  }
  StringRef name = code;
  if (code == "custom-call")
    name = ref(op.attribute("custom_call_target")).trim('"');
  auto made = comm::ComputeOp::create(
      builder, loc, types, builder.getStringAttr(name), operands,
      number(cost.flops), number(cost.bytesRead), number(cost.bytesWritten),
      nullptr, nullptr, touches ? builder.getUnitAttr() : nullptr,
      builder.getStringAttr(ref(op.name)));
  describe(made, op);
  if (changesView(op)) {
    // The view that is left behind of a value on its way in, else the new one.
    const hlo::Instruction &whole =
        name == "SPMDFullToShardShape" && op.operands.size() == 1
            ? source.computations[frame.computation]
                  .instructions[op.operands.front()]
            : op;
    auto [parts, copies] = partsOf(op, ref(whole.attribute("sharding")));
    if (parts) {
      made->setAttr("parts", parts);
      made->setAttr("copies", copies);
    }
  }
  llvm::append_range(frame.values[index], made.getResults());
  return success();
}

/// What passes want to know of an opaque instruction beside its cost: which
/// part a rank takes (a table looked up by the partition's number, or a fixed
/// place), and how integers are compared.
void Importer::describe(comm::ComputeOp made, const hlo::Instruction &op) {
  StringRef code = ref(op.opcode);
  if (code == "partition-id" || code == "replica-id") {
    made->setAttr("partitions",
                  builder.getI64IntegerAttr(collectives.partitionCount()));
    return;
  }
  if (code == "compare") {
    made->setAttr("direction",
                  builder.getStringAttr(ref(op.attribute("direction"))));
    return;
  }
  auto type = made.getNumResults() == 1
                  ? dyn_cast<RankedTensorType>(made.getResult(0).getType())
                  : RankedTensorType();
  if (!type || !type.hasStaticShape())
    return;
  if (code == "slice") {
    // {[0:4], [2:8:2]}: start, limit, stride.
    SmallVector<int64_t> starts;
    SmallVector<StringRef> dims;
    ref(op.attribute("slice")).trim("{}").split(dims, ',', -1, false);
    for (StringRef dim : dims) {
      SmallVector<StringRef> parts;
      dim.trim().trim("[]").split(parts, ':');
      int64_t start = 0, stride = 1;
      if (parts.size() < 2 || parts.size() > 3 ||
          parts[0].getAsInteger(10, start) ||
          (parts.size() == 3 && parts[2].getAsInteger(10, stride)) ||
          stride != 1)
        return;
      starts.push_back(start);
    }
    if (static_cast<int64_t>(starts.size()) == type.getRank())
      made->setAttr("starts", builder.getDenseI64ArrayAttr(starts));
    return;
  }
  // Large tables are written `{...}`.
  auto element = dyn_cast<IntegerType>(type.getElementType());
  if (code != "constant" || !element ||
      (element.getWidth() < 8 && element.getWidth() != 1) ||
      type.getRank() > 1 || type.getNumElements() > hlo::kMaxRanks)
    return;
  SmallVector<StringRef> numbers;
  ref(op.payload).trim().trim("{}").split(numbers, ',', -1, false);
  if (static_cast<int64_t>(numbers.size()) != type.getNumElements())
    return;
  SmallVector<APInt> values;
  for (StringRef number : numbers) {
    int64_t value = 0;
    if (element.getWidth() == 1) {
      if (number.trim() != "true" && number.trim() != "false")
        return;
      values.push_back(APInt(1, number.trim() == "true"));
      continue;
    }
    if (number.trim().getAsInteger(10, value) ||
        !(element.isUnsigned()
              ? value >= 0 && llvm::isUIntN(element.getWidth(), value)
              : llvm::isIntN(element.getWidth(), value)))
      return;
    values.push_back(APInt(element.getWidth(), value, !element.isUnsigned(),
                           /*implicitTrunc=*/true));
  }
  made->setAttr("value", DenseElementsAttr::get(type, values));
}
LogicalResult Importer::instruction(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  if (++operations > kMaxOperations)
    return fail(op) << "brings the module above " << kMaxOperations
                    << " operations";
  StringRef code = ref(op.opcode);
  if (code == "parameter") {
    int64_t number = 0;
    if (ref(op.payload).trim().getAsInteger(10, number) ||
        number >= static_cast<int64_t>(frame.parameters.size()))
      return fail(op) << "is not among the operands that are given";
    frame.values[index] = frame.parameters[number];
    SmallVector<Type> types;
    leafTypes(op.shape, types);
    if (TypeRange(ValueRange(frame.values[index])) != TypeRange(types))
      return fail(op) << "differs in shape from what is given";
    return success();
  }
  if (code == "tuple") {
    SmallVector<Value> leaves;
    if (failed(operandLeaves(frame, op, leaves)))
      return failure();
    frame.values[index].assign(leaves.begin(), leaves.end());
    return success();
  }
  if (code == "get-tuple-element") {
    int64_t number = -1;
    if (op.operands.size() != 1 ||
        ref(op.attribute("index")).getAsInteger(10, number))
      return fail(op) << "needs an operand and an index";
    uint32_t operand = op.operands.front();
    const hlo::Shape &shape =
        source.computations[frame.computation].instructions[operand].shape;
    if (frame.pending.count(operand))
      return fail(op) << "takes apart a started collective before its -done";
    if (number < 0 || number >= static_cast<int64_t>(shape.elements.size()))
      return fail(op) << "has an index outside its operand";
    const std::vector<uint32_t> &starts = offsetsOf(shape);
    if (frame.values[operand].size() != starts.back())
      return fail(op) << "differs in shape from its operand";
    frame.values[index].assign(frame.values[operand].begin() + starts[number],
                               frame.values[operand].begin() +
                                   starts[number + 1]);
    return success();
  }
  if (code == "while")
    return whileLoop(frame, index);
  if (code == "conditional")
    return conditional(frame, index);
  if (code == "call" ||
      (code == "fusion" &&
       (isScalarFusion(frame, op) || llvm::any_of(op.called, [&](uint32_t c) {
          return communicates[c];
        })))) {
    if (op.called.size() != 1)
      return fail(op) << "needs one computation";
    return inlineCall(frame, index, op.called.front());
  }
  if (HloCollectives::isCollective(code))
    return collective(frame, index, code, false);
  if (code.ends_with("-start") &&
      HloCollectives::isCollective(code.drop_back(6)))
    return collective(frame, index, code.drop_back(6), true);
  if (code == "async-start")
    return asyncStart(frame, index);
  if (HloCollectives::isTransfer(op))
    return transfer(frame, index);
  bool collectiveDone = code.ends_with("-done") &&
                        HloCollectives::isCollective(code.drop_back(5));
  if (code == "async-update" || code == "async-done" || collectiveDone)
    return done(frame, index);
  if ((code == "send-done" || code == "recv-done") && !op.operands.empty() &&
      frame.pending.count(op.operands.front()))
    return done(frame, index);
  return compute(frame, index);
}

FailureOr<Leaves> Importer::computation(uint32_t index,
                                        ArrayRef<Leaves> parameters,
                                        unsigned depth) {
  const hlo::Computation &body = source.computations[index];
  const hlo::Instruction &root = body.instructions[body.root];
  if (depth > kMaxDepth) {
    fail(root) << "is nested deeper than " << kMaxDepth << " computations";
    return failure();
  }
  Frame frame{
      index, parameters, {}, llvm::DenseMap<uint32_t, Pending>(), depth};
  frame.values.resize(body.instructions.size());
  for (uint32_t i = 0; i < body.instructions.size(); ++i)
    if (failed(instruction(frame, i)))
      return failure();
  if (!frame.pending.empty()) {
    const hlo::Instruction &left =
        body.instructions[frame.pending.begin()->first];
    fail(left) << "is started and never done in its computation";
    return failure();
  }
  return std::move(frame.values[body.root]);
}

/// `{{a},{b}}` as `{a}` and `{b}`.
static SmallVector<StringRef> braced(StringRef text) {
  SmallVector<StringRef> parts;
  unsigned depth = 0;
  size_t from = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '{' && ++depth == 2)
      from = i;
    else if (text[i] == '}' && depth > 0 && depth-- == 2)
      parts.push_back(text.slice(from, i + 1));
  return parts;
}

OwningOpRef<ModuleOp> Importer::run() {
  for (const char *name : kPureCustomCalls)
    pureCalls.insert(name);
  for (const std::string &name : options.pureCalls)
    pureCalls.insert(name);
  for (auto [i, computation] : llvm::enumerate(source.computations))
    computations[ref(computation.name)] = i;
  if (failed(findCommunication()))
    return {};
  findView();
  OwningOpRef<ModuleOp> owner =
      ModuleOp::create(builder, builder.getUnknownLoc());
  module = *owner;
  std::string error;
  if (!collectives.begin(module, options.world, error)) {
    emitError(builder.getUnknownLoc()) << source.path << ": " << error;
    return {};
  }
  const hlo::Computation &entry = source.computations[source.entry];
  SmallVector<Type> inputs, outputs;
  for (uint32_t parameter : entry.parameters)
    leafTypes(entry.instructions[parameter].shape, inputs);
  leafTypes(entry.instructions[entry.root].shape, outputs);
  builder.setInsertionPointToEnd(module.getBody());
  auto function = func::FuncOp::create(
      builder, NameLoc::get(builder.getStringAttr(ref(source.name))), "main",
      builder.getFunctionType(inputs, outputs));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  SmallVector<Leaves> parameters;
  unsigned next = 0;
  for (uint32_t parameter : entry.parameters) {
    const hlo::Instruction &op = entry.instructions[parameter];
    SmallVector<Type> types;
    leafTypes(op.shape, types);
    Leaves leaves;
    for (size_t i = 0; i < types.size(); ++i, ++next) {
      function.setArgAttr(next, "comm.name",
                          builder.getStringAttr(ref(op.name)));
      StringRef sharding = ref(op.attribute("sharding"));
      // A tuple has a list of them.
      if (op.shape.kind == hlo::Shape::Kind::Tuple) {
        SmallVector<StringRef> each = braced(sharding);
        sharding = each.size() == types.size() ? each[i] : sharding;
      }
      if (sharding.starts_with("{replicated")) {
        function.setArgAttr(next, "comm.replicated", builder.getUnitAttr());
      } else if (!sharding.empty() && !globalView) {
        function.setArgAttr(next, "comm.sharding", builder.getArrayAttr({}));
        if (DenseI64ArrayAttr parts = partsOf(op, sharding).first)
          function.setArgAttr(next, "comm.parts", parts);
      }
      leaves.push_back(body->getArgument(next));
    }
    parameters.push_back(std::move(leaves));
  }
  auto results = computation(source.entry, parameters, 0);
  if (failed(results))
    return {};
  if (TypeRange(ValueRange(*results)) != TypeRange(outputs)) {
    fail(entry.instructions[entry.root])
        << "differs in shape from its operands";
    return {};
  }
  func::ReturnOp::create(builder, function.getLoc(), *results);
  module->setAttr("comm.phase", builder.getStringAttr("partitioned"));
  module->setAttr("comm.world", builder.getI64IntegerAttr(collectives.world()));
  module->setAttr("comm.opaque_calls", builder.getI64IntegerAttr(opaqueCalls));
  // Only HLO text is written back with control dependencies.
  if (!source.derived)
    module->setAttr(
        "comm.hlo_source",
        builder.getStrArrayAttr(
            {source.path,
             llvm::utohexstr(llvm::xxh3_64bits(*source.text), true)}));
  if (failed(verify(module)))
    return {};
  return owner;
}

} // namespace hloimport

OwningOpRef<ModuleOp> importHlo(MLIRContext *context, const hlo::Module &source,
                                const HloImportOptions &options) {
  context
      ->loadDialect<arith::ArithDialect, comm::CommDialect, func::FuncDialect,
                    scf::SCFDialect, tensor::TensorDialect>();
  try {
    return hloimport::Importer(context, source, options).run();
  } catch (const hlo::Error &error) {
    emitError(UnknownLoc::get(context)) << source.path << ": " << error.what();
    return {};
  }
}

} // namespace concord

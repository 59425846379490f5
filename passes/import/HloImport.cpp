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

#include "import/HloImport.h"
#include "import/HloCollectives.h"

#include "comm/Comm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace concord {

static constexpr unsigned kMaxDepth = 200;
static constexpr uint64_t kMaxOperations = 8000000;

static llvm::StringRef ref(std::string_view text) {
  return {text.data(), text.size()};
}

namespace {

using Leaves = SmallVector<Value, 1>;

/// A collective that was started: one entry per array that it moves.
struct Pending {
  SmallVector<comm::StartOp, 1> starts;
};

class Importer {
public:
  Importer(MLIRContext *context, const hlo::Module &source,
           const HloImportOptions &options)
      : context(context), source(source), options(options), builder(context),
        collectives(builder, source) {
    if (source.derived)
      for (size_t at = 0; at < source.text->size(); ++at)
        if ((*source.text)[at] == '\n')
          lines.push_back(static_cast<uint32_t>(at + 1));
  }

  OwningOpRef<ModuleOp> run();

private:
  /// The values of one computation while it is imported.
  struct Frame {
    uint32_t computation;
    ArrayRef<Leaves> parameters;
    std::vector<Leaves> values;
    llvm::DenseMap<uint32_t, Pending> pending;
    unsigned depth;
  };

  InFlightDiagnostic fail(const hlo::Instruction &op) {
    return emitError(locOf(op))
           << source.locate(op.begin) << ": " << ref(op.opcode) << " '"
           << ref(op.name) << "' ";
  }
  /// The instruction's name; for another syntax, where names are only numbers,
  /// its line too.
  Location locOf(const hlo::Instruction &op) {
    StringAttr name = builder.getStringAttr(ref(op.name));
    if (!source.derived)
      return NameLoc::get(name);
    auto line = llvm::upper_bound(lines, op.begin) - lines.begin();
    unsigned column = op.begin - (line ? lines[line - 1] : 0) + 1;
    return NameLoc::get(
        name, FileLineColLoc::get(context, source.path, line + 1, column));
  }
  LogicalResult findCommunication();
  const std::vector<uint32_t> &offsetsOf(const hlo::Shape &shape);
  void leafTypes(const hlo::Shape &shape, SmallVectorImpl<Type> &types);
  FailureOr<Leaves> computation(uint32_t index, ArrayRef<Leaves> parameters,
                                unsigned depth);
  LogicalResult instruction(Frame &frame, uint32_t index);
  LogicalResult compute(Frame &frame, uint32_t index);
  void describe(comm::ComputeOp made, const hlo::Instruction &op);
  LogicalResult whileLoop(Frame &frame, uint32_t index);
  LogicalResult conditional(Frame &frame, uint32_t index);
  LogicalResult inlineCall(Frame &frame, uint32_t index, uint32_t callee);
  LogicalResult collective(Frame &frame, uint32_t index, StringRef kind,
                           bool async);
  LogicalResult transfer(Frame &frame, uint32_t index);
  LogicalResult asyncStart(Frame &frame, uint32_t index);
  LogicalResult done(Frame &frame, uint32_t index);
  LogicalResult operandLeaves(Frame &frame, const hlo::Instruction &op,
                              SmallVectorImpl<Value> &leaves);
  Value opaque(Location loc, StringRef name, ValueRange operands, Type type,
               StringAttr key);
  uint32_t calledBy(const hlo::Instruction &op, std::string_view key);
  bool isPureCall(const hlo::Instruction &op);
  bool isScalarFusion(const Frame &frame, const hlo::Instruction &op);
  std::pair<DenseI64ArrayAttr, DenseI64ArrayAttr>
  partsOf(const hlo::Instruction &op, StringRef sharding);
  void findView();
  Value scalar(const hlo::Instruction &op, Value tensor);

  MLIRContext *context;
  const hlo::Module &source;
  const HloImportOptions &options;
  OpBuilder builder;
  HloCollectives collectives;
  ModuleOp module;
  std::vector<uint32_t> lines;    ///< where each line but the first begins
  std::vector<char> communicates; ///< per computation, what it calls included
  llvm::StringMap<uint32_t> computations;
  llvm::DenseMap<const hlo::Shape *, std::vector<uint32_t>> offsets;
  llvm::StringMap<Type> elementTypes;
  llvm::StringSet<> pureCalls;
  uint64_t operations = 0;
  int64_t opaqueCalls = 0;
  bool globalView = false; ///< of the entry computation
};

} // namespace

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

LogicalResult Importer::inlineCall(Frame &frame, uint32_t index,
                                   uint32_t callee) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  SmallVector<Leaves> parameters;
  for (uint32_t operand : op.operands) {
    if (frame.pending.count(operand))
      return fail(op) << "uses a started collective before its -done";
    parameters.push_back(frame.values[operand]);
  }
  auto results = computation(callee, parameters, frame.depth + 1);
  if (failed(results))
    return failure();
  SmallVector<Type> types;
  leafTypes(op.shape, types);
  // The done of an async call yields the results; its start has a tuple shape.
  if (op.opcode != "async-start" &&
      TypeRange(ValueRange(*results)) != TypeRange(types))
    return fail(op) << "differs in shape from what it calls";
  frame.values[index] = std::move(*results);
  return success();
}

LogicalResult Importer::whileLoop(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  uint32_t condition = calledBy(op, "condition"), body = calledBy(op, "body");
  if (condition == hlo::kNone || body == hlo::kNone || op.operands.size() != 1)
    return fail(op) << "needs one operand, a condition and a body";
  SmallVector<Value> inits;
  if (failed(operandLeaves(frame, op, inits)))
    return failure();
  SmallVector<Type> types;
  leafTypes(op.shape, types);
  if (TypeRange(ValueRange(inits)) != TypeRange(types))
    return fail(op) << "differs in shape from its operand";
  Location loc = locOf(op);
  SmallVector<Location> locs(types.size(), loc);
  auto loop = scf::WhileOp::create(builder, loc, types, inits);
  OpBuilder::InsertionGuard guard(builder);
  Block *before = builder.createBlock(&loop.getBefore(), {}, types, locs);
  Leaves carried(before->getArguments().begin(), before->getArguments().end());
  auto decision = computation(condition, carried, frame.depth + 1);
  if (failed(decision))
    return failure();
  auto type = decision->size() == 1
                  ? dyn_cast<RankedTensorType>(decision->front().getType())
                  : RankedTensorType();
  if (!type || type.getRank() != 0 || !type.getElementType().isInteger(1))
    return fail(op) << "has a condition that is not pred[]";
  scf::ConditionOp::create(builder, loc, scalar(op, decision->front()),
                           before->getArguments());
  Block *after = builder.createBlock(&loop.getAfter(), {}, types, locs);
  carried.assign(after->getArguments().begin(), after->getArguments().end());
  auto next = computation(body, carried, frame.depth + 1);
  if (failed(next))
    return failure();
  if (TypeRange(ValueRange(*next)) != TypeRange(types))
    return fail(op) << "has a body that yields another shape";
  scf::YieldOp::create(builder, loc, *next);
  llvm::append_range(frame.values[index], loop.getResults());
  return success();
}

LogicalResult Importer::conditional(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  SmallVector<uint32_t> branches;
  bool predicated = !op.attribute("true_computation").empty();
  if (predicated)
    branches = {calledBy(op, "true_computation"),
                calledBy(op, "false_computation")};
  else
    branches.assign(op.called.begin(), op.called.end());
  if (branches.empty() || llvm::is_contained(branches, hlo::kNone) ||
      op.operands.size() != branches.size() + 1)
    return fail(op) << "needs an index and one operand per branch";
  for (uint32_t operand : op.operands)
    if (frame.pending.count(operand))
      return fail(op) << "uses a started collective before its -done";
  Leaves &choice = frame.values[op.operands.front()];
  auto type = choice.size() == 1
                  ? dyn_cast<RankedTensorType>(choice.front().getType())
                  : RankedTensorType();
  if (!type || type.getRank() != 0 ||
      !(type.getElementType().isSignlessInteger(1) ||
        type.getElementType().isSignlessInteger(32)))
    return fail(op) << "chooses by something that is neither pred[] nor s32[]";
  predicated = type.getElementType().isInteger(1);
  if (predicated && branches.size() != 2)
    return fail(op) << "has a pred and not two branches";
  SmallVector<Type> types;
  leafTypes(op.shape, types);
  Location loc = locOf(op);
  Value selector = scalar(op, choice.front());
  SmallVector<Block *> blocks;
  Operation *made;
  if (predicated) {
    auto branch =
        scf::IfOp::create(builder, loc, types, selector, /*addThenBlock=*/true,
                          /*addElseBlock=*/true);
    blocks = {branch.thenBlock(), branch.elseBlock()};
    made = branch;
  } else {
    // An index outside the branches takes the last one.
    SmallVector<int64_t> cases =
        llvm::to_vector(llvm::seq<int64_t>(0, branches.size() - 1));
    Value position = arith::IndexCastOp::create(
        builder, loc, builder.getIndexType(), selector);
    auto branch = scf::IndexSwitchOp::create(builder, loc, types, position,
                                             cases, cases.size());
    for (Region &region : branch.getCaseRegions())
      blocks.push_back(&region.emplaceBlock());
    blocks.push_back(&branch.getDefaultRegion().emplaceBlock());
    made = branch;
  }
  OpBuilder::InsertionGuard guard(builder);
  for (auto [i, callee] : llvm::enumerate(branches)) {
    builder.setInsertionPointToEnd(blocks[i]);
    auto results =
        computation(callee, frame.values[op.operands[i + 1]], frame.depth + 1);
    if (failed(results))
      return failure();
    if (TypeRange(ValueRange(*results)) != TypeRange(types))
      return fail(op) << "has a branch that yields another shape";
    scf::YieldOp::create(builder, loc, *results);
  }
  llvm::append_range(frame.values[index], made->getResults());
  return success();
}

LogicalResult Importer::collective(Frame &frame, uint32_t index, StringRef kind,
                                   bool async) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  Location loc = locOf(op);
  StringAttr key = builder.getStringAttr(ref(op.name));
  SmallVector<Value> inputs;
  if (failed(operandLeaves(frame, op, inputs)))
    return failure();
  std::string error;
  auto what = collectives.describe(op, kind, error);
  if (!what)
    return fail(op) << error;
  // Result types: a start's shape also lists its operands, but for all-reduce.
  const hlo::Shape *shape = &op.shape;
  bool pairShape = async && kind != "all-reduce";
  if (async && op.opcode == "async-start")
    pairShape = true;
  if (pairShape) {
    if (shape->kind != hlo::Shape::Kind::Tuple || shape->elements.size() < 2)
      return fail(op) << "has no tuple of operands and results as its shape";
    shape = &shape->elements[1];
  }
  SmallVector<Type> types;
  leafTypes(*shape, types);
  for (Value input : inputs)
    if (!isa<RankedTensorType>(input.getType()))
      return fail(op) << "moves something that is no array";
  for (Type type : types)
    if (!isa<RankedTensorType>(type))
      return fail(op) << "yields something that is no array";
  // Forms whose operands are not one array per result are packed into one.
  bool pieces = kind == "all-to-all" && op.attribute("dimensions").empty();
  bool ragged = kind == "ragged-all-to-all";
  SmallVector<Type> results = types;
  if (pieces || ragged) {
    if (types.empty() || inputs.empty() ||
        (pieces && types.size() != inputs.size()))
      return fail(op) << "has other operands than results";
    auto piece = cast<RankedTensorType>(types.front());
    SmallVector<int64_t> dims(piece.getShape());
    if (pieces) {
      if (llvm::any_of(types, [&](Type type) { return type != piece; }) ||
          llvm::any_of(inputs,
                       [&](Value input) { return input.getType() != piece; }))
        return fail(op) << "exchanges pieces of different shapes";
      if (dims.empty())
        dims.push_back(1);
      if (!ShapedType::isDynamic(dims[0]) &&
          llvm::MulOverflow<int64_t>(dims[0], inputs.size(), dims[0]))
        return fail(op) << "is too large";
    }
    auto whole = RankedTensorType::get(dims, piece.getElementType());
    Value packed = opaque(loc, "pack", inputs, whole, key);
    inputs.assign({packed});
    types.assign({whole});
  }
  if (inputs.size() != types.size())
    return fail(op) << "has other operands than results";
  Leaves out;
  for (auto [input, type] : llvm::zip(inputs, types)) {
    auto tensor = cast<RankedTensorType>(type);
    if (!tensor.hasStaticShape() || !tensor.getElementType().isIntOrFloat())
      return fail(op)
             << "moves " << type
             << "; only static shapes of integers and floats are supported";
    Value init = tensor::EmptyOp::create(builder, loc, tensor.getShape(),
                                         tensor.getElementType());
    if (async) {
      comm::StartOp start = collectives.start(loc, *what, input, init);
      frame.pending[index].starts.push_back(start);
    } else {
      out.push_back(collectives.issue(loc, *what, type, input, init));
    }
    ++operations;
  }
  if (async) {
    // Keeps an instruction that moves nothing pending too.
    (void)frame.pending[index];
    return success();
  }
  if (pieces) {
    auto parts = comm::ComputeOp::create(
        builder, loc, results, builder.getStringAttr("unpack"), out, nullptr,
        nullptr, nullptr, nullptr, nullptr, nullptr, key);
    out.assign(parts.getResults().begin(), parts.getResults().end());
  }
  frame.values[index] = std::move(out);
  return success();
}

/// A send or recv between devices. One instruction serves all pairs, as every
/// rank runs it; ranks in no pair take no part.
LogicalResult Importer::transfer(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  std::string error;
  auto what = collectives.describe(op, ref(op.opcode), error);
  if (!what)
    return fail(op) << error;
  Location loc = locOf(op);
  Value input, init;
  if (op.opcode == "send") {
    if (op.operands.size() != 2 || frame.values[op.operands[0]].size() != 1 ||
        !isa<RankedTensorType>(frame.values[op.operands[0]].front().getType()))
      return fail(op) << "needs one array and a token";
    input = frame.values[op.operands[0]].front();
  } else {
    SmallVector<Type> types;
    leafTypes(op.shape, types);
    auto type = types.empty() ? RankedTensorType()
                              : dyn_cast<RankedTensorType>(types[0]);
    if (!type || !type.hasStaticShape())
      return fail(op) << "needs a static array";
    init = tensor::EmptyOp::create(builder, loc, type.getShape(),
                                   type.getElementType());
  }
  auto data = cast<RankedTensorType>((input ? input : init).getType());
  if (!data.getElementType().isIntOrFloat())
    return fail(op) << "moves " << data
                    << "; only integers and floats are supported";
  frame.pending[index].starts.push_back(
      collectives.start(loc, *what, input, init));
  ++operations;
  return success();
}

/// The generic form: what runs asynchronously is a computation of its own.
LogicalResult Importer::asyncStart(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  uint32_t callee = calledBy(op, "calls");
  if (callee == hlo::kNone)
    return fail(op) << "does not say what it calls";
  const hlo::Computation &body = source.computations[callee];
  const hlo::Instruction &root = body.instructions[body.root];
  // A wrapped collective: its operands are the parameters, in order.
  bool wrapped = HloCollectives::isCollective(ref(root.opcode)) &&
                 body.instructions.size() == root.operands.size() + 1 &&
                 root.operands.size() == op.operands.size();
  for (size_t i = 0; wrapped && i < root.operands.size(); ++i)
    wrapped =
        i < body.parameters.size() && body.parameters[i] == root.operands[i];
  if (!wrapped)
    return inlineCall(frame, index, callee);
  // As if it stood here: its attributes, this instruction's operands and name.
  Frame inner{callee,
              frame.parameters,
              {},
              llvm::DenseMap<uint32_t, Pending>(),
              frame.depth};
  inner.values.resize(body.instructions.size());
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (frame.pending.count(op.operands[i]))
      return fail(op) << "uses a started collective before its -done";
    inner.values[root.operands[i]] = frame.values[op.operands[i]];
  }
  std::string error;
  auto what = collectives.describe(root, ref(root.opcode), error);
  if (!what)
    return fail(root) << error;
  SmallVector<Type> types;
  leafTypes(root.shape, types);
  SmallVector<Value> inputs;
  for (uint32_t operand : root.operands)
    llvm::append_range(inputs, inner.values[operand]);
  bool plain =
      inputs.size() == types.size() &&
      ref(root.opcode) != "ragged-all-to-all" &&
      !(root.opcode == "all-to-all" && root.attribute("dimensions").empty());
  for (size_t i = 0; plain && i < types.size(); ++i) {
    auto in = dyn_cast<RankedTensorType>(inputs[i].getType());
    auto out = dyn_cast<RankedTensorType>(types[i]);
    plain = in && out && in.hasStaticShape() && out.hasStaticShape() &&
            out.getElementType().isIntOrFloat();
  }
  if (!plain)
    return fail(op) << "starts a form of " << ref(root.opcode)
                    << " that is only supported as an instruction of its own";
  for (auto [input, type] : llvm::zip(inputs, types)) {
    auto tensor = cast<RankedTensorType>(type);
    Value init = tensor::EmptyOp::create(builder, locOf(op), tensor.getShape(),
                                         tensor.getElementType());
    frame.pending[index].starts.push_back(
        collectives.start(locOf(op), *what, input, init));
    ++operations;
  }
  return success();
}

LogicalResult Importer::done(Frame &frame, uint32_t index) {
  const hlo::Instruction &op =
      source.computations[frame.computation].instructions[index];
  if (op.operands.size() != 1)
    return fail(op) << "needs one operand, its start";
  auto found = frame.pending.find(op.operands.front());
  if (found == frame.pending.end()) {
    // What was started is computation, which is not split.
    frame.values[index] = frame.values[op.operands.front()];
    SmallVector<Type> types;
    leafTypes(op.shape, types);
    if (op.opcode == "async-done" &&
        TypeRange(ValueRange(frame.values[index])) != TypeRange(types))
      return fail(op) << "differs in shape from what was started";
    return success();
  }
  Pending started = std::move(found->second);
  frame.pending.erase(found);
  if (op.opcode == "async-update") {
    frame.pending[index] = std::move(started);
    return success();
  }
  for (comm::StartOp start : started.starts) {
    Value init = start.getInit();
    auto wait =
        comm::WaitOp::create(builder, locOf(op), init ? init.getType() : Type(),
                             start.getFuture(), start.getInput(), init);
    if (init)
      frame.values[index].push_back(wait.getResult());
    ++operations;
  }
  // The token of a transfer's done.
  SmallVector<Type> types;
  leafTypes(op.shape, types);
  while (frame.values[index].size() < types.size() &&
         isa<NoneType>(types[frame.values[index].size()]))
    frame.values[index].push_back(opaque(locOf(op), "token", {},
                                         builder.getNoneType(),
                                         builder.getStringAttr(ref(op.name))));
  if (TypeRange(ValueRange(frame.values[index])) != TypeRange(types))
    return fail(op) << "differs in shape from what was started";
  return success();
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

OwningOpRef<ModuleOp> importHlo(MLIRContext *context, const hlo::Module &source,
                                const HloImportOptions &options) {
  context
      ->loadDialect<arith::ArithDialect, comm::CommDialect, func::FuncDialect,
                    scf::SCFDialect, tensor::TensorDialect>();
  try {
    return Importer(context, source, options).run();
  } catch (const hlo::Error &error) {
    emitError(UnknownLoc::get(context)) << source.path << ": " << error.what();
    return {};
  }
}

} // namespace concord

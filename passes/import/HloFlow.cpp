//===- HloFlow.cpp - Calls, loops, branches and communication of HLO ------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "import/HloImporter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace concord::hloimport {

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

} // namespace concord::hloimport

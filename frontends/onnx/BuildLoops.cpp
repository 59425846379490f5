//===- BuildLoops.cpp - Loops and sequences of a graph --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loop and Scan are unrolled: how often they run has to be known, as shapes
// have to. A sequence of tensors is a list of values that exists while the
// model is read, and nothing of it is left in the graph.
//
//===----------------------------------------------------------------------===//

#include "Builder.h"
#include "Infer.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace concord::onnx::detail {

namespace {

/// The opset of nodes that are made here.
constexpr int64_t kOpset = 23;

Tensor int64s(const std::vector<int64_t> &values, Shape shape) {
  Tensor tensor = Tensor::allocate({DType::I64, std::move(shape)});
  if (!values.empty())
    std::memcpy(tensor.mutableBytes().data(), values.data(),
                values.size() * sizeof(int64_t));
  return tensor;
}

int64_t entry(const std::vector<int64_t> &list, size_t i) {
  return i < list.size() ? list[i] : 0;
}

} // namespace

bool Builder::isSequence(ValueId id) const { return id >= kFirstSequence; }

ValueId Builder::addSequence(std::vector<ValueId> elements) {
  constexpr size_t most = 1 << 24;
  if ((sequenceElements += elements.size()) > most)
    fail("its sequences have more than " + std::to_string(most) + " elements");
  sequences.push_back(std::move(elements));
  return kFirstSequence + static_cast<ValueId>(sequences.size() - 1);
}

/// A scope for what is made or inlined for `node`, in the same graph.
Builder::Scope Builder::innerScope(Scope &scope, std::string prefix) {
  Scope inner;
  inner.graph = scope.graph;
  inner.parent = &scope;
  inner.opsets = scope.opsets;
  inner.arguments = scope.arguments;
  inner.prefix = std::move(prefix);
  inner.depth = scope.depth + 1;
  return inner;
}

/// Builds a node of standard operators on values instead of names.
std::vector<ValueId> Builder::makeNode(const Node &origin, Scope &scope,
                                       const std::string &type,
                                       const std::vector<ValueId> &operands,
                                       size_t results,
                                       std::optional<int64_t> axis) {
  static const Opsets opsets = {{"", kOpset}};
  Scope inner = innerScope(scope, origin.name + "/");
  inner.opsets = &opsets;
  wire::Node proto;
  proto.set_op_type(type);
  for (ValueId id : operands) {
    proto.add_input("operand" + std::to_string(proto.input_size()));
    inner.names.emplace(proto.input(proto.input_size() - 1), id);
  }
  for (size_t i = 0; i < results; ++i)
    proto.add_output(type + std::to_string(nodesBuilt) + "_" +
                     std::to_string(i));
  if (axis) {
    wire::Attribute *attribute = proto.add_attribute();
    attribute->set_name("axis");
    attribute->set_type(wire::Attribute::INT);
    attribute->set_i(*axis);
  }
  buildNode(proto, static_cast<int>(nodesBuilt), inner);
  std::vector<ValueId> ids;
  for (const std::string &name : proto.output())
    ids.push_back(inner.names.at(name));
  return ids;
}

ValueId Builder::makeInts(const Node &origin, Scope &scope,
                          const std::vector<int64_t> &values) {
  return addConstant(*scope.graph, origin.name + "/ints",
                     int64s(values, {static_cast<int64_t>(values.size())}));
}

/// `values` one behind the other along `axis`, which is new where `isNew`.
ValueId Builder::joined(const Node &origin, Scope &scope,
                        std::vector<ValueId> values, int64_t axis, bool isNew) {
  size_t rank = scope.graph->values[values.front()].type.shape.size();
  axis = axisOf(axis, rank + (isNew ? 1 : 0));
  if (isNew)
    for (ValueId &id : values)
      id = makeNode(origin, scope, "Unsqueeze",
                    {id, makeInts(origin, scope, {axis})}, 1)[0];
  return values.size() == 1
             ? values[0]
             : makeNode(origin, scope, "Concat", values, 1, axis)[0];
}

/// A cut into as many parts as `extent` elements is not for hostile sizes.
static void checkParts(int64_t extent) {
  constexpr int64_t most = 1 << 16;
  if (extent > most)
    throw Error("a dimension of " + std::to_string(extent) +
                " would be taken apart; at most " + std::to_string(most) +
                " elements can");
}

/// Pieces of `value` along `axis`, of the given extents.
std::vector<ValueId> Builder::pieces(const Node &origin, Scope &scope,
                                     ValueId value, int64_t axis,
                                     const std::vector<int64_t> &extents,
                                     bool keepAxis) {
  std::vector<ValueId> ids = {value};
  if (extents.empty())
    return {};
  if (extents.size() > 1)
    ids = makeNode(origin, scope, "Split",
                   {value, makeInts(origin, scope, extents)}, extents.size(),
                   axis);
  if (!keepAxis)
    for (ValueId &id : ids)
      id = makeNode(origin, scope, "Squeeze",
                    {id, makeInts(origin, scope, {axis})}, 1)[0];
  return ids;
}

/// A single integer that has to be known.
int64_t Builder::knownInt(const Node &node, const Scope &scope, ValueId id,
                          const std::string &why) const {
  if (id == kNoValue || isSequence(id))
    throw Error(why + ", and is no tensor");
  const std::optional<Tensor> &constant = scope.graph->values[id].constant;
  if (!constant)
    needConstant(node, *scope.graph, id, why);
  if (constant->type.numElements() != 1)
    throw Error(why + ", and is " + text(constant->type));
  return constant->intAt(0);
}

// --- sequences --------------------------------------------------------------

bool Builder::buildSequence(const wire::Node &proto, Node &node, Scope &scope) {
  if (proto.output_size() != 1 || proto.output(0).empty())
    return false;
  const std::string &op = node.opType;
  auto sequence = [&](size_t i) -> const std::vector<ValueId> & {
    if (i >= node.inputs.size() || !isSequence(node.inputs[i]))
      throw Error("operand " + std::to_string(i) + " is no sequence");
    return sequences[node.inputs[i] - kFirstSequence];
  };
  auto tensor = [&](size_t i) {
    if (i >= node.inputs.size() || node.inputs[i] == kNoValue ||
        isSequence(node.inputs[i]))
      throw Error("operand " + std::to_string(i) + " is no tensor");
    return node.inputs[i];
  };
  const auto has = [&](size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue;
  };
  // Of `count` places; `end` is one more.
  auto position = [&](size_t i, size_t count, bool end) {
    const auto size = static_cast<int64_t>(count);
    const int64_t at = knownInt(node, scope, tensor(i),
                                "the position in a sequence must be known");
    if (at < -size || at >= size + (end ? 1 : 0))
      throw Error("position " + std::to_string(at) + " is out of range for a " +
                  "sequence of " + std::to_string(count));
    return at < 0 ? at + size : at;
  };

  ValueId result = kNoValue;
  if (op == "Identity" && has(0) && isSequence(node.inputs[0])) {
    result = node.inputs[0];
  } else if (op == "SequenceEmpty") {
    result = addSequence({});
  } else if (op == "SequenceConstruct") {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      tensor(i);
    result = addSequence(node.inputs);
  } else if (op == "SequenceAt") {
    result = sequence(0)[position(1, sequence(0).size(), false)];
  } else if (op == "SequenceLength") {
    result =
        addConstant(*scope.graph, node.name + "/length",
                    int64s({static_cast<int64_t>(sequence(0).size())}, {}));
  } else if (op == "SequenceInsert") {
    std::vector<ValueId> list = sequence(0);
    const auto at = has(2) ? position(2, list.size(), true)
                           : static_cast<int64_t>(list.size());
    list.insert(list.begin() + at, tensor(1));
    result = addSequence(std::move(list));
  } else if (op == "SequenceErase") {
    std::vector<ValueId> list = sequence(0);
    if (list.empty())
      throw Error("the sequence is empty");
    const auto at = has(1) ? position(1, list.size(), false)
                           : static_cast<int64_t>(list.size()) - 1;
    list.erase(list.begin() + at);
    result = addSequence(std::move(list));
  } else if (op == "ConcatFromSequence") {
    if (sequence(0).empty())
      throw Error("the sequence is empty");
    if (!node.attribute("axis"))
      throw Error("attribute 'axis' is missing");
    result = joined(node, scope, sequence(0), node.intAttr("axis", 0),
                    node.intAttr("new_axis", 0) != 0);
  } else if (op == "SplitToSequence") {
    const Shape shape = scope.graph->values[tensor(0)].type.shape;
    const int64_t axis = axisOf(node.intAttr("axis", 0), shape.size());
    const int64_t extent = shape[static_cast<size_t>(axis)];
    std::vector<int64_t> extents;
    checkParts(extent);
    if (has(1)) {
      const std::optional<Tensor> &split =
          scope.graph->values[tensor(1)].constant;
      if (!split)
        needConstant(node, *scope.graph, node.inputs[1],
                     "the extents of the parts must be known");
      if (split->type.shape.empty()) {
        const int64_t each = split->intAt(0);
        if (each < 1)
          throw Error("parts of " + std::to_string(each) + " elements");
        for (int64_t left = extent; left > 0; left -= each)
          extents.push_back(std::min(left, each));
      } else {
        for (int64_t i = 0; i < split->type.numElements(); ++i)
          extents.push_back(split->intAt(i));
      }
    } else {
      extents.assign(static_cast<size_t>(extent), 1);
    }
    result = addSequence(pieces(node, scope, tensor(0), axis, extents,
                                has(1) || node.intAttr("keepdims", 1) != 0));
  } else {
    return false;
  }
  define(scope, proto.output(0), result, "node '" + node.name + "'");
  return true;
}

// --- loops ------------------------------------------------------------------

static const wire::Graph &bodyOf(const wire::Node &proto) {
  for (const wire::Attribute &attribute : proto.attribute())
    if (attribute.name() == "body" && attribute.has_g())
      return attribute.g();
  throw Error("its body is missing");
}

/// Builds the body once more, on `operands`, and returns its results.
std::vector<ValueId> Builder::iterate(const Node &node, const wire::Graph &body,
                                      Scope &outer, int64_t round,
                                      const std::vector<ValueId> &operands) {
  countNode(); // a body without nodes ends at the limit as well
  Scope inner =
      innerScope(outer, node.name + "/" + std::to_string(round) + "/");
  for (size_t i = 0; i < operands.size(); ++i)
    define(inner, body.input(static_cast<int>(i)).name(), operands[i],
           "the body of node '" + node.name + "'");
  buildNodes(body.node(), inner);
  std::vector<ValueId> results;
  for (const wire::ValueInfo &info : body.output()) {
    std::optional<ValueId> id = lookup(inner, info.name());
    if (!id || *id == kNoValue)
      throw Error("the body does not produce its result '" + info.name() + "'");
    results.push_back(*id);
  }
  return results;
}

void Builder::buildLoop(const wire::Node &proto, Node &node, Scope &scope) {
  const wire::Graph &body = bodyOf(proto);
  const size_t carried = node.inputs.size() < 2 ? 0 : node.inputs.size() - 2;
  if (static_cast<size_t>(body.input_size()) != carried + 2 ||
      static_cast<size_t>(body.output_size()) < carried + 1 ||
      proto.output_size() > body.output_size() - 1)
    throw Error("the body has " + std::to_string(body.input_size()) +
                " operands and " + std::to_string(body.output_size()) +
                " results, which do not fit the node's");
  const size_t stacked = static_cast<size_t>(body.output_size()) - 1 - carried;
  const std::string often = "how often the loop runs must be known";
  auto given = [&](size_t i) {
    return i < node.inputs.size() && node.inputs[i] != kNoValue;
  };
  const int64_t trips = given(0) ? knownInt(node, scope, node.inputs[0], often)
                                 : std::numeric_limits<int64_t>::max();
  bool more = !given(1) || knownInt(node, scope, node.inputs[1], often) != 0;

  Scope outer = innerScope(scope, node.name + "/");
  readInitializers(body, outer); // once for all rounds
  std::vector<ValueId> state(
      node.inputs.begin() +
          static_cast<ptrdiff_t>(node.inputs.size() - carried),
      node.inputs.end());
  std::vector<std::vector<ValueId>> stacks(stacked);
  for (int64_t round = 0; round < trips && more; ++round) {
    Tensor condition = Tensor::allocate({DType::BOOL, {}});
    condition.mutableBytes()[0] = std::byte(1);
    std::vector<ValueId> operands = {
        addConstant(*scope.graph, node.name + "/round", int64s({round}, {})),
        addConstant(*scope.graph, node.name + "/condition", condition)};
    operands.insert(operands.end(), state.begin(), state.end());
    const std::vector<ValueId> results =
        iterate(node, body, outer, round, operands);
    state.assign(results.begin() + 1,
                 results.begin() + 1 + static_cast<ptrdiff_t>(carried));
    for (size_t i = 0; i < stacked; ++i)
      stacks[i].push_back(results[1 + carried + i]);
    if (round + 1 < trips)
      more = knownInt(node, scope, results[0], often) != 0;
  }
  finishLoop(proto, node, scope, std::move(state), stacks, {});
}

void Builder::buildScan(const wire::Node &proto, Node &node, Scope &scope) {
  if (node.opset < 9)
    throw Error("Scan has another form before opset 9; export for a newer one");
  const wire::Graph &body = bodyOf(proto);
  const int64_t scanned = node.intAttr("num_scan_inputs", 0);
  const auto count = static_cast<int64_t>(node.inputs.size());
  if (scanned < 1 || scanned > count || body.input_size() != count ||
      body.output_size() < count - scanned ||
      proto.output_size() > body.output_size())
    throw Error("operands and results of the body do not fit the node's");
  const auto carried = static_cast<size_t>(count - scanned);
  const std::vector<int64_t> axes = node.intsAttr("scan_input_axes"),
                             backwards = node.intsAttr("scan_input_directions");
  std::vector<std::vector<ValueId>> elements;
  for (size_t i = 0; i < static_cast<size_t>(scanned); ++i) {
    const ValueId id = node.inputs[carried + i];
    if (id == kNoValue || isSequence(id))
      throw Error("operand " + std::to_string(carried + i) + " is no tensor");
    const Shape shape = scope.graph->values[id].type.shape;
    const int64_t axis = axisOf(entry(axes, i), shape.size());
    const int64_t extent = shape[static_cast<size_t>(axis)];
    checkParts(extent);
    elements.push_back(
        pieces(node, scope, id, axis,
               std::vector<int64_t>(static_cast<size_t>(extent), 1), false));
    if (entry(backwards, i))
      std::reverse(elements[i].begin(), elements[i].end());
    if (elements[i].size() != elements[0].size())
      throw Error("what is scanned has " + std::to_string(elements[0].size()) +
                  " and " + std::to_string(elements[i].size()) + " elements");
  }
  Scope outer = innerScope(scope, node.name + "/");
  readInitializers(body, outer);
  std::vector<ValueId> state(node.inputs.begin(),
                             node.inputs.begin() +
                                 static_cast<ptrdiff_t>(carried));
  std::vector<std::vector<ValueId>> stacks(
      static_cast<size_t>(body.output_size()) - carried);
  for (size_t round = 0; round < elements[0].size(); ++round) {
    std::vector<ValueId> operands = state;
    for (const std::vector<ValueId> &list : elements)
      operands.push_back(list[round]);
    const std::vector<ValueId> results =
        iterate(node, body, outer, static_cast<int64_t>(round), operands);
    state.assign(results.begin(),
                 results.begin() + static_cast<ptrdiff_t>(carried));
    for (size_t i = 0; i < stacks.size(); ++i)
      stacks[i].push_back(results[carried + i]);
  }
  const std::vector<int64_t> reversed = node.intsAttr("scan_output_directions");
  for (size_t i = 0; i < stacks.size(); ++i)
    if (entry(reversed, i))
      std::reverse(stacks[i].begin(), stacks[i].end());
  finishLoop(proto, node, scope, std::move(state), stacks,
             node.intsAttr("scan_output_axes"));
}

/// Names the results: what the last round leaves, then what all made.
void Builder::finishLoop(const wire::Node &proto, Node &node, Scope &scope,
                         std::vector<ValueId> state,
                         const std::vector<std::vector<ValueId>> &stacks,
                         const std::vector<int64_t> &axes) {
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty())
      continue;
    const auto at = static_cast<size_t>(i);
    ValueId id = kNoValue;
    if (at < state.size()) {
      id = state[at];
    } else {
      const std::vector<ValueId> &list = stacks[at - state.size()];
      if (list.empty())
        throw Error("it runs zero times, and its result '" + proto.output(i) +
                    "' would be of unknown shape; remove the loop");
      for (ValueId element : list)
        if (isSequence(element))
          throw Error("its result '" + proto.output(i) +
                      "' is made of sequences; use tensors");
      id = joined(node, scope, list, entry(axes, at - state.size()), true);
    }
    define(scope, proto.output(i), id, "node '" + node.name + "'");
  }
}

} // namespace concord::onnx::detail

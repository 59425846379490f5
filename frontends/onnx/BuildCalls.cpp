//===- BuildCalls.cpp - Functions and branches of a graph -----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calls of functions are inlined, and so are branches whose condition is known;
// an If that remains becomes two graphs with the union of what they capture.
//
//===----------------------------------------------------------------------===//

#include "Builder.h"
#include "Infer.h"

#include <algorithm>

namespace concord::onnx::detail {

void Builder::inlineFunction(const wire::Function &function, Node &node,
                             Scope &scope) {
  if (std::find(inlining.begin(), inlining.end(), &function) != inlining.end())
    throw Error(nodePrefix(node) +
                "the function calls itself, directly or through others");
  if (static_cast<int>(node.inputs.size()) > function.input_size() ||
      static_cast<int>(node.outputs.size()) > function.output_size())
    throw Error(nodePrefix(node) + "the function takes " +
                std::to_string(function.input_size()) + " operands and has " +
                std::to_string(function.output_size()) +
                " results; the call has " + std::to_string(node.inputs.size()) +
                " and " + std::to_string(node.outputs.size()));
  Opsets &opsets = functionOpsets[&function];
  if (opsets.empty()) {
    for (const wire::OpsetImport &import : function.opset_import())
      opsets[import.domain() == "ai.onnx" ? "" : import.domain()] =
          import.version();
    opsets.insert(model.opsets.begin(), model.opsets.end());
  }
  Attributes arguments = node.attributes;
  try {
    for (const wire::Attribute &attribute : function.attribute_proto())
      if (!arguments.count(attribute.name()))
        arguments.emplace(attribute.name(), readAttribute(attribute));
  } catch (const Error &error) {
    throw Error(nodePrefix(node) + error.what());
  }
  Scope inner;
  inner.graph = scope.graph;
  inner.opsets = &opsets;
  inner.arguments = &arguments;
  inner.prefix = node.name + "/";
  inner.depth = scope.depth + 1;
  // An operand that the call leaves out is known to the body as an absent one.
  for (int i = 0; i < function.input_size(); ++i)
    define(inner, function.input(i),
           i < static_cast<int>(node.inputs.size()) ? node.inputs[i] : kNoValue,
           "parameter of function '" + function.name() + "'");
  inlining.push_back(&function);
  buildNodes(function.node(), inner);
  inlining.pop_back();
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue)
      continue;
    std::optional<ValueId> id = lookup(inner, function.output(i));
    if (!id || *id == kNoValue)
      throw Error(nodePrefix(node) +
                  "the function does not produce its result '" +
                  function.output(i) + "'");
    node.outputs[i] = *id;
  }
}

void Builder::inlineBranch(const wire::Graph &branch, Node &node,
                           Scope &scope) {
  Scope inner = innerScope(scope, node.name + "/");
  readInitializers(branch, inner);
  buildNodes(branch.node(), inner);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue)
      continue;
    std::optional<ValueId> id = lookup(inner, branch.output(i).name());
    if (!id)
      throw Error(nodePrefix(node) + "a branch does not produce its result '" +
                  branch.output(i).name() + "'");
    node.outputs[i] = *id;
  }
}

void Builder::buildIf(const wire::Node &proto, Node &node, Scope &scope) {
  const wire::Graph *branches[2] = {nullptr, nullptr};
  for (const wire::Attribute &attribute : proto.attribute()) {
    if (attribute.name() == "then_branch" && attribute.has_g())
      branches[0] = &attribute.g();
    if (attribute.name() == "else_branch" && attribute.has_g())
      branches[1] = &attribute.g();
  }
  auto bad = [&](const std::string &why) {
    throw Error(nodePrefix(node) + why);
  };
  if (!branches[0] || !branches[1])
    bad("one of its branches is missing");
  if (node.inputs.size() != 1 || node.inputs[0] == kNoValue)
    bad("it needs exactly the condition as operand");
  const TensorType conditionType = scope.graph->values[node.inputs[0]].type;
  if (conditionType.dtype != DType::BOOL || conditionType.numElements() != 1)
    bad("the condition is " + text(conditionType) + " and should be one bool");
  for (const wire::Graph *branch : branches) {
    if (branch->input_size() > 0)
      bad("a branch declares inputs, which If does not pass");
    if (branch->output_size() != proto.output_size())
      bad("a branch has " + std::to_string(branch->output_size()) +
          " results and the node " + std::to_string(proto.output_size()));
  }
  for (const std::string &name : proto.output())
    node.outputs.push_back(name.empty() ? kNoValue : 0);
  const std::string by = "node '" + node.name + "'";

  if (const auto &constant = scope.graph->values[node.inputs[0]].constant) {
    inlineBranch(*branches[constant->intAt(0) ? 0 : 1], node, scope);
    for (int i = 0; i < proto.output_size(); ++i)
      if (!proto.output(i).empty())
        define(scope, proto.output(i), node.outputs[i], by);
    return;
  }

  // Kept: both branches become graphs with the union of their captures.
  std::shared_ptr<Graph> graphs[2];
  std::vector<std::pair<ValueId, ValueId>> captures[2];
  for (int b = 0; b < 2; ++b) {
    graphs[b] = std::make_shared<Graph>();
    graphs[b]->name = branches[b]->name();
    Scope inner;
    inner.graph = graphs[b].get();
    inner.parent = &scope;
    inner.opsets = scope.opsets;
    inner.arguments = scope.arguments;
    inner.prefix = node.name + (b == 0 ? "/then/" : "/else/");
    inner.depth = scope.depth + 1;
    readInitializers(*branches[b], inner);
    buildNodes(branches[b]->node(), inner);
    for (const wire::ValueInfo &info : branches[b]->output()) {
      std::optional<ValueId> id = lookup(inner, info.name());
      if (!id || *id == kNoValue)
        bad("a branch does not produce its result '" + info.name() + "'");
      if (isSequence(*id))
        bad("a branch yields a sequence of tensors; use tensors");
      graphs[b]->outputs.push_back(*id);
    }
    captures[b] = inner.captures;
  }
  std::vector<ValueId> captured;
  for (const auto &list : captures)
    for (const auto &[outer, local] : list)
      if (std::find(captured.begin(), captured.end(), outer) == captured.end())
        captured.push_back(outer);
  for (int b = 0; b < 2; ++b) {
    for (ValueId outer : captured) {
      ValueId local = kNoValue;
      for (const auto &[from, to] : captures[b])
        if (from == outer)
          local = to;
      if (local == kNoValue) {
        const Value value = scope.graph->values[outer];
        local = addValue(*graphs[b], value.name, value.type);
      }
      graphs[b]->inputs.push_back(local);
    }
    dropComputed(*graphs[b]);
    if (options.rearrangeWeights)
      foldWeights(*graphs[b]);
    removeDead(*graphs[b]);
  }
  node.inputs.insert(node.inputs.end(), captured.begin(), captured.end());
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty())
      continue;
    const TensorType &a = graphs[0]->values[graphs[0]->outputs[i]].type;
    const TensorType &b = graphs[1]->values[graphs[1]->outputs[i]].type;
    if (!(a == b))
      needConstant(node, *scope.graph, node.inputs[0],
                   "result " + std::to_string(i) + " is " + text(a) +
                       " in one branch and " + text(b) +
                       " in the other, so the condition must be known");
    node.outputs[i] = addValue(*scope.graph, scope.prefix + proto.output(i), a);
    define(scope, proto.output(i), node.outputs[i], by);
  }
  node.attributes["then_branch"] = graphs[0];
  node.attributes["else_branch"] = graphs[1];
  scope.graph->nodes.push_back(std::move(node));
}

} // namespace concord::onnx::detail

//===- BuildNodes.cpp - Resolving, inferring and building nodes -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The walk over nodes. Order is established first (exporters are not always
// careful), so that afterwards every operand's type, and its data where it is
// known, are at hand when a node is met.
//
//===----------------------------------------------------------------------===//

#include "Builder.h"
#include "Fused.h"
#include "Infer.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>

namespace concord::onnx::detail {

namespace {

constexpr int kMaxScopes = 64;

std::string qualified(const std::string &domain, const std::string &op) {
  return domain.empty() ? op : domain + "." + op;
}

/// Names that a graph takes from outside.
void freeNames(const wire::Graph &graph, std::vector<std::string> &names) {
  std::unordered_set<std::string> own;
  for (const wire::Tensor &tensor : graph.initializer())
    own.insert(tensor.name());
  for (const wire::ValueInfo &info : graph.input())
    own.insert(info.name());
  for (const wire::Node &node : graph.node())
    own.insert(node.output().begin(), node.output().end());
  auto use = [&](const std::string &name) {
    if (!name.empty() && !own.count(name))
      names.push_back(name);
  };
  for (const wire::Node &node : graph.node()) {
    for (const std::string &name : node.input())
      use(name);
    for (const wire::Attribute &attribute : node.attribute()) {
      std::vector<std::string> inner;
      if (attribute.has_g())
        freeNames(attribute.g(), inner);
      for (const wire::Graph &g : attribute.graphs())
        freeNames(g, inner);
      for (const std::string &name : inner)
        use(name);
    }
  }
  for (const wire::ValueInfo &info : graph.output())
    use(info.name());
}

std::vector<std::string> usedNames(const wire::Node &node) {
  std::vector<std::string> names;
  for (const std::string &name : node.input())
    if (!name.empty())
      names.push_back(name);
  for (const wire::Attribute &attribute : node.attribute()) {
    if (attribute.has_g())
      freeNames(attribute.g(), names);
    for (const wire::Graph &g : attribute.graphs())
      freeNames(g, names);
  }
  return names;
}

std::string label(const wire::Node &node, int index) {
  return node.name().empty() ? node.op_type() + "#" + std::to_string(index)
                             : node.name();
}

/// Why an operator that ONNX defines is not in the registry.
const char *reasonUnsupported(const std::string &domain,
                              const std::string &op) {
  auto starts = [&](const char *text) { return op.rfind(text, 0) == 0; };
  if (op == "SequenceMap")
    return "functions of a sequence are not supported; use tensors";
  if (starts("Optional"))
    return "optional values are not supported; use tensors";
  if (starts("String") || op == "RegexFullMatch")
    return "strings are not supported; run the tokenizer outside the model";
  if (starts("Random") || op == "Bernoulli" || op == "Multinomial")
    return "random numbers are not supported; pass them as an input";
  if (domain == "com.microsoft" && starts("Q"))
    return "onnxruntime's quantised operators are not supported; quantise in "
           "its QDQ format (QuantizeLinear and DequantizeLinear)";
  if (domain == "com.microsoft" || op == "SimplifiedLayerNormalization")
    return "onnxruntime's fused operators are not supported; export without "
           "them, or save the optimised model at ORT_ENABLE_BASIC";
  return nullptr;
}

/// Whether a Gather or GatherND takes every element once, in order, by indices
/// that are known: exporters look up a mask by [batch, position] that way. It
/// is a Reshape, which can be split by sequences and positions, as a lookup
/// cannot.
bool takesAllInOrder(const NodeView &v) {
  const bool nd = v.node->opType == "GatherND";
  if (!v.node->domain.empty() || !(nd || v.node->opType == "Gather") ||
      !v.node->shardings.empty() || v.constants.size() != 2 || !v.constants[1])
    return false;
  const Shape &data = v.inputs[0].shape;
  const Tensor &indices = *v.constants[1];
  const auto rank = static_cast<int64_t>(data.size());
  Shape counted; // the dimensions that the indices run over
  if (nd) {
    const Shape &shape = indices.type.shape;
    if (v.node->intAttr("batch_dims", 0) != 0 || shape.empty() ||
        shape.back() < 1 || shape.back() > rank)
      return false;
    counted.assign(data.begin(), data.begin() + shape.back());
  } else {
    int64_t axis = v.node->intAttr("axis", 0);
    axis = axis < 0 ? axis + rank : axis;
    if (axis < 0 || axis >= rank)
      return false;
    counted = {data[static_cast<size_t>(axis)]};
  }
  int64_t total = 1;
  for (int64_t extent : counted)
    total *= extent;
  constexpr int64_t most = 1 << 20; // of indices that are worth a look
  const auto depth = static_cast<int64_t>(counted.size());
  if (total < 1 || total > most || indices.type.numElements() != total * depth)
    return false;
  for (int64_t i = 0; i < total; ++i)
    for (int64_t d = depth, rest = i; d-- > 0;) {
      const int64_t extent = counted[static_cast<size_t>(d)];
      if (indices.intAt(i * depth + d) != rest % extent)
        return false;
      rest /= extent;
    }
  return true;
}

} // namespace

// --- values and names -------------------------------------------------------

ValueId Builder::addValue(Graph &graph, std::string name, TensorType type) {
  graph.values.push_back({std::move(name), std::move(type), std::nullopt});
  return static_cast<ValueId>(graph.values.size() - 1);
}

ValueId Builder::addConstant(Graph &graph, std::string name, Tensor tensor) {
  const ValueId id = addValue(graph, std::move(name), tensor.type);
  graph.values[id].constant = std::move(tensor);
  return id;
}

void Builder::define(Scope &scope, const std::string &name, ValueId id,
                     const std::string &by) {
  if (name.empty())
    fail(by + " has an empty name");
  if (!scope.names.emplace(name, id).second)
    fail("'" + name + "' is defined twice, the second time by " + by +
         "; names must be unique");
}

/// The value of `name` in the scope's graph, captured from outside if need be.
std::optional<ValueId> Builder::lookup(Scope &scope, const std::string &name) {
  if (auto it = scope.names.find(name); it != scope.names.end())
    return it->second;
  if (!scope.parent)
    return std::nullopt;
  std::optional<ValueId> outer = lookup(*scope.parent, name);
  if (!outer || *outer == kNoValue || scope.parent->graph == scope.graph)
    return outer;
  const ValueId id = capture(scope, *outer);
  scope.names.emplace(name, id);
  return id;
}

/// The value of the scope's graph that stands for one of its parent's.
ValueId Builder::capture(Scope &scope, ValueId outer) {
  if (isSequence(outer)) {
    std::vector<ValueId> list = sequences[outer - kFirstSequence];
    for (ValueId &element : list)
      element = capture(scope, element);
    return addSequence(std::move(list));
  }
  for (const auto &[from, to] : scope.captures)
    if (from == outer)
      return to;
  // By copy: adding a value may move the storage a reference would be into.
  const Value value = scope.parent->graph->values[outer];
  const bool computedToo = computed.count({scope.parent->graph, outer}) > 0;
  if (value.constant && !computedToo)
    return addConstant(*scope.graph, value.name, *value.constant);
  const ValueId id = addValue(*scope.graph, value.name, value.type);
  if (computedToo) {
    scope.graph->values[id].constant = value.constant;
    computed.insert({scope.graph, id});
  }
  scope.captures.emplace_back(outer, id);
  return id;
}

std::string Builder::nodePrefix(const Node &node) const {
  return source.name + ": node '" + node.name + "' (" +
         qualified(node.domain, node.opType) + ", opset " +
         std::to_string(node.opset) + "): ";
}

std::string Builder::uniqueNodeName(const wire::Node &proto, int index,
                                    const Scope &scope) {
  std::string name = scope.prefix + label(proto, index);
  if (nodeNames.insert(name).second)
    return name;
  name += "#" + std::to_string(index);
  while (!nodeNames.insert(name).second)
    name += "'";
  return name;
}

/// Report that `id` has to be known, with the model inputs it is computed from.
void Builder::needConstant(const Node &node, const Graph &graph, ValueId id,
                           const std::string &why) const {
  std::unordered_map<ValueId, const Node *> producers;
  for (const Node &producer : graph.nodes)
    for (ValueId output : producer.outputs)
      producers[output] = &producer;
  std::vector<ValueId> work = {id};
  std::unordered_set<ValueId> seen = {id};
  std::vector<std::string> origins;
  while (!work.empty()) {
    const ValueId value = work.back();
    work.pop_back();
    auto it = producers.find(value);
    if (it == producers.end()) {
      if (!graph.values[value].constant)
        origins.push_back(graph.values[value].name);
      continue;
    }
    for (ValueId input : it->second->inputs)
      if (input != kNoValue && seen.insert(input).second)
        work.push_back(input);
  }
  std::sort(origins.begin(), origins.end());
  const std::string &name = graph.values[id].name;
  std::string message = nodePrefix(node) + why + "; ";
  if (origins.empty()) {
    message += "'" + name + "' could not be computed at compile time";
  } else if (origins.size() == 1 && origins[0] == name) {
    message += "bind the input to data with --const " + name + "=FILE";
  } else {
    std::string list, options;
    for (size_t i = 0; i < origins.size() && i < 4; ++i) {
      list += (i ? ", " : "") + origins[i];
      options += " --const " + origins[i] + "=FILE";
    }
    bool one = origins.size() == 1;
    message += "'" + name + "' is computed from input" + (one ? " " : "s ") +
               list + (origins.size() > 4 ? ", ..." : "") + "; " +
               (origins.size() > 4 ? std::string("export")
                                   : (one ? "bind that to data with"
                                          : "bind those to data with") +
                                         options + ", or export") +
               " the model so that no shape depends on data (docs/onnx.md)";
  }
  throw NeedsConstantInput(message, std::move(origins));
}

// --- order ------------------------------------------------------------------

template <typename Nodes>
std::vector<int> Builder::sortNodes(const Nodes &nodes, const Scope &scope) {
  const int count = nodes.size();
  std::unordered_map<std::string, int> producers;
  for (int i = 0; i < count; ++i)
    for (const std::string &name : nodes[i].output()) {
      if (name.empty())
        continue;
      auto [it, isNew] = producers.emplace(name, i);
      if (!isNew)
        fail("'" + name + "' is produced twice, by node '" +
             label(nodes[it->second], it->second) + "' and by node '" +
             label(nodes[i], i) + "'; names must be unique");
    }
  auto visible = [&](const std::string &name) {
    for (const Scope *s = &scope; s; s = s->parent)
      if (s->names.count(name))
        return true;
    return false;
  };
  std::vector<std::vector<int>> users(count);
  std::vector<int> missing(count, 0);
  bool sorted = true;
  for (int i = 0; i < count; ++i) {
    for (const std::string &name : usedNames(nodes[i])) {
      auto it = producers.find(name);
      if (it != producers.end()) {
        users[it->second].push_back(i);
        ++missing[i];
        sorted &= it->second < i;
      } else if (!visible(name)) {
        fail("node '" + scope.prefix + label(nodes[i], i) + "' (" +
             nodes[i].op_type() + ") reads '" + name +
             "', which is no input, no initializer and no node's output; the "
             "model is incomplete");
      }
    }
  }
  std::vector<int> order;
  order.reserve(count);
  if (sorted) {
    for (int i = 0; i < count; ++i)
      order.push_back(i);
    return order;
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i)
    if (missing[i] == 0)
      ready.push(i);
  while (!ready.empty()) {
    const int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int user : users[i])
      if (--missing[user] == 0)
        ready.push(user);
  }
  if (static_cast<int>(order.size()) == count)
    return order;
  // Some cycle lies among the nodes that are left: walk to producers, each of
  // which still misses something, until one repeats.
  int at = 0;
  while (missing[at] == 0)
    ++at;
  std::vector<int> path;
  std::vector<int> position(count, -1);
  while (position[at] < 0) {
    position[at] = static_cast<int>(path.size());
    path.push_back(at);
    for (const std::string &name : usedNames(nodes[at])) {
      auto it = producers.find(name);
      if (it != producers.end() && missing[it->second] > 0) {
        at = it->second;
        break;
      }
    }
  }
  std::string cycle;
  const size_t length = path.size() - position[at];
  for (size_t i = 0; i < length; ++i) {
    if (i == 8 && length > 10) {
      cycle += "... (" + std::to_string(length - 8) + " more) -> ";
      break;
    }
    const int n = path[path.size() - 1 - i];
    cycle += "'" + label(nodes[n], n) + "' -> ";
  }
  const int last = path.back();
  fail("the graph has a cycle: " + cycle + "'" + label(nodes[last], last) +
       "'; a model must be acyclic");
}

template <typename Nodes>
void Builder::buildNodes(const Nodes &nodes, Scope &scope) {
  if (scope.depth > kMaxScopes)
    fail("functions and branches are nested more than " +
         std::to_string(kMaxScopes) + " deep");
  for (int index : sortNodes(nodes, scope))
    buildNode(nodes[index], index, scope);
}

template void
Builder::buildNodes(const google::protobuf::RepeatedPtrField<wire::Node> &,
                    Scope &);

// --- attributes -------------------------------------------------------------

Attribute Builder::readAttribute(const wire::Attribute &proto) {
  using Kind = wire::Attribute;
  auto kind = proto.type();
  if (kind == Kind::UNDEFINED) { // written before IR version 2 was settled
    kind = proto.has_t()              ? Kind::TENSOR
           : proto.has_g()            ? Kind::GRAPH
           : proto.floats_size() > 0  ? Kind::FLOATS
           : proto.ints_size() > 0    ? Kind::INTS
           : proto.strings_size() > 0 ? Kind::STRINGS
           : !proto.s().empty()       ? Kind::STRING
           : proto.f() != 0           ? Kind::FLOAT
                                      : Kind::INT;
  }
  const std::string what = "attribute '" + proto.name() + "'";
  switch (kind) {
  case Kind::INT:
    return static_cast<int64_t>(proto.i());
  case Kind::FLOAT:
    return static_cast<double>(proto.f());
  case Kind::STRING:
    return std::string(proto.s());
  case Kind::INTS:
    return std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
  case Kind::FLOATS:
    return std::vector<double>(proto.floats().begin(), proto.floats().end());
  case Kind::STRINGS:
    return std::vector<std::string>(proto.strings().begin(),
                                    proto.strings().end());
  case Kind::TENSOR:
    return tensorFromWire(proto.t(), source, what);
  case Kind::SPARSE_TENSOR:
  case Kind::SPARSE_TENSORS:
    throw Error(what + " is sparse, which is not supported; store it dense");
  case Kind::GRAPH:
  case Kind::GRAPHS:
    throw Error(what + " is a graph, which this operator does not take");
  case Kind::TYPE_PROTO:
  case Kind::TYPE_PROTOS:
    throw Error(what + " is a type, which is not supported");
  default:
    throw Error(what + " is of an unknown or unsupported kind");
  }
}

void Builder::readAttributes(const wire::Node &proto, Node &node,
                             const Scope &scope) {
  for (const wire::Attribute &attribute : proto.attribute()) {
    // Names become keys of the kernels' one-line descriptions.
    for (char c : attribute.name())
      if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-'))
        throw Error("attribute '" + attribute.name() +
                    "' has a name that no operator uses");
    std::optional<Attribute> value;
    if (!attribute.ref_attr_name().empty()) {
      if (!scope.arguments)
        throw Error("attribute '" + attribute.name() +
                    "' refers to a function's parameter outside a function");
      auto it = scope.arguments->find(attribute.ref_attr_name());
      if (it == scope.arguments->end())
        continue; // not given to the function: the operator's own default
      value = it->second;
    } else if (node.domain.empty() &&
               (node.opType == "If" || node.opType == "Loop" ||
                node.opType == "Scan") &&
               (attribute.has_g() || attribute.graphs_size() > 0)) {
      continue; // read when they are built
    } else if (node.opType == "SequenceEmpty" && attribute.name() == "dtype") {
      continue; // there is nothing of that type
    } else {
      value = readAttribute(attribute);
    }
    if (!node.attributes.emplace(attribute.name(), std::move(*value)).second)
      throw Error("attribute '" + attribute.name() + "' is given twice");
  }
}

void Builder::readAnnotations(const wire::Node &wireNode, Node &node) {
  for (const wire::KeyValue &entry : wireNode.metadata_props())
    node.metadata[entry.key()] = entry.value();
  if (wireNode.device_configurations().empty())
    return;
  std::string wanted = options.configuration;
  if (wanted.empty() && !model.configurations.empty())
    wanted = model.configurations.front().name;
  for (const auto &annotation : wireNode.device_configurations()) {
    auto configuration = std::find_if(
        model.configurations.begin(), model.configurations.end(),
        [&](const auto &c) { return c.name == annotation.configuration_id(); });
    if (configuration == model.configurations.end())
      throw Error("its sharding annotation refers to device configuration '" +
                  annotation.configuration_id() +
                  "', which the model does not declare");
    if (configuration->name != wanted)
      continue;
    node.pipelineStage = annotation.pipeline_stage();
    for (const wire::ShardingSpec &proto : annotation.sharding_spec()) {
      ShardingSpec spec;
      spec.tensorName = proto.tensor_name();
      const auto position = [&](const auto &names) {
        auto it = std::find(names.begin(), names.end(), spec.tensorName);
        return it == names.end() ? -1
                                 : static_cast<int32_t>(it - names.begin());
      };
      spec.operand = position(wireNode.input());
      spec.result = position(wireNode.output());
      if (spec.operand < 0 && spec.result < 0)
        throw Error("its sharding annotation is for '" + spec.tensorName +
                    "', which it neither reads nor produces");
      auto device = [&](int64_t number) {
        if (number < 0 || number >= configuration->numDevices)
          throw Error("the sharding of '" + spec.tensorName +
                      "' names device " + std::to_string(number) + " of " +
                      std::to_string(configuration->numDevices));
        return number;
      };
      for (int64_t number : proto.device()) {
        std::vector<int64_t> group;
        for (const wire::DeviceGroup &entry : proto.index_to_device_group_map())
          if (entry.key() == number && group.empty())
            for (int64_t member : entry.value())
              group.push_back(device(member));
        if (group.empty())
          group.push_back(device(number));
        spec.devices.push_back(std::move(group));
      }
      for (const wire::ShardedDim &dim : proto.sharded_dim()) {
        ShardedDim result;
        result.axis = dim.axis();
        for (const wire::SimpleShardedDim &simple : dim.simple_sharding()) {
          int64_t size = -1;
          if (simple.dim_case() == wire::SimpleShardedDim::kDimValue)
            size = simple.dim_value();
          else if (auto bound = dimValue(simple.dim_param()))
            size = *bound;
          if (simple.num_shards() < 1)
            throw Error("the sharding of '" + spec.tensorName + "' has " +
                        std::to_string(simple.num_shards()) + " shards");
          result.dims.emplace_back(size, simple.num_shards());
        }
        spec.dims.push_back(std::move(result));
      }
      node.shardings.push_back(std::move(spec));
    }
  }
}

// --- one node ---------------------------------------------------------------

NodeView Builder::view(const Node &node, const Graph &graph) const {
  NodeView view;
  view.node = &node;
  for (ValueId id : node.inputs) {
    if (id == kNoValue) {
      view.inputs.emplace_back();
      view.constants.push_back(nullptr);
      continue;
    }
    const Value &value = graph.values[id];
    view.inputs.push_back(value.type);
    view.constants.push_back(value.constant ? &*value.constant : nullptr);
  }
  return view;
}

/// Forget the data of values that a node computes at run time too.
void Builder::dropComputed(Graph &graph) {
  for (size_t i = 0; i < graph.values.size(); ++i)
    if (computed.count({&graph, static_cast<ValueId>(i)}))
      graph.values[i].constant.reset();
}

void Builder::noteFold(const std::string &name,
                       const std::vector<Tensor> &results) {
  auto &entry = (*options.folds)[name];
  for (const Tensor &tensor : results)
    entry.emplace_back(tensor.type, hashOf(tensor));
}

void Builder::countNode() {
  if (++nodesBuilt > kMaxNodes)
    fail("more than " + std::to_string(kMaxNodes) +
         " nodes after inlining functions and unrolling loops");
}

void Builder::buildNode(const wire::Node &proto, int index, Scope &scope) {
  countNode();
  Node node;
  node.name = uniqueNodeName(proto, index, scope);
  node.opType = proto.op_type();
  node.domain = proto.domain();
  if (node.domain == "ai.onnx")
    node.domain.clear();
  if (node.domain == ".com.microsoft")
    node.domain = "com.microsoft";
  if (auto it = scope.opsets->find(node.domain); it != scope.opsets->end())
    node.opset = it->second;
  else if (node.domain.empty())
    throw Error(nodePrefix(node) +
                "the model imports no opset for the standard operators; it is "
                "incomplete");
  else
    node.opset = 1;
  // The oldest writers had these in the standard domain.
  if (node.opType.rfind("Nccl", 0) == 0)
    node.domain = "com.microsoft";
  // Before its attributes, which may be of kinds that only it would have.
  const std::string functionKey =
      node.domain + ":" + node.opType + ":" + proto.overload();
  const auto function = functions.find(functionKey);
  const bool isIf = node.domain.empty() && node.opType == "If";
  static const std::set<std::string> structures = {"Loop",
                                                   "Scan",
                                                   "SequenceEmpty",
                                                   "SequenceConstruct",
                                                   "SequenceAt",
                                                   "SequenceErase",
                                                   "SequenceInsert",
                                                   "SequenceLength",
                                                   "SplitToSequence",
                                                   "ConcatFromSequence"};
  const bool isStructure =
      node.domain.empty() && structures.count(node.opType) > 0;
  const OpDef *def = findOp(node.domain, node.opType);
  const bool mayBeFused = node.domain == "com.microsoft" ||
                          (node.domain.empty() && isStandardFused(node.opType));
  auto refuse = [&] {
    const char *reason = reasonUnsupported(node.domain, node.opType);
    throw Error(nodePrefix(node) +
                (reason ? std::string(reason)
                        : "unknown operator; express it with operators of "
                          "docs/onnx.md or add it as a model function"));
  };
  if (function == functions.end() && !isIf && !isStructure && !def &&
      !mayBeFused)
    refuse();
  try {
    readAttributes(proto, node, scope);
    readAnnotations(proto, node);
    for (const std::string &name : proto.input()) {
      if (name.empty()) {
        node.inputs.push_back(kNoValue);
        continue;
      }
      std::optional<ValueId> id = lookup(scope, name);
      if (!id)
        throw Error("reads '" + name + "', which is not defined");
      node.inputs.push_back(*id);
    }
  } catch (const Error &error) {
    throw Error(nodePrefix(node) + error.what());
  }
  // The second operand of a CastLike only has a type; values it is computed
  // from would otherwise count as needed here.
  if (node.domain.empty() && node.opType == "CastLike" &&
      node.inputs.size() == 2 && node.inputs[1] != kNoValue &&
      node.shardings.empty()) {
    node.opType = "Cast";
    node.attributes["to"] = static_cast<int64_t>(
        dtypeToWire(scope.graph->values[node.inputs[1]].type.dtype));
    node.inputs.resize(1);
    def = findOp(node.domain, node.opType);
  }
  // Trailing absent operands say nothing.
  while (!node.inputs.empty() && node.inputs.back() == kNoValue)
    node.inputs.pop_back();

  if (function == functions.end()) {
    try {
      if (isStructure || node.opType == "Identity") {
        if (node.opType == "Loop")
          return buildLoop(proto, node, scope);
        if (node.opType == "Scan")
          return buildScan(proto, node, scope);
        if (buildSequence(proto, node, scope))
          return;
      }
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (isSequence(node.inputs[i]))
          throw Error("operand " + std::to_string(i) +
                      " is a sequence of tensors, which this operator does "
                      "not take");
    } catch (const NeedsConstantInput &) {
      throw;
    } catch (const Error &error) {
      // What is inside of a body has named itself.
      if (std::string_view(error.what()).rfind(source.name, 0) == 0)
        throw;
      throw Error(nodePrefix(node) + error.what());
    }
  }
  if (function != functions.end() || (!isIf && !def)) {
    for (const std::string &name : proto.output())
      node.outputs.push_back(name.empty() ? kNoValue : 0);
    const std::vector<std::string> names(proto.output().begin(),
                                         proto.output().end());
    if (function != functions.end()) {
      inlineFunction(*function->second, node, scope);
    } else {
      std::optional<wire::Function> meaning;
      try {
        meaning = fusedFunction(view(node, *scope.graph));
      } catch (const Error &error) {
        throw Error(nodePrefix(node) + error.what());
      }
      if (!meaning)
        refuse();
      fused.push_back(std::move(*meaning));
      inlineFunction(fused.back(), node, scope);
    }
    for (size_t i = 0; i < names.size(); ++i)
      if (!names[i].empty())
        define(scope, names[i], node.outputs[i], "node '" + node.name + "'");
    return;
  }
  if (isIf) {
    buildIf(proto, node, scope);
    return;
  }
  if (node.domain.empty() && node.opset < def->sinceOpset)
    throw Error(nodePrefix(node) + "the operator exists from opset " +
                std::to_string(def->sinceOpset) +
                " on; the model imports an older one");

  if (node.domain == "com.microsoft") {
    if (node.opType.rfind("Nccl", 0) == 0) {
      const int64_t type = node.intAttr("group_type", 0);
      auto it = options.groupSizes.find(type);
      node.attributes["group_size"] =
          it == options.groupSizes.end() ? options.world : it->second;
    } else if ((node.opType == "AllGather" || node.opType == "AllToAll") &&
               !node.attribute("group_size")) {
      node.attributes["group_size"] = options.world;
    }
  }

  // Results: ids are given after inference; absent ones stay so.
  std::vector<std::string> names(proto.output().begin(), proto.output().end());
  while (!names.empty() && names.back().empty())
    names.pop_back();
  for (const std::string &name : names)
    node.outputs.push_back(name.empty() ? kNoValue : 0);

  NodeView nodeView = view(node, *scope.graph);
  try {
    def->infer(nodeView);
    nodeView.outputs.resize(node.outputs.size());
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue)
        continue;
      if (nodeView.outputs[i].dtype == DType::Invalid)
        throw Error("the operator has no result " + std::to_string(i));
      checkTensorSize(nodeView.outputs[i], "result " + std::to_string(i));
    }
  } catch (const NeedsConstant &need) {
    needConstant(node, *scope.graph, node.inputs[need.operand], need.what());
  } catch (const Error &error) {
    throw Error(nodePrefix(node) + error.what());
  }

  const std::string by = "node '" + node.name + "'";
  // Copies vanish: the result is another name of the operand.
  const bool copies =
      node.domain.empty() && names.size() == 1 &&
      (node.opType == "Identity" || node.opType == "Dropout" ||
       (node.opType == "Cast" && nodeView.inputs[0] == nodeView.outputs[0])) &&
      node.shardings.empty();
  if (copies) {
    define(scope, names[0], node.inputs[0], by);
    return;
  }
  std::vector<Tensor> results;
  bool folded = false;
  if (std::optional<Tensor> result = foldTrivial(nodeView, options.foldLimit)) {
    folded = true;
    results.push_back(std::move(*result));
    results.resize(names.size());
  } else {
    uint64_t bytes = 0;
    bool constant = !node.inputs.empty();
    for (size_t i = 0; i < nodeView.inputs.size(); ++i)
      constant &= !nodeView.hasInput(i) || nodeView.constants[i] != nullptr;
    for (const TensorType &type : nodeView.outputs)
      bytes += type.numBytes();
    if (constant && bytes <= options.foldLimit && def->kernel)
      folded = runNode(nodeView, results);
  }
  const bool kept =
      folded && options.keptNodes && options.keptNodes->count(node.name);
  // With bounded dimensions the indices are computed, and a Reshape's target
  // would be another number of every member. (Asked here: new values move the
  // constants that the view points at.)
  const bool inOrder = !folded && !options.folds && !options.keptNodes &&
                       takesAllInOrder(nodeView);
  if (folded && options.folds)
    noteFold(node.name, results);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty())
      continue;
    const std::string name = scope.prefix + names[i];
    const ValueId id =
        folded ? addConstant(*scope.graph, name, std::move(results[i]))
               : addValue(*scope.graph, name, nodeView.outputs[i]);
    if (kept)
      computed.insert({scope.graph, id});
    node.outputs[i] = id;
    define(scope, names[i], id, by);
  }
  if (inOrder) {
    const Shape &shape = nodeView.outputs[0].shape;
    Tensor target =
        Tensor::allocate({DType::I64, {static_cast<int64_t>(shape.size())}});
    std::memcpy(target.mutableBytes().data(), shape.data(),
                shape.size() * sizeof(int64_t));
    node.inputs[1] = addConstant(*scope.graph, node.name + "/shape", target);
    node.opType = "Reshape";
    node.attributes.clear();
  }
  if (!folded || kept)
    scope.graph->nodes.push_back(std::move(node));
}

} // namespace concord::onnx::detail

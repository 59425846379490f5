//===- Fold.cpp - Constant folding and dead code
//----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Folding runs the same kernels as the compiled program, so that a folded value
// has the bits the program would have computed. A node whose kernel is missing
// or fails (an index out of range) stays and is the program's business.
//
//===----------------------------------------------------------------------===//

#include "Builder.h"
#include "Infer.h"
#include "concord/kernel.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace concord::onnx::detail {

namespace {

Tensor intTensor(const std::vector<int64_t> &values, Shape shape) {
  Tensor tensor = Tensor::allocate({DType::I64, std::move(shape)});
  if (!values.empty())
    std::memcpy(tensor.mutableBytes().data(), values.data(),
                values.size() * sizeof(int64_t));
  return tensor;
}

Tensor floatTensor(const std::vector<double> &values, Shape shape) {
  Tensor tensor = Tensor::allocate({DType::F32, std::move(shape)});
  auto *out = reinterpret_cast<float *>(tensor.mutableBytes().data());
  for (double value : values)
    *out++ = static_cast<float>(value);
  return tensor;
}

std::optional<Tensor> foldConstant(const Node &node) {
  if (node.attributes.size() != 1)
    fail("a Constant has exactly one value");
  const auto &[key, attribute] = *node.attributes.begin();
  if (const auto *tensor = std::get_if<Tensor>(&attribute))
    return *tensor;
  if (const auto *i = std::get_if<int64_t>(&attribute))
    return intTensor({*i}, {});
  if (const auto *f = std::get_if<double>(&attribute))
    return floatTensor({*f}, {});
  if (const auto *ints = std::get_if<std::vector<int64_t>>(&attribute))
    return intTensor(*ints, {static_cast<int64_t>(ints->size())});
  if (const auto *floats = std::get_if<std::vector<double>>(&attribute))
    return floatTensor(*floats, {static_cast<int64_t>(floats->size())});
  return std::nullopt;
}

Tensor fill(const TensorType &type, const Tensor *value) {
  Tensor result = Tensor::allocate(type);
  if (!value)
    return result; // zeros
  std::span<std::byte> bytes = result.mutableBytes();
  const size_t size = dtypeSize(type.dtype);
  for (size_t at = 0; at < bytes.size(); at += size)
    std::memcpy(bytes.data() + at, value->bytes.data(), size);
  return result;
}

struct KernelDeleter {
  void operator()(concord_kernel *kernel) const {
    concord_kernel_destroy(kernel);
  }
};

/// Node operators that only move or re-type data: of a weight that nothing else
/// uses, they are done once here instead of every step.
bool movesData(const std::string &op) {
  static constexpr std::string_view kNames[] = {
      "Transpose", "Reshape", "Cast", "Unsqueeze", "Squeeze", "Flatten"};
  return std::find(std::begin(kNames), std::end(kNames), op) !=
         std::end(kNames);
}

} // namespace

std::optional<Tensor> foldTrivial(const NodeView &view, uint64_t limit) {
  const Node &node = *view.node;
  if (!node.domain.empty() || view.outputs.empty())
    return std::nullopt;
  if (node.opType == "Constant")
    return foldConstant(node);
  if (node.opType == "Shape") {
    const Shape &shape = view.inputs[0].shape;
    const auto rank = static_cast<int64_t>(shape.size());
    auto bound = [&](const char *name, int64_t otherwise) {
      int64_t value = node.intAttr(name, otherwise);
      if (value < 0)
        value += rank;
      return std::clamp<int64_t>(value, 0, rank);
    };
    const int64_t start = bound("start", 0);
    const int64_t end = std::max(start, bound("end", rank));
    return intTensor({shape.begin() + start, shape.begin() + end},
                     {end - start});
  }
  if (node.opType == "Size")
    return intTensor({view.inputs[0].numElements()}, {});
  if (node.opType == "ConstantOfShape" && view.outputs[0].numBytes() <= limit) {
    const Attribute *value = node.attribute("value");
    return fill(view.outputs[0], value ? &std::get<Tensor>(*value) : nullptr);
  }
  return std::nullopt;
}

bool runNode(const NodeView &view, std::vector<Tensor> &results) {
  const OpDef *def = findOp(view.node->domain, view.node->opType);
  if (!def || !def->kernel)
    return false;
  const std::string description = def->kernel(view);
  if (description.empty())
    return false;
  concord_kernel *handle = nullptr;
  concord_kernel_info info = {};
  info.struct_size = sizeof info;
  if (concord_kernel_create(description.c_str(), &handle, &info) != 0)
    return false;
  const std::unique_ptr<concord_kernel, KernelDeleter> kernel(handle);
  if (info.num_inputs != view.inputs.size() ||
      info.num_outputs != view.outputs.size() || info.packed_input != ~0u)
    return false;

  std::vector<Tensor> copies; // of operands that lie unaligned in a file
  std::vector<void *> pointers;
  for (size_t i = 0; i < view.inputs.size(); ++i) {
    if (!view.hasInput(i)) {
      pointers.push_back(nullptr);
      continue;
    }
    const Tensor *data = view.constants[i];
    const auto address = reinterpret_cast<uintptr_t>(data->bytes.data());
    if (address == 0 || address % dtypeSize(data->type.dtype) != 0) {
      copies.push_back(Tensor::allocate(data->type));
      std::copy(data->bytes.begin(), data->bytes.end(),
                copies.back().mutableBytes().begin());
      data = &copies.back();
      pointers.push_back(const_cast<std::byte *>(data->bytes.data()));
      continue;
    }
    pointers.push_back(const_cast<std::byte *>(data->bytes.data()));
  }
  results.clear();
  for (const TensorType &type : view.outputs) {
    if (type.dtype == DType::Invalid) {
      results.emplace_back();
      pointers.push_back(nullptr);
      continue;
    }
    results.push_back(Tensor::allocate(type));
    pointers.push_back(results.back().mutableBytes().data());
  }
  Tensor workspace = Tensor::allocate(
      {DType::U8, {static_cast<int64_t>(info.workspace_bytes)}});
  if (concord_kernel_run(kernel.get(), pointers.data(),
                         workspace.mutableBytes().data()) == 0)
    return true;
  results.clear();
  return false;
}

void foldWeights(Graph &graph) {
  std::vector<int> uses(graph.values.size(), 0);
  for (const Node &node : graph.nodes)
    for (ValueId input : node.inputs)
      if (input != kNoValue)
        ++uses[input];
  for (ValueId output : graph.outputs)
    ++uses[output];
  std::erase_if(graph.nodes, [&](const Node &node) {
    if (!node.domain.empty() || !movesData(node.opType) ||
        node.outputs.size() != 1 || !node.shardings.empty())
      return false;
    NodeView view;
    view.node = &node;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId id = node.inputs[i];
      if (id == kNoValue)
        return false;
      const Value &value = graph.values[id];
      if (!value.constant || (i == 0 && uses[id] != 1))
        return false;
      view.inputs.push_back(value.type);
      view.constants.push_back(&*value.constant);
    }
    Value &result = graph.values[node.outputs[0]];
    view.outputs.push_back(result.type);
    // The same bytes under another shape need no copy.
    if (view.inputs[0].dtype == result.type.dtype &&
        node.opType != "Transpose") {
      Tensor tensor = *view.constants[0];
      tensor.type = result.type;
      result.constant = std::move(tensor);
    } else {
      std::vector<Tensor> results;
      if (!runNode(view, results))
        return false;
      result.constant = std::move(results[0]);
    }
    graph.values[node.inputs[0]].constant.reset(); // nothing else uses it
    return true;
  });
}

/// Dropout whose mask nobody takes is a copy in inference: its users take the
/// operand. A model output keeps its name through an Identity.
static void dropDropouts(Graph &graph) {
  std::vector<char> used(graph.values.size(), 0);
  for (const Node &node : graph.nodes)
    for (ValueId id : node.inputs)
      if (id != kNoValue)
        used[id] = 1;
  std::vector<char> isOutput(graph.values.size(), 0);
  for (ValueId id : graph.outputs)
    isOutput[id] = 1;
  std::unordered_map<ValueId, ValueId> copies;
  for (Node &node : graph.nodes) {
    for (ValueId &id : node.inputs)
      if (auto it = copies.find(id); it != copies.end())
        id = it->second;
    if (node.opType != "Dropout" || !node.domain.empty() ||
        !node.shardings.empty() || node.outputs.empty() ||
        node.outputs[0] == kNoValue)
      continue;
    if (node.outputs.size() > 1 && node.outputs[1] != kNoValue &&
        (used[node.outputs[1]] || isOutput[node.outputs[1]]))
      continue;
    if (isOutput[node.outputs[0]]) {
      node.opType = "Identity";
      node.attributes.clear();
      node.inputs.resize(1);
      node.outputs.resize(1);
      continue;
    }
    copies.emplace(node.outputs[0], node.inputs[0]);
  }
}

void removeDead(Graph &graph) {
  dropDropouts(graph);
  std::vector<char> live(graph.values.size(), 0);
  for (ValueId id : graph.outputs)
    live[id] = 1;
  std::vector<char> keep(graph.nodes.size(), 0);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    Node &node = graph.nodes[n];
    for (ValueId id : node.outputs)
      keep[n] |= id != kNoValue && live[id];
    if (!keep[n])
      continue;
    // The number of results is part of what these mean; elsewhere the first one
    // is never optional, though a router may want TopK's indices only.
    size_t needed = node.opType == "Split" || node.opType == "If" ||
                            node.opType == "DynamicQuantizeLinear"
                        ? node.outputs.size()
                        : 1;
    for (size_t i = 0; i < needed; ++i)
      if (node.outputs[i] != kNoValue)
        live[node.outputs[i]] = 1;
    for (ValueId id : node.inputs)
      if (id != kNoValue)
        live[id] = 1;
  }
  for (ValueId id : graph.inputs)
    live[id] = 1;

  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    if (keep[n])
      nodes.push_back(std::move(graph.nodes[n]));
  graph.nodes = std::move(nodes);
  // Other results of a live node that nobody takes are absent from here on.
  std::vector<ValueId> renumbered(live.size(), kNoValue);
  std::vector<Value> values;
  for (size_t id = 0; id < live.size(); ++id) {
    if (!live[id])
      continue;
    renumbered[id] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[id]));
  }
  graph.values = std::move(values);
  auto renumber = [&](std::vector<ValueId> &ids) {
    for (ValueId &id : ids)
      if (id != kNoValue)
        id = renumbered[id];
  };
  for (Node &node : graph.nodes) {
    renumber(node.inputs);
    renumber(node.outputs);
    while (!node.outputs.empty() && node.outputs.back() == kNoValue)
      node.outputs.pop_back();
  }
  renumber(graph.inputs);
  renumber(graph.outputs);
}

} // namespace concord::onnx::detail

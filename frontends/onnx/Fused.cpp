//===- Fused.cpp - onnxruntime's fused operators --------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model that onnxruntime has saved after its "extended" optimisations has
// nodes of its own: an activation, a bias or a scale joined to the operator
// before. They are taken apart again here, since partitioning, and fusion for
// what one rank computes, have rules for the standard operators. Meanings are
// those of onnxruntime's documentation (docs/ContribOperators.md).
//
//===----------------------------------------------------------------------===//

#include "Fused.h"
#include "Infer.h"

#include <algorithm>
#include <numeric>

namespace concord::onnx::detail {

namespace {

/// The opset that the functions are written for.
constexpr int64_t kOpset = 23;

class FunctionBuilder {
public:
  explicit FunctionBuilder(const NodeView &view) : view(view) {
    function.set_name(view.node->opType);
    auto *import = function.add_opset_import();
    import->set_domain("");
    import->set_version(kOpset);
    for (size_t i = 0; i < view.inputs.size(); ++i)
      function.add_input(in(i));
  }

  /// Name of an operand.
  static std::string in(size_t i) { return "in" + std::to_string(i); }
  bool has(size_t i) const { return view.hasInput(i); }

  struct Made {
    wire::Node *node;
    std::string result;
  };

  /// A node of one result; its name is that of the operator.
  Made op(const std::string &type, const std::vector<std::string> &operands) {
    wire::Node *node = function.add_node();
    node->set_op_type(type);
    node->set_name(type + std::to_string(function.node_size()));
    for (const std::string &operand : operands)
      node->add_input(operand);
    std::string result = "v" + std::to_string(function.node_size());
    node->add_output(result);
    return {node, result};
  }

  static void set(const Made &made, const char *name, int64_t value) {
    wire::Attribute *attribute = made.node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(wire::Attribute::INT);
    attribute->set_i(value);
  }
  static void set(const Made &made, const char *name, double value) {
    wire::Attribute *attribute = made.node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(wire::Attribute::FLOAT);
    attribute->set_f(static_cast<float>(value));
  }
  static void set(const Made &made, const char *name,
                  const std::string &value) {
    wire::Attribute *attribute = made.node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(wire::Attribute::STRING);
    attribute->set_s(value);
  }
  static void set(const Made &made, const char *name,
                  const std::vector<int64_t> &values) {
    wire::Attribute *attribute = made.node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(wire::Attribute::INTS);
    for (int64_t value : values)
      attribute->add_ints(value);
  }

  /// A scalar of the first operand's type.
  std::string scalar(double value) {
    Made constant = op("Constant", {});
    set(constant, "value_float", value);
    if (view.inputs[0].dtype == DType::F32)
      return constant.result;
    Made cast = op("Cast", {constant.result});
    set(cast, "to", int64_t{dtypeToWire(view.inputs[0].dtype)});
    return cast.result;
  }

  std::string add(const std::string &a, const std::string &b) {
    return op("Add", {a, b}).result;
  }

  /// `activation`, as onnxruntime's fused products and convolutions name it.
  std::string activation(const std::string &x) {
    const std::string name = view.node->stringAttr("activation", "");
    std::vector<double> numbers;
    if (const Attribute *given = view.node->attribute("activation_params"))
      if (const auto *list = std::get_if<std::vector<double>>(given))
        numbers = *list;
    auto number = [&](size_t i, const char *attribute, double otherwise) {
      return i < numbers.size() ? numbers[i]
                                : view.node->floatAttr(attribute, otherwise);
    };
    if (name.empty())
      return x;
    if (name == "Clip")
      return op("Clip", {x, scalar(number(0, "activation_alpha", 0)),
                         scalar(number(1, "activation_beta", 0))})
          .result;
    if (name != "Relu" && name != "Tanh" && name != "Sigmoid" &&
        name != "LeakyRelu" && name != "HardSigmoid" && name != "Softsign" &&
        name != "Softplus" && name != "Elu")
      throw Error("activation '" + name + "' is not supported");
    Made made = op(name, {x});
    if (name == "LeakyRelu")
      set(made, "alpha", number(0, "activation_alpha", 0.01));
    if (name == "Elu")
      set(made, "alpha", number(0, "activation_alpha", 1.0));
    if (name == "HardSigmoid") {
      set(made, "alpha", number(0, "activation_alpha", 0.2));
      set(made, "beta", number(1, "activation_beta", 0.5));
    }
    return made.result;
  }

  /// Ends the function with these results, "" for ones that it cannot give.
  std::optional<wire::Function>
  results(const std::vector<std::string> &values) {
    for (size_t i = 0; i < view.node->outputs.size(); ++i) {
      const bool given = i < values.size() && !values[i].empty();
      if (view.node->outputs[i] != kNoValue && !given)
        throw Error("result " + std::to_string(i) + " is not supported");
      // Nobody asks for what stands in for an absent result.
      function.add_output(given ? values[i] : values[0]);
    }
    return std::move(function);
  }

  const NodeView &view;

private:
  wire::Function function;
};

/// An operand of a fused product as MatMul takes it: its first dimension moved
/// behind the batches if `batches`, then the last two exchanged if `matrix`.
std::string transposed(FunctionBuilder &b, size_t operand, bool batches,
                       bool matrix) {
  const size_t rank = b.view.inputs[operand].shape.size();
  if (rank < 2 || !(batches || matrix))
    return b.in(operand);
  std::vector<int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (batches)
    std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (matrix)
    std::swap(perm[rank - 1], perm[rank - 2]);
  auto made = b.op("Transpose", {b.in(operand)});
  b.set(made, "perm", perm);
  return made.result;
}

std::optional<wire::Function> fusedMatMul(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  auto flag = [&](const char *name) { return node.intAttr(name, 0) != 0; };
  std::string x = transposed(b, 0, flag("transBatchA"), flag("transA"));
  std::string y = transposed(b, 1, flag("transBatchB"), flag("transB"));
  std::string product = b.op("MatMul", {x, y}).result;
  const double alpha = node.floatAttr("alpha", 1.0);
  if (alpha != 1)
    product = b.op("Mul", {product, b.scalar(alpha)}).result;
  return b.results({product});
}

std::optional<wire::Function> fusedGemm(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  std::vector<std::string> operands = {b.in(0), b.in(1)};
  if (b.has(2))
    operands.push_back(b.in(2));
  auto gemm = b.op("Gemm", operands);
  for (const char *name : {"alpha", "beta"})
    b.set(gemm, name, node.floatAttr(name, 1.0));
  for (const char *name : {"transA", "transB"})
    b.set(gemm, name, node.intAttr(name, 0));
  return b.results({b.activation(gemm.result)});
}

std::optional<wire::Function> fusedConv(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  std::vector<std::string> operands = {b.in(0), b.in(1)};
  if (b.has(2))
    operands.push_back(b.in(2));
  auto conv = b.op("Conv", operands);
  b.set(conv, "auto_pad", node.stringAttr("auto_pad", "NOTSET"));
  b.set(conv, "group", node.intAttr("group", 1));
  for (const char *name : {"dilations", "kernel_shape", "pads", "strides"})
    if (node.attribute(name))
      b.set(conv, name, node.intsAttr(name));
  std::string result = conv.result;
  if (b.has(3))
    result = b.add(result, b.in(3));
  return b.results({b.activation(result)});
}

std::optional<wire::Function> gelu(FunctionBuilder &b, bool approximate) {
  std::string x = b.has(1) ? b.add(b.in(0), b.in(1)) : b.in(0);
  auto made = b.op("Gelu", {x});
  b.set(made, "approximate", std::string(approximate ? "tanh" : "none"));
  return b.results({made.result});
}

std::optional<wire::Function> quickGelu(FunctionBuilder &b) {
  const double alpha = b.view.node->floatAttr("alpha", 1.702);
  std::string x = b.in(0);
  if (alpha != 1)
    x = b.op("Mul", {x, b.scalar(alpha)}).result;
  x = b.op("Sigmoid", {x}).result;
  return b.results({b.op("Mul", {b.in(0), x}).result});
}

std::optional<wire::Function> rmsNorm(FunctionBuilder &b) {
  const Node &node = *b.view.node;
  auto made = b.op("RMSNormalization", {b.in(0), b.in(1)});
  b.set(made, "axis", node.intAttr("axis", -1));
  b.set(made, "epsilon", node.floatAttr("epsilon", 1e-5));
  return b.results({made.result});
}

/// A sum of two or three, and a normalisation of it. The sum is a result too.
std::optional<wire::Function> skipNorm(FunctionBuilder &b, bool simplified) {
  const Node &node = *b.view.node;
  const size_t bias = simplified ? 3 : 4;
  std::string sum = b.add(b.in(0), b.in(1));
  if (b.has(bias))
    sum = b.add(sum, b.in(bias));
  std::vector<std::string> operands = {sum, b.in(2)};
  if (!simplified && b.has(3))
    operands.push_back(b.in(3));
  auto made =
      b.op(simplified ? "RMSNormalization" : "LayerNormalization", operands);
  b.set(made, "axis", int64_t{-1});
  b.set(made, "epsilon", node.floatAttr("epsilon", 1e-12));
  return b.results({made.result, "", "", sum});
}

} // namespace

std::optional<wire::Function> fusedFunction(const NodeView &view) {
  const std::string &op = view.node->opType;
  const bool own = view.node->domain == "com.microsoft";
  // Written without a domain of its own.
  const bool simplified = op == "SimplifiedLayerNormalization";
  if (!own && !(simplified && view.node->domain.empty()))
    return std::nullopt;
  struct Entry {
    const char *name;
    size_t least; ///< operands
    std::optional<wire::Function> (*make)(FunctionBuilder &);
  };
  static constexpr Entry entries[] = {
      {"BiasGelu", 2, [](FunctionBuilder &b) { return gelu(b, false); }},
      {"FastGelu", 1, [](FunctionBuilder &b) { return gelu(b, true); }},
      {"FusedConv", 2, fusedConv},
      {"FusedGemm", 2, fusedGemm},
      {"FusedMatMul", 2, fusedMatMul},
      {"Gelu", 1, [](FunctionBuilder &b) { return gelu(b, false); }},
      {"QuickGelu", 1, quickGelu},
      {"SimplifiedLayerNormalization", 2, rmsNorm},
      {"SkipLayerNormalization", 3,
       [](FunctionBuilder &b) { return skipNorm(b, false); }},
      {"SkipSimplifiedLayerNormalization", 3,
       [](FunctionBuilder &b) { return skipNorm(b, true); }},
  };
  for (const Entry &entry : entries) {
    if (op != entry.name)
      continue;
    for (size_t i = 0; i < entry.least; ++i)
      if (!view.hasInput(i))
        throw Error("operand " + std::to_string(i) + " is missing");
    FunctionBuilder builder(view);
    return entry.make(builder);
  }
  return std::nullopt;
}

} // namespace concord::onnx::detail

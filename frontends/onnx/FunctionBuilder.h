//===- FunctionBuilder.h - Meanings as functions ----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ONNX_FUNCTIONBUILDER_H
#define CONCORD_ONNX_FUNCTIONBUILDER_H

#include "Fused.h"
#include "Infer.h"

namespace concord::onnx::detail {

/// The opset that the functions are written for.
constexpr int64_t kFunctionOpset = 24;

/// Writes what an operator computes as a function of standard operators.
class FunctionBuilder {
public:
  explicit FunctionBuilder(const NodeView &view) : view(view) {
    function.set_name(view.node->opType);
    auto *import = function.add_opset_import();
    import->set_domain("");
    import->set_version(kFunctionOpset);
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

  std::string ints(const std::vector<int64_t> &values) {
    Made constant = op("Constant", {});
    set(constant, "value_ints", values);
    return constant.result;
  }
  std::string cast(const std::string &x, DType type) {
    Made made = op("Cast", {x});
    set(made, "to", int64_t{dtypeToWire(type)});
    return made.result;
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

// Of FusedAttention.cpp.
std::optional<wire::Function> attention(FunctionBuilder &b);
std::optional<wire::Function> multiHeadAttention(FunctionBuilder &b);
std::optional<wire::Function> groupQueryAttention(FunctionBuilder &b);
std::optional<wire::Function> rotaryEmbedding(FunctionBuilder &b);
std::optional<wire::Function> embedLayerNorm(FunctionBuilder &b);
// Of Recurrent.cpp.
std::optional<wire::Function> recurrentNetwork(FunctionBuilder &b);
std::optional<wire::Function> gatedRecurrentUnit(FunctionBuilder &b);
std::optional<wire::Function> longShortTermMemory(FunctionBuilder &b);

} // namespace concord::onnx::detail

#endif // CONCORD_ONNX_FUNCTIONBUILDER_H

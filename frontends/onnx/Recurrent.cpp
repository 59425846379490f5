//===- Recurrent.cpp - RNN, GRU and LSTM as standard operators ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The inputs' products are one product for all steps; what is left is written
// down step by step.
//
//===----------------------------------------------------------------------===//

#include "FunctionBuilder.h"

#include <algorithm>

namespace concord::onnx::detail {

namespace {

using Names = std::vector<std::string>;

class Recurrence {
public:
  Recurrence(FunctionBuilder &b, size_t gates, const Names &defaults);
  std::optional<wire::Function> write();

private:
  std::string step(const std::string &x, const std::string &h, std::string &c);
  std::string node(const char *op, const Names &operands) {
    return b.op(op, operands).result;
  }
  std::string squeeze(const std::string &x, int64_t axis) {
    return node("Squeeze", {x, b.ints({axis})});
  }
  std::string unsqueeze(const std::string &x, int64_t axis) {
    return node("Unsqueeze", {x, b.ints({axis})});
  }
  std::string swapped(const std::string &x) {
    auto made = b.op("Transpose", {x});
    b.set(made, "perm", std::vector<int64_t>{1, 0, 2});
    return made.result;
  }
  std::string linear(const std::string &x, const std::string &matrix) {
    auto made = b.op("Transpose", {matrix});
    b.set(made, "perm", std::vector<int64_t>{1, 0});
    return node("MatMul", {x, made.result});
  }
  /// Parts of equal size.
  Names parts(const std::string &x, size_t count, int64_t extent,
              int64_t axis) {
    if (count == 1)
      return {x};
    auto made = b.op("Split", {x, b.ints(std::vector<int64_t>(count, extent))});
    b.set(made, "axis", axis);
    Names names = {made.result};
    while (names.size() < count) {
      names.push_back(made.result + "_" + std::to_string(names.size()));
      made.node->add_output(names.back());
    }
    return names;
  }
  /// What an operand has for one direction; "" where it is absent.
  std::string ofDirection(size_t operand, size_t d) {
    if (!b.has(operand))
      return {};
    Names all = parts(b.in(operand), directions, 1, 0);
    return squeeze(all[d], 0);
  }
  std::string joined(const Names &all, int64_t axis) {
    auto made = b.op("Concat", all);
    b.set(made, "axis", axis);
    return made.result;
  }
  std::string zeros() {
    return node("Expand", {b.scalar(0), b.ints({batch, hidden})});
  }

  FunctionBuilder &b;
  size_t gates, directions = 1;
  int64_t steps = 0, batch = 0, hidden = 0;
  bool batchFirst, resetAfter, coupled;
  Names activations;
  // Of the direction that is being written.
  std::string recurrent, recurrentBias, peephole;
  Names f;
};

Recurrence::Recurrence(FunctionBuilder &b, size_t gates, const Names &defaults)
    : b(b), gates(gates) {
  const Node &node = *b.view.node;
  const std::string direction = node.stringAttr("direction", "forward");
  directions = direction == "bidirectional" ? 2 : 1;
  batchFirst = node.intAttr("layout", 0) != 0;
  resetAfter = node.intAttr("linear_before_reset", 0) != 0;
  coupled = node.intAttr("input_forget", 0) != 0;
  if (node.attribute("clip"))
    throw Error("attribute 'clip' is not supported; clip outside");
  const Shape &x = b.view.inputs[0].shape, &r = b.view.inputs[2].shape;
  if (x.size() != 3 || r.size() != 3 ||
      r[0] != static_cast<int64_t>(directions))
    throw Error("X " + text(b.view.inputs[0]) + " and R " +
                text(b.view.inputs[2]) + " do not fit");
  steps = x[batchFirst ? 1 : 0];
  batch = x[batchFirst ? 0 : 1];
  hidden = r[2];
  if (steps < 1 || steps > 4096)
    throw Error("a sequence of " + std::to_string(steps) +
                " steps is not supported; from 1 to 4096 are");
  for (size_t d = 0; d < directions; ++d)
    activations.insert(activations.end(), defaults.begin(), defaults.end());
  if (const Attribute *given = node.attribute("activations"))
    if (const auto *list = std::get_if<Names>(given)) {
      if (list->size() != activations.size())
        throw Error("attribute 'activations' has " +
                    std::to_string(list->size()) + " names and should have " +
                    std::to_string(activations.size()));
      activations = *list;
    }
  for (const std::string &name : activations)
    if (name != "Sigmoid" && name != "Tanh" && name != "Relu" &&
        name != "Softsign" && name != "Softplus")
      throw Error("activation '" + name + "' is not supported");
}

/// One step: `x` is its part of the inputs' product, with both biases but what
/// a reset acts on.
std::string Recurrence::step(const std::string &x, const std::string &h,
                             std::string &c) {
  auto add = [&](const std::string &p, const std::string &q) {
    return q.empty() ? p : b.add(p, q);
  };
  auto mul = [&](const std::string &p, const std::string &q) {
    return node("Mul", {p, q});
  };
  if (gates == 1)
    return node(f[0].c_str(), {b.add(x, linear(h, recurrent))});
  const Names in = parts(x, gates, hidden, -1);
  if (gates == 3) {
    const Names matrices = parts(recurrent, 3, hidden, 0);
    std::string z = node(f[0].c_str(), {b.add(in[0], linear(h, matrices[0]))});
    std::string r = node(f[0].c_str(), {b.add(in[1], linear(h, matrices[1]))});
    std::string again = resetAfter
                            ? mul(r, add(linear(h, matrices[2]), recurrentBias))
                            : linear(mul(r, h), matrices[2]);
    std::string made = node(f[1].c_str(), {b.add(in[2], again)});
    // z h + (1 - z) made
    return b.add(made, mul(z, node("Sub", {h, made})));
  }
  const Names more = parts(linear(h, recurrent), 4, hidden, -1);
  Names peep(3);
  if (!peephole.empty())
    peep = parts(peephole, 3, hidden, -1);
  auto gate = [&](size_t i, size_t p, const std::string &cell) {
    std::string sum = b.add(in[i], more[i]);
    if (!peep[p].empty())
      sum = b.add(sum, mul(peep[p], cell));
    return node(f[0].c_str(), {sum});
  };
  std::string i = gate(0, 0, c);
  std::string forget = coupled ? node("Sub", {b.scalar(1), i}) : gate(2, 2, c);
  std::string made = node(f[1].c_str(), {b.add(in[3], more[3])});
  c = b.add(mul(forget, c), mul(i, made));
  return mul(gate(1, 1, c), node(f[2].c_str(), {c}));
}

std::optional<wire::Function> Recurrence::write() {
  const bool lstm = gates == 4;
  std::string x = batchFirst ? swapped(b.in(0)) : b.in(0);
  Names keep; // per step, where sequences still go on: [batch, 1]
  if (b.has(4))
    for (int64_t t = 0; t < steps; ++t)
      keep.push_back(unsqueeze(
          node("Greater", {b.cast(b.in(4), DType::I64), b.ints({t})}), 1));
  std::vector<Names> all(static_cast<size_t>(steps));
  Names lastH, lastC;
  for (size_t d = 0; d < directions; ++d) {
    const bool backwards =
        d == 1 || b.view.node->stringAttr("direction", "forward") == "reverse";
    const size_t kinds = activations.size() / directions;
    f.assign(activations.begin() + static_cast<ptrdiff_t>(d * kinds),
             activations.begin() + static_cast<ptrdiff_t>((d + 1) * kinds));
    recurrent = ofDirection(2, d);
    peephole = lstm ? ofDirection(7, d) : std::string();
    std::string products = linear(x, ofDirection(1, d));
    recurrentBias.clear();
    if (b.has(3)) {
      Names biases =
          parts(ofDirection(3, d), 2, static_cast<int64_t>(gates) * hidden, 0);
      if (gates == 3 && resetAfter) {
        // The last third is added behind the product that is reset.
        Names thirds = parts(biases[1], 3, hidden, 0);
        recurrentBias = thirds[2];
        biases[1] = joined(
            {thirds[0], thirds[1], node("Sub", {thirds[2], thirds[2]})}, 0);
      }
      products = b.add(products, b.add(biases[0], biases[1]));
    }
    const Names inputs = parts(products, static_cast<size_t>(steps), 1, 0);
    auto initial = [&](size_t operand) {
      if (!b.has(operand))
        return zeros();
      Names list = parts(b.in(operand), directions, 1, batchFirst ? 1 : 0);
      return squeeze(list[d], batchFirst ? 1 : 0);
    };
    std::string h = initial(5), c = lstm ? initial(6) : std::string();
    for (int64_t k = 0; k < steps; ++k) {
      const auto t = static_cast<size_t>(backwards ? steps - 1 - k : k);
      std::string cell = c, made = step(squeeze(inputs[t], 0), h, cell);
      std::string shown = made;
      if (!keep.empty()) {
        shown = node("Where", {keep[t], made, b.scalar(0)});
        made = node("Where", {keep[t], made, h});
        if (lstm)
          cell = node("Where", {keep[t], cell, c});
      }
      h = made;
      c = cell;
      all[t].push_back(unsqueeze(unsqueeze(shown, 0), 0));
    }
    lastH.push_back(unsqueeze(h, 0));
    if (lstm)
      lastC.push_back(unsqueeze(c, 0));
  }
  // [steps, directions, batch, hidden]
  Names rows;
  for (const Names &list : all)
    rows.push_back(joined(list, 1));
  std::string y = joined(rows, 0), h = joined(lastH, 0);
  std::string c = lstm ? joined(lastC, 0) : std::string();
  if (batchFirst) {
    auto made = b.op("Transpose", {y});
    b.set(made, "perm", std::vector<int64_t>{2, 0, 1, 3});
    y = made.result;
    h = swapped(h);
    c = lstm ? swapped(c) : c;
  }
  return b.results({y, h, c});
}

} // namespace

std::optional<wire::Function> recurrentNetwork(FunctionBuilder &b) {
  return Recurrence(b, 1, {"Tanh"}).write();
}
std::optional<wire::Function> gatedRecurrentUnit(FunctionBuilder &b) {
  return Recurrence(b, 3, {"Sigmoid", "Tanh"}).write();
}
std::optional<wire::Function> longShortTermMemory(FunctionBuilder &b) {
  return Recurrence(b, 4, {"Sigmoid", "Tanh", "Tanh"}).write();
}

} // namespace concord::onnx::detail

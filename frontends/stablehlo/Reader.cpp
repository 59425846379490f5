//===- Reader.cpp - StableHLO text as an HLO module -----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Regions of StableHLO may use values from outside; computations of HLO may
// not. What a region uses is found first and becomes part of the operand tuple.
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include <algorithm>

namespace concord::stablehlo {

bool looksLikeStablehlo(std::string_view text) {
  for (std::string_view mark :
       {"= stablehlo.", "= \"stablehlo.", "= sdy.manual_computation",
        "sdy.mesh @", "\"sdy.mesh\"(", "= mhlo.", "= \"mhlo."}) {
    for (size_t at = text.find(mark); at != std::string_view::npos;
         at = text.find(mark, at + 1)) {
      // A comment or a string may name anything.
      size_t line = text.rfind('\n', at);
      line = line == std::string_view::npos ? 0 : line + 1;
      if (text.substr(line, at - line).find("//") != std::string_view::npos)
        continue;
      if (mark.back() != '.' || mark[2] != '"')
        return true;
      size_t quote = text.find('"', at + 3);
      if (quote != std::string_view::npos && text.substr(quote, 2) == "\"(")
        return true;
    }
  }
  return false;
}
namespace detail {

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

uint32_t Reader::add(Scope &scope, const Op &op, std::string_view opcode,
                     hlo::Shape shape, std::vector<uint32_t> operands) {
  hlo::Instruction made;
  made.name = op.results.empty() ? op.name : op.results.front().first;
  made.shape = std::move(shape);
  made.opcode = opcode;
  made.operands = std::move(operands);
  made.begin = static_cast<uint32_t>(op.begin);
  made.end = made.begin;
  list(scope).push_back(std::move(made));
  return static_cast<uint32_t>(list(scope).size() - 1);
}

uint32_t Reader::use(Scope &scope, const Op &op, std::string_view name,
                     uint32_t part) {
  auto found = scope.values.find({name, part});
  if (found == scope.values.end())
    fail(op, "uses %" + std::string(name) +
                 (part ? "#" + std::to_string(part) : "") +
                 ", which is not defined before it");
  Ref ref = found->second;
  if (ref.element < 0)
    return ref.instruction;
  if (ref.element >=
      static_cast<int64_t>(list(scope)[ref.instruction].shape.elements.size()))
    fail(op, "uses %" + std::string(name) + "#" + std::to_string(part) +
                 ", which its operation does not define");
  auto [at, fresh] =
      scope.elements.try_emplace({ref.instruction, ref.element}, 0);
  if (fresh) {
    hlo::Shape shape = list(scope)[ref.instruction]
                           .shape.elements[static_cast<size_t>(ref.element)];
    uint32_t element = add(scope, op, "get-tuple-element", std::move(shape),
                           {ref.instruction});
    list(scope)[element].name = name;
    list(scope)[element].attributes.push_back(
        {"index", keep(std::to_string(ref.element))});
    at->second = element;
  }
  return at->second;
}

std::vector<uint32_t> Reader::operandsOf(Scope &scope, const Op &op) {
  std::vector<uint32_t> operands;
  for (const Operand &operand : op.operands)
    operands.push_back(use(scope, op, operand.name, operand.part));
  return operands;
}

/// The types of the results: those after an arrow, else the last ones listed.
std::vector<std::string_view> Reader::resultTypes(const Op &op) {
  size_t count = 0;
  for (auto &[name, many] : op.results)
    count += many;
  if (op.arrow) {
    if (!op.results.empty() && op.types.size() != count)
      fail(op, "defines " + std::to_string(count) +
                   " values and has types for " +
                   std::to_string(op.types.size()));
    return op.types;
  }
  if (op.types.size() < count)
    fail(op, "has no type for a result");
  return {op.types.end() - static_cast<ptrdiff_t>(count), op.types.end()};
}

hlo::Shape Reader::resultShape(const Op &op) {
  std::vector<hlo::Shape> shapes;
  for (std::string_view type : resultTypes(op))
    shapes.push_back(shapeOf(op, type));
  if (shapes.size() == 1)
    return std::move(shapes.front());
  return tuple(std::move(shapes));
}

/// The results of `op` are `instruction`, or the elements of its tuple.
void Reader::define(Scope &scope, const Op &op, uint32_t instruction) {
  uint32_t total = 0;
  for (auto &[name, many] : op.results)
    total += many;
  int64_t element = 0;
  for (auto &[name, many] : op.results)
    for (uint32_t part = 0; part < many; ++part, ++element)
      scope.values[{name, part}] = {instruction, total == 1 ? -1 : element};
}

//===----------------------------------------------------------------------===//
// Computations
//===----------------------------------------------------------------------===//

/// Values of the outside that a region uses, in the order of first use.
void Reader::captures(const Region &region, Names &found) const {
  std::set<std::pair<std::string_view, uint32_t>> seen(found.begin(),
                                                       found.end());
  // Names defined inside, whatever part; shadowing does not occur in MLIR.
  std::set<std::string_view> inside;
  std::vector<const Region *> stack = {&region};
  std::vector<const Region *> all;
  while (!stack.empty()) {
    const Region *at = stack.back();
    stack.pop_back();
    all.push_back(at);
    for (const Region::Argument &argument : at->arguments)
      inside.insert(argument.name);
    for (const Op &op : at->ops) {
      for (auto &[name, many] : op.results)
        inside.insert(name);
      for (const Region &inner : op.regions)
        stack.push_back(&inner);
    }
  }
  for (const Region *at : all)
    for (const Op &op : at->ops)
      for (const Operand &operand : op.operands)
        if (!inside.count(operand.name) &&
            seen.insert({operand.name, operand.part}).second)
          found.push_back({operand.name, operand.part});
}

uint32_t Reader::beginComputation(std::string name) {
  std::string unique = name;
  for (unsigned i = 1; !names.insert(unique).second; ++i)
    unique = name + "." + std::to_string(i);
  module.computations.emplace_back();
  module.computations.back().name = keep(std::move(unique));
  return static_cast<uint32_t>(module.computations.size() - 1);
}

void Reader::endComputation(Scope &scope, const Op &op,
                            std::vector<uint32_t> results, bool packed) {
  uint32_t root;
  if (results.size() == 1 && !packed) {
    root = results.front();
  } else {
    std::vector<hlo::Shape> shapes;
    for (uint32_t result : results)
      shapes.push_back(list(scope)[result].shape);
    root =
        add(scope, op, "tuple", tuple(std::move(shapes)), std::move(results));
  }
  module.computations[scope.computation].root = root;
  list(scope)[root].root = true;
}

/// A region as a computation of one tuple: its arguments, then `outside`. With
/// `passOn` it yields the latter unchanged behind its own results.
uint32_t Reader::tupleRegion(Scope &outer, const Op &op, const Region &region,
                             const Names &outside, const std::string &name,
                             bool passOn, bool manual) {
  Scope scope;
  scope.computation = beginComputation(name);
  scope.manual = manual;
  std::vector<hlo::Shape> shapes;
  for (const Region::Argument &argument : region.arguments)
    shapes.push_back(shapeOf(op, argument.type));
  for (auto &[value, part] : outside) {
    uint32_t at = use(outer, op, value, part);
    shapes.push_back(list(outer)[at].shape);
  }
  uint32_t parameter =
      add(scope, op, "parameter", tuple(std::move(shapes)), {});
  list(scope)[parameter].payload = "0";
  module.computations[scope.computation].parameters = {parameter};
  int64_t element = 0;
  for (const Region::Argument &argument : region.arguments)
    scope.values[{argument.name, 0}] = {parameter, element++};
  for (auto &value : outside)
    scope.values[value] = {parameter, element++};
  std::vector<uint32_t> results = body(scope, region, op);
  if (passOn)
    for (auto &[value, part] : outside)
      results.push_back(use(scope, op, value, part));
  endComputation(scope, op, std::move(results), passOn);
  return scope.computation;
}

/// A region as a computation of its arguments: what a reduction applies.
uint32_t Reader::plainRegion(const Op &op, const Region &region,
                             const std::string &name) {
  Scope scope;
  scope.computation = beginComputation(name);
  scope.manual = true;
  for (const Region::Argument &argument : region.arguments) {
    uint32_t parameter =
        add(scope, op, "parameter", shapeOf(op, argument.type), {});
    auto &parameters = module.computations[scope.computation].parameters;
    list(scope)[parameter].payload = keep(std::to_string(parameters.size()));
    list(scope)[parameter].name = argument.name;
    parameters.push_back(parameter);
    scope.values[{argument.name, 0}] = {parameter, -1};
  }
  endComputation(scope, op, body(scope, region, op), false);
  return scope.computation;
}

uint32_t Reader::function(const Op &op, bool manual) {
  std::string_view name =
      op.symbol.empty() ? unquote(op.attribute("sym_name")) : op.symbol;
  auto known = built.find({name, manual});
  if (known != built.end())
    return known->second;
  if (!building.insert(name).second)
    fail(op, "calls itself");
  if (op.regions.size() != 1)
    fail(op, "@" + std::string(name) + " is declared and not defined here");
  const Region &region = op.regions.front();
  Scope scope;
  scope.computation = beginComputation(std::string(name));
  scope.manual = manual;
  std::vector<std::string_view> argumentAttributes =
      splitTopLevel(inBrackets(op.attribute("arg_attrs")));
  for (size_t i = 0; i < region.arguments.size(); ++i) {
    const Region::Argument &argument = region.arguments[i];
    uint32_t parameter =
        add(scope, op, "parameter", shapeOf(op, argument.type), {});
    list(scope)[parameter].name = argument.name;
    list(scope)[parameter].payload = keep(std::to_string(i));
    std::string_view attributes = argument.attributes;
    if (attributes.empty() && i < argumentAttributes.size())
      attributes = argumentAttributes[i];
    for (const hlo::Attribute &attribute : parseDictionary(attributes))
      if (attribute.name == "sdy.sharding" ||
          attribute.name == "mhlo.sharding") {
        // Which ranks hold the same part matters later.
        std::string_view sharding = resolve(attribute.value);
        bool shardy = attribute.name == "sdy.sharding";
        if (!shardy)
          sharding = unquote(sharding);
        if (shardy ? namesAxis(sharding) : !startsWith(sharding, "{replicated"))
          list(scope)[parameter].attributes.push_back({"sharding", sharding});
        if (shardy)
          attachParts(scope, parameter, sharding);
      }
    module.computations[scope.computation].parameters.push_back(parameter);
    scope.values[{argument.name, 0}] = {parameter, -1};
  }
  std::vector<uint32_t> results = body(scope, region, op);
  endComputation(scope, op, std::move(results), false);
  building.erase(name);
  built[{name, manual}] = scope.computation;
  return scope.computation;
}

uint32_t Reader::callee(const Op &op, bool manual) {
  std::string_view name = op.symbol;
  if (name.empty()) {
    name = op.attribute("callee");
    if (!name.empty() && name.front() == '@')
      name.remove_prefix(1);
    name = unquote(name);
  }
  auto found = functions.find(name);
  if (found == functions.end())
    fail(op, "calls @" + std::string(name) + ", which is not defined");
  return function(*found->second, manual);
}

void Reader::attach(Scope &scope, uint32_t instruction, std::string_view key,
                    uint32_t computation) {
  hlo::Instruction &made = list(scope)[instruction];
  made.attributes.push_back({key, module.computations[computation].name});
  made.called.push_back(computation);
}
void Reader::collect(const Region &region) {
  for (const Op &op : region.ops) {
    if (op.name == "module" || op.name == "builtin.module") {
      if (!op.symbol.empty())
        module.name = op.symbol;
      else if (op.has("sym_name"))
        module.name = unquote(op.attribute("sym_name"));
      module.numPartitions =
          integer(op, "mhlo.num_partitions", module.numPartitions);
      module.replicaCount =
          integer(op, "mhlo.num_replicas", module.replicaCount);
      if (module.numPartitions < 0 || module.numPartitions > hlo::kMaxRanks ||
          module.replicaCount < 0 || module.replicaCount > hlo::kMaxRanks)
        fail(op, "has a number of partitions or replicas outside 0 to " +
                     std::to_string(hlo::kMaxRanks));
      for (const Region &inner : op.regions)
        collect(inner);
    } else if (op.name == "func.func" || op.name == "func") {
      std::string_view name =
          op.symbol.empty() ? unquote(op.attribute("sym_name")) : op.symbol;
      if (!functions.try_emplace(name, &op).second)
        fail(op, "defines @" + std::string(name) + " twice");
    } else if (op.name == "sdy.mesh") {
      std::string_view name =
          op.symbol.empty() ? unquote(op.attribute("sym_name")) : op.symbol;
      meshes[name] = readMesh(op, op.attribute("mesh"));
    } else {
      fail(op, "is not expected outside a function");
    }
  }
}

void Reader::run() {
  file = parseSyntax(module);
  collect(file.top);
  if (functions.empty())
    throw hlo::Error(module.path + ":1:1: holds no function");
  auto entry = functions.find("main");
  if (entry == functions.end() && functions.size() > 1)
    throw hlo::Error(module.path + ":1:1: has " +
                     std::to_string(functions.size()) +
                     " functions and none is @main");
  const Op *main =
      entry == functions.end() ? functions.begin()->second : entry->second;
  module.entry = function(*main, /*manual=*/false);
  if (module.numPartitions <= 1)
    for (auto &[name, mesh] : meshes) {
      int64_t ranks = 1;
      for (auto &axis : mesh.axes)
        ranks *= axis.second;
      module.numPartitions = std::max(module.numPartitions, ranks);
    }
}

} // namespace detail

hlo::Module parse(std::string text, const std::string &path, Notes &notes) {
  hlo::Module module;
  if (text.size() > UINT32_MAX)
    throw hlo::Error(path + ":1:1: is larger than 4 GiB");
  module.text = std::make_shared<const std::string>(std::move(text));
  module.derived = std::make_shared<std::deque<std::string>>();
  module.path = path;
  detail::Reader(module, notes).run();
  return module;
}

} // namespace concord::stablehlo

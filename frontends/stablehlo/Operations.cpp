//===- Operations.cpp - Operations of StableHLO as HLO instructions -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include <algorithm>

namespace concord::stablehlo::detail {

static bool isReturn(std::string_view name) {
  return name == "return" || name == "func.return" ||
         name == "stablehlo.return" || name == "sdy.return" ||
         name == "mhlo.return";
}

/// Converts a region's operations; yields what its terminator returns.
std::vector<uint32_t> Reader::body(Scope &scope, const Region &region,
                                   const Op &parent) {
  if (region.ops.empty() || !isReturn(region.ops.back().name))
    fail(parent, "has a region that does not end with a return");
  for (size_t i = 0; i + 1 < region.ops.size(); ++i) {
    if (isReturn(region.ops[i].name))
      fail(region.ops[i], "stands in the middle of its region");
    convert(scope, region.ops[i]);
  }
  return operandsOf(scope, region.ops.back());
}

void Reader::collective(Scope &scope, const Op &op, std::string_view opcode) {
  std::vector<uint32_t> operands = operandsOf(scope, op);
  if (op.has("has_dynamic_root") &&
      resolve(op.attribute("has_dynamic_root")) != "false")
    fail(op,
         "has a root that is only known at run time, which is not supported");
  uint32_t made = add(scope, op, opcode, resultShape(op), std::move(operands));
  std::vector<hlo::Attribute> attributes;
  if (opcode == "collective-permute")
    attributes.push_back(
        {"source_target_pairs", keep(groupsText(op, "source_target_pairs"))});
  else
    attributes.push_back(
        {"replica_groups", keep(groupsText(op, "replica_groups"))});
  std::string_view channel = resolve(op.attribute("channel_handle"));
  if (channel.empty())
    channel = resolve(op.attribute("channel_id"));
  else
    channel = field(channel, "handle");
  int64_t id = 0;
  if (!channel.empty() && !readInteger(channel, id))
    fail(op, "has a channel_handle that cannot be read");
  if (id > 0)
    attributes.push_back({"channel_id", keep(std::to_string(id))});
  if (op.has("use_global_device_ids") &&
      op.attribute("use_global_device_ids") != "false")
    attributes.push_back({"use_global_device_ids", "true"});
  auto dimension = [&](std::string_view key) {
    int64_t dim = integer(op, key, -1);
    if (dim < 0)
      fail(op, "needs " + std::string(key));
    return keep("{" + std::to_string(dim) + "}");
  };
  if (opcode == "all-gather")
    attributes.push_back({"dimensions", dimension("all_gather_dim")});
  if (opcode == "reduce-scatter")
    attributes.push_back({"dimensions", dimension("scatter_dimension")});
  if (opcode == "all-to-all") {
    attributes.push_back({"dimensions", dimension("split_dimension")});
    attributes.push_back({"concat_dimension", dimension("concat_dimension")});
  }
  list(scope)[made].attributes = std::move(attributes);
  if (opcode == "all-reduce" || opcode == "reduce-scatter") {
    if (op.regions.size() != 1)
      fail(op, "needs one region, its reduction");
    attach(scope, made, "to_apply",
           plainRegion(op, op.regions.front(), "reduction"));
  }
  define(scope, op, made);
}

/// Blocking here; in HLO a pair of start and done.
void Reader::transfer(Scope &scope, const Op &op) {
  bool send = op.name == "stablehlo.send";
  std::vector<uint32_t> operands = operandsOf(scope, op);
  bool host = op.attribute("is_host_transfer") == "true";
  std::string pairs = groupsText(op, "source_target_pairs");
  if (!host && pairs.empty())
    fail(op, "has no source_target_pairs: between which ranks it moves data is "
             "not known");
  hlo::Shape token;
  token.kind = hlo::Shape::Kind::Token;
  hlo::Shape result = resultShape(op);
  hlo::Shape started;
  if (send) {
    if (operands.size() != 2)
      fail(op, "with other than one array and a token is not supported");
    started = tuple({list(scope)[operands[0]].shape, token});
  } else {
    if (result.kind != hlo::Shape::Kind::Tuple || result.elements.size() != 2)
      fail(op, "with other than one array and a token is not supported");
    started = tuple({result.elements[0], token});
  }
  uint32_t start = add(scope, op, send ? "send" : "recv", std::move(started),
                       std::move(operands));
  if (host)
    list(scope)[start].attributes.push_back({"is_host_transfer", "true"});
  if (!pairs.empty())
    list(scope)[start].attributes.push_back(
        {"source_target_pairs", keep(std::move(pairs))});
  std::string_view handle =
      field(resolve(op.attribute("channel_handle")), "handle");
  list(scope)[start].attributes.push_back(
      {"channel_id", handle.empty() ? "1" : handle});
  define(scope, op,
         add(scope, op, send ? "send-done" : "recv-done", std::move(result),
             {start}));
}

void Reader::async(Scope &scope, const Op &op) {
  if (op.regions.size() != 1)
    fail(op, "needs one region");
  std::vector<uint32_t> operands = operandsOf(scope, op);
  Names outside;
  captures(op.regions.front(), outside);
  if (!outside.empty())
    fail(op, "uses %" + std::string(outside.front().first) +
                 " without taking it as operand");
  uint32_t computation = plainRegion(op, op.regions.front(), "async");
  hlo::Shape shape;
  shape.kind = hlo::Shape::Kind::Opaque;
  uint32_t made =
      add(scope, op, "async-start", std::move(shape), std::move(operands));
  attach(scope, made, "calls", computation);
  define(scope, op, made);
}

void Reader::whileLoop(Scope &scope, const Op &op) {
  if (op.regions.size() != 2)
    fail(op, "needs two regions");
  Names outside;
  captures(op.regions[0], outside);
  captures(op.regions[1], outside);
  std::vector<uint32_t> inits = operandsOf(scope, op);
  for (auto &[name, part] : outside)
    inits.push_back(use(scope, op, name, part));
  std::vector<hlo::Shape> shapes;
  for (uint32_t init : inits)
    shapes.push_back(list(scope)[init].shape);
  hlo::Shape shape = tuple(std::move(shapes));
  uint32_t packed = add(scope, op, "tuple", shape, std::move(inits));
  uint32_t condition = tupleRegion(scope, op, op.regions[0], outside,
                                   "condition", false, scope.manual);
  uint32_t body = tupleRegion(scope, op, op.regions[1], outside, "body", true,
                              scope.manual);
  uint32_t made = add(scope, op, "while", std::move(shape), {packed});
  attach(scope, made, "condition", condition);
  attach(scope, made, "body", body);
  // The loop's tuple also holds what its regions use from outside.
  int64_t element = 0;
  for (auto &[name, many] : op.results)
    for (uint32_t part = 0; part < many; ++part)
      scope.values[{name, part}] = {made, element++};
}

void Reader::conditional(Scope &scope, const Op &op) {
  if (op.operands.size() != 1 || op.regions.empty())
    fail(op, "needs one operand and its branches");
  bool predicated = op.name == "stablehlo.if";
  if (predicated && op.regions.size() != 2)
    fail(op, "needs two branches");
  std::vector<uint32_t> operands = operandsOf(scope, op);
  std::vector<uint32_t> branches;
  for (const Region &region : op.regions) {
    Names outside;
    captures(region, outside);
    std::vector<uint32_t> given;
    std::vector<hlo::Shape> shapes;
    for (auto &[name, part] : outside) {
      given.push_back(use(scope, op, name, part));
      shapes.push_back(list(scope)[given.back()].shape);
    }
    operands.push_back(
        add(scope, op, "tuple", tuple(std::move(shapes)), std::move(given)));
    branches.push_back(
        tupleRegion(scope, op, region, outside, "branch", false, scope.manual));
  }
  uint32_t made =
      add(scope, op, "conditional", resultShape(op), std::move(operands));
  if (predicated) {
    attach(scope, made, "true_computation", branches[0]);
    attach(scope, made, "false_computation", branches[1]);
  } else {
    for (uint32_t branch : branches)
      attach(scope, made, "branch_computations", branch);
  }
  define(scope, op, made);
}

/// Inside, every value is one device's part; the changes of view at its border
/// move no data, since the operands have the shardings that it wants. An
/// operand that every device has whole is taken as it is: the change of view
/// says that devices hold different values from here on.
void Reader::manual(Scope &scope, const Op &op) {
  if (op.regions.size() != 1)
    fail(op, "needs one region");
  const Region &region = op.regions.front();
  std::vector<uint32_t> operands = operandsOf(scope, op);
  if (operands.size() != region.arguments.size())
    fail(op, "has other operands than arguments of its region");
  std::vector<uint32_t> locals;
  std::vector<hlo::Shape> shapes;
  // `[<@mesh, ...>, ...]`, within `#sdy.sharding_per_value<...>` in generic
  // form.
  auto listed = [&](std::string_view key) {
    std::string_view text = resolve(op.attribute(key));
    text.remove_prefix(std::min(text.find('['), text.size()));
    text = text.substr(0, text.rfind(']') + 1);
    return splitTopLevel(inBrackets(text));
  };
  std::vector<std::string_view> shardings = listed("in_shardings");
  std::vector<std::string_view> leaving = listed("out_shardings");
  auto whole = [&](size_t i) {
    return i < shardings.size() && !namesAxis(shardings[i]) &&
           list(scope)[operands[i]].shape.dims == shapes.back().dims;
  };
  // A computation within another one divides along further axes.
  for (size_t i = 0; i < operands.size(); ++i) {
    shapes.push_back(shapeOf(op, region.arguments[i].type));
    if (whole(i)) {
      locals.push_back(operands[i]);
      continue;
    }
    locals.push_back(
        add(scope, op, "sdy.global_to_local", shapes.back(), {operands[i]}));
    if (i < shardings.size())
      attachParts(scope, locals.back(), shardings[i]);
  }
  Names outside;
  captures(region, outside);
  for (auto &[name, part] : outside) {
    locals.push_back(use(scope, op, name, part));
    shapes.push_back(list(scope)[locals.back()].shape);
  }
  uint32_t packed =
      add(scope, op, "tuple", tuple(std::move(shapes)), std::move(locals));
  uint32_t computation =
      tupleRegion(scope, op, region, outside, "manual", false, true);
  const hlo::Computation &made = module.computations[computation];
  hlo::Shape local = made.instructions[made.root].shape;
  std::vector<std::string_view> types = resultTypes(op);
  uint32_t call = add(scope, op, "call", local, {packed});
  attach(scope, call, "to_apply", computation);
  bool single = types.size() == 1;
  std::vector<uint32_t> results;
  for (size_t i = 0; i < types.size(); ++i) {
    uint32_t part = call;
    if (!single) {
      if (i >= local.elements.size())
        fail(op, "returns fewer values than it defines");
      part = add(scope, op, "get-tuple-element", local.elements[i], {call});
      list(scope)[part].attributes.push_back(
          {"index", keep(std::to_string(i))});
    }
    results.push_back(
        add(scope, op, "sdy.local_to_global", shapeOf(op, types[i]), {part}));
    if (i < leaving.size())
      attachParts(scope, results.back(), leaving[i]);
  }
  size_t next = 0;
  for (auto &[name, many] : op.results)
    for (uint32_t k = 0; k < many; ++k)
      scope.values[{name, k}] = {results[next++], -1};
}

/// Everything that neither communicates nor holds what does.
void Reader::compute(Scope &scope, const Op &op) {
  std::vector<uint32_t> operands = operandsOf(scope, op);
  Names outside;
  for (const Region &region : op.regions)
    captures(region, outside);
  for (auto &[name, part] : outside)
    operands.push_back(use(scope, op, name, part));
  for (const Region &region : op.regions) {
    std::vector<const Region *> stack = {&region};
    while (!stack.empty()) {
      const Region *at = stack.back();
      stack.pop_back();
      for (const Op &inner : at->ops) {
        for (std::string_view kind :
             {"stablehlo.all_", "stablehlo.reduce_scatter",
              "stablehlo.collective_", "stablehlo.send", "stablehlo.recv",
              "stablehlo.async_"})
          if (startsWith(inner.name, kind))
            fail(inner, "stands in a region of " + std::string(op.name) +
                            ", whose order of execution is not fixed");
        for (const Region &nested : inner.regions)
          stack.push_back(&nested);
      }
    }
  }
  std::string_view name = op.name;
  std::vector<hlo::Attribute> attributes;
  std::string opcode;
  if (startsWith(name, "stablehlo.") || startsWith(name, "mhlo.")) {
    opcode = std::string(name.substr(name.find('.') + 1));
    std::replace(opcode.begin(), opcode.end(), '_', '-');
    static const std::map<std::string_view, std::string_view> renamed = {
        {"dot-general", "dot"},
        {"broadcast-in-dim", "broadcast"},
        {"optimization-barrier", "opt-barrier"},
        {"create-token", "after-all"},
        {"dynamic-broadcast-in-dim", "broadcast"},
        {"bitcast-convert", "bitcast-convert"}};
    auto found = renamed.find(opcode);
    if (found != renamed.end())
      opcode = std::string(found->second);
  } else if (startsWith(name, "chlo.") || startsWith(name, "sdy.")) {
    opcode = std::string(name);
  } else {
    // Unknown: later stages take it to touch every domain.
    opcode = "custom-call";
    attributes.push_back(
        {"custom_call_target", keep("\"" + std::string(name) + "\"")});
  }
  if (opcode == "custom-call" && attributes.empty()) {
    std::string_view target = op.symbol.empty()
                                  ? unquote(op.attribute("call_target_name"))
                                  : op.symbol;
    attributes.push_back(
        {"custom_call_target", keep("\"" + std::string(target) + "\"")});
  }
  if (opcode == "dot") {
    std::vector<int64_t> dims = integers(op, "contracting_dims");
    std::string_view numbers = resolve(op.attribute("dot_dimension_numbers"));
    if (!numbers.empty()) {
      std::string_view text = field(numbers, "lhs_contracting_dimensions");
      for (std::string_view part : splitTopLevel(inBrackets(text))) {
        int64_t dim;
        if (readInteger(part, dim))
          dims.push_back(dim);
      }
    }
    std::string text = "{";
    for (int64_t dim : dims)
      text += (text.size() > 1 ? "," : "") +
              std::to_string(std::max<int64_t>(0, dim));
    attributes.push_back({"lhs_contracting_dims", keep(text + "}")});
  }
  if (opcode == "convolution") {
    // `[b, 0, f]x[0, i, o]->[b, 0, f]` is HLO's b0f_0io->b0f.
    std::string_view text = resolve(op.attribute("dim_numbers"));
    if (text.empty())
      text = resolve(op.attribute("dimension_numbers"));
    size_t from = text.find('[');
    std::string labels;
    if (from == std::string_view::npos)
      from = text.size();
    for (char c : text.substr(from)) {
      if (c == 'x')
        labels += '_';
      else if (c != '[' && c != ']' && c != ',' && c != ' ')
        labels += c;
    }
    size_t arrow = labels.find("->");
    if (arrow != std::string::npos && labels.back() == '>')
      labels.pop_back(); // the attribute's own bracket
    attributes.push_back({"dim_labels", keep(std::move(labels))});
  }
  std::string_view payload;
  if (opcode == "constant") {
    // `dense<4> : tensor<i32>`, or `<4>` of the custom form: HLO writes the
    // numbers alone. Longer constants are not looked at.
    payload = resolve(op.attribute("value"));
    payload.remove_prefix(std::min(payload.find('<'), payload.size()));
    payload = payload.substr(0, payload.find('>'));
    payload.remove_prefix(std::min<size_t>(1, payload.size()));
    payload = trim(payload);
    if (payload.size() > 1 && payload.front() == '[' && payload.back() == ']')
      payload = payload.substr(1, payload.size() - 2);
  }
  if (opcode == "compare") {
    // `#stablehlo<comparison_direction LT>`, or the bare word.
    std::string_view direction =
        trim(resolve(op.attribute("comparison_direction")));
    if (!direction.empty() && direction.back() == '>')
      direction.remove_suffix(1);
    direction.remove_prefix(direction.rfind(' ') == std::string_view::npos
                                ? 0
                                : direction.rfind(' ') + 1);
    attributes.push_back({"direction", direction});
  }
  if (std::string_view sharding =
          unquote(resolve(op.attribute("mhlo.sharding")));
      !sharding.empty())
    attributes.push_back({"sharding", sharding});
  uint32_t made = add(scope, op, keep(std::move(opcode)), resultShape(op),
                      std::move(operands));
  list(scope)[made].attributes = std::move(attributes);
  if (!payload.empty())
    list(scope)[made].payload = payload;
  define(scope, op, made);
  // A constraint is where a partitioner changes how a value is sharded.
  if (!scope.manual && !meshes.empty() &&
      (!startsWith(name, "sdy.") || name == "sdy.sharding_constraint" ||
       name == "sdy.reshard"))
    ++notes.globalOperations;
}

void Reader::convert(Scope &scope, const Op &op) {
  std::string_view name = op.name;
  static const std::map<std::string_view, std::string_view> collectives = {
      {"stablehlo.all_reduce", "all-reduce"},
      {"stablehlo.all_gather", "all-gather"},
      {"stablehlo.reduce_scatter", "reduce-scatter"},
      {"stablehlo.all_to_all", "all-to-all"},
      {"stablehlo.collective_permute", "collective-permute"},
      {"stablehlo.collective_broadcast", "collective-broadcast"}};
  auto found = collectives.find(name);
  if (found != collectives.end())
    return collective(scope, op, found->second);
  if (name == "stablehlo.custom_call" &&
      (op.symbol == "ragged_all_to_all" ||
       unquote(op.attribute("call_target_name")) == "ragged_all_to_all")) {
    // As JAX writes it: StableHLO has no operation of that kind.
    Op call = op;
    for (hlo::Attribute attribute :
         parseDictionary(resolve(op.attribute("backend_config")))) {
      if (attribute.name == "channel_id")
        attribute.value =
            trim(attribute.value.substr(0, attribute.value.find(':')));
      call.attributes.push_back(attribute);
    }
    return collective(scope, call, "ragged-all-to-all");
  }
  if (name == "stablehlo.collective_reduce")
    fail(op, "is not supported; use all_reduce, or reduce_scatter where parts "
             "suffice");
  if (name == "stablehlo.send" || name == "stablehlo.recv")
    return transfer(scope, op);
  if (name == "stablehlo.async_start")
    return async(scope, op);
  if (name == "stablehlo.async_done") {
    std::vector<uint32_t> operands = operandsOf(scope, op);
    return define(scope, op,
                  add(scope, op, "async-done", resultShape(op), operands));
  }
  if (name == "stablehlo.while")
    return whileLoop(scope, op);
  if (name == "stablehlo.if" || name == "stablehlo.case")
    return conditional(scope, op);
  if (name == "sdy.manual_computation")
    return manual(scope, op);
  if (name == "call" || name == "func.call") {
    std::vector<uint32_t> operands = operandsOf(scope, op);
    uint32_t computation = callee(op, scope.manual);
    uint32_t made =
        add(scope, op, "call", resultShape(op), std::move(operands));
    attach(scope, made, "to_apply", computation);
    return define(scope, op, made);
  }
  if (name == "sdy.named_computation") {
    if (op.regions.size() != 1)
      fail(op, "needs one region");
    std::vector<uint32_t> operands = operandsOf(scope, op);
    Names outside;
    captures(op.regions.front(), outside);
    std::vector<hlo::Shape> shapes;
    for (auto &[value, part] : outside)
      operands.push_back(use(scope, op, value, part));
    for (uint32_t operand : operands)
      shapes.push_back(list(scope)[operand].shape);
    uint32_t packed =
        add(scope, op, "tuple", tuple(std::move(shapes)), std::move(operands));
    uint32_t computation = tupleRegion(scope, op, op.regions.front(), outside,
                                       "named", false, scope.manual);
    uint32_t made = add(scope, op, "call", resultShape(op), {packed});
    attach(scope, made, "to_apply", computation);
    return define(scope, op, made);
  }
  for (std::string_view kind :
       {"sdy.all_reduce", "sdy.all_gather", "sdy.all_slice", "sdy.all_to_all",
        "sdy.reduce_scatter", "sdy.collective_permute",
        "sdy.sharded_to_unreduced"})
    if (name == kind)
      fail(op, "has global shapes: what a device sends is not known yet; "
               "export the module "
               "after Shardy's conversion to local shapes");
  compute(scope, op);
}

} // namespace concord::stablehlo::detail

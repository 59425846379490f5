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

#include "concord/stablehlo/Reader.h"

#include "Syntax.h"

#include <algorithm>
#include <set>

namespace concord::stablehlo {

static bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

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

namespace {

using Groups = std::vector<std::vector<int64_t>>;

/// Named axes; ranks are row-major over them unless `devices` says otherwise.
struct Mesh {
  std::vector<std::pair<std::string_view, int64_t>> axes;
  std::vector<int64_t> devices;
};

class Reader {
public:
  Reader(hlo::Module &module, Notes &notes) : module(module), notes(notes) {}
  void run();

private:
  /// A value: an instruction, or one element of its tuple.
  struct Ref {
    uint32_t instruction = 0;
    int64_t element = -1;
  };
  /// What a computation sees while it is built.
  struct Scope {
    uint32_t computation = 0;
    std::map<std::pair<std::string_view, uint32_t>, Ref> values;
    std::map<std::pair<uint32_t, int64_t>, uint32_t> elements; ///< made already
    bool manual = false; ///< at the view of one device
  };
  using Names = std::vector<std::pair<std::string_view, uint32_t>>;

  [[noreturn]] void fail(const Op &op, const std::string &what) const {
    throw hlo::Error(module.locate(op.begin) + ": " + std::string(op.name) +
                     ": " + what);
  }
  std::string_view keep(std::string text) {
    module.derived->push_back(std::move(text));
    return module.derived->back();
  }
  std::string_view resolve(std::string_view value) const {
    for (unsigned i = 0;
         i < 8 && !value.empty() && (value[0] == '#' || value[0] == '!'); ++i) {
      auto found = file.aliases.find(value);
      if (found == file.aliases.end())
        break;
      value = found->second;
    }
    return value;
  }

  void collect(const Region &region);
  hlo::Shape shapeOf(const Op &op, std::string_view type);
  hlo::Shape tuple(std::vector<hlo::Shape> elements) {
    hlo::Shape shape;
    shape.kind = hlo::Shape::Kind::Tuple;
    shape.elements = std::move(elements);
    return shape;
  }
  std::vector<int64_t> integers(const Op &op, std::string_view key);
  int64_t integer(const Op &op, std::string_view key, int64_t otherwise);

  uint32_t add(Scope &scope, const Op &op, std::string_view opcode,
               hlo::Shape shape, std::vector<uint32_t> operands);
  std::vector<hlo::Instruction> &list(Scope &scope) {
    return module.computations[scope.computation].instructions;
  }
  uint32_t use(Scope &scope, const Op &op, std::string_view name,
               uint32_t part);
  std::vector<uint32_t> operandsOf(Scope &scope, const Op &op);
  void define(Scope &scope, const Op &op, uint32_t instruction);
  hlo::Shape resultShape(const Op &op);
  std::vector<std::string_view> resultTypes(const Op &op);

  void captures(const Region &region, Names &found) const;
  uint32_t beginComputation(std::string name);
  void endComputation(Scope &scope, const Op &op, std::vector<uint32_t> results,
                      bool packed);
  uint32_t tupleRegion(Scope &outer, const Op &op, const Region &region,
                       const Names &outside, const std::string &name,
                       bool passOn, bool manual);
  uint32_t plainRegion(const Op &op, const Region &region,
                       const std::string &name);
  uint32_t callee(const Op &op, bool manual);
  uint32_t function(const Op &op, bool manual);
  void attach(Scope &scope, uint32_t instruction, std::string_view key,
              uint32_t computation);

  std::vector<uint32_t> body(Scope &scope, const Region &region,
                             const Op &parent);
  void convert(Scope &scope, const Op &op);
  void collective(Scope &scope, const Op &op, std::string_view opcode);
  void transfer(Scope &scope, const Op &op);
  void async(Scope &scope, const Op &op);
  void whileLoop(Scope &scope, const Op &op);
  void conditional(Scope &scope, const Op &op);
  void manual(Scope &scope, const Op &op);
  void compute(Scope &scope, const Op &op);

  Mesh readMesh(const Op &op, std::string_view text);
  Groups meshGroups(const Op &op, std::string_view text);
  std::string partsText(std::string_view sharding);
  void attachParts(Scope &scope, uint32_t instruction,
                   std::string_view sharding) {
    std::string parts = partsText(sharding);
    if (!parts.empty())
      list(scope)[instruction].attributes.push_back(
          {"parts", keep(std::move(parts))});
  }
  std::string groupsText(const Op &op, std::string_view key);
  Groups denseGroups(const Op &op, std::string_view text);

  hlo::Module &module;
  Notes &notes;
  File file;
  std::map<std::string_view, const Op *> functions;
  /// Functions at the view of the whole program, or of one device.
  std::map<std::pair<std::string_view, bool>, uint32_t> built;
  std::set<std::string_view> building;
  std::map<std::string_view, Mesh> meshes;
  std::set<std::string> names; ///< of computations
};

} // namespace

//===----------------------------------------------------------------------===//
// Types and attributes
//===----------------------------------------------------------------------===//

hlo::Shape Reader::shapeOf(const Op &op, std::string_view type) {
  type = resolve(trim(type));
  hlo::Shape shape;
  if (startsWith(type, "!stablehlo.token") || startsWith(type, "!mhlo.token")) {
    shape.kind = hlo::Shape::Kind::Token;
    return shape;
  }
  if (startsWith(type, "tuple<")) {
    std::vector<hlo::Shape> elements;
    for (std::string_view element :
         splitTopLevel(type.substr(6, type.size() - 7)))
      elements.push_back(shapeOf(op, element));
    return tuple(std::move(elements));
  }
  if (!startsWith(type, "tensor<")) {
    shape.kind = hlo::Shape::Kind::Opaque;
    return shape;
  }
  std::string_view inside = type.substr(7, type.size() - 8);
  std::vector<std::string_view> parts = splitTopLevel(inside);
  if (parts.empty())
    fail(op, "has the type '" + std::string(type) + "'");
  std::string_view element = parts.front(); // without an encoding
  while (!element.empty() &&
         (element[0] == '?' || (element[0] >= '0' && element[0] <= '9'))) {
    size_t x = element.find('x');
    if (x == std::string_view::npos)
      break;
    std::string_view extent = element.substr(0, x);
    int64_t value = -1;
    if (extent != "?") {
      if (extent.size() > 15)
        fail(op, "has the extent " + std::string(extent));
      value = 0;
      for (char c : extent)
        value = c >= '0' && c <= '9' ? value * 10 + (c - '0') : -1;
      if (value < 0)
        fail(op, "has the extent '" + std::string(extent) + "'");
    }
    shape.dims.push_back(value);
    element.remove_prefix(x + 1);
  }
  element = resolve(element);
  std::string name;
  if (element == "i1")
    name = "pred";
  else if (element == "complex<f32>")
    name = "c64";
  else if (element == "complex<f64>")
    name = "c128";
  else if (element == "index")
    name = "s64";
  else if (startsWith(element, "ui"))
    name = "u" + std::string(element.substr(2));
  else if (startsWith(element, "si"))
    name = "s" + std::string(element.substr(2));
  else if (startsWith(element, "i"))
    name = "s" + std::string(element.substr(1));
  else
    for (char c : element)
      name += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (hlo::elementBits(name) == 0)
    fail(op, "has the element type '" + std::string(element) +
                 "', which is not supported");
  shape.element = keep(std::move(name));
  return shape;
}

/// An unsigned or signed number, with an optional ` : i64`.
static bool readInteger(std::string_view text, int64_t &value) {
  text = trim(text.substr(0, text.find(':')));
  bool negative = !text.empty() && text[0] == '-';
  if (negative)
    text.remove_prefix(1);
  if (text.empty() || text.size() > 18)
    return false;
  value = 0;
  for (char c : text) {
    if (c < '0' || c > '9')
      return false;
    value = value * 10 + (c - '0');
  }
  if (negative)
    value = -value;
  return true;
}

int64_t Reader::integer(const Op &op, std::string_view key, int64_t otherwise) {
  std::string_view text = resolve(op.attribute(key));
  if (text.empty())
    return otherwise;
  int64_t value;
  if (!readInteger(text, value))
    fail(op, "has no integer for " + std::string(key));
  return value;
}

/// `array<i64: 1, 0>`, `[1, 0]`, `dense<[1, 0]> : tensor<2xi64>`.
std::vector<int64_t> Reader::integers(const Op &op, std::string_view key) {
  std::string_view text = resolve(op.attribute(key));
  std::vector<int64_t> values;
  size_t from = text.find(startsWith(text, "array<") ? ':' : '[');
  if (from == std::string_view::npos)
    return values;
  size_t to = text.find_first_of("]>", from);
  for (std::string_view part :
       splitTopLevel(text.substr(from + 1, to - from - 1))) {
    int64_t value;
    if (!readInteger(part, value))
      fail(op, "has no list of integers for " + std::string(key));
    values.push_back(value);
  }
  return values;
}

/// What `key = ` names inside an attribute, or nothing: `<a = 1, b = [2]>`.
static std::string_view field(std::string_view text, std::string_view key) {
  size_t open = text.find('<');
  if (open == std::string_view::npos || text.back() != '>')
    return {};
  for (const hlo::Attribute &part :
       parseDictionary(text.substr(open + 1, text.size() - open - 2)))
    if (part.name == key)
      return part.value;
  return {};
}

/// A quoted string's inside.
static std::string_view unquote(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return text.substr(1, text.size() - 2);
  return text;
}

static std::string_view inBrackets(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    return text.substr(1, text.size() - 2);
  return {};
}

/// `dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>`, a splat, or bytes in
/// hexadecimal.
Groups Reader::denseGroups(const Op &op, std::string_view text) {
  size_t colon = text.rfind(": tensor<");
  if (!startsWith(text, "dense<") || colon == std::string_view::npos)
    fail(op,
         "has groups that are neither a dense attribute nor axes of a mesh: '" +
             std::string(text.substr(0, 80)) + "'");
  hlo::Shape shape = shapeOf(op, trim(text.substr(colon + 2)));
  if (shape.dims.size() != 2 || shape.element != "s64")
    fail(op, "has groups that are no matrix of i64");
  uint64_t count = shape.numElements();
  if (count > static_cast<uint64_t>(hlo::kMaxRanks))
    fail(op, "names more than " + std::to_string(hlo::kMaxRanks) + " ranks");
  std::string_view value = trim(text.substr(6, text.rfind('>', colon) - 6));
  std::vector<int64_t> flat;
  if (startsWith(value, "\"0x")) {
    std::string_view digits = value.substr(3, value.size() - 4);
    auto nibble = [&](char c) -> uint64_t {
      if (c >= '0' && c <= '9')
        return static_cast<uint64_t>(c - '0');
      char lower = static_cast<char>(c | 32);
      if (lower >= 'a' && lower <= 'f')
        return static_cast<uint64_t>(lower - 'a' + 10);
      fail(op, "has bytes that are not hexadecimal");
    };
    if (digits.size() != count * 16 && digits.size() != 16)
      fail(op, "has bytes for another number of ranks than its type");
    for (size_t i = 0; i + 16 <= digits.size(); i += 16) {
      uint64_t number = 0;
      for (size_t byte = 8; byte-- > 0;)
        number = number << 8 | nibble(digits[i + 2 * byte]) << 4 |
                 nibble(digits[i + 2 * byte + 1]);
      flat.push_back(static_cast<int64_t>(number));
    }
  } else {
    size_t at = 0;
    while (at < value.size()) {
      size_t from = value.find_first_of("-0123456789", at);
      if (from == std::string_view::npos)
        break;
      at = std::min(value.find_first_not_of("-0123456789", from), value.size());
      int64_t number;
      if (!readInteger(value.substr(from, at - from), number))
        fail(op, "has a group that is no list of ranks");
      flat.push_back(number);
    }
  }
  if (flat.size() == 1 && count > 1)
    flat.assign(count, flat.front());
  if (flat.size() != count)
    fail(op, "has groups of another size than their type");
  Groups groups;
  for (int64_t row = 0; row < shape.dims[0]; ++row) {
    groups.emplace_back();
    for (int64_t column = 0; column < shape.dims[1]; ++column) {
      int64_t rank = flat[static_cast<size_t>(row * shape.dims[1] + column)];
      if (rank < -1 || rank > hlo::kMaxRanks)
        fail(op, "names the rank " + std::to_string(rank));
      if (rank >= 0) // -1 fills up rows of unequal length
        groups.back().push_back(rank);
    }
  }
  return groups;
}

/// `<["x"=2, "y"=4], device_ids=[...]>` of sdy, or stablehlo's with named
/// fields.
Mesh Reader::readMesh(const Op &op, std::string_view text) {
  text = resolve(trim(text));
  Mesh mesh;
  auto addAxis = [&](std::string_view name, std::string_view size) {
    int64_t extent;
    if (!readInteger(size, extent) || extent < 1 || extent > hlo::kMaxRanks)
      fail(op, "has the mesh axis '" + std::string(name) + "' without a size");
    mesh.axes.push_back({unquote(name), extent});
  };
  std::string_view devices;
  std::string_view axes = field(text, "axes");
  if (!axes.empty()) {
    for (std::string_view axis : splitTopLevel(inBrackets(axes)))
      addAxis(field(axis, "name"), field(axis, "size"));
    devices = field(text, "device_ids");
  } else {
    size_t open = text.find('<');
    if (open == std::string_view::npos || text.back() != '>')
      fail(op, "has a mesh that cannot be read: '" +
                   std::string(text.substr(0, 80)) + "'");
    for (std::string_view part :
         splitTopLevel(text.substr(open + 1, text.size() - open - 2))) {
      if (!part.empty() && part.front() == '[')
        for (std::string_view axis : splitTopLevel(inBrackets(part))) {
          size_t equal = axis.rfind('=');
          addAxis(axis.substr(0, equal), equal == std::string_view::npos
                                             ? std::string_view()
                                             : axis.substr(equal + 1));
        }
      else if (startsWith(part, "device_ids"))
        devices = trim(part.substr(part.find('=') + 1));
    }
  }
  int64_t total = 1;
  for (auto &[name, extent] : mesh.axes) {
    if (total > hlo::kMaxRanks / extent)
      fail(op, "has a mesh of more than " + std::to_string(hlo::kMaxRanks) +
                   " devices");
    total *= extent;
  }
  if (!devices.empty()) {
    size_t from = devices.find('['), to = devices.find(']');
    for (std::string_view id : splitTopLevel(
             from == std::string_view::npos || to == std::string_view::npos
                 ? std::string_view()
                 : devices.substr(from + 1, to - from - 1))) {
      int64_t number;
      if (!readInteger(id, number) || number < 0 || number >= hlo::kMaxRanks)
        fail(op, "has a mesh with the device '" + std::string(id) + "'");
      mesh.devices.push_back(number);
    }
    if (!mesh.axes.empty() &&
        static_cast<int64_t>(mesh.devices.size()) != total)
      fail(op, "has a mesh of " + std::to_string(total) +
                   " devices that lists " +
                   std::to_string(mesh.devices.size()));
  }
  return mesh;
}

/// Rows of the mesh transposed to [other axes in mesh order, then the chosen
/// ones as listed], mapped through the device ids.
static Groups groupsAlong(const Mesh &mesh, const std::vector<size_t> &chosen) {
  std::vector<size_t> order;
  for (size_t i = 0; i < mesh.axes.size(); ++i)
    if (!std::count(chosen.begin(), chosen.end(), i))
      order.push_back(i);
  order.insert(order.end(), chosen.begin(), chosen.end());
  std::vector<int64_t> stride(mesh.axes.size(), 1);
  for (size_t i = mesh.axes.size(); i-- > 1;)
    stride[i - 1] = stride[i] * mesh.axes[i].second;
  int64_t total = 1, size = 1;
  for (auto &axis : mesh.axes)
    total *= axis.second;
  for (size_t axis : chosen)
    size *= mesh.axes[axis].second;
  Groups groups(static_cast<size_t>(total / size));
  std::vector<int64_t> index(order.size(), 0);
  for (int64_t i = 0; i < total; ++i) {
    int64_t rank = 0;
    for (size_t k = 0; k < order.size(); ++k)
      rank += index[k] * stride[order[k]];
    groups[static_cast<size_t>(i / size)].push_back(
        mesh.devices.empty() ? rank : mesh.devices[static_cast<size_t>(rank)]);
    for (size_t k = order.size(); k-- > 0;) {
      if (++index[k] < mesh.axes[order[k]].second)
        break;
      index[k] = 0;
    }
  }
  return groups;
}

/// The groups of a collective that names axes of a mesh.
Groups Reader::meshGroups(const Op &op, std::string_view text) {
  std::string_view which = resolve(field(text, "mesh"));
  Mesh mesh;
  if (startsWith(which, "@")) {
    auto found = meshes.find(which.substr(1));
    if (found == meshes.end())
      fail(op, "refers to the mesh " + std::string(which) +
                   ", which is not defined");
    mesh = found->second;
  } else {
    mesh = readMesh(op, which);
  }
  std::vector<size_t> chosen;
  for (std::string_view axis : splitTopLevel(inBrackets(field(text, "axes")))) {
    if (!field(axis, "sub_axis_info").empty())
      fail(
          op,
          "names part of a mesh axis, which is not supported; name whole axes");
    std::string_view name = unquote(field(axis, "name"));
    size_t at = 0;
    while (at < mesh.axes.size() && mesh.axes[at].first != name)
      ++at;
    if (at == mesh.axes.size() || std::count(chosen.begin(), chosen.end(), at))
      fail(op, "names the axis '" + std::string(name) +
                   "', which its mesh has not, or twice");
    chosen.push_back(at);
  }
  return groupsAlong(mesh, chosen);
}

static std::string spelled(const Groups &groups) {
  std::string out = "{";
  for (const std::vector<int64_t> &group : groups) {
    out += out.size() > 1 ? ",{" : "{";
    for (size_t i = 0; i < group.size(); ++i)
      out += (i ? "," : "") + std::to_string(group[i]);
    out += "}";
  }
  return out + "}";
}

/// Whether a sharding of sdy lets devices hold different values.
static bool namesAxis(std::string_view sharding) {
  return sharding.find("{\"") != std::string_view::npos ||
         sharding.find("unreduced") != std::string_view::npos;
}

/// The devices that hold the same part under `<@mesh, [{"x"}, {}], ...>`, one
/// group for each part, in HLO's spelling; empty when the mesh is not known. An
/// axis of which a part is named counts as a whole.
std::string Reader::partsText(std::string_view sharding) {
  size_t at = sharding.find('@');
  if (at == std::string_view::npos)
    return "";
  std::string_view name = sharding.substr(at + 1);
  name = unquote(trim(name.substr(0, name.find_first_of(",> "))));
  auto found = meshes.find(name);
  if (found == meshes.end() || found->second.axes.empty())
    return "";
  const Mesh &mesh = found->second;
  // What is said to be replicated explicitly does not tell parts apart.
  std::string split(sharding);
  size_t copies = split.find("replicated={");
  if (copies != std::string::npos)
    split.erase(copies, split.find('}', copies) - copies);
  std::vector<size_t> same;
  for (size_t axis = 0; axis < mesh.axes.size(); ++axis)
    if (split.find("\"" + std::string(mesh.axes[axis].first) + "\"") ==
        std::string::npos)
      same.push_back(axis);
  return spelled(groupsAlong(mesh, same));
}

/// Groups or pairs in HLO's spelling.
std::string Reader::groupsText(const Op &op, std::string_view key) {
  std::string_view text = resolve(op.attribute(key));
  if (text.empty())
    return "";
  Groups groups = text.find("replica_group_mesh_axes") != std::string_view::npos
                      ? meshGroups(op, text)
                      : denseGroups(op, text);
  return spelled(groups);
}

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

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

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

hlo::Module parse(std::string text, const std::string &path, Notes &notes) {
  hlo::Module module;
  if (text.size() > UINT32_MAX)
    throw hlo::Error(path + ":1:1: is larger than 4 GiB");
  module.text = std::make_shared<const std::string>(std::move(text));
  module.derived = std::make_shared<std::deque<std::string>>();
  module.path = path;
  Reader(module, notes).run();
  return module;
}

} // namespace concord::stablehlo

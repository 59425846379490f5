//===- Types.cpp - Types, groups and shardings of StableHLO text ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Convert.h"

#include <algorithm>

namespace concord::stablehlo::detail {

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
bool readInteger(std::string_view text, int64_t &value) {
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

std::string_view field(std::string_view text, std::string_view key) {
  size_t open = text.find('<');
  if (open == std::string_view::npos || text.back() != '>')
    return {};
  for (const hlo::Attribute &part :
       parseDictionary(text.substr(open + 1, text.size() - open - 2)))
    if (part.name == key)
      return part.value;
  return {};
}

std::string_view unquote(std::string_view text) {
  text = trim(text);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return text.substr(1, text.size() - 2);
  return text;
}

std::string_view inBrackets(std::string_view text) {
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

bool namesAxis(std::string_view sharding) {
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

} // namespace concord::stablehlo::detail

//===- Module.cpp - Shapes, groups, costs and edits of HLO text -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What is derived from a module that was read.
//
//===----------------------------------------------------------------------===//

#include "concord/hlo/Module.h"

#include <algorithm>
#include <map>

namespace concord::hlo {

static uint64_t saturatingMul(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

static uint64_t saturatingAdd(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_add_overflow(a, b, &result) ? UINT64_MAX : result;
}

uint32_t elementBits(std::string_view element) {
  if (element == "pred")
    return 8; // one byte each
  if (element == "bf16")
    return 16;
  if (element == "c64")
    return 64;
  if (element == "c128")
    return 128;
  if (element.size() < 2)
    return 0;
  std::string_view digits = element.substr(1);
  if (element[0] == 's' || element[0] == 'u') {
    for (uint32_t bits : {1, 2, 4, 8, 16, 32, 64})
      if (digits == std::to_string(bits))
        return bits;
    return 0;
  }
  if (element[0] != 'f')
    return 0;
  if (digits == "16" || digits == "32" || digits == "64")
    return digits == "16" ? 16 : digits == "32" ? 32 : 64;
  for (std::string_view small : {"8e5m2", "8e4m3", "8e4m3fn", "8e4m3b11fnuz",
                                 "8e4m3fnuz", "8e5m2fnuz", "8e3m4", "8e8m0fnu"})
    if (digits == small)
      return 8;
  return digits == "4e2m1fn" ? 4 : 0;
}

uint64_t Shape::numElements() const {
  if (kind != Kind::Array)
    return 0;
  uint64_t count = 1;
  for (int64_t extent : dims)
    count =
        saturatingMul(count, extent < 0 ? 1 : static_cast<uint64_t>(extent));
  return count;
}

uint64_t Shape::numBytes() const {
  if (kind == Kind::Array) {
    uint64_t bits = saturatingMul(numElements(), elementBits(element));
    return bits / 8 + (bits % 8 != 0);
  }
  uint64_t total = 0;
  for (const Shape &part : elements)
    total = saturatingAdd(total, part.numBytes());
  return total;
}

template <typename List>
static std::string_view lookUp(const List &attributes, std::string_view key) {
  for (const Attribute &attribute : attributes)
    if (attribute.name == key)
      return attribute.value;
  return {};
}

std::string_view Instruction::attribute(std::string_view key) const {
  return lookUp(attributes, key);
}
std::string_view Module::attribute(std::string_view key) const {
  return lookUp(attributes, key);
}

uint32_t Module::find(std::string_view computation) const {
  for (uint32_t i = 0; i < computations.size(); ++i)
    if (computations[i].name == computation)
      return i;
  return kNone;
}

std::string Module::locate(size_t offset) const {
  std::string_view before = std::string_view(*text).substr(0, offset);
  size_t line =
      1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  size_t start = before.rfind('\n');
  size_t column = start == std::string_view::npos ? before.size() + 1
                                                  : before.size() - start;
  return path + ":" + std::to_string(line) + ":" + std::to_string(column);
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

namespace {

/// Numbers and punctuation of a short text.
struct Cursor {
  std::string_view rest;
  void blanks() {
    while (!rest.empty() && (rest[0] == ' ' || rest[0] == '\n' ||
                             rest[0] == '\t' || rest[0] == '\r'))
      rest.remove_prefix(1);
  }
  bool accept(std::string_view what) {
    blanks();
    if (rest.substr(0, what.size()) != what)
      return false;
    rest.remove_prefix(what.size());
    return true;
  }
  int64_t number(std::string_view all) {
    blanks();
    int64_t value = 0;
    size_t used = 0;
    while (used < rest.size() && rest[used] >= '0' && rest[used] <= '9' &&
           used < 18)
      value = value * 10 + (rest[used++] - '0');
    if (used == 0 || used == 18)
      throw Error("expected a number in '" + std::string(all.substr(0, 80)) +
                  "'");
    rest.remove_prefix(used);
    return value;
  }
  std::vector<int64_t> list(std::string_view open, std::string_view close,
                            std::string_view all) {
    std::vector<int64_t> values;
    if (!accept(open))
      throw Error("expected '" + std::string(open) + "' in '" +
                  std::string(all.substr(0, 80)) + "'");
    while (!accept(close)) {
      if (!values.empty() && !accept(","))
        throw Error("expected ',' in '" + std::string(all.substr(0, 80)) + "'");
      values.push_back(number(all));
      if (values.size() > static_cast<size_t>(kMaxRanks))
        throw Error("more than " + std::to_string(kMaxRanks) +
                    " numbers in a list");
    }
    return values;
  }
};

} // namespace

std::vector<int64_t> parseIntegers(std::string_view text) {
  Cursor cursor{text};
  std::vector<int64_t> values = cursor.list("{", "}", text);
  cursor.blanks();
  if (!cursor.rest.empty())
    throw Error("unexpected text after '" + std::string(text.substr(0, 80)) +
                "'");
  return values;
}

static int64_t boundedProduct(const std::vector<int64_t> &extents) {
  int64_t product = 1;
  for (int64_t extent : extents) {
    if (extent < 1 || extent > kMaxRanks || product > kMaxRanks / extent)
      throw Error("replica groups name no rank, or more than " +
                  std::to_string(kMaxRanks));
    product *= extent;
  }
  return product;
}

/// The numbers 0..n-1 in the shape `dims`, transposed by `perm`, in row-major
/// order.
static std::vector<int64_t> transposed(const std::vector<int64_t> &dims,
                                       const std::vector<size_t> &perm) {
  std::vector<int64_t> stride(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;)
    stride[i - 1] = stride[i] * dims[i];
  std::vector<int64_t> numbers(static_cast<size_t>(boundedProduct(dims)));
  std::vector<int64_t> index(dims.size(), 0);
  for (int64_t &number : numbers) {
    for (size_t k = 0; k < perm.size(); ++k)
      number += index[k] * stride[perm[k]];
    for (size_t k = perm.size(); k-- > 0;) {
      if (++index[k] < dims[perm[k]])
        break;
      index[k] = 0;
    }
  }
  return numbers;
}

/// `[dims]` with or without `T(perm)`.
static std::vector<int64_t> iota(Cursor &cursor, int64_t total,
                                 std::string_view text) {
  std::vector<int64_t> dims = cursor.list("[", "]", text);
  if (dims.empty() || dims.size() > 32 || boundedProduct(dims) != total)
    throw Error("'" + std::string(text.substr(0, 80)) +
                "' reshapes a different number of ranks");
  std::vector<size_t> perm;
  if (cursor.accept("T")) {
    for (int64_t axis : cursor.list("(", ")", text))
      perm.push_back(static_cast<size_t>(axis));
  } else {
    for (size_t i = 0; i < dims.size(); ++i)
      perm.push_back(i);
  }
  std::vector<bool> seen(dims.size(), false);
  bool bad = perm.size() != dims.size();
  for (size_t axis : perm) {
    bad = bad || axis >= dims.size() || seen[axis];
    if (bad)
      break;
    seen[axis] = true;
  }
  if (bad)
    throw Error("'" + std::string(text.substr(0, 80)) + "' is no permutation");
  return transposed(dims, perm);
}

static void expectEnd(Cursor &cursor, std::string_view text) {
  cursor.blanks();
  if (!cursor.rest.empty())
    throw Error("unexpected text after '" + std::string(text.substr(0, 80)) +
                "'");
}

static std::vector<std::vector<int64_t>>
rowsOf(const std::vector<int64_t> &numbers, size_t width) {
  std::vector<std::vector<int64_t>> rows;
  for (size_t i = 0; i < numbers.size(); i += width)
    rows.emplace_back(numbers.begin() + static_cast<ptrdiff_t>(i),
                      numbers.begin() + static_cast<ptrdiff_t>(i + width));
  return rows;
}

/// `[G,S]<=[dims]T(perm)`, as G groups of S.
static std::vector<std::vector<int64_t>> iotaGroups(std::string_view text) {
  Cursor cursor{text};
  std::vector<int64_t> shape = cursor.list("[", "]", text);
  if (shape.size() != 2)
    throw Error("replica groups have two dimensions, not those of '" +
                std::string(text.substr(0, 80)) + "'");
  int64_t total = boundedProduct(shape);
  if (!cursor.accept("<="))
    throw Error("expected '<=' in '" + std::string(text.substr(0, 80)) + "'");
  std::vector<int64_t> numbers = iota(cursor, total, text);
  expectEnd(cursor, text);
  return rowsOf(numbers, static_cast<size_t>(shape[1]));
}

/// A part of a mesh axis: `size` steps, repeated in each of `before` blocks.
struct AxisPart {
  size_t axis;
  int64_t before, size;
};

/// `mesh['x'=2,'y'=4], device_ids=(...) {'y','x':(1)2}`: groups along the axes,
/// or parts of axes, in braces, their ranks in the order in which these are
/// listed; groups in the order of what is left of the mesh.
static std::vector<std::vector<int64_t>> meshGroups(std::string_view text) {
  Cursor cursor{text};
  auto bad = [&](const std::string &why) {
    throw Error(why + " in '" + std::string(text.substr(0, 80)) + "'");
  };
  auto axisName = [&] {
    cursor.blanks();
    bool quoted = cursor.rest.substr(0, 1) == "'";
    if (quoted)
      cursor.rest.remove_prefix(1);
    size_t length = cursor.rest.find_first_of(quoted ? "'" : "=,:}] ");
    if (length == std::string_view::npos || length == 0)
      bad("expected the name of a mesh axis");
    std::string_view name = cursor.rest.substr(0, length);
    cursor.rest.remove_prefix(length + quoted);
    return name;
  };
  (void)cursor.accept("mesh");
  std::vector<std::string_view> names;
  std::vector<int64_t> sizes;
  for (bool more = cursor.accept("["); more; more = cursor.accept(",")) {
    names.push_back(axisName());
    if (!cursor.accept("="))
      bad("expected the size of a mesh axis");
    sizes.push_back(cursor.number(text));
    if (names.size() > 32)
      bad("more than 32 mesh axes");
  }
  if (names.empty() || !cursor.accept("]"))
    bad("expected the axes of a mesh");
  const int64_t total = boundedProduct(sizes);
  std::vector<int64_t> devices;
  if (cursor.accept(",")) {
    if (!cursor.accept("device_ids") || !cursor.accept("="))
      bad("expected 'device_ids='");
    cursor.blanks();
    if (cursor.rest.substr(0, 2) == "([") {
      (void)cursor.accept("(");
      devices = iota(cursor, total, text);
      if (!cursor.accept(")"))
        bad("expected ')'");
    } else {
      devices = cursor.list("(", ")", text);
    }
    if (static_cast<int64_t>(devices.size()) != total)
      bad("as many device ids as places in the mesh are wanted");
  }
  if (!cursor.accept("{"))
    bad("expected the axes of the groups in braces");
  std::vector<AxisPart> chosen;
  while (!cursor.accept("}")) {
    if (!chosen.empty() && !cursor.accept(","))
      bad("expected ','");
    std::string_view name = axisName();
    size_t axis = static_cast<size_t>(
        std::find(names.begin(), names.end(), name) - names.begin());
    if (axis == names.size())
      bad("'" + std::string(name) + "' is no axis of the mesh");
    AxisPart part{axis, 1, sizes[axis]};
    if (cursor.accept(":")) {
      if (!cursor.accept("("))
        bad("expected '('");
      part.before = cursor.number(text);
      if (!cursor.accept(")"))
        bad("expected ')'");
      part.size = cursor.number(text);
    }
    if (part.before < 1 || part.size < 1 || part.before > sizes[axis] ||
        part.size > sizes[axis] ||
        sizes[axis] % (part.before * part.size) != 0 || chosen.size() == 32)
      bad("'" + std::string(name) + "' has no such part");
    chosen.push_back(part);
  }
  expectEnd(cursor, text);
  // The mesh with its axes cut at the ends of the chosen parts.
  std::vector<int64_t> dims;
  std::vector<size_t> left, at(chosen.size(), SIZE_MAX);
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t before = 1;
    while (before < sizes[axis]) {
      int64_t next = sizes[axis];
      bool taken = false;
      for (size_t i = 0; i < chosen.size(); ++i) {
        const AxisPart &part = chosen[i];
        if (part.axis != axis || part.size == 1)
          continue;
        if (part.before == before) {
          if (taken)
            bad("an axis is named twice");
          taken = true;
          next = before * part.size;
          at[i] = dims.size();
        } else if (part.before > before && !taken) {
          next = std::min(next, part.before);
        }
      }
      if (next % before != 0)
        bad("parts of an axis overlap");
      if (!taken)
        left.push_back(dims.size());
      dims.push_back(next / before);
      before = next;
    }
  }
  std::vector<size_t> perm = left;
  int64_t width = 1;
  for (size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i].size == 1)
      continue;
    if (at[i] == SIZE_MAX)
      bad("parts of an axis overlap");
    perm.push_back(at[i]);
    width *= chosen[i].size;
  }
  if (dims.empty())
    dims.push_back(1), perm.push_back(0);
  std::vector<int64_t> ranks = transposed(dims, perm);
  if (!devices.empty())
    for (int64_t &rank : ranks)
      rank = devices[static_cast<size_t>(rank)];
  return rowsOf(ranks, static_cast<size_t>(width));
}

std::vector<std::vector<int64_t>> parseGroups(std::string_view text) {
  Cursor cursor{text};
  cursor.blanks();
  if (cursor.rest.substr(0, 1) == "[")
    return iotaGroups(cursor.rest);
  if (cursor.rest.substr(0, 5) == "mesh[")
    return meshGroups(cursor.rest);
  std::vector<std::vector<int64_t>> groups;
  size_t ranks = 0;
  if (!cursor.accept("{"))
    throw Error("replica groups begin with '{', '[' or 'mesh[', not as '" +
                std::string(text.substr(0, 80)) + "'");
  while (!cursor.accept("}")) {
    if (!groups.empty() && !cursor.accept(","))
      throw Error("expected ',' in '" + std::string(text.substr(0, 80)) + "'");
    groups.push_back(cursor.list("{", "}", text));
    ranks += groups.back().size() + 1;
    if (ranks > 2 * static_cast<size_t>(kMaxRanks))
      throw Error("replica groups name more than " + std::to_string(kMaxRanks) +
                  " ranks");
  }
  cursor.blanks();
  if (!cursor.rest.empty())
    throw Error("unexpected text after '" + std::string(text.substr(0, 80)) +
                "'");
  return groups;
}

/// The tiles of `{devices=...}`: devices in the order of their tiles, and which
/// dimensions of the tiles are copies.
static std::vector<std::vector<int64_t>> tiledParts(Cursor cursor,
                                                    std::string_view text) {
  std::vector<int64_t> tiles = cursor.list("[", "]", text);
  int64_t total = boundedProduct(tiles);
  std::vector<int64_t> devices;
  if (cursor.accept("<=")) {
    devices = iota(cursor, total, text);
  } else {
    do
      devices.push_back(cursor.number(text));
    while (cursor.accept(",") && devices.size() <= size_t(kMaxRanks));
  }
  if (static_cast<int64_t>(devices.size()) != total)
    throw Error("'" + std::string(text.substr(0, 80)) +
                "' has other tiles than devices");
  std::vector<bool> copies(tiles.size(), false);
  if (cursor.accept("last_tile_dim_replicate")) {
    if (!copies.empty())
      copies.back() = true;
  } else if (cursor.accept("last_tile_dims={")) {
    std::vector<bool> last;
    while (!cursor.accept("}")) {
      (void)cursor.accept(",");
      bool replicated = cursor.accept("replicated");
      if (!replicated && !cursor.accept("manual") &&
          !cursor.accept("unreduced") && !cursor.accept("maximal"))
        throw Error("'" + std::string(text.substr(0, 80)) +
                    "' has a kind of tile that is not known");
      last.push_back(replicated);
    }
    if (last.size() > copies.size())
      throw Error("'" + std::string(text.substr(0, 80)) +
                  "' has fewer tile dimensions than kinds");
    std::copy(last.begin(), last.end(),
              copies.end() - static_cast<ptrdiff_t>(last.size()));
  }
  std::map<int64_t, std::vector<int64_t>> parts;
  for (int64_t place = 0; place < total; ++place) {
    int64_t rest = place, part = 0, scale = 1;
    for (size_t k = tiles.size(); k-- > 0; rest /= tiles[k]) {
      if (copies[k])
        continue;
      part += rest % tiles[k] * scale;
      scale *= tiles[k];
    }
    parts[part].push_back(devices[static_cast<size_t>(place)]);
  }
  std::vector<std::vector<int64_t>> groups;
  for (auto &[part, members] : parts)
    groups.push_back(std::move(members));
  return groups;
}

std::vector<std::vector<int64_t>> sameParts(std::string_view sharding) {
  Cursor cursor{sharding};
  if (!cursor.accept("{") || !cursor.accept("devices="))
    return {};
  return tiledParts(cursor, sharding);
}

//===----------------------------------------------------------------------===//
// Cost
//===----------------------------------------------------------------------===//

/// Multiply-adds of a convolution: per result element, the kernel's spatial
/// extents times its input features; `dim_labels` says which those are.
static uint64_t convolutionFlops(const Instruction &op, const Shape &kernel) {
  std::string_view labels = op.attribute("dim_labels");
  size_t from = labels.find('_'), to = labels.find("->");
  uint64_t perElement = kernel.numElements();
  if (from != std::string_view::npos && to != std::string_view::npos &&
      from < to) {
    size_t output = labels.substr(from + 1, to - from - 1).find('o');
    if (output < kernel.dims.size() && kernel.dims[output] > 0)
      perElement /= static_cast<uint64_t>(kernel.dims[output]);
  }
  return saturatingMul(2 * std::min<uint64_t>(perElement, UINT64_MAX / 2),
                       op.shape.numElements());
}

static uint64_t flopsOf(const Computation &parent, const Instruction &op) {
  auto operand = [&](size_t i) -> const Shape & {
    return parent.instructions[op.operands[i]].shape;
  };
  std::string_view code = op.opcode;
  if (code == "dot" && op.operands.size() >= 2) {
    uint64_t contracted = 2;
    std::string_view text = op.attribute("lhs_contracting_dims");
    if (!text.empty())
      for (int64_t dim : parseIntegers(text))
        if (dim < static_cast<int64_t>(operand(0).dims.size()))
          contracted =
              saturatingMul(contracted, static_cast<uint64_t>(std::max<int64_t>(
                                            1, operand(0).dims[size_t(dim)])));
    return saturatingMul(op.shape.numElements(), contracted);
  }
  if (code == "convolution" && op.operands.size() >= 2)
    return convolutionFlops(op, operand(1));
  if ((code == "reduce" || code == "reduce-window" ||
       code == "select-and-scatter" || code == "scatter") &&
      !op.operands.empty())
    return code == "scatter" && op.operands.size() >= 3
               ? operand(2).numElements()
               : operand(0).numElements();
  static constexpr std::string_view moves[] = {"parameter",
                                               "constant",
                                               "iota",
                                               "broadcast",
                                               "reshape",
                                               "bitcast",
                                               "copy",
                                               "transpose",
                                               "slice",
                                               "concatenate",
                                               "pad",
                                               "gather",
                                               "dynamic-slice",
                                               "dynamic-update-slice",
                                               "reverse",
                                               "tuple",
                                               "get-tuple-element",
                                               "custom-call",
                                               "opt-barrier",
                                               "after-all",
                                               "infeed",
                                               "outfeed",
                                               "partition-id",
                                               "replica-id",
                                               "fusion",
                                               "call",
                                               "while",
                                               "conditional",
                                               "bitcast-convert",
                                               "domain",
                                               "optimization-barrier",
                                               "rng-get-and-update-state",
                                               "copy-start",
                                               "copy-done",
                                               "sdy.global_to_local",
                                               "sdy.local_to_global",
                                               "sdy.sharding_constraint"};
  if (std::find(std::begin(moves), std::end(moves), code) != std::end(moves))
    return 0;
  return op.shape.numElements();
}

Cost costOf(const Module &module, uint32_t computation, uint32_t instruction) {
  const Computation &parent = module.computations[computation];
  const Instruction &op = parent.instructions[instruction];
  Cost cost;
  cost.flops = flopsOf(parent, op);
  if (op.opcode == "fusion")
    for (uint32_t callee : op.called)
      for (const Instruction &inner : module.computations[callee].instructions)
        cost.flops = saturatingAdd(cost.flops,
                                   flopsOf(module.computations[callee], inner));
  if (op.opcode != "parameter" && op.opcode != "bitcast") {
    cost.bytesWritten = op.shape.numBytes();
    for (uint32_t operand : op.operands)
      cost.bytesRead = saturatingAdd(
          cost.bytesRead, parent.instructions[operand].shape.numBytes());
  }
  return cost;
}

//===----------------------------------------------------------------------===//
// Edit
//===----------------------------------------------------------------------===//

std::string addControlEdges(const Module &module,
                            const std::vector<ControlEdge> &edges) {
  const std::string &text = *module.text;
  std::map<size_t, std::string> insertions; // by byte offset
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> wanted;
  for (const ControlEdge &edge : edges)
    wanted[{edge.computation, edge.second}].push_back(edge.first);
  for (auto &[target, predecessors] : wanted) {
    const Computation &parent = module.computations[target.first];
    const Instruction &op = parent.instructions[target.second];
    std::string_view present = op.attribute("control-predecessors");
    std::vector<std::string_view> known;
    for (size_t at = 0; at < present.size();) {
      size_t from = present.find_first_not_of("{}%, \t\r\n", at);
      if (from == std::string_view::npos)
        break;
      at = std::min(present.find_first_of("{}%, \t\r\n", from), present.size());
      known.push_back(present.substr(from, at - from));
    }
    std::string added;
    for (uint32_t first : predecessors) {
      std::string_view name = parent.instructions[first].name;
      if (std::find(known.begin(), known.end(), name) != known.end())
        continue;
      known.push_back(name);
      added += (added.empty() ? "%" : ", %") + std::string(name);
    }
    if (added.empty())
      continue;
    if (present.empty()) {
      insertions[op.end] = ", control-predecessors={" + added + "}";
    } else {
      bool hadSome =
          present.find_first_not_of("{} \t") != std::string_view::npos;
      size_t brace = static_cast<size_t>(present.data() - text.data()) +
                     present.size() - 1;
      insertions[brace] = (hadSome ? ", " : "") + added;
    }
  }
  std::string result;
  result.reserve(text.size() + 64 * insertions.size());
  size_t done = 0;
  for (auto &[at, what] : insertions) {
    result.append(text, done, at - done);
    result += what;
    done = at;
  }
  result.append(text, done, std::string::npos);
  return result;
}

} // namespace concord::hlo

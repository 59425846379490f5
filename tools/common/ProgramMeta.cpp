//===- ProgramMeta.cpp - What a compiled program says of itself -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// JSON to structs, with every count bounded.
//
//===----------------------------------------------------------------------===//

#include "common/ProgramMeta.h"

#include "common/ElfFile.h"
#include "common/Files.h"
#include "concord/artefact.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

using nlohmann::json;

namespace concord::tools {

namespace {

constexpr int64_t kMaxWorld = 1 << 16;
constexpr size_t kMaxEntries = 1 << 16;

class MetaReader {
public:
  explicit MetaReader(const std::string &name) : name(name) {}

  [[noreturn]] void fail(const std::string &what) const {
    throw Error(name + ": its metadata are not usable: " + what);
  }

  const json &member(const json &object, const char *key) const {
    auto it = object.find(key);
    if (it == object.end())
      fail(std::string("'") + key + "' is missing");
    return *it;
  }

  int64_t integer(const json &value, const char *what, int64_t low,
                  int64_t high) const {
    if (!value.is_number_integer())
      fail(std::string(what) + " is not an integer");
    if (value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(high))
      fail(std::string(what) + " is out of range");
    int64_t number = value.get<int64_t>();
    if (number < low || number > high)
      fail(std::string(what) + " is " + std::to_string(number) + ", not in " +
           std::to_string(low) + ".." + std::to_string(high));
    return number;
  }

  std::string string(const json &value, const char *what) const {
    if (!value.is_string())
      fail(std::string(what) + " is not a string");
    return value.get<std::string>();
  }

  std::string optionalString(const json &object, const char *key) const {
    auto it = object.find(key);
    return it == object.end() ? std::string() : string(*it, key);
  }

  const json &array(const json &value, const char *what, size_t most) const {
    if (!value.is_array())
      fail(std::string(what) + " is not a list");
    if (value.size() > most)
      fail(std::string(what) + " has " + std::to_string(value.size()) +
           " members");
    return value;
  }

  Shape shape(const json &value, const char *what) const {
    Shape result;
    for (const json &dim : array(value, what, kMaxRank))
      result.push_back(integer(dim, what, 0, int64_t(1) << 46));
    return result;
  }

  ProgramMeta read(std::string_view text) {
    json root = json::parse(text.begin(), text.end(), nullptr, false);
    if (root.is_discarded() || !root.is_object())
      fail("not a JSON object");
    ProgramMeta meta;
    meta.abi = integer(member(root, "abi"), "'abi'", 0, INT32_MAX);
    if (meta.abi != CONCORD_ARTEFACT_ABI_VERSION)
      throw Error(name + ": compiled for artefact ABI " +
                  std::to_string(meta.abi) + ", this comm-run knows ABI " +
                  std::to_string(CONCORD_ARTEFACT_ABI_VERSION) +
                  "; compile it again with the comm-opt of this installation");
    meta.name = string(member(root, "name"), "'name'");
    meta.world = integer(member(root, "world"), "'world'", 1, kMaxWorld);
    mesh(root, meta);
    meta.targetCpu = optionalString(root, "target_cpu");
    meta.digest = optionalString(root, "digest");
    meta.weights = optionalString(root, "weights");
    if (meta.weights.find('/') != std::string::npos || meta.weights == "..")
      fail("'weights' is not a plain file name: '" + meta.weights + "'");
    meta.gate = optionalString(root, "gate");
    if (auto it = root.find("arena_bytes"); it != root.end())
      meta.arenaBytes = static_cast<uint64_t>(integer(
          *it, "'arena_bytes'", 0, static_cast<int64_t>(kMaxTensorBytes)));
    if (auto it = root.find("assumes"); it != root.end())
      for (const json &value : array(*it, "'assumes'", kMaxEntries))
        meta.assumes.push_back(string(value, "an assumption"));
    if (auto it = root.find("parameters"); it != root.end())
      for (const json &value : array(*it, "'parameters'", 1 << 22)) {
        if (!value.is_object())
          fail("a parameter is not an object");
        meta.parameterBytes += static_cast<uint64_t>(
            integer(member(value, "bytes"), "a parameter's 'bytes'", 0,
                    int64_t(1) << 40));
      }
    if (auto it = root.find("dims"); it != root.end())
      for (const json &value : array(*it, "'dims'", 64)) {
        if (!value.is_object())
          fail("a dimension is not an object");
        BoundedDim dim;
        dim.name = string(member(value, "name"), "a dimension's 'name'");
        dim.min = integer(member(value, "min"), "a dimension's 'min'", 0,
                          int64_t(1) << 46);
        dim.max = integer(member(value, "max"), "a dimension's 'max'", dim.min,
                          int64_t(1) << 46);
        meta.dims.push_back(std::move(dim));
      }
    entries(member(root, "inputs"), "'inputs'", meta, meta.inputs);
    entries(member(root, "outputs"), "'outputs'", meta, meta.outputs);
    return meta;
  }

private:
  void mesh(const json &root, ProgramMeta &meta) const {
    int64_t product = 1;
    if (auto it = root.find("mesh"); it != root.end()) {
      for (const json &axis : array(*it, "'mesh'", 16)) {
        if (!axis.is_array() || axis.size() != 2)
          fail("a mesh axis is not a pair of name and size");
        std::string axisName = string(axis[0], "a mesh axis's name");
        int64_t size = integer(axis[1], "a mesh axis's size", 1, kMaxWorld);
        for (const auto &other : meta.mesh)
          if (other.first == axisName)
            fail("the mesh has two axes '" + axisName + "'");
        meta.mesh.emplace_back(axisName, size);
        product *= size;
        if (product > kMaxWorld)
          fail("the mesh is too large");
      }
    }
    if (meta.mesh.empty() && meta.world > 1) {
      // A per-rank set of models has ranks and no axes to speak of.
      meta.mesh.emplace_back("rank", meta.world);
      product = meta.world;
    }
    if (product != meta.world)
      fail("the mesh has " + std::to_string(product) + " ranks, 'world' is " +
           std::to_string(meta.world));
  }

  void entries(const json &list, const char *what, const ProgramMeta &meta,
               std::vector<Entry> &out) const {
    std::set<std::string> seen;
    for (const json &value : array(list, what, kMaxEntries)) {
      if (!value.is_object())
        fail(std::string("a member of ") + what + " is not an object");
      out.push_back(entry(value, meta));
      if (!seen.insert(out.back().name).second)
        fail(std::string(what) + " has '" + out.back().name + "' twice");
    }
  }

  Entry entry(const json &value, const ProgramMeta &meta) const {
    Entry entry;
    entry.name = string(member(value, "name"), "an entry's 'name'");
    auto bad = [&](const std::string &text) {
      fail("entry '" + entry.name + "': " + text);
    };
    std::string dtype = string(member(value, "dtype"), "an entry's 'dtype'");
    entry.dtype = dtypeFromName(dtype);
    if (entry.dtype == DType::Invalid)
      bad("unknown dtype '" + dtype + "'");
    entry.shape = shape(member(value, "shape"), "an entry's 'shape'");
    if (!numBytes(entry.dtype, entry.shape))
      bad("shape " + shapeToString(entry.shape) + " is too large");
    if (auto it = value.find("dims"); it != value.end() && !it->empty())
      bounds(*it, entry);
    if (auto it = value.find("extents"); it != value.end()) {
      for (const json &text : array(*it, "'extents'", kMaxRank)) {
        auto extent =
            Extent::parse(string(text, "an extent"), meta.dims.size());
        if (!extent)
          bad("an extent is no polynomial of the dimensions");
        entry.extents.push_back(std::move(*extent));
      }
      if (entry.extents.size() != entry.shape.size())
        bad("'extents' and 'shape' differ in length");
    }
    const json &sharding = member(value, "sharding");
    if (!sharding.is_object())
      bad("'sharding' is not an object");
    std::string kind = string(member(sharding, "kind"), "a sharding's 'kind'");
    Shape local = entry.shape;
    if (kind == "split") {
      entry.kind = Entry::Kind::Split;
      std::set<size_t> used;
      for (const json &item :
           array(member(sharding, "splits"), "'splits'", 16)) {
        if (!item.is_object())
          bad("a split is not an object");
        Split split;
        split.dim = static_cast<size_t>(integer(
            member(item, "dim"), "a split's 'dim'", 0, int64_t(kMaxRank)));
        if (split.dim >= local.size())
          bad("a split names dimension " + std::to_string(split.dim) + " of " +
              std::to_string(local.size()));
        std::string axis = string(member(item, "axis"), "a split's 'axis'");
        while (split.axis < meta.mesh.size() &&
               meta.mesh[split.axis].first != axis)
          ++split.axis;
        if (split.axis == meta.mesh.size())
          bad("it is split over '" + axis + "', which the mesh does not have");
        if (!used.insert(split.axis).second)
          bad("it is split twice over '" + axis + "'");
        if (auto it = item.find("outer"); it != item.end())
          split.outer = integer(*it, "a split's 'outer'", 1, int64_t(1) << 46);
        int64_t size = meta.mesh[split.axis].second, &dim = local[split.dim];
        if (dim % split.outer != 0 || dim / split.outer % size != 0)
          bad("dimension " + std::to_string(split.dim) + " of size " +
              std::to_string(dim) + " does not divide into " +
              std::to_string(split.outer) + " blocks of " +
              std::to_string(size) + " parts");
        dim /= size;
        entry.splits.push_back(split);
      }
    } else if (kind == "per_rank") {
      entry.kind = Entry::Kind::PerRank;
    } else if (kind != "replicated") {
      bad("unknown sharding '" + kind + "'");
    }
    entry.localShape = local;
    if (auto it = value.find("ranks"); it != value.end()) {
      for (const json &rank : array(*it, "an entry's 'ranks'", kMaxWorld)) {
        entry.ranks.push_back(
            integer(rank, "an entry's rank", 0, meta.world - 1));
        if (entry.ranks.size() > 1 &&
            entry.ranks.back() <= entry.ranks[entry.ranks.size() - 2])
          bad("its ranks do not ascend");
      }
      if (entry.ranks.empty())
        bad("it is on no rank");
    }
    if (auto it = value.find("local_shape"); it != value.end()) {
      Shape said = shape(*it, "an entry's 'local_shape'");
      if (said != local)
        bad("'local_shape' is " + shapeToString(said) +
            ", its sharding gives " + shapeToString(local));
    }
    return entry;
  }

  /// [["1","512"], ...]: numbers, as strings or not.
  void bounds(const json &list, Entry &entry) const {
    auto number = [&](const json &value) -> int64_t {
      if (value.is_number_integer())
        return integer(value, "a bound", 0, int64_t(1) << 46);
      std::string text = string(value, "a bound");
      if (text.empty() || text.size() > 15 ||
          text.find_first_not_of("0123456789") != std::string::npos)
        fail("entry '" + entry.name + "': bound '" + text +
             "' is not a number");
      return std::stoll(text);
    };
    for (const json &pair : array(list, "'dims'", kMaxRank)) {
      if (!pair.is_array() || pair.size() != 2)
        fail("entry '" + entry.name + "': a bound is not a pair");
      entry.bounds.emplace_back(number(pair[0]), number(pair[1]));
    }
    if (entry.bounds.size() != entry.shape.size())
      fail("entry '" + entry.name + "': 'dims' and 'shape' differ in length");
  }

  const std::string &name;
};

} // namespace

bool Entry::on(int64_t rank) const {
  return ranks.empty() || std::binary_search(ranks.begin(), ranks.end(), rank);
}

std::vector<int64_t> ProgramMeta::coordinates(int64_t rank) const {
  std::vector<int64_t> result(mesh.size());
  for (size_t i = mesh.size(); i-- > 0;) {
    result[i] = rank % mesh[i].second;
    rank /= mesh[i].second;
  }
  return result;
}

void ProgramMeta::resize(Entry &entry, std::span<const int64_t> sizes) const {
  for (size_t d = 0; d < entry.extents.size(); ++d) {
    auto value = entry.extents[d].at(sizes);
    if (!value || *value < 0)
      throw Error("'" + entry.name + "': dimension " + std::to_string(d) +
                  " cannot be made for these sizes");
    entry.shape[d] = *value;
  }
  entry.localShape = entry.shape;
  for (const Split &split : entry.splits) {
    int64_t size = mesh[split.axis].second;
    int64_t &dim = entry.localShape[split.dim];
    if (dim % split.outer != 0 || dim / split.outer % size != 0)
      throw Error(
          "'" + entry.name + "': dimension " + std::to_string(split.dim) +
          " is " + std::to_string(entry.shape[split.dim]) +
          ", which the mesh axis '" + mesh[split.axis].first + "' of " +
          std::to_string(size) + " ranks does not divide into equal parts");
    dim /= size;
  }
}

ProgramMeta parseMeta(std::string_view text, const std::string &name) {
  // The section may be padded or NUL-terminated.
  text = text.substr(0, text.find('\0'));
  return MetaReader(name).read(text);
}

ProgramMeta readMeta(const std::filesystem::path &path) {
  MappedFile file(path);
  auto section = elfSection(file.bytes(), ".concord.meta", path.string());
  if (!section)
    throw Error(path.string() + ": a shared object, but not a program compiled "
                                "by comm-opt (no .concord.meta section)");
  if (section->size() > 64u << 20)
    throw Error(path.string() + ": its metadata are " +
                std::to_string(section->size()) + " bytes; damaged");
  return parseMeta(
      {reinterpret_cast<const char *>(section->data()), section->size()},
      path.string());
}

} // namespace concord::tools

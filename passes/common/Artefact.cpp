//===- Artefact.cpp - Metadata and parameters of an artefact --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Renders .concord.meta and writes the parameter file.
//
//===----------------------------------------------------------------------===//

#include "common/Artefact.h"

#include "common/Issuers.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "concord/artefact.h"
#include "concord/kernel.h"
#include "import/OnnxImport.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

#include <cstring>
#include <map>
#include <numeric>
#include <set>

using namespace mlir;

namespace concord {

//===----------------------------------------------------------------------===//
// Metadata
//===----------------------------------------------------------------------===//

static llvm::json::Array toJson(ArrayRef<int64_t> values) {
  llvm::json::Array array;
  for (int64_t value : values)
    array.push_back(value);
  return array;
}

/// Axis or domain names that one entry is split over, as artefact.h has them.
static llvm::json::Object entry(func::FuncOp function, unsigned argument,
                                bool perRank) {
  auto type = cast<MemRefType>(function.getArgument(argument).getType());
  llvm::json::Object object;
  auto name = function.getArgAttrOfType<StringAttr>(argument, "comm.name");
  object["name"] =
      name ? name.getValue().str() : "arg" + std::to_string(argument);
  object["dtype"] = std::string(dtypeName(fromMlirType(type.getElementType())));
  ArrayRef<int64_t> local = type.getShape();
  ArrayRef<int64_t> global = local;
  if (auto attr =
          function.getArgAttrOfType<DenseI64ArrayAttr>(argument, "comm.global"))
    global = attr.asArrayRef();
  object["shape"] = toJson(global);
  object["local_shape"] = toJson(local);
  object["arena_offset"] = -1;
  llvm::json::Object sharding;
  auto splits = function.getArgAttrOfType<ArrayAttr>(argument, "comm.sharding");
  if (splits && !splits.empty()) {
    sharding["kind"] = "split";
    llvm::json::Array list;
    for (auto split : splits.getAsRange<comm::SplitAttr>())
      list.push_back(
          llvm::json::Object{{"dim", split.getDim()},
                             {"axis", split.getDomain().getValue().str()},
                             {"outer", split.getOuter()}});
    sharding["splits"] = std::move(list);
  } else {
    sharding["kind"] = perRank ? "per_rank" : "replicated";
  }
  object["sharding"] = std::move(sharding);
  return object;
}

static std::string parameterName(DictionaryAttr parameter) {
  return parameter.getAs<StringAttr>("section").getValue().str();
}

static bool differsByRank(DictionaryAttr parameter) {
  return !parameter.getAs<ArrayAttr>("splits").empty() ||
         parameter.getAs<StringAttr>("file").getValue().contains("{rank}") ||
         parameter.getAs<StringAttr>("section").getValue().contains("{rank}");
}

/// Sections of one parameter used in several forms need names of their own.
static std::vector<std::string> uniqueNames(ArrayRef<Attribute> parameters) {
  std::map<std::string, int> used;
  std::vector<std::string> names;
  for (Attribute attr : parameters) {
    std::string name = parameterName(cast<DictionaryAttr>(attr));
    int count = used[name]++;
    names.push_back(count ? name + "|" + std::to_string(count) : name);
  }
  return names;
}

namespace {
/// Inputs or outputs of the whole job. An entry that programs of different
/// ranks have alike is one. Where a name comes again for something else (two
/// issuers of a rank, or other shapes), the later one is called PROGRAM.NAME.
class EntryList {
public:
  EntryList(bool perRank, bool several) : perRank(perRank), several(several) {}

  /// The entry's number among all, in order of arrival.
  int64_t add(func::FuncOp function, unsigned argument,
              const plan::Program &program) {
    llvm::json::Object object = entry(function, argument, perRank);
    std::string name = object.getString("name")->str();
    for (size_t number : numbers[name]) {
      One &one = entries[number];
      bool elsewhere = llvm::none_of(program.ranks, [&](int32_t rank) {
        return one.ranks.count(rank) != 0;
      });
      if (!elsewhere || one.described != object)
        continue;
      one.ranks.insert(program.ranks.begin(), program.ranks.end());
      return static_cast<int64_t>(number);
    }
    auto position =
        function.getArgAttrOfType<IntegerAttr>(argument, "comm.position");
    One one{object, object, {}, position ? position.getInt() : int64_t(0)};
    one.ranks.insert(program.ranks.begin(), program.ranks.end());
    if (several) {
      std::string unique = name;
      for (int count = 1; !taken.insert(unique).second; ++count)
        unique = program.name + "." + name +
                 (count > 1 ? "." + std::to_string(count) : "");
      one.object["name"] = unique;
    }
    numbers[name].push_back(entries.size());
    entries.push_back(std::move(one));
    return static_cast<int64_t>(entries.size()) - 1;
  }

  /// In the model's order, and where each number went.
  llvm::json::Array finish(std::vector<int64_t> &place) {
    std::vector<size_t> order(entries.size());
    std::iota(order.begin(), order.end(), 0);
    llvm::stable_sort(order, [&](size_t a, size_t b) {
      return entries[a].position < entries[b].position;
    });
    place.resize(entries.size());
    llvm::json::Array list;
    for (auto [at, index] : llvm::enumerate(order)) {
      place[index] = at;
      if (several)
        entries[index].object["ranks"] =
            llvm::json::Array(entries[index].ranks);
      list.push_back(std::move(entries[index].object));
    }
    return list;
  }

private:
  struct One {
    llvm::json::Object object, described; ///< with and without its new name
    std::set<int64_t> ranks;
    int64_t position;
  };
  bool perRank, several;
  std::vector<One> entries;
  std::map<std::string, std::vector<size_t>> numbers; ///< by given name
  std::set<std::string> taken;
};
} // namespace

Metadata describeArtefact(ModuleOp module,
                          std::vector<LoweredProgram> &programs,
                          const plan::Plan &plan, ArrayRef<std::string> kernels,
                          ArrayRef<Attribute> parameters,
                          llvm::json::Object predicted) {
  Metadata metadata;
  metadata.plan = plan::serialize(plan);
  for (const std::string &kernel : kernels)
    metadata.kernels += kernel + "\n";

  llvm::json::Object root;
  root["abi"] = CONCORD_ARTEFACT_ABI_VERSION;
  root["phase"] = "lowered";
  auto name = module->getAttrOfType<StringAttr>("comm.name");
  root["name"] = name ? name.getValue().str() : "model";
  root["world"] = comm::getWorld(module);
  llvm::json::Array mesh;
  if (auto attr = module->getAttrOfType<ArrayAttr>("comm.mesh"))
    for (auto axis : attr.getAsRange<ArrayAttr>())
      mesh.push_back(
          llvm::json::Array{cast<StringAttr>(axis[0]).getValue().str(),
                            cast<IntegerAttr>(axis[1]).getInt()});
  bool hasMesh = !mesh.empty();
  root["mesh"] = std::move(mesh);
  root["target_cpu"] = concord_kernel_target();
  root["digest"] = plan::toHex(plan::digest(plan));
  root["weights"] =
      parameters.empty() || !name ? "" : name.getValue().str() + ".weights";
  root["kernels"] = static_cast<int64_t>(kernels.size());
  llvm::json::Array sizes;
  for (const std::string &description : kernels) {
    concord_kernel *kernel = nullptr;
    concord_kernel_info info = {};
    info.struct_size = sizeof(info);
    if (concord_kernel_create(description.c_str(), &kernel, &info) == 0)
      concord_kernel_destroy(kernel);
    sizes.push_back(
        llvm::json::Array{info.workspace_bytes, info.packed_weight_bytes});
  }
  root["kernel_sizes"] = std::move(sizes);
  root["gate"] = severalIssuers(plan) ? "hold" : "check";
  llvm::json::Array assumes;
  for (auto certificate : module.getOps<comm::CertificateOp>())
    for (auto text : certificate.getAssumptions().getAsRange<StringAttr>())
      assumes.push_back(text.getValue().str());
  root["assumes"] = std::move(assumes);
  bool perRank = comm::getWorld(module) > 1 && !hasMesh;

  bool several = plan.programs.size() > 1;
  EntryList inputs(perRank, several), outputs(perRank, several);
  struct Numbers {
    std::vector<int64_t> inputs, outputs;
    int64_t arena = 0;
  };
  std::vector<Numbers> numbers(programs.size());
  int64_t largest = 0;
  for (auto [index, program] : llvm::enumerate(programs)) {
    func::FuncOp function = program.function;
    const plan::Program &planned = plan.programs[index];
    Numbers &own = numbers[index];
    for (unsigned i = 0; i < function.getNumArguments(); ++i) {
      if (function.getArgAttr(i, "comm.arena"))
        own.arena = cast<MemRefType>(function.getArgument(i).getType())
                        .getNumElements();
      else if (function.getArgAttr(i, "comm.input"))
        own.inputs.push_back(inputs.add(function, i, planned));
      else if (function.getArgAttr(i, "comm.output"))
        own.outputs.push_back(outputs.add(function, i, planned));
    }
    largest = std::max(largest, own.arena);
    program.numInputs = own.inputs.size();
    program.numOutputs = own.outputs.size();
  }
  root["arena_bytes"] = largest;
  root["arena_align"] = 64;
  std::vector<int64_t> inputPlace, outputPlace;
  root["inputs"] = inputs.finish(inputPlace);
  root["outputs"] = outputs.finish(outputPlace);
  if (several) {
    llvm::json::Array list;
    for (auto [index, program] : llvm::enumerate(programs)) {
      auto placed = [](ArrayRef<int64_t> own, ArrayRef<int64_t> place) {
        llvm::json::Array array;
        for (int64_t number : own)
          array.push_back(place[number]);
        return array;
      };
      const plan::Program &planned = plan.programs[index];
      list.push_back(llvm::json::Object{
          {"name", planned.name},
          {"issuer", planned.issuer},
          {"ranks", llvm::json::Array(planned.ranks)},
          {"arena_bytes", numbers[index].arena},
          {"inputs", placed(numbers[index].inputs, inputPlace)},
          {"outputs", placed(numbers[index].outputs, outputPlace)},
          {"parameters", toJson(program.parameters)},
          {"kernels", toJson(program.kernels)}});
    }
    root["programs"] = std::move(list);
  }
  llvm::json::Array list;
  std::vector<std::string> names = uniqueNames(parameters);
  for (auto [i, attr] : llvm::enumerate(parameters)) {
    auto parameter = cast<DictionaryAttr>(attr);
    list.push_back(llvm::json::Object{
        {"section", names[i]},
        {"bytes", parameter.getAs<IntegerAttr>("bytes").getInt()}});
  }
  root["parameters"] = std::move(list);
  root["predicted"] = std::move(predicted);
  llvm::raw_string_ostream os(metadata.json);
  os << llvm::json::Value(std::move(root));
  return metadata;
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

DictionaryAttr describeParameter(comm::WeightOp op) {
  Builder builder(op.getContext());
  auto result = cast<ShapedType>(op.getType());
  auto part = op.getPart() ? cast<ShapedType>(*op.getPart()) : result;
  SmallVector<Attribute> splits;
  if (auto list = op.getSplits())
    for (auto split : list->getAsRange<comm::SplitAttr>()) {
      comm::DomainOp domain = comm::lookupDomain(op, split.getDomain());
      SmallVector<int64_t> coordinates(
          comm::getWorld(op->getParentOfType<ModuleOp>()), 0);
      int64_t size = 1;
      for (ArrayRef<int64_t> group : domain.getGroupRanks()) {
        size = group.size();
        for (auto [i, rank] : llvm::enumerate(group))
          coordinates[rank] = i;
      }
      splits.push_back(builder.getDictionaryAttr(
          {builder.getNamedAttr("dim",
                                builder.getI64IntegerAttr(split.getDim())),
           builder.getNamedAttr("outer",
                                builder.getI64IntegerAttr(split.getOuter())),
           builder.getNamedAttr("size", builder.getI64IntegerAttr(size)),
           builder.getNamedAttr("coordinates",
                                builder.getDenseI64ArrayAttr(coordinates))}));
    }
  ArrayRef<int64_t> global = op.getGlobal() ? *op.getGlobal() : part.getShape();
  uint64_t bytes =
      result.getNumElements() * elementBytes(result.getElementType());
  NamedAttrList attrs;
  attrs.set("section", op.getSectionAttr());
  attrs.set("file", op.getFileAttr());
  attrs.set("type", TypeAttr::get(part));
  attrs.set("global", builder.getDenseI64ArrayAttr(global));
  attrs.set("splits", builder.getArrayAttr(splits));
  attrs.set("bytes", builder.getI64IntegerAttr(bytes));
  if (op.getPack())
    attrs.set("pack", op.getPackAttr());
  return attrs.getDictionary(op.getContext());
}

/// Takes block `coordinate` of `parts` along `dim`, seen as [outer, n / outer].
static std::vector<std::byte> slice(std::span<const std::byte> data,
                                    SmallVectorImpl<int64_t> &shape,
                                    uint64_t element, int64_t dim,
                                    int64_t outer, int64_t parts,
                                    int64_t coordinate) {
  uint64_t before = outer, inside = element;
  for (int64_t i = 0; i < dim; ++i)
    before *= shape[i];
  for (size_t i = dim + 1; i < shape.size(); ++i)
    inside *= shape[i];
  uint64_t block = shape[dim] / outer * inside; // bytes of one outer block
  uint64_t part = block / parts;
  std::vector<std::byte> result(before * part);
  for (uint64_t i = 0; i < before; ++i)
    std::memcpy(result.data() + i * part,
                data.data() + i * block + coordinate * part, part);
  shape[dim] /= parts;
  return result;
}

static comm::WeightStore &storeOf(ModuleOp module) {
  return module.getContext()
      ->getOrLoadDialect<comm::CommDialect>()
      ->getWeightStore();
}

/// The bytes of one parameter for one rank. `owned` keeps what had to be made.
static std::string partBytes(DictionaryAttr parameter,
                             std::span<const std::byte> data, int64_t rank,
                             std::vector<std::byte> &owned,
                             std::span<const std::byte> &result) {
  auto type = cast<ShapedType>(parameter.getAs<TypeAttr>("type").getValue());
  uint64_t element = elementBytes(type.getElementType());
  SmallVector<int64_t> shape(
      parameter.getAs<DenseI64ArrayAttr>("global").asArrayRef());
  result = data;
  for (auto split :
       parameter.getAs<ArrayAttr>("splits").getAsRange<DictionaryAttr>()) {
    owned =
        slice(result, shape, element, split.getAs<IntegerAttr>("dim").getInt(),
              split.getAs<IntegerAttr>("outer").getInt(),
              split.getAs<IntegerAttr>("size").getInt(),
              split.getAs<DenseI64ArrayAttr>("coordinates")[rank]);
    result = owned;
  }
  auto pack = parameter.getAs<StringAttr>("pack");
  if (!pack)
    return "";
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  info.struct_size = sizeof(info);
  if (concord_kernel_create(pack.getValue().str().c_str(), &kernel, &info) != 0)
    return concord_kernel_last_error();
  // Packed layouts are stored with 64-byte alignment, and kernels may rely on
  // it while they pack.
  std::vector<std::byte> packed(info.packed_weight_bytes + 64);
  void *aligned = packed.data();
  size_t space = packed.size();
  std::align(64, info.packed_weight_bytes, aligned, space);
  int32_t status = concord_kernel_pack(kernel, result.data(), aligned);
  concord_kernel_destroy(kernel);
  if (status != 0)
    return concord_kernel_last_error();
  // With bounded dimensions, kernels of all sizes read the one packing.
  if (auto others = parameter.getAs<ArrayAttr>("pack_like"))
    for (auto other : others.getAsRange<StringAttr>()) {
      concord_kernel_info otherInfo = {};
      otherInfo.struct_size = sizeof(otherInfo);
      if (concord_kernel_create(other.getValue().str().c_str(), &kernel,
                                &otherInfo) != 0)
        return concord_kernel_last_error();
      std::vector<std::byte> again(info.packed_weight_bytes + 64);
      void *at = again.data();
      size_t room = again.size();
      std::align(64, info.packed_weight_bytes, at, room);
      status = otherInfo.packed_weight_bytes == info.packed_weight_bytes
                   ? concord_kernel_pack(kernel, result.data(), at)
                   : 0;
      concord_kernel_destroy(kernel);
      if (status != 0)
        return concord_kernel_last_error();
      if (otherInfo.packed_weight_bytes != info.packed_weight_bytes ||
          std::memcmp(at, aligned, info.packed_weight_bytes) != 0)
        return "is packed in another way at another size of a bounded "
               "dimension (" +
               other.getValue().str() + "); fix it with --dim NAME=N";
    }
  packed.erase(packed.begin(),
               packed.begin() +
                   (static_cast<std::byte *>(aligned) - packed.data()));
  packed.resize(info.packed_weight_bytes);
  owned = std::move(packed);
  result = owned;
  return "";
}

/// Ranks that store a part of their own; a program's parameters are for its
/// ranks only.
static SmallVector<int64_t> storingRanks(ModuleOp module,
                                         DictionaryAttr parameter) {
  if (!differsByRank(parameter))
    return {0};
  if (auto ranks = parameter.getAs<DenseI64ArrayAttr>("ranks"))
    return SmallVector<int64_t>(ranks.asArrayRef());
  return llvm::to_vector(llvm::seq<int64_t>(0, comm::getWorld(module)));
}

std::string writeParameters(ModuleOp module, const std::string &path) {
  auto parameters = module->getAttrOfType<ArrayAttr>("comm.parameters");
  if (!parameters || parameters.empty())
    return "";
  std::vector<std::string> names = uniqueNames(parameters.getValue());
  std::vector<comm::WeightSection> sections;
  for (auto [i, attr] : llvm::enumerate(parameters)) {
    auto parameter = cast<DictionaryAttr>(attr);
    auto type = cast<ShapedType>(parameter.getAs<TypeAttr>("type").getValue());
    bool split = differsByRank(parameter);
    bool packed = static_cast<bool>(parameter.get("pack"));
    for (int64_t rank : storingRanks(module, parameter)) {
      comm::WeightSection section;
      section.name = names[i] + "#" + (split ? std::to_string(rank) : "*");
      section.bytes = parameter.getAs<IntegerAttr>("bytes").getInt();
      section.dtype =
          packed ? "U8"
                 : std::string(dtypeName(fromMlirType(type.getElementType())));
      if (packed)
        section.shape = {static_cast<int64_t>(section.bytes)};
      else
        section.shape.assign(type.getShape().begin(), type.getShape().end());
      sections.push_back(std::move(section));
    }
  }
  comm::WeightWriter writer(
      path, sections,
      {{"abi", std::to_string(CONCORD_ARTEFACT_ABI_VERSION)},
       {"target_cpu", concord_kernel_target()}});
  for (Attribute attr : parameters) {
    auto parameter = cast<DictionaryAttr>(attr);
    for (int64_t rank : storingRanks(module, parameter)) {
      std::string error;
      auto section = storeOf(module).lookup(
          forRank(parameter.getAs<StringAttr>("file").getValue().str(), rank),
          forRank(parameter.getAs<StringAttr>("section").getValue().str(),
                  rank),
          error);
      if (!section)
        return error;
      std::vector<std::byte> owned;
      std::span<const std::byte> bytes;
      error = partBytes(parameter, section->bytes, rank, owned, bytes);
      if (!error.empty())
        return "parameter '" + parameterName(parameter) + "': " + error;
      if (!writer.append(bytes))
        break;
    }
  }
  return writer.finish();
}

std::string writeReferencedWeights(ModuleOp module, const std::string &path,
                                   const std::string &fileName) {
  std::map<std::pair<std::string, std::string>, comm::WeightOp> distinct;
  module.walk([&](comm::WeightOp op) {
    distinct.insert({{op.getFile().str(), op.getSection().str()}, op});
  });
  if (distinct.empty())
    return "";
  std::vector<comm::WeightSection> sections;
  std::vector<comm::WeightStore::Section> data;
  // A parameter per rank is stored once per rank, under a pattern of its own.
  std::vector<std::tuple<std::string, std::string, std::string, comm::WeightOp>>
      stored;
  for (auto &[key, op] : distinct) {
    bool perRank = key.first.find("{rank}") != std::string::npos;
    bool pattern = perRank || key.second.find("{rank}") != std::string::npos;
    std::string name = perRank ? key.second + "#{rank}" : key.second;
    for (int64_t rank = 0; rank < (pattern ? comm::getWorld(module) : 1);
         ++rank)
      stored.emplace_back(forRank(key.first, rank), forRank(key.second, rank),
                          forRank(name, rank), op);
  }
  for (auto &[file, section_, name, op] : stored) {
    std::string error;
    auto section = storeOf(module).lookup(file, section_, error);
    if (!section)
      return error;
    auto type = cast<ShapedType>(op.getPart() ? *op.getPart() : op.getType());
    comm::WeightSection entry;
    entry.name = name;
    entry.bytes = section->bytes.size();
    entry.dtype = std::string(dtypeName(fromMlirType(type.getElementType())));
    ArrayRef<int64_t> shape =
        op.getGlobal() ? *op.getGlobal() : type.getShape();
    entry.shape.assign(shape.begin(), shape.end());
    sections.push_back(std::move(entry));
    data.push_back(*section);
  }
  comm::WeightWriter writer(
      path, sections, {{"abi", std::to_string(CONCORD_ARTEFACT_ABI_VERSION)}});
  for (auto &section : data)
    if (!writer.append(section.bytes))
      break;
  std::string error = writer.finish();
  if (!error.empty())
    return error;
  module.walk([&](comm::WeightOp op) {
    if (op.getFile().contains("{rank}"))
      op.setSection((op.getSection() + "#{rank}").str());
    op.setFile(fileName);
  });
  return "";
}

} // namespace concord

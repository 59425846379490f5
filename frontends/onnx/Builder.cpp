//===- Builder.cpp - A model's header, inputs and outputs
//-------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The parts of reading that happen once per model: versions, symbolic
// dimensions, inputs, initialisers, outputs, and the public entry points.
//
//===----------------------------------------------------------------------===//

#include "Builder.h"
#include "Infer.h"

#include <algorithm>
#include <filesystem>

namespace concord::onnx {
namespace detail {

namespace {
constexpr int64_t kMinIr = 3;
constexpr int64_t kMaxIr = 14;
constexpr int64_t kMinOpset = 1;
constexpr int64_t kMaxOpset = 27;
} // namespace

void Builder::fail(const std::string &message) const {
  throw Error(source.name + ": " + message);
}

Model Builder::build(const wire::Model &proto) {
  readHeader(proto);
  if (!proto.has_graph())
    fail("not an ONNX model (it holds no graph)");
  collectDimNames(proto.graph());
  for (const wire::Function &function : proto.functions()) {
    std::string domain = function.domain();
    if (domain == "ai.onnx")
      domain.clear();
    functions.emplace(
        domain + ":" + function.name() + ":" + function.overload(), &function);
  }
  Scope scope;
  scope.graph = &model.graph;
  scope.opsets = &model.opsets;
  model.graph.name = proto.graph().name();
  readInitializers(proto.graph(), scope);
  readInputs(proto.graph(), scope);
  buildNodes(proto.graph().node(), scope);
  dropComputed(model.graph);
  finishOutputs(proto.graph(), scope);
  if (options.rearrangeWeights)
    foldWeights(model.graph);
  removeDead(model.graph);
  return std::move(model);
}

void Builder::readHeader(const wire::Model &proto) {
  model.path = source.name;
  model.irVersion = proto.ir_version();
  if (model.irVersion == 0 && !proto.has_graph())
    fail("not an ONNX model; give a file written by an ONNX exporter");
  if (model.irVersion < kMinIr || model.irVersion > kMaxIr)
    fail("IR version " + std::to_string(model.irVersion) +
         " is not supported (3 to 14 are); convert the model with the onnx "
         "package's version_converter");
  for (const wire::OpsetImport &import : proto.opset_import()) {
    std::string domain = import.domain();
    if (domain == "ai.onnx")
      domain.clear();
    if (domain == ".com.microsoft") // a common misspelling
      domain = "com.microsoft";
    model.opsets[domain] = import.version();
  }
  auto standard = model.opsets.find("");
  if (standard != model.opsets.end() &&
      (standard->second < kMinOpset || standard->second > kMaxOpset))
    fail("opset " + std::to_string(standard->second) + " is not supported (" +
         std::to_string(kMinOpset) + " to " + std::to_string(kMaxOpset) +
         " are); convert the model with onnx.version_converter");
  for (const wire::DeviceConfiguration &configuration : proto.configuration()) {
    if (configuration.num_devices() < 0 ||
        (configuration.device_size() > 0 &&
         configuration.device_size() != configuration.num_devices()))
      fail("device configuration '" + configuration.name() + "' names " +
           std::to_string(configuration.device_size()) + " of " +
           std::to_string(configuration.num_devices()) + " devices");
    model.configurations.push_back(
        {configuration.name(),
         configuration.num_devices(),
         {configuration.device().begin(), configuration.device().end()}});
  }
  if (!options.configuration.empty() &&
      std::none_of(model.configurations.begin(), model.configurations.end(),
                   [&](const DeviceConfiguration &c) {
                     return c.name == options.configuration;
                   }))
    fail("there is no device configuration '" + options.configuration + "'");
}

// --- symbolic dimensions ----------------------------------------------------

/// A dimension name, or a sum of products of names and numbers as exporters
/// write it ("past_length + 1").
std::optional<int64_t> Builder::dimValue(const std::string &expression) const {
  if (auto it = options.dims.find(expression); it != options.dims.end())
    return it->second;
  size_t at = 0;
  auto space = [&] {
    while (at < expression.size() && expression[at] == ' ')
      ++at;
  };
  auto atom = [&]() -> std::optional<int64_t> {
    space();
    const size_t begin = at;
    while (at < expression.size() && expression[at] != ' ' &&
           expression[at] != '+' && expression[at] != '*' &&
           expression[at] != '-')
      ++at;
    const std::string word = expression.substr(begin, at - begin);
    space();
    if (word.empty())
      return std::nullopt;
    if (word.find_first_not_of("0123456789") == std::string::npos)
      return word.size() < 10 ? std::optional<int64_t>(std::stoll(word))
                              : std::nullopt;
    auto it = options.dims.find(word);
    return it == options.dims.end() ? std::nullopt
                                    : std::optional<int64_t>(it->second);
  };
  auto product = [&]() -> std::optional<int64_t> {
    std::optional<int64_t> value = atom();
    while (value && at < expression.size() && expression[at] == '*') {
      ++at;
      std::optional<int64_t> factor = atom();
      int64_t result = 0;
      if (!factor || __builtin_mul_overflow(*value, *factor, &result))
        return std::nullopt;
      value = result;
    }
    return value;
  };
  std::optional<int64_t> value = product();
  while (value && at < expression.size() &&
         (expression[at] == '+' || expression[at] == '-')) {
    const bool minus = expression[at++] == '-';
    std::optional<int64_t> term = product();
    int64_t result = 0;
    if (!term || (minus ? __builtin_sub_overflow(*value, *term, &result)
                        : __builtin_add_overflow(*value, *term, &result)))
      return std::nullopt;
    value = result;
  }
  return at == expression.size() ? value : std::nullopt;
}

void Builder::collectDimNames(const wire::Graph &proto) {
  // Every name that occurs may be given; only those of inputs must be.
  std::vector<std::string> &inInputs = inputDims;
  std::unordered_set<std::string> known;
  auto collect = [&](const wire::ValueInfo &info, bool isInput) {
    if (!info.type().has_tensor_type())
      return;
    for (const auto &dim : info.type().tensor_type().shape().dim()) {
      const std::string &name = dim.dim_param();
      if (name.empty())
        continue;
      // Also the names inside an expression.
      std::string word;
      for (char c : name + " ") {
        if (c == ' ' || c == '+' || c == '*' || c == '-') {
          if (!word.empty())
            known.insert(word);
          word.clear();
        } else {
          word += c;
        }
      }
      if (known.insert(name).second || isInput)
        if (isInput &&
            std::find(inInputs.begin(), inInputs.end(), name) == inInputs.end())
          inInputs.push_back(name);
    }
  };
  for (const auto &info : proto.input())
    collect(info, true);
  for (const auto &info : proto.output())
    collect(info, false);
  for (const auto &info : proto.value_info())
    collect(info, false);
  for (const auto &[name, value] : options.dims) {
    if (value < 0)
      fail("--dim " + name + "=" + std::to_string(value) +
           ": a dimension cannot be negative");
    if (known.count(name))
      continue;
    std::string names;
    for (const std::string &have : inInputs)
      names += (names.empty() ? "" : ", ") + have;
    fail("--dim " + name +
         ": the model has no dimension of this name; it has " +
         (names.empty() ? "no symbolic dimensions" : names));
  }
}

int64_t Builder::extent(const wire::Extents::Extent &dim, size_t axis,
                        const std::string &input) {
  // Older exporters write -1 for a dimension that is not known.
  if (dim.value_case() == wire::Extents::Extent::kDimValue &&
      dim.dim_value() != -1) {
    if (dim.dim_value() < 0)
      fail("input '" + input + "': dimension " + std::to_string(axis) + " is " +
           std::to_string(dim.dim_value()));
    return dim.dim_value();
  }
  const std::string &name = dim.dim_param();
  if (name.empty())
    fail("input '" + input + "': dimension " + std::to_string(axis) +
         " has neither a size nor a name; give the input's whole shape, for "
         "example --shape " +
         input + "=1x128");
  std::optional<int64_t> value = dimValue(name);
  if (!value) {
    // All that are missing, so that one more try is enough.
    std::string sizes = " --dim " + name + "=128";
    for (const std::string &other : inputDims)
      if (other != name && !dimValue(other) &&
          other.find_first_of(" +-*/()") == std::string::npos)
        sizes += " --dim " + other + "=128";
    fail("input '" + input + "': dimension " + std::to_string(axis) + " ('" +
         name + "') is not bound; give its size, for example" + sizes);
  }
  if (*value < 0)
    fail("input '" + input + "': dimension '" + name + "' becomes " +
         std::to_string(*value));
  return *value;
}

TensorType Builder::inputType(const wire::ValueInfo &info) {
  const wire::Type &type = info.type();
  const std::string what = "input '" + info.name() + "'";
  switch (type.value_case()) {
  case wire::Type::kTensorType:
    break;
  case wire::Type::kSequenceType:
    fail(what + " is a sequence, which is not supported; use tensors");
  case wire::Type::kMapType:
    fail(what + " is a map, which is not supported; use tensors");
  case wire::Type::kOptionalType:
    fail(what + " is optional, which is not supported; use tensors");
  case wire::Type::kSparseTensorType:
    fail(what + " is sparse, which is not supported; use dense tensors");
  default:
    fail(what + " has no type; export the model with typed inputs");
  }
  TensorType result;
  result.dtype = dtypeFromWire(type.tensor_type().elem_type());
  if (result.dtype == DType::Invalid)
    fail(what + " is of " + wireDtypeName(type.tensor_type().elem_type()) +
         ", which is not supported");
  if (auto it = options.inputShapes.find(info.name());
      it != options.inputShapes.end()) {
    const auto &declared = type.tensor_type();
    if (declared.has_shape() && declared.shape().dim_size() > 0 &&
        static_cast<size_t>(declared.shape().dim_size()) != it->second.size())
      fail(what + " has " + std::to_string(declared.shape().dim_size()) +
           " dimensions and the given shape has " +
           std::to_string(it->second.size()));
    result.shape = it->second;
  } else if (auto bound = options.constantInputs.find(info.name());
             bound != options.constantInputs.end()) {
    result.shape = bound->second.type.shape;
  } else if (!type.tensor_type().has_shape()) {
    fail(what + " declares no shape; give it, for example --shape " +
         info.name() + "=1x128");
  } else {
    for (const auto &dim : type.tensor_type().shape().dim())
      result.shape.push_back(extent(dim, result.shape.size(), info.name()));
  }
  try {
    checkTensorSize(result, what);
  } catch (const Error &error) {
    fail(error.what());
  }
  return result;
}

// --- inputs, initialisers, outputs ------------------------------------------

void Builder::readInitializers(const wire::Graph &proto, Scope &scope) {
  for (const wire::SparseTensor &sparse : proto.sparse_initializer())
    fail("initializer '" + sparse.values().name() +
         "' is sparse, which is not supported; store it as a dense tensor");
  for (const wire::Tensor &tensor : proto.initializer()) {
    const std::string what = "initializer '" + tensor.name() + "'";
    Tensor data;
    try {
      data = tensorFromWire(tensor, source, what);
    } catch (const Error &error) {
      fail(error.what());
    }
    define(scope, tensor.name(),
           addConstant(*scope.graph, scope.prefix + tensor.name(),
                       std::move(data)),
           what);
  }
}

void Builder::readInputs(const wire::Graph &proto, Scope &scope) {
  std::unordered_set<std::string> initializers;
  for (const wire::Tensor &tensor : proto.initializer())
    initializers.insert(tensor.name());
  std::unordered_set<std::string> names;
  for (const wire::ValueInfo &info : proto.input()) {
    if (!names.insert(info.name()).second)
      fail("input '" + info.name() + "' is declared twice");
    if (initializers.count(info.name()))
      continue; // its default is taken; IR 3 lists every initialiser here
    const TensorType type = inputType(info);
    const std::string what = "input '" + info.name() + "'";
    if (auto it = options.constantInputs.find(info.name());
        it != options.constantInputs.end()) {
      if (!(it->second.type == type))
        fail(what + " is " + text(type) + " and the constant given for it is " +
             text(it->second.type));
      define(scope, info.name(),
             addConstant(*scope.graph, info.name(), it->second), what);
      continue;
    }
    const ValueId id = addValue(*scope.graph, info.name(), type);
    scope.graph->inputs.push_back(id);
    define(scope, info.name(), id, what);
  }
  auto known = [&](const std::string &name, const char *flag) {
    if (names.count(name))
      return;
    std::string list;
    for (const wire::ValueInfo &info : proto.input())
      if (!initializers.count(info.name()))
        list += (list.empty() ? "" : ", ") + info.name();
    fail(std::string(flag) + " " + name +
         ": the model has no input of this name; it has " +
         (list.empty() ? "none" : list));
  };
  for (const auto &entry : options.inputShapes)
    known(entry.first, "--shape");
  for (const auto &entry : options.constantInputs)
    known(entry.first, "--const");
}

void Builder::checkOutputType(const wire::ValueInfo &info,
                              const TensorType &type) {
  if (!info.type().has_tensor_type())
    return;
  const auto &declared = info.type().tensor_type();
  const std::string what = "output '" + info.name() + "'";
  if (declared.elem_type() != 0 &&
      declared.elem_type() != dtypeToWire(type.dtype))
    fail(what + " is declared as " + wireDtypeName(declared.elem_type()) +
         " and computed as " + text(type) + "; the model is inconsistent");
  // Shapes given from outside may well differ from what the exporter noted.
  if (!declared.has_shape() || !options.inputShapes.empty())
    return;
  const auto &dims = declared.shape().dim();
  bool fits = static_cast<size_t>(dims.size()) == type.shape.size();
  for (int i = 0; fits && i < dims.size(); ++i)
    if (dims[i].value_case() == wire::Extents::Extent::kDimValue)
      fits = dims[i].dim_value() == type.shape[i];
  if (fits)
    return;
  std::string shape = "[";
  for (int i = 0; i < dims.size(); ++i)
    shape += (i ? "," : "") +
             (dims[i].value_case() == wire::Extents::Extent::kDimValue
                  ? std::to_string(dims[i].dim_value())
              : dims[i].dim_param().empty() ? "?"
                                            : dims[i].dim_param());
  fail(what + " is declared with shape " + shape + "] and computed as " +
       text(type) + "; the model is inconsistent");
}

void Builder::finishOutputs(const wire::Graph &proto, Scope &scope) {
  Graph &graph = *scope.graph;
  if (proto.output_size() == 0)
    fail("the graph has no outputs");
  std::unordered_set<ValueId> produced;
  for (const Node &node : graph.nodes)
    produced.insert(node.outputs.begin(), node.outputs.end());
  std::unordered_set<std::string> names;
  for (const wire::ValueInfo &info : proto.output()) {
    if (!names.insert(info.name()).second)
      fail("output '" + info.name() + "' is declared twice");
    std::optional<ValueId> id = lookup(scope, info.name());
    if (!id)
      fail("output '" + info.name() +
           "' is produced by no node; the model is incomplete");
    if (isSequence(*id))
      fail("output '" + info.name() +
           "' is a sequence; make its tensors the outputs");
    checkOutputType(info, graph.values[*id].type);
    // A value can have one name. Removing Identity nodes may have left an
    // output under another one, or two outputs as one value.
    if (graph.values[*id].name != info.name()) {
      const bool taken = std::find(graph.outputs.begin(), graph.outputs.end(),
                                   *id) != graph.outputs.end();
      if (graph.values[*id].constant) {
        id = addConstant(graph, info.name(), *graph.values[*id].constant);
      } else if (produced.count(*id) && !taken) {
        graph.values[*id].name = info.name();
      } else {
        Node copy;
        copy.opType = "Identity";
        copy.opset = model.opsets.count("") ? model.opsets[""] : kMaxOpset;
        copy.name = "Identity#" + info.name();
        while (!nodeNames.insert(copy.name).second)
          copy.name += "'";
        copy.inputs = {*id};
        id = addValue(graph, info.name(), graph.values[*id].type);
        copy.outputs = {*id};
        graph.nodes.push_back(std::move(copy));
      }
    }
    graph.outputs.push_back(*id);
  }
}

} // namespace detail

// --- entry points -----------------------------------------------------------

static void parse(detail::Source &source, onnx_wire::Model &proto) {
  try {
    const std::string message =
        detail::takeOutRawData(source.file.bytes, detail::Message::Model);
    if (source.file.bytes.empty())
      throw Error("the file is empty");
    if (!proto.ParseFromString(message))
      throw Error("not an ONNX model (its bytes do not follow the schema)");
  } catch (const Error &error) {
    throw Error(source.name + ": " + error.what());
  }
}

static Model readSource(detail::Source &source, const ReadOptions &options) {
  onnx_wire::Model proto;
  parse(source, proto);
  return detail::Builder(source, options).build(proto);
}

static void openSource(detail::Source &source, const std::string &path) {
  source.name = path;
  source.file = detail::mapFile(path);
  source.directory = std::filesystem::path(path).parent_path().string();
  if (source.directory.empty())
    source.directory = ".";
}

Model readModel(const std::string &path, const ReadOptions &options) {
  detail::Source source;
  openSource(source, path);
  return readSource(source, options);
}

struct ModelFile::Parsed {
  detail::Source source;
  onnx_wire::Model proto;
};

ModelFile::ModelFile(const std::string &path)
    : parsed(std::make_unique<Parsed>()) {
  openSource(parsed->source, path);
  parse(parsed->source, parsed->proto);
}

ModelFile::~ModelFile() = default;

Model ModelFile::read(const ReadOptions &options) const {
  return detail::Builder(parsed->source, options).build(parsed->proto);
}

std::set<int64_t> ModelFile::initializerExtents() const {
  std::set<int64_t> extents;
  for (const auto &tensor : parsed->proto.graph().initializer())
    extents.insert(tensor.dims().begin(), tensor.dims().end());
  return extents;
}

std::set<std::string> ModelFile::leadingDims() const {
  std::set<std::string> names;
  for (const auto &info : parsed->proto.graph().input())
    if (info.type().has_tensor_type() &&
        info.type().tensor_type().shape().dim_size() > 0)
      names.insert(info.type().tensor_type().shape().dim(0).dim_param());
  return names;
}

Model readModelFromMemory(std::span<const std::byte> bytes,
                          const std::string &nameForMessages,
                          const std::string &directory,
                          const ReadOptions &options) {
  // The tensors of the result outlive `bytes`, so they need a copy of their
  // own.
  detail::Source source;
  source.name = nameForMessages;
  source.directory = directory;
  Tensor copy =
      Tensor::allocate({DType::U8, {static_cast<int64_t>(bytes.size())}});
  std::copy(bytes.begin(), bytes.end(), copy.mutableBytes().begin());
  source.file = {copy.bytes, copy.owner};
  return readSource(source, options);
}

} // namespace concord::onnx

//===- Options.cpp - Command line of comm-opt -----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The options that say for which mesh and which shapes a model is compiled.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;

static cl::OptionCategory category("Concord options");

static cl::list<std::string> meshOption(
    "mesh",
    cl::desc("Axes of the mesh, e.g. dp=2,tp=4 (row-major, last fastest)"),
    cl::value_desc("AXIS=N,..."), cl::CommaSeparated, cl::cat(category));
static cl::opt<int64_t> tpOption("tp", cl::desc("Short for --mesh tp=N"),
                                 cl::init(0), cl::value_desc("N"),
                                 cl::cat(category));
static cl::opt<int64_t> dpOption("dp", cl::desc("Short for --mesh dp=N"),
                                 cl::init(0), cl::value_desc("N"),
                                 cl::cat(category));
static cl::opt<int64_t> ppOption("pp", cl::desc("Short for --mesh pp=N"),
                                 cl::init(0), cl::value_desc("N"),
                                 cl::cat(category));
static cl::opt<int64_t> epOption("ep", cl::desc("Short for --mesh ep=N"),
                                 cl::init(0), cl::value_desc("N"),
                                 cl::cat(category));
static cl::opt<std::string> microOption(
    "micro-batches",
    cl::desc("Cut the batch into N parts that go through the stages of axis pp "
             "one behind the other; auto: as many as are predicted to be "
             "fastest"),
    cl::init("1"), cl::value_desc("N|auto"), cl::cat(category));
static cl::opt<int64_t> memoryOption(
    "memory",
    cl::desc("Bytes that the arena of each program may have; what does not "
             "fit is refused (as memory= of --comm-pipeline)"),
    cl::init(-1), cl::value_desc("BYTES"), cl::cat(category));
static cl::opt<int64_t>
    worldOption("world",
                cl::desc("Ranks of a model that holds collectives of its own"),
                cl::init(0), cl::value_desc("N"), cl::cat(category));
static cl::list<std::string>
    dimOption("dim",
              cl::desc("Fix a symbolic dimension of the model (seq=128), or "
                       "bound it: one program for all sizes (seq=1..512)"),
              cl::value_desc("NAME=N|NAME=MIN..MAX"), cl::cat(category));
static cl::list<std::string>
    shapeOption("shape", cl::desc("Shape of an input, e.g. x=1x3x224x224"),
                cl::value_desc("INPUT=AxBxC"), cl::cat(category));
static cl::list<std::string>
    constOption("const",
                cl::desc("Take an input as the constant in a TensorProto file"),
                cl::value_desc("INPUT=FILE.pb"), cl::cat(category));
static cl::list<std::string> groupTypeOption(
    "group-type",
    cl::desc("Mesh axis that an Nccl* operator's group_type means"),
    cl::value_desc("TYPE=AXIS"), cl::cat(category));

namespace concord {

static bool parsePair(StringRef text, StringRef &key, StringRef &value) {
  std::tie(key, value) = text.split('=');
  return !key.empty() && !value.empty();
}

static bool addAxis(Mesh &mesh, StringRef name, int64_t size,
                    std::string &error) {
  // What is split along an axis follows from its name; a misspelt one must not
  // be taken for one more way to split weights.
  if (!llvm::is_contained({"dp", "tp", "ep", "pp"}, name)) {
    error = "unknown mesh axis '" + name.str() +
            "'; the axes are dp (batch), tp (weights), ep (experts) and pp "
            "(stages)";
    return false;
  }
  for (auto &axis : mesh)
    if (axis.first == name) {
      error = "mesh axis '" + name.str() + "' is given twice";
      return false;
    }
  if (size < 1 || size > 65536) {
    error = "mesh axis '" + name.str() + "' needs a size from 1 to 65536";
    return false;
  }
  mesh.push_back({name.str(), size});
  return true;
}

bool hasCompileOptions() {
  return meshOption.getNumOccurrences() || tpOption.getNumOccurrences() ||
         dpOption.getNumOccurrences() || ppOption.getNumOccurrences() ||
         epOption.getNumOccurrences() || microOption.getNumOccurrences() ||
         worldOption.getNumOccurrences() || dimOption.getNumOccurrences() ||
         shapeOption.getNumOccurrences() || constOption.getNumOccurrences() ||
         groupTypeOption.getNumOccurrences();
}

CompileOptions collectCompileOptions(std::string &error) {
  CompileOptions options;
  StringRef key, value;
  for (const std::string &text : meshOption) {
    int64_t size;
    if (!parsePair(text, key, value) || value.getAsInteger(10, size)) {
      error = "--mesh takes AXIS=N,..., not '" + text + "'";
      return options;
    }
    if (!addAxis(options.mesh, key, size, error))
      return options;
  }
  if ((dpOption.getNumOccurrences() &&
       !addAxis(options.mesh, "dp", dpOption, error)) ||
      (ppOption.getNumOccurrences() &&
       !addAxis(options.mesh, "pp", ppOption, error)) ||
      (epOption.getNumOccurrences() &&
       !addAxis(options.mesh, "ep", epOption, error)) ||
      (tpOption.getNumOccurrences() &&
       !addAxis(options.mesh, "tp", tpOption, error)))
    return options;
  if (microOption == "auto") {
    options.microBatches = 0;
  } else if (StringRef(microOption).getAsInteger(10, options.microBatches) ||
             options.microBatches < 1 || options.microBatches > 1024) {
    error = "--micro-batches takes a number from 1 to 1024, or auto";
    return options;
  }
  if (memoryOption.getNumOccurrences()) {
    if (memoryOption < 0) {
      error = "--memory takes a number of bytes";
      return options;
    }
    options.memory = memoryOption;
  }
  int64_t product = 1;
  for (auto &axis : options.mesh)
    product *= axis.second;
  options.world = worldOption ? worldOption.getValue() : product;
  if (!options.mesh.empty() && options.world != product) {
    error = "--world " + std::to_string(options.world) +
            " contradicts the mesh of " + std::to_string(product) + " ranks";
    return options;
  }
  options.read.world = options.world;
  for (const std::string &text : dimOption) {
    int64_t least, most;
    bool good = parsePair(text, key, value);
    if (value.contains("..")) {
      auto [low, high] = value.split("..");
      if (!good || low.getAsInteger(10, least) || high.getAsInteger(10, most) ||
          least < 0 || most < 1 || least > most || most > int64_t(1) << 31) {
        error = "--dim takes NAME=MIN..MAX with 0 <= MIN <= MAX, not '" + text +
                "'";
        return options;
      }
    } else {
      if (!good || value.getAsInteger(10, least) || least < 1) {
        error =
            "--dim takes NAME=N with a positive N, or NAME=MIN..MAX, not '" +
            text + "'";
        return options;
      }
      most = least;
    }
    if (options.read.dims.count(key.str()) ||
        llvm::any_of(options.bounded,
                     [&](auto &dim) { return dim.name == key; })) {
      error = "--dim " + key.str() + " is given twice";
      return options;
    }
    if (least == most)
      options.read.dims[key.str()] = least;
    else
      options.bounded.push_back({key.str(), least, most});
  }
  for (const std::string &text : shapeOption) {
    onnx::Shape shape;
    bool bad = !parsePair(text, key, value);
    SmallVector<StringRef> parts;
    value.split(parts, 'x');
    for (StringRef part : parts)
      bad |= part.getAsInteger(10, shape.emplace_back()) || shape.back() < 0;
    if (bad) {
      error = "--shape takes INPUT=AxBxC, not '" + text + "'";
      return options;
    }
    options.read.inputShapes[key.str()] = shape;
  }
  for (const std::string &text : constOption) {
    if (!parsePair(text, key, value)) {
      error = "--const takes INPUT=FILE.pb, not '" + text + "'";
      return options;
    }
    try {
      options.read.constantInputs[key.str()] =
          onnx::readTensorProto(value.str());
    } catch (const std::exception &failure) {
      error = failure.what();
      return options;
    }
  }
  for (const std::string &text : groupTypeOption) {
    int64_t type;
    if (!parsePair(text, key, value) || key.getAsInteger(10, type)) {
      error = "--group-type takes TYPE=AXIS, not '" + text + "'";
      return options;
    }
    auto axis = llvm::find_if(
        options.mesh, [&](auto &entry) { return entry.first == value; });
    if (axis == options.mesh.end()) {
      error = "--group-type names axis '" + value.str() +
              "', which --mesh does not have";
      return options;
    }
    options.groupTypes[type] = value.str();
    options.read.groupSizes[type] = axis->second;
  }
  return options;
}

} // namespace concord
